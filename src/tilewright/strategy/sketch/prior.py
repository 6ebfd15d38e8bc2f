"""Prior: the modelled time of many schedules of a nest at once.

In: a nest, a machine and a column of values for each decision of `tiles`, a row for each schedule.
Out: the cycles that each takes. The one idea: a schedule is a list of loops around a register
tile; every access has a footprint inside each of them, the outermost loop whose footprints fit a
cache tells how often what lies there comes anew, and all of that is arithmetic on columns.

The model is that of `strategy/cpu/tiles.py` (a step of a tile is bound by its operations, its loads
or its latency), with traffic between caches counted as Ansor's and MOpt's authors do, loop by loop.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from operator import mul
from typing import Any

import numpy as np

from tilewright.strategy.cpu.contiguous import STEP
from tilewright.strategy.sketch.nest import Access, Nest
from tilewright.support.record import record
from tilewright.target.target import Target

Column = np.ndarray[Any, np.dtype[np.float64]]
Columns = Mapping[str, np.ndarray[Any, Any]]  # by what is decided
GATHERED = 1.5  # loads that a lane takes which is fetched by itself
AROUND = 20.0  # vector operations' worth of code around a tile
STORED = 2.0  # cycles for each vector of a tile that is begun and stored
TILE = 24.0  # cycles around a tile: addresses, and a jump that is not foreseen
COMBINED = 8.0  # cycles for each sum whose partial sums are lanes of a vector
COPIED = 0.4  # cycles for each element that is copied into another order
DECODED = 72  # vector operations of a loop that stay decoded, with their loads
FETCHED = 1.1  # times as long a step takes whose code is fetched anew, at most
FULL = 5 / 8  # of the registers: with as many sums in them, little may go wrong
SPILLED = 1.2  # times as long steps take that LLVM may order so that more is needed at once; it
# does with 3 or 6 of them together, where it does not with 2, 4 or 8
SPILL = 3.0  # cycles for each vector that does not fit the registers while steps share it
PAGE = 4096  # bytes that a processor looks up together
UNFORESEEN = 2.0  # times as long memory takes that is walked page by page
LEVELS = ("l2", "l3", "memory")  # where data comes from
LINE = 64  # bytes: a vector that lies in two lines takes two loads
NEAR = 1 / 2  # of a cache, that the data of a tile has for itself


@record
class Loops:
    """The loops of each schedule, the outermost first: the axis that a loop walks, how often it
    runs; and the extents of the register tile by axis. All have a row for each schedule."""

    axes: list[np.ndarray[Any, Any]]
    trips: list[Column]
    tile: np.ndarray[Any, Any]
    reduced: int  # how many of the loops, the last ones, combine


def cycles(nest: Nest, machine: Target, threads: int, columns: Columns) -> Column:
    """Modelled cycles of each schedule: of its slowest thread, parallel region included."""
    loops = loops_of(nest, machine.lanes(max(32, nest.dtype.bits)), columns)
    total = together(terms(nest, machine, columns, loops), machine) * nest.rounds
    if threads == 1:
        return total
    if nest.rounds > 1:  # of which each thread takes its part
        return total * (-(-nest.rounds // threads) / nest.rounds) + machine.costs.fork_join / 4
    shares = shared(nest, loops, columns)
    each = np.ceil(shares / threads) / np.maximum(shares, 1)
    return np.where(columns["parallel"] > 0, total * each + machine.costs.fork_join / 4, total)


def together(terms: Mapping[str, Column], machine: Target) -> Column:
    """What the parts of a schedule take together: some of them at the same time."""
    both = machine.costs.overlap_penalty
    step = beside(terms["multiply"], terms["load"], both)
    step = (np.maximum(step, terms["latency"]) + terms["loop"]) * terms["slower"]
    step = step + terms["spills"]
    moved = np.sum([terms[level] for level in LEVELS], 0)
    return beside(step + terms["around"], moved, both) + terms["copies"]


def beside(a: Column, b: Column, penalty: float) -> Column:
    """What two things take that are done at the same time, but for a part of the shorter one."""
    return np.maximum(a, b) + penalty * np.minimum(a, b)


def terms(nest: Nest, machine: Target, columns: Columns, loops: Loops) -> dict[str, Column]:
    """What the model counts, in cycles of one thread, by names: "multiply", "load", "latency",
    "loop" and "spills" of all steps, "around" tiles, what comes from `LEVELS`, "copies"; and
    "slower", how many times as long a step takes whose values may leave registers, or whose code is
    long."""
    costs, lanes = machine.costs, machine.lanes(max(32, nest.dtype.bits))
    tiles = tiles_of(nest, loops, lanes, columns)
    steps, held = tiles * steps_of(nest, loops), accumulators(nest, loops, lanes)
    load = sum(loads_of(x, n, nest, loops, lanes, columns) for n, x in enumerate(nest.reads))
    body = held * nest.operations * columns["unroll"]
    is_uneven = columns["unroll"] & (columns["unroll"] - 1) > 0
    registers = machine.vector_registers
    is_full = held * len(nest.results) >= FULL * registers
    moved = traffic(nest, machine, loops, columns)
    needed = held * len(nest.results) + kept(nest, loops, lanes, columns) + 1
    return {
        "multiply": steps * held * nest.operations / costs.multiply_adds,
        "load": steps * load / costs.loads,
        "latency": steps * costs.latency,
        "loop": steps * costs.loop / columns["unroll"],
        "spills": steps / columns["unroll"] * SPILL * np.maximum(0, needed - registers),
        "slower": np.where(is_uneven & is_full, SPILLED, np.clip(body / DECODED, 1.0, FETCHED)),
        "around": tiles * _around(nest, columns, held, lanes),
        **dict(zip(LEVELS, moved, strict=True)),
        "copies": copies(nest, columns),
    }


def _around(nest: Nest, columns: Columns, held: Column, lanes: int) -> Column:
    """Cycles that a tile takes besides its steps."""
    in_lanes = np.asarray(nest.is_reduced)[columns["lane"]]
    apart = ~in_lanes & ~is_steady(nest)[columns["lane"]]  # each lane is stored by itself
    around = TILE + STORED * held * len(nest.results) * np.where(apart, lanes, 1)
    return around + in_lanes * COMBINED * held / columns["tile_n"]


def is_steady(nest: Nest) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Along which axes results lie one beside the other."""
    strides = [nest.results[0].stride(d) for d in range(len(nest.extents))]
    return np.asarray([abs(s or 0) == 1 for s in strides])


