"""docs/operators.md says what the tables of operators say."""

from __future__ import annotations

from tests.docs.operators import PAGE, text


def test_the_page_is_current():
    assert PAGE.read_text() == text(), "write it again: python -m tests.docs.operators"
