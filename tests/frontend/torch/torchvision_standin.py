"""A stand-in for torchvision, of which timm imports names that its models do not use."""

from __future__ import annotations

import enum
import sys
import types

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


def install() -> None:
    """Make `import torchvision` find the stand-in, where the real one is missing."""
    try:
        import torchvision  # noqa: F401
    except ImportError:
        for name in MODULES:
            made = sys.modules[f"torchvision{name}"] = Standin(f"torchvision{name}")
            parent, _, last = f"torchvision{name}".rpartition(".")
            if parent:
                setattr(sys.modules[parent], last, made)
        functional = sys.modules["torchvision.transforms.functional"]
        functional.InterpolationMode = enum.Enum("InterpolationMode", MODES)  # type: ignore[attr-defined]
