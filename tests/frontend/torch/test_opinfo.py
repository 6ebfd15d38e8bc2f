"""A sample of PyTorch's own operator samples; all: `python -m tests.frontend.torch.opinfo`."""

from __future__ import annotations

import pytest

from tests.frontend.torch.opinfo import entries, examine, listed

FEW = 24  # of the entries that agree, spread over the table
CHUNKS = 4  # minutes each, which processes share


def agreeing() -> list[str]:
    unlisted = listed()
    return [name for name, _ in entries() if name not in unlisted]


def test_a_few_entries(draws) -> None:
    names = agreeing()
    table = dict(entries())
    assert len(names) >= 600
    for name in names[:: len(names) // draws(FEW)]:
        (found,) = examine(name, table[name], ["float32"], 2)
        assert found.verdict == "agree", name


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_entries_that_the_page_does_not_list(chunk: int, turn) -> None:
    table = dict(entries())
    names = turn(agreeing(), 0)[chunk::CHUNKS]
    found = [e for name in names for e in examine(name, table[name], ["float32"], 2)]
    assert [e for e in found if e.verdict != "agree"] == []
