"""Folding has a budget: small files do not become large constants, and large weights still fold."""

from __future__ import annotations

import itertools
import tracemalloc

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright as tw
from tilewright.frontend.onnx import import_onnx
from tilewright.graph import Builder, budget, evaluate, fourier, resample
from tilewright.graph.folding import Folding
from tilewright.graph.passes.fold_constants import fold_constants
from tilewright.graph.passes.pipeline import optimise

MB = 1 << 20
random = np.random.default_rng(5)
W = random.standard_normal((32, 32), np.float32)


def model(nodes, constants, opset=18):
    """An ONNX model that ends with the sum of all that `nodes` make of constants, times x[1]."""
    last = nodes[-1].output[0]
    end = [
        helper.make_node("ReduceSum", [last], ["total"], keepdims=0),
        helper.make_node("Mul", ["x", "total"], ["y"]),
    ]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [*nodes, *end], "g", [value("x", TensorProto.FLOAT, [1])],
        [value("y", TensorProto.FLOAT, [1])],
        [numpy_helper.from_array(np.asarray(a), n) for n, a in constants.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def node(op, inputs, **attrs):
    return helper.make_node(op, inputs.split(" "), ["r"], **attrs)


def doubled(times):
    names = ["w", *(f"d{k}" for k in range(times))]
    made = [helper.make_node("Concat", [a, a], [b], axis=0) for a, b in itertools.pairwise(names)]
    return model(made, {"w": W})


def doubled_by_turns(times):
    """Each doubling is transposed, so that what the pass sees last is a view."""
    made, last = [], "w"
    for k in range(times):
        made.append(helper.make_node("Concat", [last, last], [f"d{k}"], axis=0))
        made.append(helper.make_node("Transpose", [f"d{k}"], [f"t{k}"], perm=[1, 0]))
        last = f"t{k}"
    return model(made, {"w": W})


GREAT = np.array([1 << 14, 1 << 14])
SMALL_FILES = {
    "concat": doubled(18),
    "concat and transpose": doubled_by_turns(18),
    "constant of shape": model([node("ConstantOfShape", "s")], {"s": GREAT}),
    "expand": model([node("Expand", "w s")], {"w": W[:1, :1], "s": GREAT}),
    "expanded, then computed": model(
        [
            helper.make_node("Expand", ["w", "s"], ["e"]),
            helper.make_node("Exp", ["e"], ["f"]),
            node("CumSum", "f a"),
        ],
        {"w": W[:1, :1], "s": GREAT, "a": np.array(0)},
    ),
    "tile": model([node("Tile", "w s")], {"w": W, "s": GREAT // 32}),
    "range": model(
        [node("Range", "a b c")],
        {"a": np.float32(0), "b": np.float32(1 << 28), "c": np.float32(1)},
    ),
    "one hot": model(
        [node("OneHot", "i d v")],
        {"i": np.arange(1 << 13), "d": np.array(1 << 15), "v": W[0, :2]},
    ),
    "eye": model(
        [
            helper.make_node("ConstantOfShape", ["s"], ["c"]),
            node("EyeLike", "c"),
        ],
        {"s": GREAT},
    ),
    "resize": model(
        [node("Resize", "w  s", mode="linear")],
        {"w": W[None, None], "s": np.array([1, 1, 512, 512], np.float32)},
    ),
    "long resize": model(
        [node("Resize", "w   g", mode="cubic")],
        {"w": W[None, None, :1], "g": np.array([1, 1, 1, 1 << 24])},
    ),
    "long upsample": model(
        [node("Upsample", "w s", mode="linear")],
        {"w": W[None, None, :1], "s": np.array([1, 1, 1, 1 << 21], np.float32)},
        opset=9,
    ),
    "transform of prime length": model(
        [node("DFT", "w", axis=1)], {"w": random.random((1, 65537, 1), np.float32)}
    ),
    "filters": model(
        [node("MelWeightMatrix", "b n hz l h")],
        {
            "b": np.array(1 << 14),
            "n": np.array(1 << 16),
            "hz": np.array(16000),
            "l": np.float32(0),
            "h": np.float32(8000),
        },
    ),
    "window": model([node("HannWindow", "n")], {"n": np.array(1 << 28)}),
    "pad": model([node("Pad", "w p")], {"w": W, "p": np.array([0, 0, 1 << 14, 1 << 14])}),
    "product": model(
        [node("MatMul", "a b")],
        {
            "a": random.random((1 << 14, 1), np.float32),
            "b": random.random((1, 1 << 14), np.float32),
        },
    ),
    "einsum": model(
        [node("Einsum", "a a a", equation="i,j,k->ijk")], {"a": random.random(1 << 9, np.float32)}
    ),
    "gather": model([node("Gather", "w i")], {"w": W, "i": np.zeros(1 << 17, np.int64)}),
    "windows": model(
        [node("Conv", "a b", pads=[256] * 4)],
        {
            "a": random.random((1, 1, 512, 512), np.float32),
            "b": random.random((1, 1, 512, 512), np.float32),
        },
    ),
    "pool": model(
        [node("AveragePool", "a", kernel_shape=[400, 400], pads=[199] * 4)],
        {"a": random.random((1, 1, 500, 500), np.float32)},
    ),
    "wide pads": model(
        [
            node(
                "MaxPool",
                "a",
                kernel_shape=[1 << 15] * 2,
                pads=[1 << 14] * 4,
                strides=[1 << 15] * 2,
            )
        ],
        {"a": random.random((1, 1, 8, 8), np.float32)},
    ),
}


@pytest.mark.parametrize("name", SMALL_FILES)
def test_small_files_take_little_memory(name):
    tracemalloc.start()
    try:
        graph = optimise(import_onnx(SMALL_FILES[name]))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 300 * MB
    assert sum(budget.taken(c) for c in graph.constants.values()) <= budget.FLOOR + MB


@pytest.mark.parametrize("name", ["concat", "one hot", "windows"])
def test_what_is_not_folded_is_computed_in_the_run(name, monkeypatch):
    smaller = {
        "concat": doubled(9),
        "one hot": model(
            [node("OneHot", "i d v")],
            {"i": np.arange(64), "d": np.array(128), "v": np.float32([2, 3])},
        ),
        "windows": model(
            [node("Conv", "a b", pads=[3] * 4)],
            {"a": W[None, None, :, :8], "b": W[None, None, :8, :8]},
        ),
    }[name]
    known = import_onnx(smaller)
    assert [n.op for n in known.nodes] == ["mul"]
    monkeypatch.setattr(budget, "FLOOR", 0)
    monkeypatch.setattr(budget, "FREE", 64)
    monkeypatch.setattr(budget, "TIMES", 1)
    left = import_onnx(smaller)
    assert len(left.nodes) > 1
    x = np.float32([1.25])
    made = tw.compile(left, cache=False, threads=1)(x)[0]
    np.testing.assert_allclose(made, evaluate(known, [x])[0], rtol=1e-5)


def test_weights_fold_beside_the_floor(monkeypatch):
    """Half-precision weights, cast and transposed and scaled: each step as large as all weights."""
    monkeypatch.setattr(budget, "FLOOR", 0)
    build = Folding()
    x = build.input("x", "f32", (4, 64))
    for _ in range(4):
        w = build.constant(random.standard_normal((64, 64)).astype(np.float16))
        w = build.emit("cast", w, to="f32")
        w = build.emit("transpose", w, perm=(1, 0))
        w = build.emit("mul", w, build.constant(W[0, :1]))
        x = build.emit("matmul", x, w)
    assert [n.op for n in build.finish([x]).nodes] == ["matmul"] * 4


def test_passes_count_what_the_import_has_made(monkeypatch):
    """Folding again and again does not take the results of folding for the model's own."""
    monkeypatch.setattr(budget, "FLOOR", 0)
    build = Builder()
    w = build.constant(random.standard_normal((64, 64), np.float32))
    grown = [w]
    for _ in range(6):
        grown.append(build.emit("concat", grown[-1], grown[-1], axis=0))
    graph = build.finish([grown[-1]])
    sizes = []
    for _ in range(6):
        graph = fold_constants(graph)
        sizes.append(sum(budget.taken(c) for c in graph.constants.values()))
    assert max(sizes) <= (1 + budget.TIMES) * 64 * 64 * 4


def test_matrices_of_long_transforms_are_made_in_the_run(monkeypatch):
    x = random.standard_normal((2, 17, 3), np.float32)
    monkeypatch.setattr(fourier, "LONGEST_KEPT", 16)
    build = Folding()
    real, imag = fourier.transform(build, fourier.Parts(build.input("x", "f32", x.shape), None), -1)
    graph = build.finish([real, imag])
    assert "matmul" in [n.op for n in graph.nodes]
    expected = np.fft.fft(x.astype(np.float64), axis=1)
    for made, wanted in zip(evaluate(graph, [x]), (expected.real, expected.imag), strict=True):
        np.testing.assert_allclose(made, wanted, atol=2e-5)


def test_wide_resampling_without_a_matrix(monkeypatch):
    x = random.standard_normal((2, 60, 3), np.float32)
    kernel = resample.Kernel("cubic", antialias=True)
    axis = resample.Axis(1, (np.arange(7) + 0.5) * 60 / 7 - 0.5, 7 / 60)
    made = []
    for most in (1 << 24, 0):
        monkeypatch.setattr(resample, "MOST_IN_MATRIX", most)
        build = Builder()
        y = resample.resample(build, build.input("x", "f32", x.shape), [axis], kernel)
        graph = build.finish([y])
        made.append(evaluate(graph, [x])[0])
    assert "reduce_sum" in [n.op for n in graph.nodes]
    np.testing.assert_allclose(made[1], made[0], rtol=1e-5, atol=1e-6)


def test_bodies_of_loops_share_the_budget(monkeypatch):
    """What each of many bodies folds counts together, and a constant that they read counts once."""
    monkeypatch.setattr(budget, "FLOOR", 0)
    bodies = [
        helper.make_graph(
            [
                helper.make_node("Concat", ["w", "w"], [f"d{k}"], axis=0),
                helper.make_node("ReduceSum", [f"d{k}"], [f"t{k}"], keepdims=0),
                helper.make_node("Add", [f"s{k}", f"t{k}"], [f"o{k}"]),
                helper.make_node("Identity", [f"c{k}"], [f"p{k}"]),
            ],
            f"body{k}",
            [
                helper.make_tensor_value_info(f"i{k}", TensorProto.INT64, []),
                helper.make_tensor_value_info(f"c{k}", TensorProto.BOOL, []),
                helper.make_tensor_value_info(f"s{k}", TensorProto.FLOAT, []),
            ],
            [
                helper.make_tensor_value_info(f"p{k}", TensorProto.BOOL, []),
                helper.make_tensor_value_info(f"o{k}", TensorProto.FLOAT, []),
            ],
        )
        for k in range(20)
    ]
    nodes = [
        helper.make_node("Loop", ["n", "", "zero" if not k else f"y{k - 1}"], [f"y{k}"], body=body)
        for k, body in enumerate(bodies)
    ]
    graph = helper.make_graph(
        nodes,
        "loops",
        [helper.make_tensor_value_info("n", TensorProto.INT64, [])],
        [helper.make_tensor_value_info("y19", TensorProto.FLOAT, [])],
        [
            numpy_helper.from_array(random.standard_normal((64, 64), np.float32), "w"),
            numpy_helper.from_array(np.float32(0), "zero"),
        ],
    )
    made: list[Folding] = []
    real = Folding.__init__
    monkeypatch.setattr(
        Folding, "__init__", lambda self, *a, **k: (made.append(self), real(self, *a, **k))[1]
    )
    imports = [helper.make_opsetid("", 18)]
    import_onnx(helper.make_model(graph, opset_imports=imports, ir_version=9))
    (whole,) = {id(b.budget): b.budget for b in made}.values()
    nbytes = 64 * 64 * 4
    assert len(made) == 21 and whole.made <= budget.TIMES * nbytes
    assert nbytes <= whole.own < 2 * nbytes


@pytest.mark.parametrize(("most", "ops"), [(1 << 30, []), (999, ["matmul"])])
def test_long_products_are_left_to_the_run(monkeypatch, most, ops):
    monkeypatch.setattr(budget, "MOST_WHOLE", most)
    build = Folding()
    a, b = (build.constant(np.ones((10, 10), np.int64)) for _ in range(2))
    y = build.emit("matmul", a, b)
    assert [n.op for n in build.finish([y]).nodes] == ops


def test_weights_are_folded_whatever_they_grew_from():
    """Each run would compute them again; what no weight needs stays in the loops that read it."""
    build = Builder()
    x = build.input("x", "f32", (1, 1, 1000))
    rows, taps = (build.constant(random.standard_normal(s, np.float32)) for s in ((640, 1, 1), 455))
    weight = build.emit("sin", build.emit("mul", rows, taps))
    y = build.emit("conv", x, weight, strides=(441,))
    y = build.emit("add", build.emit("reduce_sum", weight, axes=(2,)), y)
    folded = fold_constants(build.finish([y]))
    assert [n.op for n in folded.nodes] == ["conv", "add"]
    build = Builder()
    x = build.input("x", "f32", (640, 455))
    rows, taps = (build.constant(random.standard_normal(s, np.float32)) for s in ((640, 1), 455))
    y = build.emit("add", x, build.emit("mul", rows, taps))
    assert [n.op for n in fold_constants(build.finish([y])).nodes] == ["mul", "add"]


def test_quantised_weights_of_recurrences_are_folded():
    build, hidden = Builder(), 300
    x = build.input("x", "f32", (7, 1, 4 * hidden))
    codes = build.constant(random.integers(-9, 9, (4 * hidden, hidden)).astype(np.int8))
    start = build.constant(np.zeros((1, hidden), np.float32))
    weights = build.emit("mul", build.emit("cast", codes, to="f32"), build.constant(np.float32(2)))
    folded = fold_constants(build.finish([build.emit("lstm", x, weights, start, start)[0]]))
    assert [n.op for n in folded.nodes] == ["lstm"]
