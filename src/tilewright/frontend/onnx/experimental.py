"""Translators of operators of ai.onnx that were experimental until version 10: onnxruntime has them
still, and old models begin with `ImageScaler` or end with `Crop`.

Source of their meaning: onnxruntime's schemas and kernels, with which the tests compare.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.frontend.onnx.registry import NodeContext, Refusal, translates
from tilewright.graph.graph import Value


def scaled(n: NodeContext, x: Value, by: float) -> Value:
    return x if by == 1 else n.build.emit("mul", x, n.constant(by, x.dtype))


@translates("Affine")
def affine(n: NodeContext) -> Any:
    """alpha x + beta"""
    y = scaled(n, n[0], n.float("alpha", 1.0))
    return n.emit("add", y, n.constant(n.float("beta", 0.0), y.dtype))


@translates("ScaledTanh", "ParametricSoftplus")
def scaled_function(n: NodeContext) -> Any:
    """alpha f(beta x)"""
    f = "tanh" if n.op == "ScaledTanh" else "softplus"
    alpha, beta = (n.float(name) for name in ("alpha", "beta"))
    if alpha is None or beta is None:
        raise Refusal("it lacks alpha or beta")
    return scaled(n, n.emit(f, scaled(n, n[0], beta)), alpha)


@translates("ImageScaler")
def image_scaler(n: NodeContext) -> Any:
    """An image times `scale`, and for each channel a bias."""
    x, bias = n[0], np.array(n.floats("bias", ()))
    if x.rank != 4:
        raise Refusal("it needs images [batch, channels, height, width]")
    y = scaled(n, x, n.float("scale", 1.0))
    return n.emit("add", y, n.constant(bias.reshape(-1, 1, 1), y.dtype))


@translates("Crop")
def crop(n: NodeContext) -> Any:
    """What a border (left, top, right, bottom) leaves of an image; with `scale`, so many rows and
    columns behind its left and top."""
    x, border, scale = n[0], n.ints("border", ()), n.ints("scale", ())
    if x.rank != 4 or len(border) != 4 or len(scale) not in (0, 2):
        raise Refusal("it needs an image of four axes, a border of four and a scale of two numbers")
    left, top, right, bottom = border
    rows, columns = scale or (x.shape[2] - top - bottom, x.shape[3] - left - right)
    return n.emit("slice", x, starts=(0, 0, top, left), shape=(*x.shape[:2], rows, columns))


@translates("DynamicSlice")
def dynamic_slice(n: NodeContext) -> Any:
    """Slice, whose later versions have its inputs."""
    return n.apply("Slice", n[0], n[1], n[2], n.optional(3), version=10)
