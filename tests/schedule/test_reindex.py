"""reindex: an operand whose dimensions are the block's axes; the docstring shows a golden."""

import tilewright.te as te
from tilewright.ir.parse import parse_func
from tilewright.ir.text import print_func
from tilewright.schedule import Schedule
from tilewright.schedule.primitives.reindex import reindex


def conv(stride: int = 1) -> te.Tensor:
    A, W = te.placeholder((2, 9, 9), "f32", "A"), te.placeholder((3, 2, 3, 3), "f32", "W")
    c, ky, kx = te.reduce_axis(2, "c"), te.reduce_axis(3, "ky"), te.reduce_axis(3, "kx")
    out = (9 - 3) // stride + 1
    C = te.compute(
        (3, out, out),
        lambda o, y, x: te.sum(
            A[c, y * stride + ky, x * stride + kx] * W[o, c, ky, kx], (c, ky, kx)
        ),
        name="C",
    )
    return te.func("f", [A, W], [C])


def shuffled() -> te.Tensor:
    A = te.placeholder((4, 6), "f32", "A")
    k = te.reduce_axis(6, "k")
    C = te.compute((2, 2), lambda i, j: te.sum(A[i * 2 + j, k], k), name="C")
    return te.func("f", [A], [C])


def test_patches_of_a_convolution(same_result, replays) -> None:
    for stride in (1, 2):
        before = conv(stride)
        s = Schedule(before)
        assert s.reindex("C", "A") == "A_reindex"
        s.reindex("C", "W")
        same_result(before, s.func)
        replays(before, s)


def test_result(same_result) -> None:
    before = parse_func("""\
def f(A: f32[3, 8], C: f32[8, 3]):
    for i in serial(0, 3):
        for j in serial(0, 8):
            with block("C"):
                vi = spatial(3, i)
                vj = spatial(8, j)
                reads(A[vi, vj])
                writes(C[7 - vj, vi])
                C[7 - vj, vi] = A[vi, vj] + 1.0
""")
    s = Schedule(before)
    s.reindex("C", "C")
    assert "C_reindex[vi, vj] = A[vi, vj] + 1.0" in s.show()
    assert s.blocks() == ("C", "C_reindex")
    same_result(before, s.func)


def test_result_of_a_reduction(same_result) -> None:
    before = shuffled()
    s = Schedule(before)
    s.reindex("C", "C")
    s.reindex("C", "A")
    assert "C_reindex[vi, vj] + A_reindex[vi, vj, vk]" in s.show()
    same_result(before, s.func)


def test_P1_not_touched(refused) -> None:
    refused("P1", reindex, conv(), "C", "B")


def test_P1_two_elements(refused) -> None:
    A = te.placeholder((6,), "f32", "A")
    B = te.compute((5,), lambda i: A[i] + A[i + 1], name="B")
    refused("P1", reindex, te.func("f", [A], [B]), "B", "A")


def test_P2_elements_outside(refused) -> None:
    A = te.placeholder((6,), "f32", "A")
    B = te.compute((7,), lambda i: te.if_then_else(i >= 1, A[i - 1], 0.0), name="B")
    refused("P2", reindex, te.func("f", [A], [B]), "B", "A")


def test_P2_guard(refused) -> None:
    text = print_func(conv()).replace('block("C")', 'block("C", where=y < 4)')
    refused("P2", reindex, parse_func(text), "C", "A")


def test_P3_shared_loops(refused) -> None:
    A = te.placeholder((6, 4), "f32", "A")
    B = te.compute((6, 4), lambda i, j: A[i, j] * 2.0, name="B")
    C = te.compute((6, 4), lambda y, x: B[y, 3 - x] + 1.0, name="C")
    s = Schedule(te.func("f", [A], [C]))
    s.compute_at("B", "y")
    refused("P3", reindex, s.func, "C", "B")


def test_P3_another_writer(refused) -> None:
    s = Schedule(shuffled())
    s.decompose_reduction("C", "i")
    refused("P3", reindex, s.func, "C", "C")


def test_P4_element_does_not_tell(refused) -> None:
    text = """\
def f(A: f32[4, 6], C: f32[4]):
    for i in serial(0, 4):
        for j in serial(0, 6):
            with block("C"):
                vi = spatial(4, i)
                vj = spatial(6, j)
                reads(A[vi, vj])
                writes(C[vi])
                C[vi] = A[vi, vj]
"""
    refused("P4", reindex, parse_func(text), "C", "C")


def test_P1_holds_a_block(refused) -> None:
    A, B = te.placeholder((4, 6), name="A"), te.placeholder((6,), name="B")
    k = te.reduce_axis(6, "k")
    C = te.compute((4,), lambda i: te.sum(A[i, k] * B[k], k), name="C")
    s = Schedule(te.func("f", [A, B], [C]))
    s.blockize("k")
    refused("P1", s.reindex, "C_o", "C")
