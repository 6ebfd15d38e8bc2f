"""Contractions: sums of products, with their axes in orders that no library has a kernel for.

In: sizes. Out: operators whose blocks have no role, so that no strategy knows them. The one idea:
all are multiply-adds that can stay in registers, a matrix product in disguise or nearly one, so
that every one of them can come near the machine's peak.
"""

from __future__ import annotations

from collections.abc import Callable
from math import erf, prod
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from benchmarks.tuning.operator import Operator, Work, normal
from tilewright import te

DILATION = 2


def einsum(name: str, what: str, subscripts: str, **sizes: int) -> Operator:
    """The contraction of two tensors that `subscripts` says, as one block."""
    (left, right), result = subscripts.split("->")[0].split(","), subscripts.split("->")[1]
    shapes = [tuple(sizes[n] for n in letters) for letters in (left, right)]
    A, B = (te.placeholder(shape, name=n) for n, shape in zip("AB", shapes, strict=True))
    summed = [n for n in dict.fromkeys(left + right) if n not in result]
    axes: dict[str, Any] = {n: te.reduce_axis(sizes[n], n) for n in summed}

    def product(*i: Any) -> Any:
        at = axes | dict(zip(result, i, strict=True))
        a, b = (tuple(at[n] for n in letters) for letters in (left, right))
        return te.sum(A[a] * B[b], [axes[n] for n in summed])

    C = te.compute(tuple(sizes[n] for n in result), product, name="C")
    formula: Callable[..., Any] = lambda a, b: np.einsum(subscripts, a, b, optimize=True)  # noqa: E731
    return Operator(
        name,
        what,
        te.func(name, [A, B], [C]),
        lambda r: tuple(normal(r, *shape) for shape in shapes),
        formula,
        Work({"multiply_add": prod(sizes.values())}),
        numpy=formula,
        torch=lambda torch, a, b: torch.einsum(subscripts, a, b),
    )


def matmul(*, m: int = 256, n: int = 384, k: int = 512) -> Operator:
    return einsum("matmul", "a plain matrix product", "ik,kj->ij", i=m, j=n, k=k)


def matmul_transposed(*, m: int = 300, n: int = 260, k: int = 400) -> Operator:
    what = "a product of two transposed matrices, of sizes that vectors do not divide"
    return einsum("matmul_transposed", what, "ki,jk->ij", i=m, j=n, k=k)


def contraction_4(*, outer: int = 24, inner: int = 12) -> Operator:
    what = "a contraction of two tensors of rank 4 over two axes, as in coupled clusters"
    sizes = dict.fromkeys("abcd", outer) | dict.fromkeys("ef", inner)
    return einsum("contraction_4", what, "aebf,dfce->abcd", **sizes)


def contraction_5(
    *, a: int = 8, b: int = 12, c: int = 48, d: int = 12, e: int = 16, f: int = 48
) -> Operator:
    what = "a contraction of two tensors of rank 5 over four axes"
    return einsum("contraction_5", what, "abcde,efbad->cf", a=a, b=b, c=c, d=d, e=e, f=f)


def outer_products(
    *, batch: int = 24, samples: int = 128, rows: int = 72, columns: int = 88
) -> Operator:
    X = te.placeholder((batch, samples, rows), name="X")
    Y = te.placeholder((batch, samples, columns), name="Y")
    n = te.reduce_axis(samples, "n")
    G = te.compute(
        (batch, rows, columns), lambda b, i, j: te.sum(X[b, n, i] * Y[b, n, j], n), name="G"
    )

    def formula(x: Any, y: Any) -> Any:
        return x.swapaxes(1, 2) @ y

    return Operator(
        "outer_products",
        "a batch of sums of outer products (cross-covariances)",
        te.func("outer_products", [X, Y], [G]),
        lambda r: (normal(r, batch, samples, rows), normal(r, batch, samples, columns)),
        formula,
        Work({"multiply_add": batch * samples * rows * columns}),
        numpy=formula,
        torch=lambda torch, x, y: formula(x, y),
    )


