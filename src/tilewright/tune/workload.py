"""Workload: what a function is to a tuner, whatever its names are.

In: a function in stage "blocks". Out: its canonical text and a key for it, the same without sizes,
the sizes, and a way to say its points in canonical names. The one idea: names are given anew in the
order of first appearance in the body, and parameters stand in that order, too; what is left is what
a schedule can see.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from itertools import count
from typing import Any

from tilewright.ir.dtype import i64
from tilewright.ir.expr import Buffer, Const, Expr, Load, Var, as_int
from tilewright.ir.stmt import Alloc, Annotations, Axis, Block, For, Func, Let, Region, Store
from tilewright.ir.text import print_func
from tilewright.schedule.trace import Plain
from tilewright.support.record import record
from tilewright.tune.decision_names import Renaming

SMALL = 4  # numbers in indices up to this are strides, taps and lanes; others follow from sizes
NOTE = "note"  # annotations "note" and "note_…" are for people
_SIZE = Var("size")  # stands for numbers that are left out
_BYTES = 10  # of a digest


@record
class Workload:
    """A function to be tuned.

    key: a digest of `text`. text: the function in canonical names, which parses. family: a digest
    of the text without sizes; decisions have the same canonical names throughout a family. sizes:
    the extents, 0 for open ones: of parameters, then of the blocks' axes, in the order of the text;
    as many throughout a family. names: of blocks and buffers, and what stands for them.
    """

    key: str
    text: str
    family: str
    sizes: tuple[int, ...]
    names: Renaming

    def to_canonical(self, point: Mapping[str, Plain]) -> dict[str, Plain]:
        """A point of the function, its decisions named as for all that are equal. Raises
        ScheduleError for one with a decision of a block that is not the function's."""
        return self.names.translated(point)

    def from_canonical(self, point: Mapping[str, Plain]) -> dict[str, Plain]:
        """The way back. Raises ScheduleError likewise."""
        return self.names.reversed().translated(point)


def workload(func: Func) -> Workload:
    """What a function is to a tuner. Two have one key if they differ only in names, in the order of
    parameters, and in annotations that say nothing: empty words, and notes for people ("note",
    "note_…"). All other annotations are for strategies (`te.compute`), and stay."""
    named = _Canonical()
    text = print_func(named.func(func))
    sizes = [d for b in named.buffers.values() if b.name in named.parameters for d in b.shape]
    blocks, buffers = named.blocks, named.buffers
    names = Renaming(
        tuple(blocks.items()), tuple((old.name, new.name) for old, new in buffers.items())
    )
    return Workload(
        key=digest(text),
        text=text,
        family=digest(print_func(_WithoutSizes().func(func))),
        sizes=tuple(as_int(e) or 0 for e in (*sizes, *named.extents)),
        names=names,
    )


def digest(text: str) -> str:
    """What a text is known by."""
    return hashlib.blake2b(text.encode(), digest_size=_BYTES).hexdigest()


