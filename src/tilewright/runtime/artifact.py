"""The artifact `*.tw`: a compiled model in one file, written here and read by native/module.c.

Little-endian. A 64-byte header, a table of sections, then the sections:

    header   magic[8] | format u32 | abi u32 | file bytes u64 | hash u64 | sections u32 | zeros
             (the hash covers header, itself as zero, and section table)
    section  kind u32 | index u32 | offset u64 | size u64 | hash u64 | zero u64
    program  arena u64 | scratch u64 | computed u32 | name
             symbols   count u32, each: name, minimum i64, maximum i64, data_dependent u32
             inputs    count u32, each: name, dtype u32, rank u32, dims i64[rank]
             outputs   likewise
             linear    count u32, each: symbol u32, scale i64, offset i64, formula
                       (the input dimensions that are scale * symbol + offset, in order)
             kernels   count u32, each: name
             variants  count u32, each: arch, features, code section u32, run u64, shapes u64
             (a string is length u32, bytes, NUL)
    manifest JSON of abi.Manifest
    signature zeros, or a public key and what it signs: see signing.py
    code     one section for each variant, page-aligned: mapped executable
    weights  page-aligned, each tensor 64-byte aligned: mapped read-only

Each section carries a hash. The hashes find damage, they are no signature: an artifact carries
native code, so load only what you would also run.
"""

from __future__ import annotations

import ast
import ctypes
import json
import os
import re
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import MISSING, fields
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from tilewright.runtime import abi
from tilewright.runtime.bindings import feed_hash, hash_bytes, lib
from tilewright.runtime.formats import is_format
from tilewright.runtime.profile import evaluate
from tilewright.support.background import in_background
from tilewright.support.cache import replace_file
from tilewright.support.errors import ArtifactError
from tilewright.support.mapped import release_pages

MAGIC = b"\x93TILEWR\n"
HEADER = struct.Struct("<8sIIQQI28x")
SECTION = struct.Struct("<IIQQQQ")
PROGRAM, MANIFEST, WEIGHTS, CODE, SIGNATURE = 1, 2, 3, 4, 5
SIGNATURE_BYTES = 96
DIM_COMPUTED = -(2**63)
DIM_DATA_DEPENDENT = -(2**63) + 1
NO_OFFSET = 2**64 - 1
MAKERS = 2  # threads at most that make parts of weights beside the one that writes them,
MOST_PARTS = 3  # that are made and not yet written: each takes two or three times its size
RELEASED = 32 << 20  # bytes written after which what was read for them is given back
PAGE = {"x86_64": 4096}  # other architectures have pages of up to 64 kB
LARGEST_PAGE = 65536


# ---- Writing ----------------------------------------------------------------------------------


def write_artifact(program: abi.Program, destination: str | os.PathLike[str] | BinaryIO) -> None:
    """Write `program` to a path (atomically: a reader sees the old file or the new one) or to a
    seekable binary file. Weights are streamed, a few parts in memory at a time."""
    if hasattr(destination, "write"):
        _write(program, destination)  # type: ignore[arg-type]
        return
    with replace_file(Path(destination)) as file:  # type: ignore[arg-type]
        _write(program, file)


def _write(program: abi.Program, file: BinaryIO) -> None:
    manifest = json.dumps(
        _without_empty(vars(program.manifest)), separators=(",", ":"), default=vars
    )
    page = max(PAGE.get(v.arch, LARGEST_PAGE) for v in program.variants)
    contents: list[tuple[int, int, int, Iterable[Any]]] = [  # kind, index, alignment, chunks
        (PROGRAM, 0, abi.ALIGNMENT, [encode_program(program)]),
        (MANIFEST, 0, abi.ALIGNMENT, [manifest.encode()]),
        (SIGNATURE, 0, abi.ALIGNMENT, [bytes(SIGNATURE_BYTES)]),
        *((CODE, i, page, [bytes(v.code)]) for i, v in enumerate(program.variants)),
    ]
    if program.weights:
        contents.append((WEIGHTS, 0, page, _weight_chunks(program.weights)))
    position = HEADER.size + SECTION.size * len(contents)
    file.write(bytes(position))
    table = b""
    for kind, index, alignment, chunks in contents:
        offset = abi.align(position, alignment)
        file.write(bytes(offset - position))
        position, state = offset, abi.Hash()
        for chunk in chunks:
            feed_hash(state, chunk)
            position += file.write(chunk)
        table += SECTION.pack(
            kind, index, offset, position - offset, lib.tw_hash_finish(ctypes.byref(state)), 0
        )
    header = encode_header(table, position)
    file.seek(0)
    file.write(header + table)


