"""From a model to an executable: every room in turn.

In: a model file, an ONNX model, a torch module or a graph. Out: an `Executable`. What a fresh
compile makes is an artifact, and the artifact is what is loaded, so that compiling, caching and
deploying share one path.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from tilewright import te
from tilewright.backend.backend import backend_of, native_of
from tilewright.driver.identity import artifact_key, file_identity, machine_identity
from tilewright.driver.kept import NOTE, open_kept
from tilewright.driver.kernel_cache import KernelCache, kernel_store
from tilewright.driver.kernels import Job, Kernel, KernelPool, nothing
from tilewright.driver.likely_sizes import of_likely_sizes
from tilewright.driver.observe import Watch, watch
from tilewright.driver.own_sizes import Own, own_sizes
from tilewright.driver.program import Code, Likely, assemble, workspaces
from tilewright.driver.source import Shapes, open_source
from tilewright.driver.stages import Observer, Stages, asked, named
from tilewright.graph.bounds import without_checks
from tilewright.graph.graph import Graph, Node
from tilewright.graph.group import FusedGraph, FusedGroup, computation, group_func
from tilewright.graph.layout_policy import Decisions
from tilewright.graph.likely import likely_values
from tilewright.graph.ops.loop import body_of
from tilewright.graph.outside import noting
from tilewright.graph.passes.choose_layouts import choose_layouts
from tilewright.graph.passes.fuse import fuse
from tilewright.graph.passes.one_row import one_row
from tilewright.graph.passes.pipeline import LAST, NEEDED, PIPELINE, optimise
from tilewright.graph.passes.plan_memory import plan_memory
from tilewright.graph.passes.run_together import run_together
from tilewright.graph.passes.widen_convolutions import widen_convolutions
from tilewright.ir.stmt import Func
from tilewright.runtime import abi
from tilewright.runtime.artifact import write_artifact
from tilewright.runtime.executor import Executable
from tilewright.runtime.signing import private_key
from tilewright.runtime.signing import sign as add_signature
from tilewright.runtime.threads import default_threads, is_thread_count
from tilewright.support import knobs
from tilewright.support.cache import Cache, replace_file
from tilewright.support.collector import collector_paused
from tilewright.support.errors import CompileError, ScheduleWarning
from tilewright.support.files import writing
from tilewright.support.logs import INFO, log
from tilewright.support.mapped import release_libraries, release_pages
from tilewright.support.memory import give_back, memory_told
from tilewright.target.processors import architecture, host, is_linked, remember_host
from tilewright.target.target import Target
from tilewright.target.target import target as read_target

if TYPE_CHECKING:
    from tilewright.driver.champions import Champions
    from tilewright.runtime.export import Library

Targets = str | Target | Sequence[str | Target]  # several: a code variant for each, widest first

Points = Callable[[Job], Job]  # a job → it, by a point of its space

# Libraries that a run needs nothing of: LLVM, of which compiling used 70 MB, what it is built on,
# what hashes files, and what NumPy brings for matrices; another 7 MB.
OF_COMPILING = ("libllvmlite", "libstdc++", "libcrypto", "openblas", "gfortran", "ml_dtypes")


def compile_observed(
    source: Any,
    target: Targets = "cpu",
    *,
    example_inputs: Sequence[Any] | Mapping[str, Any] | None = None,
    example_kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    shapes: Shapes | None = None,
    threads: int | None = None,
    opt_level: int = 3,
    winograd: bool | None = None,
    cache: bool = True,
    stages: Stages | None = None,
    observers: Sequence[Observer] = (),
    pool: KernelPool | None = None,
    identity: str | None = None,
    database: Any = None,
    points: Points | None = None,
) -> Executable:
    """`compile`, seen by observers: `stages` counts time and tells progress; `observers` see each
    step of the graph, so that nothing then comes from the cache. `pool` compiles the kernels and
    stays open; without it a pool is made for this model. `identity`: that of a model file which is
    known not to be in the cache. `points`: gives jobs the points that they are compiled by, instead
    of a database; nothing then comes from the cache of models. Raises MemoryFault where memory
    cannot be had."""
    if cache:
        remember_host(kernel_store(), machine_identity)
    machines, count = machines_of(target), thread_count_of(threads)
    if opt_level not in range(4):
        raise CompileError(
            f"cannot compile with opt_level={opt_level!r}",
            "it is a whole number from 0 to 3",
            remedy="leave it out for 3, the fastest code",
        )
    seen = watch()
    is_unseen = not observers and not seen.is_on
    stages = stages or Stages()
    known_points = _recorded(database, machines, count)
    with memory_told(asked(source), stages.when):
        with stages("identify"):
            given = shapes, dynamic_shapes, example_kwargs
            opened = open_source(source, example_inputs, identity, *given)
            is_kept = cache and opened.identity is not None and points is None
            store = Cache() if is_kept else None
            digest = known_points.digest if known_points else ""
            asked_for = target, count, opt_level, shapes, winograd, digest
            key = artifact_key(opened.identity or "", *asked_for)
        made: Executable | None = None
        if store is not None and identity is None and is_unseen:
            with stages("load"):
                made = store.fetch(key, lambda path: open_kept(path, count))
        if made is not None:
            stages.tell(f"found '{made.name}' in the cache")
        else:
            log(INFO, "compile", "compiling %s for %s, threads=%d", named(source), target, count)
            operators: dict[str, str] = {}  # of other packages, and what they are known by

            def program(workers: KernelPool, beside: contextlib.ExitStack) -> abi.Program:
                if opened.is_large:
                    workers.start()
                with stages("import"), noting() as used:
                    graph = opened.graph()
                if used:
                    from tilewright.graph.plugins import digests

                    operators.update(digests(used))
                name = Path(source).stem if isinstance(source, str | os.PathLike) else graph.name
                told = opt_level, workers, stages, seen.named(name), observers, winograd
                known = beside.enter_context(KernelCache()) if cache and is_unseen else None
                by = points or (known_points and known_points.job)
                made = compile_graph(graph, machines, count, *told, known=known, points=by)
                if known_points:
                    known_points.tell(name)
                if operators:
                    made.manifest.notes[NOTE] = operators
                return made

            def is_unchanged() -> bool:
                if "" in operators.values():  # whether they change cannot be told
                    return False
                if store is None or isinstance(source, bytes):
                    return True
                return file_identity(Path(source), store) == opened.identity

            made = _made(program, pool, store, is_unchanged, key, count, stages)
            stages.tell(f"compiled '{made.name}'")
        made.compile_stages = stages
        if knobs.TIME.read():
            sys.stderr.write(f"# compiling {made.name} took\n{stages}\n\n")
        return made


def compile_file(
    source: Any,
    path: str | os.PathLike[str],
    target: Targets = "cpu",
    *,
    example_inputs: Sequence[Any] | Mapping[str, Any] | None = None,
    example_kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    shapes: Shapes | None = None,
    threads: int | None = None,
    opt_level: int = 3,
    winograd: bool | None = None,
    stages: Stages | None = None,
    sign: Any = None,
    library: Library | None = None,
    database: Any = None,
) -> abi.Manifest:
    """Compile a model into the artifact `path`, for any CPU; nothing is loaded or cached. sign: a
    private key, as `Executable.save` takes it. library: what to make of it for C programs, for the
    target's system."""
    machines, count, stages = machines_of(target), thread_count_of(threads), stages or Stages()
    system = "" if machines[0].triple == host()[1] else machines[0].triple
    if library is not None:
        library.check(system)
    seen = watch().named(Path(path).stem)
    key = None if sign is None else private_key(sign)  # before the work, not after
    known_points = _recorded(database, machines, count)
    log(INFO, "compile", "compiling %s for %s, threads=%d", named(source), target, count)
    with memory_told(asked(source), stages.when):
        with KernelPool() as pool:
            with stages("import"):
                given = shapes, dynamic_shapes, example_kwargs
                graph = open_source(source, example_inputs, None, *given).graph()
            by = known_points and known_points.job
            told = opt_level, pool, stages, seen
            program = compile_graph(graph, machines, count, *told, winograd=winograd, points=by)
            if known_points:
                known_points.tell(program.manifest.name)
        with stages("write"), writing(Path(path)), replace_file(Path(path)) as file:
            write_artifact(program, file)
            if key is not None:
                add_signature(file, key)
        if library is not None:
            with stages("library"):
                artifact = np.memmap(path, np.uint8, "r")
                library.write(artifact.data, program.manifest, system)
    stages.tell(f"compiled '{program.manifest.name}' into '{path}'")
    return program.manifest


