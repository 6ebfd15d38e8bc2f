"""canonicalise: one form for each meaning, so that later passes have fewer cases.

Rules look at one node and what made its inputs; each returns the replacement, or None. They cover
moves that cancel or combine, neutral elements, broadcasts that the operator does anyway, pads that
a convolution can do, and transposes that a matrix product can do.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tilewright.graph import sizes
from tilewright.graph.builder import Edit, Rule
from tilewright.graph.graph import Graph, Node, Value, plain
from tilewright.graph.operator import BROADCAST, ONE, OPERATORS, broadcast_shape
from tilewright.graph.ops.linear import is_of_one_type, types_of
from tilewright.graph.ops.movement import aligned_axes
from tilewright.ir.expr import as_int

MOST_PARTS = 4  # of unrelated sizes that one concat joins


def canonicalise(graph: Graph) -> Graph:
    """Apply the rules of this file to every node."""
    return Edit(graph, RULES).run()


def number(edit: Edit, value: Value) -> float | None:
    """The number that a constant of equal elements holds, else None."""
    array = edit.content(value)
    if array is None or not array.size or array.dtype.kind not in "iufb":
        return None
    first = (
        array.reshape(-1)[:1] if array.size == 1 else array[(slice(0, 1),) * array.ndim].reshape(-1)
    )
    if array.size > 1 and any(array.strides):
        if array.nbytes > 1 << 16 or not (array == first[0]).all():
            return None
    return first[0].item()


# moves
# --------------------------------------------------------------------------------------------------


def drop_copy(edit: Edit, node: Node) -> Any:
    return node.inputs[0]


def reshape(edit: Edit, node: Node) -> Any:
    (x,) = node.inputs
    if x.shape == node.output.shape:
        return x
    before = edit.producer(x, "reshape")
    if before is not None:
        return edit.emit("reshape", before.inputs[0], shape=node["shape"], name=node.name)
    return None


def transpose(edit: Edit, node: Node) -> Any:
    (x,) = node.inputs
    perm = node["perm"]
    if perm == tuple(range(len(perm))):
        return x
    before = edit.producer(x, "transpose")
    if before is not None:
        inner = before["perm"]
        return edit.emit(
            "transpose", before.inputs[0], perm=tuple(inner[p] for p in perm), name=node.name
        )
    view = edit.producer(x, "reshape")
    over = None if view is None else permuted_runs(view.inputs[0].shape, x.shape, perm)
    if view is not None and over is not None:
        moved = edit.emit("transpose", view.inputs[0], perm=over)
        return edit.emit("reshape", moved, shape=node.output.shape, name=node.name)
    moved = [p for p in perm if x.shape[p] != ONE]
    if moved == sorted(moved):  # only axes of size 1 move: no element does
        return edit.emit("reshape", x, shape=node.output.shape, name=node.name)
    return None


def permuted_runs(
    old: sizes.Shape, new: sizes.Shape, perm: tuple[int, ...]
) -> tuple[int, ...] | None:
    """The permutation of `old` that `perm` of its reshaped form `new` is, if it moves whole runs
    of axes.

    Axes of size 1 come first: where they stand does not matter.
    """
    made: list[int] = []
    taken = list(perm)
    runs = {run[0].start: run for run in aligned_axes(new, old) if len(run[0])}
    if sum(len(run[1]) for run in runs.values()) != len(old):
        return None
    while taken:
        run = runs.get(taken[0])
        if run is None or taken[: len(run[0])] != list(run[0]):
            return None
        made += run[1]
        taken = taken[len(run[0]) :]
    return tuple(sorted(made, key=lambda d: old[d] != ONE))


def expand(edit: Edit, node: Node) -> Any:
    return node.inputs[0] if node.inputs[0].shape == node.output.shape else None


def slice_(edit: Edit, node: Node) -> Any:
    whole = all(as_int(s) == 0 for s in node["starts"]) and all(s == 1 for s in node["steps"])
    return node.inputs[0] if whole and node.output.shape == node.inputs[0].shape else None


def slice_under_view(edit: Edit, node: Node) -> Any:
    """A slice of min(n, 512) elements that the run finds to be n is one of n."""
    (x,) = node.inputs
    cut = edit.producer(x, "slice")
    if cut is None or x.rank != node.output.rank or not edit.only(x):
        return None
    apart = [(a, b) for a, b in zip(x.shape, node.output.shape, strict=True) if a != b]
    if len(apart) != 1 or as_int(apart[0][0]) is not None:  # of two, each may be the other
        return None
    attrs = dict(cut.attrs) | {"shape": node.output.shape}
    return edit.emit("slice", *cut.inputs, **attrs, name=node.name)


def slice_before_view(edit: Edit, node: Node) -> Any:
    """slice(reshape(x)) → reshape(slice(x)) where the view but adds or leaves out axes of size 1:
    the slice can join what made x."""
    view = edit.producer(node.inputs[0], "reshape")
    maker = edit.producer(view.inputs[0]) if view is not None else None
    if view is None or maker is None or OPERATORS[maker.op].view:
        return None
    (x,) = view.inputs
    seen = [d for d, size in enumerate(view.output.shape) if size != ONE]
    axes = [d for d, size in enumerate(x.shape) if size != ONE]
    if [view.output.shape[d] for d in seen] != [x.shape[d] for d in axes]:
        return None
    if any(as_int(n) != 1 for d, n in enumerate(node["shape"]) if d not in seen):
        return None  # nothing is taken of an axis of size 1
    starts, shape, steps = [0] * x.rank, [*x.shape], [1] * x.rank
    for d, axis in zip(seen, axes, strict=True):
        starts[axis], shape[axis] = node["starts"][d], node["shape"][d]
        steps[axis] = node["steps"][d] if node["steps"] else 1
    taken = edit.emit("slice", x, starts=tuple(starts), shape=tuple(shape), steps=tuple(steps))
    return edit.emit("reshape", taken, shape=node.output.shape, name=node.name)


def cast(edit: Edit, node: Node) -> Any:
    return node.inputs[0] if node.inputs[0].dtype is node.output.dtype else None


def concat(edit: Edit, node: Node) -> Any:
    """One part is the whole. Many parts of sizes that have nothing to do with each other → parts of
    parts: in one kernel each comparison with a start would be weighed against all the others."""
    parts, axis = node.inputs, node["axis"]
    if len(parts) == 1:
        return parts[0]
    lengths = [p.shape[axis] for p in parts]
    if len(parts) <= MOST_PARTS or len(sizes.symbols(lengths)) <= MOST_PARTS:
        return None
    runs = [parts[k : k + MOST_PARTS] for k in range(0, len(parts), MOST_PARTS)]
    joined = [edit.emit("concat", *run, axis=axis) if run[1:] else run[0] for run in runs]
    return edit.emit("concat", *joined, axis=axis, name=node.name)


def pad(edit: Edit, node: Node) -> Any:
    nothing = all(as_int(p) == 0 for p in (*node["before"], *node["after"]))
    return node.inputs[0] if nothing else None


def gather_along_one(edit: Edit, node: Node) -> Any:
    """gather_nd of constant indices → gather along the indexed axes seen as one, wherever in front
    of which a transpose found them."""
    x, indices = node.inputs
    table = edit.content(indices)
    if table is None or table.dtype.kind not in "iu" or node["batch_dims"]:
        return None
    depth = table.shape[-1]
    if depth < 2 or not table.size:
        return None
    perm: tuple[int, ...] = tuple(range(x.rank))
    moved = edit.producer(x, "transpose")
    if moved is not None:
        (first, *_), (source,) = moved["perm"], moved.inputs
        rest = [d for d in perm if not first <= d < first + depth]
        if moved["perm"] == (*range(first, first + depth), *rest):
            x, perm = source, moved["perm"]
    start = perm[0]
    shape = [as_int(s) for s in x.shape[start : start + depth]]
    if None in shape or 0 in shape:
        return None
    strides = np.cumprod([1, *shape[:0:-1]])[::-1]  # type: ignore[list-item]
    flat = np.zeros(table.shape[:-1], np.int64)
    for d, (size, stride) in enumerate(zip(shape, strides, strict=True)):
        at = table[..., d].astype(np.int64)
        flat += np.clip(np.where(at < 0, at + size, at), 0, size - 1) * stride  # type: ignore[operator]
    before, after = x.shape[:start], x.shape[start + depth :]
    one = edit.emit("reshape", x, shape=(*before, math.prod(shape), *after))  # type: ignore[arg-type]
    made = edit.emit("gather", one, edit.constant(flat), axis=start)
    found = range(start, start + flat.ndim)
    others = [d for d in range(made.rank) if d not in found]
    return edit.emit("transpose", made, perm=(*found, *others), name=node.name)


def tile(edit: Edit, node: Node) -> Any:
    """A known number of repetitions is an axis of its own: x is stretched along it, and rows are
    copied whole, where the remainder of an index would be taken for each element."""
    x, repeats = node.inputs[0], node["repeats"]
    if any(as_int(r) is None for r in repeats):
        return None
    thin: list[Any] = []
    wide: list[Any] = []
    for size, count in zip(x.shape, repeats, strict=True):
        if count != 1:
            thin.append(1)
            wide.append(count)
        if count == 1 or size != ONE:
            thin.append(size)
            wide.append(size)
    made = edit.emit("reshape", x, shape=tuple(thin))
    made = edit.emit("expand", made, shape=tuple(wide))
    return edit.emit("reshape", made, shape=node.output.shape, name=node.name)


# broadcasting
# ---------------------------------------------------------------------------------------------


def needless_expand(edit: Edit, node: Node) -> Any:
    """An operand that is expanded although the operator broadcasts it to the same shape."""
    for n, value in enumerate(node.inputs):
        before = edit.producer(value, "expand")
        if before is None:
            continue
        inputs = (*node.inputs[:n], before.inputs[0], *node.inputs[n + 1 :])
        if broadcast_shape(*[v.shape for v in inputs]) == node.output.shape:
            return edit.emit(node.op, *inputs, **dict(node.attrs), name=node.name)
    return None


# arithmetic
# -----------------------------------------------------------------------------------------------


def neutral(edit: Edit, node: Node) -> Any:
    """x + 0, x - 0, x · 1, x / 1, x^1."""
    x, y = node.inputs
    element = 0 if node.op in ("add", "sub") else 1
    if x.shape == node.output.shape and number(edit, y) == element:
        return x
    if node.op in ("add", "mul") and y.shape == node.output.shape and number(edit, x) == element:
        return y
    return None


def exact_division(edit: Edit, node: Node) -> Any:
    """x / 2^k is x · 2^-k, exactly."""
    x, y = node.inputs
    divisor = number(edit, y) if x.dtype.is_float else None
    if not divisor or abs(math.frexp(divisor)[0]) != 0.5 or not 1e-30 < abs(divisor) < 1e30:
        return None
    inverse = edit.constant(np.full(y.static_shape or (), 1 / divisor, y.dtype.numpy), "inverse")
    return edit.emit("mul", x, inverse, name=node.name)


def bound_to_relu(edit: Edit, node: Node) -> Any:
    """clip(x, 0) and maximum(x, 0) are relu."""
    if node.op == "clip":
        if node["low"] == 0 and (node["high"] is None or node["high"] == math.inf):
            return edit.emit("relu", node.inputs[0], name=node.name)
        return node.inputs[0] if node["low"] is None and node["high"] is None else None
    x, y = node.inputs
    for a, b in ((x, y), (y, x)):
        if a.shape == node.output.shape and number(edit, b) == 0:
            return edit.emit("relu", a, name=node.name)
    return None


def idempotent(edit: Edit, node: Node) -> Any:
    return node.inputs[0] if edit.producer(node.inputs[0], node.op) else None


def no_logarithm_of_softmax(edit: Edit, node: Node) -> Any:
    """log(softmax(x)) is log_softmax(x), which does not underflow."""
    before = edit.producer(node.inputs[0], "softmax")
    if before is None:
        return None
    return edit.emit("log_softmax", before.inputs[0], axis=before["axis"], name=node.name)


# convolutions and matrix products
# ---------------------------------------------------------------------------


def groups_as_rows(edit: Edit, node: Node) -> Any:
    """group_norm is a layer norm of rows: what is normalised together becomes the last axes. Then
    each group's statistics are where its elements are, and groups run in parallel. Small floats
    stay wide up to the result."""
    x, scale, bias = node.inputs
    kind, channels, groups = x.dtype, as_int(x.shape[1]), node["groups"]
    if channels is None or groups in (0, channels):
        return None
    small = kind.bits < 32
    if small:
        x, scale, bias = (edit.emit("cast", v, to="f32") for v in node.inputs)
    each = groups, channels // groups
    space = x.shape[2:]
    rows = edit.emit("reshape", x, shape=(x.shape[0], *each, *space))
    made = edit.emit("layer_norm", rows, axis=2, eps=node["eps"])
    for op, vector in (("mul", scale), ("add", bias)):
        wide = edit.emit("reshape", vector, shape=(*each, *(1,) * len(space)))
        made = edit.emit(op, made, wide)
    made = edit.emit("cast", made, to=kind.name) if small else made
    return edit.emit("reshape", made, shape=x.shape, name=node.name)


def whole_image(edit: Edit, node: Node) -> Any:
    """A window over all of the image is a reduction of it."""
    x = node.inputs[0]
    pads = node["pads"] or ()
    covered = tuple(as_int(size) for size in x.shape[2:]) == tuple(node["kernel"])
    once = all(size == ONE for size in node.output.shape[2:])
    whole = covered and once and not any(a or b for a, b in pads)
    if not whole or (node.op == "avg_pool" and (node["inside"] or not x.dtype.is_float)):
        return None
    op = "reduce_mean" if node.op == "avg_pool" else "reduce_max"
    return edit.emit(op, x, axes=tuple(range(2, x.rank)), keepdims=True, name=node.name)


def pad_in_window(edit: Edit, node: Node) -> Any:
    """Zeros that a pad adds on space axes, a convolution can add itself."""
    before = edit.producer(node.inputs[0], "pad")
    if before is None or before["mode"] != "constant" or before["value"] != 0:
        return None
    low, high = sizes.static(before["before"]), sizes.static(before["after"])
    if low is None or high is None or any((*low[:2], *high[:2])):
        return None
    if node.op == "avg_pool" and not node["count_pads"] and any(a or b for a, b in node["pads"]):
        return None
    attrs, image = dict(node.attrs), before.inputs[0].shape
    inside = tuple((a, sizes.size(s + a)) for a, s in zip(low[2:], image[2:], strict=True))
    if node.op == "avg_pool" and node["inside"] and plain(node["inside"]) != plain(inside):
        return None
    own = attrs["pads"] or ((0, 0),) * (len(low) - 2)
    attrs["pads"] = tuple((a + low[d], b + high[d]) for d, (a, b) in enumerate(own, 2))
    if node.op == "avg_pool":
        attrs |= {"count_pads": not node["inside"], "inside": ()}
    return edit.emit(node.op, before.inputs[0], *node.inputs[1:], **attrs, name=node.name)


def pad_after_sum(edit: Edit, node: Node) -> Any:
    """Zeros that a pad adds along the axes of a sum add nothing; others are added to its result."""
    before = edit.producer(node.inputs[0], "pad")
    if before is None or before["mode"] != "constant" or before["value"] != 0:
        return None
    low, high = sizes.static(before["before"]), sizes.static(before["after"])
    if low is None or high is None:
        return None
    rank, axes = len(low), node["axes"]
    along = {a % rank for a in (range(rank) if axes is None else axes)}
    kept = [d for d in range(rank) if d not in along or node["keepdims"]]
    sides = [tuple(0 if d in along else side[d] for d in kept) for side in (low, high)]
    made = edit.emit("reduce_sum", before.inputs[0], **dict(node.attrs), name=node.name)
    return edit.emit("pad", made, before=sides[0], after=sides[1]) if any(map(any, sides)) else made


def transpose_in_matmul(edit: Edit, node: Node) -> Any:
    """A transposed operand whose last axis came from elsewhere is read transposed instead.

    The other axes keep their move, so q, k and v of an attention come out the same: rows stay
    contiguous.
    """
    for n, flag in ((0, "transpose_a"), (1, "transpose_b")):
        before = edit.producer(node.inputs[n], "transpose")
        if before is None:
            continue
        perm = before["perm"]
        last = len(perm) - 1
        if perm[-2] != last:
            continue
        swapped = (*perm[:-2], perm[-1], perm[-2])
        operand = edit.emit("transpose", before.inputs[0], perm=swapped)
        inputs = (*node.inputs[:n], operand, *node.inputs[n + 1 :])
        attrs = {**dict(node.attrs), flag: not node[flag]}
        return edit.emit("matmul", *inputs, **attrs, name=node.name)
    return None


def column_of_transposed(edit: Edit, node: Node) -> Any:
    """matmul(x, w, transpose_a=True) of one column is matmul(wᵀ, x): its one row lies along x's
    lines, as vectors do."""
    x, w = node.inputs
    *batch, rows, columns = node.output.shape
    if not node["transpose_a"] or columns != ONE or rows == ONE:
        return None
    if not node["transpose_b"]:
        w = edit.emit("reshape", w, shape=(*w.shape[:-2], ONE, w.shape[-2]))
    made = edit.emit("matmul", w, x, **types_of(node))
    return edit.emit("reshape", made, shape=(*batch, rows, ONE), name=node.name)


def matmul_of_rows(edit: Edit, node: Node) -> Any:
    """matmul(reshape(x), w) that only merges x's rows is reshape(matmul(x, w)): the view moves
    on."""
    x, w = node.inputs
    view = edit.producer(x, "reshape")
    if view is None or node["transpose_a"] or x.rank != 2 or w.rank != 2:
        return None
    source = view.inputs[0]
    if source.rank < 2 or source.shape[-1] != x.shape[-1]:
        return None
    made = edit.emit("matmul", source, w, **dict(node.attrs))
    return edit.emit("reshape", made, shape=node.output.shape, name=node.name)


def number_out_of_matmul(edit: Edit, node: Node) -> Any:
    """A number that scales an operand goes into the other's constant, or scales the result
    instead. Not of small floats: models scale before the product so that it does not overflow, and
    each step's rounding shows."""
    if node.output.dtype.is_float and node.output.dtype.bits < 32:
        return None
    if not is_of_one_type(node):
        return None
    for n in (0, 1):
        before = edit.producer(node.inputs[n], "mul")
        if before is None or not edit.only(before.output):
            continue
        found = operand(edit, before)
        if found is None or (by := number(edit, found[2])) is None:
            continue
        other = node.inputs[1 - n]
        weights = edit.content(other)
        if weights is not None:
            other = edit.constant(weights * weights.dtype.type(by), other.name)
        inputs = (found[0], other) if n == 0 else (other, found[0])
        if weights is not None:
            return edit.emit("matmul", *inputs, **dict(node.attrs), name=node.name)
        made = edit.emit("matmul", *inputs, **dict(node.attrs))
        factor = edit.constant(np.asarray(by, made.dtype.numpy), "scale")
        return edit.emit("mul", made, factor, name=node.name)
    return None


