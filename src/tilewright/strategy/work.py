"""How much work a function is: floating-point operations and elements touched, counted from its
blocks, and whether it is worth the start of a parallel region."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from math import prod

from tilewright.arith.affine import Forms
from tilewright.arith.estimate import estimate
from tilewright.ir.dtype import DType, f32
from tilewright.ir.expr import (
    Binary,
    BinaryOp,
    Buffer,
    Const,
    Expr,
    Load,
    Unary,
    Var,
    as_int,
    const,
    minimum,
)
from tilewright.ir.stmt import Block, For, Func, Stmt, Store
from tilewright.ir.walk import blocks, free_vars, loads, reads, stores, visit
from tilewright.strategy.absorb import is_reduction, role
from tilewright.target.target import Target

ADDED = 4  # bytes of results that take as long as a number that is added to a sum
BYTES_PER_CYCLE = 16  # of results at best: what takes less than a parallel region is not worth one
FINE = 64  # parts of a cycle that are counted
PRODUCTS = frozenset(
    "attention conv_packed conv_transpose_packed dense_packed depthwise_packed "
    "depthwise_transpose_packed matmul pointwise_packed winograd_product".split()
)  # roles of blocks whose every instance is a multiply-add in registers


def flops(func: Func) -> Expr:
    """Floating-point operations of a function in stage "blocks" (a multiply-add counts two)."""
    total: Expr = const(0)
    for block in blocks(func.body):
        each = sum(n.__class__ in _OPERATORS and n.a.dtype.is_float for n in visit(block.body))  # type: ignore[attr-defined]
        if each:
            total = total + _product(tuple([axis.extent for axis in block.axes]), each)
    return total


def touched(func: Func) -> dict[Buffer, Expr]:
    """How many elements of each parameter a function in stage "blocks" reads or writes at most,
    each counted once: all of what it stores to; of the others, no more than the elements
    that its loads point at, for a look-up reads few rows of a large table, a slice a part of its
    operand."""
    written: set[Buffer] = set()
    read: dict[Buffer, Expr] = {}
    for block in blocks(func.body):
        extents = {axis.var: axis.extent for axis in block.axes}
        found: set[Load] = set()
        for n in visit(block):
            if n.__class__ is Load:
                found.add(n)  # type: ignore[arg-type]
            elif n.__class__ is Store:
                written.add(n.buffer)  # type: ignore[attr-defined]
        for load in found:
            read[load.buffer] = read.get(load.buffer, const(0)) + _elements(load.indices, extents)
    whole = {buffer: _product(buffer.shape) for buffer in func.buffers}
    return {
        buffer: minimum(count, read[buffer]) if buffer in read and buffer not in written else count
        for buffer, count in whole.items()
    }


def stored_type(block: Block) -> DType:
    """The dtype of the widest element that an instance stores: of a sum, the one in which it is
    accumulated."""
    return max((s.buffer.dtype for s in stores(block.body)), key=_bits, default=f32)


def operand_type(block: Block) -> DType:
    """The dtype of the widest element that an instance reads beside what it stores."""
    own = {s.buffer for s in stores(block.body)}
    read = (n.buffer.dtype for n in loads(block.body) if n.buffer not in own)
    return max(read, key=_bits, default=stored_type(block))


def _bits(of: DType) -> int:
    return of.bits


def bytes_made(block: Block) -> int:
    """What an instance counts for: the bytes that it stores, or what one number that it adds takes
    as long as."""
    return ADDED if is_reduction(block) else stored_type(block).nbytes(1)


def is_worth_a_region(found: Iterable[Block], target: Target) -> bool:
    """Whether making the results of these blocks takes longer than a parallel region does to start.
    Where only the run knows how many they are it may: `spare_time` tells the run."""
    size = 0
    for block in found:
        extents = [as_int(axis.extent) for axis in block.axes]
        if None in extents:
            return True
        size += prod(filter(None, extents)) * bytes_made(block)
    return size >= target.costs.fork_join * BYTES_PER_CYCLE


def spare_time(func: Func, target: Target, found: Iterable[Block] | None = None) -> Expr:
    """About how much longer (in 1 / FINE of a cycle) than a parallel region to start a function in
    stage "blocks" takes on one thread, or some of its blocks: below zero it is not worth one.
    Products read weights beside what they multiply: few rows wait for them."""
    found = [*(blocks(func.body) if found is None else found)]
    padded = {s.buffer for b in blocks(func.body) if role(b) == "pad" for s in stores(b.body)}
    made: dict[tuple[Expr, ...], float] = {}
    multiplied: dict[tuple[Expr, ...], float] = {}
    for block in found:
        extents = _instances(block, padded) or _rounds(block.body, frozenset())
        known = prod(e.value for e in extents if isinstance(e, Const))
        if role(block) in PRODUCTS:
            counts = multiplied
            each = 1 / (target.lanes(stored_type(block).bits) * target.costs.multiply_adds)
        else:
            counts = made
            each = bytes_made(block) / BYTES_PER_CYCLE
        unknown = tuple(e for e in extents if not isinstance(e, Const))
        counts[unknown] = counts.get(unknown, 0.0) + known * each
    total = _cycles(made) - round(FINE * target.costs.fork_join)
    if multiplied:
        fixed = [
            prod(filter(None, n)) * b.dtype.bits // 8
            for b in func.buffers
            if None not in (n := [as_int(e) for e in b.shape])
        ]
        read = sum(fixed) / target.costs.l2
        hidden = 1 - target.costs.overlap_penalty  # of the shorter of the two
        slow = _cycles(multiplied) + round(FINE * read)
        shorter = minimum(_cycles(multiplied, hidden), const(round(FINE * read * hidden)))
        total = total + slow - shorter
    return total


def _cycles(counts: Mapping[tuple[Expr, ...], float], share: float = 1.0) -> Expr:
    """The sum of products of extents, each times so many cycles, in 1 / FINE of a cycle."""
    total: Expr = const(0)
    for extents, cycles in counts.items():
        total = total + _product(extents, max(1, round(FINE * cycles * share)))
    return total


def _instances(block: Block, padded: Collection[Buffer]) -> tuple[Expr, ...]:
    """The extents of a block's axes; of taps that lie apart on a padded image, as many as meet
    results along their axis: those that meet padding are left out."""
    extents = {axis.var: axis.extent for axis in block.axes}
    reduced = {axis.var for axis in block.axes if axis.kind == "reduce"}
    for load in loads(block.body):
        for index in load.indices if load.buffer in padded else ():
            terms = Forms({}).affine(index).terms
            steps = [(v, c) for v, c in terms.items() if isinstance(v, Var) and v in extents]
            if len(steps) == 2 and [v in reduced for v, _ in steps] == [False, True]:
                (pixel, step), (tap, apart) = steps
                if apart > step:
                    met = (extents[pixel] * step + apart - 1) // apart
                    extents[tap] = minimum(extents[tap], met)
    return tuple(extents.values())


def _rounds(s: Stmt, inside: frozenset[Var]) -> tuple[Expr, ...]:
    """How often each loop of a statement's longest nest goes round, of which nothing else is known:
    one whose end follows from another's round, or from data, counts once. `inside`: loops around.
    """
    if isinstance(s, For):
        counted = _told(s.extent, inside)
        return (*(() if counted is None else (counted,)), *_rounds(s.body, inside | {s.var}))
    nests = [_rounds(c, inside) for c in s.children() if isinstance(c, Stmt)]
    return max(nests, key=lambda n: prod(map(estimate, n)), default=())


def _told(extent: Expr, inside: frozenset[Var]) -> Expr | None:
    """An extent, or the most that it may be, if sizes tell it."""
    if isinstance(extent, Binary) and extent.op is BinaryOp.min:
        sides = [e for e in (extent.a, extent.b) if _told(e, inside) is not None]
        return extent if len(sides) == 2 else next(iter(sides), None)
    return None if reads(extent) or free_vars(extent) & inside else extent


def spare_times(func: Func, target: Target, launches: Sequence[Collection[str]]) -> list[Expr]:
    """`spare_time` of each launch of a function, told by the names of the buffers it touches: the
    padded copy of an image is no product. Of one that makes nothing first it is that of all."""
    made: list[list[Block]] = [[] for _ in launches]
    inside: list[Block] = []  # a launch, which keeps what they make for itself
    for block in blocks(func.body):
        inside.append(block)
        stored = {s.buffer.name for s in stores(block.body)}
        for n, names in enumerate(launches):
            if not stored.isdisjoint(names):
                made[n] += inside
                inside = []
                break
    return [spare_time(func, target, found or None) for found in made]


def _elements(indices: tuple[Expr, ...], extents: Mapping[Var, Expr]) -> Expr:
    """Elements that these indices point at: no more than the axes they follow from allow."""
    axes = {var for index in indices for var in free_vars(index)}
    return _product(tuple(extent for var, extent in extents.items() if var in axes))


def _product(extents: tuple[Expr, ...], times: int = 1) -> Expr:
    numbers = [e.value for e in extents if isinstance(e, Const)]
    total: Expr = const(times * prod(numbers))
    if len(numbers) < len(extents):
        for extent in extents:
            total = total if isinstance(extent, Const) else total * extent
    return total


_OPERATORS = frozenset({Binary, Unary})
