"""reverse_compute_inline: the block that makes a value also does what follows."""

import tilewright.te as te
from tilewright.ir.parse import parse_func
from tilewright.ir.text import print_func
from tilewright.schedule import Schedule
from tilewright.schedule.primitives.reverse_compute_inline import reverse_compute_inline

BEFORE = """\
def f(A: f32[8, 30], C: f32[30, 8]):
    B = alloc(f32[8, 2, 16], "global")
    for i in serial(0, 8):
        for o in serial(0, 2):
            for j in serial(0, 16):
                with block("B"):
                    vi = spatial(8, i)
                    vo = spatial(2, o)
                    vj = spatial(16, j)
                    reads(A[vi, min(vo * 16 + vj, 29)])
                    writes(B[vi, vo, vj])
                    B[vi, vo, vj] = A[vi, min(vo * 16 + vj, 29)] + 1.0
    for y in serial(0, 30):
        for x in serial(0, 8):
            with block("C"):
                vy = spatial(30, y)
                vx = spatial(8, x)
                reads(B[vx, vy // 16, vy % 16])
                writes(C[vy, vx])
                C[vy, vx] = max(B[vx, vy // 16, vy % 16], 0.0)
"""
AFTER = """\
def f(A: f32[8, 30], C: f32[30, 8]):
    for i in serial(0, 8):
        for o in serial(0, 2):
            for j in serial(0, 16):
                with block("B", where=o * 16 + j < 30):
                    vi = spatial(8, i)
                    vo = spatial(2, o)
                    vj = spatial(16, j)
                    reads(A[vi, min(vo * 16 + vj, 29)])
                    writes(C[vo * 16 + vj, vi])
                    C[vo * 16 + vj, vi] = max(A[vi, min(vo * 16 + vj, 29)] + 1.0, 0.0)
"""
SECOND_READER = """\
    for z in serial(0, 8):
        with block("D"):
            vz = spatial(8, z)
            reads(B[vz, 0, 0])
            writes(A[vz, 0])
            A[vz, 0] = B[vz, 0, 0]
"""


def test_rewrite(same_result, replays) -> None:
    before = parse_func(BEFORE)
    s = Schedule(before)
    s.reverse_compute_inline("C")
    assert print_func(s.func) == AFTER
    same_result(before, s.func)
    replays(before, s)


def test_slice_is_guarded(same_result) -> None:
    """A reader of a part of the buffer, with an offset, guards the producer's instances."""
    A = te.placeholder((12,), "f32", "A")
    B = te.compute((12,), lambda i: A[i] * 2.0, name="B")
    C = te.compute((7,), lambda i: B[i + 3] + 1.0, name="C")
    before = te.func("f", [A], [C])
    after = reverse_compute_inline(before, "C")
    assert 'with block("B", where=i >= 3 and i < 10)' in print_func(after)
    same_result(before, after)


def test_one_plane_is_guarded(same_result) -> None:
    A = te.placeholder((4, 6), "f32", "A")
    B = te.compute((4, 6), lambda i, j: A[i, j] * 2.0, name="B")
    C = te.compute((6,), lambda j: B[2, j] + 1.0, name="C")
    before = te.func("f", [A], [C])
    after = reverse_compute_inline(before, "C")
    assert 'with block("B", where=i == 2)' in print_func(after)
    same_result(before, after)


def test_epilogue_of_a_copied_reduction(same_result, replays) -> None:
    """What strategies do: accumulate in a local buffer, fuse bias and relu into the copy."""
    A, B = te.placeholder((6, 8), "f32", "A"), te.placeholder((8, 10), "f32", "B")
    bias = te.placeholder((10,), "f32", "bias")
    k = te.reduce_axis(8, "k")
    M = te.compute((6, 10), lambda i, j: te.sum(A[i, k] * B[k, j], k), name="M")
    N = te.compute((6, 10), lambda i, j: M[i, j] + bias[j], name="N")
    R = te.compute((6, 10), lambda i, j: te.maximum(N[i, j], 0.0), name="R")
    before = te.func("f", [A, B, bias], [R])
    s = Schedule(before)
    copy = s.cache_write("M", "M", "local")
    s.reverse_compute_inline("N")
    s.reverse_compute_inline("R")
    assert s.blocks() == ("M", copy)
    same_result(before, s.func)
    replays(before, s)


def test_P1_a_reduction(refused) -> None:
    A = te.placeholder((5, 7), "f32", "A")
    B = te.compute((5, 7), lambda i, j: A[i, j] * 2.0, name="B")
    k = te.reduce_axis(7, "k")
    C = te.compute((5,), lambda i: te.sum(B[i, k], k), name="C")
    refused("P1", reverse_compute_inline, te.func("f", [A], [C]), "C")


