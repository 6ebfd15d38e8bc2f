"""The reference of one node: onnxruntime without rewriting; where it lacks it, `onnx`'s evaluator.

Nodes are computed one at a time, so that no fusion or rewriting of the reference is believed, and
every value in between is known.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
from onnx import helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

IR_VERSION = 10
DOMAINS = ("", "com.microsoft", "ai.onnx.ml")
EVALUATED = {"Sigmoid", "Swish"}  # onnxruntime's is right to a part of one, not of the result
JOINED = {"Loop"}  # the evaluator joins the rows of a loop, where the specification stacks them
UNCLIPPED = {"GRU", "LSTM"}  # it does not clip

_options = onnxruntime.SessionOptions()
_options.intra_op_num_threads = _options.inter_op_num_threads = 1
_options.log_severity_level = 4
_options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
_options.enable_mem_pattern = False


class Unsound(Exception):
    """The reference does not compute this node: it is not drawn."""


class Erf(OpRun):
    """The evaluator's own computes f64 in f32."""

    def _run(self, x: np.ndarray) -> tuple[np.ndarray]:
        return (np.vectorize(math.erf, otypes=[x.dtype])(x),)


def type_of(array: np.ndarray) -> int:
    """The ONNX code of an array's dtype."""
    return helper.np_dtype_to_tensor_dtype(array.dtype)


def opsets(version: int) -> list[onnx.OperatorSetIdProto]:
    """The versions of all domains that graphs draw from."""
    return [helper.make_opsetid("", version), helper.make_opsetid("com.microsoft", 1)]


class NodeReference:
    """Computes one node for any content of its inputs, given by name, dtype and shape; `fixed` are
    initializers."""

    def __init__(
        self,
        node: onnx.NodeProto,
        inputs: Sequence[tuple[str, np.dtype[Any], list[int | None]]],
        fixed: Sequence[tuple[str, np.ndarray]],
        version: int,
    ) -> None:
        entries = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(dtype), shape)
            for name, dtype, shape in inputs
        ]
        results = [onnx.ValueInfoProto(name=name) for name in node.output if name]
        initializers = [onnx.numpy_helper.from_array(array, name) for name, array in fixed]
        graph = helper.make_graph([node], "node", entries, results, initializers)
        model = helper.make_model(graph, opset_imports=opsets(version), ir_version=IR_VERSION)
        self._run: Any = None
        self.by = "runtime"
        narrow = any(dtype == ml_dtypes.bfloat16 for _, dtype, _ in inputs)
        with contextlib.suppress(Exception):
            if narrow or node.op_type in EVALUATED:
                raise Unsound("it is left to the evaluator")
            session = onnxruntime.InferenceSession(
                model.SerializeToString(), _options, ["CPUExecutionProvider"]
            )
            self._run = lambda feeds: session.run(None, feeds)
        if self._run is None:
            self.by = "evaluator"
            if any(map(is_beyond_the_evaluator, nodes_of(node))):
                raise Unsound("onnxruntime refuses it")
            try:
                evaluator = ReferenceEvaluator(model, new_ops=[Erf])
            except Exception as fault:
                raise Unsound(str(fault)) from None
            self._run = lambda feeds: evaluator.run(None, feeds)

    def __call__(self, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
        """The outputs for these inputs. Raises Unsound."""
        try:
            with np.errstate(all="ignore"):
                results = self._run(feeds)
        except Exception as fault:
            raise Unsound(str(fault)) from None
        if not all(isinstance(r, np.ndarray | np.generic) for r in results):
            raise Unsound("a result is no tensor")
        arrays = [np.asarray(r) for r in results]
        if self.by == "evaluator" and any(map(is_narrowed, arrays)):
            raise Unsound("it was computed in f32")
        return arrays


def nodes_of(node: onnx.NodeProto) -> Iterator[onnx.NodeProto]:
    """A node and those of the graphs in it."""
    yield node
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            for inner in graph.node:
                yield from nodes_of(inner)


def is_beyond_the_evaluator(node: onnx.NodeProto) -> bool:
    """Does the evaluator lack an operator, or compute something else?"""
    clips = node.op_type in UNCLIPPED and any(a.name == "clip" for a in node.attribute)
    return node.domain == "com.microsoft" or node.op_type in JOINED or clips


def is_narrowed(array: np.ndarray) -> bool:
    """Are these f64 numbers that have been f32? The evaluator does so in some operators."""
    if array.dtype != np.float64 or not array.size:
        return False
    with np.errstate(all="ignore"):
        same = array.astype(np.float32).astype(np.float64) == array
    return bool(same.all() and (array != np.round(array * 64) / 64).any())


def epsilon(dtype: Any) -> float:
    """The distance from one to the next number of a floating dtype."""
    return float(ml_dtypes.finfo(dtype).eps)


def is_float(dtype: Any) -> bool:
    """Floating, the types of ml_dtypes included."""
    return np.dtype(dtype).kind == "f" or np.dtype(dtype) == ml_dtypes.bfloat16
