"""What is costly and read several times stays until its readers are one."""

from tilewright import te
from tilewright.ir.walk import blocks
from tilewright.schedule.schedule import Schedule
from tilewright.strategy.absorb import absorb


def guarded(n, m):
    """exp(x), 0 where that is NaN: what a softmax's gradient asks of scores."""
    x = te.placeholder((n, m), "f32", "x")
    e = te.compute((n, m), lambda i, j: te.exp(x[i, j]), name="e")
    odd = te.compute((n, m), lambda i, j: te.isnan(e[i, j]), name="odd")
    return te.func("guarded", [x], [
        te.compute((n, m), lambda i, j: te.select(odd[i, j], 0.0, e[i, j]), name="y")
    ])  # fmt: skip


def test_readers_that_became_one_take_what_they_read():
    schedule = Schedule(guarded(6, 8))
    absorb(schedule)
    assert [b.name for b in blocks(schedule.func.body)] == ["y"]
