"""Accumulators of which only the lanes that were written are read take no mask: whether that is
told from the index, whatever the loops around are called."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.codegen import inprocess
from tilewright.codegen.llvm import emit
from tilewright.codegen.llvm_lanes import only_live_lanes_are_read
from tilewright.ir.parse import parse_func
from tilewright.ir.stmt import Alloc
from tilewright.ir.walk import statements
from tilewright.lower.pipeline import lower
from tilewright.target.target import target

TILE = """
def f(A: f32[6 * n], B: f32[6 * n], n: i64):
    sums = alloc(f32[192], "local")
    for c in unroll(0, 6):
        for o in unroll(0, 2):
            for i in vectorize(0, 16):
                if o * 16 + i < n:
                    sums[c * 32 + o * 16 + i] = 0.0
    for r in serial(0, 3):
        for d in unroll(0, 6):
            for p in unroll(0, 2):
                for j in vectorize(0, 16):
                    if p * 16 + j < n:
                        sums[d * 32 + p * 16 + j] = (
                            sums[d * 32 + p * 16 + j] + A[d * n + p * 16 + j])
    for e in unroll(0, 6):
        for q in unroll(0, 2):
            for k in vectorize(0, 16):
                if q * 16 + k < n:
                    B[e * n + q * 16 + k] = sums[e * 32 + q * 16 + k]
"""
OTHERS = {
    "another condition": TILE.replace("if q * 16 + k < n", "if e * 16 + k < n"),
    "digits that overlap": TILE.replace("* 32", "* 16"),
    "another index": TILE.replace("= sums[e * 32 + q * 16 + k]", "= sums[e * 32 + k + 16]"),
}


def told(text: str) -> bool:
    (alloc,) = (s for s in statements(parse_func(text).body) if isinstance(s, Alloc))
    return only_live_lanes_are_read(alloc)


def test_loops_of_other_names_write_and_read_the_same_lanes() -> None:
    assert told(TILE)
    machine = target("cpu -mcpu=skylake-avx512")
    assert "select <16 x i1>" not in emit(lower(parse_func(TILE), machine), machine).text


@pytest.mark.parametrize("text", OTHERS.values(), ids=OTHERS)
def test_lanes_that_others_read_keep_their_masks(text: str) -> None:
    assert not told(text)


@pytest.mark.parametrize("n", [1, 15, 16, 21, 32])
def test_tiles_of_an_open_width(n: int) -> None:
    func, machine = parse_func(TILE), target("cpu")
    a = np.random.default_rng(n).standard_normal(6 * n).astype(np.float32)
    b = np.zeros_like(a)
    inprocess.run(lower(func, machine), a, b, symbols={"n": n}, target=machine)
    np.testing.assert_allclose(b, 3 * a, rtol=1e-6)
