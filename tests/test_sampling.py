"""What is sampled has every value, and the options that ask for all get all."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from tests.sampling import sample

pytest_plugins = ["pytester"]
MATRIX = """
import pytest

@pytest.mark.sampled
@pytest.mark.parametrize("a", range(2))
@pytest.mark.parametrize(("b", "c"), [(n, n) for n in range(9)])
def test_matrix(a, b, c): ...

@pytest.mark.parametrize("a", range(5))
def test_whole(a): ...
"""


@pytest.mark.parametrize("sizes", [(2, 2), (3, 5), (2, 2, 2), (12, 2, 2), (4, 1), (1, 7, 2)])
def test_every_value_is_in_a_case(sizes: tuple[int, ...]) -> None:
    cases = list(itertools.product(*map(range, sizes)))
    kept = [cases[n] for n in sample(cases, 3)]
    assert len(kept) <= len(cases) // 3 + max(sizes)
    for axis, size in enumerate(sizes):
        assert {case[axis] for case in kept} == {*range(size)}


def test_of_one_list_both_ends_are_tried() -> None:
    assert sample([(n,) for n in range(9)], 3) == [0, 3, 6, 8]
    assert sample([(0,)], 3) == [0]


@pytest.mark.parametrize(
    ("asked", "count"),
    [
        ([], 9 + 5),
        (["--long"], 18 + 5),
        (["-k", "matrix"], 18),
        (["test_m.py::test_matrix[8-8-1]"], 1),
    ],
)
def test_who_asks_for_all_gets_all(asked: list[str], count: int, pytester: pytest.Pytester) -> None:
    own = Path(__file__).with_name("conftest.py")
    pytester.makeconftest(own.read_text())
    pytester.makeini("[pytest]\nmarkers =\n    slow\n    sampled")
    pytester.makepyfile(test_m=MATRIX)
    collected = pytester.inline_run("-p", "no:xdist", *asked).listoutcomes()[0]
    assert len(collected) == count
