"""Learned: what the winners of tuning decide otherwise than the formulas do, as a table.

In: rows, each of which says of which functions on which machines it is, and what these decide. Out:
the row that fits a function, and its answers to the decisions that a strategy takes. The one idea:
what was learnt can be read and argued with, a line for each rule; where no row fits, or a value is
not legal, the formula's own pick stands.

A row never asks for how many threads it is, unless all it says is how work is shared out: sums are
added in one order for any number of them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from math import prod
from pathlib import Path
from typing import Any

from tilewright.ir.expr import as_int
from tilewright.ir.stmt import Block, Func
from tilewright.ir.walk import blocks
from tilewright.schedule.trace import Plain
from tilewright.strategy.absorb import is_reduction, role
from tilewright.strategy.roles import family
from tilewright.support.cache import make_key
from tilewright.support.record import record
from tilewright.target.target import Target

FORMAT, VERSION = "tilewright learned schedules", 1
SHIPPED = Path(__file__).with_name("learned.jsonl")
THREADS = "threads"
SHARING = ("parallel", "chunk_m", "chunk_n")  # decisions of how work is shared out
TRAITS = ("steps", "results", "last", "row", "column", "taps", "blocks", "kbytes", THREADS)
Range = tuple[int | None, int | None]  # the least and the most, None for any


@record
class Row:
    """A rule. role: of the functions that it is for; machine: their class (`machine_class`); where:
    for each trait that counts, from what to what it is; take: what is decided (`Words`); gain, low:
    how many times as fast that was, the geometric mean over so many workloads and the lower end of
    its interval; build: by which it was timed."""

    role: str
    machine: str
    where: Mapping[str, Range]
    take: Mapping[str, Plain]
    gain: float = 1.0
    low: float = 1.0
    workloads: int = 0
    build: str = ""

    def is_for(self, traits: Mapping[str, int]) -> bool:
        """Do these traits lie in all of its ranges?"""
        return all(
            (least is None or traits[name] >= least) and (most is None or traits[name] <= most)
            for name, (least, most) in self.where.items()
        )

    def fields(self) -> dict[str, Any]:
        """The row as plain data."""
        where = {name: [*self.where[name]] for name in sorted(self.where)}
        take = {name: self.take[name] for name in sorted(self.take)}
        return {
            "role": self.role, "machine": self.machine, "where": where, "take": take,
            "gain": round(self.gain, 3), "low": round(self.low, 3),
            "workloads": self.workloads, "build": self.build,
        }  # fmt: skip

    def __str__(self) -> str:
        said = [_range_text(name, *self.where[name]) for name in sorted(self.where)]
        taken = ", ".join(f"{name} {self.take[name]}" for name in sorted(self.take))
        where = f" where {', '.join(said)}" if said else ""
        return f"{self.role} on {self.machine}{where}: {taken}"


def _range_text(name: str, least: int | None, most: int | None) -> str:
    if least == most:
        return f"{name} is {least}"
    ends = [f"{least} ≤"] * (least is not None) + [name] + [f"≤ {most}"] * (most is not None)
    return " ".join(ends)


class Table:
    """Rows, of which the first that fits a function counts."""

    def __init__(self, rows: Iterable[Row] = ()) -> None:
        self.rows = tuple(rows)
        self._of: dict[tuple[str, str], list[Row]] = {}
        for row in self.rows:
            self._of.setdefault((row.machine, row.role), []).append(row)
        self._machines = {row.machine for row in self.rows}

    @property
    def digest(self) -> str:
        """Changes with what the rows say of schedules; empty for no rows."""
        told = [(r.role, r.machine, sorted(r.where.items()), sorted(r.take.items())) for r in self]
        return make_key(repr(told)) if told else ""

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def fitting(self, func: Func, target: Target, threads: int) -> Row | None:
        """The row for a function in stage "blocks"; None if none fits, or a size is open."""
        if not self.rows or machine_class(target) not in self._machines:
            return None
        rows = self._of.get((machine_class(target), family(func)), ())
        own = traits(func, threads) if rows else None
        return None if own is None else next((row for row in rows if row.is_for(own)), None)

    def over(self, other: Table) -> Table:
        """This table, and of another one what it has of other roles and machines."""
        return Table([*self, *(r for r in other if (r.machine, r.role) not in self._of)])

    def lines(self) -> Iterator[str]:
        """The table as text, a row a line."""
        yield json.dumps({"format": FORMAT, "version": VERSION}) + "\n"
        for row in self.rows:
            yield json.dumps(row.fields(), ensure_ascii=False) + "\n"


def read(text: Iterable[str]) -> Table:
    """The table that `lines` wrote. Raises ValueError that says what is wrong."""
    lines: list[Any] = [json.loads(line) for line in text if line.strip()]
    head, rows = (lines[0], lines[1:]) if lines and isinstance(lines[0], dict) else ({}, lines)
    if head.get("format") != FORMAT:
        raise ValueError("its first line does not say that it holds learned schedules")
    if head.get("version") != VERSION:
        raise ValueError("it is of another version of this format")
    return Table(map(row_of, rows))


def row_of(fields: Any) -> Row:
    """A row of plain data. Raises ValueError."""
    try:
        where = {name: (least, most) for name, (least, most) in fields["where"].items()}
        made = Row(**{**fields, "where": where})
        ends = [end for ends in where.values() for end in ends if end is not None]
        plain = all(isinstance(v, int | str) for v in made.take.values())
        is_fine = all(isinstance(end, int) for end in ends) and plain and bool(made.take)
    except (TypeError, KeyError, AttributeError, ValueError) as fault:
        raise ValueError(f"a row is none ({fault})") from fault
    if not is_fine or not set(where) <= {*TRAITS}:
        raise ValueError(f"a row is none: {str(fields)[:120]}")
    if THREADS in where and not set(made.take) <= {*SHARING}:
        raise ValueError(f"a row asks for threads, and says more than how work is shared: {made}")
    return made


@lru_cache
def shipped() -> Table:
    """The table of this package."""
    return read(SHIPPED.read_text(encoding="utf-8").splitlines())


@lru_cache(maxsize=64)
def machine_class(target: Target) -> str:
    """What machines have in common whose rules are the same: as "cpu 16x8 fma", the kind, vector
    registers by lanes of f32, and whether a multiply-add is one instruction."""
    fused = " fma" * bool(target.features & {"fma", "avx512f", "neon", "sve", "v"})
    return f"{target.kind} {target.vector_registers}x{target.lanes(32)}{fused}"


def anchor_of(func: Func) -> Block | None:
    """The block whose decisions rows speak of: that of the function's role; of a plain reduction
    the first that reduces, of others the last block. None if there is none."""
    found, own = blocks(func.body), family(func)
    named = [b for b in found if role(b) == own]
    if named or not found:
        return named[0] if named else None
    reduced = [b for b in found if is_reduction(b)]
    return reduced[0] if reduced else found[-1]


def traits(func: Func, threads: int) -> dict[str, int] | None:
    """What rows may ask of a function, by names; None where a size is open.

    steps, results: how often its anchor combines and how many elements that makes; last, row,
    column: extents of the last axes of the result, 1 where there are fewer; taps: extent of the
    last axis that is combined; blocks: how many there are; kbytes: all parameters; threads.
    """
    anchor = anchor_of(func)
    if anchor is None:
        return None
    sizes = [(as_int(a.extent), a.kind) for a in anchor.axes]
    shapes = [[as_int(d) for d in b.shape] for b in func.buffers]
    if any(n is None for n, _ in sizes) or any(d is None for shape in shapes for d in shape):
        return None
    spatial = [n or 0 for n, kind in sizes if kind != "reduce"]
    reduced = [n or 0 for n, kind in sizes if kind == "reduce"]
    *_, column, row, last = [1, 1, 1, *spatial]
    pairs = zip(func.buffers, shapes, strict=True)
    held = sum(buffer.dtype.nbytes(prod(d or 0 for d in shape)) for buffer, shape in pairs)
    return {
        "steps": prod(reduced), "results": prod(spatial), "last": last, "row": row,
        "column": column, "taps": reduced[-1] if reduced else 1, "blocks": len(blocks(func.body)),
        "kbytes": -(-held // 1024), THREADS: threads,
    }  # fmt: skip


class Words:
    """How rows call a function's decisions: those of its anchor, and of blocks with the same part,
    by what is decided ("tile_m"); those of what pads its image with "pad." before it; "strategy" as
    it is; all others have no name."""

    def __init__(self, func: Func) -> None:
        own, anchor = family(func), anchor_of(func)
        self._prefixes = {
            b.name: "pad." if role(b) == "pad" else ""
            for b in blocks(func.body)
            if b == anchor or role(b) in (own, "pad")
        }

    def __call__(self, decision: str) -> str:
        """The name of a decision, or ""."""
        block, dot, what = decision.rpartition(".")
        if not dot:
            return decision
        prefix = self._prefixes.get(block)
        return "" if prefix is None else prefix + what


def answers(row: Row, func: Func) -> Callable[[str, Any, tuple[Any, ...]], Any]:
    """Takes decisions as a row says where that is legal, else as the strategy would."""
    words = Words(func)

    def choose(name: str, pick: Any, values: tuple[Any, ...]) -> Any:
        value = row.take.get(words(name), pick)
        return value if value in values else pick

    return choose
