"""A sample of `python -m tests.strategy.typed_products`, and what its reading of loops sees."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.strategy.typed_products import FAMILIES, TYPES, draw_case, judge, kernels, widened
from tilewright.graph import Builder


@pytest.mark.sampled
@pytest.mark.parametrize("types", TYPES)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_few_shapes(family: str, types: str) -> None:
    for number in range(3):
        case = draw_case(number, 7, family, types)
        assert judge(case, threads=1 + number % 2) == "", f"case {number}\n{case[0]}"


@pytest.mark.slow  # 500 of each: python -m tests.strategy.typed_products
@pytest.mark.parametrize("types", TYPES)
@pytest.mark.parametrize("family", FAMILIES)
def test_many_shapes(family: str, types: str, draws: Callable[[int], int]) -> None:
    for number in range(draws(50)):
        case = draw_case(number, 8, family, types)
        assert judge(case, threads=1 + number % 3) == "", f"case {number}\n{case[0]}"


@pytest.mark.parametrize("op", ["matmul", "conv_transpose"])
def test_a_widened_operand_is_seen(op: str) -> None:
    build, space = Builder("widened"), () if op == "matmul" else (5,)
    x, w = build.input("x", "i8", (20, 40, *space)), build.input("w", "i32", (40, 30, *space))
    wide = build.emit("cast", x, to="i32")
    graph = build.finish({"y": build.emit(op, wide, w)})
    assert widened(graph, kernels(graph, 1))
