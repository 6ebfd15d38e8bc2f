"""What an expression says several times, or an unrolled loop in several rounds, is worked out
once."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.codegen import inprocess, llvm_functions
from tilewright.codegen.llvm import emit
from tilewright.codegen.llvm_expressions import Expressions
from tilewright.codegen.llvm_memory import Memory
from tilewright.ir.expr import Binary, Buffer, Expr
from tilewright.ir.parse import parse_func
from tilewright.lower.pipeline import lower
from tilewright.target.target import target

TILE = """
def tile(A: f32[4, 6], B: f32[4, 8], C: f32[6, 8]):
    for i in unroll(0, 6):
        for j in vectorize(0, 8):
            C[i, j] = 0.0
    for k in unroll(0, 4):
        for i in unroll(0, 6):
            for j in vectorize(0, 8):
                C[i, j] = C[i, j] + A[k, i] * B[k, j]
"""
CHOSEN = "select(P[i] < 3, A[{index}] * 2.0, B[{index}])"
BRANCHES = """
def branches(P: i64[12], A: f32[12], B: f32[12], C: f32[12]):
    for i in serial(0, 12):
        C[i] = {chosen} * {chosen} + select(P[i] < 5, {chosen}, {chosen} + 1.0)
"""


WHOLE = """
def whole(P: bool[4], A: i64[1], B: i64[1], C: i64[4], D: i64[4]):
    for i in vectorize(0, 4):
        C[i] = select(P[i], A[0], B[0]) + D[i]
"""


def test_indices_of_an_unrolled_tile_are_worked_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Expr] = []
    plain = Expressions.linear

    def linear(self: Expressions, e: Binary) -> object:
        asked.append(e)
        return plain(self, e)

    monkeypatch.setattr(Expressions, "linear", linear)
    machine = target("cpu")
    emit(lower(parse_func(TILE), machine), machine)
    # A has 24 elements, B 4 rows of lanes, C 6; they are read and written 24 times
    assert len(asked) <= 2 * (24 + 4 + 6)


def test_loads_of_an_unrolled_tile_are_written_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    written = Memory.loaded

    def loaded(self: Memory, buffer: Buffer, *where: object) -> object:
        read.append(buffer.name)
        return written(self, buffer, *where)  # type: ignore[arg-type]

    monkeypatch.setattr(Memory, "loaded", loaded)
    machine = target("cpu")
    emit(lower(parse_func(TILE), machine), machine)
    # C is another one after each store
    assert {name: read.count(name) for name in read} == {"A": 24, "B": 4, "C": 24}


def test_a_choice_that_stands_twice_branches_once() -> None:
    func = parse_func(BRANCHES.format(chosen=CHOSEN.format(index="P[i]")))
    machine = target("cpu")
    text = emit(lower(func, machine), machine).text
    assert text.count("phi float") == 3  # before the last choice, on its one side, and that choice
    p = np.random.default_rng(0).integers(0, 12, 12)
    a, b = np.random.default_rng(1).standard_normal((2, 12), np.float32)
    found = np.zeros(12, np.float32)
    inprocess.run(func, p, a, b, found)
    chosen = np.where(p < 3, a[p] * np.float32(2), b[p])
    want = chosen * chosen + np.where(p < 5, chosen, chosen + np.float32(1))
    np.testing.assert_allclose(found, want, rtol=1e-6)


def test_a_mathematical_function_is_written_once() -> None:
    llvm_functions._definition.cache_clear()
    machine = target("cpu")
    for _ in range(2):
        llvm_functions.definitions({("erf", "f32", 8)}, machine)
    again = llvm_functions._definition.cache_info()
    assert again.misses == again.hits > 0


def test_whole_numbers_that_are_no_linear_form_are_read_once() -> None:
    machine = target("cpu")
    text = emit(lower(parse_func(WHOLE), machine), machine).text
    assert [text.count(f"load i64, ptr %p{n}") for n in (1, 2)] == [1, 1]


def test_iterations_of_a_launch_do_not_wait_for_the_lanes_of_its_edges() -> None:
    """A loop that threads share is not cut, so its edges are branches; their masks stay there."""
    text = """
def rows(A: f32[n], B: f32[n], n: i64):
    for chunk in parallel(0, (n + 15) // 16):
        if chunk * 16 + 16 <= n:
            for i in vectorize(0, 16):
                B[chunk * 16 + i] = A[chunk * 16 + i]
        else:
            for i in vectorize(0, 16):
                if chunk * 16 + i < n:
                    B[chunk * 16 + i] = A[chunk * 16 + i]
"""
    machine = target("cpu")
    before, _, behind = emit(lower(parse_func(text), machine), machine).text.rpartition(
        "\n  br i1 %v"
    )
    _, body = before.split("phi i64", 1)
    inside, _, edge = body.partition("\n  br i1")
    assert "ssub.sat" not in inside and "ssub.sat" in edge + behind


def test_iterations_of_a_launch_do_not_work_out_the_addresses_of_both_sides() -> None:
    """Each side of a branch in a chunk has its own: they follow from the chunk, not from the other
    side."""
    text = """
def lines(A: f32[n * 16], B: f32[n * 16], n: i64, m: i64):
    for chunk in parallel(0, n):
        if m > 3:
            for r in unroll(0, 4):
                for i in vectorize(0, 4):
                    B[chunk * 16 + r * 4 + i] = A[chunk * 16 + i * m + r * n]
        else:
            for i in vectorize(0, 16):
                B[chunk * 16 + i] = A[chunk * 16 + i]
"""
    machine = target("cpu")
    _, body = emit(lower(parse_func(text), machine), machine).text.split("phi i64", 1)
    before, _, sides = body.partition("\n  br i1")
    assert "getelementptr" not in before and "getelementptr" in sides
