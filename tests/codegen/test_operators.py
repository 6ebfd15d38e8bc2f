"""Every operator on every dtype: compiled code agrees with the interpreter, lane by lane."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright.codegen import inprocess
from tilewright.codegen.llvm import emit
from tilewright.ir import interp
from tilewright.ir.dtype import ALL, DType, f32, f64, i64
from tilewright.ir.expr import (
    COMPARISONS,
    Binary,
    BinaryOp,
    Buffer,
    Cast,
    Load,
    Select,
    Unary,
    UnaryOp,
    Var,
    const,
)
from tilewright.ir.stmt import For, Func, Store, seq
from tilewright.lower.pipeline import lower
from tilewright.target.target import target

B, U = BinaryOp, UnaryOp
COUNT = 96

FLOAT_BINARY = [
    B.add,
    B.sub,
    B.mul,
    B.div,
    B.min,
    B.max,
    *sorted(COMPARISONS, key=lambda o: o.name),
]
INT_BINARY = [
    B.add, B.sub, B.mul, B.floordiv, B.floormod, B.truncdiv, B.truncmod, B.min, B.max, B.shl, B.shr,
    B.bit_and, B.bit_or, B.bit_xor, *sorted(COMPARISONS, key=lambda o: o.name),
]  # fmt: skip
BOOL_BINARY = [B.logical_and, B.logical_or, B.eq, B.ne]
FLOAT_UNARY = [
    U.neg, U.abs, U.sign, U.floor, U.ceil, U.round, U.trunc, U.sqrt, U.rsqrt, U.isnan, U.isinf,
]  # fmt: skip
INT_UNARY = [U.neg, U.abs, U.sign, U.bit_not, U.popcount]


def operands(of: DType, op: BinaryOp | None = None) -> tuple[Any, Any]:
    """Two arrays with every edge of the dtype, in many pairs, and random values."""
    random = np.random.default_rng(7)
    if of.is_bool:
        a, b = random.integers(0, 2, (2, COUNT)).astype(bool)
        return a, b
    if of.is_float:
        edges = np.array(
            [0.0, -0.0, 1.0, -1.0, 0.5, 2.5, 3.5, -2.5, np.inf, -np.inf, np.nan, 1e-7, 6e-5, 447.0]
        )
        values = np.concatenate([edges, random.standard_normal(COUNT) * 10.0])[:COUNT]
    else:
        low, high = int(of.lowest), int(of.highest)
        edges = np.array(
            [low, high, 0, min(1, high), max(-1, low), high // 2, low // 2], dtype=object
        )
        values = np.array([int(v) for v in random.integers(low, high, COUNT, dtype=np.int64)]
                          if of.name != "u64" else random.integers(0, high, COUNT, dtype=np.uint64),
                          dtype=object)  # fmt: skip
        values = np.concatenate([edges, values])[:COUNT]
    a, b = values.copy(), np.roll(values, 3)
    if of.is_int and op in (B.floordiv, B.floormod, B.truncdiv, B.truncmod):
        one = -1 if of.bits == 1 else 1
        b = np.array([v if v else one for v in b], dtype=object)
    if op in (B.shl, B.shr):
        b = np.array([abs(int(v)) % of.bits for v in b], dtype=object)
    with np.errstate(all="ignore"):
        return a.astype(of.numpy), b.astype(of.numpy)


def program(of: DType, ops: list[Any], kind: str) -> tuple[Func, list[Buffer]]:
    """One function with an output for each operator; `kind` of its inner loop."""
    n = const(COUNT)
    i, j = Var("i"), Var("j")
    at = (i * 16 + j,)
    ins, outs, stmts = [], [], []
    for k, op in enumerate(ops):
        a = Buffer(f"A{k}", (n,), of)
        ins.append(a)
        if isinstance(op, BinaryOp):
            b = Buffer(f"B{k}", (n,), of)
            ins.append(b)
            value = Binary(op, Load(a, at), Load(b, at))
        else:
            value = Unary(op, Load(a, at)) if isinstance(op, UnaryOp) else Cast(op, Load(a, at))
        out = Buffer(f"C{k}", (n,), value.dtype)
        outs.append(out)
        stmts.append(Store(out, at, value))
    inner = For(j, const(0), const(16), kind, seq(*stmts))
    loop = For(i, const(0), const(COUNT // 16), "serial", inner)
    return Func("ops", (*ins, *outs), loop), outs


def same(got: Any, want: Any, of: DType, what: str) -> None:
    if of.is_float:
        got, want = got.astype(np.float64), want.astype(np.float64)
        tie = (got == want) | (np.isnan(got) & np.isnan(want))
        if what.startswith("rsqrt"):  # two roundings where the interpreter has one
            tie |= abs(got - want) <= abs(want) * 2.0 ** (-52 if of.bits == 64 else -23) * 1.5
    else:
        tie = got == want
    assert tie.all(), f"{what}: {got[~tie][:5]} instead of {want[~tie][:5]}"


def check(of: DType, ops: list[Any], kind: str, machine: str = "cpu") -> None:
    func, outs = program(of, ops, kind)
    arrays = []
    for op in ops:
        a, b = operands(of, op if isinstance(op, BinaryOp) else None)
        arrays += [a, b] if isinstance(op, BinaryOp) else [a]
    want = [np.zeros(COUNT, o.dtype.numpy) for o in outs]
    got = [np.zeros(COUNT, o.dtype.numpy) for o in outs]
    interp.run(func, *arrays, *want)
    inprocess.run(func, *arrays, *got, target=machine)
    for op, out, g, w in zip(ops, outs, got, want, strict=True):
        same(g, w, out.dtype, f"{getattr(op, 'name', op)} on {of}")


def operators_of(of: DType) -> list[Any]:
    if of.is_float:
        return [*FLOAT_BINARY, *FLOAT_UNARY]
    if of.is_bool:
        return [*BOOL_BINARY, U.logical_not]
    if of.bits == 1:  # a count of 1 does not fit
        return [*INT_BINARY, *(op for op in INT_UNARY if op is not U.popcount)]
    return [*INT_BINARY, *INT_UNARY]


@pytest.mark.parametrize("kind", ["serial", "vectorize"])
@pytest.mark.parametrize("of", ALL, ids=str)
def test_operators(of: DType, kind: str) -> None:
    check(of, operators_of(of), kind)


@pytest.mark.parametrize("kind", ["serial", "vectorize"])
@pytest.mark.parametrize("of", ALL, ids=str)
def test_casts(of: DType, kind: str) -> None:
    check(of, [to for to in ALL if to is not of], kind)


@pytest.mark.parametrize("processor", ["x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("of", [f32, f64], ids=str)
def test_vectors_of_floats_become_whole_numbers_as_vectors(of: DType, processor: str) -> None:
    """LLVM's own saturating conversions would take them lane by lane."""
    machine = target(f"cpu -mcpu={processor}")
    func, _ = program(of, [to for to in ALL if to.is_int], "vectorize")
    text = emit(lower(func, machine), machine).text
    assert "fptosi <" in text and ".sat." not in text


