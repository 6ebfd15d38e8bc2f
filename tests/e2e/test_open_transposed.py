"""Transposed convolutions of open images: one compilation, many sizes, against torch in f64."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tilewright.driver.compile import compile_observed
from tilewright.driver.kernels import KernelPool
from tilewright.graph import Builder, Graph

POOL = KernelPool(1)
SIZES = [(1, 1), (2, 3), (3, 2), (5, 5), (7, 14), (14, 7), (17, 33), (33, 17), (6, 50)]
# channels, results of a group, groups, and the window: kernel, stride, pad, extra, dilation
CASES = {
    "depthwise": (32, 1, 32, (4, 4), (2, 2), (1, 1), (0, 0), (1, 1)),
    "depthwise, unequal taps": (20, 1, 20, (3, 5), (2, 3), (1, 2), (1, 0), (1, 1)),
    "depthwise, no pads": (16, 1, 16, (2, 3), (2, 2), (0, 0), (0, 0), (1, 1)),
    "depthwise, a phase without taps": (16, 1, 16, (2, 2), (3, 3), (0, 0), (0, 0), (1, 1)),
    "depthwise, one phase": (24, 1, 24, (3, 3), (1, 1), (1, 0), (0, 0), (1, 1)),
    "depthwise, dilated": (16, 1, 16, (3, 3), (2, 2), (2, 2), (0, 0), (2, 2)),
    "depthwise, three channels": (3, 1, 3, (4, 4), (2, 2), (1, 1), (0, 0), (1, 1)),
    "two results a channel": (8, 2, 8, (4, 4), (2, 2), (1, 1), (0, 0), (1, 1)),
    "groups": (32, 8, 4, (4, 4), (2, 2), (1, 1), (0, 0), (1, 1)),
    "few channels": (64, 3, 1, (4, 4), (2, 2), (1, 1), (0, 0), (1, 1)),
    "few channels, unequal taps": (32, 2, 1, (3, 3), (2, 2), (1, 1), (1, 1), (1, 1)),
    "few channels, three phases": (16, 3, 1, (5, 5), (3, 3), (1, 1), (0, 0), (1, 1)),
    "few channels, phases of one axis": (16, 1, 1, (3, 4), (1, 2), (1, 1), (0, 0), (1, 1)),
    "one channel, no pads": (16, 1, 1, (2, 2), (2, 2), (0, 0), (0, 0), (1, 1)),
    "many channels": (32, 24, 1, (4, 4), (2, 2), (1, 1), (0, 0), (1, 1)),
    "volumes": (16, 8, 1, (2, 2, 2), (2, 2, 2), (0, 0, 0), (0, 0, 0), (1, 1, 1)),
    "volumes, depthwise": (16, 1, 16, (2, 4, 4), (1, 2, 2), (0, 1, 1), (0, 0, 0), (1, 1, 1)),
    "lines, depthwise": (16, 1, 16, (4,), (2,), (1,), (0,), (1,)),
    "few channels of one image": (64, 3, 1, (4, 4), (2, 2), (1, 1), (0, 0), (1, 1)),
    "few channels of one image, unequal taps": (32, 2, 1, (3, 3), (2, 2), (1, 1), (1, 1), (1, 1)),
    "few channels of one image, no pads": (32, 4, 1, (4, 3), (2, 2), (0, 0), (0, 0), (1, 1)),
    "few channels of one line": (32, 2, 1, (4,), (2,), (1,), (0,), (1,)),
    "few channels of one volume": (32, 1, 1, (2, 4, 3), (1, 2, 2), (0, 1, 1), (0, 0, 0), (1, 1, 1)),
    "lines, few channels": (32, 2, 1, (7,), (3,), (2,), (0,), (1,)),
}


def transposed(case: str, weights: np.ndarray, bias: np.ndarray) -> Graph:
    channels, _, groups, kernel, strides, pads, extra, dilations = CASES[case]
    build = Builder("g")
    space = [build.symbol(f"s{d}") for d in range(len(kernel))]
    images = 1 if "of one" in case else build.symbol("n")
    x = build.input("x", "f32", (images, channels, *space))
    y = build.emit(
        "conv_transpose", x, build.constant(weights), build.constant(bias), strides=strides,
        pads=tuple((p, p) for p in pads), extra=extra, dilations=dilations, groups=groups,
    )  # fmt: skip
    return build.finish([y])


@pytest.mark.parametrize("case", CASES)
def test_every_size(case, turn):
    channels, each, groups, kernel, strides, pads, extra, dilations = CASES[case]
    draw = np.random.default_rng()
    weights = draw.standard_normal((channels, each, *kernel), np.float32)
    bias = draw.standard_normal(each * groups, np.float32)
    graph = transposed(case, weights, bias)
    counts = (2, 1) if case in turn([*CASES], 0) else (2,)
    run, *others = (compile_observed(graph, cache=False, pool=POOL, threads=t) for t in counts)
    convolve = getattr(torch.nn.functional, f"conv_transpose{len(kernel)}d")
    batches = (1,) if "of one" in case else (1, 3)
    for n, size in ((n, size) for n in batches for size in SIZES):
        size = {1: size[1:], 2: size, 3: (3, *size)}[len(kernel)]
        spans = zip(size, strides, kernel, dilations, pads, extra, strict=True)
        if any((m - 1) * s + (k - 1) * d + 1 + e - 2 * p <= 0 for m, s, k, d, p, e in spans):
            continue
        x = draw.standard_normal((n, channels, *size), np.float32)
        wanted = convolve(
            *(torch.from_numpy(v).double() for v in (x, weights, bias)), stride=strides,
            padding=pads, output_padding=extra, groups=groups, dilation=dilations,
        ).numpy()  # fmt: skip
        got = run(x)[0]
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4, err_msg=str((n, size)))
        for other in others:
            np.testing.assert_array_equal(other(x)[0], got)
