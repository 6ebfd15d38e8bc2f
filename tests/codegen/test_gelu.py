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


@pytest.mark.parametrize("tanh", [False, True])
@pytest.mark.parametrize("kind", ["f32", "f64", "f16"])
def test_left_tail(kind: str, tanh: bool) -> None:
    """Small beside x, but no zeros; of -inf the limit."""
    ends = {"f32": -13, "f64": -37, "f16": -4}
    end = max(ends[kind], -20) if tanh else ends[kind]
    x = np.linspace(end, -1, 4001).astype({"f32": "f4", "f64": "f8", "f16": "f2"}[kind])
    x[0] = -np.inf if not tanh else 0
    build = Builder("g")
    given = build.input("x", kind, x.shape)
    found = tw.compile(build.finish([build.emit("gelu", given, tanh=tanh)]), cache=False)(x)[0]
    wide = x[1:].astype(np.float64)
    u = math.sqrt(8 / math.pi) * (wide + 0.044715 * wide**3)
    want = wide / (1 + np.exp(-u)) if tanh else wide * ndtr(wide)
    error = np.abs(found[1:].astype(np.float64) - want) / np.abs(want)
    normal = np.abs(want) > np.finfo(x.dtype).tiny * 10
    least = {"f32": 2e-3, "f64": 1e-12, "f16": 6e-4}[kind]
    assert found[0] == 0 and error[normal].max() < least
    if kind == "f32":
        assert error[wide > -8].max() < 5e-5


@pytest.mark.parametrize("op, attrs", [("hard_swish", {}), ("hard_sigmoid", {"alpha": 1 / 6})])
@pytest.mark.parametrize("kind", ["f32", "f16"])
def test_near_the_foot(op: str, attrs: dict[str, float], kind: str) -> None:
    x = np.linspace(-3.01, -2.99, 2001).astype({"f32": "f4", "f16": "f2"}[kind])
    build = Builder("g")
    given = build.input("x", kind, x.shape)
    found = tw.compile(build.finish([build.emit(op, given, **attrs)]), cache=False)(x)[0]
    wide = x.astype(np.float64)
    want = np.clip(wide + 3, 0, 6) / 6 * (wide if op == "hard_swish" else 1)
    error = np.abs(found.astype(np.float64) - want)
    assert (error <= 2 * np.finfo(x.dtype).eps * np.abs(want)).all()
