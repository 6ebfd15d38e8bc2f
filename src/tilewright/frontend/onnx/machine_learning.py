"""Translators of ai.onnx.ml operators on numbers."""

from __future__ import annotations

from typing import Any

from tilewright.frontend.onnx.registry import NodeContext, translates
from tilewright.graph.bounds import from_start

ML = "ai.onnx.ml"


@translates("ArrayFeatureExtractor", domain=ML)
def features(n: NodeContext) -> Any:
    """The columns that the second input names."""
    x, positions = n[0], n[1]
    flat = n.build.emit("reshape", positions, shape=(positions.elements,))
    if x.rank == 1:
        x = n.build.emit("reshape", x, shape=(1, *x.shape))
    flat = n.checked(flat, from_start(x.shape[-1]))
    return n.emit("gather", x, flat, axis=x.rank - 1)


@translates("Binarizer", domain=ML)
def binarizer(n: NodeContext) -> Any:
    """1 above the threshold, else 0."""
    above = n.build.emit("greater", n[0], n.constant(n.float("threshold", 0.0), n[0].dtype))
    return n.emit("cast", above, to=n[0].dtype.name)


@translates("Scaler", domain=ML)
def scaler(n: NodeContext) -> Any:
    """(x - offset) * scale, in f32."""
    x = n[0] if n[0].dtype.name == "f32" else n.build.emit("cast", n[0], to="f32")
    offset, scale = n.floats("offset", (0.0,)), n.floats("scale", (1.0,))
    moved = n.build.emit("sub", x, n.constant(list(offset), "f32"))
    return n.emit("mul", moved, n.constant(list(scale), "f32"))


@translates("Normalizer", domain=ML)
def normalizer(n: NodeContext) -> Any:
    """Rows divided by their greatest size, their sum of sizes or their length; those of 0 stay."""
    x = n[0] if n[0].dtype.name == "f32" else n.build.emit("cast", n[0], to="f32")
    norm, last = n.text("norm", "MAX"), (x.rank - 1,)
    if norm == "MAX":
        by = n.build.emit("reduce_max", n.build.emit("abs", x), axes=last, keepdims=True)
    elif norm == "L1":
        by = n.build.emit("reduce_sum", n.build.emit("abs", x), axes=last, keepdims=True)
    else:
        total = n.build.emit("reduce_sum", n.build.emit("mul", x, x), axes=last, keepdims=True)
        by = n.build.emit("sqrt", total)
    none = n.build.emit("equal", by, n.constant(0.0, "f32"))
    return n.emit("div", x, n.build.emit("where", none, n.constant(1.0, "f32"), by))
