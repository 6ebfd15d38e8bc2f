"""legalize_vectors: vectorised loops fit the machine; what cannot run in lanes runs in order."""

from __future__ import annotations

import pytest

from tests.lower.programs import same_meaning
from tilewright.ir.parse import parse_func
from tilewright.ir.stmt import For, Func, annotation
from tilewright.ir.text import print_func
from tilewright.ir.verify import verify
from tilewright.ir.walk import visit
from tilewright.lower.lanes import FIRST_LANE_RUNS
from tilewright.lower.legalize_vectors import legalize_vectors
from tilewright.target.target import target

AVX512 = "cpu -mcpu=skylake-avx512"
AVX2 = "cpu -mcpu=haswell"
NEON = "cpu -mcpu=cortex-a72 -mtriple=aarch64-unknown-linux-gnu"


def legalized(text: str, machine: str) -> Func:
    func = parse_func(text)
    made = legalize_vectors(func, target(machine))
    verify(made, "vector")
    same_meaning(func, made)
    return made


def extents(func: Func) -> list[tuple[str, int]]:
    return [(n.kind, n.extent.value) for n in visit(func.body) if isinstance(n, For)]


def double(count: int, of: str = "f32") -> str:
    return f"""
def double(A: {of}[{count}], B: {of}[{count}]):
    for i in vectorize(0, {count}):
        B[i] = A[i] + A[i]
"""


def test_long_loop_runs_in_tiles() -> None:
    assert (
        print_func(legalized(double(108), AVX512)).strip()
        == """
def double(A: f32[108], B: f32[108]):
    for i_o in serial(0, 3):
        for i_i in vectorize(0, 32):
            B[i_o * 32 + i_i] = A[i_o * 32 + i_i] + A[i_o * 32 + i_i]
    for i_i_1 in vectorize(0, 16):
        if i_i_1 < 12:
            B[96 + i_i_1] = A[96 + i_i_1] + A[96 + i_i_1]
""".strip()
    )


def test_vectors_join_the_statements_around() -> None:
    """Without masks a loop becomes several; a sequence in a sequence would be no program."""
    text = """
def two(A: f32[13], B: f32[13], C: f32[13]):
    for i in vectorize(0, 13):
        B[i] = A[i] + A[i]
    for j in vectorize(0, 13):
        C[j] = B[12 - j] + A[j]
"""
    assert extents(legalized(text, NEON)) == [("vectorize", 8), ("vectorize", 4)] * 2


@pytest.mark.parametrize(
    ("machine", "count", "of", "loops"),
    [
        (AVX512, 64, "f32", [("vectorize", 64)]),
        (AVX512, 48, "f32", [("vectorize", 32), ("vectorize", 16)]),
        (AVX512, 7, "f32", [("vectorize", 8)]),
        (AVX512, 17, "f32", [("vectorize", 16)]),
        (AVX512, 64, "i8", [("vectorize", 64)]),
        (AVX2, 7, "f32", [("vectorize", 8)]),
        (AVX2, 7, "i8", [("vectorize", 4), ("vectorize", 2)]),
        (NEON, 7, "f32", [("vectorize", 4), ("vectorize", 2)]),
        (NEON, 24, "f32", [("serial", 3), ("vectorize", 8)]),
        (NEON, 12, "f32", [("vectorize", 8), ("vectorize", 4)]),
    ],
)
def test_extents(machine: str, count: int, of: str, loops: list[tuple[str, int]]) -> None:
    assert extents(legalized(double(count, of), machine)) == loops


def test_vector_inside_a_vector_stays_one() -> None:
    made = legalized(
        """
def nested(A: f32[4, 16], B: f32[64]):
    for i in vectorize(0, 4):
        for j in vectorize(0, 16):
            B[i * 16 + j] = A[i, j]
""".replace("A: f32[4, 16]", "A: f32[64]").replace("A[i, j]", "A[i * 16 + j]"),
        AVX512,
    )
    assert extents(made) == [("unroll", 4), ("vectorize", 16)]


