"""Translators of ONNX operators on sequences.

Where the length of a sequence and the positions in it are known when compiling, it is a tuple of
values and costs nothing at run time; else it is `Ragged` (`ragged.py`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.frontend.onnx import data_dependent, ragged
from tilewright.frontend.onnx.kernel_bodies import Growing
from tilewright.frontend.onnx.registry import (
    Maybe,
    NodeContext,
    Ragged,
    Refusal,
    Sequence,
    translates,
)
from tilewright.frontend.onnx.tensors import axis, cut
from tilewright.graph.graph import Value
from tilewright.ir.expr import Expr, as_int


def sequence(n: NodeContext, k: int) -> Sequence | Ragged:
    """Input `k`, which must be a sequence."""
    found: Any = n.optional(k)
    if isinstance(found, Growing):
        raise Refusal(
            f"input {k} is a sequence that grows in a loop of so many rounds as the run counts",
            "such a loop may put tensors behind it, but not read it",
        )
    if not isinstance(found, Sequence | Ragged):
        raise Refusal(f"input {k} is no sequence")
    return found


def position(n: NodeContext, k: int, most: int) -> int:
    """The position in a sequence that input `k` names."""
    found = int(n.scalar(k))
    if not -most <= found <= most:
        raise Refusal(f"position {found} is outside a sequence of {most}")
    return found


def is_known(n: NodeContext, parts: Any, k: int) -> bool:
    """Are the sequence and the position that input `k` names known when compiling?"""
    return isinstance(parts, Sequence) and data_dependent.is_constant(n, k)


@translates("Optional")
def optional(n: NodeContext) -> Any:
    """What is there; without an input nothing is."""
    value = n.optional(0)
    return Maybe(n.constant(np.array(False)), None) if value is None else value


@translates("OptionalGetElement")
def element(n: NodeContext) -> Any:
    """What is there. The run stops if it is not."""
    value: Any = n.optional(0)
    if not isinstance(value, Maybe) and value is not None:
        return value
    if value is None or value.content is None:
        raise Refusal("there is no element")
    content, what = value.content, "the element"
    if isinstance(content, Ragged):
        shapes = ragged.checked(n, value.present, content.shapes, what)
        return Ragged(content.data, shapes, content.rank)
    if isinstance(content, Sequence):
        return Sequence(ragged.checked(n, value.present, v, what) for v in content)
    return ragged.checked(n, value.present, content, what)


@translates("OptionalHasElement")
def has_element(n: NodeContext) -> Any:
    value: Any = n.optional(0)
    return value.present if isinstance(value, Maybe) else n.constant(np.array(value is not None))


@translates("SequenceEmpty")
def empty(n: NodeContext) -> Any:
    return Sequence()


@translates("SequenceConstruct")
def construct(n: NodeContext) -> Any:
    return Sequence(n[k] for k in range(len(n.inputs)))


@translates("SequenceLength")
def count(n: NodeContext) -> Any:
    parts = sequence(n, 0)
    if isinstance(parts, Ragged):
        return n.emit("reshape", data_dependent.counted(n, parts.shapes.shape[0]), shape=())
    return n.constant(np.array(len(parts), np.int64))


@translates("SequenceAt")
def at(n: NodeContext) -> Any:
    parts = sequence(n, 0)
    if not is_known(n, parts, 1):
        return ragged.at(n, parts, n[1])
    k = position(n, 1, len(parts))
    if k == len(parts):
        raise Refusal(f"position {k} is outside a sequence of {len(parts)}")
    return parts[k]


@translates("SequenceInsert")
def insert(n: NodeContext) -> Any:
    grows: Any = n.optional(0)
    if isinstance(grows, Growing) and n.optional(2) is None:
        return Growing(grows.at, (*grows.added, n[1]))
    parts = sequence(n, 0)
    if not is_known(n, parts, 2):
        return ragged.insert(n, parts, n[1], n[2] if n.optional(2) is not None else None)
    made = list(parts)
    k = position(n, 2, len(made)) if n.optional(2) is not None else len(made)
    made.insert(k, n[1])
    return Sequence(made)


@translates("SequenceErase")
def erase(n: NodeContext) -> Any:
    parts = sequence(n, 0)
    if not is_known(n, parts, 1):
        last = data_dependent.numbers(n, -1)
        return ragged.erase(n, parts, n[1] if n.optional(1) is not None else last)
    made = list(parts)
    k = position(n, 1, len(made)) if n.optional(1) is not None else -1
    if not made or k == len(made):
        raise Refusal("there is nothing to erase")
    del made[k]
    return Sequence(made)


@translates("ConcatFromSequence")
def concat(n: NodeContext) -> Any:
    """With `new_axis` the tensors are stacked."""
    parts, d = sequence(n, 0), n.int("axis")
    if d is None:
        raise Refusal("it needs an axis")
    if isinstance(parts, Ragged):
        stacked = n.flag("new_axis")
        if parts.rank is None and (rank := n.importer.told_rank(n.node.output[0])) is not None:
            parts = ragged.of_rank(n, parts, rank - stacked)
        rank = (parts.rank or 0) + stacked
        return ragged.concat(n, parts, d + rank if d < 0 else d, stacked)
    if not parts:
        raise Refusal("it needs at least one tensor")
    if n.flag("new_axis"):
        d = axis(n, d, parts[0].rank + 1)
        shape = (*parts[0].shape[:d], 1, *parts[0].shape[d:])
        parts = [n.build.emit("reshape", p, shape=shape) for p in parts]
    d = axis(n, d, parts[0].rank)
    return parts[0] if len(parts) == 1 else n.emit("concat", *parts, axis=d)


@translates("SplitToSequence")
def split(n: NodeContext) -> Any:
    x = n[0]
    d = axis(n, n.int("axis", 0), x.rank)
    size, rest = as_int(x.shape[d]), tuple(s for k, s in enumerate(x.shape) if k != d)
    if n.optional(1) is None:
        keep = n.flag("keepdims", True)
        if size is None:
            ones = n.build.emit("full", shape=(x.shape[d],), value=1, of="i64")
            return ragged.split(n, x, d, ones, keep)
        parts = [cut(n, x, d, k, 1) for k in range(size)]
        if not keep:
            parts = [n.build.emit("reshape", p, shape=rest) for p in parts]
        return Sequence(parts)
    if n[1].rank == 0:
        if size is None or n[1] not in n.build.constants:
            return ragged.split(n, x, d, ragged.parts_of(n, x.shape[d], n[1]))
        each = int(n.scalar(1))
        if each < 1:
            raise Refusal(f"parts of {each} are not possible")
        sizes_ = [min(each, size - k) for k in range(0, size, each)]
        return Sequence(cut(n, x, d, k * each, s) for k, s in enumerate(sizes_))
    if as_int(n[1].shape[0]) is None:
        return ragged.split(n, x, d, making_up(n, n[1], x.shape[d]))
    if size is not None and data_dependent.is_constant(n, 1):
        sizes_ = list(n.numbers(1))
        if sum(sizes_) != size or min(sizes_, default=0) < 0:
            raise Refusal(f"the parts {sizes_} do not make up {size}")
        starts = np.cumsum([0, *sizes_]).tolist()
        return Sequence(cut(n, x, d, a, s) for a, s in zip(starts, sizes_, strict=False))
    return Sequence(data_dependent.split(n, x, d))


def making_up(n: NodeContext, parts: Value, size: Expr) -> Value:
    """The sizes of parts, of which only the run knows how many there are. It stops where they do
    not make up the axis."""
    parts = n.build.emit("cast", parts, to="i64")
    whole = data_dependent.op(n, "reduce_sum", parts, axes=(0,), keepdims=True)
    least = data_dependent.op(n, "concat", parts, data_dependent.numbers(n, [0]), axis=0)
    least = data_dependent.op(n, "reduce_min", least, axes=(0,), keepdims=True)
    fits = data_dependent.op(n, "equal", whole, data_dependent.counted(n, size))
    fits = data_dependent.op(
        n, "logical_and", fits, data_dependent.op(n, "greater_equal", least, 0)
    )
    return ragged.checked(n, fits, parts, "the parts")


@translates("SequenceMap")
def each(n: NodeContext) -> Any:
    """The body for each element; tensors beside the first sequence are the same for all."""
    body, lead = n.graph("body"), sequence(n, 0)
    if any(isinstance(v, Ragged) for v in n.inputs):
        raise Refusal("how many elements it maps depends on data", "a Loop over them compiles")
    rows = []
    for k in range(len(lead)):
        given = [v[k] if isinstance(v, Sequence) else v for v in n.inputs]
        rows.append(n.importer.inline(body, given))
    columns = zip(*rows, strict=True) if rows else [()] * len(body.output)
    made = tuple(Sequence(column) for column in columns)
    return made if len(made) > 1 else made[0]
