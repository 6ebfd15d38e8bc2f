"""jam_panels: a tile of few sums is taken for several panels at once."""

from __future__ import annotations

import pytest

from tests.lower.programs import same_meaning
from tilewright.ir.parse import parse_func
from tilewright.ir.stmt import Func
from tilewright.ir.text import print_func
from tilewright.ir.verify import verify
from tilewright.lower.narrow_tails import narrow_tails
from tilewright.lower.partition_loops import partition_loops
from tilewright.lower.pipeline import simplify

PRODUCT = """
def product(A: f32[n, 3], W: f32[5, 3, 4], B: f32[n, 20], n: i64):
    for p in serial(0, 5):
        for o in serial(0, (n + 3) // 4):
            with alloc(f32[4, 4], "local") as acc:
                for z in unroll(0, 4):
                    for v in vectorize(0, 4):
                        if o * 4 + z < n:
                            acc[z, v] = 0.0
                for k in serial(0, 3):
                    for i in unroll(0, 4):
                        for w in vectorize(0, 4):
                            if o * 4 + i < n:
                                acc[i, w] = acc[i, w] + A[o * 4 + i, k] * W[p, k, w]
                for e in unroll(0, 4):
                    for x in vectorize(0, 4):
                        if o * 4 + e < n:
                            B[o * 4 + e, p * 4 + x] = acc[e, x] * 2.0
"""


def narrowed(text: str) -> Func:
    func = parse_func(text)
    made = narrow_tails(func)
    verify(made, "loops")
    for n in (0, 1, 2, 3, 4, 5, 7, 13):
        same_meaning(func, made, n=n)
        same_meaning(func, simplify(partition_loops(made)), n=n)
    return made


def rounds(text: str) -> int:
    """How many nests are there once for each of several panels?"""
    return print_func(narrowed(text)).count("for u")


def test_few_rows_take_several_panels() -> None:
    """Of eight sums at once: two panels of three rows, four of two, eight of one; the ninth stays
    alone."""
    nine = PRODUCT.replace("0, 5)", "0, 9)").replace("[5", "[9").replace("20", "36")
    made = print_func(narrowed(nine))
    for several in (2, 4, 8):
        assert made.count(f"p % {several} + i64(p >= 8) * {several} == 0") == 1
        assert made.count(f"in unroll(0, {several})") >= 3


def test_no_more_panels_than_there_are() -> None:
    made = print_func(narrowed(PRODUCT))
    assert made.count("p % 5 == 0") == 1
    assert made.count("for u") == 9  # of three rows, of two and of one: first, sum and result


def test_panels_that_threads_share() -> None:
    assert rounds(PRODUCT.replace("p in serial", "p in parallel")) == 9


def test_panels_that_are_not_whole_stay_alone() -> None:
    """The last one asks in each step of the sum where the columns end."""
    text = PRODUCT.replace("o * 4 + i < n", "o * 4 + i < n and p * 4 + w < 18")
    text = text.replace("o * 4 + e < n", "o * 4 + e < n and p * 4 + x < 18")
    assert rounds(text) == 6
    assert "p % 4 + i64(p >= 4) * 4 == 0" in print_func(narrowed(text))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("B[o * 4 + e, p * 4 + x]", "B[o * 4 + e, p * 3 + x]"),  # the next one writes over it
        ("B[o * 4 + e, p * 4 + x]", "B[o * 4 + e, x]"),
        ("k in serial(0, 3)", "k in serial(0, min(3, p + 1))"),  # sums of other lengths
        ("p in serial(0, 5)", "p in serial(0, min(n, 5))"),  # panels that only the run counts
    ],
)
def test_panels_that_differ_stay_apart(old: str, new: str) -> None:
    assert rounds(PRODUCT.replace(old, new)) == 0


LINE = """
def line(A: f32[n, 3], W: f32[9, 3, 4], B: f32[n, 36], n: i64):
    for p in serial(0, 5):
        for o in serial(0, (n + 5) // 6):
            with alloc(f32[6, 2, 4], "local") as T:
                for z in unroll(0, 6):
                    for g in unroll(0, 2):
                        for v in vectorize(0, 4):
                            if o * 6 + z < n and p * 2 + g < 9:
                                T[z, g, v] = 0.0
                for k in serial(0, 3):
                    for i in unroll(0, 6):
                        for h in unroll(0, 2):
                            for w in vectorize(0, 4):
                                if o * 6 + i < n and p * 2 + h < 9:
                                    T[i, h, w] = T[i, h, w] + A[o * 6 + i, k] * W[p * 2 + h, k, w]
                for e in unroll(0, 6):
                    for j in unroll(0, 2):
                        for x in vectorize(0, 4):
                            if o * 6 + e < n and p * 2 + j < 9:
                                B[o * 6 + e, (p * 2 + j) * 4 + x] = T[e, j, x] * 2.0
"""
BATCHES = (
    LINE.replace("[n, ", "[b, n, ")
    .replace("n: i64", "b: i64, n: i64")
    .replace("p in serial(0, 5)", "q in parallel(0, b * 5)")
    .replace("p * 2", "q % 5 * 2")
    .replace("A[o", "A[q // 5, o")
    .replace("B[o", "B[q // 5, o")
)

