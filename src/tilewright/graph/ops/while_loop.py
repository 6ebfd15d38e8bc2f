"""Loops that the host program runs: any graph is their body.

The body stands in an attribute as a graph's text, as that of a `loop` does. But a round is no part
of a kernel: it is a program of its own, so its operators may be any, and the states may have other
sizes after it than before. Rows of which there are as many as rounds are written where they stay.
"""

from __future__ import annotations

from typing import Any, NoReturn

from tilewright.graph import sizes
from tilewright.graph.graph import Graph, Node, Value
from tilewright.graph.operator import (
    HOST,
    OPAQUE,
    Type,
    need,
    operator,
)
from tilewright.graph.ops.loop import ONE, Sizes, body_of, unseen
from tilewright.ir.dtype import dtype
from tilewright.ir.expr import Expr, Var


def spoken_of(body: Graph) -> tuple[Var, ...]:
    """The symbols of a body that neither its inputs show nor its nodes bind."""
    bound = set(body.data_dependent)
    return tuple(s for s in unseen(body) if s not in bound)


def states_of(node: Node) -> tuple[Value, ...]:
    """How many rounds a loop had, and its last states: they lie where the host program says. None
    of another node."""
    return node.outputs[: 1 + node["states"]] if node.op == "while_loop" else ()


def _while_type(
    limit: Any,
    go: Any,
    *values: Any,
    body: str,
    states: int,
    symbols: tuple[str, ...],
    extents: Sizes = (),
    length: Any = None,
    reverse: bool = False,
) -> list[Type]:
    graph, own = body_of(body), {Var(s) for s in symbols}

    def fits(have: Any, asked: Any) -> bool:
        pairs: zip[tuple[Expr, Expr]] = zip(have.shape, asked.shape, strict=False)
        same = have.dtype is asked.dtype and len(have.shape) == len(asked.shape)
        return same and all(a == b or b in own for a, b in pairs)

    need(limit.dtype.name == "i64" and limit.shape == (), "its limit is one i64")
    need(go.dtype.is_bool and go.shape == (), "its condition is one bool")
    need(0 <= states <= len(values), f"{states} states need as many inputs")
    given, after = graph.inputs[1:], graph.outputs
    need(len(values) == len(given), "its inputs are not those of its body")
    need(all(map(fits, values, given)), "its inputs are not those of its body")
    need(not graph.constants, "its body has constants")
    rows = after[1 + states :]
    need(
        len(after) > states and (not rows or length is not None),
        "its body gives other values than it has states",
    )
    need(all(own.isdisjoint(sizes.symbols(v.shape)) for v in rows), "its rows change their shape")
    need(after[0].dtype.is_bool and after[0].shape == (), "its body gives no condition")
    for n, (new, state) in enumerate(zip(after[1 : 1 + states], given, strict=False)):
        need(fits(new, state), f"state {n} changes its type")
    count = sizes.size(0 if length is None else length)
    stacks = [(v.dtype, (count, *v.shape)) for v in rows]
    return [(dtype("i64"), ONE), *((v.dtype, v.shape) for v in given[:states]), *stacks]


def _by_evaluate(*values: Any, **attrs: Any) -> NoReturn:
    raise NotImplementedError("`evaluate` runs the rounds: it knows the symbols around them")


@operator(fusion=OPAQUE, infer=_while_type, reference=_by_evaluate, traits=HOST)
def while_loop(
    limit: Any,
    go: Any,
    *values: Any,
    body: str,
    states: int,
    symbols: tuple[str, ...],
    extents: Sizes = (),
    length: Any = None,
    reverse: bool = False,
) -> Any:
    """Rounds of `body` while fewer than `limit` were run and its condition holds: (how many there
    were, the last states, the rows of all rounds).

    values: the states and what the body reads; the body takes (round, *values) and gives
    (condition, *states, *rows). symbols: sizes of the states that a round may change; they are in
    the shapes of the body's inputs, and those of the last states from here on. extents: the
    symbols from around it that its inputs do not show. length: where there are rows, how many
    rounds there are at most; rows of those that were not run hold anything. reverse: rows stand
    from the last to the first.
    """
    raise NotImplementedError("the host program runs the rounds")
