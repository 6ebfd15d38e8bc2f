"""PyTorch's words as ours: dtypes, symbolic sizes, tensors as NumPy views of the same memory."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from functools import reduce
from typing import Any

import ml_dtypes
import numpy as np
import torch

from tilewright.graph import sizes
from tilewright.ir.dtype import DType, dtype
from tilewright.ir.expr import Expr, maximum, minimum

DTYPES = {
    torch.float64: "f64",
    torch.float32: "f32",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.float8_e4m3fn: "f8e4m3",
    torch.float8_e5m2: "f8e5m2",
    torch.int64: "i64",
    torch.int32: "i32",
    torch.int16: "i16",
    torch.int8: "i8",
    torch.uint64: "u64",
    torch.uint32: "u32",
    torch.uint16: "u16",
    torch.uint8: "u8",
    torch.bool: "bool",
}
_RAW = {  # dtypes that NumPy lacks: an integer as wide, and the dtype of its bits
    torch.bfloat16: (torch.int16, ml_dtypes.bfloat16),
    torch.float8_e4m3fn: (torch.uint8, ml_dtypes.float8_e4m3fn),
    torch.float8_e5m2: (torch.uint8, ml_dtypes.float8_e5m2),
}


class Refusal(Exception):
    """Why something cannot be translated, and what would help."""

    def __init__(self, why: str, remedy: str = "") -> None:
        super().__init__(why)
        self.why, self.remedy = why, remedy


def of_torch(kind: torch.dtype) -> DType:
    """Our dtype. Raises Refusal for one that we lack (complex numbers, quantised integers)."""
    name = DTYPES.get(kind)
    if name is None:
        raise Refusal(f"{kind} is not supported")
    return dtype(name)


def array(tensor: torch.Tensor) -> np.ndarray:
    """A tensor as an array: a view of its memory where that is the host's."""
    tensor = tensor.detach()
    if tensor.layout is not torch.strided:
        tensor = tensor.to_dense()
    of_torch(tensor.dtype)
    tensor = tensor.cpu().resolve_conj().resolve_neg()
    if tensor.dtype in _RAW:
        raw, kind = _RAW[tensor.dtype]
        return tensor.view(raw).numpy().view(kind)
    return tensor.numpy()


def size_of(number: Any, symbols: Mapping[str, Expr]) -> Any:
    """An int, or a SymInt as a size expression; `symbols` by PyTorch's names for them.

    Raises Refusal for an expression that sizes cannot hold.
    """
    if isinstance(number, torch.SymInt):
        found = _expression(number.node.expr, symbols)
        return found if isinstance(found, int) else sizes.size(found)
    return int(number)


def _expression(e: Any, symbols: Mapping[str, Expr]) -> Any:
    if e.is_Integer:
        return int(e)
    if e.is_Symbol:
        if str(e) not in symbols:
            raise Refusal(f"the size {e} depends on data")
        return symbols[str(e)]
    name = type(e).__name__
    if name in _WHOLE:
        return _scaled(e, symbols)
    if name in ("Max", "Min"):
        e = _decided(e)
        if type(e).__name__ != name:
            return _expression(e, symbols)
    parts = [_expression(a, symbols) for a in e.args]
    if name == "Pow" and isinstance(parts[1], int) and parts[1] > 0:
        return math.prod(parts[:1] * parts[1])
    combine = _COMBINE.get(name)
    if combine is None:
        raise Refusal(f"the size {e} is no sum, product, quotient, remainder, minimum or maximum")
    return reduce(combine, parts)


def _scaled(e: Any, symbols: Mapping[str, Expr]) -> Any:
    """A size times a floating-point factor, made whole: what `scale_factor=1.5` gives; or divided
    by a number, as in `math.ceil(height / 2)`, which is exact below 2⁵³."""
    (product,) = e.args
    if type(product).__name__ == "IntTrueDiv" and product.args[1].is_Integer:
        size, by = _expression(product.args[0], symbols), int(product.args[1])
        if by > 0:
            return (size + (by - 1 if type(e).__name__ == "CeilToInt" else 0)) // by
    factor, rest = product.as_coeff_Mul()
    if type(rest).__name__ == "ToFloat" and factor > 0:
        found = simple_factor(float(factor))
        if found is not None:
            size = _expression(rest.args[0], symbols) * found.numerator
            up = found.denominator - 1 if type(e).__name__ == "CeilToInt" else 0
            return (size + up) // found.denominator
    raise Refusal(f"the size {e} is computed in floating point", "give the sizes as integers")


def simple_factor(factor: float) -> Fraction | None:
    """The fraction that a floating-point factor stands for, if sizes times the one and times the
    other are the same whole numbers (0.3 is no tenth times three, but its products round to
    them)."""
    found = Fraction(factor).limit_denominator(64)
    sizes = np.arange(1 << 16)
    exact, near = sizes * found.numerator, sizes * factor
    if np.array_equal(np.floor(near), exact // found.denominator) and np.array_equal(
        np.ceil(near), -(-exact // found.denominator)
    ):
        return found
    return None


def _decided(e: Any) -> Any:
    """A Max or Min without what loses whatever the sizes are: they are 1 at least."""
    import sympy

    most = type(e).__name__ == "Max"
    more = {
        s: sympy.Symbol(f"{s}_more", integer=True, nonnegative=True) + 1 for s in e.free_symbols
    }

    def loses(a: Any, b: Any) -> bool:
        apart = sympy.expand((a - b).subs(more))
        return bool(apart.is_nonpositive if most else apart.is_nonnegative)

    left = list(e.args)
    for a in e.args:
        if any(loses(a, b) for b in left if b is not a):
            left.remove(a)
    return e.func(*left)


_WHOLE = ("TruncToInt", "FloorToInt", "CeilToInt")  # of sizes ≥ 0 the first two are equal
_COMBINE: dict[str, Any] = {  # sympy's classes; sizes are not negative
    "Add": lambda a, b: a + b,
    "Mul": lambda a, b: a * b,
    "FloorDiv": lambda a, b: a // b,
    "CleanDiv": lambda a, b: a // b,
    "Mod": lambda a, b: a % b,
    "PythonMod": lambda a, b: a % b,
    "Max": lambda a, b: maximum(sizes.size(a), sizes.size(b)),
    "Min": lambda a, b: minimum(sizes.size(a), sizes.size(b)),
}
