"""The attention operators of com.microsoft: compiled, beside onnxruntime, with their options."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.differential.growth import I32, Growth, Value
from tests.differential.verdict import run
from tests.frontend.test_onnx_contrib import MS, growth, made
from tests.frontend.test_onnx_contrib_more import check as beside
from tests.frontend.test_onnx_contrib_more import floats


def some(count: int, fast: tuple[int, ...]) -> list[Any]:
    """Numbers of option sets; those that are not `fast` run in the slow suite."""
    return [k if k in fast else pytest.param(k, marks=pytest.mark.slow) for k in range(count)]


def check(g: Growth, op: str, *parts: Value | None, outputs: Any = 1, **attrs: Any) -> None:
    listed = list(parts)
    while listed[-1] is None:
        listed.pop()
    g.apply(op, *listed, domain=MS, rough=True, outputs=outputs, **attrs)
    run(g.finish())


def mask(g: Growth, *shape: int) -> Value:
    """0 and 1, the first always 1."""
    array = g.rng.integers(0, 2, shape).astype(np.int32)
    array[..., 0] = 1
    return g.given([array] * g.count, False)


@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("masked", ["", "raw", "rows", "ends", "starts"])
def test_attention(causal: int, masked: str) -> None:
    g = growth(1)
    masks = {
        "": lambda: None, "raw": lambda: mask(g, 2, 5), "rows": lambda: mask(g, 2, 5, 5),
        "ends": lambda: g.constant([3, 5], np.int32),
        "starts": lambda: g.constant([4, 5, 0, 0], np.int32),
    }  # fmt: skip
    parts = (made(g, 2, 5, 12), made(g, 12, 24, low=-0.5, high=0.5), made(g, 24), masks[masked]())
    check(g, "Attention", *parts, num_heads=2, unidirectional=causal)


def test_attention_with_a_past_and_a_bias() -> None:
    g = growth(2)
    past = made(g, 2, 2, 2, 3, 4)
    parts = (made(g, 2, 5, 12), made(g, 12, 24, low=-0.5, high=0.5), made(g, 24), None, past)
    check(g, "Attention", *parts, num_heads=2, unidirectional=1, outputs=2)
    g = growth(3)
    parts = (made(g, 2, 5, 12), made(g, 12, 24, low=-0.5, high=0.5), made(g, 24), None, None)
    check(g, "Attention", *parts, made(g, 2, 2, 5, 5), num_heads=2, scale=0.3)


@pytest.mark.parametrize("options", some(16, fast=(0, 3, 6, 13)))
def test_multi_head_attention(options: int) -> None:
    bias, padded, added, causal = (bool(options & bit) for bit in (1, 2, 4, 8))
    g = growth(4 + options)
    keys = 5 if causal else 6
    parts = (
        made(g, 2, 5, 8), made(g, 2, keys, 8), made(g, 2, keys, 8), made(g, 24) if bias else None,
        mask(g, 2, keys) if padded else None, made(g, 1, 2, 5, keys) if added else None,
    )  # fmt: skip
    check(g, "MultiHeadAttention", *parts, num_heads=2, unidirectional=int(causal))


def test_multi_head_attention_with_a_past() -> None:
    g = growth(30)
    past = made(g, 2, 2, 3, 4), made(g, 2, 2, 3, 4)
    parts = (made(g, 2, 5, 8), made(g, 2, 5, 8), made(g, 2, 5, 8), None, None, None, *past)
    check(g, "MultiHeadAttention", *parts, num_heads=2, outputs=3)


def test_multi_head_attention_to_another_sequence() -> None:
    g = growth(31)
    parts = (made(g, 2, 5, 8), made(g, 2, 2, 7, 4), made(g, 2, 2, 7, 4))
    check(g, "MultiHeadAttention", *parts, num_heads=2)


def test_multi_head_attention_of_symbolic_length() -> None:
    g = growth(32, "N")
    n = (6, 11, 1)
    check(g, "MultiHeadAttention", *(made(g, 2, n, 8) for _ in range(3)), num_heads=2, scale=0.4)


@pytest.mark.parametrize("past", [0, 4])
@pytest.mark.parametrize("options", some(8, fast=(0, 3, 5)))
def test_group_query_attention(past: int, options: int) -> None:
    rotary, packed, window = (bool(options & bit) for bit in (1, 2, 4))
    g, depth, length = growth(40 + options), 16, 1 if past else 5
    q = made(g, 2, length, depth * (8 if packed else 4))
    k, v = (None, None) if packed else (made(g, 2, length, 2 * depth) for _ in range(2))
    caches = [made(g, 2, 2, past, depth) if past else None for _ in range(2)]
    total = past + length
    counts = g.constant([total - 1] * 2, I32), g.constant(total, I32)
    tables = [made(g, 16, depth // 2) for _ in range(2)] if rotary else []
    attrs = {"do_rotary": int(rotary), "local_window_size": 3 if window else -1}
    parts = (q, k, v, *caches, *counts, *tables)
    sizes = {"num_heads": 4, "kv_num_heads": 2}
    check(g, "GroupQueryAttention", *parts, outputs=3, **sizes, **attrs)


@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("length,counts", [(1, (3, 5)), (4, (3,)), (2, (5,))])
def test_group_query_attention_in_a_buffer(length: int, counts: Any, given: bool) -> None:
    """Caches with room for the new keys, of sequences of unlike lengths; the total is known when
    compiling, or given."""
    g, depth, batch = growth(60 + length), 16, len(counts)
    q, *kv = (made(g, batch, length, heads * depth) for heads in (4, 2, 2))
    caches = [made(g, batch, 2, 8, depth) for _ in range(2)]
    tables = [made(g, 16, depth // 2) for _ in range(2)]
    total = np.array(max(counts) + 1, np.int32)
    last = g.given([total] * g.count, False) if given else g.constant(int(total), I32)
    parts = (q, *kv, *caches, g.constant(list(counts), I32), last, *tables)
    sizes = {"num_heads": 4, "kv_num_heads": 2, "do_rotary": 1}
    check(g, "GroupQueryAttention", *parts, outputs=3, **sizes)


@pytest.mark.parametrize("by_head", [False, True])
def test_group_query_attention_with_a_share_of_nothing(by_head: bool) -> None:
    g, depth = growth(70), 16
    q, *kv = made(g, 2, 5, 4 * depth), *(made(g, 2, 5, 2 * depth) for _ in range(2))
    sink = [*[None] * 4, made(g, 4)] if by_head else []
    parts = (q, *kv, None, None, g.constant([4, 4], I32), g.constant(5, I32), *sink)
    sizes = {"num_heads": 4, "kv_num_heads": 2}
    smooth = {} if by_head else {"smooth_softmax": 1}
    check(g, "GroupQueryAttention", *parts, outputs=3, **sizes, **smooth)


@pytest.mark.parametrize("hides", ["", "mask", "bias"])
def test_decoding_in_a_buffer(hides: str) -> None:
    """One query a sequence; how many keys there are before it is a number of the run, or the
    mask's."""
    g = np.random.default_rng(71)
    heads, depth = 2, 4
    wide = heads * depth
    parts: dict[str, Any] = dict.fromkeys("xkv", (2, 1, wide))
    parts["mask"] = (2, "n") if hides == "mask" else None
    parts["add"] = (1, heads, 1, "n") if hides == "bias" else None
    parts |= dict.fromkeys(("past_k", "past_v"), (2, heads, 6, depth))
    parts |= {"at": (1,), "beams": None, "from": None, "bias": floats(g, 3 * wide)}
    runs = []
    for past in (3, 0, 5):
        draw = {k: floats(g, *parts[k]) for k in ("x", "k", "v", "past_k", "past_v")}
        if hides == "mask":
            draw["mask"] = np.ones((2, past + 1), np.int32)
            draw["mask"][0, 1:2] = 0
        elif hides:
            draw["add"] = floats(g, 1, heads, 1, past + 1)
        runs.append(draw | {"at": np.array([past], np.int32)})
    attrs = {"num_heads": heads, "past_present_share_buffer": 1}
    beside("DecoderMaskedMultiHeadAttention", parts, *runs, results="fff", tolerance=1e-5, **attrs)


def test_decoding_beside_another_sequence() -> None:
    g, heads, depth = np.random.default_rng(73), 2, 4
    parts: dict[str, Any] = {"x": (2, 1, 8), "k": (2, heads, "n", depth),
                             "v": (2, heads, "n", depth), "mask": (2, "n")}  # fmt: skip
    runs = []
    for n in (5, 1):
        keys = {c: floats(g, 2, heads, n, depth) for c in "kv"}
        shown = (g.random((2, n)) < 0.7).astype(np.int32)
        runs.append({"x": floats(g, 2, 1, 8), **keys, "mask": shown})
    beside("DecoderMaskedMultiHeadAttention", parts, *runs, tolerance=1e-5, num_heads=heads)
