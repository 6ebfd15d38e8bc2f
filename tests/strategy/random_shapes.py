"""Random operators of every family on odd and even shapes: compiled code beside NumPy in float64.

    python -m tests.strategy.random_shapes --count 2000 [--seed S] [--family conv]

A case is a small graph of one operator, often with an epilogue, on random input and random threads
and vector widths. A kernel that got no schedule of its family is a failure too.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import typer
from rich.progress import track

from tilewright.driver.compile import compile_observed, kernel_jobs, prepare
from tilewright.driver.kernels import KernelPool
from tilewright.driver.observe import Watch
from tilewright.graph import OPERATORS, Builder, Graph
from tilewright.graph.graph import Value
from tilewright.strategy.select import default
from tilewright.target.target import target

SIZES = (1, 2, 3, 5, 7, 8, 9, 13, 14, 16, 17, 20, 28, 31, 32, 33, 56, 63, 64, 65)
CHANNELS = (1, 2, 3, 4, 7, 8, 12, 16, 17, 24, 31, 32, 33, 48, 63, 64, 65, 96, 100, 136)
TOLERANCE = 2e-5  # of the largest value
POOL = KernelPool(1)  # kernels are compiled in this process: they are few and small


@dataclass
class Draw:
    """One case in the making: its random choices, its graph so far, its arrays."""

    rng: random.Random
    numbers: np.random.Generator
    build: Builder
    arrays: list[np.ndarray]

    def size(self) -> int:
        return self.rng.choice(SIZES)

    def channels(self) -> int:
        return self.rng.choice(CHANNELS)

    def input(self, *shape: int) -> Value:
        self.arrays.append(self.numbers.standard_normal(shape).astype(np.float32))
        return self.build.input(f"x{len(self.arrays)}", "f32", shape)

    def weight(self, *shape: int, scale: float = 1.0) -> Value:
        values = self.numbers.standard_normal(shape) * scale
        return self.build.constant(values.astype(np.float32))

    def epilogue(self, value: Value) -> Value:
        """Perhaps a bias, a branch and an activation."""
        if self.rng.random() < 0.4:
            per_channel = [1] * value.rank
            per_channel[1 if value.rank == 4 else -1] = sizes(value)[1 if value.rank == 4 else -1]
            value = self.build.emit("add", value, self.weight(*per_channel))
        if self.rng.random() < 0.3:
            value = self.build.emit("add", value, self.input(*sizes(value)))
        if self.rng.random() < 0.5:
            value = self.build.emit(self.rng.choice(["relu", "gelu", "sigmoid"]), value)
        return value


def sizes(value: Value) -> tuple[int, ...]:
    assert value.static_shape is not None
    return value.static_shape


def conv(draw: Draw, groups: str = "") -> Value:
    rng = draw.rng
    ci, co, count = draw.channels(), draw.channels(), 1
    if groups == "each":
        co = count = ci
    elif groups:  # narrow ones and wide ones, of the same width in image and result or not
        count = rng.choice([2, 3, 4, 6, 8, 16])
        ci, co = (rng.choice([1, 2, 3, 4, 5, 8, 12, 16, 24, 40]) * count for _ in range(2))
    kernel = [rng.choice([1, 1, 2, 3, 5, 7]) for _ in range(2)]
    dilations = [rng.choice([1, 1, 2]) for _ in range(2)]
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    image = [max(draw.size(), r) for r in reach]
    x = draw.input(rng.choice([1, 1, 2]), ci, *image)
    terms = ci // count * kernel[0] * kernel[1]
    weights = draw.weight(co, ci // count, *kernel, scale=terms**-0.5)  # results near 1
    return draw.build.emit(
        "conv", x, weights, groups=count,
        strides=tuple(rng.choice([1, 1, 2, 3]) for _ in range(2)), dilations=tuple(dilations),
        pads=tuple((rng.randrange(k), rng.randrange(k)) for k in kernel),
    )  # fmt: skip


def three_by_three(draw: Draw) -> Value:
    """What Winograd's transforms are for, where there are channels enough."""
    rng = draw.rng
    ci, co = (draw.rng.choice(CHANNELS[5:]) for _ in range(2))
    x = draw.input(rng.choice([1, 1, 2]), ci, *(max(3, draw.size()) for _ in range(2)))
    pads = tuple((rng.randrange(3), rng.randrange(3)) for _ in range(2))
    weights = draw.weight(co, ci, 3, 3, scale=1 / (3 * ci**0.5))  # as trained ones: results near 1
    return draw.build.emit("conv", x, weights, pads=pads)


