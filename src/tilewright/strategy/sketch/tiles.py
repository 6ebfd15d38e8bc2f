"""Tiles: the sketch of any reduction, in tiles for registers and caches.

In: a function with reductions, perhaps elementwise blocks around them, and a machine. Out: its
plan, a space of schedules whose decisions are plain numbers, and the schedule of a point of it. The
one idea: vectors run along some axis, of the result or of the reduction; tiles of the result along
all its axes are held in registers, blocks of tiles keep to a cache, and an operand that lies in
another order is copied first. Which axes, how large, in which order: all of that is decided, and
nothing follows from what the function computes.

    copy what is packed
    parallel outer loops, one of them innermost
        blocks, one of their loops innermost
            init the tile; for every step: tile += …
            what reads the result → memory
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import prod

import numpy as np

from tilewright.ir.expr import Const, Load, Select, Var
from tilewright.ir.stmt import Block, Func
from tilewright.ir.walk import blocks, free_vars, loads, stores
from tilewright.schedule.locate import find_loop
from tilewright.schedule.schedule import Schedule
from tilewright.strategy.absorb import absorb, is_reduction, readers, role, written
from tilewright.strategy.cpu.contraction import result_of
from tilewright.strategy.cpu.pointwise import stream, vector_lanes, vectorize_inner
from tilewright.strategy.cpu.registers import fill_registers
from tilewright.strategy.loops import (
    by_axis,
    compute_inside,
    extent,
    find,
    innermost,
    present,
    reorder,
    split,
    unroll,
    vectorize,
)
from tilewright.strategy.roles import scores
from tilewright.strategy.sketch import prior
from tilewright.strategy.sketch.nest import Nest, bytes_of, nest
from tilewright.strategy.sketch.plan import Decision, Plan
from tilewright.strategy.sketch.together import (
    APART,
    Chunk,
    chunks,
    extents_inside,
    is_inside,
    together,
    worth_a_look,
)
from tilewright.strategy.sketch.traits import traits
from tilewright.support.errors import ScheduleError
from tilewright.target.target import Target

TILES = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16)  # results of a register tile along one axis
VECTORS = (1, 2, 3, 4, 5, 6)  # and along the axis of its vectors
BLOCKS = (1, 2, 4, 8, 16, 32, 64, 256)  # tiles of a block
UNROLLED = (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 25, 27, 32)  # steps
BODY = 160  # vector operations between two jumps: more is long to compile and to fetch
CODE = 450  # vector operations in all: LLVM takes about 0.3 ms for each
PADS, READ, STORED = "pads", 0, 1  # a decision, and what it may be
DEPTH, CHUNK = "depth", "chunk"  # decisions: see `together.Chunk`
SHORT = 4  # iterations of an axis that is worth vectors


def tiles(schedule: Schedule, target: Target, threads: int) -> None:
    """Schedule a function by a point of a plan; its own pick is the one of least modelled time.
    Raises ScheduleError where the function has no such plan."""
    given: dict[str, int] = {}
    pads = padded(schedule.func)
    if pads:
        given[PADS] = schedule.decide(PADS, STORED, (READ, STORED))
    absorb(schedule, keep={*scores(schedule.func), *(pads if given.get(PADS) else ())})
    chunk = decide_chunk(schedule, given)
    own = sketch_of(schedule, chunk, target, threads, given)
    if own is None:
        raise ScheduleError(
            f"cannot sketch '{schedule.func.name}' in tiles",
            "it has no reduction, or one with a single result, or that stores several elements",
        )
    decided = [*zip(own.parts, own.decide(schedule), strict=True)]
    around = list[str]()
    if chunk is not None:
        for part, at in decided:
            part.prepare(schedule, at)
        around = together(schedule, chunk)
    for part, at in decided:
        if chunk is None:
            part.prepare(schedule, at)
        part.apply(schedule, at, around if is_inside(schedule, part.name, around) else ())
    _rest(schedule, target, threads, around)


def _rest(schedule: Schedule, target: Target, threads: int, around: Sequence[str]) -> None:
    """The elementwise blocks that are no part of a reduction's tiles; threads share rounds."""
    for name in schedule.blocks():
        if is_reduction(find(schedule, name)):
            continue
        if is_inside(schedule, name, around):
            own = [n for n in schedule.loops(name) if n not in around]
            if own and all(find_loop(schedule.func, n).kind == "serial" for n in own):
                lanes = vector_lanes(find(schedule, name), target)
                vectorize_inner(schedule, own[-1], extent(schedule, own[-1]), lanes)
        elif is_untouched(schedule, name):
            stream(schedule, name, target, threads)
    if threads > 1 and around:
        parallel_loops(schedule, around)


