"""Lazily loaded weights: a model's bytes with and without its large tensors.

In: a mapped .onnx file. Out: the same protobuf message with the `raw_data` of large initializers
cut out, and where in the file each lies. So importing half a gigabyte reads kilobytes; the weights
are pages of the file. Only the envelope of the wire format is read here (field number, wire type,
length); onnx's own library parses what is left. Anything unexpected gives None: then the whole file
is parsed.
"""

from __future__ import annotations

from collections.abc import Iterator

LARGE = 1 << 12  # bytes of raw data from which a tensor stays in the file

GRAPH, INITIALIZER, RAW_DATA = (
    7,
    5,
    9,
)  # ModelProto.graph, GraphProto.initializer, TensorProto.raw_data
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5  # wire types


class _Odd(Exception):
    """The bytes are not laid out as expected."""


def cut(data: memoryview) -> tuple[bytes, dict[int, tuple[int, int]]] | None:
    """(the message without large weights, {index of initializer: (offset, length) of its raw
    data})."""
    positions: dict[int, tuple[int, int]] = {}
    try:
        return _model(data, positions), positions
    except (_Odd, IndexError):
        return None


def _fields(data: memoryview, start: int, end: int) -> Iterator[tuple[int, int, int, int, int]]:
    """(number, wire type, start of the field, start of its content, end) of each field."""
    at = start
    while at < end:
        tag, inside = _varint(data, at, end)
        wire = tag & 7
        if wire == VARINT:
            _, stop = _varint(data, inside, end)
        elif wire == BYTES:
            length, inside = _varint(data, inside, end)
            stop = inside + length
        elif wire in (FIXED32, FIXED64):
            stop = inside + (4 if wire == FIXED32 else 8)
        else:
            raise _Odd
        if stop > end:
            raise _Odd
        yield tag >> 3, wire, at, inside, stop
        at = stop


def _varint(data: memoryview, at: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while at < end and shift < 64:
        byte = data[at]
        value |= (byte & 127) << shift
        at += 1
        if byte < 128:
            return value, at
        shift += 7
    raise _Odd


def _encode(number: int, content: bytes) -> bytes:
    """A field of bytes."""
    out = bytearray()
    for value in (number << 3 | BYTES, len(content)):
        while value > 127:
            out.append(value & 127 | 128)
            value >>= 7
        out.append(value)
    return bytes(out) + content


def _model(data: memoryview, positions: dict[int, tuple[int, int]]) -> bytes:
    parts: list[bytes] = []
    graphs = 0
    for number, wire, at, inside, stop in _fields(data, 0, len(data)):
        if number == GRAPH:
            graphs += 1
            if graphs > 1 or wire != BYTES:
                raise _Odd
            parts.append(_encode(GRAPH, _graph(data, inside, stop, positions)))
        else:
            parts.append(bytes(data[at:stop]))
    return b"".join(parts)


def _graph(data: memoryview, start: int, end: int, positions: dict[int, tuple[int, int]]) -> bytes:
    parts: list[bytes] = []
    index = 0
    for number, wire, at, inside, stop in _fields(data, start, end):
        if number == INITIALIZER and wire == BYTES:
            if stop - inside >= LARGE:
                parts.append(_encode(INITIALIZER, _tensor(data, inside, stop, index, positions)))
            else:
                parts.append(bytes(data[at:stop]))
            index += 1
        else:
            parts.append(bytes(data[at:stop]))
    return b"".join(parts)


def _tensor(
    data: memoryview, start: int, end: int, index: int, positions: dict[int, tuple[int, int]]
) -> bytes:
    parts: list[bytes] = []
    for number, wire, at, inside, stop in _fields(data, start, end):
        if number == RAW_DATA and wire == BYTES and stop - inside >= LARGE:
            if index in positions:
                raise _Odd
            positions[index] = inside, stop - inside
        else:
            parts.append(bytes(data[at:stop]))
    return b"".join(parts)
