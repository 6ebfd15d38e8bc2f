"""What is costly and read several times stays until its readers are one; tables stay."""

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


def looked_up(rows):
    """Columns of x at places that are floats."""
    x, places = te.placeholder((rows, 32), "f32", "x"), te.placeholder((32,), "f64", "places")
    index = te.compute((32,), lambda j: te.cast(te.ceil(places[j]), "i64"), name="index")
    return te.func("looked_up", [x, places], [
        te.compute((rows, 32), lambda i, j: x[i, te.minimum(te.maximum(index[j], 0), 31)], name="y")
    ])  # fmt: skip


def test_floats_become_indices_once_for_many_readers():
    for rows, stays in ((64, ["index", "y"]), (4, ["index", "y"]), (2, ["y"])):
        schedule = Schedule(looked_up(rows))
        absorb(schedule)
        assert [b.name for b in blocks(schedule.func.body)] == stays