def conv_transpose(draw: Draw) -> Value:
    rng = draw.rng
    kernel = [rng.choice([2, 3, 4, 5]) for _ in range(2)]
    x = draw.input(rng.choice([1, 2]), draw.channels(), *(rng.choice(SIZES[:12]) for _ in range(2)))
    weights = draw.weight(sizes(x)[1], draw.channels(), *kernel)
    pads = tuple((rng.randrange((k + 1) // 2), rng.randrange((k + 1) // 2)) for k in kernel)
    strides = tuple(rng.choice([1, 2, 2, 3]) for _ in range(2))
    return draw.build.emit("conv_transpose", x, weights, strides=strides, pads=pads)


def dense(draw: Draw) -> Value:
    lead = [draw.size() for _ in range(draw.rng.choice([1, 2]))]
    depth = draw.channels() * draw.rng.choice([1, 3])
    columns = draw.channels() * draw.rng.choice([1, 5])
    return draw.build.emit("matmul", draw.input(*lead, depth), draw.weight(depth, columns))


def matmul(draw: Draw) -> Value:
    """Of two matrices of the run, sometimes so large that they are packed first; their batches
    broadcast, and sometimes equal the rows."""
    rng = draw.rng
    large = rng.random() < 0.2
    m, k, n = (rng.choice([48, 65, 200, 300, 513]) if large else draw.size() for _ in range(3))
    batch = [
        rng.choice([1, 2, 3] if large else [1, 2, 3, 12, m]) for _ in range(rng.choice([0, 1, 2]))
    ]
    ta, tb = rng.random() < 0.3, rng.random() < 0.5
    a = draw.input(*narrowed(rng, batch), *((k, m) if ta else (m, k)))
    b = draw.input(*narrowed(rng, batch), *((n, k) if tb else (k, n)))
    return draw.build.emit("matmul", a, b, transpose_a=ta, transpose_b=tb)


def narrowed(rng: random.Random, shape: list[int]) -> list[int]:
    """A shape that broadcasts to this one: mostly itself."""
    if rng.random() < 0.7:
        return shape
    return [rng.choice([1, size]) for size in shape][rng.randrange(len(shape) + 1) :]


def pool(draw: Draw) -> Value:
    rng = draw.rng
    kernel = tuple(rng.choice([1, 2, 3, 5]) for _ in range(2))
    x = draw.input(rng.choice([1, 2]), draw.channels(), *(draw.size() + k for k in kernel))
    pads = tuple((rng.randrange((k + 1) // 2), rng.randrange((k + 1) // 2)) for k in kernel)
    attrs: dict[str, Any] = {"kernel": kernel, "pads": pads}
    attrs["strides"] = tuple(rng.choice([1, 2, 3]) for _ in range(2))
    attrs["ceil_mode"] = rng.random() < 0.3
    if rng.random() < 0.5:
        return draw.build.emit("avg_pool", x, count_pads=rng.random() < 0.5, **attrs)
    return draw.build.emit("max_pool", x, **attrs)


def tensor(draw: Draw) -> Value:
    return draw.input(*(draw.size() for _ in range(draw.rng.choice([1, 2, 3, 3]))))


def moved(draw: Draw) -> Value:
    """A tensor, perhaps in another order, in part, backwards or inside a pad."""
    x, rng = tensor(draw), draw.rng
    for kind in rng.sample(["order", "part", "pad"], rng.choice([0, 0, 1, 2])):
        if kind == "order":
            x = draw.build.emit("transpose", x, perm=tuple(rng.sample(range(x.rank), x.rank)))
        elif kind == "pad":
            before, after = (tuple(rng.choice((0, 0, 1, 3)) for _ in sizes(x)) for _ in "ab")
            x = draw.build.emit("pad", x, before=before, after=after, value=rng.choice((0.0, 1.5)))
        else:
            ends = [(rng.randint(0, n // 2), rng.randint(n // 2, n - 1)) for n in sizes(x)]
            steps = [rng.choice((1, 1, 2, -1)) for _ in ends]
            x = draw.build.emit(
                "slice",
                x,
                starts=tuple(a if k > 0 else b for (a, b), k in zip(ends, steps, strict=True)),
                shape=tuple((b - a) // abs(k) + 1 for (a, b), k in zip(ends, steps, strict=True)),
                steps=tuple(steps),
            )
    return x


def softmax(draw: Draw) -> Value:
    x = moved(draw)
    op = draw.rng.choice(["softmax", "log_softmax"])
    return draw.build.emit(op, x, axis=draw.rng.randrange(x.rank))


def attention(draw: Draw) -> Value:
    """Keys stored either way, perhaps for several queries' heads; scaled, masked, perhaps causal;
    some rows may be masked whole, and their weights then zero."""
    rng, build, emit = draw.rng, draw.build, draw.build.emit
    lead = [rng.choice([1, 2, 3]) for _ in range(rng.choice([0, 1, 2]))]
    queries, keys = rng.choice([draw.size(), 48, 100, 197]), rng.choice([draw.size(), 130])
    depth, width = draw.size(), draw.size()
    k_lead, v_lead = ([n if rng.random() < 0.8 else 1 for n in lead] for _ in "kv")
    transposed = rng.random() < 0.5
    q, k = draw.input(*lead, queries, depth), (keys, depth) if transposed else (depth, keys)
    x = emit("matmul", q, draw.input(*k_lead, *k), transpose_b=transposed)
    if rng.random() < 0.7:
        x = emit("mul", x, draw.weight(1, scale=depth**-0.5))
    if rng.random() < 0.3:
        x = emit("tanh", x)
    kind = rng.choice(["", "bias", "keys", "causal", "rows"])
    if kind == "bias":
        x = emit("add", x, draw.input(*lead, queries, keys))
    elif kind:
        shape = (1, keys) if kind == "keys" else (queries, keys)
        hidden = draw.numbers.random(shape) < 0.3 if kind == "keys" else np.tri(*shape, 2) == 0
        hidden[..., 0] = False
        if kind == "rows":
            hidden[rng.randrange(queries)] = True
        x = emit("where", build.constant(hidden), build.constant(-np.inf, of="f32"), x)
    weights = emit("softmax", x, axis=-1)
    if kind == "rows" or rng.random() < 0.2:
        zero = build.constant(np.zeros((), np.float32))
        weights = emit("where", emit("isnan", weights), zero, weights)
    if rng.random() < 0.2:
        return emit("matmul", weights, draw.input(*v_lead, width, keys), transpose_b=True)
    return emit("matmul", weights, draw.input(*v_lead, keys, width))


def norm(draw: Draw) -> Value:
    x = moved(draw)
    last = sizes(x)[-1]
    if draw.rng.random() < 0.5:
        return draw.build.emit("layer_norm", x, draw.weight(last), draw.weight(last))
    return draw.build.emit("rms_norm", x, draw.weight(last))


def reduce(draw: Draw) -> Value:
    x = moved(draw)
    axes = tuple(sorted(draw.rng.sample(range(x.rank), draw.rng.randint(1, x.rank))))
    op = draw.rng.choice(["reduce_sum", "reduce_mean", "reduce_max", "reduce_min"])
    return draw.build.emit(op, x, axes=axes, keepdims=True)


def move(draw: Draw) -> Value:
    x = tensor(draw)
    perm = list(range(x.rank))
    draw.rng.shuffle(perm)
    return draw.build.emit("transpose", x, perm=tuple(perm))


def elementwise(draw: Draw) -> Value:
    x = tensor(draw)
    shape = [n if draw.rng.random() < 0.6 else 1 for n in sizes(x)]
    both = draw.build.emit(draw.rng.choice(["add", "mul", "maximum"]), x, draw.input(*shape))
    return draw.build.emit(draw.rng.choice(["exp", "tanh", "abs", "relu"]), both)


FAMILIES: dict[str, Callable[[Draw], Value]] = {
    "conv": conv,
    "grouped": lambda draw: conv(draw, "some"),
    "three_by_three": three_by_three,
    "depthwise": lambda draw: conv(draw, "each"),
    "conv_transpose": conv_transpose,
    "dense": dense,
    "matmul": matmul,
    "pool": pool,
    "softmax": softmax,
    "attention": attention,
    "norm": norm,
    "reduce": reduce,
    "move": move,
    "elementwise": elementwise,
}


def draw_case(number: int, seed: int, family: str) -> tuple[Graph, list[np.ndarray]]:
    """The graph and the inputs of one case."""
    key = f"{seed}/{family}/{number}"
    numbers = np.random.default_rng(list(key.encode()))
    draw = Draw(random.Random(key), numbers, Builder(family), [])
    value = draw.epilogue(FAMILIES[family](draw))
    return draw.build.finish({"y": value}), draw.arrays


def in_float64(graph: Graph, arrays: list[np.ndarray]) -> np.ndarray:
    """The graph's result by the operators' NumPy references, in float64."""
    known = {v: a.astype(np.float64) for v, a in zip(graph.inputs, arrays, strict=True)}
    known |= {v: np.asarray(c.array, np.float64) for v, c in graph.constants.items()}
    for node in graph.nodes:
        entry = OPERATORS[node.op]
        known[node.output] = entry.reference(*(known[v] for v in node.inputs), **dict(node.attrs))
    return known[graph.outputs[0]]


def judge(graph: Graph, arrays: list[np.ndarray], threads: int) -> str:
    """What is wrong with the compiled graph; empty if nothing is."""
    machine = target("cpu")
    *_, jobs = kernel_jobs(prepare(graph, machine, opt_level=3), machine, threads, Watch())
    for job in jobs:
        default(job.func, machine, threads, strict=True)
    (found,) = compile_observed(graph, threads=threads, cache=False, pool=POOL)(*arrays)
    expected = in_float64(graph, arrays)
    if found.shape != expected.shape:
        return f"shape {found.shape} instead of {expected.shape}"
    scale = max(1.0, float(np.abs(expected).max(initial=0)))
    error = float(np.abs(found - expected).max(initial=0)) / scale
    return "" if error <= TOLERANCE else f"error {error:.1e} of the largest value"


def main(
    count: Annotated[int, typer.Option(help="cases of each family")] = 100,
    seed: Annotated[int, typer.Option(help="of all random choices")] = 1,
    family: Annotated[str, typer.Option(help="only this family")] = "",
    first: Annotated[int, typer.Option(help="the first case's number")] = 0,
) -> None:
    """Compare; exit code 1 if a case fails."""
    chosen = [family] if family else list(FAMILIES)
    failures = 0
    for name in chosen:
        for number in track(range(first, first + count), name, transient=True):
            graph, arrays = draw_case(number, seed, name)
            threads = 1 + number % 3
            try:
                wrong = judge(graph, arrays, threads)
            except Exception as fault:  # one broken case must not end the run
                wrong = f"{type(fault).__name__}: {str(fault).splitlines()[0]}"
            if wrong:
                failures += 1
                print(f"{name} {number} ({threads} threads): {wrong}\n{graph}\n")
        print(f"{name}: {count} cases, {failures} failures so far", flush=True)
    sys.exit(bool(failures))


if __name__ == "__main__":
    typer.run(main)
