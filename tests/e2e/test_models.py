"""Every model against the framework that made it; the heavy ones are marked slow. Each has every
frontend and every batch size, with --long all pairs of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.e2e.cases import Case, Figures, cases, error, in_turn, judge

FAST = ("dqn",)  # models that compile in seconds


def marked(case: Case) -> Any:
    marks = () if case.name in FAST else (pytest.mark.slow,)
    return pytest.param(case, id=str(case), marks=marks)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "case" in metafunc.fixturenames:
        whole = metafunc.config.getoption("--long")
        metafunc.parametrize("case", [marked(case) for case in (cases() if whole else in_turn())])


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


def test_in_turn_every_model_has_each_frontend_and_batch() -> None:
    whole, some = list(cases()), list(in_turn())
    assert len(some) < len(whole)
    for part in ("batch", "frontend"):
        told = [{(c.name, getattr(c, part)) for c in of} for of in (whole, some)]
        assert told[0] == told[1]
