"""Programs that the lowering tests share, and the check that a pass keeps their meaning."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.ir import interp
from tilewright.ir.expr import Var, as_int, const
from tilewright.ir.stmt import Func
from tilewright.ir.walk import stores, substitute

TAIL = """
def scale(A: f32[60], B: f32[60]):
    for i_o in serial(0, 8):
        for i_i in unroll(0, 8):
            if i_o * 8 + i_i < 60:
                B[i_o * 8 + i_i] = A[i_o * 8 + i_i] * 2.0
"""

PADDED = """
def pad(A: f32[6, 8], B: f32[8, 10]):
    for y in parallel(0, 8):
        for x in serial(0, 10):
            B[y, x] = select(y >= 1 and y < 7 and x >= 1 and x < 9, A[y - 1, x - 1], 0.0)
"""

TILED = """
def tiled(A: f32[24, 16], C: f32[24, 16]):
    T = alloc(f32[24, 16], "local")
    for i_o in serial(0, 4):
        for i in serial(0, 6):
            for j in vectorize(0, 16):
                with block("T"):
                    vi = spatial(24, i_o * 6 + i)
                    vj = spatial(16, j)
                    reads(A[vi, vj])
                    writes(T[vi, vj])
                    T[vi, vj] = A[vi, vj] + 1.0
        for i_1 in serial(0, 6):
            for j_1 in vectorize(0, 16):
                with block("C"):
                    wi = spatial(24, i_o * 6 + i_1)
                    wj = spatial(16, j_1)
                    reads(T[wi, wj])
                    writes(C[wi, wj])
                    C[wi, wj] = T[wi, wj] * 3.0
"""

MATMUL = """
def matmul(A: f32[10, 12], B: f32[12, 7], C: f32[10, 7]):
    for i_o in parallel(0, 3):
        for k in serial(0, 12):
            for i_i in unroll(0, 4):
                for j in vectorize(0, 7):
                    with block("C", where=i_o * 4 + i_i < 10):
                        vi = spatial(10, i_o * 4 + i_i)
                        vj = spatial(7, j)
                        vk = reduce(12, k)
                        reads(A[vi, vk], B[vk, vj])
                        writes(C[vi, vj])
                        with init():
                            C[vi, vj] = 0.0
                        C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
"""

POOL = """
def pool(A: f32[n], B: f32[n], n: i64):
    for o in serial(0, ((n + 1) // 2 + 3) // 4):
        with alloc(f32[4], "local") as most:
            for z in vectorize(0, 4):
                if o * 4 + z < (n + 1) // 2:
                    most[z] = -9.0
            for r in unroll(0, 3):
                for v in vectorize(0, 4):
                    if o * 4 + v < (n + 1) // 2:
                        most[v] = max(most[v], select(o * 8 + v * 2 + r >= 1 and o * 8 + v * 2 + r <= n, A[o * 8 + v * 2 + r - 1], -9.0))
            for w in vectorize(0, 4):
                if o * 4 + w < (n + 1) // 2:
                    B[o * 4 + w] = most[w]
"""  # noqa: E501


def arrays_for(func: Func, seed: int = 0, **symbols: int) -> list[Any]:
    """Inputs of small whole numbers; what the function writes starts as nonsense."""
    random = np.random.default_rng(seed)
    sizes = {p: const(symbols[p.name]) for p in func.params if isinstance(p, Var)}
    written = {s.buffer.name for s in stores(func.body)}
    made = []
    for b in func.buffers:
        shape = [int(as_int(substitute(d, sizes)) or 0) for d in b.shape]
        data = random.integers(0 if b.dtype.kind == "uint" else -4, 5, shape)
        made.append(np.full(shape, 77, b.dtype.numpy) if b.name in written
                    else data.astype(b.dtype.numpy))  # fmt: skip
    return made


def same_meaning(before: Func, after: Func, **symbols: int) -> None:
    """Both functions leave the same in every parameter (of the same number of elements)."""
    first = arrays_for(before, **symbols)
    second = [a.reshape(-1).copy() if b.rank == 1 else a.copy()
              for a, b in zip(first, after.buffers, strict=True)]  # fmt: skip
    interp.run(before, *first, symbols=symbols)
    interp.run(after, *second, symbols=symbols)
    for b, x, y in zip(before.buffers, first, second, strict=True):
        np.testing.assert_array_equal(x.reshape(-1), y.reshape(-1), err_msg=b.name)
