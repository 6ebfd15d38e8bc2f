"""Every family's default schedule, compiled, against the operator's NumPy reference on odd and even
shapes.

`strict` makes a refused primitive an error: a silent fall-back would hide that a family lost a
shape.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd
from random import Random
from typing import Any

import numpy as np
import pytest

from tilewright import te
from tilewright.codegen import inprocess
from tilewright.graph.builder import Builder, complete
from tilewright.graph.operator import OPERATORS
from tilewright.graph.ops.packed import pack, pack_dense
from tilewright.graph.ops.packed_transposed import pack_transposed, pack_transposed_each
from tilewright.graph.ops.winograd import pack_winograd
from tilewright.graph.passes.channels import ChannelLayout, Packing
from tilewright.graph.passes.choose_layouts import choose_layouts
from tilewright.ir.walk import stores
from tilewright.lower.pipeline import lower
from tilewright.schedule.schedule import replay
from tilewright.schedule.trace import Trace
from tilewright.strategy.cpu.layouts import Layouts
from tilewright.strategy.select import default
from tilewright.strategy.space import decisions, sample
from tilewright.target.target import target

CPU = target("cpu")
FILTERS = ChannelLayout(Packing(16), Packing(16), 16)  # of a convolution over blocks of 16 channels


def check(
    op: str,
    *arrays: np.ndarray[Any, Any],
    threads: int = 1,
    relu: bool = False,
    points: Sequence[int] = (),
    **attrs: Any,
) -> None:
    """Schedule, compile and run one operator (with an epilogue on request) beside its reference in
    f64. `points`: seeds of random points of its space, in place of the default.
    """
    entry, full = OPERATORS[op], complete(op, attrs)
    inputs = [te.placeholder(a.shape, a.dtype, f"x{n}") for n, a in enumerate(arrays)]
    result = entry.define(*inputs, **full)
    if relu:
        made = result
        result = te.compute(made.shape, lambda *i: te.maximum(made[i] * 2.0, 0.0), name="relu")
    func = te.func(op, inputs, [result])
    wide = [a.astype(np.float64) if a.dtype == np.float32 else a for a in arrays]
    want = entry.reference(*wide, **full)
    want = np.maximum(want * 2, 0) if relu else want
    scale = max(1e-30, float(np.abs(want).max()))
    drawn = [sample(func, CPU, threads, Random(seed)) for seed in points]
    for scheduled in drawn or [default(func, CPU, threads, strict=True)]:
        again = replay(func, Trace.from_json(scheduled.trace.to_json()))
        assert again.func == scheduled.func
        out = np.full([int(d.value) for d in result.shape], np.nan, result.dtype.numpy)
        inprocess.load(scheduled.func, CPU)(*arrays, out)
        assert np.abs(out - want).max() <= 3e-6 * scale, decisions(scheduled)


def random(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    ("ci", "co", "size", "kernel", "stride", "pad"),
    [(3, 16, (9, 11), 3, 2, 1), (16, 48, (7, 7), 3, 1, 1), (32, 20, (13, 17), 1, 1, 0),
     (17, 33, (5, 31), 5, 1, 2), (8, 16, (15, 8), (1, 7), 1, 0), (64, 64, (1, 1), 1, 1, 0)],
)  # fmt: skip
def test_convolution(ci, co, size, kernel, stride, pad, threads):
    kh, kw = kernel if isinstance(kernel, tuple) else (kernel, kernel)
    cb = min(ci, 16)
    check(
        "conv_packed", pack(random(2, ci, *size), cb),
        ChannelLayout(Packing(cb), Packing(16), cb).pack_filter(random(co, ci, kh, kw)),
        threads=threads, relu=True, strides=(stride, stride), pads=((pad, pad), (pad, pad)),
        dilations=(1, 1),
    )  # fmt: skip


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("lanes", [8, 16])
@pytest.mark.parametrize(
    ("ci", "co", "groups", "size", "kernel", "stride"),
    [(32, 32, 8, (9, 13), 3, 1), (48, 48, 2, (7, 7), 3, 2), (72, 72, 3, (5, 17), 3, 1),
     (16, 48, 4, (6, 31), 1, 1), (24, 24, 3, (8, 8), 5, 1), (80, 40, 5, (3, 9), 1, 2)],
)  # fmt: skip
def test_groups(ci, co, groups, size, kernel, stride, lanes, threads):
    """Channels stay where they are; vectors are as short as the groups ask."""
    layout = ChannelLayout(Packing(lanes), Packing(lanes), gcd(ci // groups, lanes), groups)
    check(
        "conv_packed", pack(random(2, ci, *size), lanes),
        layout.pack_filter(random(co, ci // groups, kernel, kernel)),
        threads=threads, relu=True, strides=(stride, stride), pads=((kernel // 2, 1), (0, 1)),
        dilations=(1, 1), group=layout.group(ci, co),
    )  # fmt: skip


def test_convolution_without_epilogue():
    check(
        "conv_packed", pack(random(1, 16, 6, 6), 16),
        ChannelLayout(Packing(16), Packing(16), 16).pack_filter(random(16, 16, 3, 3)),
        strides=(1, 1), pads=((0, 0), (0, 0)), dilations=(2, 1),
    )  # fmt: skip


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize(
    ("n", "ci", "co", "size", "edge"),
    [(1, 16, 24, (14, 14), 4), (2, 24, 40, (13, 17), 2), (1, 8, 16, (1, 1), 2),
     (1, 64, 64, (31, 56), 4), (3, 8, 8, (17, 63), 4), (1, 136, 65, (7, 7), 2),
     (1, 33, 48, (3, 65), 4)],
)  # fmt: skip
def test_winograd(n, ci, co, size, edge, threads):
    filters = random(co, ci, 3, 3)
    packed = ChannelLayout(Packing(8), Packing(8), 8).pack_filter(filters)
    image = pack(random(n, ci, *size), 8)
    pads = ((1, 1), (0, 2))
    check(
        "winograd_packed", image, pack_winograd(packed, edge), threads=threads, relu=True, pads=pads
    )  # fmt: skip


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    ("size", "kernel", "apart", "stride", "points"),
    [((9, 33), 3, 12, 1, ()), ((13, 11), 3, 6, 2, ()), ((4, 21), (3, 5), (5, 4), 1, range(3)),
     ((3, 3), 3, 18, 1, ()), ((3, 5, 9), 3, (2, 4, 6), 1, (4,))],
)  # fmt: skip
def test_dilated_convolution(size, kernel, apart, stride, points, threads):
    rank = len(size)
    kernel, apart = ((n,) * rank if isinstance(n, int) else tuple(n) for n in (kernel, apart))
    pads = tuple((d * (k // 2),) * 2 for k, d in zip(kernel, apart, strict=True))
    check(
        "conv_packed", pack(random(1, 20, *size), 16),
        FILTERS.pack_filter(random(24, 20, *kernel)), threads=threads, relu=True,
        points=points, strides=(stride,) * rank, pads=pads, dilations=apart,
    )  # fmt: skip


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    ("size", "edge", "dilations"),
    [((17, 20), 4, (2, 2)), ((9, 13), 2, (3, 5)), ((33, 33), 4, (12, 6)), ((5, 40), 4, (1, 4))],
)
def test_dilated_winograd(size, edge, dilations, threads):
    image, filters = pack(random(1, 20, *size), 16), FILTERS.pack_filter(random(24, 20, 3, 3)) / 10
    pads = tuple((d, d) for d in dilations)
    check(
        "winograd_packed", image, pack_winograd(filters, edge), threads=threads, relu=True,
        pads=pads, dilations=dilations,
    )  # fmt: skip
    dense = OPERATORS["conv_packed"].reference(
        image, filters, strides=(1, 1), pads=pads, dilations=dilations
    )
    made = OPERATORS["winograd_packed"].reference(
        image, pack_winograd(filters, edge), pads=pads, dilations=dilations
    )
    np.testing.assert_allclose(made, dense, atol=1e-4)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(
    ("size", "taps", "edge", "dilations"),
    [((4, 14, 14), 3, 4, (1, 1, 1)), ((5, 9, 30), 1, 2, (1, 1, 1)), ((7, 6, 11), 2, 4, (3, 1, 2))],
)
def test_winograd_of_planes(size, taps, edge, dilations, threads):
    filters = FILTERS.pack_filter(random(24, 20, taps, 3, 3)) / 10
    image, pads = pack(random(2, 20, *size), 16), ((taps // 2, 0), (1, 1), (0, 2))
    check(
        "winograd_packed", image, pack_winograd(filters, edge), threads=threads, relu=True,
        pads=pads, dilations=dilations,
    )  # fmt: skip
    dense = OPERATORS["conv_packed"].reference(
        image, filters, strides=(1, 1, 1), pads=pads, dilations=dilations
    )
    made = OPERATORS["winograd_packed"].reference(
        image, pack_winograd(filters, edge), pads=pads, dilations=dilations
    )
    np.testing.assert_allclose(made, dense, atol=1e-4)


@pytest.mark.parametrize("edge", [2, 4])
def test_winograd_is_a_convolution(edge):
    """Its reference, with transformed filters, beside the plain one's."""
    image = random(2, 2, 9, 6, 4).astype(np.float64)
    filters = random(3, 2, 3, 3, 4, 4).astype(np.float64)
    pads = ((1, 0), (2, 1))
    plain = OPERATORS["conv_packed"].reference(
        image, filters, strides=(1, 1), pads=pads, dilations=(1, 1)
    )
    made = OPERATORS["winograd_packed"].reference(image, pack_winograd(filters, edge), pads=pads)
    np.testing.assert_allclose(made, plain, rtol=0, atol=1e-12 * np.abs(plain).max())


