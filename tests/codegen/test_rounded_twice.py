"""f64 to f32 to f16 is two roundings, in vectors, tails and masked tails."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tilewright.graph import Builder


@pytest.mark.parametrize("count", [1, 7, 16, 40])
def test_f64_by_way_of_f32(count: int) -> None:
    draw = np.random.default_rng(count)
    x = draw.uniform(-1, 1, count).astype(np.float16)
    # just above the middle of two f16, by less than an f32 can tell
    wide = (1 + 2.0**-11 + 2.0**-40) * 2.0 ** draw.integers(-5, 5, count)
    build = Builder("g")
    a, b = build.input("a", "f16", x.shape), build.input("b", "f64", wide.shape)
    angle = build.emit("acos", a)  # computed in f64
    twice = build.emit("cast", build.emit("cast", b, to="f32"), to="f16")
    graph = build.finish([build.emit("sub", a, angle), twice, build.emit("cast", b, to="f16")])
    got = tw.compile(graph, cache=False)(x, wide)
    with np.errstate(all="ignore"):
        angles = np.arccos(x.astype(np.float64)).astype(np.float32).astype(np.float16)
    want = [x - angles, wide.astype(np.float32).astype(np.float16), wide.astype(np.float16)]
    for y, z in zip(got, want, strict=True):
        np.testing.assert_array_equal(y, z)
