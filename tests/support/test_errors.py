"""The message of a user's fault: four parts, each of a length that can be read."""

from __future__ import annotations

from tilewright.support.errors import LONGEST_PART, UserFault


def test_four_parts() -> None:
    fault = UserFault("cannot fuse", "they differ", "a\nb", "split first")
    assert str(fault) == "cannot fuse: they differ\n\n    a\n    b\n\n  split first"


def test_the_location_is_rendered_when_somebody_reads_it() -> None:
    asked = []

    def location() -> str:
        asked.append(1)
        return "here"

    fault = UserFault("cannot", "no", location)
    assert not asked
    assert "    here" in str(fault) and asked


def test_long_parts_show_their_ends() -> None:
    message = str(UserFault("cannot", "begin" + "x" * 1_000_000 + "end", "here"))
    assert len(message) < 2 * LONGEST_PART
    assert "begin" in message and "end" in message and "characters) …" in message
