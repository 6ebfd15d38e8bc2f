"""`Schedule`: a function, and the trace of what was done to it.

In: a function in stage "blocks" and calls of primitives. Out: the rewritten function and a trace
that replays. The one idea: every primitive is a pure function in `primitives/`; a method here
applies it and notes the step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import update_wrapper
from typing import Any, Concatenate, ParamSpec, TypeVar, overload

from tilewright.ir.stmt import Func
from tilewright.ir.text import print_func
from tilewright.schedule import locate
from tilewright.schedule.primitives.annotate import annotate
from tilewright.schedule.primitives.bind import bind
from tilewright.schedule.primitives.blockize import blockize
from tilewright.schedule.primitives.cache_read import cache_read
from tilewright.schedule.primitives.cache_write import cache_write
from tilewright.schedule.primitives.cascade_reduction import cascade_reduction
from tilewright.schedule.primitives.compute_at import compute_at
from tilewright.schedule.primitives.compute_inline import compute_inline
from tilewright.schedule.primitives.decompose_reduction import decompose_reduction
from tilewright.schedule.primitives.double_buffer import double_buffer
from tilewright.schedule.primitives.fuse import fuse
from tilewright.schedule.primitives.merge_reduction import merge_reduction
from tilewright.schedule.primitives.pad_einsum import pad_einsum
from tilewright.schedule.primitives.parallel import parallel
from tilewright.schedule.primitives.partition_loop import partition_loop
from tilewright.schedule.primitives.prefetch import prefetch
from tilewright.schedule.primitives.reindex import reindex
from tilewright.schedule.primitives.reorder import reorder
from tilewright.schedule.primitives.reverse_compute_at import reverse_compute_at
from tilewright.schedule.primitives.reverse_compute_inline import reverse_compute_inline
from tilewright.schedule.primitives.rfactor import rfactor
from tilewright.schedule.primitives.set_scope import set_scope
from tilewright.schedule.primitives.skip_unread import skip_unread
from tilewright.schedule.primitives.skip_zeros import skip_zeros
from tilewright.schedule.primitives.software_pipeline import software_pipeline
from tilewright.schedule.primitives.split import split
from tilewright.schedule.primitives.storage_align import storage_align
from tilewright.schedule.primitives.storage_gap import storage_gap
from tilewright.schedule.primitives.tensorize import tensorize
from tilewright.schedule.primitives.tile import tile
from tilewright.schedule.primitives.transform_block_layout import transform_block_layout
from tilewright.schedule.primitives.transform_layout import transform_layout
from tilewright.schedule.primitives.unroll import unroll
from tilewright.schedule.primitives.vectorize import vectorize
from tilewright.schedule.primitives.vthread import vthread
from tilewright.schedule.trace import Plain, Step, Trace, frozen
from tilewright.support import html
from tilewright.support.errors import InternalFault, ScheduleError

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T", bound=Plain)

Chooser = Callable[[str, Any, tuple[Any, ...]], Any]  # (name, own pick, its values) -> value


def own_pick(name: str, pick: Any, values: tuple[Any, ...]) -> Any:
    """What the code that asks would take itself."""
    return pick


@overload
def _method(
    primitive: Callable[Concatenate[Func, P], Func],
) -> Callable[Concatenate[Schedule, P], None]: ...
@overload
def _method(
    primitive: Callable[Concatenate[Func, P], tuple[Func, R]],
) -> Callable[Concatenate[Schedule, P], R]: ...


def _method(primitive: Callable[..., Any]) -> Callable[..., Any]:
    """The method that applies a primitive, which gives a Func, or a Func and the call's result."""

    def apply(self: Schedule, *args: Any, **named: Any) -> Any:
        step = Step(
            primitive.__name__, frozen(args), tuple((k, frozen(v)) for k, v in named.items())
        )
        return self.take(step)

    update_wrapper(apply, primitive, ("__name__", "__doc__"), ())  # `help` shows its parameters
    PRIMITIVES[primitive.__name__] = primitive
    return apply


PRIMITIVES: dict[str, Callable[..., Func | tuple[Func, Any]]] = {}


