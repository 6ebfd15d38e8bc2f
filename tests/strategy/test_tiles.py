"""Register tiles: they fit the registers, and the model prefers what should be better."""

import numpy as np
import pytest

from tilewright import te
from tilewright.codegen.llvm import emit
from tilewright.codegen.llvm_compile import compile_assembly
from tilewright.driver.compile import kernel_jobs, prepare
from tilewright.driver.observe import Watch
from tilewright.graph import Builder
from tilewright.graph.operator import OPERATORS
from tilewright.ir.dtype import bf16, dtype, f32, f64
from tilewright.ir.expr import as_int
from tilewright.ir.stmt import For
from tilewright.ir.walk import visit
from tilewright.lower.pipeline import lower
from tilewright.strategy.cpu.product import panel_groups
from tilewright.strategy.cpu.tiles import (
    Weights,
    panel_vectors,
    prefers_pixels,
    register_tile,
    spatial_tile,
    step_cycles,
    tiled_cycles,
    winograd_tile,
)
from tilewright.strategy.cpu.winograd import even_parts, whole_tiles
from tilewright.strategy.select import default
from tilewright.strategy.space import decisions
from tilewright.target.costs import HALVES, WIDE
from tilewright.target.target import target

AVX512 = target("cpu -mcpu=znver4")


@pytest.mark.parametrize("registers", [16, 32])
@pytest.mark.parametrize("rows", [1, 2, 7, 12, 128])
@pytest.mark.parametrize("vectors", [1, 2, 3, 48])
def test_a_tile_fits_the_registers(rows, vectors, registers):
    tile, group = register_tile(rows, vectors, registers)
    assert 1 <= tile <= rows
    assert tile * group + group + 1 < registers or tile == 1


@pytest.mark.parametrize("rows", [24, 40])
def test_sums_in_sixteen_registers_are_not_on_the_stack(rows):
    """A tile that needed all of them, 12 sums of 3 vectors, kept every sum in memory."""
    machine, build = target("cpu -mcpu=znver3"), Builder("g")
    x, w = build.input("x", "f32", (rows, 256)), build.constant(np.ones((256, 384), np.float32))
    graph = prepare(build.finish({"y": build.emit("matmul", x, w)}), machine, 3, [])
    for job in kernel_jobs(graph, machine, 1, Watch())[-1]:
        func = lower(default(job.func, machine, 1, strict=True).func, machine)
        text = compile_assembly(emit(func, machine).text, machine)
        assert "vfmadd" in text
        assert not any("ymm" in line and "rsp" in line for line in text.splitlines())


@pytest.mark.parametrize(("height", "width"), [(56, 56), (7, 7), (1, 49), (13, 17)])
def test_a_spatial_tile_fits_the_registers_and_spans_whole_rows(height, width):
    rows, columns, vectors = spatial_tile(height, width, 8, 32)
    assert rows == 1 or columns == width
    assert rows * columns * vectors + vectors + 1 <= 32


def test_a_small_image_is_tiled_across_rows():
    assert prefers_pixels(7, 7, 4, 16)  # four columns leave three over; 49 pixels leave few
    assert not prefers_pixels(56, 56, 8, 16)


@pytest.mark.parametrize(
    ("rows", "columns", "ci", "co", "edge"),
    [(56, 56, 64, 64, 4), (14, 14, 256, 256, 4), (7, 7, 512, 512, 2), (1, 1, 64, 64, 0),
     (3, 3, 16, 16, 0)],
)  # fmt: skip
def test_winograd_where_it_pays(rows, columns, ci, co, edge):
    assert winograd_tile(rows, columns, ci, co, 8, 16, 512 << 10) == edge
    assert winograd_tile(rows, columns, ci, co, 16, 32, 1 << 20, HALVES) == edge


@pytest.mark.parametrize(
    ("size", "ci", "co", "edge"),
    [(33, 16, 16, 4), (56, 8, 8, 4), (14, 16, 16, 4), (56, 32, 8, 4), (7, 48, 48, 4),
     (7, 64, 64, 4), (7, 128, 128, 2), (7, 512, 512, 2)],
)  # fmt: skip
def test_products_and_plain_convolutions_are_counted_in_register_tiles(size, ci, co, edge):
    """As timed with vectors of 32 bytes; at full speed the plain one of few channels was thought to
    be faster, and few large tiles slower than many small ones."""
    assert winograd_tile(size, size, ci, co, 8, 16, 512 << 10) == edge


@pytest.mark.parametrize(
    ("rows", "columns", "channels", "taps", "planes", "edge"),
    [(8 * 56, 56, 32, 3, 10 / 8, 4), (32 * 64, 64, 16, 3, 34 / 32, 4), (2, 2, 64, 3, 2.0, 0)],
)
def test_winograd_of_planes_where_it_pays(rows, columns, channels, taps, planes, edge):
    assert winograd_tile(
        rows, columns, channels, channels, 16, 32, 1 << 20, WIDE, deep=taps, planes=planes
    ) == edge  # fmt: skip


