"""simplify: expressions and statements in their canonical, shorter shape.

In: an expression or a statement and the ranges of its variables. Out: the same meaning with less to
compute; the same object if there is nothing to do. Two engines share the work: i64 arithmetic over
variables (indices, extents, guards) goes through affine forms; everything else (values of any
dtype) through the rule table, which keeps every bit of a float and the wrapping of whole numbers.
`Facts` is what is known at a point of the program: ranges of variables, and conditions that hold.
"""

from __future__ import annotations

from math import inf

from tilewright.arith.affine import Forms
from tilewright.arith.compare import compare
from tilewright.arith.interval import Ranges
from tilewright.arith.rules import apply
from tilewright.arith.terms import Affine
from tilewright.ir.dtype import bool_, i64
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
    as_int,
    select,
    unary,
)
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
from tilewright.ir.walk import contains, free_vars, loads, reads, refold, statements, substitute

_AND, _OR, _NOT = BinaryOp.logical_and, BinaryOp.logical_or, UnaryOp.logical_not
_EQ, _NE = BinaryOp.eq, BinaryOp.ne
_LT, _LE, _GT, _GE = BinaryOp.lt, BinaryOp.le, BinaryOp.gt, BinaryOp.ge
_OPPOSITE = {_LT: _GE, _GE: _LT, _LE: _GT, _GT: _LE, _EQ: _NE, _NE: _EQ}
_DECIDABLE = COMPARISONS | {BinaryOp.min, BinaryOp.max}
_UNROLLED = ("unroll", "vectorize")
_REMOVABLE = ("serial", "unroll", "vectorize")  # loop kinds that mean nothing when they run once
_OPERATORS = frozenset({Binary, Unary, Cast, Call})
_NOTHING = Seq(())


def simplify(e: Expr, ranges: Ranges | Facts | None = None) -> Expr:
    """`e` in its canonical shape, given ranges of variables (both ends included) or `Facts`.

    i64 arithmetic is taken to be index arithmetic, which does not overflow.
    """
    return facts(ranges).simplify(e)


def simplify_stmt(
    stmt: Stmt, ranges: Ranges | Facts | None = None, *, remove_unit_loops: bool = False
) -> Stmt:
    """Simplify every expression below `stmt` under what loops, lets and conditions say there.

    What never runs or does nothing disappears. remove_unit_loops: plain loops that run once become
    their body (not while blocks stand: loop names are the handles of schedules).
    """
    known = facts(ranges).extended({})
    return _Statements(remove_unit_loops).go(stmt, known)


def simplify_func(func: Func, *, remove_unit_loops: bool = False) -> Func:
    """`simplify_stmt` on a function's body; symbolic sizes are ≥ 0."""
    ranges = {p: (0, None) for p in func.params if isinstance(p, Var)}
    body = simplify_stmt(func.body, ranges, remove_unit_loops=remove_unit_loops)
    return func if body is func.body else func.replace(body=body)


def facts(ranges: Ranges | Facts | None) -> Facts:
    """Facts out of ranges; facts are themselves."""
    return ranges if isinstance(ranges, Facts) else Facts({} if ranges is None else ranges)


def loop_range(loop: For) -> tuple[int | Expr | None, int | Expr | None]:
    """The range of a loop's variable, as `Ranges` want it; nothing of an end that the loop may
    change.
    """
    if loop.start.__class__ is Const and loop.stop.__class__ is Const:  # as most loops
        return loop.start.value, loop.stop.value - 1  # type: ignore[attr-defined]
    start, stop = as_int(loop.start), as_int(loop.stop)
    first = (loop.start if outlasts(loop.start, loop.body) else None) if start is None else start
    if stop is not None:
        return first, stop - 1
    return first, loop.stop - 1 if outlasts(loop.stop, loop.body) else None


def let_range(let: Let, known: Facts) -> tuple[int | Expr | None, int | Expr | None]:
    """The range of a let's variable. Of nothing too it has to be bound: a loop that ran before may
    have had the same variable, and what was known of it holds no more. Of a choice the bounds are
    enough: proofs would try each of its ways, and those of choices inside it."""
    if let.value.dtype is not i64 or not outlasts(let.value, let.body):
        return None, None
    if not contains(let.value, Select, Cast):
        return let.value, let.value
    low, high = known.bounds(known.affine(let.value))
    return None if low == -inf else int(low), None if high == inf else int(high)


