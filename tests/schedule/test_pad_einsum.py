"""pad_einsum: axes rounded up so that tiles fit (the docstring's rewrite is a golden)."""

import pytest

import tilewright.te as te
from tilewright.schedule import Schedule
from tilewright.schedule.primitives.pad_einsum import pad_einsum


def matmul(m=5, n=6, depth=7, out=lambda x: x) -> te.Tensor:
    A, B = te.placeholder((m, depth), "f32", "A"), te.placeholder((depth, n), "f32", "B")
    k = te.reduce_axis(depth, "k")
    C = te.compute((m, n), lambda i, j: te.sum(out(A[i, k] * B[k, j]), k), name="C")
    return te.func("f", [A, B], [C])


@pytest.mark.parametrize("multiples", [(4, 4, 4), (1, 8, 1), (5, 3, 7), (8, 1, 2)])
def test_matmul(same_result, replays, multiples) -> None:
    before = matmul()
    s = Schedule(before)
    s.pad_einsum("C", multiples)
    same_result(before, s.func)
    replays(before, s)
    i, j, k = s.loops("C")
    for loop, multiple in zip((i, j, k), multiples, strict=True):
        s.split(loop, multiple)
    body = s.show().split('with block("C"', 1)[1].split("\n", 1)[0]
    assert "where" not in body  # the tiles fit
    same_result(before, s.func)


def test_casts(same_result) -> None:
    A, B = te.placeholder((5, 6), "i8", "A"), te.placeholder((6, 7), "i8", "B")
    k = te.reduce_axis(6, "k")
    C = te.compute(
        (5, 7),
        lambda i, j: te.sum(te.cast(A[i, k], "i32") * te.cast(B[k, j], "i32"), k),
        name="C",
    )
    before = te.func("f", [A, B], [C])
    s = Schedule(before)
    s.pad_einsum("C", (4, 4, 4))
    assert "A_pad = alloc(i8[8, 8]" in s.show()
    same_result(before, s.func)


def test_symbolic_size(same_result) -> None:
    n = te.var("n")
    before = matmul(m=n)
    s = Schedule(before)
    s.pad_einsum("C", (4, 2, 1))
    for size in (1, 4, 7):
        same_result(before, s.func, n=size)


def test_P1_no_sum_of_products(refused) -> None:
    refused("P1", pad_einsum, matmul(out=te.exp), "C", (4, 4, 4))
    A = te.placeholder((5, 6), "f32", "A")
    k = te.reduce_axis(6, "k")
    M = te.compute((5,), lambda i: te.max(A[i, k], k), name="M")
    refused("P1", pad_einsum, te.func("f", [A], [M]), "M", (4, 4))


def test_P2_a_window(refused) -> None:
    A = te.placeholder((8,), "f32", "A")
    k = te.reduce_axis(3, "k")
    C = te.compute((6,), lambda i: te.sum(A[i + k], k), name="C")
    refused("P2", pad_einsum, te.func("f", [A], [C]), "C", (4, 4))


def test_P2_a_part_of_a_dimension(refused) -> None:
    A = te.placeholder((8, 9), "f32", "A")
    k = te.reduce_axis(9, "k")
    C = te.compute((6,), lambda i: te.sum(A[i, k], k), name="C")
    refused("P2", pad_einsum, te.func("f", [A], [C]), "C", (4, 4))


@pytest.mark.parametrize("multiples", [(4, 4), (4, 4, 0), (4, 4, 4, 4)])
def test_P3_multiples(refused, multiples) -> None:
    refused("P3", pad_einsum, matmul(), "C", multiples)


def test_P4_split_loops(refused) -> None:
    s = Schedule(matmul())
    s.split("i", 2)
    refused("P4", pad_einsum, s.func, "C", (4, 4, 4))


def test_P4_marked_loops(refused) -> None:
    s = Schedule(matmul())
    s.parallel("i")
    refused("P4", pad_einsum, s.func, "C", (4, 4, 4))