class _Canonical:
    """A copy of a function with names of their own for blocks (b0, b1, …), buffers (t), loops (i),
    axes (v), lets (x) and sizes (n)."""

    def __init__(self) -> None:
        self.blocks: dict[str, str] = {}
        self.buffers: dict[Buffer, Buffer] = {}
        self.variables: dict[Var, Var] = {}
        self.extents: list[Expr] = []  # of the blocks' axes
        self.parameters: set[str] = set()  # new names
        self.numbers = {kind: count() for kind in "tivxn"}
        self.shared: dict[int, Any] = {}  # copies of what stands in several positions

    def func(self, func: Func) -> Func:
        """The copy. Parameters that the body does not name come last."""
        body = self.copy(func.body)
        unused = [p for p in func.params if p not in self.buffers and p not in self.variables]
        for p in sorted(unused, key=_kind):
            self.copy_parameter(p)
        made = [self.copy_parameter(p) for p in func.params]
        of = {p: n for n, p in enumerate((*self.buffers.values(), *self.variables.values()))}
        made.sort(key=lambda p: of[p])
        self.parameters = {p.name for p in made}
        return Func("kernel", tuple(made), body, meant(func.annotations))

    def copy_parameter(self, p: Buffer | Var) -> Buffer | Var:
        return self.buffer(p) if isinstance(p, Buffer) else self.variable(p)

    def copy(self, n: Any) -> Any:
        """The copy of a node."""
        kind = n.__class__
        if kind is Const:
            return self.number(n)
        if kind is Var:
            return self.variable(n)
        found = self.shared.get(id(n))
        if found is None:
            special = _SPECIAL.get(kind)
            found = special(self, n) if special else n.map_children(self.copy)
            self.shared[id(n)] = found
        return found

    def number(self, n: Const) -> Expr:
        """What stands for a constant,"""
        return n

    def extent(self, e: Expr) -> Expr:
        """and for how long a loop, an axis or a dimension is."""
        return self.copy(e)

    def bind(self, var: Var, kind: str) -> Var:
        """A new variable for one that is bound here."""
        new = self.variables[var] = Var(f"{kind}{next(self.numbers[kind])}", var.dtype)
        return new

    def variable(self, var: Var) -> Var:
        """What stands for a variable; one that nothing binds is a size."""
        found = self.variables.get(var)
        return self.bind(var, "n") if found is None else found

    def buffer(self, b: Buffer) -> Buffer:
        """What stands for a buffer."""
        found = self.buffers.get(b)
        if found is None:
            shape = tuple([self.extent(d) for d in b.shape])
            strides = b.strides and tuple([self.extent(d) for d in b.strides])
            name = f"t{next(self.numbers['t'])}"
            found = self.buffers[b] = Buffer(name, shape, b.dtype, b.scope, strides)
        return found

    def loop(self, n: For) -> For:
        start, stop = self.copy(n.start), self.extent(n.stop)
        var = self.bind(n.var, "i")
        return For(var, start, stop, n.kind, self.copy(n.body), n.thread, meant(n.annotations))

    def block(self, n: Block) -> Block:
        name = self.blocks[n.name] = f"b{len(self.blocks)}"
        self.extents += [a.extent for a in n.axes]
        axes = tuple([self.axis(a) for a in n.axes])
        reads, writes = (tuple([self.copy(r) for r in rs]) for rs in (n.reads, n.writes))
        init = None if n.init is None else self.copy(n.init)
        body = self.copy(n.body)
        where = None if n.where is None else self.copy(n.where)
        return Block(name, axes, reads, writes, init, body, where, meant(n.annotations))

    def axis(self, n: Axis) -> Axis:
        extent, value = self.extent(n.extent), self.copy(n.value)
        return Axis(self.bind(n.var, "v"), n.kind, extent, value)

    def let(self, n: Let) -> Let:
        value = self.copy(n.value)
        return Let(self.bind(n.var, "x"), value, self.copy(n.body))

    def access(self, n: Load | Store | Region | Alloc) -> Any:
        return n.replace(buffer=self.buffer(n.buffer)).map_children(self.copy)


_SPECIAL: dict[type, Any] = {
    For: _Canonical.loop,
    Block: _Canonical.block,
    Let: _Canonical.let,
    **dict.fromkeys((Load, Store, Region, Alloc), _Canonical.access),
}


class _WithoutSizes(_Canonical):
    """The same without sizes: neither extents, nor what follows from them in indices."""

    def number(self, n: Const) -> Expr:
        return n if n.dtype is not i64 or abs(n.value) <= SMALL else _SIZE

    def extent(self, e: Expr) -> Expr:
        return _SIZE if e.__class__ is Const else self.copy(e)


def meant(annotations: Annotations) -> Annotations:
    """Those that say something to a strategy."""
    return tuple(
        [(k, v) for k, v in annotations if v != "" and k != NOTE and not k.startswith(f"{NOTE}_")]
    )


def _kind(p: Buffer | Var) -> tuple[int, str, str]:
    """Tells parameters apart whatever their names are."""
    return (p.rank, p.dtype.name, p.scope) if isinstance(p, Buffer) else (-1, p.dtype.name, "")
