"""rounded(a b) + c: two roundings, where a b + c may have one."""

from __future__ import annotations

import numpy as np
import pytest

from tests.codegen.test_csource import run
from tilewright import te
from tilewright.driver.compile import compile_observed
from tilewright.driver.kernels import KernelPool
from tilewright.graph import Builder
from tilewright.ir.expr import Call
from tilewright.schedule.schedule import Schedule


@pytest.fixture
def numbers() -> list[np.ndarray]:
    """a, b, and c near -a b, where the second rounding shows."""
    a, b = np.random.default_rng(5).standard_normal((2, 37), np.float32)
    return [a, b, -(a * b) * np.float32(1.0001)]


@pytest.mark.parametrize("op", ["add", "sub"])
def test_compiled(op, numbers):
    build = Builder("g")
    x, y, z = (build.input(n, "f32", (37,)) for n in "abc")
    product = build.emit("rounded", build.emit("mul", x, y))
    fused = build.emit(op, build.emit("mul", x, y), z)
    outputs = [build.emit(op, product, z), fused]
    a, b, c = numbers
    found = compile_observed(build.finish(outputs), cache=False, pool=KernelPool(1))(a, b, c)
    np.testing.assert_array_equal(found[0], a * b + c if op == "add" else a * b - c)
    exact = a.astype(np.float64) * b + (c if op == "add" else -c.astype(np.float64))
    np.testing.assert_allclose(found[1], exact, rtol=1e-3)


def test_in_c(tmp_path, numbers):
    a, b, c = (te.placeholder((37,), "f32", n) for n in "abc")
    y = te.compute((37,), lambda i: Call("rounded", (a[i] * b[i],), a.dtype) + c[i], name="y")
    made = np.zeros(37, np.float32)
    source = run(tmp_path, Schedule(te.func("twice", [a, b, c], [y])).func, *numbers, made)
    np.testing.assert_array_equal(made, numbers[0] * numbers[1] + numbers[2])
    assert "volatile" in source.text  # whatever the compiler is told about products and sums
