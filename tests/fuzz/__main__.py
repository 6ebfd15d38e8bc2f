"""The command: `python -m tests.fuzz --count 2000 [--work compile|import] [--case N] [--keep DIR]`.

Prints how many cases were accepted and refused, and every failure by its cause with the numbers of
its cases; exit code 1 when there is one. `--case N` runs one case here and shows its traceback.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections import Counter, defaultdict
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tests.fuzz import cases, openers, seeds
from tests.fuzz.case import ARTIFACT, Case
from tests.fuzz.judge import SECONDS, Verdict, judge

Work = Literal["compile", "import"]


def opener_of(case: Case, work: Work) -> openers.Opener:
    if case.subject == ARTIFACT:
        return openers.load_artifact
    return openers.compile_model if work == "compile" else openers.import_model


def run_case(case: Case, work: Work, seconds: float) -> Verdict:
    """Write the case's folder, open its subject in a process of its own, judge."""
    with tempfile.TemporaryDirectory() as folder:
        path = case.write(Path(folder))
        opener = opener_of(case, work)
        return judge(lambda: opener(path, case.may_run), case.must_refuse, seconds)


def make_artifacts() -> dict[str, bytes]:
    """The sound artifacts of the seeds, each compiled in a process of its own."""
    made = {}
    for name in seeds.SEEDS:
        with tempfile.TemporaryDirectory() as folder:
            model, target = cases.sound(name).write(Path(folder)), Path(folder) / "sound.tw"
            verdict = judge(lambda m=model, t=target: openers.save_artifact(m, t), seconds=60.0)
            if verdict.kind == "ok":
                made[name] = target.read_bytes()
            else:
                print(f"seed '{name}' gives no artifact: {verdict.kind} {verdict.detail}")
    return made


def show_case(number: int, artifacts: dict[str, bytes], work: Work, keep: Path | None) -> None:
    """Run one case in this process, so that an error is seen whole."""
    case = cases.case(number, artifacts)
    print(f"case {number}: {case.title}, {'must be refused' if case.must_refuse else 'may pass'}")
    with tempfile.TemporaryDirectory() as folder:
        path = case.write(keep or Path(folder))
        opener_of(case, work)(path, case.may_run)
    print("accepted")


def cause(title: str, verdict: Verdict) -> str:
    """What failures of one fault have in common: the place it rose from, or the kind of case."""
    if verdict.kind == "exception":
        return f"exception, {verdict.detail.split(': ')[0]}"
    return f"{verdict.kind}, {title.split('/', 1)[1]}"


def report(verdicts: dict[int, tuple[str, Verdict]]) -> bool:
    """Print the counts and the failures by cause; whether there was none."""
    counts = Counter(verdict.kind for _, verdict in verdicts.values())
    causes: dict[str, list[int]] = defaultdict(list)
    for number, (title, verdict) in verdicts.items():
        if verdict.is_failure:
            causes[cause(title, verdict)].append(number)
    for name, numbers in sorted(causes.items(), key=lambda entry: -len(entry[1])):
        some = ", ".join(map(str, numbers[:6])) + (", ..." if len(numbers) > 6 else "")
        print(f"{len(numbers):5} × {name}\n        e.g. {verdicts[numbers[0]][1].detail}")
        print(f"        cases {some}")
    slowest = max(verdicts, key=lambda n: verdicts[n][1].seconds)
    largest = max(verdicts, key=lambda n: verdicts[n][1].growth)
    print(f"{len(verdicts)} cases: " + ", ".join(f"{n} {kind}" for kind, n in counts.most_common()))
    print(f"slowest: {verdicts[slowest][1].seconds:.1f} s (case {slowest})")
    print(f"most memory: {verdicts[largest][1].growth / 2**20:.0f} MB (case {largest})")
    return not causes


def main(
    count: Annotated[int, typer.Option(help="how many cases")] = 2000,
    first: Annotated[int, typer.Option(help="the first case's number")] = 0,
    work: Annotated[str, typer.Option(help="compile (and run), or import only")] = "compile",
    case: Annotated[int | None, typer.Option(help="run this one here and show it")] = None,
    keep: Annotated[Path | None, typer.Option(help="with --case: write its files here")] = None,
    seconds: Annotated[float, typer.Option(help="of processor time: more is a hang")] = SECONDS,
    output: Annotated[Path | None, typer.Option(help="every verdict as JSON")] = None,
) -> None:
    """Open hostile files, each in a process of its own; exit code 1 if one is handled badly."""
    if work not in ("compile", "import"):
        raise typer.BadParameter("work is 'compile' or 'import'")
    openers.preload(work)
    artifacts = make_artifacts() if work == "compile" else {}
    if case is not None:
        show_case(case, artifacts, work, keep)
        return
    verdicts: dict[int, tuple[str, Verdict]] = {}
    for name in seeds.SEEDS:
        verdict = run_case(cases.sound(name), work, seconds)
        if verdict.kind != "ok":
            print(f"sound seed '{name}' is not accepted: {verdict.kind} {verdict.detail}")
    columns = (TextColumn("cases"), MofNCompleteColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, auto_refresh=False) as bar:  # a refresh is a thread
        task = bar.add_task("", total=count)
        for number in range(first, first + count):
            hostile = cases.case(number, artifacts)
            verdicts[number] = hostile.title, run_case(hostile, work, seconds)
            bar.update(task, advance=1, refresh=number % 20 == 0)
    if output is not None:
        rows = {n: {"title": t, **vars(verdict)} for n, (t, verdict) in verdicts.items()}
        output.write_text(json.dumps(rows, indent=1))
    sys.exit(0 if report(verdicts) else 1)


if __name__ == "__main__":
    typer.run(main)
