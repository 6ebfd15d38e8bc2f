"""Rules of algebra for values: (pattern, replacement) for each operator, compiled to Python when needed.

In: an expression whose operands are simplified. Out: the same value with a smaller `measure`, which is why
rewriting ends. The one idea: patterns are expressions of the IR over pattern variables, so that a rule reads
as its law, tests evaluate both of its sides, and a proof is a translation away.

Pattern variables: x y z stand for anything, u v for floats, p q for booleans; a name is the same expression
wherever it stands. c d k stand for constants (never NaN). A rule holds for the dtypes in its last column:
ANY; INT: whole numbers, which wrap; FLOAT: bit for bit, except that the sign of a NaN, and which zero is the
lesser, mean nothing. `x < y` may have operands of any dtype; a boolean rule needs no column.
"""

# ruff: noqa: E501, B002

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from tilewright.ir.dtype import ALL, DType, bool_, f32
from tilewright.ir.expr import (
    COMPARISONS,
    Binary,
    BinaryOp,
    Call,
    Cast,
    Const,
    Expr,
    Load,
    Select,
    Unary,
    UnaryOp,
    Var,
    binary,
    cast,
    const,
    eq,
    maximum,
    minimum,
    ne,
    select,
    unary,
)
from tilewright.support.generated import compiled

ANY, INT, FLOAT = "any", "int", "float"


class Rule(NamedTuple):
    """`pattern` is `replacement` where `when` holds of the constants."""

    pattern: Expr
    replacement: Expr
    on: str = ANY
    when: Callable[..., bool] | None = None  # its parameters name pattern constants
    free: str = ""  # the name of a part that may now be evaluated where it was not


x, y, z = Var("x"), Var("y"), Var("z")
c, d = Var("c"), Var("d")
u, v, k = Var("u", f32), Var("v", f32), Var("k", f32)
p, q = Var("p", bool_), Var("q", bool_)
_CONSTANTS = ("c", "d", "k")
_ZERO, _TRUE, _FALSE = const(0), const(True, bool_), const(False, bool_)


def _mirrored(*comparisons: BinaryOp) -> tuple[Rule, ...]:
    """c < x is x > c: constants stand on the right."""
    other = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}
    return tuple(
        Rule(Binary(op, c, x), Binary(BinaryOp(other[op.value]), x, c)) for op in comparisons
    )


def at_least(c: Any, d: Any) -> bool:
    return c >= d


def at_most(c: Any, d: Any) -> bool:
    return c <= d


def below(c: Any, d: Any) -> bool:
    return c < d


def above(c: Any, d: Any) -> bool:
    return c > d


def is_power_of_two(k: float) -> bool:
    """±2**e whose reciprocal is exact in every float dtype."""
    return 2.0**-6 <= abs(k) <= 2.0**6 and abs(math.frexp(k)[0]) == 0.5


