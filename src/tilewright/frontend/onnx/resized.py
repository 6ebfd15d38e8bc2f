"""Resize with factors, sizes or a window that only the run knows.

The same arithmetic as in `graph.resample`, on tensors: where each new position lies in the old
ones, which taps it reads there and with what weights. The new sizes depend on data.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from tilewright.frontend.onnx import data_dependent
from tilewright.frontend.onnx.arithmetic import Floats
from tilewright.frontend.onnx.registry import NodeContext, Refusal
from tilewright.graph import sizes
from tilewright.graph.graph import Value
from tilewright.graph.resample import ROUNDING, Kernel, repeated, tables
from tilewright.ir.expr import Expr, as_int


class Goal(NamedTuple):
    """For the resized axes: new sizes; as f64 vectors the factors, and the new sizes before they
    are rounded."""

    sizes: tuple[Expr, ...]
    scales: Value
    spans: Value


def goal_of(
    n: NodeContext, f: Floats, axes: Sequence[int], scales: Value | None, asked: Value | None
) -> Goal:
    """From scales, or from sizes and how the ratio of sides is kept."""
    made = np.empty(len(axes), object)
    made[:] = [n[0].shape[a] for a in axes]
    old = f.of(n.build.from_sizes(made, data_dependent.I64))
    exact = None if scales is None else exact_sizes(n, axes, scales)
    if exact is not None and scales is not None:
        return Goal(exact, f.of(scales), f("mul", old, f.of(scales)))
    if scales is not None:
        factors = f.of(n.build.emit("reshape", scales, shape=(len(axes),)))
        spans = f("mul", old, factors)
        new = f("where", f("greater", factors, 0.0), f("floor", spans), -1.0)
    else:
        assert asked is not None
        spans = new = f.of(n.build.emit("reshape", asked, shape=(len(axes),)))
        factors = f("div", new, f("maximum", old, 1.0))
        policy = n.text("keep_aspect_ratio_policy", "stretch")
        if policy != "stretch":
            how = "reduce_min" if policy == "not_larger" else "reduce_max"
            factors = f("expand", f(how, factors, axes=(0,), keepdims=True), shape=(len(axes),))
            spans = f("mul", factors, old)
            new = f("floor", f("add", spans, 0.5))
        if policy == "stretch":  # as whole numbers: those that are known stay so beside others
            whole = n.build.emit("reshape", asked, shape=(len(axes),))
            return Goal(data_dependent.measure(n, whole, "the new sizes"), factors, spans)
    whole = n.build.emit("cast", new, to="i64")
    found = data_dependent.measure(n, whole, "the new sizes")
    told = None if scales is None else n.build.sources(scales)
    if told is not None:  # axes that are known to stay stay beside those that the run resizes
        stay = [factor == 1.0 for factor in told.ravel()]
        kept = zip(stay, axes, found, strict=True)
        found = tuple(n[0].shape[a] if stays else size for stays, a, size in kept)
    return Goal(found, factors, spans)


def exact_sizes(n: NodeContext, axes: Sequence[int], scales: Value) -> tuple[Expr, ...] | None:
    """The new sizes as expressions of the old ones, where the factors are known simple fractions:
    no size then depends on data."""
    constant = n.build.constants.get(scales)
    if constant is None:
        return None
    found = [Fraction(float(s)) for s in constant.array.ravel()]
    if any(not 0 < s.denominator <= 64 for s in found):
        return None
    return tuple(
        sizes.size(n[0].shape[a] * s.numerator // s.denominator)
        for a, s in zip(axes, found, strict=True)
    )


def positions(
    n: NodeContext, f: Floats, how: str, old: Value, goal: Goal, k: int, window: tuple[Value, Value]
) -> Value:
    """Where the new positions of the k-th resized axis lie in the old ones. Source: ONNX
    Resize-19."""
    new, scale, span = goal.sizes[k], f.element(goal.scales, k), f.element(goal.spans, k)
    i = f.of(n.build.emit("arange", length=new))
    count = f.size(new)
    middle = f("sub", f("div", f("add", i, 0.5), scale), 0.5)
    if how == "half_pixel":
        return middle
    if how == "half_pixel_symmetric":
        lost = f("sub", 1.0, f("div", count, span))
        return f("add", f("mul", f("mul", old, 0.5), lost), middle)
    if how == "pytorch_half_pixel":
        return f("where", f("greater", count, 1.0), middle, f("mul", i, 0.0))
    if how == "asymmetric":
        return f("div", i, scale)
    if how == "tf_half_pixel_for_nn":
        return f("div", f("add", i, 0.5), scale)
    last = f("sub", old, 1.0)
    if how == "align_corners":
        gaps = f("sub", span, 1.0)
        none = f("equal", gaps, 0.0)
        spread = f("div", f("mul", i, last), f("where", none, 1.0, gaps))
        return f("where", none, f("mul", i, 0.0), spread)
    if how == "tf_crop_and_resize":
        start, end = window
        several = f("greater", count, 1.0)
        gaps = f("where", several, f("sub", count, 1.0), 1.0)
        step = f("div", f("mul", f("sub", end, start), last), gaps)
        many = f("add", f("mul", start, last), f("mul", i, step))
        one = f("add", i, f("mul", f("mul", f("add", start, end), 0.5), last))
        return f("where", several, many, one)
    raise Refusal(f"coordinate_transformation_mode {how!r} is not known")


def nearest(f: Floats, at: Value, rounding: str) -> Value:
    if rounding == "floor":
        return f("floor", at)
    if rounding == "ceil":
        return f("ceil", at)
    if rounding == "round_prefer_floor":
        return f("ceil", f("sub", at, 0.5))
    return f("floor", f("add", at, 0.5))


PERIODS = (
    2,
    4,
    8,
    16,
)  # new positions for each old one whose number and phase vectors tell cheaply
CELLS = 8  # old positions for which new ones are looked at: they repeat from one to the next
MOST_STEP = 16  # old positions for each new one; of more, vectors have one each to load
STEADY = ("half_pixel", "asymmetric", "tf_half_pixel_for_nn")  # whatever is left at the end
COORDINATES: dict[str, Callable[[np.ndarray, float], np.ndarray]] = {
    "half_pixel": lambda i, times: (i + 0.5) / times - 0.5,
    "half_pixel_symmetric": lambda i, times: (i + 0.5) / times - 0.5,
    "pytorch_half_pixel": lambda i, times: (i + 0.5) / times - 0.5,
    "asymmetric": lambda i, times: i / times,
    "tf_half_pixel_for_nn": lambda i, times: (i + 0.5) / times,
}


def multiple(old: Expr, new: Expr, how: str) -> int:
    """How many new positions there are for each old one, where that is known and they lie the
    same between any two; else 0."""
    whole = as_int(sizes.size(new // old)) if as_int(old) != 0 else None
    if how not in COORDINATES or not whole or as_int(sizes.size(new - old * whole)) != 0:
        return 0
    return whole


def repeats(old: Expr, new: Expr, how: str, kernel: Kernel) -> int:
    """How often each of `old` positions is repeated, where that is what resizing to the nearest of
    them does, whatever their number; else 0."""
    times = multiple(old, new, how)
    if kernel.kind != "nearest" or not times:
        return 0
    i = np.arange(CELLS * times)
    taps = ROUNDING[kernel.rounding](COORDINATES[how](i, times))
    return times if (np.clip(taps, 0, CELLS - 1) == i // times).all() else 0


def periodic(n: NodeContext, x: Value, a: int, how: str, times: int, kernel: Kernel) -> Value:
    """x with `times` as many positions along `a`: weights come again with each old position, and
    where taps lie follows from whole numbers."""
    build, count = n.build, sizes.size(x.shape[a] * times)
    at = COORDINATES[how](np.arange(2 * times), times)
    taps, weights = tables(at + CELLS, 1.0, 3 * CELLS, kernel)  # all within the old positions
    assert weights is not None
    taps -= CELLS
    first = times - np.count_nonzero(taps[:, 0] == taps[0, 0])  # steps since the last old position
    i = build.emit("arange", length=count)
    old = build.emit("add", i, build.constant(np.int64(first)))
    old = build.emit("div", old, build.constant(np.int64(times)))
    phase = build.emit("floormod", i, build.constant(np.int64(times)))
    shape = tuple(count if d == a else 1 for d in range(x.rank))
    parts: list[Value] = []
    for k in range(taps.shape[1]):
        index = build.emit("add", old, build.constant(taps[0, k]))
        # the first position is asked for here; at the last one gathers clamp
        index = build.emit("maximum", index, build.constant(np.int64(0)))
        factors = build.constant(weights[:times, k].astype(x.dtype.numpy))
        by = build.emit("reshape", build.emit("gather", factors, phase, axis=0), shape=shape)
        parts.append(build.emit("mul", build.emit("gather", x, index, axis=a), by))
    return reduce(lambda x, y: build.emit("add", x, y), parts)


def shrinks(n: NodeContext, old: Expr, new: Expr, how: str, scales: Value | None, k: int) -> int:
    """How many old positions there are for each new one, where the run is told so and they lie
    the same around each; else 0."""
    constant = None if scales is None else n.build.constants.get(scales)
    if constant is None or how not in STEADY:
        return 0
    scale = Fraction(float(constant.array.ravel()[k]))
    by = scale.denominator if scale.numerator == 1 else 0
    return by if by and by <= MOST_STEP and sizes.size(old // by) == new else 0


def every(n: NodeContext, x: Value, a: int, how: str, by: int, kernel: Kernel) -> Value:
    """x with one position along `a` for each `by`: the same weights for all, of old positions that
    lie `by` apart."""
    build, count = n.build, sizes.size(x.shape[a] // by)
    i = CELLS  # of those whose taps lie within the old positions
    at = COORDINATES[how](np.array([i]), 1 / by)
    taps, weights = tables(at, 1.0, 2 * i * by, kernel)
    weights = np.ones(taps.shape) if weights is None else weights
    total: Value | None = None
    for first, weight in zip(taps[0] - i * by, weights[0], strict=True):
        if not weight:
            continue
        if 0 <= first < by:
            side = [(0, 1)] * x.rank
            side[a] = int(first), by
            starts, steps = zip(*side, strict=True)
            shape = (*x.shape[:a], count, *x.shape[a + 1 :])
            part = build.emit("slice", x, starts=starts, shape=shape, steps=steps)
        else:  # at the last one gathers clamp
            index = build.emit("arange", length=count, start=int(first), step=by)
            index = build.emit("maximum", index, build.constant(np.int64(0)))
            part = build.emit("gather", x, index, axis=a)
        if weight != 1:
            part = build.emit("mul", part, build.constant(x.dtype.numpy.type(weight)))
        total = part if total is None else build.emit("add", total, part)
    assert total is not None
    return total


def weights_of(f: Floats, distance: Value, kernel: Kernel) -> Value:
    """The kernel at a distance; the cubic is that of Keys 1981."""
    d = f("abs", distance)
    if kernel.kind == "linear":
        return f("clip", f("sub", 1.0, d), low=0.0, high=1.0)
    a = kernel.a
    near = f("add", f("mul", f("mul", f("sub", f("mul", d, a + 2), a + 3), d), d), 1.0)
    far = f(
        "sub", f("mul", f("add", f("mul", f("sub", f("mul", d, a), 5 * a), d), 8 * a), d), 4 * a
    )
    return f("where", f("less_equal", d, 1.0), near, f("where", f("less", d, 2.0), far, 0.0))


def along(
    n: NodeContext, f: Floats, x: Value, a: int, at: Value, scale: Value, kernel: Kernel
) -> Value:
    """x with axis `a` read at the positions `at`."""
    build, count = n.build, at.shape[0]
    last = f("sub", f.size(x.shape[a]), 1.0)

    def whole(position: Value) -> Value:
        return build.emit("cast", position, to="i64")

    def held(index: Value) -> Value:
        return build.emit("minimum", build.emit("maximum", index, zero), end)

    zero, ends = build.constant(np.int64(0)), np.empty((), object)
    ends[()] = x.shape[a] - 1
    end = build.from_sizes(ends, data_dependent.I64)
    if kernel.kind == "nearest":
        index = held(whole(nearest(f, at, kernel.rounding)))
        return build.emit("gather", x, index, axis=a)
    reach = {"linear": 1, "cubic": 2}[kernel.kind]
    shrink: Value | float = 1.0
    taps: Any = 2 * reach
    first: Value | float = 1.0 - reach
    if kernel.antialias:
        shrink = f("minimum", scale, 1.0)
        first = f("add", f("floor", f("div", -float(reach), shrink)), 1.0)
        wide = build.emit("cast", f("sub", 2.0, f("mul", first, 2.0)), to="i64")
        (taps,) = data_dependent.measure(n, build.emit("reshape", wide, shape=(1,)), "the taps")
    steps = f("add", f.of(build.emit("arange", length=sizes.size(taps))), first)
    base = f("sub", f("ceil", at), 1.0)
    column = [build.emit("reshape", v, shape=(count, 1)) for v in (f("sub", at, base), base)]
    weights = weights_of(f, f("mul", f("sub", steps, column[0]), shrink), kernel)
    position = f("add", column[1], steps)
    if kernel.exclude:
        inside = f(
            "logical_and", f("greater_equal", position, 0.0), f("less_equal", position, last)
        )
        weights = f("where", inside, weights, 0.0)
    if kernel.exclude or kernel.antialias:
        weights = f("div", weights, f("reduce_sum", weights, axes=(1,), keepdims=True))
    if kernel.antialias:
        index = whole(f("minimum", f("maximum", position, 0.0), last))
    else:  # one number to convert for all taps
        index = build.emit("add", whole(column[1]), build.constant(np.arange(taps) + (1 - reach)))
        index = held(index)
    return weighted(n, x, a, index, build.emit("cast", weights, to=x.dtype.name), taps)


def weighted(n: NodeContext, x: Value, a: int, index: Value, weights: Value, taps: Any) -> Value:
    """Σ over taps of weight · x at the tap's position. Few taps: gathers; else a matrix product."""
    build, count = n.build, index.shape[0]
    if isinstance(taps, int):
        total: Value | None = None
        shape = tuple(count if d == a else 1 for d in range(x.rank))
        tables = (index, weights)
        for k in range(taps):
            at, by = (build.emit("slice", v, starts=(0, k), shape=(count, 1)) for v in tables)
            at, by = (
                build.emit("reshape", at, shape=(count,)),
                build.emit("reshape", by, shape=shape),
            )
            part = build.emit("mul", build.emit("gather", x, at, axis=a), by)
            total = part if total is None else build.emit("add", total, part)
        assert total is not None
        return total
    old = x.shape[a]
    same = build.emit(
        "equal",
        build.emit("reshape", index, shape=(*index.shape, 1)),
        build.emit("arange", length=old),
    )
    part = build.emit("reshape", weights, shape=(*weights.shape, 1))
    zero = build.constant(0, "f", x.dtype)
    matrix = build.emit("reduce_sum", build.emit("where", same, part, zero), axes=(1,))
    last = x.rank - 1
    perm = tuple(last if d == a else a if d == last else d for d in range(x.rank))
    y = x if a == last else build.emit("transpose", x, perm=perm)
    y = build.emit("matmul", y, matrix, transpose_b=True)
    return y if a == last else build.emit("transpose", y, perm=perm)


