"""Environment knobs: defaults, values, and what is said of a wrong one."""

from pathlib import Path

import pytest

from tilewright.support import knobs
from tilewright.support.errors import UserFault


@pytest.fixture(autouse=True)
def clean(monkeypatch):
    for knob in knobs.ALL:
        monkeypatch.delenv(knob.name, raising=False)


def test_unset_and_empty_give_the_default(monkeypatch):
    for knob in knobs.ALL:
        assert knob.read() == knob.default
        monkeypatch.setenv(knob.name, "  ")
        assert knob.read() == knob.default


@pytest.mark.parametrize(
    ("knob", "text", "value"),
    [
        (knobs.DUMP, "out/dir", Path("out/dir")),
        (knobs.PRINT, "after:flatten", ("after", "flatten")),
        (knobs.PRINT, "before:*", ("before", "*")),
        (knobs.TIME, "1", True),
        (knobs.VERIFY, "Off", False),
        (knobs.DIFF, "yes", True),
        (knobs.THREADS, "4", 4),
        (knobs.CACHE_DIR, "/tmp/c", Path("/tmp/c")),
        (knobs.CACHE_MB, "100", 100),
    ],
)
def test_values(knob, text, value, monkeypatch):
    monkeypatch.setenv(knob.name, text)
    assert knob.read() == value


@pytest.mark.parametrize(
    ("knob", "text"),
    [
        (knobs.PRINT, "flatten"),
        (knobs.PRINT, "during:flatten"),
        (knobs.TIME, "maybe"),
        (knobs.THREADS, "0"),
        (knobs.THREADS, "many"),
    ],
)
def test_a_wrong_value_says_what_is_right(knob, text, monkeypatch):
    monkeypatch.setenv(knob.name, text)
    with pytest.raises(UserFault) as caught:
        knob.read()
    assert f"cannot read the knob {knob.name}={text}" in str(caught.value)
    assert f"set it to {knob.values}" in str(caught.value)


def test_the_table_is_whole():
    assert len({knob.name for knob in knobs.ALL}) == len(knobs.ALL)
    for knob in knobs.ALL:
        assert knob.name.startswith("TILEWRIGHT_") and knob.help and knob.values
