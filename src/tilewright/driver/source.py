"""What a user may hand to `compile`, as one thing: an identity for the cache, and a graph.

In: a path, a file's content, an ONNX model, a torch module, a graph. Out: a `Source`. Reading and
hashing are apart, so that a model found in the cache is never parsed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tilewright.driver.identity import content_identity, file_identity
from tilewright.graph.builder import identifier
from tilewright.graph.graph import Graph
from tilewright.graph.specialise import specialise
from tilewright.runtime.artifact import MAGIC
from tilewright.support.collector import collector_paused
from tilewright.support.errors import CompileError
from tilewright.support.record import record

LARGE = 1 << 20  # bytes from which starting compile workers early pays


@record
class Source:
    """A model to be read. identity: what the cache knows it by, or None (not cached)."""

    identity: str | None
    is_large: bool
    graph: Callable[[], Graph]


Shapes = Mapping[str, int | Sequence[int | str | None]]


def open_source(
    source: Any,
    example_inputs: Sequence[Any] | Mapping[str, Any] | None = None,
    identity: str | None = None,
    shapes: Shapes | None = None,
    dynamic_shapes: Any = None,
    example_kwargs: Mapping[str, Any] | None = None,
) -> Source:
    """Tell what kind of model `source` is. `identity`: a file's, where it is known already.
    `shapes`: numbers for open sizes, as `compile` takes them. Raises CompileError that lists the
    kinds."""
    kinds = {c.__module__.partition(".")[0] for c in type(source).__mro__}
    asked = {
        "dynamic_shapes": dynamic_shapes,
        "example_inputs": example_inputs,
        "example_kwargs": example_kwargs,
    }
    told = [word for word, given in asked.items() if given is not None]
    if told and "torch" not in kinds and not callable(source):
        raise CompileError(
            f"cannot compile this model with {told[0]}",
            "it tells torch.export of inputs and their open sizes; other models say so themselves",
            remedy="leave it out; shapes={...} gives numbers to open sizes",
        )
    if isinstance(source, Graph):
        graph = specialise(source, shapes or {})
        return Source(None, len(source.nodes) > 20, lambda: graph)
    if isinstance(source, str | os.PathLike):
        return _file(Path(os.fspath(source)), identity, shapes)
    if isinstance(source, bytes):
        return _content(source, identity, shapes)
    if is_onnx(source):
        return Source(None, True, lambda: _onnx(source, shapes))
    if "torch" in kinds or (callable(source) and told):
        given = example_inputs, example_kwargs, dynamic_shapes
        return Source(None, True, lambda: _torch(source, *given, shapes))
    raise CompileError(
        "cannot compile this object",
        f"it is a {type(source).__module__}.{type(source).__qualname__}",
        remedy="give the path of a model file or its bytes, an onnx.ModelProto, a torch.nn.Module "
        "or a Graph",
    )


def is_onnx(source: Any) -> bool:
    """Is it an ONNX model, in a file or not? Only such a one is read for the sizes that are given;
    of others, what was read for all sizes gets numbers."""
    return (
        isinstance(source, str | os.PathLike | bytes)
        or type(source).__module__.partition(".")[0] == "onnx"
    )


def _content(content: bytes, identity: str | None, shapes: Shapes | None) -> Source:
    if content.startswith(MAGIC):
        raise CompileError(
            "cannot compile these bytes", "they are compiled already", remedy="tw.load(content)"
        )
    is_large = len(content) >= LARGE
    return Source(identity or content_identity(content), is_large, lambda: _onnx(content, shapes))


def _file(path: Path, identity: str | None, shapes: Shapes | None) -> Source:
    if not path.exists():
        raise CompileError(
            f"cannot compile '{path}'", "there is no such file", remedy="check the path"
        )
    if path.is_dir():
        raise CompileError(
            f"cannot compile '{path}'", "it is a folder", remedy="name the model file in it"
        )
    if path.suffix == ".tw":
        raise CompileError(
            f"cannot compile '{path}'", "it is compiled already", remedy=f"tw.load('{path}')"
        )
    size = path.stat().st_size
    return Source(identity or file_identity(path), size >= LARGE, lambda: _onnx(path, shapes))


@collector_paused()
def _onnx(source: Any, shapes: Shapes | None) -> Graph:
    try:
        from tilewright.frontend.onnx import import_onnx
    except ModuleNotFoundError as fault:
        raise CompileError(
            "cannot read an ONNX model",
            f"the package '{fault.name}' is not installed",
            remedy="pip install 'tilewright[onnx]'",
        ) from None
    return import_onnx(source, shapes=shapes)


def _torch(
    module: Any,
    example_inputs: Sequence[Any] | Mapping[str, Any] | None,
    example_kwargs: Mapping[str, Any] | None,
    dynamic_shapes: Any,
    shapes: Shapes | None,
) -> Graph:
    try:
        from tilewright.frontend.torch import import_torch
    except ModuleNotFoundError as fault:
        raise CompileError(
            "cannot read a function or module of PyTorch",
            f"the package '{fault.name}' is not installed",
            remedy="pip install 'tilewright[torch]'",
        ) from None
    graph = import_torch(
        module, example_inputs, example_kwargs=example_kwargs, dynamic_shapes=dynamic_shapes
    )
    return specialise(graph, shapes or {})


def declared_shapes(path: str) -> dict[str, tuple[int | str, ...]]:
    """The shapes of an ONNX file's inputs, open sizes by the names that compiled code has for
    them. Raises CompileError."""
    _file(Path(path), "", None)
    from tilewright.frontend.onnx import files, given

    shapes = given.declared_shapes(files.read(path).model.graph)
    return {
        name: tuple([identifier(d) if isinstance(d, str) else d for d in shape])
        for name, shape in shapes.items()
    }