# fmt: off
RULES: tuple[Rule, ...] = (
    # minimum and maximum                                                          the law
    Rule(minimum(x, x),                     x),                                     # idempotent
    Rule(maximum(x, x),                     x),
    Rule(minimum(c, x),                     minimum(x, c),          INT),           # constants stand on the right
    Rule(maximum(c, x),                     maximum(x, c),          INT),
    Rule(minimum(minimum(x, c), d),         minimum(x, minimum(c, d))),             # associative: constants meet
    Rule(maximum(maximum(x, c), d),         maximum(x, maximum(c, d))),
    Rule(minimum(x, minimum(y, c)),         minimum(minimum(x, y), c), INT),
    Rule(maximum(x, maximum(y, c)),         maximum(maximum(x, y), c), INT),
    Rule(minimum(minimum(x, y), y),         minimum(x, y)),                         # absorbed
    Rule(minimum(minimum(x, y), x),         minimum(x, y)),
    Rule(minimum(x, minimum(x, y)),         minimum(x, y)),
    Rule(minimum(y, minimum(x, y)),         minimum(x, y)),
    Rule(maximum(maximum(x, y), y),         maximum(x, y)),
    Rule(maximum(maximum(x, y), x),         maximum(x, y)),
    Rule(maximum(x, maximum(x, y)),         maximum(x, y)),
    Rule(maximum(y, maximum(x, y)),         maximum(x, y)),
    Rule(minimum(x, maximum(x, y)),         x,                      INT),           # a lattice: min(x, max(x, y)) = x
    Rule(minimum(x, maximum(y, x)),         x,                      INT),
    Rule(minimum(maximum(x, y), x),         x,                      INT),
    Rule(minimum(maximum(x, y), y),         y,                      INT),
    Rule(maximum(x, minimum(x, y)),         x,                      INT),
    Rule(maximum(x, minimum(y, x)),         x,                      INT),
    Rule(maximum(minimum(x, y), x),         x,                      INT),
    Rule(maximum(minimum(x, y), y),         y,                      INT),
    Rule(minimum(maximum(x, c), d),         d,                      INT, at_least),  # nothing is left between
    Rule(maximum(minimum(x, c), d),         d,                      INT, at_most),
    Rule(minimum(minimum(x, y), maximum(x, y)), minimum(x, y)),                     # the lesser and the greater of two
    Rule(maximum(minimum(x, y), maximum(x, y)), maximum(x, y)),
    Rule(minimum(maximum(x, y), minimum(x, y)), minimum(x, y)),
    Rule(maximum(maximum(x, y), minimum(x, y)), maximum(x, y)),

    # select
    Rule(Select(p, x, x),                   x),                                     # no choice
    Rule(Select(~p, x, y),                  select(p, y, x)),                       # not: sides change
    Rule(Select(p, Select(q, x, y), y),     select(p & q, x, y),    free="q"),      # conditions meet
    Rule(Select(p, Select(q, y, x), y),     select(p & ~q, x, y),   free="q"),
    Rule(Select(p, x, Select(q, x, y)),     select(p | q, x, y),    free="q"),
    Rule(Select(p, x, Select(q, y, x)),     select(p | ~q, x, y),   free="q"),
    Rule(Select(p, Select(p, x, y), z),     select(p, x, z)),                       # asked before
    Rule(Select(p, x, Select(p, y, z)),     select(p, x, z)),
    Rule(Select(p, _TRUE, _FALSE),          p),                                     # of booleans
    Rule(Select(p, _FALSE, _TRUE),          ~p),
    Rule(Select(p, _TRUE, q),               p | q,                  free="q"),
    Rule(Select(p, q, _FALSE),              p & q,                  free="q"),
    Rule(Select(p, _FALSE, q),              ~p & q,                 free="q"),
    Rule(Select(p, q, _TRUE),               ~p | q,                 free="q"),
    Rule(Select(x < y, x, y),               minimum(x, y),          INT),           # min and max by another name
    Rule(Select(x <= y, x, y),              minimum(x, y),          INT),
    Rule(Select(x > y, y, x),               minimum(x, y),          INT),
    Rule(Select(x >= y, y, x),              minimum(x, y),          INT),
    Rule(Select(x > y, x, y),               maximum(x, y),          INT),
    Rule(Select(x >= y, x, y),              maximum(x, y),          INT),
    Rule(Select(x < y, y, x),               maximum(x, y),          INT),
    Rule(Select(x <= y, y, x),              maximum(x, y),          INT),
    Rule(Select(eq(x, y), x, y),            y,                      INT),           # equal or not, it is y
    Rule(Select(ne(x, y), x, y),            x,                      INT),

    # boolean
    Rule(p & p,                             p),                                     # idempotent
    Rule(p | p,                             p),
    Rule(p & ~p,                            _FALSE),                                # contradiction
    Rule(~p & p,                            _FALSE),
    Rule(p | ~p,                            _TRUE),                                 # one of the two
    Rule(~p | p,                            _TRUE),
    Rule((p & q) & p,                       p & q),                                 # absorbed
    Rule((p & q) & q,                       p & q),
    Rule(p & (p & q),                       p & q),
    Rule(q & (p & q),                       p & q),
    Rule((p | q) | p,                       p | q),
    Rule((p | q) | q,                       p | q),
    Rule(p | (p | q),                       p | q),
    Rule(q | (p | q),                       p | q),
    Rule(p & (p | q),                       p),                                     # a lattice
    Rule(q & (p | q),                       q),
    Rule((p | q) & p,                       p),
    Rule((p | q) & q,                       q),
    Rule(p | (p & q),                       p),
    Rule(q | (p & q),                       q),
    Rule((p & q) | p,                       p),
    Rule((p & q) | q,                       q),
    Rule(~(~p),                             p),                                     # twice no
    Rule(~(eq(x, y)),                       ne(x, y)),                              # the opposite comparison
    Rule(~(ne(x, y)),                       eq(x, y)),
    Rule(~(x < y),                          x >= y,                 INT),           # (a NaN is neither)
    Rule(~(x <= y),                         x > y,                  INT),
    Rule(~(x > y),                          x <= y,                 INT),
    Rule(~(x >= y),                         x < y,                  INT),

    # comparison
    *_mirrored(BinaryOp.lt, BinaryOp.le, BinaryOp.gt, BinaryOp.ge, BinaryOp.eq, BinaryOp.ne),
    Rule(x < x,                             _FALSE),                                # irreflexive
    Rule(x > x,                             _FALSE),
    Rule(ne(x, x),                          _FALSE,                 INT),           # (a NaN differs from itself)
    Rule(eq(x, x),                          _TRUE,                  INT),
    Rule(x <= x,                            _TRUE,                  INT),
    Rule(x >= x,                            _TRUE,                  INT),
    Rule(minimum(x, y) <= x,                _TRUE,                  INT),           # bounds of min and max
    Rule(minimum(x, y) <= y,                _TRUE,                  INT),
    Rule(x >= minimum(x, y),                _TRUE,                  INT),
    Rule(y >= minimum(x, y),                _TRUE,                  INT),
    Rule(maximum(x, y) >= x,                _TRUE,                  INT),
    Rule(maximum(x, y) >= y,                _TRUE,                  INT),
    Rule(x <= maximum(x, y),                _TRUE,                  INT),
    Rule(y <= maximum(x, y),                _TRUE,                  INT),
    Rule(minimum(x, c) < d,                 x < d,                  INT, at_least),
    Rule(minimum(x, c) < d,                 _TRUE,                  INT, below),
    Rule(maximum(x, c) < d,                 x < d,                  INT, below),
    Rule(maximum(x, c) < d,                 _FALSE,                 INT, at_least),
    Rule(minimum(x, c) > d,                 x > d,                  INT, above),
    Rule(minimum(x, c) > d,                 _FALSE,                 INT, at_most),
    Rule(maximum(x, c) > d,                 x > d,                  INT, at_most),
    Rule(maximum(x, c) > d,                 _TRUE,                  INT, above),
    Rule(eq(x + c, d),                      eq(x, d - c),           INT),           # wrapping is invertible
    Rule(ne(x + c, d),                      ne(x, d - c),           INT),
    Rule(eq(x + c, y + c),                  eq(x, y),               INT),
    Rule(ne(x + c, y + c),                  ne(x, y),               INT),

    # whole numbers that wrap: a ring, and bits
    Rule(c + x,                             x + c,                  ANY),           # constants stand on the right
    Rule(c * x,                             x * c,                  ANY),
    Rule(c & x,                             x & c,                  INT),
    Rule(Binary(BinaryOp.bit_or, c, x),     Binary(BinaryOp.bit_or, x, c), INT),
    Rule(c ^ x,                             x ^ c,                  INT),
    Rule((x + c) + d,                       x + (c + d),            INT),           # associative: constants meet
    Rule((x - c) + d,                       x + (d - c),            INT),
    Rule((x + c) - d,                       x + (c - d),            INT),
    Rule((x - c) - d,                       x - (c + d),            INT),
    Rule((x * c) * d,                       x * (c * d),            INT),
    Rule((x & c) & d,                       x & (c & d),            INT),
    Rule((x ^ c) ^ d,                       x ^ (c ^ d),            INT),
    Rule(x - x,                             _ZERO,                  INT),           # inverse
    Rule((x + y) - x,                       y,                      INT),
    Rule((x + y) - y,                       x,                      INT),
    Rule((x - y) + y,                       x,                      INT),
    Rule(y + (x - y),                       x,                      INT),
    Rule(x & x,                             x,                      INT),           # idempotent
    Rule(Binary(BinaryOp.bit_or, x, x),     x,                      INT),
    Rule(x ^ x,                             _ZERO,                  INT),           # inverse
    Rule(Unary(UnaryOp.bit_not, Unary(UnaryOp.bit_not, x)), x,      INT),
    Rule(-(-x),                             x),
    Rule(x - (-y),                          x + y),                                 # minus minus
    Rule(x + (-y),                          x - y),
    Rule((-x) * (-y),                       x * y),

    # floats, bit for bit
    Rule(u * 1.0,                           u,                      FLOAT),         # neutral elements
    Rule(u / 1.0,                           u,                      FLOAT),
    Rule(u - 0.0,                           u,                      FLOAT),         # (u + 0.0 turns -0.0 into 0.0)
    Rule(u + -0.0,                          u,                      FLOAT),
    Rule(u * -1.0,                          -u,                     FLOAT),         # a change of sign is exact
    Rule(u / -1.0,                          -u,                     FLOAT),
    Rule((-u) / (-v),                       u / v,                  FLOAT),
    Rule(u / k,                             u * (1.0 / k),          FLOAT, is_power_of_two),  # an exact reciprocal
    Rule(Unary(UnaryOp.abs, -u),            Unary(UnaryOp.abs, u),  FLOAT),         # only the sign
    Rule(Unary(UnaryOp.abs, Unary(UnaryOp.abs, u)), Unary(UnaryOp.abs, u), FLOAT),
    Rule(Binary(BinaryOp.pow, u, const(2.0, f32)), u * u,           FLOAT),         # correctly rounded
    Rule(Binary(BinaryOp.pow, u, const(1.0, f32)), u,               FLOAT),
)
# fmt: on


