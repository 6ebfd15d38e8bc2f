"""Translators of ONNX control flow: branches chosen or merged, loops and scans of known length
unrolled, other loops as native recurrences (`loops.py`)."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.frontend.onnx.choice import either
from tilewright.frontend.onnx.data_dependent import of_one_shape
from tilewright.frontend.onnx.loops import (
    computed_once,
    length_of,
    loop_of_the_run,
    native_scan,
    within,
)
from tilewright.frontend.onnx.registry import NodeContext, Refusal, Sequence, translates
from tilewright.frontend.onnx.tensors import axis, cut
from tilewright.graph.graph import Value
from tilewright.ir.expr import as_int

LONGEST = 256  # rounds of a loop that is unrolled


@translates("If")
def branch(n: NodeContext) -> Any:
    """The branch that a known condition chooses; else both are computed and the condition
    selects."""
    then, other = n.graph("then_branch"), n.graph("else_branch")
    condition = n.build.constants.get(n[0])
    if condition is not None:
        if condition.array.size != 1:
            raise Refusal("its condition must hold one truth value")
        return n.importer.inline(then if bool(condition.array.reshape(-1)[0]) else other, [])
    once = n.build.emit("reshape", n[0], shape=()) if n[0].rank else n[0]
    return either(n, once, [lambda g=g: n.importer.inline(g, []) for g in (then, other)])


@translates("Loop")
def loop(n: NodeContext) -> Any:
    """A loop: its rounds one after the other if they are known and few, else one kernel, or rounds
    of the host program's."""
    body = n.graph("body")
    for k in (0, 1):
        if n.optional(k) is not None and n[k] not in n.build.constants:
            return loop_of_the_run(n, body)
    count = None if n.optional(0) is None else int(n.scalar(0))
    runs = True if n.optional(1) is None else bool(n.scalar(1))
    if count is not None and count > LONGEST:
        return loop_of_the_run(n, body)
    state = [
        v if isinstance(v := n.optional(k), Sequence) else n[k] for k in range(2, len(n.inputs))
    ]
    stacked: list[list[Value]] = [[] for _ in range(len(body.output) - 1 - len(state))]
    if stacked and (not runs or (count is not None and count < 1)):
        return loop_of_the_run(n, body)  # it knows the shape of rows that there are none of
    scope, rest = computed_once(n, body)
    rounds = 0
    while runs and (count is None or rounds < count):
        if rounds >= LONGEST:
            return loop_of_the_run(n, body)
        index = n.build.constant(np.asarray(rounds, np.int64))
        go = n.build.constant(np.asarray(True))
        with within(n, scope):
            made = n.importer.inline(rest, [index, go, *state])
        if made[0] not in n.build.constants:
            return loop_of_the_run(n, body)
        runs = bool(n.build.constants[made[0]].array.reshape(-1)[0])
        state = list(made[1 : 1 + len(state)])
        for rows, value in zip(stacked, made[1 + len(state) :], strict=True):
            rows.append(value)
        rounds += 1
    return (*state, *[stack(n, rows, 0) for rows in stacked])


@translates("Scan")
def scan(n: NodeContext) -> Any:
    """Step by step where the number of steps is known, else as a native loop; in version 8 for
    each element of a batch."""
    if n.version < 9:
        return batched_scan(n)
    body, count = n.graph("body"), n.int("num_scan_inputs", 0)
    states = [n[k] for k in range(len(n.inputs) - count)]
    inputs = [n[k] for k in range(len(n.inputs) - count, len(n.inputs))]
    made_count = len(body.output) - len(states)
    axes = [
        axis(n, a, x.rank)
        for a, x in zip(n.ints("scan_input_axes", (0,) * count), inputs, strict=True)
    ]
    backwards = n.ints("scan_input_directions", (0,) * count)
    out_axes = n.ints("scan_output_axes", (0,) * made_count)
    out_backwards = n.ints("scan_output_directions", (0,) * made_count)
    length = length_of(inputs, axes)
    known = as_int(length)
    if not known or known > LONGEST:
        states, whole = native_scan(n, states, inputs, axes, backwards)
        return (
            *states,
            *(
                stacked_along(n, rows, axis(n, a, rows.rank), bool(back))
                for rows, a, back in zip(whole, out_axes, out_backwards, strict=True)
            ),
        )
    states, stacked = steps(n, states, inputs, axes, backwards)
    results = []
    for rows, a, back in zip(stacked, out_axes, out_backwards, strict=True):
        at = axis(n, a, rows[0].rank + 1)
        results.append(stack(n, rows[::-1] if back else rows, at))
    return (*states, *results)


