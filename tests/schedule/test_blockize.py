"""blockize: a loop and all that it holds become one block (the docstring's rewrite is a golden)."""

import pytest

import tilewright.te as te
from tilewright.ir.parse import parse_func
from tilewright.ir.text import print_func
from tilewright.schedule import Schedule
from tilewright.schedule.primitives.blockize import blockize

TILES = """\
def f(A: f32[16], B: f32[16]):
    for i_o in serial(0, 4):
        for i_i in serial(0, 4):
            with block("B"):
                vi = spatial(16, i_o * 4 + i_i)
                reads(A[vi])
                writes(B[vi])
                B[vi] = A[vi] * 2.0
"""


def matmul(m: int = 8, n: int = 8, depth: int = 6) -> te.Tensor:
    A, B = te.placeholder((m, depth), "f32", "A"), te.placeholder((depth, n), "f32", "B")
    k = te.reduce_axis(depth, "k")
    C = te.compute((m, n), lambda i, j: te.sum(A[i, k] * B[k, j], k), name="C")
    return te.func("f", [A, B], [C])


def tiled(m: int = 8, n: int = 8, depth: int = 6) -> Schedule:
    s = Schedule(matmul(m, n, depth))
    i_o, i_i = s.split("i", 4)
    j_o, j_i = s.split("j", 4)
    k_o, k_i = s.split("k", 2)
    s.reorder(i_o, j_o, k_o, i_i, j_i, k_i)
    return s


def test_a_reduction_that_goes_on_outside(same_result, replays) -> None:
    before = matmul()
    s = tiled()
    assert s.blockize("i_i") == "C_o"
    assert "writes(C[vi_o * 4:vi_o * 4 + 4, vj_o * 4:vj_o * 4 + 4])" in s.show()
    same_result(before, s.func)
    replays(before, s)


@pytest.mark.parametrize("at", ["j_i", "k_i"])
def test_further_in(same_result, at) -> None:
    s = tiled()
    s.blockize(at)
    same_result(matmul(), s.func)


def test_a_reduction_that_is_all_inside(same_result) -> None:
    before = matmul()
    s = Schedule(before)
    s.blockize("k")
    assert "vk_o" not in s.show()
    same_result(before, s.func)


def test_twice(same_result) -> None:
    s = tiled()
    s.blockize("k_i")
    s.blockize("i_i")
    assert s.blocks()[0] == "C_o_o"
    same_result(matmul(), s.func)


@pytest.mark.parametrize(("m", "n", "depth"), [(7, 8, 6), (7, 5, 5), (3, 3, 1)])
def test_guards_go_in(same_result, m, n, depth) -> None:
    s = tiled(m, n, depth)
    s.blockize("i_i")
    same_result(matmul(m, n, depth), s.func)


def test_tiles_are_copied_for_a_block(same_result) -> None:
    """The caches of a block's operands: regions of the block, not of what is inside."""
    s = tiled()
    s.blockize("i_i")
    for operand in ("A", "B"):
        copy = s.cache_read("C_o", operand, "local")
        row, _ = s.compute_at(copy, "k_o")
        assert f"for {row} in serial(0, {4 if operand == 'A' else 2})" in s.show()
    same_result(matmul(), s.func)


def test_its_result_is_kept_apart(same_result) -> None:
    s = tiled()
    s.blockize("i_i")
    copy = s.cache_write("C_o", "C", "local")
    s.reverse_compute_at(copy, "j_o")
    assert s.loops(copy)[:2] == ("i_o", "j_o")
    same_result(matmul(), s.func)


def test_decomposed(same_result) -> None:
    s = tiled()
    s.blockize("i_i")
    s.decompose_reduction("C_o", "k_o")
    same_result(matmul(), s.func)


def test_P1_two_blocks(refused) -> None:
    A = te.placeholder((6, 4), "f32", "A")
    B = te.compute((6, 4), lambda i, j: A[i, j] * 2.0, name="B")
    C = te.compute((6, 4), lambda y, x: B[y, 3 - x] + 1.0, name="C")
    s = Schedule(te.func("f", [A], [C]))
    s.compute_at("B", "y")
    refused("P1", blockize, s.func, "y")


def test_P1_symbolic_extent(refused) -> None:
    n = te.var("n")
    A = te.placeholder((4, n), "f32", "A")
    B = te.compute((4, n), lambda i, j: A[i, j] * 2.0, name="B")
    refused("P1", blockize, te.func("f", [A], [B]), "j")


@pytest.mark.parametrize(
    "value", ["i_o * 3 + i_i", "i_o * i_i", "(i_o + i_i) // 2", "i_o * 4 + i_i + 1"]
)
def test_P2_no_tiles(refused, value) -> None:
    text = TILES.replace("i_o * 4 + i_i", value)
    refused("P2", blockize, parse_func(text), "i_i")


def test_P3_mixed_guard(refused) -> None:
    text = TILES.replace('with block("B")', 'with block("B", where=i_o + i_i < 5)')
    refused("P3", blockize, parse_func(text), "i_i")


def test_guards_of_one_side(same_result) -> None:
    text = TILES.replace('with block("B")', 'with block("B", where=i_o < 3 and i_i < 2)')
    before = parse_func(text)
    after, _ = blockize(before, "i_i")
    assert 'with block("B_o", where=i_o < 3)' in print_func(after)
    assert 'with block("B", where=i_i < 2)' in print_func(after)
    same_result(before, after)


def test_threads_also_begin_the_reduction() -> None:
    s = tiled()
    s.bind("i_i", "threadIdx.x")
    s.blockize("j_i")
    s.blockize("i_i")
    assert s.show().count('thread("threadIdx.x", 0, 4)') == 2
