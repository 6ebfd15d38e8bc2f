"""Handwritten digits: the trained model, compiled and run on every image it has never seen.

In: `digits.onnx` beside this file (made by examples/digits/train.py) and scikit-learn's images.
Out: on the console its compile stages, its fused graph, its accuracy and its latency; and whether
all is well: at least 97 % right, and the same predictions as ONNX Runtime's where that is
installed.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from tilewright.driver.compile import compile_observed
from tilewright.driver.report import tables
from tilewright.driver.report.compare import OURS, difference, engine, take_turns
from tilewright.driver.report.progress import compiling, counting
from tilewright.support.errors import CompileError

MODEL = Path(__file__).with_name("digits.onnx")
HELD_OUT_EVERY = 5  # the images of which none was trained on: 0, 5, 10, …
LEAST_ACCURACY = 0.97
REFERENCE = "onnxruntime"


def held_out() -> tuple[np.ndarray, np.ndarray]:
    """Images f32[n, 1, 8, 8] with grey values 0 … 16, and their labels. Raises CompileError where
    scikit-learn, which ships them, is missing."""
    try:
        from sklearn.datasets import load_digits
    except ModuleNotFoundError:
        raise CompileError(
            "cannot run the demo",
            "its images come with scikit-learn, which is not installed",
            remedy="pip install 'tilewright[demo]'",
        ) from None
    data: Any = load_digits()
    images = data.images.astype(np.float32)[::HELD_OUT_EVERY, None]
    return np.ascontiguousarray(images), data.target[::HELD_OUT_EVERY]


def run_digits(console: Console, threads: int = 1, seconds: float = 1.0) -> bool:
    """The demo; `seconds` is the time spent on measuring each engine. Is all well?"""
    images, labels = held_out()
    seen: dict[str, Any] = {}

    def keep(step: str, before: Any, after: Any, seconds: float) -> None:
        seen[step] = after

    with compiling(MODEL.name) as stages:
        exe = compile_observed(MODEL, threads=threads, cache=False, stages=stages, observers=[keep])
    console.print(
        f"[bold]{MODEL.name}[/bold]: {', '.join(map(str, exe.inputs))} → "
        f"{', '.join(map(str, exe.outputs))}",
        highlight=False,
    )
    console.print(tables.stages_table(stages))
    groups = [g for g in seen["fuse"].groups if not g.is_view]
    console.print(tables.groups_table(exe.manifest.kernels, groups))
    console.print(
        f"{len(seen['import'].nodes)} operators became {len(groups)} kernels in one native "
        f"program: {tables.bytes_text(len(exe.artifact()))} with weights, "
        f"{tables.bytes_text(exe.arena_bytes)} of working memory\n",
        highlight=False,
    )

    with counting("classifying", len(images)) as bar:
        ours = []
        for image in images:
            ours.append(exe(image[None])[0])
            bar.advance(bar.task_ids[0])
    predicted = np.concatenate(ours).argmax(1)
    right = int((predicted == labels).sum())
    accuracy = right / len(labels)
    well = accuracy >= LEAST_ACCURACY
    console.print(f"accuracy     {accuracy:.2%}: {right} of {len(labels)} images never seen before")

    calls: dict[str, Any] = {OURS: lambda: exe(images[:1])}
    errors: dict[str, float] = {}
    if find_spec(REFERENCE) is None:
        console.print(f"{REFERENCE} is not installed: nothing to compare with")
    else:
        other = engine(REFERENCE, str(MODEL), threads)
        theirs = [other([image[None]])[0] for image in images]
        same = int((predicted == np.concatenate(theirs).argmax(1)).sum())
        well = well and same == len(images)
        errors[REFERENCE] = difference(ours, theirs)
        console.print(f"predictions  {same} of {len(images)} equal {REFERENCE}'s")
        calls[REFERENCE] = lambda: other([images[:1]])
    with counting("measuring, in turns", 10) as bar:
        found = take_turns(
            calls, seconds, 10, lambda done: bar.update(bar.task_ids[0], completed=done)
        )
    threads_text = f"{threads} thread{'s' * (threads > 1)}"
    console.print()
    console.print(tables.times_table(f"one image, {threads_text}", found, errors))
    console.print("[green]all is well[/green]" if well else "[red]something is wrong[/red]")
    return well
