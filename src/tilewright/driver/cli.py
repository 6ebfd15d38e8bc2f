"""The command line: compile, run, bench, inspect, tune, records, opt, demo, targets, and so on.

A command reads its options, asks the other rooms and prints what they say. The compiler is imported
where it is used, so that running a saved artifact never loads it. A user's error is one message and
exit status 1; wrong usage is status 2.
"""

from __future__ import annotations

import io
import sys
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from typer.core import TyperGroup

from tilewright.driver.cli_distil import distil_command
from tilewright.driver.cli_options import (
    AnyModel,
    Fit,
    FixedSizes,
    Form,
    Given,
    Json,
    Layout,
    Level,
    Model,
    Recorded,
    Sizes,
    TargetOption,
    TargetsOption,
    Threads,
    Winograd,
    floats,
    numbers,
    recorded,
)
from tilewright.driver.cli_steps import (
    inspect_artifact,
    keep_profiles,
    open_model,
    print_profile,
    show_kernel,
)
from tilewright.driver.cli_tune import INTERRUPTED, records_command, tune_command
from tilewright.driver.report.layout import printable
from tilewright.driver.report.terminal import console, errors, say, show_code, show_json, show_text
from tilewright.support.errors import InputError, TilewrightError
from tilewright.support.files import check_folder, told
from tilewright.support.version import __version__


