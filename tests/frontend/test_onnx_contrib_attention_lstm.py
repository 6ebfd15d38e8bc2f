"""com.microsoft's AttnLSTM, beside onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.frontend.test_onnx_contrib_more import check, floats


@pytest.mark.parametrize(
    ("direction", "lengths", "layer"),
    [("forward", False, False), ("reverse", True, True), ("bidirectional", True, True)],
)
def test_steps_that_look_at_a_memory(direction: str, lengths: bool, layer: bool) -> None:
    draw = np.random.default_rng(17)
    count = 2 if direction == "bidirectional" else 1
    batch, width, hidden, depth, attends, steps = 3, 4, 6, 5, 7, 8
    seen = 3 if layer else depth

    def weights(*shape: int) -> np.ndarray:
        return floats(draw, count, *shape) / 2

    parts: dict[str, Any] = {
        "x": ("t", batch, width),
        "w": weights(4 * hidden, width + seen), "r": weights(4 * hidden, hidden),
        "b": weights(8 * hidden) if layer else None,
        "l": (batch,) if lengths else None,
        "h": weights(batch, hidden) if lengths else None,
        "c": weights(batch, hidden) if lengths else None,
        "p": None,
        "query": weights(hidden, attends), "keys": weights(depth, attends), "v": weights(attends),
        "memory": (batch, steps, depth),
        "positions": np.array([8, 2, 5], np.int32) if lengths else None,
        "layer": weights(depth + hidden, seen) if layer else None,
    }  # fmt: skip
    runs = []
    for t in (5, 2):
        given = {"x": floats(draw, t, batch, width)}
        if lengths:
            given["l"] = np.array([t, 1, t - 1], np.int32)
        runs.append(given | {"memory": floats(draw, batch, steps, depth)})
    given = {"hidden_size": hidden, "direction": direction}
    check("AttnLSTM", parts, *runs, results="fff", tolerance=1e-5, **given)
