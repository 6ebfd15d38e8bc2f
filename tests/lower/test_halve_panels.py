"""halve_panels: a last panel of columns that is at most half full is half a panel."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.lower.programs import same_meaning
from tilewright.driver.compile import compile_observed
from tilewright.graph.builder import Builder
from tilewright.ir.parse import parse_func
from tilewright.ir.stmt import For, Let
from tilewright.ir.verify import verify
from tilewright.ir.walk import statements
from tilewright.lower.halve_panels import halve_panels
from tilewright.lower.partition_loops import partition_loops
from tilewright.lower.pipeline import simplify

PRODUCT = """
def product(A: f32[8, 5], B: f32[(n + 7) // 8, 5, 8], C: f32[8, n], n: i64):
    for p in serial(0, (n + 7) // 8):
        S = alloc(f32[8, 1, 8], "local")
        for i in unroll(0, 8):
            for v in unroll(0, 2):
                for l in vectorize(0, 4):
                    S[i, 0, v * 4 + l] = 0.0
        for k in serial(0, 5):
            for j in unroll(0, 8):
                for u in unroll(0, 2):
                    for m in vectorize(0, 4):
                        S[j, 0, u * 4 + m] = S[j, 0, u * 4 + m] + A[j, k] * B[p, k, u * 4 + m]
        for h in unroll(0, 8):
            for t in unroll(0, 2):
                for w in vectorize(0, 4):
                    if p * 8 + t * 4 + w < n:
                        C[h, p * 8 + t * 4 + w] = S[h, 0, (p * 8 + t * 4 + w) % 8]
"""

NUMBER = """\
        T = alloc(f32[()], "local")
        T[()] = 0.0
"""


def test_a_panel_of_one_vector() -> None:
    """Its round has no second one, and computes what it computed before."""
    func = parse_func(PRODUCT)
    made = halve_panels(func)
    verify(made, "loops")
    (half,) = [s for s in statements(made.body) if isinstance(s, Let)]
    assert not [s for s in statements(half.body) if isinstance(s, For) and s.name[0] in "vut"]
    for n in (0, 1, 3, 4, 5, 7, 8, 9, 12, 13, 16, 17, 20, 21):
        same_meaning(func, made, n=n)
        same_meaning(func, simplify(partition_loops(made)), n=n)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("+ t * 4 + w) % 8", "+ t * 4 + w) % 8 * 0"),  # lanes that others compute
        ("S[h, 0, (p * 8 + t * 4 + w) % 8]", "S[h, 0, 4 - t * 4 + w]"),  # the other vector
        ("p * 8 + t * 4 + w < n", "p * 8 + t * 4 + w <= n - 3"),  # another end
        ("(n + 7) // 8):\n        S", "n // 8):\n        S"),  # whole panels alone
        ("unroll(0, 8)", "unroll(0, 7)"),  # sums that would wait for themselves
        ("        S = ", f"{NUMBER}        S = "),  # no vector has a part of it
    ],
)
def test_what_stays(old: str, new: str) -> None:
    """What may need the second vector though nothing of it is stored, and other loops."""
    assert old in PRODUCT
    func = parse_func(PRODUCT.replace(old, new))
    assert halve_panels(func) is func


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("line", ["cpu", "cpu -mcpu=haswell"])
def test_attention_of_open_length(threads: int, line: str) -> None:
    """Against NumPy in f64; as on one thread, bit by bit."""
    build = Builder("m")
    shape = (build.symbol("n"), 3, build.symbol("t"), 16)
    q, k, v = (build.input(name, "f32", shape) for name in "qkv")
    scores = build.emit("matmul", q, build.emit("transpose", k, perm=(0, 1, 3, 2)))
    weights = build.emit("softmax", scores, axis=3)
    graph = build.finish({"y": build.emit("matmul", weights, v)})
    run = compile_observed(graph, target=line, threads=threads, cache=False)
    one = compile_observed(graph, target=line, threads=1, cache=False)
    random = np.random.default_rng()
    for n, t in (
        (1, 1),
        (2, 7),
        (1, 8),
        (1, 9),
        (2, 15),
        (1, 16),
        (1, 17),
        (3, 31),
        (1, 33),
        (2, 40),
    ):
        given: Any = [random.standard_normal((n, 3, t, 16)).astype(np.float32) for _ in "qkv"]
        a, b, c = (x.astype(np.float64) for x in given)
        exact = np.exp(a @ b.transpose(0, 1, 3, 2))
        exact = exact / exact.sum(3, keepdims=True) @ c
        np.testing.assert_allclose(run(*given)[0], exact, rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(run(*given)[0], one(*given)[0])
