"""What each operator is in LLVM, by the kind of its operands: a table, and a function where a line
will not do.

In: operand `Value`s of one shape. Out: a `Value`. `{t}` stands for the register type, `{m}` for its
mangled name. Floats carry `contract` (a product may fuse with a sum) and nothing else. Whether LLVM
does so depends on what is around; `Statements.multiply_add` fuses the sums of products itself.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from tilewright.codegen.llvm_builder import Builder
from tilewright.codegen.llvm_convert import Convert
from tilewright.codegen.llvm_math import math_call
from tilewright.codegen.llvm_types import (
    SMALL_FLOATS,
    Value,
    constant,
    mangle,
    register,
    vector,
)
from tilewright.ir.dtype import DType, bool_, f32
from tilewright.ir.expr import COMPARISONS, BinaryOp, UnaryOp

B, U = BinaryOp, UnaryOp

BINARY: dict[tuple[BinaryOp, str], str] = {
    (B.add, "float"): "fadd contract {t} {a}, {b}",
    (B.sub, "float"): "fsub contract {t} {a}, {b}",
    (B.mul, "float"): "fmul contract {t} {a}, {b}",
    (B.div, "float"): "fdiv {t} {a}, {b}",
    (B.min, "float"): "call nsz {t} @llvm.minimum.{m}({t} {a}, {t} {b})",
    (B.max, "float"): "call nsz {t} @llvm.maximum.{m}({t} {a}, {t} {b})",
    (B.eq, "float"): "fcmp oeq {t} {a}, {b}",
    (B.ne, "float"): "fcmp une {t} {a}, {b}",
    (B.lt, "float"): "fcmp olt {t} {a}, {b}",
    (B.le, "float"): "fcmp ole {t} {a}, {b}",
    (B.gt, "float"): "fcmp ogt {t} {a}, {b}",
    (B.ge, "float"): "fcmp oge {t} {a}, {b}",
    (B.min, "int"): "call {t} @llvm.smin.{m}({t} {a}, {t} {b})",
    (B.max, "int"): "call {t} @llvm.smax.{m}({t} {a}, {t} {b})",
    (B.lt, "int"): "icmp slt {t} {a}, {b}",
    (B.le, "int"): "icmp sle {t} {a}, {b}",
    (B.gt, "int"): "icmp sgt {t} {a}, {b}",
    (B.ge, "int"): "icmp sge {t} {a}, {b}",
    (B.shr, "int"): "ashr {t} {a}, {b}",
    (B.min, "uint"): "call {t} @llvm.umin.{m}({t} {a}, {t} {b})",
    (B.max, "uint"): "call {t} @llvm.umax.{m}({t} {a}, {t} {b})",
    (B.lt, "uint"): "icmp ult {t} {a}, {b}",
    (B.le, "uint"): "icmp ule {t} {a}, {b}",
    (B.gt, "uint"): "icmp ugt {t} {a}, {b}",
    (B.ge, "uint"): "icmp uge {t} {a}, {b}",
    (B.shr, "uint"): "lshr {t} {a}, {b}",
    (B.logical_and, "bool"): "and {t} {a}, {b}",
    (B.logical_or, "bool"): "or {t} {a}, {b}",
    (B.min, "bool"): "and {t} {a}, {b}",
    (B.max, "bool"): "or {t} {a}, {b}",
    (B.mul, "bool"): "and {t} {a}, {b}",
    (B.add, "bool"): "or {t} {a}, {b}",
    (B.lt, "bool"): "icmp ult {t} {a}, {b}",
    (B.le, "bool"): "icmp ule {t} {a}, {b}",
    (B.gt, "bool"): "icmp ugt {t} {a}, {b}",
    (B.ge, "bool"): "icmp uge {t} {a}, {b}",
}
for _kind in ("int", "uint"):
    for _op, _name in ((B.add, "add"), (B.sub, "sub"), (B.mul, "mul"), (B.shl, "shl")):
        BINARY[_op, _kind] = _name + " {t} {a}, {b}"
for _kind in ("int", "uint", "bool"):
    for _op, _name in (
        (B.bit_and, "and"),
        (B.bit_or, "or"),
        (B.bit_xor, "xor"),
        (B.eq, "icmp eq"),
        (B.ne, "icmp ne"),
    ):
        BINARY[_op, _kind] = _name + " {t} {a}, {b}"

UNARY: dict[tuple[UnaryOp, str], str] = {
    (U.neg, "float"): "fneg {t} {a}",
    (U.abs, "float"): "call {t} @llvm.fabs.{m}({t} {a})",
    (U.sqrt, "float"): "call {t} @llvm.sqrt.{m}({t} {a})",
    (U.floor, "float"): "call {t} @llvm.floor.{m}({t} {a})",
    (U.ceil, "float"): "call {t} @llvm.ceil.{m}({t} {a})",
    (U.trunc, "float"): "call {t} @llvm.trunc.{m}({t} {a})",
    (U.round, "float"): "call {t} @llvm.roundeven.{m}({t} {a})",
    (U.isnan, "float"): "fcmp uno {t} {a}, {a}",
    (U.neg, "int"): "sub {t} {zero}, {a}",
    (U.neg, "uint"): "sub {t} {zero}, {a}",
    (U.abs, "int"): "call {t} @llvm.abs.{m}({t} {a}, i1 false)",
    (U.bit_not, "int"): "xor {t} {a}, {ones}",
    (U.bit_not, "uint"): "xor {t} {a}, {ones}",
    (U.popcount, "int"): "call {t} @llvm.ctpop.{m}({t} {a})",
    (U.popcount, "uint"): "call {t} @llvm.ctpop.{m}({t} {a})",
    (U.logical_not, "bool"): "xor {t} {a}, {true}",
    (U.bit_not, "bool"): "xor {t} {a}, {true}",
}
IDENTITY = frozenset({U.floor, U.ceil, U.trunc, U.round})  # on whole numbers
EXACT = frozenset({B.min, B.max}) | COMPARISONS  # on small floats: the result needs no rounding
EXACT_UNARY = frozenset({U.neg, U.abs, U.isnan, U.isinf, U.sign} | IDENTITY)


@functools.cache
def _filled(template: str, dtype: DType, lanes: int) -> tuple[str, str]:
    """A line of a table with all but its operands, {0} and {1}; the declaration that it needs."""
    kind = register(dtype, lanes)
    text = template.format(
        t=kind,
        m=mangle(kind),
        a="{0}",
        b="{1}",
        zero="zeroinitializer" if lanes else "0",
        ones="splat (" + register(dtype) + " -1)" if lanes else "-1",
        true="splat (i1 true)" if lanes else "true",
    )
    if "@llvm." not in template:
        return text, ""
    name = text[text.index("@") : text.index("(", text.index("@"))]
    types = [kind] * template.count("{t} {") + ["i1"] * template.count("i1 false")
    return text, f"declare {kind} {name}({', '.join(types)})"


@functools.cache
def _plain(op: BinaryOp, dtype: DType, lanes: int) -> tuple[list[str], str, DType] | None:
    """An operator that is no more than a line of the table, as most are: what stands before,
    between and behind its operands, its declaration, and the dtype of its result."""
    template = BINARY.get((op, dtype.kind))
    rounds = dtype.name in SMALL_FLOATS and op not in EXACT
    if template is None or rounds or (op, dtype.kind) in SPECIAL:
        return None
    filled, declaration = _filled(template, dtype, lanes)
    parts = filled.replace("{1}", "{0}").split("{0}")
    return parts, declaration, bool_ if op in COMPARISONS else dtype


class Operators:
    """Operators written into `builder`."""

    def __init__(self, builder: Builder, convert: Convert) -> None:
        self.b, self.convert = builder, convert
        self.fuses = True  # products with the sums that take them

    def binary(self, op: BinaryOp, a: Value, b: Value) -> Value:
        """`a op b` for two values of one dtype and one number of lanes."""
        dtype, lanes = a.dtype, a.lanes
        plain = _plain(op, dtype, lanes)
        if plain is not None:
            (head, between, tail), declaration, of = plain
            if declaration:
                self.b.declarations.add(declaration)
            if not self.fuses:
                head = head.replace(" contract", "")
            x, y = a.text, b.text
            return Value(self.b.pure(f"{head}{x}{between}{y}{tail}", x, y), of, lanes)
        special = SPECIAL.get((op, dtype.kind))
        if special is not None:
            return special(self, a, b)
        template = BINARY.get((op, dtype.kind))
        if template is None:
            text = self.math(op.value, dtype, lanes, a, b)
        else:
            text = self.line(template, dtype, lanes, a.text, b.text)
        return self.finish(text, dtype, lanes, op in EXACT, op in COMPARISONS)

    def unary(self, op: UnaryOp, a: Value) -> Value:
        """`op a`."""
        dtype, lanes = a.dtype, a.lanes
        if op in IDENTITY and not dtype.is_float:
            return a
        special = SPECIAL_UNARY.get((op, dtype.kind))
        if special is not None:
            return special(self, a)
        template = UNARY.get((op, dtype.kind))
        if template is None:
            text = self.math(op.value, dtype, lanes, a)
        else:
            text = self.line(template, dtype, lanes, a.text)
        return self.finish(text, dtype, lanes, op in EXACT_UNARY, op is U.isnan)

    def finish(self, text: str, dtype: DType, lanes: int, exact: bool, predicate: bool) -> Value:
        if predicate:
            return Value(text, bool_, lanes)
        if dtype.name in SMALL_FLOATS and not exact:
            return self.convert.rounded(Value(text, f32, lanes), dtype)
        return Value(text, dtype, lanes)

    def line(self, template: str, dtype: DType, lanes: int, a: str, b: str = "") -> str:
        filled, declaration = _filled(template, dtype, lanes)
        if declaration:
            self.b.declarations.add(declaration)
        return self.b.pure(filled.format(a, b), a, b)

    def math(self, name: str, dtype: DType, lanes: int, *operands: Value) -> str:
        """A function that `llvm_math` writes; small floats compute in f32."""
        wide = f32 if dtype.name in SMALL_FLOATS else dtype
        return math_call(self.b, name, wide, lanes, [v.text for v in operands])

    def select(self, cond: str, cond_lanes: int, a: Value, b: Value) -> Value:
        """`a` where `cond`, else `b` (both are at hand)."""
        kind, flag = register(a.dtype, a.lanes), vector("i1", cond_lanes)
        text = self.b.pure(
            f"select {flag} {cond}, {kind} {a.text}, {kind} {b.text}", cond, a.text, b.text
        )
        return Value(text, a.dtype, a.lanes)

    # -- operators that need more than a line ------------------------------------------------------

    def trunc_divide(self, a: Value, b: Value, remainder: bool) -> Value:
        """Division towards zero; by zero it gives 0, and nothing traps."""
        dtype, lanes, pure = a.dtype, a.lanes, self.b.pure
        kind, flag = register(dtype, lanes), vector("i1", lanes)
        signed = dtype.is_signed
        how = ("s" if signed else "u") + ("rem" if remainder else "div")
        if b.const is not None and b.const > 0:
            return Value(pure(f"{how} {kind} {a.text}, {b.text}", a.text), dtype, lanes)
        zero = constant(0, dtype, lanes).text
        if dtype.bits == 1:  # signed, so the only divisors are 0 and -1
            return Value(
                zero if remainder else pure(f"and {kind} {a.text}, {b.text}", a.text, b.text),
                dtype,
                lanes,
            )
        one = constant(1, dtype, lanes).text
        bad = is_zero = pure(f"icmp eq {kind} {b.text}, {zero}", b.text)
        if signed:  # the least number divided by -1 overflows
            is_minus = pure(f"icmp eq {kind} {b.text}, {constant(-1, dtype, lanes).text}", b.text)
            bad = pure(f"or {flag} {is_zero}, {is_minus}", is_zero, is_minus)
        safe = pure(f"select {flag} {bad}, {kind} {one}, {kind} {b.text}", bad, b.text)
        out = pure(f"{how} {kind} {a.text}, {safe}", a.text, safe)
        if signed and not remainder:
            negated = pure(f"sub {kind} {zero}, {a.text}", a.text)
            out = pure(
                f"select {flag} {is_minus}, {kind} {negated}, {kind} {out}", is_minus, negated, out
            )
        out = pure(f"select {flag} {is_zero}, {kind} {zero}, {kind} {out}", is_zero, out)
        return Value(out, dtype, lanes)

    def floor_divide(self, a: Value, b: Value, remainder: bool) -> Value:
        """Division rounded down."""
        dtype, lanes, pure = a.dtype, a.lanes, self.b.pure
        kind, flag = register(dtype, lanes), vector("i1", lanes)
        if not dtype.is_signed or dtype.bits == 1:
            return self.trunc_divide(a, b, remainder)
        if b.const is not None and b.const > 0 and b.const & (b.const - 1) == 0:
            if remainder:
                mask = constant(b.const - 1, dtype, lanes).text
                return Value(pure(f"and {kind} {a.text}, {mask}", a.text), dtype, lanes)
            by = constant(b.const.bit_length() - 1, dtype, lanes).text
            return Value(pure(f"ashr {kind} {a.text}, {by}", a.text), dtype, lanes)
        zero = constant(0, dtype, lanes).text
        rest = self.trunc_divide(a, b, True).text
        signs = pure(f"xor {kind} {rest}, {b.text}", rest, b.text)
        opposed = pure(f"icmp slt {kind} {signs}, {zero}", signs)
        inexact = pure(f"icmp ne {kind} {rest}, {zero}", rest)
        adjust = pure(f"and {flag} {opposed}, {inexact}", opposed, inexact)
        if remainder:
            up = pure(f"add {kind} {rest}, {b.text}", rest, b.text)
            out = pure(f"select {flag} {adjust}, {kind} {up}, {kind} {rest}", adjust, up, rest)
        else:
            quotient = self.trunc_divide(a, b, False).text
            down = pure(f"sext {flag} {adjust} to {kind}", adjust)
            out = pure(f"add {kind} {quotient}, {down}", quotient, down)
        return Value(out, dtype, lanes)

    def shift(self, op: BinaryOp, a: Value, b: Value) -> Value:
        """Shifts by the width or more give what shifting one bit at a time would."""
        dtype, lanes, pure = a.dtype, a.lanes, self.b.pure
        kind, flag = register(dtype, lanes), vector("i1", lanes)
        if b.const is not None and 0 <= b.const < dtype.bits:
            return Value(
                self.line(BINARY[op, dtype.kind], dtype, lanes, a.text, b.text), dtype, lanes
            )
        last = constant(dtype.bits - 1, dtype, lanes).text
        beyond = pure(f"icmp ugt {kind} {b.text}, {last}", b.text)
        safe = pure(f"select {flag} {beyond}, {kind} {last}, {kind} {b.text}", beyond, b.text)
        out = self.line(BINARY[op, dtype.kind], dtype, lanes, a.text, safe)
        if op is B.shl or not dtype.is_signed:
            zero = constant(0, dtype, lanes).text
            out = pure(f"select {flag} {beyond}, {kind} {zero}, {kind} {out}", beyond, out)
        return Value(out, dtype, lanes)

    def float_floordiv(self, a: Value, b: Value) -> Value:
        return self.unary(U.floor, self.binary(B.div, a, b))

    def rsqrt(self, a: Value) -> Value:
        one = constant(1.0, a.dtype, a.lanes)
        kind = register(a.dtype, a.lanes)
        root = self.line(UNARY[U.sqrt, "float"], a.dtype, a.lanes, a.text)
        text = self.b.pure(f"fdiv {kind} {one.text}, {root}", root)
        return self.finish(text, a.dtype, a.lanes, False, False)

    def float_sign(self, a: Value) -> Value:
        """-1, 0 or 1; NaN stays NaN."""
        kind, flag, pure = register(a.dtype, a.lanes), vector("i1", a.lanes), self.b.pure
        zero = constant(0.0, a.dtype, a.lanes).text
        one = constant(1.0, a.dtype, a.lanes).text
        signed = self.b.call(kind, f"llvm.copysign.{mangle(kind)}", [(kind, one), (kind, a.text)])
        nothing = pure(f"fcmp ueq {kind} {a.text}, {zero}", a.text)
        out = pure(
            f"select {flag} {nothing}, {kind} {a.text}, {kind} {signed}", nothing, a.text, signed
        )
        return Value(out, a.dtype, a.lanes)

    def int_sign(self, a: Value) -> Value:
        kind, flag, pure = register(a.dtype, a.lanes), vector("i1", a.lanes), self.b.pure
        zero = constant(0, a.dtype, a.lanes).text
        some = pure(f"icmp ne {kind} {a.text}, {zero}", a.text)
        out = pure(f"zext {flag} {some} to {kind}", some) if a.dtype.bits > 1 else a.text
        if a.dtype.is_signed and a.dtype.bits > 1:
            top = constant(a.dtype.bits - 1, a.dtype, a.lanes).text
            sign = pure(f"ashr {kind} {a.text}, {top}", a.text)
            out = pure(f"or {kind} {sign}, {out}", sign, out)
        return Value(out, a.dtype, a.lanes)

    def is_infinite(self, a: Value) -> Value:
        kind = register(a.dtype, a.lanes)
        size = self.line(UNARY[U.abs, "float"], a.dtype, a.lanes, a.text)
        inf = constant(float("inf"), a.dtype if a.dtype.name == "f64" else f32, a.lanes).text
        return Value(self.b.pure(f"fcmp oeq {kind} {size}, {inf}", size), bool_, a.lanes)

    def never(self, a: Value) -> Value:
        return constant(False, bool_, a.lanes)


SPECIAL: dict[tuple[BinaryOp, str], Callable[[Operators, Value, Value], Value]] = {}
for _kind in ("int", "uint"):
    SPECIAL[B.floordiv, _kind] = lambda o, a, b: o.floor_divide(a, b, False)
    SPECIAL[B.floormod, _kind] = lambda o, a, b: o.floor_divide(a, b, True)
    SPECIAL[B.truncdiv, _kind] = lambda o, a, b: o.trunc_divide(a, b, False)
    SPECIAL[B.truncmod, _kind] = lambda o, a, b: o.trunc_divide(a, b, True)
    SPECIAL[B.shl, _kind] = lambda o, a, b: o.shift(B.shl, a, b)
    SPECIAL[B.shr, _kind] = lambda o, a, b: o.shift(B.shr, a, b)
SPECIAL[B.floordiv, "float"] = Operators.float_floordiv

SPECIAL_UNARY: dict[tuple[UnaryOp, str], Callable[[Operators, Value], Value]] = {
    (U.rsqrt, "float"): Operators.rsqrt,
    (U.sign, "float"): Operators.float_sign,
    (U.sign, "int"): Operators.int_sign,
    (U.sign, "uint"): Operators.int_sign,
    (U.isinf, "float"): Operators.is_infinite,
    (U.isnan, "int"): Operators.never,
    (U.isnan, "uint"): Operators.never,
    (U.isinf, "int"): Operators.never,
    (U.isinf, "uint"): Operators.never,
    (U.abs, "uint"): lambda o, a: a,
}
