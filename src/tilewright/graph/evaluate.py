"""Running a graph with the operators' NumPy references: the oracle for passes, frontends and
kernels.

In: a graph and arrays. Out: arrays. `precise` computes floats in f64 from the same inputs and
constants, so that the difference to an f32 result is that result's rounding error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.graph import sizes
from tilewright.graph.graph import Graph, Node, Value
from tilewright.graph.operator import OPERATORS
from tilewright.graph.ops.loop import body_of
from tilewright.ir.expr import Var, as_int
from tilewright.support.errors import InputError


def evaluate(
    graph: Graph, inputs: Sequence[Any] | Mapping[str, Any], *, precise: bool = False
) -> list[np.ndarray]:
    """The outputs of `graph`. Raises InputError if the arrays do not fit its inputs."""
    if isinstance(inputs, Mapping):
        inputs = [inputs[name] for name in graph.input_names]
    arrays = [np.asarray(a) for a in inputs]
    symbols = bind(graph, arrays)
    held: dict[Value, np.ndarray] = dict(zip(graph.inputs, arrays, strict=True))
    for value in graph.constants:
        held[value] = graph.array(value)
    if precise:
        held = {v: a.astype(np.float64) if v.dtype.is_float else a for v, a in held.items()}
    return _run(graph, held, symbols, precise)


def _run(
    graph: Graph, held: dict[Value, Any], symbols: dict[Var, int], precise: bool
) -> list[np.ndarray]:
    """The outputs from the inputs and constants, which are `held`."""
    last_use = {v: n for n in graph.nodes for v in n.inputs}
    kept = set(graph.outputs)
    for node in graph.nodes:
        arrays = [held[v] for v in node.inputs]
        if node.op == "measure":
            symbols.update(bound_by(node, arrays[0]))
        run = _rounds if node.op == "while_loop" else apply
        held.update(zip(node.outputs, run(node, arrays, symbols, precise), strict=True))
        for v in node.inputs:
            if last_use.get(v) is node and v not in kept:
                held.pop(v, None)
    return [held[v] for v in graph.outputs]


def _rounds(
    node: Node, arrays: Sequence[np.ndarray], symbols: dict[Var, int], precise: bool
) -> list[np.ndarray]:
    """The results of a `while_loop`; its symbols are bound to the sizes of the last states."""
    body, count = body_of(node["body"]), node["states"]
    limit, going, *values = arrays
    now, captured, rounds = values[:count], values[count:], 0
    stacks: list[list[np.ndarray]] = [[] for _ in node.outputs[1 + count :]]

    def bind_sizes() -> None:
        for value, array in zip(body.inputs[1:], now, strict=False):
            for s, n in zip(value.shape, array.shape, strict=True):
                if isinstance(s, Var) and s.name in node["symbols"]:
                    symbols[s] = n

    def stacked(value: Value, rows: list[np.ndarray]) -> np.ndarray:
        shape = tuple(sizes.at(s, symbols) for s in value.shape)
        of = np.dtype(np.float64) if precise and value.dtype.is_float else value.dtype.numpy
        whole = np.zeros(shape, of)
        if rows:
            whole[-len(rows) if node["reverse"] else 0 :][: len(rows)] = rows
        return whole

    bind_sizes()
    while going and rounds < limit:
        held = dict(zip(body.inputs, (np.asarray(rounds), *now, *captured), strict=True))
        going, *made = _run(body, held, dict(symbols), precise)
        now = made[:count]
        for rows, row in zip(stacks, made[count:], strict=True):
            rows.insert(0 if node["reverse"] else rounds, row)
        rounds += 1
        bind_sizes()
    return [np.array([rounds]), *now, *map(stacked, node.outputs[1 + count :], stacks)]


def apply(
    node: Node, arrays: Sequence[np.ndarray], symbols: Mapping[Var, int], precise: bool = False
) -> list[np.ndarray]:
    """One operator on arrays."""
    attrs = {k: sizes.numbers(v, symbols) for k, v in node.attrs}
    made = OPERATORS[node.op].reference(*arrays, **attrs)
    results = list(made) if isinstance(made, tuple) else [made]
    for n, (value, result) in enumerate(zip(node.outputs, results, strict=True)):
        result = np.asarray(result)
        goal = np.dtype(np.float64) if precise and value.dtype.is_float else value.dtype.numpy
        results[n] = result if result.dtype == goal else result.astype(goal)
        want = tuple(sizes.at(s, symbols) for s in value.shape)
        assert result.shape == want, f"{node.op} gave {result.shape} for {value!r}"
    return results


def bound_by(node: Node, array: np.ndarray) -> dict[Var, int]:
    """What a `measure` node binds. Raises InputError for negative sizes."""
    found = {Var(s): int(n) for s, n in zip(node["symbols"], array, strict=True)}
    if min(found.values(), default=0) < 0:
        raise InputError("cannot run the graph", f"{node['what']}: {array.tolist()} are no sizes")
    return found


def bind(graph: Graph, arrays: Sequence[np.ndarray]) -> dict[Var, int]:
    """The values of the symbols that make the inputs' shapes fit. Raises InputError."""
    if len(arrays) != len(graph.inputs):
        raise InputError(
            "cannot run the graph", f"it has {len(graph.inputs)} inputs, not {len(arrays)}"
        )
    symbols: dict[Var, int] = {}
    for value, array in zip(graph.inputs, arrays, strict=True):
        if len(array.shape) == len(value.shape):
            for s, n in zip(value.shape, array.shape, strict=True):
                form = sizes.linear(s)
                if form is not None:
                    symbol, scale, offset = form
                    symbols.setdefault(symbol, (n - offset) // scale)
    for value, array in zip(graph.inputs, arrays, strict=True):
        want = tuple(
            as_int(s) if as_int(s) is not None else sizes.at(s, symbols) for s in value.shape
        )
        if array.shape != want or array.dtype != value.dtype.numpy:
            raise InputError(
                f"input {value.name!r} does not fit",
                f"expected {value.type_text}, got {array.dtype}{list(array.shape)}",
            )
    for symbol, n in symbols.items():
        low, high = graph.ranges.get(symbol.name, (n, n))
        if not low <= n <= high:
            raise InputError(
                "cannot run the graph", f"{symbol.name} is {n}, expected from {low} to {high}"
            )
    for size, what in graph.required:
        if sizes.at(size, symbols) < 0:
            raise InputError("cannot run the graph", f"{what}: these sizes do not fit")
    return symbols
