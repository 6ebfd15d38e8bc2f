"""Winograd's strategy: what stays in cache, and how much of it there is."""

from __future__ import annotations

from math import prod

import pytest

from tilewright import te
from tilewright.arith.simplify import simplify
from tilewright.graph.operator import OPERATORS
from tilewright.ir.expr import Buffer, Call, Expr, as_int
from tilewright.ir.stmt import Alloc, For, Func, Store
from tilewright.ir.text import print_expr
from tilewright.ir.walk import loads, visit
from tilewright.lower.compact_buffers import compact_buffers
from tilewright.lower.pipeline import lower
from tilewright.schedule.primitives.prefetch import LINE, ROUNDS
from tilewright.schedule.schedule import Schedule
from tilewright.strategy.select import default
from tilewright.strategy.space import decisions
from tilewright.target.target import target

# decisions depend on the machine
CPU = target("cpu -mcpu=znver3 -caches=32768:64:1,524288:64:1,33554432:64:8")
BLOCK = 8


def scheduled(channels: int, height: Expr | int, width: Expr | int, threads: int = 1) -> Schedule:
    """The default schedule of a convolution of `channels` to as many."""
    groups = channels // BLOCK
    image = te.placeholder((1, groups, height, width, BLOCK))
    filters = te.placeholder((groups, 6, 6, groups, BLOCK, BLOCK))
    define = OPERATORS["winograd_packed"].define
    made = define(image, filters, pads=((1, 1), (1, 1)), dilations=(1, 1))
    return default(te.func("conv", [image, filters], [made]), CPU, threads, strict=True)


def buffers(func: Func) -> dict[str, Buffer]:
    return {n.buffer.name: n.buffer for n in visit(func.body) if isinstance(n, Alloc)}


@pytest.mark.parametrize("threads", [1, 2])
def test_an_image_that_is_transformed_whole_is_padded_channel_by_channel(threads: int) -> None:
    size = 16
    made = scheduled(512, size, size, threads)
    assert decisions(made)["spread.compute_at"] == "root"
    pad = buffers(lower(made.func, CPU))["pad"]
    assert prod(as_int(d) or 0 for d in pad.shape) == (size + 2) ** 2 * BLOCK


@pytest.mark.parametrize("channels", [32, 512])  # whose image is transformed by runs, and whole
@pytest.mark.parametrize("sizes", [(64, 64), ("h", 64), (64, "w"), ("h", "w")])
def test_planes_are_an_odd_number_of_lines_apart(
    sizes: tuple[int | str, ...], channels: int
) -> None:
    height, width = (te.var(n) if isinstance(n, str) else n for n in sizes)
    made = scheduled(channels, height, width)
    kept = buffers(compact_buffers(made.func))
    for name, axis in (("spread", 2), ("product", 3)):
        strides, line = kept[name].strides, LINE * 8 // kept[name].dtype.bits
        assert strides and as_int(simplify(strides[axis] % (2 * line))) == line, name


@pytest.mark.parametrize("channels", [32, 512])
@pytest.mark.parametrize("height", [400, "h"])
def test_tiles_of_a_row_have_the_first_half_of_their_transform_in_common(
    height: int | str, channels: int
) -> None:
    width = 64
    made = scheduled(channels, te.var(height) if isinstance(height, str) else height, width)
    half = buffers(compact_buffers(made.func))["half"]
    *_, columns, _ = half.shape
    assert as_int(columns) == width + 2


@pytest.mark.parametrize(("machine", "least"), [("skylake-avx512", 6), ("znver4", 6)])
def test_register_tiles_leave_some_rows_of_a_small_open_image(machine: str, least: int) -> None:
    """16 tiles, 14 × 14, of 256 channels: what one or two rows do waits for their weights."""
    image = te.placeholder((1, 16, te.var("h"), te.var("w"), 16))
    filters = te.placeholder((16, 6, 6, 16, 16, 16))
    conv = OPERATORS["winograd_packed"].define(image, filters, pads=((1, 1), (1, 1)))
    caches = "-caches=32768:64:1,1048576:64:1,33554432:64:8"
    cpu = target(f"cpu -mcpu={machine} {caches}")
    found = decisions(default(te.func("conv", [image, filters], [conv]), cpu, strict=True))
    rows = found["product.tile_m"]
    assert found["spread.compute_at"] == "root" and isinstance(rows, int)
    assert 16 % rows == 0 or 16 % rows >= least


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("sizes", [("d", "h", "w"), ("d", 20, 24), (8, "h", "w"), (8, "h", 24)])
def test_open_volumes_are_padded_and_transformed_plane_by_plane(
    sizes: tuple[int | str, ...], threads: int
) -> None:
    """Of one block of channels; threads may share a padded copy of which each makes planes."""
    space = tuple(te.var(n) if isinstance(n, str) else n for n in sizes)
    image = te.placeholder((1, 4, *space, BLOCK))
    filters = te.placeholder((4, 6, 6, 3, 4, BLOCK, BLOCK))
    define = OPERATORS["winograd_packed"].define
    made = define(image, filters, pads=((1, 1),) * 3, dilations=(1,) * 3)
    func = default(te.func("conv", [image, filters], [made]), CPU, threads, strict=True).func
    kept = buffers(compact_buffers(func))
    assert [as_int(n) for n in kept["half"].shape[:3]] == [1] * 3
    assert threads > 1 or [as_int(n) for n in kept["pad"].shape[:3]] == [1] * 3


