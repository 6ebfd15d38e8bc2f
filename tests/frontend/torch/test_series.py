"""Series, recurrences, bits, bags, segments and histograms, in native code too."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import nn
from torch.utils import _pytree as pytree

import tilewright as tw
from tests.frontend.torch.agreement import Call, close, drawn
from tilewright.frontend.torch import import_torch
from tilewright.graph.evaluate import evaluate


def agree_both(f, *inputs: torch.Tensor, tolerance: float = 1e-5) -> None:
    """The references' results and native code's are eager's."""
    expected = [y.numpy() for y in pytree.tree_leaves(f(*inputs))]
    graph = import_torch(Call(f), inputs)
    arrays = [x.numpy() for x in inputs]
    with np.errstate(all="ignore"):
        made = evaluate(graph, arrays)
    for found in (made, tw.compile(graph, cache=False)(*arrays)):
        for number, (a, b) in enumerate(zip(found, expected, strict=True)):
            np.testing.assert_array_equal(np.isnan(a), np.isnan(b), err_msg=str(number))
            np.testing.assert_array_equal(np.isinf(a), np.isinf(b), err_msg=str(number))
            finite = np.isfinite(b)
            close(np.asarray(a)[finite], b[finite], tolerance, f"result {number}")


def test_special_functions() -> None:
    ends = [0.0, 1e-6, 0.3, 1.0, 2.5, 30.0, 400.0, 5000.0, math.inf, -1.0, math.nan]
    a, x = torch.meshgrid(torch.tensor(ends), torch.tensor([*ends, 31.0, 4990.0]), indexing="ij")
    degree = torch.arange(-1, 9)[:, None]

    def f(a: torch.Tensor, x: torch.Tensor, degree: torch.Tensor, z: torch.Tensor):
        yield torch.special.gammainc(a, x)
        yield torch.special.gammaincc(a, x)
        yield torch.special.hermite_polynomial_h(z, degree)
        yield torch.special.hermite_polynomial_he(z, degree)
        yield torch.special.laguerre_polynomial_l(z, degree)
        yield torch.special.legendre_polynomial_p(z, degree)

    z = drawn(1, 7)
    agree_both(lambda *v: list(f(*v)), a, x, degree, z, tolerance=2e-5)


def test_neighbours_are_exact() -> None:
    ends = [0.0, -0.0, 1.0, -1.0, 1e-45, -1e-45, 3e38, math.inf, -math.inf, math.nan, 0.1]
    x, y = torch.meshgrid(torch.tensor(ends), torch.tensor(ends), indexing="ij")
    agree_both(torch.nextafter, x, y, tolerance=0)


def test_what_belongs_together() -> None:
    weight, x = drawn(6, 4), drawn(7, 3)
    indices, offsets = torch.tensor([1, 5, 2, 2, 0]), torch.tensor([0, 2, 2])
    lengths = torch.tensor([2, 0, 5])

    def f(weight: torch.Tensor, x: torch.Tensor):
        for mode in ("sum", "mean", "max"):
            yield nn.functional.embedding_bag(indices, weight, offsets, mode=mode, padding_idx=2)
        for reduce in ("sum", "mean", "max", "min", "prod"):
            yield torch.segment_reduce(x, reduce, lengths=lengths, axis=0)
        yield torch.histogram(x, 5)
        yield torch.histogram(x, 4, range=(-1.0, 1.0), weight=x.abs(), density=True)
        yield torch.histogramdd(x, [2, 3, 2])
        image = x.reshape(1, 1, 7, 3)
        for mode in ("bilinear", "bicubic"):
            yield nn.functional.interpolate(image, (3, 5), mode=mode, antialias=True)

    agree_both(lambda *v: list(f(*v)), weight, x)
