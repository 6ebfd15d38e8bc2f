"""Recurrences and look-ups: operators whose order or addresses follow from data.

In: sizes. Out: operators that carry a state from step to step, or read where indices say. The one
idea: vectors lie along what neither the step nor the index walks, which a schedule has to find.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.tuning.operator import Operator, Traffic, Work, nbytes, normal
from tilewright import te


def linear_recurrence(*, steps: int = 256, channels: int = 2048) -> Operator:
    A, X = (te.placeholder((steps, channels), name=n) for n in "AX")
    H0 = te.placeholder((channels,), name="H0")
    H = te.scan(
        lambda t, h: te.compute((channels,), lambda j: A[t, j] * h[j] + X[t, j], name="h"),
        H0,
        steps,
        name="H",
    )

    def formula(a: np.ndarray, x: np.ndarray, h: np.ndarray) -> np.ndarray:
        result = np.empty_like(x)
        for t in range(steps):
            h = a[t] * h + x[t]
            result[t] = h
        return result

    def in_torch(torch: Any, a: Any, x: Any, h: Any) -> Any:
        found = []
        for t in range(steps):
            h = a[t] * h + x[t]
            found.append(h)
        return torch.stack(found)

    return Operator(
        "linear_recurrence",
        "a linear recurrence with a decay of its own for each step and channel",
        te.func("linear_recurrence", [A, X, H0], [H]),
        lambda r: (
            r.random((steps, channels), np.float32),
            normal(r, steps, channels),
            normal(r, channels),
        ),
        formula,
        Work({"multiply_add": steps * channels}),
        numpy=formula,
        torch=in_torch,
        torch_compiles=False,  # it unrolls the steps
    )


def bilinear_gather(
    *, points: int = 8192, height: int = 48, width: int = 48, channels: int = 48
) -> Operator:
    X = te.placeholder((height, width, channels), name="X")
    G = te.placeholder((points, 2), name="G")

    def sample(p: Any, c: Any) -> Any:
        top, left = te.floor(G[p, 0]), te.floor(G[p, 1])
        down, along = G[p, 0] - top, G[p, 1] - left
        y, x = te.cast(top, "i64"), te.cast(left, "i64")
        upper = X[y, x, c] * (1.0 - along) + X[y, x + 1, c] * along
        lower = X[y + 1, x, c] * (1.0 - along) + X[y + 1, x + 1, c] * along
        return upper * (1.0 - down) + lower * down

    Y = te.compute((points, channels), sample, name="Y")

    def formula(x: np.ndarray, g: np.ndarray) -> np.ndarray:
        corner = np.floor(g).astype(np.int64)
        (down, along), (y, left) = (g - corner).astype(g.dtype).T[:, :, None], corner.T
        upper = x[y, left] * (1 - along) + x[y, left + 1] * along
        lower = x[y + 1, left] * (1 - along) + x[y + 1, left + 1] * along
        return upper * (1 - down) + lower * down

    def in_torch(torch: Any, x: Any, g: Any) -> Any:
        corner = torch.floor(g).long()
        down, along = (g - corner).T[:, :, None]
        y, left = corner.T
        upper = x[y, left] * (1 - along) + x[y, left + 1] * along
        lower = x[y + 1, left] * (1 - along) + x[y + 1, left + 1] * along
        return upper * (1 - down) + lower * down

    def draw(r: np.random.Generator) -> tuple[np.ndarray, ...]:
        largest = np.array([height - 1.01, width - 1.01], np.float32)
        return normal(r, height, width, channels), r.random((points, 2), np.float32) * largest

    func = te.func("bilinear_gather", [X, G], [Y])
    sizes = nbytes(func)
    others = sizes["G"] + sizes["Y"]
    return Operator(
        "bilinear_gather",
        "pixels between pixels, at coordinates that are data (deformable sampling)",
        func,
        draw,
        formula,
        Work(
            {"multiply_add": 4 * points * channels},
            (Traffic(4 * sizes["Y"], sizes["X"]), Traffic(others, sum(sizes.values()))),
        ),
        numpy=formula,
        torch=in_torch,
    )


def sparse_rows(
    *, rows: int = 1024, slots: int = 16, table: int = 4096, columns: int = 128
) -> Operator:
    I, V = te.placeholder((rows, slots), "i32", "I"), te.placeholder((rows, slots), name="V")
    D = te.placeholder((table, columns), name="D")
    s = te.reduce_axis(slots, "s")
    Y = te.compute((rows, columns), lambda i, j: te.sum(V[i, s] * D[I[i, s], j], s), name="Y")
    func = te.func("sparse_rows", [I, V, D], [Y])
    sizes = nbytes(func)
    gathered, total = slots * sizes["Y"], sum(sizes.values())

    def formula(i: Any, v: Any, d: Any) -> Any:
        return (v[:, None] @ d[i])[:, 0]

    return Operator(
        "sparse_rows",
        "a sparse matrix in ELL form times a dense one (a weighted bag of embeddings)",
        func,
        lambda r: (
            r.integers(0, table, (rows, slots), np.int32),
            normal(r, rows, slots),
            normal(r, table, columns),
        ),
        formula,
        Work(
            {"multiply_add": rows * slots * columns},
            (Traffic(gathered, sizes["D"]), Traffic(total - sizes["D"], total)),
        ),
        numpy=formula,
        torch=lambda torch, i, v, d: torch.nn.functional.embedding_bag(
            i, d, mode="sum", per_sample_weights=v
        ),
    )