class Commands(TyperGroup):
    """The commands; Ctrl-C ends one with an exit status of its own, in every version of typer."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None


app = typer.Typer(
    cls=Commands,
    help="A deep-learning compiler: models in, small fast native modules out.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


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
    database: Recorded = None,
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
    as_json: Json = False,
) -> None:
    """Compile a model into one file of native code and weights.

    The file runs with `tilewright run`, with tilewright.load in Python, or from C.
    """
    from tilewright.driver.compile import compile_file
    from tilewright.driver.report import records, tables
    from tilewright.driver.report.inputs import read_sizes
    from tilewright.driver.report.progress import compiling
    from tilewright.runtime.c_names import identifier
    from tilewright.runtime.export import Library

    if library is None and (name is not None or kind != "library"):
        hint = "--kind" if name is None else "--name"
        raise typer.BadParameter("it is a part of --library", param_hint=hint)
    shapes = read_sizes(size or [])
    path = out or Path(Path(model).stem + ".tw")
    check_folder(path)
    with compiling(Path(model).name) as stages:
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
            database=recorded(database),
            library=library and Library(library, kind, name or identifier(Path(model).stem)),
        )
    if as_json:
        made = records.artifact(path, manifest, stages)
        show_json(records.document("compile", **made, library=library and str(library)))
        return
    console.print(tables.stages_table(stages))
    inputs, outputs = (", ".join(map(str, t)) for t in (manifest.inputs, manifest.outputs))
    say(f"{inputs} → {outputs}")
    say(f"{path}: {tables.bytes_text(path.stat().st_size)}, {len(manifest.kernels)} kernels")
    if library is not None:
        say(f"{library}: {kind}, header and example")


@app.command()
def run(
    model: AnyModel,
    input: Annotated[
        list[str] | None,
        typer.Option(
            "--input",
            help="An input's file, as in image=photo.png: .npy, .npz, an image, or a folder of "
            "such for a call each; inputs without one are random.",
        ),
    ] = None,
    size: Sizes = None,
    threads: Threads = None,
    database: Recorded = None,
    seed: Annotated[int, typer.Option(min=0, help="Of random inputs.")] = 0,
    batch: Annotated[
        int | None, typer.Option(min=1, help="Files of a folder that make one call.")
    ] = None,
    layout: Annotated[
        Layout | None, typer.Option(help="Of images, where the input's shape does not tell.")
    ] = None,
    mean: Annotated[
        str, typer.Option(help="Taken off images of 0 to 1: a number, or one for each channel.")
    ] = "",
    std: Annotated[
        str, typer.Option(help="By which they are divided then: a number, or one for each channel.")
    ] = "",
    fit: Annotated[
        Fit | None, typer.Option(help="For images of another size than the model's.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", help="Keep the outputs: an .npz file, or a folder of such."),
    ] = None,
    profile: Annotated[bool, typer.Option(help="Show where the time goes.")] = False,
    verify: Annotated[
        Path | None,
        typer.Option(help="A public Ed25519 key in PEM: run an artifact that it vouches for only."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Run a model on arrays or images from files, or on random ones, and show what comes out.

    A folder is a call for each of its files, in the order of their names; the model's batch, or
    --batch, says how many are put together. Images become what the input takes: u8 as they are,
    floats from 0 to 1, less --mean and over --std.
    """
    from tilewright.driver.report import outputs, records, tables
    from tilewright.driver.report.files import Pixels
    from tilewright.driver.report.inputs import find_calls, read_sizes

    pixels = Pixels(
        layout=layout and layout.value,
        mean=floats("--mean", mean),
        std=floats("--std", std, nonzero=True),
        fit=fit and fit.value,
    )
    sizes = read_sizes(size or [])
    exe = open_model(model, threads, verify=verify, database=recorded(database))
    calls = find_calls(exe.manifest, input or [], sizes, seed, pixels, batch)
    keeper = None if out is None else outputs.keeper(out, len(calls))
    made: list[Any] = []
    for call in calls:
        arrays = call.read()
        results = exe(*arrays)
        told = records.arrays(exe.inputs, arrays), records.arrays(exe.outputs, results)
        made.append({"call": call.name, "inputs": told[0], "outputs": told[1]})
        made[-1]["kept"] = keeper and str(keeper.keep(call.name, exe.outputs, results))
        if not as_json and len(made) <= outputs.MOST:
            title = f" of {call.name}" if len(calls) > 1 else ""
            console.print(tables.tensors_table("inputs" + title, exe.inputs, arrays))
            console.print(tables.tensors_table("outputs" + title, exe.outputs, results))
    if not as_json and len(calls) > outputs.MOST:
        say(f"… and {len(calls) - outputs.MOST} calls more; -o and --json have all")
    found = exe.profile(*calls[0].read()) if profile else None
    if as_json:
        about, timed = records.model(exe.manifest), found and records.profile(found)
        show_json(records.document("run", **about, calls=made, profile=timed))
    elif found is not None:
        print_profile(found)


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
    database: Recorded = None,
    seed: Annotated[int, typer.Option(min=0, help="Of random inputs.")] = 0,
    roofline: Annotated[
        bool,
        typer.Option("--roofline", help="Instead, each kernel against what the machine could do."),
    ] = False,
    html: Annotated[
        Path | None, typer.Option(help="With --roofline: a page with its plot and the timeline.")
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(help="With --roofline: one run as a trace for Perfetto (ui.perfetto.dev)."),
    ] = None,
    as_json: Json = False,
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
    from tilewright.driver.bench import fixed_sizes, measure, random_inputs
    from tilewright.driver.report import records, tables
    from tilewright.driver.report.compare import ENGINES

    counts = numbers("--threads", threads)
    for option, path in (("--html", html), ("--trace", trace)):
        if path is not None and not roofline:
            raise typer.BadParameter("it is a part of --roofline", param_hint=option)
        if path is not None:
            check_folder(path)
    others = [] if against == "none" else [word.strip() for word in against.split(",")]
    if unknown := [name for name in others if name not in ENGINES]:
        raise typer.BadParameter(
            f"'{unknown[0]}' is none of {', '.join(ENGINES)} and none", param_hint="--against"
        )
    if others and not roofline and model.endswith(".tw"):
        raise InputError(
            f"cannot compare '{model}'",
            "other engines read the ONNX file it was made from",
            remedy="name that file, or say --against none",
        )
    sizes = fixed_sizes(model, input or [], size or [])
    fixed = {} if keep_open or model.endswith(".tw") else sizes
    told: dict[str, Any] = {"winograd": winograd, "database": recorded(database)}
    exes = [open_model(model, count, fixed, **told) for count in counts]
    arrays = random_inputs(exes[0], input or [], sizes, seed)
    about = {**records.model(exes[0].manifest), "measured": records.arrays(exes[0].inputs, arrays)}
    if roofline:
        profiles = [exe.profile(*arrays, seconds=seconds) for exe in exes]
        for found in [] if as_json else profiles:
            print_profile(found)
        keep_profiles(exes[0], arrays, profiles, html, trace, quiet=as_json)
        told = {"profiles": [records.profile(found) for found in profiles]}
    else:
        times = [measure(exe, model, arrays, others, seconds) for exe in exes]
        for exe, (found, wrong) in [] if as_json else zip(exes, times, strict=True):
            title = f"{exe.name}, {exe.threads} thread{'s' * (exe.threads > 1)}"
            console.print(tables.times_table(title, found, wrong))
        told = {"times": [records.times(e.threads, *t) for e, t in zip(exes, times, strict=True)]}
    if as_json:
        show_json(records.document("bench", **about, **told))
    else:
        console.print(*tables.fallbacks_tables(exes[0].manifest), end="")


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
    stage: Annotated[
        Form | None,
        typer.Option(
            help="In which form to show that kernel.", show_default="schedule; asm of a .tw"
        ),
    ] = None,
    onnx: Annotated[
        Path | None,
        typer.Option(help="Write the fused graph as an ONNX file, which Netron shows."),
    ] = None,
    target: TargetOption = "cpu",
    threads: Threads = None,
    opt_level: Level = 3,
    winograd: Winograd = None,
    size: FixedSizes = None,
    as_json: Json = False,
) -> None:
    """Look into a model: its graph before and after fusion, the memory plan, the kernels.

    Without options all four are shown. With --kernel, that kernel: as tensor expressions (te), what
    its strategy did (trace), scheduled (schedule), in the stages of lowering (loops, flat, vector),
    as LLVM text (llvm) or as assembly (asm). A compiled .tw holds code: it shows its kernels, also
    as assembly, and the sizes of its memory.

    With --onnx, the fused graph is written as an ONNX file to look at: each kernel is a node, the
    operators in it are its function.
    """
    from tilewright.driver import inspection
    from tilewright.driver.report import records
    from tilewright.driver.report.inputs import read_sizes

    shapes = read_sizes(size or [])
    wanted = {"graph": graph, "fused": fused, "memory": memory, "kernels": kernels}
    parts = [name for name, on in wanted.items() if on]
    if stage is not None and kernel is None:
        raise typer.BadParameter("it is a part of --kernel", param_hint="--stage")
    if kernel is not None and (parts or onnx):
        other = f"--{parts[0]}" if parts else "--onnx"
        raise typer.BadParameter(f"it is not shown beside {other}", param_hint="--kernel")
    if onnx is not None:
        check_folder(onnx)
    form = stage.value if stage else None
    if model.endswith(".tw"):
        if shapes or target != "cpu" or winograd is not None or threads is not None or onnx:
            raise InputError(
                f"cannot look into '{model}' in this way",
                "it is compiled: --target, --threads, --size, --winograd and --onnx are for models",
                remedy="leave them out, or inspect the model file",
            )
        told = inspect_artifact(model, parts, kernel, form, as_json)
    elif kernel is not None:
        jobs = inspection.model_jobs(model, target, threads, opt_level, shapes, winograd)
        form = form or "schedule"
        text = inspection.kernel_text(inspection.find_job(jobs, kernel), form)
        told = show_kernel(kernel, form, text, as_json)
    elif parts == ["graph"] and onnx is None:
        found = inspection.read_graph(model, shapes)
        told = {"graph": inspection.graph_record(found)}
        if not as_json:
            show_text(str(found))
    else:
        found = inspection.look(model, target, threads, opt_level, shapes, winograd)
        parts = parts or ([] if onnx else list(wanted))
        told = {**records.model(found.manifest), **inspection.tell(found, parts)}
        if not as_json:
            inspection.show(found, parts)
        if onnx is not None:
            inspection.write_onnx(found, onnx)
            if not as_json:
                say(f"{onnx}: the fused graph, for netron.app")
    if as_json:
        show_json(records.document("inspect", file=model, **told))


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

    text = sys.stdin.read() if str(file) == "-" else programs.read_file(file)
    machine = read_target(target)
    program: Any = programs.read_program(text)
    steps = [step for given in passes or [] for step in programs.split_steps(given)]
    for number, step in enumerate(steps):
        program = programs.apply(program, step, machine)
        if each and number + 1 < len(steps):
            show_code(f"# after {step}\n{text_of(program).rstrip()}\n", "python")
    show_code(text_of(program), "python")


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


