"""`tw.compile`: the way in.

In: a model. Out: an `Executable`. A model file that was compiled before is loaded from the cache by
this file alone; the compiler is imported when there is something to compile.
"""

from __future__ import annotations

import contextlib
import importlib
import operator
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.driver.identity import artifact_key, content_identity, file_identity
from tilewright.driver.kept import open_kept
from tilewright.driver.options import Options
from tilewright.driver.stages import Stages, asked
from tilewright.runtime.executor import Executable
from tilewright.runtime.module import contents
from tilewright.runtime.threads import default_threads
from tilewright.support import knobs
from tilewright.support.cache import Cache
from tilewright.support.collector import collector_paused
from tilewright.support.errors import CompileError
from tilewright.support.memory import memory_told

if TYPE_CHECKING:
    from tilewright.driver.specialised import Specialised
    from tilewright.target.target import Target
    from tilewright.tune.database import Database


def compile(
    source: Any,
    target: str | Target | Sequence[str | Target] = "cpu",
    *,
    example_inputs: Sequence[Any] | Mapping[str, Any] | None = None,
    example_kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    shapes: Mapping[str, int | Sequence[int | str | None]] | None = None,
    specialise: int = 0,
    threads: int | None = None,
    opt_level: int = 3,
    winograd: bool | None = None,
    cache: bool = True,
    database: bool | str | os.PathLike[str] | Database | None = None,
) -> Executable | Specialised:
    """Compile a model.

    A module of PyTorch is compiled as it runs now: in its mode, and under the `torch.autocast`
    around this call.

    Args:
        source: an ONNX model (the path of its file, its content as bytes, a file open for them, or
            an `onnx.ModelProto`; weights in other files need the path), a `torch.nn.Module`, a
            `torch.export.ExportedProgram`, a function of torch tensors, or a `Graph`.
        target: the machine, as `tilewright targets` lists them. Of a list each gets a code variant;
            the first that a machine can run is picked when the artifact is loaded, so the widest
            comes first.
        example_inputs: what a module or function is called with, by position, or a mapping of
            arguments by name.
        example_kwargs: arguments by name, beside others by position.
        dynamic_shapes: which sizes of a module's inputs stay open, as `torch.export` takes them.
        shapes: numbers for open sizes, by their names (`{"height": 320}`) or as the sizes of an
            input, None where one stays open (`{"image": (1, 3, None, 320)}`), or text for a name
            of its own where an ONNX file gives one name to sizes that differ
            (`{"state": (None, "h", "w")}`).
        specialise: so many of the shapes that calls bring get code of their own, compiled at the
            first call that brings them (an ONNX model is read again for that, and has to stay what
            it is); other calls use the code for all sizes. Shapes that this code cannot broadcast
            get code of their own in any case.
        threads: for how many the code is planned and run; None: TILEWRIGHT_THREADS, else all cores.
        opt_level: 0 runs the model's operators one by one, 1 adds graph passes and fusion, 2 and 3
            packed layouts.
        winograd: may 3x3 convolutions be Winograd's, which are faster and round more (see
            docs/accuracy.md)? None: they may, unless TILEWRIGHT_WINOGRAD=0.
        cache: look for an earlier result in the cache folder, and leave this one there.
        database: records of `tilewright.tune` (a path, or True for your own): kernels take the
            schedules that won there, on such a machine, for so many threads, by this version of
            the compiler. A recorded schedule that no longer fits is left out with a warning.

    Returns:
        What is called with arrays; with `specialise`, for a model with open sizes, a `Specialised`.

    Raises:
        CompileError: the model cannot be compiled as asked, or its file is malformed.
        InputError: there are no such records, or they cannot be read (a `UserFault`).
        MemoryFault: memory for it cannot be had (a MemoryError, too).
    """
    source = contents(source, "cannot compile this file", CompileError)
    if isinstance(source, bytearray | memoryview):
        source = bytes(source)
    options = Options(
        target,
        example_inputs,
        example_kwargs,
        dynamic_shapes,
        shapes,
        threads,
        opt_level,
        winograd,
        cache,
        getattr(database, "path", database),  # each compilation opens it for itself
    )
    if specialise:
        from tilewright.driver.specialised import compile_specialised

        return compile_specialised(source, specialise, options, compile)
    stages, made, identity = Stages(), None, None
    options = replace(options, shapes=_read_shapes(shapes))
    with memory_told(asked(source), stages.when):
        is_told = example_inputs is None and example_kwargs is None and dynamic_shapes is None
        if cache and is_told and opt_level in range(4):
            made, identity = _compiled_before(source, options, stages)
        if made is None:
            with collector_paused():
                from tilewright.driver.compile import compile_observed

            made = compile_observed(source, **vars(options), stages=stages, identity=identity)
    if made.manifest.notes.get("not_for_all"):
        from tilewright.driver.specialised import code_alone

        names = [t.name for t in made.inputs]
        made.code_for = code_alone(source, options, names, compile)
    return made


