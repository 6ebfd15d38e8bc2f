"""Local buffers that unrolled loops use at known indices are values, handed on by loops and
branches; others are memory."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from tilewright.codegen import inprocess
from tilewright.codegen.llvm import emit
from tilewright.ir.interp import run
from tilewright.ir.parse import parse_func
from tilewright.lower.pipeline import lower
from tilewright.target.target import target

CPU = target("cpu")
TILES = {
    "sums": """
def f(n: i64, A: f32[5, 8], B: f32[3, 8]):
    acc = alloc(f32[3, 8], "local")
    for i in unroll(0, 3):
        for j in vectorize(0, 8):
            acc[i, j] = 1.5
    for k in serial(0, n):
        for i in unroll(0, 3):
            for j in vectorize(0, 8):
                acc[i, j] = acc[i, j] * 0.5 + A[k, j]
    for i in unroll(0, 3):
        for j in vectorize(0, 8):
            B[i, j] = acc[i, j]
""",
    "nested sums": """
def f(n: i64, A: f32[5, 8], B: f32[3, 8]):
    for i in serial(0, 3):
        acc = alloc(f32[8], "local")
        for j in vectorize(0, 8):
            acc[j] = 0.0
        for k in serial(0, 2):
            part = alloc(f32[8], "local")
            for j in vectorize(0, 8):
                part[j] = 2.0
            for l in serial(0, n):
                for j in vectorize(0, 8):
                    part[j] = part[j] + A[l, j]
            for j in vectorize(0, 8):
                acc[j] = acc[j] * 0.25 + part[j]
        for j in vectorize(0, 8):
            B[i, j] = acc[j]
""",
    "branches": """
def f(n: i64, A: f32[5, 8], B: f32[3, 8]):
    acc = alloc(f32[2, 8], "local")
    for i in unroll(0, 2):
        for j in vectorize(0, 8):
            acc[i, j] = 0.5
    for k in serial(0, 5):
        if k < n:
            if A[k, 0] < 0.0:
                for j in vectorize(0, 8):
                    acc[1, j] = acc[0, j] - A[k, j]
            else:
                for i in unroll(0, 2):
                    for j in vectorize(0, 8):
                        acc[i, j] = acc[i, j] + A[k, j]
    for i in unroll(0, 2):
        for j in vectorize(0, 8):
            B[i, j] = acc[i, j]
""",
    "lanes": """
def f(n: i64, A: f32[5, 8], B: f32[3, 8]):
    acc = alloc(f32[8], "local")
    for j in vectorize(0, 8):
        acc[j] = 0.5
    for k in serial(0, 5):
        for j in vectorize(0, 8):
            if j + k < n:
                acc[j] = acc[j] + A[k, j]
    for j in vectorize(0, 8):
        B[0, j] = acc[j]
""",
    "what the round before left": """
def f(n: i64, A: f32[5, 8], B: f32[3, 8]):
    kept = alloc(f32[8], "local")
    for k in serial(0, n):
        if k >= 1:
            for j in vectorize(0, 8):
                B[1, j] = B[1, j] + kept[j]
        for j in vectorize(0, 8):
            kept[j] = A[k, j]
""",
    "numbers": """
def f(n: i64, A: f32[5, 8], B: f32[3, 8]):
    best = alloc(f32[1], "local")
    best_at = alloc(i64[1], "local")
    for i in serial(0, 3):
        best[0] = -9.0
        best_at[0] = 0
        for k in serial(0, n):
            if A[k, i] > best[0]:
                best[0] = A[k, i]
                best_at[0] = k
        B[i, 0] = A[best_at[0], i + 1]
""",
}
MEMORY = {
    "an index that only the run knows": """
def f(n: i64, A: f32[5, 8], B: f32[3, 8]):
    acc = alloc(f32[5, 8], "local")
    for k in serial(0, 5):
        for j in vectorize(0, 8):
            acc[k, j] = A[k, j]
    for j in vectorize(0, 8):
        B[0, j] = acc[n, j]
""",
    "vectors of several sizes": """
def f(n: i64, A: f32[5, 8], B: f32[3, 8]):
    acc = alloc(f32[8], "local")
    for j in vectorize(0, 8):
        acc[j] = A[0, j]
    for i in unroll(0, 2):
        for j in vectorize(0, 4):
            B[i, j] = acc[i * 4 + j]
""",
    "vectors between two": """
def f(n: i64, A: f32[5, 8], B: f32[3, 8]):
    acc = alloc(f32[16], "local")
    for i in unroll(0, 2):
        for j in vectorize(0, 8):
            acc[i * 8 + j] = A[i, j]
    for j in vectorize(0, 8):
        B[0, j] = acc[3 + j]
""",
    "across": """
def f(n: i64, A: f32[5, 8], B: f32[3, 8]):
    acc = alloc(f32[8, 8], "local")
    for i in unroll(0, 8):
        for j in vectorize(0, 8):
            acc[i, j] = A[1, j] + A[2, i]
    for j in vectorize(0, 8):
        B[0, j] = acc[j, 3]
""",
}


def ran(text: str, n: int) -> tuple[Any, Any]:
    """What the interpreter and the compiled code make of B."""
    func = parse_func(text)
    draw = np.random.default_rng(n).standard_normal
    a, b = draw((5, 8)).astype(np.float32), draw((3, 8)).astype(np.float32)
    want, got = b.copy(), b.copy()
    run(func, a, want, symbols={"n": n})
    inprocess.run(func, a, got, symbols={"n": n}, target=CPU)
    return want, got


def allocated(text: str) -> int:
    return len(re.findall(" = alloca ", emit(lower(parse_func(text), CPU), CPU).text))


@pytest.mark.parametrize("n", [0, 1, 4])
@pytest.mark.parametrize("case", [*TILES, *MEMORY])
def test_what_is_computed(case: str, n: int) -> None:
    want, got = ran({**TILES, **MEMORY}[case], n)
    np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("case", TILES)
def test_tiles_are_values(case: str) -> None:
    assert allocated(TILES[case]) == 0


@pytest.mark.parametrize("case", MEMORY)
def test_others_are_memory(case: str) -> None:
    assert allocated(MEMORY[case]) == 1
