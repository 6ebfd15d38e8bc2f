"""Functions of `te` with what they compute, by NumPy.

In: stages: axes, an expression of them, what reduces it. Out: a `Case`: arrays for its inputs, its
results as numbers with bounds. The one idea: an expression is written once, for `te` and for NumPy
on grids of indices; the reference knows nothing of blocks, loops or schedules.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from tests.tune import bounded
from tests.tune.bounded import Array, Number
from tilewright import te
from tilewright.ir.stmt import Func
from tilewright.te.reduce import extreme_pair


class Named(NamedTuple):
    """An axis of a computation."""

    name: str
    extent: int


Env = dict[str, Any]  # indices by the names of axes
Index = Callable[["Algebra", Env], Any]
Value = Callable[["Algebra", Env], Any]


class Source:
    """What can be read: an input, or what a computation stored."""

    def __init__(self, tensor: te.Tensor, shape: Sequence[int], dtype: str) -> None:
        self.tensor, self.shape, self.dtype = tensor, tuple(shape), dtype
        self.below = 0  # of an input that is an index: what it is less than
        self.is_read = False


class Algebra:
    """The operations of expressions, in `te`."""

    pair = staticmethod(lambda x, y: (x, y))

    def read(self, source: Source, indices: Sequence[Any], clipped: bool) -> Any:
        return source.tensor[tuple(indices)]

    def index(self, source: Source, indices: Sequence[Any]) -> Any:
        return te.cast(source.tensor[tuple(indices)], "i64")

    cast = staticmethod(te.cast)
    exp = staticmethod(te.exp)
    absolute = staticmethod(te.abs)
    maximum = staticmethod(lambda x, y: te.maximum(x, y))
    minimum = staticmethod(lambda x, y: te.minimum(x, y))
    tanh = staticmethod(te.tanh)
    root = staticmethod(te.sqrt)
    over = staticmethod(lambda x, y: x / y)
    greater = staticmethod(lambda x, y: x > y)

    @staticmethod
    def chosen(condition: Any, x: Any, other: float) -> Any:
        return te.if_then_else(condition, x, te.const(other, x.dtype))


class Beside(Algebra):
    """The same of numbers. known: the arrays of sources."""

    def __init__(self, known: dict[Source, Number]) -> None:
        self.known = known

    def read(self, source: Source, indices: Sequence[Any], clipped: bool) -> Any:
        return self.known[source].at(tuple(indices), clipped)

    def index(self, source: Source, indices: Sequence[Any]) -> Any:
        return self.known[source].value[tuple(indices)]

    cast = staticmethod(bounded.cast)
    exp = staticmethod(bounded.exp)
    absolute = staticmethod(abs)
    maximum = staticmethod(lambda x, y: bounded.extreme(x, y, True))
    minimum = staticmethod(lambda x, y: bounded.extreme(x, y, False))
    tanh = staticmethod(lambda x: bounded.smooth(x, np.tanh, np.ones_like))
    root = staticmethod(lambda x: bounded.smooth(x, np.sqrt, lambda r: 0.5 / r))
    chosen = staticmethod(bounded.chosen)
    over = staticmethod(lambda x, y: x / y)

    @staticmethod
    def greater(x: Number, y: float) -> Number:
        return Number(x.value > y, np.where(x.bound == 0, 0.0, np.inf), "bool")


class Stage(NamedTuple):
    """A computation: its axes, its values, what reduces them, what it stores."""

    spatial: tuple[Named, ...]
    reduced: tuple[Named, ...]
    values: Value  # one, or a tuple of the reducer's
    reducer: str  # "" for none
    made: tuple[Source, ...]


class Case(NamedTuple):
    """A function, its inputs and stages. fill: what arrays hold."""

    func: Func
    inputs: tuple[Source, ...]
    stages: tuple[Stage, ...]
    outputs: tuple[Source, ...]
    fill: str

    def arrays(self, random: np.random.Generator) -> list[Array]:
        return [filled(source, self.fill, random) for source in self.inputs]

    def reference(self, arrays: Sequence[Array]) -> list[Number]:
        """The results. The arrays are the inputs."""
        known: dict[Source, Number] = {}
        for source, array in zip(self.inputs, arrays, strict=True):
            known[source] = Number(array.astype(_wide(source.dtype)), 0.0, source.dtype)
        with np.errstate(all="ignore"):
            for stage in self.stages:
                for source, value in zip(stage.made, evaluated(stage, known), strict=True):
                    known[source] = value
        return [known[s] for s in self.outputs]


def _wide(dtype: str) -> Any:
    return np.float64 if dtype in bounded.EPS else np.int64


def filled(source: Source, fill: str, random: np.random.Generator) -> Array:
    """An array for an input. fill: words of "whole", "powers", "real", and "strange" besides."""
    shape, dtype = source.shape, source.tensor.dtype.numpy
    if source.below:
        return random.integers(0, source.below, shape).astype(dtype)
    if source.dtype not in bounded.EPS:
        small = random.choice([-1, 1, 1, 2], shape) if "powers" in fill else None
        drawn = random.integers(-9, 10, shape) if small is None else small
        return (np.abs(drawn) if source.dtype == "u8" else drawn).astype(dtype)
    if "powers" in fill:
        drawn = random.choice([-2.0, -1.0, -0.5, 0.5, 1.0, 1.0, 2.0], shape)
    elif "real" in fill:
        drawn = random.standard_normal(shape)
    else:
        drawn = random.integers(-4, 5, shape) / random.choice([1.0, 2.0])
    if "strange" in fill:
        rate = random.choice([0.02, 0.2])
        strange = random.choice([np.nan, np.inf, -np.inf, -0.0, 0.0], shape)
        drawn = np.where(random.random(shape) < rate, strange, drawn)
    return drawn.astype(dtype)


# What reduces: in te, and along the last axis ---------------------------------------------------

_max_place, _min_place = extreme_pair("argmax", True), extreme_pair("argmin", False)
_folded = te.reducer(lambda a, b: a + b + a * b, lambda t: te.const(0, t), "folded")
_exclusive = te.reducer(lambda a, b: a ^ b, lambda t: te.const(0, t), "exclusive")
_moments = te.reducer(
    lambda a, b: (a[0] + b[0], te.maximum(a[1], b[1])),
    lambda t: (te.const(0, t[0]), te.const(t[1].lowest, t[1])),
    "moments",
)
_range = te.reducer(
    lambda a, b: (te.minimum(a[0], b[0]), te.maximum(a[1], b[1])),
    lambda t: (te.const(t[0].highest, t[0]), te.const(t[1].lowest, t[1])),
    "range",
)
_turns = te.reducer(
    lambda a, b: (a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]),
    lambda t: (te.const(1, t[0]), te.const(0, t[1])),
    "turns",
)


class Reducer(NamedTuple):
    """A way to reduce. apply: in te; beside: of the numbers; gives: how many results; number: is
    the place the second value; kinds: of dtypes."""

    apply: Callable[..., Any]
    beside: Callable[..., Any]
    gives: int = 1
    is_place: bool = False
    kinds: str = "float whole"


REDUCERS = {
    "sum": Reducer(te.sum, bounded.total),
    "prod": Reducer(te.prod, bounded.product),
    "max": Reducer(te.max, bounded.greatest),
    "min": Reducer(te.min, bounded.least),
    "argmax": Reducer(
        _max_place, lambda x, _: (bounded.greatest(x), bounded.place(x, True)), 2, True
    ),
    "argmin": Reducer(
        _min_place, lambda x, _: (bounded.least(x), bounded.place(x, False)), 2, True
    ),
    "folded": Reducer(_folded, bounded.folded),
    "exclusive": Reducer(_exclusive, bounded.exclusive, kinds="whole"),
    "moments": Reducer(_moments, lambda x, y: (bounded.total(x), bounded.greatest(y)), 2),
    "range": Reducer(_range, lambda x, y: (bounded.least(x), bounded.greatest(y)), 2),
    "turns": Reducer(_turns, bounded.complex_product, 2, kinds="float"),
    "any": Reducer(te.any, lambda x: _truth(x, np.any), kinds="bool"),
    "all": Reducer(te.all, lambda x: _truth(x, np.all), kinds="bool"),
}


def _truth(x: Number, of: Callable[..., Array]) -> Number:
    return Number(of(x.value, -1), x.bound.max(-1), "bool")


def evaluated(stage: Stage, known: dict[Source, Number]) -> list[Number]:
    """What a stage stores, on the grid of its axes."""
    axes = stage.spatial + stage.reduced
    shape = tuple(a.extent for a in axes)
    env = dict(zip([a.name for a in axes], np.ogrid[tuple(slice(n) for n in shape)], strict=True))
    if len(axes) == 1:
        env = {axes[0].name: np.arange(axes[0].extent)}
    found = stage.values(Beside(known), env)
    parts = [
        p if isinstance(p, Number) else Number(np.asarray(p, np.int64), 0.0, "i64")
        for p in (found if isinstance(found, tuple) else (found,))
    ]
    spread = bounded.broadcast(parts, shape)
    if not stage.reducer:
        return spread
    flat = (*shape[: len(stage.spatial)], prod(shape[len(stage.spatial) :]))
    lines = [Number(x.value.reshape(flat), x.bound.reshape(flat), x.dtype) for x in spread]
    made = REDUCERS[stage.reducer].beside(*lines)
    return [*made] if isinstance(made, tuple) else [made]
