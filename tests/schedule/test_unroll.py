"""unroll: iterations repeated one after the other."""

from tests.schedule.loops import COPY, RECURRENCE, SYMBOLIC
from tests.schedule.programs import matmul
from tilewright.ir.parse import parse_func
from tilewright.schedule import Schedule


def test_rewrite(same_result, replays):
    start = matmul(3, 4, 5).func
    s = Schedule(start)
    s.unroll("k")
    same_result(start, s.func)
    replays(start, s)


def test_order_stays_so_nothing_need_be_independent():
    s = Schedule(parse_func(RECURRENCE))
    s.unroll("i")
    assert "unroll(0, 6)" in s.show()


def test_P1_serial(refused):
    s = Schedule(parse_func(COPY))
    s.vectorize("j")
    refused("P1", s.unroll, "j")


def test_P2_constant_extent(refused):
    refused("P2", Schedule(parse_func(SYMBOLIC)).unroll, "j")
