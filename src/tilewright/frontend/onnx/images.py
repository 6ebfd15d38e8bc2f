"""Translators of ONNX operators that resample: Resize and its forebear Upsample."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.frontend.onnx import data_dependent, resized
from tilewright.frontend.onnx.coded import decoded_input
from tilewright.frontend.onnx.registry import NodeContext, Refusal, translates
from tilewright.frontend.onnx.tensors import axis
from tilewright.graph.resample import ROUNDING, Axis, Kernel, resample
from tilewright.ir.expr import as_int

LONGEST_TABLE = 1 << 18  # positions of an axis up to which what each reads is kept as a constant


@translates("ImageDecoder")
def image_decoder(n: NodeContext) -> Any:
    """The pixels of an encoded image, which must be an input of the model: the caller's bytes are
    decoded (by Pillow) where they come in."""
    made = decoded_input(n.build, n[0], n.text("pixel_format", "RGB"))
    n.importer.forget(n[0])
    return made


@translates("Upsample")
def upsample(n: NodeContext) -> Any:
    """Resize with asymmetric coordinates."""
    if (
        n.version >= 9
        and not data_dependent.is_known(n, 1)
        and n.text("mode", "nearest") != "cubic"
    ):
        kind = "nearest" if n.text("mode", "nearest") == "nearest" else "linear"
        every = tuple(range(n[0].rank))
        return resized.resize(n, every, "asymmetric", Kernel(kind, "floor"), (None, n[1], None))
    scales = n.floats("scales") if n.version < 9 else tuple(map(float, n.array(1).ravel()))
    if scales is None or len(scales) != n[0].rank:
        raise Refusal("it needs a scale for each axis")
    if any(not math.isfinite(s) or s <= 0 for s in scales):
        raise Refusal(f"its scales {list(scales)} are not positive")
    shape, every = known(n), tuple(range(n[0].rank))
    whole = [math.floor(size * scale) for scale, size in zip(scales, shape, strict=True)]
    is_open = any(shape[d] < 0 for d in resized_axes(n, every, scales, None))
    kind = n.text("mode", "nearest")
    if (is_open or max(whole, default=0) > LONGEST_TABLE) and kind != "cubic":
        kernel = Kernel("nearest" if kind == "nearest" else "linear", "floor")
        return at_run_time(n, every, "asymmetric", kernel, scales, None)
    axes = []
    for d, (scale, new) in enumerate(zip(scales, whole, strict=True)):
        if scale != 1:
            axes.append(Axis(d, np.arange(new) / scale, scale))
    if kind not in ("nearest", "linear", "bilinear"):
        raise Refusal(f"mode {kind!r} is not known")
    kernel = Kernel("nearest", "floor") if kind == "nearest" else Kernel("linear")
    return resample(n.build, n[0], axes, kernel)


@translates("Resize")
def resize(n: NodeContext) -> Any:
    x, kind = n[0], n.text("mode", "nearest")
    if kind not in ("nearest", "linear", "cubic"):
        raise Refusal(f"mode {kind!r} is not known")
    rounding = n.text("nearest_mode", "round_prefer_floor")
    if rounding not in ROUNDING:
        raise Refusal(f"nearest_mode {rounding!r} is not known")
    if n.version < 11 and not data_dependent.is_known(n, 1):
        every, kernel = tuple(range(x.rank)), kernel_of(n, kind, "floor")
        return resized.resize(n, every, "asymmetric", kernel, (None, n[1], None))
    if n.version < 11:
        scales, goal, roi = n.array(1).ravel(), None, None
        how, rounding, axes = "asymmetric", "floor", tuple(range(x.rank))
    else:
        how = n.text("coordinate_transformation_mode", "half_pixel")
        axes = tuple(axis(n, a, x.rank) for a in n.ints("axes", tuple(range(x.rank))))
        if not all(data_dependent.is_constant(n, k) for k in (1, 2, 3)):
            return resized.resize(n, axes, how, kernel_of(n, kind, rounding), later(n))
        roi = optional_array(n, 1)
        scales, goal = optional_array(n, 2), None
        if scales is None:
            goal = n.numbers(3)
    shape = known(n)
    if len(scales if scales is not None else goal or ()) != len(axes):
        raise Refusal(f"it needs a scale or a size for each of {len(axes)} axes")
    kernel, asked = kernel_of(n, kind, rounding), (scales, goal)
    windows = dict.fromkeys(axes, (0.0, 1.0))
    if how == "tf_crop_and_resize" and roi is not None and len(roi) == 2 * len(axes):
        windows = {a: (float(roi[k]), float(roi[len(axes) + k])) for k, a in enumerate(axes)}
    cut = [a for a, window in windows.items() if window != (0.0, 1.0)]
    if any(shape[a] < 0 for a in (*cut, *resized_axes(n, axes, scales, goal))):
        return at_run_time(n, axes, how, kernel, *asked)
    scales, goal = factors(n, [shape[a] for a in axes], scales, goal)
    if max(goal, default=0) > LONGEST_TABLE:
        return at_run_time(n, axes, how, kernel, *asked)
    if 0 in goal:
        size = dict(zip(axes, goal, strict=True))
        return n.emit(
            "expand", n.constant(0, x.dtype), shape=[size.get(d, s) for d, s in enumerate(shape)]
        )
    made, outside = [], []
    for a, scale, new in zip(axes, scales, goal, strict=True):
        if new == shape[a] and a not in cut:
            continue
        positions = coordinates(how, shape[a], new, float(scale), windows[a])
        made.append(Axis(a, positions, float(scale)))
        if a in cut:
            outside.append((a, (positions < 0) | (positions > shape[a] - 1)))
    y = resample(n.build, x, made, kernel)
    for a, mask in outside:
        if mask.any():
            side = [1] * y.rank
            side[a] = len(mask)
            value = n.constant(n.float("extrapolation_value", 0.0), y.dtype)
            y = n.build.emit("where", n.build.constant(mask.reshape(side)), value, y)
    return y


def resized_axes(n: NodeContext, axes: Sequence[int], scales: Any, goal: Any) -> list[int]:
    """The axes whose size changes, as far as that is known."""
    if scales is not None:
        return [a for a, s in zip(axes, scales, strict=True) if s != 1]
    return [a for a, g in zip(axes, goal, strict=True) if as_int(n[0].shape[a]) != g]


def at_run_time(
    n: NodeContext, axes: Sequence[int], how: str, kernel: Kernel, scales: Any, goal: Any
) -> Any:
    """Known factors or sizes of axes that are symbolic."""
    kept = axes if how == "tf_crop_and_resize" else resized_axes(n, axes, scales, goal)
    at = [axes.index(a) for a in kept]
    window = optional_array(n, 1) if n.version >= 11 else None
    if window is not None and len(window) == 2 * len(axes):
        window = window[at + [k + len(axes) for k in at]]
    roi = None if window is None else n.constant(window)
    given = None if scales is None else n.constant(np.asarray(scales, np.float32)[at])
    asked = None if goal is None else n.constant(np.asarray(goal, np.int64)[at])
    return resized.resize(n, kept, how, kernel, (roi, given, asked))


def kernel_of(n: NodeContext, kind: str, rounding: str) -> Kernel:
    return Kernel(
        kind,
        rounding,
        n.float("cubic_coeff_a", -0.75),
        n.flag("antialias"),
        n.flag("exclude_outside"),
    )


def later(n: NodeContext) -> tuple[Any, Any, Any]:
    """roi, scales and sizes as values; those that are empty are not there."""
    found = [n.optional(k) for k in (1, 2, 3)]
    roi, scales, asked = (v if v is not None and as_int(v.elements) != 0 else None for v in found)
    return roi, scales, asked


def known(n: NodeContext) -> tuple[int, ...]:
    """The sizes of the input; symbolic ones as -1."""
    return tuple(-1 if (s := as_int(d)) is None else s for d in n[0].shape)


def optional_array(n: NodeContext, k: int) -> np.ndarray | None:
    """Input k if it is there and not empty."""
    if n.optional(k) is None:
        return None
    array = n.array(k).ravel()
    return array if array.size else None


def factors(
    n: NodeContext, shape: list[int], scales: Any, goal: Any
) -> tuple[list[float], list[int]]:
    """The scale and the new size of each axis."""
    if scales is not None:
        made = [float(s) for s in scales]
        if any(not math.isfinite(s) or s <= 0 for s in made):
            raise Refusal(f"its scales {made} are not positive")
        sizes = [s if f == 1 else math.floor(s * f) for s, f in zip(shape, made, strict=True)]
    else:
        sizes = [int(g) for g in goal]
        if any(s <= 0 for s in shape):
            raise Refusal("it needs sizes that are not 0")
        made = [g / s for g, s in zip(sizes, shape, strict=True)]
        policy = n.text("keep_aspect_ratio_policy", "stretch")
        if policy != "stretch":
            one = min(made) if policy == "not_larger" else max(made)
            made = [one] * len(made)
            sizes = [math.floor(one * s + 0.5) for s in shape]
    for s, _f, g in zip(shape, made, sizes, strict=True):
        if s > 0 and not 0 <= g <= 1 << 24:
            raise Refusal(f"its result would have size {g}")
    return made, sizes


def coordinates(
    how: str, old: int, new: int, scale: float, window: tuple[float, float]
) -> np.ndarray:
    """Where the new positions lie in the old ones. Source: ONNX Resize-19."""
    i = np.arange(max(new, 0), dtype=np.float64)
    whole = scale * old
    if how == "half_pixel":
        return (i + 0.5) / scale - 0.5
    if how == "half_pixel_symmetric":
        return old / 2 * (1 - new / whole) + (i + 0.5) / scale - 0.5
    if how == "pytorch_half_pixel":
        return (i + 0.5) / scale - 0.5 if new > 1 else i * 0
    if how == "asymmetric":
        return i / scale
    if how == "tf_half_pixel_for_nn":
        return (i + 0.5) / scale
    if how == "align_corners":
        return i * (old - 1) / (whole - 1) if whole != 1 else i * 0
    if how == "tf_crop_and_resize":
        start, end = window
        if new > 1:
            return start * (old - 1) + i * (end - start) * (old - 1) / (new - 1)
        return i + 0.5 * (start + end) * (old - 1)
    raise Refusal(f"coordinate_transformation_mode {how!r} is not known")
