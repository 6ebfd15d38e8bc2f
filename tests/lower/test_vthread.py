"""inject_vthreads: virtual threads in one stream, taken in turn."""

import numpy as np
import pytest

from tilewright.ir import interp
from tilewright.ir.parse import parse_func
from tilewright.ir.text import print_func
from tilewright.ir.verify import verify
from tilewright.lower.vthread import inject_vthreads
from tilewright.support.errors import CompileError

BEFORE = """\
def f(A: f32[2, 8], B: f32[2, 8]):
    for t in vthread(0, 2):
        T = alloc(f32[1], "local")
        for k in serial(0, 8):
            T[0] = A[t, k]
            B[t, k] = T[0] * 2.0
"""
AFTER = """\
def f(A: f32[2, 8], B: f32[2, 8]):
    T = alloc(f32[2, 1], "local")
    for k in serial(0, 8):
        T[0, 0] = A[0, k]
        T[1, 0] = A[1, k]
        B[0, k] = T[0, 0] * 2.0
        B[1, k] = T[1, 0] * 2.0
"""


def same(text: str) -> str:
    """The text of the rewritten program, which computes the same."""
    before = parse_func(text)
    after = inject_vthreads(before)
    verify(after, "loops")
    assert "vthread" not in print_func(after)
    random, results = np.random.default_rng(0), []
    inputs = [random.integers(-5, 5, [e.value for e in b.shape]) for b in before.buffers]
    for func in (before, after):
        arrays = [a.astype(b.dtype.numpy) for a, b in zip(inputs, func.buffers, strict=True)]
        interp.run(func, *arrays)
        results.append(arrays)
    for a, b in zip(*results, strict=True):
        np.testing.assert_array_equal(a, b)
    return print_func(after)


def test_rewrite() -> None:
    assert same(BEFORE) == AFTER


def test_loops_that_hang_on_the_thread_stay_whole() -> None:
    text = same("""\
def f(B: f32[3, 8]):
    for t in vthread(0, 3):
        for k in serial(0, t * 2 + 1):
            B[t, k] = 1.0
""")
    assert text.count("for k in") == 3


def test_conditions() -> None:
    text = same("""\
def f(A: f32[8], B: f32[2, 8]):
    for t in vthread(0, 2):
        for k in serial(0, 8):
            if k < 5:
                B[t, k] = A[k]
            if t < 1:
                B[t, k] = A[k] + 1.0
            else:
                B[t, k] = A[k] - 1.0
""")
    assert text.count("if k < 5") == 1


def test_nested_threads() -> None:
    text = same("""\
def f(A: f32[2, 3, 4], B: f32[2, 3, 4]):
    for t in vthread(0, 2):
        R = alloc(f32[4], "local")
        for k in serial(0, 4):
            R[k] = A[t, 0, k]
        for u in vthread(0, 3):
            T = alloc(f32[4], "local")
            for k in serial(0, 4):
                T[k] = R[k] * 2.0
                B[t, u, k] = T[k] + A[t, u, k]
""")
    assert "T = alloc(f32[2, 3, 4]" in text and "R = alloc(f32[2, 4]" in text


def test_gaps_between_rows_stay() -> None:
    text = same("""\
def f(A: f32[2, 3, 4], B: f32[2, 3, 4]):
    for t in vthread(0, 2):
        T = alloc(f32[3, 4], "local", strides=[5, 1])
        for i in serial(0, 3):
            for k in serial(0, 4):
                T[i, k] = A[t, i, k]
        for i in serial(0, 3):
            for k in serial(0, 4):
                B[t, i, k] = T[i, 3 - k]
""")
    assert "strides=[15, 5, 1]" in text


def test_barriers_stay_single() -> None:
    func = parse_func("""\
def f(B: f32[2]):
    for t in vthread(0, 2):
        B[t] = 1.0
        barrier("shared")
        B[t] = 2.0
""")
    assert print_func(inject_vthreads(func)).count("barrier") == 1


def test_an_unknown_number_is_refused() -> None:
    func = parse_func("""\
def f(B: f32[n], n: i64):
    for t in vthread(0, n):
        B[t] = 1.0
""")
    with pytest.raises(CompileError, match="their number is not a constant"):
        inject_vthreads(func)
