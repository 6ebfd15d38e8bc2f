"""Absorb: inline elementwise blocks, so that what remains are the blocks worth scheduling.

In: a schedule. Out: the same with every block inlined whose value is cheap to repeat or read only
once. The one idea: a block may be repeated if repeating costs less than storing and loading its
result.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Sequence
from math import prod

from tilewright.arith.estimate import IMAGE, estimate_by_symbols
from tilewright.ir.expr import Binary, BinaryOp, Buffer, Cast, Load, Select, Unary, UnaryOp
from tilewright.ir.stmt import Block, Func, annotation
from tilewright.ir.walk import blocks, free_vars, loads, stores, visit
from tilewright.schedule.locate import find_block
from tilewright.schedule.schedule import Schedule
from tilewright.support.errors import ScheduleError

CHEAP_UNARY = frozenset(
    {
        UnaryOp.neg, UnaryOp.logical_not, UnaryOp.bit_not, UnaryOp.abs, UnaryOp.sign, UnaryOp.floor,
        UnaryOp.ceil, UnaryOp.round, UnaryOp.trunc, UnaryOp.isnan, UnaryOp.isinf,
    }
)  # fmt: skip
COSTLY_BINARY = frozenset({BinaryOp.pow, BinaryOp.atan2, BinaryOp.fmod, BinaryOp.div})
LONG = 8  # operators: more than a load and what it waits for
TABLE_OFTEN = 4  # times as often as there are values: then a long one is a table
MOST_REPEATED = 1.25  # times as often: no more than lanes that fill a last block, and a pass less
OFTEN = 16  # times as often as there are values: then storing them pays, cheap as they may be


def role(block: Block) -> str:
    """What part a block plays for its strategy, as its operator's definition says; "" if
    nothing.
    """
    return annotation(block, "role", "")


def is_reduction(block: Block) -> bool:
    """Does the block combine several instances into one element?"""
    return any(a.kind == "reduce" for a in block.axes)


def is_costly(block: Block) -> bool:
    """Is the block's value worth storing rather than computing again?"""
    for n in visit(block.body):
        if isinstance(n, Binary):
            if n.op in COSTLY_BINARY and n.dtype.is_float:
                return True
        elif isinstance(n, Unary) and n.op not in CHEAP_UNARY:
            return True
    return False


def is_copy(block: Block) -> bool:
    """Does the block but move what it reads?"""
    values = [s.value for s in stores(block.body)]
    return all(isinstance(v.a if isinstance(v, Cast) else v, Load) for v in values)


def instances(block: Block) -> int:
    """How often the block runs; open sizes count as those of images."""
    return prod(estimate_by_symbols(a.extent, IMAGE) for a in block.axes)


def written(block: Block) -> set[Buffer]:
    """The buffers that a block writes."""
    return {r.buffer for r in block.writes}


def readers(func: Func, block: Block) -> Iterator[Block]:
    """The blocks that read what `block` writes."""
    targets = written(block)
    for other in blocks(func.body):
        if other is not block and any(r.buffer in targets for r in other.reads):
            yield other


def absorb(schedule: Schedule, keep: Collection[str] = ()) -> None:
    """Inline elementwise blocks into their readers, first to last.

    Stays: what `keep` names, reductions, results, what `compute_inline` refuses, and blocks that
    are costly and would be computed more than `MOST_REPEATED` times as often as now, or of which a
    reduction needs each value far more often; where all blocks are elementwise, tables too (an
    axis's indices and weights). A block with the role "pad" is computed apart, and the kernels with
    a role of their own (convolutions, products) take nothing in but through their pad.
    """
    apart = not any(role(b) or is_reduction(b) for b in blocks(schedule.func.body))
    names: Sequence[str] = schedule.blocks()
    while names:  # of several readers, one may be left once they took in each other
        shared = [n for n in names if n not in keep and _stays_shared(schedule, n, apart)]
        names = [n for n in shared if len(_reading(schedule, n)) == 1]


def _stays_shared(schedule: Schedule, name: str, apart: bool) -> bool:
    """Inline one block, if it may be. True if it stays because it is costly and several read it."""
    block = find_block(schedule.func, name)
    if role(block) == "pad" or block.init is not None or is_reduction(block):
        return False
    reading = _reading(schedule, name)
    if len(reading) > 1 and is_costly(block):
        return True
    is_table = apart and _is_table(block, reading)
    if is_table or not all(_may_take(reader, block) for reader in reading):
        return False
    if written(block) & set(schedule.func.buffers):
        return False
    with contextlib.suppress(ScheduleError):  # it stays a block of its own, which is never wrong
        schedule.compute_inline(name)
    return False


def _reading(schedule: Schedule, name: str) -> list[Block]:
    return list(readers(schedule.func, find_block(schedule.func, name)))


def _is_table(block: Block, reading: Sequence[Block]) -> bool:
    """Is it long to compute, and needed far more often than it has values?"""
    inside = list(visit(block.body))
    operators = sum(isinstance(n, Binary | Unary | Cast | Select) for n in inside)
    is_long = operators >= LONG or any(isinstance(n, Cast) and _is_long(n) for n in inside)
    often = instances(block) * TABLE_OFTEN
    return is_long and all(instances(reader) >= often for reader in reading)


def _is_long(cast: Cast) -> bool:
    """Is it a float that becomes an index? Few machines have an instruction for vectors of that."""
    return cast.a.dtype.is_float and cast.dtype.is_int and cast.dtype.bits == 64


def _repeats_matrices(block: Block) -> bool:
    """Is each matrix that it stores, over its last two axes, one that it reads?"""
    last = tuple([axis.var for axis in block.axes[-2:]])
    return is_copy(block) and all(
        n.indices[-2:] == last and not any(free_vars(i) & {*last} for i in n.indices[:-2])
        for n in (*loads(block.body), *stores(block.body))
    )


def _may_take(reader: Block, block: Block) -> bool:
    if role(reader) == "matmul":
        return _repeats_matrices(block)
    if role(reader) not in ("", "pad", "columns"):
        return False
    if is_reduction(reader) and not is_copy(block):
        if instances(reader) >= OFTEN * instances(block):
            return False
    return instances(reader) <= instances(block) * MOST_REPEATED or not is_costly(block)