def _recorded(database: Any, machines: Sequence[Target], threads: int) -> Champions | None:
    """What a database has; the tuner is imported only for one."""
    if database is None or database is False:
        return None
    from tilewright.driver.champions import recorded

    return recorded(database, machines, threads)


def machines_of(targets: Targets) -> tuple[Target, ...]:
    """The machines to make code for: CPUs of one architecture, none in vain."""
    listed: list[Any] = [targets]
    if isinstance(targets, Iterable) and not isinstance(targets, str):
        listed = list(targets)
    if not listed:
        raise CompileError(
            "cannot compile a model for target=[]",
            "the list names no machine",
            remedy='name one or more, as in target=["cpu -mcpu=haswell", "cpu -mcpu=nehalem"]',
        )
    machines = tuple(read_target(one) for one in listed)
    for machine in machines:
        if backend_of(machine).native is None:
            raise CompileError(
                f"cannot compile a model for '{machine.kind}'",
                "whole models run on CPUs; other targets compile single functions",
                remedy="use target='cpu', or tw.build(func, target) for one function",
            )
        if not is_linked(machine.triple):
            raise CompileError(
                f"cannot compile a model for {machine.triple}",
                "whole models run on x86-64 and AArch64, on systems with ELF objects (Linux, the "
                "BSDs, Android)",
                remedy="name such a machine, as in target='cpu -mtriple=aarch64-linux-gnu'; "
                "others compile single functions: tw.build(func, target)",
            )
    for n, machine in enumerate(machines):
        for earlier in machines[:n]:
            _check_pair(earlier, machine)
    return machines


