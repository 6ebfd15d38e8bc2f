"""A sample of `python -m tests.strategy.random_shapes`."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.strategy.random_shapes import FAMILIES, draw_case, judge


@pytest.mark.parametrize("family", FAMILIES)
def test_a_few_shapes(family: str) -> None:
    for number in range(2):
        graph, arrays = draw_case(number, 7, family)
        assert judge(graph, arrays, threads=1 + number) == ""


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_many_shapes(family: str, draws: Callable[[int], int]) -> None:
    for number in range(draws(25)):
        graph, arrays = draw_case(number, 8, family)
        assert judge(graph, arrays, threads=1 + number % 3) == "", f"case {number}\n{graph}"
