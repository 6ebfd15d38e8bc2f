"""Symbolic sizes: one compiled function for all of them."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright import te
from tilewright.codegen import inprocess
from tilewright.schedule.schedule import Schedule


def test_softmax_of_any_size() -> None:
    n, m = te.var("n"), te.var("m")
    a = te.placeholder((n, m), name="A")
    k, r = te.reduce_axis(m, "k"), te.reduce_axis(m, "r")
    top = te.compute((n,), lambda i: te.max(a[i, k], k), name="M")
    e = te.compute((n, m), lambda i, j: te.exp(a[i, j] - top[i]), name="E")
    total = te.compute((n,), lambda i: te.sum(e[i, r], r), name="S")
    b = te.compute((n, m), lambda y, x: e[y, x] / total[y], name="B")
    s = Schedule(te.func("softmax", [a], [b]))
    y, x = s.loops("B")
    x_o, x_i = s.split(x, (None, 16))
    for name in ("S", "E", "M"):
        s.compute_at(name, y)
    s.vectorize(x_i)
    s.parallel(y)
    loaded = inprocess.load(s.func)
    assert x_o
    random = np.random.default_rng(0)
    for rows, columns in ((1, 1), (3, 15), (4, 16), (2, 33), (5, 100)):
        x_ = random.standard_normal((rows, columns), np.float32)
        out = np.zeros_like(x_)
        loaded(x_, out, symbols={"n": rows, "m": columns})
        want = np.exp(x_ - x_.max(1, keepdims=True))
        np.testing.assert_allclose(out, want / want.sum(1, keepdims=True), rtol=1e-5)


@pytest.mark.parametrize("vectorized", [False, True])
def test_matmul_with_tiles_of_any_size(vectorized: bool) -> None:
    n, m, d = te.var("n"), te.var("m"), te.var("d")
    a, b = te.placeholder((n, d), name="A"), te.placeholder((d, m), name="B")
    k = te.reduce_axis(d, "k")
    c = te.compute((n, m), lambda i, j: te.sum(a[i, k] * b[k, j], k), name="C")
    s = Schedule(te.func("matmul", [a, b], [c]))
    out = s.cache_write("C", "C", "local")
    i, j = s.loops(out)
    i_o, i_i = s.split(i, (None, 4))
    j_o, j_i = s.split(j, (None, 16))
    s.reorder(i_o, j_o, i_i, j_i)
    s.compute_at("C", j_o)
    *_, y, x, r = s.loops("C")
    s.reorder(r, y, x)
    if vectorized:
        s.unroll(y)
        s.vectorize(x)
        s.unroll(i_i)
        s.vectorize(j_i)
    s.parallel(i_o)
    loaded = inprocess.load(s.func)
    random = np.random.default_rng(1)
    for rows, columns, depth in ((1, 1, 1), (4, 16, 8), (7, 19, 5), (9, 64, 3)):
        x_ = random.standard_normal((rows, depth), np.float32)
        y_ = random.standard_normal((depth, columns), np.float32)
        got = np.zeros((rows, columns), np.float32)
        loaded(x_, y_, got, symbols={"n": rows, "m": columns, "d": depth})
        np.testing.assert_allclose(got, x_ @ y_, rtol=1e-4, atol=1e-5)
