"""GatherPacked of `com.microsoft`: rows of a table whose numbers lie in blocks, as GGML has them.

Only the rows that are found are decoded, in the run. A block is bytes: an f16 scale, and codes of a
few bits, low ones first: those of the first half of a row lie in the low halves of its bytes.

Source of the layouts: the ONNX specification of DequantizePacked; the tests compare with
onnxruntime.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.frontend.onnx.contrib import DOMAIN
from tilewright.frontend.onnx.data_dependent import choose, counted, op
from tilewright.frontend.onnx.registry import NodeContext, Refusal, translates
from tilewright.graph.graph import Value
from tilewright.ir.dtype import f32
from tilewright.ir.expr import as_int

# What each code of the formats with a codebook stands for.
BOOK = np.array(
    [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.float32
)


class Bytes:
    """Blocks of bytes [R, blocks, size], and what is read in them; all results [R, blocks, …]."""

    def __init__(self, n: NodeContext, content: Value) -> None:
        self.n, self.content = n, content

    def cut(self, start: int, count: int) -> Value:
        *lead, _ = self.content.shape
        return op(self.n, "slice", self.content, starts=(0, 0, start), shape=(*lead, count))

    def whole(self, start: int, size: int, of: str) -> Value:
        """A number of `size` bytes, the lowest first: [R, blocks, 1]."""
        n, wide, made = self.n, f"u{8 * size}", None
        for k in range(size):
            byte = op(n, "cast", self.cut(start + k, 1), to=wide)
            byte = op(n, "shift_left", byte, n.constant(8 * k, wide)) if k else byte
            made = byte if made is None else op(n, "bit_or", made, byte)
        assert made is not None
        return made if of == wide else op(n, "bitcast", made, to=of)

    def half(self, start: int) -> Value:
        """An f16, as f32."""
        return op(self.n, "cast", self.whole(start, 2, "f16"), to="f32")

    def signed(self, start: int, count: int) -> Value:
        """Bytes with signs, as f32."""
        return op(self.n, "cast", op(self.n, "bitcast", self.cut(start, count), to="i8"), to="f32")

    def bits(self, x: Value, shift: int, mask: int) -> Value:
        """(x >> shift) & mask"""
        n = self.n
        x = op(n, "shift_right", x, n.constant(shift, x.dtype)) if shift else x
        return op(n, "bit_and", x, n.constant(mask, x.dtype))

    def both(self, x: Value) -> Value:
        """The low halves of bytes, then the high ones."""
        return op(self.n, "concat", self.bits(x, 0, 15), self.bits(x, 4, 15), axis=2)

    def higher(self, x: Value, shift: int) -> Value:
        return op(self.n, "shift_left", x, self.n.constant(shift, x.dtype))

    def less(self, codes: Value, zero: float) -> Value:
        """Codes as f32, less their zero."""
        n = self.n
        return op(n, "sub", op(n, "cast", codes, to="f32"), n.constant(zero, "f32"))

    def booked(self, codes: Value) -> Value:
        n = self.n
        return op(n, "gather", n.constant(BOOK), op(n, "cast", codes, to="i64"), axis=0)

    def joined(self, parts: list[Value]) -> Value:
        return op(self.n, "concat", *parts, axis=2)


def four_bits(b: Bytes) -> Value:
    return op(b.n, "mul", b.half(0), b.less(b.both(b.cut(2, 16)), 8.0))


def four_bits_of_a_book(b: Bytes) -> Value:
    return op(b.n, "mul", b.half(0), b.booked(b.both(b.cut(2, 16))))


def five_bits(b: Bytes) -> Value:
    """The fifth bits stand in 32 bits before the others."""
    n, high = b.n, b.cut(2, 4)
    *lead, _ = high.shape
    each = op(n, "reshape", high, shape=(*lead, 4, 1))
    each = op(n, "shift_right", each, n.constant(np.arange(8, dtype=np.uint8)))
    high = op(n, "reshape", b.bits(each, 0, 1), shape=(*lead, 32))
    codes = op(n, "bit_or", b.both(b.cut(6, 16)), b.higher(high, 4))
    return op(n, "mul", b.half(0), b.less(codes, 16.0))


def eight_bits(b: Bytes) -> Value:
    return op(b.n, "mul", b.half(0), b.signed(2, 32))


def five_bits_of_256(b: Bytes) -> Value:
    """Eight parts of 32, each with a scale and an offset of six bits."""
    n, last = b.n, b.cut(12, 4)

    def six(start: int, half: int) -> Value:
        """The first four lie in bytes of their own, whose upper bits are those of the last four."""
        own = b.cut(start, 4)
        low = b.bits(last, half, 15)
        rest = op(n, "bit_or", low, b.higher(b.bits(own, 6, 3), 4))
        return b.joined([b.bits(own, 0, 63), rest])

    by, less = (
        op(n, "mul", b.half(at), op(n, "cast", six(start, half), to="f32"))
        for at, start, half in ((0, 4, 0), (2, 8, 4))
    )
    high, made = b.cut(16, 32), []
    for k in range(8):
        codes = b.bits(b.cut(48 + 32 * (k // 2), 32), 4 * (k % 2), 15)
        codes = op(n, "bit_or", codes, b.higher(b.bits(high, k, 1), 4))
        own = [Bytes(n, v).cut(k, 1) for v in (by, less)]
        made.append(op(n, "sub", op(n, "mul", own[0], op(n, "cast", codes, to="f32")), own[1]))
    return b.joined(made)


def six_bits_of_256(b: Bytes) -> Value:
    """Sixteen parts of 16, each with a scale of a byte with a sign."""
    n, by, made = b.n, op(b.n, "mul", b.half(208), b.signed(192, 16)), []
    *lead, _ = by.shape
    for k in range(8):
        half, quarter = divmod(k, 4)
        low = b.cut(64 * half + 32 * (quarter % 2), 32)
        high = b.bits(b.cut(128 + 32 * half, 32), 2 * quarter, 3)
        codes = op(n, "bit_or", b.bits(low, 4 * (quarter // 2), 15), b.higher(high, 4))
        own = op(n, "reshape", Bytes(n, by).cut(2 * k, 2), shape=(*lead, 2, 1))
        own = op(n, "reshape", op(n, "expand", own, shape=(*lead, 2, 16)), shape=(*lead, 32))
        made.append(op(n, "mul", own, b.less(codes, 32.0)))
    return b.joined(made)


def four_bits_of_256(b: Bytes) -> Value:
    """Eight parts of 32 of the codebook, each with a scale of six bits."""
    n, high, made = b.n, b.whole(2, 2, "u16"), []
    for k in range(8):
        low = b.bits(b.cut(4 + k // 2, 1), 4 * (k % 2), 15)
        top = op(n, "cast", b.higher(b.bits(high, 2 * k, 3), 4), to="u8")
        by = op(n, "mul", b.half(0), b.less(op(n, "bit_or", low, top), 32.0))
        made.append(op(n, "mul", by, b.booked(b.both(b.cut(8 + 16 * k, 16)))))
    return b.joined(made)


def plain(size: int, of: str) -> Callable[[Bytes], Value]:
    """Numbers as they are."""
    return lambda b: op(b.n, "cast", b.whole(0, size, of), to="f32")


FORMATS: dict[int, tuple[int, int, Callable[[Bytes], Value]]] = {  # bytes, numbers of a block
    0: (4, 1, plain(4, "f32")),
    1: (2, 1, plain(2, "f16")),
    2: (18, 32, four_bits),
    6: (22, 32, five_bits),
    8: (34, 32, eight_bits),
    13: (176, 256, five_bits_of_256),
    14: (210, 256, six_bits_of_256),
    20: (18, 32, four_bits_of_a_book),
    23: (136, 256, four_bits_of_256),
    30: (2, 1, plain(2, "bf16")),
}


@translates("GatherPacked", domain=DOMAIN)
def gather_packed(n: NodeContext) -> Any:
    """Rows of a table [rows, bytes]; an index outside finds the first one."""
    table, indices, kind, depth = n[0], n[1], n.int("packed_type", -1), n.int("K", 0)
    if kind not in FORMATS:
        known = ", ".join(map(str, FORMATS))
        raise Refusal(f"its packed_type {kind} is none of {known}")
    size, many, decode = FORMATS[kind]
    if depth < 1 or depth % many or as_int(table.shape[1]) != depth // many * size:
        raise Refusal(f"its table {table.type_text} does not hold rows of {depth} numbers")
    at = op(n, "cast", indices, to="i64")
    inside = op(n, "logical_and", op(n, "greater_equal", at, 0),
                op(n, "less", at, counted(n, table.shape[0])))  # fmt: skip
    at = op(n, "reshape", choose(n, inside, at, 0), shape=(indices.elements,))
    rows = op(n, "gather", table, at, axis=0)
    blocks = op(n, "reshape", rows, shape=(indices.elements, depth // many, size))
    y = op(n, "reshape", decode(Bytes(n, blocks)), shape=(*indices.shape, depth))
    of = n.dtype("output_dtype") if n.int("output_dtype") is not None else None
    return n.emit("copy", y) if of is f32 else n.emit("cast", y, to=of.name if of else "bf16")
