"""`@record`: a frozen dataclass that costs little to define.

In: a class whose annotations are its fields. Out: what `dataclass(frozen=True)` makes of it, for
`dataclasses.fields` and `replace` too. A dataclass compiles the text of six methods when its module
is imported, 0.3 ms for each class, used or not. Here five of them are functions for all records,
the constructor's text is compiled when the first object is made, and the fields are looked at when
somebody asks for them.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable
from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field, fields
from functools import cache
from threading import RLock
from typing import TYPE_CHECKING, Any, TypeVar

if sys.version_info >= (3, 11):
    from typing import dataclass_transform
elif TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:  # the runtime ships without that package

    def dataclass_transform(**said: Any) -> Any:
        return lambda decorator: decorator


C = TypeVar("C")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(cls: type[C]) -> type[C]:
    """Make `cls` a record (see the module's opening). Fields take part in all methods; a method
    that the class defines itself stays."""
    made: Any = cls
    made.__dataclass_fields__ = _Fields(made)

    def __init__(self: Any, *args: Any, **given: Any) -> None:
        made.__init__ = _constructor(made, fields(made))
        made.__init__(self, *args, **given)

    def __eq__(self: Any, other: object) -> Any:
        if other.__class__ is not self.__class__:
            return NotImplemented
        values = _values(made)
        return values(self) == values(other)

    def __hash__(self: Any) -> int:
        return hash(_values(made)(self))

    methods = (__init__, __eq__, __hash__, __repr__, __setattr__, __delattr__)
    for method in methods:
        if method.__name__ not in cls.__dict__ or cls.__dict__[method.__name__] is None:
            setattr(made, method.__name__, method)
    return made


class _Fields:
    """Stands in a class for its fields until they are asked for: then the class becomes a
    dataclass, once, whichever thread asks."""

    __slots__ = ("of",)
    lock = RLock()  # the fields of a class ask for those of its bases

    def __init__(self, of: type) -> None:
        self.of = of

    def __get__(self, one: object, kind: type) -> Any:
        with self.lock:
            if self.of.__dict__["__dataclass_fields__"] is self:
                dataclass(init=False, repr=False, eq=False)(self.of)
        return self.of.__dict__["__dataclass_fields__"]


@cache
def _values(cls: Any) -> Callable[[Any], Any]:
    """What gives the values of all fields of an object."""
    names = [f.name for f in fields(cls)]
    return operator.attrgetter(*names) if names else lambda one: ()


def __repr__(self: Any) -> str:
    inside = ", ".join(f"{f.name}={getattr(self, f.name)!r}" for f in fields(self))
    return f"{type(self).__qualname__}({inside})"


def __setattr__(self: Any, name: str, value: object) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def __delattr__(self: Any, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _constructor(cls: Any, listed: tuple[Field[Any], ...]) -> Callable[..., None]:
    """The constructor, compiled from its text."""
    scope: dict[str, Any] = {"_set": object.__setattr__, "_missing": MISSING}
    parameters, lines = list[str](), list[str]()
    for f in listed:
        value = f.name
        if f.default_factory is not MISSING:
            scope[f"_new_{f.name}"] = f.default_factory
            parameters.append(f"{f.name}=_missing")
            value = f"_new_{f.name}() if {f.name} is _missing else {f.name}"
        elif f.default is not MISSING:
            scope[f"_default_{f.name}"] = f.default
            parameters.append(f"{f.name}=_default_{f.name}")
        else:
            parameters.append(f.name)
        lines.append(f'    _set(self, "{f.name}", {value})')
    if hasattr(cls, "__post_init__"):
        lines.append("    self.__post_init__()")
    head = f"def __init__(self, {', '.join(parameters)}):"
    exec("\n".join([head, *(lines or ["    pass"])]), scope)
    made = scope["__init__"]
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    return made
