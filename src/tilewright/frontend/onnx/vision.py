"""Translators of ONNX operators that read images at places which other tensors give."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.frontend.onnx import measured
from tilewright.frontend.onnx.arithmetic import Floats
from tilewright.frontend.onnx.registry import Refusal, Site, translates
from tilewright.graph import sizes
from tilewright.graph.graph import Value

ALPHA = -0.75  # of the cubic kernel


@translates("GridSample")
def grid_sample(n: Site) -> Any:
    """Each place of the grid names a place of the image in [-1, 1], the last axis first."""
    x, grid = n[0], n[1]
    mode = n.text("mode", "linear").removeprefix("bi")
    padding, corners = n.text("padding_mode", "zeros"), n.flag("align_corners")
    if mode not in ("nearest", "linear", "cubic") or padding not in (
        "zeros",
        "border",
        "reflection",
    ):
        raise Refusal(f"mode {mode!r} with padding {padding!r} is not known")
    f, depth = Floats(n, "f32"), x.rank - 2
    batch, count = x.shape[0], sizes.product(grid.shape[1:-1])
    grid = n.build.emit("reshape", f.of(grid), shape=(batch, count, depth))
    coordinates, borders = [], []
    for d in range(depth):
        size = f.size(x.shape[2 + d])
        part = n.build.emit("slice", grid, starts=(0, 0, depth - 1 - d), shape=(batch, count, 1))
        at = f("add", n.build.emit("reshape", part, shape=(batch, count)), 1.0)
        if corners:
            at = f("mul", f("div", at, 2.0), f("sub", size, 1.0))
        else:
            at = f("div", f("sub", f("mul", at, size), 1.0), 2.0)
        low = f.number(0.0 if corners else -0.5)
        high = f("sub", size, 1.0 if corners else 0.5)
        if mode == "nearest":
            at = f("round", at)
        if padding == "border" and mode != "cubic":  # a cubic's taps are held one by one
            last = f("sub", size, 1.0)
            held = f("minimum", f("maximum", at, 0.0), last)
            beyond = f("logical_or", f("less", at, low), f("greater", at, high))
            at = f("where", beyond, held, at)
        elif padding == "reflection" and mode != "cubic":
            at = reflected(f, at, low, high)
        coordinates.append(at)
        borders.append((low, high))
    y = sampled(n, f, x, coordinates, mode, padding, borders)
    return n.emit("reshape", y, shape=(*x.shape[:2], *n[1].shape[1:-1]))


def reflected(f: Floats, at: Value, low: Value, high: Value) -> Value:
    """Places outside [low, high] mirrored at its ends until they are inside."""
    span = f("sub", high, low)
    safe = f("where", f("greater", span, 0.0), span, 1.0)
    away = f("fmod", f("abs", f("sub", at, low)), f("mul", safe, 2.0))
    inside = f("where", f("greater", away, safe), f("sub", f("mul", safe, 2.0), away), away)
    beyond = f("logical_or", f("less", at, low), f("greater", at, high))
    return f("where", beyond, f("add", low, inside), at)


def sampled(
    n: Site, f: Floats, x: Value, at: Sequence[Value], mode: str, padding: str,
    borders: Sequence[tuple[Value, Value]],
) -> Value:  # fmt: skip
    """x [N, C, *D] read at places [N, P] for each of D: [N, C, P]."""
    build = n.build
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
        place: Value | None = None
        weight: Value | None = None
        for (index, factor), size in zip(choice, inner, strict=True):
            place = index if place is None else measured.op(
                n, "add", measured.op(n, "mul", place, scalar(n, size)), index
            )  # fmt: skip
            if factor is not None:
                weight = factor if weight is None else f("mul", weight, factor)
        assert place is not None
        found = build.emit(
            "gather_nd", flat, build.emit("reshape", place, shape=(batch, count, 1)), batch_dims=1
        )
        if weight is not None:
            by = build.emit("reshape", weight, shape=(batch, count, 1))
            by = by if by.dtype is x.dtype else build.emit("cast", by, to=x.dtype.name)
            found = build.emit("mul", found, by)
        total = found if total is None else build.emit("add", total, found)
    assert total is not None
    return build.emit("transpose", total, perm=(0, 2, 1))


def scalar(n: Site, size: Any) -> Value:
    made = np.empty((), object)
    made[()] = size
    return n.build.from_sizes(made, measured.I64)


def axis_taps(
    f: Floats, at: Value, size: Value, mode: str, padding: str, border: tuple[Value, Value]
) -> list[tuple[Value, Value | None]]:
    """(index, weight) of each tap along one axis; a tap outside has weight 0 or is moved inside."""
    last = f("sub", size, 1.0)

    def index(place: Value) -> tuple[Value, Value | None]:
        """The place that is read, and where it counts (None: everywhere)."""
        mask = None
        if padding == "zeros":
            mask = f("logical_and", f("greater_equal", place, 0.0), f("less_equal", place, last))
        elif padding == "reflection":
            place = f("trunc", reflected(f, place, *border))
        held = f("minimum", f("maximum", place, 0.0), last)
        return f.n.build.emit("cast", held, to="i64"), mask

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
    """Keys 1981."""

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
