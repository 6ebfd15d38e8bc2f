"""transform_block_layout: a block over other axes."""

import pytest

import tilewright.te as te
from tilewright.ir.parse import parse_func
from tilewright.ir.text import print_func
from tilewright.schedule import Schedule
from tilewright.schedule.primitives.transform_block_layout import transform_block_layout

BEFORE = """\
def f(A: f32[8, 4], C: f32[8, 4]):
    for i in serial(0, 8):
        for j in serial(0, 4):
            with block("C"):
                vi = spatial(8, i)
                vj = spatial(4, j)
                reads(A[vi, 3 - vj])
                writes(C[vi, vj])
                C[vi, vj] = A[vi, 3 - vj] * 2.0
"""
AFTER = """\
def f(A: f32[8, 4], C: f32[8, 4]):
    for i_j_f in serial(0, 32):
        with block("C"):
            vi_j_f = spatial(32, i_j_f)
            reads(A[vi_j_f // 4, 3 - vi_j_f % 4])
            writes(C[vi_j_f // 4, vi_j_f % 4])
            C[vi_j_f // 4, vi_j_f % 4] = A[vi_j_f // 4, 3 - vi_j_f % 4] * 2.0
"""


def matmul() -> te.Tensor:
    A, B = te.placeholder((5, 7), "f32", "A"), te.placeholder((7, 6), "f32", "B")
    k = te.reduce_axis(7, "k")
    C = te.compute((5, 6), lambda i, j: te.sum(A[i, k] * B[k, j], k), name="C")
    return te.func("f", [A, B], [C])


def test_rewrite(same_result, replays) -> None:
    before = parse_func(BEFORE)
    s = Schedule(before)
    assert s.transform_block_layout("C", "lambda i, j: (i * 4 + j,)") == ("i_j_f",)
    assert print_func(s.func) == AFTER
    same_result(before, s.func)
    replays(before, s)


@pytest.mark.parametrize(
    "mapping",
    [
        "lambda i, j, k: (j, i, k)",
        "lambda i, j, k: (i // 2, j // 3, k, i % 2, j % 3)",
        "lambda i, j, k: (i * 6 + j, k // 2, k % 2)",
        "lambda i, j, k: (k // 4, i, j // 4, k % 4, j % 4)",
    ],
)
def test_reductions_and_padding(same_result, replays, mapping) -> None:
    before = matmul()
    s = Schedule(before)
    s.transform_block_layout("C", mapping)
    same_result(before, s.func)
    replays(before, s)


def test_names_of_the_parts() -> None:
    s = Schedule(matmul())
    loops = s.transform_block_layout("C", "lambda i, j, k: (i // 2, j // 3, k, i % 2, j % 3)")
    assert loops == ("i_o", "j_o", "k", "i_i", "j_i")


def test_P1_shared_loops(refused) -> None:
    A = te.placeholder((5, 7), "f32", "A")
    B = te.compute((5, 7), lambda i, j: A[i, j] * 2.0, name="B")
    C = te.compute((5, 7), lambda y, x: B[y, 6 - x] + 1.0, name="C")
    s = Schedule(te.func("f", [A], [C]))
    s.compute_at("B", "y")
    refused("P1", transform_block_layout, s.func, "B", "lambda i, j: (j, i)")


def test_P1_marked_loops(refused) -> None:
    s = Schedule(matmul())
    s.parallel("i")
    refused("P1", transform_block_layout, s.func, "C", "lambda i, j, k: (j, i, k)")


def test_P1_guard(refused) -> None:
    text = BEFORE.replace('with block("C")', 'with block("C", where=i < 5)')
    refused("P1", transform_block_layout, parse_func(text), "C", "lambda i, j: (j, i)")


def test_P2_not_invertible(refused) -> None:
    refused("P2", transform_block_layout, matmul(), "C", "lambda i, j, k: (i + j, k)")


def test_P3_mixed_axes(refused) -> None:
    refused("P3", transform_block_layout, matmul(), "C", "lambda i, j, k: (i, j * 7 + k)")
