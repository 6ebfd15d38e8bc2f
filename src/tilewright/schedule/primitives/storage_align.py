"""storage_align: leave gaps between the rows of a buffer, so that rows start at good places."""

from __future__ import annotations

from tilewright.ir.expr import Expr, as_int, const
from tilewright.ir.stmt import Func
from tilewright.schedule.locate import alloc_path, find_buffer, need, primitive, refuse
from tilewright.schedule.primitives.set_scope import with_buffer


@primitive("align dimension {axis} of '{buffer}' to {factor} elements and {offset}")
def storage_align(func: Func, buffer: str, axis: int, factor: int, offset: int = 0) -> Func:
    """Make the stride of dimension `axis` the least that is `offset` modulo `factor` elements.

    Rows then fall on cache lines (offset 0) or on different banks (offset 1).

    rewrite: storage_align("B", 0, 32, 1)
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
        B = alloc(f32[4, 60], "shared", strides=[65, 1])
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
        P3  factor ≥ 1 and 0 ≤ offset < factor
        P4  the shape inside the dimension is constant
    """
    old = find_buffer(func, buffer)
    remedy = "copy it first: s.cache_read or s.cache_write"
    need("P1", alloc_path(func, old), func, buffer, f"'{buffer}' is a parameter", remedy)
    inside = 0 <= axis < old.rank - 1
    why = f"'{buffer}' has dimensions 0 to {old.rank - 1}, and the last is contiguous"
    need("P2", inside, func, buffer, why, "name an outer dimension")
    sane = factor >= 1 and 0 <= offset < factor
    need("P3", sane, func, buffer, "the factor and offset are no remainder class", "as in 32, 1")
    strides: list[Expr] = [const(1)]
    for d in range(old.rank - 2, -1, -1):
        step, extent = as_int(strides[0]), as_int(old.shape[d + 1])
        told = None if old.strides is None else as_int(old.strides[d])
        if d < axis:
            strides.insert(0, old.shape[d + 1] * strides[0])
            continue
        if step is None or extent is None:
            why = f"dimension {d + 1} of '{buffer}' is not constant"
            raise refuse("P4", func, buffer, why, "align a dimension with constants inside")
        least = step * extent if told is None else max(told, step * extent)
        strides.insert(0, const(least + (offset - least) % factor if d == axis else least))
    made = old.replace(strides=tuple(strides))
    return with_buffer(func, old, made)
