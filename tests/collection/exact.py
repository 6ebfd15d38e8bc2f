"""The same model in float64: how far from the truth a result is.

Every f32 and f16 of a file becomes f64 and the `onnx` package's evaluator computes it. It is slow,
and has no quantised operators of other domains: it is asked only where two engines differ.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper
from onnx.reference import ReferenceEvaluator

from tests.collection.subject import Subject

TOLERANCE = 1e-4
TIMES = 3.0  # as far from float64 as onnxruntime, times this, is near enough
NARROW = (TensorProto.FLOAT, TensorProto.FLOAT16)


def outputs(model: Subject, arrays: list[np.ndarray]) -> list[Any]:
    """The outputs in float64. Raises whatever the evaluator raises."""
    proto = onnx.load(model.path)
    widen_graph(proto.graph)
    wide = {
        x.name: a.astype(np.float64) if a.dtype.kind == "f" else a
        for x, a in zip(model.inputs, arrays, strict=True)
    }
    with np.errstate(all="ignore"):
        return ReferenceEvaluator(proto).run(None, wide)


def widen_graph(graph: onnx.GraphProto) -> None:
    for tensor in graph.initializer:
        widen(tensor)
    for entry in (*graph.input, *graph.output):
        if entry.type.tensor_type.elem_type in NARROW:
            entry.type.tensor_type.elem_type = TensorProto.DOUBLE
    del graph.value_info[:]
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                widen(attribute.t)
            if attribute.HasField("g"):
                widen_graph(attribute.g)
            if attribute.name == "to" and attribute.i in NARROW:
                attribute.i = TensorProto.DOUBLE
            if node.op_type == "Constant" and attribute.name in ("value_float", "value_floats"):
                wide = np.array(attribute.floats or attribute.f, np.float64)
                attribute.CopyFrom(
                    onnx.helper.make_attribute("value", numpy_helper.from_array(wide))
                )


def widen(tensor: onnx.TensorProto) -> None:
    if tensor.data_type in NARROW:
        wide = numpy_helper.to_array(tensor).astype(np.float64)
        tensor.CopyFrom(numpy_helper.from_array(wide, tensor.name))
