"""add_products: products that a sum in registers takes are added one by one."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.codegen import inprocess
from tilewright.ir.parse import parse_func
from tilewright.ir.text import print_func
from tilewright.lower.add_products import add_products
from tilewright.lower.pipeline import lower
from tilewright.target.target import target

SUM = """
def f(A: {of}[24], B: {of}[32], C: {of}[3], Y: {of}[24]):
    S = alloc({of}[24], "{scope}")
    for i in unroll(0, 3):
        for j in vectorize(0, 8):
            S[i * 8 + j] = {of}(0)
    for k in serial(0, 4):
        for i in unroll(0, 3):
            for j in vectorize(0, 8):
                S[i * 8 + j] = S[i * 8 + j] + {value}
    for i in unroll(0, 3):
        for j in vectorize(0, 8):
            Y[i * 8 + j] = S[i * 8 + j]
"""


def text(value: str, of: str = "f32", scope: str = "local") -> str:
    func = parse_func(SUM.format(of=of, value=value, scope=scope))
    (line,) = [n for n in print_func(add_products(func)).splitlines() if "] + " in n]
    return line.split(" = ")[1]


def test_terms_are_added_one_by_one():
    a, b, c = "A[i * 8 + j]", "B[k * 8 + j]", "C[i]"
    held = "S[i * 8 + j]"
    assert text(f"({a} * {b} - {c} * {b})") == f"{held} + {a} * {b} - {c} * {b}"
    assert text(f"({c} * {b} - ({a} * {b} - {a} * {c}))") == (
        f"{held} + {c} * {b} - {a} * {b} + {a} * {c}"
    )


@pytest.mark.parametrize(
    ("value", "of", "scope"),
    [
        ("(A[i * 8 + j] * B[k * 8 + j] - C[i])", "f32", "local"),  # no product
        ("C[i] * B[k * 8 + j] * A[i * 8 + j]", "f32", "local"),  # one term
        ("(A[i * 8 + j] * B[k * 8 + j] - C[i] * C[i])", "i32", "local"),  # nothing is gained
        ("(A[i * 8 + j] * B[k * 8 + j] - C[i] * C[i])", "f32", "global"),  # not in registers
    ],
)
def test_the_rest_stays(value, of, scope):
    func = parse_func(SUM.format(of=of, value=value, scope=scope))
    assert add_products(func) is func


def test_results_are_the_same():
    value = "(A[i * 8 + j] * C[i] * B[k * 8 + j] - C[i] * B[k * 8 + j])"
    func = parse_func(SUM.format(of="f32", value=value, scope="local"))
    random = np.random.default_rng()
    a, b, c = (random.standard_normal(n, np.float32) for n in (24, 32, 3))
    y = np.zeros(24, np.float32)
    inprocess.run(lower(func, target("cpu")), a, b, c, y)
    along = c.repeat(8)
    expected = ((a * along - along) * b.reshape(4, 8).sum(0)[np.arange(24) % 8]).astype(np.float64)
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)
