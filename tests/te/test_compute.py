"""Building functions from tensor expressions: structure, names and what is refused."""

import functools
from collections.abc import Callable

import numpy as np
import pytest

from tilewright import te
from tilewright.ir.expr import Expr
from tilewright.ir.interp import run
from tilewright.ir.stmt import Alloc, Block, For
from tilewright.ir.walk import blocks, statements
from tilewright.support.errors import CompileError


def matmul():
    A, B = te.placeholder((64, 32), name="A"), te.placeholder((32, 16), name="B")
    k = te.reduce_axis(32, "k")
    return A, B, te.compute((64, 16), lambda i, j: te.sum(A[i, k] * B[k, j], k), name="C")


def test_matmul_is_one_block_with_spatial_and_reduce_axes():
    A, B, C = matmul()
    (block,) = blocks(te.func("matmul", [A, B], [C]))
    assert [(a.var.name, a.kind) for a in block.axes] == [
        ("vi", "spatial"),
        ("vj", "spatial"),
        ("vk", "reduce"),
    ]
    assert block.init is not None


def test_a_reduction_inside_an_expression_becomes_a_tensor_of_its_own():
    A, B, _ = matmul()
    k = te.reduce_axis(32, "k")
    C = te.compute((64, 16), lambda i, j: te.maximum(te.sum(A[i, k] * B[k, j], k), 0.0), name="C")
    function = te.func("relu_matmul", [A, B], [C])
    assert [b.name for b in blocks(function)] == ["C_sum", "C"]
    assert isinstance(function.body, Alloc)


def test_symbolic_sizes_become_parameters_in_order_of_appearance():
    n, m = te.var("n"), te.var("m")
    A = te.placeholder((m, n), name="A")
    B = te.compute((n, m), lambda i, j: A[j, i], name="B")
    assert [p.name for p in te.func("transpose", [A], [B]).params] == ["A", "B", "m", "n"]


def test_several_outputs_share_one_block():
    A = te.placeholder((8,), name="A")
    low, high = te.compute((8,), lambda i: (A[i] - 1.0, A[i] + 1.0), name="pair")
    (block,) = blocks(te.func("pair", [A], [low, high]))
    assert [r.buffer.name for r in block.writes] == ["pair_0", "pair_1"]


def test_scan_runs_over_an_ordered_axis():
    X, h0 = te.placeholder((5, 4), name="X"), te.placeholder((4,), name="h0")
    states = te.scan(
        lambda t, h: te.compute((4,), lambda j: te.tanh(h[j] + X[t, j]), name="h"), h0, 5
    )
    function = te.func("rnn", [X, h0], [states])
    inside = [b for b in blocks(function) if isinstance(b, Block) and b.name != "scan_state_init"]
    assert inside and all(b.axes[0].kind == "ordered" for b in inside)


def test_a_scan_gives_the_last_state_and_stacked_rows():
    X, h0 = te.placeholder((te.var("t"), 4), name="X"), te.placeholder((4,), name="h0")

    def step(t, h):
        new = te.compute((4,), lambda j: h[j] * 0.5 + X[t, j], name="h")
        return new, te.compute((2,), lambda j: new[j] + h[j + 2], name="row")

    last, rows = te.scan(step, h0, X.shape[0], stacks=False)
    function = te.func("halves", [X, h0], [last, rows])
    x, h = np.random.default_rng(0).standard_normal((5, 4)).astype(np.float32), np.ones(4, "f4")
    got, stacked = np.empty(4, "f4"), np.empty((5, 2), "f4")
    run(function, x, h, got, stacked)
    for t in range(5):
        before, h = h, h * np.float32(0.5) + x[t]
        np.testing.assert_array_equal(stacked[t], h[:2] + before[2:])
    np.testing.assert_array_equal(got, h)
    run(function, x[:0], np.ones(4, "f4"), got, stacked[:0])
    np.testing.assert_array_equal(got, np.ones(4))  # no step: the state before the first


def test_a_placeholder_that_is_not_given_is_named():
    A, _, C = matmul()
    with pytest.raises(CompileError, match="placeholder 'B' is read but is not among the inputs"):
        te.func("matmul", [A], [C])


def test_an_input_cannot_be_an_output():
    A = te.placeholder((4,), name="A")
    with pytest.raises(CompileError, match="output 'A' is an input"):
        te.func("same", [A], [A])


def test_operands_of_two_dtypes_are_refused_with_the_cast_to_write():
    A, B = te.placeholder((4,), "f32", "A"), te.placeholder((4,), "i32", "B")
    with pytest.raises(TypeError, match=r"cast one: x\.astype\('i32'\)"):
        te.compute((4,), lambda i: A[i] + B[i])


def test_a_wrong_number_of_indices_is_refused():
    A = te.placeholder((4, 4), name="A")
    with pytest.raises(IndexError, match="'A' has 2 dimensions, indexed with 1"):
        te.compute((4,), lambda i: A[i])


def test_what_a_value_names_twice_is_looked_at_once() -> None:
    x = te.placeholder((8,), "f32", "X")

    def doubled(i: Expr) -> Expr:
        value = x[i]
        for _ in range(60):  # expanded, 2^60 reads
            value = value + value
        return value

    f = te.func("doubled", [x], [te.compute((8,), doubled, "Y")])
    (block,) = blocks(f)
    assert [r.buffer.name for r in block.reads] == ["X"]
    assert [v.name for v in f.buffers] == ["X", "Y"]


def test_axes_take_the_names_of_parameters() -> None:
    def wrapped(i: Expr, j: Expr) -> Expr:
        return i + j

    @functools.wraps(wrapped)
    def anything(*args: Expr, **kwargs: Expr) -> Expr:
        return wrapped(*args, **kwargs)

    def names(value: Callable[..., Expr]) -> list[str]:
        func = te.func("f", [], [te.compute((4, 8), value, name="C")])
        return [loop.name for loop in statements(func.body) if isinstance(loop, For)]

    assert names(lambda *i: i[0] + i[1]) == ["i0", "i1"]
    assert names(lambda *i, more=1: i[0] + more) == ["i0", "i1"]
    assert names(lambda a, *i: a + i[0]) == ["a", "i0"]
    assert names(lambda a, b: a + b) == ["a", "b"]
    assert names(anything) == ["i", "j"]
