"""Attention strategy: a few queries at a time, from their scores to their results.

In: a schedule with two products and a softmax between them, and a machine. The one idea: the scores
of a tile of queries against all keys stay in L2; so the whole matrix of scores, which
is larger than all that goes in and comes out, is never in memory.

    parallel batches, heads, tiles of queries (of an open number of keys: chunks of known number)
        a product in register tiles, scaled and masked on its way          → scores of the tile
        for each query: maximum, exponentials, divided by their sum       → weights of the tile
        a product in register tiles, and what follows it                   → memory
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from typing import NamedTuple

from tilewright.arith.estimate import BATCH, SEQUENCE, estimate
from tilewright.ir.dtype import DType
from tilewright.ir.expr import as_int
from tilewright.ir.stmt import Block
from tilewright.ir.walk import blocks
from tilewright.schedule.primitives.prefetch import LINE
from tilewright.schedule.schedule import Schedule
from tilewright.strategy.absorb import absorb, is_reduction, readers, role, written
from tilewright.strategy.cpu.pointwise import stream
from tilewright.strategy.cpu.product import panel_groups, panel_parts
from tilewright.strategy.cpu.reduction import vectorize_block
from tilewright.strategy.cpu.registers import GROUPS, decide_tile, fill_registers, row_lanes
from tilewright.strategy.cpu.tiles import register_tile, tallest, tiled_cycles
from tilewright.strategy.loops import (
    ITERATIONS,
    by_axis,
    compute_inside,
    divisors,
    enough,
    extent,
    find,
    fuse,
    innermost,
    parallel,
    reorder,
    split,
    unroll,
    vectorize,
)
from tilewright.strategy.roles import products, scores
from tilewright.strategy.work import operand_type, stored_type
from tilewright.target.target import Target

HIGH = (1, 2, 3, 4, 6, 8, 12, 16, 24)  # register tiles that a tile of queries may be high
RAGGED = 2  # times as long takes a tile that is not full: not all of its code is free of conditions
LEAST = 12  # queries of a tile for which there is always room
ABOUT_BEST = 1.025  # times the least time: tiles that take no longer are about as good
KEYS = 4096  # for which a tile of queries has room where their number is open
CHUNKS = 4  # for each thread: they take about as long as one another


def attention(schedule: Schedule, target: Target, threads: int) -> None:
    """(*batch, queries, columns): the result of the second product, by its rows."""
    (read,) = scores(schedule.func)
    absorb(schedule, keep=(read,))  # what has one reader now that others are inlined
    transposed = [b.name for b in blocks(schedule.func.body) if role(b) == "pad"]
    for name in transposed:
        stream(schedule, name, target, threads)
    first, second = products(schedule.func)
    results = {stored(schedule, first): first, stored(schedule, second): second}
    (read,) = scores(schedule.func)
    names = [n for n in schedule.blocks() if n not in transposed]
    if open_keys(schedule):
        rows_apart(schedule, read, names[names.index(second) - 1])
    softmax = names[names.index(read) + 1 : names.index(second)]
    *batch, query, _ = by_axis(schedule, names[-1])
    rows = queries(schedule, names[-1], [*batch, query], target, threads)
    in_chunks = threads > 1 and open_keys(schedule) and not extent(schedule, query, 0)
    if in_chunks:
        *batch, tile, row = chunks(schedule, batch, query, rows, threads)
    else:
        tile, row = split(schedule, query, rows)
    around = dict.fromkeys(names, tile)
    for name in reversed(names[names.index(first) :]):
        if name in (first, second):
            continue  # its result has taken it in
        if name in softmax[:-1]:
            around[name] = row  # of the weights: they come last of what is made row by row
            schedule.compute_at(name, row)
        elif name != names[-1]:
            *_, row, _ = compute_inside(schedule, name, tile)
        if name in results:
            in_registers(schedule, results[name], name, tile, target)
    for name in names[names.index(first) :]:
        if name not in (first, second, *results):
            loops = schedule.loops(name)
            vectorize_block(schedule, name, loops[loops.index(around[name]) + 1 :], target)
    if in_chunks:
        schedule.parallel(batch[0])
    elif threads > 1:
        parallel(schedule, [*batch, tile], threads, f"{names[-1]}.parallel")


def open_keys(schedule: Schedule) -> bool:
    """Is the number of keys open?"""
    second = products(schedule.func)[1]
    return as_int(find(schedule, second).axes[-1].extent) is None


def rows_apart(schedule: Schedule, *names: str) -> None:
    """Let rows of what blocks write begin at cache lines that a tile of them does not compete for:
    an odd number of lines is between any two."""
    for name in names:
        (buffer,) = written(find(schedule, name))
        line = LINE * 8 // buffer.dtype.bits
        schedule.storage_align(buffer.name, buffer.rank - 2, 2 * line, line)


def chunks(
    schedule: Schedule, batch: Sequence[str], query: str, rows: int, threads: int
) -> list[str]:
    """The loops around tiles of `rows` queries, of which the first is a known number of chunks to
    run in parallel, and those over tiles and rows: a chunk has the memory of one tile, whose size
    the run decides. It is a head, or some of many, or one of every so many tiles of a head."""
    known, most = [n for n in batch if extent(schedule, n, 0)], threads * ITERATIONS
    rest = [n for n in batch if n not in known]
    if prod(extent(schedule, n) for n in known) > most:
        longest = max(known, key=lambda n: extent(schedule, n))
        fit = [n for n in divisors(extent(schedule, longest)) if n <= most]
        rest += [n for n in known if n != longest]
        around, longest = split(schedule, longest, fit[-1])
        known, rest = [longest], [*rest, around]
    heads = prod(extent(schedule, n) for n in known)
    count = 1 if enough(schedule, ["", *known], query, threads) else -(-CHUNKS * threads // heads)
    tile, chunk, row = split(schedule, query, count, rows)
    reorder(schedule, *known, chunk, *rest, tile, row)
    return [fuse(schedule, [*known, chunk]), *rest, tile, row]


def stored(schedule: Schedule, product: str) -> str:
    """The block that stores what a product has summed up in registers: the one that reads it, or a
    copy."""
    block = find(schedule, product)
    (buffer,) = written(block)
    reading = list(readers(schedule.func, block))
    if len(reading) != 1 or is_reduction(reading[0]):
        return schedule.cache_write(product, buffer.name, "local")
    schedule.set_scope(buffer.name, "local")
    return reading[0].name


def in_registers(schedule: Schedule, product: str, result: str, tile: str, target: Target) -> None:
    """A product's part of a tile of queries, as tiles of its result in registers: all rows go by
    one panel of the second operand, then by the next."""
    loops, shape = schedule.loops(result), panels(find(schedule, product), target)
    *_, row, column = by_axis(schedule, result, loops[loops.index(tile) + 1 :])
    count, lanes = extent(schedule, row), shape.lanes
    groups, apart = shape.groups(count, target), extent(schedule, tile, SEQUENCE) > 1
    rows, vectors = decide_tile(
        schedule, product, count, shape.wide, lanes, target, groups, apart, among=shape.parts
    )
    packed = role(find(schedule, product)) == "dense_packed"
    panel, vector, lane = split(schedule, column, shape.wide if packed else vectors, lanes)
    v_outer = ""
    if packed and vectors < shape.wide:
        v_outer, vector = split(schedule, vector, vectors)
    r_outer, inner = split(schedule, row, rows)
    reorder(schedule, panel, v_outer, r_outer, inner, vector, lane)
    *own, k = compute_inside(schedule, product, innermost([tile, panel, v_outer, r_outer]))
    *_, height, width = own
    across = own[-3:-1] if packed else [height]
    fill_registers(schedule, product, across, width, (k,), lanes)
    unroll(schedule, inner, vector)
    vectorize(schedule, lane)


class Panels(NamedTuple):
    """The second operand of a product: `count` panels of `wide` vectors, `depth` numbers deep, of
    dtype `of`.
    even: register tiles leave no vectors over, of which rows of open number would ask one by one.
    """

    count: int
    wide: int
    lanes: int
    depth: int
    of: DType
    packed: bool
    even: bool = False

    @property
    def parts(self) -> tuple[int, ...]:
        """The vectors that a register tile may be wide."""
        if self.packed:
            return panel_parts(self.wide)
        return tuple(n for n in GROUPS if not self.even or self.wide % n == 0)

    def groups(self, rows: int, target: Target) -> tuple[int, ...]:
        """The vectors that a register tile is best wide."""
        if not self.packed:
            return self.parts
        return panel_groups(rows, self.wide, target.vector_registers, target.costs)

    def register_tile(self, rows: int, target: Target, exact: bool = False) -> tuple[int, int]:
        """The register tile for so many rows."""
        groups, registers = self.groups(rows, target), target.vector_registers
        return register_tile(rows, self.wide, registers, groups, exact, target.costs)

    def cycles(self, rows: int, tile: int, target: Target, exact: bool) -> float:
        """Modelled cycles of the product of `rows` rows of a tile of queries."""
        height, vectors = self.register_tile(tile, target, exact)
        each = tiled_cycles(rows, self.wide, height, vectors, target.costs)
        return self.depth * self.count * each

    @property
    def nbytes(self) -> int:
        """Bytes of all panels."""
        return self.of.nbytes(self.count * self.wide * self.lanes * self.depth)


def panels(product: Block, target: Target) -> Panels:
    """What a product multiplies its rows with."""
    *_, panel, column, step = product.axes
    of = operand_type(product)
    inner, depth = (estimate(a.extent) for a in (column, step))
    outer = as_int(panel.extent) or -(-SEQUENCE // inner)
    if role(product) == "dense_packed":
        lanes = min(target.lanes(stored_type(product).bits), inner)
        return Panels(outer, inner // lanes, lanes, depth, of, True)
    lanes = row_lanes(product, inner, target)
    return Panels(1, -(-inner // lanes), lanes, depth, of, False, as_int(step.extent) is None)


def queries(
    schedule: Schedule, result: str, loops: Sequence[str], target: Target, threads: int
) -> int:
    """How many queries a tile of block `result` takes: decision "tile_m", the number with the least
    modelled time.

    Register tiles leave no row over, or they would read what another tile of queries makes (but for
    a tile of all queries). The model counts their cycles, those in which keys and values come from
    their cache for every tile, and those that threads wait for the last tile. The scores and the
    weights of a tile take at most half of L2. Of queries and keys that are both open
    it knows the cycles of a whole tile alone; the highest of those about as good has fewest tails.
    """
    *batch, query = loops
    both = [panels(find(schedule, name), target) for name in products(schedule.func)]
    count, are_open = extent(schedule, query, SEQUENCE), open_keys(schedule)
    keys = KEYS if are_open else both[1].depth
    l2, costs = target.cache(1).size, target.costs
    transfer = sum(p.nbytes for p in both)
    transfer /= costs.l2 if transfer <= l2 // 2 else costs.l3
    heads = prod(extent(schedule, n, BATCH) for n in batch)

    def cycles(rows: int, tile: int) -> float:
        return sum(p.cycles(rows, tile, target, tile < count) for p in both)

    def time(tile: int) -> float:
        whole, left = divmod(count, tile)
        each = transfer + cycles(tile, tile)
        rest = RAGGED * (transfer + cycles(left, tile)) if left else 0
        total = heads * (whole * each + rest)
        return total / threads + (each / 2 if threads > 1 else 0)

    row = stored_type(find(schedule, products(schedule.func)[0])).nbytes(keys)  # of scores
    most = min(count, max(LEAST, l2 // 2 // (2 * row)))
    if are_open and not extent(schedule, query, 0):
        fit = list(range(4, most + 1, 4))
        each = {n: cycles(n, n) / n for n in fit}
        best = max(n for n in fit if each[n] <= ABOUT_BEST * min(each.values()))
        return schedule.decide(f"{result}.tile_m", best, fit)

    def sizes(heights: Iterable[int]) -> list[int]:
        """Tiles of a few register tiles of such heights, or with no query left over."""
        fit = {h * n for h in heights for n in HIGH} | {*divisors(count)}
        return sorted(n for n in fit if min(2, count) <= n <= most)

    pick = min(sizes({4, *(p.register_tile(count, target)[0] for p in both)}), key=time)
    any_height = range(1, max(4, tallest(1, target.vector_registers)) + 1)
    return schedule.decide(f"{result}.tile_m", pick, sizes(any_height))
