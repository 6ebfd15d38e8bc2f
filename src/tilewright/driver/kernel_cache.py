"""Kernels that were compiled before, by whichever process, for whichever model.

In: jobs, in order. Out: the kernels that the cache has of them; those that it lacks are kept once
they are made. The one idea: a kernel is known by all that it is made from, and by nothing else: its
function's text, the machine, threads and point, and what the sources say that make kernels, so that
another model, an edited importer or graph pass, or a touched file loses none.
"""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial

from tilewright.backend.backend import ObjectCompiler
from tilewright.driver.kernels import Job, Kernel
from tilewright.ir.text import print_func
from tilewright.support import knobs
from tilewright.support.background import in_background
from tilewright.support.cache import Cache, make_key
from tilewright.support.makers import makers
from tilewright.target.target import Target

PART = 8  # kernels take at most one in so many of the bytes that models may


def kernel_store() -> Cache:
    """What is known of kernels and of the machine that they are for, as the knobs say."""
    limit = (knobs.CACHE_MB.read() << 20) // PART
    return Cache(knobs.kernel_folder(), limit, within=knobs.cache_folder())


class KernelCache:
    """The cache as one compilation sees it: a context manager, at whose end what is new is kept.
    known: how many of its jobs were there."""

    def __init__(self) -> None:
        self.store = kernel_store()
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
        return make_key(self.made_by, text, job.target, job.threads, point, job.trace)

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