def operand(edit: Edit, node: Node) -> tuple[Value, np.ndarray, Value] | None:
    """(x, array, c) of a binary node that combines a value x of its own shape with a constant c."""
    for x, c in (node.inputs, node.inputs[::-1]):
        array = edit.content(c)
        if array is not None and x not in edit.constants and x.shape == node.output.shape:
            return x, array, c
    return None


def reshape_after(edit: Edit, node: Node) -> Any:
    """Element-wise work on a reshaped value moves before the reshape, where it can join what made
    the value.

    f(reshape(x), c…) → reshape(f(x, c'…)), for operands c that are single numbers, vectors along an
    unchanged last axis, or of the result's own shape (those are reshaped back: a view).
    """
    shape = node.output.shape
    for n, value in enumerate(node.inputs):
        view = edit.producer(value, "reshape")
        if view is None or value.shape != shape or not edit.only(value):
            continue
        x = view.inputs[0]
        maker = edit.producer(x)
        if maker is None or OPERATORS[maker.op].view or not edit.only(x):
            continue
        others = [_before_view(edit, v, shape, x) for k, v in enumerate(node.inputs) if k != n]
        if any(v is None for v in others):
            continue
        inputs = [*others[:n], x, *others[n:]]
        moved = edit.emit(node.op, *inputs, **dict(node.attrs))
        return edit.emit("reshape", moved, shape=shape, name=node.name)
    return None


