"""The law of the text: what is printed reads back as the same program, and people can read it."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.ir.dtype import ALL, DType, bool_, f16, f32, i64, u8
from tilewright.ir.expr import (
    COMPARISONS,
    PREDICATES,
    SCOPES,
    Binary,
    BinaryOp,
    Buffer,
    Call,
    Cast,
    Const,
    Expr,
    Load,
    Select,
    Unary,
    UnaryOp,
    Var,
)
from tilewright.ir.parse import ParseError, parse_expr, parse_func, parse_module, parse_stmt
from tilewright.ir.stmt import (
    LOOP_KINDS,
    THREAD_AXES,
    Alloc,
    Axis,
    Block,
    Eval,
    For,
    Func,
    If,
    Let,
    Module,
    Region,
    Seq,
    Store,
    seq,
)
from tilewright.ir.text import is_name, mark, print_expr, print_func, print_module, print_stmt
from tilewright.ir.walk import blocks

MATMUL = """\
def matmul(A: f32[64, 64], B: f32[64, 64], C: f32[64, 60], n: i64):
    for i in serial(0, 64):
        for j_o in parallel(0, 2):
            for j_i in vectorize(0, 32):
                for k in serial(0, 64):
                    with block("C", where=j_o * 32 + j_i < 60):
                        vi = spatial(64, i)
                        vj = spatial(60, j_o * 32 + j_i)
                        vk = reduce(64, k)
                        reads(A[vi, vk], B[vk, vj])
                        writes(C[vi, vj])
                        with init():
                            C[vi, vj] = 0.0
                        C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
