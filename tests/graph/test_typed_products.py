"""Products and convolutions that name the dtypes of their sums and results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.graph.rewriting import ops
from tilewright.graph import Builder, Graph, evaluate, parse
from tilewright.graph.passes.pipeline import optimise
from tilewright.support.errors import CompileError


def product(left: str, right: str, **types: str) -> Any:
    build = Builder("product")
    x, w = build.input("x", left, (3, 4)), build.input("w", right, (4, 5))
    return build.emit("matmul", x, w, **types)


@pytest.mark.parametrize(
    ("left", "right", "types", "made"),
    [
        ("i8", "i8", {}, "i8"),
        ("f16", "f16", {}, "f16"),
        ("i8", "i8", {"out_dtype": "i32"}, "i32"),
        ("u8", "i8", {"acc_dtype": "i32"}, "i32"),
        ("i8", "u8", {"acc_dtype": "i64", "out_dtype": "i32"}, "i32"),
        ("i16", "u8", {"out_dtype": "i64"}, "i64"),
        ("bf16", "bf16", {"out_dtype": "f32"}, "f32"),
        ("f16", "f16", {"acc_dtype": "f32", "out_dtype": "f16"}, "f16"),
        ("f32", "f32", {"acc_dtype": "f64", "out_dtype": "f32"}, "f32"),
    ],
)
def test_types(left: str, right: str, types: dict[str, str], made: str) -> None:
    assert product(left, right, **types).dtype.name == made


@pytest.mark.parametrize(
    ("left", "right", "types", "why"),
    [
        ("u8", "i8", {}, "operands have dtypes u8 and i8"),
        ("f16", "bf16", {"out_dtype": "f32"}, "operands have dtypes f16 and bf16"),
        ("i8", "f32", {"out_dtype": "f32"}, "operands have dtypes i8 and f32"),
        ("i8", "i8", {"out_dtype": "f32"}, "products of i8 cannot be accumulated in f32"),
        ("f32", "f32", {"acc_dtype": "bf16"}, "sums in bf16 do not hold products of f32 and f32"),
        ("i16", "i8", {"acc_dtype": "i8"}, "sums in i8 do not hold products of i16 and i8"),
    ],
)
def test_types_that_do_not_fit(left: str, right: str, types: dict[str, str], why: str) -> None:
    with pytest.raises(CompileError, match=why):
        product(left, right, **types)


def test_a_bias_has_the_type_of_the_result() -> None:
    build = Builder("bias")
    x, w = build.input("x", "u8", (1, 2, 4)), build.input("w", "i8", (3, 2, 1))
    few, many = build.input("few", "i8", (3,)), build.input("many", "i32", (3,))
    assert build.emit("conv", x, w, many, out_dtype="i32").dtype.name == "i32"
    with pytest.raises(CompileError, match="its bias holds i8, its result i32"):
        build.emit("conv", x, w, few, out_dtype="i32")


def test_text_says_the_types() -> None:
    build = Builder("said")
    x, w = build.input("x", "i8", (3, 4)), build.input("w", "u8", (4, 5))
    graph = build.finish({"y": build.emit("matmul", x, w, out_dtype="i32")})
    assert "out_dtype='i32'" in str(graph)
    assert str(parse(str(graph))) == str(graph)


def scaled(first: bool) -> tuple[Graph, list[np.ndarray]]:
    """A product of i8 to i32, the operand or the result of which a number scales."""
    build = Builder("scaled")
    numbers = np.random.default_rng(3)
    x = numbers.integers(-128, 128, (6, 9)).astype(np.int8)
    value = build.input("x", "i8", x.shape)
    w = build.constant(numbers.integers(-128, 128, (9, 5)).astype(np.int8))
    if first:
        value = build.emit("mul", value, build.constant(np.int8(100)))
    y = build.emit("matmul", value, w, out_dtype="i32")
    if not first:
        y = build.emit("mul", y, build.constant(np.int32(1000)))
    return build.finish({"y": y}), [x]


@pytest.mark.parametrize("first", [True, False])
def test_numbers_stay_where_they_fit(first: bool) -> None:
    """A factor of the result does not fit the weights; one of an operand wraps before the sums."""
    graph, arrays = scaled(first)
    after = optimise(graph)
    assert sorted(ops(after)) == ["matmul", "mul"]
    np.testing.assert_array_equal(evaluate(after, arrays)[0], evaluate(graph, arrays)[0])


def test_a_bias_goes_into_a_convolution_of_integers() -> None:
    build = Builder("biased")
    x, w = build.input("x", "u8", (1, 2, 4, 4)), build.constant(np.ones((3, 2, 1, 1), np.int8))
    y = build.emit("conv", x, w, out_dtype="i32")
    y = build.emit("add", y, build.constant(np.arange(3, dtype=np.int32).reshape(3, 1, 1)))
    assert ops(optimise(build.finish({"y": y}))) == ["conv"]
