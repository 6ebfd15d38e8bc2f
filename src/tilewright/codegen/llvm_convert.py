"""Conversions between dtypes, with those that the machine lacks written as integer code.

In: a `Value` and a dtype. Out: a `Value`. Small floats (f16, bf16, f8) are widened to f32 and
narrowed, with rounding to nearest even, by generic bit arithmetic; no library is ever
called.
"""

from __future__ import annotations

import struct

from tilewright.codegen.llvm_builder import Builder
from tilewright.codegen.llvm_types import (
    SMALL_FLOATS,
    Value,
    constant,
    mangle,
    memory,
    register,
    vector,
)
from tilewright.ir.dtype import DType, bool_, f32, f64, i64
from tilewright.support.record import record


@record
class Format:
    """A small float: exponent and mantissa bits, bias; `infinite` or NaN just above the largest
    number. unsigned_zero: no infinity, and the code of -0 is the one NaN.
    """

    exponent: int
    mantissa: int
    bias: int
    infinite: bool
    unsigned_zero: bool = False

    @property
    def width(self) -> int:
        return 1 + self.exponent + self.mantissa

    @property
    def top(self) -> int:
        """The code above the largest finite number: infinity, or NaN where there is none."""
        if self.unsigned_zero:
            return 1 << (self.width - 1)
        return (
            ((1 << self.exponent) - 1) << self.mantissa
            if self.infinite
            else (1 << (self.width - 1)) - 1
        )

    @property
    def nan(self) -> int:
        return self.top | (1 << (self.mantissa - 1) if self.infinite else 0)


FORMATS = {
    "f16": Format(5, 10, 15, True),
    "bf16": Format(8, 7, 127, True),
    "f8e4m3": Format(4, 3, 7, False),
    "f8e5m2": Format(5, 2, 15, True),
    "f8e4m3fnuz": Format(4, 3, 8, False, True),
    "f8e5m2fnuz": Format(5, 2, 16, False, True),
}


