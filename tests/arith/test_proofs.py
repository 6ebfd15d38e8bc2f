"""Proofs with z3: every rule of the table, and the laws of division that affine forms rest on.

Whole numbers are bit vectors, signed and unsigned, whose constants are symbolic too. Floats are
IEEE numbers of a small format, whose laws are those of the large ones; constants of a rule with a
condition are enumerated.
"""

from __future__ import annotations

import pytest
import z3

from tilewright.arith.rules import ANY, INT, RULES, Rule
from tilewright.ir.dtype import bool_
from tilewright.ir.expr import Binary, BinaryOp, Const, Expr, Select, Unary, UnaryOp, Var
from tilewright.ir.walk import free_vars

pytestmark = pytest.mark.slow

SMALL = z3.FPSort(4, 6)
BITS = 8


class Whole:
    """A bit vector that compares as its dtype does, for the conditions of rules."""

    def __init__(self, bits: z3.BitVecRef, signed: bool) -> None:
        self.bits, self.signed = bits, signed

    def __lt__(self, other: Whole) -> z3.BoolRef:
        return self.bits < other.bits if self.signed else z3.ULT(self.bits, other.bits)

    def __le__(self, other: Whole) -> z3.BoolRef:
        return self.bits <= other.bits if self.signed else z3.ULE(self.bits, other.bits)

    def __gt__(self, other: Whole) -> z3.BoolRef:
        return other < self

    def __ge__(self, other: Whole) -> z3.BoolRef:
        return other <= self


def whole(e: Expr, signed: bool):
    """A pattern over bit vectors."""
    if isinstance(e, Const):
        return z3.BoolVal(e.value) if e.dtype is bool_ else z3.BitVecVal(e.value, BITS)
    if isinstance(e, Var):
        return z3.Bool(e.name) if e.dtype is bool_ else z3.BitVec(e.name, BITS)
    if isinstance(e, Select):
        return z3.If(whole(e.cond, signed), whole(e.then, signed), whole(e.other, signed))
    a = whole(e.a, signed)
    if isinstance(e, Unary):
        return {
            UnaryOp.logical_not: z3.Not,
            UnaryOp.neg: lambda a: -a,
            UnaryOp.bit_not: lambda a: ~a,
        }[e.op](a)
    assert isinstance(e, Binary)
    b = whole(e.b, signed)
    if e.op in LOGIC:
        return LOGIC[e.op](a, b)
    x, y = Whole(a, signed), Whole(b, signed)
    return {
        BinaryOp.add: lambda: a + b,
        BinaryOp.sub: lambda: a - b,
        BinaryOp.mul: lambda: a * b,
        BinaryOp.bit_and: lambda: a & b,
        BinaryOp.bit_or: lambda: a | b,
        BinaryOp.bit_xor: lambda: a ^ b,
        BinaryOp.min: lambda: z3.If(x <= y, a, b),
        BinaryOp.max: lambda: z3.If(x >= y, a, b),
        BinaryOp.eq: lambda: a == b,
        BinaryOp.ne: lambda: a != b,
        BinaryOp.lt: lambda: x < y,
        BinaryOp.le: lambda: x <= y,
        BinaryOp.gt: lambda: x > y,
        BinaryOp.ge: lambda: x >= y,
    }[e.op]()


LOGIC = {BinaryOp.logical_and: z3.And, BinaryOp.logical_or: z3.Or}
NEAREST = z3.RNE()


def pick(a: z3.FPRef, b: z3.FPRef, least: bool) -> z3.FPRef:
    """min or max that hands on NaN; of two equal operands (zeros) the first."""
    chosen = z3.If(z3.fpLEQ(a, b) if least else z3.fpGEQ(a, b), a, b)
    return z3.If(z3.fpIsNaN(a), a, z3.If(z3.fpIsNaN(b), b, chosen))


