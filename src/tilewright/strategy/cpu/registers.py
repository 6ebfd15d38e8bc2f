"""Registers: decide the tile of a result that is held in registers, and write its loops.

In: a schedule whose anchor has an epilogue that stores its result. Out: the same with the tile's
loops unrolled, its lanes vectorised and the reduction around them. The decisions are the sizes of
the tile and how many steps of the reduction are unrolled. What they may be follows from the
registers of the machine; what they are, from a model of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod

from tilewright.ir.dtype import DType
from tilewright.ir.stmt import Block
from tilewright.schedule.schedule import Schedule
from tilewright.strategy.cpu.tiles import (
    Weights,
    heights,
    register_tile,
    spatial_cycles,
    spatial_tile,
)
from tilewright.strategy.loops import (
    by_axis,
    divisors,
    extent,
    present,
    reorder,
    split,
    unroll,
    vectorize,
)
from tilewright.strategy.work import stored_type
from tilewright.target.target import Target

MOST_UNROLLED = 32  # of a reduction that are unrolled: a bound on the size of the code
INNER_UNROLLED = 16  # of them along one loop
BODY = 192  # vectors that are computed between two jumps: more do not stay in the decoded cache
ABOUT_BEST = 1.02  # times the least time: tiles that take no longer are about as good
GROUPS = (1, 2, 3, 4, 5, 6)  # vectors that a tile may be wide
FEW = 24  # up to so many are worth it for any loop: a jump after each few hides less of memory


def multiples(wide: int) -> tuple[int, ...]:
    """Numbers of vectors a tile may hold when a channel block is `wide` vectors."""
    return tuple(v for v in (1, 2, 3, 4, 5, 6) if v % wide == 0) or (wide,)


def row_lanes(product: Block, width: int, target: Target) -> int:
    """The lanes of a vector of rows of `width` sums, of which many may follow one another: a
    vector that reached into the next row would keep all of them out of registers, and so would
    one of f64 that takes two."""
    return min(target.lanes(max(32, stored_type(product).bits)), 1 << (width - 1).bit_length())


def weights_on(
    target: Target,
    of: DType,
    lanes: int,
    depth: int,
    same_input: int = 0,
    apart: int = 0,
    taps: int = 1,
) -> Weights:
    """What tiles read of the weights, which are of dtype `of`, beside the caches of `target`; see
    `Weights`."""
    caches = target.cache(0).size, target.cache(1).size
    return Weights.beside(lanes, depth, *caches, same_input, apart, taps, of)


def decide_tile(
    schedule: Schedule,
    block: str,
    rows: int,
    vectors: int,
    lanes: int,
    target: Target,
    groups: tuple[int, ...] = GROUPS,
    exact: bool = False,
    weights: Weights | None = None,
    *,
    among: tuple[int, ...] = (),
    uneven: int = 0,
) -> tuple[int, int]:
    """(rows, vectors) of the tile of `block`, whose result is rows × vectors of `lanes`: decisions
    "tile_n" (in columns) and "tile_m".

    The other arguments are those of `register_tile`, which picks them. `among`: the vectors that a
    tile may be wide, where `groups` are those that are worth looking at; `uneven`: tiles may
    have any height that so many rows allow, although the pick is to be `exact`.
    """
    registers, costs = target.vector_registers, target.costs
    _, pick = register_tile(rows, vectors, registers, groups, exact, costs, weights)
    group = decide_columns(schedule, block, pick, within(among or groups, vectors), lanes)
    pick, _ = register_tile(rows, vectors, registers, (group,), exact, costs, weights)
    may = heights(uneven or rows, group, registers, exact and not uneven)
    return schedule.decide(f"{block}.tile_m", pick, may), group


def decide_columns(
    schedule: Schedule, block: str, pick: int, groups: Iterable[int], lanes: int
) -> int:
    """How many vectors a tile is wide: decision "tile_n", in columns."""
    return schedule.decide(f"{block}.tile_n", pick * lanes, [g * lanes for g in groups]) // lanes


def decide_spatial_tile(
    schedule: Schedule,
    block: str,
    height: int,
    width: int,
    vectors: int,
    lanes: int,
    target: Target,
    groups: tuple[int, ...],
    weights: Weights | None = None,
    met: tuple[float, ...] = (),
) -> tuple[int, int, int]:
    """(rows, columns, vectors) of the tile of an image: decisions "tile_n" (in channels), "tile_w"
    and "tile_h" of `block`.

    The arguments are those of `spatial_tile`, which picks them; `met` is for tiles of one, two, …
    columns the part of their steps that are not left out: of columns about as good it picks those
    with the least.
    """
    registers, costs = target.vector_registers, target.costs

    def tile(groups: tuple[int, ...], widths: tuple[int, ...] = ()) -> tuple[int, int, int]:
        return spatial_tile(height, width, vectors, registers, groups, widths, weights, costs)

    *_, pick = tile(groups)
    group = decide_columns(schedule, block, pick, within(groups, vectors), lanes)
    _, columns, _ = tile((group,))
    if met:

        def cycles(wide: int) -> float:
            return spatial_cycles(height, width, vectors, (1, wide, group), weights, costs)

        most = ABOUT_BEST * cycles(columns)
        near = [c for c in heights(width, group, registers) if cycles(c) <= most]
        columns = min(reversed(near), key=lambda c: met[c - 1], default=columns)
    columns = schedule.decide(f"{block}.tile_w", columns, heights(width, group, registers))
    rows, *_ = tile((group,), (columns,))
    most = heights(height * width, group, registers)[-1] // columns
    return schedule.decide(f"{block}.tile_h", rows, range(1, min(height, most) + 1)), columns, group


def within(groups: tuple[int, ...], vectors: int) -> tuple[int, ...]:
    """The groups that a result of so many vectors fills; the smallest if it fills none."""
    return tuple(g for g in groups if g <= vectors) or (min(groups),)


def fill_registers(
    schedule: Schedule,
    name: str,
    tile: Sequence[str],
    block: str,
    reduced: Sequence[str],
    lanes: int,
    unroll_inner: int = 0,
    steps: int = 0,
) -> None:
    """The anchor inside its tile: the reduction outside, the tile's loops unrolled, the lanes a
    vector.

    tile: its loops over the tile, `block`: over a block of channels, which is cut into vectors; ""
    is no loop. `unroll_inner`: so many inner reduction loops are unrolled, if they are short;
    `steps`: how many steps are, where that is decided already.
    """
    several, lane = split(schedule, block, lanes)
    unrolled = present([*tile, several])
    around = present(reduced)
    reorder(schedule, *around, *unrolled, lane)
    if around:
        init = schedule.decompose_reduction(name, around[0])
        loops = schedule.loops(init)
        inner = loops[len(loops) - len(present([*unrolled, lane])) :]
        own = by_axis(schedule, init, inner)
        own = list(dict.fromkeys(n for n in loops if n in own or n.endswith("_init")))
        unroll(schedule, *own[:-1])
        vectorize(schedule, own[-1] if own else "")
        size = prod(extent(schedule, n) for n in unrolled)
        short = present(reduced[len(reduced) - unroll_inner :])
        if steps:
            unroll_steps(schedule, around, steps)
        else:
            unroll_reduction(schedule, name, around, short, size)
    unroll(schedule, *unrolled)
    vectorize(schedule, lane)


def unroll_reduction(
    schedule: Schedule, name: str, reduced: Sequence[str], short: Sequence[str], size: int
) -> None:
    """Unroll a nest of reduction loops around block `name`: decision "unroll", the factor.

    Whole inner loops are unrolled, and a part of the next one. The pick are those of `short`,
    the innermost loops, that leave the code small; a step computes `size` vectors, and several
    steps of few vectors (a row times a matrix) stand together whatever the loop.
    """
    values, own = [1], 1
    for loop in reversed(reduced):
        count, inside = extent(schedule, loop, 0), values[-1]
        values += [inside * d for d in divisors(count, INNER_UNROLLED) if d > 1] if count else []
        if values[-1] != inside * count:
            break  # the loop is too long to be unrolled whole, or symbolic
        if loop in short and values[-1] * size <= BODY:
            own = values[-1]
    own = max(v for v in values if v == own or v * size <= FEW)
    values = [v for v in values if v <= MOST_UNROLLED or v * size <= BODY]
    unroll_steps(schedule, reduced, schedule.decide(f"{name}.unroll", own, values))


def unroll_steps(schedule: Schedule, reduced: Sequence[str], factor: int) -> None:
    """Unroll so many steps of nested loops: whole inner ones, and a part of the next one."""
    for loop in reversed(reduced):
        if factor == 1:
            return
        count = extent(schedule, loop)
        part = min(factor, count)
        unroll(schedule, loop if part == count else split(schedule, loop, part)[1])
        factor //= part
