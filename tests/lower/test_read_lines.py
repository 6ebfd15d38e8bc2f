"""read_lines: lanes that take turns at a few lines of memory read each line by itself."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tilewright.codegen import inprocess
from tilewright.codegen.llvm import emit
from tilewright.ir.parse import parse_func
from tilewright.lower.flatten import flatten
from tilewright.lower.pipeline import lower
from tilewright.lower.read_lines import read_lines
from tilewright.target.target import target

AVX512 = target("cpu -mcpu=x86-64-v4")
TURNS = """
def turns(A: f32[{lines}, n], B: f32[n * {lines}], n: i64):
    for i_o in serial(0, n // 16):
        for i_u in unroll(0, {lines}):
            for i_i in vectorize(0, 16):
                B[i_o * {all} + i_u * 16 + i_i] = A[
                    (i_u * 16 + i_i) % {lines}, i_o * 16 + (i_u * 16 + i_i) // {lines}
                ]
"""
NEAR = """
def near(A: f32[32], B: f32[16]):
    for i in vectorize(0, 16):
        B[i] = A[i % 2 + i // 2 * 2]
"""
OTHERS = """
def others(A: f32[2, n], B: f32[16], n: i64):
    for i in vectorize(0, 16):
        B[i] = A[(i + n) % 2, i // 2]
"""


@pytest.mark.parametrize("lines", [2, 3, 4])
def test_each_line_is_read_as_vectors(lines):
    func = parse_func(TURNS.format(lines=lines, all=lines * 16))
    text = emit(lower(func, AVX512), AVX512).text
    assert "gather" not in text
    assert not re.findall("load float", text)
    a = np.random.default_rng().standard_normal((lines, 80), np.float32)
    b = np.zeros(80 * lines, np.float32)
    inprocess.run(func, a, b, symbols={"n": 80})
    np.testing.assert_array_equal(b, a.T.reshape(-1))


@pytest.mark.parametrize("text", [NEAR, OTHERS])
def test_others_stay(text):
    """Few vectors cover what is near; whose turn it is must be known."""
    func = flatten(parse_func(text))
    assert read_lines(func) is func
