"""Open sizes of an ONNX model that the caller gives numbers for.

In: the model's inputs, and numbers by the names of sizes or sizes by the names of inputs. Out: by
the model's own name of each size its number; a size without a name is called by its input and axis,
as in `image_2`, and so is one whose name says nothing ("?", "unk__12").
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from tilewright.frontend.onnx.messages import GraphProto, TensorShapeProto, ValueInfoProto
from tilewright.graph.builder import identifier
from tilewright.support.errors import ImportFault

Shapes = Mapping[str, int | Sequence[int | None]]
# What writers put where they know no name: two sizes called so are two.
NAMELESS = re.compile(r"[\W\d_]*|unk_+\d+|none|null|unknown|dynamic", re.IGNORECASE)


def label(entry: ValueInfoProto, axis: int) -> str:
    """The name of a size of an input."""
    said = entry.type.tensor_type.shape.dim[axis].dim_param
    return f"{entry.name}_{axis}" if NAMELESS.fullmatch(said) else said


def given_sizes(graph: GraphProto, shapes: Shapes) -> dict[str, int]:
    """The number of each size that `shapes` speaks of. Raises ImportFault for what the model has
    not, and for what does not fit it."""
    initialised = {t.name for t in graph.initializer}
    inputs = {
        e.name: e
        for e in graph.input
        if e.type.HasField("tensor_type") and e.name not in initialised
    }
    names: dict[str, set[str]] = {}  # as the caller may say it → what the size is called
    for entry in inputs.values():
        for axis, dim in enumerate(entry.type.tensor_type.shape.dim):
            if _is_open(dim):
                name = label(entry, axis)
                for said in {name, identifier(name), dim.dim_param} - {""}:
                    names.setdefault(said, set()).add(name)
    found: dict[str, int] = {}
    for name, given in shapes.items():
        what = f"cannot compile the model for {name}={given}"
        if isinstance(given, int) and name in names:
            for one in names[name]:
                _bind(found, one, given, what)
        elif not isinstance(given, int) and name in inputs:
            _match(found, inputs[name], given, what)
        else:
            kind, listed = ("open size", names) if isinstance(given, int) else ("input", inputs)
            told = ", ".join(dict.fromkeys(map(identifier, listed))) or "none"
            raise ImportFault(what, f"it has no {kind} '{name}'", remedy=f"it has: {told}")
    return found


def _match(
    found: dict[str, int], entry: ValueInfoProto, given: Sequence[int | None], what: str
) -> None:
    declared = entry.type.tensor_type.shape.dim
    if len(given) != len(declared):
        raise ImportFault(what, f"the input has {len(declared)} axes")
    for axis, (dim, number) in enumerate(zip(declared, given, strict=True)):
        if number is None:
            continue
        if not _is_open(dim):
            if dim.dim_value != number:
                raise ImportFault(what, f"axis {axis} of the input is {dim.dim_value}")
            continue
        _bind(found, label(entry, axis), number, what)


def _bind(found: dict[str, int], name: str, number: int, what: str) -> None:
    if number < 0:
        raise ImportFault(what, f"the size '{name}' cannot be {number}")
    if found.setdefault(name, number) != number:
        raise ImportFault(what, f"the size '{name}' is {found[name]} elsewhere, not {number}")


def declared_shapes(graph: GraphProto) -> dict[str, tuple[int | str, ...]]:
    """The shape of each input that is a tensor; open sizes by their names."""
    initialised = {t.name for t in graph.initializer}
    return {
        e.name: tuple(
            label(e, axis) if _is_open(dim) else dim.dim_value
            for axis, dim in enumerate(e.type.tensor_type.shape.dim)
        )
        for e in graph.input
        if e.type.HasField("tensor_type") and e.name not in initialised
    }


def _is_open(dim: TensorShapeProto.Dimension) -> bool:
    return bool(dim.dim_param) or not dim.HasField("dim_value") or dim.dim_value < 0
