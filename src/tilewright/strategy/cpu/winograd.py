"""Winograd strategy: tiles of the image go through transform, products and the way back in cache.

In: a schedule whose anchor is the product of a Winograd convolution, and a machine. The one idea:
the products of one panel of channels and a run of tiles are made and transformed back before the
next panel's, so that they never leave L2; the transformed image either stays there
too while all panels go by (runs of tiles outside), or is made whole first, and the weights stay
(panels outside): whatever moves fewer bytes.

    parallel runs of tiles                       or    parallel channels: pad, transform the image
        transform the run's part of the image          parallel panels
        panels                                             runs of tiles
            for each of the a × a elements: a product of tiles × channels and channels × panel
            transform back, bias, activation → memory
"""

from __future__ import annotations

from math import prod

from tilewright.arith.estimate import (
    BATCH,
    NARROW,
    TILES,
    TILES_ALONG,
    estimate,
    estimate_by_symbols,
)
from tilewright.ir.dtype import DType
from tilewright.ir.expr import as_int
from tilewright.ir.stmt import Buffer, annotation
from tilewright.ir.walk import blocks
from tilewright.lower.bound_loops import BOUNDED
from tilewright.schedule.primitives.prefetch import LINE
from tilewright.schedule.schedule import Schedule
from tilewright.strategy.absorb import role, written
from tilewright.strategy.cpu.pointwise import ROWS, stream
from tilewright.strategy.cpu.prefetch_panels import prefetch_panels
from tilewright.strategy.cpu.registers import decide_tile, fill_registers, multiples, weights_on
from tilewright.strategy.cpu.tiles import Weights, register_tile, tiled_cycles
from tilewright.strategy.loops import (
    EVEN_CHUNKS,
    by_axis,
    compute_inside,
    divisors,
    extent,
    find,
    fuse,
    innermost,
    parallel,
    present,
    reorder,
    split,
    unroll,
    vectorize,
)
from tilewright.strategy.work import stored_type
from tilewright.target.target import Target

SHORT = 12  # tiles that threads take at once of an open image, which may have few
REMOTE = 2  # times: how much dearer an image is that other threads made, each a part of it
EVEN = 1.1  # of its part: what a thread may have to do
APART = 0.9  # of the time of runs of whole rows: what tile by tile may take
AT_MOST = 4  # times the tiles whose part of the image stays in the cache
COLUMNS = 8  # of a padded image that are written at once, at most
UNEVEN = 1.3  # of the time of tiles that leave rows over: what those that leave none may take
WORTH_A_PANEL = 4  # tiles in a run: each run reads all weights of its panel


