"""Translator of Gradient: derivatives by reverse accumulation over the nodes that were emitted.

In: the names of a value y and of values xs. Out: the sum of y's elements differentiated by each of
them. Every rule gives a node's part of the derivatives by its operands (Griewank and Walther 2008).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.frontend.onnx.registry import NodeContext, Refusal, translates
from tilewright.frontend.onnx.training import TRAINING
from tilewright.graph.graph import Node, Value
from tilewright.ir.expr import as_int

Rule = Callable[["Tape", Node, Value], list[Value | None]]


class Tape:
    """What the rules emit with."""

    def __init__(self, n: NodeContext) -> None:
        self.n = n

    def __call__(self, op: str, *operands: Value | float, **attrs: Any) -> Value:
        like = next(v for v in operands if isinstance(v, Value)).dtype
        values = [v if isinstance(v, Value) else self.n.constant(v, like) for v in operands]
        return self.n.build.emit(op, *values, **attrs)

    def shrunk(self, g: Value, like: Value) -> Value:
        """g summed over the axes along which broadcasting repeated `like`."""
        lead = g.rank - like.rank
        axes = [
            d
            for d in range(g.rank)
            if d < lead or (as_int(like.shape[d - lead]) == 1 and as_int(g.shape[d]) != 1)
        ]
        if axes:
            g = self("reduce_sum", g, axes=tuple(axes))
        return g if g.shape == like.shape else self("reshape", g, shape=like.shape)

    def widened(self, g: Value, node: Node) -> Value:
        """The derivative by a reduction's result, spread over what it reduced."""
        x, axes = node.inputs[0], node["axes"]
        drop = range(x.rank) if axes is None else [a % x.rank for a in axes]
        shape = tuple(1 if d in drop else s for d, s in enumerate(x.shape))
        return self("expand", self("reshape", g, shape=shape), shape=x.shape)


def _mul(f: Tape, node: Node, g: Value) -> list[Value | None]:
    a, b = node.inputs
    return [f.shrunk(f("mul", g, b), a), f.shrunk(f("mul", g, a), b)]


def _div(f: Tape, node: Node, g: Value) -> list[Value | None]:
    a, b = node.inputs
    by_b = f("neg", f("div", f("mul", g, a), f("mul", b, b)))
    return [f.shrunk(f("div", g, b), a), f.shrunk(by_b, b)]


def _matmul(f: Tape, node: Node, g: Value) -> list[Value | None]:
    a, b = node.inputs
    if node["transpose_a"] or node["transpose_b"]:
        raise Refusal("a transposed product is not differentiated")
    by_a = f("matmul", g, b, transpose_b=True)
    return [f.shrunk(by_a, a), f.shrunk(f("matmul", a, g, transpose_a=True), b)]


def _transpose(f: Tape, node: Node, g: Value) -> list[Value | None]:
    return [f("transpose", g, perm=tuple(np.argsort(node["perm"]).tolist()))]


def _result(slope: Callable[[Tape, Value], Value]) -> Rule:
    """The rule of a function of one operand whose slope follows from its result."""
    return lambda f, node, g: [f("mul", g, slope(f, node.outputs[0]))]


def _operand(slope: Callable[[Tape, Value], Value]) -> Rule:
    """Likewise, from its operand."""
    return lambda f, node, g: [f("mul", g, slope(f, node.inputs[0]))]


RULES: dict[str, Rule] = {
    "add": lambda f, node, g: [f.shrunk(g, v) for v in node.inputs],
    "sub": lambda f, node, g: [
        f.shrunk(g, node.inputs[0]), f.shrunk(f("neg", g), node.inputs[1])],
    "mul": _mul,
    "div": _div,
    "neg": lambda f, node, g: [f("neg", g)],
    "matmul": _matmul,
    "transpose": _transpose,
    "reshape": lambda f, node, g: [f("reshape", g, shape=node.inputs[0].shape)],
    "expand": lambda f, node, g: [f.shrunk(g, node.inputs[0])],
    "reduce_sum": lambda f, node, g: [f.widened(g, node)],
    "exp": _result(lambda f, y: y),
    "tanh": _result(lambda f, y: f("sub", 1.0, f("mul", y, y))),
    "sigmoid": _result(lambda f, y: f("mul", y, f("sub", 1.0, y))),
    "sqrt": _result(lambda f, y: f("div", 0.5, y)),
    "log": _operand(lambda f, x: f("reciprocal", x)),
    "sin": _operand(lambda f, x: f("cos", x)),
    "cos": _operand(lambda f, x: f("neg", f("sin", x))),
    "relu": _operand(lambda f, x: f("cast", f("greater", x, 0.0), to=x.dtype.name)),
}  # fmt: skip


@translates("Gradient", domain=TRAINING)
def gradient(n: NodeContext) -> Any:
    """The derivatives of y by each of xs."""
    names, build = [*n.texts("xs", ()), *n.texts("zs", ())], n.build
    known, y = n.importer.find(n.text("y"))
    if not known or not isinstance(y, Value) or not y.dtype.is_float:
        raise Refusal(f"there are no floats named {n.text('y')!r}")
    for k, name in enumerate(names):
        if n.importer.find(name)[1] is not n[k]:
            raise Refusal(f"input {k} is not {name!r}: y would have to be computed again")
    xs = [n[k] for k in range(len(n.texts("xs", ())))]
    tape, wanted = Tape(n), set(xs)
    before = list(build.nodes)
    depends = set(wanted)
    for node in before:
        if any(v in depends for v in node.inputs):
            depends.update(node.outputs)
    slopes: dict[Value, Value] = {y: build.emit("full", shape=y.shape, value=1, of=y.dtype.name)}
    for node in reversed(before):
        g = slopes.get(node.outputs[0])
        if g is None or node.outputs[0] not in depends or node.outputs[0] in wanted:
            continue
        if node.op not in RULES:
            raise Refusal(f"{node.op} is not differentiated")
        for v, part in zip(node.inputs, RULES[node.op](tape, node, g), strict=True):
            if part is not None and v in depends:
                slopes[v] = tape("add", slopes[v], part) if v in slopes else part
    return tuple(
        slopes[x] if x in slopes else build.emit("full", shape=x.shape, value=0, of=x.dtype.name)
        for x in xs
    )
