"""Taps of a window that meet nothing but padding are left out."""

from __future__ import annotations

import pytest

from tilewright import te
from tilewright.graph import OPERATORS, sizes
from tilewright.ir.expr import Var, as_int
from tilewright.ir.stmt import For, Func, If
from tilewright.ir.text import print_func
from tilewright.ir.walk import blocks, statements, stores
from tilewright.lower.pipeline import lower
from tilewright.strategy.absorb import role
from tilewright.strategy.select import default
from tilewright.strategy.work import spare_time
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


def five_taps(apart: int) -> Func:
    """Five taps over an open line that is padded to keep its length."""
    image = te.placeholder((1, 4, 1, Var("w"), 8), name="image")
    weights = te.placeholder((4, 4, 1, 5, 8, 8), name="weights")
    pads = ((0, 0), (2 * apart, 2 * apart))
    result = OPERATORS["conv_packed"].define(
        image, weights, strides=(1, 1), pads=pads, dilations=(1, apart)
    )
    return te.func("conv", [image, weights], [result])


@pytest.mark.parametrize("threads", [1, 2])
def test_of_an_open_line_only_the_padding_that_taps_meet_is_written(threads) -> None:
    """Tiles of six columns read five pixels beside the image: the copy begins with the fourth chunk
    of eight."""
    made = default(five_taps(16), target("cpu -mcpu=x86-64-v3"), threads, strict=True)
    written = [
        n
        for n in statements(made.func.body)
        if isinstance(n, If) and any(role(b) == "pad" for b in blocks(n))
    ]
    told = print_func(made.func)
    assert len(written) == 1 and " >= 3 and " in told and "< w + 37" in told


def test_taps_that_a_short_line_does_not_meet_are_no_work() -> None:
    """A line of ten pixels meets one of five taps 16 apart: it is worth no parallel region."""
    far, near = (sizes.size(spare_time(five_taps(apart), MACHINE)) for apart in (16, 1))
    w = Var("w")
    longer = [sizes.at(of, {w: 11}) - sizes.at(of, {w: 10}) for of in (far, near)]
    assert longer[1] > 4 * longer[0]
    longer = [sizes.at(of, {w: 1001}) - sizes.at(of, {w: 1000}) for of in (far, near)]
    assert longer[0] == longer[1]
