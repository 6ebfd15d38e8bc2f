"""Convolutions of open images: one compilation, many sizes, against torch in f64."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tilewright.driver.compile import compile_observed
from tilewright.driver.kernels import KernelPool
from tilewright.graph import Builder, Graph

POOL = KernelPool(1)
SIZES = [(1, 1), (2, 3), (3, 2), (4, 5), (5, 4), (7, 14), (14, 7), (17, 33), (33, 17), (6, 50)]
# channels, results, groups, and the window: kernel, stride, pads, dilation
CASES = {
    "stride": (16, 32, 1, (3, 3), (2, 2), (1, 1), (1, 1)),
    "stride, many channels": (160, 48, 1, (3, 3), (2, 2), (1, 1), (1, 1)),
    "large window": (24, 20, 1, (5, 5), (1, 1), (2, 2), (1, 1)),
    "more padding than image": (16, 16, 1, (3, 3), (3, 3), (2, 2), (1, 1)),
    "dilated": (16, 24, 1, (3, 3), (2, 2), (6, 6), (6, 6)),
    "tall": (16, 16, 1, (7, 1), (1, 1), (3, 0), (1, 1)),
    "groups": (32, 48, 4, (3, 3), (2, 2), (1, 1), (1, 1)),
    "three by three": (32, 32, 1, (3, 3), (1, 1), (1, 1), (1, 1)),
    "three by three, no pads": (32, 32, 1, (3, 3), (1, 1), (0, 0), (1, 1)),
    "volumes": (16, 32, 1, (3, 3, 3), (2, 2, 2), (1, 1, 1), (1, 1, 1)),
    "volumes, planes dilated": (16, 16, 1, (3, 3, 3), (1, 2, 2), (3, 1, 1), (3, 1, 1)),
    "lines": (16, 32, 1, (5,), (2,), (2,), (1,)),
}


def convolution(case: str, weights: np.ndarray, bias: np.ndarray) -> Graph:
    channels, _, groups, kernel, strides, pads, dilations = CASES[case]
    build = Builder("g")
    space = [build.symbol(f"s{d}") for d in range(len(kernel))]
    x = build.input("x", "f32", (build.symbol("n"), channels, *space))
    y = build.emit(
        "conv", x, build.constant(weights), build.constant(bias), strides=strides,
        pads=tuple((p, p) for p in pads), dilations=dilations, groups=groups,
    )  # fmt: skip
    return build.finish([y])


@pytest.mark.parametrize("case", CASES)
def test_every_size(case, turn):
    channels, results, groups, kernel, strides, pads, dilations = CASES[case]
    draw = np.random.default_rng()
    weights = draw.standard_normal((results, channels // groups, *kernel), np.float32)
    bias = draw.standard_normal(results, np.float32)
    graph = convolution(case, weights, bias)
    counts = (2, 1) if case in turn([*CASES], 0) else (2,)
    run, *others = (compile_observed(graph, cache=False, pool=POOL, threads=t) for t in counts)
    convolve = getattr(torch.nn.functional, f"conv{len(kernel)}d")
    for n, size in ((n, size) for n in (1, 3) for size in SIZES):
        size = {1: size[1:], 2: size, 3: (2, *size)}[len(kernel)]
        spans = zip(size, kernel, dilations, pads, strict=True)
        if any(m + 2 * p < (k - 1) * d + 1 for m, k, d, p in spans):
            continue
        x = draw.standard_normal((n, channels, *size), np.float32)
        wanted = convolve(
            *(torch.from_numpy(v).double() for v in (x, weights, bias)), stride=strides,
            padding=pads, groups=groups, dilation=dilations,
        ).numpy()  # fmt: skip
        got = run(x)[0]
        scale = np.abs(wanted).max()
        np.testing.assert_allclose(got / scale, wanted / scale, atol=2e-6, err_msg=str((n, size)))
        for other in others:
            np.testing.assert_array_equal(other(x)[0], got)
