"""From a model's file to its first output: seconds, processor seconds, memory, and each stage.

    python -m benchmarks.compile_times --models efficientnet_b0,swin_tiny --output page.md

Each engine reads each model in a new process, ours with an empty cache and then again with what it
left there. Memory is the sum of what all processes of an engine have resident, looked at a hundred
times a second.
"""

from __future__ import annotations

import datetime
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.progress import track

from benchmarks import machine, pages
from benchmarks.engines import ENGINES, OURS
from tests import zoo

MODELS = (
    "mobilenet_v1", "resnet50", "mobilenetv3_large", "ghostnet", "efficientnet_b0", "regnety_004",
    "convnextv2_atto", "efficientformerv2_s0", "fastvit_t8", "swin_tiny", "vit_tiny",
    "hrnet_w18_small", "light_densenet121", "diffusion_unet", "distilbert", "gpt2",
)  # fmt: skip
ENGINES_HERE = (OURS, "onnxruntime", "openvino")
AGAIN, BEFORE = "again", "before"
ROOT = Path(__file__).parents[1]
LOOK = 0.01  # seconds between looks at memory
LIMIT = 600.0
HEAD = """# From the file to the first output

Written by `python -m benchmarks.compile_times`: a new process for each cell, from its start to the
first output, on {threads} threads. `s` is the time, `cpu` the processor seconds of all threads and
processes, `MB` what all processes had resident together at most (mapped files count). `again` is
the same model once more, from the cache; `before` an earlier state of ours; `wanted` is 1.3 times
the file and 200 MB.
{busy}
"""
BUSY = """
**The machine was busy with other work (load {load}): times are upper bounds, processor seconds are
the figures to compare.**
"""
STAGES_TOLD = """
Seconds. `start` is Python, NumPy and what only a compilation needs (our compiler, LLVM, onnx),
which large files have in `identify`, imported while they are hashed; schedule, lower, emit
and llvm are processor seconds inside `kernels`: the first three run beside the last on two
cores.""".lstrip()


@dataclass
class Found:
    """What one process took. seconds: from its start; peak: bytes."""

    seconds: float = 0.0
    cpu: float = 0.0
    peak: int = 0
    load: float = 0.0
    run: float = 0.0
    stages: dict[str, float] = field(default_factory=dict)
    failure: str = ""


