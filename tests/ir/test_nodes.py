"""Nodes, dtypes and walks: equality, sharing, folding on construction, substitution."""

from __future__ import annotations

import copy
import math
import pickle

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.ir.dtype import ALL, bool_, dtype, f8e4m3, f16, f32, i1, i4, i8, i32, u4, u8
from tilewright.ir.expr import (
    Binary,
    BinaryOp,
    Buffer,
    Cast,
    Load,
    Select,
    Unary,
    UnaryOp,
    Var,
    as_int,
    cast,
    ceildiv,
    const,
    eq,
    expr,
    fold_int,
    maximum,
    select,
    wrap,
)
from tilewright.ir.parse import parse_func
from tilewright.ir.stmt import Eval, For, Seq, Store, annotated, annotation, loop, seq
from tilewright.ir.walk import (
    accesses,
    blocks,
    contains,
    free_vars,
    fresh,
    loads,
    names,
    reads,
    replace_buffers,
    rewrite,
    statements,
    stores,
    substitute,
    visit,
)

I, J = Var("i"), Var("j")
A = Buffer("A", (const(4), const(4)), f32)
FUNC = parse_func("""
def f(A: f32[4, 4], C: f32[4], n: i64):
    for i in serial(0, n):
        for k in serial(0, 4):
            with block("C"):
                vi = spatial(4, i)
                vk = reduce(4, k)
                reads(A[vi, vk])
                writes(C[vi])
                with init():
                    C[vi] = 0.0
                C[vi] = C[vi] + A[vi, vk]
""")


def test_equality_is_structural_and_builds_nothing() -> None:
    assert Var("i") + 1 == I + 1
    assert I + 1 != I + 2
    assert (I == J) is False
    assert hash(I + 1) == hash(Var("i") + 1)
    assert Var("i") != Var("i", i32)
    assert len({I + 1, Var("i") + 1, I + 2}) == 2
    with pytest.raises(TypeError, match="no truth value"):
        bool(I < J)


def test_nodes_pickle_and_copy() -> None:
    again = pickle.loads(pickle.dumps(FUNC))
    assert again == FUNC and again.buffers[0].dtype is f32
    assert copy.deepcopy(FUNC) == FUNC
    assert pickle.loads(pickle.dumps(BinaryOp.add)) is BinaryOp.add


def test_an_unchanged_child_keeps_the_node() -> None:
    stmt = Store(A, (I, J), I.astype("f32"))
    assert stmt.map_children(lambda c: c) is stmt
    assert rewrite(FUNC, (Var, Load, Store), lambda n: n) is FUNC
    assert substitute(FUNC, {Var("absent"): const(1)}) is FUNC
    changed = stmt.map_children(lambda c: J if c is I else c)
    assert changed.indices == (J, J) and changed.value is stmt.value


def test_what_is_asked_of_a_tree_is_what_a_visit_of_all_of_it_finds() -> None:
    index = Load(A, (J, I)).astype("i64")
    nested = Store(A, (I, index), Load(A, (I, J)) + Load(A, (J, index)))
    for tree in (FUNC, seq(nested, loop("i", 4, nested)), nested.value, I, const(1)):
        every = list(visit(tree))
        assert accesses(tree) == [n for n in every if isinstance(n, Load | Store)]
        assert loads(tree) == [n for n in every if isinstance(n, Load)]
        assert stores(tree) == [n for n in every if isinstance(n, Store)]
        assert reads(tree) == bool(loads(tree))
        for kind in (For, Load, Binary, Select):
            assert contains(tree, kind, Eval) == any(isinstance(n, kind) for n in every)


def test_replace_and_unknown_fields() -> None:
    nest = loop("i", 4, Eval(I))
    assert nest.replace(kind="unroll").kind == "unroll"
    with pytest.raises(TypeError, match=r"For\.replace\(\) .*colour"):
        nest.replace(colour=1)


def test_children_stand_in_program_order_and_binders_are_none() -> None:
    nest = For(I, const(0), J, "serial", Eval(I))
    assert list(nest.children()) == [const(0), J, Eval(I)]
    assert [type(n).__name__ for n in visit(nest)] == ["For", "Const", "Var", "Eval", "Var"]
    assert list(Load(A, (I, J)).children()) == [I, J]


