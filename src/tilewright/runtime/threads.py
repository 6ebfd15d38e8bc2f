"""How many threads work on a call: what a caller says, checked, or what holds if none is said."""

from __future__ import annotations

from typing import Any

from tilewright.runtime import abi
from tilewright.runtime.bindings import lib
from tilewright.support import knobs
from tilewright.support.errors import InputError


def default_threads() -> int:
    """The threads of a model whose caller names no number: TILEWRIGHT_THREADS, else one for each
    core that this process may use (hardware threads of one core count once)."""
    return knobs.THREADS.read() or lib.tw_default_threads()


def thread_count(threads: int | None) -> int:
    """The threads of a model, as its caller names them (None: `default_threads`). Raises InputError
    for what is no number of them."""
    count = default_threads() if threads is None else threads
    if not is_thread_count(count):
        raise InputError(
            "cannot load the model",
            f"threads is {count!r}, expected 1 to {abi.MAX_THREADS}",
            remedy="name a whole number, or None for every core",
        )
    return count


def is_thread_count(threads: Any) -> bool:
    """Is it a number of threads that a session may have?"""
    return type(threads) is int and 1 <= threads <= abi.MAX_THREADS
