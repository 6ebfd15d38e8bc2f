"""hoist_buffers: buffers of open size inside loops are parts of buffers outside of all loops."""

from __future__ import annotations

import numpy as np
import pytest

from tests.lower.programs import same_meaning
from tilewright.ir.parse import parse_func
from tilewright.ir.stmt import Alloc, Func
from tilewright.ir.text import print_func
from tilewright.ir.verify import verify
from tilewright.lower.compact_buffers import compact_buffers
from tilewright.lower.hoist_buffers import hoist_buffers
from tilewright.schedule import Schedule

CHUNKS = """
def chunks(A: f32[12, n], B: f32[12, n], n: i64):
    for p in parallel(0, 4):
        for i in serial(0, 3):
            T = alloc(f32[n], "global")
            for j in serial(0, n):
                T[j] = A[i * 4 + p, j] * 2.0
            for j in serial(0, n):
                B[i * 4 + p, j] = T[j] + T[0]
"""

# sums of each row's squares, by tiles of two rows
TILES = """
def tiles(A: f32[m, n], B: f32[m, n], m: i64, n: i64):
    T = alloc(f32[m, n], "global")
    for i_o in serial(0, (m + 5) // 6):
        for p in serial(0, 3):
            for i in serial(0, 2):
                for j_o in serial(0, (n + 3) // 4):
                    for j_i in vectorize(0, 4):
                        with block("T", where=i_o * 6 + p * 2 + i < m and j_o * 4 + j_i < n):
                            vi = spatial(m, i_o * 6 + p * 2 + i)
                            vj = spatial(n, j_o * 4 + j_i)
                            reads(A[vi, vj])
                            writes(T[vi, vj])
                            T[vi, vj] = A[vi, vj] * A[vi, vj]
            for i_1 in serial(0, 2):
                for j_1 in serial(0, n):
                    for k_o in serial(0, (n + 7) // 8):
                        for k_i in serial(0, 8):
                            with block("B", where=i_o * 6 + p * 2 + i_1 < m):
                                wi = spatial(m, i_o * 6 + p * 2 + i_1)
                                wj = spatial(n, j_1)
                                wk = reduce((n + 7) // 8 * 8, k_o * 8 + k_i)
                                reads(T[wi, wk])
                                writes(B[wi, wj])
                                with init():
                                    B[wi, wj] = 0.0
                                if wk < n:
                                    B[wi, wj] = B[wi, wj] + T[wi, wk]
"""


def hoisted(func: Func) -> Func:
    made = hoist_buffers(func)
    verify(made, "loops")
    return made


def test_rewrite() -> None:
    func = parse_func(CHUNKS)
    made = hoisted(func)
    assert (
        print_func(made).strip()
        == """
def chunks(A: f32[12, n], B: f32[12, n], n: i64):
    T = alloc(f32[4, n], "global")
    for p in parallel(0, 4):
        for i in serial(0, 3):
            for j in serial(0, n):
                T[p, j] = A[i * 4 + p, j] * 2.0
            for j in serial(0, n):
                B[i * 4 + p, j] = T[p, j] + T[p, 0]
""".strip()
    )
    for n in (1, 7):
        same_meaning(func, made, n=n)


def test_what_is_of_known_size_or_outside_already_stays() -> None:
    known = parse_func(CHUNKS.replace(", n: i64", "").replace("n]", "9]").replace("n)", "9)"))
    outside = hoisted(parse_func(CHUNKS))
    for func in (known, outside):
        assert hoist_buffers(func) is func


def test_rounds_that_count_from_elsewhere() -> None:
    text = CHUNKS.replace("parallel(0, 4)", "parallel(2, 6)").replace("i * 4 + p", "i * 4 + p - 2")
    func = parse_func(text)
    made = hoisted(func)
    assert "alloc(f32[4, n]" in print_func(made) and "T[p - 2, j]" in print_func(made)
    same_meaning(func, made, n=5)


@pytest.mark.parametrize("threads", [False, True])
def test_a_tile_of_open_rows_is_all_that_is_kept(threads: bool) -> None:
    outer, inner = "i_o in serial(0, (m + 5) // 6)", "p in serial(0, 3)"
    swapped = TILES.replace(outer, "OUTER").replace(inner, outer).replace("OUTER", inner)
    start = parse_func(swapped if threads else TILES)
    schedule = Schedule(start)
    if threads:
        schedule.parallel("p")
    made = hoisted(compact_buffers(schedule.func))
    text = print_func(made)
    assert ("T = alloc(f32[3, 2, n]" if threads else "T = alloc(f32[2, n]") in text
    for _ in range(3):
        m, n = np.random.default_rng().integers(1, 20, 2).tolist()
        same_meaning(start, made, m=m, n=n)


def test_an_unknown_number_of_rounds_at_once_has_no_part_for_each() -> None:
    start = parse_func(TILES)
    schedule = Schedule(start)
    schedule.parallel("i_o")
    made = hoist_buffers(compact_buffers(schedule.func))
    assert "T = alloc(f32[m, n]" in print_func(made)


def test_what_would_be_as_large_inside_stays_outside() -> None:
    """The state of a recurrence: passes tell what a tile owns by where it lives."""
    func = parse_func(
        """
def steps(A: f32[3, n], B: f32[3, n], n: i64):
    T = alloc(f32[n], "global")
    for t in serial(0, 3):
        for j in serial(0, n):
            T[j] = A[t, j] + 1.0
        for j_1 in serial(0, n):
            B[t, j_1] = T[j_1] * 2.0
"""
    )
    made = compact_buffers(func)
    assert isinstance(made.body, Alloc)
    same_meaning(func, made, n=4)