"""

EVERYTHING = """\
@annotate(kernel="k\\"1\\"", version=2)
def everything(A: f16[n, 4], s: f32[()], B: buffer(u8[4, 4], "shared", strides=[5, 1]), n: i64):
    acc = alloc(f32[12, 32], "local")
    for bx in thread("blockIdx.x", 0, n // 4):
        for c in pipeline(0, 8, stages=2, **{"pragma.x": -1.5}):
            if c < 3 and not c == n:
                acc[c, 0] = f32(A[c, 1]) + cast(f32, f16(1.5))
            elif c == 5:
                acc[0, 0] = -inf
            else:
                pass
        barrier("shared")
        with block("copy", where=bx < 2, **{"where": "here"}):
            vi = spatial(4, bx)
            t = ordered(n, 0)
            reads(B[vi, 0:4], acc[vi:vi + 2, 3:7], s[()])
            writes(s[()])
            with let(f32, s[()]) as old:
                s[()] = max(old, 0.0)
            x: u8 = select(vi < 2, B[vi, 3], u8(7))
            amx.dot(address_of(B[0, 0]), x, neg(3), dtype=f32)
    call("exp", acc[0, 0], dtype=f16)
"""


@pytest.mark.parametrize("text", [MATMUL, EVERYTHING], ids=["matmul", "everything"])
def test_text_reads_back_as_itself(text: str) -> None:
    func = parse_func(text)
    assert print_func(func) == text
    assert parse_func(print_func(func)) == func


def test_module_round_trip() -> None:
    module = parse_module(MATMUL + "\n" + EVERYTHING)
    assert isinstance(module, Module) and len(module.funcs) == 2
    assert parse_module(print_module(module)) == module


@pytest.mark.parametrize(
    ("e", "text"),
    [
        (Const(3, i64), "3"),
        (Const(-3, i64), "-3"),
        (Unary(UnaryOp.neg, Const(3, i64)), "neg(3)"),
        (Unary(UnaryOp.neg, Var("x")), "-x"),
        (Const(0.1, f32), "0.1"),
        (Const(-0.0, f32), "-0.0"),
        (Const(1e20, f32), "1e+20"),
        (Const(math.inf, f32), "inf"),
        (Const(math.nan, f16), "f16(nan)"),
        (Const(1.5, f16), "f16(1.5)"),
        (Const(200, u8), "u8(200)"),
        (Const(True, bool_), "True"),
        (Var("i") * 2 + 1, "i * 2 + 1"),
        ((Var("i") + 1) * 2, "(i + 1) * 2"),
        (Var("i") - (Var("j") - 1), "i - (j - 1)"),
        (Var("i") - Var("j") - 1, "i - j - 1"),
        (Binary(BinaryOp.eq, Var("i") < 1, Var("j") < 2), "(i < 1) == (j < 2)"),
        (Unary(UnaryOp.logical_not, (Var("i") < 1) & (Var("j") < 2)), "not (i < 1 and j < 2)"),
        (Binary(BinaryOp.min, Var("i"), Const(4, i64)), "min(i, 4)"),
        (Cast(f32, Var("i")), "f32(i)"),
    ],
)
def test_expression_text(e: Expr, text: str) -> None:
    assert print_expr(e) == text
    assert parse_expr(text, [Var("i"), Var("j"), Var("x")]) == e


def test_statement_text() -> None:
    text = "for i in serial(0, 4):\n    A[i] = 1.0\n"
    stmt = parse_stmt(text, [Buffer("A", (Const(4, i64),), f32)])
    assert isinstance(stmt, For) and print_stmt(stmt) == text


def test_constants_of_16_bits_and_less_round_trip() -> None:
    for of in ALL:
        if of.bits > 16 or of is bool_:
            continue
        for pattern in range(0, 1 << of.bits, 1 if of.bits < 16 else 37):
            if of.is_float:
                raw = pattern.to_bytes(of.bits // 8, "little")
                value = float(np.frombuffer(raw, of.numpy)[0])
            else:
                value = pattern + int(of.lowest)
            const = Const(value, of)
            again = parse_expr(print_expr(const))
            assert again == const, const
            if of.is_float and value == value:
                assert again.value == value
                assert math.copysign(1, again.value) == math.copysign(1, value)


# Random programs -----


def _float_of(of: DType) -> st.SearchStrategy[float]:
    odd = [0.0, -0.0, math.inf, -math.inf, math.nan, 5e-324, 1e-40, -1e-45, 2.0**-24, 1e308, 0.1]
    return st.one_of(st.sampled_from(odd), st.floats()).map(of.round)


def _const(of: DType) -> st.SearchStrategy[Expr]:
    if of.is_float:
        return _float_of(of).map(lambda v: Const(v, of))
    if of.is_bool:
        return st.booleans().map(lambda v: Const(v, of))
    return st.integers(int(of.lowest), int(of.highest)).map(lambda v: Const(v, of))


NAMES = st.one_of(
    st.sampled_from(
        ["i", "exp", "min", "f32", "select", "block", "init", "reads", "alloc", "match", "_", "n_1"]
    ),
    st.from_regex(r"[a-zA-Z_][a-zA-Z0-9_]{0,3}", fullmatch=True),
).filter(is_name)
LABELS = st.one_of(st.sampled_from(["C", 'a"b', "a'b\\", "\n", "θ"]), st.text(max_size=4))
CALLS = st.one_of(
    st.sampled_from(
        ["barrier.shared", "barrier", "exp", "f32", "reads", "amx.tile.dot", "a b", "barrier.", ""]
    ),
    NAMES,
    LABELS,
)
ANNOTATIONS = st.dictionaries(
    st.one_of(st.sampled_from(["where", "a.b", "lambda", "stages"]), LABELS),
    st.one_of(st.integers(), st.booleans(), st.floats(allow_nan=False), LABELS),
    max_size=2,
).map(lambda d: tuple(sorted(d.items())))


class Programs:
    """Draws well-typed programs of every node class, dtype and operator; sense is not asked."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.vars: list[Var] = []
        self.buffers: list[Buffer] = []
        self.taken: set[str] = set()

    def one(self, of: st.SearchStrategy):
        return self.draw(of)

    def count(self, most: int, least: int = 0) -> int:
        return self.draw(st.integers(least, most))

    def name(self) -> str:
        name = self.one(NAMES)
        while name in self.taken:
            name += "x"
        self.taken.add(name)
        return name

    def dtype(self) -> DType:
        return self.one(st.sampled_from(ALL))

    def expr(self, of: DType, depth: int = 2) -> Expr:
        leaves = [v for v in self.vars if v.dtype is of]
        if depth == 0 or self.count(3) == 0:
            return (
                self.one(st.sampled_from(leaves))
                if leaves and self.count(1)
                else self.one(_const(of))
            )
        less = depth - 1
        form = self.count(6)
        if form == 0:
            ops = COMPARISONS if of is bool_ and self.count(1) else set(BinaryOp) - COMPARISONS
            op = self.one(st.sampled_from(sorted(ops, key=lambda o: o.value)))
            if op in COMPARISONS:
                of = self.dtype()
            if op in (BinaryOp.logical_and, BinaryOp.logical_or) and of is not bool_:
                op = BinaryOp.bit_xor
            return Binary(op, self.expr(of, less), self.expr(of, less))
        if form == 1:
            ops = PREDICATES if of is bool_ and self.count(1) else set(UnaryOp) - PREDICATES
            op = self.one(st.sampled_from(sorted(ops, key=lambda o: o.value)))
            inner = self.dtype() if op in PREDICATES else of
            return Unary(op, self.expr(inner, less))
        if form == 2:
            return Cast(of, self.expr(self.dtype(), less))
        if form == 3:
            return Select(self.expr(bool_, less), self.expr(of, less), self.expr(of, less))
        if form == 4:
            args = tuple(self.expr(self.dtype(), less) for _ in range(self.count(2)))
            return Call(self.one(CALLS), args, of)
        fitting = [b for b in self.buffers if b.dtype is of]
        if not fitting:
            return self.expr(of, less)
        buffer = self.one(st.sampled_from(fitting))
        return Load(buffer, self.indices(buffer))

    def indices(self, buffer: Buffer) -> tuple[Expr, ...]:
        return tuple(self.expr(i64, 1) for _ in buffer.shape)

    def buffer(self) -> Buffer:
        shape = tuple(self.expr(i64, 1) for _ in range(self.count(3)))
        strides = tuple(self.expr(i64, 1) for _ in shape) if self.count(3) == 0 else None
        scope = self.one(st.sampled_from((*SCOPES, "acc.in")))
        return Buffer(self.name(), shape, self.dtype(), scope, strides)

    def region(self) -> Region:
        b = self.one(st.sampled_from(self.buffers))
        starts = self.indices(b)
        extents = tuple(Const(1, i64) if self.count(1) else self.expr(i64, 1) for _ in b.shape)
        return Region(b, starts, extents)

    def stmt(self, depth: int):
        form = self.count(7) if depth else self.count(1)
        if form == 0 and self.buffers:
            b = self.one(st.sampled_from(self.buffers))
            return Store(b, self.indices(b), self.expr(b.dtype))
        if form <= 1:
            return Eval(self.expr(self.dtype()))
        if form == 2:
            var, start, stop = Var(self.name()), self.expr(i64), self.expr(i64)
            kind = self.one(st.sampled_from(LOOP_KINDS))
            thread = self.one(st.sampled_from(THREAD_AXES)) if kind == "thread" else ""
            return For(
                var, start, stop, kind, self.suite(depth, var), thread, self.one(ANNOTATIONS)
            )
        if form == 3:
            other = self.suite(depth) if self.count(1) else None
            return If(self.expr(bool_), self.suite(depth), other)
        if form == 4:
            var = Var(self.name(), self.dtype())
            return Let(var, self.expr(var.dtype), self.suite(depth, var))
        if form == 5:
            b = self.buffer()
            return Alloc(b, self.suite(depth, b))
        if form == 6 and self.buffers:
            return self.block(depth)
        return Seq(())

    def block(self, depth: int) -> Block:
        where = self.expr(bool_) if self.count(1) else None
        axes = [
            Axis(
                Var(self.name()),
                self.one(st.sampled_from(["spatial", "reduce", "ordered"])),
                self.expr(i64, 1),
                self.expr(i64, 1),
            )
            for _ in range(self.count(2))
        ]
        self.vars += [a.var for a in axes]
        reads, writes = (tuple(self.region() for _ in range(self.count(2))) for _ in "rw")
        init = self.suite(depth) if self.count(1) else None
        body = self.suite(depth)
        self.vars = [v for v in self.vars if all(v is not a.var for a in axes)]
        return Block(
            self.one(LABELS), tuple(axes), reads, writes, init, body, where, self.one(ANNOTATIONS)
        )

    def suite(self, depth: int, *binds: Var | Buffer):
        self.vars += [b for b in binds if isinstance(b, Var)]
        self.buffers += [b for b in binds if isinstance(b, Buffer)]
        made = seq(*[self.stmt(depth - 1) for _ in range(self.count(3))])
        self.vars = [v for v in self.vars if v not in binds]
        self.buffers = [b for b in self.buffers if b not in binds]
        return made

    def func(self) -> Func:
        self.vars = [Var(self.name(), self.dtype()) for _ in range(self.count(2))]
        self.buffers = [self.buffer() for _ in range(self.count(3))]
        params = self.one(st.permutations([*self.vars, *self.buffers]))
        return Func(self.one(NAMES), tuple(params), self.suite(3), self.one(ANNOTATIONS))


@st.composite
def programs(draw: st.DrawFn) -> Func:
    return Programs(draw).func()


def test_parse_of_print_is_the_program(draws: Callable[[int], int]) -> None:
    @settings(max_examples=draws(150), deadline=None, derandomize=True)
    @given(programs())
    def holds(func: Func) -> None:
        text = print_func(func)
        again = parse_func(text)
        assert again == func
        assert print_func(again) == text

    holds()


# Marks and faults -----


def test_mark_a_loop_by_name() -> None:
    text = mark(parse_func(MATMUL), "j_i", "its extent is odd")
    assert text.split("\n")[3:5] == [
        "            for j_i in vectorize(0, 32):",
        "            ^^^^^^^^^^^^^^^^^^^^^^^^^^^ its extent is odd",
    ]


def test_mark_an_expression_and_a_block() -> None:
    func = parse_func(MATMUL)
    where = blocks(func)[0].where
    assert where is not None
    lines = mark(func, where, "here").split("\n")
    assert lines[6].index("^") == lines[5].index("j_o * 32")
    assert lines[6].strip() == "^" * len("j_o * 32 + j_i < 60") + " here"
    assert "^" * len('with block("C", where=j_o * 32 + j_i < 60)') in mark(func, "C")


def test_mark_shows_the_surroundings_of_a_long_program() -> None:
    stores = "".join(f"        A[{i}] = 0.0\n" for i in range(50))
    func = parse_func(f"def f(A: f32[50]):\n    for i in serial(0, 2):\n{stores}")
    target = func.body.body.stmts[30]
    assert mark(func, target, "this one") == (
        "def f(A: f32[50]):\n"
        "    for i in serial(0, 2):\n"
        "        …\n"
        + "".join(f"        A[{i}] = 0.0\n" for i in range(26, 31))
        + "        ^^^^^^^^^^^ this one\n"
        + "".join(f"        A[{i}] = 0.0\n" for i in range(31, 35))
        + "        …\n"
    )


def test_mark_of_a_node_that_is_not_there_is_the_program() -> None:
    func = parse_func(MATMUL)
    assert mark(func, "nowhere") == mark(func, Var("zz")) == MATMUL


@pytest.mark.parametrize(
    ("body", "why", "position"),
    [
        ("A[i] = 0.0", "unknown name 'i'", (2, 7)),
        ("A[0, 1] = 0.0", "'A' has 1 dimensions, not 2", (2, 5)),
        ("A[0] = 1", "i64 is stored to 'A' of f32", (2, 12)),
        ("A[0] = A[0] + 1", "the operands of '+' are f32 and i64; cast one", (2, 12)),
        ("B[0] = 0.0", "unknown buffer 'B'", (2, 5)),
        ("A[0] = A", "'A' is a buffer: index it, A[…]", (2, 12)),
        ("A[0.5] = 0.0", "i64 is wanted here, this is f32", (2, 7)),
        ("for i in range(0, 3):\n        pass", "a loop's kind is one of serial", (2, 14)),
        ("while True:\n        pass", "this is no statement of the program language", (2, 5)),
        ("A[0] = f32('x')", "'x' is no constant of the program language", (2, 16)),
        ("A[0] = exp(0.0, 1.0)", "'exp' takes 1 arguments, not 2", (2, 12)),
        ("x: i8 = i8(300)", "300 does not fit i8", (2, 16)),
        ("A[0] = lambda: 0", "this is no expression of the program language", (2, 12)),
        ("A[0] = 1 < 2 < 3", "write a < b and b < c", (2, 12)),
        ("A[0] = (0.0", "'(' was never closed", (2, 12)),
        ("A[0] = " + "(" * 300 + "0.0" + ")" * 300, "", (2, 0)),
        ("θ: f32 = θ", "unknown name 'θ'", (2, 14)),
        ("__import__('os').system('true')", "an operation's name is wanted before (", (2, 5)),
        ("A[0] = f16(1.0) if True else 0.0", "this is no expression", (2, 12)),
        (f"x: f32 = f32({10**400})", "does not fit f32", (2, 18)),
    ],
)
def test_malformed_text_says_where(body: str, why: str, position: tuple[int, int]) -> None:
    with pytest.raises(ParseError) as caught:
        parse_func(f"def f(A: f32[4]):\n    {body}\n")
    assert why in caught.value.why
    if position[1]:
        assert (caught.value.line, caught.value.column) == position


@pytest.mark.parametrize("cut", range(0, len(EVERYTHING), 7))
def test_truncated_text_is_refused_or_read(cut: int) -> None:
    try:
        func = parse_module(EVERYTHING[:cut])
    except ParseError as e:
        assert e.line >= 1 and e.column >= 1 and str(e)
    else:
        assert parse_module(print_module(func)) == func


def test_constants_are_equal_as_their_dtype_holds_them() -> None:
    third = struct.unpack("<f", struct.pack("<f", 1 / 3))[0]
    assert Const(1 / 3, f32) == Const(third, f32)
    assert hash(Const(1 / 3, f32)) == hash(Const(third, f32))
    assert Const(0.0, f32) != Const(-0.0, f32)
    assert Const(math.nan, f32) == Const(-math.nan, f32)
    assert Const(1, i64) != Const(1, u8)
