"""The collector pauses, once for all who ask, and goes on after an error too."""

import gc

import pytest

from tilewright.support.collector import collector_paused


@collector_paused()
def inside() -> bool:
    return gc.isenabled()


def test_it_pauses_and_goes_on() -> None:
    assert gc.isenabled()
    with collector_paused():
        assert not gc.isenabled()
        assert not inside()
        assert not gc.isenabled()
    assert not inside()
    assert gc.isenabled()


def test_it_goes_on_after_an_error() -> None:
    with pytest.raises(ValueError), collector_paused():
        raise ValueError
    assert gc.isenabled()


def test_whoever_switched_it_off_keeps_it_off() -> None:
    gc.disable()
    try:
        assert not inside()
        assert not gc.isenabled()
    finally:
        gc.enable()
