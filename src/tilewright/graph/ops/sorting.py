"""Sorting along an axis, in statements: a few kept in order, or all of them merged.

In: a tensor, an axis, the shape of the result, and whether the greatest come first. Out: values and
indices (and buffers that the work needs). Both are stable: of equals the first comes first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright import te
from tilewright.graph import sizes
from tilewright.ir.dtype import i64
from tilewright.ir.expr import Expr, Load, Var, as_int, eq, maximum, minimum, select
from tilewright.ir.expr import const as constant
from tilewright.ir.stmt import Alloc, Buffer, For, If, Let, Stmt, Store, seq

ZERO, ONE = constant(0), constant(1)
MOST_LEVELS = 32  # of merging four runs each, for a length that only the run knows

Places = Callable[[Expr], tuple[Expr, ...]]  # where an element along the axis lies


def loops(shape: Any, body: Any, name: str, in_vectors: bool = False) -> Stmt:
    """A nest of loops over `shape` around body(*indices), one after the other; `in_vectors`: those
    of the last axis may run together."""
    names = [Var(f"{name}{d}") for d in range(len(shape))]
    nest = body(*names)
    for d, (v, extent) in reversed(list(enumerate(zip(names, shape, strict=True)))):
        together = in_vectors and d == len(names) - 1 and (as_int(extent) or 0) > 1
        nest = For(v, constant(0), extent, "vectorize" if together else "serial", nest)
    return nest


def along(shape: sizes.Shape, axis: int, row: Callable[[Places], Stmt]) -> Stmt:
    """`row` for each line of a tensor along an axis."""

    def line(*rest: Expr) -> Stmt:
        return row(lambda at: (*rest[:axis], at, *rest[axis:]))

    rest = (*shape[:axis], *shape[axis + 1 :])
    return loops(rest, line, "sort_i") if rest else line()


def better(a: Expr, b: Expr, largest: bool) -> Expr:
    """Does a come before b? No number (NaN) counts as greater than all."""
    if not a.dtype.is_float:
        return a > b if largest else a < b
    first, last = (a, b) if largest else (b, a)
    return ~(first <= last) & eq(last, last)


def selection(x: Any, axis: int, shape: sizes.Shape, largest: bool) -> Any:
    """Each element that beats the last one kept moves up to its place among them: n steps, and k
    for each that is kept on the way."""

    def body(inputs: list[Buffer], outputs: list[Buffer]) -> Stmt:
        (source,), (values, indices) = inputs, outputs
        n, k = source.shape[axis], shape[axis]

        def row(full: Places) -> Stmt:
            seen, step = Var("sort_at"), Var("sort_step")
            new, last = Load(source, full(seen)), minimum(seen, k - 1)
            place = last - step
            here, above = full(place), full(maximum(place - 1, ZERO))
            free = eq(place, seen)  # nothing is kept there yet
            moves = (place > 0) & better(new, Load(values, above), largest)
            enters = free | better(new, Load(values, here), largest)

            def chosen(kept: Buffer, own: Expr) -> Expr:
                return select(moves, Load(kept, above), select(enters, own, Load(kept, here)))

            shift = seq(  # indices first: the values decide
                Store(indices, here, chosen(indices, seen)),
                Store(values, here, chosen(values, new)),
            )
            beaten = Load(values, full(maximum(k - 1, ZERO)))
            wanted = (seen < k) | better(new, beaten, largest)
            insert = For(step, ZERO, last + 1, "serial", shift)
            return For(seen, ZERO, n, "serial", If(wanted, insert))

        return along(source.shape, axis, row)

    types = [x.dtype, i64]
    return te.extern([shape, shape], [x], body, dtype=types, name="top_k")


def merge_sort(x: Any, axis: int, shape: sizes.Shape, largest: bool) -> Any:
    """Runs of 1, 2, 4, … elements are merged in pairs, from one buffer into the other and back."""

    def body(inputs: list[Buffer], outputs: list[Buffer]) -> Stmt:
        (source,), (values, indices, *buffers) = inputs, outputs
        n = source.shape[axis]
        ours, theirs = buffers[:2], buffers[2:]

        def row(full: Places) -> Stmt:
            at, level, kept = Var("sort_at"), Var("sort_level"), Var("sort_kept")
            width = Buffer("sort_width", (ONE,), i64, "local")
            now = Load(width, (ZERO,))
            begin = For(at, ZERO, n, "serial", seq(
                Store(ours[0], (at,), Load(source, full(at))), Store(ours[1], (at,), at)
            ))  # fmt: skip
            twice = seq(
                merged(ours, theirs, n, now, largest, "a"),
                merged(theirs, ours, n, now * 2, largest, "b"),
                Store(width, (ZERO,), now * 4),
            )
            known = as_int(n)
            rounds = MOST_LEVELS if known is None else ((max(known, 1) - 1).bit_length() + 1) // 2
            sort = For(level, ZERO, constant(rounds), "serial", If(now < n, twice))
            end = For(kept, ZERO, shape[axis], "serial", seq(
                Store(values, full(kept), Load(ours[0], (kept,))),
                Store(indices, full(kept), Load(ours[1], (kept,))),
            ))  # fmt: skip
            return Alloc(width, seq(begin, Store(width, (ZERO,), ONE), sort, end))

        return along(source.shape, axis, row)

    line = (x.shape[axis],)
    types = [x.dtype, i64, *(x.dtype, i64) * 2]
    return te.extern([shape, shape, *[line] * 4], [x], body, dtype=types, name="sort")


def merged(
    source: list[Buffer], goal: list[Buffer], n: Expr, width: Expr, largest: bool, name: str
) -> Stmt:
    """Neighbouring runs of `width` elements, in order, as runs of twice that."""
    run, at = Var(f"sort_run_{name}"), Var(f"sort_out_{name}")
    cells = [Buffer(f"sort_{side}_{name}", (ONE,), i64, "local") for side in ("left", "right")]
    left, right = (Load(c, (ZERO,)) for c in cells)
    start = run * width * 2
    middle, end = minimum(start + width, n), minimum(start + width * 2, n)
    a, b = (Load(source[0], (minimum(side, n - 1),)) for side in (left, right))
    takes_right = (right < end) & ((left >= middle) | better(b, a, largest))
    other, place = Var(f"sort_other_{name}"), Var(f"sort_place_{name}")
    move = seq(
        *(
            Store(to, (start + at,), Load(of, (place,)))
            for of, to in zip(source, goal, strict=True)
        ),
        Store(cells[0], (ZERO,), left + 1 - other),
        Store(cells[1], (ZERO,), right + other),
    )
    step = Let(place, select(eq(other, ONE), right, left), move)
    step = Let(other, select(takes_right, ONE, ZERO), step)
    inner = For(at, ZERO, end - start, "serial", step)
    begin = seq(Store(cells[0], (ZERO,), start), Store(cells[1], (ZERO,), middle))
    pairs = (n + width * 2 - 1) // (width * 2)
    body = seq(begin, inner)
    for cell in cells:
        body = Alloc(cell, body)
    return For(run, ZERO, pairs, "serial", body)
