"""A measurement in, a markdown page (for people) or a JSON document (for programs) out."""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Iterable
from typing import Any

from benchmarks.engines import OURS, TUNED
from benchmarks.measure import ROUNDS, TOLERANCE, Measurement, Plan, Result

HEAD = """# Performance

Written by `python -m benchmarks`; milliseconds, minimum (median), batch {batch}, f32. All engines
of a row ran in the same minutes, each in its own process, in turns of short slices ({rounds}
rounds); a row is to be read by its ratios. GMAC counts the inner products; the floor is the time
that the machine's own best rates, measured between the slices, allow without algebraic short cuts.
A cell whose outputs differ from onnxruntime's by more than {tolerance:g} of the largest value is
marked ✗. {ratios} [Kernels](kernels.md)
shows each model's kernels against the machine's limits, [space.md](space.md) the default schedules
beside random points of their spaces, [operators_beside_pytorch.md](operators_beside_pytorch.md)
single operators, [compilers.md](compilers.md) other compilers.
"""
HEAD_OF_OTHERS = """# Other architectures

Written by `python -m benchmarks --others`: architectures of every kind that no schedule was made
for (`tests/zoo/others.py`), at batch {batch}, beside the peers as in
[performance.md](performance.md): milliseconds, minimum (median), of {rounds} rounds of slices in
turns. A cell whose outputs differ from onnxruntime's by more than {tolerance:g} of the largest
value is marked ✗. {ratios}
"""
PATHS = re.compile(r"(/[\w.-]+)+/")  # of files on the machine that measured
LONGEST_REASON = 140  # characters
BUSY = ": **the machine was busy with other work; take ratios, and those with care**"
RATIOS = "`ratio` is our minimum over the best peer's."
GAINS = "`gain` is our minimum over that with schedules that {seconds:g} s of tuning found."


def page(plan: Plan, found: Measurement, machine: dict[str, Any], others: bool = False) -> str:
    """The whole page."""
    ratios = RATIOS if OURS in plan.engines else ""
    if TUNED in plan.engines:
        ratios += "\n" + GAINS.format(seconds=plan.tuning)
    head = HEAD_OF_OTHERS if others else HEAD
    parts = [
        head.format(batch=plan.batch, rounds=ROUNDS, tolerance=TOLERANCE, ratios=ratios).rstrip()
        + "\n",
        describe(plan, found, machine),
        *(latency_section(plan, found, machine, threads) for threads in plan.threads),
        cost_section(plan, found),
        *failures(found.results),
    ]
    return "\n".join(parts)


def describe(plan: Plan, found: Measurement, machine: dict[str, Any]) -> str:
    caches = ", ".join(f"{level} {size}" for level, size in machine["caches"].items())
    sets = " ".join(machine["instruction_sets"])
    lines = [
        f"- {machine['processor']}, {machine['cores']} cores; {sets}; {caches}; "
        f"{machine['memory_gb']} GB; {machine['system']}",
        *(
            f"- best seen on {threads} thread{'s' * (threads > 1)}: "
            f"{rate.flops / 1e9:.0f} GFLOP/s f32, {rate.bandwidth / 1e9:.1f} GB/s read"
            for threads, rate in found.rates.items()
        ),
        f"- {', '.join(f'{name} {found.version(name)}' for name in plan.engines)}",
        f"- {datetime.date.today().isoformat()}, load {machine['load_at_start']} before the run"
        + (BUSY if machine["load_at_start"] > machine["cores"] / 4 else ""),
    ]
    return "\n".join(lines) + "\n"


def latency_section(plan: Plan, found: Measurement, machine: dict[str, Any], threads: int) -> str:
    """One thread count: a row per model, a column per engine, and how we stand."""
    compares = OURS in plan.engines and not {*plan.engines} <= {OURS, TUNED}
    gains = {OURS, TUNED} <= {*plan.engines}
    more = ["best peer"] + ["ratio"] * compares + ["gain"] * gains
    head = ["model", "GMAC", "floor", *plan.engines, *more]
    rows, ratios, gained = [], list[float](), list[float]()
    for model in plan.models:
        results = [found.result(model, threads, engine) for engine in plan.engines]
        present = [result for result in results if result is not None]
        best = best_peer(present)
        rate, work = found.rates[threads], found.works[model]
        floor = work.floor(rate.flops, rate.bandwidth, machine["last_level_bytes"])
        row = [model, f"{work.macs / 1e9:.3g}", milliseconds(floor), *map(cell, present)]
        row.append(of_floor(best, floor))
        if compares:
            ratios.append(over(found.result(model, threads, OURS), best))
            row.append(told(ratios[-1]))
        if gains:
            ours, tuned = (found.result(model, threads, e) for e in (OURS, TUNED))
            gained.append(over(ours, tuned))
            row.append(told(gained[-1]))
        rows.append(row)
    title = f"## {threads} thread{'s' * (threads > 1)}\n\n"
    return title + table(head, rows) + mean_of("ratios", ratios) + mean_of("gains", gained)


