"""fuse: make nested loops one."""

from __future__ import annotations

from tilewright.ir.expr import Expr, Var, as_int
from tilewright.ir.stmt import For, Func
from tilewright.ir.walk import free_vars, fresh
from tilewright.schedule.domain import ZERO, rebind
from tilewright.schedule.locate import chain, need, primitive, replace, variable_names


@primitive("fuse loops {loops}")
def fuse(func: Func, *loops: str) -> tuple[Func, str]:
    """Make nested loops one that runs over all their iterations in the same order; gives its name.

    rewrite: fuse("i", "j")
        for i in serial(0, 4):
            for j in serial(0, 8):
                with block("B"):
                    vi = spatial(4, i)
                    vj = spatial(8, j)
                    reads(A[vi, vj])
                    writes(B[vi, vj])
                    B[vi, vj] = A[vi, vj]
    →
        for i_j_f in serial(0, 32):
            with block("B"):
                vi = spatial(4, i_j_f // 8)
                vj = spatial(8, i_j_f % 8)
                reads(A[vi, vj])
                writes(B[vi, vj])
                B[vi, vj] = A[vi, vj]
    needs:
        P1  there are two or more loops, each the only statement of the one before it
        P2  no bound of an inner loop reads an outer loop's variable
        P3  the loops are serial
    """
    need(
        "P1",
        len(loops) >= 2,
        func,
        loops[0] if loops else None,
        "fewer than two loops are named",
        "name two",
    )
    path, nest = chain(func, loops)
    order = tuple(f.name for f in nest)
    why = f"the nest from '{order[0]}' to '{order[-1]}' is {', '.join(order)}"
    remedy = f"name the loops from outside in, leaving none out: s.fuse{order}"
    need("P1", order == loops, func, nest[0], why, remedy)
    outer: set[Var] = set()
    for f in nest:
        hang = (free_vars(f.start) | free_vars(f.stop)) & outer
        why = f"the bounds of '{f.name}' read {', '.join(repr(v.name) for v in hang)}"
        need(
            "P2", not hang, func, f, why, "fuse only loops whose bounds do not depend on each other"
        )
        why = f"'{f.name}' is a '{f.kind}' loop"
        need("P3", f.kind == "serial", func, f, why, "fuse serial loops, mark the result then")
        outer.add(f.var)
    name = fresh("_".join(order) + "_f", variable_names(func))
    var = Var(name, nest[0].var.dtype)
    values: dict[Var, Expr] = {}
    size: Expr = ZERO + 1
    rest: Expr = var  # which iteration of the loops that are left, as if they were one
    outermost = next((f for f in nest if as_int(f.extent) != 1), nest[0])
    for f in reversed(nest):
        values[f.var] = f.start + (rest if f is outermost else rest % f.extent)
        rest, size = rest // f.extent, f.extent * size
    fused = For(var, ZERO, size, "serial", nest[-1].body, "", nest[0].annotations)
    body = rebind(func, [*path[:-1], fused], nest[-1].body, values)
    return replace(func, path, fused.replace(body=body)), name
