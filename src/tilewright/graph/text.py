"""The text of a graph: a subset of Python, read back by `parse`.

    def model(image: f32[1, 1, 8, 8]):
        weight = constant(f32[32, 1, 3, 3], "0f1e…")
        conv: f32[1, 32, 8, 8] = conv(image, weight, pads=((1, 1), (1, 1)))
        return {"scores": conv}

An input whose user-visible name is no identifier shows it as a default, `x: f32[4] = "input.1"`,
and so do those after it. Attributes at their defaults are left out. What the elements of inputs and
outputs stand for, if not what the dtype says, stands in a line `@formats({"x": "string"})` above,
the least and the most that symbols may be in a line `@ranges({"n": (3, 20)})`, each size that no
run may find negative in a line `@requires(n - m, "what it is")`, what the model's file says besides
in a line `@metadata({"labels": "cat,dog"})`.
"""

from __future__ import annotations

from typing import Any

from tilewright.graph import sizes
from tilewright.graph.operator import OPERATORS
from tilewright.ir.expr import Expr


def to_text(graph: Any) -> str:
    """The whole graph."""
    parameters, shown = [], False
    for value, name in zip(graph.inputs, graph.input_names, strict=True):
        shown = shown or name != value.name
        parameters.append(f"{value!r} = {name!r}" if shown else repr(value))
    told = {"metadata": graph.metadata, "formats": graph.formats, "ranges": graph.ranges}
    lines = [f"@{what}({said!r})" for what, said in told.items() if said]
    lines += [f"@requires({sizes.text(size)}, {what!r})" for size, what in graph.required]
    lines += [f"def {graph.name}({', '.join(parameters)}):"]
    for value, constant in graph.constants.items():
        lines.append(f"    {value.name} = constant({value.type_text}, {constant.digest!r})")
    lines += [f"    {line}" for n in graph.nodes for line in node_lines(n)]
    results = [f"{n!r}: {v.name}" for n, v in zip(graph.output_names, graph.outputs, strict=True)]
    lines.append(f"    return {{{', '.join(results)}}}")
    return "\n".join(lines) + "\n"


def node_lines(node: Any) -> list[str]:
    """A node's lines: the types of several outputs come first."""
    if len(node.outputs) == 1:
        return [f"{node.outputs[0]!r} = {application(node)}"]
    names = ", ".join(v.name for v in node.outputs)
    return [*(f"{v!r}" for v in node.outputs), f"{names} = {application(node)}"]


def application(node: Any) -> str:
    """The right-hand side: conv(x, w, groups=4)."""
    defaults = OPERATORS[node.op].attrs
    arguments = [v.name for v in node.inputs]
    arguments += [f"{k}={attr_text(v)}" for k, v in node.attrs if not same(v, defaults.get(k, ...))]
    return f"{node.op}({', '.join(arguments)})"


def same(a: Any, b: Any) -> bool:
    """Equal and of one type (1, 1.0 and True are three values)."""
    return type(a) is type(b) and (a is b or a == b)


def attr_text(value: Any) -> str:
    """An attribute's value as Python text."""
    if isinstance(value, tuple):
        inside = ", ".join(map(attr_text, value))
        return f"({inside},)" if len(value) == 1 else f"({inside})"
    return sizes.text(value) if isinstance(value, Expr) else repr(value)
