"""storage_align: leave gaps between the rows of a buffer, so that rows start at aligned offsets."""

from __future__ import annotations

from tilewright.arith.simplify import simplify
from tilewright.ir.expr import Buffer, Expr, const, maximum
from tilewright.ir.stmt import Func
from tilewright.schedule.locate import alloc_path, find_buffer, need, primitive
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
    """
    old = buffer_with_rows(func, buffer, axis)
    sane = factor >= 1 and 0 <= offset < factor
    need("P3", sane, func, buffer, "the factor and offset are no remainder class", "as in 32, 1")
    strides: list[Expr] = [const(1)]
    for d in range(old.rank - 2, -1, -1):
        least = old.shape[d + 1] * strides[0]
        if old.strides is not None:
            least = maximum(least, old.strides[d])
        strides.insert(0, simplify(least + (offset - least) % factor if d == axis else least))
    return with_buffer(func, old, old.replace(strides=tuple(strides)))


def buffer_with_rows(func: Func, name: str, axis: int) -> Buffer:
    """The buffer whose rows along `axis` may lie elsewhere: P1 and P2 of its primitives."""
    found = find_buffer(func, name)
    remedy = "copy it first: s.cache_read or s.cache_write"
    need("P1", alloc_path(func, found), func, name, f"'{name}' is a parameter", remedy)
    inside = 0 <= axis < found.rank - 1
    why = f"'{name}' has dimensions 0 to {found.rank - 1}, and the last is contiguous"
    need("P2", inside, func, name, why, "name an outer dimension")
    return found
