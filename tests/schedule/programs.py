"""Programs that the schedule tests rewrite, and what NumPy says that they compute.

In: sizes. Out: a `Program`: the function, arrays for its inputs, and the expected outputs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tilewright import te
from tilewright.ir.stmt import Func

Array = np.ndarray


@dataclass(frozen=True)
class Program:
    """A function, how to draw its inputs, and the NumPy reference that gives its outputs."""

    name: str
    func: Func
    inputs: int  # how many of the parameters are inputs
    reference: Callable[..., tuple[Array, ...]]

    def draw(self, random: np.random.Generator) -> list[Array]:
        """Random inputs."""
        return [
            random.standard_normal([d.value for d in b.shape]).astype(b.dtype.numpy)
            for b in self.func.buffers[: self.inputs]
        ]

    def outputs(self) -> list[Array]:
        """Arrays for the outputs, filled with what must be overwritten."""
        return [
            np.full([d.value for d in b.shape], 77).astype(b.dtype.numpy)
            for b in self.func.buffers[self.inputs :]
        ]


def matmul(n: int = 6, m: int = 7, k: int = 5) -> Program:
    """C = relu(A B + bias)"""
    A, B = te.placeholder((n, k), name="A"), te.placeholder((k, m), name="B")
    D = te.placeholder((m,), name="D")
    r = te.reduce_axis(k, "k")
    C = te.compute((n, m), lambda i, j: te.sum(A[i, r] * B[r, j], r), name="C")
    E = te.compute((n, m), lambda i, j: te.maximum(C[i, j] + D[j], 0.0), name="E")
    return Program(
        "matmul",
        te.func("matmul", [A, B, D], [E]),
        3,
        lambda a, b, d: (np.maximum(a @ b + d, 0),),
    )


def conv2d(ci: int = 3, co: int = 4, h: int = 5, w: int = 6, s: int = 1) -> Program:
    """A 3×3 convolution with padding 1 and stride s."""
    A, W = te.placeholder((1, ci, h, w), name="A"), te.placeholder((co, ci, 3, 3), name="W")
    P = te.compute(
        (1, ci, h + 2, w + 2),
        lambda b, c, y, x: te.if_then_else(
            (y >= 1) & (y < h + 1) & (x >= 1) & (x < w + 1), A[b, c, y - 1, x - 1], 0.0
        ),
        name="P",
    )
    rc, ry, rx = te.reduce_axis(ci, "rc"), te.reduce_axis(3, "ry"), te.reduce_axis(3, "rx")
    oh, ow = (h - 1) // s + 1, (w - 1) // s + 1
    C = te.compute(
        (1, co, oh, ow),
        lambda b, o, y, x: te.sum(
            P[b, rc, y * s + ry, x * s + rx] * W[o, rc, ry, rx], [rc, ry, rx]
        ),
        name="C",
    )

    def reference(a: Array, w_: Array) -> tuple[Array, ...]:
        p = np.pad(a, ((0, 0), (0, 0), (1, 1), (1, 1)))
        out = np.zeros((1, co, oh, ow), np.float32)
        for dy in range(3):
            for dx in range(3):
                part = p[:, :, dy : dy + s * oh : s, dx : dx + s * ow : s][:, :, :oh, :ow]
                out += np.einsum("bcyx,oc->boyx", part, w_[:, :, dy, dx])
        return (out,)

    return Program("conv2d", te.func("conv2d", [A, W], [C]), 2, reference)


def depthwise(c: int = 3, h: int = 6, w: int = 5) -> Program:
    """A depthwise 3×3 convolution without padding, then a scale for each channel."""
    A, W = te.placeholder((c, h, w), name="A"), te.placeholder((c, 3, 3), name="W")
    S = te.placeholder((c,), name="S")
    ry, rx = te.reduce_axis(3, "ry"), te.reduce_axis(3, "rx")
    D = te.compute(
        (c, h - 2, w - 2),
        lambda o, y, x: te.sum(A[o, y + ry, x + rx] * W[o, ry, rx], [ry, rx]),
        name="D",
    )
    E = te.compute((c, h - 2, w - 2), lambda o, y, x: D[o, y, x] * S[o], name="E")

    def reference(a: Array, w_: Array, s: Array) -> tuple[Array, ...]:
        out = np.zeros((c, h - 2, w - 2), np.float32)
        for dy in range(3):
            for dx in range(3):
                out += a[:, dy : dy + h - 2, dx : dx + w - 2] * w_[:, dy, dx][:, None, None]
        return (out * s[:, None, None],)

    return Program("depthwise", te.func("depthwise", [A, W, S], [E]), 3, reference)


def softmax(n: int = 4, m: int = 7) -> Program:
    """Rows of exponentials that sum to 1."""
    A = te.placeholder((n, m), name="A")
    k, r = te.reduce_axis(m, "k"), te.reduce_axis(m, "r")
    M = te.compute((n,), lambda i: te.max(A[i, k], k), name="M")
    E = te.compute((n, m), lambda i, j: te.exp(A[i, j] - M[i]), name="E")
    S = te.compute((n,), lambda i: te.sum(E[i, r], r), name="S")
    B = te.compute((n, m), lambda i, j: E[i, j] / S[i], name="B")

    def reference(a: Array) -> tuple[Array, ...]:
        e = np.exp(a - a.max(1, keepdims=True))
        return (e / e.sum(1, keepdims=True),)

    return Program("softmax", te.func("softmax", [A], [B]), 1, reference)


def layer_norm(n: int = 3, m: int = 8) -> Program:
    """Rows of mean 0 and variance 1, scaled and shifted."""
    A, G = te.placeholder((n, m), name="A"), te.placeholder((m,), name="G")
    H = te.placeholder((m,), name="H")
    k = te.reduce_axis(m, "k")
    pair = te.reducer(
        lambda a, b: (a[0] + b[0], a[1] + b[1]),
        lambda types: (te.const(0.0, types[0]), te.const(0.0, types[1])),
        "moments",
    )
    S, Q = te.compute((n,), lambda i: pair((A[i, k], A[i, k] * A[i, k]), k), name="S")
    B = te.compute(
        (n, m),
        lambda i, j: (
            (A[i, j] - S[i] / m) * te.rsqrt(Q[i] / m - (S[i] / m) * (S[i] / m) + 0.1) * G[j] + H[j]
        ),
        name="B",
    )

    def reference(a: Array, g: Array, h: Array) -> tuple[Array, ...]:
        a64 = a.astype(np.float64)
        normal = (a64 - a64.mean(1, keepdims=True)) / np.sqrt(a64.var(1, keepdims=True) + 0.1)
        return ((normal * g + h).astype(np.float32),)

    return Program("layer_norm", te.func("layer_norm", [A, G, H], [B]), 3, reference)


def attention(n: int = 3, m: int = 5, d: int = 4) -> Program:
    """softmax(Q K' / sqrt(d)): the scores of one head, keys that come later masked out."""
    Q, K = te.placeholder((n, d), name="Q"), te.placeholder((m, d), name="K")
    e, k, r = te.reduce_axis(d, "e"), te.reduce_axis(m, "k"), te.reduce_axis(m, "r")
    S = te.compute((n, m), lambda i, j: te.sum(Q[i, e] * K[j, e], e), name="S")
    T = te.compute(
        (n, m),
        lambda i, j: te.select(j <= i + (m - n), S[i, j] * (1.0 / float(np.sqrt(d))), -1e9),
        name="T",
    )
    M = te.compute((n,), lambda i: te.max(T[i, k], k), name="M")
    X = te.compute((n, m), lambda i, j: te.exp(T[i, j] - M[i]), name="X")
    Z = te.compute((n,), lambda i: te.sum(X[i, r], r), name="Z")
    P = te.compute((n, m), lambda i, j: X[i, j] / Z[i], name="Pr")

    def reference(q: Array, k_: Array) -> tuple[Array, ...]:
        t = q @ k_.T / np.sqrt(d)
        t = np.where(np.arange(m)[None, :] <= np.arange(n)[:, None] + (m - n), t, -1e9)
        x = np.exp(t - t.max(1, keepdims=True))
        return ((x / x.sum(1, keepdims=True)).astype(np.float32),)

    return Program("attention", te.func("attention", [Q, K], [P]), 2, reference)


def scan(t: int = 4, n: int = 3) -> Program:
    """A recurrence: h = tanh(x[t] + W h)"""
    X, W = te.placeholder((t, n), name="X"), te.placeholder((n, n), name="W")
    H0 = te.placeholder((n,), name="H0")

    def step(time: te.Tensor, h: te.Tensor) -> te.Tensor:
        k = te.reduce_axis(n, "k")
        y = te.compute((n,), lambda i: te.sum(W[i, k] * h[k], k), name="y")
        return te.compute((n,), lambda i: te.tanh(X[time, i] + y[i]), name="h")

    H = te.scan(step, H0, t)

    def reference(x: Array, w: Array, h: Array) -> tuple[Array, ...]:
        out = []
        for row in x:
            h = np.tanh(row + w @ h)
            out.append(h)
        return (np.stack(out),)

    return Program("scan", te.func("scan", [X, W, H0], [H]), 3, reference)


def argmax(n: int = 4, m: int = 9) -> Program:
    """The greatest value of each row, and where it is."""
    A = te.placeholder((n, m), name="A")
    k = te.reduce_axis(m, "k")
    V, I = te.compute((n,), lambda i: te.argmax(A[i, k], k), name="V")
    func = te.func("argmax", [A], [V, I])
    return Program("argmax", func, 1, lambda a: (a.max(1), a.argmax(1)))


FAMILIES: dict[str, Callable[..., Program]] = {
    "matmul": matmul,
    "conv2d": conv2d,
    "depthwise": depthwise,
    "softmax": softmax,
    "layer_norm": layer_norm,
    "attention": attention,
    "scan": scan,
    "argmax": argmax,
}
