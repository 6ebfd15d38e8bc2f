"""Finding statements and buffers in a function by name, replacing what stands there, and refusing.

In: a function and the names of loops, blocks and buffers. Out: *paths* (the statements from the
function's body down to the one that was named), rebuilt functions, or a ScheduleError.
The one idea: a path is all that a rewrite needs, since a statement is replaced by rebuilding only
its ancestors.

Loops with variables, blocks, and buffers are three name spaces.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ParamSpec, TypeVar

from tilewright.ir.expr import Buffer, Expr, Load, Var
from tilewright.ir.stmt import (
    Alloc,
    Axis,
    Block,
    Eval,
    For,
    Func,
    If,
    Let,
    Region,
    Seq,
    Stmt,
    Store,
    seq,
)
from tilewright.ir.text import mark
from tilewright.ir.walk import fresh, statements, substitute
from tilewright.support.errors import ScheduleError
from tilewright.support.node import Node
from tilewright.support.recursion import recursive

_OF_BUFFERS = frozenset({Load, Store, Region, Alloc})

Path = tuple[Stmt, ...]  # from the function's body (first) to the statement in question (last)
P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S", bound=Stmt)


# Refusing --------------------------------------------------------------------


def primitive(request: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Say what a primitive is asked, for its refusals: `@primitive("unroll loop '{loop}'")`.

    The words in braces are the function's parameters.
    """

    def wrap(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def asked(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                return function(*args, **kwargs)
            except ScheduleError as error:
                bound = inspect.signature(function).bind(*args, **kwargs)
                bound.apply_defaults()
                error.what = "cannot " + request.format_map(bound.arguments)
                raise

        return asked

    return wrap


def refuse(
    rule: str, func: Func, at: str | Node | None, why: str, remedy: str = ""
) -> ScheduleError:
    """The error to raise when precondition `rule` does not hold `at` a name or a node."""
    where = "" if at is None else lambda: mark(func, at)
    error = ScheduleError("cannot schedule", why, where, remedy)
    error.rule = rule
    return error


def need(
    rule: str, holds: object, func: Func, at: str | Node | None, why: str, remedy: str = ""
) -> None:
    """Raise the refusal unless `holds`. `why` completes "cannot …: "; `remedy` says what to do."""
    if not holds:
        raise refuse(rule, func, at, why, remedy)


# Finding ---------------------------------------------------------------------


class Catalogue:
    """Where everything of a function stands, by name, from one walk in program order."""

    def __init__(self, func: Func) -> None:
        self.func = func
        self.stmts: list[Stmt] = []  # all that hold other statements
        self.parents: list[int] = []  # for each of them, the position of the one around it
        self.loops: dict[str, int] = {}  # positions
        self.blocks: dict[str, int] = {}
        self.allocs: dict[str, int] = {}
        self._variables: frozenset[str] | None = None
        stmts, parents = self.stmts, self.parents
        stack: list[tuple[Any, int]] = [(func.body, -1)]
        while stack:
            stmt, parent = stack.pop()
            kind = stmt.__class__
            while kind is For or kind is Alloc:  # as most are, and hold one other
                stmts.append(stmt)
                parents.append(parent)
                parent = len(stmts) - 1
                if kind is For:
                    self.loops[stmt.var.name] = parent
                else:
                    self.allocs[stmt.buffer.name] = parent
                stmt = stmt.body
                kind = stmt.__class__
            if kind is Store or kind is Eval:
                continue
            at = len(stmts)
            stmts.append(stmt)
            parents.append(parent)
            if kind is Block:
                self.blocks[stmt.name] = at
                if stmt.init is None and stmt.body.__class__ is Store:
                    continue  # most blocks hold nothing else
            stack += [(held, at) for held in reversed(inner(stmt))]

    def remarked(self, loop: str, new: For) -> Catalogue:
        """Of the function in which `new` stands for a loop that it differs from only in its kind
        and notes: all positions stay, and what is around it is made anew."""
        made = Catalogue.__new__(Catalogue)
        made.stmts, made.parents = self.stmts.copy(), self.parents
        made.loops, made.blocks, made.allocs = self.loops, self.blocks, self.allocs
        made._variables = self._variables
        at, stmt = self.loops[loop], new
        made.stmts[at] = new
        while (parent := self.parents[at]) >= 0:
            put = _put(self.stmts[parent], self.stmts[at], stmt)
            assert put is not None
            made.stmts[parent] = stmt = put
            at = parent
        made.func = Func(self.func.name, self.func.params, stmt, self.func.annotations)
        return made

    @property
    def variables(self) -> frozenset[str]:
        """Every name of a variable: sizes, loops, axes and lets."""
        if self._variables is None:
            found = {p.name for p in self.func.params if isinstance(p, Var)}
            found.update(self.loops)
            for stmt in self.stmts:
                if stmt.__class__ is Block:
                    found.update([axis.var.name for axis in stmt.axes])  # type: ignore[attr-defined]
                elif isinstance(stmt, Let):
                    found.add(stmt.var.name)
            self._variables = frozenset(found)
        return self._variables

    def loop(self, name: str) -> For:
        """The loop called `name`."""
        if name not in self.loops:
            why = _unknown("loop", name, tuple(self.loops))
            raise refuse("P0", self.func, None, why, "s.loops() lists the loops")
        return self.stmts[self.loops[name]]  # type: ignore[return-value]

    def block(self, name: str) -> Block:
        """The block called `name`."""
        if name not in self.blocks:
            why = _unknown("block", name, tuple(self.blocks))
            raise refuse("P0", self.func, None, why, "s.blocks() lists the blocks")
        return self.stmts[self.blocks[name]]  # type: ignore[return-value]

    def path(self, at: int) -> Path:
        """The path to the statement at a position."""
        found: list[Stmt] = []
        while at >= 0:
            found.append(self.stmts[at])
            at = self.parents[at]
        return tuple(reversed(found))


_recent: list[Catalogue] = []  # of the last functions, by identity


def catalogue(func: Func) -> Catalogue:
    """The catalogue of a function; those of the last few functions are kept."""
    for known in _recent:
        if known.func is func:
            return known
    return _keep(Catalogue(func))


def _keep(made: Catalogue) -> Catalogue:
    _recent[:] = [made, *_recent[:3]]
    return made


def inner(stmt: Stmt) -> tuple[Stmt, ...]:
    """The statements directly inside a statement."""
    kind = stmt.__class__
    if kind is Seq:
        return stmt.stmts  # type: ignore[attr-defined]
    if kind is For or kind is Alloc or kind is Let:
        return (stmt.body,)  # type: ignore[attr-defined]
    if isinstance(stmt, Block):
        return (stmt.body,) if stmt.init is None else (stmt.init, stmt.body)
    if isinstance(stmt, If):
        return (stmt.then,) if stmt.other is None else (stmt.then, stmt.other)
    return ()


def loop_path(func: Func, name: str) -> Path:
    """The path to the loop called `name`. Its last element is the For."""
    known = catalogue(func)
    known.loop(name)
    return known.path(known.loops[name])


def block_path(func: Func, name: str) -> Path:
    """The path to the block called `name`. Its last element is the Block."""
    known = catalogue(func)
    known.block(name)
    return known.path(known.blocks[name])


def the_loop(path: Path) -> For:
    """The loop that a path leads to."""
    found = path[-1]
    assert isinstance(found, For)
    return found


def the_block(path: Path) -> Block:
    """The block that a path leads to."""
    found = path[-1]
    assert isinstance(found, Block)
    return found


def find_loop(func: Func, name: str) -> For:
    """The loop called `name`."""
    return catalogue(func).loop(name)


def find_block(func: Func, name: str) -> Block:
    """The block called `name`."""
    return catalogue(func).block(name)


def find_buffer(func: Func, name: str) -> Buffer:
    """The buffer called `name`: a parameter or an allocation."""
    known = buffers(func)
    if name not in known:
        raise refuse("P0", func, None, _unknown("buffer", name, tuple(known)))
    return known[name]


def alloc_path(func: Func, buffer: Buffer) -> Path | None:
    """The path to the allocation of `buffer`; None for a parameter."""
    known = catalogue(func)
    at = known.allocs.get(buffer.name)
    return None if at is None else known.path(at)


def buffers(func: Func) -> dict[str, Buffer]:
    """Every buffer by name: parameters, then allocations in program order."""
    known = catalogue(func)
    found = {b.name: b for b in func.buffers}
    for name, at in known.allocs.items():
        alloc = known.stmts[at]
        assert isinstance(alloc, Alloc)
        found[name] = alloc.buffer
    return found


def loop_names(func: Func) -> tuple[str, ...]:
    """The loops in program order."""
    return tuple(catalogue(func).loops)


def block_names(func: Func) -> tuple[str, ...]:
    """The blocks in program order."""
    return tuple(catalogue(func).blocks)


def _unknown(kind: str, name: str, known: Sequence[str]) -> str:
    listed = ", ".join(repr(k) for k in known[:12]) + (", …" if len(known) > 12 else "")
    return f"there is no {kind} '{name}'" + (f"; there are {listed}" if known else "")


def loops_above(path: Path) -> tuple[For, ...]:
    """The loops around the last statement of `path`, outermost first, up to the nearest block."""
    above: list[For] = []
    for stmt in path[:-1]:
        if isinstance(stmt, Block):
            above.clear()
        elif isinstance(stmt, For):
            above.append(stmt)
    return tuple(above)


def all_loops_above(path: Path) -> tuple[For, ...]:
    """Every loop around the last statement of `path`, outermost first."""
    return tuple(s for s in path[:-1] if isinstance(s, For))


def chain(func: Func, names: Sequence[str], rule: str = "P1") -> tuple[Path, tuple[For, ...]]:
    """The path to the outermost of the named loops, and all loops from it to the innermost of them.

    The named loops (in any order) must lie on one perfect nest: each loop is the only statement of
    the one outside it. Refuses with `rule` otherwise.
    """
    paths = {name: loop_path(func, name) for name in names}
    need(
        rule,
        len(paths) == len(names),
        func,
        names[0],
        "a loop is named twice",
        "name each loop once",
    )
    deepest = max(paths.values(), key=len)
    outermost = min(paths.values(), key=len)
    top = outermost[-1]
    nest: list[For] = []
    for stmt in deepest[len(outermost) - 1 :]:
        if not isinstance(stmt, For):
            raise refuse(
                rule,
                func,
                stmt,
                f"loop '{_name(top)}' and loop '{_name(deepest[-1])}' are not perfectly nested",
                "move the other statements away first: compute_at, reverse_compute_at",
            )
        nest.append(stmt)
    inside = {stmt.name for stmt in nest}
    for name in names:
        why = f"loop '{name}' is not in one nest with loop '{_name(top)}'"
        need(rule, name in inside, func, paths[name][-1], why, "name loops of one nest")
    return outermost, tuple(nest)


def _name(stmt: Any) -> str:
    return stmt.name


def outer_blocks(stmt: Stmt) -> Iterator[Block]:
    """The blocks below (or at) `stmt` that lie in no other block below it, in program order."""
    if isinstance(stmt, Block):
        yield stmt
        return
    for child in inner(stmt):
        yield from outer_blocks(child)


def block_nests(stmt: Stmt, above: tuple[For, ...] = ()) -> Iterator[tuple[Block, tuple[For, ...]]]:
    """The outer blocks below `stmt`, each with `above` and the loops around it below `stmt`."""
    if isinstance(stmt, Block):
        yield stmt, above
        return
    if isinstance(stmt, For):
        above = (*above, stmt)
    for child in inner(stmt):
        yield from block_nests(child, above)


# Replacing -------------------------------------------------------------------


def replace(func: Func, path: Path, new: Stmt | None) -> Func:
    """`func` with the last statement of `path` replaced; None removes it and emptied loops."""
    for n in range(len(path) - 2, -1, -1):
        new = _put(path[n], path[n + 1], new)
    if new is None:
        new = Seq(())
    return func if new is func.body else Func(func.name, func.params, new, func.annotations)


def remark(func: Func, loop: str, **notes: Any) -> Func:
    """`func` with a loop's kind, thread or annotations changed; all else stands where it stood."""
    found = find_loop(func, loop)
    return _keep(catalogue(func).remarked(loop, found.replace(**notes))).func


def _put(parent: Stmt, old: Stmt, new: Stmt | None) -> Stmt | None:
    """`parent` with its direct inner statement `old` replaced."""
    kind = parent.__class__
    if kind is For:
        p: Any = parent
        return new and For(p.var, p.start, p.stop, p.kind, new, p.thread, p.annotations)
    if isinstance(parent, Seq):
        if new is not None and new.__class__ is not Seq:
            return Seq(tuple([new if s is old else s for s in parent.stmts]))
        kept = [new if s is old else s for s in parent.stmts]
        left = [s for s in kept if s is not None]
        return seq(*left) if left else None
    if isinstance(parent, Alloc):
        return new and Alloc(parent.buffer, new)
    if isinstance(parent, Let):
        return new and parent.replace(body=new)
    if isinstance(parent, If):
        if parent.then is old:
            return parent.replace(then=new if new is not None else Seq(()))
        return parent.replace(other=new)
    if isinstance(parent, Block):
        if parent.body is old:
            return parent.replace(body=new if new is not None else Seq(()))
        return parent.replace(init=new)
    raise TypeError(f"{type(parent).__name__} has no inner statements")


def rebuild(path: Sequence[Stmt], new: Stmt) -> Stmt:
    """The first statement of (part of) a path, with the last one replaced."""
    for n in range(len(path) - 2, -1, -1):
        changed = _put(path[n], path[n + 1], new)
        assert changed is not None
        new = changed
    return new


def substitute_loops(stmt: S, values: Mapping[Var, Expr]) -> S:
    """Replace loop variables below `stmt`: in bounds, plain statements, guards and axis values.

    The inside of a block speaks of its axes only and is not visited.
    """
    if not values:
        return stmt

    def go(s: Any) -> Any:
        if not isinstance(s, Stmt):
            return substitute(s, values)
        if isinstance(s, Block):
            axes = tuple([_axis(a, substitute(a.value, values)) for a in s.axes])
            where = None if s.where is None else substitute(s.where, values)
            if where is s.where and all(a is b for a, b in zip(axes, s.axes, strict=True)):
                return s
            return Block(s.name, axes, s.reads, s.writes, s.init, s.body, where, s.annotations)
        return s.map_children(go)

    return go(stmt)


def _axis(axis: Axis, value: Expr) -> Axis:
    return axis if value is axis.value else Axis(axis.var, axis.kind, axis.extent, value)


def map_blocks(stmt: S, change: Callable[[Block], Stmt]) -> S:
    """Rebuild `stmt` with every outer block below it changed."""

    @recursive
    def go(again: Any, s: Any) -> Any:
        return change(s) if s.__class__ is Block else map_inner(s, again)

    return go(stmt)


def map_inner(stmt: S, change: Callable[[Any], Any]) -> S:
    """`stmt` with each statement directly inside changed."""
    kind = stmt.__class__
    if kind is Store:
        return stmt
    if kind is For or kind is Alloc:  # the most frequent: nothing else to visit
        body = change(stmt.body)  # type: ignore[attr-defined]
        return stmt if body is stmt.body else stmt.replace(body=body)  # type: ignore[attr-defined]
    return stmt.map_children(lambda c: change(c) if isinstance(c, Stmt) else c)


# Names -----------------------------------------------------------------------


def variable_names(func: Func) -> set[str]:
    """Every name of a variable in use (a fresh set): sizes, loops, axes and lets."""
    return set(catalogue(func).variables)


def copy_afresh(func: Func, stmt: S) -> S:
    """`stmt` with all that it binds under fresh names, to stand beside the original.

    Loops, axes, lets, blocks and allocations.
    """
    variables, block_set, buffer_set = (
        variable_names(func),
        set(block_names(func)),
        set(buffers(func)),
    )
    renamed: dict[Var, Expr] = {}
    moved: dict[Buffer, Buffer] = {}
    for s in statements(stmt):
        if isinstance(s, For | Let):
            renamed[s.var] = Var(fresh(s.var.name, variables), s.var.dtype)
        elif isinstance(s, Block):
            renamed.update((a.var, Var(fresh(a.var.name, variables), a.var.dtype)) for a in s.axes)
        elif isinstance(s, Alloc):
            moved[s.buffer] = s.buffer.replace(name=fresh(s.buffer.name, buffer_set))

    @recursive
    def go(again: Any, n: Any) -> Any:
        kind = n.__class__
        if kind is Var:
            return renamed.get(n, n)
        n = n.map_children(again)
        if kind is For or kind is Let or kind is Axis:
            return n.replace(var=renamed[n.var])
        if kind is Block:
            return n.replace(name=fresh(n.name, block_set))
        if kind in _OF_BUFFERS and n.buffer in moved:
            return n.replace(buffer=moved[n.buffer])
        return n

    return go(stmt)
