"""`tw.export`: a model into files for a machine that need not be this one.

In: a model, as `tw.compile` takes it, and a target. Out: an artifact, or what C programs link or
compile. Nothing is loaded: code for another processor or system cannot be.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tilewright.driver.compile import Targets, compile_file
from tilewright.runtime.export import KINDS, Library
from tilewright.runtime.module import contents
from tilewright.support.errors import CompileError
from tilewright.support.files import check_folder


def export(
    source: Any,
    path: str | os.PathLike[str],
    kind: str = "artifact",
    *,
    target: Targets = "cpu",
    name: str | None = None,
    sign: Any = None,
    example_inputs: Sequence[Any] | Mapping[str, Any] | None = None,
    example_kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    shapes: Mapping[str, int | Sequence[int | str | None]] | None = None,
    threads: int | None = None,
    opt_level: int = 3,
    winograd: bool | None = None,
    database: Any = None,
) -> Path:
    """Compile a model into files, for any CPU that a target describes.

    Args:
        source: a model, as `compile` takes it; so are the arguments that are not told of here.
        path: of the file; of the folder, for kinds other than "artifact".
        kind: as for `Executable.save`, which writes what was compiled for this machine: "artifact"
            is one file, "library", "static" and "c-array" are folders for C programs.
        target: of which system and processor, as in "cpu -mtriple=aarch64-linux-gnu"; libraries
            for other ones need the ziglang package.
        name: what a library's files and functions are called, as for `Executable.save`.
        sign: a private key to sign an artifact with, likewise.

    Returns:
        The path written.

    Raises:
        CompileError: the model cannot be compiled, or its library not built.
        WriteFault: a file cannot be written.
    """
    file, is_library = Path(path), kind != "artifact"
    if is_library and sign is not None:
        raise CompileError(
            f"cannot sign what is of kind {kind!r}",
            "only artifacts are signed",
            remedy='leave sign out, or export kind="artifact"',
        )
    if not is_library and name is not None:
        raise CompileError(
            f"cannot name an artifact {name!r}",
            "it is named by its path; name is for libraries",
            remedy=f"leave name out, or export one of the kinds {', '.join(KINDS)}",
        )
    source = contents(source, "cannot compile this file", CompileError)
    told: dict[str, Any] = {
        "example_inputs": example_inputs,
        "example_kwargs": example_kwargs,
        "dynamic_shapes": dynamic_shapes,
        "shapes": shapes,
        "threads": threads,
        "opt_level": opt_level,
        "winograd": winograd,
        "database": database,
    }
    if not is_library:
        check_folder(file)
        compile_file(source, file, target, sign=sign, **told)
        return file
    with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
        library = Library(file, kind, name)
        compile_file(source, Path(folder) / "model.tw", target, library=library, **told)
    return file
