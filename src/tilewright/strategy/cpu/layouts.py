"""What processors want of layouts: see `graph/layout_policy.py`, which asks.

In: sizes. Out: what takes the least modelled time; the model is that of the strategies, which
schedule what comes of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, prod

from tilewright.arith.estimate import IMAGE, SEQUENCE, VECTORS
from tilewright.ir.dtype import DType, f32
from tilewright.strategy.cpu.padding import part_met
from tilewright.strategy.cpu.tiles import (
    WIDEST,
    Weights,
    panel_vectors,
    prefers_pixels,
    winograd_tile,
)
from tilewright.support.record import record
from tilewright.target.costs import COMMON, UNITS, Costs
from tilewright.target.target import Target

SHORTEST = 4  # lanes of a vector
HALF = 0.8  # of the time that blocks of whole vectors take: what blocks of halves may
MOVED = 0.75  # of the time of a transform: what a vector takes to be packed, or unpacked
WORTH = 0.9  # of the time of a packed convolution: what a plain one may take
BESIDE = 0.55  # of the time of transforms: what they take beside the products of few channels
WINDOW = 9  # taps of what Winograd's tiles compute
TILE = 8  # vectors that a step of a reduction works on, of a tile on the small side
FEW = 48  # rows of a product up to which packing its other operand in the run does not pay
FEW_ACROSS = 12  # the same for an operand whose vectors would be gathered, if it is small
SMALL = 8 << 10  # bytes of it up to which it is small
NEAR = 32 << 10  # bytes of it that stay close by as they are: an L1
WEIGHTS = 96  # columns of weights from which transposing the left operand pays for any rows
LINE = 8  # numbers of an open number of lines from which each is summed up by itself
FAR = 4  # this part of L2 taken by it, columns of the left one do not stay


@record
class Layouts:
    """The layout policy of processors with vectors of so many bytes, so many vector registers, and
    L1 and L2 of so many bytes."""

    vector_bytes: int
    registers: int = 32
    l1: int = 32 << 10
    l2: int = 512 << 10
    costs: Costs = COMMON

    @staticmethod
    def of(machine: Target) -> Layouts:
        """Those of a machine."""
        caches = machine.cache(0).size, machine.cache(1).size
        return Layouts(machine.vector_bytes, machine.vector_registers, *caches, machine.costs)

    def lanes(self, of: DType) -> int:
        """Elements of a vector."""
        return max(1, self.vector_bytes * 8 // of.bits)

    def blocks(self, of: DType) -> tuple[int, ...]:
        """A vector, or half of one."""
        lanes = self.lanes(of)
        return (lanes,) if lanes // 2 < SHORTEST else (lanes, lanes // 2)

    def block(self, channels: int, of: DType) -> int:
        """A vector of channels, or half of one where fewer lanes then stay empty and half a vector
        takes less time."""
        whole, *halves = self.blocks(of)

        def cycles(block: int, costs: Costs) -> float:
            return -(-channels // block) / costs.multiply_adds

        for half in halves:
            if cycles(half, self.costs.of_halves) <= HALF * cycles(whole, self.costs):
                return half
        return whole

    def step(self, channels: int, block: int) -> int:
        """Long steps cost less, short ones fewer channels that are missing."""
        parts = (n for n in range(1, block + 1) if block % n == 0)
        return min(parts, key=lambda n: -(-channels // n) * (n + 1 / TILE))

    def group_cycles(
        self, results: int, same_input: int, depth: int, moved: float, of: DType
    ) -> float:
        """Shorter vectors are made by all units that there are."""
        lanes, fast = self.lanes(of), self.costs.multiply_adds
        if same_input < min(SHORTEST, lanes):
            return inf
        rate = fast if same_input == lanes else max(fast, UNITS)
        return results / same_input * depth / rate + moved * self.costs.transform

    def is_along_rows(
        self,
        sources: int,
        results: int,
        steps: int,
        width: int | None,
        groups: int,
        *,
        is_packed: bool,
        edge: int,
        of: DType,
    ) -> bool:
        """Where channels do not fill a vector."""
        lanes = self.lanes(of)
        if results >= lanes:
            return False
        block = self.block(results, of)
        if groups > 1 and sources < lanes and results < block:
            return not is_packed and (width is None or width >= max(sources, results))
        # one result: each step waits for a load
        rate = 1.0 if results == 1 else self.costs.multiply_adds
        plain = steps * results / lanes * filled_up(width, lanes) / rate
        packed = steps / self._of(block, of).multiply_adds
        if edge:
            packed = self._tile_cycles(sources, block, steps, width, edge, of)
        moved = MOVED * self.costs.transform
        image, result = sources / lanes * moved, results / lanes * moved
        if is_packed:
            plain += image
        elif sources >= lanes or edge:  # of fewer, one is broadcast as it lies
            packed += image
        return plain < WORTH * (packed + result)

    def _tile_cycles(
        self, sources: int, block: int, steps: int, width: int | None, edge: int, of: DType
    ) -> float:
        """Cycles of Winograd's tiles for a pixel of a block of results; they walk whole blocks."""
        costs, walked = self._of(block, of), self.block(sources, of)
        walked *= -(-sources // walked)
        products = steps / (WINDOW * sources) * walked / costs.multiply_adds
        transforms = BESIDE * (walked + block) / block * costs.transform
        return ((edge + 2) / edge) ** 2 * filled_up(width, edge) * (products + transforms)

    def winograd_edge(
        self,
        rows: int,
        width: int,
        sources: int,
        padded: int,
        results: int,
        block: int,
        axes: Sequence[tuple[int, tuple[int, int], int, int]],
        planes: int,
        of: DType,
    ) -> int:
        """See `winograd_tile`."""
        met = prod((part_met(*axis) for axis in axes), start=1.0)
        taps = prod(taps for *_, taps, _ in axes[:-2])
        *_, (_, _, _, dy), (_, _, _, dx) = axes
        read = (planes + (taps - 1) * axes[0][-1]) / planes
        given = rows, width, padded, results, block, self.registers, self.l2
        return winograd_tile(*given, self._of(block, of), (dy, dx), met, taps, read, of, sources)

    def is_across(self, rows: int, width: int, vectors: int, block: int) -> bool:
        """See `prefers_pixels`."""
        return prefers_pixels(rows, width, vectors, self.registers, self._of(block, f32))

    def saves_steps(self, sources: int, taps: Sequence[int], strides: Sequence[int]) -> bool:
        """Whether the steps that the phases save, each by itself, are more than what bringing the
        results together takes: for a vector of the result."""
        phases = prod(strides)
        together = prod(-(-k // s) for k, s in zip(taps, strides, strict=True))
        saved = sources * (together - prod(taps) / phases) / self.costs.multiply_adds
        return saved > 2 * self.costs.transform

    def stays_near(self, nbytes: int) -> bool:
        """In half of L2."""
        return 2 * nbytes <= self.l2

    def is_packed_product(
        self,
        rows: int | None,
        depth: int,
        columns: int | None,
        *,
        is_known: bool,
        transpose_a: bool,
        transpose_b: bool,
        of: DType,
    ) -> bool:
        """Panels that are packed in the run pay where many rows read them."""
        if columns == 1 and not transpose_a and (rows is not None or depth >= LINE):
            return False  # one lane of a panel would count: rows are vectors, as they are
        count, many = (SEQUENCE if n is None else n for n in (rows, columns))
        size = of.nbytes(depth * many)
        few = count < FEW and (not is_known or many < WEIGHTS)
        if transpose_a and (few or size * FAR <= self.l2):
            return False
        if is_known:
            return True
        if transpose_b:
            return not (count == 1 or (count < FEW_ACROSS and size <= SMALL))
        return not (count < FEW or size <= NEAR)

    def panels(self, vectors: int | None) -> tuple[int, ...]:
        """As many as `panel` weighs."""
        return (*range(1, min(VECTORS[-1] if vectors is None else vectors, WIDEST) + 1),)

    def panel(self, rows: int, vectors: int | None, depth: int, of: DType) -> int:
        """See `panel_vectors`."""
        caches, apart = (self.l1, self.l2), of.nbytes(depth)
        near = Weights.beside(self.lanes(of), depth, *caches, apart=apart, of=of)
        return panel_vectors(rows, vectors, self.registers, near, self.costs)

    def _of(self, block: int, of: DType) -> Costs:
        """The constants for vectors of a block."""
        return self.costs if block >= self.lanes(of) else self.costs.of_halves


def filled_up(width: int | None, part: int) -> float:
    """How many times as many elements a row has with those that fill its last part up; half a part
    where rows may have any width."""
    return 1 + part / (2 * IMAGE) if width is None else -(-width // part) * part / width
