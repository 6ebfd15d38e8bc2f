"""storage_align: gaps between the rows of a buffer."""

import pytest

import tilewright.te as te
from tilewright.schedule import Schedule
from tilewright.schedule.primitives.storage_align import storage_align


def two_steps(rows=8) -> te.Tensor:
    A = te.placeholder((3, rows, 60), "f32", "A")
    B = te.compute((3, rows, 60), lambda n, i, j: A[n, i, j] * 2.0, name="B")
    C = te.compute((3, rows, 60), lambda b, y, x: B[b, y, 59 - x] + 1.0, name="C")
    return te.func("f", [A], [C])


@pytest.mark.parametrize(
    ("axis", "factor", "offset", "strides"),
    [
        (1, 32, 0, "512, 64, 1"),
        (1, 32, 1, "520, 65, 1"),
        (1, 60, 0, "480, 60, 1"),
        (0, 64, 8, "520, 60, 1"),
    ],
)
def test_rewrite(same_result, replays, axis, factor, offset, strides) -> None:
    before = two_steps()
    s = Schedule(before)
    s.storage_align("B", axis, factor, offset)
    assert f"strides=[{strides}]" in s.show().replace("(", "[").replace(")", "]")
    same_result(before, s.func)
    replays(before, s)


def test_twice(same_result) -> None:
    before = two_steps()
    s = Schedule(before)
    s.storage_align("B", 1, 32, 1)
    s.storage_align("B", 0, 64)
    assert [e.value for e in s.func.body.buffer.strides] == [576, 65, 1]
    same_result(before, s.func)


def test_P1_a_parameter(refused) -> None:
    refused("P1", storage_align, two_steps(), "A", 1, 32)


@pytest.mark.parametrize("axis", [-1, 2, 7])
def test_P2_no_outer_dimension(refused, axis) -> None:
    refused("P2", storage_align, two_steps(), "B", axis, 32)


@pytest.mark.parametrize(("factor", "offset"), [(0, 0), (32, 32), (32, -1)])
def test_P3_no_remainder_class(refused, factor, offset) -> None:
    refused("P3", storage_align, two_steps(), "B", 1, factor, offset)


def test_P4_symbolic_rows(refused) -> None:
    refused("P4", storage_align, two_steps(te.var("n")), "B", 0, 32)
