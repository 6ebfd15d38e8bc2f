"""compute_at: a producer's values are made where they are needed."""

import pytest

import tilewright.te as te
from tilewright.ir.parse import parse_func
from tilewright.ir.text import print_func
from tilewright.schedule import Schedule
from tilewright.schedule.primitives.compute_at import compute_at

BEFORE = """\
def f(A: f32[8], C: f32[6]):
    B = alloc(f32[8], "global")
    for i in serial(0, 8):
        with block("B"):
            vi = spatial(8, i)
            reads(A[vi])
            writes(B[vi])
            B[vi] = A[vi] * 2.0
    for y in serial(0, 6):
        for k in serial(0, 3):
            with block("C"):
                vy = spatial(6, y)
                vk = reduce(3, k)
                reads(B[vy + vk])
                writes(C[vy])
                with init():
                    C[vy] = 0.0
                C[vy] = C[vy] + B[vy + vk]
"""
AFTER = """\
def f(A: f32[8], C: f32[6]):
    B = alloc(f32[8], "global")
    for y in serial(0, 6):
        for i in serial(0, 3):
            with block("B"):
                vi = spatial(8, y + i)
                reads(A[vi])
                writes(B[vi])
                B[vi] = A[vi] * 2.0
        for k in serial(0, 3):
            with block("C"):
                vy = spatial(6, y)
                vk = reduce(3, k)
                reads(B[vy + vk])
                writes(C[vy])
                with init():
                    C[vy] = 0.0
                C[vy] = C[vy] + B[vy + vk]
"""
BETWEEN = """\
    for z in serial(0, 8):
        with block("D"):
            vz = spatial(8, z)
            reads()
            writes(ELEMENT)
            ELEMENT = 4.0
    for y in serial(0, 6):
"""


def between(element: str) -> str:
    return BEFORE.replace("    for y in serial(0, 6):\n", BETWEEN.replace("ELEMENT", element))


def conv(stride: int = 1, size: int = 9) -> te.Tensor:
    """A padded 3×3 convolution of a size that tiles do not divide."""
    A = te.placeholder((2, size, size), "f32", "A")
    W = te.placeholder((3, 2, 3, 3), "f32", "W")
    P = te.compute(
        (2, size + 2, size + 2),
        lambda c, y, x: te.if_then_else(
            (y >= 1) & (y < size + 1) & (x >= 1) & (x < size + 1), A[c, y - 1, x - 1], 0.0
        ),
        name="pad",
    )
    c, ky, kx = te.reduce_axis(2, "ci"), te.reduce_axis(3, "ky"), te.reduce_axis(3, "kx")
    out = (size - 1) // stride + 1
    C = te.compute(
        (3, out, out),
        lambda co, h, w: te.sum(
            P[c, h * stride + ky, w * stride + kx] * W[co, c, ky, kx], (c, ky, kx)
        ),
        name="conv",
    )
    return te.func("f", [A, W], [C])


def test_rewrite(same_result, replays) -> None:
    before = parse_func(BEFORE)
    s = Schedule(before)
    assert s.compute_at("B", "y") == ("i",)
    assert print_func(s.func) == AFTER
    same_result(before, s.func)
    replays(before, s)


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("at", ["co", "h_o", "w_o", "h_i", "w_i"])
def test_padded_tile_of_a_convolution(same_result, replays, stride, at) -> None:
    """The tile that another needs, guarded at the border, at every loop where it can be made."""
    before = conv(stride)
    s = Schedule(before)
    h_o, h_i = s.split("h", 4)
    w_o, w_i = s.split("w", 2)
    s.reorder(h_o, w_o, h_i, w_i)
    s.compute_at("pad", at)
    same_result(before, s.func)
    replays(before, s)


def test_the_tile_has_the_least_extent() -> None:
    s = Schedule(conv())
    h_o, _ = s.split("h", 4)
    names = s.compute_at("pad", h_o)
    text = s.show()
    assert f"for {names[1]} in serial(0, 6)" in text  # 4 rows and two more
    assert f"for {names[2]} in serial(0, 11)" in text


def test_a_reduction_is_made_in_whole(same_result) -> None:
    """A softmax's row maximum and sum move into the loop over rows."""
    A = te.placeholder((5, 7), "f32", "A")
    k, m = te.reduce_axis(7, "k"), te.reduce_axis(7, "m")
    top = te.compute((5,), lambda i: te.max(A[i, k], k), name="top")
    gap = te.compute((5, 7), lambda i, j: A[i, j] - top[i], name="gap")
    total = te.compute((5,), lambda i: te.sum(gap[i, m], m), name="total")
    out = te.compute((5, 7), lambda i, j: gap[i, j] * total[i], name="out")
    before = te.func("f", [A], [out])
    s = Schedule(before)
    row = s.loops("out")[0]
    s.compute_at("total", row)
    s.compute_at("gap", row)
    s.compute_at("top", row)
    assert s.blocks() == ("top", "gap", "total", "out")
    assert all(s.loops(b)[0] == row for b in s.blocks())
    same_result(before, s.func)


def test_chain_moves_deeper(same_result, replays) -> None:
    """A block that was moved can be moved again, further in."""
    A = te.placeholder((6, 10), "f32", "A")
    B = te.compute((6, 10), lambda i, j: A[i, j] * 2.0, name="B")
    C = te.compute((6, 10), lambda i, j: B[i, 9 - j] + 1.0, name="C")
    D = te.compute((6, 8), lambda y, x: C[y, x] + C[y, x + 2], name="D")
    before = te.func("f", [A], [D])
    s = Schedule(before)
    s.compute_at("C", "y")
    s.compute_at("B", "y")
    assert s.loops("B")[0] == "y"
    s.compute_at("C", "x")
    s.compute_at("B", "x")
    same_result(before, s.func)
    replays(before, s)


