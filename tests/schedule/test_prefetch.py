"""prefetch: ask for memory some iterations before it is read."""

import itertools

import pytest

from tests.schedule.programs import conv2d, matmul
from tilewright.arith.simplify import simplify
from tilewright.ir.expr import Call, Load, as_int, const
from tilewright.ir.parse import parse_func
from tilewright.ir.walk import substitute, visit
from tilewright.schedule import Schedule
from tilewright.schedule.locate import find_loop
from tilewright.schedule.primitives.prefetch import ROUNDS

SYMBOLIC = """\
def f(A: f32[8, n], B: f32[8, n], n: i64):
    for i in serial(0, 8):
        for j in serial(0, n):
            with block("B"):
                vi = spatial(8, i)
                vj = spatial(n, j)
                reads(A[vi, vj])
                writes(B[vi, vj])
                B[vi, vj] = A[vi, vj] * 2.0
"""


PANELS = """\
def f(X: f32[2, 5], W: f32[3, 5, 64], Y: f32[2, 192]):
    for p in serial(0, 3):
        for i in serial(0, 2):
            for k in serial(0, 5):
                for j in serial(0, 64):
                    with block("Y"):
                        vp = spatial(3, p)
                        vi = spatial(2, i)
                        vk = reduce(5, k)
                        vj = spatial(64, j)
                        reads(X[vi, vk], W[vp, vk, vj])
                        writes(Y[vi, vp * 64 + vj])
                        with init():
                            Y[vi, vp * 64 + vj] = 0.0
                        Y[vi, vp * 64 + vj] = Y[vi, vp * 64 + vj] + X[vi, vk] * W[vp, vk, vj]
"""


@pytest.mark.parametrize(("buffer", "loop"), [("A", "i"), ("B", "k"), ("B", "j"), ("A", "k")])
def test_matmul(buffer, loop, same_result, replays):
    start = matmul(5, 40, 20).func
    s = Schedule(start)
    s.reorder("i", "k", "j")
    s.prefetch(buffer, loop, 1)
    assert f"prefetch({buffer}[" in s.show()
    same_result(start, s.func)
    replays(start, s)


def test_one_request_a_line():
    s = Schedule(matmul(4, 40, 3).func)
    s.reorder("i", "k", "j")
    s.prefetch("B", "k", 2)
    assert "if k + 2 < 3:" in s.show()
    assert "for p_1 in serial(0, 3):" in s.show()  # 40 floats lie in three lines
    assert "prefetch(B[k + 2, p_1 * 16])" in s.show()


def test_stays_inside_the_buffer():
    s = Schedule(conv2d(2, 2, 5, 5).func)
    s.prefetch("P", "y_1", 1)
    assert "min(" in s.show()


