"""Floats that are computed by their codes: float4 e2m1 and the scales float8 e8m0.

Reading one is a look into a table of all its values; writing one compares with the midpoints
between them (e2m1), or takes the exponent of the f32 (e8m0).
"""

from __future__ import annotations

import numpy as np

from tilewright.frontend.onnx.coded import FLOATS, Coded
from tilewright.frontend.onnx.registry import NodeContext, Refusal
from tilewright.graph.graph import Value

STEPS = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])  # magnitudes of e2m1
MOST = 254  # the greatest exponent of e8m0; 255 is NaN


def format_of(n: NodeContext, name: str) -> str | None:
    """The format of codes that an attribute asks for, if it is one."""
    return FLOATS.get(n.int(name, 0))


def floats(n: NodeContext, x: Coded) -> Value:
    """The f32 values of codes."""
    if x.format == "f4e2m1":
        table = np.concatenate([STEPS, -STEPS]).astype(np.float32)
    else:
        table = np.append(np.exp2(np.arange(255.0) - 127), np.nan).astype(np.float32)
    positions = n.build.emit("cast", x.codes, to="i64")
    return n.build.emit("gather", n.build.constant(table, "table"), positions, axis=0)


def codes(n: NodeContext, x: Value, format: str) -> Coded:
    """The codes nearest to floats, as far as they reach."""
    x = x if x.dtype.name == "f32" else n.build.emit("cast", x, to="f32")
    made = small(n, x) if format == "f4e2m1" else exponents(n, x)
    return Coded(made, format)


def small(n: NodeContext, x: Value) -> Value:
    """e2m1: halves go to the even code, what is beyond 6 becomes 6."""
    build, size = n.build, n.build.emit("abs", x)
    total: Value | None = None
    for k, middle in enumerate((STEPS[1:] + STEPS[:-1]) / 2):
        op = "greater_equal" if k % 2 else "greater"
        passed = build.emit(op, size, n.constant(float(middle), "f32"))
        step = build.emit("cast", passed, to="i32")
        total = step if total is None else build.emit("add", total, step)
    assert total is not None
    bits = build.emit("bitcast", x, to="i32")
    sign = build.emit("where", build.emit("less", bits, n.constant(0, "i32")),
                      n.constant(8, "i32"), n.constant(0, "i32"))  # fmt: skip
    return build.emit("cast", build.emit("add", total, sign), to="u4")


def exponents(n: NodeContext, x: Value) -> Value:
    """e8m0: the exponent, rounded as `round_mode` says; NaN and infinity become NaN."""
    build, mode = n.build, n.text("round_mode", "up")
    if mode not in ("up", "down", "nearest"):
        raise Refusal(f"round_mode {mode!r} is not known")

    def number(value: int) -> Value:
        return n.constant(value, "i32")

    bits = build.emit("bitcast", x, to="i32")
    field = build.emit("shift_right", bits, number(23))
    field = build.emit("bit_and", field, number(255))
    fraction = build.emit("bit_and", bits, number(0x7FFFFF))
    if mode != "down":
        half, none = number(0x400000), build.emit("equal", field, number(0))
        up = build.emit("greater", fraction, number(0))
        if mode == "nearest":  # a half goes up but for the least exponent
            tie = build.emit("logical_and", build.emit("equal", fraction, half),
                             build.emit("logical_not", none))  # fmt: skip
            up = build.emit("logical_or", build.emit("greater", fraction, half), tie)
        more = build.emit("add", field, build.emit("cast", up, to="i32"))
        if n.flag("saturate", True):
            more = build.emit("minimum", more, number(MOST))
        field = build.emit("where", build.emit("equal", field, number(255)), field, more)
    return build.emit("cast", field, to="u8")
