"""Pointwise strategy: stream through memory in vectors, in parallel where there is enough to do.

In: a schedule whose blocks are elementwise, and a machine. The one idea: neighbouring dimensions
that every access walks as one fuse into one loop; the last is cut into vectors, or, with the loop
that walks what is read along memory, into tiles that are transposed; what is left is cut into
parallel chunks.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd, lcm, prod

from tilewright.arith.estimate import IMAGE, estimate_by_symbols
from tilewright.arith.prove import prove_divides
from tilewright.ir.expr import Binary, BinaryOp, Expr, Load, Var, as_int, const
from tilewright.ir.stmt import Axis, Block, Store
from tilewright.ir.walk import free_vars, loads, rewrite, stores, visit
from tilewright.schedule.locate import find_loop
from tilewright.schedule.schedule import Schedule
from tilewright.strategy.absorb import instances, is_costly
from tilewright.strategy.loops import chunked, divisors, extent, find, fuse, iterations, parallel
from tilewright.strategy.work import is_worth_a_region, stored_type
from tilewright.support.record import record
from tilewright.target.target import Target

MOST_TURNS = 4  # vectors after which lanes are on the lines of the first again
UNROLLED_VECTORS = 4  # independent vectors
LONG = 8  # rounds of so many that an open loop has where they are worth their tail
ROWS = 2  # the axis of a packed image along which threads have chunks
COLUMNS = 3  # that of an image of one row
OPEN_CHUNK = 1 << 12  # elements of a parallel chunk of a loop whose length only the run knows
LONG_ROW = 1 << 15  # elements of a row that threads need not share
CHUNKS = 4  # parallel chunks for each thread, so that an unlucky thread does not hold up the rest


def pointwise(schedule: Schedule, target: Target, threads: int) -> None:
    """Every remaining block by itself."""
    for name in schedule.blocks():
        stream(schedule, name, target, threads)


def stream(
    schedule: Schedule, name: str, target: Target, threads: int, chunk_axis: int | None = None
) -> None:
    """Vectorise and parallelise the loops of one elementwise block that stand at the root.
    `chunk_axis`: the axis, if any, of which threads are to have chunks, as what reads the
    result does.
    """
    block = find(schedule, name)
    loops = list(schedule.loops(name))
    while len(loops) > 1 and extent(schedule, loops[-1], 0) == 1:
        loops.pop()  # the rows of an image of one channel
    lanes = vector_lanes(block, target)
    groups = runs(block, len(loops), lanes) if loops else []
    own = [run for run in groups if block.axes[run[0]].kind != "ordered"]
    if not own:
        return  # one number, or one in each step of a recurrence
    *outer, inner = [fuse(schedule, [loops[d] for d in run]) for run in own]
    across = transposed_loop(schedule, find(schedule, name), outer, inner)
    rows = 1
    if across and 2 * extent(schedule, inner, lanes) >= lanes:  # else vectors would be short
        rows = schedule.decide(
            f"{name}.tile_m", *transposed_tile(extent(schedule, across, lanes), lanes)
        )
    if rows > 1:
        several, row = schedule.split(across, (None, rows))
        vectors, inner = schedule.split(inner, (None, lanes))
        outer = [several if loop == across else loop for loop in outer] + [vectors]
        schedule.reorder(*outer, row, inner)
        schedule.unroll(row)
    outer = in_order(schedule, block, outer, target)
    count = as_int(find_loop(schedule.func, inner).extent)
    worth = is_worth_a_region([block], target)
    few = parallel_iterations(schedule, outer, count) < threads * 2
    turns = turns_of(schedule, name, inner, lanes)
    step = lanes * turns
    if threads > 1 and few and count is not None and count >= step * threads * 2:
        most = count // step
        chunks = {n: -(-count // (min(threads * n, most) * step)) * step for n in (1, 2, CHUNKS, 8)}
        pick, values = chunks[CHUNKS] if worth else count, sorted({*chunks.values(), count})
        chunk = schedule.decide(f"{name}.chunk_n", pick, values)
        if chunk < count:
            chunk_loop, inner = schedule.split(inner, (None, chunk))
            outer.append(chunk_loop)
            count = chunk
    elif threads > 1 and worth and few and count is None:
        chunk_loop, inner = schedule.split(inner, (None, OPEN_CHUNK // step * step))
        outer.append(chunk_loop)
    costly = is_costly(find(schedule, name))
    vectorize_inner(schedule, inner, count, lanes, f"{name}.interleave", costly=costly, turns=turns)
    if outer and rows == 1 and count is not None and count <= lanes:
        most = 2 * UNROLLED_VECTORS
        is_open = bool(across) and extent(schedule, across, 0) == 0
        along = across if is_open else outer[-1]  # whose tiles have tails
        lines = extent(schedule, along, most)
        values = divisors(lines, most)
        if along == across and 2 * values[-1] <= most < lines:
            values = (*values, most)  # and a tail: a line at a time is no vector
        columns = schedule.decide(f"{name}.unroll", values[-1], values)
        if columns > 1:
            several, column = schedule.split(along, (None, columns))
            outer = [several if loop == along else loop for loop in outer]
            schedule.reorder(*outer, column)
            schedule.unroll(column)
    if rows == 1 and chunk_axis is not None:
        outer = chunks_first(schedule, name, outer, threads, chunk_axis, worth)
    if threads > 1:
        in_runs = rows == 1 and count is not None and chunk_axis == COLUMNS
        parallel(schedule, outer, threads, f"{name}.parallel", worth=worth, in_runs=in_runs)


def parallel_iterations(schedule: Schedule, outer: Sequence[str], count: int | None) -> int:
    """Iterations of loops around `count` elements (None: only the run knows). Symbolic extents
    count for many where a chunk of the elements would be short."""
    if count is None or count >= LONG_ROW:
        return iterations(schedule, outer)
    return prod(extent(schedule, loop, IMAGE) for loop in outer)


def chunks_first(
    schedule: Schedule, name: str, outer: list[str], threads: int, axis: int, worth: bool
) -> list[str]:
    """The loops to run in parallel with chunks of `axis` outside, where a loop walks it and
    nothing else."""
    block = find(schedule, name)
    if axis >= len(block.axes):
        return outer
    along = next((n for n in outer if axes_of(block, n) == [block.axes[axis].var]), "")
    if not along:
        return outer
    at = outer.index(along)
    others = prod(extent(schedule, n, IMAGE) for n in outer[:at])
    chunk, inner = chunked(schedule, f"{name}.chunk_m", along, threads, others, wanted=worth)
    if not chunk:
        return outer
    schedule.reorder(chunk, *outer[:at], inner, *outer[at + 1 :])
    return [chunk, *outer[:at]]


def transposed_loop(schedule: Schedule, block: Block, outer: Sequence[str], inner: str) -> str:
    """The loop that walks along the memory that is read, where the vectors' loop walks across it;
    "" if there is none."""
    across = set(axes_of(block, inner))
    for load in loads(block.body):
        ends = [free_vars(i) for i in reversed(_without_ones(load).indices)]
        if not ends or across & ends[0] or across.isdisjoint(frozenset[Var]().union(*ends)):
            continue
        for loop in reversed(outer):
            along = set(axes_of(block, loop))
            if along & ends[0] and along <= frozenset[Var]().union(*ends[: len(along)]):
                return loop
    return ""


def transposed_tile(count: int, lanes: int) -> tuple[int, tuple[int, ...]]:
    """How many rows of a transposed block are made from the lines that its vectors' lanes read, and
    the choices: as many as there are lanes."""
    values = {1, min(count, max(1, lanes // 2)), min(count, lanes)}
    return min(count, lanes), tuple(sorted(values))


def turns_of(schedule: Schedule, name: str, inner: str, lanes: int) -> int:
    """After how many vectors the lanes take turns at the lines they read as they did in the first,
    where a remainder of the loop's number says whose turn it is; 1 if none does."""
    block = find(schedule, name)
    across, turns = set(axes_of(block, inner)), 1
    for load in loads(block.body):
        for n in visit(load):
            if isinstance(n, Binary) and n.op is BinaryOp.floormod and across & free_vars(n.a):
                count = as_int(n.b) or 1
                turns = lcm(turns, count // gcd(count, lanes))
    return turns if turns <= MOST_TURNS else 1


def in_order(schedule: Schedule, block: Block, outer: list[str], target: Target) -> list[str]:
    """The outer loops in the order of what is written, or of what is read: decision "order". Of
    what does not stay in L2, reads that walk on are prefetched by the machine; writes wait for
    nobody."""
    block = find(schedule, block.name)
    read = set(loads(block.body))
    if len(outer) < 2 or len(read) != 1:
        return outer
    (load,) = read
    first = {v: d for d, index in reversed(list(enumerate(load.indices))) for v in free_vars(index)}
    walked = {
        loop: min((first[v] for v in axes_of(block, loop) if v in first), default=-1)
        for loop in outer
    }
    if -1 in walked.values() or len(set(walked.values())) < len(outer):
        return outer
    as_read = sorted(outer, key=lambda loop: walked[loop])
    if as_read == outer:
        return outer
    far = 2 * stored_type(block).nbytes(instances(block)) > target.cache(1).size
    order = "read" if far else "written"
    if schedule.decide(f"{block.name}.order", order, ("written", "read")) == "written":
        return outer
    schedule.reorder(*as_read)
    return as_read


def axes_of(block: Block, loop: str) -> list[Var]:
    """The axes of a block that are bound to a loop."""
    return [axis.var for axis in block.axes if Var(loop) in free_vars(axis.value)]


def vectorize_inner(
    schedule: Schedule,
    loop: str,
    count: int | None,
    lanes: int,
    decision: str = "",
    *,
    costly: bool = False,
    turns: int = 1,
) -> None:
    """Cut a loop into vectors, several independent ones if it is long; short loops become one
    masked vector. count: iterations, None if open. `decision` names how many are independent. What
    is `costly` keeps a machine busy with one, and the tails of several, where the size does not
    tell that there are none, would each call its functions: so often that none is inlined. Of so
    many vectors, `turns`, the lanes take turns, so that each of them has lines of its own.
    """
    if lanes == 1 or count == 1:
        return
    if count is not None and count <= lanes:
        schedule.vectorize(loop)
        return
    values = [1]
    if count is not None:
        values += [f for f in (2, 4, 8) if count % (f * lanes) == 0 and count > f * lanes]
    elif _likely_extent(schedule, loop) >= LONG * UNROLLED_VECTORS * lanes:
        values.append(UNROLLED_VECTORS)  # whole planes; of single rows most would be tails
    own = UNROLLED_VECTORS if UNROLLED_VECTORS in values else 1
    if costly and count is None and own > 1:
        no_tails = prove_divides(own * lanes, find_loop(schedule.func, loop).extent)
        own = own if no_tails else 1
    if turns > 1 and (count is None or count > turns * lanes):
        own = turns
        values = sorted({*values, turns})
    several = own
    if decision:
        several = schedule.decide(decision, own, values)
    if several > 1:
        _, beside, lane = schedule.split(loop, (None, several, lanes))
        schedule.unroll(beside)
    else:
        _, lane = schedule.split(loop, (None, lanes))
    schedule.vectorize(lane)


def _likely_extent(schedule: Schedule, loop: str) -> int:
    """Iterations of an open loop where each size is an image's; 0 for a part of one."""
    count = find_loop(schedule.func, loop).extent
    return estimate_by_symbols(count, IMAGE) if as_int(count) is None else 0


def vector_lanes(block: Block, target: Target) -> int:
    """Lanes for a block: those of its narrowest float or whole element that is at least 32 bits
    wide.
    """
    touched = [n.buffer.dtype for n in (*loads(block.body), *stores(block.body))]
    bits = min((d.bits for d in touched if d.bits >= 32), default=32)
    return target.lanes(bits)


def runs(block: Block, count: int, lanes: int = 1) -> list[list[int]]:
    """The first `count` axes in groups of neighbours that every access walks as one: it uses none
    of them, or they are indices next to each other over dimensions of their own sizes. A value that
    asks for one of them (the diagonal of a matrix) would divide for each of `lanes` elements,
    unless these are in one row."""
    accesses = [_without_ones(n) for n in (*loads(block.body), *stores(block.body))]
    asked = _asked(block)
    groups = [[0]]
    for d in range(1, count):
        pair = block.axes[d - 1 : d + 1]
        one = all(a.kind == "spatial" for a in pair) and all(_as_one(n, pair) for n in accesses)
        if asked & {a.var for a in pair} and not prove_divides(lanes, pair[1].extent):
            one = False
        groups = [*groups[:-1], [*groups[-1], d]] if one else [*groups, [d]]
    return groups


def _asked(block: Block) -> set[Var]:
    """The variables that values of a block follow from, and not only indices."""
    values = [s.value for s in stores(block.body)]
    return {v for e in values for v in free_vars(rewrite(e, (Load,), lambda n: const(0)))}


@record
class _Access:
    """Where an access goes: sizes of the dimensions, indices, whether they are without gaps."""

    shape: tuple[Expr, ...]
    indices: tuple[Expr, ...]
    dense: bool


def _without_ones(access: Load | Store) -> _Access:
    """An access without the last dimensions of size 1."""
    shape, rank = access.buffer.shape, len(access.indices)
    while rank > 1 and as_int(shape[rank - 1]) == 1:
        rank -= 1
    return _Access(shape[:rank], access.indices[:rank], access.buffer.strides is None)


def _as_one(access: _Access, pair: Sequence[Axis]) -> bool:
    """Does an access walk two neighbouring axes as one would walk their product?"""
    used = [bool({a.var for a in pair} & free_vars(i)) for i in access.indices]
    if not any(used):
        return True
    at = used.index(True)
    variables, sizes = tuple(a.var for a in pair), tuple(a.extent for a in pair)
    return (
        access.dense
        and sum(used) == 2
        and access.indices[at : at + 2] == variables
        and access.shape[at + 1 : at + 2] == sizes[1:]
    )
