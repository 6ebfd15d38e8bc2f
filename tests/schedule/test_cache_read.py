"""cache_read: what a block reads is copied into a buffer of its own first."""

import tilewright.te as te
from tilewright.ir.parse import parse_func
from tilewright.ir.text import print_func
from tilewright.schedule import Schedule
from tilewright.schedule.primitives.cache_read import cache_read

BEFORE = """\
def f(A: f32[6, 8], C: f32[8, 6]):
    for i in serial(0, 8):
        for j in serial(0, 6):
            with block("C"):
                vi = spatial(8, i)
                vj = spatial(6, j)
                reads(A[vj, vi])
                writes(C[vi, vj])
                C[vi, vj] = A[vj, vi] + 1.0
"""
AFTER = """\
def f(A: f32[6, 8], C: f32[8, 6]):
    A_shared = alloc(f32[6, 8], "shared")
    for j_1 in serial(0, 6):
        for i_1 in serial(0, 8):
            with block("A_shared"):
                vj_1 = spatial(6, j_1)
                vi_1 = spatial(8, i_1)
                reads(A[vj_1, vi_1])
                writes(A_shared[vj_1, vi_1])
                A_shared[vj_1, vi_1] = A[vj_1, vi_1]
    for i in serial(0, 8):
        for j in serial(0, 6):
            with block("C"):
                vi = spatial(8, i)
                vj = spatial(6, j)
                reads(A_shared[vj, vi])
                writes(C[vi, vj])
                C[vi, vj] = A_shared[vj, vi] + 1.0
"""


def test_rewrite(same_result, replays) -> None:
    before = parse_func(BEFORE)
    s = Schedule(before)
    assert s.cache_read("C", "A", "shared") == "A_shared"
    assert print_func(s.func) == AFTER
    same_result(before, s.func)
    replays(before, s)


def test_only_the_named_reader_changes(same_result) -> None:
    A = te.placeholder((7,), "f32", "A")
    B = te.compute((7,), lambda i: A[i] * 2.0, name="B")
    C = te.compute((7,), lambda i: B[i] + A[6 - i], name="C")
    before = te.func("f", [A], [C])
    after, _ = cache_read(before, "C", "A", "shared")
    assert "B[vi] = A[vi] * 2.0" in print_func(after)
    same_result(before, after)


def test_only_the_part_that_is_read(same_result) -> None:
    A = te.placeholder((20,), "f32", "A")
    B = te.compute((4,), lambda i: A[i + 5] * 2.0, name="B")
    before = te.func("f", [A], [B])
    s = Schedule(before)
    copy = s.cache_read("B", "A", "shared")
    text = s.show()
    assert "vi_1 = spatial(20, i_1 + 5)" in text and "for i_1 in serial(0, 4)" in text
    assert len(s.loops(copy)) == 1
    same_result(before, s.func)


def test_after_its_maker(same_result) -> None:
    """Inside a loop that also makes the buffer, the copy stands behind the maker."""
    A = te.placeholder((8, 9), "f32", "A")
    B = te.compute((8, 9), lambda i, j: A[i, j] * 2.0, name="B")
    C = te.compute((8, 9), lambda i, j: B[i, 8 - j] + 1.0, name="C")
    before = te.func("f", [A], [C])
    s = Schedule(before)
    s.compute_at("B", "i_1")
    copy = s.cache_read("C", "B", "local")
    assert s.blocks() == ("B", copy, "C")
    assert s.loops(copy)[0] == "i_1"
    same_result(before, s.func)


def test_gathered_operand_is_copied_whole(same_result) -> None:
    A = te.placeholder((9,), "f32", "A")
    table = te.placeholder((5,), "i64", "table")
    C = te.compute((5,), lambda i: A[te.abs(table[i])] + 1.0, name="C")
    before = te.func("f", [A, table], [C])
    after, _ = cache_read(before, "C", "A", "shared")
    assert "in serial(0, 9)" in print_func(after)
    same_result(before, after)


def test_P1_does_not_read_it(refused) -> None:
    refused("P1", cache_read, parse_func(BEFORE), "C", "C", "shared")


def test_P2_writes_it_too(refused) -> None:
    text = BEFORE.replace("reads(A[vj, vi])", "reads(A[vj, vi], C[vi, vj])")
    text = text.replace("A[vj, vi] + 1.0", "A[vj, vi] + C[vi, vj]")
    refused("P2", cache_read, parse_func(text), "C", "C", "shared")


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
    refused("P3", cache_read, s.func, "C", "B", "global")