def real(e: Expr, constants: dict[str, float]):
    """A pattern over small floats."""
    if isinstance(e, Const):
        return z3.BoolVal(e.value) if e.dtype is bool_ else z3.FPVal(float(e.value), SMALL)
    if isinstance(e, Var):
        if e.name in constants:
            return z3.FPVal(constants[e.name], SMALL)
        return z3.Bool(e.name) if e.dtype is bool_ else z3.FP(e.name, SMALL)
    if isinstance(e, Select):
        cond, then, other = (real(part, constants) for part in (e.cond, e.then, e.other))
        return z3.If(cond, then, other)
    a = real(e.a, constants)
    if isinstance(e, Unary):
        return {UnaryOp.logical_not: z3.Not, UnaryOp.neg: z3.fpNeg, UnaryOp.abs: z3.fpAbs}[e.op](a)
    assert isinstance(e, Binary)
    if e.op is BinaryOp.pow:  # by its meaning at the two exponents of the table
        assert isinstance(e.b, Const) and e.b.value in (1.0, 2.0)
        return a if e.b.value == 1.0 else z3.fpMul(NEAREST, a, a)
    b = real(e.b, constants)
    return {
        BinaryOp.logical_and: lambda: z3.And(a, b),
        BinaryOp.logical_or: lambda: z3.Or(a, b),
        BinaryOp.add: lambda: z3.fpAdd(NEAREST, a, b),
        BinaryOp.sub: lambda: z3.fpSub(NEAREST, a, b),
        BinaryOp.mul: lambda: z3.fpMul(NEAREST, a, b),
        BinaryOp.div: lambda: z3.fpDiv(NEAREST, a, b),
        BinaryOp.min: lambda: pick(a, b, True),
        BinaryOp.max: lambda: pick(a, b, False),
        BinaryOp.eq: lambda: z3.fpEQ(a, b),
        BinaryOp.ne: lambda: z3.fpNEQ(a, b),
        BinaryOp.lt: lambda: z3.fpLT(a, b),
        BinaryOp.le: lambda: z3.fpLEQ(a, b),
        BinaryOp.gt: lambda: z3.fpGT(a, b),
        BinaryOp.ge: lambda: z3.fpGEQ(a, b),
    }[e.op]()


def prove(claim: z3.BoolRef, given: list[z3.BoolRef] | None = None) -> None:
    """Fail with the counterexample if there is one."""
    solver = z3.Solver()
    solver.set("timeout", 120_000)
    solver.add(*(given or []), z3.Not(claim))
    verdict = solver.check()
    assert verdict == z3.unsat, solver.model() if verdict == z3.sat else "not decided in time"


def parameters(rule: Rule) -> tuple[str, ...]:
    if rule.when is None:
        return ()
    return rule.when.__code__.co_varnames[: rule.when.__code__.co_argcount]


def of_numbers(rule: Rule) -> bool:
    return any(v.dtype is not bool_ for v in free_vars(rule.pattern))


WHOLE = [(n, r) for n, r in enumerate(RULES) if r.on in (INT, ANY) or not of_numbers(r)]
REAL = [(n, r) for n, r in enumerate(RULES) if r.on != INT and of_numbers(r)]


@pytest.mark.parametrize("signed", [True, False], ids=["signed", "unsigned"])
@pytest.mark.parametrize(("number", "rule"), WHOLE, ids=[str(n) for n, _ in WHOLE])
def test_rule_of_whole_numbers(number: int, rule: Rule, signed: bool) -> None:
    given = []
    if rule.when is not None:
        names = [Whole(z3.BitVec(n, BITS), signed) for n in parameters(rule)]
        given = [rule.when(*names)]
    prove(whole(rule.pattern, signed) == whole(rule.replacement, signed), given)


@pytest.mark.parametrize(("number", "rule"), REAL, ids=[str(n) for n, _ in REAL])
def test_rule_of_floats(number: int, rule: Rule) -> None:
    if rule.when is None:
        prove_real(rule, {})
        return
    tried = 0
    for k in (s * 2.0**e for s in (1, -1) for e in range(-7, 8)):
        if rule.when(k) and 2.0**-6 <= abs(k) <= 2.0**6:
            prove_real(rule, dict.fromkeys(parameters(rule), k))
            tried += 1
    assert tried > 10