def _before_view(edit: Edit, value: Value, shape: sizes.Shape, x: Value) -> Value | None:
    """`value` so that it broadcasts against x (whose reshaped form has `shape`), or None."""
    if all(s == ONE for s in value.shape):
        if value.rank <= x.rank:
            return value
        return edit.emit("reshape", value, shape=())
    if value.rank == 1 and x.rank and value.shape[0] == shape[-1] == x.shape[-1]:
        return value
    if value.shape == shape and value not in edit.constants:
        return edit.emit("reshape", value, shape=x.shape)
    ones = [p for p in range(x.rank) if (*shape[:p], ONE, *shape[p:]) == x.shape]
    if ones and value.rank <= len(shape):  # the view only leaves out an axis of size 1
        whole = (ONE,) * (len(shape) - value.rank) + value.shape
        return edit.emit("reshape", value, shape=(*whole[: ones[0]], 1, *whole[ones[0] :]))
    return None


_ELEMENTWISE = [
    name for name, entry in OPERATORS.items()
    if entry.fusion is BROADCAST and name not in ("batch_norm", "copy") and not entry.package
]  # fmt: skip

RULES: dict[str, list[Rule]] = {
    "copy": [drop_copy],
    "reshape": [reshape],
    "transpose": [transpose],
    "expand": [expand],
    "slice": [slice_, slice_before_view],
    "view_as": [slice_under_view],
    "cast": [cast],
    "concat": [concat],
    "pad": [pad],
    "tile": [tile],
    "gather_nd": [gather_along_one],
    "add": [neutral],
    "sub": [neutral],
    "mul": [neutral],
    "div": [neutral, exact_division],
    "pow": [neutral],
    "clip": [bound_to_relu],
    "maximum": [bound_to_relu],
    "relu": [idempotent],
    "abs": [idempotent],
    "log": [no_logarithm_of_softmax],
    "group_norm": [groups_as_rows],
    "conv": [pad_in_window],
    "avg_pool": [pad_in_window, whole_image],
    "max_pool": [whole_image],
    "reduce_sum": [pad_after_sum],
    "matmul": [matmul_of_rows, number_out_of_matmul, transpose_in_matmul, column_of_transposed],
}
for _name in _ELEMENTWISE:
    RULES.setdefault(_name, []).extend([needless_expand, reshape_after])
