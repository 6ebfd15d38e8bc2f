"""whole_stores: the last vector of a row in a kernel's own memory is stored whole."""

from __future__ import annotations

import numpy as np
import pytest

from tests.lower.programs import same_meaning
from tilewright.driver.compile import compile_observed
from tilewright.graph.builder import Builder
from tilewright.ir.expr import Select
from tilewright.ir.parse import parse_func
from tilewright.ir.stmt import Alloc, Func, If, Store
from tilewright.ir.text import print_expr
from tilewright.ir.verify import verify
from tilewright.ir.walk import statements, visit
from tilewright.lower.whole_stores import whole_stores

SIZES = (0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 33)

ROW = """
def row(A: f32[m, n], B: f32[m, n], m: i64, n: i64):
    for i in serial(0, m):
        T = alloc(f32[1, n], "global")
        for o in serial(0, (n + 3) // 4):
            for v in vectorize(0, 4):
                if o * 4 + v < n:
                    T[0, o * 4 + v] = exp(A[i, o * 4 + v])
        for q in serial(0, (n + 3) // 4):
            for w in vectorize(0, 4):
                if q * 4 + w < n:
                    B[i, q * 4 + w] = T[0, q * 4 + w] + 1.0
"""


def branches(func: Func) -> list[str]:
    """What is stored under a condition."""
    found = [s.then for s in statements(func.body) if isinstance(s, If)]
    return [s.buffer.name for s in found if isinstance(s, Store)]


def test_own_rows_end_with_whole_vectors() -> None:
    """What is read of an operand is asked for; results of others keep their ends."""
    func = parse_func(ROW)
    made = whole_stores(func)
    verify(made, "loops")
    assert branches(func) == ["T", "B"]
    assert branches(made) == ["B"]
    (row,) = [s.buffer for s in statements(made.body) if isinstance(s, Alloc)]
    assert print_expr(row.shape[-1]) == "(n + 3) // 4 * 4"
    assert len([n for n in visit(made.body) if isinstance(n, Select)]) == 1
    for n in SIZES:
        same_meaning(func, made, m=3, n=n)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("o * 4 + v < n", "o * 4 + v < n - 1"),  # another end than the row's
        ("(n + 3) // 4):\n            for v", "(n + 6) // 4):\n            for v"),  # beyond it
        ("exp(A[i, o * 4 + v])", "A[i, cast(i64, A[i, o * 4 + v])]"),  # zeros are indices
        ("exp(A[i, o * 4 + v])", "cast(f32, 7 // cast(i64, A[i, o * 4 + v]))"),  # and divide
        ("for v in vectorize(0, 4)", "for v in serial(0, 4)"),  # no vector
        ('"global"', '"local"'),  # registers
    ],
)
def test_what_stays(old: str, new: str) -> None:
    """Rows that may not end with a vector, and values that may not be computed of zeros."""
    assert old in ROW
    func = parse_func(ROW.replace(old, new))
    assert whole_stores(func) is func


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("line", ["cpu", "cpu -mcpu=haswell"])
def test_softmax_of_open_rows(threads: int, line: str) -> None:
    """Against NumPy in f64; as on one thread, bit by bit."""
    build = Builder("m")
    x = build.input("x", "f32", (build.symbol("n"), build.symbol("t")))
    graph = build.finish({"y": build.emit("softmax", x, axis=1)})
    run = compile_observed(graph, target=line, threads=threads, cache=False)
    one = compile_observed(graph, target=line, threads=1, cache=False)
    random = np.random.default_rng()
    for t in (1, 7, 8, 9, 15, 16, 17, 31, 32, 33, 48, 100):
        given = random.standard_normal((300, t)).astype(np.float32)
        exact = np.exp(given.astype(np.float64) - given.max(1, keepdims=True))
        exact /= exact.sum(1, keepdims=True)
        np.testing.assert_allclose(run(given)[0], exact, rtol=3e-6, atol=1e-8)
        np.testing.assert_array_equal(run(given)[0], one(given)[0])
