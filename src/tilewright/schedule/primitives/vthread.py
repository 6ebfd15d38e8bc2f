"""vthread: run a loop's iterations as virtual threads of one instruction stream."""

from __future__ import annotations

from tilewright.ir.stmt import Func
from tilewright.schedule.locate import primitive
from tilewright.schedule.marking import mark_independent, need_constant


@primitive("make loop '{loop}' virtual threads")
def vthread(func: Func, loop: str) -> Func:
    """Run a loop's iterations as virtual threads: interleaved in one instruction stream.

    On an accelerator the loads of one virtual thread hide behind the work of another; on a GPU
    each thread does the work of several. Buffers that live inside the loop get a copy for each.

    rewrite: vthread("i")
        for i in serial(0, 2):
            with block("B"):
                vi = spatial(2, i)
                reads(A[vi])
                writes(B[vi])
                B[vi] = A[vi] * 2.0
    →
        for i in vthread(0, 2):
            with block("B"):
                vi = spatial(2, i)
                reads(A[vi])
                writes(B[vi])
                B[vi] = A[vi] * 2.0
    needs:
        P1  the loop is serial
        P2  its iterations are independent: each writes elements of its own, and none reads what
            another writes
        P3  its extent is a constant
    """
    need_constant(func, loop, "P3")
    return mark_independent(func, [loop], "vthread", "P1", "P2")
