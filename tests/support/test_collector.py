"""The collector pauses, once for all who ask, and goes on after an error too."""

from __future__ import annotations

import gc
import weakref

import pytest

from tilewright.support import collector
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


class Knot:
    """Something that only the collector can free."""

    def __init__(self) -> None:
        self.me = self


def test_what_is_made_in_a_pause_is_not_looked_through_at_its_end() -> None:
    gc.collect()
    with collector_paused():
        kept = [[n] for n in range(50_000)]
    assert gc.get_count()[0] < 1_000
    assert not any(one is kept for one in gc.get_objects(generation=0))
    assert any(one is kept for one in gc.get_objects(generation=2))


def test_it_is_looked_through_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collector, "MOST", 100_000)
    monkeypatch.setattr(collector, "_unseen", 0)
    knots: list[weakref.ref[Knot]] = []
    kept: list[list[int]] = []
    for _ in range(5):
        with collector_paused():
            knots.append(weakref.ref(Knot()))
            kept += [[n] for n in range(30_000)]
    assert [knot() is None for knot in knots] == [True] * 4 + [False]


def test_what_somebody_froze_stays_so() -> None:
    gc.freeze()
    try:
        before = gc.get_freeze_count()
        with collector_paused():
            pass
        assert gc.get_freeze_count() >= before - 1_000 > 0
    finally:
        gc.unfreeze()
