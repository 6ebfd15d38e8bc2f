"""match_patterns: patterns of small operators, as exporters write them, become the operator that
they mean.

A pattern is a Python function from a node to the replacement. Products and sums are taken apart
into their terms first, so an exporter's order and grouping do not matter; x / c counts as x · (1 /
c).
"""

from __future__ import annotations

import math
from typing import Any

from tilewright.graph.builder import Edit, Rule
from tilewright.graph.graph import Graph, Node, Value
from tilewright.graph.passes.canonicalise import number
from tilewright.ir.expr import as_int

CLOSE = 1e-3  # relative: exporters round constants to f32 and write 1.4142


def match_patterns(graph: Graph) -> Graph:
    """Apply the patterns of this file to every node."""
    return Edit(graph, RULES).run()


def close(a: float | None, b: float) -> bool:
    return a is not None and math.isclose(a, b, rel_tol=CLOSE)


def factors(edit: Edit, value: Value, limit: int = 8) -> tuple[float, list[Value]]:
    """`value` as a number times values: nested products, and quotients by numbers, are taken
    apart."""
    scale, parts, stack = 1.0, [], [value]
    while stack:
        v = stack.pop()
        n = number(edit, v)
        if n is not None:
            scale *= float(n)
            continue
        node = edit.producer(v)
        if node is not None and len(parts) + len(stack) < limit:
            if node.op == "mul":
                stack += node.inputs
                continue
            if node.op == "div" and (divisor := number(edit, node.inputs[1])):
                scale /= divisor
                stack.append(node.inputs[0])
                continue
            if node.op == "neg":
                scale = -scale
                stack.append(node.inputs[0])
                continue
        parts.append(v)
    return scale, parts


def plus_number(edit: Edit, value: Value) -> tuple[Value, float] | None:
    """(x, c) if `value` is x + c."""
    node = edit.producer(value, "add")
    if node is None:
        return None
    for x, c in (node.inputs, node.inputs[::-1]):
        n = number(edit, c)
        if n is not None:
            return x, float(n)
    return None


def gelu(edit: Edit, node: Node) -> Any:
    """x / 2 · (1 + erf(x / √2)), and x / 2 · (1 + tanh(√(2/π) (x + 0.044715 x³)))."""
    scale, parts = product(edit, node)
    if not close(scale, 0.5) or len(parts) != 2:
        return None
    for x, other in (parts, parts[::-1]):
        shifted = plus_number(edit, other)
        if shifted is None or shifted[1] != 1.0:
            continue
        inner = edit.producer(shifted[0])
        if inner is not None and inner.op == "erf":
            s, by = factors(edit, inner.inputs[0])
            if by == [x] and close(s, 1 / math.sqrt(2)):
                return edit.emit("gelu", x, name=node.name)
        if inner is not None and inner.op == "tanh" and tanh_argument(edit, inner.inputs[0], x):
            return edit.emit("gelu", x, tanh=True, name=node.name)
    return None


def product(edit: Edit, node: Node) -> tuple[float, list[Value]]:
    """The factors of a product or quotient that is being rewritten (its output is not in the graph
    yet)."""
    x, y = node.inputs
    scale, parts = factors(edit, x)
    if node.op == "div":
        divisor = number(edit, y)
        return (scale / divisor, parts) if divisor else (0.0, [])
    more, others = factors(edit, y)
    return scale * more, parts + others


def tanh_argument(edit: Edit, value: Value, x: Value) -> bool:
    """Is `value` √(2/π) (x + 0.044715 x³)?"""
    scale, parts = factors(edit, value)
    if not close(scale, math.sqrt(2 / math.pi)):
        return False
    if len(parts) == 1:
        node = edit.producer(parts[0], "add")
        if node is None:
            return False
        for a, cube in (node.inputs, node.inputs[::-1]):
            if a is x or a == x:
                s, by = factors(edit, cube)
                if close(s, 0.044715) and is_cube(edit, by, x):
                    return True
        return False
    if len(parts) == 2 and x in parts:  # x (1 + 0.044715 x²)
        (other,) = [p for p in parts if p != x] or [x]
        shifted = plus_number(edit, other)
        if shifted is not None and shifted[1] == 1.0:
            s, by = factors(edit, shifted[0])
            return close(s, 0.044715) and (by == [x, x] or is_power(edit, by, x, 2))
    return False


def is_cube(edit: Edit, parts: list[Value], x: Value) -> bool:
    return parts == [x, x, x] or is_power(edit, parts, x, 3)


