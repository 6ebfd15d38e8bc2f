"""A stand-in for torchvision, of which timm imports names that its models do not use."""

from __future__ import annotations

import enum
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn

MODULES = ("", ".ops", ".ops.misc", ".transforms", ".transforms.functional", ".datasets")
MODES = "NEAREST NEAREST_EXACT BILINEAR BICUBIC BOX HAMMING LANCZOS"


class Standin(types.ModuleType):
    """A module that has a class of every name."""

    __path__ = ()

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (nn.Module,), {})


@contextmanager
def installed() -> Iterator[None]:
    """Inside, `import torchvision` finds the stand-in, where the real one is missing; afterwards
    nothing, for transformers asks whether it is there."""
    try:
        import torchvision  # noqa: F401
    except ImportError:
        names = [f"torchvision{name}" for name in MODULES]
    else:
        names = []
    for name in names:
        made = sys.modules[name] = Standin(name)
        parent, _, last = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], last, made)
    if names:
        functional = sys.modules["torchvision.transforms.functional"]
        functional.InterpolationMode = enum.Enum("InterpolationMode", MODES)  # type: ignore[attr-defined]
    try:
        yield
    finally:
        for name in names:
            del sys.modules[name]
