"""Contiguous: which axes of a block walk along memory."""

from __future__ import annotations

from tilewright.arith.affine import Forms
from tilewright.ir.expr import Load, Var, const
from tilewright.ir.stmt import Block
from tilewright.ir.walk import free_vars, loads
from tilewright.strategy.absorb import written

STEP = 4  # places between neighbouring lanes that a few loads cover


def contiguous(block: Block, axis: Var, most: int = 1) -> bool:
    """Does every load of another buffer that uses `axis` go on in its last index with it, by one
    place or at `most` so many (and does one use it)?
    """
    own = written(block)
    using = [
        n for n in loads(block.body)
        if n.buffer not in own and any(axis in free_vars(i) for i in n.indices)
    ]  # fmt: skip
    return bool(using) and all(runs_along(n, axis, most) for n in using)


def runs_along(load: Load, axis: Var, most: int = 1) -> bool:
    """Does a load go on in its last index with `axis`, by one place or at `most` so many?"""
    long = [n for n, size in enumerate(load.buffer.shape) if size != const(1)]
    if [n for n, i in enumerate(load.indices) if axis in free_vars(i)] != long[-1:]:
        return False
    inner = load.indices[long[-1]]
    form = Forms({}).affine(inner)
    return all(
        0 < c <= most if t == axis else axis not in free_vars(t) for t, c in form.terms.items()
    )
