"""The interpreter: what programs mean, stage by stage, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.ir.interp import InterpError, run
from tilewright.ir.parse import parse_func
from tilewright.ir.race import RaceError

RNG = np.random.default_rng(7)

MATMUL = """
def matmul(A: f32[6, 8], B: f32[8, 10], C: f32[6, 10]):
    for i in serial(0, 6):
        for j_o in parallel(0, 3):
            for j_i in vectorize(0, 4):
                for k in serial(0, 8):
                    with block("C", where=j_o * 4 + j_i < 10):
                        vi = spatial(6, i)
                        vj = spatial(10, j_o * 4 + j_i)
                        vk = reduce(8, k)
                        reads(A[vi, vk], B[vk, vj])
                        writes(C[vi, vj])
                        with init():
                            C[vi, vj] = 0.0
                        C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
"""

TILED_ON_THREADS = """
def matmul(A: f32[8, 8], B: f32[8, 8], C: f32[8, 8]):
    for by in thread("blockIdx.y", 0, 2):
        for bx in thread("blockIdx.x", 0, 2):
            As = alloc(f32[4, 4], "shared")
            Bs = alloc(f32[4, 4], "shared")
            for ty in thread("threadIdx.y", 0, 4):
                for tx in thread("threadIdx.x", 0, 4):
                    acc = alloc(f32[1], "local")
                    acc[0] = 0.0
                    for ko in serial(0, 2):
                        for ay in thread("threadIdx.y", 0, 4):
                            for ax in thread("threadIdx.x", 0, 4):
                                As[ay, ax] = A[by * 4 + ay, ko * 4 + ax]
                                Bs[ay, ax] = B[ko * 4 + ay, bx * 4 + ax]
                        barrier("shared")
                        for k in serial(0, 4):
                            acc[0] = acc[0] + As[ty, k] * Bs[k, tx]
                        barrier("shared")
                    C[by * 4 + ty, bx * 4 + tx] = acc[0]
"""


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def matmul_check(text: str, m: int, k: int, n: int, **options) -> None:
    a, b, c = floats(m, k), floats(k, n), np.full((m, n), np.nan, np.float32)
    run(parse_func(text), a, b, c, **options)
    expected = np.zeros((m, n), np.float32)
    for each in range(k):  # the same order of additions: equal to the last bit
        expected += a[:, each : each + 1] * b[each]
    np.testing.assert_array_equal(c, expected)


def test_blocks_with_init_and_where() -> None:
    matmul_check(MATMUL, 6, 8, 10)
    matmul_check(MATMUL, 6, 8, 10, check_parallel=True, check_regions=True)


def test_loops_stage() -> None:
    text = """
def matmul(A: f32[6, 8], B: f32[8, 10], C: f32[6, 10]):
    for i in serial(0, 6):
        for j in serial(0, 10):
            acc = alloc(f32[1], "local")
            acc[0] = 0.0
            for k in unroll(0, 8):
                acc[0] = acc[0] + A[i, k] * B[k, j]
            C[i, j] = acc[0]
"""
    matmul_check(text, 6, 8, 10)


def test_flat_stage_takes_arrays_of_any_shape_with_as_many_elements() -> None:
    text = """
def matmul(A: f32[48], B: f32[80], C: f32[60]):
    for i in serial(0, 6):
        for j in serial(0, 10):
            C[i * 10 + j] = 0.0
            for k in serial(0, 8):
                C[i * 10 + j] = C[i * 10 + j] + A[i * 8 + k] * B[k * 10 + j]
"""
    matmul_check(text, 6, 8, 10)


def test_symbolic_sizes_come_from_the_arrays_or_from_symbols() -> None:
    func = parse_func("""
def scale(A: f32[n, 4], B: f32[n * 4], n: i64, m: i64):
    for i in serial(0, n):
        for j in serial(0, 4):
            B[i * 4 + j] = A[i, j] * f32(m)
""")
    a, b = floats(5, 4), np.zeros(20, np.float32)
    run(func, a, b, symbols={"m": 3})
    np.testing.assert_array_equal(b, (a * np.float32(3)).reshape(-1))
    with pytest.raises(InterpError, match="the size 'm' is not given"):
        run(func, a, b)
    with pytest.raises(InterpError, match="the size 'm' is -1"):
        run(func, a, b, symbols={"m": -1})


def test_arrays_need_not_be_contiguous() -> None:
    func = parse_func("""
