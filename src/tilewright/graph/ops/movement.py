"""Moving elements without computing: shapes, slices, concatenation, padding, gathering, generated
tensors."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tilewright import te
from tilewright.graph import sizes
from tilewright.graph.operator import (
    BROADCAST,
    CHEAP,
    INJECTIVE,
    MOVES,
    ONE,
    OPAQUE,
    SHAPED,
    STRIDED,
    Type,
    axis_of,
    broadcast_shape,
    need,
    need_same,
    operator,
)
from tilewright.graph.ops.elementwise import element, same
from tilewright.ir.dtype import dtype
from tilewright.ir.expr import Expr, as_int

Sizes = tuple[Any, ...]  # ints or size expressions


def _reshape_type(x: Any, *, shape: Sizes) -> Type:
    goal = sizes.shape(shape)
    have, want = sizes.product(x.shape), sizes.product(goal)
    if have != want:
        ratio = want if as_int(want) == 0 else sizes.size(have // want)
        a, b = (ratio, sizes.size(1)) if sizes.size(ratio * want) == have else (have, want)
        need_same(a, b, f"{sizes.text(have)} elements do not fill {_show(goal)}")
    return x.dtype, goal


def _show(shape: Sizes) -> str:
    return f"[{', '.join(sizes.text(s) for s in shape)}]"


@operator(
    fusion=INJECTIVE,
    infer=_reshape_type,
    reference=lambda x, shape: np.reshape(x, shape),
    view=True,
    traits=CHEAP | MOVES | SHAPED | STRIDED,
)
def reshape(x: Any, *, shape: Sizes) -> Any:
    """The same elements in row-major order under another shape; a view of the same memory."""
    goal = sizes.shape(shape)

    def at(*i: Expr) -> Expr:
        index: list[Expr] = []
        for new, old in aligned_axes(goal, x.shape):  # each run of axes is renumbered by itself
            flat = ravel([i[d] for d in new], tuple([goal[d] for d in new]))
            index += unravel(flat, tuple([x.shape[d] for d in old]))
        return x[tuple(index)]

    return te.compute(goal, at, name="reshape")


def aligned_axes(a: Sizes, b: Sizes) -> list[tuple[range, range]]:
    """Shortest runs of axes of two shapes that hold equally many elements, in order."""
    runs: list[tuple[range, range]] = []
    first_a = first_b = end_a = end_b = 0
    while end_a < len(a) or end_b < len(b):
        product_a, product_b = sizes.product(a[first_a:end_a]), sizes.product(b[first_b:end_b])
        if end_a > first_a and end_b > first_b and product_a == product_b:
            runs.append((range(first_a, end_a), range(first_b, end_b)))
            first_a, first_b = end_a, end_b
            continue
        some = dict.fromkeys(sizes.symbols([product_a, product_b]), 1009)
        shorter = sizes.at(product_a, some) <= sizes.at(product_b, some)
        if end_a < len(a) and (shorter or end_b == len(b)):
            end_a += 1
        else:
            end_b += 1
    runs.append((range(first_a, end_a), range(first_b, end_b)))
    return runs


def ravel(index: Any, shape: Sizes) -> Expr:
    """The row-major position of `index`."""
    flat: Expr = te.const(0)
    for i, s in zip(index, shape, strict=True):
        flat = flat * s + i
    return flat


def unravel(flat: Expr, shape: Sizes) -> tuple[Expr, ...]:
    """The index at row-major position `flat`."""
    index: list[Expr] = []
    for d in range(len(shape) - 1, -1, -1):
        if shape[d] == ONE:
            index.append(te.const(0))
        elif all(s == ONE for s in shape[:d]):
            index.append(flat)
        else:
            index.append(flat % shape[d])
            flat = flat // shape[d]
    return tuple(reversed(index))


@operator(fusion=BROADCAST, infer=same, reference=lambda x: x, traits=CHEAP | MOVES)
def copy(x: Any) -> Any:
    """x in memory of its own; stands before outputs that would otherwise share memory."""
    return te.compute(x.shape, lambda *i: x[i], name="copy")


def _transpose_type(x: Any, *, perm: tuple[int, ...]) -> Type:
    need(
        sorted(perm) == list(range(len(x.shape))),
        f"{perm} is no permutation of {len(x.shape)} axes",
    )
    return x.dtype, tuple([x.shape[p] for p in perm])


@operator(
    fusion=INJECTIVE,
    infer=_transpose_type,
    reference=lambda x, perm: np.transpose(x, perm),
    traits=CHEAP | MOVES | STRIDED,
)
def transpose(x: Any, *, perm: tuple[int, ...]) -> Any:
    """Axis d of the result is axis perm[d] of x."""
    shape = tuple(x.shape[p] for p in perm)
    inverse = [perm.index(d) for d in range(len(perm))]
    return te.compute(shape, lambda *i: x[tuple(i[p] for p in inverse)], name="transpose")


def _expand_type(x: Any, *, shape: Sizes) -> Type:
    goal = sizes.shape(shape)
    need(
        broadcast_shape(x.shape, goal) == goal,
        f"{_show(x.shape)} does not broadcast to {_show(goal)}",
    )
    return x.dtype, goal


@operator(
    fusion=INJECTIVE,
    infer=_expand_type,
    reference=lambda x, shape: np.broadcast_to(x, shape),
    traits=MOVES | SHAPED | STRIDED,
)
def expand(x: Any, *, shape: Sizes) -> Any:
    """x broadcast to `shape`."""
    return te.compute(sizes.shape(shape), lambda *i: element(x, i), name="expand")


def _stretch_type(x: Any, *, shape: Sizes) -> Type:
    goal = sizes.shape(shape)
    need(len(goal) == len(x.shape), f"needs a size for each of {len(x.shape)} axes")
    for have, want in zip(x.shape, goal, strict=True):
        number, asked = as_int(have), as_int(want)
        fits = number in (None, 1) or asked in (None, number)
        need(fits, f"{_show(x.shape)} does not broadcast to {_show(goal)}")
    return x.dtype, goal


@operator(
    fusion=INJECTIVE, infer=_stretch_type, reference=lambda x, shape: np.broadcast_to(x, shape)
)
def stretch(x: Any, *, shape: Sizes) -> Any:
    """x broadcast to `shape`, where the run knows which of its sizes are 1: each of the others is
    the one asked for."""
    goal = sizes.shape(shape)

    def at(*i: Expr) -> Expr:
        axes = zip(i, x.shape, goal, strict=True)
        return x[tuple(n if s == want else te.minimum(n, s - 1) for n, s, want in axes)]

    return te.compute(goal, at, name="stretch")


def _concat_type(*xs: Any, axis: int) -> Type:
    d = axis_of(axis, len(xs[0].shape))
    first, total = xs[0], xs[0].shape[d]
    for x in xs[1:]:
        need(x.dtype is first.dtype, f"operands have dtypes {first.dtype} and {x.dtype}")
        differ = f"{_show(first.shape)} and {_show(x.shape)} differ beside axis {d}"
        need(len(x.shape) == len(first.shape), differ)
        for n, (a, b) in enumerate(zip(first.shape, x.shape, strict=True)):
            if n != d:
                need_same(a, b, differ)
        total = sizes.size(total + x.shape[d])  # each time: a sum of all is deep
    return first.dtype, (*first.shape[:d], sizes.size(total), *first.shape[d + 1 :])


@operator(
    fusion=INJECTIVE,
    infer=_concat_type,
    reference=lambda *xs, axis: np.concatenate(xs, axis),
    traits=MOVES,
)
def concat(first: Any, *rest: Any, axis: int) -> Any:
    """The inputs one after the other along `axis`."""
    xs = (first, *rest)
    d = axis_of(axis, first.ndim)
    starts: list[Expr] = [te.const(0)]
    for x in xs[:-1]:
        starts.append(sizes.size(starts[-1] + x.shape[d]))

    def at(*i: Expr) -> Expr:
        def among(first: int, end: int) -> Expr:
            """The element, which is one of these inputs': as few comparisons as may be."""
            if end - first == 1:
                return xs[first][(*i[:d], i[d] - starts[first], *i[d + 1 :])]
            middle = (first + end) // 2
            return te.select(i[d] < starts[middle], among(first, middle), among(middle, end))

        return among(0, len(xs))

    return te.compute(_concat_type(*xs, axis=axis)[1], at, name="concat")


