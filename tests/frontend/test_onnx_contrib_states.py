"""States, streams and their gates of com.microsoft, beside onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.frontend.test_onnx_contrib_more import check, floats

KEYS, VALUES = 4, 3


@pytest.fixture
def draw() -> np.random.Generator:
    return np.random.default_rng(13)


@pytest.mark.parametrize(
    ("rule", "heads", "few", "each", "single", "past"),
    [
        ("linear", 2, 2, False, False, True),
        ("gated", 4, 2, True, False, True),
        ("delta", 2, 4, False, True, False),
        ("gated_delta", 2, 2, False, False, True),
        ("gated_delta", 2, 6, True, True, True),
    ],
)
def test_linear_attention(
    draw: np.random.Generator, rule: str, heads: int, few: int, each: bool, single: bool, past: bool
) -> None:
    def run(steps: int) -> dict[str, np.ndarray]:
        made = {
            "q": floats(draw, 2, steps, heads * KEYS),
            "k": floats(draw, 2, steps, few * KEYS) / 3,
            "v": floats(draw, 2, steps, few * VALUES),
        }
        if past:
            made["s"] = floats(draw, 2, few, KEYS, VALUES)
        if "gated" in rule:
            made["g"] = -np.abs(floats(draw, 2, steps, few * (KEYS if each else 1)))
        if "delta" in rule:
            made["b"] = draw.random((2, steps, 1 if single else few)).astype(np.float32)
        return made

    runs = [run(steps) for steps in (5, 1)]
    parts: dict[str, Any] = dict.fromkeys("qkvsgb")
    for name, x in runs[0].items():
        parts[name] = x.shape if name == "s" else (2, "n", x.shape[2])
    attrs: dict[str, Any] = {"update_rule": rule, "q_num_heads": heads, "kv_num_heads": few}
    check("LinearAttention", parts, *runs, results="ff", tolerance=1e-5, **attrs)
    if not single:
        return
    fixed = {k: runs[0][k].shape if v is not None else None for k, v in parts.items()}
    check("LinearAttention", fixed, runs[0], results="ff", tolerance=1e-5, scale=0.7, **attrs)


def test_gates_of_linear_attention(draw: np.random.Generator) -> None:
    parts: dict[str, Any] = {"a": (2, "n", 4), "bias": floats(draw, 4), "scale": floats(draw, 4)}
    runs = [{"a": floats(draw, 2, n, 4), "b": floats(draw, 2, n, 4)} for n in (1, 5)]
    check("LinearAttentionGate", {**parts, "b": (2, "n", 4)}, *runs, results="ff")


@pytest.mark.parametrize(
    ("dilation", "last", "past", "kind"),
    [(1, 0, True, "silu"), (2, 0, True, "none"), (2, 1, True, "swish"), (1, 1, False, "silu")],
)
def test_causal_convolutions(
    draw: np.random.Generator, dilation: int, last: int, past: bool, kind: str
) -> None:
    back = 3 * dilation

    def rows(n: Any) -> tuple[Any, ...]:
        return (2, n, 3) if last else (2, 3, n)

    parts: dict[str, Any] = {"x": rows("n"), "w": floats(draw, 3, 1, 4), "b": floats(draw, 3),
                             "past": rows(back) if past else None}  # fmt: skip
    runs = [{"x": floats(draw, *rows(n))} for n in (7, 1)]
    if past:
        runs = [{**r, "past": floats(draw, *rows(back))} for r in runs]
    check("CausalConvWithState", parts, *runs, results="ff", tolerance=1e-5, activation=kind,
          dilation=dilation, channels_last=last)  # fmt: skip


def test_streams(draw: np.random.Generator) -> None:
    runs = [
        {"x": floats(draw, n, 4, 8), "g": floats(draw, n, 4), "b": floats(draw, n, 8),
         "m": floats(draw, n, 4, 4), "w": floats(draw, n, 4, 8)}
        for n in (1, 3)
    ]  # fmt: skip
    shapes: dict[str, Any] = {k: ("n", *v.shape[1:]) for k, v in runs[0].items()}

    def of(*names: str) -> tuple[Any, ...]:
        feeds = [{name: r[name] for name in names} for r in runs]
        return {name: shapes[name] for name in names}, *feeds

    check("HyperConnectionPreMix", *of("x", "g"), reduction_scale=0.5)
    check("HyperConnectionPreMix", *of("x", "w"))
    check("HyperConnectionPostMix", *of("x", "b", "g"))
    check("HyperConnectionPostMix", *of("x", "b", "w", "m"), tolerance=1e-5)
    flat = [{"x": r["x"].reshape(-1, 32), "g": r["g"]} for r in runs]
    check("HyperConnectionPreMix", {"x": ("n", 32), "g": ("n", 4)}, *flat, num_branches=4)


def test_gates_of_memories(draw: np.random.Generator) -> None:
    shapes: dict[str, Any] = {"k": (2, "n", 3, 8), "q": (2, "n", 3, 8), "v": (2, "n", 8)}
    parts = {**shapes, **{name: floats(draw, 3, 8) for name in ("ks", "qs", "vs")}}
    runs = [
        {k: floats(draw, *(n if s == "n" else s for s in shape)) for k, shape in shapes.items()}
        for n in (1, 4)
    ]
    check("EngramGate", parts, *runs, results="ff", tolerance=1e-5, epsilon=1e-3)
