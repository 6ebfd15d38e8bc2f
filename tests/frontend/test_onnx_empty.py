"""Open sizes of nothing: what NumPy and onnxruntime take, and no read where nothing is."""

from __future__ import annotations

import numpy as np
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright as tw
from tilewright.driver.compile import compile_observed
from tilewright.driver.kernels import KernelPool
from tilewright.support.errors import InputError, TilewrightError

DRAW = np.random.default_rng(8).standard_normal
N = helper.make_node


def model(nodes, inputs, opset=17, **constants):
    fixed = [numpy_helper.from_array(np.asarray(v), n) for n, v in constants.items()]
    given = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs.items()]
    made = [helper.make_tensor_value_info(nodes[-1].output[0], TensorProto.FLOAT, None)]
    graph = helper.make_graph(nodes, "g", given, made, fixed)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def f(*shape):
    return DRAW(shape).astype(np.float32)


CASES = {
    "conv": (
        [N("Conv", ["x", "w"], ["c"], strides=[2, 2], pads=[1] * 4), N("Relu", ["c"], ["y"])],
        {"x": ["n", 8, "h", "w0"]}, {"w": f(8, 8, 3, 3)}, [[(0, 8, 9, 7)], [(2, 8, 9, 7)]],
    ),
    "product": (
        [N("MatMul", ["x", "z"], ["y"])], {"x": [3, "n"], "z": ["n", "m"]}, {},
        [[(3, 0), (0, 5)], [(3, 4), (4, 0)], [(3, 0), (0, 0)], [(3, 2), (2, 2)]],
    ),
    "attention": (
        [N("MatMul", ["q", "k"], ["s"]), N("Softmax", ["s"], ["p"]),
         N("MatMul", ["p", "v"], ["y"])],
        {"q": ["b", 2, "t", 8], "k": ["b", 2, 8, "u"], "v": ["b", 2, "u", 8]}, {},
        [[(0, 2, 3, 8), (0, 2, 8, 4), (0, 2, 4, 8)], [(1, 2, 0, 8), (1, 2, 8, 4), (1, 2, 4, 8)]],
    ),
    "sums": (
        [N("ReduceSum", ["x", "axis"], ["y"], keepdims=0)], {"x": ["n", "m"]},
        {"axis": np.array([1])}, [[(3, 0)], [(0, 3)], [(0, 0)], [(2, 5)]],
    ),
    "norm": (
        [N("LayerNormalization", ["x", "s"], ["y"])], {"x": ["n", "t", 8]}, {"s": f(8)},
        [[(0, 3, 8)], [(2, 0, 8)]],
    ),
    "concat": (
        [N("Concat", ["x", "z"], ["y"], axis=1)], {"x": [3, "n"], "z": [3, "m"]}, {},
        [[(3, 0), (3, 4)], [(3, 4), (3, 0)], [(3, 0), (3, 0)]],
    ),
    "broadcast": (
        [N("Add", ["x", "z"], ["y"])], {"x": ["n", 4], "z": ["m", 4]}, {},
        [[(0, 4), (0, 4)], [(0, 4), (1, 4)], [(1, 4), (0, 4)], [(1, 4), (3, 4)]],
    ),
    "moves": (
        [N("Transpose", ["x"], ["t"], perm=[2, 0, 1]), N("Flatten", ["t"], ["y"], axis=2)],
        {"x": ["n", 6, "m"]}, {}, [[(0, 6, 2)], [(2, 6, 0)]],
    ),
    "pool": (
        [N("AveragePool", ["x"], ["y"], kernel_shape=[3, 3])], {"x": ["n", 4, "h", "w"]}, {},
        [[(0, 4, 5, 6)], [(1, 4, 5, 3)]],
    ),
    "differences": (
        [N("Slice", ["x", "one", "far", "one"], ["t"]),
         N("Slice", ["x", "zero", "end", "one"], ["l"]),
         N("Sub", ["t", "l"], ["d"]), N("Slice", ["x", "zero", "one", "one"], ["f"]),
         N("Concat", ["f", "d"], ["y"], axis=1)],
        {"x": ["b", "n"]}, {"one": [1], "zero": [0], "far": [1 << 60], "end": [-1]},
        [[(2, 0)], [(2, 1)], [(2, 2)], [(2, 40)], [(0, 3)]],
    ),
    "the last row": (
        [N("Slice", ["x", "end", "far", "one"], ["l"]), N("MatMul", ["l", "w"], ["y"])],
        {"x": [1, "n", 8]}, {"one": [1], "far": [1 << 60], "end": [-1], "w": f(8, 40)},
        [[(1, 0, 8)], [(1, 1, 8)], [(1, 5, 8)]],
    ),
    "all but one row": (
        [N("Slice", ["x", "zero", "end", "zero"], ["l"]), N("MatMul", ["l", "w"], ["m"]),
         N("Softmax", ["m"], ["y"])],
        {"x": ["n", 8]}, {"zero": [0], "end": [-1], "w": f(8, 40)},
        [[(0, 8)], [(1, 8)], [(2, 8)], [(40, 8)]],
    ),
    "sum of all but one": (
        [N("Slice", ["x", "zero", "end", "one"], ["l"]), N("Relu", ["l"], ["r"]),
         N("ReduceSum", ["r", "one"], ["y"])],
        {"x": [3, "n"]}, {"one": [1], "zero": [0], "end": [-1]}, [[(3, 0)], [(3, 1)], [(3, 6)]],
    ),
    "backwards": (
        [N("Slice", ["x", "start", "far", "one", "back"], ["y"])], {"x": [3, "n"]},
        {"one": [1], "start": [-3], "far": [-(1 << 60)], "back": [-2]},
        [[(3, n)] for n in (0, 1, 2, 3, 4, 9)],
    ),
    "equal parts": (
        [N("Split", ["x"], ["a", "c", "b"], axis=1), N("Sub", ["a", "b"], ["y"])],
        {"x": [3, "n"]}, {}, [[(3, n)] for n in (0, 3, 12)],
    ),
    "slices that are the same": (
        [N("Unique", ["x"], ["u"], axis=1), N("Relu", ["u"], ["y"])], {"x": ["n", 3]}, {},
        [[(0, 3)], [(1, 3)], [(4, 3)]],
    ),
    "regions": (
        [N("Mul", ["r", "two"], ["twice"]), N("ReduceSum", ["r", "one"], ["s"], keepdims=0),
         N("Mul", ["s", "zero"], ["none"]), N("Cast", ["none"], ["b"], to=TensorProto.INT64),
         N("RoiAlign", ["x", "twice", "b"], ["y"], output_height=2, output_width=2)],
        {"x": [1, 2, 5, 5], "r": ["n", 4]},
        {"two": np.float32([0, 0, 2, 2]), "one": [1], "zero": np.float32(0)},
        [[(1, 2, 5, 5), (0, 4)], [(1, 2, 5, 5), (3, 4)]],
    ),
    "norms of channels": (
        [N("LpPool", ["x"], ["y"], kernel_shape=[2, 3], p=3, pads=[1, 1, 0, 1])],
        {"x": ["n", "c", 5, "w"]}, {}, [[(0, 4, 5, 6)], [(2, 3, 5, 6)], [(1, 1, 5, 2)]],
    ),
}  # fmt: skip