def test_P1_reads_its_own_result(refused) -> None:
    text = BEFORE.replace("reads(B[vx, vy // 16, vy % 16])", "reads(C[vy, vx])").replace(
        "max(B[vx, vy // 16, vy % 16], 0.0)", "max(C[vy, vx], 0.0)"
    )
    refused("P1", reverse_compute_inline, parse_func(text), "C")


def test_P2_reads_no_intermediate(refused) -> None:
    refused("P2", reverse_compute_inline, parse_func(BEFORE), "B")


def test_P2_another_reader(refused) -> None:
    refused("P2", reverse_compute_inline, parse_func(BEFORE + SECOND_READER), "C")


def test_P2_two_elements(refused) -> None:
    text = BEFORE.replace("reads(B[vx, vy // 16, vy % 16])", "reads(B[vx, 0, 0], B[vx, 0, 1])")
    text = text.replace("max(B[vx, vy // 16, vy % 16], 0.0)", "max(B[vx, 0, 0], B[vx, 0, 1])")
    refused("P2", reverse_compute_inline, parse_func(text), "C")


def test_P3_read_several_times(refused) -> None:
    """A broadcast: the element does not say which of the rows reads it."""
    A = te.placeholder((7,), "f32", "A")
    B = te.compute((7,), lambda j: A[j] * 2.0, name="B")
    C = te.compute((5, 7), lambda i, j: B[j] + 1.0, name="C")
    refused("P3", reverse_compute_inline, te.func("f", [A], [C]), "C")


def test_P3_instances_left_out(refused) -> None:
    text = BEFORE.replace('with block("C"):', 'with block("C", where=y < 17):')
    refused("P3", reverse_compute_inline, parse_func(text), "C")


def test_a_split_guard_leaves_nothing_out(same_result) -> None:
    s = Schedule(parse_func(BEFORE))
    s.split("y", 7)
    before = s.func
    s.reverse_compute_inline("C")
    assert s.blocks() == ("B",)
    same_result(before, s.func)


def test_P4_reduction_is_incomplete(refused) -> None:
    A = te.placeholder((5, 7), "f32", "A")
    k = te.reduce_axis(7, "k")
    B = te.compute((5,), lambda i: te.sum(A[i, k], k), name="B")
    C = te.compute((5,), lambda i: B[i] * 2.0, name="C")
    error = refused("P4", reverse_compute_inline, te.func("f", [A], [C]), "C")
    assert "s.cache_write('B', 'B', 'local')" in error.remedy


def test_P5_something_stands_between(refused) -> None:
    between = """\
    for z in serial(0, 8):
        with block("D"):
            vz = spatial(8, z)
            reads()
            writes(C[0, vz])
            C[0, vz] = 4.0
    for y in serial(0, 30):
"""
    text = BEFORE.replace("    for y in serial(0, 30):\n", between)
    refused("P5", reverse_compute_inline, parse_func(text), "C")


def test_P5_producer_reads_what_it_writes(refused) -> None:
    text = BEFORE.replace("A: f32[8, 30], C: f32[30, 8]", "C: f32[30, 8]")
    text = text.replace("reads(A[vi, min(vo * 16 + vj, 29)])", "reads(C[vi, 0])")
    text = text.replace("= A[vi, min(vo * 16 + vj, 29)] + 1.0", "= C[vi, 0] + 1.0")
    refused("P5", reverse_compute_inline, parse_func(text), "C")


def test_P3_reads_outside_of_the_buffer(refused) -> None:
    """Padding: the border's instances read no element that the producer makes."""
    A = te.placeholder((7,), "f32", "A")
    B = te.compute((7,), lambda i: A[i] * 2.0, name="B")
    C = te.compute((9,), lambda i: te.if_then_else((i >= 1) & (i < 8), B[i - 1], 0.0), name="C")
    refused("P3", reverse_compute_inline, te.func("f", [A], [C]), "C")


def test_P2_a_prefetch_names_it(refused) -> None:
    text = BEFORE.replace(
        "    for y in serial(0, 30):\n",
        "    for y in serial(0, 30):\n        prefetch(B[0, 0, 0])\n",
    )
    refused("P2", reverse_compute_inline, parse_func(text), "C")


def test_P5_result_lives_elsewhere(refused) -> None:
    """The result belongs to the iterations of a marked loop, in which the producer is not."""
    A = te.placeholder((6,), "f32", "A")
    B = te.compute((6,), lambda i: A[i] * 2.0, name="B")
    C = te.compute((6,), lambda i: B[i] + 1.0, name="C")
    D = te.compute((5,), lambda y: C[y] + C[y + 1], name="D")
    s = Schedule(te.func("f", [A], [D]))
    s.compute_at("C", "y")
    s.parallel("y")
    refused("P5", reverse_compute_inline, s.func, "C")
