"""reverse_compute_at: a producer's values are used where they are made."""

import pytest

import tilewright.te as te
from tilewright.ir.parse import parse_func
from tilewright.ir.text import print_func
from tilewright.schedule import Schedule
from tilewright.schedule.primitives.reverse_compute_at import reverse_compute_at

BEFORE = """\
def f(A: f32[8], C: f32[8]):
    B = alloc(f32[8], "global")
    for i_o in serial(0, 2):
        for i_i in serial(0, 4):
            with block("B"):
                vi = spatial(8, i_o * 4 + i_i)
                reads(A[vi])
                writes(B[vi])
                B[vi] = A[vi] + 1.0
    for j in serial(0, 8):
        with block("C"):
            vj = spatial(8, j)
            reads(B[vj])
            writes(C[vj])
            C[vj] = B[vj] * 2.0
"""
AFTER = """\
def f(A: f32[8], C: f32[8]):
    B = alloc(f32[8], "global")
    for i_o in serial(0, 2):
        for i_i in serial(0, 4):
            with block("B"):
                vi = spatial(8, i_o * 4 + i_i)
                reads(A[vi])
                writes(B[vi])
                B[vi] = A[vi] + 1.0
        for j in serial(0, 4):
            with block("C"):
                vj = spatial(8, i_o * 4 + j)
                reads(B[vj])
                writes(C[vj])
                C[vj] = B[vj] * 2.0
"""


def matmul(m: int = 10, n: int = 12) -> te.Tensor:
    A, B = te.placeholder((m, 8), "f32", "A"), te.placeholder((8, n), "f32", "B")
    k = te.reduce_axis(8, "k")
    C = te.compute((m, n), lambda i, j: te.sum(A[i, k] * B[k, j], k), name="C")
    return te.func("f", [A, B], [C])


def test_rewrite(same_result, replays) -> None:
    before = parse_func(BEFORE)
    s = Schedule(before)
    assert s.reverse_compute_at("C", "i_o") == ("j",)
    assert print_func(s.func) == AFTER
    same_result(before, s.func)
    replays(before, s)


@pytest.mark.parametrize("at", ["i_o", "j_o"])
@pytest.mark.parametrize(("m", "n"), [(10, 12), (8, 8), (7, 9)])
def test_tile_is_copied_out(same_result, replays, m, n, at) -> None:
    """The register tile of a matmul: accumulated in `local`, copied when its reduction is done."""
    before = matmul(m, n)
    s = Schedule(before)
    copy = s.cache_write("C", "C", "local")
    i_o, i_i = s.split("i", 4)
    j_o, j_i = s.split("j", 8)
    s.reorder(i_o, j_o, "k", i_i, j_i)
    names = s.reverse_compute_at(copy, at)
    assert s.loops(copy)[:1] == ("i_o",)
    assert len(names) == 2
    same_result(before, s.func)
    replays(before, s)


def test_rows_are_summed_where_they_are_made(same_result) -> None:
    """A consumer that reduces moves in where all that it reduces is there."""
    A = te.placeholder((6, 9), "f32", "A")
    B = te.compute((6, 9), lambda i, j: A[i, j] * 2.0, name="B")
    k = te.reduce_axis(9, "k")
    C = te.compute((6,), lambda y: te.sum(B[y, k], k), name="C")
    before = te.func("f", [A], [C])
    s = Schedule(before)
    s.reverse_compute_at("C", "i")
    same_result(before, s.func)


def test_broadcasting_reader(same_result) -> None:
    """Axes that the operand does not know run in whole in each iteration."""
    A, E = te.placeholder((6,), "f32", "A"), te.placeholder((6, 5), "f32", "E")
    B = te.compute((6,), lambda i: A[i] * 2.0, name="B")
    C = te.compute((6, 5), lambda y, x: B[y] + E[y, x], name="C")
    before = te.func("f", [A, E], [C])
    s = Schedule(before)
    assert s.reverse_compute_at("C", "i") == ("x",)
    same_result(before, s.func)


def test_two_operands_of_one_loop(same_result) -> None:
    A = te.placeholder((6, 4), "f32", "A")
    B = te.compute((6, 4), lambda i, j: A[i, j] * 2.0, name="B")
    C = te.compute((6, 4), lambda i, j: B[i, j] + 1.0, name="C")
    D = te.compute((6, 4), lambda i, j: B[i, j] * C[i, j], name="D")
    before = te.func("f", [A], [D])
    s = Schedule(before)
    s.reverse_compute_at("C", "i")
    s.reverse_compute_at("D", "i")
    assert s.loops("D")[0] == "i"
    same_result(before, s.func)