def first_run(
    engine: str, path: Path, inputs: Path, threads: int, cache: Path, bytecode: Path | None
) -> Found:
    """One engine reads one file and runs it once. bytecode: where Python keeps what it compiled of
    packages, as it does for who has installed them; None: as this process does."""
    paths = [str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    known = {
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "TILEWRIGHT_CACHE_DIR": str(cache),
    }
    environment = os.environ | known
    if bytecode is not None:
        environment |= {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(bytecode)}
    command = [sys.executable, "-m", "benchmarks.first_run", engine, path, inputs, str(threads)]
    with tempfile.TemporaryFile() as said:
        start, peak = time.monotonic(), 0
        child = subprocess.Popen(command, stdout=said, env=environment)
        while child.poll() is None:
            peak = max(peak, resident(child.pid))
            if time.monotonic() - start > LIMIT:
                child.kill()
            time.sleep(LOOK)
        if child.returncode:
            return Found(failure=f"it ended with code {child.returncode}")
        said.seek(0)
        told = json.loads(said.read().splitlines()[-1])
        return Found(told.pop("ended", start) - start, peak=peak, **told)


def resident(process: int) -> int:
    """Bytes that a process and those it started have in memory; 0 where the system does not say."""
    total, waiting = 0, [process]
    while waiting:
        one = waiting.pop()
        try:
            pages = Path(f"/proc/{one}/statm").read_text().split()[1]
            for thread in os.listdir(f"/proc/{one}/task"):
                below = Path(f"/proc/{one}/task/{thread}/children").read_text().split()
                waiting += map(int, below)
        except OSError:  # it has just ended
            continue
        total += int(pages) * os.sysconf("SC_PAGE_SIZE")
    return total


def measure(name: str, engines: list[str], threads: int, bytecode: Path | None) -> dict[str, Found]:
    """Each engine on one model of the zoo."""
    model = zoo.model(name)
    path = model.onnx_path
    found: dict[str, Found] = {}
    with tempfile.TemporaryDirectory() as folder:
        inputs, cache = Path(folder) / "inputs.npz", Path(folder) / "cache"
        np.savez(inputs, **model.inputs(0))
        path.read_bytes()  # from the disk once, for all
        for engine in engines:
            found[engine] = first_run(engine, path, inputs, threads, cache, bytecode)
            if engine == OURS:
                found[AGAIN] = first_run(engine, path, inputs, threads, cache, bytecode)
    return found


def page(found: dict[str, dict[str, Found]], sizes: dict[str, int], threads: int) -> str:
    """The tables: all engines, then where our time goes."""
    about = machine.describe()
    load = about["load_at_start"]
    busy = BUSY.format(load=load) if load > 0.5 else ""
    versions = ", ".join(
        f"{e} {ENGINES[e].version}" for e in ENGINES_HERE if ENGINES[e].is_installed
    )
    lines = [
        HEAD.format(threads=threads, busy=busy),
        f"- {about['processor']}, {about['cores']} cores; {about['system']}",
        f"- {versions}",
        f"- {datetime.date.today()}",
        "",
        *engine_table(found, sizes),
        "",
        "## Where our time goes",
        "",
        STAGES_TOLD,
        "",
        *stage_table(found),
    ]
    return "\n".join(lines) + "\n"


def engine_table(found: dict[str, dict[str, Found]], sizes: dict[str, int]) -> list[str]:
    names = list(dict.fromkeys(e for of in found.values() for e in of))
    heads = " | ".join(f"{e} s | cpu | MB" for e in names)
    rows = [f"| model | file MB | wanted MB | {heads} |", "| --- " * (3 + 3 * len(names)) + "|"]
    totals = {e: [0.0, 0.0] for e in names}
    for name, of in found.items():
        cells = []
        for e in names:
            one = of.get(e, Found(failure="-"))
            if one.failure:
                cells.append("✗ | | ")
                continue
            totals[e][0] += one.seconds
            totals[e][1] += one.cpu
            cells.append(f"{one.seconds:.2f} | {one.cpu:.2f} | {one.peak / 1e6:.0f}")
        wanted = (1.3 * sizes[name] + 200e6) / 1e6
        rows.append(f"| {name} | {sizes[name] / 1e6:.0f} | {wanted:.0f} | {' | '.join(cells)} |")
    sums = " | ".join(f"{totals[e][0]:.1f} | {totals[e][1]:.1f} | " for e in names)
    return [*rows, f"| together | | | {sums} |"]


STAGES = ("identify", "import", "passes", "te", "kernels", "plan", "host", "write", "load")
PARTS = ("schedule", "lower", "emit", "llvm")


def stage_table(found: dict[str, dict[str, Found]]) -> list[str]:
    heads = [*STAGES[:5], *PARTS, *STAGES[5:], "first run", "start"]
    rows = [f"| model | {' | '.join(heads)} |", "| --- " * (1 + len(heads)) + "|"]
    for name, of in found.items():
        one = of.get(OURS)
        if one is None or one.failure:
            continue
        took = one.stages
        inside = sum(took.get(s, 0.0) for s in STAGES)
        cells = [took.get(s, 0.0) for s in STAGES[:5]]
        cells += [took.get(f"kernels/{p}", 0.0) for p in PARTS]
        cells += [took.get(s, 0.0) for s in STAGES[5:]]
        cells += [one.run, one.seconds - inside - one.run]
        rows.append(f"| {name} | {' | '.join(f'{c:.2f}' for c in cells)} |")
    return rows


def main(
    models: Annotated[str, typer.Option(help="comma-separated, of the zoo")] = ",".join(MODELS),
    engines: Annotated[str, typer.Option(help="comma-separated")] = ",".join(ENGINES_HERE),
    threads: Annotated[int, typer.Option(help="for each engine")] = 2,
    output: Annotated[Path | None, typer.Option(help="markdown file; JSON beside it")] = None,
    before: Annotated[Path | None, typer.Option(help="JSON of an earlier state of ours")] = None,
) -> None:
    """Measure how long engines take from a model's file to its first output."""
    asked = [e for e in engines.split(",") if ENGINES[e].is_installed]
    earlier = {} if before is None else json.loads(before.read_text())
    found: dict[str, dict[str, Found]] = {}
    sizes: dict[str, int] = {}
    names = models.split(",")
    with tempfile.TemporaryDirectory() as folder:
        measure(names[0], asked, threads, Path(folder))  # once in vain: it leaves the bytecode
        for name in track(names, "models"):
            sizes[name] = zoo.model(name).onnx_path.stat().st_size
            found[name] = measure(name, asked, threads, Path(folder))
            if name in earlier:
                found[name][BEFORE] = Found(**earlier[name][OURS])
    text = page(found, sizes, threads)
    print(text)
    if output is not None:
        pages.write(output, text)
        document: Any = {n: {e: asdict(one) for e, one in of.items()} for n, of in found.items()}
        output.with_suffix(".json").write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    typer.run(main)
