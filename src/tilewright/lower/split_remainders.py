"""split_remainders: windows that begin where the remainder of an open size says have code for each.

In: stage "loops". Out: stage "loops". What SAME padding puts before an image follows from the
remainder of its width by the stride. As a number of the run it is in the index of every element:
nothing says which lanes of which vector lie in the image, so that all are asked. The one idea: the
remainder is one of two or three, asked once for the whole kernel; in the code for each of them
quotients and remainders of the size are that one's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.arith.coverage import is_quotient
from tilewright.arith.simplify import Facts
from tilewright.ir.dtype import i64
from tilewright.ir.expr import Binary, BinaryOp, Expr, Select, Var, as_int, const
from tilewright.ir.stmt import Alloc, For, Func, If, Stmt
from tilewright.ir.walk import distinct, free_vars, reads, rewrite, statements, visit
from tilewright.lower.copies import accumulates, own_memory, stores_of
from tilewright.lower.lower_blocks import parts_of
from tilewright.lower.stage_rows import stages

MOST_REMAINDERS = 3  # of which each has code of its own
MOST_STORES = 96  # unrolled, of all of them together


def split_remainders(func: Func, *, staged: bool = False) -> Func:
    """Give windows code for each remainder of an open size that tells where they begin. Where rows
    are `staged` (stage_rows), no tap asks for it.

    rewrite:
        …: max(…, select(v * 2 + r - ((n + 1) // 2 + (1 - n) // 2) >= 0, …
    →
        if n % 2 >= 1:
            …: max(…, select(v * 2 + r - (n // 2 + 1 - n // 2) >= 0, …
        else:
            …: max(…, select(v * 2 + r - (n // 2 - n // 2) >= 0, …
    """
    symbols = [p for p in func.params if isinstance(p, Var)]
    if not symbols:
        return func
    own = {n.buffer for n in statements(func.body) if isinstance(n, Alloc)}
    if not accumulates(func.body, own):
        return func
    known = Facts(dict.fromkeys(symbols, (0, None)))
    if staged and stages(func.body, known):
        return func
    asked = [a for size in symbols if (a := asked_of(func.body, size, known)) is not None]
    if len(asked) != 1 or stores_of(func.body) * asked[0][1] > MOST_STORES:
        return func
    ((size, by),) = asked
    body = _split(func.body, size, by, known)
    return func.replace(body=own_memory(body, {b.name for b in func.buffers}))


def asked_of(body: Stmt, size: Var, known: Facts) -> tuple[Var, int] | None:
    """The size and the divisor, if what vectors read is told by quotients of the size by it."""
    lanes = {n.var for n in statements(body) if isinstance(n, For) and n.kind == "vectorize"}
    found: set[int] = set()
    for n in distinct([body]):
        for part in parts_of(n.cond) if isinstance(n, Select) else ():
            if reads(part):  # it asks for what is read, not where
                continue
            if free_vars(part) & lanes and size in free_vars(part):
                found |= {by for e in visit(part) if (by := _divisor(e, size, known))}
    if len(found) != 1 or max(found) > MOST_REMAINDERS:
        return None
    return size, found.pop()


def _divisor(e: Any, size: Var, known: Facts) -> int | None:
    """The constant by which the size, or its negative, and a constant are divided."""
    if not isinstance(e, Binary) or not is_quotient(e) or e.dtype is not i64:
        return None
    by = as_int(e.b)
    if by is None or by < 2:
        return None
    form = known.affine(e.a)
    return by if form.terms in ({size: 1}, {size: -1}) else None


def _split(s: Stmt, size: Var, by: int, known: Facts) -> Stmt:
    """A branch for each remainder, inside of the loops that threads share."""
    if isinstance(s, For) and s.kind == "parallel":
        return s.replace(body=_split(s.body, size, by, known))
    return _cases(s, size, by, range(by - 1, -1, -1), known)


def _cases(s: Stmt, size: Var, by: int, values: Sequence[int], known: Facts) -> Stmt:
    value, *others = values
    here = _where(s, size, by, value, known)
    if not others:
        return here
    return If(size % const(by) >= const(value), here, _cases(s, size, by, others, known))


def _where(s: Stmt, size: Var, by: int, value: int, known: Facts) -> Stmt:
    """The statement where the size leaves `value`: size = size // by * by + value."""

    def change(e: Binary) -> Expr:
        if _divisor(e, size, known) != by:
            return e
        form = known.affine(e.a)
        sign = form.terms[size]
        whole, left = divmod(sign * value + form.const, by)
        if e.op is BinaryOp.floormod:
            return const(left)
        return size // const(by) * sign + whole

    return rewrite(s, (Binary,), change)
