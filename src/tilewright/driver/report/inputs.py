"""Inputs of a model from the command line: arrays from files, random numbers for the rest.

In: what the model takes, `name=file.npy`, `symbol=size`. Out: arrays in the model's order. Numbers
are standard normal; whole numbers are what the compiler found likely (`graph.likely`), else 0 or 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.runtime import abi
from tilewright.runtime.profile import evaluate
from tilewright.runtime.tensor import numpy_dtype
from tilewright.support.errors import InputError


def read_inputs(
    manifest: abi.Manifest, files: Sequence[str], sizes: Mapping[str, int], seed: int
) -> list[Any]:
    """Arrays for a model's inputs: those in files, and random ones of these sizes; a size that
    nobody says is that of an array that has it, else the least. Raises InputError for a name, file
    or size that does not fit."""
    infos = manifest.inputs
    names = [t.name for t in infos]
    given = {name: _read(name, path) for name, path in _pairs("--input", files, names)}
    symbols = {s.name: max(1, s.minimum) for s in manifest.symbols if not s.data_dependent}
    for t in infos:
        shape = np.shape(given[t.name]) if t.name in given else ()
        symbols.update((d, n) for d, n in zip(t.shape, shape, strict=False) if d in symbols)
    check_known("--size", sizes, list(symbols))
    symbols |= sizes
    random = np.random.default_rng(seed)
    likely = manifest.notes.get("likely", {})
    return [
        given[t.name] if t.name in given else _random(t, symbols, random, likely.get(t.name))
        for t in infos
    ]


def read_sizes(texts: Sequence[str]) -> dict[str, int]:
    """Sizes by name, of texts such as "height=320". Raises InputError for what is no number."""
    found: dict[str, int] = {}
    for name, text in _pairs("--size", texts):
        if not text.isdecimal():
            raise InputError(f"cannot read --size {name}={text}", "it is no whole number")
        found[name] = int(text)
    return found


def unsaid(shapes: Mapping[str, Sequence[abi.Dim]], files: Sequence[str]) -> list[str]:
    """The open sizes of inputs for which no file is given: inner ones, which the caller had better
    say; then those of first axes alone (the batch), of which one is as good as any."""
    given = {text.partition("=")[0] for text in files}
    told = {d for name in given for d in shapes.get(name, ())}
    leading = {d for shape in shapes.values() for d in shape[:1]}
    inner = {d for shape in shapes.values() for d in shape[1:]}
    names = [d for shape in shapes.values() for d in shape if isinstance(d, str) and d not in told]
    return sorted(dict.fromkeys(names), key=lambda name: name in leading - inner)


def _pairs(
    option: str, texts: Sequence[str], known: Sequence[str] | None = None
) -> list[tuple[str, str]]:
    pairs = [text.partition("=") for text in texts]
    for (_, sign, _), text in zip(pairs, texts, strict=True):
        if not sign:
            raise InputError(f"cannot read {option} {text}", "it is not of the form name=value")
    values = {name: value for name, _, value in pairs}
    if known is not None:
        check_known(option, values, known)
    return list(values.items())


def check_known(option: str, given: Mapping[str, Any], known: Sequence[str]) -> None:
    """Raises InputError if something is given for a name that the model has not."""
    for name, value in given.items():
        if name not in known:
            raise InputError(
                f"cannot use {option} {name}={value}",
                f"the model has no '{name}'",
                remedy=f"it has: {', '.join(known) or 'none'}",
            )


def _read(name: str, path: str) -> Any:
    try:
        return np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as fault:
        raise InputError(f"cannot read input '{name}' from '{path}'", str(fault)) from None


def _random(
    info: abi.TensorInfo,
    symbols: dict[str, int],
    random: np.random.Generator,
    span: tuple[int, int] | None,
) -> Any:
    shape = tuple(evaluate(d, symbols) for d in info.shape)
    dtype = numpy_dtype(info.dtype)
    if info.dtype[0] in "iu" or info.dtype == "bool":
        low, high = span or (0, 1)
        return random.integers(low, high + 1, shape).astype(dtype)
    return random.standard_normal(shape).astype(dtype)
