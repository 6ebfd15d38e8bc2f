"""Operators whose indices depend on data: gather_nd, scatters, one-hot, top-k, and resampling of
images."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tilewright import te
from tilewright.graph import sizes
from tilewright.graph.operator import (
    INJECTIVE,
    MOVES,
    OPAQUE,
    Type,
    axis_of,
    need,
    need_same_shape,
    operator,
)
from tilewright.graph.ops.movement import need_within, within
from tilewright.graph.ops.sorting import (
    MOST_KEPT,
    ONE,
    is_worth_lanes,
    loops,
    radix_sort,
    selection,
)
from tilewright.ir.dtype import dtype
from tilewright.ir.expr import Buffer, Expr, Load, as_int, maximum, minimum, select
from tilewright.ir.expr import const as constant
from tilewright.ir.stmt import Stmt, Store, seq


def _gather_nd_type(x: Any, indices: Any, *, batch_dims: int = 0) -> Type:
    need(indices.dtype.is_int, f"indices hold {indices.dtype}, not integers")
    depth = as_int(indices.shape[-1]) if len(indices.shape) else None
    need(depth is not None, "needs a known number of indices for each slice")
    assert depth is not None
    need(0 <= batch_dims < len(indices.shape), f"batch_dims {batch_dims} is out of range")
    need(batch_dims + depth <= len(x.shape), f"{depth} indices reach past rank {len(x.shape)}")
    need_same_shape(x.shape[:batch_dims], indices.shape[:batch_dims], "the batch axes differ")
    return x.dtype, (*indices.shape[:-1], *x.shape[batch_dims + depth :])


def _gather_nd(x: np.ndarray, indices: np.ndarray, batch_dims: int) -> np.ndarray:
    batch = x.shape[:batch_dims]
    depth = indices.shape[-1]
    flat_x = x.reshape(math.prod(batch), *x.shape[batch_dims:])
    each = math.prod(indices.shape[batch_dims:-1])
    flat_i = indices.reshape(flat_x.shape[0], each, depth).astype(np.int64)
    found = []
    for d in range(depth):
        size = flat_x.shape[1 + d]
        i = flat_i[..., d]
        found.append(np.clip(np.where(i < 0, i + size, i), 0, size - 1))
    lead = np.arange(flat_x.shape[0])[:, None]
    made = flat_x[(lead, *found)]
    return made.reshape((*batch, *indices.shape[batch_dims:-1], *x.shape[batch_dims + depth :]))


@operator(fusion=INJECTIVE, infer=_gather_nd_type, reference=_gather_nd, traits=MOVES)
def gather_nd(x: Any, indices: Any, *, batch_dims: int = 0) -> Any:
    """Slices of x at the indices that the last axis of `indices` lists. Source: ONNX GatherND."""
    depth = as_int(indices.shape[-1]) or 0
    lead = len(indices.shape) - 1

    def at(*i: Expr) -> Expr:
        found = [within(indices[(*i[:lead], d)], x.shape[batch_dims + d]) for d in range(depth)]
        return x[(*i[:batch_dims], *found, *i[lead:])]

    return te.compute(_gather_nd_type(x, indices, batch_dims=batch_dims)[1], at, name="gather_nd")


_UPDATES = ("none", "add", "mul", "max", "min")


def _updated(kind: str, old: Expr, new: Expr) -> Expr:
    if kind == "add":
        return old + new
    if kind == "mul":
        return old * new
    return {"none": lambda a, b: b, "max": maximum, "min": minimum}[kind](old, new)


_NUMPY_UPDATE = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


def _scatter_elements_type(
    x: Any, indices: Any, updates: Any, *, axis: int = 0, reduction: str = "none"
) -> Type:
    axis_of(axis, len(x.shape))
    need(indices.dtype.is_int, f"indices hold {indices.dtype}, not integers")
    need(updates.dtype is x.dtype, f"data and updates have dtypes {x.dtype} and {updates.dtype}")
    need_same_shape(indices.shape, updates.shape, "indices and updates differ in shape")
    need_within(x, indices, axis)
    need(reduction in _UPDATES, f"has no reduction {reduction!r}")
    return x.dtype, x.shape


def _scatter_elements(x, indices, updates, *, axis, reduction):  # type: ignore[no-untyped-def]
    made = x.copy()
    d = axis % x.ndim
    i = indices.astype(np.int64)
    i = np.clip(np.where(i < 0, i + x.shape[d], i), 0, x.shape[d] - 1)
    full = list(np.indices(indices.shape, sparse=False))
    full[d] = i
    if reduction == "none":
        made[tuple(full)] = updates
    else:
        _NUMPY_UPDATE[reduction].at(made, tuple(full), updates)
    return made


def _scatter(
    x: Any, indices: Any, updates: Any, walk: Any, target_of: Any, reduction: str, name: str,
    rows: bool = False,
) -> Any:  # fmt: skip
    """Copy x, then apply the updates in order: later ones win. rows: each updates a whole line."""

    def body(inputs: list[Buffer], outputs: list[Buffer]) -> Stmt:
        source, where, new = inputs
        (goal,) = outputs

        def update(*u: Expr) -> Stmt:
            target = target_of(where, u)
            value = _updated(reduction, Load(goal, target), Load(new, u))
            return Store(goal, target, value)

        copy = loops(source.shape, lambda *i: Store(goal, i, Load(source, i)), f"{name}_c", True)
        return seq(copy, loops(walk, update, f"{name}_u", rows))

    return te.extern(x.shape, [x, indices, updates], body, dtype=x.dtype, name=name)


def _bounded(index: Expr, size: Expr) -> Expr:
    index = index.astype("i64")
    wrapped = select(index < 0, index + size, index)
    return minimum(maximum(wrapped, constant(0)), size - 1)


@operator(fusion=OPAQUE, infer=_scatter_elements_type, reference=_scatter_elements)
def scatter_elements(
    x: Any, indices: Any, updates: Any, *, axis: int = 0, reduction: str = "none"
) -> Any:
    """x with y[i with its entry on `axis` replaced by indices[i]] updated by updates[i], in order.

    reduction: none (replace), add, mul, max or min. Source: ONNX ScatterElements-18.
    """
    d = axis_of(axis, x.ndim)

    def target_of(where: Buffer, u: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return (*u[:d], _bounded(Load(where, u), x.shape[d]), *u[d + 1 :])

    return _scatter(x, indices, updates, indices.shape, target_of, reduction, "scatter_elements")


def _scatter_nd_type(x: Any, indices: Any, updates: Any, *, reduction: str = "none") -> Type:
    need(indices.dtype.is_int, f"indices hold {indices.dtype}, not integers")
    depth = as_int(indices.shape[-1]) if len(indices.shape) else None
    need(
        depth is not None and depth <= len(x.shape),
        "needs at most one index for each axis of the data",
    )
    need(updates.dtype is x.dtype, f"data and updates have dtypes {x.dtype} and {updates.dtype}")
    goal = *indices.shape[:-1], *x.shape[depth:]
    need_same_shape(updates.shape, goal, "updates do not fit indices and data")
    need(reduction in _UPDATES, f"has no reduction {reduction!r}")
    return x.dtype, x.shape


def _scatter_nd(x, indices, updates, *, reduction):  # type: ignore[no-untyped-def]
    made = x.copy()
    depth = indices.shape[-1]
    for at in np.ndindex(*indices.shape[:-1]):
        where = []
        for d in range(depth):
            i = int(indices[(*at, d)])
            where.append(min(max(i + x.shape[d] if i < 0 else i, 0), x.shape[d] - 1))
        new, where = updates[at], tuple(where)
        made[where] = new if reduction == "none" else _NUMPY_UPDATE[reduction](made[where], new)
    return made


@operator(fusion=OPAQUE, infer=_scatter_nd_type, reference=_scatter_nd)
def scatter_nd(x: Any, indices: Any, updates: Any, *, reduction: str = "none") -> Any:
    """x with the slices at the indices that `indices` lists updated in order. Source: ONNX
    ScatterND-18."""
    depth, lead = as_int(indices.shape[-1]) or 0, len(indices.shape) - 1

    def target_of(where: Buffer, u: tuple[Expr, ...]) -> tuple[Expr, ...]:
        found = [_bounded(Load(where, (*u[:lead], constant(k))), x.shape[k]) for k in range(depth)]
        return (*found, *u[lead:])

    rows = depth < len(x.shape)
    return _scatter(x, indices, updates, updates.shape, target_of, reduction, "scatter_nd", rows)


def _one_hot_type(indices: Any, values: Any, *, depth: Any, axis: int = -1) -> Type:
    need(values.shape == (sizes.size(2),), "values must be [off, on]")
    d = axis_of(axis, len(indices.shape) + 1)
    return values.dtype, (*indices.shape[:d], sizes.size(depth), *indices.shape[d:])


def _one_hot(indices, values, *, depth, axis):  # type: ignore[no-untyped-def]
    d = axis % (indices.ndim + 1)
    i = np.expand_dims(indices.astype(np.int64), d)
    i = np.where(i < 0, i + depth, i)
    shape = [1] * (indices.ndim + 1)
    shape[d] = depth
    return np.where(i == np.arange(depth).reshape(shape), values[1], values[0])


@operator(fusion=INJECTIVE, infer=_one_hot_type, reference=_one_hot)
def one_hot(indices: Any, values: Any, *, depth: Any, axis: int = -1) -> Any:
    """values[1] at the position that an index names along a new axis, else values[0]. Source: ONNX
    OneHot-11."""
    d = axis_of(axis, len(indices.shape) + 1)

    def at(*i: Expr) -> Expr:
        index = indices[(*i[:d], *i[d + 1 :])].astype("i64")
        index = te.select(index < 0, index + depth, index)
        return te.select(te.eq(index, i[d]), values[1], values[0])

    return te.compute(_one_hot_type(indices, values, depth=depth, axis=axis)[1], at, name="one_hot")


def _top_k_type(x: Any, *, k: Any, axis: int = -1, largest: bool = True) -> list[Type]:
    d = axis_of(axis, len(x.shape))
    n, count = as_int(x.shape[d]), as_int(k)
    fits = count is None or (count >= 0 and (n is None or count <= n))
    need(fits, f"cannot take {k} of {sizes.text(x.shape[d])}")
    shape = (*x.shape[:d], sizes.size(k), *x.shape[d + 1 :])
    return [(x.dtype, shape), (dtype("i64"), shape)]


def _top_k(x: np.ndarray, k: int, axis: int, largest: bool) -> Any:
    if x.dtype.kind in "biu":
        order = np.argsort(~x if largest else x, axis=axis, kind="stable")
    else:  # what is no number counts as greater than all
        wide = x.astype(np.float64)
        lacks = np.isnan(wide)
        keys = np.where(lacks, 0, -wide if largest else wide), ~lacks if largest else lacks
        order = np.lexsort(keys, axis=axis)
    order = np.take(order, np.arange(k), axis)
    return np.take_along_axis(x, order, axis), order.astype(np.int64)


@operator(fusion=OPAQUE, infer=_top_k_type, reference=_top_k)
def top_k(x: Any, *, k: Any, axis: int = -1, largest: bool = True) -> Any:
    """The k greatest (or least) along `axis` in order, and their indices; of equals the first
    comes first, and NaN is greater than all numbers. A few are kept in order while the rest passes
    by; many are sorted."""
    d = axis_of(axis, x.ndim)
    shape = _top_k_type(x, k=k, axis=axis, largest=largest)[0][1]
    count = as_int(k)
    few = count is not None and count <= MOST_KEPT
    kept = few or is_worth_lanes(x, d, shape[d]) == ONE
    return (selection if kept else radix_sort)(x, d, shape, largest)[:2]
