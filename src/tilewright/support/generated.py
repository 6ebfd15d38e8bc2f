"""Python text that this package writes, compiled once for all processes.

In: text, and whose it is. Out: its code. Python keeps the bytecode of modules in `__pycache__`;
that of generated text is kept there too, by Python's own loader and under Python's own rules (where
it may write, and whether it wants to). Instead of a file's time stands a digest of the text.
"""

from __future__ import annotations

import hashlib
from importlib.machinery import SourceFileLoader
from types import CodeType
from typing import Any


def compiled(text: str, name: str, module: str) -> CodeType:
    """The code of `text`. name: what it is called beside its module, the file `module`; one text
    at a time has it."""
    path = f"{module.removesuffix('.py')}.{name}.py"
    made = _Text(path, text.encode()).get_code(path)
    assert made is not None  # a loader of sources has code
    return made


class _Text(SourceFileLoader):
    """Loads a module whose source is not in the file `path`, but at hand."""

    def __init__(self, path: str, source: bytes) -> None:
        super().__init__(path, path)
        self.source = source

    def path_stats(self, path: str) -> dict[str, Any]:
        digest = hashlib.blake2b(self.source, digest_size=4).digest()
        return {"mtime": int.from_bytes(digest, "little"), "size": len(self.source)}

    def get_data(self, path: str) -> bytes:
        return self.source if path == self.path else super().get_data(path)