def told(ratio: float) -> str:
    """A ratio as a cell."""
    return f"{ratio:.2f}" if ratio == ratio else "-"


def mean_of(what: str, ratios: list[float]) -> str:
    """The line with their geometric mean, if some are known."""
    known = [ratio for ratio in ratios if ratio == ratio]
    if not known:
        return ""
    mean = math.exp(sum(map(math.log, known)) / len(known))
    return f"\nGeometric mean of the {what} ({len(known)} models): {mean:.2f}\n"


def cost_section(plan: Plan, found: Measurement) -> str:
    """What else an engine costs: file to first result, and memory, at the first thread count."""
    threads = plan.threads[0]
    rows = []
    for model in plan.models:
        results = [found.result(model, threads, engine) for engine in plan.engines]
        rows.append([model, *(cost(result) for result in results if result is not None)])
    title = "## Load seconds, resident MB after the run (peak MB)\n\n"
    return title + table(["model", *plan.engines], rows)


def failures(results: list[Result]) -> Iterable[str]:
    """A section with each engine's reason for a missing or wrong cell, if there is one."""
    reasons: dict[tuple[str, str], dict[str, None]] = {}
    for result in results:
        why = PATHS.sub("", result.failure)[:LONGEST_REASON]
        if not why and not result.is_correct:
            why = f"off by {result.error:.1e} of the largest value"
        if why:
            reasons.setdefault((result.engine, why), {})[result.model] = None
    if reasons:
        lines = [f"- {engine}, {', '.join(on)}: {why}" for (engine, why), on in reasons.items()]
        yield "## Missing or wrong\n\n" + "\n".join(lines) + "\n"


def best_peer(results: list[Result]) -> Result | None:
    """The fastest correct engine that is not ours."""
    others = [x for x in results if x.engine not in (OURS, TUNED)]
    peers = [x for x in others if x.times and x.is_correct]
    return min(peers, key=lambda x: x.minimum, default=None)


def over(ours: Result | None, other: Result | None) -> float:
    """The minimum of one over another's; NaN when either is missing or wrong."""
    results = [r for r in (ours, other) if r is not None and r.times and r.is_correct]
    return results[0].minimum / results[1].minimum if len(results) == 2 else math.nan


def of_floor(best: Result | None, floor: float) -> str:
    return f"{best.engine} ({floor / best.minimum:.0%} of floor)" if best is not None else "-"


def cell(result: Result) -> str:
    if not result.times:
        return "-"
    mark = "" if result.is_correct else " ✗"
    return f"{milliseconds(result.minimum)} ({milliseconds(result.median)}){mark}"


def cost(result: Result) -> str:
    if not result.times:
        return "-"
    resident, peak = result.resident_bytes / 1e6, result.peak_bytes / 1e6
    return f"{result.load_seconds:.2f} s, {resident:.0f} ({peak:.0f})"


def milliseconds(seconds: float) -> str:
    """Three significant digits."""
    value = seconds * 1e3
    return f"{value:.0f}" if value >= 100 else f"{value:#.3g}"


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def document(plan: Plan, found: Measurement, machine: dict[str, Any]) -> dict[str, Any]:
    """The measurement as plain JSON values: summaries, not every call's time."""
    return {
        "machine": machine,
        "batch": plan.batch,
        "seconds": plan.seconds,
        "rates": {threads: vars(rate) for threads, rate in found.rates.items()},
        "work": {model: vars(work) for model, work in found.works.items()},
        "results": [summary(result) for result in found.results],
    }


def summary(result: Result) -> dict[str, Any]:
    entry: dict[str, Any] = {key: value for key, value in vars(result).items() if key != "times"}
    entry |= {"calls": len(result.times), "minimum": result.minimum, "median": result.median}
    return {k: None if isinstance(v, float) and math.isnan(v) else v for k, v in entry.items()}