def apply(e: Expr) -> Expr:
    """`e`, whose operands are simplified, rewritten until no rule fits its root."""
    if type(e) is Binary:
        if type(e.a) is Const and type(e.b) is Const:
            return _folded(e, _fold(e.op, e.a, e.b))
        rules = _COMPILED[e.op]
    elif type(e) is Unary:
        if type(e.a) is Const:
            return _folded(e, _fold_unary(e.op, e.a))
        rules = _COMPILED[e.op]
    elif type(e) is Cast:
        found = _cast(e)
        return e if found is None else found
    else:
        rules = _COMPILED[type(e)]
    if rules is None:
        return e
    found = rules(e)
    return e if found is None else found


def measure(e: Expr) -> int:
    """What every rule makes smaller. Constants weigh least; an operand on the right weighs double."""
    if isinstance(e, Const):
        return 1
    if isinstance(e, Binary):
        a, b = measure(e.a), measure(e.b)
        if e.op is BinaryOp.pow:
            return 4 * a * b
        if e.op is BinaryOp.logical_and or e.op is BinaryOp.logical_or:
            return a + b + 1
        return a + 2 * b + (2 if e.op is BinaryOp.div else 1)
    return (
        2
        + sum(measure(child) for child in e.children() if isinstance(child, Expr))
        - (1 if isinstance(e, Unary | Cast) else 0)
    )


