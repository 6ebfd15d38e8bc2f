"""Images read at coordinates that another tensor gives (grid sampling), built from gathers and
weights.

In: a builder, images [N, C, *D] and a grid [N, *positions, D] of coordinates in [-1, 1], that of
the last axis first. Out: [N, C, *positions]. A pixel of the result is the sum over a few taps on
each axis, each an index and a weight; a tap outside weighs 0 or is moved inside.
Source: Jaderberg et al. 2015.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.graph import sizes
from tilewright.graph.folding import Folding
from tilewright.graph.graph import Value
from tilewright.ir.dtype import DType, dtype
from tilewright.ir.expr import Expr

MODES = ("nearest", "linear", "cubic")
PADDINGS = ("zeros", "border", "reflection")
ALPHA = -0.75  # of the cubic kernel
I64 = dtype("i64")


def grid_sample(
    build: Folding, x: Value, grid: Value, mode: str, padding: str, corners: bool,
    of: str = "f32", round_first: bool = True,
) -> Value:  # fmt: skip
    """mode: one of MODES; padding: what lies outside, one of PADDINGS; corners: do -1 and 1 name
    the centres of the outermost pixels, or their outer edges? of: the dtype of coordinates and
    weights. round_first: are nearest coordinates rounded before they are moved inside (ONNX), or
    after?"""
    f, depth = Floats(build, of), x.rank - 2
    batch, count = x.shape[0], sizes.product(grid.shape[1:-1])
    flat = build.emit("reshape", f.of(grid), shape=(batch, count, depth))
    coordinates, borders = [], []
    for d in range(depth):
        size = f.size(x.shape[2 + d])
        part = build.emit("slice", flat, starts=(0, 0, depth - 1 - d), shape=(batch, count, 1))
        at = f("add", build.emit("reshape", part, shape=(batch, count)), 1.0)
        if corners:
            at = f("mul", f("div", at, 2.0), f("sub", size, 1.0))
        else:
            at = f("div", f("sub", f("mul", at, size), 1.0), 2.0)
        low = f.number(0.0 if corners else -0.5)
        high = f("sub", size, 1.0 if corners else 0.5)
        if mode == "nearest" and round_first:
            at = f("round", at)
        if padding == "border" and mode != "cubic":  # a cubic's taps are held one by one
            last = f("sub", size, 1.0)
            held = f("minimum", f("maximum", at, 0.0), last)
            beyond = f("logical_or", f("less", at, low), f("greater", at, high))
            at = f("where", beyond, held, at)
        elif padding == "reflection" and mode != "cubic":
            at = reflected(f, at, low, high)
        if mode == "nearest" and not round_first:
            at = f("round", at)
        coordinates.append(at)
        borders.append((low, high))
    y = sampled(f, x, coordinates, mode, padding, borders)
    return build.emit("reshape", y, shape=(*x.shape[:2], *grid.shape[1:-1]))


class Floats:
    """Operators on float tensors and numbers, all of one dtype."""

    def __init__(self, build: Folding, of: str) -> None:
        self.build, self.dtype = build, of

    def __call__(self, op: str, *operands: Value | float) -> Value:
        values = [x if isinstance(x, Value) else self.number(x) for x in operands]
        return self.build.emit(op, *values)

    def number(self, x: float) -> Value:
        return self.build.constant(np.asarray(x, np.float64), "f", self.dtype)

    def of(self, x: Value) -> Value:
        return cast(self.build, x, dtype(self.dtype))

    def size(self, s: Expr) -> Value:
        return self.of(scalar(self.build, s))


def cast(build: Folding, x: Value, of: DType) -> Value:
    return x if x.dtype is of else build.emit("cast", x, to=of.name)


def scalar(build: Folding, size: Any) -> Value:
    """A size as an i64 tensor without axes."""
    made = np.empty((), object)
    made[()] = size
    return build.from_sizes(made, I64)


def reflected(f: Floats, at: Value, low: Value, high: Value) -> Value:
    """Coordinates outside [low, high] mirrored at its ends until they are inside."""
    span = f("sub", high, low)
    safe = f("where", f("greater", span, 0.0), span, 1.0)
    away = f("fmod", f("abs", f("sub", at, low)), f("mul", safe, 2.0))
    inside = f("where", f("greater", away, safe), f("sub", f("mul", safe, 2.0), away), away)
    beyond = f("logical_or", f("less", at, low), f("greater", at, high))
    return f("where", beyond, f("add", low, inside), at)


def sampled(
    f: Floats, x: Value, at: Sequence[Value], mode: str, padding: str,
    borders: Sequence[tuple[Value, Value]],
) -> Value:  # fmt: skip
    """x [N, C, *D] read at coordinates [N, P] for each of D: [N, C, P]."""
    build = f.build
    batch, channels, inner = x.shape[0], x.shape[1], x.shape[2:]
    count = at[0].shape[1]
    flat = build.emit("reshape", x, shape=(batch, channels, sizes.product(inner)))
    flat = build.emit("transpose", flat, perm=(0, 2, 1))
    taps = [
        axis_taps(f, a, f.size(s), mode, padding, b)
        for a, s, b in zip(at, inner, borders, strict=True)
    ]
    total: Value | None = None
    for choice in itertools.product(*taps):
        flat_index: Value | None = None
        weight: Value | None = None
        for (index, factor), size in zip(choice, inner, strict=True):
            if flat_index is None:
                flat_index = index
            else:
                flat_index = build.emit(
                    "add", build.emit("mul", flat_index, scalar(build, size)), index
                )
            if factor is not None:
                weight = factor if weight is None else f("mul", weight, factor)
        assert flat_index is not None
        where = build.emit("reshape", flat_index, shape=(batch, count, 1))
        found = build.emit("gather_nd", flat, where, batch_dims=1)
        if weight is not None:
            by = cast(build, build.emit("reshape", weight, shape=(batch, count, 1)), x.dtype)
            found = build.emit("mul", found, by)
        total = found if total is None else build.emit("add", total, found)
    assert total is not None
    return build.emit("transpose", total, perm=(0, 2, 1))


def axis_taps(
    f: Floats, at: Value, size: Value, mode: str, padding: str, border: tuple[Value, Value]
) -> list[tuple[Value, Value | None]]:
    """(index, weight) of each tap along one axis; a tap outside has weight 0 or is moved inside."""
    last = f("sub", size, 1.0)

    def index(at: Value) -> tuple[Value, Value | None]:
        """The index that is read, and where it counts (None: everywhere)."""
        mask = None
        if padding == "zeros":
            mask = f("logical_and", f("greater_equal", at, 0.0), f("less_equal", at, last))
        elif padding == "reflection":
            at = f("trunc", reflected(f, at, *border))
        held = f("minimum", f("maximum", at, 0.0), last)
        return cast(f.build, held, I64), mask

    if mode == "nearest":
        found, mask = index(at)
        return [(found, None if mask is None else f("where", mask, 1.0, 0.0))]
    base = f("floor", at)
    t = f("sub", at, base)
    made: list[tuple[Value, Value | None]] = []
    for step, weight in linear(f, t) if mode == "linear" else cubic(f, t):
        found, mask = index(f("add", base, float(step)))
        made.append((found, weight if mask is None else f("where", mask, weight, 0.0)))
    return made


def linear(f: Floats, t: Value) -> list[tuple[int, Value]]:
    return [(0, f("sub", 1.0, t)), (1, t)]


def cubic(f: Floats, t: Value) -> list[tuple[int, Value]]:
    """Source: Keys 1981."""

    def near(d: Value) -> Value:
        inner = f("sub", f("mul", d, ALPHA + 2), ALPHA + 3)
        return f("add", f("mul", f("mul", inner, d), d), 1.0)

    def far(d: Value) -> Value:
        inner = f("add", f("mul", f("sub", f("mul", d, ALPHA), 5 * ALPHA), d), 8 * ALPHA)
        return f("sub", f("mul", inner, d), 4 * ALPHA)

    rest = f("sub", 1.0, t)
    return [
        (-1, far(f("add", t, 1.0))),
        (0, near(t)),
        (1, near(rest)),
        (2, far(f("add", rest, 1.0))),
    ]
