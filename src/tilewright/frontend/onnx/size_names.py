"""Names that sizes of several inputs share in a file, and whether they can be what they say.

In: the model's inputs, and what its operators compared. Sizes of one name are equal; but exporters
are given names carelessly, and those of an image's height may stand at states of half that height,
too. Where operators would need a size to be two different ones, each input has its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tilewright.frontend.onnx.given import Called, label, open_sizes
from tilewright.frontend.onnx.messages import GraphProto
from tilewright.graph import sizes
from tilewright.ir.expr import Expr, as_int
from tilewright.ir.walk import fresh

TRIED = (256, 720, 2520)  # sizes that strides and windows divide


def shared_names(graph: GraphProto, called: Called) -> dict[str, list[str]]:
    """The names that sizes of several inputs have, and these inputs."""
    found: dict[str, dict[str, None]] = {}
    for entry, axis in open_sizes(graph):
        found.setdefault(label(entry, axis, called), {})[entry.name] = None
    return {name: [*inputs] for name, inputs in found.items() if len(inputs) > 1}


def sizes_apart(graph: GraphProto, called: Called) -> Called:
    """What sizes are called where those of different inputs are different ones: the first input
    keeps a name, the others put their own in front of it."""
    shared = shared_names(graph, called)
    taken = {label(entry, axis, called) for entry, axis in open_sizes(graph)}
    own: dict[tuple[str, str], str] = {}
    apart = dict(called)
    for entry, axis in open_sizes(graph):
        name = label(entry, axis, called)
        if name in shared and entry.name != shared[name][0]:
            which = entry.name, name
            if which not in own:
                own[which] = fresh(f"{entry.name}_{name}", taken)
            apart[entry.name, axis] = own[which]
    return apart


def contradiction(symbols: Iterable[Any], compared: Mapping[tuple[Expr, Expr], str]) -> str:
    """Where operators need one of these sizes to be two different ones, or another than itself; ""
    if they do not. compared: sizes that a run needs to be the same (or the first to be 1), and
    where."""
    for symbol in symbols:
        first: Expr | None = None  # of what it has to be the same as
        for (a, b), where in compared.items():
            pairs: list[tuple[Expr, Expr]] = []
            is_open = as_int(a) is None and as_int(b) is None
            if symbol in (a, b):
                goal = b if a == symbol else a
                first = goal if first is None else first
                pairs.append((first, goal))
            if is_open and sizes.symbols([a, b]) == [symbol]:  # as h and h // 2
                pairs.append((a, b))
            for one, other in pairs:
                if _never_equal(one, other):
                    told = f"{sizes.text(one)} and {sizes.text(other)}"
                    return f"{told} would have to be the same in {where}"
    return ""


def _never_equal(a: Expr, b: Expr) -> bool:
    """Do sizes of one symbol, or numbers, differ, as far as trying shows?"""
    symbols = sizes.symbols([a, b])
    tried = (dict.fromkeys(symbols, number) for number in TRIED)
    return len(symbols) < 2 and all(sizes.at(a, v) != sizes.at(b, v) for v in tried)
