"""Statements and functions: what a program does, and to what memory.

Eight statement classes. Loop, block and buffer names are unique in a Func and are the handles by
which schedules speak of them. A `Block` is one computation over its axes, detached from the loops
that they are bound to (each axis has a `value` in terms of loop variables); blocks live until
scheduling ends. Loops and blocks are the only binders of variables besides `Let` and the
parameters.
"""

from __future__ import annotations

from typing import Any

from tilewright.ir.expr import Buffer, Const, Expr, Var, expr
from tilewright.support.node import Node, node

LOOP_KINDS = ("serial", "parallel", "vectorize", "unroll", "thread", "vthread", "pipeline")
AXIS_KINDS = ("spatial", "reduce", "ordered")
THREAD_AXES = tuple(f"{unit}Idx.{axis}" for unit in ("block", "thread") for axis in "xyz")

Annotations = tuple[
    tuple[str, Any], ...
]  # sorted (key, value) pairs; values are int, float, str or bool


@node
class Region(Node):
    """A rectangle of a buffer: (start, extent) in each dimension."""

    buffer: Buffer
    starts: tuple[Expr, ...]
    extents: tuple[Expr, ...]


class Stmt(Node):
    """A statement."""

    __slots__ = ()


@node(not_children=("var",))
class For(Stmt):
    """Run `body` for var = start, start + 1, …, stop - 1.

    kind is one of LOOP_KINDS; `thread` names the axis of a "thread" loop (one of THREAD_AXES).
    """

    var: Var
    start: Expr
    stop: Expr
    kind: str
    body: Stmt
    thread: str = ""
    annotations: Annotations = ()

    @property
    def name(self) -> str:
        return self.var.name

    @property
    def extent(self) -> Expr:
        """How many iterations."""
        start = self.start
        is_zero = start.__class__ is Const and start.value == 0  # type: ignore[attr-defined]
        return self.stop if is_zero else self.stop - start


@node(not_children=("var",))
class Axis(Node):
    """An axis of a block: `var` runs over [0, extent); in this instance it is `value`.

    kind: one of AXIS_KINDS: "spatial" (instances write different elements), "reduce" (instances
    combine into one element) or "ordered" (instances must run in increasing order: a recurrence).
    """

    var: Var
    kind: str
    extent: Expr
    value: Expr


@node
class Block(Stmt):
    """One computation: `body` for each combination of its axes, `init` before the first of a
    reduction.

    `where` guards an instance (an imperfect split leaves iterations that do nothing). `reads` and
    `writes` are the regions that one instance touches, in terms of the axes; the body speaks of
    axes only.
    """

    name: str
    axes: tuple[Axis, ...]
    reads: tuple[Region, ...]
    writes: tuple[Region, ...]
    init: Stmt | None
    body: Stmt
    where: Expr | None = None
    annotations: Annotations = ()


@node
class Store(Stmt):
    buffer: Buffer
    indices: tuple[Expr, ...]
    value: Expr


@node
class If(Stmt):
    cond: Expr
    then: Stmt
    other: Stmt | None = None


@node(not_children=("var",))
class Let(Stmt):
    """`var` stands for `value` in `body`."""

    var: Var
    value: Expr
    body: Stmt


@node
class Alloc(Stmt):
    """`buffer` lives in `body`; its contents are undefined at the start."""

    buffer: Buffer
    body: Stmt


@node
class Seq(Stmt):
    stmts: tuple[Stmt, ...]


@node
class Eval(Stmt):
    """Evaluate for effect (a barrier, a tensor intrinsic)."""

    value: Expr


@node(not_children=("params",))
class Func(Node):
    """A function: parameters are buffers (both inputs and outputs) and i64 variables (symbolic
    sizes).
    """

    name: str
    params: tuple[Buffer | Var, ...]
    body: Stmt
    annotations: Annotations = ()

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """The buffer parameters."""
        return tuple(p for p in self.params if isinstance(p, Buffer))


@node
class Module(Node):
    """Functions that are compiled together."""

    funcs: tuple[Func, ...]


def seq(*stmts: Stmt) -> Stmt:
    """Statements one after the other; nested sequences flatten, a single statement stays itself."""
    flat: list[Stmt] = []
    for stmt in stmts:
        flat.extend(stmt.stmts if isinstance(stmt, Seq) else (stmt,))
    return flat[0] if len(flat) == 1 else Seq(tuple(flat))


def loop(name: str, extent: Any, body: Stmt, kind: str = "serial") -> For:
    """A loop from 0 to `extent`."""
    return For(Var(name), Const(0, Var(name).dtype), expr(extent), kind, body)


def annotation(of: For | Block | Func, key: str, default: Any = None) -> Any:
    """The value of an annotation."""
    return dict(of.annotations).get(key, default)


def annotated(annotations: Annotations, key: str, value: Any) -> Annotations:
    """The annotations with `key` set (value None: removed)."""
    kept = {**dict(annotations), key: value}
    return tuple(sorted((k, v) for k, v in kept.items() if v is not None))
