"""software_pipeline: overlap the iterations of a loop, statement by statement."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from tilewright.arith.affine import Forms
from tilewright.ir.stmt import Alloc, Func, Seq, Stmt, annotated
from tilewright.schedule.depend import apart, below, private_to
from tilewright.schedule.domain import ranges_at
from tilewright.schedule.locate import Path, loop_path, need, primitive, replace, the_loop
from tilewright.schedule.marking import sink_alloc


@primitive("pipeline loop '{loop}' in stages {stages}, order {order}")
def software_pipeline(
    func: Func, loop: str, stages: Sequence[int], order: Sequence[int] | None = None
) -> Func:
    """Overlap the iterations of a loop: a statement in stage n runs n iterations later.

    In step t each statement works on iteration t minus its stage; `order` says in which order
    the statements run within a step (default: as they stand). Buffers that live inside the loop
    get as many copies as the stages need. No kind of machine has code for that yet: compiling
    refuses it (`Backend.lowered`), the interpreter runs the iterations one by one.

    rewrite: software_pipeline("i", [0, 1])
        for i in serial(0, 8):
            T = alloc(f32[16], "local")
            for j in serial(0, 16):
                with block("T"):
                    vi = spatial(8, i)
                    vj = spatial(16, j)
                    reads(A[vi, vj])
                    writes(T[vj])
                    T[vj] = A[vi, vj]
            for k in serial(0, 16):
                with block("B"):
                    ui = spatial(8, i)
                    uk = spatial(16, k)
                    reads(T[uk])
                    writes(B[ui, uk])
                    B[ui, uk] = T[uk] * 2.0
    →
        for i in pipeline(0, 8, order="0,1", stages="0,1"):
            T = alloc(f32[16], "local")
            for j in serial(0, 16):
                with block("T"):
                    vi = spatial(8, i)
                    vj = spatial(16, j)
                    reads(A[vi, vj])
                    writes(T[vj])
                    T[vj] = A[vi, vj]
            for k in serial(0, 16):
                with block("B"):
                    ui = spatial(8, i)
                    uk = spatial(16, k)
                    reads(T[uk])
                    writes(B[ui, uk])
                    B[ui, uk] = T[uk] * 2.0
    needs:
        P1  the loop is serial
        P2  its body is a sequence of two or more statements (allocations may stand around it)
        P3  there is a stage from 0 up for each statement, and `order` counts the statements
        P4  a statement that needs another one's result runs after it
        P5  what a statement leaves to a later iteration is there in time, and nothing is
            overwritten that a later stage still needs
    """
    path = loop_path(func, loop)
    old = the_loop(path)
    why = f"it is a '{old.kind}' loop"
    need("P1", old.kind == "serial", func, old, why, "pipeline a serial loop")
    private = private_to(func, path)
    body, own = old.body, set(private)
    while isinstance(body, Alloc):
        own.add(body.buffer.name)
        body = body.body
    stmts = body.stmts if isinstance(body, Seq) else (body,)
    why = "its body is a single statement"
    need("P2", len(stmts) >= 2, func, old, why, "move a producer inside first: compute_at")
    order = tuple(range(len(stmts))) if order is None else tuple(order)
    counted = len(stages) == len(stmts) and sorted(order) == list(range(len(stmts)))
    why = f"its body has {len(stmts)} statements"
    formed = counted and all(s >= 0 for s in stages)
    need("P3", formed, func, old, why, "give a stage and a position in the order for each")
    _check(func, path, stmts, list(zip(stages, order, strict=True)), own)
    notes = annotated(old.annotations, "stages", ",".join(map(str, stages)))
    notes = annotated(notes, "order", ",".join(map(str, order)))
    made = replace(func, path, old.replace(kind="pipeline", annotations=notes))
    for buffer in sorted(private):
        made = sink_alloc(made, buffer, loop)
    return made


def _check(
    func: Func,
    path: Path,
    stmts: Sequence[Stmt],
    times: Sequence[tuple[int, int]],
    own: set[str],
) -> None:
    """P4 and P5, for each pair of statements that touch one buffer, one of them writing."""
    loop = the_loop(path)
    bodies = [below(s) for s in stmts]
    loops = [f for b in bodies for f in b.loops]
    inside = {loop.var, *(f.var for f in loops)}
    forms = Forms(ranges_at(func, (*path, *loops)))
    for n, m in product(range(len(stmts)), repeat=2):
        (stage, position), (other_stage, other_position) = times[n], times[m]
        for x, y in product(bodies[n].accesses, bodies[m].accesses):
            name = x.buffer
            if name != y.buffer or not (x.writes or y.writes):
                continue
            if n < m:
                why = f"it uses '{name}' before statement {n} is done with it"
                remedy = f"give it a later stage or order than statement {n}"
                need("P4", times[n] < times[m], func, stmts[m], why, remedy)
            if name in own or apart(x.region, y.region, loop.var, inside, forms):
                continue
            in_time = n == m or (stage, position) < (other_stage + 1, other_position)
            why = f"a later iteration uses '{name}' before this one is done with it"
            remedy = f"let '{name}' live inside the loop, or bring the stages together"
            need("P5", in_time, func, stmts[n], why, remedy)
