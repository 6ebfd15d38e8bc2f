"""compute_indices: rows that are resized by constant indices compute them."""

from __future__ import annotations

import numpy as np
import pytest

from tests.graph.rewriting import ops, rewritten
from tilewright.graph import Builder, Graph, sizes
from tilewright.graph.passes.compute_indices import LEAST, TIMES, compute_indices, steps_of


def gathered(indices: np.ndarray, axis: int = -1, shape: tuple[int, ...] = (2, 3, 20)) -> Graph:
    build = Builder("g")
    x = build.input("x", "f32", shape)
    return build.finish({"y": build.emit("gather", x, build.constant(indices), axis=axis)})


@pytest.mark.parametrize("times", TIMES)
@pytest.mark.parametrize("base", [-2, -1, 0, 1])
def test_steps_are_found(times: int, base: int) -> None:
    for first in range(times):
        indices = ((np.arange(20 * times) + first) // times + base).clip(0, 19)
        found = steps_of(indices, 20)
        assert found is not None
        got = ((np.arange(20 * times) + found[1]) // found[0] + found[2]).clip(0, 19)
        np.testing.assert_array_equal(got, indices)
        assert ops(rewritten(compute_indices, gathered(indices))) == ["sample"]


def test_other_indices_stay() -> None:
    steps = np.arange(40) // 2
    broken = steps.copy()
    broken[30] = 3
    for indices in (broken, np.arange(60) // 3, steps[::-1].copy(), steps[: LEAST - 1]):
        assert ops(rewritten(compute_indices, gathered(indices))) == ["gather"]
    assert ops(rewritten(compute_indices, gathered(steps, axis=1, shape=(2, 20, 3)))) == ["gather"]


@pytest.mark.parametrize("indices", [np.arange(10) * 2, np.arange(5) * 3 + 4, np.arange(-20, 0, 4)])
def test_lines_with_steps_are_slices(indices: np.ndarray) -> None:
    (node,) = rewritten(compute_indices, gathered(indices)).nodes
    assert node.op == "slice" and node.output.shape[-1] == sizes.size(len(indices))
    beyond = np.append(indices, indices[-1] + 40)
    for other in (indices[::-1].copy(), np.append(indices[1:], indices[0]), beyond):
        assert ops(rewritten(compute_indices, gathered(other))) == ["gather"]


def test_negative_indices_count_from_the_end() -> None:
    assert ops(rewritten(compute_indices, gathered(np.arange(40) // 2 - 20))) == ["sample"]
