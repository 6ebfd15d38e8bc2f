"""Expressions and the buffers they load from: shapes, indices and values are one language.

Eight node classes; which operation a node does is an enum inside it. Python's operators build nodes
and fold constants and the neutral elements of whole numbers on the way (nothing more: `arith`
simplifies). `==` is structural and never builds a node; write `eq(a, b)` for a comparison in the
program.

Meaning (the interpreter is the reference): whole numbers wrap; `//` and `%` round down; `truncdiv`
and `truncmod` round towards zero; float → int casts truncate, saturate at the ends, and send NaN to
0.
"""

from __future__ import annotations

import enum
import operator
import struct
from collections.abc import Callable, Sequence
from typing import Any

from tilewright.ir.dtype import DType, bool_, dtype, f32, i64
from tilewright.support.node import Node, node


class BinaryOp(enum.Enum):
    """Operations of two operands of one dtype."""

    add = "+"
    sub = "-"
    mul = "*"
    div = "/"  # floats
    floordiv = "//"
    floormod = "%"
    truncdiv = "truncdiv"
    truncmod = "truncmod"
    min = "min"  # floats: NaN if either operand is NaN
    max = "max"
    pow = "pow"
    atan2 = "atan2"
    fmod = "fmod"
    eq = "=="
    ne = "!="
    lt = "<"
    le = "<="
    gt = ">"
    ge = ">="
    logical_and = "and"  # bool operands
    logical_or = "or"
    bit_and = "&"
    bit_or = "|"
    bit_xor = "^"
    shl = "<<"
    shr = ">>"  # arithmetic for signed types

    __hash__ = object.__hash__


COMPARISONS = frozenset(
    {BinaryOp.eq, BinaryOp.ne, BinaryOp.lt, BinaryOp.le, BinaryOp.gt, BinaryOp.ge}
)
INFIX = frozenset(op for op in BinaryOp if not op.value.isidentifier()) | {
    BinaryOp.logical_and,
    BinaryOp.logical_or,
}
# for what is called all the time: Python 3.11 finds a global in a seventh of the time
_ADD, _SUB, _MUL = BinaryOp.add, BinaryOp.sub, BinaryOp.mul
_FLOORDIV, _FLOORMOD = BinaryOp.floordiv, BinaryOp.floormod
_AND, _OR = BinaryOp.logical_and, BinaryOp.logical_or


class UnaryOp(enum.Enum):
    """Operations of one operand; the result has the operand's dtype (predicates: bool)."""

    neg = "neg"
    logical_not = "not"
    bit_not = "~"
    abs = "abs"
    sign = "sign"
    floor = "floor"
    ceil = "ceil"
    round = "round"  # halves to even
    trunc = "trunc"
    sqrt = "sqrt"
    rsqrt = "rsqrt"
    exp = "exp"
    exp2 = "exp2"
    expm1 = "expm1"
    log = "log"
    log2 = "log2"
    log1p = "log1p"
    sin = "sin"
    cos = "cos"
    tan = "tan"
    asin = "asin"
    acos = "acos"
    atan = "atan"
    sinh = "sinh"
    cosh = "cosh"
    tanh = "tanh"
    asinh = "asinh"
    acosh = "acosh"
    atanh = "atanh"
    erf = "erf"
    sigmoid = "sigmoid"
    gelu = "gelu"
    popcount = "popcount"
    isnan = "isnan"
    isinf = "isinf"

    __hash__ = object.__hash__


PREDICATES = frozenset({UnaryOp.isnan, UnaryOp.isinf, UnaryOp.logical_not})
SCOPES = ("global", "shared", "local", "warp")  # of buffers; targets add scopes by name


