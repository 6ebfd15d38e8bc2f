"""Running sums and products, in statements.

In: a tensor, an axis, and how two values combine. Out: the tensor of what is combined up to each
element. The one idea: what lies behind the axis is cut into tiles, of which each has its state in
registers while the axis goes by: an element is read once, and its result stored once. Along the
innermost axis several lines go by, a lane for each, in tiles that are transposed in registers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright import te
from tilewright.graph import sizes
from tilewright.graph.ops.movement import unravel
from tilewright.ir.dtype import DType
from tilewright.ir.expr import Buffer, Expr, Load, Var, as_int, const
from tilewright.ir.stmt import Alloc, For, If, Let, Stmt, Store, seq

LANES, VECTORS, OPEN_VECTORS = 16, 8, 4  # of a tile
LINES = (LANES, 4, 1)  # that go by at once, a lane for each: as many as there may be
SQUARE = 8  # elements of each

Combine = Callable[[Expr, Expr], Expr]


def in_tiles(
    x: Any, axis: int, exclusive: bool, reverse: bool, combine: Combine, neutral: int, wide: DType
) -> Any:
    """The combination of all elements up to each along `axis`, accumulated in `wide`; where
    `exclusive`, without the element itself. The last tile covers some of the one before again
    where tiles are no part of what lies behind the axis, of which open sizes let the run ask how
    much there is."""
    shape, length = x.shape, x.shape[axis]
    behind = sizes.product(shape[axis + 1 :])
    known = as_int(behind)

    def tile(
        source: Buffer, result: Buffer, part: Expr, first: Expr, vectors: int, width: int
    ) -> Stmt:
        """The elements from `first` on of what lies behind, in part `part` of what lies before."""
        name = f"running_{{}}_{vectors * width}"
        step, vector, lane = (Var(name.format(n)) for n in ("at", "vector", "lane"))
        behind_it = first + vector * width + lane
        before, after = unravel(part, shape[:axis]), unravel(behind_it, shape[axis + 1 :])
        at = (*before, length - 1 - step if reverse else step, *after)
        state = Buffer(name.format("state"), (const(vectors), const(width)), wide, "local")
        own = (vector, lane)

        def each(body: Stmt) -> Stmt:
            inner = For(lane, const(0), const(width), "vectorize", body)
            return For(vector, const(0), const(vectors), "unroll", inner)

        moved = Store(state, own, combine(Load(state, own), Load(source, at).astype(wide)))
        stored = Store(result, at, Load(state, own).astype(x.dtype))
        steps = seq(stored, moved) if exclusive else seq(moved, stored)
        if known is None and vectors == 1:  # less than a vector
            steps = If(behind_it < behind, steps)
        return Alloc(state, seq(
            each(Store(state, own, const(neutral, wide))),
            For(step, const(0), length, "serial", each(steps)),
        ))  # fmt: skip

    def body(inputs: list[Buffer], outputs: list[Buffer]) -> Stmt:
        work, part = (inputs[0], outputs[0]), Var("running_part")
        width = LANES if known is None else max(1, min(LANES, known))
        vectors = OPEN_VECTORS if known is None else max(1, min(VECTORS, known // width))
        size = vectors * width
        many = (behind + size - 1) // size
        first = te.minimum(part % many * size, behind - size)
        whole = tile(*work, part // many, first, vectors, width)
        if known is None:
            few = Var("running_few")
            short = tile(*work, part // many, few * width, 1, width)
            short = For(few, const(0), (behind + width - 1) // width, "serial", short)
            whole = If(behind >= size, whole, short)
        parts = sizes.size(sizes.product(shape[:axis]) * many)
        return For(part, const(0), parts, "parallel", whole)

    return te.extern([shape], [x], body, dtype=[x.dtype], name="running")[0]


def in_lines(
    x: Any, exclusive: bool, reverse: bool, combine: Combine, neutral: int, wide: DType
) -> Any:
    """`in_tiles` along the last axis. The last lines are some of those before again where lines
    are no number of groups."""
    lines, length = sizes.product(x.shape[:-1]), x.shape[-1]
    known = as_int(lines)

    def group(source: Buffer, result: Buffer, first: Expr, width: int) -> Stmt:
        """The lines from `first` on, of which lanes have one each."""
        each, lane = (Var(f"running_{n}_{width}") for n in ("block", "lane"))
        block, step = each * SQUARE, Var(f"running_at_{width}")
        many = te.minimum(const(SQUARE), length - block)
        start = te.maximum(length - block - SQUARE, const(0)) if reverse else block
        column = many - 1 - step if reverse else step
        state = Buffer(f"running_state_{width}", (const(width),), wide, "local")
        square = Buffer(f"running_square_{width}", (const(SQUARE), *state.shape), wide, "local")

        def at(line: Expr, along: Expr) -> tuple[Expr, ...]:
            return *unravel(first + line, x.shape[:-1]), start + along

        def read(along: Expr, line: Expr) -> Stmt:
            return Store(square, (along, line), Load(source, at(line, along)).astype(wide))

        def write(line: Expr, along: Expr) -> Stmt:
            return Store(result, at(line, along), Load(square, (along, line)).astype(x.dtype))

        def both(name: str, body: Callable[[Expr, Expr], Stmt], outer: Any, inner: Any) -> Stmt:
            a, b = (Var(f"running_{name}_{n}_{width}") for n in "ab")
            nest = For(b, const(0), inner[0], inner[1], body(a, b))
            return For(a, const(0), outer[0], outer[1], nest)

        def in_lanes(body: Stmt) -> Stmt:
            return For(lane, const(0), const(width), "vectorize", body)

        rows, columns = const(width), const(SQUARE)
        new, now = Load(square, (column, lane)), Load(state, (lane,))
        moved = Store(state, (lane,), combine(now, new))
        if exclusive:  # the element, and in its stead what was before it
            element = Var(f"running_element_{width}", wide)
            moved = Let(element, new, seq(
                Store(square, (column, lane), now), Store(state, (lane,), combine(now, element))
            ))  # fmt: skip
        else:
            moved = seq(moved, Store(square, (column, lane), now))
        tile = seq(
            If(
                many >= SQUARE,
                both("read", read, (columns, "unroll"), (rows, "vectorize")),
                both("read_some", read, (many, "serial"), (rows, "vectorize")),
            ),
            For(step, const(0), many, "serial", in_lanes(moved)),
            If(
                many >= SQUARE,
                both("write", write, (rows, "unroll"), (columns, "vectorize")),
                both("write_some", lambda a, b: write(b, a), (many, "serial"), (rows, "vectorize")),
            ),
        )
        walk = For(each, const(0), (length + SQUARE - 1) // SQUARE, "serial", tile)
        walk = seq(in_lanes(Store(state, (lane,), const(neutral, wide))), walk)
        return Alloc(state, Alloc(square, walk))

    def body(inputs: list[Buffer], outputs: list[Buffer]) -> Stmt:
        work, part = (inputs[0], outputs[0]), Var("running_part")

        def groups(width: int) -> Stmt:
            if width == LANES:
                return group(*work, te.minimum(part * width, lines - width), width)
            few = Var(f"running_few_{width}")  # of one part
            first = te.minimum(few * width, lines - width)
            return For(
                few, const(0), (lines + width - 1) // width, "serial", group(*work, first, width)
            )

        if known is not None:
            made = groups(next((n for n in LINES if n <= known), 1))
        else:
            widest, fewer, one = LINES
            made = If(lines >= fewer, groups(fewer), groups(one))
            made = If(lines >= widest, groups(widest), made)
        return For(part, const(0), (lines + LANES - 1) // LANES, "parallel", made)

    return te.extern([x.shape], [x], body, dtype=[x.dtype], name="running")[0]
