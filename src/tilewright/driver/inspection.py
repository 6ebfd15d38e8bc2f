"""Looking into a model: any of its kernels at any stage.

In: the path of a model. Out: text and tables. For one kernel, only that kernel is compiled.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from tilewright.backend.backend import backend_of
from tilewright.driver.build import dim, dims
from tilewright.driver.compile import compile_graph, kernel_jobs, prepare
from tilewright.driver.kernels import Job, KernelPool, compile_kernel
from tilewright.driver.observe import Watch, text_of
from tilewright.driver.report import onnx_graph, records, tables
from tilewright.driver.report.progress import compiling
from tilewright.driver.report.terminal import console, say, show_text
from tilewright.driver.source import Shapes, open_source
from tilewright.driver.versions import versions
from tilewright.graph.graph import Graph
from tilewright.graph.group import FusedGraph, FusedGroup
from tilewright.graph.passes.plan_memory import MemoryPlan
from tilewright.graph.text import attr_text
from tilewright.lower.pipeline import STAGES
from tilewright.runtime import abi
from tilewright.runtime.artifact import WEIGHTS, list_sections
from tilewright.runtime.executor import Executable
from tilewright.runtime.threads import default_threads
from tilewright.schedule.trace import Trace
from tilewright.support import knobs
from tilewright.support.errors import CompileError
from tilewright.support.record import record
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


@record
class Look:
    """A compiled model's parts. fused: the groups after fusion; plan: of its memory."""

    graph: Graph
    fused: FusedGraph
    plan: MemoryPlan
    manifest: abi.Manifest

    @property
    def groups(self) -> list[FusedGroup]:
        """The groups of the manifest's kernels, in their order."""
        every = (g for part in self.fused.parts() for g in part.groups)
        return [g for g in every if not g.is_view and not g.is_loop]


def read_graph(path: str, shapes: Shapes | None) -> Graph:
    """A model's graph, as it was read."""
    return open_source(path, shapes=shapes).graph()


def look(
    path: str,
    target: str,
    threads: int | None,
    opt_level: int,
    shapes: Shapes | None = None,
    winograd: bool | None = None,
) -> Look:
    """Compile a model, and keep what it was on the way."""
    machine, threads = read_target(target), threads or default_threads()
    seen: dict[str, Any] = {}

    def keep(step: str, before: Any, after: Any, seconds: float) -> None:
        seen[step] = after

    with compiling(os.path.basename(path)) as stages:
        with stages("import"):
            graph = read_graph(path, shapes)
        with KernelPool() as pool:
            program = compile_graph(
                graph, [machine], threads, opt_level, pool, stages, observers=[keep],
                winograd=winograd,
            )  # fmt: skip
    return Look(seen["import"], seen["fuse"], seen["plan_memory"], program.manifest)


def show(found: Look, parts: Sequence[str]) -> None:
    """Print parts of a model: graph, fused, memory, kernels."""
    for part in parts:
        if part == "graph":
            _headed("the graph as it was read", str(found.graph))
        elif part == "fused":
            _headed("the groups, and why each edge is fused or cut", str(found.fused))
            console.print(tables.groups_table(found.manifest.kernels, found.groups))
        elif part == "memory":
            _headed("the memory plan", str(found.plan))
            console.print(
                tables.memory_text(found.plan.typical_bytes, found.plan.live_bytes) + "\n"
            )
        else:
            _show_kernels(found.manifest)


def tell(found: Look, parts: Sequence[str]) -> records.Record:
    """Parts of a model as a record."""
    told: records.Record = {}
    if "graph" in parts:
        told["graph"] = graph_record(found.graph)
    if "fused" in parts:
        pairs = zip(found.manifest.kernels, found.groups, strict=True)
        told["groups"] = [
            {
                "kernel": kernel.name,
                "nodes": [node.name for node in group.nodes],
                "ops": list(group.ops),
                "inputs": [value.name for value in group.inputs],
                "outputs": [value.name for value in group.outputs],
                "why": dict(group.why),
            }
            for kernel, group in pairs
        ]
    if "memory" in parts:
        told["memory"] = {
            "arena_bytes": found.plan.typical_bytes,
            "live_bytes": found.plan.live_bytes,
            "values": [
                {"name": value.name, "space": location.space, "at": dim(location.at)}
                for value, location in found.plan.locations.items()
                if location.space != "constant"
            ],
        }
    if "kernels" in parts:
        told |= records.kernels(found.manifest)
    return told