@pytest.mark.parametrize(("width", "shared"), [(52, 52 + 2), (68, 6), (80, 80 + 2)])
def test_long_rows_of_tiles_that_nothing_cuts_evenly_are_no_runs(width: int, shared: int) -> None:
    """13, 17 and 20 tiles: of the first a run has several rows."""
    made = scheduled(32, te.var("h"), width)
    assert decisions(made)["spread.compute_at"] == "tiles"
    *_, columns, _ = buffers(compact_buffers(made.func))["half"].shape
    assert as_int(columns) == shared


@pytest.mark.parametrize("space", [(8, 56, 56), (10, 33, 28)])
def test_runs_of_a_volume_that_end_within_a_row_are_for_all_threads(
    space: tuple[int, int, int],
) -> None:
    image = te.placeholder((1, 4, *space, BLOCK))
    filters = te.placeholder((4, 6, 6, 3, 4, BLOCK, BLOCK))
    define = OPERATORS["winograd_packed"].define
    made = define(image, filters, pads=((1, 1),) * 3, dilations=(1,) * 3)
    machine = target("cpu -mcpu=znver3")
    for threads in (2, 3, 4):  # one that a strategy gives up raises
        default(te.func("conv", [image, filters], [made]), machine, threads, strict=True)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("width", "shared"), [(92, 6), (96, 96 + 2)])
def test_runs_of_known_tiles_end_within_a_row_that_nothing_cuts_evenly(
    width: int, shared: int, threads: int
) -> None:
    """23 and 24 tiles: register tiles of six rows, and each tile of 23 is transformed by itself."""
    made = scheduled(64, 128, width, threads)
    found = decisions(made)
    assert (found["product.block_m"], found["product.tile_m"]) == (24, 6)
    assert found["spread.compute_at"] == "tiles"
    *_, columns, _ = buffers(compact_buffers(made.func))["half"].shape
    assert as_int(columns) == shared


@pytest.mark.parametrize("channels", [16, 32, 64, 128])
def test_a_small_open_image_has_runs_for_all_threads(channels: int) -> None:
    """25 tiles, 20 × 20, in runs that two threads take in turns."""
    found = decisions(scheduled(channels, te.var("h"), te.var("w"), threads=2))
    run = found["product.block_m"]
    assert found["spread.compute_at"] == "tiles" and isinstance(run, int)
    done = [0, 0]
    for first in range(0, 25, run):
        done[done.index(min(done))] += min(run, 25 - first)
    assert max(done) <= 1.15 * 25 / 2


@pytest.mark.parametrize(("height", "run"), [(4, 6), (8, 6), (14, 12)])
def test_a_narrow_open_image_has_runs_for_all_threads(height: int, run: int) -> None:
    """40 pixels across: ten tiles in each row of them."""
    found = decisions(scheduled(32, height, te.var("w"), threads=2))
    assert (found["spread.compute_at"], found["product.block_m"]) == ("tiles", run)


@pytest.mark.parametrize(("channels", "way"), [(64, "tiles"), (256, "root")])
def test_threads_of_an_open_image_do_not_read_many_weights_for_few_tiles(
    channels: int, way: str
) -> None:
    """A run of an image that may be small has few tiles: of 256 channels, whose weights have nine
    megabytes, threads take panels instead."""
    made = scheduled(channels, te.var("h"), te.var("w"), threads=2)
    assert decisions(made)["spread.compute_at"] == way
    outermost = next(n for n in visit(lower(made.func, CPU).body) if isinstance(n, For))
    assert outermost.kind == "parallel"


def test_the_next_panel_of_an_open_image_is_asked_for_by_its_first_tiles() -> None:
    """An image of 14 × 14 has four: the requests are not spread over the twenty that a run has room
    for."""
    made = scheduled(256, te.var("h"), te.var("w"))
    (request,) = {n for n in visit(made.func.body) if isinstance(n, Call) and n.name == "prefetch"}
    loop = next(f for f in made.loops("product") if f.startswith("t_"))
    assert f"min({loop}, {ROUNDS - 1})" in print_expr(request)


def test_the_rows_of_a_dilated_open_tile_are_read_at_plain_indices() -> None:
    """A leaky ReLU reads them twice, and both times by the same index."""
    image = te.placeholder((1, 4, te.var("h"), 64, BLOCK))
    filters = te.placeholder((8, 6, 6, 4, BLOCK, BLOCK))
    define = OPERATORS["winograd_packed"].define
    conv = define(image, filters, pads=((1, 1), (1, 1)), dilations=(2, 1))
    leaky = te.compute(
        conv.shape, lambda *at: te.select(conv[at] < 0.0, conv[at] * 0.1, conv[at]), name="leaky"
    )
    made = lower(default(te.func("conv", [image, filters], [leaky]), CPU, 1, strict=True).func, CPU)
    stores = [s for s in visit(made.body) if isinstance(s, Store) and s.buffer.name == "leaky"]
    assert stores
    for store in stores:
        read = {n for n in loads(store.value) if n.buffer.name.startswith("gathered")}
        assert len(read) == 6