# ---- constants and conversions


def _folded(e: Expr, made: Expr) -> Expr:
    """The constant that `made` is; `e` itself where folding made the same operation again."""
    return made if type(made) is Const else e


def _fold(op: BinaryOp, a: Const, b: Const) -> Expr:
    """An operation on two constants; the folding constructors have done the whole numbers."""
    if op in COMPARISONS and a.dtype.is_float:
        return Const(_COMPARE[op](a.value, b.value), bool_)
    arithmetic = _ARITHMETIC.get(op)
    if arithmetic is None or not a.dtype.is_float:
        return binary(op, a, b)
    number = a.dtype.numpy.type
    with np.errstate(all="ignore"):
        return Const(float(arithmetic(number(a.value), number(b.value))), a.dtype)


def _fold_unary(op: UnaryOp, a: Const) -> Expr:
    if a.dtype.is_float and op is UnaryOp.neg:
        return Const(-a.value, a.dtype)
    if op is UnaryOp.abs:
        return const(abs(a.value), a.dtype)
    return unary(op, a)


def _cast(e: Cast) -> Expr | None:
    """Conversions of conversions, where the middle type holds every value of the first exactly."""
    a, to = e.a, e.dtype
    if a.dtype is to:
        return a
    if isinstance(a, Cast):
        first = a.a.dtype
        if first is to and holds(a.dtype, first):
            return a.a
        if holds(a.dtype, first) or (
            to.is_int and a.dtype.is_int and first.is_int and to.bits <= a.dtype.bits
        ):
            return apply(cast(to, a.a))
    if isinstance(a, Const) and to.is_float:
        with np.errstate(all="ignore"):
            return Const(float(to.numpy.type(a.value)), to)
    return None


