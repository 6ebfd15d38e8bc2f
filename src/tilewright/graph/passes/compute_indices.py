"""compute_indices: gathers along rows whose indices are a line of steps compute them.

In: a graph whose layouts are chosen. Out: the same with `sample` for each gather along the last
axis whose constant indices rise by one every so many elements, as those of a row do that is
resized, and with a slice where they rise by so many each, as those of a row that shrinks. Vectors
that know where they read load rows as they lie; indices in memory are gathered.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.graph.builder import Edit
from tilewright.graph.graph import Graph, Node
from tilewright.ir.expr import as_int

TIMES = (2, 4, 8, 16)  # elements for each step: vectors divide by powers of two
LEAST = 32  # elements of a row that are worth code of its own


def compute_indices(graph: Graph) -> Graph:
    """Rewrite such gathers."""
    if any(node.op == "gather" for node in graph.nodes):
        return Edit(graph, {"gather": (_sampled,)}).run()
    return graph


def _sampled(edit: Edit, node: Node) -> Any:
    x, indices = node.inputs
    size, count = as_int(x.shape[-1]), as_int(indices.elements)
    if indices not in edit.constants or indices.rank != 1 or node["axis"] % x.rank != x.rank - 1:
        return None
    if size is None or count is None or x in edit.constants:
        return None
    first, step = line_of(edit.constants[indices].array, size)
    if step > 1:
        lead = x.rank - 1
        return edit.emit(
            "slice", x, starts=(0,) * lead + (first,), shape=node.output.shape,
            steps=(1,) * lead + (step,),
        )  # fmt: skip
    found = steps_of(edit.constants[indices].array, size) if count >= LEAST else None
    if found is None:
        return None
    times, first, base = found
    return edit.emit(
        "sample", x, axis=node["axis"], length=count, times=times, first=first, base=base
    )


def line_of(indices: np.ndarray, size: int) -> tuple[int, int]:
    """(first, step) with which index i is first + i * step; (0, 0) if there are none."""
    if len(indices) < 2:
        return 0, 0
    indices = np.where(indices < 0, indices + size, indices)
    first, step = int(indices[0]), int(indices[1] - indices[0])
    found = np.array_equal(first + np.arange(len(indices)) * step, indices)
    return (first, step) if found and first >= 0 and indices[-1] < size else (0, 0)


def steps_of(indices: np.ndarray, size: int) -> tuple[int, int, int] | None:
    """(times, first, base) with which index i is (i + first) // times + base, or the end of an
    axis of `size` where that is outside; None if there are none."""
    indices = np.where(indices < 0, indices + size, indices).clip(0, size - 1)
    rises = np.flatnonzero(np.diff(indices)) + 1
    i, middle = np.arange(len(indices)), len(rises) // 2
    for times in TIMES if len(rises) > 2 else ():
        at = int(rises[middle])
        first = -at % times
        base = int(indices[at]) - (at + first) // times
        if np.array_equal(((i + first) // times + base).clip(0, size - 1), indices):
            return times, first, base
    return None
