"""What rounding explains of a PyTorch module: how far its results move when the result of every
operator that rounds is disturbed by a few units in its last place.

Where eager leaves open what comes out, is wrong, or docs/accuracy.md says otherwise, results are
the documented ones: casts of floats that no integer holds, GELU of infinities, cubic interpolation
of doubles (eager takes the floor of a position as f32: just below 41635 that is 41635).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

from tests.differential.comparison import DISTURBED, ROUNDS, agrees

# Operators whose results are among their operands, or whole numbers: nothing of them is rounded.
EXACT = frozenset(
    """
    abs alias amax amin argmax argmin as_strided bitwise_and bitwise_or bitwise_xor bitwise_not cat
    ceil clamp clone constant_pad_nd copy detach eq expand fill floor ge gt le logical_and
    logical_not logical_or logical_xor lt max max_pool2d_with_indices maximum min minimum ne neg
    permute reflection_pad1d reflection_pad2d reflection_pad3d relu replication_pad1d
    replication_pad2d replication_pad3d reshape round select sign slice squeeze t transpose tril
    triu trunc unsqueeze upsample_nearest1d upsample_nearest2d upsample_nearest3d view where
    _unsafe_view empty full ones zeros arange lift_fresh
    """.split()
)
# Operators that add up, inside too: a result may be small beside what was added.
SUMS = frozenset(
    """
    add sub convolution mm bmm addmm matmul mv dot sum mean avg_pool2d native_batch_norm
    _native_batch_norm_legit_no_training upsample_linear1d upsample_bilinear2d upsample_bicubic2d
    upsample_trilinear3d _upsample_bilinear2d_aa lerp gelu elu softplus
    """.split()
)

# Operators whose results are none of them 0, but for rounding.
POSITIVE = frozenset("_softmax exp sigmoid softplus".split())
ACCUMULATORS = 64  # numbers that are added side by side, at least, in a long sum


class Disturbed(TorchDispatchMode):
    """Runs every operator with its rounded results disturbed; `scale` 0 only watches."""

    def __init__(self, seed: int, scale: float = DISTURBED) -> None:
        super().__init__()
        self.random = torch.Generator().manual_seed(seed)
        self.scale = scale

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__.rstrip("_")
        if name == "_to_copy":
            return self.cast(args[0], result)
        if name == "gelu":
            result = torch.where(args[0].isinf(), args[0].clamp(min=0.0), result)
        if name == "upsample_bicubic2d" and args[0].dtype == torch.float64:
            result = bicubic(*args)
        if name in EXACT or not self.scale:
            return result
        operands = [x for x in tree_flatten(args)[0] if isinstance(x, torch.Tensor)]
        most = max(map(largest, operands), default=0.0) if name in SUMS else 0.0
        count = terms(name, operands)
        most *= math.sqrt(count)  # about what a sum of numbers of any sign reaches
        if name.startswith(("upsample", "_upsample")):  # positions are rounded, too
            most *= max(1, *operands[0].shape[2:])
        long, is_positive = math.sqrt(count / ACCUMULATORS), name in POSITIVE
        return tree_map(lambda x: self.move(x, most, long, is_positive), result)

    def cast(self, before: torch.Tensor, after: torch.Tensor) -> torch.Tensor:
        if before.is_floating_point() and not after.is_floating_point():
            return after if after.dtype == torch.bool else saturated(before, after)
        if after.is_floating_point() and after.itemsize < before.itemsize and self.scale:
            return self.move(after, 0.0)
        return after

    def move(self, x: Any, most: float, long: float = 1.0, is_positive: bool = False) -> Any:
        """long: how many times as far a sum of numbers of one sign is as its last place, if more
        than once. Numbers below the normal ones move by the least there is; so does 0 if
        `is_positive`."""
        if not isinstance(x, torch.Tensor) or not x.is_floating_point():
            return x
        wide = x.double()
        units = torch.rand(x.shape, generator=self.random, dtype=torch.float64) * 2 - 1
        kind = torch.finfo(x.dtype)
        by = torch.clamp(wide.abs() * max(1.0, long), min=most)
        by = by * (self.scale * kind.eps)
        small = (wide.abs() < kind.tiny) & ((wide != 0) | is_positive)
        moved = wide + units * torch.where(small, by.clamp(min=kind.tiny * kind.eps), by)
        return torch.where(torch.isfinite(by), moved, wide).to(x.dtype)


def terms(name: str, operands: list[torch.Tensor]) -> int:
    """How many terms are added up for an element of the result."""
    if name == "convolution":
        return operands[1][0].numel()
    if name in ("mv", "dot"):
        return operands[-1].numel()
    if name in ("_softmax", "_log_softmax"):
        return max(1, *operands[0].shape)
    if name == "upsample_bicubic2d":
        return 16
    return operands[-1].shape[-2] if name in ("mm", "bmm", "addmm", "matmul") else 1


def largest(x: torch.Tensor) -> float:
    """The largest finite magnitude."""
    if not x.is_floating_point() or not x.numel():
        return 0.0
    return float(torch.nan_to_num(x.double(), 0.0, 0.0, 0.0).abs().max())


def saturated(before: torch.Tensor, after: torch.Tensor) -> torch.Tensor:
    """A cast to integers: the end of the range for what lies beyond it, 0 for NaN."""
    about, wide = torch.iinfo(after.dtype), before.double()
    after = torch.where(wide < about.max + 1.0, after, about.max)
    after = torch.where(wide > about.min - 1.0, after, about.min)
    return torch.where(wide.isnan(), 0, after)


def bicubic(
    x: torch.Tensor, size: list[int], align_corners: bool, *scales: float | None
) -> torch.Tensor:
    """torch's upsample_bicubic2d of [n, c, h, w]."""
    for axis, count, scale in zip((2, 3), size, scales or (None, None), strict=True):
        if count == x.shape[axis]:
            continue
        last, out = x.shape[axis] - 1, torch.arange(count, dtype=torch.float64)
        ratio = 1 / scale if scale else x.shape[axis] / count
        at = out * (last / max(1, count - 1)) if align_corners else (out + 0.5) * ratio - 0.5
        first = at.floor()
        t, shape = at - first, [-1 if n == axis else 1 for n in range(4)]
        near = [(1.25 * d - 2.25) * d * d + 1 for d in (t, 1 - t)]
        far = [((-0.75 * d + 3.75) * d - 6) * d + 3 for d in (1 + t, 2 - t)]
        pixels = [(first + k).clamp(0, last).long() for k in (-1, 0, 1, 2)]
        weights = [w.reshape(shape) for w in (far[0], *near, far[1])]
        x = sum(w * x.index_select(axis, at) for w, at in zip(weights, pixels, strict=True))
    return x


