"""Convolutions of f16 and bf16 are computed in f32, rounded once; beside float64."""

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from tilewright.driver.compile import prepare
from tilewright.graph import Builder
from tilewright.ir.expr import Var
from tilewright.target.target import target

RNG = np.random.default_rng(7)
X = RNG.standard_normal((1, 16, 9, 11))
W = RNG.standard_normal((32, 16, 3, 3)) / 12
BIAS = RNG.standard_normal(32)
DTYPES = {"f16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16)}


def model(kind, width=11, constant=True):
    build = Builder()
    x = build.input("x", kind, (1, 16, 9, width))
    w, b = (v.astype(DTYPES[kind]) for v in (W, BIAS))
    w = build.constant(w) if constant else build.input("w", kind, W.shape)
    y = build.emit("conv", x, w, build.constant(b), pads=((1, 1), (1, 1)))
    return build.finish({"y": build.emit("relu", y)})


@pytest.mark.parametrize("kind", DTYPES)
@pytest.mark.parametrize("width", [11, Var("width")], ids=["fixed", "open"])
def test_it_is_packed_and_rounds_once(kind, width):
    graph = model(kind, width)
    nodes = prepare(graph, target("cpu -mcpu=skylake-avx512"), 3).graph.nodes
    assert any(n.op in ("conv_packed", "winograd_packed") for n in nodes)
    x, w, b = (v.astype(DTYPES[kind]) for v in (X, W, BIAS))
    (got,) = tw.compile(graph, cache=False)(x)
    got = got.astype(np.float64)
    near = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    views = np.lib.stride_tricks.sliding_window_view(near, (3, 3), (2, 3))
    exact = np.einsum("nchwij,ocij->nohw", views, w.astype(np.float64))
    exact = np.maximum(exact + b.astype(np.float64)[:, None, None], 0)
    step = float(ml_dtypes.finfo(DTYPES[kind]).eps)
    assert np.abs(got - exact).max() <= np.abs(exact).max() * step * 0.6
    assert (np.abs(got - exact) <= exact * step * 0.51 + 1e-4).all()


def test_weights_of_the_run_stay_small():
    nodes = prepare(model("f16", constant=False), target("cpu"), 3).graph.nodes
    assert any(n.op == "conv" and n.inputs[0].dtype.name == "f16" for n in nodes)
