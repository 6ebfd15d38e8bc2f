"""The passes that every function goes through, in one tuple, each with the reason why it stands
where it stands.

In: a Func in any stage and a Target. Out: the Func in stage "vector". A pass that not every machine
needs says what a machine must have for it. Timing, printing and verifying observe.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from tilewright.arith.simplify import simplify_func
from tilewright.ir.stmt import Alloc, Block, Func
from tilewright.ir.walk import statements
from tilewright.lower.add_products import add_products
from tilewright.lower.bound_loops import bound_loops
from tilewright.lower.carry_rows import carry_rows
from tilewright.lower.compact_buffers import compact_buffers
from tilewright.lower.covers import busy_sums
from tilewright.lower.flatten import flatten
from tilewright.lower.halve_panels import halve_panels
from tilewright.lower.hoist_buffers import hoist_buffers
from tilewright.lower.insert_barriers import insert_barriers
from tilewright.lower.jam_runs import jam_runs
from tilewright.lower.legalize_vectors import legalize_vectors
from tilewright.lower.narrow_tails import narrow_tails
from tilewright.lower.overlap_tails import overlap_tails
from tilewright.lower.overlap_tiles import overlap_tiles
from tilewright.lower.partition_loops import partition_loops
from tilewright.lower.read_lines import read_lines
from tilewright.lower.split_choices import split_choices
from tilewright.lower.split_remainders import split_remainders
from tilewright.lower.stage_rows import stage_rows
from tilewright.lower.unify_threads import unify_threads
from tilewright.lower.whole_stores import whole_stores
from tilewright.support.collector import collector_paused
from tilewright.support.record import record
from tilewright.target.target import Target

STAGES = ("blocks", "loops", "flat", "vector")
Observer = Callable[["Pass", Func, Func, float], None]


@record
class Pass:
    """A rewrite from stage `takes` to stage `gives`, for the machines that it `fits`."""

    name: str
    run: Callable[[Func, Target], Func]
    takes: str
    gives: str
    fits: Callable[[Target], bool] = lambda machine: True


def simplify(func: Func) -> Func:
    """Canonical, shorter expressions; loops that run once become their body."""
    return simplify_func(func, remove_unit_loops=True)


def _always(run: Callable[[Func], Func]) -> Callable[[Func, Target], Func]:
    """A pass that does not ask for the machine."""
    return lambda func, machine: run(func)


def _has_thread_axes(machine: Target) -> bool:
    return machine.threads is not None


def _has_no_thread_axes(machine: Target) -> bool:
    return machine.threads is None


def _has_mask_registers(machine: Target) -> bool:
    return machine.has_mask_registers


# For all machines whose code is loops, of threads or not; what differs a machine's features tell.
PIPELINE = (
    # before buffers are compacted, which must see what one thread owns
    Pass("unify_threads", _always(unify_threads), "blocks", "blocks", _has_thread_axes),
    # regions are known only while blocks stand; lowers blocks on the way out
    Pass("compact_buffers", _always(compact_buffers), "blocks", "loops"),
    # before vectors are moved to the end of a row, whose indices one side may tell by divisions
    Pass("split_choices", _always(split_choices), "loops", "loops"),
    # likewise: where a row ends may follow from the remainder
    Pass(
        "split_remainders",
        lambda func, machine: split_remainders(func, staged=machine.has_mask_registers),
        "loops",
        "loops",
    ),
    # before the last vectors of other rows are moved to their ends
    Pass(
        "whole_stores",
        _always(whole_stores),
        "loops",
        "loops",
        lambda machine: machine.has_masked_reads,
    ),
    # before tiles around are made narrower, which copies what is in them
    Pass(
        "overlap_tails",
        lambda func, machine: overlap_tails(
            func,
            masks=machine.has_masks,
            holds=machine.costs.has_halves,
            staged=machine.has_mask_registers,
        ),
        "loops",
        "loops",
    ),
    # once the last vectors are whole; before loops are cut for what each element asks
    Pass("stage_rows", _always(stage_rows), "loops", "loops", _has_mask_registers),
    # before tails get code of their own, and before loops around are cut for what these loops ask
    Pass("bound_loops", _always(bound_loops), "loops", "loops"),
    # before tails of rows get code of their own, which half a panel has, too
    Pass("halve_panels", _always(halve_panels), "loops", "loops", _has_no_thread_axes),
    # before tails get code of their own
    Pass("overlap_tiles", _always(overlap_tiles), "loops", "loops"),
    # once buffers count from their tile on; conditions that it drops need no copies
    Pass(
        "narrow_tails",
        lambda func, machine: narrow_tails(func, busy_sums(machine.costs)),
        "loops",
        "loops",
    ),
    # while conditions are affine in loops of their own
    Pass("partition_loops", _always(partition_loops), "loops", "loops"),
    # once rounds at the ends have code of their own, before buffers are parts of others
    Pass("jam_runs", _always(jam_runs), "loops", "loops"),
    # once tails are made, which tell buffers of a tile's own by where they stand
    Pass("hoist_buffers", _always(hoist_buffers), "loops", "loops"),
    # one address for each access from here on
    Pass("flatten", _always(flatten), "loops", "flat"),
    # the conditions that partitioning decided fall, addresses become affine
    Pass("simplify", _always(simplify), "flat", "flat"),
    # once an element has one address, by which a sum knows itself
    Pass("add_products", _always(add_products), "flat", "flat", _has_no_thread_axes),
    # once the conditions of rows are decided, and rows are told by their addresses
    Pass("carry_rows", _always(carry_rows), "flat", "flat", _has_mask_registers),
    # once addresses are affine: remainders by few lines say no more than whose turn it is
    Pass("read_lines", _always(read_lines), "flat", "flat", _has_no_thread_axes),
    # after simplify, which may remove what would have been waited for
    Pass("insert_barriers", _always(insert_barriers), "flat", "flat", _has_thread_axes),
    # last: the lanes are the machine's
    Pass("legalize_vectors", legalize_vectors, "flat", "vector"),
)


@collector_paused()
def lower(
    func: Func,
    machine: Target,
    pipeline: tuple[Pass, ...] = PIPELINE,
    verify: Callable[..., None] | None = None,
    observers: Iterable[Observer] = (),
) -> Func:
    """Run the passes that fit the machine, from the stage that `func` is in."""
    stage = stage_of(func)
    for p in pipeline:
        if STAGES.index(p.takes) < STAGES.index(stage) or not p.fits(machine):
            continue
        before, start = func, time.thread_time()
        func = p.run(before, machine)
        seconds = time.thread_time() - start
        if verify is not None and func is not before:
            verify(func, p.gives, after=p.name, before=before)
        for see in observers:
            see(p, before, func, seconds)
    return func


def stage_of(func: Func) -> str:
    """ "blocks", "loops" or "flat", by what `func` contains ("flat" also stands for "vector")."""
    flat = all(len(p.shape) == 1 and p.strides is None for p in func.buffers)
    for s in statements(func.body):
        if isinstance(s, Block):
            return "blocks"
        if isinstance(s, Alloc) and (len(s.buffer.shape) != 1 or s.buffer.strides is not None):
            flat = False
    return "flat" if flat else "loops"