@pytest.mark.parametrize(("channels", "size", "stride"), [(16, (7, 9), 1), (33, (13, 30), 2)])
def test_depthwise(channels, size, stride):
    check(
        "depthwise_packed", pack(random(1, channels, *size), 16),
        pack(random(1, channels, 3, 3), 16)[0], relu=True, strides=(stride, stride),
        pads=((1, 1), (1, 1)), dilations=(1, 1),
    )  # fmt: skip


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize(
    ("channels", "size", "kernel", "stride", "dilation", "pads"),
    [
        (16, (1, 1), (3, 3), 1, 1, ((1, 1), (1, 1))),
        (40, (3, 31), (3, 3), 1, 1, ((1, 1), (1, 1))),
        (17, (31, 65), (3, 3), 2, 1, ((0, 1), (0, 1))),
        (16, (17, 63), (5, 3), 1, 1, ((2, 2), (1, 1))),
        (24, (13, 33), (3, 3), 1, 4, ((4, 4), (4, 4))),
        (16, (7, 5), (7, 7), 1, 1, ((3, 3), (3, 3))),
        (16, (9, 31), (7, 7), 1, 1, ((3, 3), (3, 3))),
        (16, (23, 31), (21, 21), 1, 1, ((10, 10), (10, 10))),  # too much code: by a copy
    ],
)
def test_depthwise_edges(channels, size, kernel, stride, dilation, pads, threads):
    check(
        "depthwise_packed", pack(random(1, channels, *size), 16),
        pack(random(1, channels, *kernel), 16)[0], threads=threads, relu=True,
        strides=(stride, stride), pads=pads, dilations=(dilation, dilation),
    )  # fmt: skip


