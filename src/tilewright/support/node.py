"""Immutable tree nodes: `@node` turns an annotated class into a slots class.

In: a class whose annotations are its fields. Out: the same class with a generated constructor,
structural `==`, a hash computed once, pickling, `replace` and `map_children`. The one idea: trees
are compared and rewritten far more often than they are built, so the generated methods are plain
straight-line Python.
"""

from __future__ import annotations

import functools
import inspect
import re
import sys
from collections.abc import Callable
from typing import Any, TypeVar, overload

from tilewright.support.generated import compiled

if sys.version_info >= (3, 11):
    from typing import dataclass_transform
else:
    from typing_extensions import dataclass_transform

N = TypeVar("N", bound="Node")
C = TypeVar("C")

_GENERATED = (
    "__new__", "__init__", "__eq__", "__hash__", "__reduce__", "replace", "map_children", "children"
)  # fmt: skip
_child_types = {"Node"}  # class names that make a field a child, for `map_children`


class Node:
    """What every tree node has. Subclasses without fields (Expr, Stmt) name a family of nodes."""

    __slots__ = ()
    fields: tuple[str, ...] = ()

    def __init_subclass__(cls) -> None:
        if not cls.__dict__.get("leaf", False):
            _child_types.add(cls.__name__)

    def map_children(self: N, change: Callable[[Any], Any]) -> N:
        """Apply `change` to every child; the same object comes back if no child changed."""
        return self

    def children(self) -> tuple[Node, ...]:
        """The direct children, in field order."""
        return ()

    def replace(self: N, **changes: Any) -> N:
        """A copy with some fields changed; TypeError for a name that is no field."""
        raise TypeError(f"{type(self).__name__} has no field {', '.join(changes)}")

    def __repr__(self) -> str:
        inside = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.fields)
        return f"{type(self).__name__}({inside})"


@overload
def node(cls: type[C]) -> type[C]: ...
@overload
def node(*, not_children: tuple[str, ...] = ...) -> Callable[[type[C]], type[C]]: ...


@dataclass_transform(frozen_default=True)
def node(cls: Any = None, *, not_children: tuple[str, ...] = ()) -> Any:
    """Make `cls` an immutable node (see the module's opening).

    A field is a *child* if its annotation names a node class, alone, in `X | None` or in `tuple[X,
    ...]`. `not_children` excludes fields (the variable that a loop binds is not an expression to
    rewrite). A class attribute `leaf = True` keeps the class itself from ever being a child
    (buffers). `derived` names slots that the constructor sets at its end: by what stands behind
    " = ", an expression of the fields, which costs no call, or by a method `derive(self)`. A method
    `key(self)` replaces the tuple of fields in `==` and `hash`. A class attribute `interned = True`
    says that there is one object for each value, which stays for good: then `==` and `hash` are the
    object's own, which dictionaries know without a call.
    """
    if cls is None:
        return functools.partial(_build, not_children=not_children)
    return _build(cls, not_children)


def _build(cls: type, not_children: tuple[str, ...]) -> type:
    annotations: dict[str, Any] = inspect.get_annotations(cls)
    fields = tuple(name for name in annotations if name not in ("derived", "leaf", "interned"))
    derived: tuple[str, ...] = cls.__dict__.get("derived", ())
    defaults = {name: cls.__dict__[name] for name in fields if name in cls.__dict__}
    body = {
        k: v for k, v in cls.__dict__.items() if k not in (*defaults, "__dict__", "__weakref__")
    }
    body["__slots__"] = (*fields, *(d.partition(" = ")[0] for d in derived), "_hash")
    body["fields"] = fields
    made = type(cls)(cls.__name__, cls.__bases__, body)
    kinds = {
        name: "" if name in not_children else _child_kind(str(annotations[name])) for name in fields
    }
    interned = bool(cls.__dict__.get("interned"))
    source = _interning(fields, defaults) if interned else _comparing(fields, defaults, cls)
    source += _rewriting(fields, kinds)
    scope: dict[str, Any] = {f"_default_{name}": value for name, value in defaults.items()}
    scope["_made"] = {}
    scope["Node"], scope["_same"] = Node, object()
    module = sys.modules[cls.__module__]
    used = {word for d in derived for word in re.findall(r"\w+", d.partition(" = ")[2])}
    scope |= {word: module.__dict__[word] for word in used if word in module.__dict__}
    file = getattr(module, "__file__", None) or module.__name__  # what is typed in has no file
    exec(compiled(source, cls.__name__, file), scope)
    for name in _GENERATED:
        if name in scope and name not in cls.__dict__:
            method = scope[name]
            method.__qualname__ = f"{cls.__qualname__}.{name}"
            setattr(made, name, method)
    module.__dict__[cls.__name__] = made
    return made


