"""What lanes of a vectorised loop may do to one element: combine into it."""

from __future__ import annotations

from tilewright.ir.expr import Binary, BinaryOp, Expr, Load
from tilewright.ir.stmt import Store
from tilewright.ir.walk import visit

# of a vectorised loop: its first lane satisfies all conditions
FIRST_LANE_RUNS = "first_lane_runs"

ASSOCIATIVE = frozenset(
    {
        BinaryOp.add,
        BinaryOp.mul,
        BinaryOp.min,
        BinaryOp.max,
        BinaryOp.bit_and,
        BinaryOp.bit_or,
        BinaryOp.bit_xor,
        BinaryOp.logical_and,
        BinaryOp.logical_or,
    }
)


def lane_reduction(store: Store) -> tuple[BinaryOp, Expr] | None:
    """`C[i] = C[i] op value`: the operator and the value; None for any other store."""
    value = store.value
    if not isinstance(value, Binary) or value.op not in ASSOCIATIVE:
        return None
    old = Load(store.buffer, store.indices)
    for mine, rest in ((value.a, value.b), (value.b, value.a)):
        if mine == old and not any(
            isinstance(n, Load) and n.buffer == store.buffer for n in visit(rest)
        ):
            return value.op, rest
    return None


def is_lane_reduction(store: Store) -> bool:
    return lane_reduction(store) is not None
