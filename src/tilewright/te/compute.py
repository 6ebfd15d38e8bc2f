"""`compute`: a tensor from a function of its indices.

In: a shape and a Python function from indices to a value. Out: a `Tensor` (or several, for a
tuple). The one idea: the function runs once, on variables, and what it returns is the computation.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any

from tilewright.ir.expr import Var, expr
from tilewright.te.reduce import lift_reductions
from tilewright.te.tensor import Compute, ComputeAxis, Tensor, shape_of


def compute(
    shape: Any,
    value: Callable[..., Any],
    name: str = "T",
    attrs: Mapping[str, Any] | None = None,
) -> Any:
    """The tensor whose element at `indices` is `value(*indices)`.

    Args:
        shape: its sizes.
        value: from one index for each dimension to an expression. The axes take the names of its
            parameters. A reduction (`te.sum(...)`) may stand alone or inside the expression;
            inside, it becomes a tensor of its own. A tuple of expressions gives several tensors of
            one shape from one block.
        name: of the tensor and its block; several tensors are numbered.
        attrs: notes on the block for strategies, such as `{"role": "matmul"}`.

    Returns:
        The tensor, or a tuple of them.
    """
    extents = shape_of(shape)
    axes = axis_vars(value, len(extents))
    result = value(*axes)
    many = isinstance(result, tuple)
    values = tuple(expr(v) for v in result) if many else (expr(result),)
    values = lift_reductions(name, axes, extents, values)
    op = Compute(name, axes, extents, values, tuple(sorted((attrs or {}).items())))
    labels = [f"{name}_{n}" if many else name for n in range(len(values))]
    op.outputs = tuple(
        Tensor(label, extents, v.dtype, op, n)
        for n, (label, v) in enumerate(zip(labels, values, strict=True))
    )
    return op.outputs if many else op.outputs[0]


def axis_vars(value: Callable[..., Any], rank: int) -> tuple[Var, ...]:
    """One variable for each dimension, named after the function's parameters (`*i` gives i0, i1,
    …).
    """
    names: list[str] = []
    code = getattr(value, "__code__", None)
    if code is not None and code.co_argcount == rank and not code.co_flags & inspect.CO_VARARGS:
        return tuple([ComputeAxis(n) for n in code.co_varnames[:rank]])
    if _takes_any(value):  # as most definitions of operators; a signature costs as much as they do
        name = value.__code__.co_varnames[0]
        return tuple([ComputeAxis(f"{name}{d}") for d in range(rank)])
    for parameter in inspect.signature(value).parameters.values():
        if parameter.kind is parameter.VAR_POSITIONAL:
            names += [f"{parameter.name}{d}" for d in range(rank - len(names))]
        elif parameter.default is parameter.empty:
            names.append(parameter.name)
    if len(names) != rank:
        raise TypeError(f"the function takes {len(names)} indices, the shape has {rank} dimensions")
    return tuple(ComputeAxis(n) for n in names)


def _takes_any(value: Callable[..., Any]) -> bool:
    """Is it a plain `lambda *i: …`?"""
    if value.__class__ is not FunctionType or hasattr(value, "__wrapped__"):
        return False
    code, other = value.__code__, inspect.CO_VARKEYWORDS
    plain = not code.co_argcount and not code.co_kwonlyargcount and not code.co_flags & other
    return plain and bool(code.co_flags & inspect.CO_VARARGS)