def test_other_layout(same_result) -> None:
    """What is made in packed blocks is unpacked block by block."""
    A = te.placeholder((30, 5), "f32", "A")
    P = te.compute((2, 5, 16), lambda o, x, i: A[te.minimum(o * 16 + i, 29), x], name="P")
    C = te.compute((30, 5), lambda c, x: P[c // 16, x, c % 16] * 2.0, name="C")
    before = te.func("f", [A], [C])
    for at in ("o", "x"):
        s = Schedule(before)
        s.reverse_compute_at("C", at)
        same_result(before, s.func)


def test_P1_loop_after_the_block(refused) -> None:
    refused("P1", reverse_compute_at, parse_func(BEFORE), "B", "j")


def test_P1_loop_around_the_block(refused) -> None:
    refused("P1", reverse_compute_at, parse_func(BEFORE), "C", "j")


def test_P2_reads_nothing_of_the_loop(refused) -> None:
    text = BEFORE.replace("reads(B[vj])", "reads(A[vj])").replace("= B[vj] * 2.0", "= A[vj] * 2.0")
    refused("P2", reverse_compute_at, parse_func(text), "C", "i_o")


def test_P2_several_elements(refused) -> None:
    text = BEFORE.replace("reads(B[vj])", "reads(B[vj], B[7 - vj])")
    text = text.replace("B[vj] * 2.0", "B[vj] * B[7 - vj]")
    refused("P2", reverse_compute_at, parse_func(text), "C", "i_o")


def test_P2_reads_outside_of_the_buffer(refused) -> None:
    """Padding: the border's instances read no element that any iteration makes."""
    text = BEFORE.replace("reads(B[vj])", "reads(B[vj - 1])")
    text = text.replace("B[vj] * 2.0", "select(vj >= 1, B[vj - 1], 0.0)")
    refused("P2", reverse_compute_at, parse_func(text), "C", "i_o")


def test_P2_instances_left_out(refused) -> None:
    text = BEFORE.replace('with block("C")', 'with block("C", where=j < 5)')
    refused("P2", reverse_compute_at, parse_func(text), "C", "i_o")


def test_P2_loops_leave_instances_out(refused) -> None:
    text = BEFORE.replace("for j in serial(0, 8)", "for j in serial(2, 8)")
    refused("P2", reverse_compute_at, parse_func(text), "C", "i_o")


def test_P3_reduction_goes_on_outside(refused) -> None:
    s = Schedule(matmul())
    copy = s.cache_write("C", "C", "local")
    refused("P3", reverse_compute_at, s.func, copy, "k")


def test_P3_no_rectangle(refused) -> None:
    """Fused rows and columns cut in parts."""
    A = te.placeholder((6, 7), "f32", "A")
    B = te.compute((6, 7), lambda i, j: A[i, j] * 2.0, name="B")
    C = te.compute((6, 7), lambda y, x: B[y, x] + 1.0, name="C")
    s = Schedule(te.func("f", [A], [C]))
    outer, _ = s.split(s.fuse("i", "j"), 8)
    refused("P3", reverse_compute_at, s.func, "C", outer)


def test_P3_made_outside_too(refused) -> None:
    more = """\
    for z in serial(0, 8):
        with block("D"):
            vz = spatial(8, z)
            reads()
            writes(B[vz])
            B[vz] = 4.0
    for i_o in serial(0, 2):
"""
    text = BEFORE.replace("    for i_o in serial(0, 2):\n", more)
    refused("P3", reverse_compute_at, parse_func(text), "C", "i_o")


def test_P4_parts_of_operands_differ(refused) -> None:
    A = te.placeholder((6, 6), "f32", "A")
    B = te.compute((6, 6), lambda i, j: A[i, j] * 2.0, name="B")
    C = te.compute((6, 6), lambda i, j: B[i, j] + 1.0, name="C")
    D = te.compute((6, 6), lambda y, x: B[y, x] * C[x, y], name="D")
    s = Schedule(te.func("f", [A], [D]))
    s.reverse_compute_at("C", "i")
    refused("P4", reverse_compute_at, s.func, "D", "i")


def test_P4_reduces_a_part_only(refused) -> None:
    A = te.placeholder((6, 9), "f32", "A")
    B = te.compute((6, 9), lambda i, j: A[i, j] * 2.0, name="B")
    k = te.reduce_axis(6, "k")
    C = te.compute((9,), lambda x: te.sum(B[k, x], k), name="C")
    s = Schedule(te.func("f", [A], [C]))
    refused("P4", reverse_compute_at, s.func, "C", "i")


def test_P5_something_stands_between(refused) -> None:
    more = """\
    for z in serial(0, 8):
        with block("D"):
            vz = spatial(8, z)
            reads()
            writes(C[vz])
            C[vz] = 4.0
    for j in serial(0, 8):
"""
    text = BEFORE.replace("    for j in serial(0, 8):\n", more)
    refused("P5", reverse_compute_at, parse_func(text), "C", "i_o")


def test_P5_producer_reads_what_it_writes(refused) -> None:
    text = BEFORE.replace("A: f32[8], ", "").replace("reads(A[vi])", "reads(C[7 - vi])")
    text = text.replace("A[vi] + 1.0", "C[7 - vi] + 1.0")
    refused("P5", reverse_compute_at, parse_func(text), "C", "i_o")


def test_P6_leaves_its_step(refused) -> None:
    text = """\
def f(A: f32[8], C: f32[4, 8]):
    B = alloc(f32[8], "global")
    for i in serial(0, 8):
        with block("B"):
            vi = spatial(8, i)
            reads(A[vi])
            writes(B[vi])
            B[vi] = A[vi]
    for t in serial(0, 4):
        for j in serial(0, 8):
            with block("C"):
                vt = ordered(4, t)
                vj = spatial(8, j)
                reads(B[vj])
                writes(C[vt, vj])
                C[vt, vj] = B[vj]
"""
    refused("P6", reverse_compute_at, parse_func(text), "C", "i")


def test_P7_marked_loop(refused) -> None:
    """Rows that threads make in parts are summed by one of them only."""
    A = te.placeholder((6, 4), "f32", "A")
    B = te.compute((6, 4), lambda i, j: A[i, j] * 2.0, name="B")
    C = te.compute((4,), lambda x: B[0, x] * 2.0, name="C")
    s = Schedule(te.func("f", [A], [C]))
    s.split("i", (3, 2))
    s.bind("i_i", "threadIdx.x")
    refused("P7", reverse_compute_at, s.func, "C", "i_o")


def test_an_ordered_axis_keeps_its_guard(same_result) -> None:
    X, H0 = te.placeholder((5, 4), "f32", "X"), te.placeholder((4,), "f32", "H0")

    def step(t, state):
        y = te.compute((4,), lambda i: state[i] * 2.0, name="y")
        return te.compute((4,), lambda i: X[t, i] + y[i], name="h")

    H = te.scan(step, H0, 5, name="H")
    before = te.func("f", [X, H0], [H])
    s = Schedule(before)
    time = s.loops("y")[0]
    s.split(time, 3)
    s.reverse_compute_at("h", s.loops("y")[-1])
    same_result(before, s.func)


def test_P4_a_window_is_made_row_by_row(refused) -> None:
    A = te.placeholder((8,), "f32", "A")
    B = te.compute((8,), lambda i: A[i] * 2.0, name="B")
    k = te.reduce_axis(3, "k")
    C = te.compute((6,), lambda y: te.sum(B[y + k], k), name="C")
    s = Schedule(te.func("f", [A], [C]))
    s.split("i", 2)
    refused("P4", reverse_compute_at, s.func, "C", "i_o")


@pytest.mark.parametrize("size", [24, 40, 23])
def test_whole_tiles_that_the_last_block_leaves_out(same_result, replays, size) -> None:
    """The guard is of tiles' numbers alone, where tiles divide the axis and blocks do not."""
    x = te.placeholder((size,), "f32", "x")
    b = te.compute((size,), lambda i: x[i] + 1.0, name="B")
    func = te.func("f", [x], [te.compute((size,), lambda i: b[i] * 2.0, name="C")])
    s = Schedule(func)
    _, tile, _ = s.split(*s.loops("B"), [None, 2, 8])
    s.reverse_compute_at("C", tile)
    same_result(func, s.func)
    replays(func, s)


def test_P3_a_guard_that_leaves_out_what_is_read(refused) -> None:
    """Of tiles' numbers too, but of one that lies in the axis."""
    text = BEFORE.replace('block("B")', 'block("B", where=i_o < 1)')
    refused("P3", reverse_compute_at, parse_func(text), "C", "i_o")
