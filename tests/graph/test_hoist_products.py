"""Pointwise convolutions that see images before they are enlarged."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import pytest

from tests.graph.rewriting import graph as parsed
from tests.graph.rewriting import rewritten
from tilewright.driver.compile import compile_observed
from tilewright.driver.kernels import KernelPool
from tilewright.graph import Builder, Value, evaluate
from tilewright.graph.graph import Graph
from tilewright.graph.passes.hoist_products import hoist_products
from tilewright.graph.passes.pipeline import optimise
from tilewright.graph.resample import Axis, Kernel, resample
from tilewright.ir.expr import as_int

POOL = KernelPool(1)


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(prod(shape)).standard_normal(shape, np.float32)


def enlarged(build: Builder, x: Value, *sizes: int, kind: str = "linear") -> Value:
    """x with its spatial axes of these sizes, pixel centres in the middle."""
    axes: list[Axis] = []
    for axis, (old, new) in enumerate(zip(x.static_shape[2:], sizes, strict=True), 2):  # type: ignore[index]
        axes.append(Axis(axis, (np.arange(new) + 0.5) * old / new - 0.5, new / old))
    return resample(build, x, axes, Kernel(kind))


def mixed(build: Builder, x: Value, channels: int, bias: bool = True, **attrs: Any) -> Value:
    """A pointwise convolution."""
    groups = int(str(attrs.get("groups", 1)))
    kernel = (channels, x.static_shape[1] // groups, *(1 for _ in x.shape[2:]))  # type: ignore[index]
    more = [build.constant(numbers(channels))] if bias else []
    return build.emit("conv", x, build.constant(numbers(*kernel)), *more, **attrs)


def multiply_adds(graph: Graph) -> int:
    """Of the convolutions and products."""
    total = 0
    for node in graph.nodes:
        made, depth = prod(node.output.static_shape or ()), 0
        if node.op == "conv":
            depth = prod(node.inputs[1].static_shape[1:])  # type: ignore[index]
        elif node.op == "matmul":
            depth = node.inputs[1].static_shape[-1 if node["transpose_b"] else -2]  # type: ignore[index]
        total += made * depth
    return total


def pyramid(plain: bool) -> Graph:
    """Levels of tokens, each projected, made an image of one size, joined and mixed."""
    build = Builder("g")
    levels: list[Value] = []
    for n, (channels, size) in enumerate(((8, 12), (16, 6), (24, 3), (48, 2))):
        if not plain and not n:
            continue
        x = build.input(f"x{n}", "f32", (2, channels, size, size))
        rows = build.emit("reshape", x, shape=(2, channels, size * size))
        matrix = build.constant(numbers(channels, 64))
        if n % 2:
            rows = build.emit("transpose", rows, perm=(0, 2, 1))
        rows = build.emit("matmul", rows, matrix, transpose_a=not n % 2)
        rows = build.emit("add", rows, build.constant(numbers(64)))
        back = build.emit("transpose", rows, perm=(0, 2, 1))
        image = build.emit("reshape", back, shape=(2, 64, size, size))
        levels.append(image if size == 12 else enlarged(build, image, 12, 12))
    whole = build.emit("concat", *levels[::-1], axis=1)
    return build.finish([build.emit("relu", mixed(build, whole, 64))])


@pytest.mark.parametrize("plain", [True, False], ids=["with a level that stays", "all enlarged"])
def test_levels_of_a_pyramid_are_mixed_each_at_its_size(plain):
    before = pyramid(plain)
    after = rewritten(hoist_products, before, 1e-4)
    sizes = ((8, 144), (16, 36), (24, 9), (48, 4))[0 if plain else 1 :]
    assert multiply_adds(after) == 2 * 64 * sum(c * pixels for c, pixels in sizes)  # one product
    assert "concat" not in [node.op for node in after.nodes]


@pytest.mark.parametrize("plain", [True, False])
def test_the_compiled_pyramid(plain):
    graph = pyramid(plain)
    arrays = [numbers(*(v.static_shape or ())) for v in graph.inputs]
    wanted = evaluate(graph, arrays, precise=True)[0]
    found = compile_observed(graph, cache=False, pool=POOL)(*arrays)[0]
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5 * np.abs(wanted).max())


@pytest.mark.parametrize("kind", ["linear", "nearest", "cubic"])
@pytest.mark.parametrize("small", [(5,), (5, 4), (3, 2, 4)], ids=["1-D", "2-D", "3-D"])
def test_a_resize_alone(kind, small):
    build = Builder("g")
    x = build.input("x", "f32", (2, 32, *small))
    large = enlarged(build, x, *(2 * size for size in small), kind=kind)
    graph = build.finish([mixed(build, large, 24)])
    assert multiply_adds(rewritten(hoist_products, graph, 1e-4)) == 2 * 24 * 32 * prod(small)


def test_parts_that_stay_are_mixed_together():
    build = Builder("g")
    x, y, z = (build.input(n, "f32", (1, 64, s, s)) for n, s in (("x", 8), ("y", 4), ("z", 8)))
    whole = build.emit("concat", x, enlarged(build, y, 8, 8, kind="nearest"), z, axis=1)
    after = rewritten(hoist_products, build.finish([mixed(build, whole, 32)]), 1e-4)
    depths = [as_int(node.inputs[1].shape[1]) for node in after.nodes if node.op == "conv"]
    assert depths == [64, 128]


def test_repeats_are_of_packed_images():
    """What follows is done where the convolution stores, not on views that layouts end at."""
    build = Builder("g")
    x, y = build.input("x", "f32", (1, 64, 8, 8)), build.input("y", "f32", (1, 64, 4, 4))
    whole = build.emit("concat", enlarged(build, y, 8, 8, kind="nearest"), x, axis=1)
    graph = build.finish([build.emit("relu", mixed(build, whole, 64))])
    kernels = [k.name for k in compile_observed(graph, cache=False, pool=POOL).manifest.kernels]
    assert any(name.endswith("conv_add_relu") for name in kernels), kernels


def test_open_images_that_are_doubled():
    """Repeats of open sizes are views; the product sees a quarter of their pixels."""
    before = parsed(
        """
        def g(x: f32[b, 64, h * 2, w * 2], y: f32[b, 64, h, w]):
            weights = constant(f32[32, 128, 1, 1], 'weights')
            r: f32[b, 64, h, 1, w, 1] = reshape(y, shape=(b, 64, h, 1, w, 1))
            e: f32[b, 64, h, 2, w, 2] = expand(r, shape=(b, 64, h, 2, w, 2))
            large: f32[b, 64, h * 2, w * 2] = reshape(e, shape=(b, 64, h * 2, w * 2))
            c: f32[b, 128, h * 2, w * 2] = concat(large, x, axis=1)
            z: f32[b, 32, h * 2, w * 2] = conv(c, weights)
            return {'z': z}
        """,
        weights=numbers(32, 128, 1, 1),
    )
    after = rewritten(hoist_products, before, 1e-4)
    heights = [n.inputs[0].shape[2] for n in after.nodes if n.op == "conv"]
    assert heights == [v.shape[2] for v in before.inputs[::-1]]


def test_a_sum_that_is_enlarged():
    """Its terms are no resize: the convolution sees the sum, not each of them."""
    build = Builder("g")
    x, y = (build.input(n, "f32", (1, 32, 4, 4)) for n in "xy")
    large = enlarged(build, build.emit("add", x, y), 8, 8)
    after = rewritten(hoist_products, build.finish([mixed(build, large, 32)]), 1e-4)
    assert multiply_adds(after) == 32 * 32 * 16


def stays(what: str) -> Graph:
    build = Builder("g")
    x = build.input("x", "f32", (1, 32, 4, 4))
    large = enlarged(build, x, *((2, 2) if what == "it is made smaller" else (8, 8)))
    outputs: list[Value] = []
    if what == "others read the large image":
        outputs.append(build.emit("relu", large))
    if what == "numbers that are data":
        large = build.emit("mul", enlarged(build, x, 8, 8), build.input("s", "f32", (1, 1, 8, 8)))
    if what == "numbers for channels":
        large = build.emit("mul", large, build.constant(numbers(1, 32, 1, 1)))
    attrs: dict[str, Any] = {"groups": {"groups": 2}, "steps": {"strides": (2, 2)}}.get(what, {})
    if what == "padding":
        attrs = {"pads": ((1, 1), (1, 1))}
    channels = 1024 if what == "more channels than it saves" else 32
    if what == "more channels than it saves":
        large = enlarged(build, build.input("few", "f32", (1, 4, 4, 4)), 8, 8)
    outputs.append(mixed(build, large, channels, **attrs))
    return build.finish(outputs)


@pytest.mark.parametrize(
    "what",
    [
        "it is made smaller", "others read the large image", "numbers that are data",
        "numbers for channels", "groups", "steps", "padding", "more channels than it saves",
    ],
)  # fmt: skip
def test_what_stays(what):
    graph = stays(what)
    assert hoist_products(graph) is graph


def test_the_passes_run_it():
    assert multiply_adds(optimise(pyramid(True))) < multiply_adds(pyramid(True)) / 4
