"""Phases of transposed convolutions with unequal numbers of taps are convolutions of their own."""

from __future__ import annotations

import numpy as np
import pytest

from tests.graph.rewriting import ops, rewritten
from tilewright.driver.compile import compile_observed
from tilewright.driver.kernels import KernelPool
from tilewright.graph import Builder, Graph, evaluate
from tilewright.graph.passes.choose_layouts import choose_layouts
from tilewright.strategy.cpu.layouts import Layouts

POOL = KernelPool(1)
CASES = {  # kernel, strides, pads, image: the phases that are computed by themselves, 0: none
    "3 × 3": ((3, 3), (2, 2), ((1, 0), (1, 0)), (5, 6), 4),
    "more at the end": ((3, 3), (2, 2), ((0, 1), (0, 1)), (5, 6), 4),
    "along one axis": ((3, 2), (2, 2), ((1, 0), (0, 0)), (5, 6), 4),
    "three phases": ((5, 4), (3, 2), ((1, 1), (1, 1)), (4, 7), 6),
    "in a row": ((1, 7), (1, 2), ((0, 0), (3, 2)), (1, 9), 2),
    "volumes": ((3, 3, 3), (2, 2, 2), ((1, 0),) * 3, (3, 4, 2), 8),
    "a last pixel less": ((3, 3), (2, 2), ((1, 1), (1, 1)), (5, 6), 4),
    "a first pixel more": ((3, 3), (2, 2), ((0, 0), (0, 0)), (5, 6), 4),
    "two pixels less": ((5, 5), (3, 3), ((2, 2), (1, 1)), (1, 7), 9),
    "equal phases, a pixel less": ((4, 4), (2, 2), ((1, 2), (2, 1)), (5, 6), 0),
    "equal phases": ((4, 4), (2, 2), ((1, 1), (1, 1)), (5, 6), 0),
    "a phase without taps": ((2, 2), (3, 3), ((0, 0), (0, 0)), (5, 6), 0),
}


def transposed(case: str, channels: tuple[int, int], is_open: bool = False) -> Graph:
    kernel, strides, pads, size, _ = CASES[case]
    build, draw = Builder("g"), np.random.default_rng(3)
    ci, co = channels
    space = [build.symbol(f"s{d}") for d in range(len(size))] if is_open else size
    x = build.input("x", "f32", (2, ci, *space))
    w = build.constant(draw.standard_normal((ci, co, *kernel), np.float32) / 10)
    b = build.constant(draw.standard_normal(co, np.float32))
    extra = tuple(max(0, s - k) for k, s in zip(kernel, strides, strict=True))
    y = build.emit("conv_transpose", x, w, b, strides=strides, pads=pads, extra=extra)
    return build.finish([build.emit("relu", y)])


@pytest.mark.parametrize("case", CASES)
def test_unequal_phases_are_apart(case):
    made = ops(
        rewritten(lambda g: choose_layouts(g, Layouts(64)), transposed(case, (96, 24)), 1e-4)
    )
    assert made.count("conv_packed") == CASES[case][-1]
    assert made.count("conv_transpose_packed") == (CASES[case][-1] == 0)


def test_what_few_channels_save_is_not_worth_a_pass():
    made = ops(choose_layouts(transposed("3 × 3", (8, 24)), Layouts(64)))
    assert "conv_transpose_packed" in made


@pytest.mark.sampled
@pytest.mark.parametrize(
    "case",
    [
        "3 × 3",
        "three phases",
        "volumes",
        "a last pixel less",
        "a first pixel more",
        "two pixels less",
        "equal phases, a pixel less",
    ],
)
@pytest.mark.parametrize("is_open", [False, True])
def test_the_result(case, is_open):
    graph = transposed(case, (96, 24), is_open)
    run = compile_observed(graph, cache=False, pool=POOL, threads=2)
    x = np.random.default_rng(5).standard_normal((2, 96, *CASES[case][3]), np.float32)
    (wanted,) = evaluate(transposed(case, (96, 24)), [x], precise=True)
    np.testing.assert_allclose(run(x)[0], wanted, rtol=1e-4, atol=1e-5)
