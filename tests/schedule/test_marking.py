"""What parallel, vectorize, vthread and bind share: iterations that run at once are independent."""

import numpy as np
import pytest

from tests.schedule.loops import CARRIED, COPY, DEPENDENT, PLAIN, SHIFT, SYMBOLIC
from tests.schedule.programs import conv2d, depthwise, matmul, scan
from tilewright import te
from tilewright.ir import interp
from tilewright.ir.expr import as_int
from tilewright.ir.parse import parse_func
from tilewright.schedule import Schedule

AT_ONCE = ["parallel", "vectorize", "vthread"]
RULE = {"parallel": "P2", "vectorize": "P3", "vthread": "P2", "bind": "P3"}


def mark(schedule, kind, loop):
    """Apply a marking primitive; bind takes the axis too."""
    return schedule.bind(loop, "threadIdx.x") if kind == "bind" else getattr(schedule, kind)(loop)


@pytest.mark.parametrize("kind", [*AT_ONCE, "unroll"])
@pytest.mark.parametrize("loop", ["i", "j"])
def test_spatial_loops(kind, loop, same_result, replays):
    start = matmul(3, 4, 5).func
    s = Schedule(start)
    getattr(s, kind)(loop)
    assert f"for {loop} in {kind}(0, " in s.show()
    same_result(start, s.func)
    replays(start, s)


@pytest.mark.parametrize("kind", [*AT_ONCE, "bind"])
def test_parts_of_a_fused_loop(kind, same_result):
    """Rows and columns from one loop: the two digits tell the iteration."""
    start = parse_func(COPY)
    s = Schedule(start)
    s.split(s.fuse("i", "j"), 5)
    mark(s, kind, "i_j_f_o")
    same_result(start, s.func)


@pytest.mark.parametrize("kind", [*AT_ONCE, "bind"])
def test_elementwise_chain_in_one_loop(kind, same_result):
    start = parse_func(SHIFT)
    s = Schedule(start)
    mark(s, kind, "i")
    same_result(start, s.func)


@pytest.mark.parametrize("kind", [*AT_ONCE, "bind"])
def test_plain_statements(kind, same_result):
    start = parse_func(PLAIN)
    s = Schedule(start)
    mark(s, kind, "i")
    same_result(start, s.func)


def test_memory_of_one_iteration_moves_inside(same_result, replays):
    """Neighbouring rows need overlapping parts of the padded image: each iteration has its own."""
    start = conv2d(2, 3, 5, 4).func
    s = Schedule(start)
    s.compute_at("P", "y_1")
    s.parallel("y_1")
    lines = s.show().split("\n")
    loop = next(n for n, line in enumerate(lines) if "parallel" in line)
    assert "P = alloc" in lines[loop + 1]
    same_result(start, s.func)
    replays(start, s)
    random = np.random.default_rng(0)
    arrays = [random.random([as_int(d) or 0 for d in b.shape], np.float32) for b in start.buffers]
    interp.run(s.func, *arrays, check_parallel=True)


def test_memory_of_a_loop_further_inside_moves_inside(same_result):
    """A run of tiles begins and ends anywhere in a row of them: what it needs fills no rectangle,
    but what one of its tiles needs does."""
    image = te.placeholder((4, 8))
    half = te.compute((4, 8), lambda y, x: image[y, x] * 2.0, name="half")
    tiles = te.compute((12, 4), lambda t, k: half[t // 3, t % 3 * 2 + k], name="tiles")
    start = te.func("shared", [image], [tiles])
    s = Schedule(start)
    run, tile = s.split(s.loops("tiles")[0], 4)
    s.compute_at("half", tile)
    s.parallel(run)
    lines = s.show().split("\n")
    loop = next(n for n, line in enumerate(lines) if "parallel" in line)
    assert "half = alloc" in lines[loop + 1]
    same_result(start, s.func)


def test_memory_that_several_iterations_need_stays(refused):
    """The maximum of a row is made in the row's first iteration only."""
    s = Schedule(parse_func(CARRIED))
    refused("P2", s.parallel, "i")


@pytest.mark.parametrize("kind", [*AT_ONCE, "bind"])
@pytest.mark.parametrize("case", DEPENDENT)
def test_dependent_iterations_are_refused(kind, case, refused):
    s = Schedule(parse_func(DEPENDENT[case]))
    refused(RULE[kind], lambda: mark(s, kind, "i"))


@pytest.mark.parametrize("kind", [*AT_ONCE, "bind"])
def test_reductions_are_refused(kind, refused):
    s = Schedule(matmul(3, 4, 5).func)
    error = refused(RULE[kind], lambda: mark(s, kind, "k"))
    assert "reduces over it (axis 'vk')" in error.why
    assert "rfactor" in error.remedy


@pytest.mark.parametrize("kind", [*AT_ONCE, "bind"])
def test_recurrences_are_refused(kind, refused):
    s = Schedule(scan(4, 3).func)
    time = next(name for name in s.loops() if name.endswith("_t"))
    error = refused(RULE[kind], lambda: mark(s, kind, time))
    assert "in order" in error.why


def test_symbolic_extents_where_they_are_allowed(same_result):
    start = parse_func(SYMBOLIC)
    s = Schedule(start)
    s.parallel("j")
    same_result(start, s.func, n=3)
    s = Schedule(start)
    s.bind("j", "blockIdx.x")
    same_result(start, s.func, n=3)


def test_blocks_do_not_leave_the_loop_where_their_buffers_live(refused):
    """The copies of A live inside the pipelined loop; D, which reads them, stays there too."""
    s = Schedule(depthwise(3, 5, 4).func)
    s.cache_read("D", "A", "local")
    s.compute_at("A_local", "y")
    s.software_pipeline("y", [0, 1])
    error = refused("P6", s.compute_at, "D", "o_1")
    assert error.why == "'A_local' lives inside another loop"
