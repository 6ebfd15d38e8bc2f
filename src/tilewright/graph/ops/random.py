"""Random numbers as a function of a seed and an index: a generator without state. And NumPy's, for
what is defined by it.

Every index of every stream has its own number, so the numbers do not depend on how the loop over
them is cut, run in parallel or repeated, and are the same on every machine.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright import te
from tilewright.graph import sizes
from tilewright.graph.operator import INJECTIVE, OPAQUE, Type, need, operator
from tilewright.graph.ops.movement import Sizes, ravel
from tilewright.ir.dtype import dtype
from tilewright.ir.expr import Expr
from tilewright.te.program import program

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
        indices = np.arange(1, int(np.prod(shape)) + 1, dtype=np.uint64).reshape(shape)
        return mixed(key + indices * np.uint64(STEP), np.uint64)


@operator(fusion=INJECTIVE, infer=_random_type, reference=_random_bits)
def random_bits(seed: Any, *, shape: Sizes, stream: int = 0) -> Any:
    """Sixty-four random bits for each element; a stream is independent of the others of its seed.

    Source: SplitMix64 (Steele, Lea and Flood 2014), read at an index instead of stepped.
    """

    def number(value: int) -> Expr:
        return te.const(value, "u64")

    def at(*i: Expr) -> Expr:
        key = mixed(mixed(seed[()].astype("u64"), number) + number(stream), number)
        index = (ravel(i, shape) + 1).astype("u64")
        return mixed(key + index * number(STEP), number)

    return te.compute(sizes.shape(shape), at, name="random_bits")


def _mersenne_type(seed: Any, *, count: Any) -> list[Type]:
    need(seed.dtype.name == "i64" and seed.shape == (sizes.size(1),), "its seed is one i64")
    return [(dtype("f64"), (sizes.size(count),)), (dtype("u32"), (sizes.size(624),))]


def _mersenne(seed: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.RandomState(int(seed[0]) & 0xFFFFFFFF)
    drawn = random.random_sample(count)
    state: Any = random.get_state()[1]
    return drawn, state


_MERSENNE = """
def mersenne(seed: i64[one], y: f64[count], state: u32[words], one: i64, count: i64, words: i64):
    state[0] = u32(seed[0])
    for i in serial(1, 624):
        before: u32 = state[i - 1]
        state[i] = u32(1812433253) * (before ^ (before >> u32(30))) + u32(i)
    for j in serial(0, count):
        if j % 312 == 0:
            for i in serial(0, 624):
                high: u32 = state[i] & u32(2147483648)
                both: u32 = high | (state[(i + 1) % 624] & u32(2147483647))
                odd: u32 = (both & u32(1)) * u32(2567483615)
                state[i] = state[(i + 397) % 624] ^ (both >> u32(1)) ^ odd
        a0: u32 = state[j % 312 * 2]
        a1: u32 = a0 ^ (a0 >> u32(11))
        a2: u32 = a1 ^ ((a1 << u32(7)) & u32(2636928640))
        a3: u32 = a2 ^ ((a2 << u32(15)) & u32(4022730752))
        a4: u32 = (a3 ^ (a3 >> u32(18))) >> u32(5)
        b0: u32 = state[j % 312 * 2 + 1]
        b1: u32 = b0 ^ (b0 >> u32(11))
        b2: u32 = b1 ^ ((b1 << u32(7)) & u32(2636928640))
        b3: u32 = b2 ^ ((b2 << u32(15)) & u32(4022730752))
        b4: u32 = (b3 ^ (b3 >> u32(18))) >> u32(6)
        y[j] = (f64(a4) * f64(67108864) + f64(b4)) / f64(9007199254740992)
"""


@operator(fusion=OPAQUE, infer=_mersenne_type, reference=_mersenne)
def mersenne(seed: Any, *, count: Any) -> Any:
    """`count` uniform numbers of [0, 1) in turn, as NumPy's RandomState(seed) draws them; and the
    generator's state. Source: MT19937 (Matsumoto and Nishimura 1998), 53 bits a number."""
    sized = {"count": sizes.size(count), "words": sizes.size(624)}
    return program(_MERSENNE, [seed], "f64", **sized)
