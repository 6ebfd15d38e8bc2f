"""Kernels that were compiled before, by whichever process, for whichever model.

In: jobs, in order. Out: the kernels that the cache has of them; those that it lacks are kept once
they are made. The one idea: a kernel is known by all that it is made from, and by nothing else: its
function's text, the machine, threads and point, and what the sources say that make kernels, so that
another model, an edited importer or graph pass, or a touched file loses none.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial

from tilewright.backend.backend import ObjectCompiler
from tilewright.driver.identity import ROOT, SourceFile, compiler, imported, source_file
from tilewright.driver.kernels import Job, Kernel
from tilewright.ir.text import print_func
from tilewright.support import knobs
from tilewright.support.background import in_background
from tilewright.support.cache import Cache, make_key
from tilewright.support.llvm import release
from tilewright.target.target import Target

MAKERS = (  # what takes part in making a kernel of a function
    "arith/", "backend/", "codegen/", "ir/", "lower/", "schedule/", "strategy/", "support/",
    "target/", "te/", "driver/kernel_cache.py", "driver/kernels.py", "driver/versions.py",
)  # fmt: skip
PART = 8  # kernels take at most one in so many of the bytes that models may
_content: dict[str, str] = {}  # hashes of the sources, by their times
compiler()  # what is imported now is what will make them, whatever becomes of the files


class KernelCache:
    """The cache as one compilation sees it: a context manager, at whose end what is new is kept.
    known: how many of its jobs were there."""

    def __init__(self) -> None:
        limit = (knobs.CACHE_MB.read() << 20) // PART
        self.store = Cache(knobs.kernel_folder(), limit, within=knobs.cache_folder())
        self.made_by = makers(self.store)
        self.known = 0
        self._asked: list[str] = []  # a key for each job, "" where it was known
        self._objects: dict[str, bytes] = {}  # made of texts, by their keys
        self._beside = contextlib.ExitStack()
        self._kept: Iterator[None] = iter(())

    def key(self, job: Job) -> str:
        """What its kernel is known by. The function's name says which one it is in a model, and
        nothing else."""
        text = print_func(job.func.replace(name="kernel"))
        point = "" if job.point is None else repr(sorted(job.point.items()))
        return make_key(self.made_by, text, job.target, job.threads, point)

    def fetch(self, job: Job) -> Kernel | None:
        """The kernel of the next job, if it is known."""
        key = self.key(job)
        found = self.store.fetch_bytes(key)
        self._asked.append(key if found is None else "")
        if found is None:
            return None
        self.known += 1
        return replace(pickle.loads(found), name=job.func.name)

    def object(self, make: ObjectCompiler, text: str, machine: Target, *, quick: bool) -> bytes:
        """What `make` makes of a text, known or new."""
        key = make_key(self.made_by, "object", text, str(machine), int(quick))
        found = self.store.fetch_bytes(key)
        if found is None:
            found = self._objects[key] = make(text, machine, quick)
        return found

    def keep(self, kernels: Iterable[Kernel]) -> None:
        """Keep what is new of the kernels of all jobs, in order, and of the objects: from now on,
        in another thread, as the system takes a tenth of a millisecond for each file."""
        values: dict[str, bytes] = {}
        for key, kernel in zip(self._asked, kernels, strict=True):
            if key:
                made = replace(kernel, name="", seconds={})
                values[key] = pickle.dumps(made, pickle.HIGHEST_PROTOCOL)
        keep = partial(self.store.store_all, values | self._objects)
        self._kept = self._beside.enter_context(in_background([keep], threads=1, most=1))

    def __enter__(self) -> KernelCache:
        return self

    def __exit__(self, *_: object) -> None:
        with self._beside:
            for _done in self._kept:
                pass


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
