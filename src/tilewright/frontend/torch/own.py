"""Operators of outside packages (`tilewright.operator`) in programs of PyTorch.

In: the nodes of a program. Out: translators, in the table, of those custom operators
(`torch.library.custom_op`) that packages registered: by the function that came with it, or with
tensors as inputs and the other arguments as attributes of the schema's names.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from tilewright.frontend.torch.branches import everywhere
from tilewright.frontend.torch.convert import Refusal, of_torch
from tilewright.frontend.torch.registry import TRANSLATORS, NodeContext, Translator
from tilewright.graph import outside, sizes
from tilewright.graph.graph import Value

_added: dict[str, outside.Own] = {}


def register(nodes: Iterable[torch.fx.Node]) -> None:
    """See to it that the table has what packages know of the nodes' operators."""
    unknown = {str(n.target) for n in everywhere(nodes) if _is_custom(n)} - TRANSLATORS.keys()
    if not unknown <= outside.TORCH.keys():
        from tilewright.graph.plugins import discover

        discover()
    for name in [n for n, known in _added.items() if outside.TORCH.get(n) is not known]:
        del _added[name], TRANSLATORS[name]
    for name, operator in outside.TORCH.items():
        if name not in TRANSLATORS:
            TRANSLATORS[name] = _translator(operator, operator.torch[name])
            _added[name] = operator


def _is_custom(node: torch.fx.Node) -> bool:
    return isinstance(node.target, torch._ops.OpOverload) and node.target.namespace != "aten"


def _translator(operator: outside.Own, entry: outside.Entry) -> Translator:
    who = f"that is a fault of '{operator.entry.package}', which registered it"

    def translate(n: NodeContext, *args: Any, **kwargs: Any) -> Any:
        if entry is None:
            made = by_schema(n, operator, args, kwargs)
        else:
            try:
                made = entry(n, *args, **kwargs)
            except Exception as fault:  # whatever code of others raises
                if type(fault).__module__.partition(".")[0] == "tilewright":
                    raise
                why = f"its importer entry ends in {type(fault).__name__}: {fault}"
                raise Refusal(why, who) from fault
        results = made if isinstance(made, tuple | list) else (made,)
        for value, fake in zip(results, n.fakes, strict=False):
            if isinstance(value, Value) and isinstance(fake, torch.Tensor):
                wanted = Value(value.name, of_torch(fake.dtype), sizes.shape(n.sizes(fake.shape)))
                if (value.dtype, value.rank) != (wanted.dtype, wanted.rank):
                    why = f"it gives {value.type_text} for PyTorch's {wanted.type_text}"
                    raise Refusal(why, who)
        return made

    return translate


def by_schema(n: NodeContext, operator: outside.Own, args: Any, kwargs: dict[str, Any]) -> Any:
    """The operator of the tensors among the arguments; the others are its attributes."""
    target = n.node.target
    assert isinstance(target, torch._ops.OpOverload), target
    schema = target._schema.arguments
    names = [argument.name for argument in schema]
    given = {a.name: a.default_value for a in schema if a.has_default_value()}
    given |= dict(zip(names, args, strict=False)) | kwargs
    inputs: list[Value] = []
    attrs: dict[str, Any] = {}
    left_out = ""
    for name in names:
        value = given.get(name)
        listed: Any = value if isinstance(value, list | tuple) else [value]
        if listed and all(isinstance(v, Value) for v in listed):
            if left_out:
                raise Refusal(f"'{left_out}' is left out, and '{name}' is not")
            inputs += listed
        elif name in operator.entry.attrs:
            attrs[name] = attribute(value)
        elif value is None:  # an optional tensor
            left_out = name
        else:
            known = ", ".join(operator.entry.attrs) or "none"
            raise Refusal(f"'{operator.name}' has no attribute '{name}'", f"it has: {known}")
    return n.emit(operator.name, *inputs, **attrs)


def attribute(value: Any) -> Any:
    """An argument as attributes are."""
    if isinstance(value, list | tuple):
        return tuple([attribute(v) for v in value])
    return of_torch(value).name if isinstance(value, torch.dtype) else value
