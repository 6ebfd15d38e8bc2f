"""The command: `python -m tests.nnsmith --count 3000 [--first N] [--case N] [--levels 0,3]`.

Each model is compiled from PyTorch and from ONNX in a process of its own; failures are printed with
their graph, exit code 1 when there is one. `--case N` runs one here.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
from collections import Counter
from typing import Annotated, Any

import numpy as np
import torch
import typer

from tests.differential.verdict import cause
from tests.fuzz.judge import judge
from tests.nnsmith.draw import Drawn, TooLarge, draw, reference_results
from tests.nnsmith.rounding import Disturbed, differences, run
from tilewright.driver.compile import compile_observed
from tilewright.driver.kernels import KernelPool

SECONDS = 240.0  # of processor time, for one model
LEVELS = 4
FARTHER = 3  # than the file's operators are from eager's; they round at other places than ours
ATTRIBUTE = 2.0**-22  # of a number, as far as two attributes of f32 move it
# How far apart two orders of roundings may be, through all of a file's operators.
NEAR = {"float16": 0.03, "float32": 1e-4, "float64": 1e-9}


class Different(Exception):
    """A result that neither eager PyTorch nor rounding explains."""


def main(
    count: Annotated[int, typer.Option(help="how many models")] = 100,
    first: Annotated[int, typer.Option(help="the first model's number")] = 0,
    case: Annotated[int | None, typer.Option(help="run this one here and show it")] = None,
    levels: Annotated[str, typer.Option(help="levels of optimisation; one in turn if empty")] = "",
) -> None:
    """Compile nnsmith's models and compare them with eager PyTorch."""
    if os.environ.get("PYTHONHASHSEED") != "0":  # nnsmith draws from sets
        os.execve(sys.executable, sys.orig_argv, os.environ | {"PYTHONHASHSEED": "0"})
    torch.set_num_threads(1)
    numbers = range(first, first + count) if case is None else [case]
    warm_up()  # the solver remembers: a number's model is that of a process that drew this before
    if case is not None:
        drawn = draw(case)
        print(drawn.text)
        check(drawn, chosen(levels, case))
        print("agrees")
        return
    kinds: Counter[str] = Counter()
    failures: dict[str, list[int]] = {}
    for number in numbers:
        verdict = judge(lambda n=number: check(draw(n), chosen(levels, n)), seconds=SECONDS)
        if verdict.detail.startswith(TooLarge.__name__):
            kinds["too large"] += 1
            continue
        kinds[verdict.kind] += 1
        if verdict.kind != "ok":
            print(f"model {number}: {verdict.kind}: {verdict.detail[:600]}", flush=True)
            failures.setdefault(cause(verdict), []).append(number)
        if (number + 1) % 100 == 0:
            print(f"# up to {number + 1}: {dict(kinds)}", flush=True)
    for name, which in sorted(failures.items(), key=lambda entry: -len(entry[1])):
        print(f"{len(which):5} × {name}: {', '.join(map(str, which[:12]))}")
    print(f"{sum(kinds.values())} models: {dict(kinds)}")
    sys.exit(1 if failures else 0)


def warm_up() -> None:
    """Import everything here, once: what is forked from this process has it at no cost."""
    with contextlib.suppress(Exception):  # told when its turn comes
        check(draw(0), list(range(LEVELS)))
    gc.collect()
    gc.freeze()  # or collections in the children copy all of its memory


def chosen(levels: str, number: int) -> list[int]:
    return [int(level) for level in levels.split(",")] if levels else [number % LEVELS]


def check(drawn: Drawn, levels: list[int]) -> None:
    """Raises Different, or what the compiler raises."""
    inputs = list(drawn.inputs.values())
    arrays = [x.numpy() for x in inputs]
    proto = drawn.onnx()
    kept = [entry.name for entry in proto.graph.input]
    fed = [np.asarray(drawn.inputs[name].numpy()) for name in kept]
    for level in levels:
        compare(f"torch, level {level}", drawn, results(drawn.module, arrays, level, inputs))
        found = results(proto, fed, level)
        try:
            compare(f"onnx, level {level}", drawn, found)
        except Different:  # the exporter wrote another model, or attributes, which are f32
            eager = run(drawn.module, inputs, Disturbed(0, 0.0))
            theirs = reference_results(proto, dict(zip(kept, fed, strict=True))) or eager
            left = [
                np.where(explained(a, b, e), e, a) if a.shape == b.shape == e.shape else a
                for a, b, e in zip(found, theirs, eager, strict=True)
            ]
            compare(f"onnx, level {level}, nor the file's operators one by one", drawn, left)


def results(model: Any, arrays: list[Any], level: int, examples: Any = None) -> list[Any]:
    exe = compile_observed(
        model,
        example_inputs=examples,
        threads=1,
        opt_level=level,
        cache=False,
        pool=KernelPool(1),
    )
    return [np.asarray(x) for x in exe(*arrays)]


def compare(way: str, drawn: Drawn, found: list[Any]) -> None:
    wrong = differences(drawn.module, list(drawn.inputs.values()), found)
    if wrong:
        raise Different(f"{way}: {'; '.join(wrong)}")


def explained(a: np.ndarray, b: np.ndarray, eager: np.ndarray) -> np.ndarray:
    """Which of our results a are what the file's operators make, b, or as far from eager's as a
    file's attributes and constants, which are f32, make f64?"""
    near = NEAR.get(b.dtype.name, 0)
    found = np.isclose(*wide(a, b), near, near, True)
    if eager.dtype == np.float64:
        found |= np.isclose(a, eager, ATTRIBUTE, 0.0, True)
        found |= np.isfinite(b) & (np.abs(a - eager) <= FARTHER * np.abs(b - eager))
    return found


def wide(*arrays: np.ndarray) -> list[np.ndarray]:
    return [a.astype(np.float64) for a in arrays]


if __name__ == "__main__":
    typer.run(main)
