"""Parameters that the run finds, of any value: what they give is what the operators define, and
what nobody can mean is refused with its sizes."""

import itertools
from functools import cache
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto
from onnx.helper import make_graph, make_model, make_node, make_opsetid, make_tensor_value_info

import tilewright as tw
from tilewright.frontend.onnx import import_onnx
from tilewright.frontend.onnx.tensors import bounds
from tilewright.graph import sizes
from tilewright.ir.expr import Var
from tilewright.support.errors import InputError, TilewrightError

F32, I64 = TensorProto.FLOAT, TensorProto.INT64


def modelled(nodes, inputs, outputs, initializers=()):
    """A model of nodes; inputs: (name, type, shape); outputs: (name, type, rank)."""
    graph = make_graph(
        nodes,
        "g",
        [make_tensor_value_info(*i) for i in inputs],
        [make_tensor_value_info(n, t, [f"{n}_{k}" for k in range(r)]) for n, t, r in outputs],
        [onnx.numpy_helper.from_array(v, n) for n, v in dict(initializers).items()],
    )
    return make_model(graph, opset_imports=[make_opsetid("", 19)], ir_version=9)


def peer(proto) -> Any:
    return onnxruntime.InferenceSession(proto.SerializeToString())


def compiled(*model):
    return tw.compile(modelled(*model))


@cache
def padded(mode, shape=(2, "n")):
    pads = ("p", I64, [2 * len(shape)])
    return compiled(
        [make_node("Pad", ["x", "p"], ["y"], mode=mode)], [("x", F32, shape), pads], [("y", F32, 2)]
    )


def numpy_pad(x, pads, mode):
    """Negative pads cut; the others extend what is left, as NumPy does."""
    half = len(pads) // 2
    ends = list(zip(pads[:half], pads[half:], strict=True))
    if mode == "constant":  # what is cut away is outside
        far = 10
        x = np.pad(x, far)
        cuts = [slice(far - a, s - far + b) for (a, b), s in zip(ends, x.shape, strict=True)]
        return x[tuple(cuts)]
    cuts = [slice(max(-a, 0), s - max(-b, 0)) for (a, b), s in zip(ends, x.shape, strict=True)]
    return np.pad(x[tuple(cuts)], [(max(a, 0), max(b, 0)) for a, b in ends], mode)


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "wrap"])
def test_pads_of_the_run_cut_and_extend(mode):
    exe = padded(mode)
    for n, p in itertools.product((1, 2, 5), itertools.product((-1, 0, 2, 7), repeat=2)):
        x = np.arange(2.0 * n, dtype=np.float32).reshape(2, n)
        left = n + min(p[0], 0) + min(p[1], 0)
        pads = [1, p[0], -1, p[1]]
        if (mode != "constant" and left < 1 and max(p) > 0) or n + sum(p) < 0 or left < 0:
            with pytest.raises(InputError, match="these values do not fit"):
                exe(x, np.array(pads))
        else:
            np.testing.assert_array_equal(exe(x, np.array(pads))[0], numpy_pad(x, pads, mode))


@pytest.mark.parametrize("mode", ["constant", "reflect"])
def test_padded_sizes_have_one_name_each(mode):
    """The product of sizes that are sums of pads has a term for each choice of summands."""
    shape = [("p", I64, [8]), ("x", F32, ["n", 3, "h", "w"])]
    model = modelled([make_node("Pad", ["x", "p"], ["y"], mode=mode)], shape, [("y", F32, 4)])
    (y,) = import_onnx(model).outputs
    assert all(len(sizes.monomials(s)) == 1 for s in y.shape)


def test_many_runs_with_pads_that_cut():
    """Each wrote 36 kB before its output."""
    exe = padded("constant", (4000, 10))
    x = np.random.default_rng(0).random((4000, 10), np.float32)
    for _ in range(50):
        np.testing.assert_array_equal(exe(x, np.array([0, 0, 0, -9]))[0], x[:, :1])


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("height", [2, "n"])
def test_a_resize_to_nothing_is_empty(mode, height):
    scales = {"s": np.array([1, 1, 0.4, 2], np.float32)}
    exe = compiled(
        [make_node("Resize", ["x", "", "s"], ["y"], mode=mode)],
        [("x", F32, [1, 2, height, 3])],
        [("y", F32, 4)],
        scales,
    )
    assert exe(np.ones((1, 2, 2, 3), np.float32))[0].shape == (1, 2, 0, 6)


@pytest.mark.parametrize("huge", [1 << 41, (1 << 63) - 1, -(1 << 63), -(1 << 41)])
def test_pads_that_nobody_means(huge):
    exe = padded("constant")
    with pytest.raises(InputError, match="Pad 'y': these values do not fit"):
        exe(np.zeros((2, 3), np.float32), np.array([0, huge, 0, 0]))


def test_reflections_of_a_short_open_axis():
    """Pads are numbers, the axis is open: it may be shorter than they are."""
    exe = compiled(
        [make_node("Pad", ["x", "p"], ["y"], mode="reflect")],
        [("x", F32, ["n"])], [("y", F32, 1)], {"p": np.array([2, 3])},
    )  # fmt: skip
    for n in range(1, 8):
        x = np.arange(float(n), dtype=np.float32)
        np.testing.assert_array_equal(exe(x)[0], np.pad(x, (2, 3), "reflect"))


