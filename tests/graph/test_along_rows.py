"""Convolutions of fewer channels than a vector has lanes: vectors lie along rows of pixels."""

from __future__ import annotations

from itertools import pairwise
from math import prod

import numpy as np
import pytest

from tilewright import te
from tilewright.driver.compile import compile_observed
from tilewright.driver.kernels import KernelPool
from tilewright.graph import OPERATORS, Builder, evaluate
from tilewright.graph.graph import Graph
from tilewright.graph.passes.choose_layouts import choose_layouts
from tilewright.ir.expr import Var, as_int
from tilewright.ir.stmt import Alloc
from tilewright.ir.walk import blocks, visit
from tilewright.lower.pipeline import lower
from tilewright.strategy.absorb import is_reduction
from tilewright.strategy.cpu.contraction import tiling
from tilewright.strategy.cpu.layouts import Layouts
from tilewright.strategy.select import default
from tilewright.strategy.space import decisions
from tilewright.target.costs import HALVES, WIDE
from tilewright.target.target import target

LANES = 16
POLICY = Layouts(4 * LANES, costs=WIDE)
MACHINE = target("cpu -mcpu=skylake-avx512")
CASES = {  # image, filters, strides, pads, dilations, groups
    "a resampler": ((1, 1, 1, 517), (1, 1, 1, 28), (1, 2), ((0, 0), (13, 15)), (1, 1), 1),
    "long steps": ((2, 1, 1, 333), (1, 1, 1, 41), (1, 6), ((0, 0), (19, 22)), (1, 1), 1),
    "long steps of a longer filter": (
        (2, 1, 1, 999),
        (3, 1, 1, 130),
        (1, 6),
        ((0, 0), (70, 60)),
        (1, 1),
        1,
    ),
    "a long filter": ((1, 1, 1, 300), (2, 1, 1, 101), (1, 1), ((0, 0), (50, 50)), (1, 1), 1),
    "a blur": ((2, 1, 37, 45), (1, 1, 5, 5), (1, 1), ((2, 2), (2, 2)), (1, 1), 1),
    "each channel": ((1, 3, 19, 50), (3, 1, 3, 3), (2, 2), ((1, 1), (0, 1)), (1, 1), 3),
    "dilated": ((1, 7, 21, 33), (7, 1, 3, 3), (1, 1), ((2, 2), (2, 2)), (2, 2), 7),
    "gradients": ((1, 3, 18, 40), (6, 1, 3, 3), (1, 1), ((0, 0), (0, 0)), (1, 1), 3),
    "a stem": ((1, 3, 33, 47), (8, 3, 3, 3), (2, 2), ((1, 1), (1, 1)), (1, 1), 1),
    "a head": ((1, 40, 20, 33), (3, 40, 3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1), 1),
    "a volume": ((1, 1, 6, 9, 20), (1, 1, 3, 3, 3), (1,) * 3, ((1, 1),) * 3, (1,) * 3, 1),
    "one row of a few": ((3, 4, 1, 4), (4, 1, 1, 3), (1, 1), ((0, 0), (1, 1)), (1, 1), 4),
}


def convolution(case: str, is_open: bool = False) -> Graph:
    image, filters, strides, pads, dilations, groups = CASES[case]
    build, draw = Builder("g"), np.random.default_rng(3)
    space = [build.symbol(f"s{d}") if is_open and n > 1 else n for d, n in enumerate(image[2:])]
    x = build.input("x", "f32", (*image[:2], *space))
    w = build.constant(draw.standard_normal(filters, np.float32))
    b = build.constant(draw.standard_normal(filters[0], np.float32))
    attrs = {"strides": strides, "pads": pads, "dilations": dilations, "groups": groups}
    return build.finish({"y": build.emit("relu", build.emit("conv", x, w, b, **attrs))})


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("is_open", [False, True])
def test_nothing_is_packed(case, is_open):
    operators = [node.op for node in choose_layouts(convolution(case, is_open), POLICY).nodes]
    assert operators == ["conv", "relu"]


