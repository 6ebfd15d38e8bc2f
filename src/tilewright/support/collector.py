"""Python's cycle collector, paused while trees are made.

The trees of a compiler have no cycles, so counting references frees them; but there are so many
that the collector would stop every few milliseconds to look through all of them for nothing.
"""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager


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
        gc.enable()
