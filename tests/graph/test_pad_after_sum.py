"""Sums of padded tensors add what was there."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tests.graph.rewriting import ops, rewritten
from tilewright.graph import Builder
from tilewright.graph.passes.canonicalise import canonicalise

BEFORE, AFTER = (0, 1, 2), (1, 0, 2)


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("axes", [None, (-1,), (0, 1)])
def test_zeros_of_a_pad_are_left_out(axes, keepdims):
    """Of open sizes too, where there may be no element at all."""

    def summed(n, m):
        build = Builder("g")
        x = build.input("x", "f32", (n or build.symbol("n"), 3, m or build.symbol("m")))
        y = build.emit("pad", x, before=BEFORE, after=AFTER)
        return build.finish([build.emit("reduce_sum", y, axes=axes, keepdims=keepdims)])

    made = ops(rewritten(canonicalise, summed(4, 5)))
    assert made == ["reduce_sum", "pad"][: 1 if axes is None else 2]
    exe = tw.compile(summed(None, None), cache=False, threads=2)
    for shape in [(0, 3, 4), (1, 3, 1), (5, 3, 17), (2, 3, 0)]:
        x = np.random.default_rng(1).standard_normal(shape, np.float32)
        wanted = np.pad(x, [*zip(BEFORE, AFTER, strict=True)]).sum(axes, keepdims=keepdims)
        np.testing.assert_allclose(exe(x)[0], wanted, rtol=1e-5, atol=1e-5)
