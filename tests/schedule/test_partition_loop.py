"""partition_loop: cut a loop's range into consecutive loops."""

import pytest

from tests.schedule.programs import attention, conv2d, matmul
from tilewright.ir.parse import parse_func
from tilewright.ir.stmt import Block
from tilewright.ir.walk import statements
from tilewright.schedule import Schedule

COPY = """\
def f(A: f32[10], B: f32[10]):
    for i in serial(0, 10):
        with block("B"):
            vi = spatial(10, i)
            reads(A[vi])
            writes(B[vi])
            B[vi] = A[vi]
"""


def blocks(s):
    """The blocks by name."""
    return {b.name: b for b in statements(s.func.body) if isinstance(b, Block)}


def test_guards_vanish(same_result, replays):
    start = matmul(7, 6, 5).func
    s = Schedule(start)
    s.split("i", 4)
    assert s.partition_loop("i_o", [1]) == ("i_o", "i_o_1")
    assert blocks(s)["C"].where is None and blocks(s)["C_1"].where is not None
    same_result(start, s.func)
    replays(start, s)


def test_reduction_begins_once(same_result, replays):
    start = matmul(4, 3, 7).func
    s = Schedule(start)
    s.partition_loop("k", [2, 5])
    assert [blocks(s)[n].init is None for n in ("C", "C_1", "C_2")] == [False, True, True]
    same_result(start, s.func)
    replays(start, s)


def test_reduction_of_a_fused_loop_begins_where_its_rows_begin(same_result):
    """The cut at 10 starts row 2; the cut at 12 stands in the middle of it."""
    start = matmul(4, 1, 5).func
    s = Schedule(start)
    s.reorder("j", "i")
    s.fuse("i", "k")
    s.partition_loop("i_k_f", [10, 12])
    assert blocks(s)["C_1"].init is not None and blocks(s)["C_2"].init is not None
    same_result(start, s.func)


def test_part_of_one_row(same_result):
    start = matmul(4, 1, 5).func
    s = Schedule(start)
    s.reorder("j", "i")
    s.fuse("i", "k")
    s.partition_loop("i_k_f", [7, 9])
    assert blocks(s)["C_1"].init is None  # inside row 1, which the first part began
    same_result(start, s.func)


def test_padding_is_cut_off(same_result, replays):
    start = conv2d(2, 2, 4, 4).func
    s = Schedule(start)
    s.partition_loop("y", [1, 5])
    s.partition_loop("x", [1, 5])
    same_result(start, s.func)
    replays(start, s)


def test_parallel_loop(same_result):
    start = attention(4, 5, 3).func
    s = Schedule(start)
    s.parallel(s.loops("Pr")[0])
    s.partition_loop(s.loops("Pr")[0], [2])
    same_result(start, s.func)


@pytest.mark.parametrize("n", [0, 3, 4, 11])
def test_a_multiple_and_the_rest(n, same_result, replays):
    text = COPY.replace("10", "n").replace("B: f32[n])", "B: f32[n], n: i64)")
    start = parse_func(text)
    s = Schedule(start)
    whole, rest = s.partition_loop("i", multiple=4)
    s.split(whole, 4)
    assert all(b.where is None for b in blocks(s).values())
    assert s.loops("B_1") == (rest,)
    same_result(start, s.func, n=n)
    replays(start, s)


@pytest.mark.parametrize("n", [0, 3, 4, 11])
def test_whole_rounds_and_the_last(n, same_result, replays):
    """The guard on the end of a split loop is asked in its last round only."""
    text = COPY.replace("10", "n").replace("B: f32[n])", "B: f32[n], n: i64)")
    start = parse_func(text)
    s = Schedule(start)
    outer, inner = s.split("i", (None, 4))
    whole, rest = s.partition_loop(outer, whole=True)
    assert s.loops("B") == (whole, inner)
    assert blocks(s)["B"].where is None
    assert blocks(s)["B_1"].where is not None
    assert s.loops("B_1")[0] == rest
    same_result(start, s.func, n=n)
    replays(start, s)


def test_P2_no_guard(refused):
    refused("P2", Schedule(parse_func(COPY)).partition_loop, "i", whole=True)


def test_P1_threads(refused):
    s = Schedule(parse_func(COPY))
    s.bind("i", "threadIdx.x")
    refused("P1", s.partition_loop, "i", [4])


@pytest.mark.parametrize("points", [[], [0], [10], [12], [-1], [4, 4], [6, 3]])
def test_P2_points(points, refused):
    refused("P2", Schedule(parse_func(COPY)).partition_loop, "i", points)


def test_P2_points_or_a_multiple(refused):
    refused("P2", Schedule(parse_func(COPY)).partition_loop, "i", [4], multiple=2)


def test_P2_symbolic(refused):
    text = COPY.replace("10", "n").replace("B: f32[n])", "B: f32[n], n: i64)")
    refused("P2", Schedule(parse_func(text)).partition_loop, "i", [4])


def test_P3_where_a_reduction_begins(refused):
    """The reduction is bound to its loops through a value that is not known to start at 0."""
    start = parse_func("""\
def f(A: f32[8], C: f32[1], n: i64):
    for i in serial(0, 8):
        with block("C", where=i >= n):
            v0 = spatial(1, 0)
            vk = reduce(8, (i - n) % 8)
            reads(A[vk])
            writes(C[v0])
            with init():
                C[v0] = 0.0
            C[v0] = C[v0] + A[vk]
""")
    refused("P3", Schedule(start).partition_loop, "i", [4])
