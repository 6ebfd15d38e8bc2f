"""Python's cycle collector, paused while trees are made.

The trees of a compiler have no cycles, so counting references frees them; but there are so many
that the collector would stop every few milliseconds to look through all of them for nothing.

What was made in a pause counts as long-lived after it: the collector would else look through all of
it as soon as the pause is over, some 20 ms after a model is compiled.
"""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager

MOST = 1 << 20  # objects made in pauses after which all are looked through once

_unseen = 0


@contextmanager
def collector_paused() -> Generator[None]:
    """Keep the cycle collector from running inside; also a decorator. Whoever paused it first lets
    it go on.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        _promote()
        gc.enable()


def _promote() -> None:
    """Move what is young to the oldest generation: frozen at once, thawed at once."""
    global _unseen
    if gc.get_freeze_count():  # what somebody froze must stay so
        return
    _unseen += gc.get_count()[0]
    if _unseen > MOST:
        _unseen = 0
        gc.collect()
    else:
        gc.freeze()
        gc.unfreeze()
