"""Index expressions as linear forms over values in registers.

In: an i64 expression and what its variables are. Out: `Linear`: a constant, scalar terms with
coefficients, and what each lane adds. The one idea: the form says at once whether neighbouring
lanes touch neighbouring elements (one vector access), the same element (a broadcast) or neither (a
gather), and which part changes in which loop.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tilewright.codegen.llvm_builder import Builder
from tilewright.codegen.llvm_types import Value, vector_constant
from tilewright.ir.dtype import i64

Offsets = range | tuple[int, ...]  # a range wherever neighbouring lanes differ by one number


@dataclass(slots=True, eq=False)
class Linear:
    """constant + Σ coefficient · term, plus `offsets[lane]`, plus `varying` (an i64 vector) in
    each lane. Never changed once made, and equal only to itself, so that what follows from one is
    found by it.
    """

    constant: int = 0
    terms: dict[str, int] = field(default_factory=dict)
    offsets: Offsets | None = None
    varying: Value | None = None

    @property
    def is_constant(self) -> bool:
        return not self.terms and self.offsets is None and self.varying is None

    @property
    def is_uniform(self) -> bool:
        return self.offsets is None and self.varying is None

    @property
    def first(self) -> int:
        """The number of the first lane, without terms."""
        return self.constant + (self.offsets[0] if self.offsets else 0)

    @property
    def stride(self) -> int | None:
        """Elements between neighbouring lanes, where it is one known number."""
        if self.varying is not None:
            return None
        if self.offsets is None:
            return 0
        return self.offsets.step if self.offsets.__class__ is range else None

    def plus(self, other: Linear, sign: int = 1) -> Linear | None:
        """The sum (or difference); None where both vary in ways that only arithmetic can add."""
        if other.varying is not None and (self.varying is not None or sign < 0):
            return None
        terms = self.terms
        if other.terms:
            terms = dict(terms)
            for term, c in other.terms.items():
                total = terms.get(term, 0) + sign * c
                if total:
                    terms[term] = total
                else:
                    terms.pop(term, None)
        offsets, moved = self.offsets, 0
        if other.offsets is not None:
            offsets, moved = sum_offsets(offsets, other.offsets, sign)
        constant = self.constant + sign * other.constant + moved
        return Linear(constant, terms, offsets, self.varying or other.varying)

    def times(self, factor: int) -> Linear | None:
        if factor == 0:
            return Linear()
        if self.varying is not None and factor != 1:
            return None
        terms = {term: c * factor for term, c in self.terms.items()}
        offsets = self.offsets
        if offsets.__class__ is range:
            offsets = _steps(offsets.start * factor, offsets.step * factor, len(offsets))
        elif offsets is not None:
            offsets = tuple([o * factor for o in offsets])
        return Linear(self.constant * factor, terms, offsets, self.varying)

    def divided(self, by: int, remainder: bool) -> Linear | None:
        """Floor division by a positive constant, where every term divides."""
        if self.varying is not None or by <= 0 or any(c % by for c in self.terms.values()):
            return None
        terms = {} if remainder else {term: c // by for term, c in self.terms.items()}
        rest = (lambda n: n % by) if remainder else (lambda n: n // by)
        if self.offsets is None:
            return Linear(rest(self.constant), terms)
        offsets, constant = _normal([rest(self.constant + o) for o in self.offsets])
        return Linear(constant, terms, offsets)

    def scalar(self, b: Builder) -> str:
        """The part that all lanes share, as one i64 (outer loops' terms first)."""
        total = ""
        for term, c in sorted(self.terms.items(), key=lambda t: b.level_of.get(t[0], 0)):
            part = term if c == 1 else b.pure(f"mul i64 {term}, {c}", term)
            total = part if not total else b.pure(f"add i64 {total}, {part}", total, part)
        if not total:
            return str(_wrap(self.constant))
        if self.constant:
            total = b.pure(f"add i64 {total}, {_wrap(self.constant)}", total)
        return total

    def value(self, b: Builder, lanes: int) -> Value:
        """This number in registers: a scalar where it is uniform, else a vector of `lanes`."""
        base = self.scalar(b)
        if self.is_uniform:
            known = _wrap(self.constant) if not self.terms else None
            return Value(base, i64, 0, known)
        kind = f"<{lanes} x i64>"
        out = ""
        if self.offsets is not None:
            shift = 0 if self.terms else self.constant
            out = vector_constant([o + shift for o in self.offsets], i64)
        if self.terms or (self.offsets is None and self.constant):
            wide = splat(b, "i64", base, lanes)
            out = b.pure(f"add {kind} {wide}, {out}", wide) if out else wide
        if self.varying is not None:
            more = self.varying.text
            out = b.pure(f"add {kind} {out}, {more}", out, more) if out else more
        return Value(out, i64, lanes)


def choice(on: list[bool], then: Linear, other: Linear) -> Linear | None:
    """`then` in the lanes that are `on`, else `other`; None if more than offsets differ."""
    sides = _beside(then, other, len(on))
    if sides is None:
        return None
    offsets, constant = _normal([a if lane else b for lane, a, b in zip(on, *sides, strict=True)])
    return Linear(constant, then.terms, offsets)


def end_of(end: Callable[[int, int], int], one: Linear, other: Linear, lanes: int) -> Linear | None:
    """The lesser or greater (`end`) in each lane; None if more than offsets differ."""
    sides = _beside(one, other, lanes)
    if sides is None:
        return None
    offsets, constant = _normal(list(map(end, *sides)))
    return Linear(constant, one.terms, offsets)


def _beside(one: Linear, other: Linear, lanes: int) -> tuple[list[int], list[int]] | None:
    """Each lane's numbers of two forms, without the terms; None if more than offsets differ."""
    if one.terms != other.terms or one.varying or other.varying:
        return None

    def each(form: Linear) -> list[int]:
        return [form.constant + o for o in form.offsets or (0,) * lanes]

    return each(one), each(other)


def _steps(start: int, step: int, count: int) -> range:
    return range(start, start + step * count, step)


def sum_offsets(a: Offsets | None, b: Offsets, k: int) -> tuple[Offsets | None, int]:
    """a + k * b of what each lane adds, and what all lanes add."""
    if b.__class__ is range and (a is None or a.__class__ is range):
        start, step = k * b.start, k * b.step
        if a is not None:
            start, step = start + a.start, step + a.step
        return (_steps(start, step, len(b)), 0) if step else (None, start)
    mine = a or (0,) * len(b)
    return _normal([x + k * y for x, y in zip(mine, b, strict=True)])


def _normal(offsets: list[int]) -> tuple[Offsets | None, int]:
    """A range where neighbours differ by one number, nothing where they are equal."""
    first = offsets[0]
    step = offsets[1] - first
    if all(o == first + n * step for n, o in enumerate(offsets)):
        return (_steps(first, step, len(offsets)), 0) if step else (None, first)
    return tuple(offsets), 0


def _wrap(number: int) -> int:
    number &= (1 << 64) - 1
    return number - (1 << 64) if number >> 63 else number


def splat(b: Builder, kind: str, value: str, lanes: int) -> str:
    """A vector with `value` in every lane."""
    if not value.startswith("%"):
        return f"splat ({kind} {value})"
    one = b.pure(f"insertelement <{lanes} x {kind}> poison, {kind} {value}, i64 0", value)
    return b.pure(
        f"shufflevector <{lanes} x {kind}> {one}, <{lanes} x {kind}> poison, "
        f"<{lanes} x i32> zeroinitializer",
        one,
    )
