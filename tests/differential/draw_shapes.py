"""Draws of operators that move elements and change shapes."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import numpy_helper

from tests.differential.growth import (
    BF16,
    BOOL,
    F32,
    F64,
    FLOATS,
    I8,
    I32,
    I64,
    RANKS,
    U8,
    Growth,
    Value,
    within,
)
from tests.differential.reference import Unsound
from tests.differential.table import draws

COMMON = (*FLOATS, BF16, I8, I32, I64, U8, BOOL)


def anything(g: Growth, ranks: Any = RANKS) -> Value:
    """Mostly floats."""
    return g.value(FLOATS if g.chance(0.7) else COMMON, ranks)


def axis_of(g: Growth, x: Value) -> int:
    return g.int(-x.rank, x.rank - 1)


def static(x: Value, axis: int) -> int:
    """The size of an axis that is the same in all worlds."""
    if len(set(x.dims[axis])) > 1:
        raise Unsound("symbolic")
    return x.dims[axis][0]


@draws("Reshape", weight=3, empties=True)
def reshape(g: Growth, op: str) -> None:
    """Merges and splits neighbouring axes, with -1, 0 and sizes."""
    x = anything(g)
    dims: list[Any] = list(x.dims)
    target: list[Any] = []
    while dims:
        first = dims.pop(0)
        kind = g.among(["keep", "merge", "split", "one"])
        if kind == "merge" and dims:
            first = tuple(a * b for a, b in zip(first, dims.pop(0), strict=True))
        if kind == "split" and len(set(first)) == 1 and first[0] > 1:
            factors = [k for k in range(1, first[0] + 1) if first[0] % k == 0]
            outer = g.among(factors)
            target.append(g.same(outer))
            first = g.same(first[0] // outer)
        if kind == "one":
            target.append(g.same(1))
        target.append(first)
    target = [t for t in target if t != g.same(1) or g.chance(0.8)][:7]
    symbolic = [k for k, t in enumerate(target) if len(set(t)) > 1]
    zeros = [k for k in symbolic if k < x.rank and x.dims[k] == target[k]]
    numbers = [0 if k in zeros else t[0] for k, t in enumerate(target)]
    rest = [k for k in symbolic if k not in zeros]
    if len(rest) > 1:
        raise Unsound("two sizes unknown")
    if rest:
        numbers[rest[0]] = -1
    elif numbers and g.chance(0.5):
        numbers[g.int(0, len(numbers) - 1)] = -1
    g.apply(op, x, g.constant(np.array(numbers, np.int64)), exact=True)


@draws("Flatten", weight=0.6, empties=True)
def flatten(g: Growth, op: str) -> None:
    x = anything(g, range(1, 6))
    g.apply(op, x, axis=g.int(0, x.rank), exact=True)


@draws("Transpose", weight=2.5, empties=True)
def transpose(g: Growth, op: str) -> None:
    x = anything(g)
    perm = g.rng.permutation(x.rank).tolist() if x.rank and g.chance(0.85) else None
    g.apply(op, x, perm=perm, exact=True)


@draws("Unsqueeze", "Squeeze", weight=1.6, empties=True)
def squeeze(g: Growth, op: str) -> None:
    x = anything(g)
    if op == "Squeeze":
        ones = [k for k, d in enumerate(x.dims) if d == g.same(1)]
        axes = [k for k in ones if g.chance(0.7)]
    else:
        count = g.int(1, 2)
        axes = sorted(g.rng.choice(x.rank + count, count, replace=False).tolist())
        if g.version >= 11 and g.chance(0.3):
            axes = [a - x.rank - count for a in axes]
    if not axes:
        raise Unsound("no axis")
    if g.version < 13:
        g.apply(op, x, axes=axes, exact=True)
    else:
        g.apply(op, x, g.constant(axes), exact=True)


@draws("Concat", weight=2.2, empties=True)
def concat(g: Growth, op: str) -> None:
    x = anything(g, range(1, 6))
    axis = g.int(0, x.rank - 1)

    def fits(v: Value) -> bool:
        return all(a == b or k == axis for k, (a, b) in enumerate(zip(x.dims, v.dims, strict=True)))

    parts = [x]
    for _ in range(g.int(0, 3)):
        found = g.pick((x.dtype,), (x.rank,), fits=fits) if g.chance(0.6) else None
        if found is None:
            shape = [g.size() if k == axis else d for k, d in enumerate(x.dims)]
            found = g.fresh(x.dtype, tuple(shape))
        parts.append(found)
    order = g.rng.permutation(len(parts)).tolist()
    axis -= x.rank if g.version >= 11 and g.chance(0.3) else 0
    g.apply(op, *(parts[k] for k in order), axis=axis, exact=True)


@draws("Split", weight=1.4, empties=True)
def split(g: Growth, op: str) -> None:
    x = anything(g, range(1, 6))
    axis = g.int(0, x.rank - 1)
    size = static(x, axis)
    count = g.int(1, 3)
    cuts = sorted(g.int(0, size) for _ in range(count - 1))
    parts = np.diff([0, *cuts, size]).tolist()
    if g.version >= 18 and g.chance(0.4):
        count = min(count, max(size, 1))
        g.apply(op, x, axis=axis, num_outputs=count, outputs=count, exact=True)
    elif size % count == 0 and g.version < 18 and g.chance(0.3):
        g.apply(op, x, axis=axis, outputs=count, exact=True)
    elif g.version < 13:
        g.apply(op, x, axis=axis, split=parts, outputs=count, exact=True)
    else:
        g.apply(op, x, g.constant(parts), axis=axis, outputs=count, exact=True)


@draws("Slice", weight=2.5, empties=True)
def slice_(g: Growth, op: str) -> None:
    x = anything(g, range(1, 6))
    axes = sorted(g.rng.choice(x.rank, g.int(1, x.rank), replace=False).tolist())
    starts, ends, steps = [], [], []
    for axis in axes:
        size = max(x.dims[axis])
        step = g.among([1, 1, 1, 2, 3]) if g.version >= 10 else 1
        start, end = g.int(-size, size), g.among([g.int(-size - 1, size + 2), 1 << 40, size])
        if g.version >= 10 and g.chance(0.25):
            step, start, end = -step, g.among([-1, size, g.int(0, size)]), g.among([-(1 << 40), 0])
        starts.append(start)
        ends.append(end)
        steps.append(step)
    if g.version < 10:
        made = g.apply(op, x, axes=axes, starts=starts, ends=ends, exact=True)
        forget_coincidence(g, x, made)
        return
    parts = [g.constant(starts), g.constant(ends)]
    if g.chance(0.8) or axes != list(range(x.rank)) or set(steps) != {1}:
        parts.append(g.constant([a - x.rank if g.chance(0.2) else a for a in axes]))
    if set(steps) != {1} or (len(parts) == 3 and g.chance(0.5)):
        parts.append(g.constant(steps))
    forget_coincidence(g, x, g.apply(op, x, *parts, exact=True))


def forget_coincidence(g: Growth, x: Value, made: list[Value]) -> None:
    """Where a symbolic axis is cut to a size that merely is the same in these worlds, no later step
    may count on it."""
    pairs = zip(x.dims, made[0].dims, strict=True)
    if any(len(set(before)) > 1 and len(set(after)) == 1 for before, after in pairs):
        g.forget(made)


@draws("Pad", weight=1.8)
def pad(g: Growth, op: str) -> None:
    x = g.value(FLOATS if g.version < 13 or g.chance(0.8) else (I32, I64), range(1, 5))
    modes = ["constant", "constant", "reflect", "edge"]
    mode = g.among([*modes, "wrap"] if g.version >= 19 else modes)
    pads = np.zeros((2, x.rank), np.int64)
    for k in range(x.rank):
        size = min(x.dims[k])
        most = {"constant": 3, "edge": 3, "wrap": size}.get(mode, size - 1)
        for side in (0, 1):
            if g.chance(0.5):
                low = -1 if mode == "constant" and size > 3 and g.chance(0.2) else 0
                pads[side, k] = g.int(low, max(0, min(most, 3)))
    if mode != "constant" and min(map(min, x.dims)) == 0:
        raise Unsound("empty")
    value = g.number(-2, 2)
    if g.version < 11:
        g.apply(op, x, pads=pads.ravel().tolist(), mode=mode, value=value, exact=True)
        return
    axes = None
    if g.version >= 18 and g.chance(0.4):
        kept = sorted(g.rng.choice(x.rank, g.int(1, x.rank), replace=False).tolist())
        pads, axes = pads[:, kept], g.constant(kept)
    parts = [g.constant(pads.ravel())]
    if (mode == "constant" and g.chance(0.6)) or axes is not None:
        parts.append(g.constant(value, x.dtype))
    if axes is not None:
        parts.append(axes)
    g.apply(op, x, *parts, mode=mode, exact=True)


def indices(g: Growth, size: int, shape: tuple[int, ...], negative: bool = True) -> Value:
    """Positions along an axis of `size`, as an initializer or an input."""
    if not size:
        raise Unsound("no position")
    dtype = g.among([I64, I64, I32])
    array = g.rng.integers(-size if negative else 0, size, shape).astype(dtype)
    return g.given([array] * g.count, g.chance(0.6))


@draws("Gather", weight=2, empties=True)
def gather(g: Growth, op: str) -> None:
    x = anything(g, range(1, 5))
    axis = axis_of(g, x)
    shape = tuple(g.int(1, 4) for _ in range(g.among([0, 1, 1, 2])))
    negative = g.version >= 11
    if g.chance(0.25):
        found = g.pick((I32, I64), (0, 1, 2), where=lambda a: within(a, 0, min(x.dims[axis]) - 1))
        if found is not None:
            g.apply(op, x, found, axis=axis, exact=True)
            return
    g.apply(op, x, indices(g, min(x.dims[axis]), shape, negative), axis=axis, exact=True)


@draws("GatherElements", weight=0.8, since=11)
def gather_elements(g: Growth, op: str) -> None:
    x = anything(g, range(1, 5))
    axis = axis_of(g, x)
    shape = tuple(
        g.int(1, 5) if k == axis % x.rank else g.int(1, max(1, min(d)))
        for k, d in enumerate(x.dims)
    )
    g.apply(op, x, indices(g, min(x.dims[axis]), shape), axis=axis, exact=True)


@draws("GatherND", weight=0.8, since=11)
def gather_nd(g: Growth, op: str) -> None:
    x = anything(g, range(1, 5))
    batch = g.int(0, x.rank - 1) if g.version >= 12 and g.chance(0.3) else 0
    depth = g.int(1, x.rank - batch)
    lead = tuple(static(x, k) for k in range(batch))
    shape = (*lead, *(g.int(1, 3) for _ in range(g.int(0, 2))))
    columns = []
    for k in range(batch, batch + depth):
        size = min(x.dims[k])
        if not size:
            raise Unsound("empty")
        columns.append(g.rng.integers(-size, size, shape))
    positions = g.given([np.stack(columns, -1).astype(np.int64)] * g.count, g.chance(0.6))
    g.apply(op, x, positions, batch_dims=batch or None, exact=True)


@draws("ScatterElements", weight=0.9, since=11)
def scatter_elements(g: Growth, op: str) -> None:
    x = g.value((F32, F64, I64), range(1, 4))
    axis = axis_of(g, x)
    shape = tuple(g.int(1, max(1, min(d))) for d in x.dims)
    reduction = g.among([None, "add", "mul", "max", "min"]) if g.version >= 18 else None
    size = min(x.dims[axis])
    if not size:
        raise Unsound("empty")
    along = axis % x.rank
    order = g.rng.random((*shape[:along], size, *shape[along + 1 :])).argsort(along)
    positions = np.take(order, range(shape[along]), along)  # each position once
    if reduction and g.chance(0.5):
        positions = g.rng.integers(0, size, shape)
    where = g.given([positions.astype(np.int64)] * g.count, g.chance(0.5))
    updates = g.fresh(x.dtype, tuple(g.same(s) for s in shape))
    g.apply(op, x, where, updates, axis=axis, reduction=reduction, exact=reduction is None)


@draws("ScatterND", weight=0.9, since=11)
def scatter_nd(g: Growth, op: str) -> None:
    x = g.value((F32, F64, I64), range(1, 4))
    depth = g.int(1, x.rank)
    sizes = [min(d) for d in x.dims[:depth]]
    total = int(np.prod(sizes))
    if not total:
        raise Unsound("empty")
    reduction = g.among([None, "add", "mul", "max", "min"]) if g.version >= 18 else None
    if g.version in (16, 17):
        reduction = g.among([None, "add", "mul"])
    flat = g.rng.choice(total, min(total, g.int(1, 5)), replace=bool(reduction))
    positions = np.stack(np.unravel_index(flat, sizes), -1).astype(np.int64)
    where = g.given([positions] * g.count, g.chance(0.5))
    updates = g.fresh(x.dtype, (g.same(len(flat)), *x.dims[depth:]))
    g.apply(op, x, where, updates, reduction=reduction, exact=reduction is None)


@draws("Expand", weight=1.2, empties=True)
def expand(g: Growth, op: str) -> None:
    x = anything(g, range(5))
    goal = [
        g.int(2, 4) if set(d) == {1} and g.chance(0.6) else (1 if len(set(d)) > 1 else d[0])
        for d in x.dims
    ]
    goal = [s if s == 0 or g.chance(0.8) else 1 for s in goal]
    goal = [g.int(1, 3) for _ in range(g.int(0, 2))] + goal
    g.apply(op, x, g.constant(np.array(goal, np.int64)), exact=True)


@draws("Tile", weight=1, empties=True)
def tile(g: Growth, op: str) -> None:
    x = anything(g, range(1, 5))
    g.apply(op, x, g.constant([g.among([1, 1, 2, 3]) for _ in range(x.rank)]), exact=True)


@draws("Shape", weight=0.8, empties=True)
def shape(g: Growth, op: str) -> None:
    x = anything(g)
    attrs = {}
    if g.version >= 15 and g.chance(0.4):
        attrs = {"start": g.int(-2, 2), "end": g.int(-2, 5)}
    g.apply(op, x, **attrs, exact=True)


@draws("Size", weight=0.2)
def size(g: Growth, op: str) -> None:
    g.apply(op, anything(g), exact=True)


@draws("ConstantOfShape", weight=0.4, since=9)
def constant_of_shape(g: Growth, op: str) -> None:
    content = np.array([g.int(0, 3)], g.among([F32, I64, I32, F64, U8]))
    size = g.pick((I64,), (1,), where=lambda a: within(a, 1, 12) and a.size < 5)
    if size is None:
        size = g.constant([g.int(0, 4) for _ in range(g.int(0, 3))])
    g.apply(op, size, value=numpy_helper.from_array(content), exact=True)


@draws("Range", weight=0.3, since=11)
def range_(g: Growth, op: str) -> None:
    dtype = g.among([I64, I32, F32])
    start, step = g.int(-3, 3), g.among([1, 2, -1, 3])
    ends = (start, start + step * g.int(0, 9) + g.among([0, 1 if step > 0 else -1]), step)
    g.apply(op, *(g.constant(e, dtype) for e in ends), exact=True)


@draws("OneHot", weight=0.4, since=9)
def one_hot(g: Growth, op: str) -> None:
    depth = g.int(1, 6)
    positions = g.pick((I64,), range(4)) or indices(g, depth, (g.int(1, 4),))
    values = g.constant([g.int(-2, 0), g.int(1, 4)], F32 if g.chance(0.7) else I64)
    axis = g.int(-positions.rank - 1, positions.rank)
    g.apply(op, positions, g.constant(depth), values, axis=axis, exact=True)


@draws("Trilu", weight=0.6, since=14)
def trilu(g: Growth, op: str) -> None:
    x = g.value((F32, F64, I64, BOOL), range(2, 5))
    k = g.constant(g.int(-3, 3)) if g.chance(0.6) else None
    g.apply(op, x, *([k] if k else []), upper=g.int(0, 1), exact=True)


@draws("EyeLike", weight=0.2, since=9)
def eye_like(g: Growth, op: str) -> None:
    g.apply(op, g.value((F32, F64, I64), (2,)), k=g.int(-2, 2), exact=True)


@draws("DepthToSpace", "SpaceToDepth", weight=0.9)
def blocks(g: Growth, op: str) -> None:
    block = g.among([1, 2, 2, 3])
    if op == "DepthToSpace":
        dims = (g.size(), g.same(block * block * g.int(1, 3)), g.size(), g.size())
        mode = g.among(["DCR", "CRD"]) if g.version >= 11 else None
    else:
        dims = (g.size(), g.size(), g.same(block * g.int(1, 4)), g.same(block * g.int(1, 4)))
        mode = None
    x = g.pick(FLOATS, (4,), fits=lambda v: v.dims == dims) or g.fresh(F32, dims)
    attrs = {"mode": mode} if mode else {}
    g.apply(op, x, blocksize=block, **attrs, exact=True)


@draws("ReverseSequence", weight=0.3, since=10)
def reverse_sequence(g: Growth, op: str) -> None:
    x = g.value((F32, I64), range(2, 5))
    time = g.int(0, 1)
    lengths = g.rng.integers(0, min(x.dims[time]) + 1, static(x, 1 - time)).astype(np.int64)
    g.apply(
        op, x, g.given([lengths] * g.count, g.chance(0.5)), time_axis=time, batch_axis=1 - time,
        exact=True,
    )  # fmt: skip


@draws("NonZero", "Compress", "Unique", weight=0.8, since=11)
def data_dependent(g: Growth, op: str) -> None:
    """The result's size depends on content: what feeds it is not rounded, and the sizes differ
    from world to world, so that nothing else can count on them."""
    if g.count == 1:
        raise Unsound("one world")
    if op == "NonZero":
        made = g.apply(op, g.value((BOOL, I64), (1, 2)), exact=True)
        free = made[0].dims[1:]
    elif op == "Compress":
        x = anything(g, range(1, 4))
        axis = axis_of(g, x)
        held = g.fresh(BOOL, (g.same(min(x.dims[axis])),), fixed=False)
        made = g.apply(op, x, held, axis=axis, exact=True)
        free = (made[0].dims[axis],)
    else:
        x = g.value((I64, I8), (1, 2))
        made = g.apply(op, x, sorted=1, outputs=g.int(1, 4), exact=True)
        free = made[0].dims
    if any(len(set(sizes)) < g.count for sizes in free):
        g.forget(made)


@draws("Tile", "Slice", "Pad", "Reshape", weight=1.2, since=13)
def told(g: Growth, op: str) -> None:
    """Sizes that only the run knows, other ones in each world."""
    if g.count == 1:
        raise Unsound("one world")
    x = anything(g, (1, 2))
    rank, sizes = x.rank, [w.shape for w in x.worlds]
    if op == "Tile":
        parts = [g.told(g.rng.integers(1, 4, (g.count, rank)))]
    elif op == "Slice":
        starts = [[g.int(0, max(s - 1, 0)) for s in shape] for shape in sizes]
        parts = [g.told(starts), g.told([[g.int(-1, s + 1) for s in shape] for shape in sizes])]
    elif op == "Pad":
        parts = [g.told(g.rng.integers(0, 4, (g.count, 2 * rank)))]
    else:
        parts = [g.told([[int(np.prod(shape)) // max(1, shape[0]), -1] for shape in sizes])]
    made = g.apply(op, x, *parts, exact=True)
    if any(len(set(d)) < g.count for d in made[0].dims):
        g.forget(made)


@draws("Expand", "TopK", "OneHot", "ConstantOfShape", "Range", "Split", weight=1.2, since=13)
@draws("Trilu", weight=0.2, since=14)
def told_numbers(g: Growth, op: str) -> None:
    """Counts and sizes that only the run knows, other ones in each world."""
    if g.count == 1:
        raise Unsound("one world")
    worlds = range(g.count)
    if op == "Range":
        dtype = g.among([I64, I32, F32])
        start, step = g.int(-3, 3), g.among([1, 2, -1])
        ends = g.told([start + step * g.int(0 if g.chance(0.2) else 1, 9) for _ in worlds], dtype)
        made = g.apply(op, g.constant(start, dtype), ends, g.constant(step, dtype), exact=True)
        free = made[0].dims
    elif op == "ConstantOfShape":
        rank = g.int(1, 3)
        made = g.apply(op, g.told([g.rng.integers(1, 6, rank) for _ in worlds]), exact=True)
        free = made[0].dims
    elif op == "OneHot":
        depth = g.told([g.int(3, 8) for _ in worlds])
        values = g.constant([g.int(-2, 0), g.int(1, 4)], F32 if g.chance(0.7) else I64)
        positions = g.pick((I64,), range(3)) or indices(g, 3, (g.int(1, 4),))
        made = g.apply(op, positions, depth, values, axis=g.int(-1, positions.rank), exact=True)
        free = tuple(d for d in made[0].dims if d not in positions.dims)
    else:
        x = anything(g, range(2, 4)) if op == "Trilu" else g.value((F32, F64, I64), range(1, 4))
        axis, free = g.int(0, x.rank - 1), ()
        if op == "Trilu":
            made = g.apply(
                op, x, g.told([g.int(-3, 3) for _ in worlds]), upper=g.int(0, 1), exact=True
            )
        elif op == "TopK":
            k = g.told([[g.int(1, max(1, x.worlds[w].shape[axis]))] for w in worlds])
            made = g.apply(op, x, k, axis=axis, outputs=2, exact=True)
            free = (made[0].dims[axis],)
        elif op == "Split":
            cuts = [g.int(0, x.worlds[w].shape[axis]) for w in worlds]
            parts = [[c, x.worlds[w].shape[axis] - c] for w, c in enumerate(cuts)]
            made = g.apply(op, x, g.told(parts), axis=axis, outputs=2, exact=True)
            free = tuple(v.dims[axis] for v in made)
        else:
            goals = [
                [g.int(2, 4) if s == 1 and g.chance(0.6) else s for s in x.worlds[w].shape]
                for w in worlds
            ]
            lead = g.int(0, 1)
            goals = [[g.int(1, 3) for _ in range(lead)] + goal for goal in goals]
            made = g.apply(op, x, g.told(goals), exact=True)
            free = made[0].dims
    if any(len(set(sizes)) < g.count for sizes in free):
        g.forget(made)


@draws("Resize", weight=1.6, since=11)
def resize(g: Growth, op: str) -> None:
    x = g.value((F32,), (3, 4, 4))
    mode = g.among(["nearest", "linear", "linear", "cubic"] if x.rank == 4 else ["nearest"])
    ways = ["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"]
    attrs: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": g.among(ways)}
    if mode == "nearest":
        attrs["nearest_mode"] = g.among(
            ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]
        )
    if mode == "cubic":
        attrs["cubic_coeff_a"] = g.among([-0.5, -0.75])
        attrs["exclude_outside"] = g.int(0, 1)
    elif g.version >= 18 and g.chance(0.2) and mode == "linear":
        attrs["antialias"] = 1
    roi = None if g.version >= 13 else g.constant(np.zeros(0), F32)
    if g.chance(0.6):
        whole = attrs["coordinate_transformation_mode"] == "align_corners"
        factors = [1.0, 2.0, 3.0] if whole else [0.5, 2.0, 1.5, 1.0, 3.0, 0.75]
        scales = [1.0, 1.0] + [g.among(factors if min(d) > 1 else [1.0, 2.0]) for d in x.dims[2:]]
        g.apply(op, x, roi, g.constant(scales, F32), rough=True, **attrs)
    else:
        goal = [static(x, 0), static(x, 1)] + [g.int(1, 12) for _ in range(x.rank - 2)]
        scales = None if g.version >= 13 else g.constant(np.zeros(0), F32)
        g.apply(op, x, roi, scales, g.constant(goal), rough=True, **attrs)


@draws("GridSample", weight=0.5, since=16)
def grid_sample(g: Growth, op: str) -> None:
    x = g.value((F32,), (4,), fits=lambda v: min(map(min, v.dims)) > 0)
    grid = g.fresh(F32, (x.dims[0], g.same(g.int(1, 4)), g.same(g.int(1, 4)), g.same(2)), -1.2, 1.2)
    modes = ["bilinear", "nearest", "bicubic"] if g.version < 20 else ["linear", "nearest", "cubic"]
    g.apply(
        op, x, grid, rough=True, mode=g.among(modes), align_corners=g.int(0, 1),
        padding_mode=g.among(["zeros", "border", "reflection"]),
    )  # fmt: skip


@draws("CenterCropPad", weight=0.2, since=18)
def center_crop_pad(g: Growth, op: str) -> None:
    x = g.value((F32, I64), range(1, 4))
    g.apply(op, x, g.constant([g.int(1, 8) for _ in range(x.rank)]), exact=True)
