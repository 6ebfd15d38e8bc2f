"""Threads take short turns while somebody asks for it."""

import sys

import pytest

from tilewright.support.handover import TURN, short_turns


def test_turns_are_short_inside() -> None:
    usual = sys.getswitchinterval()
    with short_turns():
        assert sys.getswitchinterval() == pytest.approx(TURN)
        with short_turns():
            pass
        assert sys.getswitchinterval() == pytest.approx(TURN)
    assert sys.getswitchinterval() == usual


def test_who_leaves_last_restores_them() -> None:
    usual = sys.getswitchinterval()
    first, second = short_turns(), short_turns()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert sys.getswitchinterval() == pytest.approx(TURN)
    second.__exit__(None, None, None)
    assert sys.getswitchinterval() == usual
