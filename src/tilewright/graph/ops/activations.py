"""Activations of recurrent layers: by name, with the numbers of those that have any.

"tanh", "hardsigmoid:0.2:0.5": one text, so that it stands in an attribute. Source: ONNX LSTM-14.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from tilewright import te
from tilewright.graph.operator import need
from tilewright.graph.ops.elementwise import number, sigmoid, softplus, te_softplus, zero
from tilewright.ir.expr import Expr

Pair = tuple[Callable[..., Expr], Callable[..., Any]]  # for kernels, for arrays

# The numbers that each takes, alpha and beta, where a model does not say; then its functions, which
# take them behind the value.
ACTIVATIONS: dict[str, tuple[tuple[float, ...], Pair]] = {
    "sigmoid": ((), (te.sigmoid, sigmoid)),
    "tanh": ((), (te.tanh, np.tanh)),
    "relu": ((), (lambda x: te.maximum(x, zero(x)), lambda x: np.maximum(x, 0))),
    "softplus": ((), (te_softplus, softplus)),
    "softsign": (
        (), (lambda x: x / (number(1, x) + te.abs(x)), lambda x: x / (1 + np.abs(x))),
    ),
    "affine": (
        (1.0, 0.0), (lambda x, a, b: x * number(a, x) + number(b, x), lambda x, a, b: a * x + b),
    ),
    "leakyrelu": (
        (0.01,), (
            lambda x, a: te.select(x < zero(x), x * number(a, x), x),
            lambda x, a: np.where(x < 0, x * x.dtype.type(a), x),
        ),
    ),
    "thresholdedrelu": (
        (1.0,), (
            lambda x, a: te.select(x > number(a, x), x, zero(x)),
            lambda x, a: np.where(x > a, x, x.dtype.type(0)),
        ),
    ),
    "scaledtanh": (
        (1.0, 1.0), (
            lambda x, a, b: te.tanh(x * number(b, x)) * number(a, x),
            lambda x, a, b: a * np.tanh(b * x),
        ),
    ),
    "hardsigmoid": (
        (0.2, 0.5), (
            lambda x, a, b: te.maximum(
                te.minimum(x * number(a, x) + number(b, x), number(1, x)), zero(x)
            ),
            lambda x, a, b: np.clip(a * x + b, 0, 1),
        ),
    ),
    "elu": (
        (1.0,), (
            lambda x, a: te.select(x < zero(x), te.expm1(x) * number(a, x), x),
            lambda x, a: np.where(x < 0, x.dtype.type(a) * np.expm1(np.minimum(x, 0)), x),
        ),
    ),
}  # fmt: skip


def need_activations(texts: tuple[str, ...], count: int) -> None:
    """Check that there are so many, and that they are known."""
    need(len(texts) == count, f"needs {count} activations")
    for text in texts:
        name, *numbers = text.split(":")
        known = name in ACTIVATIONS and len(numbers) in (0, len(ACTIVATIONS[name][0]))
        need(known, f"has no activation {text!r}; there are {', '.join(ACTIVATIONS)}")


def for_kernels(text: str) -> Callable[[Expr], Expr]:
    return _function(text, 0)


def for_arrays(text: str) -> Callable[[Any], Any]:
    return _function(text, 1)


def _function(text: str, which: int) -> Callable[[Any], Any]:
    name, *numbers = text.split(":")
    default, pair = ACTIVATIONS[name]
    given = tuple(float(x) for x in numbers) or default
    return partial(_apply, pair[which], given)


def _apply(f: Callable[..., Any], numbers: tuple[float, ...], x: Any) -> Any:
    return f(x, *numbers)
