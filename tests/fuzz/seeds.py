"""Small sound models to start from, each a function without arguments that gives a ModelProto.

Together they use convolutions, recurrence, attention, shape arithmetic, control flow, functions and
external data; none takes more than a few milliseconds to run.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper, parser

OPSET = 18
WEIGHTS_FILE = "weights.bin"


def tensor(name: str, *shape: int) -> TensorProto:
    """Seeded f32 values of a unit scale."""
    random = np.random.default_rng([len(name), *shape])
    return numpy_helper.from_array(random.standard_normal(shape, np.float32) / 3, name)


def ints(name: str, *values: int) -> TensorProto:
    return numpy_helper.from_array(np.array(values, np.int64), name)


def model(
    text: str, weights: list[TensorProto], opset: int = OPSET, ir_version: int = 9
) -> onnx.ModelProto:
    """A model from ONNX's own text syntax for a graph, and its weights."""
    graph = parser.parse_graph(text)
    graph.initializer.extend(weights)
    imports = [helper.make_opsetid("", opset)]
    made = helper.make_model(graph, opset_imports=imports, ir_version=ir_version)
    onnx.checker.check_model(made, full_check=True)
    return made


def cnn() -> onnx.ModelProto:
    text = """cnn (float[1,2,12,12] x) => (float[1,5] y) {
        c = Conv <kernel_shape = [3,3], pads = [1,1,1,1], strides = [1,1], group = 1> (x, w1, b1)
        n = BatchNormalization <epsilon = 0.001> (c, gain, bias, mean, spread)
        r = Relu (n)
        p = MaxPool <kernel_shape = [2,2], strides = [2,2]> (r)
        d = Conv <group = 4, dilations = [2,2], pads = [2,2,2,2]> (p, w2)
        s = Add (d, p)
        f = Flatten <axis = 1> (s)
        g = Gemm <alpha = 0.5, transB = 1> (f, w3, b3)
        y = Softmax <axis = 1> (g)
    }"""
    spread = numpy_helper.from_array(np.linspace(0.5, 2, 4, dtype=np.float32), "spread")
    norm = [tensor("gain", 4), tensor("bias", 4), tensor("mean", 4), spread]
    dense = [tensor("w3", 5, 144), tensor("b3", 5)]
    kernels = [tensor("w1", 4, 2, 3, 3), tensor("b1", 4), tensor("w2", 4, 1, 3, 3)]
    return model(text, [*kernels, *norm, *dense])


def old_net() -> onnx.ModelProto:
    """Opset 9 and IR version 3: weights are inputs too, shapes are attributes."""
    inputs = "float[1,3,8,8] x, float[3,3,2,2] w, float[3] b, int64[2] shape, float[48,4] m"
    text = f"""old_net ({inputs}, float[4] v) => (float[1,4] y) {{
        c = ConvTranspose <strides = [2,2], kernel_shape = [2,2]> (x, w, b)
        l = LRN <size = 3, alpha = 0.01, beta = 0.75, bias = 1.0> (c)
        a = AveragePool <kernel_shape = [3,3], strides = [4,4], pads = [1,1,1,1]> (l)
        h = Dropout <ratio = 0.5> (a)
        r = Reshape (h, shape)
        g = Gemm (r, m, v)
        u = Unsqueeze <axes = [0]> (g)
        q = Squeeze <axes = [0]> (u)
        y = Clip <min = -1.0, max = 1.0> (q)
    }}"""
    weights = [tensor("w", 3, 3, 2, 2), tensor("b", 3), ints("shape", 1, -1)]
    return model(text, [*weights, tensor("m", 48, 4), tensor("v", 4)], 9, 3)


def attention() -> onnx.ModelProto:
    text = """attention (int64[2,6] ids, int64[2,6] mask) => (float[2,6,8] y) {
        e = Gather <axis = 0> (table, ids)
        n = LayerNormalization <axis = -1, epsilon = 0.00001> (e, gain, bias)
        shape = Shape (n)
        rows = Gather <axis = 0> (shape, zero)
        target = Concat <axis = 0> (rows, tail)
        q0 = MatMul (n, wq)
        k0 = MatMul (n, wk)
        q1 = Reshape (q0, target)
        k1 = Reshape (k0, target)
        q = Transpose <perm = [0,2,1,3]> (q1)
        k = Transpose <perm = [0,2,3,1]> (k1)
        v = Transpose <perm = [0,2,1,3]> (k1)
        s0 = MatMul (q, k)
        s1 = Mul (s0, scale)
        m0 = Cast <to = 9> (mask)
        m1 = Unsqueeze (m0, axes)
        s2 = Where (m1, s1, low)
        p = Softmax <axis = -1> (s2)
        o0 = MatMul (p, v)
        o1 = Transpose <perm = [0,2,1,3]> (o0)
        o2 = Reshape (o1, flat)
        t = Tanh (o2)
        y = Add (t, n)
    }"""
    weights = [tensor("table", 20, 8), tensor("gain", 8), tensor("bias", 8), tensor("wq", 8, 8)]
    sizes = [ints("zero", 0), ints("tail", 6, 2, 4), ints("axes", 1, 2), ints("flat", 0, 0, -1)]
    scalars = [("scale", 0.5), ("low", -1e9)]
    numbers = [numpy_helper.from_array(np.float32(value), name) for name, value in scalars]
    return model(text, [*weights, tensor("wk", 8, 8), *sizes, *numbers])


