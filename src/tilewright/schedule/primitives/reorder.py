"""reorder: put perfectly nested loops in another order."""

from __future__ import annotations

from tilewright.ir.stmt import Func, Stmt
from tilewright.ir.walk import free_vars
from tilewright.schedule.depend import reversed_dependence
from tilewright.schedule.locate import chain, need, primitive, refuse, replace


@primitive("reorder loops {loops}")
def reorder(func: Func, *loops: str) -> Func:
    """Put perfectly nested loops in the given order.

    Loops of the nest that are not named keep their positions.

    rewrite: reorder("j", "i")
        for i in serial(0, 4):
            for j in serial(0, 8):
                with block("B"):
                    vi = spatial(4, i)
                    vj = spatial(8, j)
                    reads(A[vi, vj])
                    writes(B[vi, vj])
                    B[vi, vj] = A[vi, vj]
    →
        for j in serial(0, 8):
            for i in serial(0, 4):
                with block("B"):
                    vi = spatial(4, i)
                    vj = spatial(8, j)
                    reads(A[vi, vj])
                    writes(B[vi, vj])
                    B[vi, vj] = A[vi, vj]
    needs:
        P1  the loops form a chain: each is the only statement of the one outside it
        P2  no bound of a loop reads a variable of a loop that would come to stand inside it
        P3  the loops are serial or unrolled
        P4  the body carries no dependence that the new order reverses, other than through a
            reduction
    """
    need("P1", loops, func, None, "no loop is named", "name the loops in their new order")
    path, nest = chain(func, loops)
    named = iter(loops)
    by_name = {f.name: f for f in nest}
    order = [by_name[next(named)] if f.name in loops else f for f in nest]
    outside = {v for f in nest for v in (f.var,)}
    for f in order:
        hang = (free_vars(f.start) | free_vars(f.stop)) & outside
        why = f"the bounds of '{f.name}' read {', '.join(repr(v.name) for v in hang)}"
        need("P2", not hang, func, f, why, f"keep '{f.name}' inside the loops that its bounds read")
        outside.discard(f.var)
        why = f"'{f.name}' is a '{f.kind}' loop"
        remedy = "mark loops once they are in order"
        need("P3", f.kind in ("serial", "unroll"), func, f, why, remedy)
    obstacle = reversed_dependence(func, path, nest, [f.name for f in order])
    if obstacle is not None:
        remedy = (
            "keep the order of those loops, or take the blocks apart first (decompose_reduction)"
        )
        raise refuse("P4", func, obstacle[0], obstacle[1], remedy)
    body: Stmt = nest[-1].body
    for f in reversed(order):
        body = f if f.body is body else f.replace(body=body)
    return replace(func, path, body)