MADE = {
    "ConstantOfShape": ([make_node("ConstantOfShape", ["p"], ["y"])], [], 3),
    "Tile": ([make_node("Tile", ["x", "p"], ["y"])], [("x", F32, [4, 4])], 2),
    "Expand": ([make_node("Expand", ["x", "p"], ["y"])], [("x", F32, [1, 4])], 3),
}


@cache
def made(kind):
    nodes, inputs, rank = MADE[kind]
    return compiled(nodes, [*inputs, ("p", I64, [rank])], [("y", F32, rank)])


@pytest.mark.parametrize(
    ("kind", "asked"),
    [
        ("ConstantOfShape", [536838145, 536903681, 16]),
        ("ConstantOfShape", [1 << 40, 1 << 40, 1 << 40]),
        ("ConstantOfShape", [1 << 32, 1 << 32, 4]),
        ("Tile", [1 << 30, 1 << 30]),
        ("Tile", [1 << 40, 1 << 40]),
        ("Expand", [1 << 32, 1 << 32, 4]),
        ("ConstantOfShape", [1 << 20, 1 << 20, 1 << 10]),  # a number holds it, and no machine
    ],
)
def test_products_that_no_number_holds(kind, asked):
    exe = made(kind)
    x = [np.ones(i[2], np.float32) for i in MADE[kind][1]]
    with pytest.raises(InputError, match=rf"y: f32.*than any machine has.*= {asked[0]}\b"):
        exe(*x, np.array(asked))
    few = [1, 2, 4][: len(asked)]
    assert exe(*x, np.array(few))[0].size in (8, 32)  # and it still runs


def test_a_tensor_larger_than_memory():
    with pytest.raises(TilewrightError, match="needs 4398046511104 bytes"):
        made("ConstantOfShape")(np.array([1 << 20, 1 << 20, 1]))


def test_a_product_inside_one_kernel():
    """Nothing of that size lies in memory; its positions are still counted."""
    nodes = [
        make_node("Expand", ["x", "p"], ["z"]),
        make_node("Reshape", ["z", "all"], ["w"]),
        make_node("Gather", ["w", "i"], ["y"]),
    ]
    inputs = [("x", F32, [1, 4]), ("p", I64, [3]), ("i", I64, [2])]
    exe = compiled(nodes, inputs, [("y", F32, 1)], {"all": np.array([-1])})
    x, i = np.arange(4.0, dtype=np.float32)[None], np.array([1, 6])
    np.testing.assert_array_equal(exe(x, np.array([2, 3, 4]), i)[0], [1, 2])
    with pytest.raises(InputError, match="z: f32"):
        exe(x, np.array([1 << 32, 1 << 32, 4]), i)


def test_shapes_of_inputs_whose_product_no_number_holds():
    nodes = [
        make_node("Shape", ["a"], ["s"]),
        make_node("Gather", ["s", "first"], ["n"]),
        make_node("Mul", ["n", "n"], ["nn"]),
        make_node("Mul", ["nn", "nn"], ["n4"]),
        make_node("Concat", ["n4", "nn"], ["goal"], axis=0),
        make_node("Expand", ["x", "goal"], ["y"]),
    ]
    inputs = [("x", F32, [1, 1]), ("a", F32, ["n", 0])]
    exe = compiled(nodes, inputs, [("y", F32, 2)], {"first": np.array([0])})
    x = np.ones((1, 1), np.float32)
    assert exe(x, np.zeros((2, 0), np.float32))[0].shape == (16, 4)
    with pytest.raises(TilewrightError, match="more memory than any machine has"):
        exe(x, np.zeros((1 << 30, 0), np.float32))


def test_views_of_nothing_stay_empty():
    """The product of these sizes is 0 modulo 2**64, like that of the input's."""
    exe = compiled(
        [make_node("Reshape", ["x", "p"], ["z"], allowzero=1)],
        [("x", F32, [0, 3]), ("p", I64, [2])], [("z", F32, 2)],
    )  # fmt: skip
    assert exe(np.zeros((0, 3), np.float32), np.array([7, 0]))[0].shape == (7, 0)
    with pytest.raises(InputError, match="do not fit"):
        exe(np.zeros((0, 3), np.float32), np.array([1 << 32, 1 << 32]))


def test_steps_of_any_length():
    exe = compiled(
        [make_node("Slice", ["x", "first", "last", "axes", "step"], ["y"])],
        [("x", F32, ["n"]), *((k, I64, [1]) for k in ("first", "last", "step"))],
        [("y", F32, 1)], {"axes": np.array([0])},
    )  # fmt: skip
    x = np.arange(5, dtype=np.float32)
    for step in (1, -1, 2, -2, 1 << 40, (1 << 63) - 1, -(1 << 63)):
        first, last = ((1 << 63) - 1, -(1 << 63))[:: 1 if step < 0 else -1]
        y = exe(x, np.array([first]), np.array([last]), np.array([step]))[0]
        np.testing.assert_array_equal(y, x[::step])


