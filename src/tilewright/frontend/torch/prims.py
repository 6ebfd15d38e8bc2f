"""Translators of prims: the operators that PyTorch's own decompositions are written in.

Most are an ATen operator under its name, on operands of one dtype; the rest move elements.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.frontend.torch.elementwise import convert, identity
from tilewright.frontend.torch.random import uniform
from tilewright.frontend.torch.registry import TRANSLATORS, NodeContext, Translator
from tilewright.graph.graph import Value

ELEMENTWISE = (
    "abs acos acosh add amax amin as_strided as_strided_scatter asin asinh atan atan2 atanh "
    "bitwise_and bitwise_not bitwise_or bitwise_xor cat ceil cos cosh div empty empty_permuted "
    "empty_strided eq erf exp exp2 expm1 fill floor fmax fmin fmod full full_like ge gt hypot "
    "le log log10 log1p log2 lt maximum minimum mul ne neg pow prod reciprocal remainder "
    "reshape round rsqrt scalar_tensor sign sin"
)
OVERLOADS = (
    "default",
    "Tensor",
    "Tensor_Tensor",
    "self",
    "dim_IntList",
    "dim_int",
    "correction",
    "Scalar",
    "memory_format",
)
RENAMED = {
    "collapse": "view.default",
    "rev": "flip.default",
    "shift_left": "bitwise_left_shift.Tensor",
    "shift_right_arithmetic": "bitwise_right_shift.Tensor",
    "transpose": "permute.default",
}


def prim(*names: str) -> Any:
    """Register a translator for prims."""

    def register(f: Translator) -> Translator:
        for name in names:
            TRANSLATORS[f"prims.{name}.default"] = f
        return f

    return register


@prim("convert_element_type")
def convert_element_type(n: NodeContext, x: Value, dtype: Any) -> Any:
    return convert(n, x)


@prim("clone", "copy_strided", "device_put", "view_of")
def same(n: NodeContext, x: Value, *_: Any, **named: Any) -> Any:
    return identity(n, x)


@prim("collapse", "collapse_view", "reshape", "split_dim", "squeeze")
def reshaped(n: NodeContext, x: Value, *_: Any) -> Any:
    """The elements in their order, in the result's shape."""
    return n.reshape(x, n.shape)


@prim("isfinite")
def isfinite(n: NodeContext, x: Value) -> Any:
    if not x.dtype.is_float:
        return n.full(True)
    return n.emit("less", n.emit("abs", x), n.constant(np.inf, x.dtype))


@prim("uniform")
def uniform_of_shape(n: NodeContext, shape: Any, *, low: float, high: float, **named: Any) -> Any:
    return uniform(n, shape, low, high)


@prim("broadcast_in_dim")
def broadcast_in_dim(n: NodeContext, x: Value, shape: Any, dimensions: Any) -> Any:
    """Axis k of x is axis dimensions[k] of the result, which repeats along the others."""
    wide: list[Any] = [1] * len(shape)
    for d, size in zip(dimensions, x.shape, strict=True):
        wide[d] = size
    return n.expand(n.reshape(x, wide), n.shape)


@prim("iota")
def iota(n: NodeContext, length: Any, *, start: Any, step: Any, dtype: Any) -> Any:
    steps = n.emit("mul", n.emit("arange", length=length), n.operand(step, n.of))
    return n.emit("add", n.cast(steps, n.of), n.operand(start, n.of))


def register() -> None:
    """The prims that are ATen operators under the same or another name, where those are known."""
    for name in ELEMENTWISE.split():
        for overload in OVERLOADS:
            found = TRANSLATORS.get(f"aten.{name}.{overload}")
            if found is not None:
                TRANSLATORS.setdefault(f"prims.{name}.default", found)
    for name, other in RENAMED.items():
        if f"aten.{other}" in TRANSLATORS:
            TRANSLATORS.setdefault(f"prims.{name}.default", TRANSLATORS[f"aten.{other}"])


register()
