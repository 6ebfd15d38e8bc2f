"""Draws of control flow: branches, loops and scans, whose bodies are drawn from the table too.

A body grows like a graph; what it reads of the graph around it is captured. Its values are known
for the first round alone, so what holds of their content there is not counted on: operators that
are undefined for other contents are not drawn in loops, and the loop's results are checked whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper

from tests.differential.growth import BOOL, F16, F32, F64, I32, I64, Dims, Growth, Value
from tests.differential.reference import Unsound, type_of
from tests.differential.table import TABLE, Entry, draws, extend

DATA_DEPENDENT = {"NonZero", "Compress", "Unique", "If", "Loop", "Scan", "GroupQueryAttention"}
UNDEFINED = {"Div", "Mod", "Cast", "Range", "BitShift", "Pow"}  # for what a later round may bring
# what runs in rounds that are counted when compiling only
NESTED = {"TopK", "ScatterElements", "ScatterND", "CumSum", "LSTM", "GRU", "RNN"}
STATES = (F32, F32, F64, F16, I64, I32)


class Body(Growth):
    """A graph within a step of `outer`; `formals` are its inputs."""

    def __init__(self, outer: Growth, formals: Sequence[Value] = ()) -> None:
        super().__init__(outer.rng, outer.version, outer.symbols)
        self.outer, self.formals = outer, list(formals)
        self.count, self.float_weights = outer.count, outer.float_weights
        self.values = [*outer.values[-12:], *formals]

    def name(self, stem: str) -> str:
        return self.outer.name(stem)

    def extend(self, entries: Sequence[Entry]) -> None:
        extend(self, entries, self.int(1, 4), 24)

    @property
    def made(self) -> list[Value]:
        return [v for s in self.steps for v in s.outputs]

    def result(self, v: Value) -> Value:
        """A value as one that this body makes for this purpose."""
        return self.apply("Identity", v, exact=True)[0]

    def like(self, dtype: np.dtype[Any], dims: Dims) -> Value:
        """A result of this type and shape."""
        found = [v for v in self.made if v.dtype == dtype and v.dims == dims]
        return self.result(self.among(found) if found else self.fresh(dtype, dims))

    def graph(self, results: Sequence[Value]) -> tuple[onnx.GraphProto, list[Value]]:
        """As ONNX, and what it captures."""
        made = {*self.made, *self.formals}
        read = [v for s in self.steps for v in s.inputs if v is not None]
        free = [v for v in dict.fromkeys(read) if v not in made]
        own = [v for v in free if v.fixed and v not in self.outer.values and self.chance(0.5)]
        proto = helper.make_graph(
            [s.node for s in self.steps],
            self.name("body"),
            [helper.make_tensor_value_info(v.name, type_of(v.worlds[0]), _sizes(v))
             for v in self.formals],
            [helper.make_tensor_value_info(v.name, type_of(v.worlds[0]), None) for v in results],
            [onnx.numpy_helper.from_array(v.worlds[0], v.name) for v in own],
        )  # fmt: skip
        return proto, [v for v in free if v not in own]


def _sizes(v: Value) -> list[str | int | None]:
    return [size if size is not None else f"{v.name}_{k}" for k, size in enumerate(v.known_shape)]


def entries_for(g: Growth, rounds: bool = False, known: bool = True) -> list[Entry]:
    left_out = DATA_DEPENDENT | (UNDEFINED if rounds else set()) | (set() if known else NESTED)
    return [e for e in TABLE if e.since <= g.version and e.op not in left_out]


def truth(g: Growth) -> Value | None:
    """A condition: of the run, known when compiling, or computed."""
    way = g.among(["told", "constant", "found"])
    if way == "constant":
        return g.constant(g.int(0, 1), bool)
    found = g.pick((BOOL,), (0,)) if way == "found" else None
    return found or g.told([g.int(0, 1) for _ in range(g.count)], bool)


@draws("If", weight=1.3, since=11)
def branches(g: Growth, op: str) -> None:
    condition = truth(g)
    entries = entries_for(g)
    then, other = Body(g), Body(g)
    then.extend(entries)
    other.extend(entries)
    if not then.made:
        raise Unsound("an empty branch")
    found = [then.among(then.made) for _ in range(g.int(1, 2))]
    results = [then.result(v) for v in found]
    others = [
        other.like(v.dtype, v.dims) if g.chance(0.8)
        else other.result(other.value((v.dtype,), (v.rank,))) for v in results
    ]  # fmt: skip
    graphs = [body.graph(made) for body, made in ((then, results), (other, others))]
    captured = list(dict.fromkeys(v for _, free in graphs for v in free))
    attrs = {"then_branch": graphs[0][0], "else_branch": graphs[1][0]}
    made = g.apply(op, condition, outputs=len(found), captured=captured, rough=True, **attrs)
    pairs = zip(results, others, made, strict=True)
    g.forget([v for a, b, v in pairs if a.dims != b.dims])


def next_state(body: Body, formal: Value) -> Value:
    """What a round makes of a state: of its type and shape."""
    found = [v for v in body.made if v.dtype == formal.dtype and v.dims == formal.dims]
    if found and body.chance(0.7):
        return body.result(body.among(found))
    op = "Add" if formal.dtype.kind == "i" or body.chance(0.6) else "Tanh"
    parts = [formal] if op == "Tanh" else [formal, body.partner(formal)]
    (v,) = body.apply(op, *parts)
    return v if v.dims == formal.dims else body.result(formal)


def collected(body: Body, most: int) -> list[Value]:
    """What a round hands out beside its states."""
    return [body.result(body.among(body.made)) for _ in range(body.int(0, most)) if body.made]


@draws("Loop", weight=1, since=11)
def loop(g: Growth, op: str) -> None:
    states = [g.value(STATES, range(4)) for _ in range(g.int(1, 2))]
    counted, known, ends = g.chance(0.8), g.chance(0.4), g.chance(0.3)
    trips = None
    if counted:
        trips = g.constant(g.int(1, 5)) if known else g.told([g.int(1, 6) for _ in range(g.count)])
    runs = g.constant(True, bool) if not counted or g.chance(0.3) else None
    index, go = (Value(g.name("f"), [np.asarray(x)] * g.count) for x in (np.int64(0), np.True_))
    formals = [Value(g.name("f"), v.worlds) for v in states]
    body = Body(g, [index, go, *formals])
    body.extend(entries_for(g, True, not counted or (known and not ends)))
    ends |= not counted
    if ends:
        end = body.constant(g.int(0, 4)) if not counted or g.chance(0.6) else g.told(
            [g.int(0, 4) for _ in range(g.count)]
        )  # fmt: skip
        (stop,) = body.apply("Less", index, end, exact=True)
    else:
        stop = body.result(go)
    following = [next_state(body, f) for f in formals]
    stacked = collected(body, 2)
    proto, captured = body.graph([stop, *following, *stacked])
    count = len(states) + len(stacked)
    parts = [trips, runs, *states]
    made = g.apply(op, *parts, outputs=count, captured=captured, rough=True, body=proto)
    rounds = made[len(states) :]
    if (
        rounds
        and not (known and not ends)
        and len(set(rounds[0].dims[0])) < g.count + (g.count < 2)
    ):
        g.forget(rounds)


@draws("Scan", weight=0.8, since=11)
def scan(g: Growth, op: str) -> None:
    states = [g.value(STATES, range(4)) for _ in range(g.int(0, 2))]
    x = g.value(STATES, range(1, 4), fits=lambda v: min(map(min, v.dims)) > 0)
    axes = [g.int(0, x.rank - 1)]
    length, over = x.dims[axes[0]], [x]
    if g.declarable((length,)) and g.chance(0.4):
        over.append(g.fresh(F32, (length, *g.dims(g.int(0, 2)))))
        axes.append(0)
    formals = [Value(g.name("f"), v.worlds) for v in states]
    ways = [g.int(0, 1) for _ in over]
    for v, axis in zip(over, axes, strict=True):
        formals.append(Value(g.name("f"), [np.asarray(w.take(0, axis)) for w in v.worlds]))
    body = Body(g, formals)
    body.extend(entries_for(g, True, len(set(length)) == 1))
    following = [next_state(body, f) for f in formals[: len(states)]]
    stacked = collected(body, 2)
    if not stacked:
        stacked = [body.result(formals[-1])]
    proto, captured = body.graph([*following, *stacked])
    attrs: dict[str, Any] = {"num_scan_inputs": len(over), "body": proto}
    if axes != [0] * len(over) or g.chance(0.3):
        attrs["scan_input_axes"] = axes
    if 1 in ways:
        attrs["scan_input_directions"] = ways
    if g.chance(0.3):
        attrs["scan_output_directions"] = [g.int(0, 1) for _ in stacked]
    held = all(w.size for v in stacked for w in v.worlds)
    if held and g.chance(0.3):  # onnxruntime divides by zero where it turns empty results
        attrs["scan_output_axes"] = [g.int(0, v.rank) for v in stacked]
    count = len(states) + len(stacked)
    g.apply(op, *states, *over, outputs=count, captured=captured, rough=True, **attrs)
