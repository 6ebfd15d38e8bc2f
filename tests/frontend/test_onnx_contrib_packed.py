"""Requests of any length, packed end to end, of com.microsoft, beside onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.frontend.test_onnx_contrib_more import check, floats

PACKS = ([4, 1, 2], [1], [6, 3])


@pytest.fixture
def draw() -> np.random.Generator:
    return np.random.default_rng(19)


def ends(lengths: list[int]) -> np.ndarray:
    return np.cumsum([0, *lengths]).astype(np.int32)


@pytest.mark.parametrize(
    ("taps", "dilation", "kind", "room"), [(4, 1, "silu", 0), (3, 2, "none", 2)]
)
def test_convolutions(
    draw: np.random.Generator, taps: int, dilation: int, kind: str, room: int
) -> None:
    back = (taps - 1) * dilation
    parts: dict[str, Any] = {
        "x": ("t", 3), "w": floats(draw, 3, 1, taps), "ends": ("b1",),
        "bias": floats(draw, 3) if kind == "silu" else None, "state": ("b", 3, back),
        "count": ("b",) if room else None,
    }  # fmt: skip
    runs = []
    for lengths in PACKS:
        feed = {"x": floats(draw, sum(lengths), 3), "ends": ends(lengths),
                "state": floats(draw, len(lengths), 3, back)}  # fmt: skip
        if room:
            feed["count"] = draw.integers(0, 4, len(lengths)).astype(np.int32)
        runs.append(feed)
    attrs: dict[str, Any] = {"dilation": dilation, "activation": kind}
    check("VarlenCausalConvWithState", parts, *runs, results="fff" if room else "ff",
          tolerance=1e-5, state_update_capacity=room, **attrs)  # fmt: skip
