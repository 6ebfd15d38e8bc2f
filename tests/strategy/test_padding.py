"""Taps of a window that meet nothing but padding are left out."""

from __future__ import annotations

import pytest

from tilewright import te
from tilewright.graph import OPERATORS
from tilewright.ir.expr import Var, as_int
from tilewright.ir.stmt import For
from tilewright.ir.walk import statements, stores
from tilewright.lower.pipeline import lower
from tilewright.strategy.select import default
from tilewright.target.target import target

MACHINE = target("cpu -mcpu=x86-64-v4")


def test_a_dilated_convolution_has_no_code_for_ends_of_the_image() -> None:
    """Which taps meet it follows from where a tile stands: loops over taps have bounds. 24 columns
    are a tile of 14 and one of 10."""
    image = te.placeholder((1, 1, 24, 24, 16), name="image")
    weights = te.placeholder((2, 1, 3, 3, 16, 16), name="weights")
    result = OPERATORS["conv_packed"].define(
        image, weights, strides=(1, 1), pads=((6, 6), (6, 6)), dilations=(6, 6)
    )
    made = default(te.func("conv", [image, weights], [result]), MACHINE, 2, strict=True)
    lowered = lower(made.func, MACHINE)
    assert len([s for s in stores(lowered.body) if s.buffer == lowered.params[-1]]) == 2


@pytest.mark.parametrize("sizes", [[Var(name) for name in "dhw"], [9, 14, 17]], ids=str)
def test_rows_and_planes_of_taps_have_bounds(sizes) -> None:
    """A volume may be small, and much of what it is read with padding."""
    image = te.placeholder((1, 1, *sizes, 16), name="image")
    weights = te.placeholder((2, 1, 3, 3, 3, 16, 16), name="weights")
    result = OPERATORS["conv_packed"].define(
        image, weights, strides=(2, 2, 2), pads=((1, 1),) * 3, dilations=(1, 1, 1)
    )
    made = default(te.func("conv", [image, weights], [result]), MACHINE, 2, strict=True)
    assert made.trace.decisions["pad.skip_zeros"] == "rows"
    loops = [n for n in statements(lower(made.func, MACHINE).body) if isinstance(n, For)]
    taps = {name: [f for f in loops if f.name == name] for name in ("rz", "ry", "rx")}
    assert all(taps.values())
    for name, found in taps.items():
        assert all((as_int(f.extent) is None) == (name != "rx") for f in found)
