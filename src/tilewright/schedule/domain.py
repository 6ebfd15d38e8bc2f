"""Iteration domains: the ranges of loop variables, new variables for old ones, and guards.

In: a position in a function. Out: what `arith` needs to know there, and statements whose loops were
replaced. The one idea: every rewrite of loops is "these variables now have those values, where this
condition holds".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tilewright.arith.simplify import Facts, loop_range
from tilewright.ir.expr import (
    Binary,
    BinaryOp,
    Call,
    Cast,
    Const,
    Expr,
    Select,
    Var,
    as_int,
    binary,
)
from tilewright.ir.stmt import Alloc, Axis, Block, For, Func, If, Seq, Stmt
from tilewright.ir.walk import substitute

End = int | Expr | None
Ranges = dict[Var, tuple[End, End]]  # the least and the greatest value


def ranges_at(func: Func, stmts: Iterable[Stmt]) -> Ranges:
    """The ranges of sizes (at least 0) and of what the loops and blocks among `stmts` bind."""
    found: Ranges = {p: (0, None) for p in func.params if isinstance(p, Var)}
    for stmt in stmts:
        if isinstance(stmt, For):
            found[stmt.var] = loop_range(stmt)
        elif isinstance(stmt, Block):
            for axis in stmt.axes:
                found[axis.var] = axis_range(axis)
    return found


def axis_range(axis: Axis) -> tuple[End, End]:
    """The least and the greatest value of a block's axis."""
    extent = as_int(axis.extent)
    return 0, axis.extent - 1 if extent is None else extent - 1


def conditions(condition: Expr | None) -> list[Expr]:
    """The parts of a conjunction."""
    if condition is None:
        return []
    if isinstance(condition, Binary) and condition.op is BinaryOp.logical_and:
        return conditions(condition.a) + conditions(condition.b)
    return [condition]


def conjunction(parts: Sequence[Expr]) -> Expr | None:
    """All of `parts`; None for none."""
    whole: Expr | None = None
    for part in parts:
        whole = part if whole is None else binary(BinaryOp.logical_and, whole, part)
    return whole


def guard(condition: Expr | None, known: Facts) -> Expr | None:
    """`condition` without the parts that hold anyway; None if nothing is left."""
    if condition is None:
        return None
    left = known.condition(condition)
    return None if as_int(left) == 1 else left


def rebind(
    func: Func,
    around: Iterable[Stmt],
    stmt: Stmt,
    values: Mapping[Var, Expr],
    condition: Expr | None = None,
) -> Stmt:
    """`stmt` with loop variables replaced by `values`, done only where `condition` holds.

    `around`: the loops and blocks that `stmt` will stand in. Blocks take the condition into their
    guard; plain statements get an If. Guards that hold anyway are dropped: those that change, and
    without `values`, where loops around run less far, all.
    """
    return _Rebind(values, condition).run(stmt, Facts(ranges_at(func, around)))


class _Rebind:
    def __init__(self, values: Mapping[Var, Expr], condition: Expr | None) -> None:
        self.values, self.condition = values, condition

    def expr(self, e: Expr, known: Facts) -> Expr:
        new = substitute(e, self.values)
        return known.simplify(new) if new is not e and _can_shrink(new) else new

    def run(self, stmt: Any, known: Facts) -> Any:
        kind = stmt.__class__
        if kind is Block:
            return self.block(stmt, known)
        if kind is For:
            start, stop = self.expr(stmt.start, known), self.expr(stmt.stop, known)
            same = start is stmt.start and stop is stmt.stop
            made = stmt if same else stmt.replace(start=start, stop=stop)
            body = self.run(stmt.body, known.bind(made.var, *loop_range(made)))
            return made if body is made.body else made.replace(body=body)
        if kind is Seq:
            return Seq(tuple([self.run(s, known) for s in stmt.stmts]))
        if kind is Alloc:
            return Alloc(stmt.buffer, self.run(stmt.body, known))
        if self.condition is None:
            return self.plain(stmt, known)
        return If(self.condition, _Rebind(self.values, None).plain(stmt, known))

    def plain(self, stmt: Any, known: Facts) -> Any:
        """A store, let, condition or intrinsic."""

        def child(c: Any) -> Any:
            return self.run(c, known) if isinstance(c, Stmt) else self.expr(c, known)

        return stmt.map_children(child)

    def block(self, block: Block, known: Facts) -> Block:
        axes = tuple([self.axis(a, known) for a in block.axes])
        old = None if block.where is None else substitute(block.where, self.values)
        where = old if self.condition is None else conjunction([*conditions(old), self.condition])
        if where is not block.where or not self.values:  # else it is asked no more than before
            where = guard(where, known)
        same = where is block.where and all(a is b for a, b in zip(axes, block.axes, strict=True))
        return block if same else block.replace(axes=axes, where=where)

    def axis(self, axis: Axis, known: Facts) -> Axis:
        value = self.expr(axis.value, known)
        return axis if value is axis.value else axis.replace(value=value)


def _can_shrink(e: Expr) -> bool:
    """Has it an operator that new values may remove (a quotient, a remainder, a choice)?"""
    stack: list[Any] = [e]
    while stack:
        n = stack.pop()
        kind = n.__class__
        if kind is Binary:
            if n.op not in _SUMS:
                return True
            stack += (n.b, n.a)
        elif kind is Select or kind is Cast or kind is Call:
            return True
        elif kind is not Var and kind is not Const:
            stack += n.children()
    return False


_SUMS = frozenset({BinaryOp.add, BinaryOp.sub, BinaryOp.mul})

ZERO = Const(0, Var("i").dtype)
