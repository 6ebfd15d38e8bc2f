"""Translators of ATen operators that move elements or make them from nothing."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tilewright.frontend.torch.convert import Refusal
from tilewright.frontend.torch.data_dependent import name_size
from tilewright.frontend.torch.registry import NodeContext, axis_of, translates
from tilewright.graph import sizes
from tilewright.graph.bounds import from_start
from tilewright.graph.graph import Value
from tilewright.ir.dtype import DType, dtype
from tilewright.ir.expr import as_int, maximum, minimum


@translates("view.default", "view_copy.default", "reshape.default", "_unsafe_view.default",
            "_reshape_copy.default", "flatten.using_ints", "unflatten.int",
            "squeeze.default", "squeeze.dim", "squeeze.dims", "unsqueeze.default",
            "view_as.default", "reshape_as.default")  # fmt: skip
def reshape(n: NodeContext, x: Value, *_: Any) -> Any:
    """The same elements in the shape that the result has."""
    return n.reshape(x, n.shape)


@translates("permute.default", "permute_copy.default", "transpose.int",
            "t.default", "numpy_T.default", "swapaxes.default", "swapdims.default",
            "movedim.int", "movedim.intlist", "mT.default")  # fmt: skip
def transpose(n: NodeContext, x: Value, *dims: Any) -> Any:
    axes = list(range(x.rank))
    if n.op.startswith("permute"):
        axes = [axis_of(d, x.rank) for d in dims[0]]
    elif n.op in ("transpose", "swapaxes", "swapdims"):
        a, b = (axis_of(d, x.rank) for d in dims)
        if x.rank:
            axes[a], axes[b] = b, a
    elif n.op == "movedim":
        source, goal = (
            [axis_of(d, x.rank) for d in ((v,) if isinstance(v, int) else v)] for v in dims
        )
        rest = iter([d for d in axes if d not in source])
        axes = [source[goal.index(d)] if d in goal else next(rest) for d in axes]
    elif n.op == "mT":
        axes[-2:] = axes[:-3:-1]
    else:
        axes.reverse()
    return n.transpose(x, axes)


@translates("expand.default", "expand_as.default", "broadcast_to.default")
def expand(n: NodeContext, x: Value, *_: Any, **named: Any) -> Any:
    return n.expand(x, n.shape)


@translates("repeat.default", "tile.default")
def repeat(n: NodeContext, x: Value, repeats: Any) -> Any:
    repeats = tuple(repeats)
    if len(repeats) < x.rank:
        repeats = (1,) * (x.rank - len(repeats)) + repeats
    x = n.reshape(x, ((1,) * (len(repeats) - x.rank)) + x.shape)
    if all(r == 1 for r in repeats):
        return x
    if all(s == sizes.size(1) or r == 1 for s, r in zip(x.shape, repeats, strict=True)):
        return n.expand(x, n.shape)
    return n.emit("tile", x, repeats=repeats)


@translates("cat.default", "concat.default")
def cat(n: NodeContext, tensors: Any, dim: int = 0) -> Any:
    rank = len(n.shape)
    parts = [n.operand(x) for x in tensors if x.rank == rank]  # an empty vector may stand anywhere
    parts = [x for x in parts if as_int(x.shape[axis_of(dim, rank)]) != 0] or parts[:1]
    return parts[0] if len(parts) == 1 else n.emit("concat", *parts, axis=axis_of(dim, rank))


@translates("stack.default")
def stack(n: NodeContext, tensors: Any, dim: int = 0) -> Any:
    axis = dim % (tensors[0].rank + 1)
    parts = [n.operand(x) for x in tensors]
    parts = [n.reshape(x, (*x.shape[:axis], 1, *x.shape[axis:])) for x in parts]
    return parts[0] if len(parts) == 1 else n.emit("concat", *parts, axis=axis)


def bounded(position: Any, size: Any, default: Any) -> Any:
    """A slice's end as PyTorch means it: negative ones count from the end; held within the axis."""
    if position is None:
        return default
    number, most = as_int(position), as_int(size)
    if number is not None and number >= 2**62:
        return size
    if number is not None and most is not None:
        return min(max(number + most if number < 0 else number, 0), most)
    if number is not None and number < 0:
        return sizes.size(maximum(sizes.size(size + number), sizes.size(0)))
    if number is None and sizes.is_never_more(sizes.size(position), sizes.size(0)):  # -n
        return sizes.size(maximum(sizes.size(size + position), sizes.size(0)))
    return 0 if number == 0 else sizes.size(minimum(sizes.size(position), sizes.size(size)))


