"""Mixtures of experts of com.microsoft, beside onnxruntime, or NumPy where it has them for GPUs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.frontend.test_onnx_contrib_more import check, floats, made_of

WIDE, DEEP, EXPERTS = 32, 16, 6


@pytest.fixture
def draw() -> np.random.Generator:
    return np.random.default_rng(12)


def tokens(draw: np.random.Generator, *counts: int) -> list[dict[str, np.ndarray]]:
    return [{"x": floats(draw, n, WIDE), "p": floats(draw, n, EXPERTS)} for n in counts]


@pytest.mark.parametrize(
    ("kind", "alone"), [("relu", 0), ("silu", 1), ("gelu", 1), ("identity", 0), ("swiglu", 1)]
)
def test_experts(draw: np.random.Generator, kind: str, alone: int) -> None:
    rows = 2 * DEEP if kind == "swiglu" else DEEP
    more: dict[str, Any] = {}
    if kind == "swiglu":
        more = {"swiglu_fusion": 1, "activation_alpha": 1.3, "activation_beta": 0.5,
                "swiglu_limit": 0.7}  # fmt: skip
    layers = {
        "w1": floats(draw, EXPERTS, rows, WIDE) / 8,
        "b1": floats(draw, EXPERTS, rows),
        "w2": floats(draw, EXPERTS, WIDE, DEEP) / 8,
        "b2": floats(draw, EXPERTS, WIDE),
    }
    attrs: dict[str, Any] = {
        "k": 2,
        "activation_type": kind,
        "normalize_routing_weights": alone,
        **more,
    }
    parts: dict[str, Any] = {"x": ("n", WIDE), "p": ("n", EXPERTS), **layers}
    check("MoE", parts, *tokens(draw, 1, 7), tolerance=1e-5, **attrs)
    one = {**parts, "x": (1, 2, WIDE), "p": (2, EXPERTS)}  # fewer pairs than experts
    runs = [{"x": r["x"][None], "p": r["p"]} for r in tokens(draw, 2, 2)]
    check("MoE", one, *runs, tolerance=1e-5, **attrs)


@pytest.mark.parametrize("fusion", [0, 2])
def test_gates_that_onnxruntime_has_for_gpus(draw: np.random.Generator, fusion: int) -> None:
    rows = DEEP if fusion == 0 else 2 * DEEP
    w1, w2 = floats(draw, EXPERTS, rows, WIDE) / 8, floats(draw, EXPERTS, WIDE, DEEP) / 8
    w3 = floats(draw, EXPERTS, DEEP, WIDE) / 8
    parts: dict[str, Any] = {"x": ("n", WIDE), "p": ("n", EXPERTS), "w1": w1, "b1": None, "w2": w2}
    parts |= {"b2": None, "w3": w3} if fusion == 0 else {}
    attrs: dict[str, Any] = {"k": 2, "activation_type": "swiglu", "swiglu_fusion": fusion}
    exe, _ = made_of("MoE", parts, tokens(draw, 1), normalize_routing_weights=1, **attrs)
    (run,) = tokens(draw, 5)
    wanted = np.zeros((5, WIDE))
    for t, (x, p) in enumerate(zip(run["x"].astype(float), run["p"].astype(float), strict=True)):
        best = np.argsort(-p)[:2]
        for e, share in zip(best, np.exp(p[best]) / np.exp(p[best]).sum(), strict=True):
            both = w1[e] @ x
            gate, straight = (both, w3[e] @ x) if fusion == 0 else np.split(both, 2)
            wanted[t] += share * (w2[e] @ (gate / (1 + np.exp(-gate)) * straight))
    np.testing.assert_allclose(exe(**run)[0], wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("bits", "block", "zeros"), [(4, 0, True), (4, 16, False), (4, 16, True), (8, 0, False),
                                 (8, 16, True)],
)  # fmt: skip
def test_experts_of_few_bits(draw: np.random.Generator, bits: int, block: int, zeros: bool) -> None:
    per, deep = 8 // bits, 32
    parts: dict[str, Any] = {"x": ("n", WIDE), "p": ("n", EXPERTS)}
    points: dict[str, Any] = {}
    for name, shape in (("1", (EXPERTS, deep, WIDE)), ("2", (EXPERTS, WIDE, deep))):
        packed = (*shape[:2], shape[2] // per)
        blocks = [shape[2] // block] if block else []
        parts["q" + name] = draw.integers(0, 256, packed).astype(np.uint8)
        parts["s" + name] = np.abs(floats(draw, *shape[:2], *blocks)) / 2 ** (bits + 2)
        parts["b" + name] = floats(draw, *shape[:2])
        where = (*shape[:2], -(-blocks[0] // per)) if block else (shape[0], shape[1] // per)
        points["z" + name] = draw.integers(0, 256, where).astype(np.uint8)
    if zeros:
        parts |= {"q3": None, "s3": None, "b3": None, **points}
    attrs: dict[str, Any] = {"block_size": block} if block else {}
    rough = bits == 8 and block > 0  # onnxruntime's products of these have activations of 8 bits
    tolerance = 2e-2 if rough else 1e-4
    check("QMoE", parts, *tokens(draw, 1, 5), tolerance=tolerance, k=2, activation_type="silu",
          normalize_routing_weights=1, expert_weight_bits=bits, **attrs)  # fmt: skip


@pytest.mark.parametrize("alone", [0, 1])
def test_shares_of_their_own(draw: np.random.Generator, alone: int) -> None:
    parts: dict[str, Any] = {"x": ("n", WIDE), "p": ("n", EXPERTS)}
    for name, shape in (("1", (EXPERTS, WIDE, WIDE)), ("2", (EXPERTS, WIDE, WIDE))):
        parts["q" + name] = draw.integers(0, 256, shape).astype(np.uint8)
        parts["s" + name] = np.abs(floats(draw, *shape[:2])) / 1000
        parts["b" + name] = None
    parts |= dict.fromkeys(("q3", "s3", "b3", "z1", "z2", "z3"))
    parts["shares"] = ("n", EXPERTS)
    runs = [{**r, "shares": draw.random(r["p"].shape).astype(np.float32)}
            for r in tokens(draw, 1, 5)]  # fmt: skip
    check("QMoE", parts, *runs, tolerance=1e-4, k=2, activation_type="silu",
          normalize_routing_weights=alone, expert_weight_bits=8)  # fmt: skip


@pytest.mark.parametrize(("k", "few", "shown", "best"), [(2, 4, 2, 2), (3, 2, 1, 1), (2, 1, 1, 2)])
def test_routers_of_groups(k: int, few: int, shown: int, best: int) -> None:
    draw = np.random.default_rng(23)
    parts = {"x": ("n", 8), "bias": floats(draw, 8) / 9}
    runs = [{"x": floats(draw, n, 8)} for n in (3, 1)]
    check("MoEGroupRouter", parts, *runs, top_k=k, n_group=few, topk_group=shown, group_topk=best)


def test_scores_of_routers() -> None:
    """All of them, of numbers that the operator projects itself."""
    draw = np.random.default_rng(29)
    parts = {"x": ("n", 256), "bias": floats(draw, 8), "w": floats(draw, 8, 256)}
    runs = [{"x": floats(draw, n, 256)} for n in (3, 1)]
    check("MoEGroupRouter", parts, *runs, results="_ff", tolerance=1e-4, top_k=2)
