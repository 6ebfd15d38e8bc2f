"""The interpreter leaves out checks and wrapping where intervals allow it: it is right to do so.

Oracle: the same expression walked node by node, wrapping at each one.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.ir.dtype import DType, i8, i32, i64, u8, u64
from tilewright.ir.expr import (
    Binary,
    BinaryOp,
    Buffer,
    Cast,
    Const,
    Expr,
    Load,
    Select,
    Unary,
    UnaryOp,
    Var,
    fold_int,
    wrap,
)
from tilewright.ir.interp import InterpError, run
from tilewright.ir.parse import parse_func
from tilewright.ir.stmt import Axis, Block, For, Func, Let, Store

WHOLE = (i64, i32, i8, u8, u64)
OPS = (
    *(BinaryOp.add, BinaryOp.sub, BinaryOp.mul, BinaryOp.floordiv, BinaryOp.floormod, BinaryOp.min),
    *(BinaryOp.max, BinaryOp.truncdiv, BinaryOp.truncmod, BinaryOp.shl, BinaryOp.shr),
    *(BinaryOp.bit_and, BinaryOp.bit_or, BinaryOp.bit_xor),
)
I, J, N = Var("i"), Var("j"), Var("n")


@st.composite
def expressions(draw: st.DrawFn, of: DType = i64, depth: int = 4) -> Expr:
    if depth == 0 or draw(st.integers(0, 4)) == 0:
        if of is i64 and draw(st.booleans()):
            return draw(st.sampled_from([I, J, N, Var("x"), Var("v")]))
        some = st.sampled_from([0, 1, 2, 3, 8, -1, -3, int(of.lowest), int(of.highest)])
        return Const(wrap(draw(st.one_of(some, st.integers(-100, 100))), of), of)
    form = draw(st.integers(0, 9))
    if form <= 5:
        op = draw(st.sampled_from(OPS))
        return Binary(op, draw(expressions(of, depth - 1)), draw(expressions(of, depth - 1)))
    if form == 6:
        return Cast(of, draw(expressions(draw(st.sampled_from(WHOLE)), depth - 1)))
    if form == 7:
        op = draw(st.sampled_from([BinaryOp.lt, BinaryOp.eq, BinaryOp.ge]))
        condition = Binary(op, draw(expressions(of, depth - 1)), draw(expressions(of, depth - 1)))
        return Select(condition, *(draw(expressions(of, depth - 1)) for _ in "ab"))
    op = draw(st.sampled_from([UnaryOp.neg, UnaryOp.abs, UnaryOp.sign, UnaryOp.bit_not]))
    return Unary(op, draw(expressions(of, depth - 1)))


class Undefined(Exception):
    pass


def meaning(e: Expr, values: dict[str, int]) -> int:
    """The value of a whole-number expression, by its definition."""
    if isinstance(e, Var):
        return values[e.name]
    if isinstance(e, Const):
        return e.value
    if isinstance(e, Cast):
        return wrap(meaning(e.a, values), e.dtype)
    if isinstance(e, Select):
        return meaning(e.then if meaning(e.cond, values) else e.other, values)
    if isinstance(e, Unary):
        a = meaning(e.a, values)
        results = {
            UnaryOp.neg: -a,
            UnaryOp.abs: abs(a),
            UnaryOp.sign: (a > 0) - (a < 0),
            UnaryOp.bit_not: ~a,
        }
        return wrap(results[e.op], e.dtype)
    assert isinstance(e, Binary)
    folded = fold_int(e.op, meaning(e.a, values), meaning(e.b, values), e.a.dtype)
    if folded is None:
        raise Undefined
    return folded.value


def program(target: Buffer, indices: tuple[Expr, ...], value: Expr) -> Func:
    """Loops over i and j, a let x and a block axis v around a store."""
    axis = Axis(Var("v"), "spatial", Const(12, i64), I + 3)
    block = Block("b", (axis,), (), (), None, Store(target, indices, value))
    body = Let(Var("x"), I * J - 2, block)
    inner = For(J, Const(-2, i64), N, "serial", body)
    return Func("f", (target, N), For(I, Const(0, i64), Const(9, i64), "serial", inner))


def iterations(n: int) -> Iterator[dict[str, int]]:
    for i in range(9):
        for j in range(-2, n):
            yield {"i": i, "j": j, "n": n, "x": i * j - 2, "v": i + 3}


@settings(max_examples=150, deadline=None, derandomize=True)
@given(expressions(), st.integers(0, 4))
def test_values(e: Expr, n: int) -> None:
    func = program(Buffer("A", (Const(9, i64), Const(8, i64)), i64), (I, J + 2), e)
    out = np.zeros((9, 8), np.int64)
    try:
        wanted = {(p["i"], p["j"] + 2): meaning(e, p) for p in iterations(n)}
    except Undefined:
        with pytest.raises(InterpError):
            run(func, out, symbols={"n": n})
    else:
        run(func, out, symbols={"n": n})
        assert {k: int(out[k]) for k in wanted} == wanted


@settings(max_examples=150, deadline=None, derandomize=True)
@given(expressions(depth=3), st.integers(1, 12))
def test_bounds(index: Expr, length: int) -> None:
    target = Buffer("A", (Const(length, i64),), i64)
    func = program(target, (index,), Load(target, (index,)) + 1)
    array = np.zeros(length, np.int64)
    try:
        wanted = [meaning(index, p) for p in iterations(2)]
    except Undefined:
        wanted = [-1]
    if all(0 <= w < length for w in wanted):
        run(func, array, symbols={"n": 2})
        assert array.tolist() == [wanted.count(k) for k in range(length)]
    else:
        with pytest.raises(InterpError):
            run(func, array, symbols={"n": 2})


def test_a_guard_protects_the_access_inside_it() -> None:
    func = parse_func("""
def f(A: i64[4]):
    for i in serial(0, 9):
        with block("b", where=i < 4):
            v = spatial(4, i)
            A[v] = v
""")
    array = np.zeros(4, np.int64)
    run(func, array)
    assert array.tolist() == [0, 1, 2, 3]
