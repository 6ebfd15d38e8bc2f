"""The verifier: well-formed programs pass, and each law has a program that breaks just that law."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tilewright.ir.dtype import bool_, f32, i32, i64, u8
from tilewright.ir.expr import (
    Binary,
    BinaryOp,
    Buffer,
    Const,
    Expr,
    Load,
    Select,
    Unary,
    UnaryOp,
    Var,
    const,
)
from tilewright.ir.parse import parse_func
from tilewright.ir.stmt import Alloc, Axis, Block, Eval, For, Func, If, Let, Region, Seq, Store
from tilewright.ir.verify import ALLOWS, STAGES, verify
from tilewright.support.errors import VerifyError

BLOCKS = """
def matmul(A: f32[n, 64], B: f32[64, 64], C: f32[n, 60], n: i64):
    T = alloc(f32[64, 64], "shared")
    with block("root"):
        reads(B[0:64, 0:64])
        writes(T[0:64, 0:64])
        for x in serial(0, 64):
            for y in serial(0, 64):
                with block("T"):
                    vx = spatial(64, x)
                    vy = spatial(64, y)
                    reads(B[vx, vy])
                    writes(T[vx, vy])
                    T[vx, vy] = B[vx, vy]
    for i in serial(0, n):
        for j in vectorize(0, n):
            for k in serial(0, 64):
                with block("C", where=j < 60):
                    vi = spatial(n, i)
                    vj = spatial(60, j)
                    vk = reduce(64, k)
                    reads(A[vi, vk], T[vk, vj])
                    writes(C[vi, vj])
                    with init():
                        C[vi, vj] = 0.0
                    acc = alloc(f32[()], "local")
                    acc[()] = A[vi, vk] * T[vk, vj]
                    C[vi, vj] = C[vi, vj] + acc[()]
"""
FLAT = """
def f(A: f32[64], n: i64):
    for i in serial(0, n):
        for j in vectorize(0, 8):
            A[i * 8 + j] = 0.0
    for i in serial(0, n):
        if i < 3:
            x: f32 = A[i]
            A[i] = select(x > 0.0, x, -x)
    barrier("shared")
