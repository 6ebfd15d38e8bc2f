"""Points name schedules: built exactly, or refused with the reason."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from tests.schedule.programs import matmul
from tests.strategy.points import MODELS, drawn, judge, kernels, rebuild
from tests.strategy.random_shapes import FAMILIES, draw_case
from tests.strategy.test_narrow_rows import HALVES, graph
from tests.zoo import model
from tilewright import te
from tilewright.driver.compile import kernel_jobs, prepare
from tilewright.driver.kernels import Job, write
from tilewright.driver.observe import Watch
from tilewright.driver.source import open_source
from tilewright.driver.versions import chosen_versions, versions
from tilewright.graph.operator import OPERATORS
from tilewright.ir.stmt import Func
from tilewright.strategy.select import default, scheduled
from tilewright.strategy.space import decisions, partial, point, sample
from tilewright.support.errors import ScheduleError
from tilewright.target.target import target

CPU = target("cpu")
MACHINE = target("cpu -mcpu=haswell")


def conv() -> Func:
    x, w = (
        te.placeholder((1, 2, 9, 11, 8), "f32", "x"),
        te.placeholder((3, 2, 3, 3, 8, 8), name="w"),
    )
    attrs = {"strides": (1, 1), "pads": ((1, 1), (1, 1)), "dilations": (1, 1)}
    return te.func("kernel", [x, w], [OPERATORS["conv_packed"].define(x, w, **attrs)])


@pytest.mark.parametrize("family", FAMILIES)
def test_points_of_random_shapes(family: str) -> None:
    for number in range(3):
        for func in kernels(draw_case(number, 11, family)[0], CPU):
            for threads in (1, 2):
                judge(func, CPU, threads, 2, f"{family}/{number}")


@pytest.mark.parametrize(
    ("name", "line"), [("dqn", "cpu -mcpu=haswell"), ("light_squeezenet", "cpu")]
)
def test_points_of_models(name: str, line: str) -> None:
    machine = target(line)
    for n, func in enumerate(kernels(open_source(str(model(name).onnx_path)).graph(), machine)):
        judge(func, machine, 1 + n % 2, 1, f"{name}/{n}")


@pytest.mark.slow  # all of them, and more points of each: python -m tests.strategy.points
@pytest.mark.parametrize("family", FAMILIES)
def test_points_of_many_random_shapes(family: str, draws: Callable[[int], int]) -> None:
    for number in range(draws(40)):
        for func in kernels(draw_case(number, 1, family)[0], CPU):
            judge(func, CPU, 1 + number % 2, 1, f"{family}/{number}")


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_points_of_all_models(name: str) -> None:
    for n, func in enumerate(kernels(open_source(str(model(name).onnx_path)).graph(), CPU)):
        judge(func, CPU, 1 + n % 2, 1, f"{name}/{n}")


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("op", ["sum", "softmax", "gate"])
def test_the_version_for_short_rows_is_part_of_the_point(op: str, threads: int) -> None:
    *_, (job,) = kernel_jobs(prepare(graph(op), HALVES, 3, []), HALVES, threads, Watch())
    made = versions(job.func, HALVES, threads)
    assert made.point["versions"] == "short_rows" and made.joined is not None
    assert any(name.startswith("short_rows.") for name in made.point)
    for seed in range(6):
        try:
            other = chosen_versions(job.func, HALVES, threads, drawn(Random(seed)))
        except ScheduleError:
            continue
        assert not rebuild(job.func, HALVES, threads, other)


def test_names_are_of_blocks_and_in_the_words_of_the_field() -> None:
    func = conv()
    made = default(func, CPU, 2, strict=True)
    known = "tile_m tile_n tile_h tile_w block_m block_h chunk_m chunk_n unroll interleave order"
    known += " parallel prefetch compute_at skip_zeros algorithm"
    for name in set(decisions(made)) - {"strategy"}:
        block, what = name.rsplit(".", 1)
        assert block in {*made.blocks(), "pad"} and what in known.split()


def refusal(func: Func, wanted: dict[str, Any], threads: int = 1, build: Any = point) -> str:
    with pytest.raises(ScheduleError) as refused:
        build(func, CPU, threads, wanted)
    return str(refused.value)


def test_what_a_point_cannot_follow_it_says() -> None:
    func = conv()
    own = decisions(default(func, CPU, 1, strict=True))
    unknown = refusal(func, {**own, "conv.tile_q": 3})
    assert "'conv.tile_q': there is no such decision here; there are strategy, " in unknown
    illegal = refusal(func, {**own, "conv.tile_w": 10_000})
    assert "cannot set decision 'conv.tile_w' to 10000: it may be one of 1, 2, " in illegal
    less = {n: v for n, v in own.items() if n != "conv.tile_w"}
    assert "'conv.tile_w': the point leaves it out; it may be one of 1, 2" in refusal(func, less)
    assert partial(func, CPU, 1, less).func == point(func, CPU, 1, own).func
    assert "'conv.tile_q'" in refusal(func, {"conv.tile_q": 3}, build=partial)
    assert "'conv.parallel'" in refusal(func, {**own, "conv.parallel": 1})  # of one thread: none


def test_a_value_is_of_its_own_type() -> None:
    """As text some formats have 4.0 for 4."""
    func = matmul(24, 24, 24).func
    own = decisions(default(func, MACHINE, 1, strict=True))
    other = {n: float(v) if type(v) is int else v for n, v in own.items()}
    assert decisions(point(func, MACHINE, 1, other)) == own
    assert {*map(type, decisions(point(func, MACHINE, 1, other)).values())} <= {int, str}


def test_another_strategy_is_a_point_too() -> None:
    func = conv()
    for strategy in ("family", "one_thread", "generic"):
        made = partial(func, CPU, 2, {"strategy": strategy})
        assert decisions(made)["strategy"] == strategy
        assert point(func, CPU, 2, decisions(made)).func == made.func


def test_what_a_decision_may_be_does_not_follow_from_a_model_of_costs() -> None:
    """The same values on machines that differ in costs, where the same was decided before."""

    def asked(line: str, func: Func, threads: int, seed: int) -> list[Any]:
        rng, found = Random(seed), list[Any]()

        def choose(name: str, pick: Any, values: tuple[Any, ...]) -> Any:
            found.append((name, values))
            return pick if name == "strategy" else rng.choice(values)

        try:
            scheduled(func, target(line), threads, choose)
        except ScheduleError as fault:
            found.append(str(fault))
        return found

    lines = ["cpu -mcpu=skylake-avx512 -cores=2 -costs=" + c for c in (
        "default", "loads:0.5,multiply_adds:4.0,fork_join:9.0e6",
        "l2:4.0,l3:2.0,transform:9.0,fork_join:10.0",
    )]  # fmt: skip
    for name in FAMILIES:
        for number in range(2):
            for func in kernels(draw_case(number, 5, name)[0], target(lines[0])):
                for threads in (1, 2):
                    first, *others = (asked(line, func, threads, number) for line in lines)
                    assert all(other == first for other in others), func


WRITER = """
import json, pickle, sys
from tilewright.driver.kernels import Job, write
job = pickle.loads(sys.stdin.buffer.read())
print(json.dumps(write(job).emitted.text))
"""


def test_a_point_as_text_builds_the_same_code_in_another_process() -> None:
    func = conv()
    made = sample(func, CPU, 2, Random(4))
    text = json.dumps(decisions(made))
    job = Job(func, str(CPU), 2, point=json.loads(text))
    here = write(job)
    assert here.point == decisions(made) != decisions(default(func, CPU, 2))
    found = subprocess.run(
        [sys.executable, "-c", WRITER], input=pickle.dumps(job),
        capture_output=True, check=True,
    )  # fmt: skip
    assert json.loads(found.stdout) == here.emitted.text
