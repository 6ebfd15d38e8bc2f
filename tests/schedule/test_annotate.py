"""annotate: notes on loops and blocks."""

import pytest

from tests.schedule.programs import matmul
from tilewright.ir.parse import parse_func
from tilewright.schedule import Schedule

TWO = """\
def f(A: f32[4], B: f32[4]):
    for x in serial(0, 4):
        with block("x"):
            vx = spatial(4, x)
            reads(A[vx])
            writes(B[vx])
            B[vx] = A[vx]
"""


def test_loops_and_blocks(same_result, replays):
    start = matmul().func
    s = Schedule(start)
    s.annotate("k", "limit", 16)
    s.annotate("C", "role", "kernel")
    assert "limit=16" in s.show() and 'role="kernel"' in s.show()
    same_result(start, s.func)
    replays(start, s)


def test_none_removes():
    start = matmul().func
    s = Schedule(start)
    s.annotate("k", "limit", True)
    s.annotate("k", "limit", None)
    assert s.func == start


def test_P1_unknown(refused):
    with pytest.raises(Exception, match="nothing has that name"):
        Schedule(matmul().func).annotate("z", "limit", 1)


def test_P1_ambiguous(refused):
    refused("P1", Schedule(parse_func(TWO)).annotate, "x", "limit", 1)


@pytest.mark.parametrize(("key", "value"), [("a b", 1), ("limit", (1, 2))])
def test_P2_plain_values(key, value, refused):
    refused("P2", Schedule(matmul().func).annotate, "k", key, value)
