"""compact_buffers: where buffers live and how much of them is left."""

from __future__ import annotations

import random

import pytest

from tests.lower.programs import TILED, same_meaning
from tilewright.ir.parse import parse_func
from tilewright.ir.stmt import Alloc
from tilewright.ir.text import print_func
from tilewright.ir.verify import verify
from tilewright.ir.walk import visit
from tilewright.lower.compact_buffers import compact_buffers


def compacted(text: str) -> dict[str, tuple[int, ...]]:
    """The shapes of all allocations after the pass, which must keep the program's meaning."""
    func = parse_func(text)
    made = compact_buffers(func)
    verify(made, "loops")
    same_meaning(func, made)
    return {
        n.buffer.name: tuple(d.value for d in n.buffer.shape)
        for n in visit(made.body)
        if isinstance(n, Alloc)
    }


def test_rewrite() -> None:
    func = parse_func(TILED)
    made = compact_buffers(func)
    assert (
        print_func(made).strip()
        == """
def tiled(A: f32[24, 16], C: f32[24, 16]):
    for i_o in serial(0, 4):
        T = alloc(f32[6, 16], "local")
        for i in serial(0, 6):
            for j in vectorize(0, 16):
                T[i, j] = A[i_o * 6 + i, j] + 1.0
        for i_1 in serial(0, 6):
            for j_1 in vectorize(0, 16):
                C[i_o * 6 + i_1, j_1] = T[i_1, j_1] * 3.0
""".strip()
    )
    same_meaning(func, made)


def test_accumulator_outlives_the_loops_that_reduce() -> None:
    text = """
def outer(A: f32[4, 8], B: f32[4]):
    T = alloc(f32[4], "local")
    for i in serial(0, 4):
        for k in serial(0, 8):
            with block("T"):
                vi = spatial(4, i)
                vk = reduce(8, k)
                reads(A[vi, vk])
                writes(T[vi])
                with init():
                    T[vi] = 0.0
                T[vi] = T[vi] + A[vi, vk]
            with block("B"):
                wi = spatial(4, i)
                wk = spatial(8, k)
                reads(T[wi])
                writes(B[wi])
                B[wi] = T[wi]
"""
    assert compacted(text) == {"T": (1,)}


def test_state_carried_from_one_iteration_to_the_next_stays_outside() -> None:
    text = """
def carry(A: f32[6], B: f32[6]):
    T = alloc(f32[1], "local")
    T[0] = 0.0
    for t in serial(0, 6):
        with block("B"):
            vt = ordered(6, t)
            reads(A[vt], T[0])
            writes(B[vt])
            B[vt] = A[vt] + T[0]
        with block("T"):
            wt = ordered(6, t)
            reads(B[wt])
            writes(T[0])
            T[0] = B[wt]
"""
    func = parse_func(text)
    made = compact_buffers(func)
    same_meaning(func, made)
    assert isinstance(made.body, Alloc)


def test_halo_of_a_stencil_is_part_of_the_tile() -> None:
    text = """
def stencil(A: f32[18], B: f32[16]):
    T = alloc(f32[18])
    for i_o in parallel(0, 4):
        for i in serial(0, 6):
            with block("T"):
                vi = spatial(18, i_o * 4 + i)
                reads(A[vi])
                writes(T[vi])
                T[vi] = A[vi] * 2.0
        for i_1 in serial(0, 4):
            with block("B"):
                wi = spatial(16, i_o * 4 + i_1)
                reads(T[wi:wi + 3])
                writes(B[wi])
                B[wi] = T[wi] + T[wi + 1] + T[wi + 2]
"""
    assert compacted(text) == {"T": (6,)}


def test_write_under_a_condition_does_not_count() -> None:
    text = """
def late(A: f32[8], B: f32[8]):
    T = alloc(f32[1])
    for i in serial(0, 8):
        if i < 1:
            with block("T"):
                vi = spatial(8, i)
                reads(A[vi])
                writes(T[0])
                T[0] = A[vi]
        with block("B"):
            wi = spatial(8, i)
            reads(T[0])
            writes(B[wi])
            B[wi] = T[0]
"""
    func = parse_func(text)
    made = compact_buffers(func)
    same_meaning(func, made)
    assert isinstance(made.body, Alloc)


def test_guard_that_ends_early_leaves_the_buffer_outside() -> None:
    """The second iteration of o writes nothing and reads what the first one wrote."""
    text = """
def early(A: f32[4], B: f32[2, 4]):
    T = alloc(f32[4])
    for o in serial(0, 2):
        for i in serial(0, 4):
            with block("T", where=o * 4 + i < 4):
                vi = spatial(4, o * 4 + i)
                reads(A[vi])
                writes(T[vi])
                T[vi] = A[vi]
        for j in serial(0, 4):
            with block("B"):
                wo = spatial(2, o)
                wj = spatial(4, j)
                reads(T[wj])
                writes(B[wo, wj])
                B[wo, wj] = T[wj]
"""
    func = parse_func(text)
    made = compact_buffers(func)
    same_meaning(func, made)
    assert isinstance(made.body, Alloc)


