"""Integer products and convolutions of ONNX beside onnxruntime: zero points that are constants or
found by the run, one for a tensor or for each row or column; no operand becomes i32 in memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright as tw
from tests.strategy.typed_products import kernels
from tilewright.frontend.onnx.importer import import_onnx
from tilewright.ir.expr import as_int
from tilewright.ir.stmt import Alloc
from tilewright.ir.walk import visit

TYPES = {"u8": (np.uint8, TensorProto.UINT8), "i8": (np.int8, TensorProto.INT8)}


class Model:
    """A model of one operator, with its inputs."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.inputs: dict[str, np.ndarray] = {}
        self.constants: dict[str, np.ndarray] = {}

    def numbers(self, of: str, *shape: int, low: int = -128, high: int = 127) -> np.ndarray:
        kind = TYPES[of][0]
        least, most = (max(low, 0), 255) if of == "u8" and high > 64 else (low, high)
        return self.rng.integers(least, most, shape, endpoint=True).astype(kind)

    def add(self, name: str, array: Any, fixed: bool) -> str:
        (self.constants if fixed else self.inputs)[name] = np.asarray(array)
        return name

    def made(self, op: str, names: list[str], of: int, **attrs: Any) -> onnx.ModelProto:
        infos = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
            for name, a in self.inputs.items()
        ]
        graph = helper.make_graph(
            [helper.make_node(op, names, ["y"], **attrs)],
            "product",
            infos,
            [helper.make_tensor_value_info("y", of, None)],
            [numpy_helper.from_array(a, name) for name, a in self.constants.items()],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
        model.ir_version = 10
        return model


def exact(model: onnx.ModelProto, inputs: dict[str, np.ndarray]) -> np.ndarray:
    """What onnxruntime gives where it does not saturate sums of two products: as it does on
    machines with AVX2 and no VNNI, unless told otherwise and given weights that are constants."""
    first, *others = inputs
    fixed = onnx.ModelProto()
    fixed.CopyFrom(model)
    del fixed.graph.input[1:]
    fixed.graph.initializer.extend(numpy_helper.from_array(inputs[n], n) for n in others)
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.x64quantprecision", "1")
    session = onnxruntime.InferenceSession(
        fixed.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return session.run(None, {first: inputs[first]})[0]


def check(model: onnx.ModelProto, inputs: dict[str, np.ndarray], sizes: set[int]) -> None:
    """As onnxruntime has it; and nothing of these many elements is i32 in memory."""
    expected = exact(model, inputs)
    (found,) = tw.compile(model, threads=1, cache=False)(*inputs.values())
    np.testing.assert_array_equal(found, expected)
    for func, loops in kernels(import_onnx(model), 1):
        buffers = [*func.buffers, *(s.buffer for s in visit(loops.body) if isinstance(s, Alloc))]
        for b in buffers:
            if b.dtype.name in ("i32", "f32") and b.scope == "global":
                assert np.prod([as_int(d) or 0 for d in b.shape]) not in sizes, b


@pytest.mark.sampled
@pytest.mark.parametrize("fixed", [True, False], ids=["constant", "input"])
@pytest.mark.parametrize("zeros", ["none", "one", "each"])
@pytest.mark.parametrize(("left", "right"), [("u8", "i8"), ("u8", "u8"), ("i8", "i8")])
def test_matmul_integer(left: str, right: str, zeros: str, fixed: bool) -> None:
    m = Model(sum(map(ord, left + right + zeros)) + fixed)
    names = [
        m.add("a", m.numbers(left, 13, 37), False),
        m.add("b", m.numbers(right, 37, 19), fixed),
    ]
    if zeros != "none":
        names.append(m.add("za", m.numbers(left), fixed))
        each = (19,) if zeros == "each" else ()
        names.append(m.add("zb", m.numbers(right, *each), fixed))
    check(m.made("MatMulInteger", names, TensorProto.INT32), m.inputs, {13 * 37, 37 * 19})


@pytest.mark.sampled
@pytest.mark.parametrize("fixed", [True, False], ids=["constant", "input"])
@pytest.mark.parametrize("groups", [1, 2, 6])
@pytest.mark.parametrize(("left", "right"), [("u8", "i8"), ("u8", "u8")])
@pytest.mark.parametrize("zeros", [False, True], ids=["", "zeros"])
def test_conv_integer(left: str, right: str, groups: int, zeros: bool, fixed: bool) -> None:
    m = Model(groups + 10 * fixed + ord(right[0]))
    x, w = m.numbers(left, 2, 6, 9, 7), m.numbers(right, 12, 6 // groups, 3, 2)
    names = [m.add("x", x, False), m.add("w", w, fixed)]
    if zeros:
        names += [m.add("zx", m.numbers(left), fixed), m.add("zw", m.numbers(right), fixed)]
    attrs = {"pads": [1, 0, 2, 1], "strides": [2, 1], "group": groups}
    check(m.made("ConvInteger", names, TensorProto.INT32, **attrs), m.inputs, {x.size, w.size})


def test_weights_lose_their_zero_point_when_they_are_constants() -> None:
    """Those of u8 about 128 are i8; the product is all that is left."""
    m = Model(1)
    names = [m.add("a", m.numbers("u8", 5, 8), False), m.add("b", m.numbers("u8", 8, 6), True)]
    names += [m.add("za", np.uint8(0), True), m.add("zb", np.uint8(128), True)]
    graph = import_onnx(m.made("MatMulInteger", names, TensorProto.INT32))
    assert [node.op for node in graph.nodes] == ["matmul"]
    assert [v.dtype.name for v in graph.nodes[0].inputs] == ["u8", "i8"]