def lines_asked_for(s, first, loops):
    """Flat offsets, in lines, that iteration `first` of loops[0] asks for, in order."""
    (call,) = {n for n in visit(s.func.body) if isinstance(n, Call) and n.name == "prefetch"}
    load, cache = call.args
    assert isinstance(load, Load) and as_int(cache) == 2
    found = [find_loop(s.func, name) for name in loops]
    asked = []
    for values in itertools.product(*(range(as_int(f.extent) or ROUNDS) for f in found[1:])):
        at = dict(zip((f.var for f in found), map(const, (first, *values)), strict=True))
        flat = 0
        for index, size in zip(load.indices, load.buffer.shape, strict=True):
            flat = flat * as_int(size) + as_int(simplify(substitute(index, at)))
        assert flat % 16 == 0
        asked.append(flat // 16)
    return asked


def test_over_an_inner_loop_asks_for_all_of_the_next_iteration():
    """A panel of W is 5 × 64 numbers, 20 lines: two in each of the ten steps of i and k."""
    s = Schedule(parse_func(PANELS))
    s.prefetch("W", "p", 1, over="k")
    assert lines_asked_for(s, 0, ["p", "i", "k", "p_1"]) == list(range(20, 40))
    assert lines_asked_for(s, 1, ["p", "i", "k", "p_1"]) == list(range(40, 60))


def test_over_an_inner_loop_asks_for_lines_of_several_panels():
    """A step of k reads four lines of every panel, which lie 20 apart; there are twelve, and six
    iterations: with i inside, two each."""
    s = Schedule(parse_func(PANELS))
    s.reorder("k", "p", "i")
    s.prefetch("W", "k", 1, over="i")
    wanted = [20 * panel + 2 * 4 + line for panel in range(3) for line in range(4)]
    assert lines_asked_for(s, 1, ["k", "p", "i", "p_1"]) == wanted


def test_over_more_iterations_than_lines_several_ask_for_each():
    """45 for 20: as evenly as a power of two goes."""
    s = Schedule(
        parse_func(
            PANELS.replace("[2,", "[9,").replace("(0, 2)", "(0, 9)").replace("(2, i)", "(9, i)")
        )
    )
    s.prefetch("W", "p", 1, over="k")
    assert lines_asked_for(s, 0, ["p", "i", "k"]) == [
        *(20 + k // 2 for k in range(40)), *[39] * 5
    ]  # fmt: skip


def test_over_an_open_loop_its_first_iterations_ask():
    text = PANELS.replace("[2,", "[n,").replace("(0, 2)", "(0, n)").replace("(2, i)", "(n, i)")
    s = Schedule(parse_func(text.replace("192]):", "192], n: i64):")))
    s.prefetch("W", "p", 1, over="k")
    assert "if" not in s.show() and f"min(i, {ROUNDS - 1})" in s.show()
    assert lines_asked_for(s, 0, ["p", "i", "k"]) == list(range(20, 40))


def test_over_a_loop_that_may_be_short_so_many_rounds_ask():
    """The run may bound the nine iterations: the first two have all requests, the others again."""
    text = PANELS.replace("[2,", "[9,").replace("(0, 2)", "(0, 9)").replace("(2, i)", "(9, i)")
    s = Schedule(parse_func(text))
    s.prefetch("W", "p", 1, over="k", rounds=2)
    asked = lines_asked_for(s, 0, ["p", "i", "k", "p_1"])
    assert asked[:20] == list(range(20, 40)) and set(asked[20:]) == set(range(30, 40))


def test_over_changes_no_result(same_result, replays):
    start = parse_func(PANELS)
    s = Schedule(start)
    s.prefetch("W", "p", 1, over="k")
    s.parallel(s.fuse("p", "i"))
    same_result(start, s.func)
    replays(start, s)


def test_P6_not_inside(refused):
    s = Schedule(matmul().func)
    refused("P6", s.prefetch, "A", "k", 1, "i")


def test_P6_not_constant(refused):
    text = SYMBOLIC.replace("A: f32[8, n]", "A: f32[8, 4]").replace("A[vi, vj]", "A[vi, 0]")
    refused("P6", Schedule(parse_func(text)).prefetch, "A", "i", 1, "j")


def test_P1_not_read(refused):
    refused("P1", Schedule(matmul().func).prefetch, "A", "i_1", 1)


def test_P1_lives_inside(refused):
    s = Schedule(conv2d(2, 2, 5, 5).func)
    s.compute_at("P", "y_1")
    s.parallel("y_1")
    refused("P1", s.prefetch, "P", "y_1", 1)


def test_P2_distance(refused):
    refused("P2", Schedule(matmul().func).prefetch, "A", "i", 0)


def test_P3_no_order(refused):
    s = Schedule(matmul().func)
    s.parallel("i")
    refused("P3", s.prefetch, "A", "i", 1)


def test_P5_inside_a_block(refused):
    s = Schedule(matmul(4, 4, 6).func)
    s.split("i", 2)
    s.blockize("i_i")
    refused("P5", s.prefetch, "B", "i_i", 1)


def test_P4_size_not_constant(refused):
    refused("P4", Schedule(parse_func(SYMBOLIC)).prefetch, "A", "i", 1)