def test_writes_with_gaps_do_not_cover() -> None:
    text = """
def gaps(A: f32[2, 4], B: f32[2, 8]):
    T = alloc(f32[8])
    for o in serial(0, 2):
        for i in serial(0, 8):
            with block("Z", where=o < 1):
                vi_1 = spatial(8, i)
                writes(T[vi_1])
                T[vi_1] = 0.0
        for i_1 in serial(0, 4):
            with block("T"):
                vo = ordered(2, o)
                vi = spatial(4, i_1)
                reads(A[vo, vi])
                writes(T[vi * 2 + vo])
                T[vi * 2 + vo] = A[vo, vi]
        for j in serial(0, 8):
            with block("B"):
                wo = spatial(2, o)
                wj = spatial(8, j)
                reads(T[wj])
                writes(B[wo, wj])
                B[wo, wj] = T[wj]
"""
    func = parse_func(text)
    made = compact_buffers(func)
    same_meaning(func, made)
    assert isinstance(made.body, Alloc)


def test_a_ring_that_turns_is_not_written_whole() -> None:
    """Each round writes two of four elements, not the same ones; the others are of earlier ones."""
    func = parse_func("""
def ring(A: f32[4, 2], B: f32[4, 4]):
    T = alloc(f32[4])
    for o in serial(0, 4):
        for i in serial(0, 4):
            with block("Z", where=o < 1):
                vi_1 = spatial(4, i)
                writes(T[vi_1])
                T[vi_1] = 0.0
        for i_1 in serial(0, 2):
            with block("T"):
                vo = ordered(4, o)
                vi = spatial(2, i_1)
                reads(A[vo, vi])
                writes(T[(vo + vi) % 4])
                T[(vo + vi) % 4] = A[vo, vi]
        for j in serial(0, 4):
            with block("B"):
                wo = spatial(4, o)
                wj = spatial(4, j)
                reads(T[wj])
                writes(B[wo, wj])
                B[wo, wj] = T[wj]
""")
    made = compact_buffers(func)
    same_meaning(func, made)
    assert isinstance(made.body, Alloc)


@pytest.mark.parametrize("seed", range(40))
def test_what_a_round_leaves_of_earlier_ones_is_kept(seed: int) -> None:
    """Each round writes some elements of a square, by random indices, and reads all of them."""
    rng = random.Random(seed)

    def index() -> str:
        moved = rng.choice(("vi", "vj", "vi * 2", "vi * 4 + vj", "vi + vj", "vi + vo"))
        return f"({moved} + {rng.choice((0, 0, 0, 1, 2, 3))}) // {rng.choice((1, 1, 2, 4))} % 4"

    at = f"{index()}, {index()}"
    func = parse_func(f"""
def rounds(A: f32[3, 4, 4], B: f32[3, 4, 4]):
    T = alloc(f32[4, 4])
    for o in serial(0, 3):
        for i in serial(0, 4):
            for j in serial(0, 4):
                with block("Z", where=o < 1):
                    zi = spatial(4, i)
                    zj = spatial(4, j)
                    writes(T[zi, zj])
                    T[zi, zj] = f32(zi * 4 + zj + 1)
        for i_1 in serial(0, 4):
            for j_1 in serial(0, 4):
                with block("T"):
                    vo = ordered(3, o)
                    vi = ordered(4, i_1)
                    vj = ordered(4, j_1)
                    reads(A[vo, vi, vj])
                    writes(T[{at}])
                    T[{at}] = A[vo, vi, vj]
        for i_2 in serial(0, 4):
            for j_2 in serial(0, 4):
                with block("B"):
                    wo = spatial(3, o)
                    wi = spatial(4, i_2)
                    wj = spatial(4, j_2)
                    reads(T[wi, wj])
                    writes(B[wo, wi, wj])
                    B[wo, wi, wj] = T[wi, wj]
""")
    same_meaning(func, compact_buffers(func))


@pytest.mark.parametrize("seed", range(8))
def test_threads_that_share_a_buffer_keep_an_element_each(seed: int) -> None:
    """It is cut to what all threads of a block use at once, not to what one of them does."""
    rng = random.Random(seed)
    blocks, threads, rows = rng.randint(2, 3), rng.randint(2, 9), rng.randint(1, 4)
    size = blocks * threads
    kept = compacted(f"""
def shared(A: f32[{size}, {rows}], B: f32[{size}, {rows}]):
    T = alloc(f32[{size}, {rows}], "shared")
    for b in thread("blockIdx.x", 0, {blocks}):
        for t in thread("threadIdx.x", 0, {threads}):
            for r in serial(0, {rows}):
                with block("T"):
                    vi = spatial({size}, b * {threads} + t)
                    vr = spatial({rows}, r)
                    reads(A[vi, vr])
                    writes(T[vi, vr])
                    T[vi, vr] = A[vi, vr]
            barrier("shared")
            for r_1 in serial(0, {rows}):
                with block("B"):
                    wi = spatial({size}, b * {threads} + t)
                    wr = spatial({rows}, r_1)
                    reads(T[wi, wr])
                    writes(B[wi, wr])
                    B[wi, wr] = T[wi, wr]
""")
    assert kept == {"T": (threads, rows)}


def test_unused_buffer_goes() -> None:
    assert (
        compacted("""
def nothing(A: f32[4], B: f32[4]):
    T = alloc(f32[4])
    for i in serial(0, 4):
        B[i] = A[i]
""")
        == {}
    )


def test_gaps_between_rows_stay() -> None:
    text = TILED.replace(
        'alloc(f32[24, 16], "local")', 'alloc(f32[24, 16], "local", strides=[20, 1])'
    )
    func = parse_func(text)
    made = compact_buffers(func)
    same_meaning(func, made)
    (alloc,) = [n for n in visit(made.body) if isinstance(n, Alloc)]
    assert alloc.buffer.strides is not None
    assert [s.value for s in alloc.buffer.strides] == [20, 1]
