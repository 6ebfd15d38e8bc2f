"""Convolutions over lines of open width: taps beyond a short line's end are left out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright.arith.simplify import simplify
from tilewright.driver.compile import compile_observed, kernel_jobs, prepare
from tilewright.driver.kernels import KernelPool
from tilewright.driver.observe import Watch
from tilewright.graph import OPERATORS, Builder
from tilewright.graph.graph import Graph
from tilewright.ir.expr import as_int, const
from tilewright.ir.stmt import For, If
from tilewright.ir.walk import free_vars, substitute, visit
from tilewright.strategy.select import default
from tilewright.target.target import target

AVX512 = target("cpu -mcpu=skylake-avx512")
FILTERS = np.random.default_rng(7).standard_normal((32, 32, 1, 3)).astype(np.float32)
ATTRS: dict[str, Any] = {"pads": ((0, 0), (1, 1)), "dilations": (1, 1), "groups": 1}


def line(width: str | int, stride: int = 1) -> Graph:
    build = Builder("g")
    size = build.symbol(width) if isinstance(width, str) else width
    x = build.input("x", "f32", (1, 32, 1, size))
    attrs: dict[str, Any] = ATTRS | {"strides": (1, stride)}
    return build.finish({"y": build.emit("conv", x, build.constant(FILTERS), **attrs)})


@pytest.mark.parametrize(("width", "skips"), [("w", True), (50, False)])
def test_branches_around_the_taps_of_an_open_line(width: str | int, skips: bool) -> None:
    """Of one pixel, all but the middle one may meet padding; a long line has next to none."""
    *_, jobs = kernel_jobs(prepare(line(width), AVX512, 3, []), AVX512, 1, Watch())
    made = [default(job.func, AVX512, 1, strict=True).func for job in jobs]
    loops = [n for func in made for n in visit(func.body) if isinstance(n, For)]
    assert any(isinstance(n.body, If) and isinstance(n.body.then, For) for n in loops) == skips


def test_one_pixel_meets_one_tap() -> None:
    """Neither the tap before the line nor the one behind it is computed."""
    *_, jobs = kernel_jobs(prepare(line("w"), AVX512, 3, []), AVX512, 1, Watch())
    made = [default(job.func, AVX512, 1, strict=True).func for job in jobs]
    loops = [n for func in made for n in visit(func.body) if isinstance(n, For)]
    (taps,) = [n for n in loops if isinstance(n.body, If) and isinstance(n.body.then, For)]
    assert isinstance(taps.body, If)
    first = {v: const(int(v.name == "w")) for v in free_vars(taps.body.cond)}
    met = [simplify(substitute(taps.body.cond, {**first, taps.var: const(r)})) for r in range(3)]
    assert [as_int(m) for m in met] == [0, 1, 0]


@pytest.mark.parametrize(("threads", "stride"), [(1, 1), (2, 1), (1, 2)])
def test_lines_of_any_width(threads: int, stride: int) -> None:
    run = compile_observed(line("w", stride), threads=threads, cache=False, pool=KernelPool(1))
    attrs = ATTRS | {"strides": (1, stride)}
    for width in (1, 2, 3, 14, 15, 16, 61):
        x = np.random.default_rng(width).standard_normal((1, 32, 1, width)).astype(np.float32)
        wanted = OPERATORS["conv"].reference(
            x.astype(np.float64), FILTERS.astype(np.float64), **attrs
        )
        np.testing.assert_allclose(run(x)[0], wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("threads", [1, 2])
def test_few_columns_of_panels_and_batches(threads: int) -> None:
    """Three columns take three vectors at a time, of panels of two: the last of seven is half one.
    Each batch has its own."""
    filters = np.random.default_rng(8).standard_normal((56, 32, 1, 3)).astype(np.float32)
    build = Builder("g")
    x = build.input("x", "f32", (build.symbol("n"), 32, 1, build.symbol("w")))
    attrs: dict[str, Any] = ATTRS | {"strides": (1, 1)}
    graph = build.finish({"y": build.emit("conv", x, build.constant(filters), **attrs)})
    run = compile_observed(graph, threads=threads, cache=False, pool=KernelPool(1))
    for width in (1, 2, 3, 4, 5, 9):
        x = np.random.default_rng(width).standard_normal((3, 32, 1, width)).astype(np.float32)
        wanted = OPERATORS["conv"].reference(
            x.astype(np.float64), filters.astype(np.float64), **attrs
        )
        (found,) = run(x)
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
        np.testing.assert_array_equal(run(x[1:2])[0], found[1:2])


def filtered(width: str | int) -> Graph:
    """One channel, a long filter."""
    build = Builder("g")
    size = build.symbol(width) if isinstance(width, str) else width
    x = build.input("x", "f32", (1, 1, 1, size))
    attrs: dict[str, Any] = ATTRS | {"pads": ((0, 0), (64, 64)), "strides": (1, 1)}
    filters = np.random.default_rng(9).standard_normal((1, 1, 1, 129)).astype(np.float32)
    return build.finish({"y": build.emit("conv", x, build.constant(filters), **attrs)})


def test_one_open_row_has_the_tiles_of_a_fixed_one() -> None:
    """Its vectors have one address, and hide the latency of each other's multiply-adds."""

    def columns(width: str | int) -> int:
        *_, jobs = kernel_jobs(prepare(filtered(width), AVX512, 3, []), AVX512, 1, Watch())
        (made,) = [default(job.func, AVX512, 1, strict=True).func for job in jobs]
        loops = [n for n in visit(made.body) if isinstance(n, For) and n.kind == "unroll"]
        return max(as_int(n.extent) or 0 for n in loops if "x" in n.var.name.split("_")[0])

    assert columns("w") == columns(16000) > 2


@pytest.mark.parametrize("threads", [1, 2])
def test_long_filters_over_one_row(threads: int) -> None:
    run = compile_observed(filtered("w"), threads=threads, cache=False, pool=KernelPool(1))
    fixed = {w: compile_observed(filtered(w), threads=1, cache=False) for w in (1, 61, 500)}
    for width, other in fixed.items():
        x = np.random.default_rng(width).standard_normal((1, 1, 1, width)).astype(np.float32)
        np.testing.assert_allclose(run(x)[0], other(x)[0], rtol=1e-4, atol=1e-4)
