"""Which cases of a matrix prove its law: a part of them, in which every value occurs.

In: a test's cases, each as the indices of its values, one for each parametrisation. Out: those to
try. A case is tried where its indices add up to a multiple of the part, so that of two long
parametrisations each value of one meets several of the other; then one case for each value that
has none yet. Of a single parametrisation the first and the last value are among those tried.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest

Case = tuple[int, ...]


def sample(cases: Sequence[Case], part: int) -> list[int]:
    """The positions of about one in `part` of the cases, ascending."""
    kept = [n for n, case in enumerate(cases) if sum(case) % part == 0]
    if len(cases[0]) == 1:
        return sorted({*kept, len(cases) - 1})
    seen = {value for n in kept for value in enumerate(cases[n])}
    for n, case in enumerate(cases):
        if not seen >= set(enumerate(case)):
            kept.append(n)
            seen |= set(enumerate(case))
    return sorted(kept)


def left_out(items: Sequence[pytest.Item], part: int) -> list[pytest.Item]:
    """Those of the tests marked `sampled` that are not tried."""
    matrices: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("sampled"):
            matrices.setdefault(item.nodeid.partition("[")[0], []).append(item)
    left: list[pytest.Item] = []
    for name, matrix in matrices.items():
        sizes = [len(mark.args[1]) for mark in matrix[0].iter_markers("parametrize")]
        cases = list(itertools.product(*map(range, sizes)))  # in pytest's order
        assert len(cases) == len(matrix), f"{name}: {len(matrix)} cases are no product of {sizes}"
        kept = set(sample(cases, part))
        left += [item for n, item in enumerate(matrix) if n not in kept]
    return left