def loops_of(nest: Nest, lanes: int, columns: Columns) -> Loops:
    """The loops that the decisions make."""
    rows = len(columns["lane"])
    extents = np.asarray(nest.extents)
    tile = np.ones((rows, len(extents)), np.int64)
    for d in nest.spatial:
        tile[:, d] = columns[f"tile_{d}"]
    lane = columns["lane"]
    tile[np.arange(rows), lane] = columns["tile_n"] * lanes
    counts = -(-extents // tile)
    block = np.ones_like(tile)
    for d in nest.spatial:
        block[:, d] = np.minimum(columns[f"block_{d}"], counts[:, d])
    axes: list[np.ndarray[Any, Any]] = []
    trips: list[Column] = []
    levels = (nest.spatial, "inner", -(-counts // block)), (nest.spatial, "block_inner", block)
    for walked, last, times in (*levels, (nest.reduced, "reduce_inner", counts)):
        for axis in in_order(walked, columns[last]):
            axes.append(axis)
            trips.append(times[np.arange(rows), axis].astype(np.float64))
    return Loops(axes, trips, tile, len(nest.reduced))


def in_order(walked: tuple[int, ...], last: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
    """The axes in their order, but for one that is the last, row by row."""
    found: list[np.ndarray[Any, Any]] = []
    for at, axis in enumerate(walked):
        following = walked[at + 1] if at + 1 < len(walked) else axis
        moved = np.isin(last, walked[: at + 1])  # the last one stood before: all move up
        found.append(np.where(moved, following, axis))
    if found:
        found[-1] = np.asarray(last)
    return found


def accumulators(nest: Nest, loops: Loops, lanes: int) -> Column:
    """Vectors of results that a tile holds."""
    return loops.tile.prod(1) / lanes


def tiles_of(nest: Nest, loops: Loops, lanes: int, columns: Columns) -> Column:
    """How many register tiles there are; a tail counts for its part of one."""
    total = np.ones(len(loops.tile))
    for d in nest.spatial:
        size, tile = nest.extents[d], loops.tile[:, d]
        rest = size % tile
        rest = np.where(columns["lane"] == d, -(-rest // lanes) * lanes, rest)
        total *= size // tile + rest / tile
    return total


def code(nest: Nest, loops: Loops, lanes: int, columns: Columns) -> Column:
    """About how many vector operations the code holds: those of a tile, as often as there are
    versions of it for the ends of axes. What LLVM takes for it is in proportion."""
    held = accumulators(nest, loops, lanes)
    own = held * nest.operations * columns["unroll"] + 2 * held + AROUND
    tails, cuts = np.ones(len(held)), np.ones(len(held))
    for d in nest.spatial:
        tile, counts = loops.tile[:, d], -(-nest.extents[d] // loops.tile[:, d])
        tails += nest.extents[d] % tile != 0
        cuts += 0.5 * (counts % np.minimum(columns[f"block_{d}"], counts) != 0)
    return own * tails * cuts


def steps_of(nest: Nest, loops: Loops) -> Column:
    """How many steps the reduction of a tile takes."""
    last = loops.trips[len(loops.trips) - loops.reduced :]
    return reduce(mul, last, np.ones(len(loops.tile)))


def loads_of(
    access: Access, number: int, nest: Nest, loops: Loops, lanes: int, columns: Columns
) -> Column:
    """Loads that a step of a tile makes of one operand: of the steps that are unrolled together
    those of different addresses, for windows that overlap share what they read."""
    lane, is_packed = columns["lane"], packed(nest, number, columns)
    uses, unroll = np.asarray(access.uses), columns["unroll"]
    if access.is_window:
        beside = _beside(nest, loops, columns)[0]
        is_by_axes = is_packed & nest.is_by_axes(number)
        vectors, is_split = _addresses(access, beside, lanes, lane, is_by_axes)
        vectors = vectors / unroll
    else:
        vectors, is_split = np.where(uses, loops.tile, 1).prod(1).astype(np.float64), False
        vectors = np.where(uses[lane], vectors / lanes, vectors)
    strides = [access.stride(d) for d in range(len(access.uses))]
    each = [GATHERED * lanes if s is None or abs(s) > STEP else max(1, abs(s)) for s in strides]
    cost = np.where(is_packed, 1.0, np.asarray(each)[lane])
    in_two_lines = 1 + (lanes - 1) * nest.dtype.bits / 8 / LINE
    cost = np.where(is_split & (cost == 1), in_two_lines, cost)
    return vectors * np.where(uses[lane], cost, 1.0)


def kept(nest: Nest, loops: Loops, lanes: int, columns: Columns) -> Column:
    """Vectors that unrolled steps read and later ones of them read again: LLVM keeps all of them,
    on the stack if there are too few registers."""
    most, windows = np.zeros(len(loops.tile)), [n for n, x in enumerate(nest.reads) if x.is_window]
    # the tile alone, with the innermost steps, …
    stages = _beside(nest, loops, columns)[::-1] if windows else []
    for number in windows:
        access = nest.reads[number]
        told = columns["lane"], packed(nest, number, columns) & nest.is_by_axes(number)
        found = [_addresses(access, beside, lanes, *told)[0] for beside in stages]
        for n in range(1, len(stages)):
            used = np.where(np.asarray(access.uses), stages[n] // stages[n - 1], 1).prod(1)
            shares = (found[n] < found[n - 1] * used) & (found[n - 1] > 1)
            most = np.where(shares, np.maximum(most, found[n]), most)
    return most


def _beside(nest: Nest, loops: Loops, columns: Columns) -> list[np.ndarray[Any, Any]]:
    """How many iterations of each axis (vectors, of that of the lanes) stand side by side in the
    code: with all steps that are unrolled, with those of the inner loops, …, in the tile alone."""
    rows, factor = np.arange(len(loops.tile)), columns["unroll"].copy()
    beside = loops.tile.copy()
    beside[rows, columns["lane"]] = columns["tile_n"]
    found = [beside]
    steps = [*zip(loops.axes, loops.trips, strict=True)][len(nest.spatial) * 2 :]
    for axis, trips in reversed(steps):
        part = np.minimum(factor, trips.astype(np.int64))
        beside = beside.copy()
        beside[rows, axis] *= part
        found.insert(0, beside)
        factor = factor // part
    return found


def _addresses(
    access: Access, beside: np.ndarray[Any, Any], lanes: int, lane: Any, is_packed: Any
) -> tuple[Column, np.ndarray[Any, np.dtype[np.bool_]]]:
    """How many different vectors or numbers an operand's reads are, and whether vectors may begin
    anywhere in a line."""
    rows, own = np.arange(len(lane)), np.where(np.asarray(access.uses), beside, 1).prod(1)
    found, is_split = np.ones(len(rows)), np.zeros(len(rows), bool)
    for moves in access.moves:
        if moves is None:
            found = found * np.where(np.asarray(access.gathers), beside, 1).prod(1)
            continue
        far = np.abs(np.asarray(moves))
        steps = far * (beside - 1)
        steps[rows, lane] *= lanes
        walked = np.where(beside > 1, far, 0)
        walked[rows, lane] *= lanes
        step = np.maximum(np.gcd.reduce(walked, 1), 1)
        alone = np.where(far > 0, beside, 1).prod(1)
        found = found * np.minimum(alone, 1 + steps.sum(1) // step)
        others = far * np.ones_like(beside)
        others[rows, lane] = 0
        is_split |= (far[lane] > 0) & (others % lanes != 0).any(1)
    return np.where(is_packed, own, np.minimum(found, own)), is_split & ~is_packed


def packed(nest: Nest, number: int, columns: Columns) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Where an operand is read in a copy."""
    return columns[f"pack_{nest.first_read(number)}"] > 0


def copies(nest: Nest, columns: Columns) -> Column:
    """Cycles that making operands anew in another order takes."""
    total = np.zeros(len(columns["lane"]))
    for number, access in enumerate(nest.reads):
        if nest.is_by_axes(number):
            pairs = zip(nest.extents, access.uses, strict=True)
            elements = float(np.prod([e for e, u in pairs if u]))
        else:
            elements = float(np.prod(access.sizes))
        total += columns[f"pack_{number}"] * elements * COPIED
    return total


def traffic(nest: Nest, machine: Target, loops: Loops, columns: Columns) -> list[Column]:
    """Cycles that what does not stay near takes to come: from each of `LEVELS` to the next one."""
    costs, bytes_of = machine.costs, nest.dtype.bits / 8
    touched = _touched_inside(nest, loops, columns)
    held = [sum(t.elements * t.lines for t in inside) * bytes_of for inside in touched]
    found = [np.zeros(len(loops.tile)) for _ in LEVELS]
    slower = [_unforeseen(x, nest, loops) for x in (*nest.reads, *nest.results)]
    for number in range(len(nest.reads)):
        used = [d for d in nest.reduced if nest.reads[number].uses[d] and nest.extents[d] > 1]
        in_order_of_copy = np.isin(loops.axes[-1], used[-1:]) if used else True
        along = np.where(in_order_of_copy, 1.0, UNFORESEEN)
        slower[number] = np.where(packed(nest, number, columns), along, slower[number])
    rates = [costs.l2, costs.l3, costs.memory]
    for level, (cache, rate) in enumerate(zip(machine.caches, rates, strict=False)):
        fits = [size <= NEAR * cache.size for size in held]
        # of what is all there from one call to the next, or made a moment before, nothing comes
        is_near = held[0] <= cache.size if nest.rounds == 1 else nest.bytes <= cache.size
        for number, access in enumerate((*nest.reads, *nest.results)):
            is_warm = is_near | (access.is_own & fits[0])
            own = [inside[number] for inside in touched]
            moved = _moved(access, loops, own, fits) * bytes_of / rate
            found[level] += np.where(is_warm, 0.0, moved * slower[number])
    return found


def _unforeseen(access: Access, nest: Nest, loops: Loops) -> Column:
    """How many times as long what an access brings takes to come, where the innermost loop that
    walks it goes on in another page: no prefetcher of the machine follows."""
    strides = [access.stride(d) for d in range(len(access.uses))]
    far = np.asarray([LINE if s is None else abs(s) * nest.dtype.bits // 8 for s in strides])
    found, is_known = np.ones(len(loops.tile)), np.zeros(len(loops.tile), bool)
    rows = np.arange(len(loops.tile))
    for axis, trips in zip(reversed(loops.axes), reversed(loops.trips), strict=True):
        walks = ~is_known & (trips > 1) & np.asarray(access.uses)[axis]
        found[walks & (far[axis] * loops.tile[rows, axis] >= PAGE)] = UNFORESEEN
        is_known |= walks
    return found


@record
class Touched:
    """What an access touches inside a loop: elements, and how many times as many its lines hold."""

    elements: Column
    lines: Column


def _touched_inside(nest: Nest, loops: Loops, columns: Columns) -> list[list[Touched]]:
    """What each access touches inside no loop, inside the outermost one, …"""
    rows, found = np.arange(len(loops.tile)), list[list[Touched]]()
    spans, line = loops.tile.astype(np.float64), max(1, 64 * 8 // nest.dtype.bits)
    limits = np.asarray(nest.extents, np.float64)
    for axis, trips in zip(reversed(loops.axes), reversed(loops.trips), strict=True):
        found.append(_touched(nest, spans, line, columns))
        spans = spans.copy()
        spans[rows, axis] = np.minimum(spans[rows, axis] * trips, limits[axis])
    found.append(_touched(nest, spans, line, columns))
    return found[::-1]


def _touched(nest: Nest, spans: Any, line: int, columns: Columns) -> list[Touched]:
    touched: list[Touched] = []
    for number, access in enumerate((*nest.reads, *nest.results)):
        elements, run = np.ones(len(spans)), np.ones(len(spans))
        for size, moves in zip(access.sizes, access.moves, strict=True):
            if moves is None:
                run = np.minimum(spans[:, np.asarray(access.gathers)].prod(1), size)
            else:
                run = np.minimum(1 + (spans - 1) @ np.abs(np.asarray(moves, np.float64)), size)
            elements = elements * run
        whole = np.full(len(spans), access.sizes[-1] if access.sizes else 1)
        if number < len(nest.reads):
            lane, is_packed = columns["lane"], packed(nest, number, columns)
            run = np.where(is_packed, spans[np.arange(len(spans)), lane], run)
            whole = np.where(is_packed, np.asarray(nest.extents)[lane], whole)
        touched.append(Touched(elements, _lines(run, whole, line)))
    return touched


def _lines(run: Column, whole: Any, line: int) -> Column:
    """How many times as many elements the lines hold that runs of so many lie in. Runs begin where
    multiples of their length do, and the rows that they lie in."""
    begin = np.gcd(np.gcd(run.astype(np.int64), whole), line)
    held = np.minimum(line * (1 + (run - begin) / line), np.maximum(whole, run))
    return np.where(run >= whole, 1.0, np.maximum(held / run, 1.0))


def _moved(access: Access, loops: Loops, touched: list[Touched], fits: list[Any]) -> Column:
    """Elements that one access brings into a cache: those inside the outermost loop whose inside
    fits, once for each iteration around it, but for the loop next to it if that walks nothing of
    the access. Whatever that loop goes on with in a line is still there."""
    uses = np.asarray(access.uses)
    found = touched[0].elements * touched[0].lines  # where all fits: once
    is_known = np.asarray(fits[0]).copy()
    around = np.ones(len(found))
    for depth, (axis, trips) in enumerate(zip(loops.axes, loops.trips, strict=True)):
        again = np.where(uses[axis], trips, 1.0)
        innermost = depth + 1 == len(loops.axes)
        here = ~is_known & (np.asarray(fits[depth + 1]) | innermost)
        inside = touched[depth + 1].elements * touched[depth].lines
        found = np.where(here, inside * around * again, found)
        is_known |= here
        around = around * trips
    return found


def shared(nest: Nest, loops: Loops, columns: Columns) -> Column:
    """Iterations of the loops that threads share out."""
    total = np.ones(len(loops.tile))
    for depth in range(len(nest.spatial)):
        total *= np.where(columns["parallel"] > depth, loops.trips[depth], 1.0)
    return total