class Schedule:
    """A function under rewriting. Handles are names: `s.split("i", 32)` gives ("i_o", "i_i").

    Each primitive rewrites `func` and adds a step to `trace`.

    Args:
        func: of `te.func`, in the form with blocks.
        choose: answers `decide` instead of the code that asks: a tuner runs the same code with its
            own answers.

    Raises:
        ScheduleError: `func` is no function; in every primitive, a need of it does not hold.
    """

    def __init__(self, func: Func, choose: Chooser | None = None) -> None:
        if not isinstance(func, Func):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ScheduleError(
                f"cannot schedule a {type(func).__qualname__}",
                "it is no function of the loop IR",
                remedy="te.func(name, inputs, outputs) makes one",
            )
        self.func: Func = func
        self.choose: Chooser = choose or own_pick
        self.trace: Trace = Trace()

    def take(self, step: Step) -> Any:
        """Apply one step; gives what the primitive gives besides the function."""
        primitive = PRIMITIVES.get(step.primitive)
        if primitive is None:
            raise ScheduleError(
                f"cannot apply '{step.primitive}'",
                f"the primitives are {', '.join(sorted(PRIMITIVES))}",
            )
        made = primitive(self.func, *step.args, **dict(step.named))
        self.func, given = made if isinstance(made, tuple) else (made, None)
        self.trace = self.trace.then(step)
        return given

    def decide(self, name: str, pick: T, values: Iterable[T]) -> T:
        """A named choice: `pick`, unless `choose` answers otherwise.

        Args:
            name: `<block>.<what>`: for which block it is, and the field's word for what is decided.
            pick: what the code that asks would take itself.
            values: what may be answered.

        Raises:
            ScheduleError: the answer is not among the values.
            InternalFault: the code that asks is wrong: the name was decided already, or the pick is
                not among the values.
        """
        values = tuple(values)
        if name in self.trace.decisions:
            raise InternalFault(f"decision '{name}' is taken twice")
        if pick not in values:
            raise InternalFault(f"decision '{name}' picks {pick}, which is none of its {values}")
        answer = self.choose(name, pick, values)
        if answer not in values:
            raise ScheduleError(
                f"cannot set decision '{name}' to {answer}",
                f"it may be one of {', '.join(map(str, values))}",
            )
        value = values[values.index(answer)]  # what equals it may be of another type
        self.trace = self.trace.decide(name, value)
        return value

    def loops(self, block: str | None = None) -> tuple[str, ...]:
        """The loops above a block, outermost first; without a block, all loops in program order."""
        if block is None:
            return locate.loop_names(self.func)
        return tuple(loop.name for loop in locate.loops_above(locate.block_path(self.func, block)))

    def blocks(self) -> tuple[str, ...]:
        """The blocks in program order."""
        return locate.block_names(self.func)

    def show(self) -> str:
        """The function as text."""
        return print_func(self.func)

    def __repr__(self) -> str:
        steps = html.counted(len(self.trace.steps), "step")
        return f"<Schedule of {self.func.name}, {steps}, loops {', '.join(self.loops()) or 'none'}>"

    def _repr_html_(self) -> str:
        program, steps, decisions = self.show(), self.trace.steps, self.trace.decisions
        parts = [html.folded("program", html.preformatted(program), program.count("\n"))]
        if steps:
            rows = [(n, str(step)) for n, step in enumerate(steps, 1)]
            table = html.table([("", "step"), *rows], left=2)
            parts.append(html.folded("trace", table, len(rows)))
        if decisions:
            table = html.table([("decision", "value"), *decisions.items()], left=2)
            parts.append(html.folded("point", table, len(decisions)))
        return html.block(f"Schedule of {self.func.name}", html.counted(len(steps), "step"), *parts)

    # One line a primitive; its import stands above.
    annotate = _method(annotate)
    bind = _method(bind)
    blockize = _method(blockize)
    cache_read = _method(cache_read)
    cache_write = _method(cache_write)
    cascade_reduction = _method(cascade_reduction)
    compute_at = _method(compute_at)
    compute_inline = _method(compute_inline)
    decompose_reduction = _method(decompose_reduction)
    double_buffer = _method(double_buffer)
    fuse = _method(fuse)
    merge_reduction = _method(merge_reduction)
    pad_einsum = _method(pad_einsum)
    parallel = _method(parallel)
    partition_loop = _method(partition_loop)
    prefetch = _method(prefetch)
    reindex = _method(reindex)
    reorder = _method(reorder)
    reverse_compute_at = _method(reverse_compute_at)
    reverse_compute_inline = _method(reverse_compute_inline)
    rfactor = _method(rfactor)
    set_scope = _method(set_scope)
    skip_unread = _method(skip_unread)
    skip_zeros = _method(skip_zeros)
    software_pipeline = _method(software_pipeline)
    split = _method(split)
    storage_align = _method(storage_align)
    storage_gap = _method(storage_gap)
    tensorize = _method(tensorize)
    tile = _method(tile)
    transform_block_layout = _method(transform_block_layout)
    transform_layout = _method(transform_layout)
    unroll = _method(unroll)
    vectorize = _method(vectorize)
    vthread = _method(vthread)


def replay(func: Func, trace: Trace) -> Schedule:
    """The schedule that `trace` gives on `func`. Raises ScheduleError if a step does not fit."""
    schedule = Schedule(func)
    schedule.trace = Trace((), trace.decisions)
    for step in trace.steps:
        try:
            schedule.take(step)
        except TypeError as error:
            told = f"see help(tilewright.Schedule.{step.primitive})"
            raise ScheduleError(
                f"cannot apply '{step.primitive}'", str(error), remedy=told
            ) from error
    return schedule