def winograd(schedule: Schedule, target: Target, threads: int) -> None:
    """winograd_packed: (N, Co/ob, [D,] H, W, ob)."""
    named = {role(b): b.name for b in blocks(schedule.func.body)}
    result = schedule.blocks()[-1]
    product, spread, half = (named[f"winograd_{r}"] for r in ("product", "spread", "half"))
    axes = find(schedule, product).axes
    images, groups, edge, _, count, block = (estimate(a.extent, BATCH) for a in axes[:6])
    known = as_int(axes[4].extent) is not None
    depth = prod(estimate(a.extent, BATCH) for a in axes[6:])
    across, dy, dx = (annotation(find(schedule, product), k, 1) for k in ("across", "dy", "dx"))
    deep = len(find(schedule, result).axes) > 5  # planes of an image
    narrow = estimate_by_symbols(axes[4].extent, NARROW)
    if not known:
        along = across or TILES_ALONG
        count = max(TILES_ALONG, TILES_ALONG**2 // along) * along
    of = stored_type(find(schedule, product))
    lanes = min(target.lanes(of.bits), block)
    wide, image_lanes = block // lanes, min(target.lanes(of.bits), estimate(axes[-1].extent, BATCH))
    inside, run, rows, vectors = decide_runs(
        schedule,
        product,
        spread,
        target,
        threads,
        (images, count, across),
        (groups, wide, lanes),
        of,
        edge,
        depth,
        0 if known else narrow,
        ("root",) if deep else ("tiles", "root"),
    )
    by_tile = not across or (inside and run % across != 0 and across % run != 0)
    if inside and "pad" in named:
        stream(schedule, named["pad"], target, threads, chunk_axis=ROWS)
    n, o, *z, y, x, i = by_axis(schedule, result)
    *y, in_y = in_tiles(schedule, y, edge - 2, dy)
    *x, in_x = in_tiles(schedule, x, edge - 2, dx)
    panel, in_o = split(schedule, o, vectors // wide)
    several, lane = split(schedule, i, lanes)
    reorder(schedule, n, panel, *z, *y, *x, in_o, in_y, in_x, several, lane)
    tile, in_run = split(schedule, fuse(schedule, [*z, *y, *x]), run)
    order = [n, tile, panel] if inside else [n, panel, tile]
    reorder(schedule, *order, in_run)
    unroll(schedule, in_x, several)  # pixels of a row read the same
    vectorize(schedule, lane)

    gathered = named["winograd_gathered"]
    *_, own_y, own_j, own_i = compute_inside(schedule, gathered, innermost([*order, in_run]))
    flat(schedule, gathered, (own_y,), own_i, lanes)

    (buffer,) = written(find(schedule, product))
    stored = schedule.cache_write(product, buffer.name, "local")
    _, own_o, own_i, own_j, own_t, own_b = compute_inside(schedule, stored, innermost(order))
    t_outer, t_inner = split(schedule, own_t, rows)
    several, lane = split(schedule, own_b, lanes)
    reorder(schedule, own_i, own_j, t_outer, t_inner, own_o, several, lane)
    around = innermost([*order, own_i, own_j, t_outer])
    _, own_o2, _, _, own_t2, own_b2, *reduced = compute_inside(schedule, product, around)
    fill_registers(schedule, product, (own_t2, own_o2), own_b2, reduced, lanes, unroll_inner=1)
    prefetch_panels(schedule, target, product, own_j, known=known)
    unroll(schedule, t_inner, own_o, several)
    vectorize(schedule, lane)

    (image,) = written(find(schedule, spread))
    spaced(schedule, buffer, 3, run * block)
    if inside:
        spaced(schedule, image, 2, depth * run)
    else:
        line = LINE * 8 // image.dtype.bits
        schedule.storage_align(image.name, 2, 2 * line, line)

    at = innermost([n, tile]) if inside else ""
    _, own_i, own_j, own_c, *own_z, own_t, own_b = (
        compute_inside(schedule, spread, at) if at else by_axis(schedule, spread)
    )
    row = ""
    if not known:
        if across and not deep and (run > across or not inside):
            row, own_t = split(schedule, own_t, across)
        for loop in present((row or own_t, in_run)):
            schedule.annotate(loop, BOUNDED, True)
    reorder(schedule, own_c, *own_z, row, own_t, own_i, own_j)
    flat(schedule, spread, (own_i, own_j), own_b, image_lanes)
    around = innermost([*((n, tile) if inside else ()), own_c, *own_z, own_t if by_tile else row])
    *_, own_y, own_i, own_x, own_b = compute_inside(schedule, half, around)
    reorder(schedule, own_y, own_x, own_i)
    flat(schedule, half, (own_x, own_i) if by_tile else (own_i,), own_b, image_lanes)
    if not inside and "pad" in named:
        *_, own_x, own_b = compute_inside(schedule, named["pad"], innermost([own_c, *own_z, row]))
        columns = divisors(extent(schedule, own_x), COLUMNS)[-1]
        columns = tuple(split(schedule, own_x, columns)[1:])
        flat(schedule, named["pad"], columns, own_b, image_lanes)
    if threads > 1:
        if not inside:
            whole = [by_axis(schedule, spread)[0], own_c, *(own_z or [row])]
            parallel(schedule, whole, threads, f"{spread}.parallel")
        parallel(schedule, [n, tile] if inside else order, threads, f"{product}.parallel")


def in_tiles(schedule: Schedule, loop: str, size: int, dilation: int) -> list[str]:
    """A loop over pixels as loops over the tiles, which are `size` pixels each, those `dilation`
    apart, and last the loop over the pixels of one."""
    if dilation == 1:
        return split(schedule, loop, size)
    tile, inside, phase = split(schedule, loop, size, dilation)
    return [tile, phase, inside]


def decide_runs(
    schedule: Schedule,
    product: str,
    spread: str,
    target: Target,
    threads: int,
    tiles: tuple[int, int, int],
    channels: tuple[int, int, int],
    of: DType,
    edge: int,
    depth: int,
    narrow: int,
    ways: tuple[str, ...],
) -> tuple[bool, int, int, int]:
    """Whether a run's part of the image is transformed when its turn comes (decision "compute_at"
    of block `spread`), the tiles in a run ("block_m" of `product`), and the register tile.

    tiles: images, tiles of one, tiles across, or 0 if a run may end anywhere in a row of them;
    channels: groups of them, vectors of a group, lanes; of: their dtype; depth: channels of the
    image. narrow: tiles of a narrow image, where only the run knows how many there are, or 0.
    ways: what "compute_at" may be.
    """
    known = not narrow
    (images, count, across), (groups, wide, lanes) = tiles, channels
    registers = target.vector_registers
    fits = tuple(v for v in multiples(wide) if groups * wide % v == 0)
    weights = weights_on(target, of, lanes, depth)
    half_cache = target.cache(1).size // 2
    most = half_cache // of.nbytes(edge * edge * depth)
    every, image = groups * wide * lanes * depth, depth * count * images
    if threads > 1:
        image *= REMOTE

    twice = target.costs.transform / 2 * (2 / edge) / lanes  # of what neighbours have in common

    def best_run(most: int) -> int:
        """At most so many tiles, in whole rows where those pay; see `tile_by_tile`."""
        run = run_of_tiles(count, across, most)
        if not across:
            return in_whole_tiles(run, groups * wide, target, fits, weights)
        if not known:
            return in_whole_rows(run, across, groups * wide, target, fits, weights)
        if run == count:
            return run
        return tile_by_tile(run, max(1, most), count, twice, groups * wide, target, fits, weights)

    def moves_less(run: int) -> bool:
        """Do runs move fewer bytes, all weights for each, than the whole image for each panel?"""
        _, vectors = register_tile(run, groups * wide, registers, fits, True, target.costs, weights)
        return images * -(-count // run) * every <= image * (1 + groups * wide // vectors)

    def stays(run: int) -> bool:
        """Does it, and have threads about as many runs each?"""
        runs = images * -(-count // run)
        return -(-runs // threads) * threads <= EVEN * runs and moves_less(run)

    chunk = most
    if threads > 1:  # each has several runs
        chunk = min(most, -(-count * images // (threads * EVEN_CHUNKS)))
    inside = stays(run_of_tiles(count, across, chunk)) or (known and stays(best_run(chunk)))
    if threads > 1 and not (known or across):  # the image may have few tiles
        chunk = min(chunk, SHORT if 2 * narrow >= 3 * threads * SHORT else SHORT // 2)
    run = best_run(chunk)
    beyond = of.nbytes(edge * edge * every) > target.cache(1).size  # weights, L2
    inside = inside and (known or not beyond or moves_less(run))
    way = schedule.decide(f"{spread}.compute_at", ways[0] if inside else "root", ways)
    inside = way == "tiles"
    if inside:
        values = runs_of_tiles(count, 0 if known else across, AT_MOST * max(1, most))
        run = schedule.decide(f"{product}.block_m", run, values)
        exact, over = (
            cycles_of_a_run(run, groups * wide, target, fits, weights, exact=exact)
            for exact in (True, False)
        )
        even = known or exact <= UNEVEN * over
        tile = decide_tile(
            schedule, product, run, groups * wide, lanes, target, fits, even, weights,
            uneven=0 if known else run,
        )  # fmt: skip
        return inside, run, *tile
    _, vectors = register_tile(count, groups * wide, registers, fits, False, target.costs, weights)
    least = -(-of.nbytes(count * edge * edge * vectors * lanes) // half_cache)
    panels = images * -(-groups * wide // vectors)
    runs = even_parts(panels, threads, least, count // WORTH_A_PANEL)
    likely = () if known else TILES
    chunk = whole_tiles(-(-count // runs), groups * wide, target, fits, weights, likely)
    rows, vectors = decide_tile(
        schedule, product, chunk, groups * wide, lanes, target, fits, True, weights,
        uneven=count + WORTH_A_PANEL,
    )  # fmt: skip
    values = range(rows, count + rows, rows)
    run = schedule.decide(f"{product}.block_m", -(-count // (runs * rows)) * rows, values)
    return inside, run, rows, vectors


def even_parts(panels: int, threads: int, least: int, most: int) -> int:
    """In how many parts, at least so many, panels are cut so that threads have about as many each;
    not in more than `most` for their sake."""

    def waste(parts: int) -> float:
        count = panels * parts
        return max(-(-count // threads) * threads / count, EVEN)

    return min(range(least, max(least, most) + 1), key=waste)


def whole_tiles(
    chunk: int,
    vectors: int,
    target: Target,
    fits: tuple[int, ...],
    weights: Weights | None = None,
    likely: tuple[int, ...] = (),
) -> int:
    """So many tiles of the image, or a few more if register tiles then leave no row over and take
    less time; where only the run knows how many there are, for each of `likely` numbers of them."""
    registers, costs = target.vector_registers, target.costs

    def cycles(rows: int) -> float:
        tile = register_tile(rows, vectors, registers, fits, True, costs, weights)
        of_each = (tiled_cycles(n, vectors, *tile, costs, weights) / n for n in likely)
        return sum(of_each) if likely else tiled_cycles(rows, vectors, *tile, costs, weights)

    return min(range(chunk, chunk + WORTH_A_PANEL), key=cycles)


def cycles_of_a_run(
    run: int,
    vectors: int,
    target: Target,
    fits: tuple[int, ...],
    weights: Weights | None,
    exact: bool = True,
) -> float:
    """What a step of the products takes in the best register tiles (`exact`: that leave no row
    over)."""
    registers, costs = target.vector_registers, target.costs
    tile = register_tile(run, vectors, registers, fits, exact, costs, weights)
    return tiled_cycles(run, vectors, *tile, costs, weights)


def in_whole_rows(
    run: int,
    across: int,
    vectors: int,
    target: Target,
    fits: tuple[int, ...],
    weights: Weights | None = None,
) -> int:
    """So many tiles of the image, or a few rows of them less, that take the least time for each in
    register tiles that leave no row over. Of equals the most."""

    def cycles(run: int) -> float:
        return round(cycles_of_a_run(run, vectors, target, fits, weights) / run, 3)

    return min(range(run, run // 2, -across), key=cycles, default=run)


def tile_by_tile(
    run: int,
    most: int,
    count: int,
    twice: float,
    vectors: int,
    target: Target,
    fits: tuple[int, ...],
    weights: Weights | None = None,
) -> int:
    """`run` tiles of the image, which are whole rows of them or an even part of one; or up to
    `most` of all `count`, which end anywhere in a row, if register tiles then take much less time.

    Such tiles have no columns in common when they are transformed: it takes each `twice` cycles
    more, for a step of its products. The last run has register tiles for what is left.
    """
    registers, costs = target.vector_registers, target.costs

    def cycles(run: int) -> float:
        rows, _ = register_tile(run, vectors, registers, fits, True, costs, weights)
        made = count // run * run + -(-(count % run) // rows) * rows
        return made / run * cycles_of_a_run(run, vectors, target, fits, weights)

    apart = min(range(most, most * 3 // 4, -1), key=cycles)
    return apart if cycles(apart) + count * twice < APART * cycles(run) else run


def in_whole_tiles(
    run: int, vectors: int, target: Target, fits: tuple[int, ...], weights: Weights | None = None
) -> int:
    """So many tiles of the image, or a few less, that the best register tiles leave no row over."""
    registers, costs = target.vector_registers, target.costs
    rows, _ = register_tile(run, vectors, registers, fits, False, costs, weights)
    return run // rows * rows


def flat(schedule: Schedule, name: str, unrolled: tuple[str, ...], block: str, lanes: int) -> None:
    """A block of straight-line code over `lanes` lanes."""
    several, lane = split(schedule, block, lanes)
    unroll(schedule, *unrolled, several)
    vectorize(schedule, lane)


def spaced(schedule: Schedule, buffer: Buffer, axis: int, kept: int) -> None:
    """Let the planes along an axis of a buffer, of which `kept` numbers are in use at a time, begin
    on cache sets of their own.

    A tile touches one element in every plane; planes that are a power of two apart would put all
    those in one set. An odd number of cache lines between them puts no two there.
    """
    line = LINE * 8 // buffer.dtype.bits
    schedule.storage_gap(buffer.name, axis, (line - kept) % (2 * line))


def runs_of_tiles(count: int, across: int, most: int) -> list[int]:
    """The numbers of tiles, at most so many, that a run may have: any, or whole rows of `across`
    and even parts of one."""
    runs = range(1, min(count, most) + 1)
    return [n for n in runs if not across or n % across == 0 or across % n == 0]


def run_of_tiles(count: int, across: int, most: int) -> int:
    """At most so many of the tiles: whole rows of `across`, or an even part of one."""
    most, across = max(1, most), max(1, across)
    if count <= most:
        return count
    if most >= across:
        return most // across * across
    return max(d for d in range(1, most + 1) if across % d == 0)
