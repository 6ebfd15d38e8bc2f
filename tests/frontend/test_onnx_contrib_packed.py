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


@pytest.mark.sampled
@pytest.mark.parametrize("rule", ["linear", "gated", "delta", "gated_delta"])
@pytest.mark.parametrize("form", ["ragged", "uniform", "batched"])
def test_delta_nets(draw: np.random.Generator, rule: str, form: str) -> None:
    few, heads, depth, width = 2, 4, 4, 3
    lead: tuple[Any, ...] = ("b", "t") if form == "batched" else ("t",)
    each = rule == "gated" and form == "ragged"
    shapes: dict[str, Any] = {
        "q": (few, depth), "k": (few, depth), "v": (heads, width), "ends": None,
        "g": (heads, depth)[: 1 + each] if "gated" in rule else None,
        "b": (heads,) if "delta" in rule else None,
    }  # fmt: skip
    parts = {k: v if v is None else (*lead, *v) for k, v in shapes.items()}
    parts["ends"] = ("b1",) if form == "ragged" else None
    parts["s"] = ("b", heads, width, depth)
    runs = []
    for lengths in PACKS:
        if form != "ragged":
            lengths = [lengths[0]] * len(lengths)
        size = (len(lengths), lengths[0]) if form == "batched" else (sum(lengths),)
        feed = {k: floats(draw, *size, *v) for k, v in shapes.items() if v is not None}
        feed["k"] /= 3
        if "g" in feed:
            feed["g"] = -np.abs(feed["g"])
        if form == "ragged":
            feed["ends"] = ends(lengths)
        feed["s"] = floats(draw, len(lengths), heads, width, depth)
        runs.append(feed)
    check("GatedDeltaNet", parts, *runs, results="ff", tolerance=1e-5, update_rule=rule)


@pytest.mark.parametrize("kind", ["softplus", "sigmoid"])
def test_gates_of_delta_nets(draw: np.random.Generator, kind: str) -> None:
    """Queries, keys and values in one tensor, made equally long; gates that are computed."""
    few, heads, depth, width = 2, 4, 4, 3
    parts: dict[str, Any] = {
        "x": ("t", 2 * few * depth + heads * width), "k": None, "v": None, "ends": ("b1",),
        "g": ("t", heads), "b": ("t", heads), "s": ("b", heads, width, depth),
        "rate": floats(draw, heads), "bias": floats(draw, heads),
    }  # fmt: skip
    runs = []
    for lengths in PACKS[:2]:
        total = sum(lengths)
        feed = {"x": floats(draw, total, 28), "g": floats(draw, total, heads)}
        feed |= {"b": floats(draw, total, heads), "ends": ends(lengths)}
        runs.append(feed | {"s": floats(draw, len(lengths), heads, width, depth)})
    attrs: dict[str, Any] = {"gate_activation": kind, "beta_activation": "sigmoid"}
    check("GatedDeltaNet", parts, *runs, results="ff", tolerance=1e-5, qk_l2_norm=1, scale=2.0,
          **attrs)  # fmt: skip
