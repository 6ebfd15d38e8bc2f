"""The C runtime under a model's name: one header, and one source file of all its code.

In: a C identifier. Out: C text in which the functions of a model and its sessions have that name
where `tilewright.h` says tw_module or tw (`tw_run` → `resnet_run`, `tw_module_close` →
`resnet_close`), and everything else is static. The one idea: as one translation unit the runtime
exports nothing but what has the model's name, so that a program links any number of models, of
different releases too, and keeps all other names for itself.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path

from tilewright.runtime.bindings import NATIVE

_SECTION = re.compile(r"^/\* ---- (\w+).* -+ \*/\n", re.MULTILINE)
_INCLUDE = re.compile(r'^#include "(\w+\.h)"\n', re.MULTILINE)


def types() -> str:
    """What models share: the types and constants of `tilewright.h`."""
    return _sections()["Types"]


def functions(name: str) -> str:
    """The declarations of a model's functions, its module and its sessions."""
    text = renamed(_sections()["Modules"], name)
    return re.sub(r"; +/\*", ";  /*", text)  # columns of comments were for other names


def source(name: str) -> str:
    """The whole runtime; it includes nothing but the system's headers."""
    included: set[str] = set()

    def inlined(path: Path) -> str:
        def header(found: re.Match[str]) -> str:
            if found[1] in included:
                return ""
            included.add(found[1])
            return inlined(NATIVE / found[1])

        return _INCLUDE.sub(header, path.read_text())

    files = [inlined(path) for path in sorted(NATIVE.glob("*.c"))]
    text = "\n".join(["#define INTERNAL static __attribute__((unused))\n", *files])
    unnamed = _sections()["Artifacts"]
    return renamed(text.replace(unnamed, unnamed.replace("TW_API", "INTERNAL")), name)


def renamed(text: str, name: str) -> str:
    """C text with the model's names of functions and opaque types."""
    names = _names()

    def new(found: re.Match[str]) -> str:
        word = found[0]
        return f"{name}_{names[word]}" if word in names else word

    return re.sub(r"\btw_\w+", new, text)


@functools.cache
def _sections() -> dict[str, str]:
    """The parts of `tilewright.h`, by the first word of their titles."""
    _, *parts = _SECTION.split((NATIVE / "tilewright.h").read_text())
    return {title: text.strip() + "\n" for title, text in zip(parts[::2], parts[1::2], strict=True)}


@functools.cache
def _names() -> dict[str, str]:
    """What has a model's name, and how it goes on behind it."""
    words = re.findall(r"typedef struct (\w+)|\b(tw_\w+)\(", _sections()["Modules"])
    found = [kind or function for kind, function in words]
    return {word: word.removeprefix("tw_module_").removeprefix("tw_") for word in found}
