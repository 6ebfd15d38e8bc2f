"""What sizes count for: numbers for themselves, open ones for what they are the size of."""

from __future__ import annotations

from tilewright.arith.estimate import BATCH, IMAGE, SEQUENCE, estimate, estimate_by_symbols
from tilewright.ir.expr import Var, const, maximum


def test_numbers_are_themselves_and_open_sizes_what_they_are_of() -> None:
    n = Var("n")
    assert [estimate(e) for e in (7, const(7), n, n // 2)] == [7, 7, SEQUENCE, SEQUENCE]
    assert [estimate(n, of) for of in (BATCH, IMAGE)] == [1, 64]
    assert estimate(0, IMAGE) == 1  # costs are divided by it


def test_a_size_follows_from_its_symbols() -> None:
    h, w = Var("h"), Var("w")
    assert estimate_by_symbols((h - 3) // 2 + 1) == (SEQUENCE - 3) // 2 + 1
    assert estimate_by_symbols(h * w, IMAGE) == IMAGE * IMAGE
    assert estimate_by_symbols(maximum(h - 300, 0)) == 1
    assert estimate_by_symbols(5) == 5
