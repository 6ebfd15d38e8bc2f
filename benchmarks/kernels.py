"""What each distinct kernel of each model reaches: `python -m benchmarks --kernels`.

In: models and numbers of threads. Out: a page with a section for each of them, and in it a row for
each kernel that differs in operators, shape or work; equal ones are averaged. A section that was
not measured this time stays as the page has it, so models can be measured one by one.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tilewright as tw
from benchmarks import report
from benchmarks.measure import Plan
from benchmarks.probe import Probe
from tests import zoo
from tilewright.runtime.profile import KernelTime, Profile, Roofline

ROUNDS = 5
HEAD = """# Kernels

Every distinct kernel of every model of the [benchmarks](performance.md), written by
`python -m benchmarks --kernels`: batch {batch}, f32, the default compile. Kernels of one model that
match in operators, shape and work share a row; `times` says how often a run starts them. The time
is that of one start: the mean within a slice of runs, the least of {rounds} slices, between which
the machine's own best rates are measured. Operations are those the kernel does (a Winograd
convolution's are fewer than a direct one's); bytes are those of its operands, each read or written
once. `limit` is what takes longer at the machine's rates, the operations ("compute") or the bytes
from main memory ("memory"), and the rate is given in its unit. Beyond 100 % of memory, data came
from a cache.
"""


@dataclass(frozen=True)
class Row:
    """Kernels that do the same work: how often a run starts them, microseconds of one start."""

    kernel: KernelTime
    times: float
    microseconds: float


def write(plan: Plan, machine: dict[str, Any], page: str, progress: Callable[[str], None]) -> str:
    """The page with new sections of the plan's models; `page` is its text until now."""
    kept = sections(page)
    for name in plan.models:
        for threads in plan.threads:
            title = f"{name}, {threads} thread{'s' * (threads > 1)}"
            progress(title)
            found = measure(name, plan.batch, threads, plan.seconds)
            kept[title] = section(title, found, machine)
    order = {name: position for position, name in enumerate(zoo.names())}
    titles = sorted(kept, key=lambda t: (order.get(t.partition(",")[0], len(order)), t))
    return "\n".join(
        [HEAD.format(rounds=ROUNDS, batch=plan.batch), *(kept[title] for title in titles)]
    )


def sections(page: str) -> dict[str, str]:
    """The sections of a page by their titles."""
    found = {}
    for part in page.split("\n## ")[1:]:
        title, _, body = part.partition("\n")
        found[title] = f"## {title}\n{body.rstrip()}\n"
    return found


def measure(name: str, batch: int, threads: int, seconds: float) -> Profile:
    """A model's kernels, each at its best of some rounds, against the machine's best rates."""
    model = zoo.model(name, batch)
    exe = tw.compile(model.onnx_path, threads=threads)
    inputs, probe = model.inputs(seed=1), Probe(threads)
    best, rounds = Roofline(0.0, 0.0), []
    for _ in range(ROUNDS):
        best = Roofline(
            max(best.gflops, probe.flops() / 1e9), max(best.gbytes, probe.bandwidth() / 1e9)
        )
        rounds.append(exe.profile(**inputs, seconds=seconds / ROUNDS, machine=best))
    return fastest(rounds, best)


def fastest(rounds: Sequence[Profile], machine: Roofline) -> Profile:
    """Each kernel's least time of the rounds, judged by one machine."""
    kernels = tuple(
        at_limit(min(same, key=lambda k: k.microseconds / k.launches if k.launches else 0), machine)
        for same in zip(*(profile.kernels for profile in rounds), strict=True)
    )
    return Profile(kernels, min(p.microseconds for p in rounds), machine, rounds[0].threads)


def at_limit(kernel: KernelTime, machine: Roofline) -> KernelTime:
    """The kernel judged by this machine."""
    least = machine.seconds(kernel.flops, kernel.bytes) * kernel.launches
    percent = 100 * least / (kernel.microseconds * 1e-6) if kernel.microseconds else 0.0
    return replace(kernel, limit=machine.limit(kernel.flops, kernel.bytes), roofline=percent)


def distinct(profile: Profile) -> list[Row]:
    """The kernels that differ, in their order; times of equal ones are averaged."""
    groups: dict[Any, list[KernelTime]] = {}
    for k in profile.kernels:
        if k.launches:
            groups.setdefault((k.ops, k.shape, k.flops, k.bytes), []).append(k)
    rows = []
    for same in groups.values():
        starts, spent = sum(k.launches for k in same), sum(k.microseconds for k in same)
        one = replace(same[0], launches=starts, microseconds=spent)
        rows.append(Row(at_limit(one, profile.machine), starts, spent / starts))
    return rows


def section(title: str, profile: Profile, machine: dict[str, Any]) -> str:
    """A model's part of the page: what it was measured on, and a row for each distinct kernel."""
    rows = distinct(profile)
    inside = sum(row.kernel.microseconds for row in rows) or 1.0
    lines = [
        [
            " ".join(row.kernel.ops),
            "x".join(map(str, row.kernel.shape)),
            f"{row.times:g}",
            f"{row.microseconds:#.3g}" if row.microseconds < 100 else f"{row.microseconds:.0f}",
            f"{row.kernel.microseconds / inside:.1%}",
            rate(row.kernel),
            row.kernel.limit,
            f"{row.kernel.roofline:.0f}%",
        ]
        for row in rows
    ]
    head = ["kernel", "shape", "times", "µs each", "of the run", "rate", "limit", "of it"]
    return (
        f"## {title}\n\n{sum(row.times for row in rows):g} starts of {len(rows)} distinct kernels, "
        f"{inside / 1e3:.3g} ms in them. {machine['processor']}, "
        f"{machine['instruction_sets'][0]}; best seen {profile.machine.gflops:.0f} GFLOP/s, "
        f"{profile.machine.gbytes:.1f} GB/s; tilewright {tw.__version__}, "
        f"{datetime.date.today().isoformat()}, load {machine['load_at_start']} before.\n\n"
        + report.table(head, lines)
    )


def rate(kernel: KernelTime) -> str:
    """What it reached, in the unit of its limit."""
    if kernel.limit == "compute":
        return f"{kernel.gflops:.1f} GFLOP/s"
    return f"{kernel.gbytes:.1f} GB/s"


def read(path: Path | None) -> str:
    """The page until now; nothing where there is none."""
    return path.read_text() if path is not None and path.exists() else ""
