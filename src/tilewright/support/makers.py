"""Makers: the sources that take part in making a kernel, and what a build of them is known by.

In: the files of this package, as the process imported them. Out: a digest of what those say that
make kernels, with the releases of LLVM and Python. The one idea: content counts, not times, so that
a touched file, or another importer, is the same build.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable

from tilewright.support.cache import Cache, make_key
from tilewright.support.llvm import release
from tilewright.support.sources import ROOT, SourceFile, compiler, imported, source_file

MAKERS = (  # what takes part in making a kernel of a function
    "arith/", "backend/", "codegen/", "ir/", "lower/", "schedule/", "strategy/", "support/",
    "target/", "te/", "driver/kernel_cache.py", "driver/kernels.py", "driver/versions.py",
)  # fmt: skip
_content: dict[str, str] = {}  # hashes of the sources, by their times
compiler()  # what is imported now is what will make them, whatever becomes of the files


def makers(memory: Cache) -> str:
    """Changes with what the sources say that make kernels, as they were when this process imported
    them, and with the releases of LLVM and Python. memory: knows what files of which times say."""
    files = make_key("makers of kernels", compiler())
    if files not in _content:
        known = memory.fetch_bytes(files)
        content = known.decode() if known else sources(ROOT, imported())
        if content is None:  # nobody else is to find what is made now
            content = os.urandom(20).hex()
        elif known is None:
            memory.store_all({files: content.encode()})
        _content[files] = content
    return make_key(_content[files], release(), sys.version)


def sources(root: str, files: Iterable[SourceFile]) -> str | None:
    """A hash of the content of those files that make kernels; None if one has changed."""
    parts: list[str | bytes] = []
    for name, *before in files:
        if name.startswith(MAKERS):
            try:
                with open(os.path.join(root, name), "rb", buffering=0) as opened:
                    parts += [name, opened.read()]
                    now = source_file(name, os.fstat(opened.fileno()))
            except OSError:
                return None
            if now != (name, *before):
                return None
    return make_key(*parts)
