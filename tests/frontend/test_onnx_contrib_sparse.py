"""Sparse attention of com.microsoft, beside onnxruntime."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import helper, numpy_helper

import tilewright as tw

ROOM, BLOCK, LAYOUTS = 64, 16, 2


def layouts(draw: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """The ends and columns of random blocks below the diagonal, which are all shown."""
    blocks = ROOM // BLOCK
    shown = np.tril(draw.random((LAYOUTS, blocks, blocks)) > 0.5) | np.eye(blocks, dtype=bool)
    ends = np.zeros((LAYOUTS, blocks + 1), np.int32)
    ends[:, 1:] = shown.sum(2).cumsum(1)
    columns = np.full((LAYOUTS, ends.max()), -1, np.int32)
    for k in range(LAYOUTS):
        columns[k, : ends[k, -1]] = np.nonzero(shown[k])[1]
    return ends, columns


@pytest.mark.parametrize(("length", "past", "rotary"), [(20, 0, 0), (1, 33, 0), (1, 40, 1)])
def test_sparse_attention(length: int, past: int, rotary: int) -> None:
    """onnxruntime's caches share their memory with those that come out."""
    draw, total = np.random.default_rng(14), past + length
    batch, heads, few, depth = 2, 4, 2, 16
    ends, columns = layouts(draw)
    feed = {
        "q": draw.standard_normal((batch, length, heads * depth)).astype(np.float32),
        "k": draw.standard_normal((batch, length, few * depth)).astype(np.float32),
        "v": draw.standard_normal((batch, length, few * depth)).astype(np.float32),
        "pk": draw.standard_normal((batch, few, ROOM, depth)).astype(np.float32),
        "pv": draw.standard_normal((batch, few, ROOM, depth)).astype(np.float32),
    }
    fixed = {"ends": ends, "columns": columns, "total": np.array([total], np.int32),
             "counts": np.full(batch, total, np.int32)}  # fmt: skip
    if rotary:
        angles = draw.uniform(0, 3, (ROOM, depth // 2)).astype(np.float32)
        fixed |= {"cos": np.cos(angles), "sin": np.sin(angles)}
    entries = [helper.make_tensor_value_info(k, 1, v.shape) for k, v in feed.items()]
    made = [helper.make_tensor_value_info(k, 1, None) for k in ("y", "nk", "nv")]
    node = helper.make_node(
        "SparseAttention", [*feed, *fixed], ["y", "nk", "nv"], domain="com.microsoft",
        num_heads=heads, kv_num_heads=few, sparse_block_size=BLOCK, do_rotary=rotary,
    )  # fmt: skip
    constants = [numpy_helper.from_array(v, k) for k, v in fixed.items()]
    graph = helper.make_graph([node], "g", entries, made, constants)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    ours = tw.compile(model, cache=False, threads=1)(**feed)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    held = {k: onnxruntime.OrtValue.ortvalue_from_numpy(v.copy()) for k, v in feed.items()}
    binding = session.io_binding()
    for name, value in held.items():
        binding.bind_ortvalue_input(name, value)
    binding.bind_output("y")
    for name, old in (("nk", "pk"), ("nv", "pv")):
        binding.bind_ortvalue_output(name, held[old])
    session.run_with_iobinding(binding)
    wanted = [v.numpy() for v in binding.get_outputs()]
    np.testing.assert_allclose(ours[0], wanted[0], rtol=1e-5, atol=1e-5)
    for a, b in zip(ours[1:], wanted[1:], strict=True):
        np.testing.assert_allclose(a[:, :, :total], b[:, :, :total], rtol=1e-5, atol=1e-5)
