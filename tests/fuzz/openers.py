"""What is done with a hostile file: open it as a user would and, if accepted, run it once."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.runtime.tensor import numpy_dtype

Opener = Callable[[Path, bool], None]
LARGEST_INPUT = 16 << 20  # elements: an accepted model of huge inputs is not called


def preload(work: str) -> None:
    """Import what the openers need, so that every forked process has it from the start."""
    needed = ["tilewright.frontend.onnx"]
    if work != "import":
        needed += ["tilewright.driver.compile", "tilewright.backend.cpu", "tilewright.runtime"]
        needed += ["tilewright.strategy.cpu.families", "tilewright.codegen.llvm_compile"]
    for name in needed:
        importlib.import_module(name)


def import_model(path: Path, may_run: bool) -> None:
    """The ONNX frontend alone."""
    from tilewright.frontend.onnx import import_onnx

    import_onnx(str(path))


def compile_model(path: Path, may_run: bool) -> None:
    """From file to native code and one call."""
    import tilewright as tw

    call_with_zeros(tw.compile(str(path), threads=1, cache=False), may_run)


def load_artifact(path: Path, may_run: bool) -> None:
    import tilewright as tw

    call_with_zeros(tw.load(str(path), threads=1), may_run)


def call_with_zeros(executable: Any, may_run: bool) -> None:
    shapes = [tuple(x if isinstance(x, int) else 2 for x in i.shape) for i in executable.inputs]
    if may_run and sum(int(np.prod(shape, dtype=object)) for shape in shapes) <= LARGEST_INPUT:
        dtypes = [numpy_dtype(entry.dtype) for entry in executable.inputs]
        executable(*(np.zeros(*pair) for pair in zip(shapes, dtypes, strict=True)))


def save_artifact(model: Path, to: Path) -> None:
    """Compile a sound model into an artifact."""
    import tilewright as tw

    tw.compile(str(model), threads=1, cache=False).save(str(to))
