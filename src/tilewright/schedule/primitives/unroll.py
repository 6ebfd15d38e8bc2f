"""unroll: write a loop's iterations out one after the other."""

from __future__ import annotations

from tilewright.ir.stmt import Func
from tilewright.schedule.locate import primitive, remark
from tilewright.schedule.marking import need_constant, need_serial


@primitive("unroll loop '{loop}'")
def unroll(func: Func, loop: str) -> Func:
    """Write a loop's iterations out one after the other, in order.

    rewrite: unroll("i")
        for i in serial(0, 4):
            with block("B"):
                vi = spatial(4, i)
                reads(A[vi])
                writes(B[vi])
                B[vi] = A[vi] * 2.0
    →
        for i in unroll(0, 4):
            with block("B"):
                vi = spatial(4, i)
                reads(A[vi])
                writes(B[vi])
                B[vi] = A[vi] * 2.0
    needs:
        P1  the loop is serial
        P2  its extent is a constant
    """
    need_serial(func, loop, "P1")
    need_constant(func, loop, "P2")
    return remark(func, loop, kind="unroll")
