"""A select reads memory only where its condition says so, but what the condition reads anyway."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.codegen import inprocess
from tilewright.codegen.llvm import emit
from tilewright.ir import interp
from tilewright.ir.parse import parse_func
from tilewright.target.target import target

AVX512 = target("cpu -mtriple=x86_64-unknown-linux-gnu -mcpu=skylake-avx512")
CHOICE = """
def choice(A: f32[16], B: f32[16], Y: f32[16]):
    for i in vectorize(0, 16):
        Y[i] = select({cond}, A[i] * 2.0, B[i])
"""
SHARED = """
def shared(A: f32[40], Y: f32[16], n: i64):
    for i in vectorize(0, 16):
        Y[i] = select(Y[i] > 1.0, A[{position} + n], 0.0)
"""
GELU = """
def vectors(A: f32[384], Y: f32[384]):
    for i in unroll(0, 24):
        for j in vectorize(0, 16):
            Y[i * 16 + j] = gelu(A[i * 16 + j])
"""


@pytest.mark.parametrize(
    "cond, guarded",
    [
        ("A[i] + B[i] > 1.0", 0),
        ("A[i] > 1.0", 1),  # B's
        ("select(B[i] > 0.5, A[i], 0.0) > 1.0", 2),  # A's: not read where B is small
    ],
)
def test_what_a_condition_reads_needs_no_mask(cond: str, guarded: int) -> None:
    func = parse_func(CHOICE.format(cond=cond))
    text = emit(func, AVX512).text
    assert text.count("call <16 x float> @llvm.masked.load") == guarded
    a, b = np.random.default_rng(3).uniform(0, 2, (2, 16)).astype(np.float32)
    found, want = np.zeros((2, 16), np.float32)
    inprocess.run(func, a, b, found)
    interp.run(func, a, b, want)
    np.testing.assert_array_equal(found, want)
    assert 0 < np.isin(found, b).sum() < 16


@pytest.mark.parametrize(
    "position, gathered", [("i // 2", False), ("i // 4 * 9", False), ("i // 8", True)]
)
def test_elements_that_lanes_share_are_read_where_one_of_them_is_on(
    position: str, gathered: bool
) -> None:
    """Up to four lanes of an element: then their masks are put together."""
    func = parse_func(SHARED.format(position=position))
    assert ("llvm.masked.gather" in emit(func, AVX512).text) == gathered
    rng = np.random.default_rng(5)
    for part in (0.1, 0.5, 0.9):
        a, on = rng.uniform(2, 3, 40), rng.uniform(size=16) < part
        a, found = a.astype(np.float32), np.where(on, 2, 0).astype(np.float32)
        want = found.copy()
        inprocess.run(func, a, found, symbols={"n": 3})
        interp.run(func, a, want, symbols={"n": 3})
        np.testing.assert_array_equal(found, want)
        assert np.count_nonzero(found) == on.sum()


def test_gelu_is_one_call_for_each_vector() -> None:
    """Not sixty instructions: a tile of a convolution has dozens of vectors."""
    text = emit(parse_func(GELU), AVX512).text
    body, _, functions = text.partition("define internal <16 x float>")
    assert body.count('@"tw.gelu.f32.v16"(') == 24 and " fmul " not in body
    assert functions.count(" #2 {") == 1  # not inlined