def _check_pair(first: Target, second: Target) -> None:
    """Two machines of one artifact: it picks the first variant that fits where it is loaded."""
    if architecture(first.triple) != architecture(second.triple):
        raise CompileError(
            f"cannot compile one artifact for '{first}' and '{second}'",
            f"{architecture(first.triple)} and {architecture(second.triple)} are two architectures",
            remedy="compile an artifact for each",
        )
    if first.features <= second.features:
        raise CompileError(
            f"cannot compile one artifact for '{first}' and '{second}'",
            "the second would never run: where it fits the first one does, and the first that "
            "fits is picked",
            remedy="leave one out, or name the one that needs more of the machine first",
        )


def thread_count_of(threads: int | None) -> int:
    count = default_threads() if threads is None else threads
    if not is_thread_count(count):
        raise CompileError(
            f"cannot compile for threads={count!r}",
            f"expected 1 to {abi.MAX_THREADS}",
            remedy="name a whole number, or None for every core",
        )
    return count


def _made(
    compiled: Callable[[KernelPool, contextlib.ExitStack], abi.Program],
    pool: KernelPool | None,
    store: Cache | None,
    is_unchanged: Callable[[], bool],
    key: str,
    threads: int,
    stages: Stages,
) -> Executable:
    """A program, kept in the cache and loaded from there; where that takes no files, or the model's
    file was changed while it was read, from elsewhere."""
    with contextlib.ExitStack() as beside:  # what is done while the artifact is written
        with contextlib.nullcontext(pool) if pool else KernelPool() as workers:
            program = compiled(workers, beside)
        release_libraries(*OF_COMPILING)
        if not is_unchanged():
            store = None
        with stages("write"):
            write = partial(write_artifact, program)
            kept = store.store(key, write) if store else None
            aside = None if kept else _aside(write)
    del program, write  # and with it what it maps of the model's file: the artifact has it all
    give_back()
    with stages("load"):
        if aside is None:
            found = store.fetch(key, lambda path: Executable(path, threads)) if store else None
        else:
            with aside:
                in_memory = isinstance(aside, io.BytesIO)
                found = Executable(aside.getvalue() if in_memory else aside.name, threads)
    if found is None:  # somebody cleared the cache meanwhile
        return _made(compiled, pool, None, is_unchanged, key, threads, stages)
    return found


def _aside(write: Callable[[BinaryIO], None]) -> Any:
    """The artifact as a temporary file, or in memory where no folder has room for one."""
    import tempfile

    with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
        file: Any = stack.enter_context(tempfile.NamedTemporaryFile(suffix=".tw"))
        write(file)
        file.flush()
        stack.pop_all()
        return file
    memory = io.BytesIO()
    write(memory)
    return memory


