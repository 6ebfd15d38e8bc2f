"""bind: iterations on the threads of a device."""

import numpy as np
import pytest

from tests.schedule.loops import COPY, DEPENDENT, SYMBOLIC
from tests.schedule.programs import matmul, scan
from tilewright.ir import interp
from tilewright.ir.parse import parse_func
from tilewright.schedule import Schedule


def test_rewrite(same_result, replays):
    start = parse_func(COPY)
    s = Schedule(start)
    s.bind("i", "blockIdx.x")
    s.bind("j", "threadIdx.x")
    assert 'for j in thread("threadIdx.x", 0, 6)' in s.show()
    same_result(start, s.func)
    replays(start, s)


def test_loops_beside_each_other(same_result, replays):
    start = parse_func(COPY)
    s = Schedule(start)
    s.bind("i", "blockIdx.x")
    s.partition_loop("j", [3])
    s.bind(["j", "j_1"], "threadIdx.x")
    assert 'for j_1 in thread("threadIdx.x", 0, 3)' in s.show()
    same_result(start, s.func)
    replays(start, s)


def test_local_memory_of_a_thread(same_result):
    """Each thread keeps its own accumulator; the copy out stands in the same loop."""
    start = matmul(4, 6, 5).func
    s = Schedule(start)
    s.cache_write("C", "C", "local")
    s.reverse_compute_at("C_local", "j")
    s.bind("i", "blockIdx.x")
    s.bind("j", "threadIdx.x")
    random = np.random.default_rng(0)
    arrays = [random.random([d.value for d in b.shape], np.float32) for b in start.buffers]
    interp.run(s.func, *arrays)
    same_result(start, s.func)


def test_P1_serial(refused):
    s = Schedule(parse_func(COPY))
    s.unroll("i")
    refused("P1", s.bind, "i", "threadIdx.x")


def test_P2_axis(refused):
    refused("P2", Schedule(parse_func(COPY)).bind, "i", "warpIdx.x")


@pytest.mark.parametrize("case", DEPENDENT)
def test_P3_independent(case, refused):
    refused("P3", Schedule(parse_func(DEPENDENT[case])).bind, "i", "threadIdx.x")


def test_P3_rest_of_the_kernel(refused):
    """What is not on threads would be run by all of them."""
    s = Schedule(scan(4, 3).func)
    error = refused("P3", s.bind, s.loops("scan_state_out")[-1], "threadIdx.x")
    assert "several of its iterations" in error.why


def test_P3_beside_a_serial_loop(refused):
    s = Schedule(parse_func(COPY))
    s.bind("i", "blockIdx.x")
    s.partition_loop("j", [2])
    refused("P3", s.bind, "j", "threadIdx.x")


def test_P4_constant_extent(refused):
    refused("P4", Schedule(parse_func(SYMBOLIC)).bind, "j", "threadIdx.x")


def test_P5_extents_of_one_axis(refused):
    s = Schedule(parse_func(COPY))
    s.bind("i", "blockIdx.x")
    s.partition_loop("j", [2])
    refused("P5", s.bind, ["j", "j_1"], "threadIdx.x")


def test_P6_one_axis_twice(refused):
    s = Schedule(parse_func(COPY.replace("4", "6")))
    s.bind("i", "threadIdx.x")
    refused("P6", s.bind, "j", "threadIdx.x")
