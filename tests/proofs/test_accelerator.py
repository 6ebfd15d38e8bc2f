"""One te matmul on an accelerator: tensorized, two virtual threads, one stream, three units."""

from __future__ import annotations

from collections import deque
from dataclasses import replace

import numpy as np
import pytest

import tilewright.te as te
from tests.proofs.accel_model import Deadlock, Machine, Race, ticks
from tilewright.backend.accel import ACCEL
from tilewright.codegen.accel import UNITS, Program
from tilewright.ir import interp
from tilewright.ir.stmt import Func
from tilewright.ir.verify import verify
from tilewright.schedule import Schedule, Trace, replay
from tilewright.support.errors import CompileError, ScheduleError
from tilewright.target import accel, target


def matmul(m: int, n: int, depth: int) -> Func:
    A, B = te.placeholder((m, depth), "i8", "A"), te.placeholder((depth, n), "i8", "B")
    k = te.reduce_axis(depth, "k")
    C = te.compute(
        (m, n),
        lambda i, j: te.sum(te.cast(A[i, k], "i32") * te.cast(B[k, j], "i32"), k),
        name="C",
    )
    return te.func("matmul", [A, B], [C])


def schedule(func: Func, threads: int) -> Schedule:
    """Tiles of 16 in on-chip memory; neighbours along the columns are virtual threads."""
    s = Schedule(func)
    out = s.cache_write("C", "C", accel.RESULT)
    a, b = s.cache_read("C", "A", accel.INPUT), s.cache_read("C", "B", accel.WEIGHT)
    i_o, i_i = s.split("i", accel.TILE)
    j_o, j_i = s.split("j", accel.TILE)
    k_o, k_i = s.split("k", accel.TILE)
    s.reorder(i_o, j_o, k_o, i_i, j_i, k_i)
    _, thread = s.split(j_o, threads)
    s.vthread(thread)
    s.reverse_compute_at(out, thread)
    s.compute_at(a, k_o)
    s.compute_at(b, k_o)
    block = s.blockize(i_i)
    init = s.decompose_reduction(block, k_o)
    s.tensorize(block, "accel.gemm")
    s.tensorize(init, "accel.clear")
    for name, by in ((a, "load_input"), (b, "load_weight"), (out, "store")):
        s.tensorize(s.loops(name)[-2], f"accel.{by}")
    return s


def program(m: int, n: int, depth: int, threads: int) -> Program:
    made = ACCEL.code(schedule(matmul(m, n, depth), threads).func, target("accel"))
    assert isinstance(made, Program)
    return made


