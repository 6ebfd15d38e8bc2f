"""parallel: run a loop's iterations on several threads."""

from __future__ import annotations

from tilewright.ir.stmt import Func
from tilewright.schedule.locate import primitive
from tilewright.schedule.marking import mark_independent


@primitive("run loop '{loop}' in parallel")
def parallel(func: Func, loop: str) -> Func:
    """Run a loop's iterations on several threads.

    rewrite: parallel("i")
        for i in serial(0, 64):
            with block("B"):
                vi = spatial(64, i)
                reads(A[vi])
                writes(B[vi])
                B[vi] = A[vi] * 2.0
    →
        for i in parallel(0, 64):
            with block("B"):
                vi = spatial(64, i)
                reads(A[vi])
                writes(B[vi])
                B[vi] = A[vi] * 2.0
    needs:
        P1  the loop is serial
        P2  its iterations are independent: each writes elements of its own, and none reads what
            another writes (so only spatial axes are bound to it)
    """
    return mark_independent(func, [loop], "parallel", "P1", "P2")
