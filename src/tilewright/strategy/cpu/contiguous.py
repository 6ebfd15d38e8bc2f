"""Contiguous: which axes of a block walk along memory."""

from __future__ import annotations

from tilewright.arith.affine import Forms
from tilewright.ir.expr import Load, Var, const
from tilewright.ir.stmt import Block
from tilewright.ir.walk import free_vars, loads, substitute
from tilewright.strategy.absorb import written

STEP = 4  # elements between neighbouring lanes that a few loads cover


def contiguous(block: Block, axis: Var, most: int = 1, run: int = 0) -> bool:
    """Does every load of another buffer that uses `axis` go on in its last index with it, by one
    element or at `most` so many (and does one use it)? `run`: it may go on elsewhere after each so
    many, as the channels of a packed image do.
    """
    own = written(block)
    using = [
        n for n in loads(block.body)
        if n.buffer not in own and any(axis in free_vars(i) for i in n.indices)
    ]  # fmt: skip
    return bool(using) and all(
        runs_along(n, axis, most) or (run > 1 and runs_along(in_runs(n, axis, run), axis, most))
        for n in using
    )


def in_runs(load: Load, axis: Var, run: int) -> Load:
    """The load of an element within a run of so many along `axis`, which then counts from the run's
    beginning."""
    first, forms = Var(f"{axis.name}_run"), Forms({axis: (0, run - 1)})
    within = {axis: first * run + axis}
    return load.replace(
        indices=tuple(forms.simplified(substitute(i, within)) for i in load.indices)
    )


def runs_along(load: Load, axis: Var, most: int = 1) -> bool:
    """Does a load go on in its last index with `axis`, by one element or at `most` so many?"""
    long = [n for n, size in enumerate(load.buffer.shape) if size != const(1)]
    if [n for n, i in enumerate(load.indices) if axis in free_vars(i)] != long[-1:]:
        return False
    inner = load.indices[long[-1]]
    form = Forms({}).affine(inner)
    return all(
        0 < c <= most if t == axis else axis not in free_vars(t) for t, c in form.terms.items()
    )