def prove_real(rule: Rule, constants: dict[str, float]) -> None:
    a, b = real(rule.pattern, constants), real(rule.replacement, constants)
    numbers = {n for n in ("c", "d", "k") if n not in constants}
    given = [z3.Not(z3.fpIsNaN(z3.FP(n, SMALL))) for n in numbers]
    if z3.is_fp(a):
        zeros = z3.And(z3.fpIsZero(a), z3.fpIsZero(b)) if picks_a_zero(rule.pattern) else False
        prove(z3.Or(a == b, zeros), given)  # == of z3 is identity: zeros differ, NaN is NaN
    else:
        prove(a == b, given)


def picks_a_zero(e: Expr) -> bool:
    return (isinstance(e, Binary) and e.op in (BinaryOp.min, BinaryOp.max)) or any(
        picks_a_zero(c) for c in e.children() if isinstance(c, Expr)
    )


def test_a_false_law_is_refuted() -> None:
    x, c = Var("x"), Var("c")
    false = Rule(Binary(BinaryOp.lt, x + c, c), Binary(BinaryOp.lt, x, c - c), INT)
    with pytest.raises(AssertionError, match="x = "):
        test_rule_of_whole_numbers(0, false, True)


# ---- the laws of division that affine.py rests on (for positive divisors z3's div rounds down)


@pytest.mark.parametrize("c", [2, 3, 4, 7, 16])
def test_quotient_splits_off_multiples(c: int) -> None:
    q, r = z3.Ints("q r")
    prove((q * c + r) / c == q + r / c)
    prove((q * c + r) % c == r % c)
    prove(z3.Implies(z3.And(r >= 0, r < c), (q * c + r) / c == q))


@pytest.mark.parametrize(("g", "c"), [(2, 4), (3, 12), (4, 12), (4, 16), (6, 12)])
def test_quotient_on_a_grid(g: int, c: int) -> None:
    """The fine part stays in one cell k of the grid g, and g divides c."""
    coarse, fine, k = z3.Ints("coarse fine k")
    given = [fine >= k * g, fine < k * g + g]
    prove((coarse * g + fine) / c == (coarse + k) / (c // g), given)
    prove((coarse * g + fine) % c == ((coarse + k) % (c // g)) * g + fine - k * g, given)


@pytest.mark.parametrize(("l", "m"), [(2, 3), (4, 4), (3, 5), (8, 7)])
def test_digits_compose_and_join(l: int, m: int) -> None:
    x = z3.Int("x")
    u = l * m
    prove((x / l) / m == x / u)
    prove((x % u) / l == (x / l) % m)
    prove((x % u) % l == x % l)
    prove((x / l) % m + m * (x / u) == x / l)
    prove(x - l * (x / l) == x % l)
    prove(x / l - m * (x / u) == (x / l) % m)


@pytest.mark.parametrize("l", [2, 3, 16])
def test_relaxations_of_digits(l: int) -> None:
    x = z3.Int("x")
    prove(z3.And(l * (x / l) <= x, l * (x / l) >= x - l + 1))
    prove(z3.Implies(x >= 0, x % l <= x))


@pytest.mark.parametrize("g", [2, 16, 56])
def test_inequalities_coarsen(g: int) -> None:
    coarse, fine, k = z3.Ints("coarse fine k")
    given = [fine >= k * g, fine < k * g + g]
    prove((coarse * g + fine >= 0) == (coarse + k >= 0), given)


def test_symbolic_divisors() -> None:
    """By a divisor n ≥ 1 that is not constant, division is the q of x = q*n + r, 0 ≤ r < n."""
    a, n, r, q, s = z3.Ints("a n r q s")
    division = [n >= 1, a * n + r == q * n + s, s >= 0, s < n]
    prove(z3.Implies(z3.And(r >= 0, r < n), z3.And(q == a, s == r)), division)