def _slice_type(x: Any, *, starts: Sizes, shape: Sizes, steps: Sizes = ()) -> Type:
    rank = len(x.shape)
    need(
        len(starts) == rank and len(shape) == rank,
        f"needs a start and a size for each of {rank} axes",
    )
    need(not steps or len(steps) == rank, f"needs a step for each of {rank} axes")
    for d, (start, size, have) in enumerate(zip(starts, shape, x.shape, strict=True)):
        step = as_int(steps[d]) if steps else 1
        first, count, total = as_int(start), as_int(size), as_int(have)
        if step is None or first is None or count is None or total is None or count == 0:
            continue
        last = first + (count - 1) * step
        need(
            count > 0 and 0 <= first < total and 0 <= last < total,
            f"indices {first} to {last} of axis {d} are outside its size {total}",
        )
    return x.dtype, sizes.shape(shape)


def _slice(x: np.ndarray, starts: Sizes, shape: Sizes, steps: Any = ()) -> np.ndarray:
    for d, (start, count) in enumerate(zip(starts, shape, strict=True)):
        step = steps[d] if steps else 1
        if start == 0 and step == 1 and count == x.shape[d]:
            continue
        stop = start + count * step
        x = x[
            (slice(None),) * d
            + (slice(start, stop if stop >= 0 else None, step) if count else slice(0, 0),)
        ]
    return x


