"""What steps cover and what digits tell, beside what is seen by taking all of them."""

from __future__ import annotations

from itertools import product
from math import inf

from hypothesis import given
from hypothesis import strategies as st

from tilewright.arith.coverage import is_digit, is_quotient, reach, tells, values_of
from tilewright.ir.expr import Expr, Var, const

STEPS = st.lists(st.tuples(st.integers(1, 12), st.integers(0, 3)), max_size=3)


@given(st.integers(1, 6), STEPS)
def test_reach_is_what_all_steps_together_touch(width: int, steps: list[tuple[int, int]]) -> None:
    starts = [
        sum(n * size for n, (size, _) in zip(taken, steps, strict=True))
        for taken in product(*(range(times + 1) for _, times in steps))
    ]
    touched = {s + n for s in starts for n in range(width)}
    covered = reach(width, steps)
    whole = len(touched) == max(touched) + 1
    assert covered is None or (whole and covered == len(touched))
    if len([t for _, t in steps if t]) < 2:
        assert (covered is not None) == whole


def test_after_steps_that_only_the_run_counts_no_longer_ones_follow() -> None:
    assert reach(1, [(1, inf)]) == inf
    assert reach(1, [(1, inf), (64, 3)]) is None  # there may be one step, and 62 gaps
    assert reach(4, [(4, inf), (1, 2)]) == inf


@given(
    st.lists(st.tuples(st.integers(1, 8), st.integers(1, 4) | st.none()), max_size=3),
    st.integers(0, 40),
)
def test_digits_that_tell_differ_for_all_values(
    found: list[tuple[int, int | None]], width: int
) -> None:
    digits = [(l, None if times is None else l * times) for l, times in found]

    def seen(v: int) -> tuple[int, ...]:
        return tuple((v if u is None else v % u) // l for l, u in digits)

    if tells(digits, width):
        assert len({seen(v) for v in range(width + 1)}) == width + 1


def test_digits_tell_where_each_begins_where_others_end() -> None:
    assert tells([(4, None), (1, 4)], 100)
    assert tells([(1, 2), (2, 8), (8, None)], 100)
    assert not tells([(4, None), (1, 2)], 100)
    assert tells([(1, 8)], 7) and not tells([(1, 8)], 8)


@given(
    st.lists(st.tuples(st.integers(-3, 9), st.integers(0, 6)), min_size=1, max_size=2),
    st.integers(-4, 4),
    st.lists(st.tuples(st.booleans(), st.integers(1, 6)), max_size=2),
)
def test_values_between_the_ends_are_all_taken(
    sums: list[tuple[int, int]], first: int, digits: list[tuple[bool, int]]
) -> None:
    loops = [Var(f"v{n}") for n in range(len(sums))]
    e: Expr = const(first)
    for v, (k, _) in zip(loops, sums, strict=True):
        e = e + v * k
    taken = {
        first + sum(n * k for n, (k, _) in zip(now, sums, strict=True))
        for now in product(*(range(last + 1) for _, last in sums))
    }
    for is_quotient_, by in digits:
        e = e // by if is_quotient_ else e % by
        taken = {n // by if is_quotient_ else n % by for n in taken}
    found = values_of(e, {v: (0, last) for v, (_, last) in zip(loops, sums, strict=True)})
    assert found is None or taken == {*range(found[0], found[1] + 1)}


def test_remainders_that_others_shift_leave_values_out() -> None:
    o, i = Var("o"), Var("i")
    assert values_of((o + i) % 4, {i: (0, 1)}) is None  # 3 and 0, for one o
    assert values_of((i + 3) % 4, {i: (0, 2)}) is None  # 3, 0 and 1
    assert values_of((i + 3) % 4, {i: (0, 3)}) == (0, 3)
    assert values_of(i * 8 // 4, {i: (0, 3)}) is None


def test_digits() -> None:
    i, n = Var("i"), Var("n")
    assert is_digit(i) and is_digit(i // 4 % 3) and not is_digit((i + 1) // 4)
    assert not is_digit(i // n) and is_quotient(i // n) and not is_quotient(i + 1)
