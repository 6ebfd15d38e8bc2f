"""Operators of installed packages: what they name under `tilewright.operators` is imported.

    [project.entry-points."tilewright.operators"]
    example = "example_operators"

In: the entry points of the environment. Out: what those modules registered by `tw.operator`. The
frontends ask for names that they do not know, and packages are not looked at before: importing
this takes long, so who asks imports it then. A package that fails leaves nothing behind but a
warning: no other model is to suffer from it.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points

from tilewright.graph import outside
from tilewright.graph.own import all_or_nothing
from tilewright.support.errors import PluginWarning

GROUP = "tilewright.operators"
_lock = threading.RLock()  # what is imported may ask for operators itself
_begun: list[bool] = []
FOUND: set[str] = set()  # the operators that the packages registered


def discover() -> None:
    """Import what the installed packages name, once in a process."""
    with _lock:
        if _begun:
            return
        _begun.append(True)
        for point in entry_points(group=GROUP):
            _register(point)


def digests(names: Iterable[str]) -> dict[str, str]:
    """What operators are known by: those of this process, or of installed packages."""
    names = list(names)
    if not all(name in outside.OWN for name in names):
        discover()
    return {name: outside.OWN[name].digest() if name in outside.OWN else "" for name in names}


def _register(point: EntryPoint) -> None:
    package = point.dist.name if point.dist else point.module
    before = dict(outside.OWN)
    try:
        with all_or_nothing():
            found = point.load()
            if callable(found):
                found()
    except (Exception, SystemExit) as fault:  # whatever code of others raises
        said = f"{type(fault).__name__}: {fault}"
        outside.FAILED[package] = f"{point.name} = {point.value}: {said}"
        warnings.warn(
            f"the operators of the package '{package}' are not there: its entry point "
            f"'{point.name} = {point.value}' ends in {said}",
            PluginWarning,
            stacklevel=3,
        )
    FOUND.update(name for name, entry in outside.OWN.items() if before.get(name) is not entry)