@operator(fusion=INJECTIVE, infer=_slice_type, reference=_slice, traits=CHEAP | MOVES | STRIDED)
def slice_(x: Any, *, starts: Sizes, shape: Sizes, steps: Sizes = ()) -> Any:
    """`shape` elements of x from `starts` on, every `steps`-th (default 1; negative: backwards)."""
    steps = steps or (1,) * x.ndim

    def at(*i: Expr) -> Expr:
        return x[tuple(n * step + start for n, start, step in zip(i, starts, steps, strict=True))]

    return te.compute(sizes.shape(shape), at, name="slice")


def _reaches(before: Any, after: Any) -> float:
    """How far pads go, infinity where only the run knows."""
    known = as_int(before), as_int(after)
    return math.inf if None in known else max(known)  # type: ignore[type-var]


def _pad_type(
    x: Any, *, before: Sizes, after: Sizes, mode: str = "constant", value: float = 0.0
) -> Type:
    rank = len(x.shape)
    need(len(before) == rank and len(after) == rank, f"needs pads for each of {rank} axes")
    need(mode in ("constant", "edge", "reflect", "wrap"), f"has no mode {mode!r}")
    shape = []
    for s, a, b in zip(x.shape, before, after, strict=True):
        n, first, last = as_int(s), as_int(a), as_int(b)
        if first is not None and last is not None:
            need(first >= 0 and last >= 0, "pads must not be negative; cut with slice")
            if n is not None and mode != "constant" and (first or last):
                need(n > 0, "cannot extend an empty axis")
        shape.append(s + (sizes.size(a) + sizes.size(b)))
    return x.dtype, sizes.shape(shape)


def _pad(x: np.ndarray, before: Sizes, after: Sizes, mode: str, value: float) -> np.ndarray:
    widths = tuple(zip(before, after, strict=True))
    if mode == "constant":
        return np.pad(x, widths, constant_values=np.asarray(value).astype(x.dtype))
    return np.pad(x, widths, mode)  # type: ignore[call-overload]


