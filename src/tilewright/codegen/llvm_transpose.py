"""Transposition in registers: what unrolled vectors read across memory is read along it.

In: an unrolled loop around a vectorised one, in which some load walks neighbouring elements from
one vector to the next, and far ones from lane to lane. Out: a line of memory for each lane, and
instructions that transpose them into the vectors, log2(lanes) steps of interleaving. A vector alone
would have to be collected one element after the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tilewright.arith.linear import slope
from tilewright.codegen.llvm_builder import Builder
from tilewright.ir.expr import BinaryOp, Call, Expr, Load, Select, as_int
from tilewright.ir.stmt import For, If, Seq, Store
from tilewright.ir.walk import free_vars

_ADD, _SUB, _MUL = BinaryOp.add, BinaryOp.sub, BinaryOp.mul
BLOCK = 16  # bytes that machines interleave without a table of indices
FEW_STEPS = 2  # exchanges that the code generator may try to join: of more it finds nothing, in a
# search so long that a copy's code took twice the time
FENCED = {"double": "f64", "float": "f32"}  # types that a fence takes, by LLVM's short names
BYTES = {"double": 8, "float": 4, "i64": 8, "i32": 4, "i16": 2, "i8": 1}

Guards = tuple[tuple[Expr, bool], ...]  # conditions, and which way each must be


Candidates = tuple[For, list[tuple[Load, Guards]]]  # a vectorised loop, its loads, their guards


def transposable(stmt: For, cover: int) -> Candidates | None:
    """The vectorised loop that is the body of an unrolled one, and its loads with what guards
    them, where that is the same in every round; None if it does more than store. Left out are loads
    that plainly do not walk on from round to round, or whose lanes `cover` vectors hold."""
    loop = stmt.body
    if not isinstance(loop, For) or loop.kind != "vectorize":
        return None
    body, guards = loop.body, ()
    if isinstance(body, If) and body.other is None:
        body, guards = body.then, ((body.cond, True),)
    stores = [*body.stmts] if isinstance(body, Seq) else [body]
    if not all(isinstance(s, Store) for s in stores):
        return None
    written = {s.buffer for s in stores if isinstance(s, Store)}
    found = [
        (load, conditions)
        for s in stores
        if isinstance(s, Store)
        for load, conditions in _guarded(s.value, guards)
        if load.buffer not in written
        and _may_transpose(load.indices[0], stmt, loop, cover)
        and not any(stmt.var in free_vars(c) for c, _ in conditions)
    ]
    return (loop, found) if found else None


def _may_transpose(index: Expr, rounds: For, vectors: For, cover: int) -> bool:
    """Whether an index may be one more in each round, and far from one lane to the next."""
    step, stride = slope(index, rounds.var), slope(index, vectors.var)
    lanes = as_int(vectors.extent) or 0
    near = stride is not None and abs(stride) * (lanes - 1) < cover * lanes
    return step in (1, None) and not near


def _guarded(e: Expr, guards: Guards) -> Iterator[tuple[Load, Guards]]:
    """The loads of an expression, and the conditions under which each is made."""
    if isinstance(e, Load):
        yield e, guards
    elif isinstance(e, Select):
        yield from _guarded(e.cond, guards)
        yield from _guarded(e.then, (*guards, (e.cond, True)))
        yield from _guarded(e.other, (*guards, (e.cond, False)))
    elif not (isinstance(e, Call) and e.name == "choose"):
        for child in e.children():
            if isinstance(child, Expr):
                yield from _guarded(child, guards)


def transpose(b: Builder, lines: Sequence[str], element: str, wide: int) -> list[str]:
    """The columns of a square: `wide` vectors of len(lines) elements each, from lines of `wide`
    elements; both are powers of two. Fewer lines than columns are interleaved in pairs.

    A step interleaves lines that are half of them apart: first to longer lines, and once these have
    as many elements as there were lines, to a lower and an upper half.
    """
    count, now = len(lines), list(lines)
    if wide == count:
        return _transposed(b, now, element)
    if count < wide:
        return _columns(b, now, element, wide)
    while wide < count:
        half = len(now) // 2
        order = [i for n in range(wide) for i in (n, wide + n)]
        now = [_chosen(b, now[n], now[n + half], element, wide, order) for n in range(half)]
        wide *= 2
    half = len(now) // 2
    low = [i for n in range(count // 2) for i in (n, count + n)]
    high = [i + count // 2 for i in low]
    for _ in range(len(now).bit_length() - 1):
        now = [
            _chosen(b, now[n], now[n + half], element, count, order)
            for n in range(half)
            for order in (low, high)
        ]
    return now


def _columns(b: Builder, lines: list[str], element: str, wide: int) -> list[str]:
    """`transpose` for fewer lines than columns: two become one of pairs in their lower halves of
    blocks, and one in their upper ones, of which each column is a part; of more, columns are
    joined."""
    half = len(lines) // 2
    if half > 1:
        left, right = (_columns(b, part, element, wide) for part in (lines[:half], lines[half:]))
        order = [*range(2 * half)]
        return [_chosen(b, x, y, element, half, order) for x, y in zip(left, right, strict=True)]
    block, (x, y) = min(wide, BLOCK // BYTES[element]), lines
    made = dict[int, str]()
    for part in (0, block // 2):
        order = [i for at in range(0, wide, block) for i in _pairs(at + part, block // 2, wide)]
        both = _chosen(b, x, y, element, wide, order)
        for at in range(0, wide, 2):
            made[order[at]] = _chosen(b, both, "poison", element, wide, [at, at + 1])
    return [made[n] for n in range(wide)]


def _transposed(b: Builder, lines: list[str], element: str) -> list[str]:
    """`transpose` for as many lines as columns, by the cheapest exchanges there are: inside blocks,
    and of whole blocks. Those all across a vector need a table of indices, and LLVM tries at length
    to join them.

    A step exchanges one bit of the number of a line with one of the position in it. Inside blocks,
    lines x and y become x0 y0 x1 y1 … of the lower halves of their blocks, and the same of the
    upper halves; the position's other bits move up by one, so the highest comes first. Of blocks,
    the even ones of x and then of y become one line and the odd ones the other; the other bits move
    down, so the lowest comes first.
    """
    count, now = len(lines), list(lines)
    block = min(count, BLOCK // BYTES[element])
    inside, whole = (
        [
            [start + i for start in range(0, count, block) for i in _pairs(part, block // 2, count)]
            for part in (0, block // 2)
        ],
        [
            [start + i for start in range(part, 2 * count, 2 * block) for i in range(block)]
            for part in (0, block)
        ],
    )
    own = block.bit_length() - 1
    steps = [(n, inside) for n in reversed(range(own))]
    steps += [(n, whole) for n in range(own, count.bit_length() - 1)]
    for done, (bit, orders) in enumerate(steps):
        if done and len(steps) > FEW_STEPS:
            now = [_apart(b, line, element, count) for line in now]
        for n in range(count):
            other = n | 1 << bit
            if n != other:
                x, y = now[n], now[other]
                now[n], now[other] = (_chosen(b, x, y, element, count, o) for o in orders)
    return now


def _apart(b: Builder, line: str, element: str, size: int) -> str:
    """The line behind a fence, over which LLVM joins no instructions; nothing is done there. Lines
    that hold nothing get none: joined they leave fewer."""
    if line == "poison" or element not in FENCED:
        return line
    kind = f"<{size} x {element}>"
    return b.call(kind, f"llvm.arithmetic.fence.v{size}{FENCED[element]}", [(kind, line)])


def _pairs(start: int, half: int, count: int) -> list[int]:
    """`half` positions from `start` on, each with its counterpart in a second vector of `count`."""
    return [i for n in range(start, start + half) for i in (n, count + n)]


def widened(b: Builder, line: str, element: str, size: int, wide: int) -> str:
    """A vector of `size` elements as one of `wide`, of which the last hold nothing."""
    return line if size == wide else _chosen(b, line, "poison", element, size, [*range(size)], wide)


def overlapped(b: Builder, first: str, last: str, element: str, half: int, count: int) -> str:
    """A vector of 2 * `half` elements, of which `count` are read: those that begin with one vector
    of half as many and end with another."""
    order = [*range(half), *range(3 * half - count, 2 * half)]
    return _chosen(b, first, last, element, half, order, 2 * half)


def _chosen(
    b: Builder, x: str, y: str, element: str, size: int, order: list[int], wide: int = 0
) -> str:
    if x == y == "poison":
        return "poison"
    kind, lanes = f"<{size} x {element}>", [*order, *[-1] * (wide - len(order))]
    chosen = ", ".join("i32 poison" if p < 0 else f"i32 {p}" for p in lanes)
    return b.pure(f"shufflevector {kind} {x}, {kind} {y}, <{len(lanes)} x i32> <{chosen}>", x, y)
