"""Planes of an image of known size become its pixels: several are transposed at once."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.driver.compile import compile_observed, kernel_jobs, prepare
from tilewright.driver.kernels import KernelPool
from tilewright.driver.observe import Watch
from tilewright.graph import Builder
from tilewright.graph.graph import Graph
from tilewright.strategy.select import default
from tilewright.strategy.space import decisions
from tilewright.target.target import target

AVX512 = target("cpu -mcpu=skylake-avx512")
POOL = KernelPool(1)


def pixels(shape: tuple[int, ...], dtype: str = "f32") -> Graph:
    build = Builder("pixels")
    x = build.input("x", dtype, shape)
    return build.finish({"y": build.emit("transpose", x, perm=(1, 2, 0))})


@pytest.mark.parametrize(
    ("rows", "columns", "lines"),
    [(56, 56, 8), (10, 10, 5), (61, 83, 8), (123, 457, 8), (13, 13, 8), (3, 3, 8), (1, 6, 6)],
)
def test_lines_at_once(rows: int, columns: int, lines: int) -> None:
    """As many as divide the number of pixels, or eight and a tail where that would be few."""
    *_, (job,) = kernel_jobs(prepare(pixels((3, rows, columns)), AVX512, 3, []), AVX512, 1, Watch())
    assert decisions(default(job.func, AVX512, 1, strict=True))["transpose.unroll"] == lines


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("dtype", ["u8", "f32", "f64"])
def test_images_of_odd_sizes(dtype: str, threads: int) -> None:
    rng = np.random.default_rng(threads)
    of = {"u8": np.uint8, "f32": np.float32, "f64": np.float64}[dtype]
    for planes in (2, 3, 4, 7, 9, 16):
        rows, columns = (2 * rng.integers(1, 70, 2) + 1).tolist()
        run = compile_observed(
            pixels((planes, rows, columns), dtype), threads=threads, cache=False, pool=POOL
        )
        x = rng.integers(0, 256, (planes, rows, columns)).astype(of)
        np.testing.assert_array_equal(run(x)[0], x.transpose(1, 2, 0))
