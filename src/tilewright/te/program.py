"""`program`: tensors made by explicit loops, as text.

In: the text of a function (see `ir/text.py`) whose first parameters are the given tensors, and
those tensors. Out: tensors for the parameters that follow. The one idea: an algorithm that is no
function of indices (a factorisation, a recurrence in place) reads best as the program it is. The
text's sizes take the tensors' sizes; `T` stands for a dtype; loops and names may repeat.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from tilewright.ir.expr import Buffer, Expr, Var
from tilewright.ir.parse import parse_func
from tilewright.ir.stmt import Alloc, For, Func, Let, Stmt
from tilewright.ir.walk import fresh, replace_buffers, substitute
from tilewright.te.tensor import Tensor, extern


def program(text: str, given: Sequence[Tensor], of: Any, **sizes: Expr) -> Any:
    """The tensors that the function in `text` makes of `given`: one, or a tuple of several.

    Buffers after the first len(given) are results. `of` is the dtype that `T` stands for; `sizes`
    gives those size parameters that are no extent of a given tensor. Raises ValueError where a
    tensor does not fit its parameter.
    """
    func = _written(text, str(of))
    values = _sizes(func, given, sizes)
    buffers = func.buffers
    results = buffers[len(given) :]
    shapes = [tuple(substitute(d, values) for d in b.shape) for b in results]

    def body(inputs: list[Buffer], outputs: list[Buffer]) -> Stmt:
        replaced = dict(zip(buffers, (*inputs, *outputs), strict=True))
        return substitute(_resized(replace_buffers(func.body, replaced), values), values)

    made = extern(shapes, given, body, dtype=[b.dtype for b in results], name=func.name)
    return made if len(results) > 1 else made[0]


def _sizes(func: Func, given: Sequence[Tensor], sizes: Mapping[str, Expr]) -> dict[Var, Expr]:
    """The value of each size parameter."""
    values: dict[Var, Expr] = {Var(name): value for name, value in sizes.items()}
    for buffer, tensor in zip(func.buffers, given, strict=False):
        if buffer.dtype is not tensor.dtype or buffer.rank != tensor.ndim:
            raise ValueError(f"'{buffer.name}' is {buffer.dtype} of rank {buffer.rank}: {tensor}")
        for d, extent in zip(buffer.shape, tensor.shape, strict=True):
            if isinstance(d, Var) and values.setdefault(d, extent) != extent:
                raise ValueError(f"{tensor} does not fit '{buffer.name}' of shape {buffer.shape}")
    return values


def _resized(body: Stmt, values: Mapping[Var, Expr]) -> Stmt:
    """`body` with its allocations in the given sizes."""

    def go(n: Any) -> Any:
        n = n.map_children(go)
        if isinstance(n, Alloc):
            shape = tuple(substitute(d, values) for d in n.buffer.shape)
            return replace_buffers(n, {n.buffer: n.buffer.replace(shape=shape)})
        return n

    return go(body)


@lru_cache(256)
def _written(text: str, of: str) -> Func:
    """The function, with `T` replaced; loops and lets take unique names that begin with its own,
    which are nobody's symbolic size.
    """
    func = parse_func(re.sub(r"\bT\b", of, text))
    taken = {p.name for p in func.params}

    def go(n: Any) -> Any:
        if isinstance(n, For | Let):
            var = Var(fresh(f"{func.name}_{n.var.name}", taken), n.var.dtype)
            n = n.replace(var=var, body=_with(n.body, n.var, var))
        return n.map_children(go)

    return func.replace(body=go(func.body))


def _with(body: Any, old: Var, new: Var) -> Any:
    """`body` with a variable renamed where no loop or let inside binds its name again."""

    def go(n: Any) -> Any:
        if n == old:
            return new
        if isinstance(n, For) and n.var == old:
            return n.replace(start=go(n.start), stop=go(n.stop))
        if isinstance(n, Let) and n.var == old:
            return n.replace(value=go(n.value))
        return n.map_children(go)

    return go(body)
