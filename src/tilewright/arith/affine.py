"""Affine forms: the canonical shape of an index expression, `{term: coefficient} + constant`.

In: i64 expressions and the ranges of their variables. Out: forms that add, multiply, divide, take
remainders and compare. A term is a variable or an expression that is not affine itself: a product
of terms, a minimum, a load, or a *digit* `base // l % (u // l)`, which is what `//` and `%` by
constants leave.

The one idea: to divide by c, split off what c divides (x*56 + y = 56*x + y) and ask for the bounds
of the rest; if they lie in one block of c values the quotient is known. Digits of one base that fit
together join again: (f // 56) * 56 + f % 56 is f. Forms that stand for the same value within one
`Forms` are rendered as one expression, in the order in which the user first wrote it.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

from tilewright.arith import division
from tilewright.arith.interval import (
    End,
    Interval,
    Ranges,
    dtype_bounds,
    floordiv,
    floormod,
    node_bounds,
)
from tilewright.arith.join import join
from tilewright.arith.rules import apply
from tilewright.arith.terms import (
    Affine,
    Digit,
    Names,
    add_terms,
    compose,
    grids,
    render,
    split,
    split_exactly,
    text,
)
from tilewright.ir.dtype import i64
from tilewright.ir.expr import Binary, BinaryOp, Const, Expr, Select, Unary, UnaryOp, Var, fold_int
from tilewright.ir.walk import free_vars

_ADD, _SUB, _MUL = BinaryOp.add, BinaryOp.sub, BinaryOp.mul
_FLOORDIV, _FLOORMOD = BinaryOp.floordiv, BinaryOp.floormod
_MIN, _MAX = BinaryOp.min, BinaryOp.max
_MOST_TERMS = 8  # a product of sums is multiplied out up to this many terms
_EFFORT = 48  # steps that one question to `nonnegative` may take
_MOST_NESTING = 3  # proofs inside proofs


class Forms:
    """The affine forms of expressions over variables of known ranges."""

    def __init__(self, ranges: Ranges, parent: Forms | None = None) -> None:
        """With a parent: what it knows of conditions and has named, for other ranges."""
        self.ranges = ranges
        self.conditions: tuple[Affine, ...] = ()  # forms that are known to be ≥ 0
        self.given: dict[Expr, Interval] = {}  # what conditions say of single terms
        self._bounds: dict[Expr, Interval] = {}
        self._ends: dict[Expr, tuple[Affine | None, Affine | None]] = {}
        self._whole: dict[int, tuple[Expr, Affine]] = {}  # of each expression that was asked for
        self._memo: dict[Expr, Affine] = {}  # of what is no sum, inside them
        self._joined: dict[tuple[Any, int], Affine] = {}  # sums of terms with their digits joined
        self._asked: dict[tuple[Any, int, int], bool] = {}  # what was proved, or was not
        self._failed: dict[tuple[Any, int, int, int], int] = {}  # by how many steps it was tried
        self._effort = self._nesting = 0
        self.names = Names() if parent is None else parent.names
        if parent is not None:
            self._nesting = parent._nesting  # what is asked under a condition is no new question
            self.conditions, self.given = parent.conditions, dict(parent.given)

    # ---- from expressions to forms

    def affine(self, e: Expr) -> Affine:
        """The form of an i64 expression."""
        if type(e) is Const:
            return Affine({}, e.value)
        found = self._whole.get(id(e))
        if found is None:
            terms: dict[Expr, int] = {}
            const = self._collect(e, 1, terms)
            found = self._whole[id(e)] = (e, self.canonical(terms, const))
        return found[1]

    def value(self, e: Expr) -> Expr:
        """An operand that is no i64 arithmetic, simplified; here: as it is."""
        return e

    def condition(self, e: Expr) -> Expr:
        """A boolean operand, simplified; here: as it is."""
        return e

    def under(self, cond: Expr) -> Forms:
        """These forms where `cond` also holds; here: nothing is learnt."""
        return self

    def canonical(self, terms: dict[Expr, int], const: int) -> Affine:
        """A form out of summed-up terms: without zeros, with digits joined."""
        if 0 in terms.values():
            terms = {t: c for t, c in terms.items() if c}
        if (self.names.digits or self.names.whole) and (len(terms) > 1 or self.given):
            for t in terms:
                if t.__class__ is not Var:
                    break
            else:  # nothing to join
                return Affine(terms, const)
            asked = tuple(terms.items()), const
            found = self._joined.get(asked)
            if found is None:
                found = self._joined[asked] = join(self, terms, const)
            return found
        return Affine(terms, const)

    def sum(self, a: Affine, b: Affine, k: int = 1) -> Affine:
        """a + k * b, with digits joined."""
        if not b.terms:
            return a + k * b.const
        return self.canonical(add_terms(a.terms, b.terms, k), a.const + k * b.const)

    def _collect(self, e: Expr, k: int, terms: dict[Expr, int]) -> int:
        """Add k * e to `terms`; the constant part is returned."""
        if type(e) is Var:
            lo, hi = self._bounds.get(e) or self.term_bounds(e)
            if lo == hi:
                return k * int(lo)
            terms[e] = terms.get(e, 0) + k
            return 0
        if type(e) is Const:
            return k * e.value
        if type(e) is Binary:
            op = e.op
            if op is _MUL:
                if type(e.b) is Const:
                    return self._collect(e.a, k * e.b.value, terms)
                if type(e.a) is Const:
                    return self._collect(e.b, k * e.a.value, terms)
            elif op is _ADD or op is _SUB:
                const = self._collect(e.a, k, terms)
                return const + self._collect(e.b, k if op is _ADD else -k, terms)
        form = self._memo.get(e)
        if form is None:
            form = self._memo[e] = self._other(e)
        for t, c in form.terms.items():
            terms[t] = terms.get(t, 0) + k * c
        return k * form.const

    def _other(self, e: Expr) -> Affine:
        """The form of an expression that is no sum."""
        if isinstance(e, Binary):
            rule = _BINARY_FORMS.get(e.op)
            if rule is not None:
                return rule(self, self.affine(e.a), self.affine(e.b))
            return self.operator(e.op, self.affine(e.a), self.affine(e.b))
        if isinstance(e, Unary):
            a = self.affine(e.a)
            if e.op is UnaryOp.neg:
                return -a
            if e.op is UnaryOp.abs:
                if self.nonnegative(a):
                    return a
                if self.nonnegative(-a):
                    return -a
            return self.term(Unary(e.op, self.expr(a)))
        if isinstance(e, Select):
            return self._select(e)
        return self.term(self.value(e))

    def operator(self, op: BinaryOp, a: Affine, b: Affine) -> Affine:
        """`a op b` as a term, folded where both are constants."""
        if not a.terms and not b.terms:
            folded = fold_int(op, a.const, b.const, i64)
            if folded is not None:
                return Affine({}, int(folded.value))
        return self.term(Binary(op, self.expr(a), self.expr(b)))

    def _select(self, e: Select) -> Affine:
        cond = self.condition(e.cond)
        if type(cond) is Const:
            return self.affine(e.then if cond.value else e.other)
        then = self.under(cond).simplified(e.then)
        other = self.under(Unary(UnaryOp.logical_not, cond)).simplified(e.other)
        e = Select(cond, then, other)
        ruled = apply(e)
        return self.term(e) if ruled is e else self.affine(ruled)

    def term(self, e: Expr) -> Affine:
        """The form that has `e`, as it is, for its only term."""
        lo, hi = self.term_bounds(e)
        return Affine({}, int(lo)) if lo == hi else Affine({e: 1}, 0)

    def simplified(self, e: Expr) -> Expr:
        """An i64 expression rendered from its form; `e` itself if that changes nothing."""
        form = self.affine(e)
        if len(form.terms) + (form.const != 0) <= 1 and type(e) in (Var, Const):
            return self.expr(form) if type(e) is Var else e
        return self.expr(form, e)

    # ---- digits: quotients and remainders

    def quotient(self, a: Affine, c: int) -> Affine:
        """a // c, rounded down, for a constant c ≠ 0."""
        if c < 0:
            a, c = -a, -c
        if c == 1:
            return a
        whole, rest = split(a, c)
        if not rest.terms:
            return whole
        block = self.block(rest, c)
        if block is not None:
            return whole + block
        for g in grids(rest, c):
            coarse, fine = split_exactly(rest, g)
            block = self.block(fine, g)
            if block is not None:
                return self.sum(whole, self.quotient(coarse + block, c // g))
        return self.sum(whole, self.digit(rest, c, None))

    def remainder(self, a: Affine, c: int) -> Affine:
        """a % c, with the sign of the constant c ≠ 0."""
        if c < 0:
            return -self.remainder(-a, -c)
        _, rest = split(self.without_multiples(a, c), c)
        if not rest.terms:
            return rest
        block = self.block(rest, c)
        if block is not None:
            return rest - block * c
        for g in grids(rest, c):
            coarse, fine = split_exactly(rest, g)
            block = self.block(fine, g)
            if block is not None:
                return self.sum(self.remainder(coarse + block, c // g) * g, fine - block * g)
        return self.digit(rest, 1, c)

    def block(self, a: Affine, c: int) -> int | None:
        """The k for which c*k ≤ a < c*k + c throughout, if there is one."""
        lo, hi = self.bounds(a)
        if lo != -inf and hi != inf:
            k = int(lo // c)
            if hi < (k + 1) * c:
                return k
        if (
            (self._ends or self.conditions)
            and self.nonnegative(a)
            and self.nonnegative(-a + (c - 1))
        ):
            return 0
        return None

    def without_multiples(self, a: Affine, c: int) -> Affine:
        """A form with the same remainder by c: a digit whose upper end c divides loses that end."""
        for t, k in a.terms.items():
            d = self.names.digits.get(t)
            if d is not None and d.u is not None and (k * (d.u // d.l)) % c == 0:
                rest = {u: x for u, x in a.terms.items() if u is not t}
                return self.without_multiples(
                    self.sum(Affine(rest, a.const), self.digit(d.form, d.l, None), k), c
                )
        return a

    def digit(self, base: Affine, l: int, u: int | None) -> Affine:
        """base % u // l as a term (l divides u)."""
        if base.const == 0 and len(base.terms) == 1:
            ((t, k),) = base.terms.items()
            inner = self.names.digits.get(t) if k == 1 else None
            if inner is not None:
                joined = compose(inner, l, u)
                if joined is not None:
                    low, high = joined
                    if high is None:
                        return self.quotient(inner.form, low)
                    if inner.u is not None:
                        return self.remainder(self.quotient(inner.form, low), high // low)
                    return self.digit(inner.form, low, high)
        if l == 1 and u is None:
            return base
        name = self.expr(base)
        e = self.names.terms.get((name, l, u))
        if e is None:
            e = Binary(_FLOORDIV, name, Const(l, i64)) if l > 1 else name
            if u is not None:
                e = Binary(_FLOORMOD, e, Const(u // l, i64))
            self.names.terms[name, l, u] = e
            self.names.digits[e] = Digit(name, base, l, u)
        return self.term(e)

    # ---- operators on forms

    def product(self, a: Affine, b: Affine) -> Affine:
        """a * b, multiplied out unless that is long."""
        if not a.terms:
            return b * a.const
        if not b.terms:
            return a * b.const
        if len(a.terms) * len(b.terms) > _MOST_TERMS:
            return self.term(self.multiply((self.expr(a), self.expr(b))))
        total = {t: c * b.const for t, c in a.terms.items()} if b.const else {}
        if a.const:
            for t, c in b.terms.items():
                total[t] = total.get(t, 0) + c * a.const
        factors = self.names.factors
        for t, c in a.terms.items():
            for u, d in b.terms.items():
                both = self.multiply(factors.get(t, (t,)) + factors.get(u, (u,)))
                total[both] = total.get(both, 0) + c * d
        return self.canonical(total, a.const * b.const)

    def multiply(self, factors: tuple[Expr, ...]) -> Expr:
        """The product of some terms as a term, the same one in whichever order they come."""
        if len(factors) == 1:
            return factors[0]
        products = self.names.products
        e = products.get(factors)
        if e is not None:
            return e
        name = tuple(sorted(factors, key=text))
        e = products.get(name)
        if e is None:
            e = factors[0]
            for f in factors[1:]:
                e = Binary(_MUL, e, f)
            products[name] = e
            self.names.factors[e] = factors
            self._multiply_whole(e, factors)
        products[factors] = e
        return e

    def _multiply_whole(self, e: Expr, factors: tuple[Expr, ...]) -> None:
        """r % n and n * (r // n) make r; multiplied by the same, they make its multiple."""
        for i, f in enumerate(factors):
            if f in self.names.whole:
                blocks, rest = self.names.whole[f]
                times = Affine({self.multiply(factors[:i] + factors[i + 1 :]): 1}, 0)
                self.names.whole[e] = self.product(blocks, times), self.product(rest, times)
                return

    def least(self, a: Affine, b: Affine) -> Affine:
        """min(a, b)."""
        return self._extremum(_MIN, a, b)

    def greatest(self, a: Affine, b: Affine) -> Affine:
        """max(a, b)."""
        return self._extremum(_MAX, a, b)

    def _extremum(self, op: BinaryOp, a: Affine, b: Affine) -> Affine:
        gap = self.sum(b, a, -1)
        if self.nonnegative(gap):
            return a if op is _MIN else b
        if self.nonnegative(-gap):
            return b if op is _MIN else a
        shared = Affine({t: c for t, c in a.terms.items() if b.terms.get(t) == c}, 0)
        if shared.terms:
            a, b = self.sum(a, shared, -1), self.sum(b, shared, -1)
        e = Binary(op, self.expr(a), self.expr(b))
        swapped = Binary(op, e.b, e.a)
        if swapped in self._bounds:
            e = swapped
        return self.sum(shared, self.term(e))

    # ---- bounds and proofs

    def bounds(self, form: Affine) -> Interval:
        """The least and greatest value of a form, its terms taken as independent."""
        lo = hi = form.const
        for t, c in form.terms.items():
            least, most = self._bounds.get(t) or self.term_bounds(t)
            if c > 0:
                lo += c * least
                hi += c * most
            else:
                lo += c * most
                hi += c * least
        return lo, hi

    def term_bounds(self, t: Expr) -> Interval:
        """Bounds of a term."""
        found = self._bounds.get(t)
        if found is not None:
            return found
        if type(t) is Var:
            found = self._var_bounds(t)
        elif (d := self.names.digits.get(t)) is not None:
            found = self.bounds(d.form)
            if d.u is not None:
                found = floormod(found, (d.u, d.u))
            if d.l > 1:
                found = floordiv(found, (d.l, d.l))
        else:
            found = node_bounds(t, self._operand_bounds)
        if self.given and (given := self.given.get(t)) is not None:
            found = max(found[0], given[0]), min(found[1], given[1])
        if found[0] > found[1]:  # nothing runs where a range is empty: one value is as good as any
            found = found[0], found[0]
        self._bounds[t] = found
        return found

    def symbolic_ends(self, v: Expr) -> tuple[Affine | None, Affine | None]:
        """The ends of a variable's range that are expressions."""
        self.term_bounds(v)
        return self._ends.get(v, (None, None))

    def variables(self, t: Expr) -> frozenset[Var]:
        """The variables in a term."""
        found = self.names.variables.get(t)
        if found is None:
            found = self.names.variables[t] = frozenset(free_vars(t))
        return found

    def _operand_bounds(self, e: Expr) -> Interval:
        if e.dtype is i64:
            return self.bounds(self.affine(e))
        return self.term_bounds(e)

    def _var_bounds(self, v: Expr) -> Interval:
        given = self.ranges.get(v)  # type: ignore[arg-type]
        if given is None:
            return dtype_bounds(v.dtype)
        lo, hi = given
        if type(lo) is int and type(hi) is int:
            return given  # type: ignore[return-value]
        least, most = self._bounds[v] = dtype_bounds(v.dtype)  # for a range that names its variable
        low, high = self._end(lo), self._end(hi)
        if low is not None:
            least = self.bounds(low)[0]
        if high is not None:
            most = self.bounds(high)[1]
        low = low if low is not None and low.terms else None
        high = high if high is not None and high.terms else None
        if low is not None or high is not None:
            self._ends[v] = (low, high)
        return least, most

    def _end(self, end: End) -> Affine | None:
        if end is None:
            return None
        return Affine({}, end) if isinstance(end, int) else self.affine(end)

    def nonnegative(self, form: Affine) -> bool:
        """Whether `form` ≥ 0 for all values of its variables is proved (False: not proved)."""
        lo, hi = self.bounds(form)
        if lo >= 0:
            return True
        if hi < 0 or not form.terms or self._nesting == _MOST_NESTING:
            return False
        asked = tuple(form.terms.items()), form.const, self._nesting
        proved = self._asked.get(asked)
        if proved is None:
            outer, self._effort = self._effort, _EFFORT
            self._nesting += 1  # to put a form together may ask for proofs again
            proved = self._asked[asked] = self._relax(form, 4)
            self._nesting -= 1
            self._effort = outer
        return proved

    def _proved(self, form: Affine, depth: int) -> bool:
        lo, hi = self.bounds(form)
        if lo >= 0:
            return True
        self._effort -= 1
        if hi < 0 or depth <= 0 or self._effort <= 0:
            return False
        asked = tuple(form.terms.items()), form.const, depth, self._nesting
        left, spent = self._effort, self._failed.get(asked)
        if spent is not None and spent < left:  # it would fail as it did before
            self._effort -= spent
            return False
        proved = self._relax(form, depth)
        if not proved and self._effort > 0:
            self._failed[asked] = left - self._effort
        return proved

    def _relax(self, form: Affine, depth: int) -> bool:
        """Replace one term by something below it (times its coefficient) and try again."""
        for t, c in form.terms.items():
            if type(t) is Var:
                ends = self._ends.get(t)
                end = None if ends is None else ends[0 if c > 0 else 1]
                if end is not None and self._proved(self._swap(form, t, c, end), depth - 1):
                    return True
            elif t in self.names.digits:
                if self._relax_digit(form, t, c, depth) or self._relax_two(form, t, c, depth):
                    return True
            elif t in self.names.factors:
                if self._relax_product(form, t, c, depth):
                    return True
            elif type(t) is Binary and t.op in (_MIN, _MAX):
                a, b = (
                    self._proved(self._swap(form, t, c, self.affine(x)), depth - 1)
                    for x in (t.a, t.b)
                )
                if (a and b) if (t.op is _MIN) == (c > 0) else (a or b):
                    return True
            elif type(t) is Select:
                if all(
                    self._proved(self._swap(form, t, c, self.affine(x)), depth - 1)
                    for x in (t.then, t.other)
                ):
                    return True
        for known in self.conditions:
            for t, c in form.terms.items():
                d = known.terms.get(t, 0)
                if c * d > 0:  # |d| * form - |c| * known loses t
                    less = self.sum(form * abs(d), known, -abs(c))
                    if self._proved(less, depth - 1):
                        return True
        return False

    def _swap(self, form: Affine, t: Expr, c: int, by: Affine) -> Affine:
        return self.sum(
            Affine({x: k for x, k in form.terms.items() if x is not t}, form.const), by, c
        )

    def _relax_digit(self, form: Affine, t: Expr, c: int, depth: int) -> bool:
        """x // l lies between (x - l + 1) / l and x / l; x % u is at most x where x ≥ 0."""
        d = self.names.digits[t]
        if d.u is None:
            rest = Affine(
                {x: k * d.l for x, k in form.terms.items() if x is not t}, form.const * d.l
            )
            below = d.form - (d.l - 1) if c > 0 else d.form
            return self._proved(self.sum(rest, below, c), depth - 1)
        if c < 0 and self.bounds(d.form)[0] >= 0:
            return self._proved(self._swap(form, t, c, self.digit(d.form, d.l, None)), depth - 1)
        return False

    def _relax_two(self, form: Affine, t: Expr, c: int, depth: int) -> bool:
        """(x + a) // l - x // l lies between a // l and -(-a // l), whatever x is."""
        d, digits = self.names.digits[t], self.names.digits
        if c < 0 or d.u is not None:
            return False
        for t2, c2 in form.terms.items():
            e = digits.get(t2)
            if c2 != -c or e is None or e.l != d.l or e.u is not None:
                continue
            apart = self.sum(d.form, e.form, -1)
            if not apart.terms:
                left = {x: k for x, k in form.terms.items() if x is not t and x is not t2}
                less = self.canonical(left, form.const + c * (apart.const // d.l))
                return self._proved(less, depth - 1)
        return False

    def _relax_product(self, form: Affine, t: Expr, c: int, depth: int) -> bool:
        """A factor is replaced by its end where the other factors are ≥ 0."""
        factors = self.names.factors[t]
        for i, f in enumerate(factors):
            ends = self._ends.get(f)
            end = None if ends is None else ends[0 if c > 0 else 1]
            others = factors[:i] + factors[i + 1 :]
            if end is None or any(self.term_bounds(x)[0] < 0 for x in others):
                continue
            by = self.product(end, Affine({self.multiply(others): 1}, 0))
            if self._proved(self._swap(form, t, c, by), depth - 1):
                return True
        return False

    # ---- from forms to expressions

    def expr(self, form: Affine, like: Expr | None = None) -> Expr:
        """The form as an expression; `like` itself if that is how it would look."""
        if not form.terms:
            if isinstance(like, Const) and like.value == form.const:
                return like
            return Const(form.const, i64)
        if form.const == 0 and len(form.terms) == 1:
            ((t, k),) = form.terms.items()
            if k == 1:
                return like if like == t else t  # type: ignore[return-value]
        name = (frozenset(form.terms.items()), form.const)
        found = self.names.rendered.get(name)
        if found is None:
            found = render(form)
            if like is not None and like == found:
                found = like
            self.names.rendered[name] = found
        return like if like == found else found  # type: ignore[return-value]


_BINARY_FORMS: dict[BinaryOp, Callable[[Forms, Affine, Affine], Affine]] = {
    _MUL: Forms.product,
    _MIN: Forms.least,
    _MAX: Forms.greatest,
    **division.FORMS,
}
