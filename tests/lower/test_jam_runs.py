"""jam_runs: the rounds of a run that ask for no end are computed together."""

from __future__ import annotations

import pytest

from tests.lower.programs import same_meaning
from tilewright.ir.parse import parse_func
from tilewright.ir.text import print_func
from tilewright.ir.verify import verify
from tilewright.lower.jam_runs import jam_runs

RUN = """
def taps(A: f32[n, 70], W: f32[5], B: f32[n, 65], n: i64):
    for c in parallel(0, n):
        for r in serial(0, 16, jammed=4):
            with alloc(f32[4], "local") as t:
                for i in vectorize(0, 4):
                    t[i] = 0.0
                for k in serial(0, 5):
                    for x in vectorize(0, 4):
                        t[x] = t[x] + A[c, r * 4 + x + k] * W[k]
                for o in vectorize(0, 4):
                    B[c, r * 4 + o] = t[o]
"""


def jammed(text: str) -> str:
    func = parse_func(text)
    made = jam_runs(func)
    verify(made, "loops")
    for n in (0, 1, 3):
        same_meaning(func, made, n=n)
    return print_func(made)


def test_each_round_has_sums_of_its_own() -> None:
    made = jammed(RUN)
    assert "for r in serial(0, 4)" in made
    assert 'alloc(f32[4, 4], "local")' in made
    assert made.count("in unroll(0, 4)") == 3  # where they begin, a tap of each, where they end


@pytest.mark.parametrize(
    "old, new",
    [
        ("jammed=4", "jammed=1"),
        ("serial(0, 16,", "serial(0, 15,"),  # no whole groups
        ("serial(0, 16,", "serial(1, 16,"),
        ("serial(0, 16,", "serial(0, min(16, n),"),
        ("serial(0, 5)", "serial(0, min(5, r))"),  # it asks for an end
        ("B[c, r * 4 + o]", "B[c, r * 3 + o]"),  # rounds store to one element
        ("= t[o]", "= t[o]\n                    B[c, r * 4 + o + 1] = 0.0"),  # so do two stores
        ("t[o]", "t[o] + B[c, 0]"),  # a round reads what another one stores
    ],
)
def test_what_stays_as_it_is(old: str, new: str) -> None:
    assert old in RUN
    made = jammed(RUN.replace(old, new))
    assert 'alloc(f32[4], "local")' in made and "unroll" not in made and "jammed" not in made
