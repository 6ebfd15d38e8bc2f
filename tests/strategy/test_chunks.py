"""Threads get chunks of images' pixels, so that each finds in its own cache what it made before."""

import numpy as np
import pytest

import tilewright as tw
from tests.strategy.random_shapes import judge
from tilewright.arith.simplify import simplify
from tilewright.driver.compile import kernel_jobs, prepare
from tilewright.driver.observe import Watch
from tilewright.graph import Builder, evaluate
from tilewright.ir.expr import Var, as_int, const
from tilewright.ir.stmt import For
from tilewright.ir.walk import substitute, visit
from tilewright.schedule.locate import find_loop
from tilewright.strategy.loops import iterations
from tilewright.strategy.select import default
from tilewright.strategy.space import decisions
from tilewright.target.target import target

AVX512 = target("cpu -mcpu=skylake-avx512")


def image_through(weights, size, pooled=False, **attrs):
    """A graph of a convolution of an image of `size` × `size` pixels, and perhaps a pool after."""
    build, rng = Builder(), np.random.default_rng(3)
    x = build.input("x", "f32", (1, weights[1], size, size))
    y = build.emit("conv", x, build.constant(rng.standard_normal(weights, np.float32)), **attrs)
    if pooled:
        y = build.emit("max_pool", y, kernel=(3, 3), strides=(2, 2), pads=((1, 1), (1, 1)))
    return build.finish({"y": y})


def schedules(graph, threads):
    """The schedules of a graph's kernels that decide on chunks of an image."""
    *_, jobs = kernel_jobs(prepare(graph, AVX512, 3), AVX512, threads, Watch())
    found = [default(job.func, AVX512, threads, strict=True) for job in jobs]
    anchors = "conv.chunk_m", "max_pool.chunk_m"
    return [s for s in found if any(name in decisions(s) for name in anchors)]


