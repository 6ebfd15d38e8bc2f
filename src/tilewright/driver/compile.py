"""From a model to an executable: every room in turn.

In: a model file, an ONNX model, a torch module or a graph. Out: an `Executable`. What a fresh
compile makes is an artifact, and the artifact is what is loaded, so that compiling, caching and
deploying share one path.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tilewright import __version__, te
from tilewright.arith.simplify import Facts
from tilewright.codegen.host import (
    ENTRY,
    SHAPES,
    Launch,
    Measure,
    Place,
    Provide,
    Require,
    Step,
    host_program,
)
from tilewright.codegen.link import link
from tilewright.codegen.llvm_compile import compile_object
from tilewright.driver.build import aligned_bytes, dim, dims, info, variant
from tilewright.driver.identity import artifact_key
from tilewright.driver.kernels import Job, Kernel, KernelPool
from tilewright.driver.observe import Watch, watch
from tilewright.driver.source import open_source
from tilewright.driver.stages import Observer, Stages
from tilewright.graph import sizes
from tilewright.graph.builder import symbols_of
from tilewright.graph.graph import Graph, Node, Value
from tilewright.graph.group import FusedGraph, FusedGroup, group_func
from tilewright.graph.passes.choose_layouts import choose_layouts
from tilewright.graph.passes.fuse import fuse
from tilewright.graph.passes.pipeline import PIPELINE, optimise
from tilewright.graph.passes.plan_memory import MemoryPlan, is_measured, plan_memory
from tilewright.ir.dtype import DType, i64
from tilewright.ir.expr import Expr, Var, as_int, const, expr, maximum
from tilewright.ir.stmt import Func
from tilewright.runtime import abi
from tilewright.runtime.artifact import write_artifact
from tilewright.runtime.executor import Executable, default_threads
from tilewright.runtime.tensor import pack
from tilewright.strategy.work import flops, touched
from tilewright.support import knobs
from tilewright.support.cache import Cache
from tilewright.support.collector import collector_paused
from tilewright.support.errors import CompileError
from tilewright.target.target import Target
from tilewright.target.target import target as read_target


def compile_observed(
    source: Any,
    target: str | Target = "cpu",
    *,
    example_inputs: Sequence[Any] | None = None,
    threads: int | None = None,
    opt_level: int = 3,
    cache: bool = True,
    stages: Stages | None = None,
    observers: Sequence[Observer] = (),
    pool: KernelPool | None = None,
    identity: str | None = None,
) -> Executable:
    """`compile`, seen by observers: `stages` counts time and tells progress; `observers` see each
    step of the graph, so that nothing then comes from the cache. `pool` compiles the kernels and
    stays open; without it a pool is made for this model. `identity`: that of a model file which is
    known not to be in the cache."""
    machine, count = _machine(target), _threads(threads)
    if opt_level not in range(4):
        raise CompileError(
            f"cannot compile with opt_level={opt_level!r}", "it is a whole number from 0 to 3"
        )
    seen = watch()
    stages = stages or Stages()
    with stages("identify"):
        opened = open_source(source, example_inputs, identity)
        store = Cache() if cache and opened.identity is not None else None
        key = artifact_key(opened.identity or "", target, count, opt_level)
    made: Executable | None = None
    if store is not None and identity is None and not observers and not seen.is_on:
        with stages("load"):
            made = store.fetch(key, lambda path: Executable(path, count))
    if made is None:
        with contextlib.nullcontext(pool) if pool else KernelPool() as workers:
            if opened.is_large:
                workers.start()
            with stages("import"):
                graph = opened.graph()
            name = Path(source).stem if isinstance(source, str | os.PathLike) else graph.name
            program = compile_graph(
                graph, machine, count, opt_level, workers, stages, seen.named(name), observers
            )
        with stages("write"):
            path = _write(program, store, key)
        with stages("load"):
            made = Executable(path, count)
            if store is None:
                path.unlink()
    made.compile_stages = stages
    if knobs.TIME.read():
        sys.stderr.write(f"# compiling {made.name} took\n{stages}\n\n")
    return made


def compile_file(
    source: Any,
    path: str | os.PathLike[str],
    target: str | Target = "cpu",
    *,
    threads: int | None = None,
    opt_level: int = 3,
    stages: Stages | None = None,
) -> abi.Manifest:
    """Compile a model into the artifact `path`, for any CPU; nothing is loaded or cached."""
    machine, count, stages = _machine(target), _threads(threads), stages or Stages()
    seen = watch().named(Path(path).stem)
    with KernelPool() as pool:
        with stages("import"):
            graph = open_source(source, None).graph()
        program = compile_graph(graph, machine, count, opt_level, pool, stages, seen)
    with stages("write"):
        write_artifact(program, path)
    return program.manifest


def _machine(target: str | Target) -> Target:
    machine = read_target(target)
    if machine.kind != "cpu":
        raise CompileError(
            f"cannot compile a model for '{machine.kind}'",
            "whole models run on CPUs; other targets compile single functions",
            remedy="use target='cpu', or tw.build(func, target) for one function",
        )
    return machine


def _threads(threads: int | None) -> int:
    if threads is None:
        return default_threads()
    if isinstance(threads, bool) or not isinstance(threads, int) or threads < 1:
        raise CompileError(f"cannot compile for threads={threads!r}", "expected 1 or more")
    return threads


def _write(program: abi.Program, store: Cache | None, key: str) -> Path:
    """The artifact as a file: in the cache, else a temporary one."""
    if store is not None:
        kept = store.store(key, lambda file: write_artifact(program, file))
        if kept is not None:
            return kept
    handle, name = tempfile.mkstemp(suffix=".tw")
    with os.fdopen(handle, "wb") as file:
        write_artifact(program, file)
    return Path(name)


def prepare(
    graph: Graph, machine: Target, opt_level: int, observers: Sequence[Observer] = ()
) -> FusedGraph:
    """The graph passes, up to groups that become kernels."""
    if opt_level >= 1:
        graph = optimise(graph, observers=observers)
    if opt_level >= 2:
        vectors = machine.lanes(32), machine.vector_registers, machine.cache(1).size
        layouts = ("choose_layouts", lambda g: choose_layouts(g, *vectors))
        graph = optimise(graph, pipeline=[layouts, *PIPELINE], observers=observers)
    start = time.perf_counter()
    fused = fuse(graph)
    for see in observers:
        see("fuse", graph, fused, time.perf_counter() - start)
    return fused


@collector_paused()
def compile_graph(
    graph: Graph,
    machine: Target,
    threads: int,
    opt_level: int = 3,
    pool: KernelPool | None = None,
    stages: Stages | None = None,
    watch: Watch | None = None,
    observers: Sequence[Observer] = (),
) -> abi.Program:
    """A graph as a program that an artifact can hold."""
    stages, watch = stages or Stages(), watch or Watch()
    watchers = (watch.trail(), *observers)

    def see(step: str, after: Any) -> None:
        for observer in watchers:
            observer(step, None, after, 0.0)

    see("import", graph)
    with stages("passes"):
        fused = prepare(graph, machine, opt_level, [stages.observe("passes"), *watchers])
    with stages("te"):
        groups, funcs, unique, jobs = kernel_jobs(fused, machine, threads, watch)
    with stages("kernels"):
        kernels = (pool or KernelPool()).compile(
            jobs, lambda done: stages.progress("kernels", done, len(jobs))
        )
    for kernel in kernels:
        for part, seconds in kernel.seconds.items():
            stages.add(f"kernels/{part}", seconds)
    with stages("plan"):
        compiled = {g.name: kernels[unique[f]] for g, f in zip(groups, funcs, strict=True)}
        workspace = {name: _workspace_bytes(k) for name, k in compiled.items() if k.workspace}
        plan = plan_memory(fused, workspace=workspace)
    see("plan_memory", plan)
    with stages("host"):
        program, text = _program(fused, groups, funcs, compiled, kernels, plan, machine)
    see("host", text)
    return program


def kernel_jobs(
    fused: FusedGraph, machine: Target, threads: int, watch: Watch
) -> tuple[list[FusedGroup], list[Func], dict[Func, int], list[Job]]:
    """The groups that need code, the function of each, and one job for all groups of one function:
    the number of a function is that of its job."""
    groups = [g for g in fused.groups if not g.is_view]
    funcs = [_func(g) for g in groups]
    unique = {f: n for n, f in enumerate(dict.fromkeys(funcs))}
    names = [_kernel_name(groups[funcs.index(f)], n) for f, n in unique.items()]
    jobs = [
        Job(f.replace(name=name), str(machine), threads, watch)
        for f, name in zip(unique, names, strict=True)
    ]
    return groups, funcs, unique, jobs


def _func(group: FusedGroup) -> Func:
    inputs, outputs = group_func(group)
    return te.func("kernel", inputs, outputs)


def _kernel_name(group: FusedGroup, number: int) -> str:
    ops = [op.removesuffix("_packed") for op in dict.fromkeys(group.ops)]
    return f"k{number}_" + "_".join(ops[:4]) + ("_etc" if len(ops) > 4 else "")


def _workspace_bytes(kernel: Kernel) -> Expr:
    """Bytes of the buffers that live between a kernel's launches, each aligned."""
    total: Expr = const(0)
    for buffer in kernel.workspace:
        total = total + aligned_bytes(buffer)
    return sizes.size(total)