def compiled(proto):
    return compile_observed(proto, cache=False, pool=KernelPool(1))


@pytest.mark.parametrize("name", CASES)
def test_as_onnxruntime(name):
    nodes, inputs, constants, runs = CASES[name]
    proto = model(nodes, inputs, **constants)
    run, session = compiled(proto), ort.InferenceSession(proto.SerializeToString())
    draw = np.random.default_rng(len(name)).standard_normal  # the same whichever tests ran before
    for shapes in runs:
        arrays = [draw(s).astype(np.float32) for s in shapes]
        (wanted,) = session.run(None, dict(zip(inputs, arrays, strict=True)))
        (found,) = run(*arrays)
        assert found.shape == wanted.shape
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def test_indices_into_nothing():
    """A known index needs the element; one from data is checked where it is read."""
    run = compiled(model([N("Gather", ["x", "i"], ["y"])], {"x": ["n", 3]}, i=np.array([2, -1])))
    x = f(4, 3)
    np.testing.assert_array_equal(run(x)[0], x[[2, -1]])
    for rows in (0, 2):
        with pytest.raises(InputError, match="may not be negative"):
            run(f(rows, 3))
    nodes = [
        N("Cast", ["i"], ["k"], to=TensorProto.INT64), N("Expand", ["k", "two"], ["e"]),
        N("ScatterElements", ["x", "e", "u"], ["y"]),
    ]  # fmt: skip
    inputs = {"x": ["n"], "i": [1], "u": [2]}
    run = compiled(model(nodes, inputs, two=np.array([2])))
    zero = np.zeros(1, np.float32)
    assert run(f(3), zero, f(2))[0].shape == (3,)
    with pytest.raises(InputError):
        run(f(0), zero, f(2))