def test_lanes_that_collide_run_in_order() -> None:
    made = legalized(
        """
def last(A: f32[8], B: f32[1]):
    for i in vectorize(0, 8):
        B[0] = A[i]
""",
        AVX512,
    )
    assert extents(made) == [("unroll", 8)]


def test_reduction_over_lanes_stays() -> None:
    made = legalized(
        """
def total(A: f32[16], B: f32[1]):
    B[0] = 0.0
    for i in vectorize(0, 16):
        B[0] = B[0] + A[i]
""",
        AVX512,
    )
    assert extents(made) == [("vectorize", 16)]


def test_loop_bounds_that_differ_between_lanes() -> None:
    made = legalized(
        """
def triangle(A: f32[8], B: f32[8]):
    for i in vectorize(0, 8):
        B[i] = 0.0
        for j in serial(0, i):
            B[i] = B[i] + A[j]
""",
        AVX512,
    )
    assert [n.kind for n in visit(made.body) if isinstance(n, For)] == ["unroll", "serial"]


def test_unrolling_is_bounded() -> None:
    made = legalized(
        """
def many(A: f32[100000], B: f32[100000]):
    for i in unroll(0, 100000):
        B[i] = A[i]
""",
        AVX512,
    )
    assert extents(made) == [("serial", 100000)]


def test_first_lane_is_known_to_run() -> None:
    """The tail of a symbolic size has at least one lane, whatever the size is."""
    func = parse_func("""
def scale(A: f32[n], B: f32[n], n: i64):
    for i_o in serial(0, (n + 15) // 16):
        for i_i in vectorize(0, 16):
            if i_o * 16 + i_i < n:
                B[i_o * 16 + i_i] = A[i_o * 16 + i_i]
""")
    made = legalize_vectors(func, target(AVX512))
    (loop,) = [n for n in visit(made.body) if isinstance(n, For) and n.kind == "vectorize"]
    assert annotation(loop, FIRST_LANE_RUNS) is True
    other = parse_func(print_func(func).replace("< n:", "< n - 3:"))
    made = legalize_vectors(other, target(AVX512))
    (loop,) = [n for n in visit(made.body) if isinstance(n, For) and n.kind == "vectorize"]
    assert annotation(loop, FIRST_LANE_RUNS) is None


def test_first_lane_runs_where_a_condition_does_not_hold() -> None:
    func = parse_func("""
def scale(A: f32[n], B: f32[n], n: i64):
    if n < 5:
        for i in serial(0, n):
            B[i] = A[i]
    else:
        for j in vectorize(0, 16):
            if j < n - 4:
                B[j] = A[j]
""")
    made = legalize_vectors(func, target(AVX512))
    (loop,) = [n for n in visit(made.body) if isinstance(n, For) and n.kind == "vectorize"]
    assert annotation(loop, FIRST_LANE_RUNS) is True


def test_a_let_is_not_the_loop_before_it() -> None:
    """What is known of a loop's counter says nothing of a let of the same name behind the loop: the
    last, partial round may have no first lane, and what it stores then lies beyond the end."""
    func = parse_func("""
def scale(A: f32[n], B: f32[n], n: i64):
    for i_o in serial(0, n // 8):
        for r in unroll(0, 8):
            B[i_o * 8 + r] = A[i_o * 8 + r]
    if n // 8 < (n + 7) // 8:
        i_o: i64 = n // 8
        for r in unroll(0, 8):
            for lane in vectorize(0, 16):
                if lane < 1 and i_o * 8 + r < n:
                    B[i_o * 8 + r] = A[i_o * 8 + r]
""")
    made = legalize_vectors(func, target(AVX512))
    (loop,) = [n for n in visit(made.body) if isinstance(n, For) and n.kind == "vectorize"]
    assert annotation(loop, FIRST_LANE_RUNS) is None