"""


def test_well_formed_programs_pass() -> None:
    verify(parse_func(BLOCKS), "blocks")
    for stage in ("loops", "flat", "vector"):
        verify(parse_func(FLAT), stage)
    with pytest.raises(ValueError, match="'flt' is no stage; the stages are blocks, loops"):
        verify(parse_func(FLAT), "flt")


STAGE_FAULTS = {
    "a block": 'def f(A: f32[4]):\n    with block("b"):\n        pass\n',
    "an index per dimension": "def f(A: f32[2, 2]):\n    A[0, 0] = 0.0\n",
    "strides": 'def f(A: buffer(f32[2], "global", strides=[2])):\n    A[0] = 0.0\n',
    "a name used twice": "def f(A: f32[4]):\n"
    + "    for i in serial(0, 4):\n        A[i] = 0.0\n" * 2,
    "a vector of unknown extent": "def f(A: f32[4], n: i64):\n"
    "    for i in vectorize(0, n):\n        A[i] = 0.0\n",
    "lanes that are no power of two": "def f(A: f32[4]):\n"
    "    for i in vectorize(0, 3):\n        A[i] = 0.0\n",
    "a vector inside a vector": "def f(A: f32[4]):\n    for i in vectorize(0, 2):\n"
    "        for j in vectorize(0, 2):\n            A[i * 2 + j] = 0.0\n",
    "a pipeline": "def f(A: f32[4]):\n    for i in pipeline(0, 4):\n        A[i] = 0.0\n",
}


@pytest.mark.parametrize("what", ALLOWS)
@pytest.mark.parametrize("stage", STAGES)
def test_the_stage_table(what: str, stage: str) -> None:
    func = parse_func(STAGE_FAULTS[what])
    stages, reason = ALLOWS[what]
    if stage in stages.split():
        verify(func, stage)
    else:
        with pytest.raises(VerifyError, match=f"(?s)stage '{stage}': {what} .*{reason}"):
            verify(func, stage)


# Laws of all stages -----

A = Buffer("A", (const(8),), f32)
N, I, J = Var("n"), Var("i"), Var("j")
ZERO, ONE = const(0), const(1)
STORE = Store(A, (ZERO,), const(0.0, f32))


def over(body: Callable[[Var], object], **changes: object) -> For:
    return For(I, ZERO, const(8), "serial", body(I)).replace(**changes)


def block(body: object = STORE, **changes: object) -> For:
    axes = (Axis(Var("vi"), "spatial", const(8), I),)
    region = Region(A, (Var("vi"),), (ONE,))
    made = Block("b", axes, (region,), (region,), None, body).replace(**changes)
    return over(lambda i: made)


def value(e: Expr) -> Eval:
    return Eval(e)


FAULTS = [
    (over(lambda i: STORE, kind="zigzag"), "'zigzag' is no kind of loop"),
    (over(lambda i: STORE, kind="thread", thread="warpIdx.x"), "'warpIdx.x' is no thread axis"),
    (over(lambda i: STORE, thread="threadIdx.x"), "'threadIdx.x' is no thread axis here"),
    (over(lambda i: STORE, var=Var("i", i32)), "a loop's variable is i64"),
    (over(lambda i: STORE, stop=Const(8, i32)), "this is i32; sizes and indices are i64"),
    (over(lambda i: over(lambda i: STORE)), "a name used twice|'i' hides a variable"),
    (over(lambda i: STORE, var=Var("lambda")), "'lambda' cannot be a name in the text"),
    (over(lambda i: STORE, annotations=(("b", 1), ("a", 2))), "annotations are sorted by key"),
    (over(lambda i: STORE, annotations=(("a", [1]),)), r"annotation 'a' is \[1\], not a number"),
    (Store(A, (I,), const(0.0, f32)), "there is no variable 'i'"),
    (Store(A, (Var("n", i32),), const(0.0, f32)), "'n' is i64, not i32"),
    (Store(A, (ZERO, ZERO), const(0.0, f32)), "'A' has 1 dimensions, not 2"),
    (Store(A, (Const(0, i32),), const(0.0, f32)), "this is i32; sizes and indices are i64"),
    (Store(A, (ZERO,), const(0, i64)), "f32 is wanted here, this is i64"),
    (
        Store(A.replace(scope="local"), (ZERO,), const(0.0, f32)),
        "'A' is declared as another buffer",
    ),
    (Store(A.replace(name="Z"), (ZERO,), const(0.0, f32)), "there is no buffer 'Z' here"),
    (value(Load(A, ())), "'A' has 1 dimensions, not 0"),
    (value(Binary(BinaryOp.add, N, Const(1, i32))), r"the operands of '\+' are i64 and i32"),
    (value(Binary(BinaryOp.div, N, N)), "'/' does not take i64"),
    (value(Binary(BinaryOp.floordiv, const(1.0, f32), const(1.0, f32))), "'//' does not take f32"),
    (value(Binary(BinaryOp.logical_and, N, N)), "'and' does not take i64"),
    (
        value(Binary(BinaryOp.add, Const(True, bool_), Const(True, bool_))),
        r"'\+' does not take bool",
    ),
    (value(Unary(UnaryOp.exp, N)), "'exp' does not take i64"),
    (value(Unary(UnaryOp.popcount, const(1.0, f32))), "'popcount' does not take f32"),
    (value(Select(N, N, N)), "bool is wanted here, this is i64"),
    (value(Select(Const(True, bool_), N, Const(1, i32))), "i64 is wanted here, this is i32"),
    (value(Const(300, u8)), "300 is no value of u8"),
    (value(Const(1.5, i64)), "1.5 is no value of i64"),
    (value(Const(1, bool_)), "1 is no value of bool"),
    (If(N, STORE), "bool is wanted here, this is i64"),
    (Let(Var("x", f32), N, STORE), "f32 is wanted here, this is i64"),
    (Let(N, ZERO, STORE), "a name used twice|'n' hides a variable"),
    (Seq((STORE,)), "a sequence of one statement is that statement"),
    (Seq((STORE, Seq((STORE, STORE)))), "a sequence inside a sequence is not flat"),
    (Seq((If(Const(True, bool_), Let(J, ZERO, STORE)), value(J))), "'j' does not hold here"),
    (Alloc(A, STORE), "a name used twice|'A' hides a buffer of that name"),
    (Alloc(A.replace(name="B", scope=""), STORE), "'B' has no scope"),
    (Alloc(A.replace(name="B", shape=(Const(1.0, f32),)), STORE), "this is f32; sizes and indices"),
    (Alloc(A.replace(name="B", strides=(ONE, ONE)), STORE), "'B' needs 1 strides|strides"),
    (
        Seq((Alloc(A.replace(name="B"), STORE), value(Load(A.replace(name="B"), (ZERO,))))),
        "no buffer",
    ),
]
BLOCK_FAULTS = [
    (block(value(I)), "'i' does not hold here; a block speaks of its axes and sizes only"),
    (block(where=N), "bool is wanted here, this is i64"),
    (block(where=Var("vi") < 3), "there is no variable 'vi'"),
    (block(axes=(Axis(Var("vi"), "parallel", const(8), I),)), "'parallel' is no kind of axis"),
    (block(axes=(Axis(Var("vi", i32), "spatial", const(8), I),)), "an axis is i64"),
    (block(axes=(Axis(Var("vi"), "spatial", const(8), J),)), "there is no variable 'j'"),
    (block(axes=(Axis(I, "spatial", const(8), I),)), "'i' hides a variable|a name used twice"),
    (block(writes=()), "no region of block 'b' says that it writes 'A' here"),
    (block(value(Load(A, (ZERO,))), reads=(), writes=()), "says that it reads 'A' here"),
    (block(init=STORE, body=value(N), writes=()), "no region of block 'b' says that it writes 'A'"),
    (block(writes=(Region(A, (ONE,), (const(4),)),)), "says that it writes 'A' here"),
    (block(reads=(Region(A, (ONE, ONE), (ONE, ONE)),)), "'A' has 1 dimensions"),
    (block(reads=(Region(A, (I,), (ONE,)),)), "'i' does not hold here"),
    (Seq((block(), block().replace(var=J, body=Eval(ZERO)), block().body)), "a name used twice"),
]


@pytest.mark.parametrize(("stmt", "why"), FAULTS)
@pytest.mark.parametrize("stage", ["blocks", "vector"])
def test_laws_of_every_stage(stmt, why: str, stage: str) -> None:
    with pytest.raises(VerifyError, match=why):
        verify(Func("f", (A, N), stmt), stage)


@pytest.mark.parametrize(("stmt", "why"), BLOCK_FAULTS)
def test_the_discipline_of_blocks(stmt, why: str) -> None:
    with pytest.raises(VerifyError, match=why):
        verify(Func("f", (A, N), stmt), "blocks")


def test_parameters() -> None:
    with pytest.raises(VerifyError, match="a name used twice"):
        verify(Func("f", (A, A), STORE), "blocks")
    with pytest.raises(VerifyError, match="there is no variable 'n'"):
        verify(Func("f", (A, A.replace(name="B", shape=(N,))), STORE), "blocks")


def test_the_message_shows_the_node_the_pass_and_what_it_was_given() -> None:
    before = parse_func("def f(A: f32[8]):\n    A[0] = 1.0\n")
    after = Func("f", (A,), Seq((STORE, Store(A, (ONE,), N * 2))))
    with pytest.raises(VerifyError) as caught:
        verify(after, "loops", after="simplify", before=before)
    assert str(caught.value) == (
        "'f' is no program of stage 'loops', after simplify: there is no variable 'n'\n"
        "\n"
        "def f(A: f32[8]):\n"
        "    A[0] = 0.0\n"
        "    A[1] = n * 2\n"
        "           ^ here\n"
        "\n"
        "before simplify:\n"
        "\n"
        "def f(A: f32[8]):\n"
        "    A[0] = 1.0\n"
    )


def test_what_is_no_program_at_all() -> None:
    with pytest.raises(VerifyError, match="int is no statement"):
        verify(Func("f", (A,), 3), "blocks")
    with pytest.raises(VerifyError, match="str is no expression"):
        verify(Func("f", (A,), Eval("x")), "blocks")
