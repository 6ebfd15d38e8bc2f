"""Python in another process, which finds what this one found and nothing else.

In: code, and the packages that it imports. Out: the command that runs it. A new interpreter would
look for modules in the working directory first, where the file that a model came with may be called
numpy.py. So it starts isolated, with the standard library alone, and is told the folders that hold
these packages here, however this process came by them (PYTHONPATH, a virtual environment, an
editable install).
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Sequence


def isolated(code: str, packages: Sequence[str]) -> list[str]:
    """The command of a process that runs `code`; arguments that follow are in its sys.argv."""
    kept = sys.dont_write_bytecode, sys.pycache_prefix
    start = f"import sys; sys.dont_write_bytecode, sys.pycache_prefix = {kept!r}; "
    return [sys.executable, "-I", "-S", "-c", f"{start}sys.path += {folders(packages)!r}; {code}"]


def folders(packages: Sequence[str]) -> list[str]:
    """Where this process has these packages from, in the order of its path."""
    order = [os.path.abspath(entry or os.curdir) for entry in sys.path]
    found: set[str] = set()
    for name in packages:
        spec = importlib.util.find_spec(name)
        if spec is None or not spec.origin:
            continue
        inside = os.path.dirname if spec.submodule_search_locations is None else _above
        found.add(inside(os.path.abspath(spec.origin)))
    return sorted(found, key=lambda f: order.index(f) if f in order else len(order))


def _above(package: str) -> str:
    """The folder that holds a package, from the path of its `__init__`."""
    return os.path.dirname(os.path.dirname(package))
