"""split_choices: a choice among indices that the sizes make is made once."""

from __future__ import annotations

from tests.lower.programs import same_meaning
from tilewright.ir.expr import Select
from tilewright.ir.parse import parse_func
from tilewright.ir.stmt import If
from tilewright.ir.verify import verify
from tilewright.ir.walk import visit
from tilewright.lower.split_choices import split_choices

REFLECTED = """
def reflected(A: f32[n + 1], B: f32[n + 4], n: i64):
    for i in parallel(0, n + 4):
        B[i] = A[select(n >= 2, select(i >= 1, select(i <= n, i - 1, n - (i - n - 1)), 1 - i), i % (n + 1))]
"""  # noqa: E501


def test_sides_have_code_of_their_own() -> None:
    """One branch in each thread's part, and no choice by sizes in it."""
    func = parse_func(REFLECTED)
    made = split_choices(func)
    verify(made, "loops")
    for n in (0, 1, 2, 3, 9):
        same_meaning(func, made, n=n)
    (branch,) = [n for n in visit(made.body) if isinstance(n, If)]
    assert branch.other is not None
    assert not [n for n in visit(branch.other) if isinstance(n, Select)]
    assert not [n for n in visit(branch.then) if isinstance(n, Select) and n.cond == branch.cond]


def test_values_are_chosen_where_they_are() -> None:
    """Numbers that a size chooses, and indices that elements choose, make no copies."""
    for a, b in (("A[select(n >= 2, ", "select(n >= 2, A["), ("select(n >= 2", "select(i >= 2")):
        text = REFLECTED.replace(a, b)
        if b.endswith("A["):
            text = text.replace(", i % (n + 1))]", "], 0.0)")
        func = parse_func(text)
        assert split_choices(func) is func
