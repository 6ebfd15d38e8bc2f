"""Expressions as LLVM values.

In: an Expr, and what its variables are (`env`). Out: a `Value`; i64 arithmetic goes through
`Linear`, so that constants fold and lanes stay visible. Inside a vectorised loop a value that
differs between lanes is a vector, any other a scalar. Loads in a guarded side of a select happen
only where the guard holds.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Collection, Iterable
from typing import Any

from tilewright.codegen.llvm_builder import Builder
from tilewright.codegen.llvm_convert import Convert
from tilewright.codegen.llvm_index import Linear, Offsets, choice, end_of, sum_offsets
from tilewright.codegen.llvm_intrinsics import INTRINSICS
from tilewright.codegen.llvm_memory import Memory, spread
from tilewright.codegen.llvm_ops import Operators
from tilewright.codegen.llvm_types import (
    Value,
    constant,
    known_lanes,
    mangle,
    register,
    vector,
    vector_constant,
)
from tilewright.ir.dtype import bool_, i32, i64
from tilewright.ir.expr import (
    COMPARISONS,
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
    Var,
    fold_int,
)
from tilewright.ir.walk import loads, reads, visit
from tilewright.support.errors import CompileError
from tilewright.target.processors import architecture
from tilewright.target.target import Target

_UNSEEN: Any = object()
_ADD, _SUB, _MUL = BinaryOp.add, BinaryOp.sub, BinaryOp.mul
_FLOORDIV, _FLOORMOD = BinaryOp.floordiv, BinaryOp.floormod
_AND, _OR = BinaryOp.logical_and, BinaryOp.logical_or
_LINEAR = frozenset({_ADD, _SUB, _MUL, _FLOORDIV, _FLOORMOD})
_ENDS: dict[BinaryOp, Callable[[int, int], int]] = {BinaryOp.min: min, BinaryOp.max: max}


class Arithmetic:
    """An i64 expression of variables and numbers alone, and its linear forms so far, by what the
    variables were: unrolled loops ask for the same ones again and again."""

    __slots__ = ("e", "forms", "now")

    def __init__(self, e: Expr, names: Collection[str]) -> None:
        self.e = e  # kept, so that its identity stays its own
        self.now: Callable[[Any], Any] = operator.itemgetter(*names)  # what the variables are
        self.forms: dict[Any, Linear] = {}

    @staticmethod
    def of(e: Expr) -> Arithmetic | None:
        """None if memory, a call or a choice is in it."""
        names: dict[str, None] = {}
        stack: list[Any] = [e]
        while stack:
            n = stack.pop()
            kind = n.__class__
            if kind is Binary and n.op in _LINEAR:
                stack += (n.b, n.a)
            elif kind is Var:
                names[n.name] = None
            elif kind is not Const:
                return None
        return Arithmetic(e, names) if names else None


class Expressions:
    """Evaluates expressions into a Builder."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.b = Builder()
        half = target.triple.startswith("aarch64") or target.has("f16c")
        long = not target.has("avx2") or target.has("avx512dq")  # or lane by lane on AVX2
        saturates = architecture(target.triple) != "x86_64"
        self.convert = Convert(self.b, half, long, saturates)
        self.ops = Operators(self.b, self.convert)
        self.memory = Memory(self.b, self.convert)
        self.env: dict[str, Linear | Value] = {}
        self.shapes: dict[int, tuple[Expr, int, list[tuple[Expr, int]]]] = {}  # by identity
        # in this statement, under this mask, on this branch; None: nothing is needed twice
        self.evaluated: dict[Expr, Value] | None = {}
        self.arithmetics: dict[int, Arithmetic | None] = {}  # by identity
        self.numbers: dict[tuple[int, int], Linear] = {}  # see `number`
        self.lanes = 0  # of the vectorised loop around; 0: none
        self.mask: str | None = None  # the lanes that are on; None: all
        self.remainders: dict[str, int] = {}  # names of numbers from 0 to below these
        self.some_active = False  # the mask is known to have a lane that is on
        self.lane_buffers: set[str] = (
            set()
        )  # allocated inside the vectorised loop: one copy for each lane

    def bind_scalar(self, name: str, text: str) -> None:
        """Let the i64 variable `name` stand for a value in registers."""
        self.env[name] = Linear(0, {text: 1})

    # -- whole numbers as linear forms -------------------------------------------------------------

    def index(self, e: Any) -> Linear:
        """An i64 expression in linear form."""
        if e.__class__ is Const:
            return self.number(e.value)
        if e.__class__ is Var:
            known: Any = self.env[e.name]
            return known if known.__class__ is Linear else _term(known)
        if e.__class__ is Select:
            return self.chosen(e) or _term(self.eval(e))
        if e.__class__ is Binary and e.op in _ENDS and self.lanes:
            return self.held(e) or _term(self.eval(e))
        if e.__class__ is not Binary or e.op not in _LINEAR:
            return _term(self.eval(e))
        known = self.arithmetics.get(id(e), _UNSEEN)
        if known is _UNSEEN:
            known = self.arithmetics[id(e)] = Arithmetic.of(e)
        if known is None:
            return self.linear(e)
        now = self.lanes, known.now(self.env)
        found = known.forms.get(now)
        if found is None:
            found = known.forms[now] = self.linear(e)
        return found

    def number(self, n: int, lanes: int = 0) -> Linear:
        """A number, or those from it on in `lanes`: the same object each time, by which forms of
        indices are found again."""
        found = self.numbers.get((n, lanes))
        if found is None:
            found = self.numbers[n, lanes] = Linear(n, {}, range(lanes) if lanes else None)
        return found

    def linear(self, e: Binary) -> Linear:
        """As `index`, of a sum, product, quotient or remainder."""
        if e.op is not _FLOORDIV and e.op is not _FLOORMOD:
            total = self.sum(e)
            if total is not None:
                return total
        a, b = self.index(e.a), self.index(e.b)
        made = _combine(e.op, a, b)
        if made is not None:
            return made
        values = a.value(self.b, self.lanes), b.value(self.b, self.lanes)
        made = _term(self.arithmetic(e.op, *values))
        if e.op is _FLOORMOD and b.is_constant and b.constant > 0:
            self.remainders |= dict.fromkeys(made.terms, b.constant)
        return made

    def chosen(self, e: Select) -> Linear | None:
        """A choice that is known for every lane; None if it is another."""
        cond = self.eval(e.cond)
        if cond.const is not None:
            return self.index(e.then if cond.const else e.other)
        on = known_lanes(cond.text)
        return choice(on, self.index(e.then), self.index(e.other)) if on else None

    def held(self, e: Binary) -> Linear | None:
        """The lesser or greater of two indices that are known distances apart in every lane, as
        where a row ends; None if the run decides."""
        return end_of(_ENDS[e.op], self.index(e.a), self.index(e.b), self.lanes)

    def sum(self, e: Expr) -> Linear | None:
        """A sum of multiples, whose shape is looked up once; None if a part varies oddly."""
        shape = self.shapes.get(id(e))
        if shape is None:
            parts: list[tuple[Expr, int]] = []
            shape = self.shapes[id(e)] = e, linear_parts(e, 1, parts), parts
        _, constant, parts = shape
        if parts and parts[0][0] is e:  # a product, nothing to add
            return None
        terms: dict[str, int] = {}
        offsets: Offsets | None = None
        env = self.env
        for leaf, c in parts:
            form: Any = env[leaf.name] if leaf.__class__ is Var else self.index(leaf)  # type: ignore[attr-defined]
            if form.__class__ is not Linear:
                form = _term(form)
            if form.varying is not None:
                return None
            constant += c * form.constant
            for term, k in form.terms.items():
                terms[term] = terms.get(term, 0) + c * k
            if form.offsets is not None:
                offsets, moved = sum_offsets(offsets, form.offsets, c)
                constant += moved
        if 0 in terms.values():
            terms = {term: c for term, c in terms.items() if c}
        return Linear(constant, terms, offsets)

    def location(self, buffer: Buffer, index: Expr) -> Linear:
        """Where in its memory an element lies; buffers of a vectorised loop hold a vector for each
        element.
        """
        form = self.index(index)
        if buffer.name not in self.lane_buffers:
            return form
        scaled = form.times(self.lanes)
        if scaled is None:
            scaled = _term(
                self.arithmetic(
                    BinaryOp.mul, form.value(self.b, self.lanes), constant(self.lanes, i64)
                )
            )
        moved = scaled.plus(Linear(0, {}, range(self.lanes)))
        assert moved is not None
        return moved

    # -- values ------------------------------------------------------------------------------------

    def eval(self, e: Any) -> Value:
        """The value of any expression."""
        kind = e.__class__
        if e.dtype is i64 and (kind is Var or (kind is Binary and e.op in _LINEAR)):
            return self.index(e).value(self.b, self.lanes)
        if kind is Const:
            return constant(e.value, e.dtype)
        if kind is Var:
            known: Any = self.env[e.name]
            return known if known.__class__ is Value else known.value(self.b, self.lanes)
        known_values = self.evaluated
        if known_values is None:
            return getattr(self, _METHODS[kind])(e)
        found = known_values.get(e)
        if found is None:
            found = known_values[e] = getattr(self, _METHODS[kind])(e)
        return found

    def binary(self, e: Binary) -> Value:
        if e.op in COMPARISONS and e.a.dtype is i64:
            return self.compare(e)
        if e.op is _AND or e.op is _OR:
            return self.logical(e)
        return self.arithmetic(e.op, self.eval(e.a), self.eval(e.b))

    def unary(self, e: Unary) -> Value:
        return self.ops.unary(e.op, self.eval(e.a))

    def cast(self, e: Cast) -> Value:
        return self.convert.cast(self.eval(e.a), e.dtype)

    def arithmetic(self, op: BinaryOp, a: Value, b: Value) -> Value:
        """`a op b`, spread over lanes if one of them varies; constants fold."""
        if a.const is not None and b.const is not None and not a.dtype.is_float:
            folded = fold_int(op, a.const, b.const, a.dtype) if a.dtype.is_int else None
            if folded is not None:
                return constant(folded.value, folded.dtype, max(a.lanes, b.lanes))
        if a.lanes != b.lanes:
            a, b = spread(self.b, a, self.lanes), spread(self.b, b, self.lanes)
        return self.ops.binary(op, a, b)

    def logical(self, e: Binary) -> Value:
        a = self.eval(e.a)
        if a.const is not None:
            return self.eval(e.b) if a.const == (e.op is _AND) else a
        b = self.eval(e.b)
        if b.const is not None:
            return a if b.const == (e.op is _AND) else b
        here, there = known_lanes(a.text), known_lanes(b.text)
        if here and there:
            both = all if e.op is _AND else any
            on = [both(lane) for lane in zip(here, there, strict=True)]
            if len(set(on)) == 1:
                return constant(on[0], bool_)
            return Value(vector_constant(on, bool_), bool_, self.lanes)
        return self.arithmetic(e.op, a, b)

    def compare(self, e: Binary) -> Value:
        """A comparison of i64 numbers. `lane + a < b` compares 32-bit lane numbers with one
        clamped bound.
        """
        a, b = self.index(e.a), self.index(e.b)
        if a.is_constant and b.is_constant:
            folded = fold_int(e.op, a.constant, b.constant, i64)
            assert folded is not None
            return constant(folded.value, bool_)
        if a.varying is None and b.varying is None and not (a.is_uniform and b.is_uniform):
            difference = a.plus(b, -1)
            if difference is not None and difference.offsets is not None:
                return self.compare_lanes(e.op, difference.offsets, a, b)
        return self.arithmetic(e.op, a.value(self.b, self.lanes), b.value(self.b, self.lanes))

    def compare_lanes(self, op: BinaryOp, offsets: Offsets, a: Linear, b: Linear) -> Value:
        low, high = min(offsets) - 1, max(offsets) + 1
        left, right = Linear(a.constant, a.terms), Linear(b.constant, b.terms)
        flat = right.plus(left, -1)
        assert flat is not None
        if flat.is_constant:
            flags = _flags(op, offsets, flat.constant)
            if flags in ("all", "none"):
                return constant(flags == "all", bool_)
            return Value(flags, bool_, self.lanes)
        if flat.terms and all(t in self.remainders for t in flat.terms):
            spans = [c * (self.remainders[t] - 1) for t, c in flat.terms.items()]
            ends = [flat.constant + sum(f(0, n) for n in spans) for f in (min, max)]
            flags = {_flags(op, offsets, end) for end in ends}
            if flags in ({"all"}, {"none"}):
                return constant(flags == {"all"}, bool_)
        x, y = right.scalar(self.b), left.scalar(self.b)
        bound = x if y == "0" else self.bounded("ssub.sat", x, y)
        bound = self.bounded("smax", bound, str(low))
        bound = self.b.call("i64", "llvm.smin.i64", [("i64", bound), ("i64", str(high))])
        short = Value(self.b.pure(f"trunc i64 {bound} to i32", bound), i32)
        each = Value(vector_constant(list(offsets), i32), i32, self.lanes)
        return self.ops.binary(op, each, spread(self.b, short, self.lanes))

    def bounded(self, function: str, a: str, b: str) -> str:
        """An intrinsic of two i64 numbers, where lanes ask for it."""
        self.b.declarations.add(f"declare i64 @llvm.{function}.i64(i64, i64)")
        return self.b.asked(f"call i64 @llvm.{function}.i64(i64 {a}, i64 {b})", a, b)

    def load(self, e: Load) -> Value:
        where = e.indices[0]
        index = self.location(e.buffer, where) if self.lane_buffers else self.index(where)
        if self.mask is None:
            return self.memory.load(e.buffer, index, self.lanes, None)
        private = e.buffer.name in self.memory.private
        on = known_lanes(self.mask)
        if on and not any(on):
            return constant(0, e.dtype, 0 if index.is_uniform else self.lanes)
        asks = not self.some_active and not on
        if asks and index.is_uniform and not private:
            kind = register(e.dtype)
            some = self.any_lane(self.mask)
            text = self.b.choose(
                some,
                kind,
                lambda: self.memory.load(e.buffer, index, 0, None).text,
                lambda: constant(0, e.dtype).text,
            )
            return Value(text, e.dtype)
        return self.memory.load(e.buffer, index, self.lanes, self.mask)

    def select(self, e: Select) -> Value:
        cond = self.eval(e.cond)
        if cond.const is not None:
            return self.eval(e.then if cond.const else e.other)
        if cond.lanes:
            read = read_anyway(e.cond)
            then = self.under(cond.text, e.then, read)
            other = self.under(self.against(cond.text), e.other, read)
            a, b = spread(self.b, then, self.lanes), spread(self.b, other, self.lanes)
            return self.ops.select(cond.text, self.lanes, a, b)
        lanes = self.lanes if self.varies(e.then) or self.varies(e.other) else 0
        if reads(e.then) or reads(e.other):
            text = self.b.choose(
                cond.text,
                register(e.dtype, lanes),
                lambda: self.aside(e.then, lanes).text,
                lambda: self.aside(e.other, lanes).text,
            )
            return Value(text, e.dtype, lanes)
        return self.ops.select(cond.text, 0, self.wide(e.then, lanes), self.wide(e.other, lanes))

    def fused(self, a: Value, b: Value, c: Value) -> Value:
        """a b + c, rounded once where the machine can."""
        lanes = max(a.lanes, b.lanes, c.lanes)
        kind = register(c.dtype, lanes)
        if lanes:
            a, b, c = spread(self.b, a, lanes), spread(self.b, b, lanes), spread(self.b, c, lanes)
        name, x, y, z = f"llvm.fmuladd.{mangle(kind)}", a.text, b.text, c.text
        self.b.declarations.add(f"declare {kind} @{name}({kind}, {kind}, {kind})")
        text = self.b.pure(f"call {kind} @{name}({kind} {x}, {kind} {y}, {kind} {z})", x, y, z)
        return Value(text, c.dtype, lanes)

    def wide(self, e: Expr, lanes: int) -> Value:
        return spread(self.b, self.eval(e), lanes) if lanes else self.eval(e)

    def aside(self, e: Expr, lanes: int) -> Value:
        """As `wide`, on a branch: what is evaluated there is not known behind it."""
        outside, self.evaluated = self.evaluated, {}
        value = self.wide(e, lanes)
        self.evaluated = outside
        return value

    def under(self, cond: str, e: Expr, read: Collection[Expr] = ()) -> Value:
        """The value of `e` where only the lanes of `cond` may read memory, but what was `read` for
        all of them before."""
        if all(n in read for n in loads(e)):
            return self.eval(e)
        outside = self.mask, self.some_active, self.evaluated
        self.mask, self.some_active, self.evaluated = self.also(cond), False, {}
        value = self.eval(e)
        self.mask, self.some_active, self.evaluated = outside
        return value

    def call(self, e: Call) -> Value:
        made = INTRINSICS.get(e.name) or INTRINSICS.get(e.name.partition(".")[0])
        if made is None:
            raise CompileError(f"cannot generate '{e.name}'", "this target has no such intrinsic")
        return made(self, e)

    # -- lanes -------------------------------------------------------------------------------------

    def also(self, cond: str) -> str:
        """The current mask and `cond`."""
        if self.mask is None:
            return cond
        mine, more = known_lanes(self.mask), known_lanes(cond)
        if mine and more:
            return vector_constant([a and b for a, b in zip(mine, more, strict=True)], bool_)
        return self.b.pure(f"and {vector('i1', self.lanes)} {self.mask}, {cond}", self.mask, cond)

    def against(self, cond: str) -> str:
        """The lanes in which `cond` does not hold."""
        if on := known_lanes(cond):
            return vector_constant([not lane for lane in on], bool_)
        return self.b.pure(f"xor {vector('i1', self.lanes)} {cond}, splat (i1 true)", cond)

    def any_lane(self, mask: str) -> str:
        flag = vector("i1", self.lanes)
        return self.b.call("i1", f"llvm.vector.reduce.or.v{self.lanes}i1", [(flag, mask)])

    def varies(self, e: Expr) -> bool:
        """Whether the value of `e` differs between lanes."""
        if not self.lanes:
            return False
        for n in visit(e):
            if isinstance(n, Var):
                known: Any = self.env.get(n.name)
                if known is not None and (
                    known.lanes if isinstance(known, Value) else not known.is_uniform
                ):
                    return True
            elif isinstance(n, Load) and n.buffer.name in self.lane_buffers:
                return True
        return False


