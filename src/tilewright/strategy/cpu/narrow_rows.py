"""narrow_rows: rows of few elements have a version of half vectors.

In: a function in stage "blocks" and a machine. Out: below which size its rows are better off with a
schedule for half as long vectors, and that; None where they never are. A row of open length
ends with a vector of which some lanes are off; where rows are short, that vector is most of them.
The one idea: a machine that makes each vector of two halves takes half as long for one of them, so
that a row of 17 elements is three halves, not two wholes; and where rows are known to be short,
little is left of what long ones ask.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tilewright.ir.expr import Expr, Select, Var, as_int, const
from tilewright.ir.stmt import Block, Func
from tilewright.ir.walk import blocks, contains
from tilewright.schedule.schedule import Chooser, Schedule
from tilewright.strategy.absorb import absorb, is_copy, is_costly, is_reduction
from tilewright.strategy.cpu.contiguous import contiguous, is_moved_near
from tilewright.strategy.cpu.pointwise import runs, vector_lanes
from tilewright.strategy.cpu.reduction import has_windows, is_open_row
from tilewright.strategy.roles import family
from tilewright.strategy.select import FAMILY, scheduled
from tilewright.support.record import record
from tilewright.target.target import Target

FAMILIES = ("pointwise", "reduction")
SHORT = 3  # vectors: rows that are not as long
COSTLY = 2  # likewise, where a value costs more than to read it


@record
class Narrow:
    """When a function is better off with a version for short rows, the machine of half as long
    vectors that it is for, and whether it only moves what it reads, in whatever order."""

    cond: Expr
    func: Func
    target: Target
    moves: bool

    def schedule(
        self, threads: int, choose: Chooser | None = None, strategy: str = FAMILY
    ) -> Schedule:
        """The version; see `scheduled`."""

        def chosen(name: str, pick: Any, values: tuple[Any, ...]) -> Any:
            """Short rows have no independent vectors beside each other."""
            own = 1 if name.endswith(".interleave") and 1 in values else pick
            return choose(name, own, values) if choose else own

        return scheduled(self.func, self.target, threads, chosen, strategy)


def narrow_rows(func: Func, target: Target) -> Narrow | None:
    """The version of `func` for short rows; None if it has none, with whatever threads."""
    symbols = any(isinstance(p, Var) for p in func.params)
    if not symbols or not target.has_masks or not target.costs.has_halves:
        return None
    if family(func) not in FAMILIES:
        return None
    whole = Schedule(func)
    absorb(whole)
    found = blocks(whole.func.body)
    if any(map(has_windows, found)):
        return None
    sums = [b for b in found if is_reduction(b)]
    rows = {_reduced(b) for b in sums} if sums else {_row(b, target) for b in found}
    (length,) = rows if len(rows) == 1 else (None,)
    moves = all(map(is_copy, found))
    if length is None or not (sums or moves or not any(map(is_copy, found))):
        return None
    lanes = min(vector_lanes(b, target) for b in found)
    half = replace(target, vector_bytes=target.vector_bytes // 2, costs=target.costs.of_halves)
    along = [b for b in found if any(a.extent == length for a in b.axes)]
    most = COSTLY if any(map(is_costly, along)) else SHORT
    cond = length < const(most * lanes)
    if moves:  # what fits in one vector is faster moved under a mask than as two halves
        cond = (length > const(lanes)) & cond
    return Narrow(cond, func, half, moves)


def _reduced(block: Block) -> Expr | None:
    """How long the rows are that a block reduces; None where it reduces something else."""
    if not is_open_row(block):
        return None
    along = next(a for a in block.axes if a.kind == "reduce" and as_int(a.extent) != 1)
    return along.extent if contiguous(block, along.var) else None


def _row(block: Block, target: Target) -> Expr | None:
    """How long the rows are that a block computes one element after the other; None where they are
    of known length, where all of them are one run, or where what is read lies elsewhere: of what is
    but moved, further apart than a few loads cover."""
    *outer, last = block.axes or (None,)
    if last is None or as_int(last.extent) is not None or contains(block.body, Select):
        return None
    near = is_moved_near if is_copy(block) else contiguous
    if not near(block, last.var):
        return None
    run = runs(block, len(block.axes), vector_lanes(block, target))[-1]
    several = any(as_int(a.extent) != 1 for a in outer)
    return last.extent if several and len(run) == 1 else None