def prepare(
    graph: Graph,
    machine: Target,
    opt_level: int,
    observers: Sequence[Observer] = (),
    winograd: bool = True,
    is_body: bool = False,
    decisions: Decisions | None = None,
) -> FusedGraph:
    """The graph passes, up to groups that become kernels. is_body: of a loop's rounds. decisions:
    who chooses instead of the machine, and what was decided."""
    decisions = decisions or Decisions()
    graph = optimise(graph, pipeline=PIPELINE if opt_level else NEEDED, observers=observers)
    if opt_level >= 2:
        policy = native_of(machine, "cannot compile a model").layouts(machine)
        layouts = (
            "choose_layouts",
            lambda g: choose_layouts(g, policy, winograd=winograd, decisions=decisions),
        )
        widen = ("widen_convolutions", widen_convolutions)
        rows = ("one_row", one_row)
        graph = optimise(graph, pipeline=[widen, rows, layouts, *PIPELINE], observers=observers)
    if opt_level:
        graph = optimise(graph, pipeline=LAST, observers=observers)
    start = time.perf_counter()
    fused = fuse(graph, is_body=is_body, decisions=decisions)
    for see in observers:
        see("fuse", graph, fused, time.perf_counter() - start)
    for group in fused.groups:
        if group.is_loop:
            rounds, within = _rounds_of(graph, group.anchor), decisions.of_body(group.name)
            body = prepare(rounds, machine, opt_level, (), winograd, True, within)
            fused.bodies[group.name] = body
            for part in [*body.parts()]:
                part.bodies = {f"{group.name}.{name}": b for name, b in part.bodies.items()}
                for inner in part.groups:
                    inner.name = f"{group.name}.{inner.name}"
    return fused


def _rounds_of(graph: Graph, loop: Node) -> Graph:
    """The body of a loop that the host program runs; constants around it are its own."""
    body = body_of(loop["body"])
    given = dict(zip(body.inputs[1:], loop.inputs[2:], strict=True))
    captured = body.inputs[1 + loop["states"] :]
    constants = {v: graph.constants[given[v]] for v in captured if given[v] in graph.constants}
    inputs = [v for v in body.inputs if v not in constants]
    names = [v.name for v in inputs]
    return body.replace(inputs=tuple(inputs), input_names=tuple(names), constants=constants)


@collector_paused()
def compile_graph(
    graph: Graph,
    machines: Sequence[Target],
    threads: int,
    opt_level: int = 3,
    pool: KernelPool | None = None,
    stages: Stages | None = None,
    watch: Watch | None = None,
    observers: Sequence[Observer] = (),
    winograd: bool | None = None,
    decisions: Decisions | None = None,
    known: KernelCache | None = None,
    points: Points | None = None,
) -> abi.Program:
    """A graph as a program that an artifact can hold, with a code variant for each machine. The
    first machine decides on layouts and fusion, so that all variants share weights and arena;
    `decisions`: as `prepare` takes them. known: kernels are taken from there, and those that it
    lacks are left there. points: gives jobs the points that they are compiled by."""
    stages, watch = stages or Stages(), watch or Watch()
    watchers = (watch.trail(), *observers)

    def see(step: str, after: Any) -> None:
        for observer in watchers:
            observer(step, None, after, 0.0)

    winograd = knobs.WINOGRAD.read() if winograd is None else winograd
    see("import", graph)
    if not knobs.CHECK_INDICES.read():
        graph = without_checks(graph)
    likely = likely_values(graph)
    seen = [stages.observe("passes"), *watchers]
    with stages("passes"):
        given = machines[0], opt_level, seen, winograd, False, decisions
        fused = run_together(prepare(graph, *given), threads)
        release_pages()  # weights that were folded into others, or read to be looked at
    with (pool or KernelPool()).work(known=known.fetch if known else nothing) as work:

        def found(job: Job) -> None:
            with stages("kernels"):
                work.add(points(job) if points else job)

        with stages("te"):
            groups, funcs, own, unique, jobs = kernel_jobs(
                fused, machines[0], threads, watch, found
            )
            versions = likely_versions(fused, unique, jobs, found)
            for n, machine in enumerate(machines[1:], 1):
                seen = watch.variant(n)
                for job in jobs:
                    found(replace(job, target=str(machine), watch=seen))
        with stages("kernels"):
            count = len(work.jobs)
            work.done = lambda done: stages.progress("kernels", done, count)
            kernels = work.written()
        with stages("plan"):
            codes: list[Code] = []
            for n, machine in enumerate(machines):
                mine = kernels[n * len(unique) : (n + 1) * len(unique)]
                of_group = {g.name: mine[unique[f]] for g, f in zip(groups, funcs, strict=True)}
                of_likely = {
                    name: [(v, mine[unique[v.func]]) for v in made]
                    for name, made in versions.items()
                }
                codes.append(Code(machine, mine, of_group, own, of_likely))
            plan = plan_memory(fused, workspace=workspaces(codes))
        see("plan_memory", plan)

        def finished() -> list[Kernel]:
            with stages("kernels"):
                return work.finish()

        with stages("host"):
            program, texts = assemble(fused, groups, funcs, codes, plan, finished, known)
    if known:
        stages.notes["kernels"] = f"{known.known} of {count} known"
        with stages("kernels"):
            known.keep(work.results)
    if likely:
        program.manifest.notes["likely"] = likely
    for kernel in kernels:
        for part, seconds in kernel.seconds.items():
            stages.add(f"kernels/{part}", seconds)
    if told := program.manifest.notes.get("fallbacks"):
        listed = "".join(f"\n  {kernel}: {why}" for kernel, why in told.items())
        warnings.warn(f"kernels of '{graph.name}' took{listed}", ScheduleWarning, stacklevel=4)
    for text in texts:
        see("host", text)
    return program


