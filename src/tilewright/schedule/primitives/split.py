"""split: make one loop several, nested."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from tilewright.arith.prove import prove_equal, prove_less_equal
from tilewright.ir.expr import Expr, Var, as_int, ceildiv, const
from tilewright.ir.stmt import For, Func, Stmt
from tilewright.ir.text import print_expr
from tilewright.ir.walk import fresh
from tilewright.schedule.domain import ZERO, ranges_at, rebind
from tilewright.schedule.locate import loop_path, need, primitive, replace, the_loop, variable_names


@primitive("split loop '{loop}' by {factors}")
def split(
    func: Func, loop: str, factors: int | Sequence[int | None]
) -> tuple[Func, tuple[str, ...]]:
    """Make one loop several, nested; gives their names, outermost first.

    `factors` are their extents. One may be None: as many as are needed. A number alone is the
    inner extent. Where they do not divide evenly, the iterations that are too many are guarded.

    rewrite: split("i", 32)
        for i in serial(0, 60):
            with block("B"):
                vi = spatial(60, i)
                reads(A[vi])
                writes(B[vi])
                B[vi] = A[vi] * 2.0
    →
        for i_o in serial(0, 2):
            for i_i in serial(0, 32):
                with block("B", where=i_o * 32 + i_i < 60):
                    vi = spatial(60, i_o * 32 + i_i)
                    reads(A[vi])
                    writes(B[vi])
                    B[vi] = A[vi] * 2.0
    needs:
        P1  the loop is serial
        P2  there are two or more factors, at most one of them None, the others at least 1
        P3  without None, the product of the factors reaches the loop's extent
    """
    path = loop_path(func, loop)
    old = the_loop(path)
    sizes = (None, factors) if isinstance(factors, int) else tuple(factors)
    why = f"it is a '{old.kind}' loop"
    need("P1", old.kind == "serial", func, old, why, "split it first, mark the parts then")
    given = [f for f in sizes if f is not None]
    formed = len(sizes) >= 2 and len(given) >= len(sizes) - 1 and all(f >= 1 for f in given)
    why = "it takes two or more factors of at least 1, one of which may be None"
    need("P2", formed, func, old, why, f"for example s.split('{loop}', (None, 8))")
    total = prod(given)
    extents = [ceildiv(old.extent, total) if f is None else const(int(f)) for f in sizes]
    ranges = ranges_at(func, path)
    if len(given) == len(sizes):
        why = f"the factors make {total} iterations, the loop has {print_expr(old.extent)}"
        enough = prove_less_equal(old.extent, total, ranges)
        need("P3", enough, func, old, why, "leave one factor open with None, it takes the rest")
    names = _names(func, loop, len(sizes))
    loops = [
        For(Var(n, old.var.dtype), ZERO, e, "serial", old.body)
        for n, e in zip(names, extents, strict=True)
    ]
    value: Expr = ZERO
    made: Expr = const(1)
    for part in loops:
        value, made = value * part.stop + part.var, made * part.stop
    value = old.start + value
    condition = None if _same(made, old.extent, ranges) else value < old.stop
    body = rebind(func, [*path[:-1], *loops], old.body, {old.var: value}, condition)
    return replace(func, path, _nest(loops, body, old)), names


def _same(a: Expr, b: Expr, ranges: dict[Var, tuple[int | Expr | None, int | Expr | None]]) -> bool:
    number = as_int(a)
    return number == as_int(b) if number is not None else prove_equal(a, b, ranges)


def _names(func: Func, loop: str, count: int) -> tuple[str, ...]:
    taken = variable_names(func)
    suffixes = ("o", "i") if count == 2 else tuple(str(n) for n in range(count))
    return tuple(fresh(f"{loop}_{s}", taken) for s in suffixes)


def _nest(loops: Sequence[For], body: Stmt, old: For) -> Stmt:
    """The loops around `body`; the outermost keeps the old loop's annotations."""
    for n, part in reversed(list(enumerate(loops))):
        body = part.replace(body=body, annotations=old.annotations if n == 0 else ())
    return body
