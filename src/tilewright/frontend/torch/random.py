"""Translators of ATen operators that draw random numbers.

Numbers are a function of a seed, the node and the position. Where each run has its own seed (under
torch.compile, or imported with `seeded`) each draws others; else an exported module draws the same
ones whenever it runs, and a dropout in training mode is refused: the same mask at each step would
train something else.
PyTorch's own generator is another, so numbers are equal in distribution only.
"""

from __future__ import annotations

import math
from typing import Any

from tilewright.frontend.torch.convert import Refusal
from tilewright.frontend.torch.elementwise import scaled
from tilewright.frontend.torch.registry import EVAL, TRANSLATORS, NodeContext, axis_of, translates
from tilewright.graph.graph import Value
from tilewright.ir.dtype import dtype

SEEDED = f"{EVAL}; to train, import it with seeded=True and give each run another seed"
STREAMS = 8  # of a node: one for each tensor of numbers that it draws


class Draws:
    """The random numbers of a node, in f64. Each call gives others."""

    def __init__(self, n: NodeContext) -> None:
        self.n = n
        self.seed = n.seed() if n.seed else n.constant(0, "i64")
        position = list(n.node.graph.nodes).index(n.node)
        self.stream = (position + 1) * STREAMS

    def number(self, x: Any) -> Value:
        """A parameter of a distribution: a tensor or a number."""
        return self.n.cast(x, "f64") if isinstance(x, Value) else self.n.constant(float(x), "f64")

    def f(self, op: str, *inputs: Any) -> Value:
        return self.n.emit(op, *[self.number(x) for x in inputs])

    def uniform(self, shape: Any) -> Value:
        """Evenly spread over [0, 1)."""
        bits = self.n.emit("random_bits", self.seed, shape=tuple(shape), stream=self.stream)
        self.stream += 1
        whole = self.n.emit("shift_right", bits, self.n.constant(11, "u64"))
        return self.f("mul", self.n.cast(whole, "f64"), 2.0**-53)

    def exponential(self, shape: Any) -> Value:
        """Of mean 1."""
        return self.f("neg", self.f("log", self.f("sub", 1.0, self.uniform(shape))))

    def normal(self, shape: Any) -> Value:
        """Of mean 0 and deviation 1. Source: Box and Muller 1958."""
        radius = self.f("sqrt", self.f("mul", self.exponential(shape), 2.0))
        angle = self.f("mul", self.uniform(shape), 2 * math.pi)
        return self.f("mul", radius, self.f("cos", angle))

    def between(self, shape: Any, low: int, high: int) -> Value:
        """Whole numbers of [low, high), as i64."""
        wide = self.f("mul", self.uniform(shape), high - low)
        whole = self.n.cast(self.f("floor", wide), "i64")
        return self.n.emit("add", whole, self.n.constant(low, "i64"))


@translates("rand.default", "rand_like.default")
def rand(n: NodeContext, *_: Any, **named: Any) -> Any:
    return n.cast(Draws(n).uniform(n.shape), n.of)


@translates("randn.default", "randn_like.default")
def randn(n: NodeContext, *_: Any, **named: Any) -> Any:
    return n.cast(Draws(n).normal(n.shape), n.of)


@translates("uniform.default")
def uniform(n: NodeContext, x: Value, low: float = 0.0, high: float = 1.0, **named: Any) -> Any:
    draws = Draws(n)
    wide = draws.f("mul", draws.uniform(n.shape), high - low)
    return n.cast(draws.f("add", wide, low), n.of)


@translates("exponential.default")
def exponential(n: NodeContext, x: Value, rate: float = 1.0, **named: Any) -> Any:
    draws = Draws(n)
    return n.cast(draws.f("div", draws.exponential(n.shape), rate), n.of)


@translates("geometric.default")
def geometric(n: NodeContext, x: Value, p: float, **named: Any) -> Any:
    """How many trials the first success takes, each of which succeeds with the probability p."""
    draws = Draws(n)
    wait = draws.f("div", draws.exponential(n.shape), -math.log1p(-p) if p < 1 else math.inf)
    return n.cast(draws.f("add", draws.f("floor", wait), 1.0), n.of)


@translates("normal_functional.default", "normal.default")
def normal(n: NodeContext, x: Value, mean: float = 0.0, std: float = 1.0, **named: Any) -> Any:
    return spread(n, mean, std)


@translates("normal.Tensor_Tensor", "normal.Tensor_float", "normal.float_Tensor")
def normal_of(n: NodeContext, mean: Any, std: Any = 1.0, **named: Any) -> Any:
    return spread(n, mean, std)


def normal_of_shape(n: NodeContext, shape: Any, *, mean: Any, std: Any, **named: Any) -> Any:
    return spread(n, mean, std)


TRANSLATORS["prims.normal.default"] = normal_of_shape


def spread(n: NodeContext, mean: Any, std: Any) -> Value:
    draws = Draws(n)
    return n.cast(draws.f("add", draws.f("mul", draws.normal(n.shape), std), mean), n.of)


@translates("randint.default", "randint.low", "randint_like.default", "randint_like.low_dtype")
def randint(n: NodeContext, *args: Any, **named: Any) -> Any:
    """(high, size), (low, high, size), (x, high) or (x, low, high)."""
    bounds = [a for a in args if not isinstance(a, Value | list | tuple)]
    low, high = bounds if str(n.node.target).split(".")[2].startswith("low") else (0, bounds[0])
    if not isinstance(low, int) or not isinstance(high, int):
        raise Refusal("its bounds are sizes")
    return n.cast(Draws(n).between(n.shape, low, high), n.of)


