"""Looking into a model: any of its kernels at any stage.

In: the path of a model. Out: text and tables. For one kernel, only that kernel is compiled.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from rich.console import Console

from tilewright.backend.backend import backend_of
from tilewright.driver.compile import compile_graph, kernel_jobs, prepare
from tilewright.driver.kernels import Job, KernelPool, compile_kernel
from tilewright.driver.observe import Watch, text_of
from tilewright.driver.report import tables
from tilewright.driver.report.progress import compiling
from tilewright.driver.source import Shapes, open_source
from tilewright.driver.versions import versions
from tilewright.lower.pipeline import STAGES
from tilewright.runtime.executor import default_threads, load
from tilewright.schedule.trace import Trace
from tilewright.support import knobs
from tilewright.support.errors import CompileError
from tilewright.target.target import target as read_target


def model_jobs(
    path: str | os.PathLike[str],
    target: str,
    threads: int | None,
    opt_level: int,
    shapes: Shapes | None = None,
    winograd: bool | None = None,
) -> list[Job]:
    """The kernels of a model, not compiled yet."""
    machine, threads = read_target(target), threads or default_threads()
    winograd = knobs.WINOGRAD.read() if winograd is None else winograd
    graph = open_source(path, shapes=shapes).graph()
    fused = prepare(graph, machine, opt_level, winograd=winograd)
    return kernel_jobs(fused, machine, threads, Watch())[-1]


def find_job(jobs: Sequence[Job], name: str) -> Job:
    """The kernel called `name` ("k3" is enough). Raises CompileError with the names there are."""
    for job in jobs:
        if name in (job.func.name, job.func.name.partition("_")[0]):
            return job
    names = ", ".join(job.func.name for job in jobs)
    raise CompileError(
        f"cannot show kernel '{name}'", "there is no such kernel", remedy=f"kernels: {names}"
    )


def kernel_text(job: Job, stage: str) -> str:
    """A kernel in one of the forms it takes: te, trace (what its strategy did), schedule; loops,
    flat and vector (the stages of lowering); llvm, asm."""
    if stage == "te":
        return text_of(job.func)
    if stage == "trace":
        return trace_text(
            versions(job.func, read_target(job.target), job.threads, job.point).schedule.trace
        )
    seen: dict[str, Any] = {}

    def keep(step: str, before: Any, after: Any, seconds: float) -> None:
        seen[step] = after

    compile_kernel(job, [keep])
    last = {"schedule": "schedule", "llvm": "emit", "asm": "assembly"}
    machine = read_target(job.target)
    passes = [p for p in backend_of(machine).pipeline if p.fits(machine)]
    last |= {stage: p.name for stage in STAGES for p in passes if p.gives == stage}
    return text_of(seen[last[stage]])


def trace_text(trace: Trace) -> str:
    """A trace as the calls that made it."""
    lines = [f"# {name} = {value!r}" for name, value in trace.decisions.items()]
    for step in trace.steps:
        words = [*map(_plain, step.args), *(f"{k}={_plain(v)}" for k, v in step.named)]
        lines.append(f"s.{step.primitive}({', '.join(words)})")
    return "\n".join(lines) + "\n"


def _plain(value: Any) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(map(_plain, value))}{',' * (len(value) == 1)})"
    return repr(value)


def show_model(
    console: Console,
    path: str,
    parts: Sequence[str],
    target: str,
    threads: int | None,
    opt_level: int,
    shapes: Shapes | None = None,
    winograd: bool | None = None,
) -> None:
    """Print parts of a model: graph, fused, memory, kernels."""
    machine, threads = read_target(target), threads or default_threads()
    seen: dict[str, Any] = {}

    def keep(step: str, before: Any, after: Any, seconds: float) -> None:
        seen[step] = after

    with compiling(console, os.path.basename(path)) as stages:
        with stages("import"):
            graph = open_source(path, shapes=shapes).graph()
        if parts == ["graph"]:
            console.print(str(graph), markup=False, soft_wrap=True)
            return
        with KernelPool() as pool:
            program = compile_graph(
                graph, [machine], threads, opt_level, pool, stages, observers=[keep],
                winograd=winograd,
            )  # fmt: skip
    kernels = program.manifest.kernels
    for part in parts:
        if part == "graph":
            _headed(console, "the graph as it was read", str(seen["import"]))
        elif part == "fused":
            _headed(console, "the groups, and why each edge is fused or cut", str(seen["fuse"]))
            every = (g for part in seen["fuse"].parts() for g in part.groups)
            groups = [g for g in every if not g.is_view and not g.is_loop]
            console.print(tables.groups_table(kernels, groups))
        elif part == "memory":
            plan = seen["plan_memory"]
            _headed(console, "the memory plan", str(plan))
            live, total = map(tables.bytes_text, (plan.live_bytes, plan.typical_bytes))
            console.print(f"{total} planned; {live} live at once\n")
        else:
            shown = [tables.kernels_table(kernels), *tables.fallbacks_tables(program.manifest)]
            console.print(*shown)


def _headed(console: Console, title: str, text: str) -> None:
    console.print(title, style="bold")
    console.print(text.rstrip() + "\n", markup=False, soft_wrap=True)


def show_artifact(console: Console, path: str) -> None:
    """Print what a compiled model says of itself."""
    exe = load(path)
    manifest = exe.manifest
    for title, infos in (("inputs", exe.inputs), ("outputs", exe.outputs)):
        console.print(f"{title}: {', '.join(map(str, infos))}", markup=False)
    targets = manifest.notes.get("targets", [manifest.target])
    for n, target in enumerate(targets):
        picked = "; this machine runs it" if n == exe.variant and len(targets) > 1 else ""
        console.print(f"for {target}{picked}", markup=False, soft_wrap=True)
    console.print(
        f"{tables.bytes_text(len(exe.artifact()))} in the file, "
        f"{tables.bytes_text(exe.arena_bytes)} of working memory"
    )
    console.print(tables.kernels_table(manifest.kernels), *tables.fallbacks_tables(manifest))