_METHODS: dict[type, str] = {  # by name: definitions of functions select in their own way
    Load: "load",
    Binary: "binary",
    Unary: "unary",
    Cast: "cast",
    Select: "select",
    Call: "call",
}


def read_anyway(e: Expr) -> set[Load]:
    """What `e` reads whatever its own selects choose."""
    found: set[Load] = set()
    waiting = [e]
    while waiting:
        n = waiting.pop()
        if isinstance(n, Load):
            found.add(n)
        inside = (n.cond,) if isinstance(n, Select) else n.children()
        waiting += [c for c in inside if isinstance(c, Expr)]
    return found


def repeats(roots: Iterable[Expr]) -> bool:
    """Whether values are evaluated several times that are not plain: such as occur several
    times in `roots`, and those in whole numbers, of which a linear form is tried first."""
    stack: list[Any] = [*roots]
    seen: set[Expr] = set()
    while stack:
        n = stack.pop()
        if n.is_plain:
            continue
        if n in seen or (n.dtype is i64 and n.__class__ is not Load):
            return True
        seen.add(n)
        stack += n.children()
    return False


@functools.lru_cache(maxsize=1024)
def _flags(op: BinaryOp, offsets: Offsets, bound: int) -> str:
    """Which lanes satisfy `offset op bound`: "all", "none", or a constant vector."""
    folded = [fold_int(op, o, bound, i64) for o in offsets]
    flags = [f is not None and bool(f.value) for f in folded]
    if all(flags):
        return "all"
    return vector_constant(flags, bool_) if any(flags) else "none"


