"""Expressions as C text.

In: an Expr, and the intervals of the whole variables around it. Out: text with few parentheses. The
one idea: whole numbers carry the interval they lie in, so that signed overflow, which C leaves
undefined, is avoided (through unsigned numbers) only where it can happen.
"""

from __future__ import annotations

import inspect
import math
from typing import NamedTuple

import numpy as np

from tilewright.arith.interval import Interval, node_bounds
from tilewright.codegen.csource_dialect import Dialect
from tilewright.codegen.csource_functions import BYTES, Functions
from tilewright.codegen.float_forms import in_steps
from tilewright.codegen.math import FUNCTIONS
from tilewright.ir.dtype import DType, f32, f64
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
    UnaryOp,
    Var,
    as_selects,
)
from tilewright.ir.walk import visit
from tilewright.support.errors import CompileError
from tilewright.support.node import Node

B, U = BinaryOp, UnaryOp
PRIMARY, UNARY, PRODUCT, SUM, SHIFT, COMPARE, BITS, AND, OR, CHOICE = range(10)
_LEVEL = {
    B.mul: PRODUCT, B.div: PRODUCT, B.add: SUM, B.sub: SUM, B.shl: SHIFT, B.shr: SHIFT,
    B.bit_and: BITS, B.bit_or: BITS, B.bit_xor: BITS,
}  # fmt: skip
_LIBM = {U.floor: "floor", U.ceil: "ceil", U.round: "rint", U.trunc: "trunc", U.sqrt: "sqrt",
         U.abs: "fabs"}  # fmt: skip
_EXACT = frozenset({B.min, B.max, U.neg, U.abs, U.sign, *_LIBM}) - {U.sqrt}  # stays a small float
_IDENTITY = frozenset({U.floor, U.ceil, U.trunc, U.round})  # of whole numbers
_DIVISIONS = {B.truncdiv: "/", B.floordiv: "/", B.truncmod: "%", B.floormod: "%"}


class Text(NamedTuple):
    """C text and how loosely it binds."""

    text: str
    level: int = PRIMARY

    def within(self, level: int) -> str:
        return self.text if self.level <= level else f"({self.text})"


