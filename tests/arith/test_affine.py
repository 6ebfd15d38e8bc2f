"""Affine forms against the integer set library: exact equality, no sampling."""

from __future__ import annotations

import math
import random

import islpy as isl
import pytest

from tilewright.arith.affine import Forms
from tilewright.arith.interval import bounds as interval_bounds
from tilewright.arith.prove import bounds
from tilewright.arith.simplify import Facts
from tilewright.arith.terms import Affine
from tilewright.ir.expr import Binary, BinaryOp, Const, Expr, Unary, Var
from tilewright.ir.text import print_expr

NAMES = ("x", "y", "z", "n")
VARS = tuple(Var(n) for n in NAMES)


SPACE = isl.LocalSpace.from_space(isl.Space.create_from_names(isl.DEFAULT_CONTEXT, set=list(NAMES)))


def exact(e: Expr) -> isl.PwAff:
    """A quasi-affine expression in the integer set library."""
    if isinstance(e, Const):
        return isl.PwAff.from_aff(isl.Aff.val_on_domain(SPACE, isl.Val(e.value)))
    if isinstance(e, Var):
        return isl.PwAff.var_on_domain(SPACE, isl.dim_type.set, NAMES.index(e.name))
    if isinstance(e, Unary):
        return exact(e.a).neg()
    assert isinstance(e, Binary)
    if e.op in (BinaryOp.floordiv, BinaryOp.floormod):
        c = e.b.value  # type: ignore[attr-defined]
        a = exact(e.a) if c > 0 else exact(e.a).neg()
        whole = a.scale_down_val(isl.Val(abs(c))).floor()
        return whole if e.op is BinaryOp.floordiv else exact(e.a).sub(whole.scale_val(isl.Val(c)))
    operator = {
        BinaryOp.add: isl.PwAff.add,
        BinaryOp.sub: isl.PwAff.sub,
        BinaryOp.mul: isl.PwAff.mul,
        BinaryOp.min: isl.PwAff.min,
        BinaryOp.max: isl.PwAff.max,
    }
    return operator[e.op](exact(e.a), exact(e.b))


def quasi_affine(rng: random.Random, depth: int) -> Expr:
    """Sums, multiples, quotients and remainders by constants."""
    if depth == 0 or rng.random() < 0.1:
        return rng.choice(VARS)
    a = quasi_affine(rng, depth - 1)
    kind = rng.randrange(6)
    if kind == 0:
        return a + quasi_affine(rng, depth - 1)
    if kind == 1:
        return a - quasi_affine(rng, depth - 2 if depth > 1 else 0)
    c = rng.choice((2, 3, 4, 6, 8, 12, -2, -4))
    if kind == 2:
        return a * c + rng.randrange(-5, 6)
    return a // c if kind < 5 and rng.random() < 0.5 else a % c


def domain(ranges: dict) -> isl.Set:
    """The points that ranges allow."""
    parts = [f"{v.name} >= {lo}" for v, (lo, _) in ranges.items()]
    parts += [f"{v.name} <= {hi}" for v, (_, hi) in ranges.items() if hi is not None]
    return isl.Set(f"{{ [{', '.join(NAMES)}] : {' and '.join(parts)} }}")


def values(e: Expr, ranges: dict) -> isl.Map:
    """Points → the value of `e` there."""
    return isl.Map.from_pw_aff(exact(e).intersect_domain(domain(ranges)))


def ranges_of(rng: random.Random) -> dict:
    made: dict = {}
    for v in VARS[:-1]:
        lo = rng.choice((0, 0, 0, -3, 1))
        made[v] = (lo, lo + rng.choice((0, 1, 3, 7, 11, 55)))
    made[VARS[-1]] = (rng.choice((0, 1)), None)
    return made


def test_forms_equal_their_expressions() -> None:
    for seed in range(400):
        rng = random.Random(seed)
        ranges = ranges_of(rng)
        e = quasi_affine(rng, 4)
        got = Facts(ranges).simplify(e)
        message = f"{print_expr(e)} -> {print_expr(got)} where {domain(ranges)}"
        assert values(e, ranges).is_equal(values(got, ranges)), message


def test_bounds_hold_the_exact_bounds() -> None:
    tight = 0
    for seed in range(200):
        rng = random.Random(seed)
        ranges = ranges_of(rng)
        e = quasi_affine(rng, 3)
        taken = values(e, ranges).range()
        least, most = taken.dim_min_val(0), taken.dim_max_val(0)
        for lo, hi in (bounds(e, ranges), interval_bounds(e, ranges)):
            assert lo is None or isl.Val(lo) <= least, print_expr(e)
            assert hi is None or most <= isl.Val(hi), print_expr(e)
        lo, hi = bounds(e, ranges)
        tight += (isl.Val.neginfty(isl.DEFAULT_CONTEXT) if lo is None else isl.Val(lo)) == least
    assert tight >= 160  # of 200: forms are near the truth, not only above it


def test_affine_bounds_are_exact() -> None:
    for seed in range(200):
        rng = random.Random(seed)
        ranges = {v: (lo := rng.randint(-5, 5), lo + rng.randint(0, 9)) for v in VARS}
        e: Expr = Const(rng.randint(-9, 9), VARS[0].dtype)
        for _ in range(5):
            e = e + rng.choice(VARS) * rng.randint(-4, 4)
        taken = values(e, ranges).range()
        lo, hi = bounds(e, ranges)
        assert isl.Val(lo) == taken.dim_min_val(0) and isl.Val(hi) == taken.dim_max_val(0)