@pytest.mark.parametrize("of", [f32, f64], ids=str)
def test_casts_to_i64_at_the_ends_of_its_halves(of: DType) -> None:
    """Machines without the instruction convert 32 bits at a time."""
    powers = 2.0 ** np.array([0, 1, 23, 31, 32, 33, 51, 52, 53, 62, 63, 64, 100], of.numpy)
    near = [powers + 0.5, powers - 0.5, np.nextafter(powers, 0), np.nextafter(powers, np.inf)]
    values = np.concatenate([[0.5, 0.75, 1.5, np.inf, np.nan], powers, *near]).astype(of.numpy)
    values = np.resize(np.stack([values, -values]), 2 * COUNT)
    func, _ = program(of, [i64], "vectorize")
    for half in np.split(values, 2):
        want, got = np.zeros(COUNT, np.int64), np.zeros(COUNT, np.int64)
        interp.run(func, half, want)
        inprocess.run(func, half, got, target="cpu")
        same(got, want, i64, f"i64 of {of}")


@pytest.mark.parametrize("of", ALL, ids=str)
def test_machine_without_conversions(of: DType) -> None:
    """x86-64-v2 has neither f16 instructions nor masks."""
    check(of, [*operators_of(of), *(to for to in ALL if to is not of)], "vectorize",
          "cpu -mcpu=x86-64-v2")  # fmt: skip