class Convert:
    """Conversions written into `builder`. `half`: the machine converts f16 itself; `long`: vectors
    of i64, too; `saturates`: its vectors of floats become the nearest whole numbers there are."""

    def __init__(
        self, builder: Builder, half: bool, long: bool = True, saturates: bool = True
    ) -> None:
        self.b, self.half, self.long, self.saturates = builder, half, long, saturates

    def cast(self, value: Value, to: DType) -> Value:
        """`value` converted: floats round to nearest even, float → int truncates and saturates."""
        of = value.dtype
        if of is to:
            return value
        if of.is_float and to.is_float:
            return self.float_to_float(value, to)
        if to.is_bool:
            return Value(self.nonzero(value), bool_, value.lanes)
        if of.is_float:
            return self.float_to_int(value, to)
        if to.is_float:
            return self.int_to_float(value, to)
        if of.is_bool and to.bits == 1:
            return Value(value.text, to, value.lanes)
        if of.is_bool or of.bits < to.bits:
            how = "sext" if of.is_signed and not of.is_bool else "zext"
            return Value(self.op(how, value, to), to, value.lanes)
        if of.bits == to.bits:
            return Value(value.text, to, value.lanes)
        return Value(self.op("trunc", value, to), to, value.lanes)

    def int_to_float(self, value: Value, to: DType) -> Value:
        """Rounded once: numbers that f32 cannot hold reach a small float through f64."""
        of, lanes = value.dtype, value.lanes
        how = "sitofp" if of.is_signed and not of.is_bool else "uitofp"
        wide = to
        if to.name in SMALL_FLOATS:
            wide = f64 if of.bits > 24 else f32
        if of.bits == 64 and wide is not to:
            value = self.sticky(value)
        return self.float_to_float(Value(self.op(how, value, wide), wide, lanes), to)

    def sticky(self, value: Value) -> Value:
        """A 64-bit number with few enough bits for f64, rounded to odd; small ones stay
        themselves.
        """
        kind, flag = register(value.dtype, value.lanes), vector("i1", value.lanes)
        pure, text = self.b.pure, value.text

        def number(n: int) -> str:
            return constant(n, value.dtype, value.lanes).text

        high = pure(f"and {kind} {text}, {number(-2048)}", text)
        low = pure(f"and {kind} {text}, {number(2047)}", text)
        some = pure(f"icmp ne {kind} {low}, {number(0)}", low)
        odd = pure(f"select {flag} {some}, {kind} {number(2048)}, {kind} {number(0)}", some)
        rounded = pure(f"or {kind} {high}, {odd}", high, odd)
        moved = pure(f"add {kind} {text}, {number(1 << 53)}", text)
        small = pure(f"icmp ult {kind} {moved}, {number(1 << 54)}", moved)
        if not value.dtype.is_signed:
            small = pure(f"icmp ult {kind} {text}, {number(1 << 53)}", text)
        out = pure(f"select {flag} {small}, {kind} {text}, {kind} {rounded}", small, text, rounded)
        return Value(out, value.dtype, value.lanes)

    def op(self, how: str, value: Value, to: DType) -> str:
        lanes = value.lanes
        return self.b.pure(
            f"{how} {register(value.dtype, lanes)} {value.text} to {register(to, lanes)}",
            value.text,
        )

    def nonzero(self, value: Value) -> str:
        kind = register(value.dtype, value.lanes)
        zero = constant(0, value.dtype, value.lanes).text
        how = "fcmp une" if value.dtype.is_float else "icmp ne"
        return self.b.pure(f"{how} {kind} {value.text}, {zero}", value.text)

    def float_to_int(self, value: Value, to: DType) -> Value:
        if to is i64 and value.lanes and not self.long:
            return Value(self.in_halves(self.float_to_float(value, f64)), i64, value.lanes)
        if value.lanes and not self.saturates:
            return Value(self.between_ends(value, to), to, value.lanes)
        of, target = register(value.dtype, value.lanes), register(to, value.lanes)
        how = "fptosi" if to.is_signed else "fptoui"
        name = f"llvm.{how}.sat.{mangle(target)}.{mangle(of)}"
        return Value(self.b.call(target, name, [(of, value.text)]), to, value.lanes)

    def between_ends(self, value: Value, to: DType) -> str:
        """A vector of floats as whole numbers, the ends chosen by comparison: LLVM's saturating
        conversion is one of scalars on x86, lane by lane."""
        x, lanes, pure = value.text, value.lanes, self.b.pure
        real, whole = register(value.dtype, lanes), register(to, lanes)
        least = -(1 << to.bits - 1) if to.is_signed else 0
        beyond = least + (1 << to.bits)
        made = self.op("fptosi" if to.is_signed else "fptoui", value, to)  # poison past the ends
        for holds, number, end in (
            ("oge", float(beyond), beyond - 1),
            ("olt", float(least), least),
            ("uno", 0.0, 0),
        ):
            bound = constant(number, f64 if value.dtype is f64 else f32, lanes).text
            past = pure(f"fcmp {holds} {real} {x}, {bound}", x)
            there = f"{whole} {constant(end, to, lanes).text}, {whole} {made}"
            made = pure(f"select {vector('i1', lanes)} {past}, {there}", past, made)
        return made

    def in_halves(self, value: Value) -> str:
        """A vector of f64 as i64: a half of 32 bits that is added to a power of two is the end of
        the sum's bits."""
        lanes, pure = value.lanes, self.b.pure
        double, whole, flag = (vector(t, lanes) for t in ("double", "i64", "i1"))

        def f(number: float) -> str:
            return constant(number, f64, lanes).text

        def i(number: int) -> str:
            return constant(number, i64, lanes).text

        def bits(text: str) -> str:
            return pure(f"bitcast {double} {text} to {whole}", text)

        def either(cond: str, then: str, other: str, kind: str) -> str:
            return pure(f"select {flag} {cond}, {kind} {then}, {kind} {other}", cond, then, other)

        least, beyond, half = -(2.0**63), 2.0**63, 2.0**32
        x = value.text
        inside = pure(f"fcmp ogt {double} {x}, {f(least)}", x)
        x = either(inside, x, f(least), double)
        x = self.b.call(double, f"llvm.trunc.{mangle(double)}", [(double, x)])
        high = pure(f"fmul {double} {x}, {f(1 / half)}", x)
        high = self.b.call(double, f"llvm.floor.{mangle(double)}", [(double, high)])
        below = pure(f"fmul contract {double} {high}, {f(half)}", high)
        low = pure(f"fsub contract {double} {x}, {below}", x, below)  # exact
        high = bits(pure(f"fadd {double} {high}, {f(1.5 * 2.0**52)}", high))
        low = bits(pure(f"fadd {double} {low}, {f(2.0**52)}", low))
        high = pure(f"shl {whole} {high}, {i(32)}", high)
        low = pure(f"and {whole} {low}, {i(0xFFFFFFFF)}", low)
        made = pure(f"or {whole} {high}, {low}", high, low)
        large = pure(f"fcmp oge {double} {value.text}, {f(beyond)}", value.text)
        made = either(large, i(2**63 - 1), made, whole)
        unordered = pure(f"fcmp uno {double} {value.text}, {f(0.0)}", value.text)
        return either(unordered, i(0), made, whole)

    def float_to_float(self, value: Value, to: DType) -> Value:
        of, lanes = value.dtype, value.lanes
        if of is to:
            return value
        if of.name == "f64":
            if to.name in SMALL_FLOATS:
                return self.rounded(Value(self.to_odd(value), f32, lanes), to)
            return Value(self.op("fptrunc", value, f32), f32, lanes)
        if to.name == "f64":
            return Value(self.op("fpext", Value(value.text, f32, lanes), to), to, lanes)
        if to is f32:
            return Value(value.text, f32, lanes)
        return self.rounded(Value(value.text, f32, lanes), to)

    def to_odd(self, value: Value) -> str:
        """f64 → f32, rounded to odd, so that rounding once more to a smaller type is exact."""
        lanes = value.lanes
        single, double, whole = (
            vector("float", lanes),
            vector("double", lanes),
            vector("i32", lanes),
        )
        pure = self.b.pure
        near = self.op("fptrunc", value, f32)
        back = pure(f"fpext {single} {near} to {double}", near)
        self_abs = self.b.call(double, f"llvm.fabs.{mangle(double)}", [(double, value.text)])
        back_abs = self.b.call(double, f"llvm.fabs.{mangle(double)}", [(double, back)])
        above = pure(f"fcmp ogt {double} {back_abs}, {self_abs}", back_abs, self_abs)
        inexact = pure(f"fcmp one {double} {back}, {value.text}", back, value.text)
        bits = pure(f"bitcast {single} {near} to {whole}", near)
        step = pure(f"sext {vector('i1', lanes)} {above} to {whole}", above)
        toward = pure(f"add {whole} {bits}, {step}", bits, step)
        sticky = pure(f"zext {vector('i1', lanes)} {inexact} to {whole}", inexact)
        odd = pure(f"or {whole} {toward}, {sticky}", toward, sticky)
        return pure(f"bitcast {whole} {odd} to {single}", odd)

    # -- small floats ------------------------------------------------------------------------------

    def rounded(self, value: Value, to: DType) -> Value:
        """An f32 value as the nearest `to`, in both its forms."""
        bits = self.narrow(value.text, value.lanes, to)
        return Value(self.widen(bits, value.lanes, to), to, value.lanes, bits=bits)

    def bits_of(self, value: Value) -> str:
        """The memory form of a small float."""
        if value.bits is None:
            value.bits = self.narrow(value.text, value.lanes, value.dtype)
        return value.bits

    def widen(self, bits: str, lanes: int, of: DType) -> str:
        """The f32 of a small float's bits (exact)."""
        pure = self.b.pure
        kind, whole, single = memory(of, lanes), vector("i32", lanes), vector("float", lanes)
        if of.name == "f16" and self.half:
            half = pure(f"bitcast {kind} {bits} to {vector('half', lanes)}", bits)
            return pure(f"fpext {vector('half', lanes)} {half} to {single}", half)
        form = FORMATS[of.name]
        wide = pure(f"zext {kind} {bits} to {whole}", bits)
        if of.name == "bf16":
            up = pure(f"shl {whole} {wide}, {_splat(16, lanes)}", wide)
            return pure(f"bitcast {whole} {up} to {single}", up)
        sign_at = form.width - 1
        magnitude = pure(f"and {whole} {wide}, {_splat((1 << sign_at) - 1, lanes)}", wide)
        sign = pure(f"xor {whole} {wide}, {magnitude}", wide, magnitude)
        sign = pure(f"shl {whole} {sign}, {_splat(31 - sign_at, lanes)}", sign)
        shifted = pure(f"shl {whole} {magnitude}, {_splat(23 - form.mantissa, lanes)}", magnitude)
        normal = pure(f"add {whole} {shifted}, {_splat((127 - form.bias) << 23, lanes)}", shifted)
        # subnormal: put the mantissa under an implicit one, then subtract that one
        least = (128 - form.bias) << 23
        one = pure(f"or {whole} {shifted}, {_splat(least, lanes)}", shifted)
        lifted = pure(f"bitcast {whole} {one} to {single}", one)
        base = _float(least, lanes)
        tiny = pure(f"fsub {single} {lifted}, {base}", lifted)
        tiny_bits = pure(f"bitcast {single} {tiny} to {whole}", tiny)
        is_tiny = pure(
            f"icmp ult {whole} {magnitude}, {_splat(1 << form.mantissa, lanes)}", magnitude
        )
        flag = vector("i1", lanes)
        out = pure(
            f"select {flag} {is_tiny}, {whole} {tiny_bits}, {whole} {normal}",
            is_tiny,
            tiny_bits,
            normal,
        )
        how, code = ("eq", wide) if form.unsigned_zero else ("uge", magnitude)
        special = pure(f"icmp {how} {whole} {code}, {_splat(form.top, lanes)}", code)
        nan = 0x7FC00000 if form.unsigned_zero else 0x7F800000
        high = pure(f"or {whole} {shifted}, {_splat(nan, lanes)}", shifted)
        out = pure(f"select {flag} {special}, {whole} {high}, {whole} {out}", special, high, out)
        out = pure(f"or {whole} {out}, {sign}", out, sign)
        return pure(f"bitcast {whole} {out} to {single}", out)

    def narrow(self, text: str, lanes: int, to: DType) -> str:
        """The bits of the small float nearest to an f32 (ties to even)."""
        pure = self.b.pure
        kind, whole, single = memory(to, lanes), vector("i32", lanes), vector("float", lanes)
        flag = vector("i1", lanes)
        if to.name == "f16" and self.half:
            # an f32 that was an f64 is rounded twice: as one step it would be a call of libgcc's
            held = self.b.call(single, f"llvm.arithmetic.fence.{mangle(single)}", [(single, text)])
            half = pure(f"fptrunc {single} {held} to {vector('half', lanes)}", held)
            return pure(f"bitcast {vector('half', lanes)} {half} to {kind}", half)
        form = FORMATS[to.name]
        shift = 23 - form.mantissa
        bits = pure(f"bitcast {single} {text} to {whole}", text)
        magnitude = pure(f"and {whole} {bits}, {_splat(0x7FFFFFFF, lanes)}", bits)
        sign = pure(f"xor {whole} {bits}, {magnitude}", bits, magnitude)
        sign = pure(f"lshr {whole} {sign}, {_splat(32 - form.width, lanes)}", sign)
        rebias = ((1 << (shift - 1)) - 1) - ((127 - form.bias) << 23)
        low = pure(f"lshr {whole} {magnitude}, {_splat(shift, lanes)}", magnitude)
        even = pure(f"and {whole} {low}, {_splat(1, lanes)}", low)
        raised = pure(f"add {whole} {magnitude}, {even}", magnitude, even)
        raised = pure(f"add {whole} {raised}, {_splat(rebias, lanes)}", raised)
        out = pure(f"lshr {whole} {raised}, {_splat(shift, lanes)}", raised)
        out = self.b.call(
            whole, f"llvm.umin.{mangle(whole)}", [(whole, out), (whole, _splat(form.top, lanes))]
        )
        if form.bias != 127:  # below the least normal number: let an f32 addition round
            magic = (127 + 24 - form.bias - form.mantissa) << 23
            plain = pure(f"bitcast {whole} {magnitude} to {single}", magnitude)
            summed = pure(f"fadd {single} {plain}, {_float(magic, lanes)}", plain)
            tiny = pure(f"bitcast {single} {summed} to {whole}", summed)
            tiny = pure(f"sub {whole} {tiny}, {_splat(magic, lanes)}", tiny)
            least = (128 - form.bias) << 23
            is_tiny = pure(f"icmp ult {whole} {magnitude}, {_splat(least, lanes)}", magnitude)
            out = pure(
                f"select {flag} {is_tiny}, {whole} {tiny}, {whole} {out}", is_tiny, tiny, out
            )
        is_nan = pure(f"icmp ugt {whole} {magnitude}, {_splat(0x7F800000, lanes)}", magnitude)
        out = pure(
            f"select {flag} {is_nan}, {whole} {_splat(form.nan, lanes)}, {whole} {out}", is_nan, out
        )
        if form.unsigned_zero:
            zero = pure(f"icmp eq {whole} {out}, {_splat(0, lanes)}", out)
            sign = pure(
                f"select {flag} {zero}, {whole} {_splat(0, lanes)}, {whole} {sign}", zero, sign
            )
        out = pure(f"or {whole} {out}, {sign}", out, sign)
        return pure(f"trunc {whole} {out} to {kind}", out)


def _splat(value: int, lanes: int) -> str:
    value &= 0xFFFFFFFF
    return f"splat (i32 {value})" if lanes else str(value)


def _float(bits: int, lanes: int) -> str:
    """The f32 with these bits, as a constant."""
    (number,) = struct.unpack("<f", struct.pack("<I", bits))
    return constant(number, f32, lanes).text
