"""How large an expression grows when what it reads is inlined.

In: a node, and the sizes of the expressions of its inputs. Out: that of its first output. The one
idea: the operator's own te definition tells. A chain of operators that read their input twice
doubles with each of them, and one whose indices take several steps to compute multiplies them;
fusion has to stop before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from tilewright import te
from tilewright.graph.graph import Node
from tilewright.graph.operator import OPERATORS, Operator
from tilewright.ir.expr import Expr
from tilewright.support.recursion import recursive
from tilewright.te.tensor import Compute, Read


class Inlined(NamedTuple):
    """An expression for each element of a tensor: its number of nodes, and how often the index of
    each axis stands in it."""

    nodes: int
    uses: tuple[int, ...]


def load_of(rank: int) -> Inlined:
    """What reads a stored tensor."""
    return Inlined(1 + rank, (1,) * rank)


def inlined(node: Node, inputs: Sequence[Inlined]) -> Inlined:
    """The expression of the node's first output where its inputs' expressions are these."""
    types = tuple([(v.dtype, v.shape) for v in node.inputs])
    return _inlined(OPERATORS[node.op], tuple(node.attrs), types, tuple(inputs))


@lru_cache(4096)
def _inlined(entry: Operator, attrs: Any, types: Any, inputs: tuple[Inlined, ...]) -> Inlined:
    tensors = [te.placeholder(shape, of, f"x{k}") for k, (of, shape) in enumerate(types)]
    made = entry.define(*tensors, **dict(attrs))
    known = dict(zip(tensors, inputs, strict=True))
    return _of_tensor(made[0] if isinstance(made, tuple) else made, known)


def _of_tensor(tensor: te.Tensor, known: Mapping[te.Tensor, Inlined]) -> Inlined:
    if tensor in known:
        return known[tensor]
    if not isinstance(tensor.op, Compute):
        return load_of(tensor.ndim)
    axes = tensor.op.axes
    seen: dict[int, Inlined] = {}  # subexpressions that occur several times are looked at once

    @recursive
    def go(again: Any, e: Expr) -> Inlined:
        found = seen.get(id(e))
        if found is None:
            below: list[Inlined] = [again(c) for c in e.children() if isinstance(c, Expr)]
            nodes, times = 1 + sum(b.nodes for b in below), [1] * len(below)
            if isinstance(e, Read):
                inner = _of_tensor(e.tensor, known)
                times = list(inner.uses)
                nodes = inner.nodes
                nodes += sum(t * (b.nodes - 1) for t, b in zip(times, below, strict=True))
            uses = [int(e is axis) for axis in axes]
            for t, b in zip(times, below, strict=True):
                uses = [u + t * own for u, own in zip(uses, b.uses, strict=True)]
            seen[id(e)] = found = Inlined(nodes, tuple(uses))
        return found

    parts = [go(v) for v in tensor.op.values]
    uses = [sum(u) for u in zip(*(p.uses for p in parts), strict=True)]
    return Inlined(sum(p.nodes for p in parts), tuple(uses))