class Expressions:
    """Writes expressions in a dialect; functions that it needs gather in `functions`."""

    def __init__(self, dialect: Dialect, functions: Functions) -> None:
        self.dialect, self.functions = dialect, functions
        self.names: dict[str, str] = {}  # of variables and buffers in the source
        self.ranges: dict[str, Interval] = {}

    def expr(self, e: Expr) -> str:
        """The text of `e`, to stand alone or between commas."""
        return self.text(e).text

    def inside(self, e: Expr, level: int) -> str:
        return self.text(e).within(level)

    def text(self, e: Expr) -> Text:
        if isinstance(e, Const):
            return self.constant(e)
        if isinstance(e, Var):
            return Text(self.names[e.name])
        if isinstance(e, Load):
            return self.load(e)
        if isinstance(e, Binary):
            return self.binary(e)
        if isinstance(e, Unary):
            return self.unary(e)
        if isinstance(e, Cast):
            return self.cast(e)
        if isinstance(e, Select):
            then, other = self.inside(e.then, OR), self.inside(e.other, OR)
            return Text(f"{self.inside(e.cond, OR)} ? {then} : {other}", CHOICE)
        if isinstance(e, Call):
            return self.call(e)
        raise TypeError(f"{type(e).__name__} is no expression")

    # -- intervals ---------------------------------------------------------------------------------

    def interval(self, e: Expr) -> Interval:
        """Where a whole number lies: all that its dtype holds, if nothing better is known."""
        if not (e.dtype.is_int or e.dtype.is_bool):
            return -math.inf, math.inf
        full = int(e.dtype.lowest), int(e.dtype.highest)
        low, high = full
        if isinstance(e, Var):
            low, high = self.ranges.get(e.name, full)
        elif not isinstance(e, Load | Call):
            low, high = node_bounds(e, self.interval)
        return (low, high) if full[0] <= low and high <= full[1] else full

    def fits(self, e: Binary | Unary) -> bool:
        """Whether the exact result of whole numbers surely needs no wrapping."""
        return self.interval(e) != (int(e.dtype.lowest), int(e.dtype.highest))

    # -- leaves ------------------------------------------------------------------------------------

    def constant(self, e: Const) -> Text:
        if e.dtype.is_bool:
            return Text("1" if e.value else "0")
        if e.dtype.is_int:
            return Text(self.functions.number(int(e.value), e.dtype))
        value = e.dtype.round(float(e.value))
        if value != value:
            return Text("NAN")
        if math.isinf(value):
            return Text("INFINITY" if value > 0 else "(-INFINITY)")
        digits = repr(value) if e.dtype is f64 else f"{np.float32(value)!s}f"
        return Text(digits if math.copysign(1.0, value) > 0 else f"({digits})")

    def load(self, e: Load) -> Text:
        b, index = e.buffer, self.index(e.indices[0])
        if b.dtype.is_packed:
            unpack = self.functions.unpack(b.dtype, self.qualifier(b))
            return Text(f"{unpack}({self.names[b.name]}, {index})")
        element = f"{self.names[b.name]}[{index}]"
        return self.from_memory(Text(element), b.dtype)

    def index(self, e: Expr) -> str:
        """An index or a bound; small constants need no suffix there."""
        return str(e.value) if isinstance(e, Const) and abs(e.value) < 1 << 31 else self.expr(e)

    def qualifier(self, b: Buffer) -> str:
        return self.dialect.pointers[b.scope]

    def from_memory(self, t: Text, of: DType) -> Text:
        """A value from its memory form."""
        if of.is_float and of.bits < 32:
            return Text(f"{self.functions.widen(of)}({t.text})")
        return t

    def to_memory(self, t: Text, of: DType) -> Text:
        if of.is_float and of.bits < 32:
            return Text(f"{self.functions.narrow(of)}({t.text})")
        return t

    def rounded(self, t: Text, of: DType) -> Text:
        """A small float's result, computed in f32."""
        return self.from_memory(self.to_memory(t, of), of) if of.is_float else t

    # -- operators ---------------------------------------------------------------------------------

    def binary(self, e: Binary) -> Text:
        op, of = e.op, e.a.dtype
        if op in (B.logical_and, B.logical_or) or of.is_bool:
            return self.logical(e)
        if op in COMPARISONS:
            return self.infix(e, op.value, SUM, SUM, COMPARE)
        if op in (B.min, B.max):
            return self.call_of(self.functions.least(op, of), e.a, e.b)
        if not of.is_float:
            return self.whole(e)
        if op is B.floordiv:
            quotient = self.rounded(self.infix(e, "/", PRODUCT, UNARY, PRODUCT), of)
            return self.rounded(Text(f"{self.libm('floor', of)}({quotient.text})"), of)
        if op in _LEVEL:
            level = _LEVEL[op]
            right = level - 1
            return self.rounded(self.infix(e, op.value, level, right, level), of)
        return self.rounded(self.function(op.value, of, e.a, e.b), of)

    def infix(self, e: Binary, sign: str, left: int, right: int, level: int) -> Text:
        return Text(f"{self.operand(e.a, e.b, left)} {sign} {self.operand(e.b, e.a, right)}", level)

    def operand(self, e: Expr, beside: Expr, level: int) -> str:
        """An operand; a small constant takes its type from what stands beside it."""
        if isinstance(e, Const) and e.dtype.is_int and not isinstance(beside, Const):
            if 0 <= e.value < 1 << 31:
                return str(e.value)
        return self.inside(e, level)

    def logical(self, e: Binary) -> Text:
        """Operators of booleans, which are 0 or 1."""
        if e.op in COMPARISONS:
            return Text(f"{self.inside(e.a, SUM)} {e.op.value} {self.inside(e.b, SUM)}", COMPARE)
        if e.op is B.bit_xor:
            return Text(f"{self.inside(e.a, SUM)} != {self.inside(e.b, SUM)}", COMPARE)
        all_ = e.op in (B.logical_and, B.bit_and, B.min, B.mul)
        sign, level = ("&&", AND) if all_ else ("||", OR)
        return Text(f"{self.inside(e.a, COMPARE)} {sign} {self.inside(e.b, COMPARE)}", level)

    def whole(self, e: Binary) -> Text:
        """Operators of whole numbers, which wrap."""
        op, of = e.op, e.dtype
        divisor = self.interval(e.b)
        if op in _DIVISIONS:
            floors = op in (B.floordiv, B.floormod)
            if divisor[0] > 0 and (not floors or self.interval(e.a)[0] >= 0):
                return self.infix(e, _DIVISIONS[op], PRODUCT, UNARY, PRODUCT)
            return self.call_of(self.functions.divide(op, of), e.a, e.b)
        if op in (B.shl, B.shr):
            if divisor[0] < 0 or divisor[1] >= of.bits:
                return self.call_of(self.functions.shift(op, of), e.a, e.b)
            if op is B.shr or (self.fits(e) and self.interval(e.a)[0] >= 0):
                return Text(
                    f"{self.inside(e.a, UNARY)} {op.value} {self.inside(e.b, UNARY)}", SHIFT
                )
        if op in (B.bit_and, B.bit_or, B.bit_xor):
            return self.infix(e, op.value, UNARY, UNARY, BITS)
        unsigned = not of.is_signed and of.bits >= 32
        if op is not B.shl and (unsigned or self.fits(e)):
            return self.infix(e, op.value, _LEVEL[op], _LEVEL[op] - 1, _LEVEL[op])
        wide = self.dialect.types["u64" if of.bits == 64 else "u32"]
        left, right = f"({wide}){self.inside(e.a, UNARY)}", self.operand(e.b, e.a, UNARY)
        if op is not B.shl and not isinstance(e.b, Const):
            right = f"({wide}){right}"
        text = f"{left} {op.value} {right}"
        return Text(self.functions.wrapped(text, of), UNARY if of.bits >= 8 else PRIMARY)

    def unary(self, e: Unary) -> Text:
        op, of = e.op, e.a.dtype
        if op is U.logical_not or (op is U.bit_not and of.is_bool):
            return Text(f"!{self.inside(e.a, UNARY)}", UNARY)
        if of.is_int:
            return self.whole_unary(e)
        if op is U.neg:
            return Text(f"-{self.inside(e.a, PRIMARY)}", UNARY)
        if op is U.isnan or op is U.isinf:
            return Text(f"({op.value}({self.expr(e.a)}) != 0)")
        if op is U.sign:
            return self.call_of(self.functions.sign(of), e.a)
        if op in _LIBM:
            made = Text(f"{self.libm(_LIBM[op], of)}({self.expr(e.a)})")
            return made if op in _EXACT else self.rounded(made, of)
        if op is U.rsqrt:
            one = "1.0" if of is f64 else "1.0f"
            made = Text(f"{one} / {self.libm('sqrt', of)}({self.expr(e.a)})", PRODUCT)
            return self.rounded(made, of)
        return self.rounded(self.function(op.value, of, e.a), of)

    def whole_unary(self, e: Unary) -> Text:
        op, of = e.op, e.dtype
        if op in _IDENTITY or (op is U.abs and not of.is_signed):
            return self.text(e.a)
        if op in (U.isnan, U.isinf):
            return Text("0")
        if op is U.sign:
            made = self.call_of(self.functions.sign(of), e.a)
            return Text(self.functions.wrapped(made.text, of), UNARY)
        if op is U.popcount:
            mask, wide = (1 << of.bits) - 1, self.dialect.types["u64"]
            bits = f"({wide}){self.inside(e.a, UNARY)} & {mask}{self.dialect.suffix['u64']}"
            return Text(self.functions.wrapped(f"{self.functions.popcount()}({bits})", of), UNARY)
        wide = self.dialect.types["u64" if of.bits == 64 else "u32"]
        a = self.inside(e.a, UNARY)
        if op is U.bit_not:
            return Text(self.functions.wrapped(f"~{a}", of), UNARY)
        negated = self.functions.wrapped(f"0 - ({wide}){a}", of)
        if op is U.neg:
            return Text(negated, UNARY)
        return Text(f"{self.inside(e.a, SUM)} < 0 ? {negated} : {a}", CHOICE)

    # -- conversions -------------------------------------------------------------------------------

    def cast(self, e: Cast) -> Text:
        """Floats round to nearest even, float → whole truncates and saturates, whole wraps."""
        start, to = e.a.dtype, e.dtype
        t = self.text(e.a)
        if to.is_bool:
            return Text(f"{t.within(SUM)} != 0", COMPARE)
        if start.is_float and to.is_int:
            return Text(f"{self.functions.saturate(start, to)}({t.text})")
        if not to.is_float:
            return Text(self.functions.wrapped(t.text, to), UNARY)
        small = to.bits < 32
        if small and start is f64:
            t = Text(f"{self.functions.to_odd()}({t.text})")
        elif small and not start.is_float and start.bits > 24:
            wide = f"{self.functions.sticky(start)}({t.text})" if start.bits == 64 else t.text
            t = Text(f"{self.functions.to_odd()}({wide})")
        elif to is f64 or not start.is_float or start is f64:
            t = Text(f"({self.dialect.register(to)}){t.within(UNARY)}", UNARY)
        return self.rounded(t, to) if small else t

    # -- functions ---------------------------------------------------------------------------------

    def call_of(self, name: str, *args: Expr) -> Text:
        return Text(f"{name}({', '.join(self.expr(a) for a in args)})")

    def libm(self, name: str, of: DType) -> str:
        return name if of is f64 else name + self.dialect.single

    def function(self, name: str, of: DType, *args: Expr) -> Text:
        """A mathematical function: the language's own, or ours."""
        wide = of if of is f64 else f32
        if name in self.dialect.functions:
            return self.call_of(self.libm(name, wide), *args)
        if name not in FUNCTIONS:
            raise CompileError(f"cannot generate '{name}'", f"there is no {name} for {of}")
        return self.call_of(self.definition(name, wide), *args)

    def definition(self, name: str, of: DType) -> str:
        """The function of `codegen/math.py` as a C function; what it uses twice has a name."""
        made = f"tw_{name}_{of.name}"
        if made not in self.functions.texts:
            function = FUNCTIONS[name]
            count = len(inspect.signature(function).parameters)
            parameters = [Var(f"x{n}", of) for n in range(count)]
            body = _Definition(self.dialect, self.functions)
            body.names.update({p.name: p.name for p in parameters})
            text = body.lines_of(in_steps(function(*parameters)))
            t = self.dialect.register(of)
            self.functions.define(made, t, ", ".join(f"{t} {p.name}" for p in parameters), text)
        return made

    def call(self, e: Call) -> Text:
        if e.name == "fma":
            return self.rounded(self.call_of(self.libm("fma", e.dtype), *e.args), e.dtype)
        if e.name == "reinterpret":
            start, to = e.args[0].dtype, e.dtype
            bits = self.to_memory(self.text(e.args[0]), start)
            start, end = _in_memory(start), _in_memory(to)
            name = self.functions.reinterpret(start, end)
            return self.from_memory(Text(f"{name}({bits.text})"), to)
        if e.name == "rounded":
            return self.call_of(self.functions.rounded(e.dtype), *e.args)
        if e.name == "again":  # a hint, not taken
            return self.text(e.args[0])
        if e.name == "choose":
            return self.text(as_selects(e))
        raise CompileError(
            f"cannot generate '{e.name}'", f"{self.dialect.name} has no such intrinsic"
        )


