"""A profile as a trace that Perfetto (ui.perfetto.dev) and chrome://tracing open.

In: profiles. Out: the JSON object of the trace event format. The one idea: a profile knows what
each kernel took on average, so that one run is drawn: its kernels in their order on one row, each
with all its launches; which thread did what nobody measures. Each profile is a process.

Format: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

Event = dict[str, Any]


def trace(profiles: Sequence[Any], name: str) -> dict[str, Any]:
    """The trace of a model called `name`, of its profiles (`runtime.profile`); times are in
    microseconds."""
    events = [e for pid, one in enumerate(profiles, 1) for e in _run(one, name, pid)]
    return {"displayTimeUnit": "ns", "traceEvents": events}


def _run(profile: Any, name: str, pid: int) -> Iterator[Event]:
    threads = f"{profile.threads} thread{'s' * (profile.threads > 1)}"
    inside = sum(k.microseconds for k in profile.kernels)
    machine = {"peak GFLOP/s": profile.machine.gflops, "peak GB/s": profile.machine.gbytes}
    yield _named("process_name", f"{name}, {threads}", pid)
    yield _named("thread_name", f"one run on {threads}", pid)
    whole = max(profile.microseconds, inside)
    told = {"us in kernels": inside, "us between kernels": whole - inside, **machine}
    yield _slice(name, "run", 0.0, whole, pid, told)
    at = 0.0
    for k in profile.kernels:
        if k.launches:
            yield _slice(k.name, f"kernel,{k.limit}", at, k.microseconds, pid, _told(k))
            at += k.microseconds


def _told(kernel: Any) -> dict[str, Any]:
    """What there is to say of a kernel."""
    return {
        "operators": " ".join(kernel.ops),
        "shape": "x".join(map(str, kernel.shape)),
        "launches": kernel.launches,
        "flops": kernel.flops,
        "bytes": kernel.bytes,
        "GFLOP/s": kernel.gflops,
        "GB/s": kernel.gbytes,
        "flop/byte": kernel.intensity if math.isfinite(kernel.intensity) else None,
        "limit": kernel.limit,
        "% of limit": kernel.roofline,
    }


def _named(what: str, name: str, pid: int) -> Event:
    return {"ph": "M", "name": what, "pid": pid, "tid": 1, "args": {"name": name}}


def _slice(name: str, kinds: str, at: float, took: float, pid: int, told: dict[str, Any]) -> Event:
    return {
        "ph": "X", "name": name, "cat": kinds, "ts": at, "dur": took, "pid": pid, "tid": 1,
        "args": told,
    }  # fmt: skip
