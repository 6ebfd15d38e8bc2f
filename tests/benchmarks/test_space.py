"""The page of random points draws kernels of real models and times points of their spaces."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from benchmarks import space
from benchmarks.kernel import Run, memory


def test_points_are_drawn_compiled_and_timed() -> None:
    found = space.kernels(("dqn",))
    assert {"conv_packed", "dense_packed"} <= {kernel.family for kernel in found}
    with ThreadPoolExecutor(1) as pool:
        (kernel,) = space.draw(found, 1, pool)
        (own, code), *others = space.compile_points(kernel, 3, pool)
    assert kernel.times == {"dqn": 1}
    assert others
    assert all(decided != own for decided, _ in others)
    assert Run(code, memory(kernel.func)).seconds(0.001) > 0
