"""The accelerator's program: one stream of instructions with tokens between its units.

In: a function in stage "loops", of calls of the intrinsics of `target/accel.py`. Out: a `Program`:
instructions on tiles of memories, in order, each saying from which units it takes a token before it
starts and to which it gives one when it is done. The one idea: the stream's order is one legal
order; the units may leave it only where no conflict of addresses forbids, and each conflict across
units that nothing else orders is a token.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from tilewright.ir.dtype import DType
from tilewright.ir.expr import Buffer, Call, Const, Expr, Load, Var, as_int, const
from tilewright.ir.stmt import Alloc, Eval, For, Func, If, Seq, Stmt
from tilewright.ir.text import print_stmt
from tilewright.ir.walk import substitute
from tilewright.lower.flatten import row_major
from tilewright.support.errors import CompileError
from tilewright.support.record import record
from tilewright.target.accel import TILE
from tilewright.target.target import Target

UNITS = ("load", "compute", "store")
# rule of an intrinsic → the unit that does it; its operands are those it reads, then what it writes
RULES = {
    "accel.load": "load",
    "accel.store": "store",
    "accel.clear": "compute",
    "accel.gemm": "compute",
}
ACCUMULATES = frozenset({"accel.gemm"})  # reads what it writes


@record
class Tile:
    """TILE × TILE elements of a memory: a scope, or a parameter by name."""

    memory: str
    dtype: DType
    start: int  # in elements
    rows: int  # elements from row to row
    columns: int

    def addresses(self) -> Iterator[tuple[str, int]]:
        """The bytes of the tile's elements, by their first."""
        for i in range(TILE):
            for j in range(TILE):
                element = self.start + i * self.rows + j * self.columns
                yield self.memory, element * self.dtype.bits // 8


@record
class Instruction:
    """What a unit does. It starts when a token from each unit of `takes` is there."""

    unit: str
    op: str
    reads: tuple[Tile, ...]
    writes: Tile
    takes: tuple[str, ...] = ()
    gives: tuple[str, ...] = ()  # the units that get a token when it is done

    def touched(self) -> Iterator[tuple[tuple[str, int], bool]]:
        """(address, whether it is written), for all that it touches."""
        for tile in self.reads:
            yield from ((a, False) for a in tile.addresses())
        yield from ((a, True) for a in self.writes.addresses())


@record
class Program:
    """Instructions in stream order, and the bytes that they use of each on-chip memory."""

    name: str
    instructions: tuple[Instruction, ...]
    memories: Mapping[str, int]

    @property
    def text(self) -> str:
        """An instruction a line."""
        return "\n".join(_line(n, i) for n, i in enumerate(self.instructions))

    def __str__(self) -> str:
        return self.text


def _line(n: int, i: Instruction) -> str:
    waits = "".join(f" take({unit})" for unit in i.takes)
    then = "".join(f" give({unit})" for unit in i.gives)
    tiles = ", ".join(f"{t.memory}+{t.start}" for t in (i.writes, *i.reads))
    return f"{n:4} {i.unit:8}{waits} {i.op} {tiles}{then}"


def emit_program(func: Func, machine: Target) -> Program:
    """The program of a function in stage "loops" whose blocks are calls of instructions. Raises
    CompileError for what cannot be done."""
    emitter = _Emitter(machine)
    emitter.run(func.body, {})
    return Program(func.name, synchronize(emitter.made), emitter.used)


