"""What functions do, as a digest: their code as it was loaded, and all that it names.

In: functions. Out: a digest that changes with any of them, with what they call and with the numbers
that they read; None where something in them cannot be looked into. Files are not asked: one that
is edited after its import does not change what runs, and a notebook has none. What lies in other
installed packages is known by their versions.
"""

from __future__ import annotations

import dis
import functools
import hashlib
import importlib
import pickle
import sys
import types
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

INSTALLED = ("site-packages", "dist-packages")
KNOWN = frozenset({"builtins", "ml_dtypes", "numpy", "onnx", "tilewright", "torch"})
PLAIN = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis))
_UNTOLD = ("__dict__", "__weakref__", "__doc__", "__module__", "__firstlineno__")


class Unknown(Exception):
    """Something that cannot be looked into."""


def code_digest(functions: Iterable[Callable[..., Any]]) -> str | None:
    """The digest (see the module's opening)."""
    walk = _Walk({_top(getattr(f, "__module__", "")) for f in functions})
    try:
        for function in functions:
            walk.take(function)
    except Unknown:
        return None
    return walk.digest.hexdigest()


class _Walk:
    """Everything that is reached from some functions, once. own: the packages they come from."""

    def __init__(self, own: set[str]) -> None:
        self.digest = hashlib.blake2b(digest_size=16)
        self.own = own
        self.seen: dict[Any, int] = {}
        self.kept: list[Any] = []  # so that no other object gets the address of one that was seen

    def note(self, *words: object) -> None:
        for word in words:
            data = word if isinstance(word, bytes) else repr(word).encode()
            self.digest.update(len(data).to_bytes(8, "little") + data)

    def take(self, x: Any, names: frozenset[str] = frozenset()) -> None:
        """Add an object; `names`: what code asks of it, if it is a module."""
        if isinstance(x, PLAIN) or type(x).__module__ == "ml_dtypes":
            self.note(type(x).__name__, x)
            return
        if isinstance(x, types.ModuleType):  # each code asks for other things of it
            self.module(x, names)
            return
        if id(x) in self.seen:
            self.note("again", self.seen[id(x)])
            return
        self.seen[id(x)] = len(self.seen)
        self.kept.append(x)
        if isinstance(x, types.CodeType):
            self.code(x)
        elif isinstance(x, tuple | list | dict | set | frozenset):
            self.several(x)
        elif isinstance(x, np.ndarray):
            self.array(x)
        elif isinstance(x, types.FunctionType):
            self.function(x)
        elif isinstance(x, type):
            self.type(x)
        else:
            self.object(x)

    def take_all(self, many: Iterable[Any]) -> None:
        for x in many:
            self.take(x)

    def several(self, x: Any) -> None:
        """A container of Python's, or of a class made of one."""
        self.note(type(x).__name__, len(x))
        if hasattr(x, "items"):
            self.take_all(x.keys())
            self.take_all(x.values())
        elif hasattr(x, "index"):
            self.take_all(x)
        else:
            self.note(sorted(map(repr, x)))

    def array(self, x: Any) -> None:
        if x.dtype.hasobject:
            raise Unknown
        self.note("array", x.dtype, x.shape, x.tobytes())

    def code(self, x: types.CodeType) -> None:
        self.note("code", x.co_code, x.co_names, x.co_varnames, x.co_freevars, x.co_flags)
        self.note(x.co_argcount, x.co_kwonlyargcount)
        self.take_all(x.co_consts)

    def function(self, x: types.FunctionType) -> None:
        wrapped = getattr(x, "__wrapped__", None)
        if wrapped is not None:
            self.take(wrapped)
        if self.is_installed(x.__globals__.get("__name__")):  # also of a wrapper that says less
            self.named(x.__module__ or "", x.__qualname__)
            return
        self.note("function")
        self.take(x.__code__)
        self.take_all((x.__defaults__, x.__kwdefaults__))
        for cell in x.__closure__ or ():
            try:
                self.take(cell.cell_contents)
            except ValueError:  # nothing is in it yet
                self.note("empty")
        names = _names(x.__code__)
        for name in sorted(names & x.__globals__.keys()):
            self.note(name)
            self.take(x.__globals__[name], names)
        for name in sorted(_imports(x.__code__)):
            self.imported(name, names)

    def imported(self, name: str, names: frozenset[str]) -> None:
        """What a function imports when it runs: imported now, unless it is known by its name."""
        self.note("import", name)
        if _top(name) in KNOWN or _top(name) in sys.stdlib_module_names:
            return
        try:
            self.take(importlib.import_module(name), names)
        except ImportError:
            self.note("missing")

    def module(self, x: types.ModuleType, names: frozenset[str]) -> None:
        """What code that has these names can ask of a module."""
        self.named(x.__name__)
        if self.is_installed(x.__name__) or (id(x), names) in self.seen:
            return
        self.seen[id(x), names] = len(self.seen)
        for name in sorted(names & vars(x).keys()):
            self.note(name)
            self.take(vars(x)[name], names)

    def type(self, x: type) -> None:
        if self.is_installed(x.__module__):
            self.named(x.__module__, x.__qualname__)
            return
        self.note("class", x.__qualname__)
        self.take_all(x.__bases__)
        for name, value in sorted(vars(x).items()):
            if name not in _UNTOLD:
                self.note(name)
                self.take(value)

    def object(self, x: Any) -> None:
        """An instance, or one of Python's own wrappers of functions."""
        inside = getattr(x, "__wrapped__", None) or getattr(x, "__func__", None)
        if isinstance(x, functools.partial):
            self.take_all((x.func, x.args, x.keywords))
        elif isinstance(x, property):
            self.take_all((x.fget, x.fset, x.fdel))
        elif isinstance(x, types.BuiltinFunctionType | np.ufunc):
            self.named(getattr(x, "__module__", None) or "numpy", getattr(x, "__name__", ""))
        elif inside is not None:
            self.note(type(x).__name__)
            self.take_all((inside, getattr(x, "__self__", None)))
        elif _top(type(x).__module__) == "tilewright":
            self.note(repr(x))
            self.take_all(getattr(x, name, None) for name in ("define", "infer", "reference"))
        elif not self.is_installed(type(x).__module__) and hasattr(x, "__dict__"):
            self.take(type(x))
            self.take(vars(x))
        else:
            try:
                self.note(type(x).__qualname__, pickle.dumps(x, 4))
            except Exception:  # whatever its class raises
                raise Unknown from None

    def is_installed(self, module: str | None) -> bool:
        """Is it no module of ours to look into, but one of another package that has a version?"""
        top = _top(module)
        if top in self.own and top not in KNOWN:
            return False
        file = getattr(sys.modules.get(top), "__file__", None) or ""
        is_packaged = any(folder in file for folder in INSTALLED)
        return top in KNOWN or top in sys.stdlib_module_names or is_packaged

    def named(self, module: str, name: str = "") -> None:
        version = getattr(sys.modules.get(_top(module)), "__version__", "")
        self.note("named", module, name, str(version))


def _top(module: str | None) -> str:
    """The package that a module is in; a script has no other name."""
    top = (module or "").partition(".")[0]
    return "" if top == "__main__" else top


@functools.lru_cache(1000)
def _imports(code: types.CodeType) -> frozenset[str]:
    """The modules that code imports, in its inner functions too."""
    steps = dis.get_instructions(code)
    found = {str(step.argval) for step in steps if step.opname == "IMPORT_NAME"}
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            found |= _imports(inner)
    return frozenset(name for name in found if name)


@functools.lru_cache(1000)
def _names(code: types.CodeType) -> frozenset[str]:
    """The names that code reads of modules and objects, in its inner functions too."""
    found = set(code.co_names)
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            found |= _names(inner)
    return frozenset(found)
