"""What comes of a graph: compiled, run and compared in a process of its own."""

from __future__ import annotations

import re
import zlib

import numpy as np

from tests.differential.comparison import compare
from tests.differential.growth import Grown
from tests.differential.shrink import shrink
from tests.fuzz.judge import Verdict, judge
from tilewright.driver.compile import compile_observed
from tilewright.driver.kernels import KernelPool
from tilewright.frontend.onnx import import_onnx

THREADS = 3  # at most: code for several has other loops and tiles than code for one
SECONDS = 60.0  # of processor time: more is a hang


def run(graph: Grown) -> None:
    """Compile and compare in every world. Raises Difference, or what the compiler raises."""
    imported = import_onnx(graph.model())  # imported here once: each process has the importer
    threads = zlib.crc32(graph.title.encode()) % THREADS + 1  # small graphs keep the title
    executable = compile_observed(imported, threads=threads, cache=False, pool=KernelPool(1))
    for world in range(graph.worlds):
        results = executable(*(np.array(v.worlds[world], order="C") for v in graph.inputs))
        compare(graph, world, results)


def verdict_on(graph: Grown) -> Verdict:
    """What comes of a graph in a process of its own."""
    return judge(lambda: run(graph), seconds=SECONDS)


def cause(verdict: Verdict) -> str:
    """What failures of one fault have in common."""
    if verdict.kind == "exception":
        return f"exception, {verdict.detail.split(': ')[0]}"
    if verdict.kind == "refused":
        lines = [line for line in verdict.detail.splitlines() if line.strip()]
        return f"refused, {_without_names(lines[0])}"
    return f"{verdict.kind}, {verdict.detail[:60]}"


def _without_names(line: str) -> str:
    """A message's first line without what differs from graph to graph."""
    return re.sub(r"'[^']*' ?|[0-9]+", "", line)[:100]


def smallest(graph: Grown, verdict: Verdict) -> Grown:
    """The failing graph made small."""
    same = cause(verdict)

    def fails(trial: Grown) -> bool:
        found = verdict_on(trial)
        return cause(found) == same

    return shrink(graph, fails)
