"""Who touches which memory: what blocks read and write, in which order.

In: blocks, statements, buffers. Out: regions, readers, writers, and whether a block may move past
others. The one idea: a block's regions say all that the outside must know of it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from math import gcd

from tilewright.arith import linear
from tilewright.arith.prove import can_prove
from tilewright.arith.region import touched
from tilewright.arith.simplify import Facts
from tilewright.ir.expr import Buffer, Call, Const, Expr, Load, Var, as_int, const
from tilewright.ir.stmt import Alloc, Axis, Block, For, Func, If, Region, Seq, Stmt, seq
from tilewright.ir.walk import free_vars, fresh, loads, reads, statements
from tilewright.schedule import locate
from tilewright.schedule.domain import Ranges, conditions, ranges_at
from tilewright.schedule.locate import Path, refuse, the_block

ONE = Const(1, Var("i").dtype)
ZERO = Const(0, ONE.dtype)


def whole(buffer: Buffer) -> Region:
    """All of a buffer."""
    return Region(buffer, (ZERO,) * buffer.rank, buffer.shape)


def point(buffer: Buffer, indices: tuple[Expr, ...]) -> Region:
    """One element of a buffer."""
    return Region(buffer, indices, (ONE,) * len(indices))


def reads_of(body: Stmt, own: Collection[Buffer]) -> tuple[Region, ...]:
    """The regions that a block with this plain body reads: an element for each load.

    A load whose index is itself loaded may read anywhere in its buffer. The buffers `own`, into
    which the block accumulates, are not among the reads.
    """
    found: dict[Region, None] = {}
    anywhere: set[Buffer] = set()
    for n in loads(body):
        if n.buffer not in own:
            if any(map(reads, n.indices)):
                found[whole(n.buffer)] = None
                anywhere.add(n.buffer)
            else:
                found[point(n.buffer, n.indices)] = None
    return tuple(r for r in found if r.buffer not in anywhere or r.extents == r.buffer.shape)


def with_reads(func: Func, block: Block) -> Block:
    """The block with the reads that its body has now; a region for each buffer if it has loops."""
    own = written_buffers(block) - read_buffers(block)
    if not any(isinstance(s, For | Block) for s in statements(block.body)):
        return block.replace(reads=reads_of(block.body, own))
    found, _ = touched(block.body, Facts(ranges_at(func, [block])))
    return block.replace(reads=tuple(r for r in found if r.buffer not in own))


def read_buffers(block: Block) -> set[Buffer]:
    """The buffers that a block reads (not the result that it accumulates into)."""
    return {r.buffer for r in block.reads}


def written_buffers(block: Block) -> set[Buffer]:
    """The buffers that a block writes."""
    return {r.buffer for r in block.writes}


def touches(block: Block, buffer: Buffer) -> bool:
    """Whether a block reads or writes `buffer`."""
    return any(r.buffer == buffer for r in (*block.reads, *block.writes))


def names(block: Block, buffer: Buffer) -> bool:
    """Whether a buffer is named anywhere in a block; one allocated inside has no region there."""
    return touches(block, buffer) or any(
        isinstance(s, Block | Alloc) for s in statements(block.body)
    )


def outer_block_paths(func: Func) -> Iterator[Path]:
    """The path to each block that lies in no other block, in program order."""
    known = locate.catalogue(func)
    for at in known.blocks.values():
        path = known.path(at)
        if not any(s.__class__ is Block for s in path[:-1]):
            yield path


def conflict(a: Block, b: Block) -> Buffer | None:
    """A buffer through which the order of two blocks matters: one writes what the other touches."""
    mine = written_buffers(a)
    for region in (*b.reads, *b.writes):
        if region.buffer in mine:
            return region.buffer
    other = written_buffers(b)
    for region in a.reads:
        if region.buffer in other:
            return region.buffer
    return None


def is_addressed(call: Call, buffer: Buffer) -> bool:
    """Whether an intrinsic takes an element of `buffer` by address."""
    if call.name != "address_of":
        return False
    return any(isinstance(a, Load) and a.buffer == buffer for a in call.args)


def plain_use(func: Func, buffer: Buffer) -> Stmt | None:
    """A statement outside of all blocks that names a buffer, such as a prefetch of it."""
    stack: list[Stmt] = [func.body]
    while stack:
        stmt = stack.pop()
        kind = stmt.__class__
        if kind is Block:
            continue
        if kind is not For and kind is not Seq and kind is not Alloc:
            parts = [c for c in stmt.children() if not isinstance(c, Stmt)]
            if any(n.buffer == buffer for p in parts for n in loads(p)):
                return stmt
        stack.extend(locate.inner(stmt))
    return None


def is_whole_domain(func: Func, path: Path) -> bool:
    """Whether guards, its own and those inside, leave out only what lies outside axes' extents."""
    block = the_block(path)
    return _runs_whole(func, path) and all(_runs_whole(func, p) for p in _inside(path, block.body))


