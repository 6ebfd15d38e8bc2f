"""The default schedules beside random points of their own spaces, on kernels of real models.

    python -m benchmarks.space compile FOLDER     the kernels, and points of each one's space
    python -m benchmarks.space measure FOLDER     time them; may be stopped, and goes on
    python -m benchmarks.space table FOLDER       the page

Kernels are drawn from the models by their part of the time, in turns of the families. Points are
timed with the default between them; then the default and the best points again in turns, so that
the best is no lucky draw. One thread.
"""

from __future__ import annotations

import datetime
import json
import pickle
import time
from collections import defaultdict
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from typing import Annotated, Any

import numpy as np
import typer
from rich.progress import track

from benchmarks import machine, pages
from benchmarks.kernel import Code, Run, code, elements, memory
from tests import zoo
from tilewright.driver.compile import kernel_jobs, prepare
from tilewright.driver.observe import Watch
from tilewright.frontend.onnx import import_onnx
from tilewright.ir.expr import as_int
from tilewright.ir.stmt import Func
from tilewright.schedule.schedule import Schedule
from tilewright.strategy.roles import family
from tilewright.strategy.select import default
from tilewright.strategy.space import decisions, sample
from tilewright.target.target import target

MODELS = (
    "resnet18", "resnet50", "mobilenet_v1", "mobilenet_v2", "dqn", "dcgan", "lstm_lm", "bert_base",
    "gpt2", "gpt2_decode", "light_squeezenet", "light_shufflenet", "light_inception_v1",
    "light_densenet121",
)  # fmt: skip
CPU = target("cpu")
LONGEST = 0.04  # seconds that a kernel may take, so that all its points can be timed
SHORTEST = 5e-6  # below this the call is what is measured
SLICE, FINAL_SLICE = 0.002, 0.01  # seconds for one point
FINALISTS, FINAL_ROUNDS = 10, 12
TOLERANCE = 1e-4  # of the largest result, beside the default's
GOAL = 1.15

app = typer.Typer(add_completion=False)


@dataclass
class Kernel:
    """A kernel of a model, and where its time goes."""

    func: Func
    family: str
    models: list[str] = field(default_factory=list)
    weight: float = 0.0  # its part of its models' time, summed
    times: dict[str, int] = field(default_factory=dict)  # how often each model runs it


@dataclass
class Point:
    """A point: what it decided, and its shortest time in seconds."""

    decisions: dict[str, Any]
    seconds: float = 0.0


def kernels(models: tuple[str, ...] = MODELS) -> list[Kernel]:
    """The distinct kernels of static sizes."""
    found: dict[Func, Kernel] = {}
    for name in models:
        fused = prepare(import_onnx(zoo.model(name, 1).onnx_path), CPU, opt_level=3)
        _, funcs, _, unique, jobs = kernel_jobs(fused, CPU, 1, Watch())
        for func in unique:
            try:
                for buffer in func.buffers:
                    elements(buffer)
            except ValueError:
                continue
            kernel = found.setdefault(func, Kernel(jobs[unique[func]].func, family(func)))
            kernel.times[name] = funcs.count(func)
    return list(found.values())


def schedule_of(func: Func, seed: int | None) -> Schedule:
    """The default (no seed) or a random point."""
    return default(func, CPU) if seed is None else sample(func, CPU, 1, Random(seed))


def decided(func: Func, seed: int | None) -> dict[str, Any]:
    """What a point decides."""
    return decisions(schedule_of(func, seed))


def compiled(func: Func, seed: int | None) -> Code:
    """A point's code."""
    return code(schedule_of(func, seed).func, CPU)


def draw(every: list[Kernel], count: int, pool: Executor) -> list[Kernel]:
    """The kernels to look at: of each family in turn the one that costs its models most."""
    codes = pool.map(compiled, [k.func for k in every], [None] * len(every))
    seconds = {}
    for kernel, made in zip(every, codes, strict=True):
        seconds[id(kernel)] = Run(made, memory(kernel.func)).seconds(SLICE)
    for name in {model for k in every for model in k.times}:
        total = sum(seconds[id(k)] * k.times.get(name, 0) for k in every)
        for k in every:
            k.weight += seconds[id(k)] * k.times.get(name, 0) / total
    fit = [k for k in every if SHORTEST < seconds[id(k)] < LONGEST]
    families: dict[str, list[Kernel]] = defaultdict(list)
    for kernel in sorted(fit, key=lambda k: -k.weight):
        families[kernel.family].append(kernel)
    chosen: list[Kernel] = []
    while len(chosen) < min(count, len(fit)):
        chosen += [of.pop(0) for of in families.values() if of]
    return chosen[:count]


def compile_points(kernel: Kernel, points: int, pool: Executor) -> list[tuple[Any, Code]]:
    """The default and so many random points; those with the same decisions once."""
    seeds = [None, *range(points)]
    distinct: dict[str, tuple[int | None, Any]] = {}
    drawn = pool.map(decided, [kernel.func] * len(seeds), seeds, chunksize=8)
    for seed, made in zip(seeds, drawn, strict=True):
        distinct.setdefault(json.dumps(made), (seed, made))
    kept, made = zip(*distinct.values(), strict=True)
    codes = pool.map(compiled, [kernel.func] * len(kept), kept, chunksize=4)
    return list(zip(made, codes, strict=True))


