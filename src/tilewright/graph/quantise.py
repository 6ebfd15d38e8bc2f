"""Numbers rounded to eight bits by their own range, as dynamic quantisation does in the run."""

from __future__ import annotations

from typing import Any

from tilewright.graph.graph import Value

MOST = 255.0  # u8


def range_of(build: Any, x: Value) -> tuple[Value, Value]:
    """(scale, zero point) that bring the elements of x and 0 into 0 … 255: scalars of x's dtype.
    Where all are 0, the scale is 1."""

    def number(value: float) -> Value:
        return build.constant(x.dtype.numpy.type(value), "c")

    every, zero = tuple(range(x.rank)), number(0.0)
    low = build.emit("minimum", build.emit("reduce_min", x, axes=every), zero)
    high = build.emit("maximum", build.emit("reduce_max", x, axes=every), zero)
    scale = build.emit("div", build.emit("sub", high, low), number(MOST))
    scale = build.emit("where", build.emit("equal", high, low), number(1.0), scale)
    at = build.emit("round", build.emit("div", build.emit("sub", zero, low), scale))
    return scale, build.emit("clip", at, low=0.0, high=MOST)


def rounded(build: Any, x: Value) -> Value:
    """What is left of x once it was quantised by its own range: (q - zero) · scale."""
    scale, at = range_of(build, x)
    q = build.emit("add", build.emit("round", build.emit("div", x, scale)), at)
    q = build.emit("clip", q, low=0.0, high=MOST)
    return build.emit("mul", build.emit("sub", q, at), scale)
