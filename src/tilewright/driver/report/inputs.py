"""Inputs of a model from the command line: arrays from files, random numbers for the rest.

In: what the model takes, `name=file`, `symbol=size`. Out: for each call the arrays in the model's
order. Numbers are standard normal; whole numbers are what the compiler found likely
(`graph.likely`), else 0 or 1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from tilewright.driver.report import files as array_files
from tilewright.driver.report.files import Found, Pixels
from tilewright.runtime import abi
from tilewright.runtime.profile import evaluate
from tilewright.runtime.tensor import numpy_dtype
from tilewright.support.errors import InputError
from tilewright.support.record import record

AS_STORED = Pixels()


@record
class Call:
    """One call: the files' name, and what reads the arrays, in the model's order."""

    name: str
    read: Callable[[], list[Any]]


def find_calls(
    manifest: abi.Manifest,
    files: Sequence[str],
    sizes: Mapping[str, int],
    seed: int,
    pixels: Pixels = AS_STORED,
    batch: int | None = None,
) -> list[Call]:
    """The calls that files ask for: one, or where a folder is named, one for each of its files, or
    for each `batch` of them. What no file gives is random, of these sizes; a size that nobody says
    is that of an array that has it, else the least. This and reading raise InputError for a name,
    file or size that does not fit."""
    symbols = {s.name for s in manifest.symbols if not s.data_dependent}
    check_known("--size", sizes, sorted(symbols))
    given = {
        t.name: _batches(t, array_files.find(_sized(t, sizes), path, pixels), batch)
        for t, path in named_files(manifest.inputs, files).items()
    }
    count = max(map(len, given.values()), default=1)
    for name, found in given.items():
        if len(found) not in (1, count):
            raise InputError(
                f"cannot read input '{name}'",
                f"its folder holds files for {len(found)} calls, another's for {count}",
                remedy="a folder has a file for each call; a single file serves them all",
            )
    calls: list[Call] = []
    for n in range(count):
        one = {name: found[n if len(found) > 1 else 0] for name, found in given.items()}
        names = [found.name for name, found in one.items() if len(given[name]) == count]
        calls.append(Call(names[0] if names else "", partial(_arrays, manifest, one, sizes, seed)))
    return calls


def read_inputs(
    manifest: abi.Manifest, files: Sequence[str], sizes: Mapping[str, int], seed: int
) -> list[Any]:
    """Arrays for one call of a model; see `find_calls`. Raises InputError."""
    first, *others = find_calls(manifest, files, sizes, seed)
    if others:
        raise InputError(
            "cannot measure a folder of inputs",
            f"it holds files for {1 + len(others)} calls",
            remedy="name one file of it",
        )
    return first.read()


def named_files(inputs: Sequence[abi.TensorInfo], texts: Sequence[str]) -> dict[Any, str]:
    """The path for each input that has one, of texts such as "image=photo.png"; "photo.png" alone
    where the model has one input, "all.npz" for those that it names. Raises InputError."""
    known = {t.name: t for t in inputs}
    found: dict[Any, str] = {}
    for text in texts:
        name, sign, path = text.partition("=")
        if sign:
            names = [name]
        elif text.endswith(".npz"):
            path = text
            names = array_files.names_in(text)
            names = [*known] if len(names) == len(known) == 1 else names
        elif len(known) == 1:
            path, names = text, [*known]
        else:
            raise InputError(
                f"cannot read --input {text}",
                "it is not of the form name=file",
                remedy=f"the model's inputs are {', '.join(known) or 'none'}",
            )
        check_known("--input", dict.fromkeys(names, path), [*known])
        found.update((known[name], path) for name in names)
    return found


def _sized(info: abi.TensorInfo, sizes: Mapping[str, int]) -> abi.TensorInfo:
    """An input whose open sizes are numbers where they are said."""
    shape = tuple([sizes.get(d, d) if isinstance(d, str) else d for d in info.shape])
    return replace(info, shape=shape)


def _batches(info: abi.TensorInfo, found: Sequence[Found], batch: int | None) -> list[Found]:
    """Files put together for one call each: arrays without the axis of the batch (as the first one
    tells) are stacked, as many as the model takes at once, or as `batch` says; whole ones are a
    call each, or joined by `batch`."""
    declared = info.shape[0] if info.shape else 1
    is_row = found[0].is_part and np.ndim(found[0].read()) == len(info.shape) - 1
    count = batch or (declared if is_row and isinstance(declared, int) else 1)
    if not is_row and (count == 1 or len(found) == 1):
        return [*found]
    if len(found) % count and isinstance(declared, int):
        raise InputError(
            f"cannot put {len(found)} files together for input '{info.name}'",
            f"the model takes {count} at once",
            remedy=f"give a multiple of {count} files, or compile the model for another batch",
        )
    join: Any = np.stack if is_row else np.concatenate
    parts = [found[at : at + count] for at in range(0, len(found), count)]
    return [Found(part[0].name, partial(_joined, info, part, join), True) for part in parts]


def _joined(info: abi.TensorInfo, part: Sequence[Found], join: Any) -> Any:
    """The arrays of some files as one."""
    arrays = [found.read() for found in part]
    try:
        return join(arrays)
    except ValueError:
        shapes = sorted({str(list(np.shape(array))) for array in arrays})
        raise InputError(
            f"cannot put {len(part)} files together for input '{info.name}'",
            f"their shapes differ: {', '.join(shapes[:3])}",
            remedy="give files of one shape, or leave --batch out; --fit resizes images",
        ) from None


def _arrays(
    manifest: abi.Manifest, files: Mapping[str, Found], sizes: Mapping[str, int], seed: int
) -> list[Any]:
    """Arrays for all inputs: those of files, and random ones."""
    given = {name: found.read() for name, found in files.items()}
    symbols = {s.name: max(1, s.minimum) for s in manifest.symbols if not s.data_dependent}
    for t in manifest.inputs:
        shape = np.shape(given[t.name]) if t.name in given else ()
        symbols.update((d, n) for d, n in zip(t.shape, shape, strict=False) if d in symbols)
    symbols |= sizes
    random = np.random.default_rng(seed)
    likely = manifest.notes.get("likely", {})
    return [
        given[t.name] if t.name in given else _random(t, symbols, random, likely.get(t.name))
        for t in manifest.inputs
    ]


def read_sizes(texts: Sequence[str]) -> dict[str, int]:
    """Sizes by name, of texts such as "height=320". Raises InputError for what is no number."""
    found: dict[str, int] = {}
    for name, text in _pairs("--size", texts):
        if not text.isdecimal():
            raise InputError(
                f"cannot read --size {name}={text}",
                "it is no whole number",
                remedy=f"write it as in --size {name}=320",
            )
        found[name] = int(text)
    return found


def unsaid(shapes: Mapping[str, Sequence[abi.Dim]], files: Sequence[str]) -> list[str]:
    """The open sizes of inputs for which no file is given: inner ones, which the caller had better
    say; then those of first axes alone (the batch), of which one is as good as any."""
    infos = [abi.TensorInfo(name, "f32", tuple(shape)) for name, shape in shapes.items()]
    given = {info.name for info in named_files(infos, files)}
    told = {d for name in given for d in shapes.get(name, ())}
    leading = {d for shape in shapes.values() for d in shape[:1]}
    inner = {d for shape in shapes.values() for d in shape[1:]}
    names = [d for shape in shapes.values() for d in shape if isinstance(d, str) and d not in told]
    return sorted(dict.fromkeys(names), key=lambda name: name in leading - inner)


def _pairs(option: str, texts: Sequence[str]) -> list[tuple[str, str]]:
    pairs = [text.partition("=") for text in texts]
    for (name, sign, _), text in zip(pairs, texts, strict=True):
        if not sign or not name:
            raise InputError(
                f"cannot read {option} {text}",
                "it is not of the form name=value",
                remedy=f"write it as in {option} height=320",
            )
    return list({name: value for name, _, value in pairs}.items())


def check_known(option: str, given: Mapping[str, Any], known: Sequence[str]) -> None:
    """Raises InputError if something is given for a name that the model has not."""
    for name, value in given.items():
        if name not in known:
            raise InputError(
                f"cannot use {option} {name}={value}",
                f"the model has no '{name}'",
                remedy=f"it has: {', '.join(known) or 'none'}",
            )


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
