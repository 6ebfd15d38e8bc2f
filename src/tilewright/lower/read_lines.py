"""read_lines: lanes that take turns at a few lines of memory read each line by itself.

In: stage "flat". Out: stage "flat". Pixels of the phases of a transposed convolution lie phase by
phase, far apart, and are stored beside each other: a vector of them has lanes on two lines or
three, and was gathered one by one. The one idea: which line a lane is on follows from a remainder
that is known for each lane; so the read is a choice among reads of one line each, of neighbouring
elements, which the code generator reads as vectors and puts in order.
"""

from __future__ import annotations

from typing import Any

from tilewright.arith.simplify import simplify
from tilewright.ir.expr import Binary, BinaryOp, Const, Expr, Load, Select, Var, as_int, const, eq
from tilewright.ir.stmt import For, Func, If, Stmt
from tilewright.ir.walk import contains, free_vars, operators, rewrite

MOST_LINES = 4
NEAR = 4  # vectors that are read to choose elements from
_REMAINDERS = frozenset({BinaryOp.floormod})


def read_lines(func: Func) -> Func:
    """Read the lines of a vector's lanes one by one.

    rewrite:
        for i in vectorize(0, 16):
            B[i] = A[i % 2 * n + i // 2]
    →
        for i in vectorize(0, 16):
            B[i] = select(i % 2 == 0, A[i // 2], A[n + i // 2])
    """
    body = _in_loops(func.body, frozenset())
    return func if body is func.body else func.replace(body=body)


def _in_loops(s: Any, known: frozenset[Var]) -> Any:
    """The statement where the variables of unrolled loops around it are `known`."""
    if isinstance(s, For) and s.kind == "vectorize":
        lanes = as_int(s.extent) or 0
        if lanes < 2 or contains(s.body, If):
            return s
        var, turns = s.var, known | {s.var}
        body = rewrite(s.body, (Load,), lambda n: _lines(n, var, turns, lanes))
        return s if body is s.body else s.replace(body=body)
    if isinstance(s, For) and s.kind == "unroll":
        known |= {s.var}

    def go(c: Any) -> Any:
        return _in_loops(c, known) if isinstance(c, Stmt) else c

    return s.map_children(go)


def _lines(load: Load, lane: Var, known: frozenset[Var], lanes: int) -> Expr:
    """A read as a choice among lines, if its lanes are on a few that lie far apart."""
    (index,) = load.indices
    found = {n for n in operators(index, _REMAINDERS) if _tells_line(n, lane, known)}
    if len(found) != 1:
        return load
    (line,) = found
    assert isinstance(line, Binary)
    count = as_int(line.b) or 0
    each = [_at(index, line, k) for k in range(count)]
    apart = as_int(simplify(each[1] - each[0]))
    if apart is not None and abs(apart) < NEAR * lanes:
        return load
    made: Expr = load.replace(indices=(each[-1],))
    for k in reversed(range(count - 1)):
        made = Select(eq(line, const(k)), load.replace(indices=(each[k],)), made)
    return made


def _at(index: Expr, line: Expr, k: int) -> Expr:
    """The index on one line."""
    return simplify(rewrite(index, (Binary,), lambda n: const(k) if n == line else n))


def _tells_line(n: Binary, lane: Var, known: frozenset[Var]) -> bool:
    """Is a remainder that of the lane's number, by which it is on one of few lines?"""
    return (
        isinstance(n.b, Const)
        and 2 <= n.b.value <= MOST_LINES
        and lane in (used := free_vars(n.a))
        and used <= known
    )
