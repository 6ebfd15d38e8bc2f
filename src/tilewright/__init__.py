"""Tilewright, a deep-learning compiler.

The public names are loaded when first used: importing the package computes nothing, and a program
that only runs saved artifacts never loads the compiler.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # what type checkers and editors see of `_PUBLIC` and `_MODULES`
    from tilewright import te as te
    from tilewright.driver.build import build as build
    from tilewright.driver.check_operator import check_operator as check_operator
    from tilewright.driver.entry import compile as compile
    from tilewright.driver.export import export as export
    from tilewright.driver.tuning import tune as tune
    from tilewright.graph.graph import Graph as Graph
    from tilewright.graph.own import operator as operator
    from tilewright.runtime.executor import Executable as Executable
    from tilewright.runtime.executor import load as load
    from tilewright.runtime.pool import Pool as Pool
    from tilewright.schedule.schedule import Schedule as Schedule
    from tilewright.support.errors import ArtifactError as ArtifactError
    from tilewright.support.errors import CompileError as CompileError
    from tilewright.support.errors import InputError as InputError
    from tilewright.support.errors import PluginWarning as PluginWarning
    from tilewright.support.errors import ScheduleError as ScheduleError
    from tilewright.support.errors import ScheduleWarning as ScheduleWarning
    from tilewright.support.errors import SizeWarning as SizeWarning
    from tilewright.support.errors import TilewrightError as TilewrightError
    from tilewright.support.version import __version__ as __version__

_PUBLIC = {  # name → the module that defines it
    "__version__": "tilewright.support.version",
    "compile": "tilewright.driver.entry",
    "build": "tilewright.driver.build",
    "export": "tilewright.driver.export",
    "tune": "tilewright.driver.tuning",
    "Schedule": "tilewright.schedule.schedule",
    "Graph": "tilewright.graph.graph",
    "operator": "tilewright.graph.own",
    "check_operator": "tilewright.driver.check_operator",
    "load": "tilewright.runtime.executor",
    "Executable": "tilewright.runtime.executor",
    "Pool": "tilewright.runtime.pool",
    "TilewrightError": "tilewright.support.errors",
    "CompileError": "tilewright.support.errors",
    "ScheduleError": "tilewright.support.errors",
    "ScheduleWarning": "tilewright.support.errors",
    "SizeWarning": "tilewright.support.errors",
    "PluginWarning": "tilewright.support.errors",
    "InputError": "tilewright.support.errors",
    "ArtifactError": "tilewright.support.errors",
}
_MODULES = {"te": "tilewright.te"}

__all__ = [*_PUBLIC, *_MODULES]  # pyright: ignore[reportUnsupportedDunderAll]


class _Package(ModuleType):
    """The package: a part of it that is imported does not take a public name's place. Python would
    let `tilewright.tune` mean the room of that name as soon as somebody imports from it."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in _PUBLIC or not isinstance(value, ModuleType):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        value = getattr(import_module(_PUBLIC[name]), name)
    elif name in _MODULES:
        value = import_module(_MODULES[name])
    else:
        raise AttributeError(f"module 'tilewright' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
