"""Control flow of PyTorch: `torch.cond`, of which both branches stand in the graph.

In: a call of the higher-order operator. Out: its results, chosen by the condition. What a branch
computes is built under its condition, so that nothing of it counts where the other is taken; the
graph's passes find what only one of them needs (graph/passes/demand.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch

from tilewright.frontend.torch.convert import Refusal
from tilewright.frontend.torch.registry import NodeContext
from tilewright.graph.branches import Unifier
from tilewright.graph.graph import Value

CHECKS = ("aten._linalg_check_errors.default",)  # raise an exception, or do nothing


def is_check(node: torch.fx.Node) -> bool:
    """Does the node only look for bad numbers? Here they show in the results; nothing raises."""
    return str(node.target) == "with_effects" and str(node.args[1]) in CHECKS


def is_cond(node: torch.fx.Node) -> bool:
    return node.op == "call_function" and str(node.target) == "cond"


def sides(node: torch.fx.Node) -> list[list[torch.fx.Node]]:
    """The nodes of the branch that is taken where the condition holds, and those of the other."""
    module: Any = node.graph.owning_module
    return [list(getattr(module, side.target).graph.nodes) for side in node.args[1:3]]  # type: ignore[union-attr]


def everywhere(nodes: Iterable[torch.fx.Node]) -> Iterator[torch.fx.Node]:
    """The nodes and those of their branches."""
    for node in nodes:
        yield node
        if is_cond(node):
            for side in sides(node):
                yield from everywhere(side)


def chosen(
    n: NodeContext,
    condition: Any,
    operands: Sequence[Any],
    values: dict[torch.fx.Node, Any],
    read: Callable[[torch.fx.Node], None],
) -> tuple[Any, ...]:
    """What the branches give, one where the condition holds. read: adds a node's value to
    `values`."""
    if not isinstance(condition, Value):
        raise Refusal("its condition is no tensor", "compare tensors, not sizes")
    build = n.build
    condition = n.reshape(condition, ())
    made: list[Sequence[Any]] = []
    needs: list[Unifier] = []
    for side, holds in zip(sides(n.node), (True, False), strict=True):
        with build.taken(condition, holds) as unifier:
            arguments = [node for node in side if node.op == "placeholder"]
            values.update(zip(arguments, operands, strict=True))
            for node in side[len(arguments) :]:
                read(node)
            made.append(torch.fx.map_arg(side[-1].args[0], values.__getitem__))  # type: ignore[arg-type]
        needs.append(unifier)
    build.need(dict(needs[0].items() & needs[1].items()))
    pairs = list(zip(*made, strict=True))
    if not all(isinstance(v, Value) and v.rank == pair[0].rank for pair in pairs for v in pair):
        raise Refusal("its branches give other things than tensors of the same ranks")
    return tuple([n.emit("where", condition, *pair) for pair in pairs])
