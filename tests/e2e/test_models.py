"""Every model against the framework that made it; the heavy ones are marked slow."""

from __future__ import annotations

import numpy as np
import pytest

from tests.e2e.cases import Case, Figures, cases, error, judge

FAST = ("dqn",)  # models that compile in seconds


def marked(case: Case) -> object:
    marks = () if case.name in FAST else (pytest.mark.slow,)
    return pytest.param(case, id=str(case), marks=marks)


@pytest.mark.parametrize("case", map(marked, cases()))
def test_model(case: Case) -> None:
    figures = judge(case)
    assert not figures.faults, figures


def test_error_is_relative_to_the_largest_value() -> None:
    a = np.array([1.0, 100.0], np.float32)
    assert error([a], [a]) == 0
    assert error([a + np.float32(1)], [a]) == pytest.approx(0.01)


def test_error_is_infinite_where_results_cannot_be_compared() -> None:
    a = np.ones(3, np.float32)
    for found in ([], [a[:2]], [a.astype(np.float64)], [a * np.float32("nan")]):
        assert error(found, [a]) == float("inf")


def test_figures_name_what_they_break() -> None:
    assert not Figures(1e-5, 1.1, 3.0).faults
    assert len(Figures(1e-3, 1.2, 3.0).faults) == 2
    assert Figures(float("nan"), 1.0, 3.0).faults