TILES = (
    LINE.replace("for p in serial(0, 5):", "for q in parallel(0, 5 * ((n + 5) // 6)):")
    .replace("        for o in serial(0, (n + 5) // 6):\n", "")
    .replace("p * 2", "q // ((n + 5) // 6) * 2")
    .replace("o * 6", "q % ((n + 5) // 6) * 6")
)
TILES_OF_BATCHES = (
    BATCHES.replace("parallel(0, b * 5)", "parallel(0, b * ((n + 5) // 6 * 5))")
    .replace("        for o in serial(0, (n + 5) // 6):\n", "")
    .replace("q % 5 * 2", "q // ((n + 5) // 6) % 5 * 2")
    .replace("q // 5, ", "q // ((n + 5) // 6) // 5, ")
    .replace("o * 6", "q % ((n + 5) // 6) * 6")
)


def test_three_rounds_take_three_vectors_of_panels_of_two() -> None:
    """Six sums wait for each other: three panels of two vectors are two tiles of three."""
    made = print_func(narrowed(LINE))
    assert made.count("for group") == 1
    assert "p % 3 + i64(p >= 3) * 3 == 0" in made  # the fourth panel and the half one stay alone
    assert 'alloc(f32[6, 3, 4], "local")' in made


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("W[p * 2 + h, k, w]", "W[p + h, k, w]"),  # panels that share a vector
        ("k in serial(0, 3)", "k in serial(0, min(3, p + 1))"),  # sums of other lengths
        ("p in serial(0, 5)", "p in serial(0, min(n, 5))"),  # panels that only the run counts
        ("A[o * 6 + i, k]", "A[o * 6 + i, (k + p) % 3]"),  # which reads other numbers in each
    ],
)
def test_vectors_that_are_not_told_by_number_stay_in_their_panels(old: str, new: str) -> None:
    assert "for group" not in print_func(narrowed(LINE.replace(old, new)))


def test_panels_of_batches_are_jammed() -> None:
    """Where threads share the panels of all batches, those of a batch are found by what divides."""
    func = parse_func(BATCHES)
    made = narrow_tails(func)
    verify(made, "loops")
    text = print_func(made)
    assert "q % 5 % 3 + i64(q % 5 >= 3) * 3 == 0" in text and text.count("for u") == 6
    for n in (1, 2, 3, 4, 5, 8, 9):
        same_meaning(func, made, b=2, n=n)
        same_meaning(func, simplify(partition_loops(made)), b=2, n=n)


def test_panels_of_tiles_are_jammed() -> None:
    """Where threads share the tiles of all panels, as if the loops were not fused."""
    text = print_func(narrowed(TILES))
    panel = "q // ((n + 5) // 6)"
    assert f"{panel} % 3 + i64({panel} >= 3) * 3 == 0" in text and text.count("for u") == 6


def test_panels_of_tiles_of_batches_are_jammed() -> None:
    func = parse_func(TILES_OF_BATCHES)
    made = narrow_tails(func)
    verify(made, "loops")
    text, panel = print_func(made), "q // ((n + 5) // 6) % 5"
    assert f"{panel} % 3 + i64({panel} >= 3) * 3 == 0" in text and text.count("for u") == 6
    for n in (1, 3, 4, 5, 8):
        same_meaning(func, made, b=2, n=n)
        same_meaning(func, simplify(partition_loops(made)), b=2, n=n)


@pytest.mark.parametrize("part", ["q % 5", "q // (n + 1)", "q % ((n + 5) // 6) + q"])
def test_loops_that_are_not_of_panels_and_tiles_stay(part: str) -> None:
    """Something is told by other numbers, and tiles stay as they are."""
    read = "A[q % ((n + 5) // 6) * 6 + i, k]"
    assert read in TILES
    made = narrow_tails(parse_func(TILES.replace(read, f"A[min({part}, n - 1), k]")))
    assert "for u" not in print_func(made)


@pytest.mark.parametrize("part", ["q % 4 % b", "q // 4 % b"])
def test_loops_that_are_not_of_batches_and_panels_stay(part: str) -> None:
    """Something is told by other numbers."""
    text = BATCHES.replace("A[q // 5, o", f"A[{part}, o")
    assert "for u" not in print_func(narrow_tails(parse_func(text)))