def f(A: f32[3, 4]):
    for i in serial(0, 3):
        for j in serial(0, 4):
            A[i, j] = A[i, j] + f32(i * 10 + j)
""")
    whole = np.zeros((4, 6), np.float32)
    run(func, whole.T[::2, :])
    assert whole.T[::2].tolist() == [[i * 10 + j for j in range(4)] for i in range(3)]
    assert not whole.T[1::2].any()


def test_strided_buffers() -> None:
    func = parse_func("""
def f(A: buffer(f32[3, 4], "global", strides=[5, 1]), B: f32[3, 4]):
    T = alloc(f32[3, 4], "global", strides=[1, 3])
    for i in serial(0, 3):
        for j in serial(0, 4):
            T[i, j] = A[i, j] + 1.0
    for i2 in serial(0, 3):
        for j2 in serial(0, 4):
            B[i2, j2] = T[i2, j2]
            A[i2, j2] = 0.0
""")
    a, b = floats(3, 4), np.zeros((3, 4), np.float32)
    expected = a + np.float32(1)
    run(func, a, b)
    np.testing.assert_array_equal(b, expected)
    assert not a.any()


def test_let_if_select_and_zero_rank() -> None:
    func = parse_func("""
def f(A: i32[4], s: i32[()]):
    s[()] = i32(0)
    for i in serial(0, 4):
        x: i32 = A[i] * i32(2)
        if x > i32(0):
            s[()] = s[()] + x
        elif x == i32(0):
            s[()] = s[()] + select(i < 3, i32(100), A[i + 100])
        else:
            s[()] = s[()] - i32(1)
""")
    s = np.zeros((), np.int32)
    run(func, np.array([3, -5, 0, 7], np.int32), s)
    assert s == 6 - 1 + 100 + 14


def test_more_than_twenty_loops_inside_each_other() -> None:
    text = "def f(s: i64[1]):\n"
    for n in range(40):
        text += "    " * (n + 1) + f"for i{n} in serial(0, {2 if n % 8 == 0 else 1}):\n"
    text += "    " * 41 + "s[0] = s[0] + i0 + i39 + 1\n"
    s = np.zeros(1, np.int64)
    run(parse_func(text), s)
    assert s[0] == 32 + 16


def test_long_expressions() -> None:
    text = "f32(1)" + "".join(f" + A[{i % 4}] * 0.5" for i in range(150))
    a, b = np.ones(4, np.float32), np.zeros(1, np.float32)
    run(parse_func(f"def f(A: f32[4], B: f32[1]):\n    B[0] = {text}\n"), a, b)
    assert b[0] == 76


@pytest.mark.parametrize(
    ("of", "expression", "result"),
    [
        ("i8", "A[0] + A[1]", -56),
        ("u8", "A[0] - A[1] - A[1]", 156),
        ("i8", "A[0] * A[0]", 16),
        ("i32", "i32(2147483647) + A[2]", -2147483648),
        ("i64", "9223372036854775807 + i64(A[2])", -(2**63)),
        ("i8", "-i8(-128)", -128),
        ("i8", "abs(i8(A[2] - A[1] - i8(29)))", -128),
        ("i32", "A[3] // i32(2)", -4),
        ("i32", "A[3] % i32(2)", 1),
        ("i32", "truncdiv(A[3], i32(2))", -3),
        ("i32", "truncmod(A[3], i32(2))", -1),
        ("i8", "i8(A[3] - i8(121)) // i8(-1)", -128),
        ("i32", "A[3] >> i32(1)", -4),
        ("u8", "A[1] >> u8(2)", 25),
        ("i8", "A[0] << i8(1)", -56),
        ("i16", "A[3] & i16(255)", 249),
        ("u16", "~A[1]", 65435),
        ("i32", "sign(A[3])", -1),
        ("u32", "popcount(u32(i32(-1)))", 32),
        ("i4", "i4(A[0])", 4),
        ("i1", "i1(A[2])", -1),
        ("u4", "u4(A[1]) + u4(15)", 3),
    ],
)
def test_whole_numbers(of: str, expression: str, result: int) -> None:
    given = [100, 100, 1, -7] if of[0] == "i" else [100, 100, 1, 7]
    of_a = "i32" if of in ("i64", "u32", "i1", "i4") else of if of != "u4" else "u8"
    text = f"def f(A: {of_a}[4], B: {of}[1]):\n    B[0] = {expression}\n"
    func = parse_func(text)
    a, b = (p.dtype.numpy for p in func.buffers)
    out = np.zeros(1, b)
    run(func, np.array(given).astype(a), out)
    assert int(out[0]) == result


def test_booleans() -> None:
    func = parse_func("""
