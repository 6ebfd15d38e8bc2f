"""transform_layout: an intermediate buffer in another layout."""

import pytest

import tilewright.te as te
from tilewright.ir.parse import parse_func
from tilewright.ir.text import print_func
from tilewright.schedule import Schedule
from tilewright.schedule.primitives.transform_layout import transform_layout

BEFORE = """\
def f(A: f32[30], C: f32[30]):
    B = alloc(f32[30], "global")
    for i in serial(0, 30):
        with block("B"):
            vi = spatial(30, i)
            reads(A[vi])
            writes(B[vi])
            B[vi] = A[vi] * 2.0
    for j in serial(0, 30):
        with block("C"):
            vj = spatial(30, j)
            reads(B[vj], B[29 - vj])
            writes(C[vj])
            C[vj] = B[vj] + B[29 - vj]
"""
AFTER = """\
def f(A: f32[30], C: f32[30]):
    B = alloc(f32[2, 16], "global")
    for i in serial(0, 30):
        with block("B"):
            vi = spatial(30, i)
            reads(A[vi])
            writes(B[vi // 16, vi % 16])
            B[vi // 16, vi % 16] = A[vi] * 2.0
    for j in serial(0, 30):
        with block("C"):
            vj = spatial(30, j)
            reads(B[vj // 16, vj % 16], B[(13 - vj) // 16 + 1, (13 - vj) % 16])
            writes(C[vj])
            C[vj] = B[vj // 16, vj % 16] + B[(13 - vj) // 16 + 1, (13 - vj) % 16]
"""
PACK = "lambda x: (x // 16, x % 16)"
MAPPINGS = [
    "lambda n, c, h, w: (n, h, w, c)",
    "lambda n, c, h, w: (n, c // 4, h, w, c % 4)",
    "lambda n, c, h, w: (n, c // 4, h * 5 + w, c % 4)",
    "lambda n, c, h, w: (n * 12 + c, h // 2, w // 2, h % 2, w % 2)",
    "lambda n, c, h, w: (((n * 12 + c) * 6 + h) * 5 + w,)",
    "lambda n, c, h, w: (n, c // 6, c // 2 % 3, c % 2, w, h)",
    "lambda n, c, h, w: (n, c // 5, h, w, c % 5)",
]


def four_dimensions() -> te.Tensor:
    A = te.placeholder((2, 12, 6, 5), "f32", "A")
    B = te.compute((2, 12, 6, 5), lambda n, c, h, w: A[n, c, h, w] * 2.0, name="B")
    k = te.reduce_axis(12, "k")
    C = te.compute((2, 6, 4), lambda n, h, w: te.sum(B[n, k, h, w + 1], k), name="C")
    return te.func("f", [A], [C])


def test_rewrite(same_result, replays) -> None:
    before = parse_func(BEFORE)
    s = Schedule(before)
    s.transform_layout("B", PACK)
    assert print_func(s.func) == AFTER
    same_result(before, s.func)
    replays(before, s)


@pytest.mark.parametrize("mapping", MAPPINGS)
def test_mappings(same_result, replays, mapping) -> None:
    before = four_dimensions()
    s = Schedule(before)
    s.transform_layout("B", mapping)
    same_result(before, s.func)
    replays(before, s)


def test_a_function_is_recorded_as_text(replays) -> None:
    before = four_dimensions()
    s = Schedule(before)
    s.transform_layout("B", lambda n, c, h, w: (n, c // 4, h, w, c % 4))
    assert s.trace.steps[0].args[1] == "lambda n, c, h, w: (n, c // 4, h, w, c % 4)"
    replays(before, s)


def test_padding_holds_the_value(same_result) -> None:
    before = parse_func(BEFORE)
    s = Schedule(before)
    s.transform_layout("B", PACK, 7.0)
    assert 'with block("B_pad", where=p0 * 16 + p1 >= 30)' in s.show()
    assert "B[vp0, vp1] = 7.0" in s.show()
    same_result(before, s.func)


def test_twice(same_result) -> None:
    before = four_dimensions()
    s = Schedule(before)
    s.transform_layout("B", "lambda n, c, h, w: (n, c // 4, h, w, c % 4)")
    s.transform_layout("B", "lambda n, o, h, w, i: (n, h, o, w * 4 + i)")
    same_result(before, s.func)


def test_symbolic_outer_dimension(same_result) -> None:
    n = te.var("n")
    A = te.placeholder((n, 6), "f32", "A")
    B = te.compute((n, 6), lambda i, j: A[i, j] * 2.0, name="B")
    C = te.compute((n, 6), lambda y, x: B[y, 5 - x] + 1.0, name="C")
    before = te.func("f", [A], [C])
    s = Schedule(before)
    s.transform_layout("B", "lambda i, j: (i // 4, j, i % 4)")
    for size in (1, 4, 7):
        same_result(before, s.func, n=size)


def test_P1_a_parameter(refused) -> None:
    refused("P1", transform_layout, parse_func(BEFORE), "A", PACK)


@pytest.mark.parametrize(
    "mapping",
    [
        "lambda x, y: (x, y)",
        "lambda x: (x // 16,)",
        "lambda x: (x % 16, x % 8)",
        "lambda x: (x * x,)",
        "lambda x: (x + 1,)",
        "lambda x: (x // 16, x % 15)",
        "lambda x: (z,)",
        "x // 16",
        "lambda x: (",
        "lambda x: __import__('os')",
    ],
)
def test_P2_no_invertible_mapping(refused, mapping) -> None:
    refused("P2", transform_layout, parse_func(BEFORE), "B", mapping)


def test_P3_address_is_taken(refused) -> None:
    text = BEFORE.replace("B[vj] + B[29 - vj]", 'call("both", address_of(B[vj]), dtype=f32)')
    refused("P3", transform_layout, parse_func(text), "B", PACK)


def test_P4_made_in_a_loop_of_its_reader(refused) -> None:
    s = Schedule(four_dimensions())
    s.compute_at("B", "n_1")
    mapping = "lambda n, c, h, w: (n, c // 5, h, w, c % 5)"
    refused("P4", transform_layout, s.func, "B", mapping, 0.0)


def test_P3_a_prefetch_names_it(refused) -> None:
    text = BEFORE.replace(
        "    for j in serial(0, 30):\n", "    for j in serial(0, 30):\n        prefetch(B[j])\n"
    )
    refused("P3", transform_layout, parse_func(text), "B", PACK)
