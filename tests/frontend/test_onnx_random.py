"""Random ONNX operators, compiled: their numbers are spread as they should be, and follow from the
seed."""

from __future__ import annotations

import math

import numpy as np
import pytest
from onnx import TensorProto, helper

from tilewright.driver.compile import compile_observed
from tilewright.driver.kernels import KernelPool
from tilewright.frontend.onnx import import_onnx
from tilewright.graph import evaluate

COUNT = 1 << 16
POOL = KernelPool(1)  # kernels are compiled in this process: they are few and small


def drawn(*nodes, x=None, outputs=("y",), of=TensorProto.FLOAT):
    """What the compiled nodes give for x; the operators' references give the same."""
    inputs, arrays = [], []
    if x is not None:
        kind = helper.np_dtype_to_tensor_dtype(x.dtype)
        inputs, arrays = [helper.make_tensor_value_info("x", kind, x.shape)], [x]
    results = [helper.make_tensor_value_info(name, of, None) for name in outputs]
    graph = helper.make_graph(list(nodes), "g", inputs, results)
    imports = [helper.make_opsetid("", 22)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=10)
    made = compile_observed(model, cache=False, pool=POOL)(*arrays)
    for a, b in zip(made, evaluate(import_onnx(model), arrays), strict=True):
        if a.dtype.kind == "f":
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
        else:
            np.testing.assert_array_equal(a, b)
    return made


def node(op, inputs="", outputs="y", **attributes):
    return helper.make_node(op, inputs.split(), outputs.split(), **attributes)


def near(fraction, expected, count=COUNT):
    """A fraction of `count` trials within five deviations of its expectation."""
    deviation = math.sqrt(max(expected * (1 - expected), 1e-9) / count)
    assert abs(fraction - expected) < 5 * deviation, (fraction, expected)


def test_uniform_numbers_fill_their_range_evenly():
    (y,) = drawn(node("RandomUniform", shape=[COUNT], low=-2.0, high=6.0, seed=3.5))
    assert y.dtype == np.float32 and y.min() >= -2 and y.max() <= 6
    for part in range(16):
        low = -2 + part / 2
        near(np.mean((y >= low) & (y < low + 0.5)), 1 / 16)
    pairs = (y[:-1] < 2) & (y[1:] < 2)  # neighbours do not depend on each other
    near(pairs.mean(), 1 / 4, COUNT / 2)


def test_normal_numbers_have_the_shares_of_the_bell():
    (y,) = drawn(node("RandomNormal", shape=[COUNT], mean=1.0, scale=3.0, seed=1.0))
    for edge in (-2.0, -1.0, -0.3, 0.0, 0.5, 1.5, 2.5):
        near(np.mean((y - 1) / 3 < edge), (1 + math.erf(edge / math.sqrt(2))) / 2)
    assert abs(np.corrcoef(y[:-1], y[1:])[0, 1]) < 5 / math.sqrt(COUNT)


def test_bernoulli_follows_its_probabilities():
    x = np.repeat(np.array([0.0, 0.1, 0.5, 0.9, 1.0], np.float32), 20_000).reshape(5, -1)
    (y,) = drawn(node("Bernoulli", "x"), x=x)
    assert set(np.unique(y)) == {0.0, 1.0} and y.dtype == np.float32
    for row, p in zip(y, x[:, 0], strict=True):
        near(row.mean(), float(p), 20_000)


def test_multinomial_follows_its_rows():
    x = np.log(np.array([[1, 2, 3, 4], [5, 5, 0.001, 5]], np.float32))
    drawer = node("Multinomial", "x", sample_size=20_000, dtype=TensorProto.INT64)
    (y,) = drawn(drawer, x=x, of=TensorProto.INT64)
    for row, logs in zip(y, x, strict=True):
        shares = np.exp(logs) / np.exp(logs).sum()
        for k in range(4):
            near(np.mean(row == k), float(shares[k]), 20_000)


@pytest.mark.parametrize("ratio", [0.25, 0.5, 0.9])
def test_dropout_in_training_keeps_the_mean(ratio):
    x = np.ones((256, 256), np.float32)
    tensor = helper.make_tensor("r", TensorProto.FLOAT, [], [ratio])
    mode = helper.make_tensor("t", TensorProto.BOOL, [], [True])
    nodes = [helper.make_node("Constant", [], [t.name], value=t) for t in (tensor, mode)]
    y, kept = drawn(*nodes, node("Dropout", "x r t", "y kept"), x=x, outputs=("y", "kept"))
    near(kept.mean(), 1 - ratio)
    np.testing.assert_allclose(y, np.where(kept, 1 / (1 - ratio), 0), rtol=1e-5)


def test_a_seeded_mask_is_numpys():
    x = np.ones((13, 101), np.float32)  # more numbers than one round of the generator gives
    mode = helper.make_tensor("t", TensorProto.BOOL, [], [True])
    constant = helper.make_node("Constant", [], ["t"], value=mode)
    dropout = helper.make_node("Dropout", ["x", "", "t"], ["y", "kept"], seed=77)
    _, kept = drawn(constant, dropout, x=x, outputs=("y", "kept"))
    np.testing.assert_array_equal(kept, np.random.RandomState(77).uniform(size=x.shape) >= 0.5)


def test_seeds_and_nodes_have_streams_of_their_own():
    one = node("RandomUniform", outputs="a", shape=[64], seed=1.0)
    again = node("RandomUniform", outputs="b", shape=[64], seed=1.0)
    other = node("RandomUniform", outputs="c", shape=[64], seed=2.0)
    free = node("RandomUniform", outputs="d", shape=[64])
    more = node("RandomUniform", outputs="e", shape=[64])
    a, b, *rest = drawn(one, again, other, free, more, outputs="abcde")
    np.testing.assert_array_equal(a, b)
    for k, y in enumerate(rest):
        for z in (a, *rest[:k]):
            assert not np.isin(y, z).any()