def _is_reflected_once(shape: Sizes, before: Sizes, after: Sizes) -> Expr | None:
    """Whether all open axes are longer than their pads, as they mostly are; None where no open axis
    has pads, or where known ones are too short."""
    asked: Expr | None = None
    for size, b, a in zip(shape, before, after, strict=True):
        reach, count = _reaches(b, a), as_int(size)
        if reach == 0 or (count is not None and reach < count):
            continue
        if count is not None or reach == math.inf:
            return None
        longer = size > int(reach)
        asked = longer if asked is None else asked & longer
    return asked


@operator(fusion=INJECTIVE, infer=_pad_type, reference=_pad)
def pad(x: Any, *, before: Sizes, after: Sizes, mode: str = "constant", value: float = 0.0) -> Any:
    """x with elements added around it: a constant, the edge, a reflection or a repetition of x,
    each as often as it takes. An axis that is extended by its own elements must have some."""
    shape = _pad_type(x, before=before, after=after, mode=mode, value=value)[1]

    def extended(p: Expr, size: Expr, far: Expr) -> Expr:
        """The index `far` where p is outside: the plain ones stay plain."""
        return te.select(p >= 0, te.select(p < size, p, far), far)

    def folded(p: Expr, size: Expr, near: bool) -> Expr:
        """p reflected at both ends; `near`: once is enough."""
        back = te.select(p >= 0, te.select(p < size, p, 2 * (size - 1) - p), -p)
        if near:
            return back
        period = te.maximum(2 * (size - 1), 1)
        often = extended(p, size, te.minimum(p % period, period - p % period))
        return often if once is None else te.select(once, back, often)

    once = _is_reflected_once(x.shape, before, after) if mode == "reflect" else None

    def at(*i: Expr) -> Expr:
        index, inside = [], te.const(True, "bool")
        for n, size, b, a in zip(i, x.shape, before, after, strict=True):
            p = n - b
            if as_int(b) == 0 and as_int(a) == 0:
                pass
            elif mode == "constant":
                inside = inside & (p >= 0) & (p < size)
            elif mode == "edge":
                p = te.select(p >= 0, te.select(p < size, p, size - 1), 0)
            elif mode == "wrap":
                p = extended(p, size, p % te.maximum(size, 1))
            else:
                p = folded(p, size, near=_reaches(b, a) < (as_int(size) or 0))
            index.append(p)
        return te.select(inside, x[tuple(index)], te.const(value, x.dtype))

    return te.compute(shape, at, name="pad")


def _tile_type(x: Any, *, repeats: Sizes) -> Type:
    need(len(repeats) == len(x.shape), f"needs repeats for each of {len(x.shape)} axes")
    return x.dtype, sizes.shape(s * r for s, r in zip(x.shape, repeats, strict=True))


@operator(
    fusion=INJECTIVE,
    infer=_tile_type,
    reference=lambda x, repeats: np.tile(x, repeats),
    traits=MOVES,
)
def tile(x: Any, *, repeats: Sizes) -> Any:
    """x repeated along each axis."""
    shape = _tile_type(x, repeats=repeats)[1]
    return te.compute(
        shape, lambda *i: x[tuple(n % s for n, s in zip(i, x.shape, strict=True))], name="tile"
    )


def _index_dtype(indices: Any) -> None:
    need(indices.dtype.is_int, f"indices hold {indices.dtype}, not integers")


def within(index: Expr, size: Expr, trusted: bool = False, from_start: bool = False) -> Expr:
    """An index as i64: negative ones count from the end (where not all do `from_start`), and no
    index leaves the axis (which those that are trusted do not anyway)."""
    index = index.astype("i64")
    index = index if from_start else te.select(index < 0, index + size, index)
    return index if trusted else te.minimum(te.maximum(index, 0), size - 1)


