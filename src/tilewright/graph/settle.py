"""Symbolic sizes that turn out to be one.

A model may name sizes apart that its operators need equal: PyTorch exports the keys and the values
of a cache with a length each, and attention then takes both. Reading such a model notes the
symbols that met, and reads it again with one name for them: the run checks that the inputs agree.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from tilewright.graph import sizes
from tilewright.graph.graph import Graph
from tilewright.ir.expr import Expr, Var
from tilewright.ir.walk import substitute

Names = Mapping[str, str]  # a symbol → the one that stands for it


class Reader(Protocol):
    """What reads a model into a graph."""

    @property
    def build(self) -> Any: ...

    def graph(self) -> Graph: ...


def read_settled(reader: Callable[[Names], Reader]) -> Graph:
    """The graph that a reader makes, once no more of its symbols meet."""
    names: dict[str, str] = {}
    while True:
        reading = reader(names)
        try:
            graph = reading.graph()
        except Exception:
            if not reading.build.met:  # else it may come of the names
                raise
        else:
            if not reading.build.met:
                return graph
        met = {a.name: b.name for a, b in reading.build.met.items()}
        names = {a: met.get(b, b) for a, b in names.items()} | met


def meet(a: Expr, b: Expr, symbols: list[Var]) -> tuple[Var, Var] | None:
    """Which two of the symbols must be one for the sizes to be the same; the earlier one first."""
    apart = sizes.size(a - b)
    free = sizes.symbols([apart])
    if len(free) != 2 or not all(s in symbols for s in free):
        return None
    first, other = sorted(free, key=symbols.index)
    same = sizes.size(substitute(apart, {other: first}))
    return (first, other) if same == sizes.size(0) else None


def renamed(value: Any, met: Mapping[Var, Var]) -> Any:
    """Sizes, and nests of them, in the symbols that stay."""
    if isinstance(value, tuple):
        return tuple([renamed(v, met) for v in value])
    return sizes.size(substitute(value, met)) if isinstance(value, Expr) else value