def _child_kind(annotation: str) -> str:
    """How a field holds children: "" (not at all), "one", "optional" or "tuple"."""
    if not any(word in _child_types for word in re.findall(r"\w+", annotation)):
        return ""
    if annotation.startswith("tuple["):
        return "tuple"
    return "optional" if "None" in annotation else "one"


def _parameters(fields: tuple[str, ...], defaults: dict[str, Any]) -> str:
    return ", ".join(f"{f}=_default_{f}" if f in defaults else f for f in fields)


def _tuple(fields: tuple[str, ...], of: str = "self.") -> str:
    return f"({''.join(f'{of}{f}, ' for f in fields)})"


def _interning(fields: tuple[str, ...], defaults: dict[str, Any]) -> str:
    """How an object is made, once for each value, as Python text."""
    lines = [
        f"def __new__(cls, {_parameters(fields, defaults)}):",
        f"    known = _made.get({_tuple(fields, '')})",
        "    if known is not None: return known",
        "    made = object.__new__(cls)",
        *(f"    made.{f} = {f}" for f in fields),
        f"    return _made.setdefault({_tuple(fields, '')}, made)",  # another thread may be first
    ]
    return "\n".join(lines) + "\n"


def _comparing(fields: tuple[str, ...], defaults: dict[str, Any], cls: type) -> str:
    """The constructor, `==` and `hash`, as Python text."""
    lines = [f"def __init__(self, {_parameters(fields, defaults)}):"]
    lines += [f"    self.{f} = {f}" for f in fields] + ["    self._hash = None"]
    lines += [f"    self.{d}" for d in cls.__dict__.get("derived", ()) if " = " in d]
    lines += ["    self.derive()"] if hasattr(cls, "derive") else []
    key = "key" in cls.__dict__
    name = f"{cls.__name__!r}, "
    mine = f"({name}self.key())" if key else f"({name}{''.join(f'self.{f}, ' for f in fields)})"
    same = (
        "self.key() == other.key()"
        if key
        else " and ".join(f"self.{f} == other.{f}" for f in fields)
    )
    lines += [
        "def __eq__(self, other):",
        "    if self is other: return True",
        "    if self.__class__ is not other.__class__: return False",
        "    mine = self._hash",
        "    if mine is not None and other._hash is not None and mine != other._hash:",
        "        return False",
        f"    return {same or 'True'}",
        "def __hash__(self):",
        "    found = self._hash",
        "    if found is None:",
        f"        found = self._hash = hash({mine})",
        "    return found",
    ]
    return "\n".join(lines) + "\n"


def _rewriting(fields: tuple[str, ...], kinds: dict[str, str]) -> str:
    """Pickling, `replace`, `map_children` and `children`, as Python text."""
    lines = [f"def __reduce__(self): return self.__class__, {_tuple(fields)}"]
    if fields:
        kept = ", ".join(f"self.{f} if {f} is _same else {f}" for f in fields)
        lines += [
            f"def replace(self, *, {', '.join(f'{f}=_same' for f in fields)}):",
            f"    return self.__class__({kept})",
        ]
    held = {f: kind for f, kind in kinds.items() if kind}
    if held:
        lines += ["def map_children(self, change):"]
        for f, kind in held.items():
            if kind == "tuple":
                lines += [
                    f"    {f} = self.{f}",
                    f"    if {f}:",
                    f"        new = tuple([change(c) for c in {f}])",
                    f"        for a, b in zip(new, {f}):",
                    f"            if a is not b: {f} = new; break",
                ]
            elif kind == "optional":
                lines += [f"    {f} = None if self.{f} is None else change(self.{f})"]
            else:
                lines += [f"    {f} = change(self.{f})"]
        unchanged = " and ".join(f"{f} is self.{f}" for f in held)
        arguments = ", ".join(f if f in held else f"self.{f}" for f in fields)
        lines += [f"    return self if {unchanged} else self.__class__({arguments})"]
        one = {
            "tuple": "*(self.{0} or ())",
            "optional": "*(() if self.{0} is None else (self.{0},))",
            "one": "self.{0}",
        }
        parts = [one[kind].format(f) for f, kind in held.items()]
        lines += ["def children(self):", f"    return ({', '.join(parts)},)"]
    return "\n".join(lines) + "\n"
