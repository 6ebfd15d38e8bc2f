"""Unification of symbolic sizes: which turn out to be one, or to be a number.

A model may name sizes apart that its operators need equal: PyTorch exports the keys and the values
of a cache with a length each, and attention then takes both. It may also leave a size open that
adds to a table of fixed length. Reading such a model notes what the symbols have to be, and reads
it again with one name for those that are unified: the run checks that the inputs fit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from tilewright.graph import sizes
from tilewright.graph.graph import Graph
from tilewright.ir.expr import Binary, BinaryOp, Expr, Var, as_int
from tilewright.ir.walk import free_vars, substitute, visit
from tilewright.support.errors import TilewrightError

Names = Mapping[str, str | int]  # a symbol → the one that stands for it, or its number


class Reader(Protocol):
    """What reads a model into a graph."""

    @property
    def build(self) -> Any: ...

    def graph(self) -> Graph: ...


def read_unified(reader: Callable[[Names], Reader]) -> Graph:
    """The graph that a reader makes, once no more of its symbols need unifying."""
    names: dict[str, str | int] = {}
    while True:
        reading = reader(names)
        try:
            graph = reading.graph()
        except TilewrightError:  # it may come of names for what is one
            if not reading.build.unifier:
                raise
        else:
            if not reading.build.unifier:
                return graph
        unifier = {
            a.name: b.name if isinstance(b, Var) else b.value
            for a, b in reading.build.unifier.items()
        }
        names = {
            a: unifier.get(b, b) if isinstance(b, str) else b for a, b in names.items()
        } | unifier


def unify(a: Expr, b: Expr, symbols: list[Var], hints: Mapping[str, int]) -> dict[Var, Expr]:
    """What symbols of the inputs have to be for two sizes to be the same; {} if none will do.

    Two symbols become the earlier one. A single one in a linear equation becomes what solves it.
    Others become what they were when the model was written (`hints`), if that will do, but for a
    least or a greatest of sizes: the run can tell whether it is the other one.
    """
    apart, zero = sizes.size(a - b), sizes.size(0)
    free = sorted(sizes.symbols([apart]), key=lambda s: s.name)
    if not free or not all(s in symbols for s in free):
        return {}
    if len(free) == 2 and not any(_is_quotient_of_both(n) for n in visit(apart)):
        first, other = sorted(free, key=symbols.index)
        if sizes.size(substitute(apart, {other: first})) == zero:
            return {other: first}
    if len(free) == 1:
        (only,) = free
        low, high = (as_int(sizes.size(substitute(apart, {only: sizes.size(n)}))) for n in (0, 1))
        if low is not None and high is not None and apart == sizes.size(only * (high - low) + low):
            count, left = divmod(low, low - high)
            return {only: sizes.size(count)} if count > 0 and not left else {}
    if any(isinstance(n, Binary) and n.op in (BinaryOp.min, BinaryOp.max) for n in visit(apart)):
        return {}
    fixed = {s: sizes.size(hints[s.name]) for s in free if s.name in hints}
    return fixed if sizes.size(substitute(apart, fixed)) == zero else {}


def _is_quotient_of_both(n: Expr) -> bool:
    """b · ⌊t / b⌋ is t wherever b divides t, not where they are one."""
    return (
        isinstance(n, Binary)
        and n.op in (BinaryOp.floordiv, BinaryOp.floormod)
        and len(free_vars(n)) > 1
    )


def renamed(value: Any, unifier: Mapping[Var, Expr]) -> Any:
    """Sizes, and nests of them, in the symbols that stay."""
    if isinstance(value, tuple):
        return tuple([renamed(v, unifier) for v in value])
    return sizes.size(substitute(value, unifier)) if isinstance(value, Expr) else value
