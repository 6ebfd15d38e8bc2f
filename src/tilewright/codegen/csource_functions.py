"""Functions that a source needs and its language lacks: written once, where they are first used.

In: what an operation does to which dtypes. Out: the name of a C function; its text stands before
the kernels. Small floats are converted by the same arithmetic on bits as in `llvm_convert`.
"""

from __future__ import annotations

from tilewright.codegen.csource_dialect import Dialect
from tilewright.codegen.llvm_convert import FORMATS
from tilewright.ir.dtype import DType, f32, f64, u8, u16, u32
from tilewright.ir.expr import BinaryOp

B = BinaryOp

# {t}: the operands' type, {wrap}: a number brought back into the dtype
DIVISION = {
    B.truncdiv: "return b == 0 ? 0 : {minus}a / b;",
    B.truncmod: "return b == 0{or_minus} ? 0 : a % b;",
    B.floordiv: "if (b == 0) return 0;\n    {t} q = {minus}a / b;\n"
    "    return {exact} || (a < 0) == (b < 0) ? q : q - 1;",
    B.floormod: "if (b == 0{or_minus}) return 0;\n    {t} r = a % b;\n"
    "    return r != 0 && (r < 0) != (b < 0) ? r + b : r;",
}
FLOATS = {
    "min": "return a < b || a != a ? a : b;",
    "max": "return a > b || a != a ? a : b;",
}


