"""Roles: what a function is to a strategy, for whatever machine.

In: a function in stage "blocks". Out: its role, by which a kind of machine finds the family that
schedules it. The one idea: an operator's definition says what part a block plays (`role`), and the
function is what its anchor is, the one block with such a part.
"""

from __future__ import annotations

from tilewright.ir.stmt import Func
from tilewright.ir.walk import blocks, loads
from tilewright.strategy.absorb import is_reduction, role, written

ROLES = (
    "attention",
    "conv_packed",
    "conv_transpose_packed",
    "dense_packed",
    "depthwise_packed",
    "depthwise_transpose_packed",
    "lrn",
    "matmul",
    "pointwise",
    "pointwise_packed",
    "reduction",
    "winograd_product",
)


def family(func: Func) -> str:
    """The role of a function: "attention", that of its anchor, "reduction" or "pointwise". The
    steps of a recurrence have no anchor: none of their blocks is alone."""
    found = blocks(func.body)
    plain = "reduction" if any(is_reduction(b) for b in found) else "pointwise"
    if any(axis.kind == "ordered" for b in found for axis in b.axes):
        return plain
    if scores(func):
        return "attention"
    return next((role(b) for b in found if role(b) in ROLES), plain)


def products(func: Func) -> list[str]:
    """The blocks that are matrix products, in order."""
    return [b.name for b in blocks(func.body) if role(b) in ("dense_packed", "matmul")]


def scores(func: Func) -> set[str]:
    """The block that makes what the softmax of an attention reads, in a set; none elsewhere: two
    products without a reduction between them are the body of a loop."""
    if len(products(func)) != 2:
        return set()
    found = blocks(func.body)
    names = [b.name for b in found]
    first, second = (names.index(name) for name in products(func))
    highest = next((b for b in found[first + 1 : second] if is_reduction(b)), None)
    if highest is None:
        return set()
    read = {n.buffer for n in loads(highest.body)} - written(highest)
    return {b.name for b in found if written(b) & read}
