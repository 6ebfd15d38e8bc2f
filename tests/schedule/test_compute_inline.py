"""compute_inline: an elementwise block's value goes where it is read."""

import pytest

import tilewright.te as te
from tilewright.ir.parse import parse_func
from tilewright.ir.text import print_func
from tilewright.schedule import Schedule
from tilewright.schedule.primitives.compute_inline import compute_inline

BEFORE = """\
def f(A: f32[8, 30], C: f32[8, 32]):
    B = alloc(f32[8, 32], "global")
    for i in serial(0, 8):
        for j in serial(0, 32):
            with block("B"):
                vi = spatial(8, i)
                vj = spatial(32, j)
                reads(A[vi, vj])
                writes(B[vi, vj])
                B[vi, vj] = select(vj < 30, A[vi, vj], 1.0)
    for i_1 in serial(0, 8):
        for j_1 in serial(0, 32):
            with block("C"):
                vi_1 = spatial(8, i_1)
                vj_1 = spatial(32, j_1)
                reads(B[vi_1, vj_1], B[vi_1, 0])
                writes(C[vi_1, vj_1])
                C[vi_1, vj_1] = B[vi_1, vj_1] * 2.0 + B[vi_1, 0]
"""
AFTER = """\
def f(A: f32[8, 30], C: f32[8, 32]):
    for i_1 in serial(0, 8):
        for j_1 in serial(0, 32):
            with block("C"):
                vi_1 = spatial(8, i_1)
                vj_1 = spatial(32, j_1)
                reads(A[vi_1, vj_1], A[vi_1, 0])
                writes(C[vi_1, vj_1])
                C[vi_1, vj_1] = select(vj_1 < 30, A[vi_1, vj_1], 1.0) * 2.0 + A[vi_1, 0]
"""


def test_rewrite(same_result, replays) -> None:
    before = parse_func(BEFORE)
    s = Schedule(before)
    s.compute_inline("B")
    assert print_func(s.func) == AFTER
    same_result(before, s.func)
    replays(before, s)


