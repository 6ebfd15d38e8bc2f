"""Random programs do the same before and after `simplify_func`, run by the interpreter."""

from __future__ import annotations

import random

import numpy as np
import pytest
from index_programs import random_condition, random_index

from tilewright.arith.affine import Affine, Forms
from tilewright.arith.simplify import simplify_func
from tilewright.ir import interp
from tilewright.ir.dtype import DType, f32, i8, i32, i64
from tilewright.ir.expr import (
    Binary,
    BinaryOp,
    Buffer,
    Cast,
    Expr,
    Load,
    Select,
    Unary,
    UnaryOp,
    Var,
    as_int,
    const,
    expr,
    maximum,
    minimum,
)
from tilewright.ir.parse import parse_func
from tilewright.ir.stmt import For, Func, If, Let, Stmt, Store, seq
from tilewright.ir.text import print_func
from tilewright.ir.walk import rewrite_expr, visit

SIZE = Var("n")
FLOATS, BYTES = Buffer("A", (expr(64),), f32), Buffer("B", (expr(32),), i8)
COUNTS = Buffer("C", (expr(96),), i64)
BUFFERS = (FLOATS, BYTES, COUNTS)


class Program:
    """Draws a function over three buffers and a symbolic size."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.made = 0
        self.scope: list[Var] = [SIZE]

    def func(self) -> Func:
        body = seq(*(self.stmt(4) for _ in range(2)))
        return Func("f", (*BUFFERS, SIZE), body)

    def name(self, prefix: str) -> Var:
        self.made += 1
        return Var(f"{prefix}{self.made}")

    def index(self, depth: int = 3) -> Expr:
        """An index over the variables in scope that divides by constants."""
        while True:
            e = random_index(self.rng, depth)
            if not may_be_undefined(e):
                return self.renamed(e)

    def condition(self) -> Expr:
        while True:
            e = random_condition(self.rng, 2)
            if not may_be_undefined(e):
                return self.renamed(e)

    def renamed(self, e: Expr) -> Expr:
        chosen = {v: self.rng.choice(self.scope) for v in visit(e) if isinstance(v, Var)}
        return rewrite_expr(e, lambda x: chosen.get(x, x) if isinstance(x, Var) else x)

    def element(self, buffer: Buffer) -> tuple[Expr, ...]:
        return (self.index() % buffer.shape[0],)

    def stmt(self, depth: int) -> Stmt:
        kind = self.rng.randrange(8) if depth else 7
        if kind < 4:
            return self.loop(depth)
        if kind == 4:
            cond = self.condition()
            other = self.stmt(depth - 1) if self.rng.random() < 0.5 else None
            return If(cond, self.stmt(depth - 1), other)
        if kind == 5:
            var, value = self.name("t"), self.index()
            self.scope.append(var)
            body = self.stmt(depth - 1)
            self.scope.pop()
            return Let(var, value, body)
        if kind == 6:
            return seq(self.stmt(depth - 1), self.stmt(depth - 1))
        buffer = self.rng.choice(BUFFERS)
        return Store(buffer, self.element(buffer), self.value(buffer.dtype, 3))

    def loop(self, depth: int) -> Stmt:
        var = self.name("v")
        start = self.rng.choice(
            (const(0), const(0), const(2), minimum(self.rng.choice(self.scope), 3))
        )
        extent = self.rng.choice(
            (
                const(1),
                const(3),
                const(4),
                SIZE,
                minimum(4, SIZE - 2),
                maximum(self.index(1) % 3, 0),
            )
        )
        self.scope.append(var)
        body = self.stmt(depth - 1)
        self.scope.pop()
        return For(var, start, start + extent, "serial", body)

    def value(self, of: DType, depth: int) -> Expr:
        rng = self.rng
        kind = rng.randrange(9) if depth else rng.randrange(2)
        if kind == 0:
            return const(rng.choice((0, 1, -1, 2, 5)), of)
        if kind == 1 or kind == 2:
            source = rng.choice(BUFFERS)
            return Load(source, self.element(source)).astype(of)
        if kind == 3:
            return Cast(of, self.index()) if of is not i64 else self.index()
        if kind == 4:
            return Select(self.test(depth), self.value(of, depth - 1), self.value(of, depth - 1))
        if kind == 5:
            a = self.value(of, depth - 1)
            return Unary(rng.choice((UnaryOp.neg, UnaryOp.abs)), a)
        if kind == 6 and of is not f32:
            between = rng.choice((i8, i32, i64, f32))
            return (
                Cast(of, Cast(between, self.value(of, depth - 1)))
                if between is not of
                else (self.value(of, depth - 1))
            )
        ops = [BinaryOp.add, BinaryOp.sub, BinaryOp.mul, BinaryOp.min, BinaryOp.max]
        ops += [BinaryOp.div] if of is f32 else [BinaryOp.bit_and, BinaryOp.bit_xor]
        a, b = self.value(of, depth - 1), self.value(of, depth - 1)
        return Binary(rng.choice(ops), a, a if rng.random() < 0.15 else b)

    def test(self, depth: int) -> Expr:
        if self.rng.random() < 0.5:
            return self.condition()
        of = self.rng.choice((f32, i8, i64))
        ops = (BinaryOp.lt, BinaryOp.le, BinaryOp.eq, BinaryOp.ne)
        a, b = self.value(of, depth - 1), self.value(of, depth - 1)
        return Binary(self.rng.choice(ops), a, b)


def may_be_undefined(e: Expr) -> bool:
    """Does it divide by something that may be 0?"""
    partial = (BinaryOp.floordiv, BinaryOp.floormod, BinaryOp.truncdiv, BinaryOp.truncmod)
    return any(isinstance(x, Binary) and x.op in partial and not as_int(x.b) for x in visit(e))


def run(func: Func, n: int) -> list[np.ndarray]:
    rng = np.random.default_rng(n)
    arrays = [
        rng.integers(-4, 5, 64).astype(np.float32),
        rng.integers(-128, 128, 32).astype(np.int8),
        rng.integers(-9, 10, 96),
    ]
    arrays[0][:4] = (np.nan, np.inf, -0.0, 1e-40)
    arrays[2][:2] = (2**62, -(2**63))
    interp.run(func, *arrays, symbols={"n": n})
    return arrays


@pytest.mark.parametrize("seed", range(80))
def test_random_functions_do_the_same(seed: int) -> None:
    func = Program(random.Random(seed)).func()
    tidy = simplify_func(func, remove_unit_loops=True)
    assert simplify_func(tidy, remove_unit_loops=True) == tidy
    for n in (0, 1, 2, 5):
        for before, after in zip(run(func, n), run(tidy, n), strict=True):
            message = f"n = {n}\n{print_func(func)}\n{print_func(tidy)}"
            assert before.tobytes() == after.tobytes() or np.array_equal(
                before, after, equal_nan=before.dtype == np.float32
            ), message


def test_what_is_known_of_memory_ends_where_it_is_written() -> None:
    text = """
