"""Reading ONNX files safely: a path, bytes or a ModelProto in, a `Source` of nodes and arrays out.

Large weights stay in the file and are mapped; external data is memory-mapped and must lie inside
the model's own folder. Every size is checked against the bytes that are there before anything is
made of it.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError

from tilewright.frontend.onnx import lazy_weights
from tilewright.frontend.onnx.messages import ModelProto, SparseTensorProto, TensorProto
from tilewright.graph.builder import MOST_RANK
from tilewright.ir.dtype import DType, dtype
from tilewright.runtime.tensor import unpack
from tilewright.support.errors import ImportFault
from tilewright.support.mapped import map_file

_T = TensorProto
MOST_DENSE = 1 << 30  # bytes of a sparse tensor with its zeros
TYPES: dict[int, DType] = {
    _T.FLOAT: dtype("f32"),
    _T.DOUBLE: dtype("f64"),
    _T.FLOAT16: dtype("f16"),
    _T.BFLOAT16: dtype("bf16"),
    _T.FLOAT8E4M3FN: dtype("f8e4m3"),
    _T.FLOAT8E5M2: dtype("f8e5m2"),
    _T.FLOAT8E4M3FNUZ: dtype("f8e4m3fnuz"),
    _T.FLOAT8E5M2FNUZ: dtype("f8e5m2fnuz"),
    _T.INT64: dtype("i64"),
    _T.INT32: dtype("i32"),
    _T.INT16: dtype("i16"),
    _T.INT8: dtype("i8"),
    _T.UINT64: dtype("u64"),
    _T.UINT32: dtype("u32"),
    _T.UINT16: dtype("u16"),
    _T.UINT8: dtype("u8"),
    _T.INT4: dtype("i4"),
    _T.INT2: dtype("i2"),
    _T.UINT4: dtype("u4"),
    _T.UINT2: dtype("u2"),
    _T.BOOL: dtype("bool"),
}  # fmt: skip


def type_of(code: int, what: str) -> DType:
    """The dtype of an ONNX element type. Raises ImportFault for those we do not have."""
    if code not in TYPES:
        names = {v: k for k, v in _T.DataType.items()}
        raise ImportFault(
            f"cannot import {what}",
            f"its element type is {names.get(code, code)}",
            remedy=f"element types that work: {', '.join(names[c] for c in TYPES)}",
        )
    return TYPES[code]


class Source:
    """A model and where its weights are: `folder` for external data, `raw` for bytes left in the
    file."""

    def __init__(self, model: ModelProto, folder: Path | None = None) -> None:
        self.model, self.folder = model, folder
        self.raw: dict[int, memoryview] = {}  # by the index of the initializer

    def initializers(self) -> Iterator[tuple[TensorProto, memoryview | None]]:
        """Each initializer of the main graph, and its bytes where they were left in the file."""
        for n, tensor in enumerate(self.model.graph.initializer):
            yield tensor, self.raw.get(n)


def read(source: Any) -> Source:
    """Open a model: a path, bytes or a ModelProto. Raises ImportFault."""
    if isinstance(source, ModelProto):
        return Source(source)
    if isinstance(source, bytes):
        return Source(decode(source, "the model"))
    path = Path(source)
    try:
        if not path.is_file():
            why = "it is not there, or no regular file"
            raise ImportFault(f"cannot read {path}", why, remedy="check the path")
        with path.open("rb") as file:
            if path.stat().st_size == 0:
                what = f"cannot import {path}"
                raise ImportFault(what, "it is empty", remedy="export the model again")
            data = map_file(file.fileno())
    except (OSError, ValueError) as fault:
        raise ImportFault(
            f"cannot read {path}", getattr(fault, "strerror", "") or str(fault)
        ) from None
    parts = lazy_weights.cut(data)
    if parts is None:
        return Source(decode(bytes(data), str(path)), path.resolve().parent)
    made = Source(decode(parts[0], str(path)), path.resolve().parent)
    made.raw = {n: data[at : at + length] for n, (at, length) in parts[1].items()}
    return made


def decode(content: bytes, what: str) -> ModelProto:
    """Bytes as a ModelProto. Raises ImportFault."""
    model = ModelProto()
    try:
        model.ParseFromString(content)
    except (DecodeError, ValueError, RuntimeError) as fault:
        raise ImportFault(
            f"cannot import {what}", f"it is no ONNX file ({fault})", remedy="is it truncated?"
        ) from None
    if not model.HasField("graph"):
        raise ImportFault(
            f"cannot import {what}", "it holds no graph", remedy="is it an ONNX model?"
        )
    return model


_TYPED = {  # field of TensorProto for types that are not kept as raw bytes
    _T.FLOAT: "float_data",
    _T.DOUBLE: "double_data",
    _T.INT64: "int64_data",
    _T.UINT64: "uint64_data",
    _T.UINT32: "uint64_data",
}
_BITS = (
    _T.FLOAT16,
    _T.BFLOAT16,
    _T.FLOAT8E4M3FN,
    _T.FLOAT8E5M2,
    _T.FLOAT8E4M3FNUZ,
    _T.FLOAT8E5M2FNUZ,
)  # kept as bit patterns in int32_data


def dense(sparse: SparseTensorProto, folder: Path | None) -> np.ndarray:
    """A sparse tensor's content, zeros included: its indices are positions in the flat tensor, or
    rows of one for each axis. Raises ImportFault."""
    what = f"sparse tensor '{sparse.values.name[:120]}'"
    values, at, shape = (
        array_of(sparse.values, folder).reshape(-1),
        array_of(sparse.indices, folder).astype(np.int64),
        tuple(sparse.dims),
    )
    count = math.prod(shape)
    if len(shape) > MOST_RANK or any(d < 0 for d in shape):
        raise ImportFault(f"cannot import {what}", f"it has the shape {list(shape)}")
    if count * values.itemsize > MOST_DENSE:
        raise ImportFault(
            f"cannot import {what}",
            f"with its zeros it takes {count * values.itemsize} bytes, the most is {MOST_DENSE}",
        )
    if at.shape not in ((len(values),), (len(values), len(shape))):
        raise ImportFault(
            f"cannot import {what}", f"{len(values)} values have indices {list(at.shape)}"
        )
    columns = at.T if at.ndim == 2 else at[None]
    limits = shape if at.ndim == 2 else (count,)
    ends = [(c.min(), c.max() - n) for c, n in zip(columns, limits, strict=True) if c.size]
    if any(least < 0 or past >= 0 for least, past in ends):
        raise ImportFault(f"cannot import {what}", "an index is outside of it")
    made = np.zeros(shape if at.ndim == 2 else count, values.dtype)
    made[tuple(columns)] = values
    return made.reshape(shape)


def array_of(
    tensor: TensorProto, folder: Path | None, raw: memoryview | bytes | None = None
) -> np.ndarray:
    """A tensor's content; `raw`: its bytes, where they were left in the file. Raises
    ImportFault."""
    what = f"tensor '{tensor.name[:120]}'" if tensor.name else "a tensor"
    of = type_of(tensor.data_type, what)
    if len(tensor.dims) > MOST_RANK:
        raise ImportFault(f"cannot import {what}", f"it has rank {len(tensor.dims)}")
    shape = tuple(tensor.dims)
    if any(d < 0 for d in shape):
        raise ImportFault(f"cannot import {what}", f"it has the shape {list(shape)}")
    count = math.prod(shape)
    if tensor.HasField("segment"):
        raise ImportFault(f"cannot import {what}", "it is stored in segments")
    if tensor.data_location == _T.EXTERNAL:
        return _external(tensor, of, shape, folder, what)
    if of.is_packed:
        return _packed(tensor, of, shape, raw, what)
    if raw is not None or tensor.HasField("raw_data"):
        raw = tensor.raw_data if raw is None else raw
        if len(raw) != count * of.numpy.itemsize:
            raise ImportFault(
                f"cannot import {what}",
                f"{of}{list(shape)} takes {count * of.numpy.itemsize} bytes,"
                f" the file has {len(raw)}",
            )
        return np.frombuffer(raw, of.numpy).reshape(shape)
    values = getattr(tensor, _TYPED.get(tensor.data_type, "int32_data"))
    if len(values) != count:
        raise ImportFault(
            f"cannot import {what}",
            f"{of}{list(shape)} has {count} elements, the file {len(values)}",
        )
    if tensor.data_type in _BITS:
        wide = np.array(values, np.int64)
        return wide.astype(np.uint16 if of.bits == 16 else np.uint8).view(of.numpy).reshape(shape)
    return np.array(values).astype(of.numpy).reshape(shape)


def _packed(
    tensor: TensorProto, of: DType, shape: tuple[int, ...], raw: Any, what: str
) -> np.ndarray:
    """Elements narrower than a byte: several to a byte, the first in the low bits."""
    if raw is None and tensor.HasField("raw_data"):
        raw = tensor.raw_data
    if raw is None:
        raw = np.array(tensor.int32_data, np.int64).astype(np.uint8).tobytes()
    needed = of.nbytes(math.prod(shape))
    if len(raw) != needed:
        why = f"{of}{list(shape)} takes {needed} bytes, the file has {len(raw)}"
        raise ImportFault(f"cannot import {what}", why)
    return unpack(np.frombuffer(raw, np.uint8), shape, of.name)


def _external(
    tensor: TensorProto, of: DType, shape: tuple[int, ...], folder: Path | None, what: str
) -> np.ndarray:
    """A memory map of a file inside the model's folder."""
    entries = {e.key: e.value for e in tensor.external_data}
    where = entries.get("location", "")

    def refuse(why: str) -> ImportFault:
        return ImportFault(
            f"cannot import {what}",
            f"its external data {where[:120]!r} {why}",
            remedy="external data must be a regular file inside the model's own folder",
        )

    if folder is None:
        raise refuse("needs a folder, but the model was given in memory; give its path")
    if not where or "\0" in where or os.path.isabs(where):
        raise refuse("is no relative path")
    try:
        path = (folder / where).resolve()
        inside, there = path.is_relative_to(folder), path.is_file()
    except (OSError, RuntimeError, ValueError):  # a name too long, a circle of links
        raise refuse("is no usable path") from None
    if not inside or not there:
        raise refuse("is not there" if inside else "lies outside the folder")
    try:
        offset = int(entries.get("offset", "0"))
        length = int(entries["length"]) if "length" in entries else None
    except ValueError:
        raise refuse("has an offset or length that is no number") from None
    needed = math.prod(shape) * of.numpy.itemsize
    present = path.stat().st_size
    if offset < 0 or offset + needed > present or (length is not None and length != needed):
        raise refuse(
            f"does not hold {of}{list(shape)}: {needed} bytes from {offset} on"
            f" ({present} in the file, length {length})"
        )
    if needed == 0:
        return np.empty(shape, of.numpy)
    with path.open("rb") as file:
        return np.frombuffer(map_file(file.fileno(), offset, needed), of.numpy).reshape(shape)