class Expr(Node):
    """An expression; every one has a `dtype`. is_plain: it is made of variables, numbers and
    operators of two operands alone, as most indices are (False: that is not known)."""

    __slots__ = ()
    dtype: DType
    is_plain: bool = False

    def __add__(self, other: Any) -> Expr:
        return binary(_ADD, self, other)

    def __radd__(self, other: Any) -> Expr:
        return binary(_ADD, other, self)

    def __sub__(self, other: Any) -> Expr:
        return binary(_SUB, self, other)

    def __rsub__(self, other: Any) -> Expr:
        return binary(_SUB, other, self)

    def __mul__(self, other: Any) -> Expr:
        return binary(_MUL, self, other)

    def __rmul__(self, other: Any) -> Expr:
        return binary(_MUL, other, self)

    def __truediv__(self, other: Any) -> Expr:
        return binary(BinaryOp.div, self, other)

    def __rtruediv__(self, other: Any) -> Expr:
        return binary(BinaryOp.div, other, self)

    def __floordiv__(self, other: Any) -> Expr:
        return binary(_FLOORDIV, self, other)

    def __rfloordiv__(self, other: Any) -> Expr:
        return binary(_FLOORDIV, other, self)

    def __mod__(self, other: Any) -> Expr:
        return binary(_FLOORMOD, self, other)

    def __rmod__(self, other: Any) -> Expr:
        return binary(_FLOORMOD, other, self)

    def __lt__(self, other: Any) -> Expr:
        return binary(BinaryOp.lt, self, other)

    def __le__(self, other: Any) -> Expr:
        return binary(BinaryOp.le, self, other)

    def __gt__(self, other: Any) -> Expr:
        return binary(BinaryOp.gt, self, other)

    def __ge__(self, other: Any) -> Expr:
        return binary(BinaryOp.ge, self, other)

    def __and__(self, other: Any) -> Expr:
        return binary(
            BinaryOp.logical_and if self.dtype is bool_ else BinaryOp.bit_and, self, other
        )

    def __or__(self, other: Any) -> Expr:
        return binary(BinaryOp.logical_or if self.dtype is bool_ else BinaryOp.bit_or, self, other)

    def __xor__(self, other: Any) -> Expr:
        return binary(BinaryOp.bit_xor, self, other)

    def __lshift__(self, other: Any) -> Expr:
        return binary(BinaryOp.shl, self, other)

    def __rshift__(self, other: Any) -> Expr:
        return binary(BinaryOp.shr, self, other)

    def __neg__(self) -> Expr:
        return unary(UnaryOp.neg, self)

    def __invert__(self) -> Expr:
        return unary(UnaryOp.logical_not if self.dtype is bool_ else UnaryOp.bit_not, self)

    def __bool__(self) -> bool:
        raise TypeError("an Expr has no truth value at compile time; use select or eq(a, b)")

    def astype(self, to: DType | str) -> Expr:
        """This value converted to another dtype (itself if it has it)."""
        return cast(dtype(to), self)


@node
class Const(Expr):
    """A constant. Equality sees what `dtype` holds of it: the bits of floats (0.0 is not -0.0,
    every NaN is every NaN, f32 0.1 is the f32 nearest to 0.1)."""

    value: Any  # int, float or bool, as dtype says
    dtype: DType
    is_plain = True

    def key(self) -> tuple[Any, ...]:
        if not self.dtype.is_float:
            return (self.value, self.dtype)
        value = self.dtype.round(float(self.value))
        return ("nan" if value != value else struct.pack("<d", value), self.dtype)


@node
class Var(Expr):
    """A variable, known by its name, which is unique in its Func: a loop's, an axis's or a symbolic
    size.
    """

    interned = True
    is_plain = True
    name: str
    dtype: DType = i64


@node
class Binary(Expr):
    op: BinaryOp
    a: Expr
    b: Expr
    derived = (
        "dtype = bool_ if op in COMPARISONS else a.dtype",
        "is_plain = a.is_plain and b.is_plain",
    )


@node
class Unary(Expr):
    op: UnaryOp
    a: Expr
    derived = ("dtype = bool_ if op in PREDICATES else a.dtype",)


@node
class Cast(Expr):
    """`a` converted to `dtype` (not a reinterpretation of bits: that is Call "reinterpret")."""

    dtype: DType
    a: Expr


@node
class Select(Expr):
    """`then` where `cond`, else `other`. Only the chosen side is evaluated, so a side may guard a
    load.
    """

    cond: Expr
    then: Expr
    other: Expr
    derived = ("dtype = then.dtype",)


@node
class Buffer(Node):
    """A dense array in a memory scope. `strides` in elements; None means row-major.

    leaf: loads and stores refer to it, they do not contain it, so `map_children` never visits it.
    """

    leaf = True
    name: str
    shape: tuple[Expr, ...]
    dtype: DType
    scope: str = "global"
    strides: tuple[Expr, ...] | None = None

    @property
    def rank(self) -> int:
        return len(self.shape)


@node
class Load(Expr):
    """An element of a buffer."""

    buffer: Buffer
    indices: tuple[Expr, ...]
    derived = ("dtype = buffer.dtype",)