def timed(kernel: Kernel, made: list[tuple[Any, Code]]) -> dict[str, Any]:
    """Times of the default and the best points. Raises AssertionError for a wrong result."""
    arrays = memory(kernel.func)
    runs = [Run(c, arrays) for _, c in made]
    points = [Point(d) for d, _ in made]
    runs[0]()
    expected = {n: a.copy() for n, a in arrays.items() if a.dtype.kind == "f"}
    points[0].seconds = runs[0].seconds(SLICE)
    for run, point in zip(runs[1:], points[1:], strict=True):
        run()
        for name, want in expected.items():
            error = np.abs(arrays[name] - want).max(initial=0)
            assert error <= TOLERANCE * np.abs(want).max(initial=1e-30), (point, name, error)
        point.seconds = run.seconds(SLICE)
        points[0].seconds = min(points[0].seconds, runs[0].seconds(0, 1))
    order = sorted(range(1, len(points)), key=lambda n: points[n].seconds)
    finals = [0, *order[:FINALISTS]]
    best = dict.fromkeys(finals, float("inf"))
    for _ in range(FINAL_ROUNDS):
        for n in finals:
            best[n] = min(best[n], runs[n].seconds(FINAL_SLICE))
    return {
        "kernel": kernel.func.name,
        "family": kernel.family,
        "models": list(kernel.times),
        "shapes": [[as_int(d) for d in b.shape] for b in kernel.func.buffers],
        "all": [asdict(p) for p in points],
        "finals": [asdict(Point(points[n].decisions, best[n])) for n in finals],
    }


@app.command("compile")
def compile_all(
    folder: Path,
    count: Annotated[int, typer.Option(help="kernels")] = 30,
    points: Annotated[int, typer.Option(help="random points of each")] = 200,
    models: Annotated[str, typer.Option(help="comma-separated")] = ",".join(MODELS),
) -> None:
    """Draw kernels and compile the points of each, into FOLDER."""
    folder.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor() as pool:
        chosen = folder / "kernels.pickle"
        if not chosen.exists():
            chosen.write_bytes(pickle.dumps(draw(kernels(tuple(models.split(","))), count, pool)))
        for number, kernel in enumerate(track(pickle.loads(chosen.read_bytes()), "compiling")):
            path = folder / f"{number:02}.points"
            if not path.exists():
                path.write_bytes(pickle.dumps((kernel, compile_points(kernel, points, pool))))


@app.command()
def measure(
    folder: Path,
    seconds: Annotated[float, typer.Option(help="start no kernel after so many")] = 1e9,
) -> None:
    """Time the points that are compiled and not timed yet."""
    end = time.monotonic() + seconds
    for path in sorted(folder.glob("*.points")):
        result = path.with_suffix(".json")
        if result.exists() or time.monotonic() > end:
            continue
        kernel, made = pickle.loads(path.read_bytes())
        result.write_text(json.dumps(timed(kernel, made)))
        print(line(json.loads(result.read_text())), flush=True)


def line(found: dict[str, Any]) -> str:
    """One kernel as a row of the table."""
    own, *others = found["finals"]
    best = min(others, key=lambda p: p["seconds"], default=own)
    ratio = own["seconds"] / best["seconds"]
    chosen = own["decisions"]
    changed = [
        f"{name} {chosen.get(name, '-')} → {value}"
        for name, value in best["decisions"].items()
        if chosen.get(name) != value and ratio > 1.0
    ]
    shapes = ["×".join(map(str, shape)) or "1" for shape in found["shapes"]]
    shown = "; ".join([*shapes[:2], *shapes[-1:]])
    cells = [
        found["kernel"], found["family"], found["models"][0], shown, len(found["all"]) - 1,
        f"{own['seconds'] * 1e6:.1f}", f"{best['seconds'] * 1e6:.1f}", f"{ratio:.2f}",
        ", ".join(changed),
    ]  # fmt: skip
    return "| " + " | ".join(map(str, cells)) + " |"


HEAD = """# The default schedules beside their spaces

Written by `python -m benchmarks.space`. {count} kernels of real models, drawn by their part of the
time in turns of the families; of each, up to {points} random points of the space that its strategy
spans (fewer where the space has fewer), compiled and timed on one thread, with the default between
them, then the default and the best {finalists} again in turns. µs, minima; `ratio` is the default's
time over the best point's, and the last column says what that one decided otherwise. Every point's
result agreed with the default's within {tolerance:g} of the largest value.

- {about}
- {good} of {count} kernels: the default is within 15 % of the best point

| kernel | family | model | shapes | points | default | best | ratio | decided otherwise |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |
"""


@app.command()
def table(folder: Path, output: Annotated[Path | None, typer.Option()] = None) -> None:
    """Write the page of what was measured."""
    found = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    rows = [line(f) for f in found]
    ratios = [f["finals"][0]["seconds"] / min(p["seconds"] for p in f["finals"]) for f in found]
    about = machine.describe()
    text = HEAD.format(
        count=len(found), points=200, finalists=FINALISTS, tolerance=TOLERANCE,
        good=sum(r <= GOAL for r in ratios),
        about=f"{about['processor']}, {' '.join(about['instruction_sets'])}; "
        f"{about['system']}; {datetime.date.today().isoformat()}",
    ) + "\n".join(rows) + "\n"  # fmt: skip
    print(text)
    if output is not None:
        pages.write(output, text)


if __name__ == "__main__":
    app()
