"""The rule table: every rule holds, fires, and makes its expression smaller."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from tilewright.arith.rules import ANY, FLOAT, INT, RULES, Rule, apply, holds, measure
from tilewright.ir.dtype import (
    ALL,
    DType,
    bf16,
    bool_,
    f16,
    f32,
    f64,
    i8,
    i32,
    i64,
    u8,
)
from tilewright.ir.expr import (
    Binary,
    BinaryOp,
    Buffer,
    Cast,
    Const,
    Expr,
    Load,
    Select,
    Unary,
    UnaryOp,
    Var,
    const,
    expr,
    fold_int,
    select,
    wrap,
)
from tilewright.ir.walk import free_vars, rewrite_expr

CONSTANTS = ("c", "d", "k")
FLOATS = (0.0, -0.0, 1.0, -1.0, 2.0, 0.5, -3.25, 65504.0, 1e-6, math.inf, -math.inf, math.nan)


def label(rule: Rule) -> str:
    """A rule as one line."""
    return f"{text(rule.pattern)} -> {text(rule.replacement)} [{rule.on}]"


def text(e: Expr) -> str:
    if isinstance(e, Const):
        return str(e.value)
    if isinstance(e, Var):
        return e.name
    if isinstance(e, Binary):
        return f"({text(e.a)} {e.op.value} {text(e.b)})"
    if isinstance(e, Unary):
        return f"{e.op.value}({text(e.a)})"
    assert isinstance(e, Select)
    return f"select({text(e.cond)}, {text(e.then)}, {text(e.other)})"


every_rule = pytest.mark.parametrize("rule", RULES, ids=label)


def typed(e: Expr, to: DType) -> Expr:
    """A pattern with its numbers of dtype `to` (booleans stay)."""
    if isinstance(e, Var):
        return e if e.dtype is bool_ else Var(e.name, to)
    if isinstance(e, Const):
        return e if e.dtype is bool_ else Const(float(e.value) if to.is_float else e.value, to)
    children = [typed(c, to) for c in e.children()]
    if isinstance(e, Select):
        return Select(*children)
    return type(e)(e.op, *children)


def dtypes_of(rule: Rule) -> tuple[DType, ...]:
    """The dtypes to try a rule at."""
    whole, floats = (i8, u8, i32, i64), (f32, f16, f64, bf16)
    if not any(v.dtype is not bool_ for v in free_vars(rule.pattern)):
        return (bool_,)
    return {INT: whole, FLOAT: floats, ANY: whole + floats}[rule.on]


def draw(rng: random.Random, of: DType):
    """A value, often a special one; small enough that equal values come up."""
    if of.is_bool:
        return rng.random() < 0.5
    if of.is_float:
        value = rng.choice(FLOATS) if rng.random() < 0.6 else rng.uniform(-4, 4)
        return float(of.numpy.type(value))
    if rng.random() < 0.3:
        return rng.choice((of.lowest, of.highest, of.highest - 1, 0))
    return wrap(rng.randint(-6, 6), of)


def evaluate(e: Expr, at: dict[str, object]):
    """The value of an instance of a pattern."""
    if isinstance(e, Const):
        return e.value
    if isinstance(e, Var):
        return at[e.name]
    if isinstance(e, Select):
        return evaluate(e.then if evaluate(e.cond, at) else e.other, at)
    a = evaluate(e.a, at)
    of = e.a.dtype
    if isinstance(e, Unary):
        if e.op is UnaryOp.logical_not:
            return not a
        if of.is_float:
            return float(
                of.numpy.type({UnaryOp.neg: lambda: -a, UnaryOp.abs: lambda: abs(a)}[e.op]())
            )
        return wrap({UnaryOp.neg: lambda: -a, UnaryOp.bit_not: lambda: ~a}[e.op](), of)
    assert isinstance(e, Binary)
    b = evaluate(e.b, at)
    if e.op is BinaryOp.logical_and:
        return a and b
    if e.op is BinaryOp.logical_or:
        return a or b
    if not of.is_float:
        folded = fold_int(e.op, int(a), int(b), of if not of.is_bool else i8)
        return folded.value
    x, y = of.numpy.type(a), of.numpy.type(b)
    with np.errstate(all="ignore"):
        made = {
            BinaryOp.add: lambda: x + y,
            BinaryOp.sub: lambda: x - y,
            BinaryOp.mul: lambda: x * y,
            BinaryOp.div: lambda: x / y,
            BinaryOp.pow: lambda: x**y,
            BinaryOp.min: lambda: np.minimum(x, y),
            BinaryOp.max: lambda: np.maximum(x, y),
            BinaryOp.eq: lambda: x == y,
            BinaryOp.ne: lambda: x != y,
            BinaryOp.lt: lambda: x < y,
            BinaryOp.le: lambda: x <= y,
            BinaryOp.gt: lambda: x > y,
            BinaryOp.ge: lambda: x >= y,
        }[e.op]()
    return bool(made) if e.dtype is bool_ else float(made)


def same(a, b, zeros: bool) -> bool:
    """Equal to the bit; NaNs are all one, and so are zeros if `zeros`."""
    if a != a and b != b:
        return True
    return a == b and (
        zeros or not isinstance(a, float) or math.copysign(1, a) == math.copysign(1, b)
    )


@every_rule
def test_holds_at_random(rule: Rule) -> None:
    rng = random.Random(label(rule))
    names = sorted(v.name for v in free_vars(rule.pattern))
    picks_a_zero = any(
        isinstance(n, Binary) and n.op in (BinaryOp.min, BinaryOp.max) for n in nodes(rule.pattern)
    )
    for to in dtypes_of(rule):
        pattern, replacement = typed(rule.pattern, to), typed(rule.replacement, to)
        tried = 0
        for _ in range(2000):
            at = {n: draw(rng, bool_ if n in "pq" else to) for n in names}
            if any(at[n] != at[n] for n in names if n in CONSTANTS) or not allowed(rule, at):
                continue
            tried += 1
            got, want = evaluate(replacement, at), evaluate(pattern, at)
            assert same(got, want, picks_a_zero), f"{to} {at}: {want} became {got}"
            if tried == 100:
                break
        assert tried >= 20


def allowed(rule: Rule, at: dict) -> bool:
    if rule.when is None:
        return True
    names = rule.when.__code__.co_varnames[: rule.when.__code__.co_argcount]
    return rule.when(*(at[n] for n in names))


def nodes(e: Expr):
    yield e
    for child in e.children():
        yield from nodes(child)


def instance(rule: Rule, rng: random.Random, to: DType, side: Expr) -> Expr:
    """A side of a rule with small expressions for its variables."""
    at = {n: draw(rng, to) for n in CONSTANTS}
    for _ in range(500):
        if allowed(rule, at) and all(v == v for v in at.values()):
            break
        at = {n: draw(rng, to) for n in CONSTANTS}
    leaves = {n: const(v, to) for n, v in at.items()}
    for n in "xyzuv":
        leaf: Expr = Var(n, to)
        leaves[n] = rng.choice((leaf, Unary(UnaryOp.abs, leaf), Binary(BinaryOp.mul, leaf, leaf)))
    for n in "pq":
        leaves[n] = Var(n, bool_)

    def change(e: Expr) -> Expr:
        if isinstance(e, Var):
            return leaves[e.name]
        return e

    return rewrite_expr(typed(side, to), change)


def fold(e: Expr) -> Expr:
    """Constants meet at once."""
    if isinstance(e, Binary) and isinstance(e.a, Const) and isinstance(e.b, Const):
        return apply(e)
    return e


@every_rule
def test_measure_falls(rule: Rule) -> None:
    to = dtypes_of(rule)[0]
    for seed in range(20):
        before = instance(rule, random.Random(seed), to, rule.pattern)
        after = instance(rule, random.Random(seed), to, rule.replacement)
        assert measure(rewrite_expr(after, fold)) < measure(before)


@every_rule
def test_fires(rule: Rule) -> None:
    for to in dtypes_of(rule):
        for seed in range(5):
            before = instance(rule, random.Random(seed), to, rule.pattern)
            promised = instance(rule, random.Random(seed), to, rule.replacement)
            after = apply(before)
            assert after != before
            assert measure(after) <= measure(promised)
            assert after.dtype is before.dtype


def test_other_dtypes_are_left_alone() -> None:
    x, y = Var("x", f32), Var("y", f32)
    nan_matters = (
        Unary(UnaryOp.logical_not, x < y),
        Select(x < y, x, y),
        Binary(BinaryOp.le, x, x),
        Binary(BinaryOp.sub, x, x),
        Binary(BinaryOp.add, x, expr(0.0)),
        Binary(BinaryOp.mul, x, expr(0.0)),
        Binary(BinaryOp.add, Binary(BinaryOp.add, x, expr(1.0)), expr(2.0)),
        Binary(BinaryOp.max, Binary(BinaryOp.min, x, expr(0.0)), expr(1.0)),
        Binary(BinaryOp.div, x, expr(3.0)),
    )
    for e in nan_matters:
        assert apply(e) is e


def test_numbers_are_no_booleans() -> None:
    p, x = Var("p", bool_), Var("x", i64)
    for e in (Select(p, x, const(0)), Select(p, const(1), const(0)), Select(p, const(0), x)):
        assert apply(e) is e


def test_a_guard_stays_before_a_load() -> None:
    a = Buffer("A", (expr(4),), bool_)
    p, x, y = Var("p", bool_), Var("x", f32), Var("y", f32)
    guarded = Select(p, Select(Load(a, (Var("i"),)), x, y), y)
    assert apply(guarded) is guarded
    assert apply(Select(p, Select(Var("q", bool_), x, y), y)) == select(p & Var("q", bool_), x, y)


def test_casts_of_casts() -> None:
    x8, x16, xi = Var("x", i8), Var("x", f16), Var("x", i32)
    assert apply(Cast(f32, Cast(i32, x8))) == Cast(f32, x8)
    assert apply(Cast(f16, Cast(f32, x16))) is x16
    assert apply(Cast(i8, Cast(i64, xi))) == Cast(i8, xi)
    for kept in (Cast(i32, Cast(f32, xi)), Cast(i32, Cast(i8, xi)), Cast(f32, Cast(bf16, x16))):
        assert apply(kept) is kept


def test_holds_is_exact() -> None:
    """`holds(wide, narrow)` against the values, for all narrow types of 8 and 16 bits."""
    for narrow in (t for t in ALL if 8 <= t.bits <= 16):
        values = np.arange(1 << narrow.bits, dtype=np.uint32)
        values = values.astype(np.uint8 if narrow.bits == 8 else np.uint16).view(narrow.numpy)
        if narrow.is_bool:
            values = np.array([False, True])
        with np.errstate(invalid="ignore"):
            exact = values.astype(np.float64)
        exact = exact[np.isfinite(exact)] if not narrow.is_float else exact
        for wide in ALL:
            if wide.is_float:
                with np.errstate(all="ignore"):
                    back = exact.astype(np.float32).astype(wide.numpy).astype(np.float64)
                    back = exact if wide is f64 else back
                kept = bool(np.all((back == exact) | (np.isnan(back) & np.isnan(exact))))
            else:
                finite = np.isfinite(exact)
                low, high = int(wide.lowest), int(wide.highest)
                kept = bool(np.all(finite)) and bool(
                    np.all((exact >= low) & (exact <= high) & (exact == np.floor(exact)))
                )
            assert holds(wide, narrow) == kept, (wide, narrow)
