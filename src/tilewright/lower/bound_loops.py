"""bound_loops: a loop whose body asks in each round whether to run has those rounds only.

In: stage "loops". Out: stage "loops". The one idea: near the ends of the loops around it such a
loop is shorter, and one body serves them all; cutting the loops around it, as `partition_loops`
does, would make a copy of everything in them for each end. A round that adds nothing to a result
(0 to a sum, -inf to a maximum: a window beyond the image's end) asks so, too, and one of which
every store asks the same. It is done where a loop is marked BOUNDED, for its extent is no constant
then.
"""

from __future__ import annotations

from math import inf
from typing import Any

from tilewright.arith.affine import Affine
from tilewright.arith.simplify import Facts, loop_range
from tilewright.ir.dtype import i64
from tilewright.ir.expr import (
    Binary,
    BinaryOp,
    Const,
    Expr,
    Load,
    Select,
    Var,
    const,
    maximum,
    minimum,
)
from tilewright.ir.stmt import Alloc, For, Func, If, Seq, Stmt, Store, annotated, annotation
from tilewright.ir.walk import free_vars, reads
from tilewright.lower.comparisons import BOUNDS, decided
from tilewright.lower.lower_blocks import all_of, parts_of

BOUNDED = "bounded"
_NEUTRAL = {BinaryOp.add: (0,), BinaryOp.max: (-inf,), BinaryOp.min: (inf,)}


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
    branch = body if isinstance(body, If) and body.other is None else None
    asked = parts_of(branch.cond) if branch else _asked(body, s.var)
    bounds = {part: bound for part in asked if (bound := _bound(part, s.var, inside))}
    if not bounds or (branch and len(bounds) < len(asked)):
        return plain
    for slope, rest in bounds.values():
        if slope > 0:  # v >= -rest / slope, rounded up
            start = maximum(start, -(rest // const(slope)))
        else:
            stop = minimum(stop, rest // const(-slope) + 1)
    body = decided(branch.then if branch else body, inside.under(all_of([*bounds])))
    return plain.replace(start=known.simplify(start), stop=known.simplify(stop), body=body)


def _asked(body: Stmt, var: Var) -> list[Expr]:
    """The conditions on `var`, and on nothing that the body binds, without which no store of it
    changes anything."""
    inner, asked = set[Var](), list[list[Expr]]()
    if not _collect(body, [], inner, asked):
        return []
    common = [p for p in asked[0] if all(p in other for other in asked)] if asked else []
    return [p for p in common if var in (used := free_vars(p)) and not used & inner]


def _collect(s: Stmt, under: list[Expr], inner: set[Var], asked: list[list[Expr]]) -> bool:
    """The conditions of each store, `under` those around, and the variables of loops inside;
    whether there is nothing else."""
    if isinstance(s, Store):
        asked.append([*under, *_needed(s)])
        return True
    if isinstance(s, If):
        other = s.other is None or _collect(s.other, under, inner, asked)
        return other and _collect(s.then, [*under, *parts_of(s.cond)], inner, asked)
    if isinstance(s, For):
        inner.add(s.var)
    elif not isinstance(s, Seq | Alloc):
        return False
    return all(_collect(c, under, inner, asked) for c in s.children() if isinstance(c, Stmt))


def _needed(store: Store) -> list[Expr]:
    """The conditions of what is added to an element, if nothing is added elsewhere (a factor is 0,
    and the others finite)."""
    total = store.value
    if not isinstance(total, Binary) or total.a != Load(store.buffer, store.indices):
        return []
    term, neutral = total.b, _NEUTRAL.get(total.op, ())
    factors = [term]
    if total.op is BinaryOp.add and isinstance(term, Binary) and term.op is BinaryOp.mul:
        factors = [term.a, term.b]
    for e in factors:
        if isinstance(e, Select) and isinstance(e.other, Const) and e.other.value in neutral:
            return parts_of(e.cond)
    return []


def _bound(part: Expr, var: Var, known: Facts) -> tuple[int, Expr] | None:
    """(slope, rest) of a condition `slope * var + rest >= 0`; None if it is none."""
    if not isinstance(part, Binary) or part.op not in BOUNDS or part.a.dtype is not i64:
        return None
    sign, more = BOUNDS[part.op]
    form = known.sum(known.affine(part.b), known.affine(part.a), -1) * sign + more
    rest = Affine({t: c for t, c in form.terms.items() if t != var}, form.const)
    slope = form.terms.get(var, 0)
    plain = not reads(part)
    if not slope or not plain or any(var in known.variables(t) for t in rest.terms):
        return None
    return slope, known.expr(rest)
