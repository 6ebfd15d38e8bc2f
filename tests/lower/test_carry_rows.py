"""carry_rows: what a round reads again that the round before it has read stays in registers."""

from __future__ import annotations

import pytest

from tests.lower.programs import same_meaning
from tilewright.ir.parse import parse_func
from tilewright.ir.stmt import Alloc, Func
from tilewright.ir.verify import verify
from tilewright.ir.walk import loads, stores, visit
from tilewright.lower.carry_rows import carry_rows

SIZES = (0, 1, 2, 3, 7)

ROWS = """
def rows(A: f32[(n * 2 + 3) * 4], B: f32[n * 4], n: i64):
    for y in serial(0, n):
        with alloc(f32[4], "local") as most:
            for z in vectorize(0, 4):
                most[z] = -9.0
            for r in unroll(0, 3):
                with alloc(f32[4], "local") as row:
                    for e in vectorize(0, 4):
                        row[e] = A[y * 8 + r * 4 + e]
                    for v in vectorize(0, 4):
                        most[v] = max(most[v], row[v])
            for w in vectorize(0, 4):
                B[y * 4 + w] = most[w]
"""
FIVE = ROWS.replace("unroll(0, 3)", "unroll(0, 5)").replace("y * 8", "y * 12")
FIVE = FIVE.replace("n * 2 + 3", "n * 3 + 5")
HALF = FIVE.replace("unroll(0, 5)", "unroll(0, 6)").replace("+ 5", "+ 6")
MADE = ROWS.replace("row[v])", "part[v])").replace(
    "                    for v in",
    """                    part = alloc(f32[4], "local")
                    for p in vectorize(0, 4):
                        part[p] = row[3 - p] * 2.0
                    for v in""",
)
ASKED = ROWS.replace("row[e] = A", "row[e] = select(y * 2 + r >= 1 and e < n, A")
ASKED = ASKED.replace("r * 4 + e]", "r * 4 + e], -9.0)")
LATER = ROWS.replace("serial(0, n)", "serial(n // 2, n)")
UNDER = ROWS.replace(
    """        with alloc(f32[4], "local") as most:""",
    """        if n >= 2:
            most = alloc(f32[4], "local")""",
)


def carried(text: str) -> Func:
    func = parse_func(text)
    made = carry_rows(func)
    verify(made, "flat")
    for n in SIZES:
        same_meaning(func, made, n=n)
    return made


@pytest.mark.parametrize("text", [ROWS, FIVE, HALF, MADE, ASKED, LATER, UNDER])
def test_rows_in_common_are_read_once(text: str) -> None:
    made = carried(text)
    assert [n for n in visit(made.body) if isinstance(n, Alloc) and n.buffer.name == "kept"]
    reads = [n for n in loads(made.body) if n.buffer.name == "A"]
    assert len(reads) == (2 if text == HALF else 3)  # others have rows that are of no other round


def test_what_is_made_of_a_row_is_kept() -> None:
    """Not the row itself."""
    made = carried(MADE)
    kept = [s for s in stores(made.body) if s.buffer.name == "kept"]
    assert kept and all(n.buffer.name == "row" for s in kept for n in loads(s.value))


@pytest.mark.parametrize(
    "text",
    [
        ROWS.replace("y * 8", "y * 16"),  # none in common
        ROWS.replace("y * 8", "y * 4"),  # more than half
        ROWS.replace("r * 4 + e]", "r * 4 + e + y % 2]"),
        ROWS.replace("e] = A[", "e] = B[(y + r) * 0 + e] + A["),  # written by the round before
        ROWS.replace("f32[4], \"local\") as row", "f32[64], \"local\") as row"),  # too many
        ROWS.replace("row[v])", "row[v])\n                    row[0] = 1.0"),
        ROWS.replace("serial(0, n)", "parallel(0, n)"),
        ROWS.replace("unroll(0, 3)", "serial(0, 3)"),
        ROWS.replace("max(most[v], row[v])", "max(most[v], A[y * 8 + r * 4 + v])"),
    ],
    ids=["apart", "near", "other", "written", "wide", "changed", "parallel", "loop", "read"],
)  # fmt: skip
def test_what_stays(text: str) -> None:
    func = parse_func(text)
    assert carry_rows(func) is func
