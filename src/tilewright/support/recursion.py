"""Functions inside functions that call themselves, without a cycle.

A closure that names itself refers to itself, and so keeps all that it saw until the cycle collector
comes by: a fifth of a second for the trees of a large model, and their memory until then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

R = TypeVar("R")


class recursive(Generic[R]):
    """A decorator: the function is given itself as its first argument, and need not name itself."""

    __slots__ = ("_body",)

    def __init__(self, body: Callable[..., R]) -> None:
        self._body = body

    def __call__(self, *given: Any) -> R:
        return self._body(self, *given)