def write_onnx(found: Look, path: os.PathLike[str]) -> None:
    """Write a model's fused graph as an ONNX file to look at."""
    names = [g.name for g in found.groups]
    onnx_graph.write_onnx(found.fused, dict(zip(names, found.manifest.kernels, strict=True)), path)


def graph_record(graph: Graph) -> records.Record:
    """A graph: its values by name, its nodes in order."""
    made = [v for n in graph.nodes for v in n.outputs]
    return {
        "name": graph.name,
        "inputs": [value.name for value in graph.inputs],
        "outputs": [value.name for value in graph.outputs],
        "constants": [value.name for value in graph.constants],
        "values": [
            {"name": v.name, "dtype": str(v.dtype), "shape": list(dims(v.shape))}
            for v in (*graph.inputs, *graph.constants, *made)
        ],
        "nodes": [
            {
                "op": n.op,
                "inputs": [value.name for value in n.inputs],
                "outputs": [value.name for value in n.outputs],
                "attributes": {name: attr_text(value) for name, value in n.attrs},
            }
            for n in graph.nodes
        ],
    }


def _headed(title: str, text: str) -> None:
    console.print(title, style="bold")
    show_text(text.rstrip())
    console.print()


def _show_kernels(manifest: abi.Manifest) -> None:
    for made in (tables.kernels_table(manifest.kernels), *tables.fallbacks_tables(manifest)):
        console.print(made)


# ---- Artifacts ----------------------------------------------------------------------------------

ABSENT = "an artifact holds code and weights, not the graph that it was made of"


def check_artifact(path: str, parts: Sequence[str], stage: str | None) -> None:
    """Raises CompileError where an artifact cannot answer."""
    if "graph" in parts:
        asked, option = "the graph", "--graph"
    elif stage not in (None, "asm"):
        asked, option = f"a kernel's form '{stage}'", f"--kernel … --stage {stage}"
    else:
        return
    raise CompileError(
        f"cannot show {asked} of '{path}'",
        ABSENT,
        remedy=f"inspect the model file: tilewright inspect MODEL.onnx {option}",
    )


def show_artifact(exe: Executable, parts: Sequence[str]) -> None:
    """Print what a compiled model says of itself; without parts, all."""
    manifest = exe.manifest
    if not parts:
        for title, infos in (("inputs", exe.inputs), ("outputs", exe.outputs)):
            say(f"{title}: {', '.join(map(str, infos))}")
        targets = _targets(manifest)
        for n, target in enumerate(targets):
            picked = "; this machine runs it" if n == exe.variant and len(targets) > 1 else ""
            say(f"for {target}{picked}")
        size = tables.bytes_text(len(exe.artifact()))
        say(f"{size} in the file, {tables.bytes_text(exe.arena_bytes)} of working memory")
    if "fused" in parts:
        console.print(tables.kernel_groups_table(manifest.kernels))
        say("Why each group ends where it does, the model file tells: inspect MODEL.onnx --fused")
    if "memory" in parts:
        arena, live = (manifest.notes.get(k, 0) for k in ("arena_bytes", "arena_live_bytes"))
        weights = tables.bytes_text(weight_bytes(exe))
        say(f"{tables.memory_text(arena, live)}; {weights} of weights")
        say("Where each value lives, the model file tells: inspect MODEL.onnx --memory")
    if "kernels" in parts or not parts:
        _show_kernels(manifest)


def tell_artifact(exe: Executable, parts: Sequence[str]) -> records.Record:
    """What a compiled model says of itself, as a record; without parts, all."""
    manifest = exe.manifest
    told: records.Record = {
        "targets": _targets(manifest),
        "variant": exe.variant,
        "bytes": len(exe.artifact()),
    }
    if "memory" in parts or not parts:
        told["memory"] = {
            "arena_bytes": manifest.notes.get("arena_bytes"),
            "live_bytes": manifest.notes.get("arena_live_bytes"),
            "weight_bytes": weight_bytes(exe),
        }
    if "fused" in parts or "kernels" in parts or not parts:
        told |= records.kernels(manifest)
    return told


def weight_bytes(exe: Executable) -> int:
    """Bytes of an artifact's weights."""
    return sum(len(data) for kind, _, data in list_sections(exe.artifact()) if kind == WEIGHTS)


def _targets(manifest: abi.Manifest) -> list[str]:
    return list(manifest.notes.get("targets", [manifest.target]))
