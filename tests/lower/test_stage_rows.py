"""stage_rows: taps of a window are lanes of a row that is read once."""

from __future__ import annotations

import pytest

from tests.lower.programs import POOL, same_meaning
from tilewright.ir.expr import Select, as_int
from tilewright.ir.parse import parse_func
from tilewright.ir.stmt import Alloc, For, Func, If
from tilewright.ir.text import print_func
from tilewright.ir.verify import verify
from tilewright.ir.walk import loads, stores, visit
from tilewright.lower.overlap_tails import overlap_tails
from tilewright.lower.partition_loops import partition_loops
from tilewright.lower.pipeline import simplify
from tilewright.lower.stage_rows import stage_rows

SIZES = (0, 1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 18, 33)

SUM = POOL.replace("max(most[v], ", "(most[v] + ").replace("-9.0", "0.0")
WEIGHED = SUM.replace("0.0))", "0.0) * W[r])").replace("A: f32[n], ", "A: f32[n], W: f32[3], ")
BARE = """
def bare(A: f32[n], B: f32[n], n: i64):
    for o in serial(0, (n // 2 + 3) // 4):
        with alloc(f32[4], "local") as most:
            for z in vectorize(0, 4):
                most[z] = -9.0
            for r in unroll(0, 2):
                for v in vectorize(0, 4):
                    if o * 4 + v < n // 2:
                        most[v] = max(most[v], A[o * 8 + v * 2 + r])
            for w in vectorize(0, 4):
                if o * 4 + w < n // 2:
                    B[o * 4 + w] = most[w]
"""
SAME = POOL.replace("- 1]", "- (n % 2)]").replace("+ r >= 1", "+ r >= n % 2")
SAME = SAME.replace("+ r <= n", "+ r < n + n % 2")
DILATED = POOL.replace("* 2 + r", "* 2 + r * 3")


def staged(text: str) -> Func:
    func = parse_func(text)
    made = stage_rows(func)
    verify(made, "loops")
    for n in SIZES:
        same_meaning(func, made, n=n)
        cut = stage_rows(overlap_tails(func, staged=True))
        same_meaning(func, simplify(partition_loops(cut)), n=n)
    return made


@pytest.mark.parametrize("text", [POOL, SUM, WEIGHED, BARE, SAME, DILATED])
def test_a_row_is_read_once(text: str) -> None:
    """The image is read in whole vectors, and taps ask nothing."""
    made = staged(text)
    assert [n for n in visit(made.body) if isinstance(n, Alloc) and n.buffer.name == "row"]
    for store in stores(made.body):
        read = {n.buffer.name for n in loads(store.value)}
        assert ("A" in read) == (store.buffer.name == "row")
        assert store.buffer.name == "row" or not [
            n for n in visit(store.value) if isinstance(n, Select)
        ]


@pytest.mark.parametrize(("text", "lanes"), [(POOL, 4), (SUM, 12), (WEIGHED, 12)])
def test_the_greatest_of_a_row_is_found_first(text: str, lanes: int) -> None:
    """Sums keep their order: of them each tap is chosen."""
    (part,) = [
        n.buffer
        for n in visit(staged(text).body)
        if isinstance(n, Alloc) and n.buffer.name == "part"
    ]
    assert as_int(part.shape[0]) == lanes


def test_few_windows_have_narrow_vectors() -> None:
    """Up to a vector of them nothing is computed twice, and no more lanes than need be."""
    text = (
        POOL.replace("o * 8", "o * 32")
        .replace("o * 4", "o * 16")
        .replace("+ 3) // 4", "+ 15) // 16")
    )
    text = text.replace("f32[4]", "f32[16]").replace("(0, 4)", "(0, 16)")
    made = overlap_tails(parse_func(text), staged=True)
    few = next(n for n in visit(made.body) if isinstance(n, If) and n.other is not None).other
    assert few is not None
    widths = {as_int(n.extent) for n in visit(few) if isinstance(n, For) and n.kind == "vectorize"}
    assert widths == {4, 8, 16}
    staged(text)


@pytest.mark.parametrize(
    "text",
    [
        POOL.replace("v * 2 + r", "v + r"),  # neighbours
        POOL.replace("v * 2 + r", "v * 6 + r"),  # far apart
        POOL.replace("unroll(0, 3)", "serial(0, 3)"),
        POOL.replace("unroll(0, 3)", "unroll(0, 1)"),
        POOL.replace("(0, 4)", "(0, 2)"),
        POOL.replace("f32", "f16").replace("-9.0", "cast(f16, -9.0)"),
        POOL.replace("+ r <= n,", "+ r * 2 <= n,"),  # not of the element
        POOL.replace("<= n, A[", "<= n, -A["),  # not what is read
        POOL.replace("    if o * 4 + v <", "    if n > 5 and o * 4 + v <"),
        POOL.replace("[n]", "[33]").replace("(n + 1)", "34").replace("<= n,", "<= 33,")
        .replace(", n: i64", ""),
    ],
    ids=[
        "neighbours", "far", "loop", "one tap", "two lanes", "f16", "tap", "value", "row", "fixed",
    ],
)  # fmt: skip
def test_what_stays(text: str) -> None:
    func = parse_func(text)
    assert stage_rows(func) is func


def test_text() -> None:
    made = print_func(stage_rows(parse_func(BARE)))
    assert "row[e" in made and made.count("A[") == 2
    assert "most[v] = max(most[v], part[v])" in made
