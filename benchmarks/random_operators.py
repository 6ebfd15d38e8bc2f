"""Operators of random sizes beside onnxruntime: `python -m benchmarks.random_operators`.

Tables of chosen sizes miss what other sizes bring: a width that no tile divides, a plane that is no
number of vectors. Each draw is one operator (with what usually follows it) at known sizes, run in
turns with onnxruntime; the slowest beside it come last.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Any

import numpy as np
import onnxruntime as ort
import typer

import tilewright as tw
from benchmarks.open_sizes import Case, node, seconds_in_turns

WORST = 15  # draws shown again at the end
CHANNELS = (3, 8, 16, 17, 24, 30, 32, 40, 48, 64, 72, 96, 100, 128, 160, 192, 256, 320)
Shape = tuple[int, ...]


class Draw:
    """Sizes, from a seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def size(self, least: int, most: int) -> int:
        """A size; small ones are as likely as large ones."""
        return round(least * (most / least) ** self.random.random())

    def one_of(self, *values: Any) -> Any:
        return self.random.choice(values)

    def channels(self) -> int:
        return self.random.choice(CHANNELS)

    def shape(self, rank: int, most: int = 60) -> Shape:
        return tuple(self.size(2, most) for _ in range(rank))


def convolution(draw: Draw) -> Case:
    kernel, stride = draw.one_of(1, 1, 3, 3, 5, 7), draw.one_of(1, 1, 2)
    cin, cout = draw.channels(), draw.channels()
    image = (draw.one_of(1, 1, 2), cin, draw.size(8, 90), draw.size(8, 90))
    nodes = [
        node("Conv", "x w b", "c", strides=[stride] * 2, pads=[kernel // 2] * 4),
        node(draw.one_of("Relu", "HardSwish", "Sigmoid"), "c"),
    ]
    return Case(nodes, {"x": image}, [], {"w": (cout, cin, kernel, kernel), "b": (cout,)})


def depthwise(draw: Draw) -> Case:
    kernel, stride, count = draw.one_of(3, 5), draw.one_of(1, 1, 2), draw.one_of(24, 48, 96, 144)
    image = (1, count // 2, draw.size(6, 64), draw.size(6, 112))
    window: dict[str, Any] = {"strides": [stride] * 2, "pads": [kernel // 2] * 4, "group": count}
    nodes = [
        node("Conv", "x v", "a"), node("Relu", "a", "r"), node("Conv", "r w", "c", **window),
        node("Relu", "c", "d"), node("Conv", "d u"),
    ]  # fmt: skip
    weights = {
        "v": (count, count // 2, 1, 1),
        "w": (count, 1, kernel, kernel),
        "u": (count // 2, count, 1, 1),
    }
    return Case(nodes, {"x": image}, [], weights)


def pool(draw: Draw) -> Case:
    kernel, op = draw.one_of(2, 3, 5), draw.one_of("MaxPool", "AveragePool")
    attrs: dict[str, Any] = {"kernel_shape": [kernel] * 2, "strides": [draw.one_of(1, 2)] * 2}
    return Case(
        [node(op, "x", **attrs)],
        {"x": (1, draw.channels(), draw.size(8, 120), draw.size(8, 120))}, [], {},
    )  # fmt: skip


def product(draw: Draw) -> Case:
    rows, depth, columns = draw.size(1, 600), draw.size(16, 1500), draw.size(1, 1500)
    nodes = [node("MatMul", "x w", "p"), node("Add", "p b", "q"), node("Relu", "q")]
    return Case(nodes, {"x": (rows, depth)}, [], {"w": (depth, columns), "b": (columns,)})


def rows(draw: Draw) -> Case:
    shape = draw.size(1, 2000), draw.size(4, 2000)
    if draw.one_of(True, False):
        return Case([node("Softmax", "x", axis=draw.one_of(-1, 0))], {"x": shape}, [], {})
    weights = {"g": shape[1:], "b": shape[1:]}
    return Case([node("LayerNormalization", "x g b")], {"x": shape}, [], weights)


def reduction(draw: Draw) -> Case:
    shape, axis = draw.shape(3), draw.one_of(0, 1, 2)
    if draw.one_of(True, False):
        nodes = [node("ArgMax", "x", "i", axis=axis), node("Cast", "i", to=1)]
    else:
        nodes = [node(draw.one_of("ReduceMean", "ReduceMax", "ReduceL2"), "x", axes=[axis])]
    return Case(nodes, {"x": shape}, [], {})


def element_wise(draw: Draw) -> Case:
    shape = draw.shape(4, 40)
    other = tuple(n if draw.one_of(True, True, False) else 1 for n in shape)
    op = draw.one_of("Sigmoid", "Tanh", "Erf", "Softplus", "HardSwish")
    nodes = [node(draw.one_of("Add", "Mul", "Sub"), "x z", "a"), node(op, "a")]
    return Case(nodes, {"x": shape, "z": other}, [], {})


def movement(draw: Draw) -> Case:
    shape = draw.shape(4, 40)
    if draw.one_of(True, False):
        perm = draw.random.sample(range(4), 4)
        return Case([node("Transpose", "x", perm=perm)], {"x": shape}, [], {})
    repeats = np.array([draw.one_of(1, 2, 3) for _ in shape])
    return Case([node("Tile", "x r")], {"x": shape}, [], {"r": repeats})


FAMILIES: Sequence[Callable[[Draw], Case]] = (
    convolution, depthwise, pool, product, rows, reduction, element_wise, movement,
)  # fmt: skip


def main(
    count: Annotated[int, typer.Option(help="draws")] = 100,
    seed: int = 0,
    threads: Annotated[int, typer.Option(help="of both")] = 1,
) -> None:
    """Time random operators beside onnxruntime."""
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    shown: list[tuple[float, str]] = []
    for number in range(seed, seed + count):
        draw = Draw(number)
        case = draw.one_of(*FAMILIES)(draw)
        model, arrays = case.model(), case.arrays({})
        exe = tw.compile(model, threads=threads, cache=False)
        session = ort.InferenceSession(model.SerializeToString(), options)
        fed = dict(zip(case.inputs, arrays, strict=True))
        ours, theirs = partial[Any](exe, *arrays), partial[Any](session.run, None, fed)
        found, wanted = (np.asarray(call()[0], np.float64) for call in (ours, theirs))
        error = float(np.abs(found - wanted).max(initial=0) / max(1e-6, np.abs(wanted).max()))
        own, peer = seconds_in_turns([ours, theirs])
        ops = " ".join(n.op_type for n in case.nodes)
        sizes = ", ".join("×".join(map(str, s)) for s in case.inputs.values())
        line = f"{own / peer:5.2f} {own * 1e6:10,.1f} us {error:.0e}  #{number} {ops} {sizes}"
        print(line, flush=True)
        shown.append((own / peer, line))
    print("\nslowest beside onnxruntime", *(line for _, line in sorted(shown)[-WORST:]), sep="\n")


if __name__ == "__main__":
    typer.run(main)
