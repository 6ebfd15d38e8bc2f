"""Stencils: each result reads a window of its input, which neighbours read again.

In: sizes. Out: operators whose inputs have the margin that the windows need. The one idea: little
arithmetic for each element read, so that it matters in which order windows are visited and which
sums stay in registers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from benchmarks.tuning.operator import Operator, Work, normal
from tilewright import te

pair_sum = te.reducer(
    lambda a, b: (a[0] + b[0], a[1] + b[1]),
    lambda t: (te.const(0, t[0]), te.const(0, t[1])),
    "pair_sum",
)


def five_point(*, height: int = 512, width: int = 1024) -> Operator:
    X, W = te.placeholder((height + 2, width + 2), name="X"), te.placeholder((5,), name="W")
    Y = te.compute(
        (height, width),
        lambda i, j: (
            W[0] * X[i + 1, j + 1]
            + W[1] * X[i, j + 1]
            + W[2] * X[i + 2, j + 1]
            + W[3] * X[i + 1, j]
            + W[4] * X[i + 1, j + 2]
        ),
        name="Y",
    )
    k = te.reduce_axis(width, "k")
    R = te.compute((height,), lambda i: te.sum(te.abs(Y[i, k] - X[i + 1, k + 1]), k), name="R")

    def formula(x: Any, w: Any) -> Any:
        center = x[1:-1, 1:-1]
        y = w[0] * center + w[1] * x[:-2, 1:-1] + w[2] * x[2:, 1:-1]
        y = y + w[3] * x[1:-1, :-2] + w[4] * x[1:-1, 2:]
        return y, abs(y - center).sum(1)

    points = height * width
    return Operator(
        "five_point",
        "a weighted 5-point stencil in 2-D, and of each row the sum of the changes",
        te.func("five_point", [X, W], [Y, R]),
        lambda r: (normal(r, height + 2, width + 2), normal(r, 5)),
        formula,
        Work({"multiply_add": 5 * points, "abs_difference": points}),
        numpy=formula,
        torch=lambda torch, x, w: formula(x, w),
    )


def stencil_27(*, depth: int = 64, height: int = 64, width: int = 128) -> Operator:
    X = te.placeholder((depth + 2, height + 2, width + 2), name="X")
    W = te.placeholder((3, 3, 3), name="W")
    a, b, c = (te.reduce_axis(3, name) for name in "abc")
    Y = te.compute(
        (depth, height, width),
        lambda z, y, x: te.sum(X[z + a, y + b, x + c] * W[a, b, c], [a, b, c]),
        name="Y",
    )
    return Operator(
        "stencil_27",
        "a weighted 27-point stencil in 3-D",
        te.func("stencil_27", [X, W], [Y]),
        lambda r: (normal(r, depth + 2, height + 2, width + 2), normal(r, 3, 3, 3)),
        lambda x, w: np.einsum("zyxabc,abc->zyx", sliding_window_view(x, (3, 3, 3)), w),
        Work({"multiply_add": 27 * depth * height * width}),
        numpy=lambda x, w: shifted_sum(x, w, (depth, height, width)),
        torch=lambda torch, x, w: torch.nn.functional.conv3d(x[None, None], w[None, None])[0, 0],
    )


def shifted_sum(x: np.ndarray, w: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """The windows' weighted sums as one of whole arrays, which NumPy adds at its best rate."""
    result = np.zeros(shape, x.dtype)
    for tap in np.ndindex(w.shape):
        slices = tuple(slice(t, t + n) for t, n in zip(tap, shape, strict=True))
        result += w[tap] * x[slices]
    return result


def bilateral(*, height: int = 160, width: int = 256, radius: int = 2) -> Operator:
    taps = 2 * radius + 1
    X = te.placeholder((height + 2 * radius, width + 2 * radius), name="X")
    S, C = te.placeholder((taps, taps), name="S"), te.placeholder((1,), name="C")
    a, b = te.reduce_axis(taps, "a"), te.reduce_axis(taps, "b")

    def weighted(i: Any, j: Any) -> Any:
        near, center = X[i + a, j + b], X[i + radius, j + radius]
        weight = te.exp(S[a, b] - C[0] * ((near - center) * (near - center)))
        return pair_sum((weight * near, weight), [a, b])

    N, D = te.compute((height, width), weighted, name="N")
    Y = te.compute((height, width), lambda i, j: N[i, j] / D[i, j], name="Y")

    def formula(x: Any, s: Any, c: Any) -> Any:
        near = sliding_window_view(x, (taps, taps))
        center = x[radius:-radius, radius:-radius, None, None]
        weight = np.exp(s - c * (near - center) ** 2)
        return (weight * near).sum((2, 3)) / weight.sum((2, 3))

    def in_torch(torch: Any, x: Any, s: Any, c: Any) -> Any:
        near = x.unfold(0, taps, 1).unfold(1, taps, 1)
        center = x[radius:-radius, radius:-radius, None, None]
        weight = torch.exp(s - c * (near - center) ** 2)
        return (weight * near).sum((2, 3)) / weight.sum((2, 3))

    taken = height * width * taps**2
    return Operator(
        "bilateral",
        "a bilateral filter: weights fall with the distance of pixels and of their values",
        te.func("bilateral", [X, S, C], [Y]),
        lambda r: (
            normal(r, height + 2 * radius, width + 2 * radius),
            -np.abs(normal(r, taps, taps)),
            np.array([0.5], np.float32),
        ),
        formula,
        Work({"exp": taken, "squared_difference": taken, "multiply_add": taken, "add": taken}),
        numpy=formula,
        torch=in_torch,
    )


