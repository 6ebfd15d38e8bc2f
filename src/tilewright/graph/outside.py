"""The operators from outside: what `tw.operator` has registered, as others ask for it.

In: names in ONNX, in PyTorch, in the registry. Out: the operators. What an importer used is noted,
for the cache. Most models have none, so nothing else is imported here; `plugins` asks installed
packages.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tilewright.graph.operator import Operator, remove
from tilewright.support.record import record

if TYPE_CHECKING:
    import numpy as np

TAKEN_DOMAINS = ("", "ai.onnx")  # of ONNX, whose operators Tilewright reads itself

Draw = Callable[["np.random.Generator"], tuple[Any, Mapping[str, Any]]]
Entry = Callable[..., Any] | None  # translates a node; None: by the names of its attributes


@record
class Own:
    """An operator from outside. draw: gives arrays and attributes of an application of it. onnx,
    torch: the entries of importers, by (domain, operator) and by operator and overload. digest:
    changes with whatever its author wrote; "" if that cannot be told."""

    entry: Operator
    draw: Draw
    onnx: dict[tuple[str, str], Entry]
    torch: dict[str, Entry]
    digest: Callable[[], str]

    @property
    def name(self) -> str:
        return self.entry.name


OWN: dict[str, Own] = {}  # by name
ONNX: dict[tuple[str, str], Own] = {}
TORCH: dict[str, Own] = {}
FAILED: dict[str, str] = {}  # packages whose operators could not be registered, and why
_noting = threading.local()


def forget(name: str) -> None:
    """Take an operator from outside out of all tables."""
    own = OWN.pop(name)
    for key in own.onnx:
        del ONNX[key]
    for key in own.torch:
        del TORCH[key]
    remove(name)


@contextmanager
def noting() -> Generator[set[str]]:
    """The names of the operators from outside that importers use in here, in this thread."""
    before, names = getattr(_noting, "names", None), set[str]()
    _noting.names = names
    try:
        yield names
    finally:
        _noting.names = before


def note(own: Own) -> None:
    """An importer uses an operator from outside."""
    names = getattr(_noting, "names", None)
    if names is not None:
        names.add(own.name)
