"""The node tests that ship with the onnx package: one operator each, with inputs and expected
outputs.

Inputs that only make sense when compiling (shapes, axes, counts) become initializers where the
frontend asks for them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test.case.node import collect_testcases

from tilewright.frontend.onnx import import_onnx
from tilewright.graph import Graph, evaluate
from tilewright.graph.passes.pipeline import optimise
from tilewright.support.errors import ImportFault


class NodeCase(NamedTuple):
    name: str
    model: onnx.ModelProto
    inputs: list[np.ndarray]
    outputs: list[np.ndarray]


def node_cases() -> Iterator[NodeCase]:
    """All cases whose inputs and outputs are tensors."""
    for case in collect_testcases(None):
        try:
            inputs, outputs = ([array(x) for x in part] for part in case.data_sets[0])
        except TypeError:
            continue  # sequences, optionals, maps
        yield NodeCase(case.name, case.model, inputs, outputs)


def array(x: Any) -> np.ndarray:
    if isinstance(x, onnx.TensorProto):
        return numpy_helper.to_array(x)
    if isinstance(x, np.ndarray) or np.isscalar(x):
        return np.asarray(x)
    raise TypeError(f"{type(x)} is no tensor")


def load(case: NodeCase) -> tuple[Graph, list[np.ndarray]]:
    """The graph and the arrays that it takes. Raises ImportFault."""
    try:
        return import_onnx(case.model), case.inputs
    except ImportFault as fault:
        if "run time" not in str(fault) and "holds no sizes" not in str(fault):
            raise
    model, kept = onnx.ModelProto(), []
    model.CopyFrom(case.model)
    for entry, value in zip(case.model.graph.input, case.inputs, strict=True):
        if value.dtype.kind in "iub" or value.size <= 1 or entry.name in ("scales", "roi"):
            model.graph.initializer.append(numpy_helper.from_array(value, entry.name))
        else:
            kept.append(value)
    return import_onnx(model), kept


def fault_of(case: NodeCase) -> str:
    """What is wrong with our result; empty if nothing is. Raises ImportFault."""
    graph, arrays = load(case)
    for g in (graph, optimise(graph)):
        got = evaluate(g, arrays)
        if len(got) != len(case.outputs):
            return f"{len(got)} outputs instead of {len(case.outputs)}"
        for a, b in zip(got, case.outputs, strict=True):
            if a.dtype != b.dtype or a.shape != b.shape:
                return f"{a.dtype}{a.shape} instead of {b.dtype}{b.shape}"
            if a.dtype.kind in "iub":
                same = np.array_equal(a, b)
            else:
                loose = {1: 0.1, 2: 2e-2}.get(a.dtype.itemsize, 1e-3)
                wide = a.astype(np.float64), b.astype(np.float64)
                same = np.allclose(*wide, rtol=loose, atol=loose * 1e-2, equal_nan=True)
            if not same:
                return f"largest difference {np.abs(a.astype(float) - b.astype(float)).max()}"
    return ""
