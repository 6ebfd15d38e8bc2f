"""Contraction: any sum of products whose result has axes that one operand does not know.

In: a schedule, one of its reductions, and a machine. Out: that reduction in register tiles. The one
idea: the vectors run along the result's last axis, in memory; the rows run along an axis that what
is read in vectors does not depend on; so `rows × vectors` accumulators take `rows` numbers and
`vectors` vectors from memory in each step, whatever the operands are: matrices, images and filters
in any layout, tensors with any number of axes. An operand whose memory runs across the vectors is
copied first, transposed.

    parallel other axes, rows in tiles, columns in tiles (columns first, if they are many,
    or in steps of open rows)
        init the tile; for every step: tile += number * vector
        what reads the result → memory
"""

from __future__ import annotations

from math import prod
from typing import NamedTuple

from tilewright.arith.estimate import SEQUENCE, estimate
from tilewright.ir.expr import Buffer, Load, Select, Var, as_int
from tilewright.ir.stmt import Block
from tilewright.ir.walk import free_vars, loads, visit
from tilewright.schedule.schedule import Schedule
from tilewright.strategy.absorb import is_reduction, readers, written
from tilewright.strategy.cpu.contiguous import STEP, runs_along
from tilewright.strategy.cpu.pointwise import stream, vector_lanes
from tilewright.strategy.cpu.registers import (
    BODY,
    INNER_UNROLLED,
    decide_tile,
    fill_registers,
    weights_on,
)
from tilewright.strategy.loops import (
    by_axis,
    compute_inside,
    extent,
    find,
    innermost,
    parallel,
    reorder,
    split,
    unroll,
    vectorize,
)
from tilewright.strategy.work import is_worth_a_region
from tilewright.support.errors import ScheduleError
from tilewright.target.target import Target

FEW = 2  # rows: so many use what is read twice
MANY = 16  # rows: as many pay for a copy of what all of them read


class Tiling(NamedTuple):
    """How a reduction is tiled: the rows of a tile run along spatial axis `row`, vectors along
    the last. wide: what is read in vectors; across: the one buffer of it whose memory runs along
    another axis."""

    row: int
    wide: tuple[Buffer, ...]
    across: Buffer | None


def tiling(block: Block, target: Target, few: int = FEW) -> Tiling | None:
    """The tiling of a reduction; None if nothing that is read in vectors is used by as many rows as
    `few`, or if vectors would be short or gathered."""
    spatial = [a for a in block.axes if a.kind == "spatial"]
    if len(spatial) < 2 or len(block.writes) != 1 or block.where is not None:
        return None
    column = spatial[-1].var
    sizes = [estimate(a.extent) for a in spatial]
    own = written(block)
    read = [n for n in set(loads(block.body)) if n.buffer not in own]
    wide = [n for n in read if column in _used(n)]
    known = {v for n in wide for v in _used(n)}
    rows = [d for d, a in enumerate(spatial[:-1]) if a.var not in known]
    if not wide or not rows or 2 * sizes[-1] < vector_lanes(block, target):
        return None
    row = max(reversed(rows), key=lambda d: min(sizes[d], SEQUENCE))
    across = [n for n in wide if not runs_along(n, column, STEP)]
    if sizes[row] < (MANY if across else few) or len(across) > 1:
        return None
    if across and not _is_permuted(across[0], block):
        return None
    buffers = tuple(dict.fromkeys(n.buffer for n in wide))
    return Tiling(row, buffers, across[0].buffer if across else None)


def _used(load: Load) -> set[Var]:
    return {v for i in load.indices for v in free_vars(i)}


def _is_permuted(load: Load, block: Block) -> bool:
    """Does the block read each element for one combination of its axes, padding aside, and so a
    copy is no larger?"""
    if any(load in loads(n) for n in visit(block.body) if isinstance(n, Select)):
        return False
    names = [i for i in load.indices if as_int(i) is None]
    return all(isinstance(i, Var) for i in names) and len(set(names)) == len(names)


