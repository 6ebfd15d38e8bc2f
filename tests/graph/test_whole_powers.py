"""Powers of whole numbers, compiled, beside Python's own integers."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.driver.compile import compile_observed
from tilewright.driver.kernels import KernelPool
from tilewright.graph import evaluate
from tilewright.graph.builder import Builder


@pytest.mark.parametrize("of", [np.int64, np.int32, np.uint8])
def test_exact_where_the_result_fits(of):
    """Negative powers are 0, but for 1 and -1."""
    about, rng = np.iinfo(of), np.random.default_rng(5)
    low = max(about.min, -12)
    x = rng.integers(low, 13, 400).astype(of)
    y = np.concatenate([rng.integers(max(about.min, -3), 9, 200), rng.integers(0, 120, 200)])
    build = Builder()
    name = f"{about.kind}{about.bits}"
    inputs = [build.input(n, name, (400,)) for n in "xy"]
    graph = build.finish([build.emit("pow", *inputs)])
    arrays = [x, y.astype(of)]
    (found,) = compile_observed(graph, cache=False, pool=KernelPool(1))(*arrays)
    fits = 0
    for a, e, ours, reference in zip(x, y, found, evaluate(graph, arrays)[0], strict=True):
        wanted = int(a) ** int(e) if e >= 0 else (int(a) ** (int(e) % 2) if abs(a) == 1 else 0)
        if about.min <= wanted <= about.max:
            fits += 1
            assert int(ours) == int(reference) == wanted, (a, e)
    assert fits > 100
