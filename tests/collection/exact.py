"""How far from the truth a result may be: the same model in float64, or with last bits moved.

Every f32 and f16 of a file becomes f64 and the `onnx` package's evaluator computes it, or NumPy,
operator by operator, what our importer reads where the evaluator lacks one. It is slow: it is asked
only where two engines differ. What rounds to few bits inside has no truth in float64: there
onnxruntime computes the file with weights and inputs moved by a last bit, which flips roundings as
another order of sums does.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, numpy_helper
from onnx.reference import ReferenceEvaluator

from tests.collection.subject import Subject
from tilewright.frontend.onnx import import_onnx
from tilewright.graph import evaluate

TOLERANCE = 1e-4
TIMES = 3.0  # as far from float64 as onnxruntime, times this, is near enough
NARROW = (TensorProto.FLOAT, TensorProto.FLOAT16)


def outputs(model: Subject, arrays: list[np.ndarray]) -> list[Any]:
    """The outputs in float64. Raises what our importer raises if the evaluator fails, too."""
    proto = onnx.load(model.path)
    widen_graph(proto.graph)
    wide = {
        x.name: a.astype(np.float64) if a.dtype.kind == "f" else a
        for x, a in zip(model.inputs, arrays, strict=True)
    }
    with np.errstate(all="ignore"):
        try:
            return ReferenceEvaluator(proto).run(None, wide)
        except Exception:  # whatever it meets first of what it lacks
            return [np.asarray(y) for y in evaluate(import_onnx(proto), list(wide.values()))]


def moved(model: Subject, arrays: list[np.ndarray], seed: int) -> list[np.ndarray]:
    """What onnxruntime makes of the model with floats moved by half a unit of the last place."""
    random = np.random.default_rng(seed)
    proto = onnx.load(model.path)
    for tensor in proto.graph.initializer:
        if tensor.data_type in NARROW:
            near = disturbed(numpy_helper.to_array(tensor), random)
            tensor.CopyFrom(numpy_helper.from_array(near, tensor.name))
    near = [disturbed(a, random) for a in arrays]
    return session(proto.SerializeToString(), 1).run(None, named(model, near))


def disturbed(a: np.ndarray, random: np.random.Generator) -> np.ndarray:
    if a.dtype.kind != "f":
        return a
    by = np.finfo(a.dtype).eps * random.uniform(-1, 1, a.shape)
    return (a.astype(np.float64) * (1 + by)).astype(a.dtype)


def session(model: str | bytes, threads: int) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 4
    # without instructions for it, products of u8 and i8 saturate, unless this is asked for
    options.add_session_config_entry("session.x64quantprecision", "1")
    return onnxruntime.InferenceSession(model, options, ["CPUExecutionProvider"])


def named(model: Subject, arrays: list[np.ndarray]) -> dict[str, np.ndarray]:
    return {x.name: a for x, a in zip(model.inputs, arrays, strict=True)}


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