def holds(wide: DType, narrow: DType) -> bool:
    """Whether `wide` has every value of `narrow`, exactly."""
    if wide is narrow:
        return True
    if narrow.is_bool:
        return wide.lowest <= 0 and wide.highest >= 1
    if wide.is_bool:
        return False
    if narrow.is_float:
        return narrow.name in _WITHIN.get(wide.name, ())
    if wide.is_float:
        return max(abs(narrow.lowest), narrow.highest) <= 1 << _DIGITS[wide.name]
    return wide.lowest <= narrow.lowest and narrow.highest <= wide.highest


_DIGITS = {
    "f64": 53,
    "f32": 24,
    "f16": 11,
    "bf16": 8,
    "f8e4m3": 4,
    "f8e5m2": 3,
    "f8e4m3fnuz": 4,
    "f8e5m2fnuz": 3,
}  # of the significand
_WITHIN = {
    "f64": ("f32", "f16", "bf16", "f8e4m3", "f8e5m2", "f8e4m3fnuz", "f8e5m2fnuz"),
    "f32": ("f16", "bf16", "f8e4m3", "f8e5m2", "f8e4m3fnuz", "f8e5m2fnuz"),
    "f16": ("f8e4m3", "f8e5m2", "f8e4m3fnuz", "f8e5m2fnuz"),
    "bf16": ("f8e4m3", "f8e5m2", "f8e4m3fnuz", "f8e5m2fnuz"),
}
_INTS = frozenset(t for t in ALL if t.is_int)
_FLOATS = frozenset(t for t in ALL if t.is_float)
_ARITHMETIC: dict[BinaryOp, Callable[[Any, Any], Any]] = {
    BinaryOp.add: operator.add,
    BinaryOp.sub: operator.sub,
    BinaryOp.mul: operator.mul,
    BinaryOp.div: lambda a, b: a / b,
    BinaryOp.min: np.minimum,
    BinaryOp.max: np.maximum,
}
_COMPARE: dict[BinaryOp, Callable[[Any, Any], bool]] = {
    BinaryOp.eq: operator.eq,
    BinaryOp.ne: operator.ne,
    BinaryOp.lt: operator.lt,
    BinaryOp.le: operator.le,
    BinaryOp.gt: operator.gt,
    BinaryOp.ge: operator.ge,
}


def is_free(e: Expr) -> bool:
    """Whether `e` may be evaluated where the program would not: it loads, calls and divides nothing."""
    if isinstance(e, Load | Call) or (isinstance(e, Binary) and e.op in _PARTIAL):
        return False
    return all(is_free(child) for child in e.children() if isinstance(child, Expr))


_PARTIAL = frozenset(
    {
        BinaryOp.floordiv,
        BinaryOp.floormod,
        BinaryOp.truncdiv,
        BinaryOp.truncmod,
        BinaryOp.shl,
        BinaryOp.shr,
    }
)


# ---- compilation


Head = Any  # an operator for Binary and Unary, else the class


def head(e: Expr) -> Head:
    """What the rules of a pattern are grouped by."""
    return e.op if isinstance(e, Binary | Unary) else e.__class__


def _compile(of: Head, rules: list[tuple[int, Rule]]) -> Callable[[Any], Expr | None]:
    """One function that tries the rules, all of the head `of`, in order."""
    names: dict[str, Any] = {
        "Const": Const, "Binary": Binary, "Unary": Unary, "select_": _select, "operate": _operate,
        "operate_1": _operate_1, "const": const, "INTS": _INTS, "FLOATS": _FLOATS, "free": is_free,
        "copysign": math.copysign,
    }  # fmt: skip
    lines = ["def rules(e):"]
    for number, rule in rules:
        _Matcher(number, rule, names, lines).write()
    lines.append("    return None")
    name = of.__name__ if isinstance(of, type) else str(of)
    exec(compiled("\n".join(lines), name, __file__), names)
    return names["rules"]