Given = tuple[Value | None, Value | None, Value | None]  # roi, scales, sizes


def resize(n: NodeContext, axes: Sequence[int], how: str, kernel: Kernel, given: Given) -> Value:
    """x resized along `axes` by what is `given`. Whole numbers are weighted as f32."""
    f, y = Floats(n), n[0]
    if kernel.kind != "nearest" and not y.dtype.is_float:
        y = n.build.emit("cast", y, to="f32")
    roi, scales, asked = given
    goal = goal_of(n, f, axes, scales, asked)
    window = (f.number(0.0), f.number(1.0))
    for k, a in enumerate(axes):
        if goal.sizes[k] == y.shape[a] and how != "tf_crop_and_resize":
            continue  # most models resize two axes of four
        if roi is not None and how == "tf_crop_and_resize":
            window = f.element(f.of(roi), k), f.element(f.of(roi), len(axes) + k)
        times = repeats(y.shape[a], goal.sizes[k], how, kernel)
        if times:
            y = repeated(n.build, y, a, times)
            continue
        times = multiple(y.shape[a], goal.sizes[k], how)
        plain = kernel.kind != "nearest" and not (kernel.antialias or kernel.exclude)
        if plain and times in PERIODS:
            y = periodic(n, y, a, how, times, kernel)
            continue
        by = shrinks(n, y.shape[a], goal.sizes[k], how, scales, k)
        if by and not (kernel.antialias or kernel.exclude):
            y = every(n, y, a, how, by, kernel)
            continue
        scale, old = f.element(goal.scales, k), f.size(y.shape[a])
        at = positions(n, f, how, old, goal, k, window)
        outside = None
        if how == "tf_crop_and_resize":
            beyond = f("greater", at, f("sub", old, 1.0))
            outside = f("logical_or", f("less", at, 0.0), beyond)
        y = along(n, f, y, a, at, scale, kernel)
        if outside is not None:
            side = tuple(goal.sizes[k] if d == a else 1 for d in range(y.rank))
            mask = n.build.emit("reshape", outside, shape=side)
            value = n.constant(n.float("extrapolation_value", 0.0), y.dtype)
            y = n.build.emit("where", mask, value, y)
    return y if y.dtype is n[0].dtype else n.build.emit("cast", y, to=n[0].dtype.name)
