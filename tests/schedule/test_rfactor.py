"""rfactor: parts of a reduction in parallel, combined at the end."""

import pytest

from tests.schedule.programs import argmax, conv2d, layer_norm, matmul, softmax
from tilewright import te
from tilewright.ir.parse import parse_func
from tilewright.schedule import Schedule


@pytest.mark.parametrize("dim", [-1, 0, 1, 2, -3])
def test_each_dimension(dim, same_result, replays):
    start = matmul(3, 4, 6).func
    s = Schedule(start)
    s.split("k", 2)
    assert s.rfactor("C", "k_i", dim) == "C_rf"
    same_result(start, s.func)
    replays(start, s)


@pytest.mark.parametrize("loop", ["k", "k_o", "k_i"])
def test_uneven_parts(loop, same_result):
    """Parts that combine nothing still begin."""
    start = matmul(3, 4, 7).func
    s = Schedule(start)
    if loop != "k":
        s.split("k", (4, 3))
    s.rfactor("C", loop)
    same_result(start, s.func)


@pytest.mark.parametrize("size", [1, 3, 7])
def test_fused_loops_of_open_sizes(size, same_result):
    """Sizes that the indices divide by are no loops."""
    start = parse_func("""
def sums(X: f32[h, w], Y: f32[1], h: i64, w: i64):
    for o in serial(0, 1):
        for i in serial(0, h):
            for j in serial(0, w):
                with block("Y"):
                    vo = spatial(1, o)
                    vi = reduce(h, i)
                    vj = reduce(w, j)
                    reads(X[vi, vj])
                    writes(Y[vo])
                    with init():
                        Y[vo] = 0.0
                    Y[vo] = Y[vo] + X[vi, vj]
""")
    s = Schedule(start)
    _, lanes = s.split(s.fuse("i", "j"), (None, 4))
    s.rfactor("Y", lanes)
    same_result(start, s.func, h=5, w=size)


def test_lanes_of_a_sum(same_result, replays):
    start = softmax(3, 10).func
    s = Schedule(start)
    s.split("r", 4)
    part = s.rfactor("S", "r_i")
    s.vectorize("r_i")
    s.parallel(s.loops(part)[0])
    same_result_is_close(start, s)
    replays(start, s)


def same_result_is_close(start, s):
    """Sums in another order differ in the last bits."""
    import numpy as np

    from tilewright.ir import interp

    random = np.random.default_rng(0)
    a = random.standard_normal((3, 10)).astype(np.float32)
    one, other = np.zeros_like(a), np.zeros_like(a)
    interp.run(start, a, one)
    interp.run(s.func, a, other)
    np.testing.assert_allclose(one, other, rtol=1e-5)


def test_argmax(same_result, replays):
    start = argmax(4, 9).func
    s = Schedule(start)
    s.split("k", 4)
    s.rfactor("V", "k_i")
    same_result(start, s.func)
    replays(start, s)


def test_pair_of_sums(same_result):
    start = layer_norm(3, 8).func
    s = Schedule(start)
    s.rfactor("S", "k")
    assert "S_0_rf = alloc(f32[3, 8]" in s.show() and "S_1_rf = alloc(f32[3, 8]" in s.show()
    same_result(start, s.func)


@pytest.mark.parametrize("kind", ["sum", "prod", "max", "min", "any", "all", "custom"])
def test_every_reducer(kind, same_result):
    of = "bool" if kind in ("any", "all") else "i32"
    A = te.placeholder((3, 7), of, name="A")
    k = te.reduce_axis(7, "k")
    custom = te.reducer(lambda a, b: a + b + 2, lambda t: te.const(-2, t), "shifted")
    reduce = custom if kind == "custom" else getattr(te, kind)
    B = te.compute((3,), lambda i: reduce(A[i, k], k), name="B")
    start = te.func("f", [A], [B])
    s = Schedule(start)
    s.split("k", 3)
    s.rfactor("B", "k_o")
    same_result(start, s.func)


def test_two_dimensional_reduction(same_result):
    start = conv2d(2, 3, 4, 4).func
    s = Schedule(start)
    s.rfactor("C", "rc", 0)
    same_result(start, s.func)


def test_factor_twice(same_result):
    start = conv2d(2, 2, 4, 4).func
    s = Schedule(start)
    part = s.rfactor("C", "rc", 0)
    s.rfactor(part, "ry", 0)
    same_result(start, s.func)


def test_P1_no_reduction(refused):
    refused("P1", Schedule(matmul().func).rfactor, "E", "i_1")


def test_P1_no_init(refused):
    s = Schedule(matmul(3, 4, 5).func)
    s.decompose_reduction("C", "k")
    refused("P1", s.rfactor, "C", "k")


@pytest.mark.parametrize("update", ["C[vi] - A[vi, vk]", "C[vi] * 0.5 + A[vi, vk]", "A[vi, vk]"])
def test_P1_no_commutative_combination(update, refused):
    start = parse_func(f"""\
def f(A: f32[4, 8], C: f32[4]):
    for i in serial(0, 4):
        for k in serial(0, 8):
            with block("C"):
                vi = spatial(4, i)
                vk = reduce(8, k)
                reads(A[vi, vk])
                writes(C[vi])
                with init():
                    C[vi] = 0.0
                C[vi] = {update}
""")
    refused("P1", Schedule(start).rfactor, "C", "k")


def test_P2_spatial_loop(refused):
    refused("P2", Schedule(matmul(3, 4, 5).func).rfactor, "C", "j")


def test_P2_fused_with_a_spatial_loop(refused):
    s = Schedule(matmul(3, 4, 5).func)
    refused("P2", s.rfactor, "C", s.fuse("j", "k"))


def test_P3_not_alone(refused):
    s = Schedule(matmul(3, 4, 4).func)
    s.split("k", 2)
    s.cache_read("C", "A", "local")
    s.compute_at("A_local", "k_o")
    refused("P3", s.rfactor, "C", "k_i")


def test_P4_bounds(refused):
    start = parse_func("""\
def f(A: f32[4, 8], C: f32[4]):
    for i in serial(0, 4):
        for k in serial(0, i + 1):
            with block("C"):
                vi = spatial(4, i)
                vk = reduce(8, k)
                reads(A[vi, vk])
                writes(C[vi])
                with init():
                    C[vi] = 0.0
                C[vi] = C[vi] + A[vi, vk]
""")
    refused("P4", Schedule(start).rfactor, "C", "k")


def test_P5_guard(refused):
    start = parse_func("""\
def f(A: f32[4, 8], C: f32[4]):
    for i in serial(0, 4):
        for k in serial(0, 8):
            with block("C", where=i + k < 8):
                vi = spatial(4, i)
                vk = reduce(8, k)
                reads(A[vi, vk])
                writes(C[vi])
                with init():
                    C[vi] = 0.0
                C[vi] = C[vi] + A[vi, vk]
""")
    refused("P5", Schedule(start).rfactor, "C", "k")


def test_P7_inside_a_block(refused):
    s = Schedule(matmul(4, 4, 6).func)
    s.split("i", 2)
    s.split("k", 2)
    s.blockize("i_i")
    refused("P7", s.rfactor, "C", "k_i")


@pytest.mark.parametrize("dim", [3, -4])
def test_P6_dimension(dim, refused):
    refused("P6", Schedule(matmul(3, 4, 5).func).rfactor, "C", "k", dim)