def is_power(edit: Edit, parts: list[Value], x: Value, exponent: int) -> bool:
    node = edit.producer(parts[0], "pow") if len(parts) == 1 else None
    return node is not None and node.inputs[0] == x and number(edit, node.inputs[1]) == exponent


def silu(edit: Edit, node: Node) -> Any:
    """x · sigmoid(x)."""
    for x, other in (node.inputs, node.inputs[::-1]):
        gate = edit.producer(other, "sigmoid")
        if gate is not None and gate.inputs[0] == x:
            return edit.emit("silu", x, name=node.name)
    return None


def hard_swish(edit: Edit, node: Node) -> Any:
    """x · hard_sigmoid(x), and x · clip(x + 3, 0, 6) / 6."""
    for x, other in (node.inputs, node.inputs[::-1]):
        gate = edit.producer(other, "hard_sigmoid") if node.op == "mul" else None
        if (
            gate is not None
            and gate.inputs[0] == x
            and close(gate["alpha"], 1 / 6)
            and gate["beta"] == 0.5
        ):
            return edit.emit("hard_swish", x, name=node.name)
    scale, parts = product(edit, node)
    if close(scale, 1 / 6) and len(parts) == 2:
        for x, other in (parts, parts[::-1]):
            gate = edit.producer(other, "clip")
            if gate is not None and gate["low"] == 0 and gate["high"] == 6:
                if plus_number(edit, gate.inputs[0]) == (x, 3.0):
                    return edit.emit("hard_swish", x, name=node.name)
    return None


def mish(edit: Edit, node: Node) -> Any:
    """x · tanh(softplus(x))."""
    for x, other in (node.inputs, node.inputs[::-1]):
        outer = edit.producer(other, "tanh")
        inner = edit.producer(outer.inputs[0], "softplus") if outer is not None else None
        if inner is not None and inner.inputs[0] == x:
            return edit.emit("mish", x, name=node.name)
    return None


def trailing_mean(edit: Edit, value: Value) -> tuple[Value, int] | None:
    """(x, first axis) if `value` is the mean of x over its trailing axes, kept at size 1."""
    node = edit.producer(value, "reduce_mean")
    if node is None or not node["keepdims"]:
        return None
    x = node.inputs[0]
    axes = range(x.rank) if node["axes"] is None else sorted(a % x.rank for a in node["axes"])
    axes = list(axes)
    return (x, axes[0]) if axes and axes == list(range(axes[0], x.rank)) else None


def square(edit: Edit, value: Value) -> Value | None:
    """y if `value` is y²."""
    node = edit.producer(value)
    if node is None:
        return None
    if node.op == "mul" and node.inputs[0] == node.inputs[1]:
        return node.inputs[0]
    if node.op == "pow" and number(edit, node.inputs[1]) == 2:
        return node.inputs[0]
    return None


def root_of_mean_square(edit: Edit, value: Value) -> tuple[Value, int, float] | None:
    """(y, first axis, eps) if `value` is √(mean of y² over trailing axes + eps)."""
    root = edit.producer(value, "sqrt")
    return mean_square(edit, root.inputs[0]) if root is not None else None


def mean_square(edit: Edit, value: Value) -> tuple[Value, int, float] | None:
    shifted = plus_number(edit, value)
    mean = trailing_mean(edit, shifted[0]) if shifted is not None else None
    y = square(edit, mean[0]) if mean is not None else None
    return None if y is None else (y, mean[1], shifted[1])  # type: ignore[index]


def norm(edit: Edit, node: Node) -> Any:
    """y / √(mean(y²) + eps): layer norm where y = x - mean(x), else rms norm."""
    found, y = None, None
    if node.op == "div":
        y = node.inputs[0]
        found = root_of_mean_square(edit, node.inputs[1])
    else:
        for y, inverse in (node.inputs, node.inputs[::-1]):
            maker = edit.producer(inverse)
            if maker is not None and maker.op == "rsqrt":
                found = mean_square(edit, maker.inputs[0])
            elif maker is not None and maker.op == "reciprocal":
                found = root_of_mean_square(edit, maker.inputs[0])
            if found is not None and found[0] == y:
                break
    if found is None or found[0] != y or y.shape != node.output.shape:
        return None
    _, axis, eps = found
    centred = edit.producer(y, "sub")
    mean = trailing_mean(edit, centred.inputs[1]) if centred is not None else None
    if mean is not None and mean == (centred.inputs[0], axis):  # type: ignore[union-attr]
        return edit.emit("layer_norm", mean[0], axis=axis, eps=eps, name=node.name)
    return edit.emit("rms_norm", y, axis=axis, eps=eps, name=node.name)