def stacked_along(n: NodeContext, rows: Value, at: int, backwards: bool) -> Value:
    """Rows along a first axis, reversed perhaps, along axis `at`."""
    if backwards:
        positions = n.build.emit("arange", length=rows.shape[0], start=-1, step=-1)
        rows = n.build.emit("gather", rows, positions, axis=0)
    if not at:
        return rows
    order = [*range(1, rows.rank)]
    return n.build.emit("transpose", rows, perm=(*order[:at], 0, *order[at:]))


def batched_scan(n: NodeContext) -> Any:
    """Version 8: states [batch, …] and inputs [batch, steps, …]."""
    count = n.int("num_scan_inputs", 0)
    if n.optional(0) is not None:
        raise Refusal("its sequences have lengths of their own", "convert it to version 9")
    given = [n[k] for k in range(1, len(n.inputs))]
    backwards = n.ints("directions", (0,) * count)
    batch = {as_int(x.shape[0]) for x in given}
    if len(batch) != 1 or None in batch:
        raise Refusal("its batch must be known and the same for all inputs")
    results: list[list[Value]] = []
    for b in range(batch.pop() or 0):
        own = [row(n, x, 0, b) for x in given]
        at = len(own) - count
        states, stacked = steps(n, own[:at], own[at:], [0] * count, backwards)
        results.append([*states, *(stack(n, rows, 0) for rows in stacked)])
    return tuple(stack(n, list(column), 0) for column in zip(*results, strict=True))


def steps(
    n: NodeContext, states: list[Value], inputs: list[Value], axes: list[int], backwards: Any
) -> tuple[list[Value], list[list[Value]]]:
    """The states after the last step, and what each step gave beside them."""
    body = n.graph("body")
    length = as_int(length_of(inputs, axes))
    if length is None or length > LONGEST:
        raise Refusal(f"it must have a known number of steps of at most {LONGEST}")
    stacked: list[list[Value]] = [[] for _ in range(len(body.output) - len(states))]
    scope, rest = computed_once(n, body)
    for t in range(length):
        rows = [
            row(n, x, a, length - 1 - t if back else t)
            for x, a, back in zip(inputs, axes, backwards, strict=True)
        ]
        with within(n, scope):
            made = n.importer.inline(rest, [*states, *rows])
        states = list(made[: len(states)])
        for kept, value in zip(stacked, made[len(states) :], strict=True):
            kept.append(value)
    return states, stacked


def row(n: NodeContext, x: Value, at: int, t: int) -> Value:
    """x at position t of an axis, without that axis."""
    part = cut(n, x, at, t, 1)
    return n.build.emit("reshape", part, shape=(*x.shape[:at], *x.shape[at + 1 :]))


def stack(n: NodeContext, rows: list[Value], at: int) -> Value:
    """Tensors of one shape along a new axis."""
    if not rows:
        raise Refusal("it makes stacked outputs in no rounds", "convert it to version 9")
    rows = of_one_shape(n, rows, "the shape of the rows")
    first = rows[0].shape
    shape = (*first[:at], 1, *first[at:])
    parts = [n.build.emit("reshape", r, shape=shape) for r in rows]
    return parts[0] if len(parts) == 1 else n.build.emit("concat", *parts, axis=at)