def outlasts(e: Expr, body: Stmt | None) -> bool:
    """Whether `e` keeps its value while `body` runs: it reads no memory that is written there."""
    if body is None or not reads(e):
        return True
    read = {n.buffer.name for n in loads(e)}
    return not any(
        isinstance(s, Eval) or (isinstance(s, Store) and s.buffer.name in read)
        for s in statements(body)
    )


class Facts(Forms):
    """Ranges of variables and conditions that hold, and what follows from them."""

    def __init__(self, ranges: Ranges, parent: Facts | None = None) -> None:
        super().__init__(ranges, parent)
        self._values: dict[int, tuple[Expr, Expr]] = {}
        self._chains: dict[int, tuple[Expr, Expr]] = {}  # of and, or

    def simplify(self, e: Expr) -> Expr:
        """`e` in its canonical shape."""
        if e.dtype is i64:
            return self.simplified(e)
        return self.condition(e) if e.dtype is bool_ else self.value(e)

    # ---- learning

    def bind(self, var: Var, lo: int | Expr | None, hi: int | Expr | None) -> Facts:
        """These facts with the range of one more variable; `ranges` must be a dict of our own."""
        known = self.ranges.get(var)
        if known is None:
            self.ranges[var] = (lo, hi)  # type: ignore[index]
            return self
        if known == (lo, hi):
            return self
        return Facts({**self.ranges, var: (lo, hi)}, self)

    def extended(self, ranges: Ranges) -> Facts:
        """These facts with more ranges, apart from the original."""
        return Facts({**self.ranges, **ranges}, self)

    def telling(self, ranges: Ranges) -> Facts:
        """Facts that have these ranges: these, with all they have worked out, if they do."""
        mine = self.ranges
        if all(mine.get(v) == r for v, r in ranges.items()):
            return self
        return self.extended(ranges)

    def under(self, cond: Expr) -> Facts:
        """These facts where `cond` also holds."""
        if type(cond) is Const:
            return self
        child = Facts(self.ranges, self)
        child._assume(cond, True, self)
        return child

    def during(self, cond: Expr, body: Stmt) -> Facts:
        """`under` those parts of `cond` that hold as long as `body` runs, as they do before."""
        if outlasts(cond, body):
            return self.under(cond)
        if isinstance(cond, Binary) and cond.op is _AND:
            return self.during(cond.a, body).during(cond.b, body)
        return self

    def _assume(self, cond: Expr, holds: bool, before: Facts) -> None:
        """before: what was known before, which has worked out most of what the condition says."""
        if isinstance(cond, Unary) and cond.op is _NOT:
            self._assume(cond.a, not holds, before)
        elif isinstance(cond, Binary) and cond.op is (_AND if holds else _OR):
            self._assume(cond.a, holds, before)
            self._assume(cond.b, holds, self)
        elif isinstance(cond, Binary) and cond.op in COMPARISONS and cond.a.dtype is i64:
            op = cond.op if holds else _OPPOSITE[cond.op]
            gap = before.sum(before.affine(cond.b), before.affine(cond.a), -1)  # b - a
            if op is _EQ:
                self._learn(gap)
                self._learn(-gap)
            elif op is _NE:
                self._exclude(gap)
            elif op is _LT or op is _LE:
                self._learn(gap - (op is _LT))
            elif op is _GT or op is _GE:
                self._learn(-gap - (op is _GT))
        else:
            self.given[cond] = (int(holds), int(holds))

    def _exclude(self, form: Affine) -> None:
        """form ≠ 0 holds: where a term loses its least or greatest value."""
        if len(form.terms) != 1:
            return
        ((t, c),) = form.terms.items()
        lo, hi = self.term_bounds(t)
        if form.const % c == 0 and -form.const // c in (lo, hi):
            value = -form.const // c
            self.given[t] = (lo + (value == lo), hi - (value == hi))
            self._forget()

    def _learn(self, form: Affine) -> None:
        """form ≥ 0 holds: remember it, and what it says of each of its terms."""
        if len(form.terms) > 1:
            self.conditions = (*self.conditions, form)
            self._unask()
        most = self.bounds(form)[1]
        if most == inf and len(form.terms) > 1:
            return
        for t, c in form.terms.items():
            lo, hi = self.given.get(t, (-inf, inf))
            least, greatest = self.term_bounds(t)
            others = (
                most - c * (greatest if c > 0 else least) if len(form.terms) > 1 else form.const
            )
            if c > 0:
                lo = max(lo, -(others // c))
            else:
                hi = min(hi, others // -c)
            self.given[t] = (lo, hi)
            if lo > -inf and isinstance(t, Binary) and t.op is BinaryOp.floordiv:
                whole, by = self.affine(t.a), as_int(t.b)
                # a // 2 >= 17 says that a >= 34: of open sizes. A counter of 26 rounds would become
                # one of 13 under other names, of which earlier facts say nothing
                if by and by > 0 and self.bounds(whole)[1] == inf:
                    self._learn(whole - int(lo) * by)
        self._forget()

    def _forget(self) -> None:
        self._bounds.clear()
        self._ends.clear()
        self._whole.clear()
        self._joined.clear()
        self._unask()
        self._chains.clear()

    def _unask(self) -> None:
        """What was not proved may be now."""
        self._asked.clear()
        self._failed.clear()
        self._memo.clear()

    # ---- conditions

    def condition(self, e: Expr) -> Expr:
        """A boolean in its canonical shape: comparisons of indices decided or normalised."""
        if isinstance(e, Binary):
            if e.op in COMPARISONS:
                if e.a.dtype is i64 and self._is_index(e.a) and self._is_index(e.b):
                    found = compare(self, e.op, e.a, e.b)
                    return e if found == e else found
                return self._node(e)
            if e.op is _AND or e.op is _OR:
                found = self._chains.get(id(e))
                if found is None:  # loops around one another ask the same of what is inside them
                    found = self._chains[id(e)] = e, self._connective(e)
                return found[1]
        elif isinstance(e, Unary) and e.op is _NOT:
            a = self.condition(e.a)
            if isinstance(a, Binary) and a.op in COMPARISONS and a.a.dtype is i64:
                return self.condition(Binary(_OPPOSITE[a.op], a.a, a.b))
            e = e if a is e.a else unary(_NOT, a)
        given = self.given.get(e)
        if given is not None:
            return Const(bool(given[0]), bool_)
        return self._node(e)

    def _connective(self, e: Binary) -> Expr:
        """and, or: each part of the chain under what those before it leave open; then, from the
        last one on, without those that follow from what stands behind them."""
        parts, kept, is_and = _chain(e), list[Expr](), e.op is _AND
        known = self
        for part in parts:
            found = known.condition(part)
            if type(found) is not Const:
                if known is not self and loads(part):  # read whatever holds
                    found = self.condition(part)
                kept.append(found)
                if part is not parts[-1]:  # after the last one nothing is asked
                    known = known.under(found if is_and else Unary(_NOT, found))
            elif found.value != is_and:
                return found  # decides the whole
        if not kept:
            return Const(is_and, bool_)
        known, left = self, kept[-1:]  # of the last one more was known than would be now
        for part in reversed(kept[:-1]):
            known = known.under(left[-1] if is_and else Unary(_NOT, left[-1]))
            found = known.condition(part)
            if type(found) is not Const:
                left.append(part)
            elif found.value != is_and:
                return found
        kept = left[::-1]
        if len(kept) == len(parts) and all(a is b for a, b in zip(kept, parts, strict=True)):
            return apply(e)
        made = kept[0]
        for part in kept[1:]:
            made = apply(Binary(e.op, made, part))
        return made

    def _is_index(self, e: Expr) -> bool:
        """Whether `e` is arithmetic over variables, which does not overflow; loaded data may."""
        if e.__class__ is Const or isinstance(e, Var):
            return True
        if isinstance(e, Binary):
            return self._is_index(e.a) and self._is_index(e.b)
        if isinstance(e, Unary):
            return self._is_index(e.a)
        return isinstance(e, Select) and self._is_index(e.then) and self._is_index(e.other)

    # ---- values

    def value(self, e: Expr) -> Expr:
        """A value of any dtype, simplified without a change of any bit of it."""
        if e.dtype is bool_:
            return self.condition(e)
        if e.dtype is i64 and self._is_index(e):
            return self.simplified(e)
        return e if e.__class__ is Const or isinstance(e, Var) else self._node(e)

    def _node(self, e: Expr) -> Expr:
        """Simplify the operands, then try the rules, until nothing changes."""
        found = self._values.get(id(e))
        if found is not None:
            return found[1]
        made = self._rebuild(e)
        ruled = apply(self._decide(made))
        if ruled is not made or (made is not e and made.dtype is i64 and self._is_index(made)):
            made = self.value(ruled)
        self._values[id(e)] = (e, made)
        self._values[id(made)] = (made, made)
        return made

    def _rebuild(self, e: Expr) -> Expr:
        if isinstance(e, Load):
            indices = tuple(
                [self.simplified(i) if i.dtype is i64 else self.value(i) for i in e.indices]
            )
            same = all(a is b for a, b in zip(indices, e.indices, strict=True))
            return e if same else Load(e.buffer, indices)
        if isinstance(e, Select):
            cond = self.condition(e.cond)
            if type(cond) is Const:
                return self.value(e.then if cond.value else e.other)
            then = self.under(cond).value(e.then)
            other = self.under(Unary(_NOT, cond)).value(e.other)
            same = cond is e.cond and then is e.then and other is e.other
            return e if same else select(cond, then, other)
        if e.__class__ in _OPERATORS:
            return refold(e, e.map_children(self.value))
        return e

    def _decide(self, e: Expr) -> Expr:
        """A comparison or extremum of whole numbers whose bounds do not overlap."""
        if not isinstance(e, Binary) or e.op not in _DECIDABLE or not e.a.dtype.is_int:
            return e
        if e.op is BinaryOp.min or e.op is BinaryOp.max:
            a, b = self._operand_bounds(e.a), self._operand_bounds(e.b)
            first, second = (a, b) if e.op is BinaryOp.min else (b, a)
            return e.a if first[1] <= second[0] else e.b if second[1] <= first[0] else e
        lo, hi = self.term_bounds(e)
        return Const(lo == 1, bool_) if lo == hi else e


def _chain(e: Binary) -> list[Expr]:
    """The parts that `e` joins by its operator, in order."""
    found: list[Expr] = []
    stack: list[Expr] = [e]
    while stack:
        part = stack.pop()
        if isinstance(part, Binary) and part.op is e.op:
            stack += [part.b, part.a]
        else:
            found.append(part)
    return found


def _asked_once(s: For) -> Stmt:
    """A loop that is unrolled, with what it asks in every iteration asked once, around it."""
    body = s.body
    if not isinstance(body, If) or body.other is not None:
        return s
    cond = body.cond
    parts = _chain(cond) if isinstance(cond, Binary) and cond.op is _AND else [cond]
    own = [p for p in parts if s.var in free_vars(p) or reads(p)]
    if len(own) == len(parts):
        return s
    inside = If(_joined(own), body.then) if own else body.then
    return If(_joined([p for p in parts if p not in own]), s.replace(body=inside))


def _joined(parts: list[Expr]) -> Expr:
    whole = parts[0]
    for part in parts[1:]:
        whole = Binary(_AND, whole, part)
    return whole


class _Statements:
    """The walk of `simplify_stmt`."""

    def __init__(self, remove_unit_loops: bool) -> None:
        self.remove_unit_loops = remove_unit_loops

    def go(self, s: Stmt, known: Facts) -> Stmt:
        """`s` under what is known where it stands."""
        if isinstance(s, Store):
            indices = _each(s.indices, known)
            value = known.value(s.value)
            same = indices is s.indices and value is s.value
            return s if same else Store(s.buffer, indices, value)
        if isinstance(s, For):
            return self._loop(s, known)
        if isinstance(s, Seq):
            stmts = tuple([self.go(x, known) for x in s.stmts])
            same = all(a is b for a, b in zip(stmts, s.stmts, strict=True))
            return s if same else seq(*stmts)
        if isinstance(s, If):
            return self._branch(s, known)
        if isinstance(s, Block):
            return self._block(s, known)
        if isinstance(s, Let):
            return self._let(s, known)
        if isinstance(s, Alloc):
            body = self.go(s.body, known)
            return s if body is s.body else body if body == _NOTHING else Alloc(s.buffer, body)
        if isinstance(s, Eval):
            value = known.value(s.value)
            return s if value is s.value else Eval(value)
        return s

    def _loop(self, s: For, known: Facts) -> Stmt:
        start, stop = known.simplified(s.start), known.simplified(s.stop)
        first, end = as_int(start), as_int(stop)
        inside, most = known, None  # rounds, where they are known to be few
        if first is not None and end is not None:
            runs = end - first
        else:
            extent = known.sum(known.affine(stop), known.affine(start), -1)
            runs = 0 if known.nonnegative(-extent) else 2 if extent.terms else extent.const
            lasts = outlasts(start, s.body) and outlasts(stop, s.body)
            if runs and lasts and not known.nonnegative(extent - 1):
                inside = known.under(Binary(BinaryOp.lt, start, stop))
            if runs > 1 and lasts and self.is_removable(s):
                most = next((n for n in (1, 2) if known.nonnegative(-extent + n)), None)
        if runs <= 0:
            return _NOTHING
        if runs == 1 and self.is_removable(s):
            if first is None:
                return self.go(substitute(s.body, {s.var: start}), known)
            return self.go(s.body, known.bind(s.var, first, first))  # it becomes its value
        same = start is s.start and stop is s.stop
        changed = s if same else s.replace(start=start, stop=stop)
        if most == 1:
            return self.go(_branches(changed, 1), known)
        body = self.go(s.body, inside.bind(s.var, *loop_range(changed)))
        if body == _NOTHING:
            return _NOTHING
        if most == 2 and _is_short(body):
            return self.go(_branches(changed.replace(body=body), 2), known)
        made = changed if body is s.body else changed.replace(body=body)
        return _asked_once(made) if self.remove_unit_loops and s.kind in _UNROLLED else made

    def is_removable(self, s: For) -> bool:
        """Whether a loop says nothing that its body in a branch would not."""
        return self.remove_unit_loops and s.kind in _REMOVABLE and not s.annotations

    def _branch(self, s: If, known: Facts) -> Stmt:
        cond = known.condition(s.cond)
        if type(cond) is Const:
            chosen = s.then if cond.value else s.other
            return _NOTHING if chosen is None else self.go(chosen, known)
        then = self.go(s.then, known.during(cond, s.then))
        other = s.other
        if other is not None:
            other = self.go(other, known.during(Unary(_NOT, cond), other))
        if other == _NOTHING:
            other = None
        if then == _NOTHING:
            if other is None:
                return _NOTHING
            cond, then, other = known.condition(unary(_NOT, cond)), other, None
        same = cond is s.cond and then is s.then and other is s.other
        return s if same else If(cond, then, other)

    def _let(self, s: Let, known: Facts) -> Stmt:
        value = known.simplify(s.value) if s.value.dtype is i64 else known.value(s.value)
        if isinstance(value, Const | Var):
            return self.go(substitute(s.body, {s.var: value}), known)
        s = s if value is s.value else s.replace(value=value)
        body = self.go(s.body, known.bind(s.var, *let_range(s, known)))
        if s.var not in free_vars(body):
            return body
        return s if body is s.body else s.replace(body=body)

    def _block(self, s: Block, known: Facts) -> Stmt:
        where = None if s.where is None else known.condition(s.where)
        if type(where) is Const:
            if not where.value:  # type: ignore[union-attr]
                return _NOTHING
            where = None
        axes = tuple([_axis(a, known) for a in s.axes])
        inside = known
        for a in axes:
            extent = as_int(a.extent)
            inside = inside.bind(a.var, 0, a.extent - 1 if extent is None else extent - 1)
        made = s.replace(
            axes=axes,
            reads=tuple([_region(r, inside) for r in s.reads]),
            writes=tuple([_region(r, inside) for r in s.writes]),
            init=None if s.init is None else self.go(s.init, inside),
            body=self.go(s.body, inside),
            where=where,
        )
        return s if made == s else made


def _branches(s: For, rounds: int) -> Stmt:
    """A loop of at most so many rounds as branches: what they ask and compute follows from its
    ends, so that it may be hoisted out of the loops around."""
    ats = [s.start + n if n else s.start for n in range(rounds)]
    return seq(*(If(Binary(BinaryOp.lt, at, s.stop), Let(s.var, at, s.body)) for at in ats))


def _is_short(s: Stmt) -> bool:
    """Has it no loop but over lanes, and no memory of its own?"""
    inner = s.body if isinstance(s, For) and s.kind == "vectorize" else s
    return not any(isinstance(n, For | Alloc) for n in statements(inner))


def _each(exprs: tuple[Expr, ...], known: Facts) -> tuple[Expr, ...]:
    done = tuple([known.simplified(e) for e in exprs])
    return exprs if all(a is b for a, b in zip(done, exprs, strict=True)) else done


def _axis(a: Axis, known: Facts) -> Axis:
    extent, value = known.simplified(a.extent), known.simplified(a.value)
    return a if extent is a.extent and value is a.value else a.replace(extent=extent, value=value)


def _region(r: Region, known: Facts) -> Region:
    starts, extents = _each(r.starts, known), _each(r.extents, known)
    same = starts is r.starts and extents is r.extents
    return r if same else Region(r.buffer, starts, extents)
