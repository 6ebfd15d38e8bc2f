"""Contiguous: which axes of a block walk along memory."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from tilewright.arith.affine import Forms
from tilewright.ir.expr import Load, Var, as_int, const
from tilewright.ir.stmt import Axis, Block
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


def is_moved_near(block: Block, axis: Var) -> bool:
    """Are neighbours along `axis` read at most STEP elements apart, in whichever index, by a block
    that moves what it reads?"""
    forms = Forms({})
    for load in loads(block.body):
        using = [d for d, i in enumerate(load.indices) if axis in free_vars(i)]
        if len(using) != 1 or load.buffer.strides is not None:
            return False
        inner = prod(as_int(size) or 0 for size in load.buffer.shape[using[0] + 1 :])
        terms = forms.affine(load.indices[using[0]]).terms
        if any(t != axis and axis in free_vars(t) for t in terms):
            return False
        if not 0 < terms.get(axis, 0) * inner <= STEP:
            return False
    return True


def in_order(block: Block, axes: Sequence[Axis]) -> bool:
    """Are these the last indices of every load of another buffer that has them, over its whole
    extents?"""
    own = written(block)
    variables, extents = tuple(a.var for a in axes), tuple(a.extent for a in axes)
    found = [
        n
        for n in loads(block.body)
        if n.buffer not in own and any(free_vars(i) & {*variables} for i in n.indices)
    ]
    return all(
        n.indices[-len(axes) :] == variables and n.buffer.shape[-len(axes) :] == extents
        for n in found
    )
