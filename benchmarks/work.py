"""How much a model must compute and read: multiply-adds and weight bytes of an ONNX file.

Counted are the operators with inner products; the rest is at most a few per cent in these models.
Transposed convolutions are counted without the zeros that a naive one multiplies.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import onnx
from onnx import shape_inference

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Work:
    """Multiply-adds of one inference and the bytes of all floating-point weights it reads."""

    macs: int
    weight_bytes: int

    def floor(self, flops: float, bandwidth: float, cached: int) -> float:
        """Seconds that a machine of these rates needs at least, without algebraic short cuts.

        `cached` bytes of the weights stay in the last-level cache from one inference to the next.
        """
        return max(2 * self.macs / flops, (self.weight_bytes - cached) / bandwidth)


def measure(path: Path) -> Work:
    """Count the work of the model at `path`."""
    model = onnx.load(path)
    graph = model.graph
    tables = {
        tensor.name
        for tensor in graph.initializer
        if all(n.op_type == "Gather" for n in graph.node if tensor.name in n.input)
    }
    weight_bytes = sum(
        4 * math.prod(tensor.dims)
        for tensor in graph.initializer
        if tensor.data_type == onnx.TensorProto.FLOAT and tensor.name not in tables
    )
    shapes = all_shapes(model)
    return Work(sum(macs(node, shapes) for node in graph.node), weight_bytes)


def all_shapes(model: onnx.ModelProto) -> dict[str, Shape]:
    """The static shape of every value, by name."""
    shapes: dict[str, Shape] = {t.name: tuple(t.dims) for t in model.graph.initializer}
    for tensor in model.graph.initializer:
        if math.prod(tensor.dims) > 4096:  # inference needs shapes and small values, not weights
            tensor.ClearField("raw_data")
            tensor.ClearField("float_data")
    graph = shape_inference.infer_shapes(model, data_prop=True).graph
    for value in (*graph.input, *graph.value_info, *graph.output):
        dims = value.type.tensor_type.shape.dim
        shapes.setdefault(value.name, tuple(dim.dim_value for dim in dims))
    return shapes


def macs(node: onnx.NodeProto, shapes: dict[str, Shape]) -> int:
    """Multiply-adds of one operator; 0 for those without inner products."""
    match node.op_type:
        case "Conv":
            return math.prod(shapes[node.output[0]]) * math.prod(shapes[node.input[1]][1:])
        case "ConvTranspose":
            return math.prod(shapes[node.input[0]]) * math.prod(shapes[node.input[1]][1:])
        case "Gemm":
            transposed = any(a.name == "transA" and a.i for a in node.attribute)
            inner = shapes[node.input[0]][0 if transposed else 1]
            return math.prod(shapes[node.output[0]]) * inner
        case "MatMul":
            return math.prod(shapes[node.output[0]]) * shapes[node.input[1]][-2]
        case "LSTM":
            steps, batch, _ = shapes[node.input[0]]
            return steps * batch * sum(math.prod(shapes[name]) for name in node.input[1:3])
        case _:
            return 0
