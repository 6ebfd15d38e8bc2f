"""set_scope: an intermediate buffer moves to another memory."""

import pytest

import tilewright.te as te
from tilewright.schedule import Schedule
from tilewright.schedule.primitives.set_scope import set_scope


def two_steps() -> te.Tensor:
    A = te.placeholder((8, 4), "f32", "A")
    B = te.compute((8, 4), lambda i, j: A[i, j] * 2.0, name="B")
    C = te.compute((8, 4), lambda y, x: B[y, 3 - x] + 1.0, name="C")
    return te.func("f", [A], [C])


def test_rewrite(same_result, replays) -> None:
    before = two_steps()
    s = Schedule(before)
    s.set_scope("B", "shared")
    assert s.show() == Schedule(before).show().replace('"global"', '"shared"')
    same_result(before, s.func)
    replays(before, s)


def test_a_targets_own_scope() -> None:
    s = Schedule(two_steps())
    s.set_scope("B", "accel.input")
    assert 'alloc(f32[8, 4], "accel.input")' in s.show()


def test_P1_a_parameter(refused) -> None:
    refused("P1", set_scope, two_steps(), "A", "shared")


@pytest.mark.parametrize("scope", ["", "two words", "3d", "a."])
def test_P2_no_name(refused, scope) -> None:
    refused("P2", set_scope, two_steps(), "B", scope)


@pytest.mark.parametrize("scope", ["shared", "local"])
def test_P3_other_threads_use_it(refused, scope) -> None:
    s = Schedule(two_steps())
    s.bind("y", "blockIdx.x")
    refused("P3", set_scope, s.func, "B", scope)


def test_P3_threads_of_a_block_share(refused) -> None:
    """Shared memory is for all threads of a block, local memory for one."""
    s = Schedule(two_steps())
    (j,) = s.compute_at("B", "y")
    s.bind("y", "blockIdx.x")
    s.set_scope("B", "shared")
    s.bind("x", "threadIdx.x")
    s.bind(j, "threadIdx.x")
    refused("P3", set_scope, s.func, "B", "local")