def run(module: Callable[..., Any], inputs: list[torch.Tensor], mode: Disturbed) -> list[Any]:
    """The results as arrays."""
    with torch.no_grad(), mode:
        results = module(*[x.clone() for x in inputs])
    flat = results if isinstance(results, (list, tuple)) else [results]
    return [x.numpy() for x in flat]


def differences(
    module: Callable[..., Any], inputs: list[torch.Tensor], found: list[Any]
) -> list[str]:
    """What of `found` eager PyTorch and rounding do not explain."""
    expected = run(module, inputs, Disturbed(0, 0.0))
    for k, (a, b) in enumerate(zip(found, expected, strict=True)):
        if a.shape != b.shape or a.dtype != b.dtype:
            return [f"output {k} is {a.dtype}{a.shape}, eager gives {b.dtype}{b.shape}"]
    spreads = [np.zeros(b.shape) for b in expected]
    wrong, seed = [k for k, b in enumerate(expected) if not near(found[k], b, spreads[k])], 0
    for count, factor in ROUNDS:
        for _ in range(count if wrong else 0):
            seed += 1
            widen(spreads, expected, run(module, inputs, Disturbed(seed)))
        wrong = [k for k in wrong if not near(found[k], expected[k], factor * spreads[k])]
    return [describe(k, found[k], expected[k], ROUNDS[-1][1] * spreads[k]) for k in wrong]


def near(ours: np.ndarray, theirs: np.ndarray, spread: np.ndarray) -> bool:
    return bool(agrees(ours, theirs, spread).all())


def widen(spreads: list[np.ndarray], expected: list[Any], moved: list[Any]) -> None:
    for spread, a, b in zip(spreads, expected, moved, strict=True):
        with np.errstate(all="ignore"):
            a, b = a.astype(np.float64), b.astype(np.float64)
            apart = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.abs(a - b))
        np.maximum(spread, np.where(np.isnan(apart), np.inf, apart), out=spread)


def describe(k: int, ours: np.ndarray, theirs: np.ndarray, spread: np.ndarray) -> str:
    bad = np.argwhere(~agrees(ours, theirs, spread))
    at = tuple(bad[0])
    return (
        f"output {k}{list(map(int, at))} is {ours[at]!r}, eager gives {theirs[at]!r}"
        f" ± {spread[at]:.2g}; {len(bad)} of {theirs.size} differ"
    )