@node
class Call(Expr):
    """An intrinsic by name: reinterpret, prefetch, address_of (of a Load), a tensor intrinsic, …

    A name may have parts: "barrier.shared" is written barrier("shared"), others as they are. A call
    for effect is i64. prefetch(A[i], 2) asks for a line into L2, prefetch(A[i]) into
    the first. choose(i, x0, x1, …) is x_i, and the last x from there on (see `choose`).
    rounded(x) is x, which no multiply-add takes in unrounded. again(x, t) is x; where that does not
    hold, no later round of the loop over t does anything: it may end.
    """

    name: str
    args: tuple[Expr, ...]
    dtype: DType


_NEUTRAL_RIGHT = {
    BinaryOp.add: 0,
    BinaryOp.sub: 0,
    BinaryOp.mul: 1,
    BinaryOp.floordiv: 1,
    BinaryOp.truncdiv: 1,
    BinaryOp.shl: 0,
    BinaryOp.shr: 0,
}


_NEVER_WRAPS = 1 << 63  # numbers less far from 0 are the same as an i64


def const(value: Any, to: DType | str = i64) -> Const:
    """A constant of dtype `to`; whole numbers wrap to its range."""
    if to is i64 and value.__class__ is int:
        return Const(wrap(value, i64), i64)
    to = dtype(to)
    if to.is_float:
        return Const(float(value), to)
    if to.is_bool:
        return Const(bool(value), to)
    return Const(wrap(int(value), to), to)


def wrap(value: int, to: DType) -> int:
    """The whole number `value` as a `to` holds it (two's complement)."""
    if to is i64 and -_NEVER_WRAPS < value < _NEVER_WRAPS:
        return value
    value &= (1 << to.bits) - 1
    if to.kind == "int" and value >> (to.bits - 1):
        value -= 1 << to.bits
    return value


def expr(value: Any, like: DType | None = None) -> Expr:
    """`value` as an expression: Python and NumPy numbers become constants of dtype `like`.

    Without `like`: bool → bool, int → i64, float → f32.
    """
    if isinstance(value, Expr):
        return value
    if like is None:
        if isinstance(value, bool):
            like = bool_
        elif isinstance(value, int):
            like = i64
        elif isinstance(value, float):
            like = f32
        elif hasattr(value, "dtype"):
            like = dtype(value.dtype)
        else:
            raise TypeError(f"{value!r} is no expression")
    if like.is_int and isinstance(value, float) and not value.is_integer():
        raise TypeError(f"{value!r} does not fit an operand of dtype {like}")
    return const(value, like)


def binary(op: BinaryOp, a: Any, b: Any) -> Expr:
    """`a op b`, folded where both are whole constants or one is neutral. Operands must share a
    dtype.
    """
    if not isinstance(a, Expr):
        a = expr(a, b.dtype if isinstance(b, Expr) else None)
    if not isinstance(b, Expr):
        b = expr(b, a.dtype)
    if a.dtype is not b.dtype:
        raise TypeError(
            f"operands of '{op.value}' have dtypes {a.dtype} and {b.dtype};"
            f" cast one: x.astype('{b.dtype}')"
        )
    kind = a.dtype.kind
    if kind == "int" or kind == "uint":
        if type(b) is Const:
            if type(a) is Const:
                folded = fold_int(op, a.value, b.value, a.dtype)
                if folded is not None:
                    return folded
            if b.value == _NEUTRAL_RIGHT.get(op):
                return a
            if b.value == 0 and op is _MUL:
                return b
            if b.value == 1 and op is _FLOORMOD:
                return Const(0, a.dtype)
        elif type(a) is Const:
            if a.value == 0:
                if op is _ADD:
                    return b
                if op in (_MUL, _FLOORDIV, _FLOORMOD):
                    return a
            elif a.value == 1 and op is _MUL:
                return b
    elif kind == "bool":
        if op is _AND or op is _OR:
            neutral = op is _AND
            if type(a) is Const:
                return b if a.value == neutral else a
            if type(b) is Const:
                return a if b.value == neutral else b
    return Binary(op, a, b)


def fold_int(op: BinaryOp, a: int, b: int, of: DType) -> Const | None:
    """`a op b` for whole numbers of dtype `of`, or None where it is undefined (division by
    zero).
    """
    compute = _FOLD.get(op)
    if compute is None:
        return Const(_COMPARE[op](a, b), bool_) if op in COMPARISONS else None
    if b == 0 and op in _DIVISIONS:
        return None
    if op in _SHIFTS and not 0 <= b < of.bits:
        return None
    return Const(wrap(compute(a, b), of), of)


