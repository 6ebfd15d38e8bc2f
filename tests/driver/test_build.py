"""`tw.build`: one function as it was scheduled."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tilewright import te
from tilewright.ir.parse import parse_func
from tilewright.support.errors import CompileError


def double(shape, dtype="f32"):
    a = te.placeholder(shape, dtype, name="A")
    b = te.compute(shape, lambda *i: a[i] + a[i], name="B")
    return te.func("double", [a], [b])


def test_a_function_and_a_schedule():
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    for thing in (double((3, 4)), tw.Schedule(double((3, 4)))):
        exe = tw.build(thing)
        (y,) = exe(x)
        np.testing.assert_array_equal(y, x + x)
        assert exe.name == "double"
        assert [str(t) for t in (*exe.inputs, *exe.outputs)] == ["A: f32[3, 4]", "B: f32[3, 4]"]


@pytest.mark.parametrize("dtype", ["f64", "f16", "i64", "i32", "i8", "u8"])
def test_dtypes(dtype):
    exe = tw.build(double((5,), dtype))
    kind = {"f64": "float64", "f16": "float16", "u8": "uint8"}.get(dtype, dtype.replace("i", "int"))
    x = np.arange(5).astype(kind)
    np.testing.assert_array_equal(exe(x)[0], x + x)


def test_inputs_and_outputs_keep_the_order_of_parameters():
    a, b = te.placeholder((4,), name="A"), te.placeholder((4,), name="B")
    total = te.compute((4,), lambda i: a[i] + b[i], name="total")
    gap = te.compute((4,), lambda i: a[i] - b[i], name="gap")
    exe = tw.build(te.func("both", [a, b], [total, gap]))
    x, y = np.arange(4, dtype=np.float32), np.full(4, 3, np.float32)
    first, second = exe(A=x, B=y)
    np.testing.assert_array_equal(first, x + y)
    np.testing.assert_array_equal(second, x - y)


def test_symbolic_sizes_and_buffers_between_loops():
    n = te.var("n")
    a = te.placeholder((n, 8), name="A")
    k = te.reduce_axis(8, "k")
    total = te.compute((n,), lambda i: te.sum(a[i, k], k), name="total")
    share = te.compute((n, 8), lambda i, j: a[i, j] / total[i], name="share")
    exe = tw.build(te.func("share", [a], [share]))
    for rows in (1, 5, 64):
        x = np.random.default_rng(rows).random((rows, 8), np.float32)
        np.testing.assert_allclose(exe(x)[0], x / x.sum(1, keepdims=True), rtol=1e-6)


@pytest.mark.parametrize("threads", [1, 2])
def test_parallel_loops(threads):
    s = tw.Schedule(double((64, 1024)))
    s.parallel("i0" if "i0" in s.loops() else s.loops()[0])
    exe = tw.build(s, threads=threads)
    x = np.random.default_rng(0).random((64, 1024), np.float32)
    np.testing.assert_array_equal(exe(x)[0], x + x)
    assert exe.threads == threads


def test_a_function_from_its_text():
    exe = tw.build(
        parse_func(
            "def square(A: f32[n], B: f32[n], n: i64):\n"
            "    for i in serial(0, n):\n"
            "        B[i] = A[i] * A[i]\n"
        )
    )
    x = np.arange(7, dtype=np.float32)
    np.testing.assert_array_equal(exe(x)[0], x * x)


def test_it_saves_and_loads(tmp_path):
    path = tw.build(double((3,))).save(tmp_path / "double.tw")
    np.testing.assert_array_equal(tw.load(path)(np.ones(3, np.float32))[0], np.full(3, 2))


def test_other_targets_are_refused():
    with pytest.raises(CompileError) as caught:
        tw.build(double((3,)), "cuda")
    assert str(caught.value).startswith(
        "cannot build 'double' for 'cuda': functions that run here are built for CPUs"
    )


def test_what_is_no_function():
    with pytest.raises(tw.CompileError, match="build a int: it is neither a function nor a Sch"):
        tw.build(3)
    with pytest.raises(tw.ScheduleError, match="cannot schedule a int: it is no function"):
        tw.Schedule(3)