@pytest.mark.parametrize(("taps", "copied"), [(3, False), (7, False), (21, True)])
def test_depthwise_copies_its_image_only_where_cuts_are_too_much_code(taps, copied):
    machine = target("cpu -mcpu=x86-64-v4")
    image = te.placeholder((1, 2, 56, 56, 16), name="image")
    weights = te.placeholder((2, taps, taps, 16), name="weights")
    result = OPERATORS["depthwise_packed"].define(
        image, weights, strides=(1, 1), pads=((taps // 2,) * 2,) * 2, dilations=(1, 1)
    )
    made = default(te.func("depthwise", [image, weights], [result]), machine, strict=True)
    assert ("pad" in made.blocks()) == copied


def test_depthwise_is_cut_for_columns_only():
    """At the upper and lower end of an image a loop over rows of taps is shorter, and that is all:
    a row of tiles has code for the left end, the right end and between."""
    machine = target("cpu -mcpu=x86-64-v4")
    image = te.placeholder((1, 2, 56, 56, 16), name="image")
    weights = te.placeholder((2, 3, 3, 16), name="weights")
    result = OPERATORS["depthwise_packed"].define(
        image, weights, strides=(1, 1), pads=((1, 1), (1, 1)), dilations=(1, 1)
    )
    made = default(te.func("depthwise", [image, weights], [result]), machine, strict=True)
    whole = [s for s in stores(lower(made.func, machine).body) if s.buffer.scope == "global"]
    assert len(whole) == 3


@pytest.mark.parametrize(("op", "taps"), [("max_pool", 3), ("avg_pool", 3), ("max_pool", (5, 1))])
def test_packed_pools_are_cut_for_columns_only(op, taps):
    """As depthwise ones are; not at all where windows are of one column."""
    machine = target("cpu -mcpu=x86-64-v4")
    rows, columns = (taps, taps) if isinstance(taps, int) else taps
    image = te.placeholder((1, 2, 56, 56, 16), name="image")
    result = OPERATORS[op].define(image, **complete(op, {
        "kernel": (rows, columns, 1), "strides": (1, 1, 1),
        "pads": ((rows // 2, rows // 2), (columns // 2, columns // 2), (0, 0)),
    }))  # fmt: skip
    made = default(te.func("pool", [image], [result]), machine, strict=True)
    whole = [s for s in stores(lower(made.func, machine).body) if s.buffer.scope == "global"]
    assert len(whole) == (1 if columns == 1 else 3)


@pytest.mark.parametrize("stride", [2, 3])
def test_transposed_convolution(stride):
    weights = random(20, 24, 4, 4)
    check(
        "conv_transpose_packed", pack(random(1, 20, 5, 6), 16),
        pack_transposed(weights, (stride, stride), 16, 16), strides=(stride, stride),
        offsets=(1, 1), positions=(5, 6),
    )  # fmt: skip


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize(
    ("channels", "kernel", "strides", "offsets", "more"),
    [
        (32, (4, 4), (2, 2), (1, 1), (0, 0)),
        (20, (2, 2), (2, 2), (0, 0), (0, 0)),
        (16, (5, 3), (3, 2), (1, 0), (1, 1)),
        (48, (2, 3), (3, 1), (0, 1), (0, 0)),  # a phase without taps, one phase
    ],
)
def test_transposed_depthwise(channels, kernel, strides, offsets, more, threads):
    check(
        "depthwise_transpose_packed", pack(random(1, channels, 5, 19), 16),
        pack_transposed_each(random(channels, 1, *kernel), strides, 16), threads=threads, relu=True,
        strides=strides, offsets=offsets, positions=(5 + more[0], 19 + more[1]),
    )  # fmt: skip


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    ("lead", "k", "n", "block"),
    [
        ((1,), 65, 18, 32),
        ((7,), 13, 100, 48),
        ((2, 17), 31, 63, 16),
        ((128,), 96, 144, 48),
        ((), 40, 7, 16),
    ],
)
def test_dense(lead, k, n, block, threads):
    check(
        "dense_packed", random(*lead, k), pack_dense(random(k, n), block), threads=threads,
        relu=True, channels=n,
    )  # fmt: skip


def test_dense_of_a_batch():
    w = np.stack([pack_dense(random(24, 40), 16) for _ in range(6)]).reshape(2, 3, 3, 24, 16)
    for threads in (1, 2):
        check("dense_packed", random(2, 3, 17, 24), w, threads=threads, relu=True, channels=40)
    check("dense_packed", random(2, 3, 5, 7, 24), w, channels=33)


@pytest.mark.parametrize(
    ("a", "b", "attrs"),
    [((3, 17, 31), (3, 31, 65), {}), ((1, 7, 13), (1, 13, 1), {}), ((5, 63), (63, 33), {}),
     ((2, 12, 24), (2, 17, 24), {"transpose_b": True}),
     ((24, 12), (24, 17), {"transpose_a": True}), ((1, 7), (7, 1), {}), ((1, 1), (1, 1), {})],
)  # fmt: skip
def test_matmul(a, b, attrs):
    check("matmul", random(*a), random(*b), relu=True, **attrs)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("shape", [(3, 5, 128), (2, 7, 33), (1, 1, 3), (64, 300)])
def test_softmax(shape, threads):
    check("softmax", random(*shape), threads=threads, axis=-1)


def test_softmax_over_an_outer_axis():
    check("softmax", random(2, 21, 9), axis=1)


@pytest.mark.parametrize("columns", [13, 64, 769])
def test_layer_norm(columns):
    check("layer_norm", random(2, 9, columns), random(columns), random(columns + 0), axis=-1)


@pytest.mark.parametrize(
    ("shape", "axes"),
    [
        ((4, 100), (1,)),
        ((4, 100), (0,)),
        ((3, 5, 7), (0, 2)),
        ((2, 3, 4, 50), (1, 2, 3)),
        ((5, 10, 9, 6), (0, 1, 2, 3)),
        ((6, 3, 3), (1, 2)),
    ],
)
def test_sums(shape, axes):
    check("reduce_sum", random(*shape), axes=axes, keepdims=False)


def test_pools():
    image = pack(random(1, 20, 13, 15), 16)
    window = {"kernel": (3, 3, 1), "strides": (2, 2, 1)}
    check("max_pool", image, pads=((1, 1), (1, 1), (0, 0)), **window)
    check("avg_pool", image, pads=((0, 0), (0, 0), (0, 0)), **window)


@pytest.mark.parametrize("perm", [(0, 2, 1, 3), (3, 2, 1, 0), (0, 1, 3, 2)])
def test_transposes(perm):
    check("transpose", random(2, 5, 7, 33), perm=perm)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("shape", [(3, 5, 7), (16, 28, 31), (2, 3, 5, 13), (63, 65)])
def test_elementwise_on_odd_shapes(shape, threads):
    check("exp", random(*shape), threads=threads)


@pytest.mark.parametrize("threads", [1, 2])
def test_product_over_pixels_whose_tiles_span_rows(threads):
    image, filters = random(1, 9, 14, 14, 8), random(12, 9, 1, 1, 8, 8)
    window = {"strides": (1, 1), "pads": ((0, 0), (0, 0)), "dilations": (1, 1)}
    check("conv_packed", image, filters, threads=threads, relu=True, **window)


def test_recurrence_runs_in_order():
    check("cumsum", random(6, 40), axis=0)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    ("shape", "size"),
    [((1, 12, 7, 54, 8), 5), ((2, 1, 3, 1, 8), 3), ((1, 3, 1, 17, 16), 4), ((1, 5, 9, 13, 4), 9)],
)
def test_local_response(shape, size, threads):
    check("lrn_packed", random(*shape), threads=threads, relu=True, size=size, alpha=0.3, bias=2.0)


def test_convolutions_of_the_same_weights_read_them_packed_once():
    build = Builder("g")
    w = build.constant(random(16, 16, 3, 3))
    images = [build.input(name, "f32", (1, 16, 9, 9)) for name in "ab"]
    pads = ((1, 1), (1, 1))
    results = [build.emit("conv", x, w, pads=pads) for x in images]
    packed = choose_layouts(build.finish({"y": build.emit("add", *results)}), Layouts(32))
    assert sum(v.rank >= 4 for v in packed.constants) == 1


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    ("shape", "perm"),
    [((64, 48), (1, 0)), ((3, 70, 34), (0, 2, 1)), ((2, 5, 40, 13), (1, 3, 0, 2))],
)
def test_what_is_transposed(shape, perm, threads):
    """Squares of rows and columns, of sizes that they divide or not; the default and others."""
    check("transpose", random(*shape), threads=threads, perm=perm)
    check("transpose", random(*shape), threads=threads, perm=perm, points=range(6))