def encode_header(table: bytes, file_bytes: int) -> bytes:
    """The header of a file with this section table."""

    def pack(value: int) -> bytes:
        count = len(table) // SECTION.size
        return HEADER.pack(MAGIC, abi.FORMAT_VERSION, abi.ABI_VERSION, file_bytes, value, count)

    return pack(hash_bytes(pack(0), table))


def _weight_chunks(weights: Sequence[abi.Weight]) -> Iterator[Any]:
    """The bytes of the section in order, gaps as zeros. Parts that come next are made by other
    threads while one is written."""
    end = released = 0
    made = _made_in_background(part for weight in weights for part in _parts(weight))
    for weight in weights:
        if weight.offset % abi.ALIGNMENT or weight.offset < end:
            where = f"weight at offset {weight.offset}"
            raise ValueError(f"{where}: unaligned, or over the one before")
        if weight.offset > end:
            yield bytes(weight.offset - end)
        end = weight.offset
        for chunk in islice(made, len(_parts(weight))):
            yield chunk
            end += chunk.nbytes
            if end - released >= RELEASED:
                release_pages()
                released = end
        if end != weight.offset + weight.nbytes:
            has = end - weight.offset
            raise ValueError(f"weight has {has} bytes, planned were {weight.nbytes}")


def _parts(weight: abi.Weight) -> Sequence[Callable[[], Any]]:
    """What makes a weight, part by part."""
    data = weight.data
    if isinstance(data, tuple | list):
        return data
    return (data if callable(data) else lambda: data,)


def _made_in_background(parts: Iterable[Callable[[], Any]]) -> Iterator[Any]:
    """The bytes that each function makes, in order."""
    makers = max(1, min(MAKERS, (os.cpu_count() or 1) - 1))
    with in_background((partial(_bytes_of, part) for part in parts), makers, MOST_PARTS) as made:
        yield from made


def _bytes_of(part: Callable[[], Any]) -> np.ndarray:
    return np.ascontiguousarray(part()).reshape(-1).view(np.uint8)


def encode_program(program: abi.Program) -> bytes:
    """The program section: what the loader in C needs to know."""
    manifest = program.manifest
    symbols = {s.name: -1 - i for i, s in enumerate(manifest.symbols)}
    computed = any(v.shapes is not None for v in program.variants)
    out = bytearray(struct.pack("<QQI", program.arena_bytes, program.scratch_bytes, computed))
    out += _string(manifest.name)
    out += struct.pack("<I", len(manifest.symbols))
    for s in manifest.symbols:
        out += _string(s.name) + struct.pack("<qqI", s.minimum, s.maximum, s.data_dependent)
    linear: list[bytes] = []
    for tensors in (manifest.inputs, manifest.outputs):
        out += struct.pack("<I", len(tensors))
        for t in tensors:
            dims = [d if isinstance(d, int) else symbols.get(d, DIM_COMPUTED) for d in t.shape]
            if tensors is manifest.inputs:
                for text in [str(t.shape[i]) for i, d in enumerate(dims) if d == DIM_COMPUTED]:
                    name, scale, offset = linear_form(t, text)
                    number = -1 - symbols[name]
                    linear.append(struct.pack("<Iqq", number, scale, offset) + _string(text))
            elif is_data_dependent(t, manifest):
                dims = [d if d >= 0 else DIM_DATA_DEPENDENT for d in dims]
            out += _string(t.name)
            out += struct.pack(f"<II{len(dims)}q", abi.DTYPE_CODES[t.dtype], len(dims), *dims)
    out += struct.pack("<I", len(linear))
    out += b"".join(linear)
    out += struct.pack("<I", len(manifest.kernels))
    for kernel in manifest.kernels:
        out += _string(kernel.name)
    out += struct.pack("<I", len(program.variants))
    for i, v in enumerate(program.variants):
        shapes = NO_OFFSET if v.shapes is None else v.shapes
        out += _string(v.arch) + _string(",".join(v.features))
        out += struct.pack("<IQQ", i, v.run, shapes)
    return bytes(out)


