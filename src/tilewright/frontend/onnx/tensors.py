"""Translators of ONNX operators that make, move or reshape tensors."""

from __future__ import annotations

import math
from collections.abc import Container, Sequence
from typing import Any

import numpy as np

from tilewright.frontend.onnx import data_dependent
from tilewright.frontend.onnx.choice import either, held
from tilewright.frontend.onnx.coded import CODED, constant_of, constant_text
from tilewright.frontend.onnx.registry import NodeContext, Refusal, translates
from tilewright.frontend.onnx.runtime_broadcast import expanded, unify_operands
from tilewright.graph import sizes
from tilewright.graph.einsum import einsum
from tilewright.graph.graph import Value
from tilewright.graph.operator import Mismatch, Unequal, axis_of, broadcast_shape
from tilewright.ir.dtype import dtype
from tilewright.ir.expr import Expr, as_int, maximum, minimum

LAST = (1 << 63) - 1
FAR = (1 << 31) - 1  # what exporters write for the end of an axis, and all beyond
MOST_TRIED = 16  # sizes that are tried one by one


def axis(n: NodeContext, value: int, rank: int) -> int:
    """An axis counted from the front."""
    try:
        return axis_of(value, rank)
    except Mismatch as fault:
        raise Refusal(str(fault)) from None


@translates("Constant")
def constant(n: NodeContext) -> Any:
    sparse = n.attributes.get("sparse_value")
    if sparse is not None:
        return n.importer.dense(sparse.sparse_tensor)
    if "value_string" in n.attributes or "value_strings" in n.attributes:
        one = "value_string" in n.attributes
        strings = np.array(n.text("value_string") if one else n.texts("value_strings"), dtype=str)
        return constant_text(n.build, strings, n.node.output[0])
    proto = n.attributes.get("value")
    if proto is not None and proto.t.data_type in CODED:
        return constant_of(n.build, proto.t, n.importer.folder, name=n.node.output[0])
    array = n.tensor("value")
    for name, read, of in (
        ("value_float", n.float, np.float32),
        ("value_int", n.int, np.int64),
        ("value_floats", n.floats, np.float32),
        ("value_ints", n.ints, np.int64),
    ):
        if array is None and name in n.attributes:
            array = np.array(read(name), of)
    if array is None:
        raise Refusal("it has no value")
    return n.build.constant(array, n.node.output[0])


@translates("ConstantOfShape")
def constant_of_shape(n: NodeContext) -> Any:
    value = n.tensor("value")
    if value is None:
        value = np.zeros(1, np.float32)
    if value.size != 1:
        raise Refusal(f"its value must be one number, not {value.size}")
    known = data_dependent.is_known(n, 0)
    many = data_dependent.told_rank(n)
    shape = (
        n.sizes(0)
        if known
        else data_dependent.measure(n, data_dependent.vector(n, 0, many), "the shape")
    )
    return n.emit(
        "full", shape=shape, value=value.reshape(())[()].item(), of=dtype(value.dtype).name
    )


@translates("Shape")
def shape(n: NodeContext) -> Any:
    dims = n[0].shape
    start, end = n.int("start", 0), n.int("end", LAST)
    made = np.empty(len(dims), object)
    made[:] = dims
    return n.build.from_sizes(made[slice(start, end)], dtype("i64"), n.node.output[0])


@translates("Size")
def size(n: NodeContext) -> Any:
    made = np.empty((), object)
    made[()] = n[0].elements
    return n.build.from_sizes(made, dtype("i64"), n.node.output[0])


@translates("Reshape")
def reshape(n: NodeContext) -> Any:
    x = n[0]
    if n.version >= 5 and not data_dependent.is_known(n, 1):
        return data_dependent.reshape(n)
    goal = list(n.ints("shape", ()) if n.version < 5 else n.sizes(1))
    if not n.flag("allowzero"):
        for d, s in enumerate(goal):
            if as_int(s) == 0:
                if d >= x.rank:
                    raise Refusal(f"size 0 at axis {d} copies an axis that the input lacks")
                goal[d] = x.shape[d]
    wild = [d for d, s in enumerate(goal) if as_int(s) == -1]
    if len(wild) > 1:
        raise Refusal("more than one size is -1")
    if wild:
        goal[wild[0]] = left_of(x.shape, [s for d, s in enumerate(goal) if d not in wild])
    return data_dependent.view_of(n, x, goal)