def contraction(
    schedule: Schedule, name: str, target: Target, threads: int, few: int = FEW
) -> set[str]:
    """Register tiles for one reduction; `few` is for `tiling`. Gives the names of all blocks that
    it scheduled. Raises ScheduleError if it has none."""
    block = find(schedule, name)
    tiled = tiling(block, target, few)
    if tiled is None:
        raise ScheduleError(f"cannot tile '{name}'", "no rows use the same vectors")
    before = {*schedule.blocks()}
    if tiled.across is not None:
        copy_transposed(schedule, name, tiled.across.name, target, threads)
        block = find(schedule, name)
    worth = is_worth_a_region([block], target)
    spatial = sum(a.kind == "spatial" for a in block.axes)
    result = result_of(schedule, name)
    loops = in_any_order(schedule, result, by_axis(schedule, result))
    row, column = loops[tiled.row], loops[-1]
    others = [n for d, n in enumerate(loops[:-1]) if d != tiled.row]
    # of open rows a few last ones are tiles in which panels are jammed; a recurrence has few
    step = any(a.kind == "ordered" for a in block.axes)
    is_jammed = step and not extent(schedule, row, 0) and extent(schedule, column, 0)
    count, width = (extent(schedule, loop, SEQUENCE) for loop in (row, column))
    lanes = min(vector_lanes(block, target), 1 << (width - 1).bit_length())
    depth = prod(estimate(a.extent) for a in block.axes if a.kind == "reduce")
    if depth <= INNER_UNROLLED:
        count = min(
            count, BODY // depth
        )  # few steps are unrolled whole, while memory is waited for
    read, taps = deep(block)
    dtype = max((b.dtype for b in tiled.wide), key=lambda d: d.bits)
    weights = weights_on(target, dtype, lanes, read, taps=taps)
    rows, vectors = decide_tile(
        schedule, name, count, -(-width // lanes), lanes, target, weights=weights
    )
    tile, inner = split(schedule, row, rows)
    panel, several, lane = split(schedule, column, vectors, lanes)
    sizes = [_bytes(b) for b in tiled.wide]
    far = 0 in sizes or sum(sizes) > target.cache(1).size // 2
    order = "columns" if far or is_jammed else "rows"
    order = schedule.decide(f"{name}.order", order, ("rows", "columns"))
    outer = [*others, tile, panel] if order == "rows" else [*others, panel, tile]
    reorder(schedule, *outer, inner, several, lane)
    own = in_any_order(schedule, name, compute_inside(schedule, name, innermost(outer)))
    high, wide, reduced = own[tiled.row], own[spatial - 1], own[spatial:]
    fill_registers(schedule, name, (high,), wide, reduced, lanes, unroll_inner=1)
    unroll(schedule, inner, several)
    vectorize(schedule, lane)
    if threads > 1:
        parallel(schedule, outer, threads, f"{name}.parallel", worth=worth)
    return {*schedule.blocks()} - before | {name, result}


def in_any_order(schedule: Schedule, name: str, loops: list[str]) -> list[str]:
    """Of the loops for each axis of a block those that are not for the steps of a recurrence."""
    axes = find(schedule, name).axes
    return [n for n, axis in zip(loops, axes, strict=True) if axis.kind != "ordered"]


def deep(block: Block) -> tuple[int, int]:
    """How many vectors the steps of a reduction read of memory for one vector of results, and how
    many steps read each: the taps of a window along the vectors read the same ones."""
    column = [a.var for a in block.axes if a.kind == "spatial"][-1]
    beside = {
        v for n in loads(block.body) for i in n.indices if column in free_vars(i)
        for v in free_vars(i)
    }  # fmt: skip
    steps = [(a.var, estimate(a.extent)) for a in block.axes if a.kind == "reduce"]
    vectors = prod(n for v, n in steps if v not in beside)
    return vectors, prod(n for _, n in steps) // vectors


def _bytes(buffer: Buffer) -> int:
    """Bytes of a buffer; 0 if a size is open."""
    return prod(as_int(d) or 0 for d in buffer.shape) * buffer.dtype.bits // 8


def copy_transposed(
    schedule: Schedule, name: str, buffer: str, target: Target, threads: int
) -> None:
    """Copy an operand of a block so that its memory runs along the block's last spatial axis."""
    block = find(schedule, name)
    (load,) = [n for n in set(loads(block.body)) if n.buffer.name == buffer]
    axes = [a for a in block.axes if a.var in _used(load)]
    column = [a.kind == "spatial" for a in axes].count(True) - 1
    copy = schedule.reindex(name, buffer)
    letters = [f"a{d}" for d in range(len(axes))]
    order = [a for d, a in enumerate(letters) if d != column] + [letters[column]]
    mapping = f"lambda {', '.join(letters)}: ({', '.join(order)},)"
    (copied,) = written(find(schedule, copy))
    schedule.transform_layout(copied.name, mapping)
    schedule.transform_block_layout(copy, mapping)
    stream(schedule, copy, target, threads)


def result_of(schedule: Schedule, name: str) -> str:
    """The block that stores what a reduction has summed up in registers: the elementwise one that
    reads it, element by element, if it is alone; else a copy."""
    block = find(schedule, name)
    (buffer,) = written(block)
    sizes = [a.extent for a in block.axes if a.kind == "spatial"]
    reading = list(readers(schedule.func, block))
    if buffer not in schedule.func.buffers and len(reading) == 1:
        (reader,) = reading
        same = [a.extent for a in reader.axes] == sizes and not is_reduction(reader)
        element = tuple(a.var for a in reader.axes)
        if same and all(n.indices == element for n in loads(reader.body) if n.buffer == buffer):
            schedule.set_scope(buffer.name, "local")
            return reader.name
    return schedule.cache_write(name, buffer.name, "local")