def f(A: bool[2], B: bool[6]):
    B[0] = A[0] and not A[1]
    B[1] = A[0] | A[1]
    B[2] = A[0] ^ A[0]
    B[3] = A[0] == A[1]
    B[4] = bool(nan)
    B[5] = isnan(0.0) or isinf(-inf)
""")
    out = np.zeros(6, np.bool_)
    run(func, np.array([True, False]), out)
    assert out.tolist() == [True, True, False, False, True, True]


# What is undefined -----


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("A[i] = A[i + 1]", r"index 4 of A\[i \+ 1\], dimension 0, is not in 0 … 3"),
        ("A[i - 1] = 0.0", r"index -1 of A\[i - 1\], dimension 0, is not in 0 … 3"),
        ("A[4 // i] = 0.0", "a whole number is divided by zero"),
        ("A[i % (i - i)] = 0.0", "a whole number is divided by zero"),
        ("A[1 << (i - 1)] = 0.0", "the shift is too far"),
        ("A[i] = T[i] + 1.0", "an element of 'T' is used before anything was stored there"),
        ("A[i] = T[i]", "an element of 'T' is used before anything was stored there"),
        ("A[i] = exp(T[i])", "an element of 'T' is used before"),
        ("A[i] = max(T[i], 0.0)", "an element of 'T' is used before"),
        ("A[i64(T[i])] = 0.0", "an element of 'T' is used before"),
        ("A[i] = select(T[i] < 0.0, 1.0, 2.0)", "an element of 'T' is used before"),
        ("A[i] = f32(f16(T[i]))", "an element of 'T' is used before"),
        ("A[i] = f32(bf16(T[i]))", "an element of 'T' is used before"),
        ("foo(A[i])", "nothing says what 'foo' does"),
        (
            'with block("b"):\n            v = spatial(3, i)\n            A[v] = 0.0',
            "index 3 of i, dimension 0, is not in 0 … 2",
        ),
        ("if i < 4 and A[i + 1] > 0.0:\n            A[i] = 0.0", "index 4 of"),
    ],
)
def test_undefined_programs_are_refused(body: str, why: str) -> None:
    func = parse_func(f"""
def f(A: f32[4]):
    T = alloc(f32[4], "local")
    for i in serial(0, 4):
        {body}
""")
    with pytest.raises(InterpError, match=why):
        run(func, floats(4))


def test_undefined_values_may_be_copied() -> None:
    func = parse_func("""
def f(A: f32[4]):
    T = alloc(f32[4], "local")
    U = alloc(f32[4], "local")
    T[1] = 5.0
    for i in serial(0, 4):
        U[i] = T[i]
    A[0] = U[1]
""")
    a = floats(4)
    run(func, a)
    assert a[0] == 5


def test_an_allocation_is_undefined_each_time_it_is_reached() -> None:
    func = parse_func("""
def f(A: f32[4]):
    for i in serial(0, 4):
        T = alloc(f32[1], "local")
        if i == 0:
            T[0] = 1.0
        A[i] = T[0]
""")
    with pytest.raises(InterpError, match="'T' is used before"):
        run(func, floats(4))


def test_errors_show_the_statement() -> None:
    func = parse_func("def f(A: f32[4]):\n    for i in serial(0, 5):\n        A[i] = 0.0\n")
    with pytest.raises(InterpError) as caught:
        run(func, floats(4))
    assert "        A[i] = 0.0\n            ^^^^^^^^^^ here" in str(caught.value)


@pytest.mark.parametrize(
    ("arrays", "why"),
    [
        ([np.zeros(4, np.float32)] * 2, "it has 1 buffers, here are 2 arrays"),
        ([np.zeros(5, np.float32)], r"'A' has shape \[4\], the array \[5\]"),
        ([np.zeros(4, np.float64)], "'A' is f32, the array is float64"),
    ],
)
def test_arguments_that_do_not_fit(arrays: list[np.ndarray], why: str) -> None:
    with pytest.raises(InterpError, match=why):
        run(parse_func("def f(A: f32[4]):\n    A[0] = 0.0\n"), *arrays)


REGIONS = """
def f(A: f32[8], B: f32[8], s: f32[()]):
    for i in serial(0, 2):
        with block("outer"):
            vi = spatial(2, i)
            reads(A[vi * 4:vi * 4 + 4])
            writes(B[vi * 4:vi * 4 + 4], s[()])
            for j in serial(0, 4):
                with block("inner"):
                    vj = spatial(8, vi * 4 + j)
                    reads(A[vj])
                    writes(B[vj], s[()])
                    T = alloc(f32[2], "local")
                    T[1] = A[vj]
                    B[vj] = T[1]
                    s[()] = B[vj]