def left_of(have: Sequence[Any], taken: Sequence[Any]) -> Any:
    """The size that -1 stands for: what fills `have` beside the sizes `taken`. Those that are an
    axis of `have` need no division."""
    if 0 in map(as_int, taken):
        raise Refusal("-1 cannot be found beside a size of 0")
    kept, divisor = list(have), sizes.size(1)
    for s in map(sizes.size, taken):
        if s in kept:
            kept.remove(s)
        else:
            divisor = sizes.size(divisor * s)
    return sizes.size(sizes.product(kept) // divisor)


@translates("Flatten")
def flatten(n: NodeContext) -> Any:
    x, at = n[0], n.int("axis", 1)
    at = at + x.rank if at < 0 else at
    if not 0 <= at <= x.rank:
        raise Refusal(f"axis {at} is out of range for rank {x.rank}")
    return n.emit("reshape", x, shape=(sizes.product(x.shape[:at]), sizes.product(x.shape[at:])))


@translates("Squeeze")
def squeeze(n: NodeContext) -> Any:
    x = n[0]
    if n.version >= 13 and not data_dependent.is_known(n, 1):
        return data_dependent.squeeze(n)
    axes = n.numbers(1) if n.version >= 13 and n.optional(1) is not None else n.ints("axes")
    if axes is None:
        drop = [d for d, s in enumerate(x.shape) if as_int(s) == 1]
        left = [d for d, s in enumerate(x.shape) if as_int(s) is None]
        if left and not n.importer.in_kernel:
            return squeezed(n, drop, left)
    else:
        drop = [axis(n, a, x.rank) for a in axes]
        for d in drop:
            if as_int(x.shape[d]) not in (1, None):
                raise Refusal(f"axis {d} has size {sizes.text(x.shape[d])}, not 1")
        x = first_of(n, x, [d for d in drop if as_int(x.shape[d]) is None])
        if n.build.under is not None and not n.importer.in_kernel:
            for d in drop:
                x = x if as_int(x.shape[d]) == 1 else only_one(n, x, d)
    return data_dependent.view_of(n, x, [s for d, s in enumerate(x.shape) if d not in drop])


def squeezed(n: NodeContext, drop: list[int], left: list[int]) -> Any:
    """x without the axes `drop`, and without those of `left` whose size the run finds to be 1."""
    x = n[0]
    if not left:
        return data_dependent.view_of(n, x, [s for d, s in enumerate(x.shape) if d not in drop])
    size = n.build.emit("reshape", n.build.size_vector(x.shape[left[0]]), shape=())
    is_one = n.build.emit("equal", size, n.constant(1, size.dtype))
    sides = [drop + left[:1], drop]
    known = n.build.constants.get(is_one)
    if known is not None:
        return squeezed(n, sides[0 if known.array else 1], left[1:])
    made = either(n, is_one, [lambda d=d: (squeezed(n, d, left[1:]),) for d in sides])
    return made[0]


def first_of(n: NodeContext, x: Value, axes: Sequence[int]) -> Value:
    """x with one element along those of the axes that never have more: the run finds it there, and
    the sizes of the other axes keep their names."""
    short = [d for d in axes if sizes.is_never_more(x.shape[d], sizes.size(1))]
    if not short or n.importer.in_kernel:
        return x
    shape = [sizes.size(1) if d in short else s for d, s in enumerate(x.shape)]
    return n.emit("slice", x, starts=(0,) * x.rank, shape=tuple(shape))


def only_one(n: NodeContext, x: Value, axis: int) -> Value:
    """x with an axis of size 1, which the run checks if it takes this branch; the sizes of the
    other axes keep their names. A pad cuts the axis to its first element and is one whatever the
    size is where the branch is not taken: with none, it makes a zero."""
    size = n.build.emit("reshape", n.build.size_vector(x.shape[axis]), shape=())
    is_one = n.build.emit("equal", size, n.constant(1, size.dtype))
    x = held(n, is_one, x, f"whether axis {axis} has size 1 in Squeeze '{n.node.name}'")
    after = [sizes.size(1 - s) if d == axis else 0 for d, s in enumerate(x.shape)]
    return n.build.emit("pad", x, before=(0,) * x.rank, after=tuple(after))


@translates("Unsqueeze")
def unsqueeze(n: NodeContext) -> Any:
    x = n[0]
    if n.version >= 13 and not data_dependent.is_known(n, 1):
        return data_dependent.unsqueeze(n)
    axes = n.numbers(1) if n.version >= 13 else n.ints("axes", ())
    rank = x.rank + len(axes)
    new = {axis(n, a, rank) for a in axes}
    if len(new) != len(axes):
        raise Refusal(f"axes {axes} repeat an axis")
    rest = iter(x.shape)
    return n.emit("reshape", x, shape=tuple(1 if d in new else next(rest) for d in range(rank)))


@translates("Transpose")
def transpose(n: NodeContext) -> Any:
    return n.emit("transpose", n[0], perm=n.ints("perm") or tuple(reversed(range(n[0].rank))))


@translates("Expand")
def expand(n: NodeContext) -> Any:
    x = n[0]
    if not data_dependent.is_known(n, 1):
        return data_dependent.expand(n)
    try:
        goal = broadcast_shape(x.shape, sizes.shape(n.sizes(1)))
    except Unequal as fault:
        if all(as_int(s) is not None for s in fault.sizes):
            raise Refusal(str(fault)) from None
        made = expanded(n, x, sizes.shape(n.sizes(1)))
        return data_dependent.expand(n) if made is None else made
    except Mismatch as fault:
        raise Refusal(str(fault)) from None
    return x if goal == x.shape else n.emit("expand", x, shape=goal)


@translates("Concat")
def concat(n: NodeContext) -> Any:
    at = n.int("axis", 1)
    parts = [n[k] for k in range(len(n.inputs))]
    if not parts:
        raise Refusal("it has no inputs")
    return (
        parts[0] if len(parts) == 1 else n.emit("concat", *parts, axis=axis(n, at, parts[0].rank))
    )


def cut(n: NodeContext, x: Value, d: int, start: Any, count: Any, name: str = "") -> Value:
    """`count` positions of x from `start` on along axis d."""
    starts = tuple(start if k == d else 0 for k in range(x.rank))
    return n.build.emit(
        "slice", x, starts=starts, shape=(*x.shape[:d], count, *x.shape[d + 1 :]), name=name
    )


def equal_parts(whole: Expr, count: int, exact: bool) -> tuple[Expr, ...]:
    """Sizes of as many parts of a size, of which the last has what is left; all the same if
    `exact`. What is not so gives sizes that do not add up, or a negative one."""
    each = sizes.size((whole + (0 if exact else count - 1)) // count)
    return (
        (each,) * count
        if exact
        else (*(each,) * (count - 1), sizes.size(whole - each * (count - 1)))
    )


@translates("Split")
def split(n: NodeContext) -> Any:
    x, outputs = n[0], len(n.node.output)
    d = axis(n, n.int("axis", 0), x.rank)
    if n.version < 2 and n.optional(1) is not None:
        raise Refusal("its sizes are an input of version 1")
    if n.version >= 13 and not data_dependent.is_known(n, 1):
        return data_dependent.split(n, x, d)
    parts = n.sizes(1) if n.version >= 13 and n.optional(1) is not None else n.ints("split")
    if parts is None:
        parts = equal_parts(x.shape[d], outputs, n.version < 18)
    if len(parts) != outputs:
        raise Refusal(f"it has {outputs} outputs and {len(parts)} sizes")
    total = sizes.size(sum(parts[1:], start=parts[0]))
    if total != x.shape[d] and unify_operands(n, total, x.shape[d]):
        x = n[0]
    elif total != x.shape[d] or any((as_int(p) or 0) < 0 for p in parts):
        raise Refusal(f"the parts {parts} do not make up {sizes.text(x.shape[d])}")
    made, start = [], sizes.size(0)
    for part, name in zip(parts, n.node.output, strict=True):
        made.append(cut(n, x, d, start, part, name))
        start = sizes.size(start + part)
    return tuple(made)


@translates("Slice")
def slice_(n: NodeContext) -> Any:
    x = n[0]
    if n.version >= 10 and not all(data_dependent.is_known(n, k) for k in range(1, 5)):
        return data_dependent.slice_(n)
    if n.version < 10:
        firsts, lasts, axes, steps = n.ints("starts", ()), n.ints("ends", ()), n.ints("axes"), None
    else:
        firsts, lasts = n.sizes(1), n.sizes(2)
        axes = n.numbers(3) if n.optional(3) is not None else None
        steps = n.numbers(4) if n.optional(4) is not None else None
    axes = tuple(range(len(firsts))) if axes is None else axes
    steps = (1,) * len(axes) if steps is None else steps
    if not len(firsts) == len(lasts) == len(axes) == len(steps):
        raise Refusal("starts, ends, axes and steps differ in number")
    starts: list[Any] = [0] * x.rank
    shape, strides = list(x.shape), [1] * x.rank
    for first, last, a, step in zip(firsts, lasts, axes, steps, strict=True):
        d = axis(n, a, x.rank)
        if step == 0:
            raise Refusal("a step is 0")
        starts[d], shape[d] = bounds(x.shape[d], first, last, step, n.build.sizes)
        strides[d] = step
    if tuple(shape) == x.shape and all(as_int(s) == 0 for s in starts):
        return x
    return n.emit("slice", x, starts=tuple(starts), shape=tuple(shape), steps=tuple(strides))


def bounds(
    have: Any, first: Any, last: Any, step: int, there: Container[Expr] = ()
) -> tuple[Any, Any]:
    """(start, count) of a slice as Python counts it, but that a backward one whose start lies
    before the axis starts at its first position. What is in `there` is at least 0, as some value
    has that size."""
    n, a, b = as_int(have), as_int(first), as_int(last)
    if n is not None and a is not None and b is not None:
        a = max(a, -n) if step < 0 else a
        positions = range(n)[slice(a, None if step < 0 and b < -n else b, step)]
        return (positions.start if len(positions) else 0), len(positions)
    have, zero = sizes.size(have), sizes.size(0)
    low = sizes.size(0 if step > 0 else -1)  # an end before the axis
    start, stop = from_first(first, have, zero), from_first(last, have, low)
    start = most(start, zero)
    if step > 0:
        reach = least(stop, have) - start
    else:
        start = least(start, sizes.size(have - 1))
        reach = start - most(stop, low)
    count = sizes.size((reach + (abs(step) - 1)) // abs(step))
    return start, count if count in there else most(count, zero)


def from_first(given: Any, have: Expr, low: Expr) -> Expr:
    """A position counted from the front, or from behind the last one if it is negative; far away
    before or behind the axis. All before `low` are the same."""
    number = as_int(given)
    if number is not None:
        if abs(number) >= FAR:
            return have if number > 0 else sizes.size(-1)
        return sizes.size(have + number if number < 0 else number)
    given, last = sizes.size(given), sizes.size(-1)
    if sizes.is_never_more(given, last):
        return sizes.size(have + given)
    if sizes.is_never_more(sizes.size(0), given) or not reaches_behind(given, have, low):
        return given
    return sizes.size(given + have * minimum(maximum(0 - given, 0), 1))


def reaches_behind(given: Expr, have: Expr, low: Expr) -> bool:
    """May a negative position lie behind `low`? h - 2 of h positions does not: at h = 1 it is -1,
    where there is one position alone."""
    found = sizes.linear(given)
    if found is None or set(sizes.symbols([have])) - {found[0]}:
        return True
    symbol, scale, offset = found
    for h in range(min(-(offset // scale), MOST_TRIED + 1)):
        values = {symbol: h}
        position = sizes.at(given, values)
        if h == MOST_TRIED or (
            position < 0 and position + sizes.at(have, values) > sizes.at(low, {})
        ):
            return True
    return False


def least(x: Expr, y: Expr) -> Expr:
    """The least of two sizes."""
    if sizes.is_never_more(x, y):
        return x
    return y if sizes.is_never_more(y, x) else sizes.size(minimum(x, y))


def most(x: Expr, y: Expr) -> Expr:
    """The greatest of two sizes."""
    if sizes.is_never_more(x, y):
        return y
    return x if sizes.is_never_more(y, x) else sizes.size(maximum(x, y))


@translates("Pad")
def pad(n: NodeContext) -> Any:
    x, mode = n[0], n.text("mode", "constant")
    if n.version >= 11 and not (data_dependent.is_known(n, 1) and data_dependent.is_known(n, 3)):
        return data_dependent.pad(n, mode)
    if n.version < 11:
        pads, value = n.ints("pads", n.ints("paddings", ())), n.float("value", 0.0)
    else:
        pads = n.sizes(1)
        later = mode == "constant" and not data_dependent.is_known(n, 2)
        value = n.scalar(2, 0) if mode == "constant" and not later else 0
    axes = n.numbers(3) if n.version >= 18 and n.optional(3) is not None else tuple(range(x.rank))
    if len(pads) != 2 * len(axes):
        raise Refusal(f"it has {len(pads)} pads for {len(axes)} axes")
    before: list[Any] = [0] * x.rank
    after: list[Any] = [0] * x.rank
    for k, a in enumerate(axes):
        d = axis(n, a, x.rank)
        before[d], after[d] = pads[k], pads[len(axes) + k]
    if any((as_int(p) or 0) < 0 for p in (*before, *after)):  # negative pads cut
        starts = tuple(max(0, -(as_int(p) or 0)) for p in before)
        shape = tuple(
            sizes.size(s - f - max(0, -(as_int(p) or 0)))
            for s, f, p in zip(x.shape, starts, after, strict=True)
        )
        if any((as_int(s) or 0) < 0 for s in shape):
            if mode != "constant" or (n.version >= 11 and later):
                raise Refusal("its negative pads cut more than there is")
            total = tuple(
                sizes.size(s + a + b) for s, a, b in zip(x.shape, before, after, strict=True)
            )
            return n.emit("full", shape=total, value=value, of=x.dtype.name)
        x = n.emit("slice", x, starts=starts, shape=shape)
        before = [0 if (as_int(p) or 0) < 0 else p for p in before]
        after = [0 if (as_int(p) or 0) < 0 else p for p in after]
    if not any(as_int(p) != 0 for p in (*before, *after)):
        return x
    if n.version >= 11 and later:
        return data_dependent.padded(n, x, tuple(before), tuple(after))
    return n.emit("pad", x, before=tuple(before), after=tuple(after), mode=mode, value=value)


@translates("Tile")
def tile(n: NodeContext) -> Any:
    if n.version < 6:
        raise Refusal("it is of version 1")
    known = data_dependent.is_known(n, 1)
    repeats = (
        n.sizes(1)
        if known
        else data_dependent.measure(n, data_dependent.vector(n, 1, n[0].rank), "the repeats")
    )
    return n.emit("tile", n[0], repeats=repeats)


@translates("Gather")
def gather(n: NodeContext) -> Any:
    d = axis(n, n.int("axis", 0), n[0].rank)
    return n.emit("gather", n[0], n.indices(1, n[0].shape[d]), axis=d)


@translates("GatherElements")
def gather_elements(n: NodeContext) -> Any:
    d = axis(n, n.int("axis", 0), n[0].rank)
    return n.emit("gather_elements", n[0], n.indices(1, n[0].shape[d]), axis=d)


@translates("Range")
def range_(n: NodeContext) -> Any:
    of = n[0].dtype
    if not all(data_dependent.is_known(n, k) for k in range(3)):
        return data_dependent.range_(n)
    if of.is_int and n.build.sizes_in(n[0]) is not None:
        bounds_of = n.sizes(0), n.sizes(1), n.numbers(2)
        if any(len(b) != 1 for b in bounds_of):
            raise Refusal("its start, limit and step must be one number each")
        (start,), (limit,), (step,) = bounds_of
        if step == 0:
            raise Refusal("its step is 0")
        known = as_int(start), as_int(limit)
        if None in known:
            length = sizes.size(limit) - start
            length = length if step == 1 else (length + (step - 1)) // step
        else:
            length = max(0, -((known[0] - known[1]) // step))  # type: ignore[operator]
        return n.emit("arange", length=sizes.size(length), start=start, step=step, of=of.name)
    start, limit, step = n.scalar(0), n.scalar(1), n.scalar(2)
    if not step or not all(map(math.isfinite, (start, limit, step))):
        raise Refusal(f"it goes from {start} to {limit} by {step}")
    return n.emit(
        "arange",
        length=max(0, math.ceil((limit - start) / step)),
        start=start,
        step=step,
        of=of.name,
    )


@translates("Trilu")
def trilu(n: NodeContext) -> Any:
    if not data_dependent.is_constant(n, 1):
        return data_dependent.trilu(n)
    return n.emit("trilu", n[0], k=int(n.scalar(1, 0)), upper=n.flag("upper", True))


@translates("DepthToSpace", "SpaceToDepth")
def depth_to_space(n: NodeContext) -> Any:
    x, b = n[0], n.int("blocksize", 0)
    if b < 1 or x.rank != 4:
        raise Refusal("it needs a positive blocksize and an input of rank 4")
    batch, c, h, w = x.shape
    if n.op == "SpaceToDepth":
        shape = (batch, c, sizes.size(h // b), b, sizes.size(w // b), b)
        order = (0, 1, 3, 5, 2, 4) if n.text("mode", "DCR") == "CRD" else (0, 3, 5, 1, 2, 4)
        y = n.build.emit("transpose", n.build.emit("reshape", x, shape=shape), perm=order)
        return n.emit(
            "reshape", y, shape=(batch, c * (b * b), sizes.size(h // b), sizes.size(w // b))
        )
    depth = sizes.size(c // (b * b))
    by_column = n.text("mode", "DCR") == "CRD"
    shape = (batch, depth, b, b, h, w) if by_column else (batch, b, b, depth, h, w)
    perm = (0, 1, 4, 2, 5, 3) if by_column else (0, 3, 4, 1, 5, 2)
    y = n.build.emit("transpose", n.build.emit("reshape", x, shape=shape), perm=perm)
    return n.emit("reshape", y, shape=(batch, depth, h * b, w * b))


@translates("Einsum")
def einsum_(n: NodeContext) -> Any:
    return einsum(n.build, n.text("equation"), [n[k] for k in range(len(n.inputs))])
