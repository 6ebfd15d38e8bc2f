"""Inputs of a model from the command line: arrays from files, random numbers for the rest.

In: what the model takes, `name=file.npy`, `symbol=size`. Out: arrays in the model's order. Numbers
are standard normal; whole numbers are 0 or 1, which every vocabulary and every mask has.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.runtime import abi
from tilewright.runtime.profile import evaluate
from tilewright.runtime.tensor import numpy_dtype
from tilewright.support.errors import InputError


def read_inputs(
    manifest: abi.Manifest, files: Sequence[str], sizes: Sequence[str], seed: int
) -> list[Any]:
    """Arrays for a model's inputs. Raises InputError for a name, file or size that does not fit."""
    infos = manifest.inputs
    names = [t.name for t in infos]
    given = {name: _read(name, path) for name, path in _pairs("--input", files, names)}
    symbols = {s.name: max(1, s.minimum) for s in manifest.symbols if not s.measured}
    for name, text in _pairs("--size", sizes, list(symbols)):
        if not text.isdecimal():
            raise InputError(f"cannot read --size {name}={text}", "it is no whole number")
        symbols[name] = int(text)
    random = np.random.default_rng(seed)
    return [given[t.name] if t.name in given else _random(t, symbols, random) for t in infos]


def _pairs(option: str, texts: Sequence[str], known: Sequence[str]) -> list[tuple[str, str]]:
    pairs = [text.partition("=") for text in texts]
    for (name, sign, _), text in zip(pairs, texts, strict=True):
        if not sign:
            raise InputError(f"cannot read {option} {text}", "it is not of the form name=value")
        if name not in known:
            raise InputError(
                f"cannot use {option} {text}",
                f"the model has no '{name}'",
                remedy=f"it has: {', '.join(known) or 'none'}",
            )
    return [(name, value) for name, _, value in pairs]


def _read(name: str, path: str) -> Any:
    try:
        return np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as fault:
        raise InputError(f"cannot read input '{name}' from '{path}'", str(fault)) from None


def _random(info: abi.TensorInfo, symbols: dict[str, int], random: np.random.Generator) -> Any:
    shape = tuple(evaluate(d, symbols) for d in info.shape)
    dtype = numpy_dtype(info.dtype)
    if info.dtype[0] in "iu" or info.dtype == "bool":
        return random.integers(0, 2, shape).astype(dtype)
    return random.standard_normal(shape).astype(dtype)
