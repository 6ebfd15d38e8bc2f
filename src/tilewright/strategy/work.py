"""How much work a function is: floating-point operations and elements touched, counted from its
blocks."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from tilewright.ir.expr import Binary, Const, Expr, Load, Unary, Var, const, minimum
from tilewright.ir.stmt import Buffer, Func, Store
from tilewright.ir.walk import blocks, free_vars, visit


def flops(func: Func) -> Expr:
    """Floating-point operations of a function in stage "blocks" (a multiply-add counts two)."""
    total: Expr = const(0)
    for block in blocks(func.body):
        each = sum(n.__class__ in _OPERATORS and n.a.dtype.is_float for n in visit(block.body))  # type: ignore[attr-defined]
        if each:
            total = total + _product(tuple([axis.extent for axis in block.axes]), each)
    return total


def touched(func: Func) -> dict[Buffer, Expr]:
    """How many elements of each parameter a function in stage "blocks" reads or writes at most,
    each counted once: all of what it stores to; of the others, no more than its loads have places
    to point at, for a look-up reads few rows of a large table, a slice a part of its operand."""
    written: set[Buffer] = set()
    read: dict[Buffer, Expr] = {}
    for block in blocks(func.body):
        extents = {axis.var: axis.extent for axis in block.axes}
        found: set[Load] = set()
        for n in visit(block):
            if n.__class__ is Load:
                found.add(n)  # type: ignore[arg-type]
            elif n.__class__ is Store:
                written.add(n.buffer)  # type: ignore[attr-defined]
        for load in found:
            read[load.buffer] = read.get(load.buffer, const(0)) + _places(load.indices, extents)
    whole = {buffer: _product(buffer.shape) for buffer in func.buffers}
    return {
        buffer: minimum(count, read[buffer]) if buffer in read and buffer not in written else count
        for buffer, count in whole.items()
    }


def _places(indices: tuple[Expr, ...], extents: Mapping[Var, Expr]) -> Expr:
    """Values that these indices take together: no more than the axes they follow from allow."""
    axes = {var for index in indices for var in free_vars(index)}
    return _product(tuple(extent for var, extent in extents.items() if var in axes))


def _product(extents: tuple[Expr, ...], times: int = 1) -> Expr:
    numbers = [e.value for e in extents if isinstance(e, Const)]
    total: Expr = const(times * prod(numbers))
    if len(numbers) < len(extents):
        for extent in extents:
            total = total if isinstance(extent, Const) else total * extent
    return total


_OPERATORS = frozenset({Binary, Unary})
