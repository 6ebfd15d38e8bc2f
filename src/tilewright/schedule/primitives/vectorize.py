"""vectorize: run a loop's iterations as lanes of vector instructions."""

from __future__ import annotations

from tilewright.ir.stmt import For, Func
from tilewright.ir.walk import statements
from tilewright.schedule.locate import all_loops_above, loop_path, need, primitive, the_loop
from tilewright.schedule.marking import mark_independent, need_constant


@primitive("vectorize loop '{loop}'")
def vectorize(func: Func, loop: str) -> Func:
    """Run a loop's iterations as lanes of vector instructions.

    A reduction is vectorised by giving each lane a part of it: `rfactor` the loop first.

    rewrite: vectorize("i")
        for i in serial(0, 16):
            with block("B"):
                vi = spatial(16, i)
                reads(A[vi])
                writes(B[vi])
                B[vi] = A[vi] * 2.0
    →
        for i in vectorize(0, 16):
            with block("B"):
                vi = spatial(16, i)
                reads(A[vi])
                writes(B[vi])
                B[vi] = A[vi] * 2.0
    needs:
        P1  the loop is serial
        P2  its extent is a constant
        P3  its iterations are independent: each writes elements of its own, and none reads what
            another writes
        P4  no loop around it or inside it is vectorised, none inside runs on threads
    """
    need_constant(func, loop, "P2")
    path = loop_path(func, loop)
    for other in all_loops_above(path):
        why = f"loop '{other.name}' around it is vectorised already"
        need("P4", other.kind != "vectorize", func, other, why, "fuse the two loops first")
    for stmt in statements(the_loop(path).body):
        if isinstance(stmt, For):
            why = f"it holds the '{stmt.kind}' loop '{stmt.name}'"
            inside = stmt.kind in ("serial", "unroll")
            need("P4", inside, func, stmt, why, "vectorise an inner loop, or reorder first")
    return mark_independent(func, [loop], "vectorize", "P1", "P3")