def decide_chunk(schedule: Schedule, given: dict[str, int]) -> Chunk | None:
    """Whether blocks are done together, and by which parts; notes what was decided."""
    known = chunks(schedule.func)
    if not known:
        return None
    depths = sorted({depth for depth, _ in known})
    depth = given[DEPTH] = schedule.decide(DEPTH, APART, (APART, *depths))
    if depth == APART:
        return None
    sizes = [size for d, size in known if d == depth]
    given[CHUNK] = schedule.decide(CHUNK, sizes[0], sizes)
    return depth, given[CHUNK]


def plans(func: Func, target: Target, threads: int) -> list[Plan]:
    """The plans by which `tiles` schedules a function, that of the best pick first, as far as the
    model knows; none if it has none. Several where something is padded, which is stored or made
    where it is read; and where several blocks may be done together, part by part."""
    pads, found = padded(func), list[Plan]()
    for how in (STORED, READ)[: 1 + bool(pads)]:
        schedule = Schedule(func)
        absorb(schedule, keep={*scores(func), *(pads if how == STORED else ())})
        given = {PADS: how} if pads else {}
        ways: list[Chunk | None] = [None, *_worth(schedule.func, target)]
        several = bool(chunks(schedule.func))
        for way in ways:
            told = {DEPTH: APART} if way is None else {DEPTH: way[0], CHUNK: way[1]}
            own = sketch_of(schedule, way, target, threads, given | told if several else given)
            if own is not None and (way is None or own.has_points):
                found.append(own)
    if len(found) > 1:
        found.sort(key=lambda own: float(own.cycles(own.pick[None])[0]))
    return found


def _worth(func: Func, target: Target) -> list[Chunk]:
    """The parts of a function whose data fits a cache."""
    found: list[tuple[Chunk, int]] = []
    for chunk in chunks(func):
        own = _nests_of(Schedule(func), chunk)
        if any(n.rounds > 1 for n in own):
            found.append((chunk, bytes_of(own)))
    return worth_a_look(found, target)


def _nests_of(schedule: Schedule, chunk: Chunk | None) -> tuple[Nest, ...]:
    """The reductions of a function that is done by parts; none if it cannot be."""
    if chunk is None:
        return nests(schedule, ())
    try:
        around = together(schedule, chunk)
    except ScheduleError:
        return ()
    inside = [n for n in schedule.blocks() if is_inside(schedule, n, around)]
    return nests(schedule, around) if len(inside) > 1 else ()


def sketch_of(
    schedule: Schedule, chunk: Chunk | None, target: Target, threads: int, given: Mapping[str, int]
) -> Plan | None:
    """The plan of a function whose blocks are done by parts, or each as a whole."""
    own = _nests_of(Schedule(schedule.func), chunk)
    return sketch(own, target, threads, tuple(given.items()))


def plan(func: Func, target: Target, threads: int) -> Plan | None:
    """The first of the plans."""
    return next(iter(plans(func, target, threads)), None)


def padded(func: Func) -> set[str]:
    """The blocks that read under a condition what a reduction reads of them."""
    found = blocks(func.body)
    reduced = {n.buffer for b in found if is_reduction(b) for n in loads(b.body)}
    return {
        b.name
        for b in found
        if not is_reduction(b)
        and role(b) != "pad"  # which is stored in any case
        and written(b) & (reduced - {*func.buffers})
        and is_copy_under_conditions(b)
    }


def is_copy_under_conditions(block: Block) -> bool:
    """Does a block move what it reads, and store constants where a condition forbids it?"""
    values = [s.value for s in stores(block.body)]
    return all(
        isinstance(v, Select) and {Load, Const} >= {v.then.__class__, v.other.__class__}
        for v in values
    )


