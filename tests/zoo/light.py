"""The `light_*` models: files inside the onnx package, whose weights are constants made on the fly.

`light_x` is the file as shipped: every weight tensor is one repeated number, so its scores are all
alike and prove little about arithmetic. `filled_x` is the same graph with seeded random weights.
"""

from __future__ import annotations

import functools
import math
import shutil
import zlib
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

from tests.zoo import export

FOLDER = Path(onnx.__file__).parent / "backend/test/data/light"
SEED = 20180102
IR_VERSION = 8


@functools.cache
def names() -> list[str]:
    shipped = sorted(path.stem for path in FOLDER.glob("light_*.onnx"))
    return shipped + [name.replace("light", "filled", 1) for name in shipped]


def write(name: str, path: Path) -> None:
    """Make the file of `name` at `path`."""
    source = FOLDER / f"{name.replace('filled', 'light', 1)}.onnx"
    if name.startswith("filled"):
        export.write(fill(onnx.load(source), name), path)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, path)


def inputs(name: str, random: np.random.Generator) -> dict[str, np.ndarray]:
    """Standard normal values for each input that is not also a weight."""
    shapes = free_inputs(name.replace("filled", "light", 1))
    return {key: random.standard_normal(shape, np.float32) for key, shape in shapes.items()}


@functools.cache
def free_inputs(name: str) -> dict[str, tuple[int, ...]]:
    graph = onnx.load(FOLDER / f"{name}.onnx").graph
    weights = {tensor.name for tensor in graph.initializer}
    return {
        value.name: tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim)
        for value in graph.input
        if value.name not in weights
    }


def fill(model: onnx.ModelProto, name: str) -> onnx.ModelProto:
    """Replace each generated constant by an initializer of random values fit for its use."""
    graph = model.graph
    shapes = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    uses = uses_of(graph)
    for node in [node for node in graph.node if node.op_type == "ConstantOfShape"]:
        shape, weight = tuple(shapes[node.input[0]]), node.output[0]
        random = np.random.default_rng([SEED, zlib.crc32(weight.encode())])
        values = draw(*uses.get(weight, ("", 0)), shape, random)
        graph.initializer.append(numpy_helper.from_array(values, weight))
        graph.node.remove(node)
    for value in [x for x in graph.input if x.name in shapes]:
        graph.input.remove(value)  # weights are inputs too in these files, of IR version 3
    used = {name for node in graph.node for name in node.input}
    for tensor in [x for x in graph.initializer if x.name not in used]:
        graph.initializer.remove(tensor)
    model.ir_version = IR_VERSION
    return calibrate(model, inputs(name, np.random.default_rng(SEED)))


def uses_of(graph: onnx.GraphProto) -> dict[str, tuple[str, int]]:
    """The operator that reads each value and at which place; Unsqueeze is looked through."""
    uses = {
        name: (node.op_type, place) for node in graph.node for place, name in enumerate(node.input)
    }
    for node in graph.node:
        if node.op_type == "Unsqueeze":
            uses[node.input[0]] = uses[node.output[0]]
    return uses


def draw(
    operator: str, place: int, shape: tuple[int, ...], random: np.random.Generator
) -> np.ndarray:
    """Values for the operand at `place`: matrices and kernels by fan-in, the rest near 1 or 0."""
    match operator, place:
        case ("BatchNormalization", 1) | ("Mul", _):
            return random.uniform(0.5, 1.5, shape).astype(np.float32)
        case "Conv", 1:
            gain = math.sqrt(2 / math.prod(shape[1:]))
        case "Gemm", 1:
            gain = math.sqrt(1 / shape[1])
        case _:
            gain = 0.1
    return np.float32(gain) * random.standard_normal(shape, np.float32)


def calibrate(model: onnx.ModelProto, sample: dict[str, np.ndarray]) -> onnx.ModelProto:
    """Set the statistics of each batch norm to those of `sample`, rounded to eight bits.

    One run of a copy in which each batch norm measures the mean and variance that it divides by.
    """
    measuring = onnx.ModelProto()
    measuring.CopyFrom(model)
    graph = measuring.graph
    del graph.node[:]
    del graph.output[:]
    stored = {tensor.name: tensor for tensor in model.graph.initializer}
    statistics: list[str] = []
    for k, node in enumerate(model.graph.node):
        if node.op_type == "BatchNormalization":
            statistics += node.input[3:5]
            x, mean, centre, squares, spread = node.input[0], *(f"{part}_{k}" for part in "mcsv")
            axes = {"axes": [0, 2, 3]}
            graph.node.extend([
                helper.make_node("ReduceMean", [x], [f"{mean}_kept"], keepdims=1, **axes),
                helper.make_node("ReduceMean", [x], [mean], keepdims=0, **axes),
                helper.make_node("Sub", [x, f"{mean}_kept"], [centre]),
                helper.make_node("Mul", [centre, centre], [squares]),
                helper.make_node("ReduceMean", [squares], [spread], keepdims=0, **axes),
            ])  # fmt: skip
            for name in (mean, spread):
                kind = onnx.TensorProto.FLOAT
                graph.output.append(helper.make_tensor_value_info(name, kind, [None]))
            node = helper.make_node(node.op_type, [*node.input[:3], mean, spread], node.output)
        graph.node.append(node)
    if statistics:
        for name, values in zip(statistics, run(measuring, sample), strict=True):
            rounded = values.astype(ml_dtypes.bfloat16).astype(np.float32)
            stored[name].CopyFrom(numpy_helper.from_array(rounded, name))
    return model


def run(model: onnx.ModelProto, sample: dict[str, np.ndarray]) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1  # the same sums each time
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    return session.run(None, sample)
