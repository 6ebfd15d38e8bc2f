"""Functions with numbers for their open sizes.

In: a function of te whose sizes are variables, numbers by their names. Out: the function at these
sizes, without parameters for them.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

from tilewright.graph import sizes
from tilewright.ir.expr import Buffer, Expr, Var, const
from tilewright.ir.stmt import Func
from tilewright.ir.walk import replace_buffers, substitute, visit
from tilewright.support.errors import CompileError


def with_sizes(func: Func, numbers: Mapping[str, Any], asked: str) -> Func:
    """The function with numbers for those of its sizes that are named. Raises CompileError, of what
    was `asked`, for a name that it has not and for what is no size."""
    symbols = {p.name: p for p in func.params if isinstance(p, Var)}
    table: dict[Var, Expr] = {}
    for name, number in numbers.items():
        if name not in symbols:
            raise CompileError(
                f"{asked} with shapes={{{name!r}: {number!r}}}",
                f"the function has no open size '{name}'",
                remedy=f"it has: {', '.join(symbols) or 'none'}",
            )
        try:
            size = operator.index(number)
        except TypeError:
            size = -1
        if size < 1:
            raise CompileError(
                f"{asked} with shapes={{{name!r}: {number!r}}}",
                "a size is a whole number from 1 on",
            )
        table[symbols[name]] = const(size)
    if not table:
        return func
    inside = (getattr(n, "buffer", None) for n in visit(func.body))
    buffers = dict.fromkeys([*func.buffers, *(b for b in inside if isinstance(b, Buffer))])
    fixed = {b: _fixed(b, table) for b in buffers}
    params = tuple(
        [fixed[p] if isinstance(p, Buffer) else p for p in func.params if p not in table]
    )
    body = replace_buffers(substitute(func.body, table), fixed)
    return func.replace(params=params, body=body)


def _fixed(buffer: Buffer, table: Mapping[Var, Expr]) -> Buffer:
    shape = tuple([substitute(sizes.size(d), table) for d in buffer.shape])
    return buffer.replace(shape=sizes.shape(shape))
