"""How much work a function is: floating-point operations, counted from its blocks."""

from __future__ import annotations

from tilewright.ir.expr import Binary, Expr, Unary, const
from tilewright.ir.stmt import Func
from tilewright.ir.walk import blocks, visit


def flops(func: Func) -> Expr:
    """Floating-point operations of a function in stage "blocks" (a multiply-add counts two)."""
    total: Expr = const(0)
    for block in blocks(func.body):
        each = sum(isinstance(n, Binary | Unary) and n.a.dtype.is_float for n in visit(block.body))
        if each:
            count: Expr = const(each)
            for axis in block.axes:
                count = count * axis.extent
            total = total + count
    return total
