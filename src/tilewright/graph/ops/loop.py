"""Loops whose number of rounds only the run knows: a graph as the body of a recurrence.

The body stands in an attribute as a graph's text, without constants: what it reads from outside
are inputs. Rounds go on while the count is not reached and the condition holds; each state is kept
as it was from then on, so that a loop that ends early is a recurrence of the greatest length whose
last steps change nothing.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from tilewright import te
from tilewright.graph import sizes
from tilewright.graph.builder import symbols_of
from tilewright.graph.graph import Graph, Value
from tilewright.graph.operator import OPAQUE, OPERATORS, Type, need, operator
from tilewright.graph.parse import parse
from tilewright.ir.dtype import bool_, dtype
from tilewright.ir.expr import Call, Expr, Var

ONE = (sizes.size(1),)
Sizes = tuple[Any, ...]


@lru_cache(256)
def body_of(text: str) -> Graph:
    """The graph in a loop's attribute."""
    return parse(text)


def unseen(body: Graph) -> tuple[Var, ...]:
    """The symbols of a body that the shapes of its inputs do not show, in order of appearance."""
    seen = set(sizes.symbols(s for v in body.inputs for s in v.shape))
    return tuple(dict.fromkeys(s for n in body.nodes for s in symbols_of(n) if s not in seen))


def _loop_type(
    limit: Any, go: Any, *values: Any, body: str, states: int, length: Any, extents: Sizes = ()
) -> list[Type]:
    graph = body_of(body)
    need(limit.dtype.name == "i64" and limit.shape == (), "its limit is one i64")
    need(go.dtype.is_bool and go.shape == (), "its condition is one bool")
    need(0 <= states <= len(values), f"{states} states need as many inputs")
    asked = [(v.dtype, v.shape) for v in graph.inputs[2:]]
    need(asked == [(v.dtype, v.shape) for v in values], "its inputs are not those of its body")
    need(not graph.constants, "its body has constants")
    for node in graph.nodes:
        entry = OPERATORS[node.op]
        inside = entry.fusion is not OPAQUE or node.op == "loop"
        need(inside, f"{node.op} does not run inside a loop")
    after = [(v.dtype, v.shape) for v in graph.outputs]
    need(len(after) > states, "its body gives fewer values than it has states")
    need(after[0] == (go.dtype, ()), "its body gives no condition")
    for n, (state, new) in enumerate(zip(values[:states], after[1:], strict=False)):
        need(new == (state.dtype, state.shape), f"state {n} changes its type")
    rows = [(t, (sizes.size(length), *shape)) for t, shape in after[1 + states :]]
    return [(dtype("i64"), ONE), *after[1 : 1 + states], *rows]


def _loop(
    limit: np.ndarray,
    go: np.ndarray,
    *values: np.ndarray,
    body: str,
    states: int,
    length: int,
    extents: Sizes = (),
) -> tuple[np.ndarray, ...]:
    graph, rounds = body_of(body), 0
    symbols: dict[Var, Any] = {
        s: n
        for v, a in zip(graph.inputs[2:], values, strict=True)
        for s, n in zip(v.shape, np.shape(a), strict=True)
        if isinstance(s, Var)
    }
    symbols |= dict(zip(unseen(graph), extents, strict=True))
    now, captured = list(values[:states]), values[states:]
    rows = [
        np.zeros((length, *(sizes.at(s, symbols) for s in v.shape)), v.dtype.numpy)
        for v in graph.outputs[1 + states :]
    ]
    running = bool(go)
    while running and rounds < limit:
        held: dict[Value, Any] = dict(
            zip(graph.inputs, (np.int64(rounds), np.bool_(running), *now, *captured), strict=True)
        )
        for node in graph.nodes:
            attrs = {k: sizes.numbers(a, symbols) for k, a in node.attrs}
            made = OPERATORS[node.op].reference(*[held[v] for v in node.inputs], **attrs)
            results = made if isinstance(made, tuple) else (made,)
            for v, a in zip(node.outputs, results, strict=True):
                wide = v.dtype.is_float and np.asarray(a).dtype == np.float64
                held[v] = np.asarray(a) if wide else np.asarray(a, v.dtype.numpy)
        running, *made = (held[v] for v in graph.outputs)  # type: ignore[assignment]
        now = made[:states]
        for row, value in zip(rows, made[states:], strict=True):
            row[rounds] = value
        rounds += 1
        running = bool(running)
    return np.array([rounds]), *now, *rows


@operator(fusion=OPAQUE, infer=_loop_type, reference=_loop)
def loop(
    limit: Any, go: Any, *values: Any, body: str, states: int, length: Any, extents: Sizes = ()
) -> Any:
    """Rounds of `body` while fewer than `limit` were run and its condition holds: (how many there
    were, the last states, what each round gave beside them [length, …], then zeros).

    values: the states and what the body reads; the body takes (round, condition, *values) and
    gives (condition, *states, *rows). length: at least 0 and, if `go` holds, at
    least `limit`. Where it is 0 nothing is read but the first states. extents: the symbols of
    the body that are `unseen`.
    """
    graph = body_of(body)
    now, captured = values[:states], values[states:]
    zero = te.compute(ONE, lambda i: te.const(0, "i64"), name="loop_rounds")
    first = te.compute((), lambda: go[()], name="loop_go")

    def round_(t: Expr, going: Any, count: Any, *before: Any) -> Any:
        live = te.compute((), lambda: going[()] & (t < limit[()]), name="loop_live")
        index = te.compute((), lambda: t + te.const(0, "i64"), name="loop_round")
        held: dict[Value, Any] = dict(
            zip(graph.inputs, (index, going, *before[:states], *captured), strict=True)
        )
        for node in graph.nodes:
            made = OPERATORS[node.op].define(*[held[v] for v in node.inputs], **dict(node.attrs))
            results = made if isinstance(made, tuple | list) else (made,)
            held.update(zip(node.outputs, results, strict=True))
        goes, *made = (held[v] for v in graph.outputs)
        kept = [
            te.compute(
                old.shape, lambda *i, new=new, old=old: te.select(live[()], new[i], old[i]),
                name=f"loop_state_{k}",
            )
            for k, (new, old) in enumerate(zip(made[:states], before, strict=False))
        ]  # fmt: skip
        rows = [
            te.compute(
                v.shape,
                lambda *i, v=v: te.select(live[()], v[i], te.const(0, v.dtype)),
                name=f"loop_gives_{k}",
            )
            for k, v in enumerate(made[states:])
        ]
        on = te.compute((), lambda: Call("again", (live[()] & goes[()], t), bool_), name="loop_on")
        more = te.compute(
            ONE, lambda i: count[i] + live[()].astype("i64"), name="loop_counted"
        )  # fmt: skip
        return on, more, *kept, *rows

    start = (first, zero, *now)
    _, *results = te.scan(round_, start, sizes.size(length), "loop", stacks=False)
    return tuple(results)
