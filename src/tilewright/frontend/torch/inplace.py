"""In-place operators without PyTorch's own (slow) functionalisation, where that is safe.

`x.add_(y)` may be read as a new value that later readers of x see instead, if the memory has no
other name: an operator that computes made it, and no reader of it gives out a view.
"""

from __future__ import annotations

from typing import Any

import torch

from tilewright.frontend.torch.registry import TRANSLATORS

# Composites that surely make new memory. Of others the schema does not tell: dropout may return its
# input.
COMPUTING = frozenset(
    f"aten.{name}"
    for name in (
        "batch_norm.default",
        "conv1d.default",
        "conv2d.default",
        "conv3d.default",
        "conv2d.padding",
        "conv_transpose1d.default",
        "conv_transpose2d.input",
        "group_norm.default",
        "instance_norm.default",
        "layer_norm.default",
        "linear.default",
        "matmul.default",
        "max_pool2d.default",
        "softmax.int",
    )
)


def functional(target: Any) -> str | None:
    """The translated operator that an in-place operator applies: add for add_."""
    if not isinstance(target, torch._ops.OpOverload) or not target._schema.is_mutable:
        return None
    name, _, overload = str(target).rpartition(".")
    plain = f"{name.removesuffix('_')}.{overload}"
    return plain if name.endswith("_") and plain in TRANSLATORS else None


def updated(node: torch.fx.Node) -> list[torch.fx.Node]:
    """The nodes that name the memory which an in-place node writes; the first made it."""
    found = [node]
    while functional(found[-1].target) is not None:
        found.append(found[-1].args[0])  # type: ignore[arg-type]
    return found[:0:-1]


def is_private(node: torch.fx.Node) -> bool:
    """Is the memory that an in-place node writes seen under no other names?"""
    names = updated(node)
    return _computes(names[0]) and all(
        _computes(user) or functional(user.target) is not None or user.op == "output"
        for name in (*names, node)
        for user in name.users
    )


def _computes(node: torch.fx.Node) -> bool:
    """Is the result of the node memory of its own?"""
    target = node.target
    if node.op != "call_function" or not isinstance(target, torch._ops.OpOverload):
        return False
    if str(target) in COMPUTING:
        return True
    composite = torch._C._dispatch_has_kernel_for_dispatch_key(
        target.name(), torch._C.DispatchKey.CompositeImplicitAutograd
    )
    return not composite and all(r.alias_info is None for r in target._schema.returns)