app.command("tune")(tune_command)
app.command("records")(records_command)
app.command("distil")(distil_command)


@app.command()
def targets(as_json: Json = False) -> None:
    """List the kinds of machines and their options, and describe this machine."""
    from tilewright.backend.backend import backend_of_kind
    from tilewright.driver.report import records, tables
    from tilewright.target.target import KINDS, target

    here = target("cpu")
    if as_json:
        compiles = {kind: backend_of_kind(kind).compiles for kind in KINDS}
        show_json(records.document("targets", **records.targets(here, KINDS, compiles)))
        return
    console.print(tables.targets_table())
    console.print("This machine:", style="bold")
    say(str(here))
    say(
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
    as_json: Json = False,
) -> None:
    """Show the constants by which schedules are chosen for this machine, or calibrate them.

    Calibration takes about ten seconds on every core; the machine had better be idle. What is found
    is kept in the cache's folder, and models are compiled with it from then on.
    """
    from tilewright.driver.calibrate import calibrate as calibrated
    from tilewright.driver.report import records, tables
    from tilewright.driver.report.progress import counting
    from tilewright.target.calibration import fetch
    from tilewright.target.target import keep_costs, target

    if calibrate and forget:
        raise typer.BadParameter("it is the opposite of --calibrate", param_hint="--forget")
    here = target("cpu -costs=default")
    found = None if calibrate or forget else fetch(here.processor)
    path: Path | None = None
    if forget:
        keep_costs(here, None)
    if calibrate:
        with counting("calibrating this machine", 100) as bar:
            found = calibrated(
                here, progress=lambda part: bar.update(bar.task_ids[0], completed=100 * part)
            )
        path = keep_costs(here, found)
    if as_json:
        told = {"processor": here.processor, "constants": records.costs(here.costs, found)}
        show_json(records.document("machine", **told, kept=path and str(path)))
        return
    if calibrate:
        say(f"kept in {path}" if path else "not kept: the cache's folder takes no files")
    console.print(tables.costs_table(here.costs, found))
    if found is None:
        say("Nobody calibrated this machine; `tilewright machine --calibrate` does.")


@app.command()
def knobs(as_json: Json = False) -> None:
    """List the environment variables that Tilewright reads, and what they are set to."""
    from tilewright.driver.report import records, tables

    if as_json:
        show_json(records.document("knobs", knobs=records.all_knobs()))
    else:
        console.print(tables.knobs_table())


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


def _warn(message: Warning | str, *about: Any, **more: Any) -> None:
    errors.print(f"[yellow]warning:[/yellow] {escape(str(message))}", soft_wrap=True)


def main() -> None:
    """The program `tilewright`."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # of letters that a terminal has not
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _warn
            app(prog_name="tilewright")
    except (TilewrightError, OSError) as fault:
        text = str(fault) if isinstance(fault, TilewrightError) else told(fault)
        text = "\n".join(map(printable, text.split("\n")))
        errors.print(f"[bold red]error:[/bold red] {escape(text)}", soft_wrap=True)
        sys.exit(1)
    except SystemExit as end:
        if end.code == INTERRUPTED:
            errors.print("[bold red]interrupted:[/bold red] what was not finished is not kept")
        raise


if __name__ == "__main__":
    main()