class _Matcher:
    """Writes the Python text of one rule: nested tests, then the replacement."""

    def __init__(self, number: int, rule: Rule, names: dict[str, Any], lines: list[str]) -> None:
        self.rule, self.names, self.lines = rule, names, lines
        self.number = number
        self.bound: dict[str, str] = {}
        self.depth = 1

    def write(self) -> None:
        rule = self.rule
        for field, part in _parts(rule.pattern):
            self._line(f"e_{field} = e.{field}")
            self._match(f"e_{field}", part)
        typed = next((n for n in self.bound if n not in "pq"), None)
        self._line(f"T = {self.bound[typed]}.dtype" if typed else "T = None")
        if rule.on != ANY:
            self._test(f"T in {'INTS' if rule.on == INT else 'FLOATS'}")
        if rule.when is not None:
            parameters = rule.when.__code__.co_varnames[: rule.when.__code__.co_argcount]
            self.names[f"when_{self.number}"] = rule.when
            values = ", ".join(f"{self.bound[name]}.value" for name in parameters)
            self._test(f"when_{self.number}({values})")
        if rule.free:
            self._test(f"free({self.bound[rule.free]})")
        self._line(f"return {self._build(rule.replacement)}")

    def _line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def _test(self, text: str) -> None:
        self._line(f"if {text}:")
        self.depth += 1

    def _match(self, path: str, pattern: Expr) -> None:
        if isinstance(pattern, Var):
            known = self.bound.get(pattern.name)
            if known is not None:
                self._test(f"{path} is {known} or {path} == {known}")
                return
            self.bound[pattern.name] = path
            if pattern.name in _CONSTANTS:
                self._test(f"{path}.__class__ is Const and {path}.value == {path}.value")
        elif isinstance(pattern, Const):
            test = f"{path}.__class__ is Const and {path}.value == {pattern.value!r}"
            if pattern.dtype is bool_:
                test += f" and {path}.dtype is {self._bool()}"
            elif not pattern.value:
                test += f" and copysign(1, {path}.value) == {math.copysign(1, pattern.value)}"
            self._test(test)
        else:
            op = self._name(pattern.op) if isinstance(pattern, Binary | Unary) else ""
            of = f" and {path}.op is {op}" if op else ""
            self._test(f"{path}.__class__ is {self._name(pattern.__class__)}{of}")
            for field, part in _parts(pattern):
                self._line(f"{path}_{field} = {path}.{field}")
                self._match(f"{path}_{field}", part)

    def _bool(self) -> str:
        self.names["BOOL"] = bool_
        return "BOOL"

    def _name(self, thing: Any) -> str:
        name = thing.__name__ if isinstance(thing, type) else f"{type(thing).__name__}_{thing.name}"
        self.names[name] = thing
        return name

    def _build(self, e: Expr) -> str:
        if isinstance(e, Var):
            return self.bound[e.name]
        if isinstance(e, Const):
            return f"const({e.value!r}, {self._bool() if e.dtype is bool_ else 'T'})"
        if isinstance(e, Binary):
            return f"operate({self._name(e.op)}, {self._build(e.a)}, {self._build(e.b)})"
        if isinstance(e, Unary):
            return f"operate_1({self._name(e.op)}, {self._build(e.a)})"
        assert isinstance(e, Select)
        return f"select_({self._build(e.cond)}, {self._build(e.then)}, {self._build(e.other)})"


def _parts(e: Expr) -> list[tuple[str, Expr]]:
    """The operands by field name."""
    if isinstance(e, Select):
        return [("cond", e.cond), ("then", e.then), ("other", e.other)]
    return [("a", e.a), ("b", e.b)] if isinstance(e, Binary) else [("a", e.a)]  # type: ignore[attr-defined]


def _operate(op: BinaryOp, a: Expr, b: Expr) -> Expr:
    return apply(binary(op, a, b))


def _operate_1(op: UnaryOp, a: Expr) -> Expr:
    return apply(unary(op, a))


def _select(cond: Expr, then: Expr, other: Expr) -> Expr:
    return apply(select(cond, then, other))


class _ByHead(dict[Head, Callable[[Any], Expr | None] | None]):
    """The rules of each head, compiled when they are first looked for: most models need half."""

    def __missing__(self, of: Head) -> Callable[[Any], Expr | None] | None:
        rules = [(n, rule) for n, rule in enumerate(RULES) if head(rule.pattern) is of]
        self[of] = _compile(of, rules) if rules else None
        return self[of]


_COMPILED = _ByHead()
