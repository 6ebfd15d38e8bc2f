"""Strings as rows of code points (u32, zeros at the ends): where they come apart, and what a finite
automaton says of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright import te
from tilewright.graph import sizes
from tilewright.graph.operator import OPAQUE, Type, need, operator
from tilewright.ir.dtype import dtype
from tilewright.ir.expr import Buffer, Expr, Load, Var, const, eq, minimum, ne, select
from tilewright.ir.stmt import For, If, Stmt, Store, seq

I64 = dtype("i64")


def _split_type(x: Any, marks: Any, *, length: int = 0, most: int = -1) -> list[Type]:
    need(x.dtype.name == "u32" and len(x.shape) == 2, "needs rows of code points (u32)")
    need(marks.dtype.is_bool and marks.shape == x.shape, "needs a truth value for each letter")
    parts = (x.shape[0], sizes.size(x.shape[1] + 1))
    return [(I64, parts), (I64, parts), (I64, (x.shape[0],))]


def _split(x: np.ndarray, marks: np.ndarray, length: int, most: int) -> Any:
    starts, ends = (np.zeros((x.shape[0], x.shape[1] + 1), np.int64) for _ in range(2))
    counts = np.zeros(x.shape[0], np.int64)
    for r, row in enumerate(x):
        size = int((row != 0).sum())
        parts: list[tuple[int, int]] = []
        at = 0
        while True:
            while not length and at < size and marks[r, at]:
                at += 1
            if not length and at == size:
                break
            left = most < 0 or len(parts) < most
            later = np.flatnonzero(marks[r, at:size]) if left else ()
            if len(later) == 0:
                parts.append((at, size))
                break
            parts.append((at, at + int(later[0])))
            at = parts[-1][1] + length
        counts[r] = len(parts)
        for k, (start, end) in enumerate(parts):
            starts[r, k], ends[r, k] = start, end
    return starts, ends, counts


@operator(fusion=OPAQUE, infer=_split_type, reference=_split)
def split_text(x: Any, marks: Any, *, length: int = 0, most: int = -1) -> Any:
    """Where the parts of each row start and end, and how many there are: apart where a mark of
    `length` letters begins (0: at runs of marked letters, which also fall away at the start and the
    end), at most so many times (-1: as often as there are)."""

    def body(inputs: list[Buffer], outputs: list[Buffer]) -> Stmt:
        (text, marked), (starts, ends, counts) = inputs, outputs
        r, k, i = Var("split_row"), Var("split_clear"), Var("split_at")
        width, zero, closed = text.shape[1], const(0), const(-1)
        count = Load(counts, (r,))
        first = Load(starts, (r, count))
        here = Load(text, (r, i))
        mark: Expr = Load(marked, (r, i))
        if most >= 0:
            mark = mark & (count < most)

        def cut(after: Expr) -> Stmt:
            """A part ends here; the next starts at `after`."""
            return seq(
                Store(ends, (r, count), i),
                Store(counts, (r,), count + 1),
                Store(starts, (r, count), after),
            )

        size = Load(ends, (r, width))  # held there until the row is done
        if length:
            each: Stmt = If((i >= first) & mark, cut(i + length))
            begin, last = zero, None
        else:
            space = Load(marked, (r, i)) | eq(here, const(0, "u32"))
            opens = If(eq(space, const(False, "bool")), Store(starts, (r, count), i))
            each = If(eq(first, closed), opens, If(mark, cut(closed)))
            begin, last = closed, ne(first, closed)
        measure = For(i, zero, width, "serial", If(
            ne(here, const(0, "u32")), Store(ends, (r, width), i + 1)))  # fmt: skip
        end = seq(
            Store(ends, (r, count), size),
            Store(counts, (r,), count + 1),
        )
        rest = end if last is None else If(last, end, Store(starts, (r, count), zero))
        clear = seq(Store(starts, (r, k), zero), Store(ends, (r, k), zero))
        row = seq(
            For(k, zero, width + 1, "serial", clear),
            Store(counts, (r,), zero),
            Store(starts, (r, zero), begin),
            For(i, zero, width, "serial", each),
            measure,
            rest,
            If(count <= width, Store(ends, (r, width), zero)),
        )
        return For(r, zero, text.shape[0], "serial", row)

    parts = (x.shape[0], sizes.size(x.shape[1] + 1))
    shapes, types = [parts, parts, (x.shape[0],)], [I64] * 3
    return te.extern(shapes, [x, marks], body, dtype=types, name="split_text")


def _automaton_type(x: Any, table: Any) -> Type:
    need(x.dtype is I64 and len(x.shape) == 2, "needs rows of classes (i64)")
    need(table.dtype is I64 and len(table.shape) == 2, "its table is [states, classes] of i64")
    return I64, (x.shape[0],)


def _automaton(x: np.ndarray, table: np.ndarray) -> np.ndarray:
    state = np.zeros(x.shape[0], np.int64)
    for k in range(x.shape[1]):
        state = table[state, x[:, k]]
    return state


@operator(fusion=OPAQUE, infer=_automaton_type, reference=_automaton)
def automaton(x: Any, table: Any) -> Any:
    """The state after each row of x: from state 0 on, table[state, class] after each class."""

    def body(inputs: list[Buffer], outputs: list[Buffer]) -> Stmt:
        (classes, step), (state,) = inputs, outputs
        r, i, zero = Var("automaton_row"), Var("automaton_at"), const(0)
        here = Load(state, (r,))
        most = step.shape[1] - 1
        sort = Load(classes, (r, i))
        held = select(sort < 0, zero, minimum(sort, most))
        after = Store(state, (r,), Load(step, (here, held)))
        row = seq(Store(state, (r,), zero), For(i, zero, classes.shape[1], "serial", after))
        return For(r, zero, classes.shape[0], "serial", row)

    return te.extern([(x.shape[0],)], [x, table], body, dtype=[I64], name="automaton")
