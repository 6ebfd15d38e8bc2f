"""A launch: a kernel on a grid of blocks of threads, as every language of GPUs has it.

In: a top-level statement with thread loops. Out: how many blocks and threads it takes, where its
shared buffers lie in a block's memory, and a refusal where that is more than the machine has. The
one idea: of two branches that a whole block decides on it runs one, so their buffers share memory.
"""

from __future__ import annotations

from math import prod

from tilewright.ir.expr import Expr, as_int, const, maximum
from tilewright.ir.stmt import THREAD_AXES, Alloc, For, If, Let, Seq, Stmt
from tilewright.ir.walk import free_vars, loads, visit
from tilewright.support.errors import CompileError
from tilewright.support.record import record
from tilewright.target.target import Target

Extents = tuple[Expr, Expr, Expr]
STARTS = 16  # bytes at whose multiples buffers start: as many as one access takes


@record
class DeviceKernel:
    """One launch: a grid of blocks of threads; arguments are the addresses of `buffers` (multiples
    of `STARTS`), then i64 `symbols`. shared_bytes: what a block asks for when it is launched.
    """

    symbol: str
    grid: Extents
    block: Extents
    buffers: tuple[str, ...]
    symbols: tuple[str, ...]
    shared_bytes: int = 0


def thread_extents(body: Stmt) -> dict[str, Expr]:
    """How many there are along each thread axis: as many as its longest loop has iterations."""
    extents: dict[str, Expr] = dict.fromkeys(THREAD_AXES, const(1))
    for n in visit(body):
        if isinstance(n, For) and n.kind == "thread":
            known = extents[n.thread]
            more = n.extent if as_int(known) == 1 else maximum(known, n.extent)
            extents[n.thread] = known if n.extent == known else more
    return extents


def grid_and_block(extents: dict[str, Expr]) -> tuple[Extents, Extents]:
    """Blocks of the grid and threads of a block, along x, y and z."""
    x, y, z, *block = (extents[axis] for axis in THREAD_AXES)
    return (x, y, z), (block[0], block[1], block[2])


def check_limits(kernel: DeviceKernel, target: Target) -> None:
    """Raises CompileError if a launch takes more than the machine has."""
    limits = target.threads
    assert limits is not None
    threads = [as_int(e) or 1 for e in kernel.block]
    told = [("threads in a block", prod(threads), limits.block)]
    for axis, n, most in zip("xyz", threads, limits.axes, strict=True):
        told.append((f"threads along threadIdx.{axis}", n, most))
    for axis, e, most in zip("xyz", kernel.grid, limits.grid, strict=True):
        told.append((f"blocks along blockIdx.{axis}", as_int(e) or 1, most))
    told.append(("bytes of shared memory in a block", kernel.shared_bytes,
                 target.scope("shared").size))  # fmt: skip
    for what, n, most in told:
        if n > most:
            raise CompileError(
                f"cannot launch '{kernel.symbol}' on '{target.kind}'",
                f"it takes {n} {what}, at most {most} can be had",
                remedy="bind smaller loops, or compute smaller tiles",
            )


class SharedOffsets:
    """Where the shared buffers of a kernel lie in a block's memory."""

    def __init__(self, body: Stmt, align: int) -> None:
        """align: of every buffer, in bytes."""
        self.align = align
        self.of: dict[int, int] = {}  # byte offsets by the identity of the Alloc
        self.differing = {  # what may change while a block runs, or from thread to thread
            n.var
            for n in visit(body)
            if isinstance(n, Let) or (isinstance(n, For) and not n.thread.startswith("blockIdx"))
        }
        self.bytes = self.allocate(body, 0)

    def allocate(self, s: Stmt, used: int) -> int:
        """Lay out what `s` allocates behind `used` bytes; gives how many are used then."""
        if isinstance(s, Seq):
            for each in s.stmts:
                used = self.allocate(each, used)
        elif isinstance(s, If):
            then = self.allocate(s.then, used)
            if s.other is None:
                return then
            if self.is_decided(s.cond):
                return max(then, self.allocate(s.other, used))
            return self.allocate(s.other, then)
        elif isinstance(s, For | Let):
            return self.allocate(s.body, used)
        elif isinstance(s, Alloc):
            if s.buffer.scope == "shared":
                self.of[id(s)] = used
                used = (used + self.size(s) + self.align - 1) // self.align * self.align
            return self.allocate(s.body, used)
        return used

    def size(self, s: Alloc) -> int:
        """The bytes of a buffer. Raises CompileError if they are not constant."""
        count = as_int(s.buffer.shape[0])
        if count is None:
            raise CompileError(
                f"cannot allocate '{s.buffer.name}' in shared memory", "its size is not a constant"
            )
        return s.buffer.dtype.nbytes(count)

    def is_decided(self, cond: Expr) -> bool:
        """Does a condition hold for a block as a whole, from its begin to its end?"""
        return not free_vars(cond) & self.differing and not loads(cond)
