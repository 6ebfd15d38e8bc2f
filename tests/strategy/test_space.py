"""Every point of a family's space computes what the operator means, and its trace replays."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from tests.schedule.programs import matmul
from tests.strategy.test_families import check, random
from tilewright.graph.ops.packed import pack, pack_dense
from tilewright.graph.ops.packed_transposed import pack_transposed
from tilewright.graph.ops.winograd import pack_winograd
from tilewright.graph.passes.channels import ChannelLayout, Packing
from tilewright.schedule.schedule import Schedule
from tilewright.strategy.cpu.tiles import heights
from tilewright.strategy.space import decisions, point, sample
from tilewright.target.target import target

WINDOW = {"strides": (1, 1), "pads": ((1, 1), (1, 1)), "dilations": (1, 1)}
PLAIN = {**WINDOW, "pads": ((0, 0), (0, 0))}


def packed_filter(co: int, ci: int, edge: int) -> Any:
    return ChannelLayout(Packing(8), Packing(8), 8).pack_filter(random(co, ci, edge, edge) / edge)


def case(op: str, *arrays: Any, **attrs: Any) -> Callable[..., None]:
    return lambda **more: check(op, *arrays, **attrs, **more)


CASES = {
    "conv": case(
        "conv_packed", pack(random(2, 16, 9, 11), 8), packed_filter(24, 16, 3), relu=True, **WINDOW
    ),
    "product over pixels": case(
        "conv_packed", random(1, 2, 14, 14, 8), random(4, 2, 1, 1, 8, 8), relu=True, **PLAIN
    ),
    "winograd": case(
        "winograd_packed", pack(random(1, 16, 14, 18), 8),
        pack_winograd(packed_filter(24, 16, 3) / 10, 4), relu=True, pads=((1, 1), (1, 1)),
    ),
    "depthwise": case(
        "depthwise_packed", pack(random(1, 32, 12, 14), 16), pack(random(1, 32, 3, 3), 16)[0],
        relu=True, **WINDOW,
    ),
    "transposed": case(
        "conv_transpose_packed", pack(random(1, 16, 6, 6), 16),
        pack_transposed(random(16, 24, 4, 4), (2, 2), 16, 16), strides=(2, 2), offsets=(1, 1),
        positions=(6, 6),
    ),
    "dense": case(
        "dense_packed", random(24, 40), pack_dense(random(40, 63), 16), relu=True, channels=63
    ),
    "matmul": case("matmul", random(3, 17, 32), random(3, 32, 65), relu=True),
    "softmax": case("softmax", random(5, 256), axis=-1),
    "norm": case("layer_norm", random(9, 128), random(128), random(128), axis=-1),
    "sum": case("reduce_sum", random(4, 96), axes=(1,), keepdims=False),
    "pool": case(
        "max_pool", pack(random(1, 20, 13, 15), 16), kernel=(3, 3, 1), strides=(2, 2, 1),
        pads=((1, 1), (1, 1), (0, 0)),
    ),
    "move": case("transpose", random(2, 5, 8, 32), perm=(0, 2, 1, 3)),
    "elementwise": case("exp", random(16, 28, 32)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_random_points(name: str) -> None:
    CASES[name](points=[1], threads=1)
    CASES[name](points=[2], threads=2)


@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("name", CASES)
def test_many_random_points(name: str, threads: int, draws: Callable[[int], int]) -> None:
    CASES[name](points=range(draws(40)), threads=threads)


def test_a_point_is_its_decisions() -> None:
    func, machine = matmul(24, 24, 24).func, target("cpu -mcpu=haswell")
    drawn = sample(func, machine, 1, Random(3))
    assert point(func, machine, 1, decisions(drawn)).func == drawn.func


def test_decisions_have_values_and_are_among_them() -> None:
    asked = []

    def choose(name: str, own: Any, values: tuple[Any, ...]) -> Any:
        asked.append((name, own in values))
        return values[-1]

    schedule = Schedule(matmul(8, 8, 8).func, choose=choose)
    assert schedule.decide("C.tile_m", 2, heights(8, 2, 16)) == 6
    assert asked == [("C.tile_m", True)]