def _inside(path: Path, stmt: Stmt) -> Iterator[Path]:
    """The paths to the blocks and conditions below `stmt`, which lies inside the end of `path`.

    Not those in what a reduction repeats: all it makes is there once it has begun.
    """
    if isinstance(path[-1], Block) and path[-1].init is not None:
        return
    path = (*path, stmt)
    if isinstance(stmt, Block | If):
        yield path
    for child in locate.inner(stmt):
        yield from _inside(path, child)


def _runs_whole(func: Func, path: Path) -> bool:
    """Whether the guard of a block leaves out only what lies outside its axes' extents."""
    block = path[-1]
    if not isinstance(block, Block):
        return False  # a condition
    if block.where is None:
        return True
    parts = conditions(block.where)
    inside = [c for a in block.axes for c in (a.value < a.extent, a.value >= ZERO)]
    if all(part in inside for part in parts):
        return True
    ranges = ranges_at(func, path[:-1])
    known = Facts(ranges)
    for part in inside:
        known = known.under(part)
    if all(can_prove(part, known) for part in parts):
        return True
    asked = {v for part in parts for v in free_vars(part)}
    for axis in block.axes:
        known = known.under(_outer_inside(axis, asked, ranges))
    return all(can_prove(part, known) for part in parts)


def _outer_inside(axis: Axis, asked: set[Var], ranges: Ranges) -> Expr:
    """What an axis inside its extent says of `asked` alone: where a whole tile is left out, the
    guard says which by its number, and nothing of the loops in it."""
    found, size = linear.linear(axis.value), as_int(axis.extent)
    if found is None or size is None:
        return const(True)
    terms, rest = found
    ends = linear.extremes({v: k for v, k in terms.items() if v not in asked}, rest, ranges)
    outer = [(v, k) for v, k in terms.items() if v in asked and k]
    if ends is None or not outer:
        return const(True)
    step = gcd(*(k for _, k in outer))
    tiles = linear.total([(v, k // step) for v, k in outer], 0)
    return tiles <= (size - 1 - ends[0]) // step


def nest_around(path: Path, obstacles: Iterable[Path]) -> int:
    """Where in `path` the largest statement around its block starts that holds none of `obstacles`.

    The nest is made of loops, conditions and lets; it ends below an allocation or another block.
    """
    at = len(path) - 1
    for n in range(len(path) - 2, -1, -1):
        stmt = path[n]
        if isinstance(stmt, Alloc | Block):
            break
        if isinstance(stmt, Seq):
            continue
        if any(len(o) > n and o[n] is stmt for o in obstacles):
            break
        at = n
    return at


def is_inside(path: Path, outer: Path) -> bool:
    """Whether `path` leads to something inside (or to) the statement that `outer` leads to."""
    return len(path) >= len(outer) and path[len(outer) - 1] is outer[-1]


def fresh_buffer(func: Func, like: Buffer, scope: str) -> Buffer:
    """A buffer as `like`, in another scope; its name (`A_local`) is free for a block too."""
    taken = {*locate.buffers(func), *locate.block_names(func)}
    name = fresh(f"{like.name}_{scope.replace('.', '_')}", taken)
    return Buffer(name, like.shape, like.dtype, scope)


def only_outer(func: Func, path: Path, order: list[Path], rule: str) -> None:
    """Refuse a block that lies in another block."""
    if not any(p[-1] is path[-1] for p in order):
        raise refuse(rule, func, path[-1], "it lies in another block", "do this before blockize")


def insert(body: Stmt, new: Stmt, beside: Callable[[Block], bool], after: bool) -> Stmt:
    """`body` with `new` before the first statement with a block `beside` (or behind the last)."""
    if isinstance(body, Alloc):
        return body.replace(body=insert(body.body, new, beside, after))
    stmts = body.stmts if isinstance(body, Seq) else (body,)
    found = [n for n, s in enumerate(stmts) if any(beside(b) for b in locate.outer_blocks(s))]
    at = found[-1] + 1 if after else found[0]
    return seq(*stmts[:at], new, *stmts[at:])