class Functions:
    """The functions of one source, in the order of their first use."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self.texts: dict[str, str] = {}

    def define(self, name: str, result: str, parameters: str, body: str) -> str:
        """The function `name`, written if it is not there yet."""
        if name not in self.texts:
            head = f"static inline {result} {name}({parameters})"
            self.texts[name] = f"{head} {{\n    {body}\n}}\n"
        return name

    # -- whole numbers ---------------------------------------------------------------------------

    def wrapped(self, text: str, of: DType) -> str:
        """`text`, of any width, as a `of` holds it."""
        if of.bits >= 8:
            return f"({self.dialect.register(of)})({text})"
        mask, sign = (1 << of.bits) - 1, 1 << (of.bits - 1)
        t, low = self.dialect.register(of), f"({text}) & {mask}"
        return f"(({t})(({low}) ^ {sign}) - {sign})" if of.is_signed else f"(({t})({low}))"

    def divide(self, op: BinaryOp, of: DType) -> str:
        """A division or remainder; by zero it gives 0, and nothing overflows."""
        t, name = self.dialect.register(of), f"tw_{op.name}_{of.name}"
        minus = f"b == -1 ? {self.negated(of)} : " if of.is_signed else ""
        if not of.is_signed:
            op = {B.floordiv: B.truncdiv, B.floormod: B.truncmod}.get(op, op)
        body = DIVISION[op].format(
            t=t,
            minus=minus,
            or_minus=" || b == -1" if of.is_signed else "",
            exact="b == -1 || a % b == 0",
        )
        return self.define(name, t, f"{t} a, {t} b", body)

    def negated(self, of: DType) -> str:
        wide = self.dialect.types["u64" if of.bits == 64 else "u32"]
        return self.wrapped(f"0 - ({wide})a", of)

    def shift(self, op: BinaryOp, of: DType) -> str:
        """Shifts by the width or more give what shifting one bit at a time would."""
        t, wide = self.dialect.register(of), self.dialect.types["u64" if of.bits == 64 else "u32"]
        far = f"b < 0 || b >= {of.bits}" if of.is_signed else f"b >= {of.bits}"
        if op is B.shl:
            body = f"return {far} ? 0 : {self.wrapped(f'({wide})a << b', of)};"
        else:
            body = f"return a >> ({far} ? {of.bits - 1} : b);"
            if not of.is_signed:
                body = f"return {far} ? 0 : a >> b;"
        return self.define(f"tw_{op.name}_{of.name}", t, f"{t} a, {t} b", body)

    def least(self, op: BinaryOp, of: DType) -> str:
        """min and max; of floats, NaN if either is NaN."""
        t = self.dialect.register(of)
        sign = "<" if op is B.min else ">"
        body = FLOATS[op.value] if of.is_float else f"return a {sign} b ? a : b;"
        wide = f32 if of.is_float and of.bits < 32 else of
        return self.define(f"tw_{op.name}_{wide.name}", t, f"{t} a, {t} b", body)

    def sign(self, of: DType) -> str:
        """-1, 0 or 1; a NaN and a zero stay what they are."""
        t = self.dialect.register(of)
        body = "return a > 0 ? 1 : a < 0 ? -1 : a;" if of.is_float else "return (a > 0) - (a < 0);"
        wide = f32 if of.is_float and of.bits < 32 else of
        return self.define(f"tw_sign_{wide.name}", t, f"{t} a", body)

    def popcount(self) -> str:
        t = self.dialect.types["u64"]
        body = "int n = 0;\n    for (; a != 0; a &= a - 1) n++;\n    return n;"
        return self.define("tw_popcount", "int", f"{t} a", body)

    # -- memory of packed numbers ------------------------------------------------------------------

    def unpack(self, of: DType, qualifier: str) -> str:
        """The element `i` of packed numbers at `p`, lowest bits first."""
        element = f"p[i / {8 // of.bits}] >> (i % {8 // of.bits} * {of.bits})"
        parameters = (
            f"{qualifier}const {self.dialect.types['u8']} *p, {self.dialect.types['i64']} i"
        )
        name = f"tw_load_{of.name}{_tag(qualifier)}"
        return self.define(
            name, self.dialect.register(of), parameters, f"return {self.wrapped(element, of)};"
        )

    def pack(self, of: DType, qualifier: str) -> str:
        """Put `x` at the element `i`."""
        byte, per = self.dialect.types["u8"], 8 // of.bits
        body = (
            f"int by = i % {per} * {of.bits};\n"
            f"    p[i / {per}] = ({byte})((p[i / {per}] & ~({(1 << of.bits) - 1} << by))"
            f" | ((x & {(1 << of.bits) - 1}) << by));"
        )
        parameters = f"{qualifier}{byte} *p, {self.dialect.types['i64']} i, int x"
        return self.define(f"tw_store_{of.name}{_tag(qualifier)}", "void", parameters, body)

    # -- bits and conversions ----------------------------------------------------------------------

    def reinterpret(self, start: DType, to: DType) -> str:
        """The same bits as another dtype; both are in memory form."""
        found = self.dialect.reinterpret.get(to.name)
        if found is not None:
            return found
        t, s = self.dialect.types[to.name], self.dialect.types[start.name]
        body = f"{t} y;\n    memcpy(&y, &x, sizeof y);\n    return y;"
        return self.define(f"tw_{start.name}_as_{to.name}", t, f"{s} x", body)

    def rounded(self, of: DType) -> str:
        """x by way of memory, where it has its type's precision."""
        t = self.dialect.register(of)
        body = f"volatile {t} y = x;\n    return y;"
        return self.define(f"tw_rounded_{of.name}", t, f"{t} x", body)

    def saturate(self, start: DType, to: DType) -> str:
        """Float → whole number: towards zero, saturating at the ends, NaN to 0."""
        t, s = self.dialect.register(to), self.dialect.register(start)
        wide = start if start.bits == 64 else f32
        low, high = int(to.lowest), int(to.highest)
        mark = "" if wide is f64 else "f"
        body = (
            f"return x != x ? 0 : x <= {low}.0{mark} ? {self.number(low, to)} :"
            f" x >= {high + 1}.0{mark} ? {self.number(high, to)} : ({t})x;"
        )
        return self.define(f"tw_{to.name}_of_{wide.name}", t, f"{s} x", body)

    def number(self, value: int, of: DType) -> str:
        """A whole number as a literal of its dtype."""
        suffix = self.dialect.suffix.get(of.name, "")
        if of.is_signed and of.bits >= 32 and value == int(of.lowest):
            return f"(-{-(value + 1)}{suffix} - 1)"
        return f"{value}{suffix}" if value >= 0 else f"(-{-value}{suffix})"

    def to_odd(self) -> str:
        """f64 → f32, rounded to odd, so that rounding once more to a smaller type is exact."""
        single, double, bits = (self.dialect.types[d] for d in ("f32", "f64", "u32"))
        body = (
            f"{single} near = ({single})x;\n    {double} back = near;\n"
            "    if (back == x || x != x) return near;\n"
            f"    {bits} b = {self.reinterpret(f32, u32)}(near);\n"
            "    if ((back < 0 ? -back : back) > (x < 0 ? -x : x)) b -= 1;\n"
            f"    return {self.reinterpret(u32, f32)}(b | 1);"
        )
        return self.define("tw_to_odd", single, f"{double} x", body)

    def sticky(self, of: DType) -> str:
        """A 64-bit number → f64 by rounding to odd, where it has more bits than f64 holds."""
        t, double = self.dialect.types[of.name], self.dialect.types["f64"]
        most = self.number(1 << 53, of)
        small = f"a < {most}" + (f" && a > -{most}" if of.is_signed else "")
        odd = f"(a & ~({t})2047) | ((a & 2047) != 0 ? 2048 : 0)"
        body = f"return {small} ? ({double})a : ({double})({odd});"
        return self.define(f"tw_sticky_{of.name}", double, f"{t} a", body)

    def widen(self, of: DType) -> str:
        """The f32 of a small float's bits (exact)."""
        form, single, bits = FORMATS[of.name], self.dialect.types["f32"], self.dialect.types["u32"]
        sign_at, up = form.width - 1, 23 - form.mantissa
        least, as_float = (128 - form.bias) << 23, self.reinterpret(u32, f32)
        body = (
            f"{bits} size = x & {(1 << sign_at) - 1}, sign = ({bits})(x >> {sign_at}) << 31;\n"
            f"    {bits} up = size << {up};\n"
            f"    {bits} y = up + {(127 - form.bias) << 23}u;\n"
        )
        if not form.unsigned_zero:
            body += f"    if (size >= {form.top}u) y = up | 0x7F800000u;\n"
        if form.bias != 127:  # subnormal: put the mantissa under an implicit one, subtract that one
            body += (
                f"    if (size < {1 << form.mantissa}u) y = {self.reinterpret(f32, u32)}("
                f"{as_float}(up | {least}u) - {as_float}({least}u));\n"
            )
        if form.unsigned_zero:
            body += f"    if (x == {form.top}) y = 0x7FC00000u;\n"
        body += f"    return {as_float}(y | sign);"
        kind = self.dialect.memory(of)
        return self.define(f"tw_f32_of_{of.name}", single, f"{kind} x", body)

    def narrow(self, of: DType) -> str:
        """The bits of the small float nearest to an f32 (ties to even)."""
        form, single, bits = FORMATS[of.name], self.dialect.types["f32"], self.dialect.types["u32"]
        shift, as_bits = 23 - form.mantissa, self.reinterpret(f32, u32)
        rebias = (((1 << (shift - 1)) - 1) - ((127 - form.bias) << 23)) & 0xFFFFFFFF
        body = (
            f"{bits} all = {as_bits}(x), size = all & 0x7FFFFFFFu;\n"
            f"    {bits} sign = (all ^ size) >> {32 - form.width};\n"
            f"    {bits} y = (size + (size >> {shift} & 1u) + {rebias}u) >> {shift};\n"
            f"    if (y > {form.top}u) y = {form.top}u;\n"
        )
        if form.bias != 127:  # below the least normal number: let an f32 addition round
            magic = (127 + 24 - form.bias - form.mantissa) << 23
            as_float = self.reinterpret(u32, f32)
            body += (
                f"    if (size < {(128 - form.bias) << 23}u)"
                f" y = {as_bits}({as_float}(size) + {as_float}({magic}u)) - {magic}u;\n"
            )
        kind = self.dialect.memory(of)
        body += f"    if (size > 0x7F800000u) y = {form.nan}u;\n"
        body += "    if (y == 0) sign = 0;\n" if form.unsigned_zero else ""
        body += f"    return ({kind})(y | sign);"
        return self.define(f"tw_{of.name}_of_f32", kind, f"{single} x", body)


def _tag(qualifier: str) -> str:
    """What distinguishes the names of functions of pointers into different memories."""
    return qualifier.strip().lower().rstrip("_").replace("__", "_")


BYTES = {8: u8, 16: u16}  # the whole numbers of a width
