"""Nest: what a sketch knows of a reduction, as numbers.

In: a block that reduces. Out: its axes with their extents, and of everything that it reads and
writes how far each axis moves it through memory. The one idea: what a schedule of a nest costs
follows from numbers alone, so that a hundred thousand of them are weighed as columns of arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from tilewright.arith.affine import Forms
from tilewright.arith.estimate import estimate
from tilewright.ir.dtype import DType
from tilewright.ir.expr import Binary, BinaryOp, Buffer, Expr, Load, Select, Unary, Var
from tilewright.ir.stmt import Block, Stmt, Store
from tilewright.ir.walk import free_vars, loads, stores, visit
from tilewright.strategy.absorb import CHEAP_UNARY, COSTLY_BINARY, written
from tilewright.support.record import record

COSTLY = 12.0  # vector operations that a transcendental function takes
DIVISION = 5.0  # vector operations that take as long as a division


@record
class Access:
    """An operand or the result of a nest. moves: for each dimension of the buffer, how many indices
    further an iteration of each axis goes; None for a dimension whose index no such sum gives, as
    of a gather. uses: the axes that it depends on; gathers: those that such an index depends on.
    guarded: read only under a condition; is_own: made and used up in each round of the nest."""

    buffer: Buffer
    sizes: tuple[int, ...]
    moves: tuple[tuple[int, ...] | None, ...]
    uses: tuple[bool, ...]
    gathers: tuple[bool, ...]
    guarded: bool = False
    is_own: bool = False

    def stride(self, axis: int) -> int | None:
        """Elements from one iteration of an axis to the next; None where no number says that."""
        if self.gathers[axis]:
            return None
        total, inner = 0, 1
        for size, moves in zip(reversed(self.sizes), reversed(self.moves), strict=True):
            total, inner = total + (moves[axis] if moves else 0) * inner, inner * size
        return total

    @property
    def is_window(self) -> bool:
        """Does it read along some dimension by more than one axis, so that different iterations
        may read the same?"""
        return any(m is None or sum(n != 0 for n in m) > 1 for m in self.moves)

    @property
    def is_permuted(self) -> bool:
        """Does each of its elements belong to one combination of the axes that it uses, so that a
        copy in another order is no larger?"""
        named = [m for m in self.moves if m is None or any(m)]
        plain = all(m is not None and sum(map(abs, m)) == max(m) == 1 for m in named)
        return plain and len(named) == sum(self.uses) and not self.guarded


@record
class Nest:
    """A block that reduces: its name, its axes in order, and what it reads and writes. It stores
    one value, or several of the same element.

    extents: iterations of each axis, open ones as estimated; is_reduced: whether it is combined;
    operations: of vectors, that an instance takes, a multiply-add counting one; dtype: of what it
    adds up; rounds: how often the nest runs, for a part of the results each time; whole: iterations
    of each axis in all of them.
    """

    name: str
    extents: tuple[int, ...]
    is_reduced: tuple[bool, ...]
    reads: tuple[Access, ...]
    results: tuple[Access, ...]
    operations: float
    dtype: DType
    rounds: int = 1
    whole: tuple[int, ...] = ()

    def is_cut(self, axis: int) -> bool:
        """Does a round run for a part of an axis?"""
        return bool(self.whole) and self.whole[axis] != self.extents[axis]

    @property
    def bytes(self) -> int:
        """Of all that it reads and writes, in all rounds."""
        found = {a.buffer: prod(a.sizes) for a in (*self.reads, *self.results) if not a.is_own}
        return sum(b.dtype.nbytes(n) for b, n in found.items())

    @property
    def spatial(self) -> tuple[int, ...]:
        """The axes of the result."""
        return tuple(d for d, reduced in enumerate(self.is_reduced) if not reduced)

    @property
    def reduced(self) -> tuple[int, ...]:
        """The axes that are combined."""
        return tuple(d for d, reduced in enumerate(self.is_reduced) if reduced)

    def first_read(self, number: int) -> int:
        """Of the operands that are read in the same buffer, which is the first: what is decided of
        it holds for all of them."""
        return [a.buffer for a in self.reads].index(self.reads[number].buffer)

    def is_alone(self, number: int) -> bool:
        """Is it the only operand that is read in its buffer?"""
        return [a.buffer for a in self.reads].count(self.reads[number].buffer) == 1

    def is_by_axes(self, number: int) -> bool:
        """Is a copy of an operand one with a dimension for each axis that it uses?"""
        return self.is_alone(number) and self.reads[number].is_permuted

    def transposed(self, number: int, lane: int) -> tuple[int, ...] | None:
        """In which order of its dimensions an operand's buffer would be walked as the axes are, the
        one along which vectors run last; None where no copy has that order, or it has it."""
        own = [a for a in self.reads if a.buffer == self.reads[number].buffer]
        if any(a.guarded or None in a.moves for a in own):
            return None
        if len(own) == 1 and _touched(self.extents, own[0]) < prod(own[0].sizes):
            return None  # of a part of a buffer the copy's loops are not plain
        walking = [_walking(own, d) for d in range(len(own[0].sizes))]
        along = [d for d, axes in enumerate(walking) if lane in axes]
        if len(along) > 1:
            return None
        last = len(self.extents)
        keys = [(d in along, min(axes, default=last)) for d, axes in enumerate(walking)]
        order = tuple(sorted(range(len(keys)), key=keys.__getitem__))
        return None if order == tuple(range(len(order))) else order

    @property
    def instances(self) -> int:
        """How often the block runs."""
        return prod(self.extents)


def _walking(reads: Sequence[Access], dimension: int) -> list[int]:
    """The axes that walk a dimension of a buffer that several operands share."""
    moves = [a.moves[dimension] or () for a in reads]
    return [n for n in range(len(reads[0].uses)) if any(m[n] for m in moves if m)]


def bytes_of(nests: Sequence[Nest]) -> int:
    """Bytes that a round of several nests reads and writes."""
    found: dict[Buffer, int] = {}
    for own in nests:
        for a in (*own.reads, *own.results):
            found[a.buffer] = max(found.get(a.buffer, 0), _touched(own.extents, a))
    return sum(b.dtype.nbytes(n) for b, n in found.items())


def _touched(extents: Sequence[int], access: Access) -> int:
    """Elements that all iterations touch."""
    elements = 1
    for size, moves in zip(access.sizes, access.moves, strict=True):
        if moves is None:
            run = prod(n for n, uses in zip(extents, access.gathers, strict=True) if uses)
        else:
            run = 1 + sum((n - 1) * abs(m) for n, m in zip(extents, moves, strict=True))
        elements *= min(size, run)
    return elements


def nest(
    block: Block,
    extents: tuple[int, ...] = (),
    rounds: int = 1,
    shared: frozenset[Buffer] = frozenset(),
) -> Nest | None:
    """What a sketch knows of a block; None if it is none that a nest describes: it has a single
    result, stores values of different elements, runs in an order of its own, or not everywhere.
    extents, rounds: where it runs for a part of its axes each time; shared: the buffers that rounds
    share, the parameters."""
    kinds = {a.kind for a in block.axes}
    if block.where is not None or "ordered" in kinds or not kinds >= {"reduce", "spatial"}:
        return None
    if any(isinstance(n, Block) for n in visit(block.body)):
        return None
    own = written(block)
    axes = [a.var for a in block.axes]
    found = stores(block.body)
    if len({n.indices for n in found}) != 1 or len({n.buffer for n in found}) != len(found):
        return None
    arms = [n for n in visit(block.body) if isinstance(n, Select)]
    guarded = {load for arm in arms for side in (arm.then, arm.other) for load in loads(side)}
    read = dict.fromkeys(n for n in loads(block.body) if n.buffer not in own)

    def access(n: Load | Store) -> Access:
        is_own = rounds > 1 and n.buffer not in shared
        return _access(n.buffer, n.indices, axes, n in guarded, is_own)

    whole = tuple(estimate(a.extent) for a in block.axes)
    return Nest(
        block.name,
        extents or whole,
        tuple(a.kind == "reduce" for a in block.axes),
        tuple(access(n) for n in read),
        tuple(access(n) for n in found),
        _operations(block.body, adds=True),
        max((n.buffer.dtype for n in found), key=lambda t: t.bits),
        rounds,
        whole,
    )


def _access(
    buffer: Buffer, indices: tuple[Expr, ...], axes: list[Var], guarded: bool, is_own: bool
) -> Access:
    moves = tuple(_moves(i, axes) for i in indices)
    used = [free_vars(i) for i in indices]
    gathered = [found for found, plain in zip(used, moves, strict=True) if plain is None]
    sizes = tuple(estimate(d) for d in buffer.shape)
    return Access(
        buffer,
        sizes,
        moves,
        tuple(any(v in found for found in used) for v in axes),
        tuple(any(v in found for found in gathered) for v in axes),
        guarded,
        is_own,
    )


def _moves(index: Expr, axes: list[Var]) -> tuple[int, ...] | None:
    terms = Forms({}).affine(index).terms
    if any(not isinstance(t, Var) and free_vars(t) & {*axes} for t in terms):
        return None
    return tuple(terms.get(v, 0) for v in axes)


def _operations(body: Stmt, *, adds: bool) -> float:
    """Vector operations that an instance takes. A product that is added costs nothing by itself;
    nor do several of them that a sum in registers takes one by one, where the block `adds` up."""
    total = 0.0
    for n in dict.fromkeys(visit(body)):
        if isinstance(n, Unary):
            total += 1.0 if n.op in CHEAP_UNARY else COSTLY
        elif isinstance(n, Binary) and _is_value(n):
            costly = n.op in COSTLY_BINARY and n.dtype.is_float
            total += DIVISION if costly else 1.0
            products = _is_product(n.a) + _is_product(n.b)
            if n.op in (BinaryOp.add, BinaryOp.sub):
                total -= products if adds else min(products, 1)
        elif isinstance(n, Select):
            total += 1.0
    return max(1.0, total)


def _is_value(n: Binary) -> bool:
    """Is it computed of what is read, and not an index?"""
    return any(isinstance(m, Load) for m in visit(n))


def _is_product(e: Expr) -> bool:
    return isinstance(e, Binary) and e.op is BinaryOp.mul