def test_images_smaller_than_the_window():
    nodes = [N("Conv", ["x", "w"], ["c"]), N("ReduceMax", ["c"], ["y"], keepdims=0)]
    run = compiled(model(nodes, {"x": [1, 4, "h", "w0"]}, w=f(4, 4, 5, 5)))
    assert run(f(1, 4, 5, 6))[0].shape == ()
    with pytest.raises(InputError, match="the size h - 4 of "):
        run(f(1, 4, 3, 6))
    run = compiled(model([N("Conv", ["x", "w"], ["y"])], {"x": [1, 4, "h", 9]}, w=f(4, 4, 5, 5)))
    with pytest.raises(InputError, match=r"would have the shape \[1, 4, -1, 5\]"):
        run(f(1, 4, 3, 9))


def test_parts_of_an_open_size():
    """The last one is what is left; never less than nothing."""
    nodes = [N("Split", ["x"], ["a", "b", "c"], num_outputs=3), N("Concat", "cba", ["y"], axis=0)]
    proto = model(nodes, {"x": ["n", 2]}, opset=18)
    run, session = compiled(proto), ort.InferenceSession(proto.SerializeToString())
    for rows in (0, 2, 3, 4, 5, 6, 8):
        x = f(rows, 2)
        np.testing.assert_array_equal(run(x)[0], session.run(None, {"x": x})[0])
    with pytest.raises(InputError, match="of 'c'"):
        run(f(1, 2))


def test_indices_are_no_longer_than_what_they_index():
    """Along the other axes element k of the indices is of the operand's k."""
    at = np.array([[2, 0], [1, 1]])
    nodes = [N("GatherElements", ["x", "i"], ["y"], axis=1)]
    run = compiled(model(nodes, {"x": ["n", 3]}, i=at))
    x = f(2, 3)
    np.testing.assert_array_equal(run(x)[0], np.take_along_axis(x, at, 1))
    for other in (nodes, [N("ScatterElements", ["x", "i", "u"], ["y"], axis=1)]):
        with pytest.raises(InputError, match="these values do not fit"):
            compiled(model(other, {"x": ["n", 3]}, i=at, u=f(2, 2)))(f(1, 3))
        with pytest.raises(TilewrightError, match="longer than the data along axis 0"):
            compiled(model(other, {"x": [1, 3]}, i=at, u=f(2, 2)))


def test_a_condition_keeps_what_is_there():
    nodes = [N("Compress", ["x", "c"], ["y"], axis=0)]
    run = compiled(model(nodes, {"x": ["n", 2]}, c=np.array([True, False, True])))
    x = f(3, 2)
    np.testing.assert_array_equal(run(x)[0], x[[0, 2]])
    with pytest.raises(InputError, match="n - 3 may not be negative"):
        run(f(2, 2))


def test_a_size_below_none_in_a_chain_says_whose_it_is():
    """The arena's end, which has a name of its own, is negative as well: no lack of memory."""
    nodes = [
        N("MaxPool", ["x"], ["p"], kernel_shape=[3, 3], dilations=[2, 2], strides=[2, 2]),
        N("Transpose", ["p"], ["t"], perm=[0, 1, 3, 2]), N("MatMul", ["p", "t"], ["y"]),
    ]  # fmt: skip
    run = tw.compile(model(nodes, {"x": [2, 3, "h", "w"]}), cache=False, threads=1, opt_level=1)
    assert run(f(2, 3, 9, 7))[0].shape == (2, 3, 3, 3)
    with pytest.raises(InputError, match="// 2 - 2 of 'p'"):
        run(f(2, 3, 9, 2))
