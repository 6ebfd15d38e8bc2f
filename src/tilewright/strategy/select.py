"""Select: which strategy schedules a function.

In: a function in stage "blocks" and a machine. Out: its default schedule. A function has at most
one anchor, the block whose operator's definition gave it a role; its family schedules the whole.
One with two products is an attention; others are reductions or pointwise.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.ir.expr import as_int
from tilewright.ir.stmt import Func, annotated
from tilewright.ir.walk import blocks
from tilewright.schedule.schedule import Chooser, Schedule
from tilewright.strategy.absorb import absorb, is_reduction, role
from tilewright.strategy.chains import shorten_chains
from tilewright.strategy.cpu.attention import attention, scores
from tilewright.strategy.cpu.convolution import convolution, transposed
from tilewright.strategy.cpu.depthwise import depthwise, depthwise_transposed
from tilewright.strategy.cpu.generic import generic
from tilewright.strategy.cpu.pointwise import pointwise
from tilewright.strategy.cpu.product import dense, matmul, pointwise_product
from tilewright.strategy.cpu.reduction import reduction
from tilewright.strategy.cpu.response import response
from tilewright.strategy.cpu.winograd import winograd
from tilewright.support.errors import ScheduleError
from tilewright.target.target import Target

Family = Callable[[Schedule, Target, int], None]

FAMILIES: dict[str, Family] = {
    "attention": attention,
    "conv_packed": convolution,
    "conv_transpose_packed": transposed,
    "dense_packed": dense,
    "depthwise_packed": depthwise,
    "depthwise_transpose_packed": depthwise_transposed,
    "matmul": matmul,
    "pointwise": pointwise,
    "pointwise_packed": pointwise_product,
    "reduction": reduction,
    "squares": response,
    "winograd_product": winograd,
}


def family(func: Func) -> str:
    """The family that schedules a function: "attention", the role of its anchor, "reduction" or
    "pointwise". The steps of a recurrence have no anchor: none of their blocks is alone."""
    found = blocks(func.body)
    plain = "reduction" if any(is_reduction(b) for b in found) else "pointwise"
    if any(axis.kind == "ordered" for b in found for axis in b.axes):
        return plain
    if scores(func):
        return "attention"
    return next((role(b) for b in found if role(b) in FAMILIES), plain)


def default(func: Func, target: Target, threads: int = 1, *, strict: bool = False) -> Schedule:
    """The default schedule of `func` on `target`, for `threads` threads.

    Where a primitive refuses what a strategy wants, the function runs on one thread; where that is
    refused too, it takes the generic schedule. Its annotation "fallback" says which, and why.
    `strict` raises the ScheduleError instead.
    """
    try:
        return scheduled(func, target, threads)
    except ScheduleError as fault:
        if strict:
            raise
        why = f"{fault.what}: {fault.why}"
    if threads > 1:
        try:
            return scheduled(_falling_back(func, f"one thread, {why}"), target, 1)
        except ScheduleError:
            pass  # then it was not for the threads
    schedule = Schedule(func)
    left = generic(schedule, target, threads)
    text = "the generic schedule" + (f" (plain loops: {', '.join(left)})" if left else "")
    schedule.func = _falling_back(schedule.func, f"{text}, {why}")
    shorten_chains(schedule)
    return schedule


def _falling_back(func: Func, why: str) -> Func:
    return func.replace(annotations=annotated(func.annotations, "fallback", why))


def scheduled(func: Func, target: Target, threads: int, choose: Chooser | None = None) -> Schedule:
    """`func` scheduled by the family of its anchor; what is empty stays as it was written.

    `choose` takes the decisions in the strategies' place.
    """
    schedule = Schedule(func, choose=choose)
    if any(as_int(axis.extent) == 0 for b in blocks(func.body) for axis in b.axes):
        return schedule
    absorb(schedule, keep=scores(schedule.func))
    FAMILIES[family(schedule.func)](schedule, target, threads)
    shorten_chains(schedule)
    return schedule
