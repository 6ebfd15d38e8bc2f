"""storage_align: gaps between the rows of a buffer."""

import pytest

import tilewright.te as te
from tilewright.ir.expr import Expr, as_int
from tilewright.ir.stmt import Alloc, Func
from tilewright.ir.walk import statements
from tilewright.schedule import Schedule
from tilewright.schedule.primitives.storage_align import storage_align


def two_steps(rows: Expr | int = 8) -> Func:
    A = te.placeholder((3, rows, 60), "f32", "A")
    B = te.compute((3, rows, 60), lambda n, i, j: A[n, i, j] * 2.0, name="B")
    C = te.compute((3, rows, 60), lambda b, y, x: B[b, y, 59 - x] + 1.0, name="C")
    return te.func("f", [A], [C])


def strides(func: Func) -> list[int | None]:
    (buffer,) = (s.buffer for s in statements(func.body) if isinstance(s, Alloc))
    return [as_int(stride) for stride in buffer.strides or ()]


@pytest.mark.parametrize(
    ("axis", "factor", "offset", "wanted"),
    [
        (1, 32, 0, [512, 64, 1]),
        (1, 32, 1, [520, 65, 1]),
        (1, 60, 0, [480, 60, 1]),
        (0, 64, 8, [520, 60, 1]),
    ],
)
def test_rewrite(same_result, replays, axis, factor, offset, wanted) -> None:
    before = two_steps()
    s = Schedule(before)
    s.storage_align("B", axis, factor, offset)
    assert strides(s.func) == wanted
    same_result(before, s.func)
    replays(before, s)


def test_twice(same_result) -> None:
    before = two_steps()
    s = Schedule(before)
    s.storage_align("B", 1, 32, 1)
    s.storage_align("B", 0, 64)
    assert strides(s.func) == [576, 65, 1]
    same_result(before, s.func)


@pytest.mark.parametrize("rows", [3, 8])
def test_symbolic_rows(same_result, rows) -> None:
    before = two_steps(te.var("n"))
    s = Schedule(before)
    s.storage_align("B", 0, 32, 16)
    assert s.show() != Schedule(before).show()
    same_result(before, s.func, n=rows)


def test_P1_a_parameter(refused) -> None:
    refused("P1", storage_align, two_steps(), "A", 1, 32)


@pytest.mark.parametrize("axis", [-1, 2, 7])
def test_P2_no_outer_dimension(refused, axis) -> None:
    refused("P2", storage_align, two_steps(), "B", axis, 32)


@pytest.mark.parametrize(("factor", "offset"), [(0, 0), (32, 32), (32, -1)])
def test_P3_no_remainder_class(refused, factor, offset) -> None:
    refused("P3", storage_align, two_steps(), "B", 1, factor, offset)
