"""Reductions as they stand in a block: what is combined, with what, and the neutral values.

In: a block. Out: its `Reduction`, or None where it has another shape. The one idea: a reduction
over one operation is a store of `old op value`; any other names its accumulators and its values by
lets, and so shows what may be replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilewright.ir.dtype import DType
from tilewright.ir.expr import Binary, BinaryOp, Buffer, Const, Expr, Load, Var, const
from tilewright.ir.stmt import Block, Let, Seq, Stmt, Store, seq
from tilewright.ir.walk import free_vars, loads, refold, stores
from tilewright.support.record import record

NEUTRAL: Mapping[BinaryOp, Callable[[DType], Const]] = {
    BinaryOp.add: lambda t: const(0, t),
    BinaryOp.mul: lambda t: const(1, t),
    BinaryOp.min: lambda t: const(t.highest, t),
    BinaryOp.max: lambda t: const(t.lowest, t),
    BinaryOp.logical_and: lambda t: const(True, t),
    BinaryOp.logical_or: lambda t: const(False, t),
    BinaryOp.bit_and: lambda t: const(-1, t),
    BinaryOp.bit_or: lambda t: const(0, t),
    BinaryOp.bit_xor: lambda t: const(0, t),
}


@record
class Reduction:
    """A commutative update of one or several accumulators.

    body: the update; targets: the accumulators' buffers; indices: theirs in common; values: what
    is combined into each; neutral: the values that change nothing.
    """

    body: Stmt
    targets: tuple[Buffer, ...]
    indices: tuple[Expr, ...]
    values: tuple[Expr, ...]
    neutral: tuple[Expr, ...]

    def updated(
        self, values: Sequence[Expr], targets: Mapping[Buffer, Buffer], indices: tuple[Expr, ...]
    ) -> Stmt:
        """The update with other values, into other accumulators at other indices."""

        def go(n: Any) -> Any:
            m = refold(n, n.map_children(go))
            if isinstance(m, Load | Store) and m.buffer in targets:
                return m.replace(buffer=targets[m.buffer], indices=indices)
            return m

        return go(self._with(self.body, 0, values))

    def _with(self, body: Stmt, at: int, values: Sequence[Expr]) -> Stmt:
        """`body`, which has `at` lets around it, with other values."""
        if isinstance(body, Let):
            n = at - len(self.targets)
            inner = self._with(body.body, at + 1, values)
            return Let(body.var, body.value if n < 0 else values[n], inner)
        if at > 0:
            return body
        made: list[Stmt] = []
        for update, old, new in zip(_stores(body), self.values, values, strict=True):
            operation = update.value
            assert isinstance(operation, Binary)
            given = {"a": new} if operation.a == old else {"b": new}
            made.append(update.replace(value=operation.replace(**given)))
        return seq(*made)

    def started(self, targets: Mapping[Buffer, Buffer], indices: tuple[Expr, ...]) -> Stmt:
        """Stores of the neutral values."""
        made = [
            Store(targets[b], indices, v) for b, v in zip(self.targets, self.neutral, strict=True)
        ]
        return made[0] if len(made) == 1 else Seq(tuple(made))


def reduction_of(block: Block) -> Reduction | None:
    """What a block with an init combines; None if that is not known."""
    inner = block.body
    lets: list[tuple[Var, Expr]] = []
    while isinstance(inner, Let):
        lets.append((inner.var, inner.value))
        inner = inner.body
    updates = _stores(inner)
    if block.init is None or not updates:
        return None
    targets, indices = tuple(u.buffer for u in updates), updates[0].indices
    if len(set(targets)) < len(targets) or any(u.indices != indices for u in updates):
        return None
    if lets:
        return _by_lets(block, lets, updates, targets, indices)
    return _by_operation(block, updates, targets, indices)


def _stores(body: Stmt) -> list[Store]:
    """The stores that a statement consists of; none if it consists of others too."""
    parts = body.stmts if isinstance(body, Seq) else (body,)
    found = [p for p in parts if isinstance(p, Store)]
    return found if len(found) == len(parts) else []


def _by_operation(
    block: Block, updates: Sequence[Store], targets: tuple[Buffer, ...], indices: tuple[Expr, ...]
) -> Reduction | None:
    """C[i] = C[i] op value, for each accumulator"""
    values: list[Expr] = []
    neutral: list[Expr] = []
    for update in updates:
        operation, old = update.value, Load(update.buffer, indices)
        if not isinstance(operation, Binary) or operation.op not in NEUTRAL:
            return None
        given = operation.b if operation.a == old else operation.a
        if {operation.a, operation.b} != {old, given}:
            return None
        if any(n.buffer in targets for n in loads(given)):
            return None
        values.append(given)
        neutral.append(NEUTRAL[operation.op](old.dtype))
    return Reduction(block.body, targets, indices, tuple(values), tuple(neutral))


def _by_lets(
    block: Block,
    lets: Sequence[tuple[Var, Expr]],
    updates: Sequence[Store],
    targets: tuple[Buffer, ...],
    indices: tuple[Expr, ...],
) -> Reduction | None:
    """old: f32 = C[i]; new: f32 = value; C[i] = combination of old and new"""
    old = [Load(b, indices) for b in targets]
    values = [value for _, value in lets if value not in old]
    ordered = [value for _, value in lets] == [*old, *values]
    bound = {v for v, _ in lets}
    plain = not any(n.buffer in targets for value in values for n in loads(value)) and not any(
        free_vars(value) & bound for value in values
    )
    closed = all(free_vars(u.value) <= bound and not loads(u.value) for u in updates)
    starts = {s.buffer: s.value for s in stores(block.init)} if block.init is not None else {}
    neutral = [starts.get(b) for b in targets]
    known = [v for v in neutral if v is not None and not loads(v) and not free_vars(v)]
    if not (ordered and plain and closed) or len(values) != len(old) or len(known) != len(old):
        return None
    return Reduction(block.body, targets, indices, tuple(values), tuple(known))
