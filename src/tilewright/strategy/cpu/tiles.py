"""Register tiles: how many rows and vectors of an output to hold in registers at once.

In: the sizes of the output and the machine. Out: the tile with the least modelled time. The model
counts, for each step of the reduction, the cycles of the multiply-adds, of the loads and the
latency of a multiply-add, which a tile with too few accumulators cannot hide; a tail costs a tile
of its own size. What each takes is a constant of the machine (target/costs.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from math import gcd, prod
from typing import NamedTuple

from tilewright.arith.estimate import VECTORS
from tilewright.ir.dtype import DType, f32
from tilewright.target.costs import COMMON, Costs

WIDEST = 6  # vectors of a tile
WAY = 4096  # bytes of an L1 within which no two lines compete
LARGE = 2  # times L2: what does not stay in L3 while a net's other layers run
WORTH = 0.9  # of the time of a convolution that leaves taps out: what Winograd's may take
ADDRESSES = 1.1  # times as long may tiles within rows take: pixels across have an address each
SECOND_TILE = 1.03  # what it must gain to have a tile of another size for the vectors left over


class Weights(NamedTuple):
    """What tiles read of the weights: bytes of a vector, how many vectors deep the reduction is,
    and bytes that stay in L1 and in L2; of how many neighbouring vectors the
    weights meet the same channels of the image (0: of all); how many bytes the rows of that lie
    apart (0: those of a vector); and of how many steps the first one alone waits for (taps
    along a row: the next ones read neighbours)."""

    vector: int
    depth: int
    l1: int
    l2: int
    same_input: int = 0
    apart: int = 0
    taps: int = 1

    @staticmethod
    def beside(
        lanes: int,
        depth: int,
        l1: int,
        l2: int,
        same_input: int = 0,
        apart: int = 0,
        taps: int = 1,
        of: DType = f32,
    ) -> Weights:
        """Of dtype `of` in vectors of `lanes`, on a machine with caches of so many bytes, an eighth
        of which is left to what else a tile touches."""
        vector = of.nbytes(lanes)
        return Weights(vector, depth, l1 * 7 // 8, l2 * 7 // 8, same_input, apart, taps)

    def cycles(self, group: int, costs: Costs = COMMON) -> float:
        """Cycles that the transfer of a vector takes where every tile reads `group` of them, all
        deep."""
        panel = group * self.vector * self.depth
        if panel <= self.l1:
            return 0.0
        rate = costs.l2 if panel <= self.l2 else costs.l3
        return self.vector / rate / self.taps

    def most_rows(self) -> int:
        """How many rows a tile may walk along at once: lines of rows that lie a multiple of WAY
        apart all compete for the same sets of L1."""
        sets = WAY // gcd(WAY, self.apart or self.vector)
        return max(1, self.l1 // WAY * sets)


def step_cycles(
    rows: int, vectors: int, transfer: float = 0.0, costs: Costs = COMMON, same_input: int = 0
) -> float:
    """Cycles that one step of the reduction takes for a tile of rows × vectors accumulators; a
    vector of weights takes `transfer` cycles from where it lies. `same_input`: so many neighbouring
    vectors meet the same number of a row; 0 is all of them."""
    multiply = rows * vectors / costs.multiply_adds
    numbers = rows * (vectors // gcd(vectors, same_input) if same_input else 1)
    load = max((numbers + vectors) / costs.loads, vectors * transfer)
    longer, shorter = max(multiply, load), min(multiply, load)
    return max(longer + costs.overlap_penalty * shorter, costs.latency) + costs.loop


def tiled_cycles(
    rows: int,
    vectors: int,
    tile: int,
    group: int,
    costs: Costs = COMMON,
    weights: Weights | None = None,
) -> float:
    """Cycles a step for rows × vectors accumulators in tiles of tile × group, tails included."""
    transfer = weights.cycles(group, costs) if weights else 0.0
    total = 0.0
    for height, times_high in _tiles(rows, tile):
        for width, times_wide in _tiles(vectors, group):
            total += times_high * times_wide * step_cycles(height, width, transfer, costs)
    return total


def _tiles(size: int, tile: int) -> Iterable[tuple[int, int]]:
    """The tiles that cover `size`: (their size, how many)."""
    if size >= tile:
        yield tile, size // tile
    if size % tile:
        yield size % tile, 1


def tallest(group: int, registers: int) -> int:
    """How many rows a register tile of `group` vectors has at most: its accumulators, its vectors
    and a broadcast are in registers, and one is left, into which the next vector is loaded. LLVM
    keeps every accumulator of a tile that needs all 16 (4 rows of 3 vectors) in memory."""
    return max(1, (registers - 2 - group) // group)


def heights(rows: int, group: int, registers: int, exact: bool = False) -> tuple[int, ...]:
    """The numbers of rows that a register tile of `group` vectors may have. `exact`: tiles leave no
    row over."""
    most = tallest(group, registers)
    return tuple(h for h in range(1, min(rows, most) + 1) if not exact or rows % h == 0)


@lru_cache(maxsize=4096)
def register_tile(
    rows: int,
    vectors: int,
    registers: int,
    groups: tuple[int, ...] = (1, 2, 3, 4, 5, 6),
    exact: bool = False,
    costs: Costs = COMMON,
    weights: Weights | None = None,
) -> tuple[int, int]:
    """(rows, vectors) of the register tile for an output of rows × vectors vector registers.

    `groups` are the allowed numbers of vectors. Ties go to the larger tile, which touches memory
    less often. `exact`: tiles leave no row over. Without `weights`, both operands are taken to
    stay near.
    """
    most = weights.most_rows() if weights else rows
    best: tuple[float, int, int, int] | None = None
    for group in groups:
        if group > vectors and group != min(groups):
            continue
        for tile in heights(rows, group, registers, exact):
            if tile > most and not exact:
                break
            cycles = tiled_cycles(rows, max(vectors, group), tile, group, costs, weights)
            key = (round(cycles, 3), -tile * group, tile, group)
            if best is None or key < best:
                best = key
    assert best is not None
    return best[2], best[3]


@lru_cache(maxsize=4096)
def panel_vectors(
    rows: int, vectors: int | None, registers: int, weights: Weights, costs: Costs = COMMON
) -> int:
    """How many vectors wide the panels of packed weights best are for a product of rows × vectors:
    all panels are of one width, so that zeros fill the last one up and are multiplied like the
    rest. Ties go to the wider. `vectors`: None if only the run knows, which may have few as well as
    many."""
    likely = VECTORS if vectors is None else (vectors,)

    def cycles(wide: int) -> tuple[float, int]:
        total = 0.0
        for n in likely:
            padded = -(-n // wide) * wide
            tile = register_tile(rows, padded, registers, (wide,), False, costs, weights)
            total += tiled_cycles(rows, padded, *tile, costs, weights) / n
        return round(total * likely[-1], 3), -wide

    return min(range(1, min(likely[-1], WIDEST) + 1), key=cycles)


def spatial_cycles(
    height: int,
    width: int,
    vectors: int,
    tile: tuple[int, int, int],
    weights: Weights | None = None,
    costs: Costs = COMMON,
) -> float:
    """Cycles a step for an image in tiles of (rows, columns, vectors), tails included."""
    rows, columns, group = tile
    transfer = weights.cycles(group, costs) if weights else 0.0
    same_input = weights.same_input if weights else 0
    cycles = 0.0
    for high, rarely in _tiles(height, rows):
        for wide, times in _tiles(width, columns):
            for deep, often in _tiles(vectors, group):
                step = step_cycles(high * wide, deep, transfer, costs, same_input)
                cycles += rarely * times * often * step
    return cycles


def row_tile(width: int, most: int) -> int:
    """The tile of a row that covers `width` with the least waste; of equals the longest."""
    return min(range(1, min(width, most) + 1), key=lambda s: (-(-width // s) * (s + 4), -s))


def _within_and_across(
    height: int, width: int, vectors: int, registers: int, costs: Costs
) -> tuple[float, float]:
    """Cycles a step for an image in tiles within its rows, and in tiles over the ends of rows."""
    within = spatial_tile(height, width, vectors, registers, costs=costs)
    across = register_tile(height * width, vectors, registers, costs=costs)
    rows = spatial_cycles(height, width, vectors, within, costs=costs)
    return rows, tiled_cycles(height * width, vectors, *across, costs)


def prefers_pixels(
    height: int, width: int, vectors: int, registers: int, costs: Costs = COMMON
) -> bool:
    """Whether tiles of neighbouring pixels, over the ends of rows, cover an image in less time than
    tiles within rows; they must be worth an address for each pixel."""
    within, across = _within_and_across(height, width, vectors, registers, costs)
    return within > ADDRESSES * across


def plain_cycles(
    height: int, width: int, vectors: int, registers: int, costs: Costs = COMMON
) -> float:
    """Cycles a step of a convolution in the tiles that it prefers."""
    within, across = _within_and_across(height, width, vectors, registers, costs)
    return across if within > ADDRESSES * across else within


@lru_cache(maxsize=4096)
def spatial_tile(
    height: int,
    width: int,
    vectors: int,
    registers: int,
    groups: tuple[int, ...] = (1, 2, 3, 4, 5, 6),
    widths: tuple[int, ...] = (),
    weights: Weights | None = None,
    costs: Costs = COMMON,
) -> tuple[int, int, int]:
    """(rows, columns, vectors) of the register tile for an image of height × width × vectors.

    The columns of a tile lie in one row of the image, so a narrow image takes several rows in a
    tile. `groups` and `widths` are the allowed numbers of vectors and of columns (empty: any);
    without `weights`, they are taken to stay near.
    """
    best: tuple[float, int, int, int, int] | None = None
    for group in groups:
        if group > vectors and group != min(groups):
            continue
        most = tallest(group, registers)
        for columns in widths or range(1, min(width, most) + 1):
            for rows in range(1, min(height, most // columns) + 1):
                if rows > 1 and columns < width:
                    continue  # several rows only where they are whole
                cycles = spatial_cycles(
                    height, width, vectors, (rows, columns, group), weights, costs
                )
                cycles *= 1.0 if vectors % group == 0 else SECOND_TILE
                cycles *= 1.0 if height % rows == 0 else SECOND_TILE
                key = (round(cycles, 3), -rows * columns * group, rows, columns, group)
                if best is None or key < best:
                    best = key
    assert best is not None
    return best[2], best[3], best[4]


def winograd_tile(
    rows: int,
    columns: int,
    ci: int,
    co: int,
    lanes: int,
    registers: int,
    l2: int,
    costs: Costs = COMMON,
    dilations: Sequence[int] = (1, 1),
    met: float = 1.0,
    deep: int = 1,
    planes: float = 1.0,
    of: DType = f32,
    sources: int = 0,
) -> int:
    """The edge of the tiles in which Winograd's 3×3 convolution of ci to co channels takes the
    least modelled time for rows × columns results; 0 where the plain one takes less. Pixels of a
    tile are `dilations` apart; the plain convolution takes the part `met` of its steps. `deep`: so
    many taps along another axis, along which the image has `planes` times as many planes as the
    result. `of`: the dtype of image and weights. `sources`: of the ci channels those that are not
    padding (0: all), which is all that the plain convolution takes.

    The model: multiply-adds in register tiles, the machine's `transform` for each vector of a
    transformed tile, there or back, and meanwhile weights that do not fit L2 (`l2` bytes) come anew
    from L3, or from memory.
    """
    vectors = -(-co // lanes)

    def tiles(edge: int) -> int:
        sides = zip((rows, columns), dilations, strict=True)
        return prod(-(-size // (edge * d)) * d for size, d in sides)

    def winograd(edge: int) -> float:
        taps, count = (edge + 2) ** 2, tiles(edge)
        tile = register_tile(count, vectors, registers, costs=costs)
        multiply = taps * deep * ci * tiled_cycles(count, vectors, *tile, costs)
        transforms = taps * count * (ci * planes + co) * costs.transform / lanes
        image = taps * planes * of.nbytes(count * ci)
        again = 2 * image if deep > 1 and image > l2 else 0.0  # it is stored whole, and read again
        return beside(multiply + transforms, taps, again)

    def beside(work: float, taps: int, again: float = 0.0) -> float:
        """Cycles of work while weights, and an image `again`, come from memory."""
        weights = of.nbytes(taps * deep * ci * co)
        rate = costs.memory if weights > LARGE * l2 else costs.l3
        transfer = (weights / rate if weights > l2 // 2 else 0.0) + again / costs.memory
        return max(work, transfer) + costs.overlap_penalty * min(work, transfer)

    def plain(steps: float) -> float:
        return beside(9 * deep * (sources or ci) * steps, 9) * (met if met == 1 else WORTH * met)

    times = {edge: winograd(edge) for edge in (2, 4)}
    best = min(times, key=lambda edge: times[edge])
    at_least = rows * columns * vectors / costs.multiply_adds
    if times[best] < plain(at_least):
        return best
    steps = plain_cycles(rows, columns, vectors, registers, costs)
    return best if times[best] < plain(steps) else 0
