"""Which products of two matrices of the run are packed, and that they stay the same products."""

from __future__ import annotations

import pytest

from tests.graph.rewriting import ops, rewritten
from tilewright.graph import Builder, Graph
from tilewright.graph.passes.choose_layouts import choose_layouts

CACHE = 128 << 10  # bytes of the second one


def product(a: tuple[int, ...], b: tuple[int, ...], **attrs: bool) -> Graph:
    build = Builder()
    made = build.emit("matmul", build.input("a", "f32", a), build.input("b", "f32", b), **attrs)
    return build.finish([made])


def laid_out(before: Graph) -> list[str]:
    return ops(rewritten(lambda g: choose_layouts(g, 16, second_cache=CACHE), before, 1e-4))


@pytest.mark.parametrize(
    ("a", "b", "packed"),
    [
        ((64, 96), (96, 100), True),
        ((3, 64, 96), (96, 100), True),  # the rows of all matrices are those of one
        ((3, 64, 96), (3, 96, 100), True),
        ((96, 96), (96, 96, 100), False),  # a batch as large as a size of the one matrix
        ((2, 2, 64, 96), (2, 96, 100), False),  # a batch beside the second axis, not the first
        ((1, 64, 96), (3, 96, 100), False),
        ((40, 96), (96, 100), False),  # few rows
        ((64, 96), (96, 40), False),  # a small operand
    ],
)
def test_operands_of_the_run_are_packed(a, b, packed):
    assert ("dense_packed" in laid_out(product(a, b))) == packed


@pytest.mark.parametrize("b", [(100, 96), (96, 100)])
@pytest.mark.parametrize(("rows", "turned"), [((64,), True), ((2, 64), True), ((40,), False)])
def test_a_transposed_left_operand_is_turned_beside_a_large_one(rows, turned, b):
    a = (*rows[:-1], 96, rows[-1])
    made = laid_out(product(a, b, transpose_a=True, transpose_b=b[0] == 100))
    assert made[-1] == ("dense_packed" if turned else "matmul")
    assert not turned or "transpose" in made


def test_a_transposed_left_operand_is_read_as_it_is_beside_a_small_one():
    assert laid_out(product((96, 64), (96, 64), transpose_a=True)) == ["matmul"]
