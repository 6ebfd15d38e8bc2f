"""Tensor intrinsics: declared once, known by name, matched up to names and order."""

import pytest

from tilewright import te
from tilewright.ir.parse import parse_func
from tilewright.ir.stmt import Block
from tilewright.ir.text import print_func
from tilewright.ir.verify import verify
from tilewright.ir.walk import blocks
from tilewright.support.errors import CompileError
from tilewright.target import intrinsics
from tilewright.target.intrinsics import Mismatch, intrinsic, match

ACCEL = ("accel.gemm", "accel.load_input", "accel.load_weight", "accel.store", "accel.clear")


@pytest.mark.parametrize("name", ACCEL)
def test_the_accelerators_are_declared(name) -> None:
    found = intrinsic(name)
    assert found.name == name and found is intrinsic(name)
    verify(found.behaviour, "blocks")
    assert len(found.scopes) == len(found.behaviour.buffers)
    assert parse_func(print_func(found.behaviour)) == found.behaviour


def test_unknown_names_what_is_known() -> None:
    with pytest.raises(
        CompileError, match=r"cannot use intrinsic 'accel\.gem': it is not known"
    ) as e:
        intrinsic("accel.gem")
    assert "accel.gemm" in e.value.remedy


def block(body: str) -> Block:
    func = parse_func(body)
    return blocks(func.body)[0]


TEXT = """\
def f(X: f32[4, 8, 5], Y: f32[4, 5, 8]):
    for a in serial(0, 4):
        for b in serial(0, 5):
            with block("o"):
                va = spatial(4, a)
                vb = spatial(5, b)
                reads(X[va, 0:8, vb])
                writes(Y[va, vb, 0:8])
                for u in serial(0, 1):
                    for i in serial(0, 8):
                        with block("i"):
                            vi = spatial(8, i + u)
                            va_1 = spatial(4, va)
                            vb_1 = spatial(5, vb)
                            reads(X[va_1, vi, vb_1])
                            writes(Y[va_1, vb_1, vi])
                            Y[va_1, vb_1, vi] = X[va_1, vi, vb_1]
"""


def test_tiles_run_along_any_dimensions() -> None:
    wanted = intrinsics.copy("row", (8,), "f32", ("", ""), "row")
    tiles = match(block(TEXT), wanted)
    source, target = wanted.behaviour.buffers
    assert (tiles[source].buffer.name, tiles[source].dims) == ("X", (1,))
    assert (tiles[target].buffer.name, tiles[target].dims) == ("Y", (2,))
    assert [str(e.name) for e in (tiles[source].starts[0], tiles[source].starts[2])] == ["va", "vb"]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (("X[va_1, vi, vb_1]\n", "X[va_1, 7 - vi, vb_1]\n"), "walks through 'X'"),
        (("X[va_1, vi, vb_1]\n", "X[va_1, vi, vb_1] * 2.0\n"), "where 'row' has"),
        (("serial(0, 8)", "serial(0, 4)"), "extents [4]"),
        (('block("i")', 'block("i", where=i < 3)'), "guarded"),
        (("f32", "i32"), "'Y' is i32"),
    ],
)
def test_differences_are_told(change, why) -> None:
    wanted = intrinsics.copy("row", (8,), "f32", ("", ""), "row")
    with pytest.raises(Mismatch) as told:
        match(block(TEXT.replace(*change)), wanted)
    assert why in str(told.value)


def test_one_operand_is_one_tile() -> None:
    """An intrinsic that squares its operand does not multiply two."""
    A = te.placeholder((8,), "f32", "A")
    S = te.compute((8,), lambda i: A[i] * A[i], name="S")
    square = intrinsics.Intrinsic("square", te.func("square", [A], [S]), ("", ""), "square")
    both = TEXT.replace("X[va_1, vi, vb_1]\n", "X[va_1, vi, vb_1] * X[va_1, vi, 0]\n")
    with pytest.raises(Mismatch, match="would be several tiles"):
        match(block(both), square)
    assert match(block(both.replace("vi, 0]", "vi, vb_1]")), square)