def test_slices_are_as_onnxruntime_clamps_them():
    """A backward one that starts before the axis has its first, if there is one: Python's has
    none. The same of known sizes, of open ones and of what the run finds."""
    proto = modelled(
        [make_node("Slice", ["x", "first", "last", "axes", "step"], ["y"])],
        [("x", F32, ["n"]), *((k, I64, [1]) for k in ("first", "last", "step"))],
        [("y", F32, 1)], {"axes": np.array([0])},
    )  # fmt: skip
    exe, session = tw.compile(proto), peer(proto)
    n = Var("n")
    for first, last, step in itertools.product(range(-5, 5), range(-5, 5), (-3, -1, 1, 2)):
        given = bounds(n, first, last, step)
        for count in range(5):
            x = np.arange(count, dtype=np.float32)
            cut = {k: np.array([v]) for k, v in (("first", first), ("last", last), ("step", step))}
            (wanted,) = session.run(None, {"x": x, **cut})
            np.testing.assert_array_equal(exe(x, *cut.values())[0], wanted)
            for start, many in (bounds(count, first, last, step), given):
                at, length = (sizes.at(sizes.size(v), {n: count}) for v in (start, many))
                np.testing.assert_array_equal(np.arange(at, at + length * step, step), wanted)


def test_ends_of_open_sizes_lie_anywhere():
    """Before the axis, on it or behind it; m - 4 is counted from the front or from behind it."""
    n, m = Var("n"), Var("m")
    ends = [n, m, n - 2, n - 4, m - 4, sizes.size(0 - m), 2 * m - n, 0, 3, -2]
    for first, last, step in itertools.product(ends, ends, (-2, -1, 1, 3)):
        start, many = bounds(n, first, last, step)
        for values in ({n: a, m: b} for a, b in itertools.product(range(6), range(7))):
            at, length = (sizes.at(sizes.size(v), values) for v in (start, many))
            low, high = (sizes.at(sizes.size(e), values) for e in (first, last))
            wanted = bounds(values[n], low, high, step)
            assert length == wanted[1] and (at == wanted[0] or not length), (first, last, values)


@pytest.mark.parametrize("last", ["m", "-m", "m - 3"])
def test_slices_up_to_the_size_of_another(last):
    """What is left is another size where the run finds both to be the same."""
    of = {"m": ["m"], "-m": ["less"], "m - 3": ["three"]}[last]
    nodes = [
        make_node("Shape", ["z"], ["m"]),
        make_node("Neg", ["m"], ["less"]),
        make_node("Sub", ["m", "by"], ["three"]),
        make_node("Slice", ["x", "none", *of, "axes"], ["cut"]),
        make_node("Softmax", ["cut"], ["y"]),
        make_node("Slice", ["x", *of, "far", "axes"], ["rest"]),
    ]
    proto = modelled(
        nodes, [("x", F32, [2, "n"]), ("z", F32, ["m"])], [("y", F32, 2), ("rest", F32, 2)],
        {"none": np.array([0]), "by": np.array([3]), "axes": np.array([1]),
         "far": np.array([1 << 60])},
    )  # fmt: skip
    exe, session = tw.compile(proto), peer(proto)
    for have, other in ((5, 3), (5, 5), (3, 7), (1, 2), (4, 0), (0, 3)):
        given = {"x": np.random.rand(2, have).astype(np.float32), "z": np.zeros(other, np.float32)}
        for got, wanted in zip(exe(*given.values()), session.run(None, given), strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-6)


def test_a_resize_to_numbers_that_are_picked_one_by_one():
    """(width, height) as an input of two numbers, reversed by `Gather` of single elements."""
    nodes = [
        make_node("Gather", ["size", "one"], ["h"]),
        make_node("Gather", ["size", "zero"], ["w"]),
        make_node("Unsqueeze", ["h", "axes"], ["h1"]),
        make_node("Unsqueeze", ["w", "axes"], ["w1"]),
        make_node("Concat", ["outer", "h1", "w1"], ["goal"], axis=0),
        make_node("Resize", ["x", "", "", "goal"], ["y"], mode="linear",
                  coordinate_transformation_mode="align_corners"),
    ]  # fmt: skip
    numbers = {"one": np.array(1), "zero": np.array(0), "axes": [0], "outer": [1, 2]}
    weights = {k: np.array(v, np.int64) for k, v in numbers.items()}
    inputs = [("x", F32, (1, 2, 5, 7)), ("size", I64, [2])]
    proto = modelled(nodes, inputs, [("y", F32, 4)], weights)
    run, theirs = tw.compile(proto), peer(proto)
    x = np.random.default_rng(6).random((1, 2, 5, 7), np.float32)
    for size in ([9, 4], [3, 11], [7, 5]):
        feeds = {"x": x, "size": np.array(size, np.int64)}
        np.testing.assert_allclose(run(*feeds.values())[0], theirs.run(None, feeds)[0], atol=1e-6)
