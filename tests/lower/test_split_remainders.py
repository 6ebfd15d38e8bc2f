"""split_remainders: windows whose start follows from a remainder have code for each."""

from __future__ import annotations

import pytest

from tests.lower.programs import same_meaning
from tilewright.ir.expr import Select
from tilewright.ir.parse import parse_func
from tilewright.ir.stmt import For, Func, If
from tilewright.ir.text import print_expr, print_func
from tilewright.ir.verify import verify
from tilewright.ir.walk import visit
from tilewright.lower.overlap_tails import overlap_tails
from tilewright.lower.partition_loops import partition_loops
from tilewright.lower.pipeline import simplify
from tilewright.lower.split_remainders import split_remainders

SIZES = (0, 1, 2, 3, 7, 8, 9, 10, 15, 16, 17, 18, 33, 34)

SAME = """
def pool(A: f32[n], B: f32[n], n: i64):
    for o in serial(0, ((n + 1) // 2 + 3) // 4):
        with alloc(f32[4], "local") as most:
            for z in vectorize(0, 4):
                if o * 4 + z < (n + 1) // 2:
                    most[z] = -9.0
            for r in unroll(0, 3):
                for v in vectorize(0, 4):
                    if o * 4 + v < (n + 1) // 2:
                        most[v] = max(most[v], select(o * 8 + v * 2 + r - BEGIN >= 0 and o * 8 + v * 2 + r - BEGIN < n, A[o * 8 + v * 2 + r - BEGIN], -9.0))
            for w in vectorize(0, 4):
                if o * 4 + w < (n + 1) // 2:
                    B[o * 4 + w] = most[w]
"""  # noqa: E501
BEGINS = {
    "quotients": "((n + 1) // 2 + (1 - n) // 2)",
    "remainder": "(n % 2)",
    "of a remainder": "((2 - (n + 1) % 2) // 2)",
    "of three": "((n + 2) % 3)",
}


def branches(func: Func) -> list[If]:
    return [n for n in visit(func.body) if isinstance(n, If) and n.other is not None]


@pytest.mark.parametrize("begin", BEGINS.values(), ids=BEGINS)
def test_each_remainder_has_code(begin: str) -> None:
    """What is asked of elements has no remainder left, and whole vectors ask nothing."""
    func = parse_func(SAME.replace("BEGIN", begin))
    made = split_remainders(func)
    verify(made, "loops")
    whole = simplify(partition_loops(overlap_tails(made)))
    verify(whole, "flat")
    for n in SIZES:
        same_meaning(func, made, n=n)
        same_meaning(func, whole, n=n)
    assert len(branches(made)) == (2 if "% 3" in begin else 1)
    asked = {print_expr(n.cond) for n in visit(whole.body) if isinstance(n, Select)}
    assert not [a for a in asked if "%" in a or "// 3" in a]


def test_threads_share_loops_as_before() -> None:
    func = parse_func(
        SAME.replace("BEGIN", "(n % 2)").replace("for o in serial", "for o in parallel")
    )
    made = split_remainders(func)
    assert isinstance(made.body, For) and made.body.kind == "parallel"
    assert len(branches(made)) == 1


@pytest.mark.parametrize(
    "text",
    [
        SAME.replace("BEGIN", "1"),
        SAME.replace("BEGIN", "(n % 5)"),
        SAME.replace("BEGIN", "(n % 2)").replace("unroll(0, 3)", "unroll(0, 64)"),
        SAME.replace("BEGIN", "(n % 2)").replace("max(most[v], ", "").replace("-9.0))", "-9.0)"),
        SAME.replace("BEGIN", "1").replace(
            "= most[w]", "= select(A[n % 2 + w] < 0.0, 0.0, most[w])"
        ),
    ],
    ids=["known", "many remainders", "much code", "nothing accumulates", "asks for elements"],
)
def test_what_has_one_code(text: str) -> None:
    func = parse_func(text)
    assert split_remainders(func) is func


def test_text() -> None:
    made = print_func(split_remainders(parse_func(SAME.replace("BEGIN", "(n % 2)"))))
    assert "if n % 2 >= 1:" in made
    assert made.count("for o in serial") == 2