def test_layouts_are_undone(same_result) -> None:
    """A producer that stores in another layout is inlined through the inverse of its map."""
    A = te.placeholder((3, 24), "f32", "A")
    B = te.compute((3, 2, 16), lambda i, o, j: A[i, te.minimum(o * 16 + j, 23)], name="B")
    P = te.compute((3, 32), lambda i, j: B[i, j // 16, j % 16] + 1.0, name="P")
    C = te.compute((3, 32), lambda i, j: P[i, 31 - j] * 2.0, name="C")
    before = te.func("f", [A], [C])
    s = Schedule(before)
    s.compute_inline("P")
    s.compute_inline("B")
    assert s.blocks() == ("C",)
    same_result(before, s.func)


def test_packed_store_is_inverted(same_result) -> None:
    """The producer's axes are digits of the indices that it stores to."""
    before = parse_func("""\
def f(A: f32[32], C: f32[2, 16]):
    B = alloc(f32[2, 16], "global")
    for c in serial(0, 32):
        with block("B"):
            vc = spatial(32, c)
            reads(A[vc])
            writes(B[vc // 16, vc % 16])
            B[vc // 16, vc % 16] = A[vc] + 1.0
    for o in serial(0, 2):
        for i in serial(0, 16):
            with block("C"):
                vo = spatial(2, o)
                vi = spatial(16, i)
                reads(B[vo, vi])
                writes(C[vo, vi])
                C[vo, vi] = B[vo, vi] * 3.0
""")
    after = compute_inline(before, "B")
    assert "C[vo, vi] = (A[vo * 16 + vi] + 1.0) * 3.0" in print_func(after)
    same_result(before, after)


def test_into_a_reduction_and_its_start(same_result) -> None:
    A = te.placeholder((5, 7), "f32", "A")
    B = te.compute((5, 7), lambda i, j: A[i, j] * 3.0, name="B")
    k = te.reduce_axis(7, "k")
    C = te.compute((5,), lambda i: te.sum(B[i, k], k), name="C")
    before = te.func("f", [A], [C])
    s = Schedule(before)
    s.compute_inline("B")
    same_result(before, s.func)
    assert "alloc" not in s.show()


def test_chain_of_five(same_result, replays) -> None:
    A = te.placeholder((4, 6), "f32", "A")
    T = A
    for n in range(5):
        T = te.compute((4, 6), lambda i, j, T=T, n=n: T[i, j] * 2.0 + n * 1.0, name=f"T{n}")
    before = te.func("f", [A], [T])
    s = Schedule(before)
    for n in (2, 0, 3, 1):
        s.compute_inline(f"T{n}")
    assert s.blocks() == ("T4",)
    same_result(before, s.func)
    replays(before, s)


def test_P1_a_reduction(refused) -> None:
    A = te.placeholder((5, 7), "f32", "A")
    k = te.reduce_axis(7, "k")
    B = te.compute((5,), lambda i: te.sum(A[i, k], k), name="B")
    C = te.compute((5,), lambda i: B[i] * 2.0, name="C")
    refused("P1", compute_inline, te.func("f", [A], [C]), "B")


def test_P1_reads_its_own_result(refused) -> None:
    text = BEFORE.replace("reads(A[vi, vj])", "reads(B[vi, vj])", 1).replace(
        "B[vi, vj] = select(vj < 30, A[vi, vj], 1.0)", "B[vi, vj] = B[vi, vj] + 1.0"
    )
    refused("P1", compute_inline, parse_func(text), "B")


def test_P2_a_result(refused) -> None:
    refused("P2", compute_inline, parse_func(BEFORE), "C")


def test_P2_two_writers(refused) -> None:
    second = """\
    for i_2 in serial(0, 8):
        with block("B2"):
            vi_2 = spatial(8, i_2)
            reads()
            writes(B[vi_2, 0])
            B[vi_2, 0] = 5.0
    for i_1 in serial(0, 8):
"""
    text = BEFORE.replace("    for i_1 in serial(0, 8):\n", second)
    refused("P2", compute_inline, parse_func(text), "B")


@pytest.mark.parametrize("indices", ["vi, vi", "vi // 2, vj", "vi, vj * vj"])
def test_P3_indices_do_not_tell_the_instance(refused, indices) -> None:
    text = BEFORE.replace("writes(B[vi, vj])", f"writes(B[{indices}])").replace(
        "B[vi, vj] =", f"B[{indices}] ="
    )
    refused("P3", compute_inline, parse_func(text), "B")


def test_P4_reader_before(refused) -> None:
    lines = BEFORE.splitlines(keepends=True)
    swapped = lines[:2] + lines[10:] + lines[2:10]
    refused("P4", compute_inline, parse_func("".join(swapped)), "B")


def test_P4_reader_takes_the_address(refused) -> None:
    text = BEFORE.replace(
        "C[vi_1, vj_1] = B[vi_1, vj_1] * 2.0 + B[vi_1, 0]",
        'C[vi_1, vj_1] = call("sum_row", address_of(B[vi_1, 0]), dtype=f32)',
    )
    refused("P4", compute_inline, parse_func(text), "B")


def test_P5_source_is_overwritten(refused) -> None:
    middle = """\
    for i_2 in serial(0, 8):
        with block("A2"):
            vi_2 = spatial(8, i_2)
            reads()
            writes(A[vi_2, 0])
            A[vi_2, 0] = 5.0
    for i_1 in serial(0, 8):
"""
    text = BEFORE.replace("    for i_1 in serial(0, 8):\n", middle)
    refused("P5", compute_inline, parse_func(text), "B")


def test_P4_a_prefetch_names_it(refused) -> None:
    text = BEFORE.replace(
        "    for i_1 in serial(0, 8):\n",
        "    for i_1 in serial(0, 8):\n        prefetch(B[i_1, 0])\n",
    )
    refused("P4", compute_inline, parse_func(text), "B")


def test_P5_source_lives_elsewhere(refused) -> None:
    """A source that belongs to the iterations of a marked loop, and a reader outside of it."""
    A = te.placeholder((6, 4), "f32", "A")
    S = te.compute((6, 4), lambda i, j: A[i, j] * 2.0, name="S")
    B = te.compute((5, 4), lambda i, j: S[i, 3 - j] + S[i + 1, j], name="B")
    C = te.compute((5, 4), lambda i, j: B[i, j] + 1.0, name="C")
    s = Schedule(te.func("f", [A], [C]))
    s.compute_at("S", "i_1")
    s.parallel("i_1")
    refused("P5", compute_inline, s.func, "B")