@pytest.mark.parametrize("kind", ["serial", "vectorize"])
def test_select_guards_its_loads(kind: str) -> None:
    """Only the chosen side is read: the other index lies far outside."""
    n = const(48)
    i = Var("i")
    a, out = Buffer("A", (n,), i64), Buffer("C", (n,), i64)
    inside = i < 40
    far = select_index(i)
    value = Select(inside, Load(a, (i,)), const(-1))
    guarded = Select(i < 40, Load(a, (far,)), value)
    func = Func("guard", (a, out), For(i, const(0), n, kind, Store(out, (i,), guarded)))
    x, y = np.arange(48), np.zeros(48, np.int64)
    inprocess.run(func, x, y)
    np.testing.assert_array_equal(y, np.where(x < 40, x, -1))


def select_index(i: Var) -> Any:
    """i where i < 40, else an index in another page of memory."""
    return Select(i < 40, i, const(1 << 40))


def nest(i: Var, j: Var, count: int, body: Any) -> For:
    """Vectors of 16."""
    inner = For(j, const(0), const(16), "vectorize", body)
    return For(i, const(0), const(count // 16), "serial", inner)


def test_every_float_pattern_of_two_bytes_converts() -> None:
    """f16, bf16 and f8 to f32 and back, all patterns, with and without the machine's own
    instructions.
    """
    for name, whole in (
        ("f16", np.uint16),
        ("bf16", np.uint16),
        ("f8e4m3", np.uint8),
        ("f8e5m2", np.uint8),
    ):
        of = next(d for d in ALL if d.name == name)
        f32 = next(d for d in ALL if d.name == "f32")
        count = 1 << of.bits
        n = const(count)
        a, b, c = Buffer("A", (n,), of), Buffer("B", (n,), f32), Buffer("C", (n,), of)
        i, j = Var("i"), Var("j")
        at = (i * 16 + j,)
        body = seq(
            Store(b, at, Cast(f32, Load(a, at))),
            Store(c, at, Cast(of, Load(b, at))),
        )
        func = Func("all", (a, b, c), nest(i, j, count, body))
        patterns = np.arange(count).astype(whole).view(of.numpy)
        for machine in ("cpu", "cpu -mcpu=x86-64-v2"):
            wide, back = np.zeros(count, np.float32), np.zeros(count, of.numpy)
            inprocess.run(func, patterns, wide, back, target=machine)
            same(wide, patterns.astype(np.float32), f32, f"{name} to f32")
            same(back, patterns, of, f"{name} back")


def test_rounding_between_neighbours() -> None:
    """f32 values at and around the middle of two neighbours round to even."""
    random = np.random.default_rng(3)
    for name in ("f16", "bf16", "f8e4m3", "f8e5m2"):
        of = next(d for d in ALL if d.name == name)
        f32 = next(d for d in ALL if d.name == "f32")
        whole = np.uint16 if of.bits == 16 else np.uint8
        top = np.unique(
            np.arange(1 << (of.bits - 1)).astype(whole).view(of.numpy).astype(np.float32)
        )
        top = top[np.isfinite(top)].astype(np.float64)
        middle = ((top[1:] + top[:-1]) / 2).astype(np.float32)
        near = np.concatenate([middle, np.nextafter(middle, 0), np.nextafter(middle, np.inf)])
        near = np.concatenate([near, -near, random.standard_normal(64).astype(np.float32) * 1e-6])
        near = near[: near.size // 16 * 16].astype(np.float32)
        n = const(near.size)
        a, c = Buffer("A", (n,), f32), Buffer("C", (n,), of)
        i, j = Var("i"), Var("j")
        at = (i * 16 + j,)
        body = Store(c, at, Cast(of, Load(a, at)))
        func = Func("round", (a, c), nest(i, j, near.size, body))
        with np.errstate(all="ignore"):
            want = near.astype(of.numpy)
        for machine in ("cpu", "cpu -mcpu=x86-64-v2"):
            got = np.zeros(near.size, of.numpy)
            inprocess.run(func, near, got, target=machine)
            same(got, want, of, f"f32 to {name}")