def bilinear_form(*, batch: int = 64, forms: int = 64, size: int = 64) -> Operator:
    X, Y = (te.placeholder((batch, size), name=n) for n in "XY")
    A = te.placeholder((forms, size, size), name="A")
    i, j = te.reduce_axis(size, "i"), te.reduce_axis(size, "j")
    Z = te.compute(
        (batch, forms), lambda b, k: te.sum(X[b, i] * A[k, i, j] * Y[b, j], [i, j]), name="Z"
    )

    def formula(x: Any, a: Any, y: Any) -> Any:
        return np.einsum("bi,kij,bj->bk", x, a, y, optimize=True)

    return Operator(
        "bilinear_form",
        "bilinear forms: xᵀ A y of every pair of a batch and every matrix",
        te.func("bilinear_form", [X, A, Y], [Z]),
        lambda r: (normal(r, batch, size), normal(r, forms, size, size), normal(r, batch, size)),
        formula,
        # x · y is the same for all forms, so that one multiply-add is left for each term.
        Work({"multiply_add": batch * forms * size**2, "add": batch * size**2}),
        numpy=formula,
        torch=lambda torch, x, a, y: torch.einsum("bi,kij,bj->bk", x, a, y),
    )


def complex_product(*, m: int = 160, n: int = 192, k: int = 256) -> Operator:
    A, B = te.placeholder((m, k, 2), name="A"), te.placeholder((k, n, 2), name="B")
    p = te.reduce_axis(k, "p")
    R = te.compute(
        (m, n), lambda i, j: te.sum(A[i, p, 0] * B[p, j, 0] - A[i, p, 1] * B[p, j, 1], p), name="R"
    )
    I = te.compute(
        (m, n), lambda i, j: te.sum(A[i, p, 0] * B[p, j, 1] + A[i, p, 1] * B[p, j, 0], p), name="I"
    )

    def formula(a: Any, b: Any) -> Any:
        whole = np.complex64 if a.dtype == np.float32 else np.complex128
        c = a.view(whole)[..., 0] @ b.view(whole)[..., 0]
        return c.real, c.imag

    def in_torch(torch: Any, a: Any, b: Any) -> Any:
        c = torch.view_as_real(torch.view_as_complex(a) @ torch.view_as_complex(b))
        return c[..., 0], c[..., 1]

    return Operator(
        "complex_product",
        "a product of complex matrices, pairs of real and imaginary parts",
        te.func("complex_product", [A, B], [R, I]),
        lambda r: (normal(r, m, k, 2), normal(r, k, n, 2)),
        formula,
        Work({"multiply_add": 4 * m * n * k}),
        numpy=formula,
        torch=in_torch,
    )


def masked_scores(*, heads: int = 8, length: int = 192, width: int = 64) -> Operator:
    Q, K = (te.placeholder((heads, length, width), name=n) for n in "QK")
    k = te.reduce_axis(width, "k")
    scale = 1 / width**0.5
    P = te.compute(
        (heads, length, length), lambda h, i, j: te.sum(Q[h, i, k] * K[h, j, k], k), name="P"
    )
    S = te.compute(
        (heads, length, length),
        lambda h, i, j: te.if_then_else(j <= i, P[h, i, j] * scale, 0.0),
        name="S",
    )

    def formula(q: Any, k: Any) -> Any:
        return np.tril(q @ k.swapaxes(1, 2) * q.dtype.type(scale))

    return Operator(
        "masked_scores",
        "scores of causal attention: products of queries and keys, those to come 0",
        te.func("masked_scores", [Q, K], [S]),
        lambda r: (normal(r, heads, length, width), normal(r, heads, length, width)),
        formula,
        Work({"multiply_add": heads * width * length**2}),  # those above the diagonal, too
        numpy=formula,
        torch=lambda torch, q, k: torch.tril(q @ k.transpose(1, 2) * scale),
    )


