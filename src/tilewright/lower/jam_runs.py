"""jam_runs: rounds of a run that ask for no end, unrolled and computed together.

In: stage "loops". Out: stage "loops". The one idea: a sum of many taps waits for each product, and
the next round's sum does not wait for it. Several sums in registers of their own keep the machine
busy, where a processor sees no further than a round or two. The rounds of a run are many
kinds, of which all but one are at a row's ends: so it is done where a loop is marked JAMMED, once
each kind has code of its own, and for those alone that ask nothing. The order of each sum stays as
it was, so the numbers do.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tilewright.arith.affine import Affine
from tilewright.arith.simplify import Facts, loop_range
from tilewright.ir.expr import Buffer, Expr, Load, Var, as_int, const
from tilewright.ir.stmt import Alloc, For, Func, Let, Stmt, Store, annotated, annotation
from tilewright.ir.walk import names, substitute, visit
from tilewright.lower.jam_panels import jammed_rounds

JAMMED = "jammed"  # how many rounds


def jam_runs(func: Func) -> Func:
    """Compute rounds of loops that are marked together.

    rewrite:
        for r in serial(0, 16, jammed=2):
            t = alloc(f32[1], "local")
            for k in serial(0, 40):
                t[0] = t[0] + A[r + k] * W[k]
    →
        for r in serial(0, 8):
            t = alloc(f32[2, 1], "local")
            for k in serial(0, 40):
                for u in unroll(0, 2):
                    t[u, 0] = t[u, 0] + A[r * 2 + u + k] * W[k]
    """
    known = Facts(dict.fromkeys((p for p in func.params if isinstance(p, Var)), (0, None)))
    body = _go(func.body, known, names(func))
    return func if body is func.body else func.replace(body=body)


def _go(s: Any, known: Facts, taken: set[str]) -> Any:
    if isinstance(s, Store):
        return s
    if isinstance(s, For):
        inside = known.bind(s.var, *loop_range(s))
        if (count := annotation(s, JAMMED)) is not None:
            return _jammed(s, count, inside, taken)
        body = _go(s.body, inside, taken)
        return s if body is s.body else s.replace(body=body)

    def inner(c: Any) -> Any:
        return _go(c, known, taken) if isinstance(c, Stmt) else c

    return s.map_children(inner)


def _jammed(s: For, count: int, inside: Facts, taken: set[str]) -> For:
    """The loop in rounds of `count`, or as it is."""
    plain = s.replace(annotations=annotated(s.annotations, JAMMED, None))
    rounds = as_int(s.extent)
    whole = rounds is not None and as_int(s.start) == 0 and rounds % count == 0
    if rounds is None or not whole or count < 2 or s.kind != "serial":
        return plain
    own = {n.buffer for n in visit(s.body) if isinstance(n, Alloc)}
    if not _is_apart(s, own, inside):
        return plain
    made = jammed_rounds(s.body, s, count, own, inside, taken)
    if made is None:
        return plain
    body = substitute(made, {s.var: s.var * const(count)})
    return plain.replace(stop=const(rounds // count), body=body)


def _is_apart(s: For, own: set[Buffer], known: Facts) -> bool:
    """Does each round store elsewhere, along some axis of what it stores to, and read none of
    it?"""
    inner = set[Var]()
    for n in visit(s.body):
        if isinstance(n, For):
            known, inner = known.bind(n.var, *loop_range(n)), inner | {n.var}
        if isinstance(n, Let):  # what it stands for may differ from round to round
            return False
    stores = [n for n in visit(s.body) if isinstance(n, Store) and n.buffer not in own]
    written = {n.buffer: [m.indices for m in stores if m.buffer == n.buffer] for n in stores}
    if any(isinstance(n, Load) and n.buffer in written for n in visit(s.body)):
        return False
    return all(
        any(_steps_over(axis, s.var, inner, known) for axis in zip(*found, strict=True))
        for found in written.values()
    )


def _steps_over(indices: Iterable[Expr], var: Var, inner: set[Var], known: Facts) -> bool:
    """Is a step of `var` more than what a round walks along an axis, by these indices?"""
    steps, around, walked = set[int](), set[Expr](), list[float]()
    for form in map(known.affine, indices):
        rest = {t: c for t, c in form.terms.items() if t != var}
        if any(var in known.variables(t) for t in rest):
            return False
        inside = {t: c for t, c in rest.items() if not inner.isdisjoint(known.variables(t))}
        outside = {t: c for t, c in rest.items() if t not in inside}
        steps.add(form.terms.get(var, 0))
        around.add(known.expr(Affine(outside, 0)))
        walked += known.bounds(Affine(inside, form.const))
    one = len(steps) == len(around) == 1
    return one and max(walked) - min(walked) < abs(steps.pop())
