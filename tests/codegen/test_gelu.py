"""GELU compiled, beside float64: near zero, in its tails, and at the ends of the range."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import ndtr

import tilewright as tw
from tilewright.graph import Builder


def exact(x: np.ndarray, tanh: bool) -> np.ndarray:
    if tanh:
        return x * 0.5 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    return x * ndtr(x)


@pytest.mark.parametrize("tanh", [False, True])
def test_gelu(tanh: bool) -> None:
    tiny = np.logspace(-30, 30, 3000)
    x = np.concatenate([np.linspace(-15, 15, 30001), tiny, -tiny]).astype(np.float32)
    build = Builder("g")
    given = build.input("x", "f32", x.shape)
    exe = tw.compile(build.finish([build.emit("gelu", given, tanh=tanh)]), cache=False)
    want = exact(x.astype(np.float64), tanh)
    found = exe(x)[0]
    error = np.abs(found - want)
    assert (error <= 1.2e-7 + 3e-7 * np.abs(want)).all()
    small = np.abs(x) < 1
    assert (error <= 4e-7 * np.abs(want))[small].all()  # relative to the value there
    ends = np.full(x.shape, np.nan, np.float32)
    ends[:2] = np.inf, 0
    found = exe(ends)[0]
    assert found[0] == np.inf and found[1] == 0 and np.isnan(found[2:]).all()
