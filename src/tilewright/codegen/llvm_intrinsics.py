"""Calls by name: what each intrinsic of the IR becomes in LLVM.

A handler gets the evaluator and the Call and gives a Value; intrinsics called for effect give an
i32 zero.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.codegen.llvm_memory import spread
from tilewright.codegen.llvm_types import Value, constant, mangle, register
from tilewright.ir.dtype import i32
from tilewright.ir.expr import Call, Load, Var, as_int, as_selects

Handler = Callable[[Any, Call], Value]


def barrier(e: Any, call: Call) -> Value:
    """One thread runs a CPU's thread loops in order: nothing to wait for."""
    return constant(0, i32)


def reinterpret(e: Any, call: Call) -> Value:
    """The same bits as another dtype of the same width."""
    value = e.eval(call.args[0])
    bits = e.memory.to_memory(value)
    of, to = value.dtype, call.dtype
    if of.is_float and of.name in ("f32", "f64"):
        bits = e.b.pure(
            f"bitcast {register(of, value.lanes)} {bits} to {_whole(of.bits, value.lanes)}", bits
        )
    if to.name in ("f32", "f64"):
        text = e.b.pure(
            f"bitcast {_whole(of.bits, value.lanes)} {bits} to {register(to, value.lanes)}", bits
        )
        return Value(text, to, value.lanes)
    return e.memory.to_register(bits, to, value.lanes)


def prefetch(e: Any, call: Call) -> Value:
    """Ask for the line that an element lies in, into L1 or the one that is named; a
    hint, so that a wrong address does no harm."""
    read, *cache = call.args
    assert isinstance(read, Load)
    at = e.memory.address(read.buffer, e.location(read.buffer, read.indices[0]))
    near = 4 - (as_int(cache[0]) or 1) if cache else 3
    arguments = [("ptr", at), ("i32", "0"), ("i32", str(near)), ("i32", "1")]  # read, near, data
    e.b.call("void", "llvm.prefetch.p0", arguments)
    return constant(0, i32)


def _whole(bits: int, lanes: int) -> str:
    return f"<{lanes} x i{bits}>" if lanes else f"i{bits}"


def fma(e: Any, call: Call) -> Value:
    """a b + c, rounded once where the machine can."""
    return e.fused(*map(e.eval, call.args))


def scale(e: Any, call: Call) -> Value:
    """x 2^n, for machines that have an instruction for it."""
    x, n = (spread(e.b, e.eval(a), e.lanes) for a in call.args)
    kind, whole = register(call.dtype, e.lanes), register(i32, e.lanes)
    power = e.convert.cast(n, i32).text
    name = f"llvm.ldexp.{mangle(kind)}.{mangle(whole)}"
    text = e.b.call(kind, name, [(kind, x.text), (whole, power)])
    return Value(text, call.dtype, e.lanes)


def rounded(e: Any, call: Call) -> Value:
    """The value itself, over which no product and sum are fused. What translates LLVM's text again
    does not see the fence, but that the product itself may not be fused."""
    outside = e.ops.fuses, e.evaluated
    if e.target.is_translated_again:
        e.ops.fuses, e.evaluated = False, None
    value = e.eval(call.args[0])
    e.ops.fuses, e.evaluated = outside
    kind = register(call.dtype, value.lanes)
    text = e.b.call(kind, f"llvm.arithmetic.fence.{mangle(kind)}", [(kind, value.text)])
    return Value(text, call.dtype, value.lanes)


def again(e: Any, call: Call) -> Value:
    """The first argument; where it does not hold, no further round of the loop over the second one
    does anything, and the loop may end. A hint: where another loop is the innermost one, none."""
    value, variable = e.eval(call.args[0]), call.args[1]
    loop = e.open[-1] if e.open else None
    if loop is not None and isinstance(variable, Var) and loop.variable == variable.name:
        if value.const is None and e.b.level_of.get(value.text, 0) <= loop.level:
            loop.holds = value.text
    return value


def choose(e: Any, call: Call) -> Value:
    """One of several values: known where the loop over its index is unrolled."""
    index = e.index(call.args[0])
    if not index.is_constant:
        return e.eval(as_selects(call))
    options = call.args[1:]
    return e.eval(options[min(max(index.constant, 0), len(options) - 1)])


INTRINSICS: dict[str, Handler] = {
    "again": again,
    "barrier": barrier,
    "choose": choose,
    "fma": fma,
    "prefetch": prefetch,
    "reinterpret": reinterpret,
    "rounded": rounded,
    "scale": scale,
    "scale_down": scale,
}