def _in_memory(of: DType) -> DType:
    """The dtype of the memory form: small floats are the whole numbers of their bits."""
    return BYTES[of.bits] if of.is_bool or (of.is_float and of.bits < 32) else of


class _Definition(Expressions):
    """The body of a mathematical function: each node that is used twice becomes a line."""

    def __init__(self, dialect: Dialect, functions: Functions) -> None:
        super().__init__(dialect, functions)
        self.lines: list[str] = []
        self.uses: dict[int, int] = {}
        self.known: dict[int, Text] = {}

    def lines_of(self, e: Expr) -> str:
        seen: set[int] = set()

        def count(n: Node) -> None:
            self.uses[id(n)] = self.uses.get(id(n), 0) + 1
            if id(n) not in seen:
                seen.add(id(n))
                for c in n.children():
                    count(c)

        count(e)
        result = self.expr(e)
        return "\n    ".join([*self.lines, f"return {result};"])

    def text(self, e: Expr) -> Text:
        found = self.known.get(id(e))
        if found is not None:
            return found
        made = super().text(e)
        if self.uses[id(e)] > 1 and not isinstance(e, Var | Const):
            name = f"v{len(self.known)}"
            self.lines.append(f"{self.dialect.register(e.dtype)} {name} = {made.text};")
            made = self.known[id(e)] = Text(name)
        return made


def reads(e: Expr) -> bool:
    """Whether `e` reads memory."""
    return any(isinstance(n, Load) for n in visit(e))