@translates("randperm.default")
def randperm(n: NodeContext, count: Any, **named: Any) -> Any:
    """The order of as many random numbers."""
    (k,) = n.static([count], "the length of a permutation")
    if not k:
        return n.full(0)
    return n.cast(n.emit("top_k", Draws(n).uniform((k,)), k=k, axis=0)[1], n.of)


@translates("bernoulli.default")
def bernoulli(n: NodeContext, x: Value, **named: Any) -> Any:
    draws = Draws(n)
    return n.cast(draws.f("less", draws.uniform(n.shape), x), n.of)


@translates("bernoulli.p", "bernoulli.Tensor")
def bernoulli_of(n: NodeContext, x: Value, p: Any = 0.5, **named: Any) -> Any:
    draws = Draws(n)
    return n.cast(draws.f("less", draws.uniform(n.shape), p), n.of)


@translates("dropout.default", "dropout_.default", "native_dropout.default")
def dropout(n: NodeContext, x: Value, p: float, train: bool | None = None) -> Any:
    """In training each element is kept with the probability 1 - p, and divided by it."""
    if train is False or p == 0:
        return (x, n.full(True, dtype("bool"))) if n.op == "native_dropout" else x
    y, kept = dropped(n, x, p, x.shape)
    return (y, kept) if n.op == "native_dropout" else y


def dropped(n: NodeContext, x: Value, p: float, shape: Any) -> tuple[Value, Value]:
    """x without some elements, the others grown, and a mask of `shape` that tells which."""
    kept = mask(n, shape, 1 - p)
    grown = scaled(n, x, 1 / (1 - p) if p < 1 else 0)
    return n.emit("where", kept, grown, n.constant(0, x.dtype)), kept


def mask(n: NodeContext, shape: Any, p: float) -> Value:
    """Truth values, each true with the probability p, others at each run."""
    if p <= 0:
        return n.full(False, dtype("bool"), shape)
    if n.seed is None:
        raise Refusal("it draws random numbers, because the module is in training mode", SEEDED)
    draws = Draws(n)
    return draws.f("less", draws.uniform(shape), p)


@translates("feature_dropout.default")
def feature_dropout(n: NodeContext, x: Value, p: float, train: bool) -> Any:
    """As dropout, but whole channels are kept or not."""
    if not train or p == 0:
        return x
    return dropped(n, x, p, (*x.shape[:2], *(1,) * (x.rank - 2)))[0]


LOWEST = -1.7580993408473766  # of what SELU gives: where its units are when they are off


@translates("alpha_dropout.default", "feature_alpha_dropout.default")
def alpha_dropout(n: NodeContext, x: Value, p: float, train: bool) -> Any:
    """In training, elements (or whole channels) that are not kept are SELU's lowest number, and all
    are scaled and shifted to keep mean and variance. Source: Klambauer et al. 2017."""
    if not train or p == 0:
        return x
    if p == 1:
        return scaled(n, x, 0)
    shape = (*x.shape[:2], *(1,) * (x.rank - 2)) if n.op.startswith("feature") else x.shape
    a = 1 / math.sqrt((1 + p * LOWEST * LOWEST) * (1 - p))
    b = n.constant(-a * p * LOWEST, x.dtype)
    y = n.emit("where", mask(n, shape, 1 - p), x, n.constant(LOWEST, x.dtype))
    return n.emit("add", scaled(n, y, a), b)


@translates("multinomial.default")
def multinomial(
    n: NodeContext, x: Value, count: int, replacement: bool = False, **named: Any
) -> Any:
    """Classes drawn with the probabilities that x has for each row, up to a factor. Without
    replacement: those that come first where each waits for a time that its probability shortens
    (Efraimidis and Spirakis 2006). With: how many cumulated probabilities a number has passed.
    """
    draws, axis = Draws(n), axis_of(-1, x.rank)
    if not replacement:
        wait = draws.f("div", draws.exponential(x.shape), x)
        return n.emit("top_k", wait, k=count, axis=axis, largest=False)[1]
    edges = n.emit("cumsum", n.cast(x, "f64"), axis=axis)
    total = n.emit("reduce_sum", n.cast(x, "f64"), axes=(axis,), keepdims=True)
    drawn = draws.f("mul", draws.uniform((*x.shape[:axis], count)), total)
    column = n.reshape(drawn, (*drawn.shape, 1))
    row = n.reshape(edges, (*x.shape[:axis], 1, x.shape[axis]))
    passed = n.cast(n.emit("greater_equal", column, row), "i64")
    return n.emit("reduce_sum", passed, axes=(axis + 1,))


@translates("rrelu_with_noise_functional.default", "rrelu_with_noise.default", "rrelu.default")
def rrelu(
    n: NodeContext, x: Value, noise: Any = None, lower: float = 1 / 8, upper: float = 1 / 3,
    training: bool = False, *_: Any, **named: Any
) -> Any:  # fmt: skip
    """Negative numbers times a slope: drawn in training, else the middle one."""
    if n.op == "rrelu" or not training:
        slope: Value = n.constant((lower + upper) / 2, x.dtype)
    else:
        draws = Draws(n)
        wide = draws.f("mul", draws.uniform(x.shape), upper - lower)
        slope = n.cast(draws.f("add", wide, lower), x.dtype)
    positive = n.emit("greater", x, n.constant(0, x.dtype))
    y = n.emit("where", positive, x, n.emit("mul", x, slope))
    if n.op == "rrelu_with_noise_functional":
        one = n.constant(1, x.dtype)
        return y, (n.emit("where", positive, one, slope) if training else noise)
    return y
