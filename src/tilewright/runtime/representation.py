"""How executables and profiles show themselves in a notebook; imported when one does.

In: what an artifact says, its size, its threads; a profile. Out: HTML (see `support/html.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.runtime import abi
from tilewright.support import html


def executable_html(manifest: abi.Manifest, nbytes: int, threads: int) -> str:
    """Inputs and outputs, and the kernels, folded where there are many."""
    kernels = manifest.kernels
    subtitle = (
        f"{html.counted(len(kernels), 'kernel')}, {html.size(nbytes)}, "
        f"{html.counted(threads, 'thread')}"
    )
    tensors = [("input", *_tensor(t)) for t in manifest.inputs]
    tensors += [("output", *_tensor(t)) for t in manifest.outputs]
    rows = [("kernel", "operators", "shape"), *((k.name, *_work(k)) for k in kernels)]
    return html.block(
        f"Executable {manifest.name}",
        subtitle,
        html.table([("", "name", "dtype", "shape"), *tensors], left=4),
        html.folded("kernels", html.table(rows, left=3), len(kernels)),
    )


def profile_html(profile: Any) -> str:
    """The table of a `Profile`'s kernels, with the part of the time that each takes."""
    head, *rows = profile.rows()
    whole = profile.microseconds or 1
    parts = [f"{100 * k.microseconds / whole:.1f}" for k in profile.kernels]
    shown = [(*head, "% of time"), *((*r, part) for r, part in zip(rows, parts, strict=True))]
    peaks = f"peak {profile.machine.gflops:.0f} GFLOP/s, {profile.machine.gbytes:.1f} GB/s"
    return html.block(
        f"{profile.microseconds:.1f} us a run",
        f"{html.counted(profile.threads, 'thread')}, {peaks}",
        html.folded(html.counted(len(rows), "kernel"), html.table(shown, left=3), len(rows)),
    )


def _tensor(tensor: abi.TensorInfo) -> tuple[str, str, str]:
    dtype = tensor.format if tensor.format and not tensor.format.startswith("map") else tensor.dtype
    return tensor.name, dtype, _sizes(tensor.shape)


def _work(kernel: abi.KernelInfo) -> tuple[str, str]:
    return " ".join(kernel.ops), _sizes(kernel.shape)


def _sizes(shape: Sequence[abi.Dim]) -> str:
    return f"[{', '.join(map(str, shape))}]"
