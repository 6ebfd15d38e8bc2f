"""cache_write: a block writes into a buffer of its own, which is copied out after."""

import tilewright.te as te
from tilewright.ir.parse import parse_func
from tilewright.ir.text import print_func
from tilewright.schedule import Schedule
from tilewright.schedule.primitives.cache_write import cache_write

BEFORE = """\
def f(A: f32[6, 8], C: f32[6]):
    for i in serial(0, 6):
        for k in serial(0, 8):
            with block("C"):
                vi = spatial(6, i)
                vk = reduce(8, k)
                reads(A[vi, vk])
                writes(C[vi])
                with init():
                    C[vi] = 0.0
                C[vi] = C[vi] + A[vi, vk]
"""
AFTER = """\
def f(A: f32[6, 8], C: f32[6]):
    C_local = alloc(f32[6], "local")
    for i in serial(0, 6):
        for k in serial(0, 8):
            with block("C"):
                vi = spatial(6, i)
                vk = reduce(8, k)
                reads(A[vi, vk])
                writes(C_local[vi])
                with init():
                    C_local[vi] = 0.0
                C_local[vi] = C_local[vi] + A[vi, vk]
    for i_1 in serial(0, 6):
        with block("C_local"):
            vi_1 = spatial(6, i_1)
            reads(C_local[vi_1])
            writes(C[vi_1])
            C[vi_1] = C_local[vi_1]
"""
HALVES = """\
def f(A: f32[6], C: f32[12]):
    for i in serial(0, 6):
        with block("low"):
            vi = spatial(6, i)
            reads(A[vi])
            writes(C[vi])
            C[vi] = A[vi] + 1.0
    for j in serial(0, 6):
        with block("high"):
            vj = spatial(6, j)
            reads(A[vj])
            writes(C[ELEMENT])
            C[ELEMENT] = A[vj] * 2.0
"""


def test_rewrite(same_result, replays) -> None:
    before = parse_func(BEFORE)
    s = Schedule(before)
    assert s.cache_write("C", "C", "local") == "C_local"
    assert print_func(s.func) == AFTER
    same_result(before, s.func)
    replays(before, s)


def test_readers_read_the_copy(same_result) -> None:
    A = te.placeholder((5, 7), "f32", "A")
    B = te.compute((5, 7), lambda i, j: A[i, j] * 2.0, name="B")
    C = te.compute((5, 7), lambda i, j: B[i, 6 - j] + B[i, j], name="C")
    before = te.func("f", [A], [C])
    s = Schedule(before)
    s.cache_write("B", "B", "shared")
    assert s.blocks() == ("B", "B_shared", "C")
    same_result(before, s.func)


def test_inside_the_readers_loop(same_result) -> None:
    """After compute_at the copy stands between maker and reader, over the part made there."""
    A = te.placeholder((8, 9), "f32", "A")
    B = te.compute((8, 9), lambda i, j: A[i, j] * 2.0, name="B")
    k = te.reduce_axis(9, "k")
    C = te.compute((8,), lambda i: te.sum(B[i, k], k), name="C")
    before = te.func("f", [A], [C])
    s = Schedule(before)
    s.compute_at("B", "i_1")
    s.cache_write("B", "B", "local")
    assert s.loops("B_local")[0] == "i_1"
    assert len(s.loops("B_local")) == 2
    same_result(before, s.func)


def test_a_part_of_a_shared_result(same_result) -> None:
    before = parse_func(HALVES.replace("ELEMENT", "vj + 6"))
    after, _ = cache_write(before, "high", "C", "local")
    assert "C[v0] = C_local[v0]" in print_func(after) or "vj_1" in print_func(after)
    same_result(before, after)


def test_both_parts_of_a_decomposed_reduction(same_result) -> None:
    before = parse_func(BEFORE)
    s = Schedule(before)
    if hasattr(s, "decompose_reduction"):
        s.decompose_reduction("C", "k")
    s.cache_write("C", "C", "local")
    same_result(before, s.func)


def test_P1_does_not_write_it(refused) -> None:
    refused("P1", cache_write, parse_func(BEFORE), "C", "A", "local")


def test_P2_gaps_belong_to_others(refused) -> None:
    text = HALVES.replace("ELEMENT", "vj * 2 + 1").replace("C[vi]", "C[vi * 2]")
    refused("P2", cache_write, parse_func(text), "high", "C", "local")


def test_P2_guarded_part(refused) -> None:
    text = HALVES.replace("ELEMENT", "vj + 6")
    text = text.replace('with block("high")', 'with block("high", where=j < 4)')
    refused("P2", cache_write, parse_func(text), "high", "C", "local")


def test_P3_threads_would_repeat_it(refused) -> None:
    """A global copy of a row that all threads of a kernel would fill at once."""
    A = te.placeholder((6, 4), "f32", "A")
    B = te.compute((6, 4), lambda i, j: A[i, j] * 2.0, name="B")
    C = te.compute((6, 4), lambda y, x: B[y, 3 - x] + 1.0, name="C")
    s = Schedule(te.func("f", [A], [C]))
    (j,) = s.compute_at("B", "y")
    s.set_scope("B", "shared")
    s.bind("x", "threadIdx.x")
    s.bind(j, "threadIdx.x")
    refused("P3", cache_write, s.func, "B", "B", "global")