"""


def test_blocks_stay_inside_their_regions() -> None:
    a, b, s = floats(8), floats(8), np.zeros((), np.float32)
    run(parse_func(REGIONS), a, b, s, check_regions=True)
    np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("B[vj] = T", "B[vj // 4] = T", r"block 'inner' touches B\[0\], which its regions do not"),
        ("T[1] = A[vj]", "T[1] = A[7 - vj]", r"block 'outer' touches A\[7\]"),
        ("reads(A[vi * 4:vi * 4 + 4])", "reads(A[vi:vi + 4])", r"block 'outer' touches A\[5\]"),
        ("writes(B[vj], s[()])", "writes(B[vj])", r"block 'inner' touches s\[\]"),
    ],
)
def test_what_no_region_names_is_refused(old: str, new: str, why: str) -> None:
    assert old in REGIONS
    func = parse_func(REGIONS.replace(old, new))
    arrays = floats(8), floats(8), np.zeros((), np.float32)
    run(func, *arrays)
    with pytest.raises(InterpError, match=why):
        run(func, *arrays, check_regions=True)


# Intrinsics -----


def test_intrinsics_get_values_and_pointers() -> None:
    func = parse_func("""
def f(A: f32[2, 4], B: f32[2]):
    for i in serial(0, 2):
        row_sum(address_of(A[i, 0]), address_of(B[i]), 4)
    B[1] = B[1] + twice(B[0], dtype=f32)
""")

    def row_sum(source, target, count):
        target[0] = sum((source[k] for k in range(count)), np.float32(0))

    a, b = np.arange(8, dtype=np.float32).reshape(2, 4), np.zeros(2, np.float32)
    run(func, a, b, intrinsics={"row_sum": row_sum, "twice": lambda x: x * np.float32(2)})
    assert b.tolist() == [6, 22 + 12]
    with pytest.raises(InterpError, match="it leaves 'A' by 8"):
        run(func, a, b, intrinsics={"row_sum": lambda s, t, c: s[8], "twice": abs})


def test_reinterpret() -> None:
    func = parse_func("""
def f(A: f32[1], B: u32[1], C: f32[1], D: bf16[1]):
    B[0] = reinterpret(A[0], dtype=u32)
    C[0] = reinterpret(B[0] | u32(2147483648), dtype=f32)
    D[0] = reinterpret(u16(B[0] >> u32(16)), dtype=bf16)
""")
    b, c, d = np.zeros(1, np.uint32), np.zeros(1, np.float32), np.zeros(1, "bfloat16")
    run(func, np.array([1.5], np.float32), b, c, d)
    assert b[0] == 0x3FC00000 and c[0] == -1.5 and d[0] == 1.5


# Threads -----


def test_threads_share_tiles_and_wait_at_barriers() -> None:
    matmul_check(TILED_ON_THREADS, 8, 8, 8)


@pytest.mark.parametrize("which", [0, 1])
def test_a_removed_barrier_is_a_race(which: int) -> None:
    barrier = '                        barrier("shared")\n'
    parts = TILED_ON_THREADS.split(barrier)
    text = parts[0] + (parts[1] + barrier if which == 0 else barrier + parts[1]) + parts[2]
    does = ("writes", "read") if which == 0 else ("reads", "wrote")
    seen = r"thread \(\d, \d\) of block \(0, 0\) {} [AB]s\[\d, \d\], which thread .* {}".format(
        *does
    )
    with pytest.raises(RaceError, match=seen):
        matmul_check(text, 8, 8, 8)


def test_threads_that_write_one_global_element_race_even_in_two_blocks() -> None:
    text = """
def f(A: f32[4]):
    for b in thread("blockIdx.x", 0, 2):
        for t in thread("threadIdx.x", 0, 2):
            A[{}] = f32(t)
