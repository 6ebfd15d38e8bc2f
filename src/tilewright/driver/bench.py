"""Measuring a model: its latency beside other engines', or its kernels beside the machine.

In: a model, sizes for what it leaves open, inputs. Out: times and profiles, which tables and
records show.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import typer

from tilewright.driver.report.compare import OURS, ROUNDS, Times, difference, engine, take_turns
from tilewright.driver.report.inputs import check_known, read_inputs, read_sizes, unsaid
from tilewright.driver.report.progress import counting
from tilewright.support.errors import InputError


def fixed_sizes(model: str, files: Sequence[str], texts: Sequence[str]) -> dict[str, int]:
    """A number for each open size of a model: what the caller says, in the command or when asked;
    1 for a batch. Raises InputError where nobody can be asked."""
    shapes = _shapes_of(model)
    found = read_sizes(texts)
    names = [d for shape in shapes.values() for d in shape if isinstance(d, str)]
    check_known("--size", found, list(dict.fromkeys(names)))
    missing = [name for name in unsaid(shapes, files) if name not in found]
    batch = {shape[0] for shape in shapes.values() if shape}
    batch.difference_update(d for shape in shapes.values() for d in shape[1:])
    asked = [name for name in missing if name not in batch]
    if asked and not sys.stdin.isatty():
        told = "; ".join(f"{n}[{', '.join(map(str, s))}]" for n, s in shapes.items())
        raise InputError(
            f"cannot measure '{model}'",
            f"its sizes are open: {told}",
            remedy="say which to measure: " + " ".join(f"--size {name}=…" for name in asked),
        )
    found.update((name, typer.prompt(name, type=int, err=True)) for name in asked)
    return found | dict.fromkeys([name for name in missing if name in batch], 1)


def _shapes_of(model: str) -> dict[str, tuple[Any, ...]]:
    """The shapes of a model's inputs; open sizes by their names."""
    if model.endswith(".tw"):
        from tilewright.runtime.executor import load

        exe = load(model)
        names = {s.name for s in exe.manifest.symbols}
        return {t.name: tuple([d if d in names else -1 for d in t.shape]) for t in exe.inputs}
    from tilewright.driver.source import declared_shapes

    return declared_shapes(model)


def random_inputs(exe: Any, files: Sequence[str], sizes: Mapping[str, int], seed: int) -> list[Any]:
    """Arrays for a model that is compiled for these sizes, or for all."""
    symbols = {s.name for s in exe.manifest.symbols}
    return read_inputs(exe.manifest, files, {k: n for k, n in sizes.items() if k in symbols}, seed)


def measure(
    exe: Any, model: str, arrays: Sequence[Any], others: Sequence[str], seconds: float
) -> tuple[dict[str, Times], dict[str, float]]:
    """A model's times on these inputs beside the other engines', in turns; and by how much they
    differ."""
    calls: dict[str, Any] = {OURS: lambda: exe(*arrays)}
    wrong: dict[str, float] = {}
    for name in others:
        other = engine(name, model, exe.threads)
        wrong[name] = difference(exe(*arrays), other(arrays))
        calls[name] = lambda other=other: other(arrays)
    with counting(f"measuring on {exe.threads} threads, in turns", ROUNDS) as bar:
        found = take_turns(
            calls, seconds, progress=lambda n: bar.update(bar.task_ids[0], completed=n)
        )
    return found, wrong