CASES = {
    "5x5": ((32, 32, 5, 5), {"pads": ((2, 2), (2, 2))}),
    "1x1": ((64, 32, 1, 1), {}),
    "1x1 and a pool": ((64, 32, 1, 1), {"pooled": True}),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("threads", [2, 3])
def test_chunks_of_an_image_are_outside(case, threads):
    weights, attrs = CASES[case]
    found = schedules(image_through(weights, 40, **attrs), threads)
    assert len(found) == 1 + ("pooled" in attrs)
    for schedule in found:
        outer = find_loop(schedule.func, schedule.loops(schedule.blocks()[-1])[0])
        assert outer.kind == "parallel"
        assert iterations(schedule, [outer.name]) >= threads


@pytest.mark.parametrize(
    ("channels", "dilation", "cut"), [(64, 256, True), (64, 1, False), (1024, 256, False)]
)
def test_a_line_whose_taps_lie_far_apart_is_cut_for_the_cache(channels, dilation, cut):
    """What a chunk reads stays while all panels go by; where taps are near, or weights are more
    than the line, there is none."""
    build, rng = Builder(), np.random.default_rng(3)
    x = build.input("x", "f32", (1, channels, 1, 4096))
    w = build.constant(rng.standard_normal((channels, channels, 1, 3), np.float32))
    y = build.emit("conv", x, w, dilations=(1, dilation))
    found = schedules(build.finish({"y": y}), 1)
    assert bool(found) == cut
    for schedule in found:
        chosen = decisions(schedule)
        columns = chosen["conv.chunk_m"] * chosen["conv.tile_w"]
        assert columns * 3 * channels * 4 <= AVX512.cache(1).size // 4
        chunk, *_ = schedule.loops(schedule.blocks()[-1])
        count = as_int(find_loop(schedule.func, chunk).extent)
        assert count is not None and (count - 1) * columns < 4096 - 2 * dilation <= count * columns


@pytest.mark.parametrize("op", ["conv", "relu", "softmax"])
def test_one_of_an_open_batch_has_chunks_for_threads(op):
    build, batch = Builder(), Var("batch")
    x = build.input("x", "f32", (batch, 64, 70, 70))
    if op == "conv":
        rng = np.random.default_rng(3)
        y = build.emit("conv", x, build.constant(rng.standard_normal((128, 64, 1, 1), np.float32)))
    else:
        y = build.emit(op, x, **{"axis": -1} if op == "softmax" else {})
    *_, jobs = kernel_jobs(prepare(build.finish({"y": y}), AVX512, 3), AVX512, 2, Watch())
    for job in jobs:
        func = default(job.func, AVX512, 2, strict=True).func
        loops = [n for n in visit(func.body) if isinstance(n, For) and n.kind == "parallel"]
        assert loops
        for loop in loops:
            chunks = as_int(simplify(substitute(loop.extent, {batch: const(1)})))
            assert chunks is not None and chunks >= 4


def test_results_of_an_open_batch_are_not_tiled_along_it():
    """Of a batch of one, a tile of two images is half empty."""
    build, batch, length = Builder(), Var("batch"), Var("length")
    x = build.input("x", "f32", (batch, 1, length))
    weights = np.random.default_rng(3).standard_normal((1, 1, 41)).astype(np.float32)
    y = build.emit("conv", x, build.constant(weights), strides=(3,), pads=((19, 22),))
    graph = build.finish({"y": y})
    *_, jobs = kernel_jobs(prepare(graph, AVX512, 3), AVX512, 1, Watch())
    (job,) = [job for job in jobs if "conv" in job.func.name]
    shown = default(job.func, AVX512, 1, strict=True).show()
    assert "batch + 1" not in shown and "batch // 2" not in shown
    exe = tw.compile(graph, threads=2, cache=False)
    for shape in ((1, 1, 100), (3, 1, 57)):
        image = np.random.default_rng(4).standard_normal(shape, np.float32)
        (found,), (expected,) = exe(image), evaluate(graph, [image])
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_one_thread_has_no_chunks():
    assert not schedules(image_through((64, 32, 1, 1), 40), 1)


@pytest.mark.parametrize(("channels", "size", "spread"), [(64, 56, True), (1024, 7, False)])
def test_many_weights_are_split_instead(channels, size, spread):
    (schedule,) = schedules(image_through((channels, channels, 1, 1), size), 2)
    found = decisions(schedule)
    chunk, tiles = found["conv.chunk_m"], -(-(size * size) // found["conv.tile_m"])
    assert (chunk < tiles) == spread


@pytest.mark.sampled
@pytest.mark.parametrize("size", [7, 13, 31])
@pytest.mark.parametrize("threads", [2, 3, 5])
@pytest.mark.parametrize("taps", [1, 3])
def test_chunks_of_odd_sizes_agree_with_numpy(taps, size, threads):
    pads = ((taps // 2, taps // 2),) * 2
    for strides in ((1, 1), (2, 2)):
        graph = image_through((17, 9, taps, taps), size, True, pads=pads, strides=strides)
        image = np.random.default_rng(size).standard_normal((1, 9, size, size), np.float32)
        assert judge(graph, [image], threads) == ""


@pytest.mark.parametrize("op", ["conv", "conv_transpose"])
@pytest.mark.parametrize(("channels", "length", "threads"), [(16, 700, 2), (48, 301, 3)])
def test_columns_of_one_row_are_in_chunks(op, channels, length, threads):
    """Convolutions along one axis: there are few blocks of channels, and one row."""
    build, rng = Builder(), np.random.default_rng(5)
    x = build.input("x", "f32", (1, channels, length))
    kernel = rng.standard_normal((channels, channels, 4), np.float32) / channels
    attrs = {"pads": ((1, 2),)} if op == "conv" else {"strides": (2,), "pads": ((1, 1),)}
    graph = build.finish({"y": build.emit(op, x, build.constant(kernel), **attrs)})
    *_, jobs = kernel_jobs(prepare(graph, AVX512, 3), AVX512, threads, Watch())
    (job,) = [job for job in jobs if op in job.func.name]
    made = default(job.func, AVX512, threads, strict=True)
    outer = find_loop(made.func, made.loops(made.blocks()[-1])[0])
    assert outer.kind == "parallel" and int(outer.extent.value) >= 2 * threads
    assert judge(graph, [rng.standard_normal((1, channels, length), np.float32)], threads) == ""
