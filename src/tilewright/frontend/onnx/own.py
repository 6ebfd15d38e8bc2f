"""Operators of outside packages (`tilewright.operator`) in ONNX files.

In: a node of a domain that nothing here reads. Out: the operator that a package registered for it:
by the function that came with it, or with the node's inputs and attributes as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.frontend.onnx.messages import AttributeProto
from tilewright.frontend.onnx.registry import OTHERS, NodeContext, Refusal
from tilewright.graph import outside
from tilewright.graph.graph import Value

_A = AttributeProto
_READ: dict[int, Callable[[NodeContext, str], Any]] = {
    _A.INT: NodeContext.int,
    _A.FLOAT: NodeContext.float,
    _A.STRING: NodeContext.text,
    _A.INTS: NodeContext.ints,
    _A.FLOATS: NodeContext.floats,
    _A.STRINGS: NodeContext.texts,
}


def translator_of(domain: str, name: str) -> Callable[[NodeContext], Any] | None:
    """What translates a node of an outside operator; None where no package knows it."""
    if domain in outside.TAKEN_DOMAINS:
        return None
    if (domain, name) not in outside.ONNX:
        from tilewright.graph.plugins import discover

        discover()
    found = outside.ONNX.get((domain, name))
    if found is None:
        return None
    operator = found
    entry = operator.onnx[domain, name]

    def translate(node: NodeContext) -> Any:
        outside.note(operator)
        if entry is None:
            return by_attributes(node, operator)
        try:
            return entry(node)
        except Exception as fault:  # whatever code of others raises
            if type(fault).__module__.partition(".")[0] == "tilewright":
                raise
            why = f"its importer entry ends in {type(fault).__name__}: {fault}"
            who = f"that is a fault of '{operator.entry.package}', which registered it"
            raise Refusal(why, who) from fault

    return translate


def by_attributes(node: NodeContext, operator: outside.Own) -> Any:
    """The operator of the node's inputs, with the node's attributes under their own names."""
    count = len(node.inputs)
    while count and node.inputs[count - 1] is None:
        count -= 1
    inputs: list[Value] = [node[n] for n in range(count)]
    known = operator.entry.attrs
    attrs: dict[str, Any] = {}
    for name, attribute in node.attributes.items():
        if name not in known:
            listed = ", ".join(known) or "none"
            raise Refusal(f"'{operator.name}' has no attribute '{name}'", f"it has: {listed}")
        read = _READ.get(attribute.type)
        if read is None:
            kind = _A.AttributeType.Name(attribute.type)
            raise Refusal(
                f"attribute '{name}' is a {kind}",
                f"'{operator.entry.package}' needs a function of the node for that (onnx=…)",
            )
        attrs[name] = like(known[name], read(node, name))
    return node.emit(operator.name, *inputs, **attrs)


def like(default: Any, given: Any) -> Any:
    """A number as the attribute has it: files have no truth values."""
    kind = type(default)
    return kind(given) if kind in (bool, float) and isinstance(given, int) else given


OTHERS.append(translator_of)
