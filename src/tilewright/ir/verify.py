"""What a well-formed program is, stage by stage.

In: a function and the stage it claims to be in. Out: nothing, or VerifyError with the program
around the fault. The one idea: the laws that hold in every stage (types, scopes, names, the
discipline of blocks) are one walk; what differs between stages is one table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from tilewright.ir.dtype import DType, bool_, i64
from tilewright.ir.expr import (
    Binary,
    BinaryOp,
    Buffer,
    Call,
    Cast,
    Const,
    Expr,
    Load,
    Select,
    Unary,
    UnaryOp,
    Var,
    as_int,
    wrap,
)
from tilewright.ir.stmt import (
    AXIS_KINDS,
    LOOP_KINDS,
    THREAD_AXES,
    Alloc,
    Annotations,
    Block,
    Eval,
    For,
    Func,
    If,
    Let,
    Region,
    Seq,
    Store,
)
from tilewright.ir.text import is_name, mark, print_func
from tilewright.support.errors import VerifyError
from tilewright.support.node import Node

STAGES = ("blocks", "loops", "flat", "vector")

# What only some stages allow: in which, and why not in the others.
ALLOWS = {
    "a block": ("blocks", "lower_blocks makes plain statements of blocks"),
    "an index per dimension": ("blocks loops", "flatten gives every access one address"),
    "strides": ("blocks loops", "flatten puts the strides into the index"),
    "a name used twice": ("loops flat vector", "names are what schedules hold on to"),
    "a vector of unknown extent": ("blocks loops flat", "the extent is the number of lanes"),
    "lanes that are no power of two": ("blocks loops flat", "registers hold powers of two"),
    "a vector inside a vector": ("blocks loops flat", "an instruction has one row of lanes"),
    "a pipeline": ("blocks loops flat", "from here on iterations run one after the other"),
}

# The dtype kinds that an operator takes.
_NUMBERS = ("int", "uint", "float")
_WHOLE = ("int", "uint")
_FLOAT = ("float",)
_TAKES: dict[Any, tuple[str, ...]] = {
    **dict.fromkeys(BinaryOp, _NUMBERS),
    **dict.fromkeys((BinaryOp.div, BinaryOp.pow, BinaryOp.atan2, BinaryOp.fmod), _FLOAT),
    **dict.fromkeys((BinaryOp.floordiv, BinaryOp.floormod), _WHOLE),
    **dict.fromkeys((BinaryOp.truncdiv, BinaryOp.truncmod), _WHOLE),
    **dict.fromkeys((BinaryOp.shl, BinaryOp.shr), _WHOLE),
    **dict.fromkeys((BinaryOp.eq, BinaryOp.ne), (*_NUMBERS, "bool")),
    **dict.fromkeys((BinaryOp.bit_and, BinaryOp.bit_or, BinaryOp.bit_xor), (*_WHOLE, "bool")),
    **dict.fromkeys((BinaryOp.logical_and, BinaryOp.logical_or), ("bool",)),
    **dict.fromkeys(UnaryOp, _FLOAT),
    **dict.fromkeys((UnaryOp.neg, UnaryOp.abs, UnaryOp.sign), _NUMBERS),
    UnaryOp.bit_not: (*_WHOLE, "bool"),
    UnaryOp.logical_not: ("bool",),
    UnaryOp.popcount: _WHOLE,
}


def verify(func: Func, stage: str, after: str = "", before: Func | None = None) -> None:
    """Check that `func` obeys the laws of `stage`. Raises VerifyError.

    after: the pass that gave `func`; before: what the pass was given; both appear in the message.
    """
    if stage not in STAGES:
        raise ValueError(f"'{stage}' is no stage; the stages are {', '.join(STAGES)}")
    _Check(func, stage, after, before).func()


class _Check:
    """One walk over a function. `vars` and `buffers` are what may be spoken of at this point."""

    def __init__(self, func: Func, stage: str, after: str, before: Func | None) -> None:
        self.whole, self.stage, self.after, self.before = func, stage, after, before
        self.vars: dict[str, Var] = {}
        self.buffers: dict[str, Buffer] = {}
        self.sizes: dict[str, Var] = {}
        self.names: tuple[set[str], set[str], set[str]] = (set(), set(), set())
        self.stmt_now: Node = func
        self.in_vector = False

    # Faults

    def fail(self, node: Node, why: str) -> NoReturn:
        about = f"'{self.whole.name}' is no program of stage '{self.stage}'"
        about += f", after {self.after}" if self.after else ""
        text = f"{about}: {why}\n\n{self.show(node)}"
        if self.before is not None:
            text += f"\nbefore {self.after or 'that'}:\n\n{print_func(self.before)}"
        raise VerifyError(text)

    def show(self, node: Node) -> str:
        try:
            return mark(self.whole, node, "here", inside=self.stmt_now)
        except Exception as e:  # the program is broken, so its text may be, too
            return f"{node!r}\n(the program has no text: {e})\n"

    def need(self, holds: Any, node: Node, why: str) -> None:
        if not holds:
            self.fail(node, why)

    def allow(self, what: str, node: Node, name: str) -> None:
        stages, reason = ALLOWS[what]
        if self.stage not in stages:
            self.fail(node, f"{what} ('{name}'): {reason}")

    # Names

    def name(self, name: str, space: int, node: Node) -> None:
        """A new name; 0: variables, 1: buffers, 2: blocks."""
        self.need(is_name(name) or space == 2, node, f"'{name}' cannot be a name in the text")
        taken = self.names[space]
        if name in taken:
            self.allow("a name used twice", node, name)
        taken.add(name)

    def bind(self, var: Var, node: Node) -> None:
        self.name(var.name, 0, node)
        self.need(var.name not in self.vars, node, f"'{var.name}' hides a variable of that name")
        self.vars[var.name] = var

    def declare(self, b: Buffer, node: Node) -> None:
        self.name(b.name, 1, node)
        self.need(b.name not in self.buffers, node, f"'{b.name}' hides a buffer of that name")
        self.need(b.scope, node, f"'{b.name}' has no scope")
        self.whole_numbers(b.shape, node)
        if b.rank != 1:
            self.allow("an index per dimension", node, b.name)
        if b.strides is not None:
            self.allow("strides", node, b.name)
            self.need(len(b.strides) == b.rank, node, f"'{b.name}' needs {b.rank} strides")
            self.whole_numbers(b.strides, node)
        self.buffers[b.name] = b

    def annotations(self, annotations: Annotations, node: Node) -> None:
        keys = [k for k, _ in annotations]
        self.need(keys == sorted(set(keys)), node, "annotations are sorted by key")
        for key, value in annotations:
            plain = type(value) in (int, float, str, bool)
            self.need(plain, node, f"annotation '{key}' is {value!r}, not a number or a string")

    # Statements

    def func(self) -> None:
        func = self.whole
        for p in func.params:
            if isinstance(p, Var):
                self.bind(p, p)
        self.sizes = dict(self.vars)
        for p in func.params:
            if not isinstance(p, Var):
                self.declare(p, p)
        self.annotations(func.annotations, func)
        self.stmt(func.body)

    def stmt(self, s: Any) -> None:
        check = _STATEMENTS.get(s.__class__)
        if check is None:
            self.fail(s, f"{type(s).__name__} is no statement")
        self.stmt_now = s
        check(self, s)

    def scoped(self, s: Any, vars: tuple[Var, ...] = (), buffer: Buffer | None = None) -> None:
        """Check `s` where some more names hold."""
        around = self.stmt_now
        for v in vars:
            self.bind(v, around)
        if buffer is not None:
            self.declare(buffer, around)
        self.stmt(s)
        for v in vars:
            del self.vars[v.name]
        if buffer is not None:
            del self.buffers[buffer.name]

    def loop(self, s: For) -> None:
        self.need(s.kind in LOOP_KINDS, s, f"'{s.kind}' is no kind of loop")
        is_thread = s.kind == "thread"
        self.need((s.thread in THREAD_AXES) is is_thread, s, f"'{s.thread}' is no thread axis here")
        self.need(s.var.dtype is i64, s, "a loop's variable is i64")
        self.whole_numbers((s.start, s.stop), s)
        if s.kind == "pipeline":
            self.allow("a pipeline", s, s.name)
        self.annotations(s.annotations, s)
        if s.kind == "vectorize":
            self.vector(s)
        else:
            self.scoped(s.body, (s.var,))

    def vector(self, s: For) -> None:
        lanes = as_int(s.extent)
        if lanes is None:
            self.allow("a vector of unknown extent", s, s.name)
        elif lanes & (lanes - 1):
            self.allow("lanes that are no power of two", s, s.name)
        if self.in_vector:
            self.allow("a vector inside a vector", s, s.name)
        outside, self.in_vector = self.in_vector, True
        self.scoped(s.body, (s.var,))
        self.in_vector = outside

    def block(self, s: Block) -> None:
        self.allow("a block", s, s.name)
        self.name(s.name, 2, s)
        if s.where is not None:
            self.typed(s.where, bool_)
        self.annotations(s.annotations, s)
        for a in s.axes:
            self.need(a.kind in AXIS_KINDS, a, f"'{a.kind}' is no kind of axis")
            self.need(a.var.dtype is i64, a, "an axis is i64")
            self.whole_numbers((a.extent, a.value), a)
        outside = self.vars
        self.vars = dict(self.sizes)  # inside, only axes and sizes exist
        for a in s.axes:
            self.need(a.var.name not in outside, a, f"'{a.var.name}' hides a variable of that name")
            self.bind(a.var, a)
        for r in (*s.reads, *s.writes):
            self.region(r)
        if s.init is not None:
            self.stmt(s.init)
        self.stmt(s.body)
        self.stmt_now = s
        self.coverage(s)
        self.vars = outside

    def region(self, r: Region) -> None:
        b = self.known(r.buffer, r)
        rank = b.rank
        self.need(len(r.starts) == len(r.extents) == rank, r, f"'{b.name}' has {rank} dimensions")
        self.whole_numbers(r.starts, r)
        self.whole_numbers(r.extents, r)

    def coverage(self, s: Block) -> None:
        """What a block touches is among its regions (only constant bounds are compared)."""
        written = _by_name(s.writes)
        touched = {k: [*v, *written.get(k, ())] for k, v in _by_name(s.reads).items()}
        touched = {**written, **touched}
        local: set[str] = set()
        stack: list[Any] = [s.body] if s.init is None else [s.body, s.init]
        while stack:
            n = stack.pop()
            kind = n.__class__
            if kind is Alloc:
                local.add(n.buffer.name)
            elif kind is Store or kind is Load:
                name, regions = n.buffer.name, written if kind is Store else touched
                verb = "writes" if kind is Store else "reads"
                if name not in local and not any(_may_hold(r, n) for r in regions.get(name, ())):
                    self.fail(n, f"no region of block '{s.name}' says that it {verb} '{name}' here")
            stack.extend(n.children())

    def store(self, s: Store) -> None:
        b = self.access(s, s.buffer, s.indices)
        self.typed(s.value, b.dtype)

    def branch(self, s: If) -> None:
        self.typed(s.cond, bool_)
        self.scoped(s.then)
        if s.other is not None:
            self.scoped(s.other)

    def let(self, s: Let) -> None:
        self.typed(s.value, s.var.dtype)
        self.scoped(s.body, (s.var,))

    def alloc(self, s: Alloc) -> None:
        self.scoped(s.body, buffer=s.buffer)

    def sequence(self, s: Seq) -> None:
        self.need(len(s.stmts) != 1, s, "a sequence of one statement is that statement")
        for each in s.stmts:
            self.need(each.__class__ is not Seq, each, "a sequence inside a sequence is not flat")
            self.stmt(each)

    def evaluate(self, s: Eval) -> None:
        self.expr(s.value)

    # Expressions

    def whole_numbers(self, exprs: Iterable[Expr], node: Node) -> None:
        for e in exprs:
            self.expr(e)
            if e.dtype is not i64:
                self.fail(e, f"this is {e.dtype}; sizes and indices are i64")

    def typed(self, e: Expr, of: DType) -> None:
        self.expr(e)
        if e.dtype is not of:
            self.fail(e, f"{of} is wanted here, this is {e.dtype}")

    def known(self, b: Buffer, node: Node) -> Buffer:
        known = self.buffers.get(b.name)
        if known is not b:
            self.need(known is not None, node, f"there is no buffer '{b.name}' here")
            self.need(known == b, node, f"'{b.name}' is declared as another buffer of that name")
        return b

    def access(self, n: Any, b: Buffer, indices: tuple[Expr, ...]) -> Buffer:
        self.known(b, n)
        if len(indices) != b.rank:
            self.fail(n, f"'{b.name}' has {b.rank} dimensions, not {len(indices)}")
        self.whole_numbers(indices, n)
        return b

    def expr(self, e: Any) -> None:
        kind = e.__class__
        if kind is Var:
            known = self.vars.get(e.name)
            if known is not e and known != e:
                self.unknown(e)
        elif kind is Const:
            self.constant(e)
        elif kind is Binary:
            self.expr(e.a)
            self.expr(e.b)
            of = e.a.dtype
            if of is not e.b.dtype:
                self.fail(e, f"the operands of '{e.op.value}' are {of} and {e.b.dtype}")
            if of.kind not in _TAKES[e.op]:
                self.fail(e, f"'{e.op.value}' does not take {of}")
        elif kind is Load:
            self.access(e, e.buffer, e.indices)
        elif kind is Unary:
            self.expr(e.a)
            if e.a.dtype.kind not in _TAKES[e.op]:
                self.fail(e, f"'{e.op.value}' does not take {e.a.dtype}")
        elif kind is Select:
            self.typed(e.cond, bool_)
            self.expr(e.then)
            self.typed(e.other, e.then.dtype)
        elif kind is Cast:
            self.expr(e.a)
        elif kind is Call:
            for each in e.args:
                self.expr(each)
        else:
            self.fail(e, f"{kind.__name__} is no expression")

    def constant(self, e: Const) -> None:
        if e.dtype.kind == "float":
            holds = type(e.value) in (int, float)
        elif e.dtype.kind == "bool":
            holds = isinstance(e.value, bool)
        else:
            holds = type(e.value) is int and wrap(e.value, e.dtype) == e.value
        self.need(holds, e, f"{e.value!r} is no value of {e.dtype}")

    def unknown(self, e: Var) -> NoReturn:
        known = self.vars.get(e.name)
        if known is not None:
            self.fail(e, f"'{e.name}' is {known.dtype}, not {e.dtype}")
        if e.name in self.names[0]:
            self.fail(
                e, f"'{e.name}' does not hold here; a block speaks of its axes and sizes only"
            )
        self.fail(e, f"there is no variable '{e.name}'")


def _by_name(regions: Iterable[Region]) -> dict[str, list[Region]]:
    found: dict[str, list[Region]] = {}
    for r in regions:
        found.setdefault(r.buffer.name, []).append(r)
    return found


def _may_hold(region: Region, access: Any) -> bool:
    """Whether nothing constant shows the access to lie outside the region."""
    for start, extent, index in zip(region.starts, region.extents, access.indices, strict=True):
        at, first, count = as_int(index), as_int(start), as_int(extent)
        if at is not None and first is not None:
            if at < first or (count is not None and at >= first + count):
                return False
    return True


_STATEMENTS: dict[type, Callable[[_Check, Any], None]] = {
    For: _Check.loop,
    Block: _Check.block,
    Store: _Check.store,
    If: _Check.branch,
    Let: _Check.let,
    Alloc: _Check.alloc,
    Seq: _Check.sequence,
    Eval: _Check.evaluate,
}