def _required(node: Node, known: Facts) -> list[Expr]:
    """What must not be negative for a slice to lie inside its operand, as far as sizes do not say
    so now."""
    found: list[Expr] = []
    axes = zip(node["starts"], node["shape"], node.inputs[0].shape, strict=True)
    for d, (start, count, total) in enumerate(axes):
        start, count, total = sizes.shape((start, count, total))
        step = as_int(node["steps"][d]) if node["steps"] else 1
        if step is None or (count == total and as_int(start) == 0):
            continue
        last = start + (count - 1) * step
        ends = (start, total - 1 - last) if step > 0 else (total - 1 - start, last)
        for e in ends:
            if as_int(e) is None and not known.nonnegative(known.affine(e)):
                found.append(maximum(e, const(0) - count))  # no places lie anywhere
    return found


def _program(
    fused: FusedGraph,
    groups: Sequence[FusedGroup],
    funcs: Sequence[Func],
    compiled: dict[str, Kernel],
    kernels: Sequence[Kernel],
    plan: MemoryPlan,
    machine: Target,
) -> tuple[abi.Program, str]:
    """The program, and the host program's text."""
    graph = fused.graph
    used = dict.fromkeys(v for g in groups for v in g.inputs if plan.places[v].space == "constant")
    # views of constants share the constant's place
    stored = list(dict.fromkeys(plan.places[v].at for v in used))
    by_index = list(graph.constants)
    constants = [by_index[sizes.at(at, {})] for at in stored]
    offsets, _ = abi.plan_weights([_nbytes(v) for v in constants])
    weight_at = dict(zip(stored, offsets, strict=True))

    def place(value: Value) -> Place:
        found = plan.places[value]
        if found.space == "constant":
            return Place("weights", offset=weight_at[found.at])
        if found.space == "arena":
            return Place("arena", offset=found.at)
        index = sizes.at(found.at, {})
        if found.space == "output" and is_measured(graph.outputs[index], measured):
            return Place("buffer", index=index)  # allocated once its size is known
        return Place(found.space, index=index)

    measured = set(graph.measured)
    symbols = (*graph.symbols, *graph.measured)
    steps: list[Step] = []
    of_func = {g.name: (n, f) for n, (g, f) in enumerate(zip(groups, funcs, strict=True))}
    tells: list[str] = []
    known = Facts(
        {s: graph.ranges.get(s.name, (1, None)) for s in graph.symbols}
        | dict.fromkeys(measured, (0, None))
    )
    # What computes takes sizes from 1 on; an axis that nothing reads may also be empty.
    used = {s for node in graph.nodes for s in symbols_of(node)}
    used.update(s for v in graph.outputs for s in sizes.symbols(v.shape))
    for group in fused.groups:
        if group.name not in of_func:
            for node in group.nodes:
                if node.op == "measure":
                    names = tuple((symbols.index(Var(s)), s) for s in node["symbols"])
                    steps.append(Measure(place(node.inputs[0]), names, len(tells), node["least"]))
                    tells.append(node["what"])
            continue
        number, func = of_func[group.name]
        kernel = compiled[group.name]
        for node in group.nodes:
            for size in _required(node, known) if node.op == "slice" else ():
                steps.append(Require(size, len(tells)))
                tells.append(f"slice '{node.output.name}' of {node.inputs[0]!r}")
        values = (*group.inputs, *group.outputs)
        for v in group.outputs:
            at = place(v)
            if at.space == "buffer":
                steps.append(Provide(at.index, v.nbytes))
        places = {b.name: place(v) for b, v in zip(func.buffers, values, strict=True)}
        if group.name not in plan.workspaces and kernel.workspace:
            at = Place("buffer", len(graph.outputs) + plan.buffers)
            steps.append(Provide(at.index, _workspace_bytes(kernel)))
            places.update(_row(kernel, at))
        elif kernel.workspace:
            places.update(_row(kernel, Place("arena", offset=plan.workspaces[group.name].at)))
        for entry in kernel.entries:
            steps.append(
                Launch(
                    number,
                    entry.symbol,
                    entry.extent,
                    tuple(places[b] for b in entry.buffers),
                    tuple(Var(s) for s in entry.symbols),
                )
            )
    outputs = graph.outputs
    shapes = [v.shape for v in outputs] if symbols else None
    names = [s.name for s in symbols]
    given = len(graph.symbols)
    text = host_program(steps, machine, names[:given], shapes, plan.arena_bytes, names)
    objects = [*(k.code for k in kernels), compile_object(text, machine)]
    image = link(objects, [ENTRY, SHAPES] if symbols else [ENTRY])
    manifest = abi.Manifest(
        name=graph.name,
        inputs=_infos(graph.inputs, graph.input_names, graph.formats),
        outputs=_infos(outputs, graph.output_names, graph.formats),
        symbols=tuple(
            _symbol(s, graph, least=int(s in used and s not in measured)) for s in symbols
        ),
        kernels=tuple(
            _info(compiled[g.name].name, g, f) for g, f in zip(groups, funcs, strict=True)
        ),
        target=machine.triple,
        compiler=__version__,
        notes={
            "arena_live_bytes": plan.live_bytes,
            "arena_bytes": plan.typical_bytes,
            "target": str(machine),
            **({"measured": tells} if tells else {}),
        },
    )
    program = abi.Program(
        manifest,
        [variant(machine, image.bytes, image.entries[ENTRY], image.entries.get(SHAPES))],
        [
            abi.Weight(offset, _nbytes(v), (lambda v=v: _stored(graph.array(v), v.dtype)))
            for offset, v in zip(offsets, constants, strict=True)
        ],
        arena_bytes=max(0, sizes.at(plan.arena_bytes, dict.fromkeys(symbols, 1))),
        scratch_bytes=max((e.scratch_bytes for k in kernels for e in k.entries), default=0),
    )
    return program, text