def nests(schedule: Schedule, around: Sequence[str]) -> tuple[Nest, ...]:
    """The reductions of a function in their order, those inside of loops as each round of them does
    them; none if one of them is none for a sketch."""
    names = [n for n in schedule.blocks() if is_reduction(find(schedule, n))]
    rounds = prod(extent(schedule, n) for n in around)
    shared = frozenset(b for b in schedule.func.buffers)
    found: list[Nest | None] = []
    for name in names:
        block = find(schedule, name)
        if is_inside(schedule, name, around):
            inside = extents_inside(schedule, name, around)
            found.append(nest(block, inside, rounds, shared))
        else:
            found.append(nest(block))
    known = tuple(n for n in found if n is not None)
    return known if len(known) == len(names) else ()


@lru_cache(maxsize=256)
def sketch(
    own: tuple[Nest, ...], target: Target, threads: int, given: tuple[tuple[str, int], ...] = ()
) -> Plan | None:
    """The plan of nests, whose pick is found once; None for none. For several threads it picks what
    it does for one, shared out: sums are added in one order for any number of them."""
    if not own:
        return None
    of_one = sketch(own, target, 1, given) if threads > 1 else None
    return Plan([Tiles(one, target, threads) for one in own], dict(given), of_one)


class Tiles:
    """The sketch of one nest: a part of a plan."""

    def __init__(self, own: Nest, target: Target, threads: int) -> None:
        self.nest, self.target, self.threads = own, target, threads
        self.around: Sequence[str] = ()  # loops that are not this part's, once they are there
        self.lanes = target.lanes(max(32, own.dtype.bits))
        self.name, self.decisions = own.name, self._decisions()

    def _decisions(self) -> tuple[Decision, ...]:
        own = self.nest
        several = [d for d, n in enumerate(own.extents) if n >= SHORT and self._may_be_lanes(d)]
        found = [("lane", tuple(several or own.spatial[-1:])), ("tile_n", VECTORS)]
        for d in own.spatial:
            found.append((f"tile_{d}", tuple(n for n in TILES if n <= own.extents[d])))
        for d in own.spatial:
            most = own.extents[d]
            found.append((f"block_{d}", tuple(n for n in BLOCKS if n == 1 or n < most)))
        long = tuple(d for d in own.spatial if own.extents[d] > 1) or own.spatial[-1:]
        steps = tuple(d for d in own.reduced if own.extents[d] > 1) or own.reduced[-1:]
        found += [("inner", long), ("block_inner", long)]
        found += [("reduce_inner", steps), ("unroll", UNROLLED)]
        for number in range(len(own.reads)):
            found.append((f"pack_{number}", (0, 1) if self._may_be_packed(number) else (0,)))
        if self._is_shared():
            found.append(("parallel", tuple(range(len(own.spatial) + 1))))
        return tuple(Decision(own.name, what, values) for what, values in found)

    def _may_be_lanes(self, axis: int) -> bool:
        """Parts of pairs are not combined lane by lane."""
        return not self.nest.is_reduced[axis] or len(self.nest.results) == 1

    def _is_shared(self) -> bool:
        """Do threads share this part, and not rounds of which it is one?"""
        return self.threads > 1 and self.nest.rounds == 1

    def _may_be_packed(self, number: int) -> bool:
        """Is there a copy of an operand in another order that is no larger?"""
        own = self.nest
        if own.reads[number].is_own:
            return False
        if own.is_by_axes(number):
            return True
        several = (own.transposed(number, d) for d in range(len(own.extents)))
        return own.first_read(number) == number and any(several)

    def is_legal(self, columns: prior.Columns) -> np.ndarray:
        """Which rows are schedules that LLVM makes good code of, and that no other row says as
        well."""
        own, lane = self.nest, columns["lane"]
        loops = prior.loops_of(own, self.lanes, columns)
        held = prior.accumulators(own, loops, self.lanes)
        size = np.asarray(own.extents)
        legal = (columns["tile_n"] - 1) * self.lanes < size[lane]
        for d in own.spatial:
            along = lane == d
            legal &= ~along | (columns[f"tile_{d}"] == 1)
            block, tile = columns[f"block_{d}"], loops.tile[:, d]
            legal &= (block == 1) | (block * tile < own.extents[d])
            if own.is_cut(d):  # no tails inside of parts: where they end would not be plain
                legal &= own.extents[d] % (tile * block) == 0
        read = np.full(len(lane), np.inf)  # vectors that are in registers besides, at least
        for access in own.reads:
            here = np.where(np.asarray(access.uses), loops.tile, 1).prod(1) / self.lanes
            read = np.where(np.asarray(access.uses)[lane], np.minimum(read, here), read)
        read = np.where(np.isinf(read), 1, np.minimum(read, columns["tile_n"]))
        legal &= held * len(own.results) + read + 1 < self.target.vector_registers
        legal &= columns["unroll"] * held * own.operations <= BODY
        legal &= prior.code(own, loops, self.lanes, columns) <= CODE
        for number in range(len(own.reads)):
            if self._may_be_packed(number) and not own.is_by_axes(number):
                known = [own.transposed(number, d) is not None for d in range(len(own.extents))]
                legal &= (columns[f"pack_{number}"] == 0) | np.asarray(known)[lane]
        return legal & self._unrolls(columns)

    def mended(self, columns: prior.Columns, random: np.random.Generator) -> prior.Columns:
        """Columns whose tiles fit the registers, whose blocks fit their axes, and that unroll what
        divides: each the largest value that does, up to the one drawn."""
        own, made = self.nest, dict(columns)
        several = -(-np.asarray(own.extents)[made["lane"]] // self.lanes)
        made["tile_n"] = np.minimum(made["tile_n"], np.minimum(several, max(VECTORS)))
        registers = (self.target.vector_registers - 3) // len(own.results)
        made["tile_n"] = np.minimum(made["tile_n"], max(1, registers))
        room = registers // made["tile_n"]
        for d in random.permutation(own.spatial):
            values = np.asarray(TILES)
            most = np.where(made["lane"] == d, 1, np.minimum(made[f"tile_{d}"], room))
            made[f"tile_{d}"] = values[np.searchsorted(values, np.maximum(most, 1), "right") - 1]
            room = np.maximum(room // made[f"tile_{d}"], 1)
        tile = prior.loops_of(own, self.lanes, made).tile
        for d in own.spatial:
            block, values = made[f"block_{d}"], np.asarray(BLOCKS)
            most = np.minimum(block, -(-own.extents[d] // tile[:, d]) - 1)
            made[f"block_{d}"] = values[np.searchsorted(values, np.maximum(most, 1), "right") - 1]
        held = tile.prod(1) / self.lanes * own.operations
        wanted, unroll = made["unroll"], np.ones_like(made["unroll"])
        for factor in UNROLLED:
            tried = np.full_like(unroll, factor)
            fits = self._unrolls({**made, "unroll": tried}) & (factor * held <= BODY)
            unroll = np.where(fits & (factor <= wanted), tried, unroll)
        return {**made, "unroll": unroll}

    def _unrolls(self, columns: prior.Columns) -> np.ndarray:
        """Where whole inner loops and a divisor of the next one make up what is unrolled."""
        own, factor = self.nest, columns["unroll"].copy()
        legal = np.ones(len(factor), bool)
        order = prior.in_order(own.reduced, columns["reduce_inner"])
        for axis in reversed(order):
            count = np.asarray(own.extents)[axis]
            width = np.where(columns["lane"] == axis, columns["tile_n"] * self.lanes, 1)
            count = -(-count // width)
            part = np.minimum(factor, count)
            legal &= (count % part == 0) & (factor % part == 0)
            factor = factor // part
        return legal & (factor == 1)

    def cycles(self, columns: prior.Columns) -> prior.Column:
        """Modelled cycles of each row."""
        return prior.cycles(self.nest, self.target, self.threads, columns)

    def traits(self, columns: prior.Columns) -> dict[str, prior.Column]:
        """What of each row means the same for all functions."""
        return traits(self.nest, self.target, columns)

    def prepare(self, schedule: Schedule, at: dict[str, int]) -> None:
        """Copy what is decided to be copied."""
        own, lane = self.nest, at["lane"]
        for number, access in enumerate(own.reads):
            told = schedule, own.name, access.buffer.name
            order = own.transposed(number, lane)
            if not at[f"pack_{number}"]:
                continue
            if own.is_by_axes(number):
                copy_in_order(*told, lane, self.target, self.threads)
            elif order is not None:
                copy_permuted(*told, order, self.target, self.threads)

    def apply(self, schedule: Schedule, at: dict[str, int], around: Sequence[str]) -> None:
        """Do what was decided, inside the loops `around`."""
        self.around = around
        outer = self._several(schedule, at) if self._has_several() else self._one(schedule, at)
        if self._is_shared() and at["parallel"]:
            parallel_loops(schedule, outer[: at["parallel"]])

    def _has_several(self) -> bool:
        return len(self.nest.results) > 1

    def _loops(self, schedule: Schedule, name: str) -> list[str]:
        """For each axis of a block its loop that is this part's, or ""."""
        own = [n for n in schedule.loops(name) if n not in self.around]
        return by_axis(schedule, name, own)

    def _one(self, schedule: Schedule, at: dict[str, int]) -> list[str]:
        """Tiles of one result, from the block that stores it; gives the loops around blocks."""
        own, lane, part = self.nest, at["lane"], ""
        if own.is_reduced[lane]:
            along = self._loops(schedule, own.name)[lane]
            part = schedule.rfactor(own.name, split(schedule, along, at["tile_n"] * self.lanes)[1])
        result = result_of(schedule, own.name)
        if not part:
            self._lanes_last(schedule, lane)
        outer, block, tile, vector = self._cut(schedule, result, at)
        reorder(schedule, *outer, *block, *tile, vector)
        around = innermost([*outer, *block])
        if part:
            self._in_lanes(schedule, part, around, result, at)
        else:
            inside = compute_inside(schedule, own.name, around)
            self._in_registers(schedule, inside or self._loops(schedule, own.name), at)
        unroll(schedule, *tile)
        vectorize(schedule, vector)
        return outer

    def _several(self, schedule: Schedule, at: dict[str, int]) -> list[str]:
        """Tiles of several results, from the reduction; each is stored when a tile is done."""
        own, name = self.nest, self.nest.name
        stored = self._stored(schedule)
        self._lanes_last(schedule, at["lane"])
        loops = self._loops(schedule, name)
        outer, block, tile, vector = self._cut(schedule, name, at)
        reorder(schedule, *outer, *block, *present([loops[d] for d in own.reduced]), *tile, vector)
        for other in stored:
            self._store(schedule, other, innermost([*outer, *block]), at["lane"])
        inside = self._loops(schedule, name)
        for n, d in enumerate(own.spatial):
            inside[d] = tile[n]
        self._in_registers(schedule, inside, at)
        return outer

    def _stored(self, schedule: Schedule) -> list[str]:
        """The blocks that store what is held in registers; nothing does what nobody reads."""
        block, found = find(schedule, self.name), list[str]()
        read = {r.buffer for other in readers(schedule.func, block) for r in other.reads}
        for buffer in [access.buffer for access in self.nest.results]:
            if buffer in read or buffer in schedule.func.buffers:
                found.append(schedule.cache_write(self.name, buffer.name, "local"))
            else:
                schedule.set_scope(buffer.name, "local")
        return found

    def _lanes_last(self, schedule: Schedule, lane: int) -> None:
        """What is held in registers lies there along its vectors."""
        own = self.nest
        letters = [f"a{d}" for d in range(len(own.spatial))]
        order = [*letters]
        order.append(order.pop(own.spatial.index(lane)))
        for held in written(find(schedule, own.name)):
            if order != letters and len(held.shape) == len(letters):
                mapping = f"lambda {', '.join(letters)}: ({', '.join(order)},)"
                schedule.transform_layout(held.name, mapping)

    def _store(self, schedule: Schedule, name: str, around: str, lane: int) -> None:
        """Store one of the results of a tile."""
        loops = by_axis(schedule, name, schedule.reverse_compute_at(name, around))
        along = loops.pop(self.nest.spatial.index(lane))
        several, vector = split(schedule, along, self.lanes)
        reorder(schedule, *loops, several, vector)
        unroll(schedule, *loops, several)
        vectorize(schedule, vector)

    def _cut(
        self, schedule: Schedule, result: str, at: dict[str, int]
    ) -> tuple[list[str], list[str], list[str], str]:
        """The loops of the result: around blocks, in a block, in a tile, and its lanes."""
        own, loops = self.nest, self._loops(schedule, result)
        loops = [loops[n] for n in (own.spatial if result == own.name else range(len(loops)))]
        outer, block, tile, vector = dict[int, str](), dict[int, str](), list[str](), ""
        for loop, d in zip(loops, own.spatial, strict=True):
            count = at[f"block_{d}"]
            inner = [at["tile_n"] * self.lanes if d == at["lane"] else at[f"tile_{d}"]]
            if d == at["lane"] and result != own.name:
                inner = [at["tile_n"], self.lanes]
            outer[d], block[d], *own_tile = split(schedule, loop, count, *inner)
            tile.append(own_tile[0])
            vector = own_tile[1] if len(own_tile) > 1 else vector
        walked = _last(own.spatial, at["inner"]), _last(own.spatial, at["block_inner"])
        return [outer[d] for d in walked[0]], [block[d] for d in walked[1]], tile, vector

    def _steps(self, own: list[str], at: dict[str, int]) -> list[str]:
        """The loops of the reduction in their order."""
        return [own[d] for d in _last(self.nest.reduced, at["reduce_inner"])]

    def _in_registers(self, schedule: Schedule, own: list[str], at: dict[str, int]) -> None:
        """The reduction in a tile; `own` are its loops there by axis."""
        rows = [own[d] for d in self.nest.spatial if d != at["lane"]]
        steps, vectors = self._steps(own, at), own[at["lane"]]
        fill_registers(schedule, self.name, rows, vectors, steps, self.lanes, steps=at["unroll"])

    def _in_lanes(
        self, schedule: Schedule, part: str, around: str, result: str, at: dict[str, int]
    ) -> None:
        """Partial sums in the lanes of vectors, which the result combines."""
        name = self.nest.name
        combined = compute_inside(schedule, name, around) if around else self._loops(schedule, name)
        if name == result:
            combined = self._loops(schedule, name)
        own = compute_inside(schedule, part, around) if around else self._loops(schedule, part)
        for buffer in written(find(schedule, part)):
            schedule.set_scope(buffer.name, "local")
        kinds = [a.kind for a in find(schedule, part).axes]
        rows = [n for n, kind in zip(own, kinds, strict=True) if kind == "spatial"]
        steps = [n for n, kind in zip(own, kinds, strict=True) if kind == "reduce"]
        *rows, vectors = rows
        fill_registers(schedule, part, rows, vectors, steps, self.lanes, steps=at["unroll"])
        unroll(schedule, *combined)


def is_untouched(schedule: Schedule, name: str) -> bool:
    """Does a block stand alone in loops to which nothing was done?"""
    loops = schedule.loops(name)
    return all(
        find_loop(schedule.func, n).kind == "serial" and Var(n) == a.value
        for n, a in zip(loops, find(schedule, name).axes, strict=False)
    ) and len(loops) == len(find(schedule, name).axes)


def _last(walked: tuple[int, ...], last: int) -> list[int]:
    return [*(d for d in walked if d != last), last]


def parallel_loops(schedule: Schedule, loops: Sequence[str]) -> None:
    """Share nested loops out to threads, as one."""
    there = present(loops)
    if there:
        schedule.parallel(schedule.fuse(*there) if len(there) > 1 else there[0])


def copy_in_order(
    schedule: Schedule, name: str, buffer: str, lane: int, target: Target, threads: int
) -> None:
    """Copy an operand so that it lies in the order of the block's axes, that of the vectors last if
    it has it."""
    block = find(schedule, name)
    axes = used_axes(block, buffer)
    copy = schedule.reindex(name, buffer)
    letters = [f"a{d}" for d in range(len(axes))]
    order = [*letters]
    if lane in axes:
        along = order.pop(axes.index(lane))
        order.append(along)
    if order != letters:
        mapping = f"lambda {', '.join(letters)}: ({', '.join(order)},)"
        (copied,) = written(find(schedule, copy))
        schedule.transform_layout(copied.name, mapping)
        schedule.transform_block_layout(copy, mapping)
    stream(schedule, copy, target, threads)


def copy_permuted(
    schedule: Schedule,
    name: str,
    buffer: str,
    order: Sequence[int],
    target: Target,
    threads: int,
) -> None:
    """Copy an operand so that its dimensions lie in another order."""
    copy = schedule.cache_read(name, buffer, "global")
    (copied,) = written(find(schedule, copy))
    letters = [f"a{d}" for d in range(len(order))]
    mapping = f"lambda {', '.join(letters)}: ({', '.join(letters[d] for d in order)},)"
    schedule.transform_layout(copied.name, mapping)
    schedule.transform_block_layout(copy, mapping)
    stream(schedule, copy, target, threads)


def used_axes(block: Block, buffer: str) -> list[int]:
    """The axes of a block that its loads of a buffer depend on."""
    used = {
        v for n in loads(block.body) if n.buffer.name == buffer
        for i in n.indices for v in free_vars(i)
    }  # fmt: skip
    return [d for d, a in enumerate(block.axes) if a.var in used]