"""
    run(parse_func(text.format("b * 2 + t")), floats(4))
    with pytest.raises(RaceError, match=r"thread \(1,\) of block \(0,\) writes A\[0\]"):
        run(parse_func(text.format("b")), floats(4))
    with pytest.raises(RaceError, match=r"block \(1,\) writes A\[0\], which .* block \(0,\) wrote"):
        run(parse_func(text.format("t")), floats(4))


def test_reads_by_one_block_and_writes_by_another_race() -> None:
    func = parse_func("""
def f(A: f32[4], B: f32[4]):
    for b in thread("blockIdx.x", 0, 4):
        B[b] = A[0]
        A[b] = 1.0
""")
    with pytest.raises(RaceError, match=r"reads A\[0\], which .* wrote"):
        run(func, floats(4), floats(4))


def test_a_barrier_that_not_all_threads_reach() -> None:
    func = parse_func("""
def f(A: f32[4]):
    for t in thread("threadIdx.x", 0, 4):
        if t < 2:
            barrier("shared")
        A[t] = 0.0
""")
    with pytest.raises(RaceError, match="ends"):
        run(func, floats(4))


def test_a_thread_loop_shorter_than_the_block_leaves_threads_out() -> None:
    func = parse_func("""
def f(A: f32[8], B: f32[8]):
    for g in thread("blockIdx.x", 0, 1):
        S = alloc(f32[8], "shared")
        for a in thread("threadIdx.x", 0, 8):
            S[a] = A[a]
        barrier("shared")
        for b in thread("threadIdx.x", 0, 4):
            B[b] = S[7 - b]
            B[b + 4] = S[3 - b]
""")
    a, b = floats(8), floats(8)
    run(func, a, b)
    np.testing.assert_array_equal(b, a[::-1])


SHARED_IN_A_LOOP = """
def f(A: f32[16], B: f32[16]):
    for t in thread("threadIdx.x", 0, 4):
        for k in serial(0, 4):
            S = alloc(f32[4], "shared")
            {}
            barrier("shared")
            B[k * 4 + t] = S[3 - t]{}
"""


def test_a_shared_allocation_in_a_loop_is_the_same_memory_each_time() -> None:
    step = "S[t] = A[k * 4 + t]"
    a, b = floats(16), floats(16)
    run(parse_func(SHARED_IN_A_LOOP.format(step, '\n            barrier("shared")')), a, b)
    np.testing.assert_array_equal(b.reshape(4, 4), a.reshape(4, 4)[:, ::-1])
    with pytest.raises(RaceError, match=r"reads S\[1\], which .* wrote"):
        run(parse_func(SHARED_IN_A_LOOP.format(step, "")), a, b)


def test_a_shared_allocation_in_a_loop_begins_undefined() -> None:
    once = "if k < 1:\n                S[t] = A[t]"
    text = SHARED_IN_A_LOOP.format(once, '\n            barrier("shared")')
    with pytest.raises(InterpError, match="before anything was stored"):
        run(parse_func(text), floats(16), floats(16))


def test_virtual_threads_and_pipelines_run_in_order() -> None:
    func = parse_func("""
def f(A: i64[8]):
    A[0] = 1
    for v in vthread(0, 2):
        for c in pipeline(0, 3, stages=2):
            A[v * 3 + c + 1] = A[v * 3 + c] * 2
""")
    a = np.zeros(8, np.int64)
    run(func, a)
    assert a.tolist() == [1, 2, 4, 8, 16, 32, 64, 0]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("A[0] = A[0] + 1.0", r"iteration 1 reads A\[0\], which iteration 0 wrote"),
        ("A[i % 2] = 1.0", r"iteration 2 writes A\[0\], which iteration 0 wrote"),
        ("A[i] = A[(i + 1) % 4]", r"iteration 1 writes A\[1\], which iteration 0 read"),
    ],
)
def test_conflicting_iterations_of_a_parallel_loop(body: str, message: str) -> None:
    func = parse_func(f"def f(A: f32[4]):\n    for i in parallel(0, 4):\n        {body}\n")
    run(func, floats(4))
    with pytest.raises(RaceError, match=message):
        run(func, floats(4), check_parallel=True)


def test_a_parallel_loop_may_use_its_own_memory() -> None:
    func = parse_func("""
def f(A: f32[4]):
    for i in parallel(0, 4):
        T = alloc(f32[1], "global")
        T[0] = A[i]
        for j in parallel(0, 2):
            A[i] = A[i] + T[0]
    for k in serial(1, 4):
        A[k] = A[k - 1]
""")
    a = np.ones(4, np.float32)
    run(func, a, check_parallel=True)
    assert a.tolist() == [3, 3, 3, 3]
