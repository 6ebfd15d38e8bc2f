"""Every point of a kernel's space is built exactly or refused with the reason; none is replaced.

    python -m tests.strategy.points [--count 200] [--points 3] [--models resnet50,…] [--family conv]

Kernels are those of the benchmarks' models and of random shapes of every family. Of each, on one
thread and on two: the default's point, and so many random points of all its strategies, go through
text and are built again.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Annotated, Any

import typer
from rich.progress import track

from tests import zoo
from tests.strategy.random_shapes import FAMILIES, draw_case
from tilewright.driver.compile import kernel_jobs, prepare
from tilewright.driver.observe import Watch
from tilewright.driver.source import open_source
from tilewright.driver.versions import Versions, chosen_versions, versions
from tilewright.graph import Graph
from tilewright.ir.stmt import Func
from tilewright.support.errors import ScheduleError
from tilewright.target.target import Target, target

MODELS = tuple(m for m in zoo.names() if not m.startswith("filled_"))  # those are the same nets
OTHER = 0.2  # of random points are of another strategy than the family's


def drawn(rng: Random) -> Any:
    """Takes decisions at random, the strategy seldom another than its pick."""

    def choose(name: str, pick: Any, values: tuple[Any, ...]) -> Any:
        if name.endswith("strategy") and rng.random() > OTHER:
            return pick
        return rng.choice(values)

    return choose


def rebuild(func: Func, machine: Target, threads: int, made: Versions) -> str:
    """What is wrong with the kernel that the point of `made`, as text, names; "" if nothing is."""
    again = versions(func, machine, threads, json.loads(json.dumps(made.point)))
    if again.point != made.point:
        return f"point {again.point} instead of {made.point}"
    if again.schedule.func != made.schedule.func or again.joined != made.joined:
        return f"another function for {made.point}"
    return ""


def judge(func: Func, machine: Target, threads: int, points: int, seed: str) -> Counter[str]:
    """How many points of a kernel are built and how many refused. Raises AssertionError for one
    that is neither."""
    found: Counter[str] = Counter()
    wrong = rebuild(func, machine, threads, versions(func, machine, threads))
    assert not wrong, f"default: {wrong}"
    found["default"] += 1
    for number in range(points):
        try:
            made = chosen_versions(func, machine, threads, drawn(Random(f"{seed}/{number}")))
        except ScheduleError as fault:
            assert fault.what and fault.why
            found["refused"] += 1
            continue
        wrong = rebuild(func, machine, threads, made)
        assert not wrong, wrong
        found["built"] += 1
    return found


def kernels(graph: Graph, machine: Target) -> Iterator[Func]:
    """The kernels of a graph."""
    for job in kernel_jobs(prepare(graph, machine, opt_level=3), machine, 1, Watch())[-1]:
        yield job.func.replace(name="kernel")


def graphs(models: str, family: str, count: int, seed: int) -> Iterator[tuple[str, list[Graph]]]:
    """Each model's graph, and each family's."""
    for name in filter(None, models.split(",")):
        yield name, [open_source(str(zoo.model(name).onnx_path)).graph()]
    for name in [family] if family else FAMILIES if count else ():
        yield name, [draw_case(n, seed, name)[0] for n in range(count)]


def main(
    count: Annotated[int, typer.Option(help="random shapes of each family")] = 200,
    points: Annotated[int, typer.Option(help="random points of each kernel")] = 3,
    seed: Annotated[int, typer.Option(help="of all random choices")] = 1,
    models: Annotated[str, typer.Option(help="comma-separated")] = ",".join(MODELS),
    family: Annotated[str, typer.Option(help="only this family")] = "",
    line: Annotated[str, typer.Option(help="the machine")] = "cpu",
) -> None:
    """Build and build again; exit code 1 if a point fails."""
    machine, failures, known, every = target(line), 0, set[Func](), Counter[str]()
    for name, found in graphs(models, family, count, seed):
        began, counts = time.perf_counter(), Counter[str]()
        fresh = dict.fromkeys(f for graph in found for f in kernels(graph, machine))
        for number, func in enumerate(track([f for f in fresh if f not in known], name)):
            for threads in (1, 2):
                try:
                    counts += judge(func, machine, threads, points, f"{seed}/{name}/{number}")
                except Exception as fault:  # one broken kernel must not end the run
                    failures += 1
                    print(f"{name}, {threads} threads: {type(fault).__name__}: {fault}\n{func}")
        known |= {*fresh}
        every += counts
        print(f"{name}: {told(counts)}, {time.perf_counter() - began:.0f} s", flush=True)
    print(f"{len(known)} kernels: {told(every)}; {failures} failures")
    sys.exit(bool(failures))


def told(counts: Counter[str]) -> str:
    return ", ".join(f"{n} {what}" for what, n in counts.items())


if __name__ == "__main__":
    typer.run(main)
