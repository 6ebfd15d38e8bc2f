"""Translators of ONNX operators on sequences.

The length of a sequence is known when compiling, so it is a tuple of values and costs nothing at
run time; places in it must be known, too.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.frontend.onnx import measured
from tilewright.frontend.onnx.registry import Refusal, Sequence, Site, translates
from tilewright.frontend.onnx.tensors import axis, cut
from tilewright.ir.expr import as_int


def sequence(n: Site, k: int) -> Sequence:
    """Input `k`, which must be a sequence."""
    found = n.optional(k)
    if not isinstance(found, Sequence):
        raise Refusal(f"input {k} is no sequence")
    return found


def place(n: Site, k: int, most: int) -> int:
    """The place in a sequence that input `k` names."""
    found = int(n.scalar(k))
    if not -most <= found <= most:
        raise Refusal(f"place {found} is outside a sequence of {most}")
    return found


@translates("Optional", "OptionalGetElement")
def element(n: Site) -> Any:
    """What is there; whether it is there is known when compiling."""
    value = n.optional(0)
    if value is None:
        raise Refusal("there is no element")
    return value


@translates("OptionalHasElement")
def has_element(n: Site) -> Any:
    return n.constant(np.array(n.optional(0) is not None))


@translates("SequenceEmpty")
def empty(n: Site) -> Any:
    return Sequence()


@translates("SequenceConstruct")
def construct(n: Site) -> Any:
    return Sequence(n[k] for k in range(len(n.inputs)))


@translates("SequenceLength")
def count(n: Site) -> Any:
    return n.constant(np.array(len(sequence(n, 0)), np.int64))


@translates("SequenceAt")
def at(n: Site) -> Any:
    parts = sequence(n, 0)
    k = place(n, 1, len(parts))
    if k == len(parts):
        raise Refusal(f"place {k} is outside a sequence of {len(parts)}")
    return parts[k]


@translates("SequenceInsert")
def insert(n: Site) -> Any:
    parts = list(sequence(n, 0))
    k = place(n, 2, len(parts)) if n.optional(2) is not None else len(parts)
    parts.insert(k, n[1])
    return Sequence(parts)


@translates("SequenceErase")
def erase(n: Site) -> Any:
    parts = list(sequence(n, 0))
    k = place(n, 1, len(parts)) if n.optional(1) is not None else -1
    if not parts or k == len(parts):
        raise Refusal("there is nothing to erase")
    del parts[k]
    return Sequence(parts)


@translates("ConcatFromSequence")
def concat(n: Site) -> Any:
    """With `new_axis` the tensors are stacked."""
    parts, d = list(sequence(n, 0)), n.int("axis")
    if not parts or d is None:
        raise Refusal("it needs an axis and at least one tensor")
    if n.flag("new_axis"):
        d = axis(n, d, parts[0].rank + 1)
        shape = (*parts[0].shape[:d], 1, *parts[0].shape[d:])
        parts = [n.build.emit("reshape", p, shape=shape) for p in parts]
    d = axis(n, d, parts[0].rank)
    return parts[0] if len(parts) == 1 else n.emit("concat", *parts, axis=d)


@translates("SplitToSequence")
def split(n: Site) -> Any:
    x = n[0]
    d = axis(n, n.int("axis", 0), x.rank)
    size, rest = as_int(x.shape[d]), tuple(s for k, s in enumerate(x.shape) if k != d)
    known_parts = n.optional(1) is not None and n[1].rank == 1
    if size is None and not known_parts:
        raise Refusal("it splits an axis of symbolic size", "dims={name: size} gives it a number")
    if size is None:
        return Sequence(measured.split(n, x, d))
    if n.optional(1) is None:
        parts = [cut(n, x, d, k, 1) for k in range(size)]
        if not n.flag("keepdims", True):
            parts = [n.build.emit("reshape", p, shape=rest) for p in parts]
        return Sequence(parts)
    if n[1].rank == 0:
        each = int(n.scalar(1))
        if each < 1:
            raise Refusal(f"parts of {each} are not possible")
        sizes_ = [min(each, size - k) for k in range(0, size, each)]
        return Sequence(cut(n, x, d, k * each, s) for k, s in enumerate(sizes_))
    if measured.is_known(n, 1):
        sizes_ = list(n.numbers(1))
        if sum(sizes_) != size or min(sizes_, default=0) < 0:
            raise Refusal(f"the parts {sizes_} do not make up {size}")
        starts = np.cumsum([0, *sizes_]).tolist()
        return Sequence(cut(n, x, d, a, s) for a, s in zip(starts, sizes_, strict=False))
    return Sequence(measured.split(n, x, d))


@translates("SequenceMap")
def each(n: Site) -> Any:
    """The body for each element; tensors beside the first sequence are the same for all."""
    body, lead = n.graph("body"), sequence(n, 0)
    rows = []
    for k in range(len(lead)):
        given = [v[k] if isinstance(v, Sequence) else v for v in n.inputs]
        rows.append(n.importer.inline(body, given))
    columns = zip(*rows, strict=True) if rows else [()] * len(body.output)
    made = tuple(Sequence(column) for column in columns)
    return made if len(made) > 1 else made[0]