def linear_form(tensor: abi.TensorInfo, dim: str) -> tuple[str, int, int]:
    """(symbol, scale, offset) of an input dimension `scale * symbol + offset`, scale ≥ 1. Raises
    ValueError for other expressions."""
    names = {n.id for n in ast.walk(ast.parse(dim, mode="eval")) if isinstance(n, ast.Name)}
    if len(names) == 1 and not re.search(r"//|%|\(", dim):
        (name,) = names
        offset, *others = [evaluate(dim, {name: n}) for n in range(4)]
        scale = others[0] - offset
        if scale >= 1 and others == [scale * n + offset for n in (1, 2, 3)]:
            return name, scale, offset
    raise ValueError(
        f"input {tensor}: dimension {dim} is no number, symbol, or multiple of one symbol plus a "
        "number"
    )


def is_data_dependent(tensor: abi.TensorInfo, manifest: abi.Manifest) -> bool:
    """Is a dimension of the tensor only known after a run?"""
    names = {s.name for s in manifest.symbols if s.data_dependent}
    return any(
        isinstance(d, str) and not names.isdisjoint(re.findall(r"\w+", d)) for d in tensor.shape
    )


def _string(text: str) -> bytes:
    data = text.replace("\0", "?").encode()
    return struct.pack("<I", len(data)) + data + b"\0"


def _without_empty(manifest: dict[str, Any]) -> dict[str, Any]:
    """Fields at their empty defaults are left out; the lists of tensors stay."""
    kept = ("inputs", "outputs")
    return {name: v for name, v in manifest.items() if name in kept or v not in ("", (), {})}


# ---- Reading ----------------------------------------------------------------------------------


def parse_manifest(text: bytes | memoryview) -> abi.Manifest:
    """The manifest in a section's JSON; unknown fields are ignored. Raises ArtifactError when it is
    not one."""
    try:
        return _parse(abi.Manifest, json.loads(bytes(text)))
    except (ValueError, RecursionError) as fault:
        why = f"its manifest is invalid: {fault}"
        raise ArtifactError("cannot load the artifact", why) from fault


def _is_dim(value: Any) -> bool:
    return isinstance(value, str) or (type(value) is int and abs(value) <= abi.MAX_DIM)


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**63


_RECORDS = {  # fields that hold a list of records
    "inputs": abi.TensorInfo,
    "outputs": abi.TensorInfo,
    "symbols": abi.Symbol,
    "kernels": abi.KernelInfo,
}
_LISTS = {"shape": _is_dim, "ops": lambda value: isinstance(value, str)}
_VALUES = {
    "dtype": lambda value: isinstance(value, str) and value in abi.DTYPE_CODES,
    "format": lambda value: isinstance(value, str) and (not value or is_format(value)),
    "minimum": _is_count,
    "maximum": _is_count,
    "data_dependent": lambda value: isinstance(value, bool),
    "flops": lambda value: isinstance(value, str) or _is_count(value),
    "bytes": lambda value: isinstance(value, str) or _is_count(value),
    "sources": lambda value: isinstance(value, dict),
    "notes": lambda value: isinstance(value, dict),
}


def _parse(kind: type[Any], stored: Any) -> Any:
    """A record of class `kind` from JSON, each field checked."""
    if not isinstance(stored, dict):
        raise ValueError(f"a {kind.__name__} is {type(stored).__name__}")
    values: dict[str, Any] = {}
    for field in fields(kind):
        name = field.name
        if name not in stored:
            if field.default is MISSING and field.default_factory is MISSING:
                raise ValueError(f"a {kind.__name__} lacks {name!r}")
            continue
        value = stored[name]
        if name in _RECORDS or name in _LISTS:
            if not isinstance(value, list):
                raise ValueError(f"{name!r} is no list")
            if name in _RECORDS:
                value = tuple(_parse(_RECORDS[name], entry) for entry in value)
            elif all(map(_LISTS[name], value)):
                value = tuple(value)
            else:
                raise ValueError(f"{name!r} is {value!r}")
        elif not _VALUES.get(name, lambda value: isinstance(value, str))(value):
            raise ValueError(f"{name!r} is {value!r}")
        values[name] = value
    return kind(**values)


def list_sections(data: bytes | memoryview) -> list[tuple[int, int, memoryview]]:
    """(kind, index, bytes) of each section of an artifact that the loader accepted."""
    view = memoryview(data)
    count = HEADER.unpack_from(view)[5]
    table = (SECTION.unpack_from(view, HEADER.size + SECTION.size * i) for i in range(count))
    return [(kind, index, view[at : at + size]) for kind, index, at, size, _, _ in table]
