"""bound_loops: a loop that asks in each round whether to run has those rounds only."""

from __future__ import annotations

import pytest

from tests.lower.programs import same_meaning
from tilewright.ir.expr import Select
from tilewright.ir.parse import parse_func
from tilewright.ir.stmt import Func, If
from tilewright.ir.text import print_func
from tilewright.ir.verify import verify
from tilewright.ir.walk import visit
from tilewright.lower.bound_loops import bound_loops
from tilewright.lower.copies import stores_of
from tilewright.lower.lower_blocks import lower_blocks
from tilewright.lower.partition_loops import partition_loops
from tilewright.lower.pipeline import simplify

TAPS = """
def taps(A: f32[{height}], W: f32[3], B: f32[8]):
    for y in serial(0, 8):
        for r in serial(0, 3, bounded=True):
            if {condition}:
                B[y] = B[y] + select({condition}, A[{index}], 0.0) * W[r]
"""
SHIFTED = {"height": 8, "condition": "y + r >= 1 and y + r < 9", "index": "y + r - 1"}
FAR = {"height": 8, "condition": "y + r * 4 >= 5 and y + r * 4 < 13", "index": "y + r * 4 - 5"}
STRIDED = {
    "height": 15,
    "condition": "1 <= y * 2 + r and y * 2 + r < 16",
    "index": "y * 2 + r - 1",
}
REVERSED = {"height": 8, "condition": "y - r * 3 >= 0", "index": "y - r * 3"}


def bounded(text: str) -> Func:
    func = parse_func(text)
    made = bound_loops(lower_blocks(func))
    verify(made, "loops")
    same_meaning(func, made)
    return simplify(made)


def test_taps_of_a_row_begin_and_end_with_the_image() -> None:
    assert (
        print_func(bounded(TAPS.format(**SHIFTED))).strip()
        == """
def taps(A: f32[8], W: f32[3], B: f32[8]):
    for y in serial(0, 8):
        for r in serial(max(0, 1 - y), min(3, 9 - y)):
            B[y] = B[y] + A[y + r - 1] * W[r]
""".strip()
    )


@pytest.mark.parametrize("case", [SHIFTED, FAR, STRIDED, REVERSED])
def test_nothing_is_asked_and_nothing_is_copied(case: dict[str, object]) -> None:
    made = bounded(TAPS.format(**case))
    assert not any(isinstance(n, If | Select) for n in visit(made.body))
    assert stores_of(partition_loops(made).body) == 1


@pytest.mark.parametrize(
    "condition", ["y + r >= 4 or r < 1", "y + r // 2 >= 1", "y >= 3", "W[r] > 0.0"]
)
def test_what_is_no_bound_is_asked_as_before(condition: str) -> None:
    text = TAPS.format(height=8, condition=condition, index="y")
    made = bounded(text)
    assert print_func(made).count("serial(0, 3)") == 1
    assert any(isinstance(n, If) for n in visit(made.body))


def test_what_all_nests_of_a_round_ask() -> None:
    """A round that allocates, and does one thing after the other, is left out where all of it asks
    the same."""
    text = """
def nests(A: f32[8], B: f32[8], C: f32[8]):
    for s in serial(0, 2):
        for r in serial(0, 5, bounded=True):
            with alloc(f32[2], "local") as own:
                for i in serial(0, 2):
                    if s * 5 + r < 8:
                        own[i] = A[s * 5 + r]
                if s * 5 + r < 8:
                    B[s * 5 + r] = own[0]
                    if {more}:
                        C[s * 5 + r] = own[1]
"""
    made = print_func(bounded(text.format(more="s >= 1")))
    assert "for r in serial(0, min(5, 8 - s * 5)):" in made and "< 8" not in made


def test_loops_without_the_mark_stay() -> None:
    func = lower_blocks(parse_func(TAPS.format(**SHIFTED).replace(", bounded=True", "")))
    assert bound_loops(func) is func


POOL = """
def pool(A: f32[8, 8], W: f32[3], B: f32[8, 4]):
    for y in serial(0, 8):
        for r in serial(0, 3, bounded=True):
            for x in unroll(0, 4):
                if x < 3:
                    B[y, x] = {value}
"""
INSIDE = "select(y + r >= 1 and y + r < 9 and x + y >= 2, A[y + r - 1, x], {neutral})"


@pytest.mark.parametrize(
    ("value", "neutral"),
    [("B[y, x] + {}", "0.0"), ("max(B[y, x], {})", "-inf"), ("min(B[y, x], {})", "inf"),
     ("B[y, x] + {} * W[r]", "0.0"), ("B[y, x] + W[r] * {}", "0.0")],
)  # fmt: skip
def test_windows_begin_and_end_with_the_image(value: str, neutral: str) -> None:
    made = bounded(POOL.format(value=value.format(INSIDE.format(neutral=neutral))))
    text = print_func(made)
    assert "for r in serial(max(0, 1 - y), min(3, 9 - y)):" in text
    assert "select(x + y >= 2, A[" in text


@pytest.mark.parametrize(
    ("value", "neutral"),
    [("B[y, x] + {}", "1.0"), ("max(B[y, x], {})", "0.0"), ("B[y, x] * {}", "0.0"),
     ("max(B[y, x], {} * W[r])", "-inf"), ("A[y, x] + {}", "0.0"), ("B[7 - y, x] + {}", "0.0")],
)  # fmt: skip
def test_rounds_that_change_a_result_stay(value: str, neutral: str) -> None:
    made = bounded(POOL.format(value=value.format(INSIDE.format(neutral=neutral))))
    assert "for r in serial(0, 3):" in print_func(made)