def _row(kernel: Kernel, start: Place) -> dict[str, Place]:
    """Where a kernel's workspace buffers lie: in a row from `start` on."""
    at = expr(start.offset, i64)
    places: dict[str, Place] = {}
    for buffer in kernel.workspace:
        places[buffer.name] = Place(start.space, start.index, sizes.size(at))
        at = at + aligned_bytes(buffer)
    return places


def _stored(array: np.ndarray, of: DType) -> np.ndarray:
    """A constant's bytes as kernels read them."""
    return pack(array, of.bits) if of.is_packed else array


def _nbytes(value: Value) -> int:
    return sizes.at(value.nbytes, {})


def _symbol(symbol: Var, graph: Graph, least: int) -> abi.Symbol:
    """What the runtime holds a symbol to; `least`: what our own code needs."""
    low, high = graph.ranges.get(symbol.name, (least, abi.MOST_SYMBOL))
    return abi.Symbol(symbol.name, max(low, least), high, symbol in graph.measured)


def _infos(
    values: Sequence[Value], names: Sequence[str], formats: Mapping[str, str]
) -> tuple[abi.TensorInfo, ...]:
    return tuple(
        info(name, v, formats.get(name, "")) for v, name in zip(values, names, strict=True)
    )


def _info(name: str, group: FusedGroup, func: Func) -> abi.KernelInfo:
    nbytes = sizes.size(0)
    for buffer, count in touched(func).items():
        nbytes = nbytes + sizes.size((sizes.size(count) * buffer.dtype.bits + 7) // 8)
    return abi.KernelInfo(
        name,
        tuple(group.ops),
        dims(group.outputs[0].shape),
        dim(sizes.size(flops(func))),
        dim(sizes.size(nbytes)),
    )
