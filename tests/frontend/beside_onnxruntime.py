"""Small ONNX models, and that ours of them give what onnxruntime gives."""

from __future__ import annotations

import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from tilewright.frontend.onnx import import_onnx
from tilewright.graph import evaluate, parse
from tilewright.graph.passes.pipeline import optimise

F, I, B = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
random = np.random.default_rng(3)


def f(*shape):
    return random.standard_normal(shape).astype(np.float32)


def info(name, *shape, of=F):
    return helper.make_tensor_value_info(name, of, list(shape))


def model(nodes, inputs, outputs, initializers=None, opset=18, **options):
    tensors = [numpy_helper.from_array(a, n) for n, a in (initializers or {}).items()]
    graph = helper.make_graph(nodes, "g", inputs, outputs, tensors)
    imports = [helper.make_opsetid("", opset), *options.pop("imports", [])]
    return helper.make_model(graph, opset_imports=imports, ir_version=8, **options)


def node(op, inputs, outputs, **attributes):
    return helper.make_node(op, inputs.split(), outputs.split(), name=f"the_{op}", **attributes)


def same_as_onnxruntime(m, *arrays, tolerance=1e-5):
    """Our graph, as imported and optimised, gives what onnxruntime gives."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(m.SerializeToString(), options)
    expected = session.run(
        None, dict(zip([i.name for i in session.get_inputs()], arrays, strict=True))
    )
    graph = import_onnx(m)
    assert parse(str(graph)) == graph
    for g in (graph, optimise(graph)):
        for a, b in zip(evaluate(g, arrays), expected, strict=True):
            assert a.dtype == b.dtype and a.shape == b.shape
            np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)
    return graph


def ops(graph):
    return [n.op for n in graph.nodes]
