"""Lanes of which it is known whether they are on, and where they read: no gather, no test."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.codegen import inprocess
from tilewright.codegen.llvm import emit
from tilewright.ir.parse import parse_func
from tilewright.lower.pipeline import lower
from tilewright.target.target import target

AVX512 = target("cpu -mcpu=skylake-avx512")
CASES = {  # in which lanes, and where each reads
    "every second": ("j < 13", "j * 2 + 1"),
    "two conditions": ("j < 13 and j >= 2", "j * 3"),
    "folded back": ("j < 13", "select(j >= 3, j - 3, 3 - j)"),
    "folded back twice": ("j < 13", "select(j >= 3, select(j < 9, j - 3, 14 - j), 3 - j)"),
    "few": ("j < 2", "j * 7"),
    "held at the start": ("j < 13", "max((j + 1) // 2 - 1, 0)"),
    "held at the end": ("j < 13", "min((j + 1) // 2 + 3, 8)"),
    "held at both": ("j < 13", "min(max(j - 2, 0), 7)"),
}


def program(case: str, nested: bool = False) -> str:
    condition, index = CASES[case]
    conditions = condition.split(" and ") if nested else [condition]
    lines = ["for i in serial(0, 8):", "for j in vectorize(0, 16):"]
    lines += [f"if {c}:" for c in conditions] + [f"B[i, j] = A[i, {index}]"]
    body = "\n".join("    " * (n + 1) + line for n, line in enumerate(lines))
    return f"def known(A: f32[8, 64], B: f32[8, 16]):\n{body}\n"


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_nothing_is_gathered(case, nested):
    text = emit(lower(parse_func(program(case, nested)), AVX512), AVX512).text
    assert "llvm.masked.gather" not in text


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_the_same_numbers(case, nested):
    a = np.random.default_rng(7).standard_normal((8, 64), np.float32)
    b = np.full((8, 16), 7, np.float32)
    wanted, (condition, index) = b.copy(), CASES[case]
    for j in range(16):
        names = {"j": j, "select": lambda c, then, other: then if c else other}
        if eval(condition, names):
            wanted[:, j] = a[:, eval(index, names)]
    inprocess.run(parse_func(program(case, nested)), a, b)
    np.testing.assert_array_equal(b, wanted)


def test_what_is_the_same_for_known_lanes_is_read_without_a_branch():
    text = """
def one(A: f32[8, 64], B: f32[8, 16]):
    for i in serial(0, 8):
        for j in vectorize(0, 16):
            B[i, j] = select(j < 3, A[i, 5], select(j < 3, A[i, 60], 0.5))
"""
    written = emit(lower(parse_func(text), AVX512), AVX512).text
    assert "reduce.or" not in written
    a = np.random.default_rng(7).standard_normal((8, 64), np.float32)
    b = np.zeros((8, 16), np.float32)
    inprocess.run(parse_func(text), a, b)
    np.testing.assert_array_equal(b, np.where(np.arange(16) < 3, a[:, 5:6], np.float32(0.5)))
