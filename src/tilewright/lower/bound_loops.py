"""bound_loops: a loop whose body asks in each round whether to run has those rounds only.

In: stage "loops". Out: stage "loops". The one idea: near the ends of the loops around it such a
loop is shorter, and one body serves them all; cutting the loops around it, as `partition_loops`
does, would make a copy of everything in them for each end. It is done where a loop is marked
BOUNDED, for its extent is no constant then.
"""

from __future__ import annotations

from typing import Any

from tilewright.arith.affine import Affine
from tilewright.arith.simplify import Facts, loop_range
from tilewright.ir.dtype import i64
from tilewright.ir.expr import Binary, Expr, Load, Var, const, maximum, minimum
from tilewright.ir.stmt import For, Func, If, Stmt, Store, annotated, annotation
from tilewright.ir.walk import visit
from tilewright.lower.lower_blocks import parts_of
from tilewright.lower.partition_loops import BOUNDS, decided

BOUNDED = "bounded"


def bound_loops(func: Func) -> Func:
    """Give loops that are marked the bounds that their bodies ask for.

    rewrite:
        for y in serial(0, 8):
            for r in serial(0, 3, bounded=True):
                if y + r >= 1 and y + r < 9:
                    B[y] = B[y] + A[y + r - 1]
    →
        for y in serial(0, 8):
            for r in serial(max(0, 1 - y), min(3, 9 - y)):
                B[y] = B[y] + A[y + r - 1]
    """
    known = Facts(dict.fromkeys((p for p in func.params if isinstance(p, Var)), (0, None)))
    body = _go(func.body, known)
    return func if body is func.body else func.replace(body=body)


def _go(s: Any, known: Facts) -> Any:
    if isinstance(s, Store):
        return s
    if isinstance(s, For):
        inside = known.bind(s.var, *loop_range(s))
        if annotation(s, BOUNDED):
            s = _bounded(s, known, inside)
        body = _go(s.body, inside)
        return s if body is s.body else s.replace(body=body)

    def inner(c: Any) -> Any:
        return _go(c, known) if isinstance(c, Stmt) else c

    return s.map_children(inner)


def _bounded(s: For, known: Facts, inside: Facts) -> For:
    """The loop with the bounds that its body asks for, or as it is if they are not all bounds."""
    plain = s.replace(annotations=annotated(s.annotations, BOUNDED, None))
    body, start, stop = s.body, s.start, s.stop
    if not isinstance(body, If) or body.other is not None:
        return plain
    for part in parts_of(body.cond):
        bound = _bound(part, s.var, inside)
        if bound is None:
            return plain
        slope, rest = bound
        if slope > 0:  # v >= -rest / slope, rounded up
            start = maximum(start, -(rest // const(slope)))
        else:
            stop = minimum(stop, rest // const(-slope) + 1)
    then = decided(body.then, inside.under(body.cond))
    return plain.replace(start=known.simplify(start), stop=known.simplify(stop), body=then)


def _bound(part: Expr, var: Var, known: Facts) -> tuple[int, Expr] | None:
    """(slope, rest) of a condition `slope * var + rest >= 0`; None if it is none."""
    if not isinstance(part, Binary) or part.op not in BOUNDS or part.a.dtype is not i64:
        return None
    sign, more = BOUNDS[part.op]
    form = known.sum(known.affine(part.b), known.affine(part.a), -1) * sign + more
    rest = Affine({t: c for t, c in form.terms.items() if t != var}, form.const)
    slope = form.terms.get(var, 0)
    plain = not any(isinstance(n, Load) for n in visit(part))
    if not slope or not plain or any(var in known.variables(t) for t in rest.terms):
        return None
    return slope, known.expr(rest)
