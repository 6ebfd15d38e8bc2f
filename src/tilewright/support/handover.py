"""How soon one thread of Python lets another go on.

A thread that comes back from native code waits for the interpreter until the running thread's turn
is over, five milliseconds by default: as long as the native code itself may have taken.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager

TURN = 1e-4  # seconds

_lock = threading.Lock()
_users = 0
_default = 0.0


@contextmanager
def short_turns() -> Generator[None]:
    """Let threads take short turns inside; the last to leave restores what the first one found."""
    global _users, _default
    with _lock:
        if _users == 0:
            _default = sys.getswitchinterval()
            sys.setswitchinterval(min(TURN, _default))
        _users += 1
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if _users == 0:
                sys.setswitchinterval(_default)