def test_packed_producer(same_result) -> None:
    """A producer with digits in its store's indices makes just the blocks that are read."""
    A = te.placeholder((32, 5), "f32", "A")
    P = te.compute((2, 5, 16), lambda o, x, i: A[o * 16 + i, x] + 1.0, name="P")
    C = te.compute((32, 5), lambda c, x: P[c // 16, x, c % 16] * 2.0, name="C")
    before = te.func("f", [A], [C])
    s = Schedule(before)
    c_o, _ = s.split("c", 16)
    names = s.compute_at("P", c_o)
    assert len(names) == 2  # one block of channels: no loop over blocks
    same_result(before, s.func)


def test_shared_memory_serves_all_threads() -> None:
    """A copy in shared memory at a loop of threads is of the part that all its threads need."""
    A = te.placeholder((32,), "f32", "A")
    C = te.compute((32,), lambda i: A[i] * 2.0, name="C")
    s = Schedule(te.func("f", [A], [C]))
    outer, inner = s.split("i", 8)
    shared, local = s.cache_read("C", "A", "shared"), s.cache_read("C", "A_shared", "local")
    s.bind(outer, "blockIdx.x")
    s.bind(inner, "threadIdx.x")
    assert s.compute_at(local, inner) == ()  # its own element
    names = s.compute_at(shared, inner)
    assert f"for {names[0]} in serial(0, 8)" in s.show()


def test_symbolic_size(same_result) -> None:
    n = te.var("n")
    A = te.placeholder((n, 6), "f32", "A")
    B = te.compute((n, 6), lambda i, j: A[i, j] * 2.0, name="B")
    C = te.compute((n, 6), lambda y, x: B[y, 5 - x] + 1.0, name="C")
    before = te.func("f", [A], [C])
    s = Schedule(before)
    y_o, _ = s.split("y", 4)
    s.compute_at("B", y_o)
    for size in (1, 4, 7):
        same_result(before, s.func, n=size)


def test_P1_loop_before_the_block(refused) -> None:
    refused("P1", compute_at, parse_func(BEFORE), "C", "i")


def test_P1_loop_around_the_block(refused) -> None:
    refused("P1", compute_at, parse_func(BEFORE), "B", "i")


def test_P2_a_result(refused) -> None:
    text = BEFORE.replace('    B = alloc(f32[8], "global")\n', "").replace(
        "A: f32[8]", "A: f32[8], B: f32[8]"
    )
    refused("P2", compute_at, parse_func(text), "B", "y")


def test_P2_another_writer(refused) -> None:
    refused("P2", compute_at, parse_func(between("B[vz]")), "B", "y")


def test_P2_instances_left_out(refused) -> None:
    text = BEFORE.replace('with block("B")', 'with block("B", where=i < 5)')
    refused("P2", compute_at, parse_func(text), "B", "y")


def test_P2_a_part_of_a_reduction(refused) -> None:
    A = te.placeholder((5, 7), "f32", "A")
    k = te.reduce_axis(7, "k")
    B = te.compute((5,), lambda i: te.sum(A[i, k], k), name="B")
    C = te.compute((5,), lambda y: B[y] + 1.0, name="C")
    text = print_func(te.func("f", [A], [C])).replace(
        "for k in serial(0, 7)", "for k in serial(0, 3)"
    )
    refused("P2", compute_at, parse_func(text), "B", "y")


def test_P3_a_reader_outside(refused) -> None:
    text = (
        BEFORE
        + """\
    for z in serial(0, 6):
        with block("D"):
            vz = spatial(6, z)
            reads(B[vz])
            writes(A[vz])
            A[vz] = B[vz]
"""
    )
    refused("P3", compute_at, parse_func(text), "B", "y")


def test_P3_no_reader(refused) -> None:
    text = BEFORE.replace("reads(B[vy + vk])", "reads(A[vy + vk])").replace("+ B[vy", "+ A[vy")
    refused("P3", compute_at, parse_func(text), "B", "y")


def test_P4_source_is_overwritten(refused) -> None:
    refused("P4", compute_at, parse_func(between("A[vz]")), "B", "y")


def test_P5_leaves_its_step(refused) -> None:
    text = """\
def f(A: f32[4, 8], S: f32[8], C: f32[8]):
    B = alloc(f32[8], "global")
    for t in serial(0, 4):
        for i in serial(0, 8):
            with block("B"):
                vt = ordered(4, t)
                vi = spatial(8, i)
                reads(A[vt, vi])
                writes(B[vi])
                B[vi] = A[vt, vi]
    for j in serial(0, 8):
        with block("C"):
            vj = spatial(8, j)
            reads(B[vj])
            writes(C[vj])
            C[vj] = B[vj]
"""
    refused("P5", compute_at, parse_func(text), "B", "j")


def test_P6_threads_would_repeat_it(refused) -> None:
    """A global buffer that all threads of a kernel would fill at once."""
    A = te.placeholder((6, 4), "f32", "A")
    B = te.compute((6, 4), lambda i, j: A[i, j] * 2.0, name="B")
    C = te.compute((6, 4), lambda y, x: B[y, 3 - x] + 1.0, name="C")
    s = Schedule(te.func("f", [A], [C]))
    s.bind("x", "threadIdx.x")
    refused("P6", compute_at, s.func, "B", "y")
