"""Helpers for tests of passes: graphs as text, before and after, and the law that values stay the
same."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from tilewright.graph import Graph, evaluate, parse
from tilewright.graph import sizes as sizes_of
from tilewright.graph.passes.eliminate import eliminate_dead


def graph(text: str, **constants: np.ndarray) -> Graph:
    """A graph from its text; `constant(type, "name")` takes its content from the keyword."""
    lines = text.strip("\n").split("\n")
    indent = len(lines[0]) - len(lines[0].lstrip())
    return parse("\n".join(line[indent:] for line in lines) + "\n", constants)


def ops(g: Graph) -> list[str]:
    """The operators, in order."""
    return [n.op for n in g.nodes]


def random_inputs(
    g: Graph, symbols: Mapping[str, int] | None = None, seed: int = 0
) -> list[np.ndarray]:
    """Seeded arrays for the inputs; symbols default to 3."""
    random = np.random.default_rng(seed)
    values = {s: (symbols or {}).get(s.name, 3) for s in g.symbols}
    made = []
    for v in g.inputs:
        shape = [sizes_of.at(s, values) for s in v.shape]
        if v.dtype.is_float:
            made.append(random.standard_normal(shape).astype(v.dtype.numpy))
        else:
            made.append(random.integers(0, 2, shape).astype(v.dtype.numpy))
    return made


def rewritten(run: Callable[[Graph], Graph], before: Graph, tolerance: float = 1e-6) -> Graph:
    """The graph after the pass; asserts that it computes the same and that its text reads back."""
    after = run(before)
    arrays = random_inputs(before)
    for a, b in zip(evaluate(before, arrays), evaluate(after, arrays), strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)
    assert parse(str(after)) == after
    assert ops(eliminate_dead(run(after))) == ops(eliminate_dead(after))  # a fixed point
    return after
