"""storage_gap: leave a gap after each row of a buffer, which stays when the buffer is cut down."""

from __future__ import annotations

from tilewright.arith.simplify import simplify
from tilewright.ir.expr import Expr, const
from tilewright.ir.stmt import Func
from tilewright.schedule.locate import need, primitive
from tilewright.schedule.primitives.set_scope import with_buffer
from tilewright.schedule.primitives.storage_align import buffer_with_rows


@primitive("leave a gap of {gap} elements in dimension {axis} of '{buffer}'")
def storage_gap(func: Func, buffer: str, axis: int, gap: int) -> Func:
    """Make the stride of dimension `axis` greater by `gap` elements.

    `storage_align` says where rows begin in the buffer as it is; a gap is what lies between them,
    whatever is left of them once the buffer is cut down to what is used of it at a time.

    rewrite: storage_gap("B", 0, 4)
        B = alloc(f32[4, 60], "shared")
        for i in serial(0, 4):
            for j in serial(0, 60):
                with block("B"):
                    vi = spatial(4, i)
                    vj = spatial(60, j)
                    reads(A[vi, vj])
                    writes(B[vi, vj])
                    B[vi, vj] = A[vi, vj] + 1.0
    →
        B = alloc(f32[4, 60], "shared", strides=[64, 1])
        for i in serial(0, 4):
            for j in serial(0, 60):
                with block("B"):
                    vi = spatial(4, i)
                    vj = spatial(60, j)
                    reads(A[vi, vj])
                    writes(B[vi, vj])
                    B[vi, vj] = A[vi, vj] + 1.0
    needs:
        P1  the buffer is an intermediate
        P2  the dimension is one of the buffer's, not the last
        P3  gap ≥ 0
    """
    old = buffer_with_rows(func, buffer, axis)
    need("P3", gap >= 0, func, buffer, "rows would overlap", "as in 16")
    strides: list[Expr] = [const(1)]
    for d in range(old.rank - 2, -1, -1):
        step = old.shape[d + 1] * strides[0]
        if old.strides is not None:  # with the gaps that there are
            step += old.strides[d] - old.shape[d + 1] * old.strides[d + 1]
        strides.insert(0, simplify(step + gap if d == axis else step))
    return with_buffer(func, old, old.replace(strides=tuple(strides)))
