"""parallel: iterations on several threads."""

import pytest

from tests.schedule.loops import COPY, DEPENDENT
from tests.schedule.programs import matmul
from tilewright.ir.parse import parse_func
from tilewright.schedule import Schedule


@pytest.mark.parametrize("loop", ["i", "j"])
def test_rewrite(loop, same_result, replays):
    start = matmul(3, 4, 5).func
    s = Schedule(start)
    s.parallel(loop)
    same_result(start, s.func)
    replays(start, s)


def test_P1_serial(refused):
    s = Schedule(parse_func(COPY))
    s.unroll("i")
    refused("P1", s.parallel, "i")


@pytest.mark.parametrize("case", DEPENDENT)
def test_P2_independent(case, refused):
    refused("P2", Schedule(parse_func(DEPENDENT[case])).parallel, "i")


def test_message(refused):
    error = refused("P2", Schedule(matmul(3, 4, 5).func).parallel, "k")
    assert (
        str(error)
        == """\
cannot run loop 'k' in parallel: block 'C' reduces over it (axis 'vk')

    def matmul(A: f32[3, 5], B: f32[5, 4], D: f32[4], E: f32[3, 4]):
        C = alloc(f32[3, 4], "global")
        for i in serial(0, 3):
            for j in serial(0, 4):
                for k in parallel(0, 5):
                    with block("C"):
                    ^^^^^^^^^^^^^^^
                        vi = spatial(3, i)
                        vj = spatial(4, j)
                        vk = reduce(5, k)
                        reads(A[vi, vk], B[vk, vj])
                        writes(C[vi, vj])
                        with init():
                            C[vi, vj] = 0.0
                        C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
        for i_1 in serial(0, 3):
            for j_1 in serial(0, 4):
                with block("E"):
                    vi_1 = spatial(3, i_1)
                    vj_1 = spatial(4, j_1)
                    reads(C[vi_1, vj_1], D[vj_1])
                    writes(E[vi_1, vj_1])
                    E[vi_1, vj_1] = max(C[vi_1, vj_1] + D[vj_1], 0.0)

  choose a loop that only spatial axes are bound to; rfactor splits a reduction"""
    )