def test_comparisons_are_decided_truly() -> None:
    decided = 0
    for seed in range(400):
        rng = random.Random(seed)
        ranges = ranges_of(rng)
        a, b = quasi_affine(rng, 3), quasi_affine(rng, 2)
        op = rng.choice((BinaryOp.lt, BinaryOp.le, BinaryOp.eq, BinaryOp.ne, BinaryOp.ge))
        got = Facts(ranges).condition(Binary(op, a, b))
        if not isinstance(got, Const):
            continue
        decided += 1
        relation = {
            BinaryOp.lt: isl.PwAff.lt_set,
            BinaryOp.le: isl.PwAff.le_set,
            BinaryOp.eq: isl.PwAff.eq_set,
            BinaryOp.ne: isl.PwAff.ne_set,
            BinaryOp.ge: isl.PwAff.ge_set,
        }
        holds = relation[op](exact(a), exact(b)).intersect(domain(ranges))
        assert holds.is_equal(domain(ranges)) if got.value else holds.is_empty()
    assert decided > 40


@pytest.mark.parametrize("c", [2, 3, 7, -4])
def test_division_of_forms(c: int) -> None:
    x, y = VARS[0], VARS[1]
    forms = Forms({x: (-20, 20), y: (0, 30)})
    form = forms.affine(x * 5 + y * 2 - 3)
    whole, rest = forms.quotient(form, c), forms.remainder(form, c)
    again = forms.sum(whole * c, rest)
    assert again.terms == form.terms and again.const == form.const


def test_operators_of_forms() -> None:
    x, y = VARS[0], VARS[1]
    a, b = Affine({x: 1, y: 2}, 3), Affine({x: 1, y: -2}, 1)
    total, gap = a + b, a - b
    assert (total.terms, total.const) == ({x: 2}, 4)
    assert (gap.terms, gap.const) == ({y: 4}, 2)
    assert ((-a).terms, (a * 0).terms) == ({x: -1, y: -2}, {})


def test_a_range_that_names_its_own_variable_is_survived() -> None:
    x = VARS[0]
    assert bounds(x, {x: (0, x + 1)})[0] == 0


def test_digits_told_by_different_bases_are_joined() -> None:
    i, o, p = Var("i"), Var("o"), Var("p")
    forms = Forms({i: (0, 15), o: (0, 6), p: (0, 195)})
    low, high = (o * 2 + i) % 7, (o * 2 + (o * 2 + i) // 7) % 5
    assert forms.affine(high * 7 + low).terms == forms.affine((o * 16 + i) % 35).terms
    whole = forms.affine((p % 49 * 4 + i) // 14 * 14 + (i + p * 4) % 14)
    assert whole.terms == forms.affine(p % 49 * 4 + i).terms


def test_a_remainder_that_is_told_by_another_form_of_its_quotient_joins_it() -> None:
    g, i = Var("g"), Var("i")
    forms = Forms({g: (0, 27), i: (0, 113)})
    position = g % 14 * 114 + i  # of an image of 14 x 14 pixels, in runs of 114
    walked = position // 196 * 196 + position // 14 % 14 * 14 + position % 14
    assert forms.affine(walked).terms == forms.affine(position).terms


@pytest.mark.parametrize("seed", range(40))
def test_positions_of_fused_axes_join_whatever_the_vectors_cut(seed: int) -> None:
    """The positions along all axes of an array, fused and cut into vectors, are the loops again,
    whether or not a plane or an image of it is a number of whole vectors."""
    draw = random.Random(seed)
    shape = [draw.choice((2, 3, 6, 8, 12, 16, 23, 31, 48)) for _ in range(draw.randint(2, 5))]
    lanes, count = draw.choice((4, 8, 16)), math.prod(shape)
    o, i = Var("o"), Var("i")
    forms = Forms({o: (0, count // lanes - 1), i: (0, lanes - 1)})
    position: Expr = o * lanes + i
    walked, stride = position % shape[-1], 1
    for k in reversed(range(len(shape) - 1)):
        stride *= shape[k + 1]
        walked = position // stride % shape[k] * stride + walked
    assert forms.affine(walked).terms == forms.affine(position).terms, shape


def test_digits_multiplied_by_an_open_size_are_joined() -> None:
    f, n, h, w = (Var(name) for name in "fnhw")
    forms = Forms({f: (0, None), n: (1, None), h: (1, None), w: (1, None)})
    rows = h * 2
    row, plane = f // w, f // w // rows
    for image in (plane // 96, plane // 96 // n * n + plane // 96 % n):
        walked = ((image * 96 + plane % 96) * rows + row % rows) * w + f % w
        strided = image * (96 * (rows * w)) + plane % 96 * (rows * w) + row % rows * w + f % w
        assert forms.affine(walked).terms == forms.affine(strided).terms == {f: 1}
    assert forms.affine(plane % 96 * rows * w + row % rows * w).terms != {row: 1}  # images are left


def test_a_product_is_one_term_and_is_put_in_order_once(monkeypatch: pytest.MonkeyPatch) -> None:
    forms = Forms(dict.fromkeys(VARS, (0, None)))
    x, y, n = VARS[0], VARS[1], VARS[3]
    orders = [(x, y, n), (n, y, x), (y, n, x)]
    assert len({id(forms.multiply(factors)) for factors in orders}) == 1
    asked: list[Expr] = []
    monkeypatch.setattr("tilewright.arith.affine.text", lambda e: asked.append(e) or str(e))
    assert len({id(forms.multiply(factors)) for factors in orders}) == 1
    assert not asked
