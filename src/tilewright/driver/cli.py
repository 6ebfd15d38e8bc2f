"""The command line: compile, run, bench, inspect, opt, demo, targets, machine, knobs.

A command reads its options, asks the other rooms and prints what they say. The compiler is imported
where it is used, so that running a saved artifact never loads it. A user's error is one message and
exit status 1; wrong usage is status 2.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.syntax import Syntax

from tilewright.support.errors import InputError, TilewrightError
from tilewright.support.version import __version__

app = typer.Typer(
    help="A deep-learning compiler: models in, small fast native modules out.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
console = Console(highlight=False)
errors = Console(stderr=True, highlight=False)

Model = Annotated[str, typer.Argument(help="An .onnx file.", metavar="MODEL")]
AnyModel = Annotated[str, typer.Argument(help="An .onnx file, or a compiled .tw.", metavar="MODEL")]
TargetOption = Annotated[
    str, typer.Option("--target", help="The machine, as `tilewright targets` lists them.")
]
TargetsOption = Annotated[
    list[str] | None,
    typer.Option("--target", help="The machine; several, widest first, for code for each of them."),
]
Threads = Annotated[
    int | None,
    typer.Option("--threads", min=1, help="Threads of one call; by default one for each core."),
]
Level = Annotated[
    int,
    typer.Option(
        "--opt-level",
        min=0,
        max=3,
        help="0: operator by operator; 1: graph passes and fusion; 2, 3: packed layouts, too.",
    ),
]
Sizes = Annotated[
    list[str] | None,
    typer.Option("--size", help="An open size, as in batch=4 (the least unless given)."),
]
FixedSizes = Annotated[
    list[str] | None,
    typer.Option("--size", help="An open size, as in height=320: compile for it alone."),
]
Given = Annotated[
    list[str] | None,
    typer.Option("--input", help="An input's array, as in image=file.npy; others are random."),
]
Winograd = Annotated[
    bool | None,
    typer.Option(
        "--winograd/--no-winograd",
        help="Whether 3x3 convolutions may be Winograd's: faster, less exact.",
        show_default="on",
    ),
]
NoCache = Annotated[bool, typer.Option("--no-cache", help="Compile even what the cache has.")]


@app.command("compile")
def compile_command(
    model: Model,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="The artifact; by default MODEL's name .tw.")
    ] = None,
    target: TargetsOption = None,
    threads: Threads = None,
    opt_level: Level = 3,
    winograd: Winograd = None,
    size: FixedSizes = None,
    library: Annotated[
        Path | None,
        typer.Option(help="A folder for what C programs link or compile, too (see --kind)."),
    ] = None,
    kind: Annotated[
        str, typer.Option(help="With --library: library (shared), static, or c-array (C source).")
    ] = "library",
    name: Annotated[
        str | None, typer.Option(help="With --library: what its files and functions are called.")
    ] = None,
    sign: Annotated[
        Path | None,
        typer.Option(help="A private Ed25519 key in PEM, for tilewright.load(verify=PUBLIC)."),
    ] = None,
) -> None:
    """Compile a model into one file of native code and weights.

    The file runs with `tilewright run`, with tilewright.load in Python, or from C.
    """
    from tilewright.driver.compile import compile_file
    from tilewright.driver.report import tables
    from tilewright.driver.report.inputs import read_sizes
    from tilewright.driver.report.progress import compiling
    from tilewright.runtime.c_names import identifier
    from tilewright.runtime.export import Library

    if library is None and (name is not None or kind != "library"):
        hint = "--kind" if name is None else "--name"
        raise typer.BadParameter("it is a part of --library", param_hint=hint)
    shapes = read_sizes(size or [])
    path = out or Path(Path(model).stem + ".tw")
    with compiling(console, Path(model).name) as stages:
        manifest = compile_file(
            model,
            path,
            target or "cpu",
            shapes=shapes,
            threads=threads,
            opt_level=opt_level,
            winograd=winograd,
            stages=stages,
            sign=sign,
            library=library and Library(library, kind, name or identifier(Path(model).stem)),
        )
    console.print(tables.stages_table(stages))
    inputs, outputs = (", ".join(map(str, t)) for t in (manifest.inputs, manifest.outputs))
    console.print(f"{inputs} → {outputs}", markup=False)
    nbytes = tables.bytes_text(path.stat().st_size)
    console.print(f"{path}: {nbytes}, {len(manifest.kernels)} kernels", markup=False)
    if library is not None:
        console.print(f"{library}: {kind}, header and example", markup=False)


@app.command()
def run(
    model: AnyModel,
    input: Given = None,
    size: Sizes = None,
    threads: Threads = None,
    seed: Annotated[int, typer.Option(help="Of random inputs.")] = 0,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="Keep the outputs in this .npz file.")
    ] = None,
    profile: Annotated[bool, typer.Option(help="Show where the time goes.")] = False,
    verify: Annotated[
        Path | None,
        typer.Option(help="A public Ed25519 key in PEM: run an artifact that it vouches for only."),
    ] = None,
) -> None:
    """Run a model once, on arrays from files or on random ones, and show what comes out."""
    import numpy as np

    from tilewright.driver.report import tables
    from tilewright.driver.report.inputs import read_inputs, read_sizes
    from tilewright.runtime.formats import values_of

    exe = _open(model, threads, verify=verify)
    arrays = read_inputs(exe.manifest, input or [], read_sizes(size or []), seed)
    results = exe(*arrays)
    console.print(tables.tensors_table("inputs", exe.inputs, arrays))
    console.print(tables.tensors_table("outputs", exe.outputs, results))
    if out is not None:
        kept = {t.name: values_of(r) for t, r in zip(exe.outputs, results, strict=True)}
        np.savez(out, allow_pickle=False, **kept)
    if profile:
        _print_profile(exe.profile(*arrays))


@app.command()
def bench(
    model: AnyModel,
    threads: Annotated[str, typer.Option(help="Numbers of threads, as in 1,2.")] = "1",
    against: Annotated[
        str, typer.Option(help="Engines to compare with: onnxruntime, openvino, or none.")
    ] = "onnxruntime",
    seconds: Annotated[float, typer.Option(min=0.01, help="Spent on each engine.")] = 2.0,
    input: Given = None,
    size: Annotated[
        list[str] | None,
        typer.Option("--size", help="An open size, as in height=320; inner ones are asked for."),
    ] = None,
    keep_open: Annotated[
        bool,
        typer.Option("--open", help="Measure code for all sizes, not code for these sizes."),
    ] = False,
    winograd: Winograd = None,
    seed: Annotated[int, typer.Option(help="Of random inputs.")] = 0,
    roofline: Annotated[
        bool,
        typer.Option("--roofline", help="Instead, each kernel against what the machine could do."),
    ] = False,
    html: Annotated[
        Path | None, typer.Option(help="With --roofline: a page with its plot and the timeline.")
    ] = None,
) -> None:
    """Measure a model's latency beside other engines, or its kernels against the machine.

    Engines take turns in short slices, so the ratio compares times of the same moments: the median
    over the slices of our median over theirs. The error is the largest difference of any output,
    relative to that output's largest value.

    A model with open sizes is compiled for those that it is measured at, or for all with --open.
    Whole numbers of random inputs are such as the model looks up or compares with.

    With --roofline no engine is compared: each kernel's time, rates, the limit that binds it
    (compute: multiply-adds at the machine's measured peak; memory: bytes from main memory) and how
    much of that it reaches; data that is still in a cache can exceed it.
    """
    from tilewright.driver.report.compare import ENGINES

    counts = _numbers("--threads", threads)
    if html is not None and not roofline:
        raise typer.BadParameter("it is a part of --roofline", param_hint="--html")
    others = [] if against == "none" else [word.strip() for word in against.split(",")]
    if unknown := [name for name in others if name not in ENGINES]:
        raise typer.BadParameter(
            f"'{unknown[0]}' is none of {', '.join(ENGINES)} and none", param_hint="--against"
        )
    if others and model.endswith(".tw"):
        raise InputError(
            f"cannot compare '{model}'",
            "other engines read the ONNX file it was made from",
            remedy="name that file, or say --against none",
        )
    sizes = _fixed_sizes(model, input or [], size or [])
    fixed = {} if keep_open or model.endswith(".tw") else sizes
    exes = [_open(model, count, fixed, winograd=winograd) for count in counts]
    arrays = _random_inputs(exes[0], input or [], sizes, seed)
    if roofline:
        _show_rooflines(exes, arrays, seconds, html)
        return
    for exe in exes:
        _show_times(exe, model, arrays, others, seconds)


def _fixed_sizes(model: str, files: Sequence[str], texts: Sequence[str]) -> dict[str, int]:
    """A number for each open size of a model: what the caller says, in the command or when asked;
    1 for a batch. Raises InputError where nobody can be asked."""
    from tilewright.driver.report.inputs import check_known, read_sizes, unsaid

    shapes = _shapes_of(model)
    found = read_sizes(texts)
    names = [d for shape in shapes.values() for d in shape if isinstance(d, str)]
    check_known("--size", found, list(dict.fromkeys(names)))
    missing = [name for name in unsaid(shapes, files) if name not in found]
    batch = {shape[0] for shape in shapes.values() if shape}
    batch.difference_update(d for shape in shapes.values() for d in shape[1:])
    asked = [name for name in missing if name not in batch]
    if asked and not sys.stdin.isatty():
        told = "; ".join(f"{n}[{', '.join(map(str, s))}]" for n, s in shapes.items())
        raise InputError(
            f"cannot measure '{model}'",
            f"its sizes are open: {told}",
            remedy="say which to measure: " + " ".join(f"--size {name}=…" for name in asked),
        )
    found.update((name, typer.prompt(f"{name}", type=int)) for name in asked)
    return found | dict.fromkeys([name for name in missing if name in batch], 1)


def _shapes_of(model: str) -> dict[str, tuple[Any, ...]]:
    """The shapes of a model's inputs; open sizes by their names."""
    if model.endswith(".tw"):
        from tilewright.runtime.executor import load

        exe = load(model)
        names = {s.name for s in exe.manifest.symbols}
        return {t.name: tuple([d if d in names else -1 for d in t.shape]) for t in exe.inputs}
    from tilewright.driver.source import declared_shapes

    return declared_shapes(model)


def _random_inputs(exe: Any, files: Sequence[str], sizes: dict[str, int], seed: int) -> list[Any]:
    """Arrays for a model that is compiled for these sizes, or for all."""
    from tilewright.driver.report.inputs import read_inputs

    symbols = {s.name for s in exe.manifest.symbols}
    return read_inputs(exe.manifest, files, {k: n for k, n in sizes.items() if k in symbols}, seed)


def _show_times(
    exe: Any, model: str, arrays: Sequence[Any], others: Sequence[str], seconds: float
) -> None:
    """Measure a model's latency on these inputs beside the other engines', in turns."""
    from tilewright.driver.report import tables
    from tilewright.driver.report.compare import OURS, ROUNDS, difference, engine, take_turns
    from tilewright.driver.report.progress import counting

    calls: dict[str, Any] = {OURS: lambda: exe(*arrays)}
    wrong: dict[str, float] = {}
    for name in others:
        other = engine(name, model, exe.threads)
        wrong[name] = difference(exe(*arrays), other(arrays))
        calls[name] = lambda other=other: other(arrays)
    with counting(console, f"measuring on {exe.threads} threads, in turns", ROUNDS) as bar:
        found = take_turns(
            calls, seconds, progress=lambda n: bar.update(bar.task_ids[0], completed=n)
        )
    title = f"{exe.name}, {exe.threads} thread{'s' * (exe.threads > 1)}"
    console.print(tables.times_table(title, found, wrong), *tables.fallbacks_tables(exe.manifest))


def _show_rooflines(
    exes: Sequence[Any], arrays: Sequence[Any], seconds: float, html: Path | None
) -> None:
    """Profile a model on these inputs, on each number of threads; `html`: keep that as a page."""
    from tilewright.driver.report import tables
    from tilewright.driver.report.page import page

    profiles = [exe.profile(*arrays, seconds=seconds) for exe in exes]
    for profile in profiles:
        _print_profile(profile)
    for made in tables.fallbacks_tables(exes[0].manifest):
        console.print(made)
    if html is not None:
        text = page(exes[0].name, tables.inputs_text(exes[0].inputs, arrays), profiles)
        html.write_text(text, encoding="utf-8")
        console.print(f"{html}: the plot, the timeline and this table", markup=False)


def _print_profile(profile: Any) -> None:
    from tilewright.driver.report.tables import profile_table

    console.print(profile_table(profile))
    console.print(str(profile).rpartition("\n")[2], markup=False)


class Form(str, Enum):
    """The forms of a kernel."""

    te = "te"
    trace = "trace"
    schedule = "schedule"
    loops = "loops"
    flat = "flat"
    vector = "vector"
    llvm = "llvm"
    asm = "asm"


@app.command()
def inspect(
    model: AnyModel,
    graph: Annotated[bool, typer.Option("--graph", help="The graph as it was read.")] = False,
    fused: Annotated[
        bool, typer.Option("--fused", help="The groups after fusion, and why each edge is cut.")
    ] = False,
    memory: Annotated[bool, typer.Option("--memory", help="Where each value lives.")] = False,
    kernels: Annotated[bool, typer.Option("--kernels", help="The list of kernels.")] = False,
    kernel: Annotated[
        str | None, typer.Option(help="One kernel, by its name or number (k3).")
    ] = None,
    stage: Annotated[Form, typer.Option(help="In which form to show that kernel.")] = Form.schedule,
    target: TargetOption = "cpu",
    threads: Threads = None,
    opt_level: Level = 3,
    winograd: Winograd = None,
    size: FixedSizes = None,
) -> None:
    """Look into a model: its graph before and after fusion, the memory plan, the kernels.

    Without options all four are shown. With --kernel, that kernel: as tensor expressions (te), what
    its strategy did (trace), scheduled (schedule), in the stages of lowering (loops, flat, vector),
    as LLVM text (llvm) or as assembly (asm).
    """
    from tilewright.driver import inspection
    from tilewright.driver.report.inputs import read_sizes

    shapes = read_sizes(size or [])
    if model.endswith(".tw"):
        inspection.show_artifact(console, model)
    elif kernel is not None:
        jobs = inspection.model_jobs(model, target, threads, opt_level, shapes, winograd)
        text = inspection.kernel_text(inspection.find_job(jobs, kernel), stage.value)
        _print_code(text, {"llvm": "llvm", "asm": "gas"}.get(stage.value, "python"))
    else:
        parts = {"graph": graph, "fused": fused, "memory": memory, "kernels": kernels}
        wanted = [name for name, on in parts.items() if on] or list(parts)
        inspection.show_model(console, model, wanted, target, threads, opt_level, shapes, winograd)


@app.command()
def opt(
    file: Annotated[Path, typer.Argument(help="A function's or a graph's text; - for stdin.")],
    passes: Annotated[
        list[str] | None,
        typer.Option(
            "-p",
            "--passes",
            help="Steps: passes (simplify), primitives (split(i, 32)), lower, emit, assembly.",
        ),
    ] = None,
    target: TargetOption = "cpu",
    each: Annotated[bool, typer.Option("--each", help="Show it after every step.")] = False,
) -> None:
    """Apply passes and schedule primitives to a program's text, and print what comes out.

    Example: tilewright opt matmul.txt -p 'split(j, 32), vectorize(j_i), lower'
    """
    from tilewright.driver import opt as programs
    from tilewright.driver.observe import text_of
    from tilewright.target.target import target as read_target

    text = sys.stdin.read() if str(file) == "-" else file.read_text()
    machine = read_target(target)
    program: Any = programs.read_program(text)
    steps = [step for given in passes or [] for step in programs.split_steps(given)]
    for number, step in enumerate(steps):
        program = programs.apply(program, step, machine)
        if each and number + 1 < len(steps):
            _print_code(f"# after {step}\n{text_of(program).rstrip()}\n", "python")
    _print_code(text_of(program), "python")


@app.command()
def demo(
    threads: Annotated[int, typer.Option(min=1, help="Threads of one call.")] = 1,
    seconds: Annotated[float, typer.Option(min=0.01, help="Spent on measuring each engine.")] = 1.0,
) -> None:
    """Compile a small convolutional network and let it read handwritten digits.

    Shows what compiling took, what was fused, how many of the held-out images are read correctly,
    whether ONNX Runtime (where installed) predicts the same, and the latency of both.
    """
    from tilewright.driver.demo.digits import run_digits

    if not run_digits(console, threads, seconds):
        raise typer.Exit(1)


@app.command()
def targets() -> None:
    """List the kinds of machines and their options, and describe this machine."""
    from tilewright.driver.report.tables import targets_table
    from tilewright.target.target import target

    console.print(targets_table())
    here = target("cpu")
    console.print("This machine:", style="bold")
    console.print(str(here), markup=False, soft_wrap=True)
    console.print(
        f"{here.vector_registers} vector registers of {here.vector_bytes} bytes, {here.cores} cores"
    )


@app.command()
def machine(
    calibrate: Annotated[
        bool, typer.Option("--calibrate", help="Calibrate them, and use them from now on.")
    ] = False,
    forget: Annotated[
        bool, typer.Option("--forget", help="Use those of a machine that nobody calibrated again.")
    ] = False,
) -> None:
    """Show the constants by which schedules are chosen for this machine, or calibrate them.

    Calibration takes about ten seconds on every core; the machine had better be idle. What is found
    is kept in the cache's folder, and models are compiled with it from then on.
    """
    from tilewright.driver.calibrate import calibrate as calibrated
    from tilewright.driver.report.progress import counting
    from tilewright.driver.report.tables import costs_table
    from tilewright.target.calibration import fetch
    from tilewright.target.target import keep_costs, target

    if calibrate and forget:
        raise typer.BadParameter("it is the opposite of --calibrate", param_hint="--forget")
    here = target("cpu -costs=default")
    found = None if calibrate or forget else fetch(here.processor)
    if forget:
        keep_costs(here, None)
    if calibrate:
        with counting(console, "calibrating this machine", 100) as bar:
            found = calibrated(
                here, progress=lambda part: bar.update(bar.task_ids[0], completed=100 * part)
            )
        path = keep_costs(here, found)
        kept = f"kept in {path}" if path else "not kept: the cache's folder takes no files"
        console.print(kept, markup=False, soft_wrap=True)
    console.print(costs_table(here.costs, found))
    if found is None:
        console.print("Nobody calibrated this machine; `tilewright machine --calibrate` does.")


@app.command()
def knobs() -> None:
    """List the environment variables that Tilewright reads, and what they are set to."""
    from tilewright.driver.report.tables import knobs_table

    console.print(knobs_table())


def _version(wanted: bool) -> None:
    if wanted:
        console.print(f"tilewright {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """A deep-learning compiler: models in, small fast native modules out."""


def _open(
    model: str,
    threads: int | None,
    shapes: dict[str, int] | None = None,
    verify: Path | None = None,
    winograd: bool | None = None,
) -> Any:
    """A model to run: loaded if it is compiled already, else compiled."""
    if verify is not None and not model.endswith(".tw"):
        raise InputError(f"cannot verify '{model}'", "only artifacts (.tw) are signed")
    if model.endswith(".tw"):
        from tilewright.runtime.executor import load

        return load(model, threads, verify=verify)
    from tilewright.driver.compile import compile_observed
    from tilewright.driver.report.progress import compiling

    with compiling(console, Path(model).name) as stages:
        return compile_observed(
            model, shapes=shapes, threads=threads, winograd=winograd, stages=stages
        )


def _numbers(option: str, text: str) -> list[int]:
    """Numbers in "1,2"."""
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() and int(word) > 0 for word in words):
        raise typer.BadParameter(f"'{text}' is no list such as 1,2", param_hint=option)
    return [int(word) for word in words]


def _print_code(text: str, language: str) -> None:
    if console.is_terminal:
        console.print(Syntax(text, language, background_color="default", word_wrap=True))
    else:
        sys.stdout.write(text if text.endswith("\n") else text + "\n")


def main() -> None:
    """The program `tilewright`."""
    try:
        app()
    except (TilewrightError, OSError) as fault:
        errors.print(f"[bold red]error:[/bold red] {escape(str(fault))}", soft_wrap=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
