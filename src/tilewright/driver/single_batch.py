"""Kernels whose vectors would lie along the batch have code of their own for a batch of one.

In: a fused graph. Out: for some of its groups the symbol, and the group where that is one. A batch
is open because it may be large, and most often it is one. Where it is the last axis of what a
kernel touches, a vector has one number then: a transpose of a single column is a copy, a product
with it a sum of each row, the softmax over it no reduction. The host program looks at the size.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tilewright.graph import sizes
from tilewright.graph.graph import Graph
from tilewright.graph.group import FusedGraph, FusedGroup
from tilewright.graph.specialise import specialised_group
from tilewright.graph.unify import renamed
from tilewright.ir.expr import Expr, Var, as_int

ONE = 1
SHORT = 4  # elements: less than any vector that is worth the name


def of_single_batch(fused: FusedGraph) -> Iterator[tuple[FusedGroup, Var, FusedGroup]]:
    """The groups that need code and have it for a batch of one, too: each with the batch's symbol
    and what it is then."""
    batches = batch_symbols(fused.graph)
    for group in fused.groups if batches else ():
        if group.is_view or group.is_loop:
            continue
        symbol = _along(group, batches)
        if symbol is not None:
            yield group, symbol, specialised_group(group, {symbol: ONE})


def batch_symbols(graph: Graph) -> list[Var]:
    """The symbols that may be 1 and are the first axis of each input that has them, of some input
    with several axes."""
    first = dict.fromkeys(v.shape[0] for v in graph.inputs if v.rank > 1)
    later = {s for v in graph.inputs for s in sizes.symbols(v.shape[1:])}

    def may_be_one(symbol: Var) -> bool:
        least, most = graph.ranges.get(symbol.name, (0, None))
        return least <= ONE and (most is None or most > ONE)

    return [s for s in first if isinstance(s, Var) and s not in later and may_be_one(s)]


def _along(group: FusedGroup, symbols: Iterable[Var]) -> Var | None:
    """The first of these symbols with which the last axis of what a group touches is short where
    it is one."""
    ends = {v.shape[-1] for v in (*group.inputs, *group.outputs) if v.rank > 1}

    def is_short(end: Expr, symbol: Var) -> bool:
        then = as_int(renamed(end, {symbol: sizes.size(ONE)}))
        return symbol in sizes.symbols([end]) and then is not None and then <= SHORT

    return next((s for s in symbols if any(is_short(e, s) for e in ends)), None)
