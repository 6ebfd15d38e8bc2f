"""Kernels whose vectors would lie along a short axis have code of their own for its likely sizes.

In: a fused graph. Out: for some of its groups a symbol, and the group for each number that it is
likely to be. Two axes are open because they may be long, and most often are of a few elements, for
which a vector has few numbers. A batch is one: a transpose of a single column is a copy, a product
with it a sum of each row, the softmax over it no reduction. An image has few channels: where they
are transposed, all that lanes read lies in a few lines, in an order that only a number tells. The
host program looks at the size.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tilewright.graph import sizes
from tilewright.graph.graph import Graph, Node
from tilewright.graph.group import FusedGraph, FusedGroup
from tilewright.graph.operator import BROADCAST, INJECTIVE
from tilewright.graph.specialise import specialised_group
from tilewright.graph.unify import renamed
from tilewright.ir.expr import Expr, Var, as_int

ONE = 1
SHORT = 4  # elements: less than any vector that is worth the name
CHANNELS = range(1, 9)  # of an image: more fill half a vector
PIXELS = 2  # open sizes, at least, that a position in an image has

Versions = dict[int, FusedGroup]  # of a group, by the number that a symbol is


def of_likely_sizes(fused: FusedGraph) -> Iterator[tuple[FusedGroup, Var, Versions]]:
    """The groups that need code and have it for likely sizes of a symbol, too: each with the symbol
    and what it is then."""
    batches = batch_symbols(fused.graph)
    for group in fused.groups if fused.graph.symbols else ():
        if group.is_view or group.is_loop:
            continue
        symbol, likely = _channels(group), CHANNELS
        if symbol is None:
            symbol, likely = _along(group, batches), range(ONE, ONE + 1)
        if symbol in fused.graph.symbols:
            numbers = [n for n in likely if _may_be(fused.graph, symbol, n)]
            yield group, symbol, {n: specialised_group(group, {symbol: n}) for n in numbers}


def batch_symbols(graph: Graph) -> list[Var]:
    """The symbols that may be 1 and are the first axis of each input that has them, of some input
    with several axes."""
    first = dict.fromkeys(v.shape[0] for v in graph.inputs if v.rank > 1)
    later = {s for v in graph.inputs for s in sizes.symbols(v.shape[1:])}
    return [s for s in first if isinstance(s, Var) and s not in later and _may_be(graph, s, ONE)]


def _may_be(graph: Graph, symbol: Var, number: int) -> bool:
    least, most = graph.ranges.get(symbol.name, (0, None))
    return least <= number and (most is None or number <= most)


def _along(group: FusedGroup, symbols: Iterable[Var]) -> Var | None:
    """The first of these symbols with which the last axis of what a group touches is short where
    it is one."""
    ends = {v.shape[-1] for v in (*group.inputs, *group.outputs) if v.rank > 1}

    def is_short(end: Expr, symbol: Var) -> bool:
        then = as_int(renamed(end, {symbol: sizes.size(ONE)}))
        return symbol in sizes.symbols([end]) and then is not None and then <= SHORT

    return next((s for s in symbols if any(is_short(e, s) for e in ends)), None)


def _channels(group: FusedGroup) -> Var | None:
    """The symbol that is the number of channels of an image, if that is transposed and computed
    element by element."""
    if group.fusion not in (BROADCAST, INJECTIVE):
        return None
    moved = (moved_channels(n) for n in group.nodes if n.op == "transpose")
    return next((s for s in moved if s is not None), None)


def moved_channels(transpose: Node) -> Var | None:
    """The symbol that is the size of the one axis which a transposition moves, to the last place or
    from there, past pixels of open rows and columns."""
    x = transpose.inputs[0]
    before = [a for a in range(x.rank) if as_int(x.shape[a]) != ONE]
    after = [a for a in transpose["perm"] if a in before]
    for (*others, last), there in ((before, after), (after, before)) if before else ():
        past = there[there.index(last) + 1 :]
        pixels = {*sizes.symbols([x.shape[a] for a in past])}
        symbol = x.shape[last]
        if (
            isinstance(symbol, Var)
            and len(pixels) >= PIXELS
            and others == [a for a in there if a != last]
        ):
            return symbol
    return None