def _load_compiler() -> None:
    """Import what compiling a file needs: a file whose content is not known is seldom in the cache,
    and Python imports on one core while others hash."""
    with collector_paused(), contextlib.suppress(ImportError):  # what is missing is told later
        importlib.import_module("tilewright.driver.compile")
        importlib.import_module("tilewright.frontend.onnx")
        backend = importlib.import_module("tilewright.backend.backend")
        _ = backend.backend_of_kind("cpu").strategies  # where whole models run


def _read_shapes(shapes: Any) -> dict[str, int | tuple[int | str | None, ...]]:
    """Sizes that a caller gives, in Python's numbers. Raises CompileError."""
    found: dict[str, int | tuple[int | str | None, ...]] = {}
    try:
        for name, given in dict(shapes or {}).items():
            if given.__class__ is not str and hasattr(given, "__iter__"):
                found[name] = tuple([_number_or_name(n) for n in given])
            else:
                found[name] = operator.index(given)
    except (TypeError, ValueError):
        raise CompileError(
            f"cannot compile a model with shapes={shapes!r}",
            "they are numbers by the names of sizes, or sizes by the names of inputs",
            remedy='as in shapes={"height": 320} or shapes={"image": (1, 3, None, 320)}',
        ) from None
    return found


def _number_or_name(given: Any) -> int | str | None:
    return given if given is None or isinstance(given, str) else operator.index(given)


def _champions(options: Options, threads: int) -> str:
    """The digest of the recorded schedules that these options allow."""
    if options.database is None or options.database is False:
        return ""
    with collector_paused():
        from tilewright.driver.champions import recorded
        from tilewright.driver.compile import machines_of

    return recorded(options.database, machines_of(options.target), threads).digest


def _compiled_before(
    source: Any, options: Options, stages: Stages
) -> tuple[Executable | None, str | None]:
    """The model (a file, or its content) from the cache, None if it is not there or the compiler
    has to look at it; and its identity, if that was asked for."""
    watched = knobs.DUMP.read() or knobs.PRINT.read() or knobs.VERIFY.read() or knobs.DIFF.read()
    count = default_threads() if options.threads is None else options.threads
    if watched or type(count) is not int or count < 1:
        return None, None
    if not isinstance(source, bytes | str | os.PathLike):
        return None, None
    store = Cache()
    if isinstance(source, bytes):
        identify = partial(content_identity, source)
    else:
        path = Path(os.fspath(source))
        if not path.is_file() or path.suffix == ".tw":
            return None, None
        identify = partial(file_identity, path, store, _load_compiler)
    with stages("identify"):
        identity = identify()
        asked_for = options.target, count, options.opt_level, options.shapes, options.winograd
        key = artifact_key(identity, *asked_for, _champions(options, count))
    with stages("load"):
        found = store.fetch(key, lambda kept: open_kept(kept, count))
    if found is not None:
        found.compile_stages = stages
        stages.tell(f"found '{found.name}' in the cache")
        if knobs.TIME.read():
            sys.stderr.write(f"# compiling {found.name} took\n{stages}\n\n")
    return found, identity
