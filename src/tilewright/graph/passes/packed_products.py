"""packed_products: products and recurrences read their weights in panels.

In: a node of the plain graph, and the layouts of its inputs. Out: True if it now reads its right
operand, or the weights of its state, in panels: blocks of neighbouring columns that fill vectors,
which a product walks as they lie. False: it needs its inputs plain.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np

from tilewright.arith.estimate import SEQUENCE, estimate
from tilewright.graph import sizes
from tilewright.graph.graph import Constant, Node, Value
from tilewright.graph.operator import RECURRENT, having
from tilewright.graph.ops.packed import pack_dense
from tilewright.graph.ops.recurrent import pack_recurrent, packed_recurrent
from tilewright.graph.passes.packed_values import PackedValues
from tilewright.graph.passes.sought_layouts import is_f32
from tilewright.ir.expr import as_int


def matmul(edit: PackedValues, node: Node) -> bool:
    x, w = node.inputs
    weights, transposed = edit.constants.get(w), bool(node["transpose_b"])
    *batch, depth, columns = w.shape[:-2] + (w.shape[:-3:-1] if transposed else w.shape[-2:])
    depth, wide = as_int(depth), as_int(columns)
    if depth is None or (wide is None and weights is not None) or not is_f32(node):
        return False
    if batch and (weights is not None or tuple(batch) != x.shape[:-2]):
        return False
    if weights is None and 0 in (as_int(s) for s in w.shape):
        return False
    rows, transpose_a = (
        sizes.static(node.output.shape[len(batch) : -1]),
        bool(node["transpose_a"]),
    )
    count = None if rows is None else prod(rows)
    is_packed = edit.policy.is_packed_product(
        count,
        depth,
        wide,
        is_known=weights is not None,
        transpose_a=transpose_a,
        transpose_b=transposed,
        of=w.dtype,
    )
    pick = "packed" if is_packed else "plain"
    if edit.decide(node, "algorithm", pick, ("plain", "packed")) == "plain":
        return False
    vectors = None if wide is None else -(-wide // edit.lanes)
    panel = edit.policy.panel(SEQUENCE if count is None else count, vectors, depth, w.dtype)
    block = edit.lanes * edit.decide(node, "panel", panel, edit.policy.panels(vectors))
    packed = (
        _packed_in_run(edit, w, block, transposed)
        if weights is None
        else _packed_weights(edit, w, weights, block, transposed)
    )
    left = edit.plain(x)
    if transpose_a:
        *lead, inner, outer = range(x.rank)
        left = edit.emit("transpose", left, perm=(*lead, outer, inner))
    edit.replaced[node.output] = edit.emit("dense_packed", left, packed, channels=columns)
    return True


def _packed_in_run(edit: PackedValues, w: Value, block: int, transposed: bool) -> Value:
    """What `pack_dense` does, for an operand that the run computes."""
    w = edit.plain(w)
    *batch, rows, columns = w.shape
    n = len(batch)
    wide = rows if transposed else columns
    blocks = sizes.size((wide + (block - 1)) // block)
    more = sizes.size(blocks * block - wide)
    if as_int(more) != 0:
        after: list[sizes.SizeLike] = [0] * w.rank
        after[n if transposed else n + 1] = more
        w = edit.emit("pad", w, before=(0,) * w.rank, after=tuple(after))
    cut = (blocks, block, columns) if transposed else (rows, blocks, block)
    perm = (n, n + 2, n + 1) if transposed else (n + 1, n, n + 2)
    in_blocks = edit.emit("reshape", w, shape=(*batch, *cut))
    return edit.emit("transpose", in_blocks, perm=(*range(n), *perm))


def _packed_weights(
    edit: PackedValues, w: Value, weights: Constant, block: int, transposed: bool
) -> Value:
    """Packed weights of a product."""
    k, n = weights.shape[::-1] if transposed else weights.shape

    def packed(first: int = 0, last: int | None = None) -> np.ndarray:
        own = weights.array.T if transposed else weights.array
        return pack_dense(own[:, first * block : None if last is None else last * block], block)

    shape = (-(-n // block), k, block)
    return edit.later((w, block, transposed), packed, weights.dtype, shape, packed)


def recurrent(edit: PackedValues, node: Node) -> bool:
    """Weights of the state stand in panels, each of neighbouring rows of one gate: vectors of a
    gate's elements lie along memory, which a step's product walks as it lies."""
    w, h = node.inputs[1], node.inputs[2 + (node.op == "gru")]
    weights = edit.constants.get(w)
    if weights is None or w.rank == 3:
        return False
    rows, hidden = weights.shape
    block = hidden
    if hidden > edit.lanes:
        vectors = -(-hidden // edit.lanes)
        most = edit.policy.panel(estimate(h.shape[0]), vectors, hidden, w.dtype)
        fitting = [n for n in (most, most - 1) if n and vectors % n == 0]  # zeros fill none
        own = (fitting or [most])[0]
        block = edit.lanes * edit.decide(node, "panel", own, edit.policy.panels(vectors))
    panels = edit.later(
        (w, block, "recurrent"),
        lambda: pack_recurrent(weights.array, block),
        weights.dtype,
        packed_recurrent(rows, hidden, block),
    )
    inputs = [panels if n == 1 else edit.plain(v) for n, v in enumerate(node.inputs)]
    made = edit.emit(node.op, *inputs, **dict(node.attrs))
    edit.replaced.update(zip(node.outputs, made, strict=True))
    return True


PRODUCTS: dict[str, Callable[[PackedValues, Node], bool]] = {
    "matmul": matmul,
    **dict.fromkeys(having(RECURRENT), recurrent),
}
