"""A kernel of several parallel loops is started once a run, whatever the number of threads."""

import numpy as np
import pytest

import tilewright as tw
from tilewright.graph import Builder
from tilewright.runtime.profile import Roofline


@pytest.mark.parametrize("threads", [1, 2])
def test_starts_are_counted_once(threads):
    rng = np.random.default_rng(0)
    b = Builder("g")
    x = b.input("x", "f32", (1, 64, 28, 28))
    weights = b.constant((rng.standard_normal((64, 64, 3, 3)) / 24).astype(np.float32))
    exe = tw.compile(
        b.finish({"y": b.emit("conv", x, weights, pads=((1, 1), (1, 1)))}), threads=threads
    )
    image = rng.standard_normal((1, 64, 28, 28)).astype(np.float32)
    machine = Roofline(gflops=100.0, gbytes=10.0)
    profile = exe.profile(image, seconds=0.02, machine=machine)
    assert any("winograd_packed" in k.ops for k in profile)
    assert [k.launches for k in profile] == [1] * len(profile.kernels)
    assert all(k.microseconds > 0 for k in profile)
