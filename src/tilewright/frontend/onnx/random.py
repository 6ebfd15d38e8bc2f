"""Translators of ONNX operators that draw random numbers.

Numbers are a function of the node's seed and the position, so a model draws the same ones whenever
it runs. A node without a seed has a stream of its own.
"""

from __future__ import annotations

import math
import struct
from typing import Any

from tilewright.frontend.onnx.arithmetic import Floats
from tilewright.frontend.onnx.registry import NodeContext, Refusal, translates
from tilewright.graph import sizes
from tilewright.graph.graph import Value
from tilewright.ir.dtype import DType, dtype

NORMAL, UNIFORM = ("RandomNormal", "RandomNormalLike"), ("RandomUniform", "RandomUniformLike")


class Draws:
    """The random numbers of a node. Each call gives others."""

    def __init__(self, n: NodeContext) -> None:
        self.n = n
        self.f = Floats(n, "f64")
        seed = n.int("seed") if n.op == "Dropout" else n.float("seed")
        if seed is None:
            n.importer.streams += 1
            self.seed, self.stream = n.constant(0, "i64"), n.importer.streams << 8
        else:
            bits = seed if n.op == "Dropout" else struct.unpack("<q", struct.pack("<d", seed))[0]
            self.seed, self.stream = n.constant(bits, "i64"), 0

    def uniform(self, shape: Any) -> Value:
        """f64 numbers evenly spread over [0, 1)."""
        build = self.n.build
        bits = build.emit("random_bits", self.seed, shape=tuple(shape), stream=self.stream)
        self.stream += 1
        whole = build.emit("shift_right", bits, self.n.constant(11, "u64"))
        return self.f("mul", build.emit("cast", whole, to="f64"), 2.0**-53)

    def normal(self, shape: Any) -> Value:
        """Of mean 0 and deviation 1. Source: Box and Muller 1958."""
        f = self.f
        radius = f("sqrt", f("mul", f("log", f("sub", 1.0, self.uniform(shape))), -2.0))
        return f("mul", radius, f("cos", f("mul", self.uniform(shape), 2 * math.pi)))


def asked(n: NodeContext, default: DType) -> DType:
    """The dtype that the node names."""
    return n.dtype("dtype", default)


@translates(*NORMAL, *UNIFORM)
def random(n: NodeContext) -> Any:
    """Uniform in [low, high), or normal."""
    if n.op.endswith("Like"):
        shape, of = n[0].shape, asked(n, n[0].dtype)
    else:
        given = n.ints("shape")
        if given is None:
            raise Refusal("it needs a shape")
        shape, of = sizes.shape(given), asked(n, dtype("f32"))
    if not of.is_float:
        raise Refusal(f"it draws floats, not {of}")
    draws = Draws(n)
    f = draws.f
    if n.op in NORMAL:
        y = f("add", f("mul", draws.normal(shape), n.float("scale", 1.0)), n.float("mean", 0.0))
        return y if of is y.dtype else n.emit("cast", y, to=of.name)
    low, high = n.float("low", 0.0), n.float("high", 1.0)
    y = f("add", f("mul", draws.uniform(shape), high - low), low)
    return y if of is y.dtype else n.emit("cast", y, to=of.name)


@translates("Bernoulli")
def bernoulli(n: NodeContext) -> Any:
    """1 with the probability that x gives, else 0."""
    draws = Draws(n)
    hit = draws.f("less", draws.uniform(n[0].shape), draws.f.of(n[0]))
    of = asked(n, n[0].dtype)
    return hit if of.is_bool else n.emit("cast", hit, to=of.name)


@translates("Multinomial")
def multinomial(n: NodeContext) -> Any:
    """Classes drawn with probabilities whose logarithms, up to a constant, x holds for each row:
    the class is the number of cumulated probabilities that a uniform number has passed."""
    x, count = n[0], n.int("sample_size", 1)
    of = asked(n, dtype("i32"))
    if x.rank != 2 or of.name not in ("i32", "i64"):
        raise Refusal("it needs rows of classes, and gives i32 or i64")
    draws = Draws(n)
    f, build = draws.f, n.build
    rows, classes = x.shape
    cumulated = build.emit("cumsum", build.emit("softmax", f.of(x), axis=1), axis=1)
    inner = build.emit("slice", cumulated, starts=(0, 0), shape=(rows, sizes.size(classes - 1)))
    edges = build.emit("reshape", inner, shape=(rows, 1, sizes.size(classes - 1)))
    drawn = build.emit("reshape", draws.uniform((rows, count)), shape=(rows, count, 1))
    passed = build.emit("cast", f("greater_equal", drawn, edges), to="i64")
    chosen = build.emit("reduce_sum", passed, axes=(2,))
    return chosen if of.name == "i64" else n.emit("cast", chosen, to=of.name)


@translates("Dropout")
def dropout(n: NodeContext) -> Any:
    """Inference: the data passes. Training: elements are zeroed with probability `ratio`, the
    others grow by 1 / (1 - ratio). A seed gives the mask that ONNX's reference draws for it."""
    x, wants_mask = n[0], len(n.node.output) > 1 and bool(n.node.output[1])
    training = n.optional(2) if n.version >= 12 else None
    known = None if training is None else n.build.constants.get(training)
    if training is None or (known is not None and not bool(known.array.reshape(()))):
        if not wants_mask:
            return x
        kept = n.build.emit("full", shape=x.shape, value=1, of="bool", name=n.node.output[1])
        return x, kept
    draws = Draws(n)
    f = draws.f
    ratio = f.number(0.5) if n.optional(1) is None else f.of(scalar(n, n[1]))
    if n.int("seed") is None:
        drawn = draws.uniform(x.shape)
    else:
        seed = n.constant([n.int("seed")], "i64")
        drawn, _ = n.build.emit("mersenne", seed, count=x.elements)
        drawn = n.build.emit("reshape", drawn, shape=x.shape)
    kept = f("greater_equal", drawn, ratio)
    if known is None:
        kept = n.build.emit("logical_or", kept, n.build.emit("logical_not", scalar(n, training)))
        ratio = f("where", scalar(n, training), ratio, 0.0)
    grown = f("mul", f.of(x), f("div", 1.0, f("sub", 1.0, ratio)))
    y = n.build.emit("cast", f("where", kept, grown, 0.0), to=x.dtype.name, name=n.node.output[0])
    return y, kept


def scalar(n: NodeContext, x: Value) -> Value:
    """The one element of x without axes."""
    return n.build.emit("reshape", x, shape=()) if x.rank else x
