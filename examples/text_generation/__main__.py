"""How does a sentence go on? textgenrnn, one character after the other.

    python -m examples.text_generation [BEGINNING] [--temperature T] [--seed N] [--picture FILE.png]

In: how the text begins. Out: the text, up to the end that the network gives it. The network reads
the last 40 characters, with padding before them, as it was trained.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import tilewright as tw
from examples.beside import THREADS, compare, missing, onnxruntime_session, shipped
from examples.text_generation.picture import draw

INSTALL = "--no-deps textgenrnn h5py"
READ, MOST_WRITTEN = 40, 160  # characters
PADDING = 0
END = "<s>"  # begins and ends each text that the network was trained on

Run = Callable[[Any, dict[str, np.ndarray]], list[Any]]


def write(
    run: Run, alphabet: dict[str, int], beginning: str, temperature: float, seed: int
) -> tuple[str, list[np.ndarray]]:
    """The text, and of each character that was added all characters' scores, f32[characters]; of
    the end as well, where the network set it."""
    letters = {n: letter for letter, n in alphabet.items()}
    random = np.random.default_rng(seed)
    text = [PADDING] * READ + [alphabet[END], *(alphabet[letter] for letter in beginning)]
    seen: list[np.ndarray] = []
    while len(text) <= READ + MOST_WRITTEN:
        found = run(None, {"ids": np.array(text[-READ:])})[0][0]
        seen.append(found)
        found = (found[1:] - found.max()).astype(np.float64) / max(temperature, 1e-3)
        chosen = 1 + int(np.argmax(found + random.gumbel(size=found.shape)))
        if letters[chosen] == END:
            break
        text.append(chosen)
    return "".join(letters[n] for n in text[READ + 1 :]), seen


def likely(
    text: str, beginning: str, alphabet: dict[str, int], seen: list[np.ndarray]
) -> list[float]:
    """The probability that the network gave each character of the text; 0 for the beginning's."""
    found = [0.0] * len(beginning)
    for letter, scores in zip(text[len(beginning) :], seen, strict=False):
        exponentials = np.exp(scores - scores.max())
        found.append(float(exponentials[alphabet[letter]] / exponentials.sum()))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m examples.text_generation")
    parser.add_argument("beginning", nargs="?", default="My cat")
    parser.add_argument("--temperature", type=float, default=0.4)
    parser.add_argument("--seed", type=int, default=2)
    parser.add_argument("--picture", type=Path)
    given = parser.parse_args()
    weights = shipped("textgenrnn", "textgenrnn_weights.hdf5", INSTALL)
    alphabet = json.loads(shipped("textgenrnn", "textgenrnn_vocab.json", INSTALL).read_text())
    if unknown := set(given.beginning) - set(alphabet):
        raise SystemExit(f"the network does not know {' '.join(sorted(unknown))}")
    try:
        from examples.text_generation.network import network
    except ModuleNotFoundError as error:
        missing(f"this example needs the package {error.name}", error.name or "onnx h5py")

    model = network(weights)
    exe = tw.compile(model, shapes={"ids": (READ,)}, threads=THREADS)
    chosen = alphabet, given.beginning, given.temperature, given.seed
    text, seen = write(exe.run, *chosen)
    print(text)
    if given.picture:
        draw(text, likely(text, given.beginning, alphabet, seen)).save(given.picture)

    session = onnxruntime_session(model.SerializeToString())
    compare(
        f"{len(seen)} characters",
        lambda: write(exe.run, *chosen)[1],
        lambda: write(session.run, *chosen)[1],
    )


if __name__ == "__main__":
    main()