def test_a_tile_reads_no_more_weights_than_stay_near():
    """4096 deep, the weights of six vectors of 64 bytes are 1.5 MB, of two half a megabyte: four
    rows of four columns would read the six from L3 in each of four tiles."""
    deep = Weights(vector=64, depth=4096, l1=28 << 10, l2=896 << 10)
    assert spatial_tile(4, 4, 32, 32) == (1, 4, 6)
    rows, columns, vectors = spatial_tile(4, 4, 32, 32, weights=deep)
    assert rows > 1 and columns == 4 and vectors * 64 * 4096 <= 896 << 10


@pytest.mark.parametrize("vectors", [7, 48, 64, 65, 163])
def test_panels_are_of_a_width_that_leaves_few_zeros(vectors):
    """No width makes fewer zeros by more than the time of its tiles is longer."""
    near = Weights.beside(16, 768, 48 << 10, 1 << 20)
    wide = panel_vectors(128, vectors, 32, near)

    def cycles(width: int) -> float:
        padded = -(-vectors // width) * width
        tile = register_tile(128, padded, 32, (width,), weights=near)
        return tiled_cycles(128, padded, *tile, weights=near)

    assert cycles(wide) == min(map(cycles, range(1, 7)))
    assert -(-vectors // wide) * wide <= vectors * 1.05 or vectors < 20


def test_panels_of_open_width_are_narrow():
    """A matrix of few columns fills half of a wide panel; of many, two vectors take 1.04 of the
    time that four take."""
    near = Weights.beside(16, 64, 48 << 10, 1 << 20)
    assert panel_vectors(256, None, 32, near) == 2
    assert panel_vectors(256, 16, 32, near) == 4


def test_panels_of_a_common_width_are_filled():
    """48 vectors are no whole number of panels of five: a twentieth would be zeros."""
    near = Weights.beside(16, 768, 32 << 10, 1 << 20)
    assert 48 % panel_vectors(128, 48, 32, near) == 0


def test_a_tile_takes_no_more_rows_than_l1_has_ways_for():
    """Rows of 3072 numbers are three times 4096 bytes apart: their lines meet in one set."""
    far, near = (Weights.beside(16, d, 32 << 10, 1 << 20, apart=d * 4) for d in (3072, 776))
    assert far.most_rows() == 7 < near.most_rows()
    assert register_tile(128, 3, 32, (3,), weights=far) == (7, 3)
    assert register_tile(128, 3, 32, (3,), weights=near)[0] > 7


def test_weights_come_at_the_rate_of_the_cache_that_holds_them():
    weights = Weights(vector=64, depth=100, l1=8_000, l2=20_000)
    assert weights.cycles(1) == 0
    assert 0 < weights.cycles(2) == weights.cycles(3) < weights.cycles(4)


def test_enough_accumulators_hide_the_latency():
    assert step_cycles(4, 4) / 16 < step_cycles(1, 1)


def test_vectors_of_several_groups_read_no_channels_in_common():
    """Two groups in two vectors: a wide tile loads no less, so the tile is high; a group of three
    vectors is better kept together."""
    alone, three = (Weights(32, 72, 28 << 10, 800 << 10, same_input) for same_input in (1, 3))
    assert spatial_tile(28, 28, 32, 32, (2, 4, 6), weights=alone)[2] == 2
    assert spatial_tile(28, 28, 30, 32, (2, 4, 6), weights=three)[2] == 6
    assert step_cycles(6, 4, same_input=1) > step_cycles(6, 4, same_input=2) > step_cycles(6, 4)


def test_a_tail_costs_a_tile_of_its_own():
    assert tiled_cycles(25, 2, 12, 2) > tiled_cycles(24, 2, 12, 2)


@pytest.mark.parametrize("registers", [16, 32])
def test_a_panel_packed_for_this_machine_stays_whole(registers):
    for rows in (1, 2, 7, 16, 128, 1000):
        for vectors in (1, 3, 5, 8, 63, 250):
            _, group = register_tile(rows, vectors, registers)
            assert panel_groups(rows, group, registers) == (group,)


def test_a_panel_of_wider_vectors_is_cut_into_tiles_that_fit():
    assert panel_groups(128, 12, 16) == (1, 2, 3, 4, 6)  # 96 columns: six AVX-512 vectors
    rows, group = register_tile(128, 12, 16, panel_groups(128, 12, 16))
    assert rows * group >= 8 and rows * group + group + 1 <= 16
    assert max(panel_groups(1, 24, 16)) == 6


def test_rows_of_a_narrow_image_are_taken_together_though_one_is_left_over():
    """7 × 7 in tiles of 2 rows, the last of one: 28 accumulators of 32 registers, not 14."""
    deep = Weights(64, 2304, 28 << 10, 896 << 10)
    assert spatial_tile(7, 7, 16, 32, weights=deep) == (2, 7, 2)


@pytest.mark.parametrize(
    ("panels", "threads", "least", "most", "parts"),
    [
        (1, 1, 1, 9, 1),
        (1, 2, 1, 9, 2),
        (2, 2, 1, 9, 1),
        (3, 2, 1, 9, 2),  # two and one, or three each
        (1, 2, 3, 9, 4),
        (11, 2, 1, 9, 1),  # six and five: near enough
        (1, 16, 1, 4, 4),  # not a thread each, but as many as it is worth
        (5, 4, 1, 1, 1),
    ],
)
def test_panels_are_cut_until_threads_have_as_many_each(panels, threads, least, most, parts):
    assert even_parts(panels, threads, least, most) == parts


def test_a_run_is_made_of_whole_register_tiles():
    machine = target("cpu -mcpu=x86-64-v4")
    assert whole_tiles(8, 4, machine, (4,)) == 8  # twice four rows
    assert whole_tiles(23, 4, machine, (4,)) == 24  # not 23 times one


def product_of(channels: int, size: int, window: int) -> dict:
    """What the default of a convolution of so many channels to as many decides."""
    build, rng = Builder(), np.random.default_rng(3)
    x = build.input("x", "f32", (1, channels, size, size))
    weights = rng.standard_normal((channels, channels, window, window), np.float32)
    pads = (((window - 1) // 2,) * 2,) * 2
    graph = build.finish({"y": build.emit("conv", x, build.constant(weights), pads=pads)})
    *_, jobs = kernel_jobs(prepare(graph, AVX512, 3), AVX512, 1, Watch())
    found = [decisions(default(job.func, AVX512, strict=True)) for job in jobs]
    return next(d for d in found if {"product.tile_n", "conv.tile_n"} & {*d})


@pytest.mark.parametrize(("channels", "size"), [(256, 14), (128, 28), (96, 17)])
def test_winograd_computes_hardly_more_tiles_than_there_are(channels, size):
    """In tiles of four by four results: 16, 49 and 25."""
    there, made = (-(-size // 4)) ** 2, product_of(channels, size, 3)
    run = made["product.block_m"]
    assert run % made["product.tile_m"] == 0
    assert there <= -(-there // run) * run <= there + 3


def test_a_deep_1x1_convolution_reads_weights_that_stay_near():
    """Four vectors of 1024 channels are a quarter of a megabyte, read again for every few pixels;
    with two, twice as many pixels read each of them."""
    deep, shallow = product_of(1024, 7, 1), product_of(64, 7, 1)
    assert deep["conv.tile_n"] < shallow["conv.tile_n"]
    assert deep["conv.tile_m"] > shallow["conv.tile_m"]


@pytest.mark.parametrize(("rows", "several"), [(1, True), (128, False)])
def test_steps_of_few_vectors_stand_together(rows, several):
    """A row times a matrix is a few vectors a step: the loop's own jump would be as much work."""
    build, rng = Builder(), np.random.default_rng(3)
    x = build.input("x", "f32", (rows, 96))
    weights = build.constant(rng.standard_normal((96, 64), np.float32))
    graph = build.finish({"y": build.emit("matmul", x, weights)})
    *_, jobs = kernel_jobs(prepare(graph, AVX512, 3), AVX512, 1, Watch())
    (made,) = [d for job in jobs if "dense.unroll" in (d := decisions(default(job.func, AVX512)))]
    assert (made["dense.unroll"] != 1) == several


def test_bytes_are_those_of_the_type():
    """A panel of weights stays in a cache if its bytes do."""
    single, double, half = (
        Weights.beside(16, 512, 48 << 10, 1 << 20, apart=of.nbytes(512), of=of)
        for of in (f32, f64, bf16)
    )
    assert (half.vector, single.vector, double.vector) == (32, 64, 128)
    assert single.cycles(1) == half.cycles(2) == 0 < double.cycles(1)


@pytest.mark.parametrize("of", ["f32", "f64"])
def test_lanes_are_counted_for_the_type_of_the_sums(of: str):
    """A vector of a packed product is one register, whatever it holds."""
    x, w = te.placeholder((64, 32), of, "x"), te.placeholder((4, 32, 32), of, "w")
    y = OPERATORS["dense_packed"].define(x, w, channels=128)
    func = default(te.func("product", [x, w], [y]), AVX512).func
    vectors = {
        as_int(s.extent) for s in visit(func.body) if isinstance(s, For) and s.kind == "vectorize"
    }
    assert vectors == {AVX512.lanes(dtype(of).bits)}
