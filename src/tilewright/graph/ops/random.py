"""Random numbers as a function of a seed and a place: a generator without state.

Every place of every stream has its own number, so the numbers do not depend on how the loop over
them is cut, run in parallel or repeated, and are the same on every machine.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright import te
from tilewright.graph import sizes
from tilewright.graph.operator import INJECTIVE, Type, need, operator
from tilewright.graph.ops.movement import Sizes, ravel
from tilewright.ir.dtype import dtype
from tilewright.ir.expr import Expr

STEP, FIRST, SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def _random_type(seed: Any, *, shape: Sizes, stream: int = 0) -> Type:
    need(seed.dtype.name == "i64" and not seed.shape, "its seed is one i64")
    return dtype("u64"), sizes.shape(shape)


def mixed(z: Any, number: Any) -> Any:
    """Every bit of the result depends on every bit of z (u64). `number` makes a u64."""
    z = (z ^ (z >> number(30))) * number(FIRST)
    z = (z ^ (z >> number(27))) * number(SECOND)
    return z ^ (z >> number(31))


def _random_bits(seed: np.ndarray, shape: Any, stream: int) -> np.ndarray:
    with np.errstate(over="ignore"):
        key = mixed(mixed(seed.astype(np.uint64), np.uint64) + np.uint64(stream), np.uint64)
        places = np.arange(1, int(np.prod(shape)) + 1, dtype=np.uint64).reshape(shape)
        return mixed(key + places * np.uint64(STEP), np.uint64)


@operator(fusion=INJECTIVE, infer=_random_type, reference=_random_bits)
def random_bits(seed: Any, *, shape: Sizes, stream: int = 0) -> Any:
    """Sixty-four random bits for each place; a stream is independent of the others of its seed.

    Source: SplitMix64 (Steele, Lea and Flood 2014), read at a place instead of stepped.
    """

    def number(value: int) -> Expr:
        return te.const(value, "u64")

    def at(*i: Expr) -> Expr:
        key = mixed(mixed(seed[()].astype("u64"), number) + number(stream), number)
        place = (ravel(i, shape) + 1).astype("u64")
        return mixed(key + place * number(STEP), number)

    return te.compute(sizes.shape(shape), at, name="random_bits")
