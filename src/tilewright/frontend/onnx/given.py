"""Open sizes of an ONNX model that the caller gives numbers for, or names.

In: the model's inputs, and numbers by the names of sizes or sizes by the names of inputs. Out: by
the model's own name of each size its number; a size without a name is called by its input and axis,
as in `image_2`, and so is one whose name says nothing ("?", "unk__12"). And what sizes of an input
are called instead: sizes of one name are equal, but some files give one name to others, too. They
have names of their own where the caller says so, or gives several inputs different numbers, or
where the model's operators contradict what the file says (`size_names`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from tilewright.frontend.onnx.messages import GraphProto, TensorShapeProto, ValueInfoProto
from tilewright.graph.builder import identifier
from tilewright.runtime.abi import MAX_DIM
from tilewright.support.errors import ImportFault

Shapes = Mapping[str, int | Sequence[int | str | None]]
Called = dict[tuple[str, int], str]  # what the caller calls the size of an input at an axis
# What writers put where they know no name: two sizes called so are two.
NAMELESS = re.compile(r"[\W\d_]*|unk_+\d+|none|null|unknown|dynamic", re.IGNORECASE)


def label(entry: ValueInfoProto, axis: int, called: Called) -> str:
    """The name of a size of an input."""
    said = called.get((entry.name, axis)) or entry.type.tensor_type.shape.dim[axis].dim_param
    return f"{entry.name}_{axis}" if NAMELESS.fullmatch(said) else said


def given_sizes(graph: GraphProto, shapes: Shapes) -> tuple[dict[str, int], Called]:
    """The number of each size that `shapes` speaks of, and the names that it gives. Raises
    ImportFault for what the model has not, and for what does not fit it."""
    inputs = {e.name: e for e in _tensors(graph)}
    called: Called = {
        (name, axis): size
        for name, given in shapes.items()
        if not isinstance(given, int)
        for axis, size in enumerate(given)
        if isinstance(size, str)
    }
    names: dict[str, set[str]] = {}  # as the caller may say it → what the size is called
    for entry, axis in open_sizes(graph):
        name = label(entry, axis, called)
        declared = entry.type.tensor_type.shape.dim[axis].dim_param
        own = declared if (entry.name, axis) not in called else ""
        for said in {name, identifier(name), own} - {""}:
            names.setdefault(said, set()).add(name)
    found: dict[str, int] = {}
    numbered = [name for name, given in shapes.items() if isinstance(given, int)]
    by_name = {one for name in numbered for one in names.get(name, ())}
    for name, given in shapes.items():
        what = f"cannot compile the model for {name}={given}"
        if isinstance(given, int) and name in names:
            for one in names[name]:
                _bind(found, one, given, what)
        elif not isinstance(given, int) and name in inputs:
            _match(found, called, inputs[name], given, what, by_name)
        else:
            kind, listed = ("open size", names) if isinstance(given, int) else ("input", inputs)
            told = ", ".join(dict.fromkeys(map(identifier, listed))) or "none"
            raise ImportFault(what, f"it has no {kind} '{name}'", remedy=f"it has: {told}")
    return found, called


def _match(
    found: dict[str, int],
    called: Called,
    entry: ValueInfoProto,
    given: Sequence[int | str | None],
    what: str,
    by_name: set[str],
) -> None:
    declared = entry.type.tensor_type.shape.dim
    if len(given) != len(declared):
        raise ImportFault(
            what,
            f"the input has {len(declared)} axes",
            remedy="give a size for each, None where it stays open",
        )
    for axis, (dim, number) in enumerate(zip(declared, given, strict=True)):
        if number is None:
            continue
        if not _is_open(dim):
            if dim.dim_value != number:
                why = f"axis {axis} of the input is {dim.dim_value}"
                raise ImportFault(what, why, remedy="give that, or None")
            continue
        if isinstance(number, str):
            if not number.isidentifier():
                why = f"'{number}' is no name for a size"
                raise ImportFault(what, why, remedy="names are letters, digits and _")
            continue
        name = label(entry, axis, called)
        if found.get(name, number) != number and name not in by_name:
            name = called[entry.name, axis] = f"{entry.name}_{axis}"
        _bind(found, name, number, what)


def _bind(found: dict[str, int], name: str, number: int, what: str) -> None:
    if not 0 <= number <= MAX_DIM:
        why = f"the size '{name}' cannot be {number}"
        raise ImportFault(what, why, remedy=f"give 0, or more, up to {MAX_DIM}")
    if found.setdefault(name, number) != number:
        why = f"the size '{name}' is {found[name]} elsewhere, not {number}"
        raise ImportFault(what, why, remedy="give one number wherever the model has this name")


def declared_shapes(graph: GraphProto) -> dict[str, tuple[int | str, ...]]:
    """The shape of each input that is a tensor; open sizes by their names."""
    return {
        e.name: tuple(
            label(e, axis, {}) if _is_open(dim) else dim.dim_value
            for axis, dim in enumerate(e.type.tensor_type.shape.dim)
        )
        for e in _tensors(graph)
    }


def _tensors(graph: GraphProto) -> list[ValueInfoProto]:
    """The inputs that a caller gives as tensors."""
    initialised = {t.name for t in graph.initializer}
    return [e for e in graph.input if e.type.HasField("tensor_type") and e.name not in initialised]


def open_sizes(graph: GraphProto) -> Iterator[tuple[ValueInfoProto, int]]:
    """The inputs' open sizes: an input and an axis of it."""
    for entry in _tensors(graph):
        for axis, dim in enumerate(entry.type.tensor_type.shape.dim):
            if _is_open(dim):
                yield entry, axis


def _is_open(dim: TensorShapeProto.Dimension) -> bool:
    return bool(dim.dim_param) or not dim.HasField("dim_value") or dim.dim_value < 0