def separable_filter(
    *, depth: int = 64, height: int = 64, width: int = 96, taps: int = 7
) -> Operator:
    margin = taps - 1
    X = te.placeholder((depth + margin, height + margin, width + margin), name="X")
    W = te.placeholder((3, taps), name="W")
    a, b, c = (te.reduce_axis(taps, name) for name in "abc")
    P = te.compute(
        (depth, height + margin, width + margin),
        lambda z, y, x: te.sum(X[z + a, y, x] * W[0, a], a),
        name="P",
    )
    Q = te.compute(
        (depth, height, width + margin),
        lambda z, y, x: te.sum(P[z, y + b, x] * W[1, b], b),
        name="Q",
    )
    Y = te.compute(
        (depth, height, width), lambda z, y, x: te.sum(Q[z, y, x + c] * W[2, c], c), name="Y"
    )

    def formula(x: np.ndarray, w: np.ndarray) -> np.ndarray:
        for axis in range(3):
            shape = [n - margin * (axis == d) for d, n in enumerate(x.shape)]
            taken = w[axis].reshape([taps if axis == d else 1 for d in range(3)])
            x = shifted_sum(x, taken, tuple(shape))
        return x

    def in_torch(torch: Any, x: Any, w: Any) -> Any:
        x = x[None, None]
        for axis, shape in enumerate(((taps, 1, 1), (1, taps, 1), (1, 1, taps))):
            x = torch.nn.functional.conv3d(x, w[axis].reshape(1, 1, *shape))
        return x[0, 0]

    sums = depth * ((height + margin) * (width + margin) + height * (2 * width + margin))
    return Operator(
        "separable_filter",
        "a filter of an image in 3-D, one axis after the other",
        te.func("separable_filter", [X, W], [Y]),
        lambda r: (normal(r, depth + margin, height + margin, width + margin), normal(r, 3, taps)),
        formula,
        Work({"multiply_add": taps * sums}),
        numpy=formula,
        torch=in_torch,
    )


def windowed_variance(*, rows: int = 64, length: int = 4096, window: int = 24) -> Operator:
    X = te.placeholder((rows, length + window - 1), name="X")
    k = te.reduce_axis(window, "k")
    S, Q = te.compute(
        (rows, length),
        lambda i, j: pair_sum((X[i, j + k], X[i, j + k] * X[i, j + k]), k),
        name="S",
    )
    M = te.compute((rows, length), lambda i, j: S[i, j] * (1 / window), name="M")
    V = te.compute(
        (rows, length),
        lambda i, j: Q[i, j] * (1 / window) - M[i, j] * M[i, j],
        name="V",
    )

    def formula(x: Any) -> Any:
        near = sliding_window_view(x, window, axis=1)
        return near.mean(-1), near.var(-1)

    def running(x: np.ndarray) -> Any:  # sums of windows are differences of sums from the start
        sums = np.zeros((2, rows, length + window))
        np.cumsum(np.stack([x, x * x]), axis=2, dtype=np.float64, out=sums[:, :, 1:])
        mean, squares = ((sums[:, :, window:] - sums[:, :, :-window]) / window).astype(x.dtype)
        return mean, squares - mean * mean

    def in_torch(torch: Any, x: Any) -> Any:
        near = x.unfold(1, window, 1)
        mean = near.mean(-1)
        return mean, (near * near).mean(-1) - mean * mean

    taken = rows * length * window
    return Operator(
        "windowed_variance",
        "mean and variance of every window of a row",
        te.func("windowed_variance", [X], [M, V]),
        lambda r: (normal(r, rows, length + window - 1),),
        formula,
        Work({"add": taken, "multiply_add": taken}),
        numpy=running,
        torch=in_torch,
    )


def cost_volume(
    *, channels: int = 48, height: int = 48, width: int = 160, disparities: int = 32
) -> Operator:
    L = te.placeholder((channels, height, width), name="L")
    R = te.placeholder((channels, height, width + disparities - 1), name="R")
    c = te.reduce_axis(channels, "c")
    V = te.compute(
        (disparities, height, width),
        lambda d, y, x: te.sum(L[c, y, x] * R[c, y, x + (disparities - 1) - d], c),
        name="V",
    )

    def formula(left: Any, right: Any) -> Any:
        near = sliding_window_view(right, width, axis=2)[:, :, ::-1]
        return np.einsum("cyx,cydx->dyx", left, near)

    return Operator(
        "cost_volume",
        "stereo: how well two images' features agree, at each pixel and disparity",
        te.func("cost_volume", [L, R], [V]),
        lambda r: (
            normal(r, channels, height, width),
            normal(r, channels, height, width + disparities - 1),
        ),
        formula,
        Work({"multiply_add": channels * height * width * disparities}),
        numpy=formula,
        torch=lambda torch, left, right: torch.stack(
            [
                (left * right[:, :, disparities - 1 - d :][:, :, :width]).sum(0)
                for d in range(disparities)
            ]
        ),
    )
