"""Recurrences: LSTM, GRU and plain RNN layers over a sequence, and one step of an LSTM.

What does not depend on the state is not in here: the layers take the input projections of all steps
at once, x Wᵀ + b as [steps, batch, gates × hidden], one matrix product before the recurrence.
`lengths` ([batch], i64) ends sequences early: from then on the state stays and the result is 0.
`reverse` runs from the end of each sequence to its start. Sources: Hochreiter & Schmidhuber 1997;
Cho et al. 2014; ONNX LSTM-14, GRU-14, RNN-14.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright import te
from tilewright.graph import sizes
from tilewright.graph.operator import (
    OPAQUE,
    RECURRENT,
    WEIGHTED,
    Type,
    need,
    need_same_shape,
    operator,
)
from tilewright.graph.ops.activations import for_arrays, for_kernels, need_activations
from tilewright.graph.ops.elementwise import sigmoid
from tilewright.graph.quantise import MOST
from tilewright.ir.expr import Expr


def _state_types(name: str, gates: Any, weights: Any, h: Any, count: int, lengths: Any) -> Type:
    """The checks that all layers share; the type of the result [steps, batch, hidden]."""
    need(len(gates.shape) == 3, "projections must be [steps, batch, gates × hidden]")
    need_same_shape(h.shape[:-1], gates.shape[1:2], "the state must be [batch, hidden]")
    wide = sizes.size(h.shape[1] * count)
    need(
        gates.shape[2] == wide,
        f"projections have {sizes.text(gates.shape[2])} columns, {name} {count} × hidden",
    )
    if len(weights.shape) == 3:
        block = weights.shape[2]
        stand = sizes.size(_panels(h.shape[1], block) * count), h.shape[1], block
    else:
        stand = wide, h.shape[1]
    need(weights.shape == stand, f"weights must be [{count} × hidden, hidden], or in panels")
    for part in (weights, h):
        need(part.dtype is gates.dtype, f"operands have dtypes {gates.dtype} and {part.dtype}")
    need(gates.dtype.is_float, f"needs floats, not {gates.dtype}")
    if lengths is not None:
        need(lengths.dtype.is_int, "lengths must be integers")
        need_same_shape(lengths.shape, gates.shape[1:2], "lengths must be [batch]")
    return gates.dtype, (gates.shape[0], *h.shape)


def _panels(hidden: Any, block: Any) -> Any:
    """How many panels a gate has."""
    return (hidden + (block - 1)) // block


def packed_recurrent(rows: int, hidden: int, block: int) -> tuple[int, int, int]:
    """The shape of what `pack_recurrent` makes."""
    return rows // hidden * _panels(hidden, block), hidden, block


def pack_recurrent(weights: np.ndarray, block: int) -> np.ndarray:
    """[gates × hidden, hidden] → panels [gates × ⌈hidden / block⌉, hidden, block]: each is of one
    gate, whose last one zeros fill up."""
    rows, hidden = weights.shape
    gates, more = rows // hidden, -hidden % block
    whole = np.pad(weights.reshape(gates, hidden, hidden), ((0, 0), (0, more), (0, 0)))
    panels = whole.reshape(-1, block, hidden)
    return np.ascontiguousarray(panels.transpose(0, 2, 1))


def _rows(weights: np.ndarray) -> np.ndarray:
    """NumPy: weights as [gates × hidden, hidden]."""
    if weights.ndim == 2:
        return weights
    panels, hidden, block = weights.shape
    gates = panels // _panels(hidden, block)
    rows = weights.transpose(0, 2, 1).reshape(gates, -1, hidden)
    return rows[:, :hidden].reshape(-1, hidden)


def _product(
    state: Any, weights: Any, first: int, count: int, name: str
) -> Callable[[Expr, int, Expr], Expr]:
    """A state [batch, hidden] times the weights of `count` gates from gate `first` on: what stands
    in row b for the n-th of them and unit j."""
    batch, hidden = state.shape
    k = te.reduce_axis(hidden, "k")
    if len(weights.shape) == 2:
        sums = te.compute(
            (batch, sizes.size(hidden * count)),
            lambda b, j: te.sum(state[b, k] * weights[j + hidden * first, k], k),
            name=name,
        )
        return lambda b, n, j: sums[b, j + hidden * n]
    block = weights.shape[2]
    panels = _panels(hidden, block)
    sums = te.compute(
        (batch, sizes.size(panels * count), block),
        lambda b, p, i: te.sum(state[b, k] * weights[p + panels * first, k, i], k),
        name=name,
    )
    return lambda b, n, j: sums[b, j // block + panels * n, j % block]


class _Steps:
    """Which step of the input the t-th step of the computation reads, and whether a sequence still
    runs."""

    def __init__(self, count: Expr, lengths: Any, reverse: bool) -> None:
        self.count, self.lengths, self.reverse = count, lengths, reverse

    def end(self, b: Expr) -> Expr:
        return self.count if self.lengths is None else self.lengths[b].astype("i64")

    def source(self, t: Expr, b: Expr) -> Expr:
        """Step t's index in the input: itself, or mirrored in the sequence (inside the input in
        any case)."""
        if not self.reverse:
            return t
        mirrored = self.end(b) - 1 - t
        return mirrored if self.lengths is None else te.maximum(mirrored, 0)

    def runs(self, t: Expr, b: Expr, new: Expr, old: Expr) -> Expr:
        return new if self.lengths is None else te.select(t < self.end(b), new, old)

    def result(self, states: Any, name: str) -> Any:
        """The states in the order of the input, 0 after the end of a sequence."""
        if self.lengths is None and not self.reverse:
            return states
        zero = te.const(0, states.dtype)
        return te.compute(
            states.shape,
            lambda t, b, j: self.runs(t, b, states[self.source(t, b), b, j], zero),
            name=name,
        )

    def arrays(self, x: np.ndarray, back: bool = False) -> np.ndarray:
        """NumPy: the input (or, `back`, the result) in the order of the computation."""
        if self.lengths is None:
            return x[::-1] if self.reverse else x
        if not self.reverse:
            return x
        steps, batch = x.shape[:2]
        t = np.arange(steps)[:, None]
        mirrored = np.clip(np.asarray(self.lengths)[None, :] - 1 - t, 0, None)
        return x[
            np.where(t < np.asarray(self.lengths)[None, :], mirrored, t), np.arange(batch)[None, :]
        ]


def _run(x: np.ndarray, states: list[np.ndarray], lengths: Any, reverse: bool, step: Any) -> Any:
    """NumPy: (results, *last states) of step(t, x[t], *states) -> states."""
    order = _Steps(x.shape[0], lengths, reverse)  # type: ignore[arg-type]
    moved, results = order.arrays(x), []
    for t in range(x.shape[0]):
        new = step(t, moved[t], *states)
        runs = None if lengths is None else (t < np.asarray(lengths))[:, None]
        states = (
            new
            if runs is None
            else [np.where(runs, a, b) for a, b in zip(new, states, strict=True)]
        )
        results.append(states[0] if runs is None else np.where(runs, states[0], 0))
    stacked = np.stack(results) if results else np.zeros((0, *states[0].shape), x.dtype)
    return (order.arrays(stacked, back=True), *states)


def _lstm_type(
    gates: Any, weights: Any, h: Any, c: Any, peephole: Any = None, lengths: Any = None, *,
    reverse: bool = False, clip: float | None = None, activations: tuple[str, ...] = (),
    rounds: bool = False,
) -> list[Type]:  # fmt: skip
    of, shape = _state_types("an LSTM", gates, weights, h, 4, lengths)
    need(c.dtype is of, "both states must have one dtype")
    need_same_shape(c.shape, h.shape, "both states must have one shape")
    if peephole is not None:
        need(peephole.shape == (sizes.size(h.shape[1] * 3),), "peepholes must be [3 × hidden]")
    need_activations(activations or ("sigmoid", "tanh", "tanh"), 3)
    return [(of, shape), (of, h.shape), (of, h.shape)]


def _lstm(gates, weights, h, c, peephole=None, lengths=None, *, reverse, clip, activations, rounds):  # type: ignore[no-untyped-def]
    weights = _rows(weights)
    f, g, k = (for_arrays(a) for a in activations or ("sigmoid", "tanh", "tanh"))
    p = np.zeros(3 * h.shape[1], h.dtype) if peephole is None else peephole
    pi, pf, po = np.split(p, 3)

    def bound(x: np.ndarray) -> np.ndarray:
        return x if clip is None else np.clip(x, -clip, clip)

    def step(t: int, x: np.ndarray, h: np.ndarray, c: np.ndarray) -> list[np.ndarray]:
        there = True if lengths is None else (t <= np.asarray(lengths))[:, None]
        state = _rounded(h, there) if rounds else h
        i, fo, gg, o = np.split(x + state @ weights.T, 4, axis=1)
        new = f(bound(fo + pf * c)) * c + f(bound(i + pi * c)) * g(bound(gg))
        return [f(bound(o + po * new)) * k(new), new]

    return _run(gates, [h, c], lengths, reverse, step)


def _rounded(x: np.ndarray, there: Any) -> np.ndarray:
    """As graph.quantise.rounded, by the range of the rows that are `there`."""
    some = np.where(there, x, x.dtype.type(0))
    low, high = some.min(initial=0), some.max(initial=0)
    scale = (high - low) / x.dtype.type(MOST) if high > low else x.dtype.type(1)
    at = np.clip(np.rint(-low / scale), 0, MOST)
    return (np.clip(np.rint(x / scale) + at, 0, MOST) - at) * scale


def _rounded_state(h: Any, t: Expr, order: _Steps) -> Any:
    """The same of a state [batch, hidden] before step t, as tensor expressions. Sequences that had
    ended before the last step count as 0."""
    zero, most = te.const(0, h.dtype), te.const(MOST, h.dtype)

    def extreme(reduce: Any, held: Any, name: str) -> Any:
        b, j = (te.reduce_axis(s, f"{name}_{k}") for k, s in enumerate(h.shape))
        part = order.runs(t - 1, b, h[b, j], zero)
        found = te.compute((1,), lambda _: reduce(part, (b, j)), name=f"lstm_{name}")
        return held(found[0], zero)

    low, high = extreme(te.min, te.minimum, "low"), extreme(te.max, te.maximum, "high")

    def parameters(_: Expr) -> Any:
        scale = te.select(high > low, (high - low) / most, te.const(1, h.dtype))
        return scale, te.maximum(te.minimum(te.round((zero - low) / scale), most), zero)

    scale, at = te.compute((1,), parameters, name="lstm_scale")

    def value(b: Expr, j: Expr) -> Expr:
        q = te.round(h[b, j] / scale[0]) + at[0]
        return (te.maximum(te.minimum(q, most), zero) - at[0]) * scale[0]

    return te.compute(h.shape, value, name="lstm_rounded")


@operator(fusion=OPAQUE, infer=_lstm_type, reference=_lstm, traits=WEIGHTED | RECURRENT)
def lstm(
    gates: Any, weights: Any, h: Any, c: Any, peephole: Any = None, lengths: Any = None, *,
    reverse: bool = False, clip: float | None = None, activations: tuple[str, ...] = (),
    rounds: bool = False,
) -> Any:  # fmt: skip
    """An LSTM layer: (h of every step [steps, batch, hidden], the last h, the last c).

    Gates stand in the order input, forget, cell, output; peepholes in the order input, forget,
    output. `activations`: of the gates, of the cell gate, of the cell (default sigmoid, tanh,
    tanh). `rounds`: h is rounded to eight bits by its own range before each product. Weights may
    stand in panels (`pack_recurrent`).
    """
    f, g, k = (for_kernels(a) for a in activations or ("sigmoid", "tanh", "tanh"))
    hidden, shape = h.shape[1], h.shape
    order = _Steps(gates.shape[0], lengths, reverse)

    def bound(x: Expr) -> Expr:
        if clip is None:
            return x
        return te.maximum(te.minimum(x, te.const(clip, x.dtype)), te.const(-clip, x.dtype))

    def step(t: Expr, h: Any, c: Any) -> Any:
        state = _rounded_state(h, t, order) if rounds else h
        sums = _product(state, weights, 0, 4, "lstm_matmul")

        def gate(n: int, b: Expr, j: Expr, cell: Expr, hole: int | None) -> Expr:
            value = gates[order.source(t, b), b, j + hidden * n] + sums(b, n, j)
            if peephole is not None and hole is not None:
                value = value + peephole[j + hidden * hole] * cell
            return bound(value)

        def cell(b: Expr, j: Expr) -> Expr:
            old = c[b, j]
            new = f(gate(1, b, j, old, 1)) * old + f(gate(0, b, j, old, 0)) * g(
                gate(2, b, j, old, None)
            )
            return order.runs(t, b, new, old)

        after = te.compute(shape, cell, name="lstm_c")

        def out(b: Expr, j: Expr) -> Expr:
            return order.runs(t, b, f(gate(3, b, j, after[b, j], 2)) * k(after[b, j]), h[b, j])

        now = te.compute(shape, out, name="lstm_h")
        return now, after, now

    h, c, hs = te.scan(step, (h, c), gates.shape[0], "lstm", stacks=False)
    return order.result(hs, "lstm_result"), h, c


def _gru_type(
    gates: Any, weights: Any, bias: Any, h: Any, lengths: Any = None, *,
    reverse: bool = False, reset_after: bool = True, clip: float | None = None,
    activations: tuple[str, ...] = (),
) -> list[Type]:  # fmt: skip
    of, shape = _state_types("a GRU", gates, weights, h, 3, lengths)
    need(bias.shape == (h.shape[1],) and bias.dtype is of, "the state's bias must be [hidden]")
    need_activations(activations or ("sigmoid", "tanh"), 2)
    return [(of, shape), (of, h.shape)]


def _gru(gates, weights, bias, h, lengths=None, *, reverse, reset_after, clip, activations):  # type: ignore[no-untyped-def]
    weights = _rows(weights)
    f, g = (for_arrays(a) for a in activations or ("sigmoid", "tanh"))
    hidden = h.shape[1]

    def bound(x: np.ndarray) -> np.ndarray:
        return x if clip is None else np.clip(x, -clip, clip)

    def step(_: int, x: np.ndarray, h: np.ndarray) -> list[np.ndarray]:
        both = x[:, : 2 * hidden] + h @ weights[: 2 * hidden].T
        z, r = f(bound(both[:, :hidden])), f(bound(both[:, hidden:]))
        last = weights[2 * hidden :].T
        inner = r * (h @ last + bias) if reset_after else (r * h) @ last + bias
        return [(1 - z) * g(bound(x[:, 2 * hidden :] + inner)) + z * h]

    return _run(gates, [h], lengths, reverse, step)


@operator(fusion=OPAQUE, infer=_gru_type, reference=_gru, traits=WEIGHTED | RECURRENT)
def gru(
    gates: Any, weights: Any, bias: Any, h: Any, lengths: Any = None, *,
    reverse: bool = False, reset_after: bool = True, clip: float | None = None,
    activations: tuple[str, ...] = (),
) -> Any:  # fmt: skip
    """A GRU layer: (h of every step, the last h). Gates stand in the order update, reset, new.

    The new gate is g(x + r (h Rᵀ + bias)), or with reset_after=False g(x + (r h) Rᵀ + bias).
    Weights may stand in panels (`pack_recurrent`).
    """
    f, g = (for_kernels(a) for a in activations or ("sigmoid", "tanh"))
    hidden, shape, one = h.shape[1], h.shape, te.const(1, h.dtype)
    order = _Steps(gates.shape[0], lengths, reverse)

    def bound(x: Expr) -> Expr:
        if clip is None:
            return x
        return te.maximum(te.minimum(x, te.const(clip, x.dtype)), te.const(-clip, x.dtype))

    def step(t: Expr, h: Any) -> Any:
        def x(n: int, b: Expr, j: Expr) -> Expr:
            return gates[order.source(t, b), b, j + hidden * n]

        sums = _product(h, weights, 0, 2, "gru_matmul")
        reset = te.compute(
            shape, lambda b, j: f(bound(x(1, b, j) + sums(b, 1, j))), name="gru_reset"
        )
        if reset_after:
            last = _product(h, weights, 2, 1, "gru_new_matmul")

            def inner(b: Expr, j: Expr) -> Expr:
                return reset[b, j] * (last(b, 0, j) + bias[j])
        else:
            scaled = te.compute(shape, lambda b, j: reset[b, j] * h[b, j], name="gru_scaled")
            last = _product(scaled, weights, 2, 1, "gru_new_matmul")

            def inner(b: Expr, j: Expr) -> Expr:
                return last(b, 0, j) + bias[j]

        def new(b: Expr, j: Expr) -> Expr:
            z = f(bound(x(0, b, j) + sums(b, 0, j)))
            value = (one - z) * g(bound(x(2, b, j) + inner(b, j))) + z * h[b, j]
            return order.runs(t, b, value, h[b, j])

        now = te.compute(shape, new, name="gru_h")
        return now, now

    h, hs = te.scan(step, h, gates.shape[0], "gru", stacks=False)
    return order.result(hs, "gru_result"), h


def _rnn_type(
    gates: Any, weights: Any, h: Any, lengths: Any = None, *,
    reverse: bool = False, clip: float | None = None, activation: str = "tanh",
) -> list[Type]:  # fmt: skip
    of, shape = _state_types("an RNN", gates, weights, h, 1, lengths)
    need_activations((activation,), 1)
    return [(of, shape), (of, h.shape)]


def _rnn(gates, weights, h, lengths=None, *, reverse, clip, activation):  # type: ignore[no-untyped-def]
    weights = _rows(weights)
    f = for_arrays(activation)

    def step(_: int, x: np.ndarray, h: np.ndarray) -> list[np.ndarray]:
        value = x + h @ weights.T
        return [f(value if clip is None else np.clip(value, -clip, clip))]

    return _run(gates, [h], lengths, reverse, step)


@operator(fusion=OPAQUE, infer=_rnn_type, reference=_rnn, traits=WEIGHTED | RECURRENT)
def rnn(
    gates: Any, weights: Any, h: Any, lengths: Any = None, *,
    reverse: bool = False, clip: float | None = None, activation: str = "tanh",
) -> Any:  # fmt: skip
    """A plain recurrent layer h' = activation(x + h Rᵀ): (h of every step, the last h). Weights
    may stand in panels (`pack_recurrent`)."""
    f = for_kernels(activation)
    order = _Steps(gates.shape[0], lengths, reverse)

    def step(t: Expr, h: Any) -> Any:
        sums = _product(h, weights, 0, 1, "rnn_matmul")

        def new(b: Expr, j: Expr) -> Expr:
            value = gates[order.source(t, b), b, j] + sums(b, 0, j)
            if clip is not None:
                value = te.maximum(
                    te.minimum(value, te.const(clip, h.dtype)), te.const(-clip, h.dtype)
                )
            return order.runs(t, b, f(value), h[b, j])

        now = te.compute(h.shape, new, name="rnn_h")
        return now, now

    h, hs = te.scan(step, h, gates.shape[0], "rnn", stacks=False)
    return order.result(hs, "rnn_result"), h


def _cell_type(gates: Any, c: Any, *, order: tuple[int, ...] = (0, 1, 2, 3)) -> list[Type]:
    need(len(c.shape) == 2 and len(gates.shape) == 2, "gates and cell must be matrices")
    need(
        gates.shape == (c.shape[0], sizes.size(c.shape[1] * 4)), "gates must be [batch, 4 × hidden]"
    )
    need(
        gates.dtype is c.dtype and c.dtype.is_float,
        f"operands have dtypes {gates.dtype} and {c.dtype}",
    )
    need(sorted(order) == [0, 1, 2, 3], f"{order} is no order of four gates")
    return [(c.dtype, c.shape), (c.dtype, c.shape)]


def _cell(gates: np.ndarray, c: np.ndarray, order: tuple[int, ...]) -> Any:
    parts = np.split(gates, 4, axis=1)
    i, f, g, o = (parts[n] for n in order)
    new = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(new), new


@operator(fusion=OPAQUE, infer=_cell_type, reference=_cell)
def lstm_cell(gates: Any, c: Any, *, order: tuple[int, ...] = (0, 1, 2, 3)) -> Any:
    """What follows the matrix products in one step of an LSTM: (h, c) from the gates' sums and the
    last c.

    `order`: which quarter of `gates` is the input, the forget, the cell and the output gate.
    """
    hidden = c.shape[1]

    def at(b: Expr, j: Expr) -> Any:
        i, f, g, o = (gates[b, j + hidden * n] for n in order)
        new = te.sigmoid(f) * c[b, j] + te.sigmoid(i) * te.tanh(g)
        return te.sigmoid(o) * te.tanh(new), new

    return te.compute(c.shape, at, name="lstm_cell")
