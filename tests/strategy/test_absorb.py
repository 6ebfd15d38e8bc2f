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
    """Columns of x at indices that are floats."""
    x, at = te.placeholder((rows, 32), "f32", "x"), te.placeholder((32,), "f64", "at")
    index = te.compute((32,), lambda j: te.cast(te.ceil(at[j]), "i64"), name="index")
    return te.func("looked_up", [x, at], [
        te.compute((rows, 32), lambda i, j: x[i, te.minimum(te.maximum(index[j], 0), 31)], name="y")
    ])  # fmt: skip


def test_floats_become_indices_once_for_many_readers():
    for rows, stays in ((64, ["index", "y"]), (4, ["index", "y"]), (2, ["y"])):
        schedule = Schedule(looked_up(rows))
        absorb(schedule)
        assert [b.name for b in blocks(schedule.func.body)] == stays


def in_blocks(channels):
    """The roots of channels in blocks of 16, the last one filled with zeros."""
    x = te.placeholder((channels, 7), "f32", "x")
    root = te.compute((channels, 7), lambda c, j: te.sqrt(x[c, j]), name="root")

    def packed(b, j, lane):
        channel = b * 16 + lane
        return te.select(channel < channels, root[channel, j], 0.0)

    return te.func("in_blocks", [x], [te.compute((-(-channels // 16), 7, 16), packed, name="y")])


def test_costly_values_are_made_where_a_last_block_is_filled():
    for channels, stays in ((128, ["y"]), (129, ["y"]), (33, ["root", "y"])):
        schedule = Schedule(in_blocks(channels))
        absorb(schedule)
        assert [b.name for b in blocks(schedule.func.body)] == stays