@translates("slice.Tensor")
def slice_(
    n: NodeContext, x: Value, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Any:
    axis = axis_of(dim, x.rank)
    first = bounded(start, x.shape[axis], 0)
    last = bounded(end, x.shape[axis], x.shape[axis])
    positions = sizes.size(maximum(sizes.size(last - first), sizes.size(0)))
    name_size(n, n.fakes[0].shape[axis], sizes.size((positions + (step - 1)) // step))
    return n.cut(x, axis, first, n.shape[axis], step)


@translates("narrow.default", "narrow_copy.default")
def narrow(n: NodeContext, x: Value, dim: int, start: Any, length: Any) -> Any:
    axis = axis_of(dim, x.rank)
    return n.cut(x, axis, bounded(start, x.shape[axis], 0), length)


@translates("select.int")
def select(n: NodeContext, x: Value, dim: int, index: Any) -> Any:
    axis, number = axis_of(dim, x.rank), as_int(index)
    start = x.shape[axis] + index if number is not None and number < 0 else index
    return n.reshape(n.cut(x, axis, sizes.size(start), 1), n.shape)


@translates("split.Tensor", "split.sizes", "split_with_sizes.default",
            "chunk.default", "tensor_split.sections", "unbind.int",
            "unsafe_split.Tensor", "unsafe_chunk.default")  # fmt: skip
def split(n: NodeContext, x: Value, *args: Any) -> Any:
    """Parts along an axis, of the sizes that the results have."""
    dim = (args[0] if args else 0) if n.op == "unbind" else (args[1] if len(args) > 1 else 0)
    axis, start, parts = axis_of(dim, x.rank), 0, []
    for number, fake in enumerate(n.fakes):
        shape = n.sizes(fake.shape)
        count = 1 if n.op == "unbind" else shape[axis]
        wanted = n.uses(number)
        parts.append(n.reshape(n.cut(x, axis, start, count), shape) if wanted else None)
        start = start + count
    return parts


@translates("slice_scatter.default")
def slice_scatter(
    n: NodeContext,
    x: Value,
    source: Value,
    dim: int = 0,
    start: Any = None,
    end: Any = None,
    step: int = 1,
) -> Any:
    """x with a slice replaced: the parts side by side; with a step, chosen by position."""
    axis = axis_of(dim, x.rank)
    size = x.shape[axis]
    first, last = bounded(start, size, 0), bounded(end, size, size)
    source = n.operand(source)
    if step == 1:
        parts = [n.cut(x, axis, 0, first), source, n.cut(x, axis, last, size - last)]
        return cat_known(n, parts, axis)
    if as_int(source.shape[axis]) == 0:
        return x
    i64 = dtype("i64")
    zero, by = n.constant(0, i64), n.constant(step, i64)
    distance = n.emit("sub", n.counted(size), n.operand(first, i64))
    rest = n.emit("floormod", distance, by)
    kept = n.emit("equal", rest, zero)
    kept = n.emit("logical_and", kept, n.emit("greater_equal", distance, zero))
    kept = n.emit("logical_and", kept, n.emit("less", n.counted(size), n.operand(last, i64)))
    at = n.emit("maximum", n.emit("div", n.emit("sub", distance, rest), by), zero)
    wide = n.emit("gather", source, at, axis=axis)
    side = n.reshape(kept, (size, *(1,) * (x.rank - 1 - axis)))
    return n.emit("where", side, wide, x)


def cat_known(n: NodeContext, parts: list[Value], axis: int) -> Value:
    """The parts that hold anything, one after the other."""
    kept = [p for p in parts if as_int(p.shape[axis]) != 0] or parts[:1]
    return kept[0] if len(kept) == 1 else n.emit("concat", *kept, axis=axis)


@translates("select_scatter.default")
def select_scatter(n: NodeContext, x: Value, source: Value, dim: int, index: int) -> Any:
    axis = axis_of(dim, x.rank)
    size = x.shape[axis]
    at = sizes.size(size + index) if index < 0 else index
    middle = n.reshape(n.operand(source), (*x.shape[:axis], 1, *x.shape[axis + 1 :]))
    return cat_known(
        n, [n.cut(x, axis, 0, at), middle, n.cut(x, axis, at + 1, size - 1 - at)], axis
    )


@translates("flip.default")
def flip(n: NodeContext, x: Value, dims: Any) -> Any:
    for d in dims:
        axis = axis_of(d, x.rank)
        if x.rank and as_int(x.shape[axis]) != 0:
            x = n.cut(x, axis, sizes.size(x.shape[axis] - 1), x.shape[axis], -1)
    return x


@translates("diagonal.default")
def diagonal(n: NodeContext, x: Value, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    """Every (columns + 1)-th element of the matrices laid out flat."""
    a, b = axis_of(dim1, x.rank), axis_of(dim2, x.rank)
    rest = [d for d in range(x.rank) if d not in (a, b)]
    rows, columns = x.shape[a], x.shape[b]
    x = n.transpose(x, [*rest, a, b])
    flat = n.reshape(x, (*x.shape[:-2], sizes.size(rows * columns)))
    count = n.shape[-1]
    start = 0 if as_int(count) == 0 else offset if offset >= 0 else -offset * columns
    return n.cut(flat, len(rest), sizes.size(start), count, sizes.size(columns + 1))


@translates("resize.default")
def resize(n: NodeContext, x: Value, size: Any, **named: Any) -> Any:
    """The memory of x under another shape; what is beyond it is not defined (here zero)."""
    wanted = math.prod(n.static(n.shape, "a shape"))
    (have,) = n.static([x.elements], "a shape")
    flat = n.reshape(x, (have,))
    if wanted > have:
        flat = n.emit("pad", flat, before=(0,), after=(wanted - have,), value=0)
    return n.reshape(n.cut(flat, 0, 0, wanted), n.shape)


@translates("as_strided.default", "as_strided_copy.default")
def as_strided(
    n: NodeContext, x: Value, size: Any, stride: Any, storage_offset: int | None = None
) -> Any:
    """Elements by their position in memory: known only while that is row-major."""
    if not n.fake(0).is_contiguous() or n.fake(0).storage_offset() != 0:
        raise Refusal("it reads the memory of a tensor that is not contiguous")
    whole = dtype("i64")
    positions = n.operand(storage_offset or 0, whole)
    for d, (count, step) in enumerate(zip(size, stride, strict=True)):
        own = n.emit("mul", n.counted(count), n.operand(step, whole))
        own = n.reshape(own, (count, *(1,) * (len(size) - 1 - d)))
        positions = n.emit("add", positions, own)
    positions = n.indices(positions, from_start(x.elements))
    return n.emit("gather", n.reshape(x, (x.elements,)), positions, axis=0)


@translates("unfold.default", "unfold_copy.default")
def unfold(n: NodeContext, x: Value, dimension: int, size: int, step: int) -> Any:
    """Windows along an axis; their positions become the last axis."""
    if not x.rank:
        return n.reshape(n.expand(n.reshape(x, (1,)), (size,)), n.shape)
    axis = axis_of(dimension, x.rank)
    starts = n.reshape(n.counted(n.shape[axis], step), (n.shape[axis], 1))
    found = n.emit("gather", x, n.emit("add", starts, n.counted(size)), axis=axis)
    rank = x.rank + 1
    return n.transpose(found, [*(d for d in range(rank) if d != axis + 1), axis + 1])


# padding ----------------------------------------------------------------------------------------

_MODES = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}


@translates("constant_pad_nd.default", "pad.default", "reflection_pad1d.default",
            "reflection_pad2d.default", "reflection_pad3d.default", "replication_pad1d.default",
            "replication_pad2d.default", "replication_pad3d.default")  # fmt: skip
def pad(n: NodeContext, x: Value, pads: Any, *rest: Any, **named: Any) -> Any:
    """`pads` lists (before, after) from the last axis on; negative ones cut."""
    mode, value = "constant", 0.0
    if n.op == "pad":
        mode = rest[0] if rest else named.get("mode", "constant")
        value = (rest[1] if len(rest) > 1 else named.get("value")) or 0.0
    elif n.op == "constant_pad_nd":
        value = rest[0] if rest else named.get("value", 0.0)
    else:
        mode = "reflect" if n.op.startswith("reflection") else "replicate"
    before, after = [0] * x.rank, [0] * x.rank
    for k in range(len(pads) // 2):
        axis = x.rank - 1 - k
        before[axis], after[axis] = pads[2 * k], pads[2 * k + 1]
    cuts = [
        tuple(max(-(as_int(v) or 0), 0) for v in ends) for ends in zip(before, after, strict=True)
    ]
    if mode != "replicate":  # which looks at what is cut off
        x, cuts = cut_ends(n, x, cuts), [(0, 0)] * x.rank
    before, after = ([0 if (as_int(v) or 0) < 0 else v for v in ends] for ends in (before, after))
    if any(as_int(v) != 0 for v in (*before, *after)):
        value = bool(value) if x.dtype.is_bool else value
        x = n.emit(
            "pad", x, before=tuple(before), after=tuple(after), mode=_MODES[mode], value=value
        )
    return cut_ends(n, x, cuts)


def cut_ends(n: NodeContext, x: Value, cuts: list[tuple[int, ...]]) -> Value:
    """x without so many positions at the (beginning, end) of each axis."""
    for axis, (first, last) in enumerate(cuts):
        if first or last:
            x = n.cut(x, axis, first, sizes.size(x.shape[axis] - (first + last)))
    return x


# generated tensors ------------------------------------------------------------------------------

VALUES = {"zeros": 0, "zeros_like": 0, "new_zeros": 0, "ones": 1, "ones_like": 1, "new_ones": 1,
          "empty": 0, "empty_like": 0, "new_empty": 0, "empty_strided": 0, "empty_permuted": 0,
          "new_empty_strided": 0}  # fmt: skip


@translates("full.default", "full_like.default", "new_full.default", *(f"{name}.default" for name
in VALUES
            if name != "empty"), "empty.memory_format")  # fmt: skip
def full(n: NodeContext, *args: Any, **named: Any) -> Any:
    """One number everywhere; memory that is not yet written holds 0."""
    at = {"full": 1, "full_like": 1, "new_full": 2}.get(n.op)
    value = VALUES[n.op] if at is None else (args[at] if len(args) > at else named["fill_value"])
    if as_int(value) is None and not isinstance(value, bool | int | float):  # a tensor or a size
        return n.expand(n.operand(value), n.shape)
    return n.full(converted(value, n.of))


def converted(value: Any, of: DType) -> Any:
    """A number as PyTorch converts it to a dtype."""
    if of.is_bool:
        return bool(value)
    if of.is_int and isinstance(value, float):
        return int(value)
    return value


@translates("scalar_tensor.default", "tensor.default")
def scalar_tensor(n: NodeContext, value: Any, **named: Any) -> Any:
    return n.operand(value)


@translates("arange.default", "arange.start", "arange.start_step")
def arange(n: NodeContext, *args: Any, **named: Any) -> Any:
    start, end, step = ((0, args[0], 1) if len(args) == 1 else (*args, 1))[:3]
    (length,) = n.shape
    count = as_int(length)
    if count is not None and all(isinstance(v, int | float) for v in (start, step)):
        if n.of.is_int:  # PyTorch counts in whole numbers then
            start, step = int(start), int(step)
        kind = np.float64 if any(isinstance(v, float) for v in (start, end, step)) else np.int64
        return n.constant((start + step * np.arange(count, dtype=kind)).astype(n.of.numpy))
    return n.emit("arange", length=length, start=start, step=step, of=n.of.name)


@translates("linspace.default", "linspace.Tensor_Tensor", "linspace.Tensor_Scalar",
            "linspace.Scalar_Tensor")  # fmt: skip
def linspace(n: NodeContext, start: Any, end: Any, steps: int, **named: Any) -> Any:
    """Counted from both ends to the middle; the ends are of the result's type before that."""
    f64, count = dtype("f64"), np.arange(steps)
    start, end = (n.cast(n.cast(n.operand(v, f64), n.of), f64) for v in (start, end))
    step = n.emit("div", n.emit("sub", end, start), n.constant(float(max(1, steps - 1)), f64))

    def offset(far: np.ndarray) -> Value:
        return n.emit("mul", step, n.constant(far, f64))

    up, down = n.emit("add", start, offset(count)), n.emit("sub", end, offset(steps - 1 - count))
    if steps < 2:
        return n.cast(up, n.of)
    return n.cast(n.emit("where", n.constant(count < steps // 2), up, down), n.of)


@translates("eye.default", "eye.m")
def eye(n: NodeContext, *_: Any, **named: Any) -> Any:
    rows, columns = n.shape
    most = as_int(rows), as_int(columns)
    if most[0] is not None and most[1] is not None:
        return n.constant(np.eye(most[0], most[1], dtype=n.of.numpy))
    same = n.emit("equal", n.reshape(n.counted(rows), (rows, 1)), n.counted(columns))
    return n.cast(same, n.of)


@translates("diff.default")
def diff(
    n: NodeContext,
    x: Value,
    times: int = 1,
    dim: int = -1,
    prepend: Value | None = None,
    append: Value | None = None,
) -> Any:
    """Differences of neighbours along an axis; of booleans, whether they differ."""
    axis = axis_of(dim, x.rank)
    if times:
        x = cat_known(n, [v for v in (prepend, x, append) if v is not None], axis)
    for _ in range(times):
        if as_int(x.shape[axis]) == 0:
            break
        count = sizes.size(x.shape[axis] - 1)
        after, before = n.cut(x, axis, 1, count), n.cut(x, axis, 0, count)
        x = n.emit("logical_xor" if x.dtype.is_bool else "sub", after, before)
    return x


@translates("tril.default", "triu.default")
def triangle(n: NodeContext, x: Value, diagonal: int = 0) -> Any:
    return n.emit("trilu", x, k=diagonal, upper=n.op == "triu")
