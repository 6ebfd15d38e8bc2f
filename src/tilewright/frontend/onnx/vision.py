"""Translators of ONNX operators that read images at positions which other tensors give."""

from __future__ import annotations

from typing import Any

from tilewright.frontend.onnx.registry import NodeContext, Refusal, translates
from tilewright.graph import grid_sample as grids
from tilewright.graph.graph import Value


@translates("GridSample")
def grid_sample(n: NodeContext) -> Any:
    """Each position of the grid names a position of the image in [-1, 1], the last axis first."""
    mode = n.text("mode", "linear").removeprefix("bi")
    padding = n.text("padding_mode", "zeros")
    if mode not in grids.MODES or padding not in grids.PADDINGS:
        raise Refusal(f"mode {mode!r} with padding {padding!r} is not known")
    return grids.grid_sample(n.build, n[0], n[1], mode, padding, bool(n.flag("align_corners")))


def scalar(n: NodeContext, size: Any) -> Value:
    return grids.scalar(n.build, size)
