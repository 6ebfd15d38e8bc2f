"""What rounding explains: our results beside the reference's, and beside how far it moves when
every operand and result is disturbed by a few units in its last place.

The disturbed runs bound the error of ill-conditioned chains and show where a comparison, a rounding
or a choice hangs on the last bit, with no rule per operator.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import ml_dtypes
import numpy as np

from tests.differential.growth import Grown
from tests.differential.reference import Unsound, epsilon, is_float

PLAIN = 64.0  # units of the last place that need no explanation
FEW = 12.0  # the same in types of few bits
TINY = 1e-30  # what underflows may be zero or not
DISTURBED = 3.0  # units by which operands and results of rounding operators are disturbed
BESIDE_ONE = ("Elu", "Celu", "Selu", "Softplus")  # the reference rounds exp(x) - 1 or exp(x) + 1
ROUNDS = (
    (6, 8.0),
    (60, 12.0),
)  # how many disturbed runs, and how many times their spread is allowed


class Difference(Exception):
    """A result is not what the reference computes, beyond rounding."""


def compare(graph: Grown, world: int, results: list[Any]) -> None:
    """Raise Difference unless every result agrees with the reference of this world."""
    wrong = []
    for value, ours in zip(graph.outputs, results, strict=True):
        theirs, ours = value.worlds[world], np.asarray(ours)
        if ours.dtype != theirs.dtype or ours.shape != theirs.shape:
            raise Difference(
                f"{value.name} is {ours.dtype}{list(ours.shape)},"
                f" expected {theirs.dtype}{list(theirs.shape)}"
            )
        if not agrees(ours, theirs, np.zeros(theirs.shape)).all():
            wrong.append((value, ours))
    spreads = {v.name: np.zeros(v.worlds[world].shape) for v, _ in wrong}
    seed = 0
    for count, factor in ROUNDS:
        if not wrong:
            return
        for _ in range(count):
            seed += 1
            widen(spreads, graph, world, np.random.default_rng(seed))
        wrong = [
            (v, ours)
            for v, ours in wrong
            if not agrees(ours, v.worlds[world], factor * spreads[v.name]).all()
        ]
    for v, ours in wrong:
        theirs, spread = v.worlds[world], spreads[v.name]
        bad = np.argwhere(~agrees(ours, theirs, ROUNDS[-1][1] * spread))
        at = tuple(bad[0])
        raise Difference(
            f"{v.name}{list(map(int, at))} is {ours[at]}, expected {theirs[at]}"
            f" ± {spread[at]:.2g}; {len(bad)} of {theirs.size} differ, world {world}"
        )


def agrees(ours: np.ndarray, theirs: np.ndarray, spread: np.ndarray) -> np.ndarray:
    """Where they agree: equal, both NaN, or apart by no more than rounding and `spread`."""
    if not is_float(theirs.dtype):
        apart = np.abs(ours.astype(np.float64) - theirs.astype(np.float64))
        return (ours == theirs) | (apart <= spread)
    a, b = ours.astype(np.float64), theirs.astype(np.float64)
    with np.errstate(all="ignore"):
        about = ml_dtypes.finfo(theirs.dtype)
        tiny = 4 * float(about.smallest_subnormal if theirs.dtype == np.float16 else about.tiny)
        plain = PLAIN if epsilon(theirs.dtype) < 1e-5 else FEW
        bound = plain * epsilon(theirs.dtype) * np.abs(b) + spread + tiny
        close = np.isfinite(b) & (np.abs(a - b) <= bound)
    return close | (a == b) | (np.isnan(a) & np.isnan(b)) | ~np.isfinite(spread)


def widen(
    spreads: dict[str, np.ndarray], graph: Grown, world: int, rng: np.random.Generator
) -> None:
    """Run the reference once more, disturbed, and widen the spread of each value by what moved."""
    disturbed = disturbed_run(graph, world, rng)
    by_name = {v.name: v for v in graph.outputs}
    for name, spread in spreads.items():
        theirs, moved = by_name[name].worlds[world], disturbed.get(name)
        if moved is None or moved.shape != theirs.shape:
            spread[...] = np.inf  # its very shape hangs on a last bit
            continue
        with np.errstate(all="ignore"):
            a, b = moved.astype(np.float64), theirs.astype(np.float64)
            apart = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.abs(a - b))
        np.maximum(spread, np.where(np.isnan(apart), np.inf, apart), out=spread)


def disturbed_run(graph: Grown, world: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Every value, with operands and results of rounding steps disturbed; without those that the
    reference then refuses."""
    found = {v.name: v.worlds[world] for v in graph.given}
    for step in graph.steps:
        names = [v.name for v in step.inputs if v is not None]
        if not all(name in found for name in names):
            continue
        contents = {name: found[name] for name in names}
        if not step.exact:
            contents = {name: disturb(array, rng) for name, array in contents.items()}
        try:
            results = step.run(contents, graph.version)
        except Unsound:
            continue
        most = largest(contents.values()) if step.rough else 0.0
        if step.node.op_type in BESIDE_ONE:
            most = max(most, 1.0)
        for v, result in zip(step.outputs, results, strict=True):
            found[v.name] = result if step.exact else disturb(result, rng, most or TINY)
    return found


def disturb(array: np.ndarray, rng: np.random.Generator, most: float = 0.0) -> np.ndarray:
    """Each float moved by up to DISTURBED units of its last place, or of that of `most`."""
    if not is_float(array.dtype):
        return array
    wide = array.astype(np.float64)
    units = DISTURBED * epsilon(array.dtype) * rng.uniform(-1, 1, array.shape)
    with np.errstate(all="ignore"):
        moved = wide + units * np.maximum(np.abs(wide), most)
        return np.asarray(moved).astype(array.dtype)


def largest(arrays: Iterable[np.ndarray]) -> float:
    """The largest magnitude of floats."""
    floats = [a.astype(np.float64) for a in arrays if is_float(a.dtype) and a.size]
    return max((float(np.abs(a).max()) for a in floats), default=0.0)