def recurrent() -> onnx.ModelProto:
    text = """recurrent (float[5,2,3] x, float[1,2,4] h0, float[1,2,4] c0) => (float[5,2,4] y) {
        o, h, c = LSTM <hidden_size = 4, direction = "forward"> (x, w, r, b, , h0, c0)
        s = Squeeze (o, axes)
        a, z = Split <axis = 2, num_outputs = 2> (s)
        g = Sigmoid (a)
        m = Mul (g, z)
        y = Concat <axis = 2> (m, a)
    }"""
    weights = [tensor("w", 1, 16, 3), tensor("r", 1, 16, 4), tensor("b", 1, 32), ints("axes", 1)]
    return model(text, weights)


def movement() -> onnx.ModelProto:
    text = """movement (float[2,5,7] x) => (float[2,6] y, float[2,3,1] z) {
        s = Slice (x, starts, ends, axes, steps)
        p = Pad <mode = "constant"> (s, pads, value)
        e = Expand (p, big)
        t = Tile (e, repeats)
        m = ReduceMean <keepdims = 0> (t, last)
        k = ReduceMax <keepdims = 1> (s, last)
        zero = ConstantOfShape <value = float[1] {0.5}> (six)
        i = Range (first, limit, delta)
        w = Cast <to = 1> (i)
        a = Add (m, zero)
        y = Mul (a, w)
        z = Identity (k)
    }"""
    slices = [ints("starts", 1, 0), ints("ends", 4, 7), ints("axes", 1, 2), ints("steps", 1, 2)]
    pads = [ints("pads", 0, 1, 0, 0, 2, 1), numpy_helper.from_array(np.float32(0.5), "value")]
    shapes = [ints("big", 2, 6, 5), ints("repeats", 1, 1, 2), ints("last", 2), ints("six", 6)]
    numbers = [("first", 0), ("limit", 6), ("delta", 1)]
    scalars = [numpy_helper.from_array(np.array(value, np.int64), name) for name, value in numbers]
    return model(text, [*slices, *pads, *shapes, *scalars])


def branch() -> onnx.ModelProto:
    text = """branch (float[3,4] x, bool flag) => (float[3,4] y) {
        y = If (flag) <
            then_branch = yes () => (float[3,4] a) { a = MatMul (x, w) },
            else_branch = no () => (float[3,4] b) { t = Neg (x)  b = Exp (t) }
        >
    }"""
    return model(text, [tensor("w", 4, 4)])


def function() -> onnx.ModelProto:
    """A model-local function, called twice."""
    made = parser.parse_model("""
        <ir_version: 9, opset_import: ["" : 18, "own" : 1]>
        function (float[3,4] x) => (float[3,4] y) {
            h = own.scaled <factor = 2.0> (x)
            y = own.scaled <factor = 0.5> (h)
        }
        <domain: "own", opset_import: ["" : 18]>
        scaled <factor> (a) => (b) {
            f = Constant <value_float: float = @factor> ()
            m = Mul (a, f)
            b = Relu (m)
        }""")
    onnx.checker.check_model(made, full_check=True)
    return made


def external() -> onnx.ModelProto:
    """A dense layer whose weights lie in WEIGHTS_FILE beside the model."""
    made = model(
        """external (float[2,8] x) => (float[2,8] y) {
            h = MatMul (x, w)
            t = Add (h, b)
            y = Relu (t)
        }""",
        [tensor("w", 8, 8), tensor("b", 8)],
    )
    place_outside(made.graph.initializer[0], WEIGHTS_FILE, 0, 256)
    return made


def place_outside(stored: TensorProto, location: str, offset: int, length: int) -> None:
    """Make the tensor's data external."""
    for field in ("raw_data", "float_data", "int64_data", "external_data"):
        stored.ClearField(field)
    stored.data_location = TensorProto.EXTERNAL
    entries = {"location": location, "offset": str(offset), "length": str(length)}
    for key, value in entries.items():
        stored.external_data.add(key=key, value=value)


def weights_file() -> bytes:
    """What lies in the external file: more than `external` needs, of harmless values."""
    return np.random.default_rng(5).standard_normal(256, np.float32).tobytes()


SEEDS: dict[str, Callable[[], onnx.ModelProto]] = {
    seed.__name__: seed
    for seed in (cnn, old_net, attention, recurrent, movement, branch, function, external)
}