@dataclass
class _Emitter:
    """One walk over the loops, which run here: the stream is what they would issue."""

    machine: Target
    made: list[Instruction] = field(default_factory=list[Instruction])
    starts: dict[Buffer, int] = field(
        default_factory=dict[Buffer, int]
    )  # bytes from the scope's start
    top: dict[str, int] = field(default_factory=dict[str, int])
    used: dict[str, int] = field(default_factory=dict[str, int])

    def run(self, stmt: Stmt, values: dict[Var, Expr]) -> None:
        if isinstance(stmt, For):
            for n in range(_number(stmt.start, values), _number(stmt.stop, values)):
                self.run(stmt.body, {**values, stmt.var: const(n)})
        elif isinstance(stmt, Seq):
            for s in stmt.stmts:
                self.run(s, values)
        elif isinstance(stmt, If):
            chosen = stmt.then if _number(stmt.cond, values) else stmt.other
            if chosen is not None:
                self.run(chosen, values)
        elif isinstance(stmt, Alloc):
            self.allocate(stmt, values)
        elif isinstance(stmt, Eval) and isinstance(stmt.value, Call) and stmt.value.name in RULES:
            self.made.append(self.instruction(stmt.value, values))
        else:
            raise CompileError(
                "cannot compile for the accelerator",
                "this statement is no instruction of it",
                lambda: print_stmt(stmt),
                "tensorize the block that it comes from",
            )

    def allocate(self, stmt: Alloc, values: dict[Var, Expr]) -> None:
        """Memory on a stack: what is allocated inside is free again after."""
        buffer = stmt.buffer
        scope = self.machine.scope(buffer.scope)
        start = self.top.get(scope.name, 0)
        count = 1
        for extent in buffer.shape:
            count *= _number(extent, values)
        end = start + -(-buffer.dtype.nbytes(count) // scope.align) * scope.align
        if scope.name == "global" or end > scope.size:
            why = f"'{buffer.name}' needs bytes {start} to {end}, there are {scope.size}"
            raise CompileError(
                f"cannot allocate memory in {scope.name}", why, remedy="use smaller tiles"
            )
        self.starts[buffer] = start
        self.top[scope.name] = end
        self.used[scope.name] = max(end, self.used.get(scope.name, 0))
        self.run(stmt.body, values)
        self.top[scope.name] = start

    def instruction(self, call: Call, values: dict[Var, Expr]) -> Instruction:
        args = iter(call.args)
        tiles = [self.tile(a, as_int(next(args)), as_int(next(args)), values) for a in args]
        *reads, writes = tiles
        if call.name in ACCUMULATES:
            reads.append(writes)
        return Instruction(RULES[call.name], call.name, tuple(reads), writes)

    def tile(
        self, address: Expr, rows: int | None, columns: int | None, values: dict[Var, Expr]
    ) -> Tile:
        load = address.args[0] if isinstance(address, Call) else None
        assert isinstance(load, Load) and rows is not None and columns is not None
        buffer = load.buffer
        strides = [_number(e, values) for e in buffer.strides or row_major(buffer.shape)]
        start = sum(_number(e, values) * s for e, s in zip(load.indices, strides, strict=True))
        memory = buffer.name if buffer.scope == "global" else buffer.scope
        start += self.starts.get(buffer, 0) * 8 // buffer.dtype.bits
        return Tile(memory, buffer.dtype, start, strides[rows], strides[columns])


def _number(e: Expr, values: Mapping[Var, Expr]) -> int:
    """An expression's value, all variables being known."""
    found = e if isinstance(e, Const) else substitute(e, values)
    number = as_int(found)
    if number is None:
        raise CompileError(
            "cannot compile for the accelerator", f"{found!r} is not known at compile time"
        )
    return number


def synchronize(stream: list[Instruction]) -> tuple[Instruction, ...]:
    """Add the tokens: each conflict across units that is not ordered yet makes one.

    A unit's clock says how far each unit is known to be when it starts its next instruction. Of the
    earlier instructions that conflict, the latest of each unit counts; where the clock is behind,
    that instruction gives a token and this one takes it, and with it the giver's clock.
    """
    clocks = {unit: dict.fromkeys(UNITS, -1) for unit in UNITS}
    done: list[dict[str, int]] = []  # the clock when an instruction is done
    gives: dict[int, list[str]] = {}
    takes: list[tuple[str, ...]] = []
    last_write: dict[tuple[str, int], int] = {}
    readers: dict[tuple[str, int], list[int]] = {}
    for n, now in enumerate(stream):
        latest = dict.fromkeys(UNITS, -1)
        for address, written in now.touched():
            before = [last_write[address]] if address in last_write else []
            if written:
                before += readers.get(address, [])
            for m in before:
                latest[stream[m].unit] = max(latest[stream[m].unit], m)
        for address, written in now.touched():
            if written:
                last_write[address] = n
                readers[address] = []
            else:
                readers.setdefault(address, []).append(n)
        clock = clocks[now.unit]
        taken: list[str] = []
        # the latest first: what it knows may make an earlier one needless
        for m in sorted((m for u, m in latest.items() if u != now.unit), reverse=True):
            if m >= 0 and clock[stream[m].unit] < m:
                taken.append(stream[m].unit)
                gives.setdefault(m, []).append(now.unit)
                for unit, known in done[m].items():
                    clock[unit] = max(clock[unit], known)
        clock[now.unit] = n
        done.append(dict(clock))
        takes.append(tuple(taken))
    return tuple(
        replace(i, takes=takes[n], gives=tuple(gives.get(n, ()))) for n, i in enumerate(stream)
    )