def test_construction_folds_whole_numbers_only_where_the_result_is_defined() -> None:
    assert const(3) + 4 == const(7)
    assert const(127, i8) + 1 == const(-128, i8)
    assert I + 0 is I and I * 1 is I and I // 1 is I and 0 + I is I
    assert const(0) == I * 0 and const(0) == I % 1
    assert isinstance(const(3) // 0, Binary)
    assert isinstance(const(1) << 64, Binary)
    x = Var("x", f32)
    assert isinstance(x + 0.0, Binary) and isinstance(x * 0.0, Binary)  # -0.0, NaN
    assert const(True, bool_) & (I < J) == (I < J)
    assert (I < J) | const(True, bool_) == const(True, bool_)
    assert -const(3) == const(-3) and isinstance(-const(1.5, f32), Unary)
    assert ~(I < J) == Unary(UnaryOp.logical_not, I < J)
    assert cast(i8, const(300)) == const(44, i8)
    assert isinstance(cast(f32, const(3)), Cast)
    assert select(const(True, bool_), I, J) is I
    assert isinstance(select(I < J, I, J), Select)
    assert ceildiv(const(10), 4) == const(3)
    assert maximum(const(3), 4) == const(4)
    assert as_int(const(3)) == 3 and as_int(I) is None and as_int(const(1.0, f32)) is None


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    st.sampled_from([d for d in ALL if d.is_int]),
    st.sampled_from(
        [BinaryOp.add, BinaryOp.mul, BinaryOp.sub, BinaryOp.floordiv, BinaryOp.truncmod]
    ),
    st.integers(-(2**63), 2**63),
    st.integers(-(2**63), 2**63),
)
def test_folded_constants_are_values_of_their_dtype(of, op, a: int, b: int) -> None:
    folded = fold_int(op, wrap(a, of), wrap(b, of), of)
    assert folded is None or of.lowest <= folded.value <= of.highest


def test_operands_of_different_dtypes_are_refused() -> None:
    with pytest.raises(TypeError, match=r"operands of '\+' have dtypes i64 and i32; cast one"):
        I + Var("k", i32)
    with pytest.raises(TypeError, match="sides of select have dtypes i64 and f32"):
        select(I < J, I, Var("x", f32))
    with pytest.raises(TypeError, match=r"1\.5 does not fit an operand of dtype i64"):
        I + 1.5
    with pytest.raises(TypeError, match="'x' is no expression"):
        expr("x")


def test_python_and_numpy_numbers_become_constants() -> None:
    assert expr(True) == const(True, bool_)
    assert expr(3) == const(3) and expr(0.5) == const(0.5, f32)
    assert expr(np.float16(0.5)) == const(0.5, f16) and expr(np.int8(3)) == const(3, i8)
    assert eq(I, 3) == Binary(BinaryOp.eq, I, const(3))


def test_dtypes_by_name_and_by_numpy_twin() -> None:
    for of in ALL:
        assert dtype(of.name) is of and dtype(of) is of
        if of is not i1:
            assert dtype(of.numpy) is of
        assert pickle.loads(pickle.dumps(of)) is of
        assert of.is_packed == (of.bits < 8)
    assert dtype(ml_dtypes.bfloat16).name == "bf16" and dtype(float).name == "f64"
    with pytest.raises(ValueError, match="unknown dtype 'f99'; known: f64, f32"):
        dtype("f99")
    with pytest.raises(ValueError, match="unknown dtype None"):
        dtype(None)
    assert (i4.lowest, i4.highest, u4.highest, i1.lowest, i1.highest) == (-8, 7, 15, -1, 0)
    assert (u8.lowest, bool_.highest, f32.lowest) == (0, True, -math.inf)
    assert (f8e4m3.lowest, f8e4m3.highest) == (-448, 448)
    assert i4.nbytes(3) == 2 and i1.nbytes(9) == 2 and f32.nbytes(3) == 12


def test_sequences_flatten() -> None:
    one, two, three = Eval(I), Eval(J), Eval(I + J)
    assert seq(one) is one
    assert seq(one, seq(two, three)) == Seq((one, two, three))
    assert seq() == Seq(())


def test_annotations_stay_sorted() -> None:
    nest = For(I, const(0), J, "serial", Eval(I), annotations=annotated((("b", 1),), "a", 2))
    assert nest.annotations == (("a", 2), ("b", 1))
    assert annotation(nest, "a") == 2 and annotation(nest, "z", 0) == 0
    assert annotated(nest.annotations, "a", None) == (("b", 1),)


def test_walks() -> None:
    assert [b.name for b in blocks(FUNC)] == ["C"]
    assert [s.buffer.name for s in stores(FUNC)] == ["C", "C"]
    assert [x.buffer.name for x in loads(FUNC)] == ["C", "A"]
    assert [type(s).__name__ for s in statements(FUNC)] == ["For", "For", "Block", "Store", "Store"]
    assert names(FUNC.body) == {"i", "k", "n", "vi", "vk", "A", "C"}
    assert free_vars(FUNC.body) == {Var("n")}
    taken = {"i", "i_1"}
    assert [fresh("i", taken), fresh("i", taken), fresh("x", taken)] == ["i_2", "i_3", "x"]


def test_substitution_folds() -> None:
    e = (I * 4 + J) // 4
    assert substitute(e, {I: const(2), J: const(3)}) == const(2)
    assert substitute(Load(A, (I, J)), {J: const(0)}) == Load(A, (I, const(0)))


def test_replacing_buffers() -> None:
    shared = A.replace(scope="shared")
    func = replace_buffers(FUNC.body, {FUNC.buffers[0]: shared})
    assert {x.buffer.scope for x in loads(func)} == {"global", "shared"}
    assert blocks(func)[0].reads[0].buffer is shared