def _clamped(indices: np.ndarray, size: int) -> np.ndarray:
    indices = indices.astype(np.int64)
    return np.clip(np.where(indices < 0, indices + size, indices), 0, size - 1)


def _gather_type(
    x: Any, indices: Any, *, axis: int = 0, trusted: bool = False, from_start: bool = False
) -> Type:
    d = axis_of(axis, len(x.shape))
    _index_dtype(indices)
    return x.dtype, (*x.shape[:d], *indices.shape, *x.shape[d + 1 :])


@operator(
    fusion=INJECTIVE,
    infer=_gather_type,
    reference=lambda x, indices, axis, trusted, from_start: np.take(
        x, _clamped(indices, x.shape[axis]), axis
    ),
    traits=MOVES,
)
def gather(
    x: Any, indices: Any, *, axis: int = 0, trusted: bool = False, from_start: bool = False
) -> Any:
    """Slices of x along `axis` at `indices`; negative ones count from the end, those outside are
    clamped. trusted: none is outside; from_start: none is negative."""
    d = axis_of(axis, x.ndim)
    width = len(indices.shape)

    def at(*i: Expr) -> Expr:
        index = within(indices[i[d : d + width]], x.shape[d], trusted, from_start)
        return x[(*i[:d], index, *i[d + width :])]

    return te.compute(_gather_type(x, indices, axis=axis)[1], at, name="gather")


def _sample_type(x: Any, *, axis: int, length: Any, times: int, first: int, base: int) -> Type:
    d = axis_of(axis, len(x.shape))
    need(times > 0, f"{times} elements for each step")
    return x.dtype, (*x.shape[:d], sizes.size(length), *x.shape[d + 1 :])


def _sampled(x: np.ndarray, axis: int, length: int, times: int, first: int, base: int) -> Any:
    indices = (np.arange(length) + first) // times + base
    return np.take(x, indices.clip(0, x.shape[axis] - 1), axis)


@operator(fusion=INJECTIVE, infer=_sample_type, reference=_sampled)
def sample(x: Any, *, axis: int, length: Any, times: int, first: int, base: int) -> Any:
    """Slices of x along `axis`, the i-th at (i + first) // times + base, or the end of the axis
    where that is outside."""
    d = axis_of(axis, x.ndim)

    def at(*i: Expr) -> Expr:
        index = (i[d] + first) // times + base
        return x[(*i[:d], te.minimum(te.maximum(index, 0), x.shape[d] - 1), *i[d + 1 :])]

    shape = _sample_type(x, axis=axis, length=length, times=times, first=first, base=base)[1]
    return te.compute(shape, at, name="sample")


def need_within(x: Any, indices: Any, axis: int) -> None:
    """Indices along an axis of x are as many, along the others, as x has elements, or fewer."""
    need(len(indices.shape) == len(x.shape), "indices and data differ in rank")
    for d, (a, b) in enumerate(zip(indices.shape, x.shape, strict=True)):
        m, n = as_int(a), as_int(b)
        need(
            d == axis % len(x.shape) or m is None or n is None or m <= n,
            f"indices are longer than the data along axis {d}",
        )


def _gather_elements_type(
    x: Any, indices: Any, *, axis: int = 0, trusted: bool = False, from_start: bool = False
) -> Type:
    axis_of(axis, len(x.shape))
    _index_dtype(indices)
    need_within(x, indices, axis)
    return x.dtype, indices.shape


@operator(
    fusion=INJECTIVE,
    infer=_gather_elements_type,
    reference=lambda x, indices, axis, trusted, from_start: _take_elements(x, indices, axis),
    traits=MOVES,
)
def gather_elements(
    x: Any, indices: Any, *, axis: int = 0, trusted: bool = False, from_start: bool = False
) -> Any:
    """y[i] = x[i with its entry on `axis` replaced by indices[i]], as `gather` takes indices.
    Source: ONNX GatherElements."""
    d = axis_of(axis, x.ndim)

    def at(*i: Expr) -> Expr:
        index = within(indices[i], x.shape[d], trusted, from_start)
        return x[(*i[:d], index, *i[d + 1 :])]

    return te.compute(indices.shape, at, name="gather_elements")