def _truncdiv(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


_DIVISIONS = frozenset({BinaryOp.floordiv, BinaryOp.floormod, BinaryOp.truncdiv, BinaryOp.truncmod})
_SHIFTS = frozenset({BinaryOp.shl, BinaryOp.shr})
_COMPARE: dict[BinaryOp, Callable[[int, int], bool]] = {
    BinaryOp.eq: operator.eq,
    BinaryOp.ne: operator.ne,
    BinaryOp.lt: operator.lt,
    BinaryOp.le: operator.le,
    BinaryOp.gt: operator.gt,
    BinaryOp.ge: operator.ge,
}
_FOLD: dict[BinaryOp, Callable[[int, int], int]] = {
    BinaryOp.add: operator.add,
    BinaryOp.sub: operator.sub,
    BinaryOp.mul: operator.mul,
    BinaryOp.floordiv: lambda a, b: a // b,
    BinaryOp.floormod: operator.mod,
    BinaryOp.truncdiv: _truncdiv,
    BinaryOp.truncmod: lambda a, b: a - b * _truncdiv(a, b),
    BinaryOp.min: min,
    BinaryOp.max: max,
    BinaryOp.bit_and: lambda a, b: a & b,
    BinaryOp.bit_or: lambda a, b: a | b,
    BinaryOp.bit_xor: lambda a, b: a ^ b,
    BinaryOp.shl: lambda a, b: a << b,
    BinaryOp.shr: lambda a, b: a >> b,
}


def unary(op: UnaryOp, a: Any) -> Expr:
    """`op a`; negation of whole constants and of booleans folds."""
    a = expr(a)
    if type(a) is Const:
        if op is UnaryOp.neg and a.dtype.is_int:
            return Const(wrap(-a.value, a.dtype), a.dtype)
        if op is UnaryOp.logical_not:
            return Const(not a.value, bool_)
    return Unary(op, a)


def cast(to: DType, a: Any) -> Expr:
    """`a` converted to `to`; constants that convert exactly fold."""
    a = expr(a, None if isinstance(a, Expr) else to)
    if a.dtype is to:
        return a
    if type(a) is Const and a.dtype.is_int and to.is_int:
        return Const(wrap(a.value, to), to)
    return Cast(to, a)


def choose(index: Expr, options: Sequence[Expr]) -> Expr:
    """options[index], the last for larger indices: what an unrolled loop does in each iteration.

    A chain of selects would say the same; but nobody needs to reason about its conditions.
    """
    first = options[0]
    if any(e.dtype is not first.dtype for e in options):
        raise TypeError("the options of choose have different dtypes")
    if type(index) is Const:
        chosen: int = index.value
        return options[min(max(chosen, 0), len(options) - 1)]
    return Call("choose", (index, *options), first.dtype)


def as_selects(call: Call) -> Expr:
    """A choose, spelled out."""
    index, *options = call.args
    made = options[-1]
    for n in reversed(range(len(options) - 1)):
        made = Select(Binary(BinaryOp.le, index, Const(n, index.dtype)), options[n], made)
    return made


def select(cond: Any, then: Any, other: Any) -> Expr:
    """`then` where `cond`, else `other`."""
    cond = expr(cond, bool_)
    if not isinstance(then, Expr):
        then = expr(then, other.dtype if isinstance(other, Expr) else None)
    other = expr(other, then.dtype)
    if then.dtype is not other.dtype:
        raise TypeError(f"the sides of select have dtypes {then.dtype} and {other.dtype}")
    if type(cond) is Const:
        return then if cond.value else other
    return Select(cond, then, other)


def eq(a: Any, b: Any) -> Expr:
    """The comparison `a == b` in the program (Python's `==` on nodes is structural equality)."""
    return binary(BinaryOp.eq, a, b)


def ne(a: Any, b: Any) -> Expr:
    return binary(BinaryOp.ne, a, b)


def minimum(a: Any, b: Any) -> Expr:
    return binary(BinaryOp.min, a, b)


def maximum(a: Any, b: Any) -> Expr:
    return binary(BinaryOp.max, a, b)


def truncdiv(a: Any, b: Any) -> Expr:
    return binary(BinaryOp.truncdiv, a, b)


def truncmod(a: Any, b: Any) -> Expr:
    return binary(BinaryOp.truncmod, a, b)


def ceildiv(a: Any, b: Any) -> Expr:
    """`a / b` rounded up, for whole numbers and b > 0."""
    a = expr(a)
    return (a + (expr(b, a.dtype) - 1)) // b


def as_int(e: Any) -> int | None:
    """The value of a whole constant, else None."""
    if e.__class__ is Const:
        return e.value if e.dtype.kind != "float" else None
    return e if isinstance(e, int) else None
