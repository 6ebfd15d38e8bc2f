"""Joins of many parts of open sizes."""

import numpy as np

from tilewright.graph import Builder, evaluate
from tilewright.graph.passes.canonicalise import canonicalise
from tilewright.graph.passes.eliminate import eliminate_dead


def test_many_parts_of_unrelated_sizes_are_joined_in_parts():
    """As many as are weighed against each other in one kernel."""
    build = Builder("many")
    parts = [build.input(f"x{k}", "f32", (build.symbol(f"n{k}"), 2)) for k in range(20)]
    after = eliminate_dead(canonicalise(build.finish([build.emit("concat", *parts, axis=0)])))
    joins = [len(node.inputs) for node in after.nodes]
    assert joins == [4, 4, 4, 4, 4, 4, 2]
    given = [np.full((k % 3, 2), k, np.float32) for k in range(20)]
    np.testing.assert_array_equal(evaluate(after, given)[0], np.concatenate(given))


def test_a_thousand_parts_of_one_size():
    """The sum of their sizes is never as deep as they are many."""
    build = Builder("many")
    x = build.input("x", "f32", (build.symbol("n"), 2))
    y = build.emit("concat", *[x] * 1000, axis=0)
    assert str(y.shape[0] // 1000) == str(x.shape[0] * 1000 // 1000)