def _term(value: Value) -> Linear:
    """A value in registers as a linear form."""
    if value.const is not None:
        return Linear(value.const)
    if value.lanes:
        return Linear(varying=value)
    return Linear(0, {value.text: 1})


def linear_parts(e: Any, factor: int, into: list[tuple[Expr, int]]) -> int:
    """Add the parts of a sum, each with its factor; gives the constant."""
    if e.__class__ is Const:
        return e.value * factor
    if e.__class__ is Binary:
        if e.op is _ADD or e.op is _SUB:
            sign = 1 if e.op is _ADD else -1
            return linear_parts(e.a, factor, into) + linear_parts(e.b, factor * sign, into)
        if e.op is _MUL:
            if e.b.__class__ is Const:
                return linear_parts(e.a, factor * e.b.value, into)
            if e.a.__class__ is Const:
                return linear_parts(e.b, factor * e.a.value, into)
    into.append((e, factor))
    return 0


def _combine(op: BinaryOp, a: Linear, b: Linear) -> Linear | None:
    if op is _ADD:
        return a.plus(b)
    if op is _SUB:
        return a.plus(b, -1)
    if op is _MUL:
        if b.is_constant:
            return a.times(b.constant)
        return b.times(a.constant) if a.is_constant else None
    return a.divided(b.constant, op is _FLOORMOD) if b.is_constant else None