def kernel_jobs(
    fused: FusedGraph,
    machine: Target,
    threads: int,
    watch: Watch,
    found: Callable[[Job], None] = lambda job: None,
) -> tuple[list[FusedGroup], list[Func], dict[str, Own], dict[Func, int], list[Job]]:
    """The groups that need code, the function of each, the sizes that it has own names for, and one
    job for all groups of one function: the number of a function is that of its job. `found` is told
    of each job as soon as it is there."""
    parts = [
        (g, by_data)
        for part in fused.parts()
        for by_data in [part.graph.data_dependent]
        for g in part.groups
        if not g.is_view and not g.is_loop
    ]
    groups = [g for g, _ in parts]
    known: dict[Hashable, tuple[Func, Own]] = {}  # equal layers are written once
    named: list[tuple[Func, Own]] = []
    unique: dict[Func, int] = {}
    jobs: list[Job] = []
    for g, by_data in parts:
        computed = computation(g)
        if computed not in known:
            known[computed] = f, _ = own_sizes(_func(g), by_data, len(g.outputs))
            if f not in unique:
                n = unique[f] = len(unique)
                jobs.append(Job(f.replace(name=_kernel_name(g, n)), str(machine), threads, watch))
                found(jobs[-1])
        named.append(known[computed])
    funcs = [f for f, _ in named]
    own = {g.name: sizes for g, (_, sizes) in zip(groups, named, strict=True)}
    return groups, funcs, own, unique, jobs


def jobs_of(
    graph: Graph, machine: Target, threads: int, opt_level: int = 3, winograd: bool | None = None
) -> list[tuple[Job, int]]:
    """The jobs of a model that is not compiled, and how many of its groups launch each."""
    if not knobs.CHECK_INDICES.read():
        graph = without_checks(graph)
    winograd = knobs.WINOGRAD.read() if winograd is None else winograd
    fused = run_together(prepare(graph, machine, opt_level, (), winograd), threads)
    _, funcs, _, unique, jobs = kernel_jobs(fused, machine, threads, Watch())
    launches = Counter(unique[f] for f in funcs)
    return [(job, launches[n]) for n, job in enumerate(jobs)]


def likely_versions(
    fused: FusedGraph, unique: dict[Func, int], jobs: list[Job], found: Callable[[Job], None]
) -> dict[str, list[Likely]]:
    """By the names of groups what they compute at likely sizes, where that has code of its own,
    which joins the others: see `kernel_jobs`."""
    made: dict[str, list[Likely]] = {}
    for group, symbol, versions in of_likely_sizes(fused):
        of = made[group.name] = []
        for number, version in versions.items():
            by_data, results = fused.graph.data_dependent, len(version.outputs)
            func, own = own_sizes(_func(version), by_data, results)
            if func not in unique:
                n = unique[func] = len(unique)
                jobs.append(replace(jobs[0], func=func.replace(name=_kernel_name(group, n))))
                found(jobs[-1])
            of.append(Likely(symbol, number, func, own))
    return made


def _func(group: FusedGroup) -> Func:
    inputs, outputs = group_func(group)
    return te.func("kernel", inputs, outputs)


def _kernel_name(group: FusedGroup, number: int) -> str:
    ops = [op.removesuffix("_packed") for op in dict.fromkeys(group.ops)]
    return f"k{number}_" + "_".join(ops[:4]) + ("_etc" if len(ops) > 4 else "")