def f(C: i64[4], B: i64[4]):
    for i in serial(0, 4):
        if i == C[0]:
            C[0] = C[0] + 1
            last: i64 = C[0]
            if last == i:
                B[i] = 1
            for k in serial(0, C[1]):
                C[1] = 0
                if k < C[1]:
                    B[i] = 2
"""
    before = parse_func(text)
    arrays = [np.array([0, 3, 0, 0]), np.full(4, 7)]
    expected = [a.copy() for a in arrays]
    interp.run(before, *expected)
    interp.run(simplify_func(before, remove_unit_loops=True), *arrays)
    for a, b in zip(arrays, expected, strict=True):
        np.testing.assert_array_equal(a, b)


def test_loops_of_few_rounds_are_branches() -> None:
    """What a last vector of an open row asks is the same for all rows, and is no loop's counter."""
    text = """
def f(A: f32[64], B: f32[64], n: i64):
    for y in serial(0, 2):
        for x in serial(n // 4, (n + 3) // 4):
            for v in vectorize(0, 4):
                if x * 4 + v < n:
                    B[x * 4 + v] = A[x * 4 + v]
        for x in serial((n + 2) // 4, (n + 3) // 4 + 1):
            B[x + y] = 2.0
        for x in serial(n // 4, (n + 8) // 4):
            for k in serial(0, n):
                B[x] = B[x] + A[k]
        for x in serial(n // 4, (n + 9) // 4):
            B[x] = A[x]
"""
    before = parse_func(text)
    after = simplify_func(before, remove_unit_loops=True)
    assert (
        print_func(after).strip()
        == """
def f(A: f32[64], B: f32[64], n: i64):
    for y in serial(0, 2):
        if n % 4 >= 1:
            x: i64 = n // 4
            for v in vectorize(0, 4):
                if x * 4 + v < n:
                    B[x * 4 + v] = A[x * 4 + v]
        with let(i64, (n + 2) // 4) as x:
            B[x + y] = 2.0
        if (n + 2) // 4 < (n + 3) // 4:
            x: i64 = (n + 2) // 4 + 1
            B[x + y] = 2.0
        for x in serial(n // 4, n // 4 + 2):
            for k in serial(0, n):
                B[x] = B[x] + A[k]
        for x in serial(n // 4, (n + 1) // 4 + 2):
            B[x] = A[x]
""".strip()
    )
    random = np.random.default_rng(0)
    for n in (0, 1, 6, 7, 8):
        arrays = [random.standard_normal(64).astype(np.float32), np.zeros(64, np.float32)]
        expected = [a.copy() for a in arrays]
        interp.run(before, *expected, symbols={"n": n})
        interp.run(after, *arrays, symbols={"n": n})
        np.testing.assert_array_equal(arrays[1], expected[1])


def test_a_name_for_choices_is_known_by_its_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """No proof tries each way of each choice: they would be twice as many with each name."""
    lines, last = ["def f(A: f32[4096], B: f32[4096], n: i64, m: i64):"], "0"
    for k in range(1, 9):
        lines.append(f"    a{k}: i64 = {last} + select(n >= {k * 3}, {k}, 0)")
        last = f"a{k}"
    lines += [
        "    for i in serial(0, m):",
        f"        if i * 4 + {last} < n * m + 4:",
        f"            B[(i * 4 + {last}) // 4] = A[i]",
        f"        if {last} < 37:",
        "            B[0] = 1.0",
        "",
    ]
    steps, proved = [0], Forms._proved

    def counted(self: Forms, form: Affine, depth: int) -> bool:
        steps[0] += 1
        return proved(self, form, depth)

    monkeypatch.setattr(Forms, "_proved", counted)
    made = simplify_func(parse_func("\n".join(lines)))
    assert steps[0] < 20
    assert "< 37" not in print_func(made)  # together, they are 36 at most