def grouped_gelu(
    *, batch: int = 128, groups: int = 8, inputs: int = 96, results: int = 128
) -> Operator:
    X = te.placeholder((batch, groups, inputs), name="X")
    W = te.placeholder((groups, inputs, results), name="W")
    B = te.placeholder((groups, results), name="B")
    i = te.reduce_axis(inputs, "i")
    P = te.compute(
        (groups, batch, results), lambda g, b, o: te.sum(X[b, g, i] * W[g, i, o], i), name="P"
    )
    Y = te.compute(
        (groups, batch, results), lambda g, b, o: te.gelu(P[g, b, o] + B[g, o]), name="Y"
    )

    def formula(x: np.ndarray, w: np.ndarray, b: np.ndarray) -> np.ndarray:
        z = x.transpose(1, 0, 2) @ w + b[:, None]
        return z * (0.5 + 0.5 * np.vectorize(erf, otypes=[z.dtype])(z / np.sqrt(2)))

    return Operator(
        "grouped_gelu",
        "a linear layer for each group, a bias and GELU",
        te.func("grouped_gelu", [X, W, B], [Y]),
        lambda r: (
            normal(r, batch, groups, inputs),
            normal(r, groups, inputs, results) / np.float32(inputs**0.5),
            normal(r, groups, results),
        ),
        formula,
        Work(
            {
                "multiply_add": groups * batch * inputs * results,
                "gelu": groups * batch * results,
            }
        ),
        torch=lambda torch, x, w, b: torch.nn.functional.gelu(
            torch.baddbmm(b[:, None], x.transpose(0, 1), w)
        ),
    )


def grouped_conv_i8(
    *, groups: int = 4, inputs: int = 16, results: int = 16, height: int = 48, width: int = 48
) -> Operator:
    margin = 2 * DILATION
    X = te.placeholder((groups, inputs, height + margin, width + margin), "i8", "X")
    W = te.placeholder((groups, results, inputs, 3, 3), "i8", "W")
    c, a, b = te.reduce_axis(inputs, "c"), te.reduce_axis(3, "a"), te.reduce_axis(3, "b")
    Y = te.compute(
        (groups, results, height, width),
        lambda g, o, y, x: te.sum(
            te.cast(X[g, c, y + DILATION * a, x + DILATION * b], "i32")
            * te.cast(W[g, o, c, a, b], "i32"),
            [c, a, b],
        ),
        name="Y",
    )

    def formula(x: np.ndarray, w: np.ndarray) -> np.ndarray:
        near = sliding_window_view(x, (margin + 1, margin + 1), axis=(2, 3))
        near = near[..., ::DILATION, ::DILATION].transpose(0, 1, 4, 5, 2, 3)
        columns = near.reshape(groups, inputs * 9, height * width).astype(np.float64)
        sums = w.reshape(groups, results, inputs * 9).astype(np.float64) @ columns  # exact
        return sums.astype(np.int32).reshape(groups, results, height, width)

    def in_torch(torch: Any, x: Any, w: Any) -> Any:
        x, w = x.flatten(0, 1)[None].float(), w.flatten(0, 1).float()
        found = torch.nn.functional.conv2d(x, w, dilation=DILATION, groups=groups)
        return found.int().reshape(groups, results, height, width)

    def draw(r: np.random.Generator) -> tuple[np.ndarray, ...]:
        shapes = (groups, inputs, height + margin, width + margin), (groups, results, inputs, 3, 3)
        return tuple(r.integers(-128, 128, shape, np.int8) for shape in shapes)

    return Operator(
        "grouped_conv_i8",
        "a dilated 3 × 3 convolution of bytes in groups, summed in i32",
        te.func("grouped_conv_i8", [X, W], [Y]),
        draw,
        formula,
        Work({"multiply_add_i8": groups * results * inputs * 9 * height * width}),
        numpy=formula,
        torch=in_torch,
    )