def weights_of_norm(edit: Edit, node: Node) -> Any:
    """norm(x) · scale, then + bias, with weights of the normalised shape, go into the norm."""
    for x, weight in (node.inputs, node.inputs[::-1]):
        before = edit.producer(x)
        if before is None or before.op not in ("layer_norm", "rms_norm") or not edit.only(x):
            continue
        if weight not in edit.constants or weight.shape != x.shape[before["axis"] % x.rank :]:
            continue
        arity = 2 if node.op == "mul" else 3
        if before.op == "rms_norm" and arity == 3:
            continue
        if len(before.inputs) == arity - 1:
            return edit.emit(
                before.op, *before.inputs, weight, **dict(before.attrs), name=node.name
            )
    return None


def softmax(edit: Edit, node: Node) -> Any:
    """e / sum(e) along one axis, with e = exp(x) or exp(x - max(x))."""
    total = edit.producer(node.inputs[1], "reduce_sum")
    e = edit.producer(node.inputs[0], "exp")
    if total is None or e is None or total.inputs[0] != node.inputs[0] or not total["keepdims"]:
        return None
    axes, x = total["axes"], e.inputs[0]
    if axes is None or len(axes) != 1:
        return None
    moved = edit.producer(x, "sub")
    top = edit.producer(moved.inputs[1], "reduce_max") if moved is not None else None
    if top is not None and top.inputs[0] == moved.inputs[0] and top["keepdims"]:  # type: ignore[union-attr]
        if top["axes"] is not None and [a % x.rank for a in top["axes"]] == [axes[0] % x.rank]:
            return edit.emit("softmax", moved.inputs[0], axis=axes[0], name=node.name)  # type: ignore[union-attr]
    return edit.emit("softmax", x, axis=axes[0], name=node.name)


def lstm_cell(edit: Edit, node: Node) -> Any:
    """h = σ(o) · tanh(c'), c' = σ(f) · c + σ(i) · tanh(g), with i, f, g, o slices of one tensor."""
    for out, squashed in (node.inputs, node.inputs[::-1]):
        outer = edit.producer(squashed, "tanh")
        total = edit.producer(outer.inputs[0], "add") if outer is not None else None
        o = quarter(edit, out, "sigmoid")
        if total is None or o is None:
            continue
        for kept, new in (total.inputs, total.inputs[::-1]):
            found = gates_of_cell(edit, kept, new)
            if found is None:
                continue
            (f, c), i, g = found
            gates = {q[0] for q in (i, f, g, o)}
            order = tuple(q[1] for q in (i, f, g, o))
            if len(gates) == 1 and sorted(order) == [0, 1, 2, 3] and c.shape == node.output.shape:
                name = (node.name, f"{node.name}_cell")
                h, cell = edit.emit("lstm_cell", gates.pop(), c, order=order, name=name)
                edit.substitute(total.outputs, cell)
                return h
    return None


Quarter = tuple[Value, int]


def gates_of_cell(
    edit: Edit, kept: Value, new: Value
) -> tuple[tuple[Quarter, Value], Quarter, Quarter] | None:
    """((f, c), i, g) if kept is σ(f) · c and new is σ(i) · tanh(g)."""
    left, right = edit.producer(kept, "mul"), edit.producer(new, "mul")
    if left is None or right is None:
        return None
    for a, g in (right.inputs, right.inputs[::-1]):
        i, cell = quarter(edit, a, "sigmoid"), quarter(edit, g, "tanh")
        if i is None or cell is None:
            continue
        for b, c in (left.inputs, left.inputs[::-1]):
            f = quarter(edit, b, "sigmoid")
            if f is not None:
                return (f, c), i, cell
    return None


def quarter(edit: Edit, value: Value, op: str) -> Quarter | None:
    """(x, n) if `value` is `op` of the n-th quarter of the columns of the matrix x."""
    node = edit.producer(value, op)
    cut = edit.producer(node.inputs[0], "slice") if node is not None else None
    if cut is None or cut.output.rank != 2 or any(s != 1 for s in cut["steps"]):
        return None
    x, width = cut.inputs[0], as_int(cut.output.shape[1])
    start = as_int(cut["starts"][1])
    if not width or start is None or start % width or as_int(x.shape[1]) != 4 * width:
        return None
    return (x, start // width) if x.shape[0] == cut.output.shape[0] else None


RULES: dict[str, list[Rule]] = {
    "mul": [lstm_cell, gelu, silu, hard_swish, mish, norm, weights_of_norm],
    "div": [softmax, norm, hard_swish],
    "add": [weights_of_norm],
}
