"""Winograd's strategy: what lies in cache, and how much of it there is."""

from __future__ import annotations

from math import prod

import pytest

from tilewright import te
from tilewright.graph.operator import OPERATORS
from tilewright.ir.expr import as_int
from tilewright.ir.stmt import Alloc
from tilewright.ir.walk import visit
from tilewright.lower.pipeline import lower
from tilewright.strategy.select import default
from tilewright.strategy.space import decisions
from tilewright.target.target import target

CPU = target("cpu")


@pytest.mark.parametrize("threads", [1, 2])
def test_an_image_that_is_transformed_whole_is_padded_channel_by_channel(threads: int) -> None:
    block, size = 8, 16
    image = te.placeholder((1, 64, size, size, block))
    filters = te.placeholder((64, 6, 6, 64, block, block))
    define = OPERATORS["winograd_packed"].define
    made = define(image, filters, pads=((1, 1), (1, 1)), dilations=(1, 1))
    scheduled = default(te.func("conv", [image, filters], [made]), CPU, threads, strict=True)
    assert decisions(scheduled)["image"] == "whole"
    (pad,) = (
        n.buffer
        for n in visit(lower(scheduled.func, CPU).body)
        if isinstance(n, Alloc) and n.buffer.name == "pad"
    )
    assert prod(as_int(d) or 0 for d in pad.shape) == (size + 2) ** 2 * block