def _take_elements(x: np.ndarray, indices: np.ndarray, axis: int) -> np.ndarray:
    d = axis % x.ndim
    x = x[tuple(slice(None) if n == d else slice(0, s) for n, s in enumerate(indices.shape))]
    return np.take_along_axis(x, _clamped(indices, x.shape[d]), d)


def _full_type(*, shape: Sizes, value: float, of: str) -> Type:
    return dtype(of), sizes.shape(shape)


@operator(
    fusion=INJECTIVE,
    infer=_full_type,
    reference=lambda shape, value, of: np.broadcast_to(
        np.asarray(value).astype(dtype(of).numpy), shape
    ),
)
def full(*, shape: Sizes, value: float, of: str) -> Any:
    """A tensor of one number."""
    return te.compute(sizes.shape(shape), lambda *i: te.const(value, of), name="full")


def _arange_type(*, length: Any, start: float = 0, step: float = 1, of: str = "i64") -> Type:
    return dtype(of), (sizes.size(length),)


@operator(
    fusion=INJECTIVE,
    infer=_arange_type,
    reference=lambda length, start, step, of: (start + step * np.arange(length)).astype(
        dtype(of).numpy
    ),
    traits=CHEAP,
)
def arange(*, length: Any, start: float = 0, step: float = 1, of: str = "i64") -> Any:
    """start, start + step, …: `length` numbers of dtype `of`."""

    def at(i: Expr) -> Expr:
        wide = te.const(start, of) if isinstance(start, int | float) else start.astype(of)
        return i.astype(of) * te.const(step, of) + wide

    return te.compute((sizes.size(length),), at, name="arange")


def _size_values_type(*, values: Sizes, shape: Sizes, of: str = "i64") -> Type:
    known = sizes.static(shape)
    need(known is not None and math.prod(known) == len(values), "values do not fill the shape")
    return dtype(of), sizes.shape(shape)


@operator(
    fusion=INJECTIVE,
    infer=_size_values_type,
    reference=lambda values, shape, of: np.array(values, dtype(of).numpy).reshape(shape),
)
def size_values(*, values: Sizes, shape: Sizes, of: str = "i64") -> Any:
    """A small tensor of size expressions: what Shape and arithmetic on its results become."""
    goal = sizes.shape(shape)

    def among(flat: Expr, first: int, last: int) -> Expr:
        """The one at `flat`, which is an index from `first` to `last`: by halves."""
        some = {sizes.size(v) for v in values[first : last + 1]}
        if len(some) == 1:
            return some.pop()
        middle = (first + last) // 2
        left, right = among(flat, first, middle), among(flat, middle + 1, last)
        return te.select(flat <= middle, left, right)

    def at(*i: Expr) -> Expr:
        return among(ravel(i, goal), 0, len(values) - 1).astype(of)

    return te.compute(goal, at, name="size_values")


def _trilu_type(x: Any, *, k: int = 0, upper: bool = True) -> Type:
    need(len(x.shape) >= 2, "needs matrices (rank 2 or more)")
    return same(x)


@operator(
    fusion=INJECTIVE,
    infer=_trilu_type,
    reference=lambda x, k, upper: np.triu(x, k) if upper else np.tril(x, k),
)
def trilu(x: Any, *, k: int = 0, upper: bool = True) -> Any:
    """The upper (or lower) triangle from diagonal `k` on, 0 elsewhere."""

    def at(*i: Expr) -> Expr:
        kept = i[-1] - i[-2] >= k if upper else i[-1] - i[-2] <= k
        return te.select(kept, x[i], te.const(0, x.dtype))

    return te.compute(x.shape, at, name="trilu")


__all__ = ["OPAQUE", "ravel", "unravel", "within"]