def arrays(m: int, n: int, depth: int, seed: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    return {
        "A": random.integers(-128, 128, (m, depth)).astype(np.int8),
        "B": random.integers(-128, 128, (depth, n)).astype(np.int8),
        "C": np.full((m, n), 77, np.int32),
    }


def expected(given: dict[str, np.ndarray]) -> np.ndarray:
    return given["A"].astype(np.int32) @ given["B"].astype(np.int32)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("sizes", [(16, 32, 32), (32, 64, 48), (48, 32, 64)])
def test_every_interleaving_gives_the_product(sizes, threads) -> None:
    made = program(*sizes, threads)
    for seed in range(12):
        given = arrays(*sizes, seed)
        Machine(made, given, seed).run()
        np.testing.assert_array_equal(given["C"], expected(given))


def test_the_schedule_means_the_same_and_replays() -> None:
    before = matmul(32, 32, 32)
    s = schedule(before, 2)
    verify(s.func, "blocks")
    assert replay(before, Trace.from_json(s.trace.to_json())).func == s.func
    given = arrays(32, 32, 32, 1)
    interp.run(s.func, *given.values())
    np.testing.assert_array_equal(given["C"], expected(given))


def test_two_threads_overlap_what_one_cannot() -> None:
    """One thread loads, then computes, in turn; of two, one loads while the other computes."""
    cost = {"load": 3, "compute": 8, "store": 4}
    one, two = (program(32, 64, 48, threads) for threads in (1, 2))
    work = sum(cost[i.unit] for i in one.instructions)
    assert work == sum(cost[i.unit] for i in two.instructions)
    assert ticks(one, cost) > 0.85 * work
    assert ticks(two, cost) < 0.75 * work


def test_threads_have_memory_of_their_own() -> None:
    one, two = program(32, 32, 32, 1), program(32, 32, 32, 2)
    assert {k: 2 * v for k, v in one.memories.items()} == two.memories
    assert two.memories[accel.INPUT] == 2 * 16 * 16


def pairs(made: Program) -> list[tuple[int, int]]:
    """(giver, taker) of each token."""
    queues = {(a, b): deque[int]() for a in UNITS for b in UNITS}
    found: list[tuple[int, int]] = []
    for n, i in enumerate(made.instructions):
        found += [(queues[other, i.unit].popleft(), n) for other in i.takes]
        for other in i.gives:
            queues[i.unit, other].append(n)
    assert not any(queues.values())  # every token is taken
    return found


def without(made: Program, n: int, where: str, unit: str) -> Program:
    """The program with one word less in `gives` or `takes` of an instruction."""
    stream = list(made.instructions)
    left = list(getattr(stream[n], where))
    left.remove(unit)
    stream[n] = replace(stream[n], **{where: tuple(left)})
    return replace(made, instructions=tuple(stream))


def test_every_token_is_needed() -> None:
    made = program(32, 32, 32, 2)
    tokens = pairs(made)
    assert len(tokens) > 15
    for giver, taker in tokens:
        units = made.instructions[giver].unit, made.instructions[taker].unit
        fewer = without(without(made, giver, "gives", units[1]), taker, "takes", units[0])
        with pytest.raises(Race):
            Machine(fewer, arrays(32, 32, 32, 0), giver).run()


def test_a_token_that_is_not_given_stops_the_machine() -> None:
    made = program(32, 32, 32, 2)
    for giver, taker in pairs(made):
        fewer = without(made, giver, "gives", made.instructions[taker].unit)
        with pytest.raises((Deadlock, Race)):
            Machine(fewer, arrays(32, 32, 32, 0), giver).run()


def test_a_token_that_is_not_taken_is_a_race() -> None:
    made = program(32, 32, 32, 2)
    for giver, taker in pairs(made):
        fewer = without(made, taker, "takes", made.instructions[giver].unit)
        with pytest.raises(Race):
            Machine(fewer, arrays(32, 32, 32, 0), taker).run()


def test_a_race_also_shows_in_the_result() -> None:
    """Without tokens some interleaving gives a wrong product: the model does run out of order."""
    made = program(32, 32, 32, 2)
    loose = replace(
        made, instructions=tuple(replace(i, takes=(), gives=()) for i in made.instructions)
    )
    wrong = 0
    for seed in range(5):
        given = arrays(32, 32, 32, seed)
        machine = Machine(loose, given, seed)
        machine.check = lambda *_: None  # look away
        machine.run()
        wrong += not np.array_equal(given["C"], expected(given))
    assert wrong == 5


def test_what_is_not_tensorized_is_refused() -> None:
    with pytest.raises(CompileError, match="no instruction of it"):
        ACCEL.code(matmul(32, 32, 32), target("accel"))


def test_tiles_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ScheduleError, match="cannot tensorize"):
        schedule(matmul(40, 32, 32), 1)


def test_memory_that_is_not_there_is_refused() -> None:
    """All of the weights at once are too many for the chip."""
    s = Schedule(matmul(16, 512, 512))
    b = s.cache_read("C", "B", accel.WEIGHT)
    _, j_i = s.split(s.loops(b)[1], accel.TILE)
    k_o, k_i = s.split(s.loops(b)[0], accel.TILE)
    s.reorder(k_o, s.loops(b)[2], k_i, j_i)
    s.tensorize(k_i, "accel.load_weight")
    with pytest.raises(CompileError, match=r"cannot allocate memory in accel\.weight"):
        ACCEL.code(s.func, target("accel"))
