"""The model's constants: another machine gets other schedules, in the direction that they say."""

from dataclasses import replace

import numpy as np
import pytest

from tilewright import te
from tilewright.driver.compile import prepare
from tilewright.graph.builder import Builder
from tilewright.graph.operator import OPERATORS
from tilewright.strategy.cpu.tiles import Weights, register_tile, spatial_tile, winograd_tile
from tilewright.strategy.select import default
from tilewright.strategy.space import decisions
from tilewright.target.costs import COMMON, NAMES, Costs
from tilewright.target.target import target

LINE = "cpu -mcpu=skylake-avx512 -caches=32768:64:1,1048576:64:1,33554432:64:2"


def edge(costs: Costs, size: int = 7, channels: int = 512) -> int:
    """Of Winograd's tiles for an image of `size` pixels along each side."""
    return winograd_tile(size, size, channels, channels, 8, 16, 512 << 10, costs)


def small_image(costs: Costs, depth: int) -> int:
    """The vectors of weights that a tile of 4 × 4 pixels reads, each `depth` deep."""
    weights = Weights(vector=64, depth=depth, l1=28 << 10, l2=896 << 10)
    return spatial_tile(4, 4, 32, 32, weights=weights, costs=costs)[-1]


def accumulators(costs: Costs, rows: int = 128, vectors: int = 12) -> int:
    high, wide = register_tile(rows, vectors, 32, costs=costs)
    return high * wide


def unevenness(costs: Costs, rows: int, vectors: int) -> float:
    high, wide = register_tile(rows, vectors, 32, costs=costs)
    return high / wide


def is_parallel(costs: Costs) -> int:
    """Is a sum of 64 rows of 64 numbers, on two threads?"""
    x = te.placeholder((64, 64), name="x")
    y = te.compute((64, 64), lambda i, j: x[i, j] + x[j, i], name="y")
    machine = replace(target(LINE), costs=costs)
    return decisions(default(te.func("twice", [x], [y]), machine, 2)).get("y.parallel", 0) != 0


# constant, what it was, what it is; what follows from it, growing if it grows with the constant
MOVES = [
    ("memory", 6.0, 12.0, edge),  # larger tiles have larger weights, which come from there
    ("memory", 1.0, 6.0, edge),
    ("multiply_adds", 4.0, 1.0, edge),  # slower products are worth more transforms
    ("transform", 20.0, 10.0, lambda c: edge(c, 28, 16)),
    ("l2", 4.0, 64.0, lambda c: small_image(c, 1024)),
    ("l3", 16.0, 64.0, lambda c: small_image(c, 4096)),
    ("latency", 4.0, 16.0, accumulators),
    ("loop", 1.0, 16.0, lambda c: accumulators(c, 1000, 48)),
    ("loads", 1.5, 4.0, lambda c: unevenness(c, 1000, 48)),
    ("overlap_penalty", 0.25, 0.01, lambda c: unevenness(c, 128, 12)),
    ("fork_join", 4096.0, 1000.0, is_parallel),
]


@pytest.mark.parametrize(("name", "before", "after", "follows"), MOVES)
def test_a_pick_moves_with_the_constant(name, before, after, follows):
    less, more = (follows(replace(COMMON, **{name: value})) for value in (before, after))
    assert less < more


def test_every_constant_moves_a_pick():
    assert {name for name, *_ in MOVES} == {*NAMES}


def test_the_graph_has_winograd_where_the_machine_of_the_line_gains_by_it():
    build = Builder()
    x = build.input("x", "f32", (1, 16, 28, 28))
    w = build.constant(np.ones((16, 16, 3, 3), np.float32))
    graph = build.finish([build.emit("conv", x, w, pads=((1, 1), (1, 1)))])

    def ops(costs: str) -> set[str]:
        return {n.op for n in prepare(graph, target(f"{LINE} -costs={costs}"), 3).graph.nodes}

    kinds = {"conv_packed", "winograd_packed"}
    assert ops("default") & kinds == {"winograd_packed"}
    assert ops("transform:40") & kinds == {"conv_packed"}


def test_a_strategy_counts_with_the_target():
    x = te.placeholder((1, 32, 4, 4, 16), name="x")
    w = te.placeholder((32, 32, 2, 2, 16, 16), name="w")
    y = OPERATORS["conv_packed"].define(
        x, w, strides=(1, 1), pads=((0, 1), (0, 1)), dilations=(1, 1), across=False
    )
    func = te.func("conv", [x, w], [y])
    vectors = [
        decisions(default(func, target(f"{LINE} -costs=l3:{rate},l2:{rate}")))["conv.tile_n"]
        for rate in (4, 64)
    ]
    slow, fast = (v for v in vectors if isinstance(v, int))
    assert slow < fast