def chain(space, *channels, kernel=3, groups=1):
    """Operators of convolutions one after another, once layouts are chosen."""
    build, draw = Builder("g"), np.random.default_rng(0)
    x = build.input("x", "f32", (1, channels[0], *space))
    for ci, co in pairwise(channels):
        w = build.constant(draw.standard_normal((co, ci // groups, kernel, kernel), np.float32))
        x = build.emit("conv", x, w, pads=((kernel // 2,) * 2,) * 2, groups=groups)
    return [node.op for node in choose_layouts(build.finish({"y": x}), POLICY).nodes]


def test_short_rows_and_packed_images():
    """Rows shorter than there are channels are packed; what comes packed stays so."""
    assert "depthwise_packed" in chain((5, 5), 8, 8, groups=8)
    assert chain((5, 9), 8, 8, groups=8) == ["conv"]
    assert "conv" not in chain((8, 40), 32, 16, 12)


@pytest.mark.parametrize(
    ("kernel", "channels", "is_plain"),
    [(9, 8, True), (9, 3, True), (3, 3, True), (3, 1, True), (3, 8, False), (1, 3, False)],
)
def test_heads(kernel, channels, is_plain):
    """Few channels made of many: where it saves more than the image costs that it unpacks."""
    made = chain((32, 64), 3, 32, channels, kernel=kernel)
    assert made[-1] == ("conv" if is_plain else "unpack_channels")
    assert ("conv" in made) is is_plain


@pytest.mark.parametrize(
    ("channels", "algorithms"),
    [
        ((14, 14), ["winograd"]),
        ((6, 64), ["winograd"]),
        ((8, 14, 14, 14), ["winograd"] * 3),
        ((3, 12), ["conv"]),  # tiles walk channels that are missing
        ((9, 9, 9), ["conv"] * 2),
        ((14, 14, 2), ["winograd", "conv"]),  # what is packed already is unpacked
    ],
)
@pytest.mark.parametrize("is_open", [False, True])
def test_few_channels_in_tiles(channels, algorithms, is_open):
    """Where Winograd's tiles save more than what packing and unpacking of an image takes."""
    build, draw = Builder("g"), np.random.default_rng(0)
    space = (build.symbol("h"), build.symbol("w")) if is_open else (49, 49)
    x = build.input("x", "f32", (1, channels[0], *space))
    for ci, co in pairwise(channels):
        w = build.constant(draw.standard_normal((co, ci, 3, 3), np.float32))
        x = build.emit("conv", x, w, pads=((1, 1), (1, 1)))
    after = choose_layouts(build.finish({"y": x}), Layouts(4 * LANES, costs=HALVES))
    made = [node.op for node in after.nodes if node.op.endswith(("conv", "_packed"))]
    assert made == [{"winograd": "winograd_packed"}.get(a, a) for a in algorithms]


@pytest.mark.sampled
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("draw", [np.random.default_rng() for _ in range(6)])
def test_few_channels_give_what_plain_operators_give(draw, threads):
    """Images of up to 20 channels one after another, whatever their layouts."""
    build, channels = Builder("g"), draw.integers(1, 21, 4)
    size, stride, kernel = draw.integers(8, 50, 2), draw.integers(1, 3), draw.choice([1, 3, 3, 5])
    shape = (1, int(channels[0]), *map(int, size))
    y = build.input("x", "f32", shape)
    for ci, co in pairwise(channels):
        weights = draw.standard_normal((co, ci, kernel, kernel), np.float32)
        w = build.constant(weights / np.float32((ci * kernel**2) ** 0.5))
        b = build.constant(draw.standard_normal(co, np.float32))
        pads, strides = ((int(kernel) // 2,) * 2,) * 2, (int(stride), int(stride))
        y = build.emit("relu", build.emit("conv", y, w, b, pads=pads, strides=strides))
        stride = 1
    graph, x = build.finish([y]), draw.standard_normal(shape, np.float32)
    (wanted,) = evaluate(graph, [x], precise=True)
    (found,) = compile_observed(graph, threads=threads, cache=False, pool=KernelPool(1))(x)
    case = f"{channels} of {size}, {kernel} by step {strides}"
    np.testing.assert_allclose(found, wanted, 1e-4, 2e-5 * abs(wanted).max(), err_msg=case)


@pytest.mark.parametrize(("channels", "groups"), [(72, 3), (128, 4), (64, 2)])
def test_groups_of_one_result_want_no_packed_image(channels, groups):
    """That a packed convolution would want one does not make its image a packed one."""
    assert chain((42, 37), channels, groups, kernel=1, groups=groups) == ["conv"]


@pytest.mark.sampled
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("is_open", [False, True])
def test_the_result(case, threads, is_open):
    graph = convolution(case, is_open)
    x = np.random.default_rng(5).standard_normal(CASES[case][0], np.float32)
    conv = graph.nodes[0]
    w, b = (graph.constants[v].array.astype(np.float64) for v in conv.inputs[1:])
    wanted = OPERATORS["conv"].reference(x.astype(np.float64), w, b, **dict(conv.attrs))
    found = compile_observed(graph, threads=threads, cache=False, pool=KernelPool(1))(x)[0]
    np.testing.assert_allclose(found, np.maximum(wanted, 0), rtol=1e-4, atol=1e-5)


def test_steps_leave_tiles_in_registers():
    """A step of two pixels does not keep the channels of a result from sharing what is read."""
    image, filters, strides, pads, *_ = CASES["a stem"]
    made = alone(image, filters, strides, pads)
    block = next(b for b in blocks(made.body) if is_reduction(b))
    tiled = tiling(block, MACHINE)
    assert tiled is not None and tiled.across is None


def test_one_pixel_is_summed_up_at_a_time():
    """What is padded before does not keep the partial sums of a pixel out of registers."""
    image, filters, strides, pads, *_ = CASES["long steps of a longer filter"]
    made = alone(image, filters, strides, pads)
    lowered = lower(default(made, MACHINE, strict=True).func, MACHINE)
    kept = [s.buffer for s in visit(lowered.body) if isinstance(s, Alloc)]
    local = [prod(map(as_int, b.shape)) for b in kept if b.scope == "local"]
    assert local and max(local) <= 8 * LANES


@pytest.mark.parametrize(
    ("height", "taps", "beside"), [(66, (3, 3), 8), (68, (5, 5), 4), (1, (1, 65), 7)]
)
def test_what_lies_side_by_side(height, taps, beside):
    """Rows that share what they read, while all taps fit; vectors of a row that is alone."""
    made = alone((1, 1, height, 512), (1, 1, *taps), (1, 1), ())
    assert decisions(default(made, MACHINE, strict=True))["conv.tile_m"] == beside


def test_columns_of_open_images():
    """Rows of open length that a column of taps shares lie side by side like those of a square."""
    h, w = Var("h"), Var("w")
    for taps in ((3, 3), (3, 1)):
        pads = tuple((n // 2, n // 2) for n in taps)
        made = alone((1, 1, h, w), (1, 1, *taps), (1, 1), pads)
        found = decisions(default(made, MACHINE, strict=True))
        assert int(found["conv.tile_m"]) > 1


def alone(image, filters, strides, pads):
    x, w = te.placeholder(image, "f32", "x"), te.placeholder(filters, "f32", "w")
    return te.func("f", [x, w], [OPERATORS["conv"].define(x, w, strides=strides, pads=pads)])
