"""Code for open sizes beside code for the same sizes fixed: `python -m benchmarks.open_sizes`.

One compilation serves every size, and should cost nothing for it. Each operator is compiled once
with open sizes and once for each of a few sizes; both run in turns in one process, outputs are
compared. A ratio over 1 is what not knowing the size costs.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import onnx
import typer
from onnx import TensorProto, helper, numpy_helper

import tilewright as tw
from benchmarks import pages
from tilewright.driver.compile import kernel_jobs, prepare
from tilewright.driver.observe import Watch
from tilewright.driver.source import open_source
from tilewright.strategy.select import default, fallback
from tilewright.strategy.space import decisions
from tilewright.target.target import target

LEAST, SECONDS = 8, 0.15  # rounds, and seconds for both together, of each measurement
SLOWER = 1.15  # of the time at the fixed size: marked in the table
Dim = int | str
Sizes = dict[str, int]
IMAGES: list[Sizes] = [{"h": 56, "w": 56}, {"h": 61, "w": 83}, {"h": 33, "w": 33}]
ROWS: list[Sizes] = [{"n": 128}, {"n": 61}, {"n": 7}]
BATCHES: list[Sizes] = [{"n": 8, "t": 64}, {"n": 3, "t": 61}, {"n": 1, "t": 33}]


@dataclass(frozen=True)
class Case:
    """Nodes from inputs `x…` to `y`, with constants of random numbers, at several sizes."""

    nodes: Sequence[onnx.NodeProto]
    inputs: dict[str, tuple[Dim, ...]]
    sizes: list[Sizes]
    weights: dict[str, Any]  # shapes, or what they hold
    dtype: type[np.generic] = np.float32  # of the inputs

    def model(self) -> onnx.ModelProto:
        """As a model with open sizes."""
        random, dtype = np.random.default_rng(0), np.dtype(self.dtype)
        constants = []
        for name, given in self.weights.items():
            if isinstance(given, tuple):
                fan = max(1, int(np.prod(given[1:])))
                given = (random.standard_normal(given) / fan**0.5).astype(np.float32)
            constants.append(numpy_helper.from_array(given, name))
        infos = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(dtype), shape)
            for name, shape in self.inputs.items()
        ]
        y = helper.make_empty_tensor_value_info("y")
        graph = helper.make_graph(list(self.nodes), "open", infos, [y], constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])

    def arrays(self, at: Sizes) -> list[np.ndarray]:
        """Random inputs of these sizes."""
        random = np.random.default_rng(1)
        shapes = [
            tuple(at[d] if isinstance(d, str) else d for d in s) for s in self.inputs.values()
        ]
        if self.dtype is np.uint8:
            return [random.integers(0, 256, s, np.uint8) for s in shapes]
        return [random.standard_normal(s).astype(self.dtype) for s in shapes]


def node(op: str, inputs: str, output: str = "y", **attrs: Any) -> onnx.NodeProto:
    return helper.make_node(op, inputs.split(), [output], **attrs)


def conv(
    ci: int, co: int, kernel: Sequence[int], sizes: list[Sizes] | None = None, **attrs: Any
) -> Case:
    """A convolution, bias and ReLU of open length, of open height and width, or of open depth,
    too."""
    group, axes = attrs.get("group", 1), ["d", "h", "w"][3 - len(kernel) :]
    weights = {"w": (co, ci // group, *kernel), "b": (co,)}
    nodes = [node("Conv", "x w b", "c", **attrs), node("Relu", "c")]
    sizes = sizes or [LENGTHS, IMAGES, VOLUMES][len(kernel) - 1]
    return Case(nodes, {"x": (1, ci, *axes)}, sizes, weights)


LENGTHS: list[Sizes] = [{"w": 1024}, {"w": 997}, {"w": 61}]
VOLUMES: list[Sizes] = [{"d": 8, "h": 20, "w": 24}, {"d": 5, "h": 14, "w": 17}]
SMALL: list[Sizes] = [{"h": 14, "w": 14}, {"h": 10, "w": 19}, {"h": 7, "w": 7}]


def deconv(ci: int, co: int, kernel: int, **attrs: Any) -> Case:
    weights = {"w": (ci, co // attrs.get("group", 1), kernel, kernel), "b": (co,)}
    return Case(
        [node("ConvTranspose", "x w b", **attrs)],
        {"x": (1, ci, "h", "w")},
        [{"h": 28, "w": 28}, {"h": 31, "w": 17}],
        weights,
    )


def image(*nodes: onnx.NodeProto, channels: int = 64, **weights: Any) -> Case:
    return Case(nodes, {"x": (1, channels, "h", "w")}, IMAGES, weights)


COLOURS: list[Sizes] = [
    {"h": 200, "w": 300, "c": 3}, {"h": 123, "w": 457, "c": 4}, {"h": 200, "w": 300, "c": 1},
    {"h": 61, "w": 83, "c": 7}, {"h": 61, "w": 83, "c": 12},
]  # fmt: skip


def channels(
    axes: str, *perm: int, dtype: type[np.generic] = np.float32, scaled: bool = False
) -> Case:
    """An image whose channels, of open number, are moved to the front or to the end; `scaled`: and
    made numbers from 0 to 1."""
    first = node("Transpose", "x", "t" if scaled else "y", perm=perm)
    scale = [node("Cast", "t", "f", to=TensorProto.FLOAT), node("Div", "f k")] if scaled else []
    weights = {"k": np.float32(255)} if scaled else {}
    return Case([first, *scale], {"x": tuple(axes)}, COLOURS, weights, dtype)


def window(op: str, **attrs: Any) -> Case:
    """A pool of 3 × 3 of stride 2, of small images, too."""
    pool = image(node(op, "x", kernel_shape=[3, 3], strides=[2, 2], **attrs))
    return replace(pool, sizes=[*IMAGES, {"h": 28, "w": 28}, {"h": 14, "w": 14}])


def packed(*nodes: onnx.NodeProto, **weights: Any) -> Case:
    """Between two 1×1 convolutions, from `a` to `z`, so that images lie packed."""
    around = {"w1": (64, 8, 1, 1), "w2": (8, 64, 1, 1)}
    first, last = node("Conv", "x w1", "a"), node("Conv", "z w2")
    return Case([first, *nodes, last], {"x": (1, 8, "h", "w")}, IMAGES, {**around, **weights})


def numbers(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def rnn(op: str, gates: int, hidden: int = 64) -> Case:
    weights: dict[str, Any] = {"w": (1, gates * hidden, 64), "r": (1, gates * hidden, hidden)}
    made = helper.make_node(op, ["x", "w", "r"], ["y"], hidden_size=hidden)
    return Case([made], {"x": ("t", "n", 64)}, BATCHES, weights)


def attention(heads: int = 4, depth: int = 64) -> Case:
    """q, k and v of open length (and batch)."""
    nodes = [
        node("Transpose", "k", "kt", perm=[0, 1, 3, 2]),
        node("MatMul", "q kt", "s"),
        node("Softmax", "s", "p", axis=-1),
        node("MatMul", "p v"),
    ]
    shape = ("n", heads, "t", depth)
    sizes: list[Sizes] = [*BATCHES, {"n": 1, "t": 48}, {"n": 1, "t": 17}, {"n": 1, "t": 7}]
    return Case(nodes, dict.fromkeys(("q", "k", "v"), shape), sizes, {})


same: dict[str, Any] = {"pads": [1, 1, 1, 1]}
CASES: dict[str, Case] = {
    # convolutions
    "conv 1x1": conv(64, 64, (1, 1)),
    "conv 1x1 /2": conv(64, 64, (1, 1), strides=[2, 2]),
    "conv 3x3": conv(64, 64, (3, 3), **same),
    "conv 3x3 of 16 channels": conv(16, 16, (3, 3), **same),
    "conv 3x3 first": conv(3, 32, (3, 3), strides=[2, 2], **same),
    "conv 3x3 unpadded": conv(64, 64, (3, 3)),
    "conv 3x3 /2": conv(64, 64, (3, 3), strides=[2, 2], **same),
    "conv 3x3 /2 unpadded": conv(64, 64, (3, 3), strides=[2, 2]),
    "conv 3x3 /2 SAME_UPPER": conv(64, 64, (3, 3), strides=[2, 2], auto_pad="SAME_UPPER"),
    "conv 3x3 dilated": conv(64, 64, (3, 3), pads=[2, 2, 2, 2], dilations=[2, 2]),
    "conv 5x5": conv(32, 32, (5, 5), pads=[2, 2, 2, 2]),
    "conv 3x3 grouped": conv(64, 64, (3, 3), group=4, **same),
    "depthwise 3x3": conv(64, 64, (3, 3), group=64, **same),
    "depthwise 3x3 unpadded": conv(64, 64, (3, 3), group=64),
    "depthwise 3x3 /2": conv(64, 64, (3, 3), group=64, strides=[2, 2], **same),
    "depthwise 5x5": conv(64, 64, (5, 5), group=64, pads=[2, 2, 2, 2]),
    "two convs unpadded": Case(
        [node("Conv", "x w", "c"), node("Relu", "c", "d"), node("Conv", "d v")],
        {"x": (1, 32, "h", "w")},
        IMAGES,
        {"w": (64, 32, 3, 3), "v": (32, 64, 3, 3)},
    ),
    "conv 3x3 of 256 channels": conv(256, 256, (3, 3), SMALL, **same),
    "conv 3-D": conv(16, 32, (3, 3, 3), pads=[1] * 6),
    "conv 3-D 1x3x3": conv(16, 32, (1, 3, 3), pads=[0, 1, 1] * 2),
    "conv 3-D /2": conv(16, 32, (3, 3, 3), strides=[2, 2, 2], pads=[1] * 6),
    "conv 1-D": conv(64, 64, (3,), pads=[1, 1]),
    "conv 1-D unpadded": conv(64, 64, (5,)),
    "conv 1-D dilated": conv(64, 64, (3,), pads=[4, 4], dilations=[4]),
    "transposed 2x2 /2": deconv(64, 32, 2, strides=[2, 2]),
    "transposed 4x4 /2": deconv(64, 32, 4, strides=[2, 2], pads=[1, 1, 1, 1]),
    "transposed 3x3 /2": deconv(64, 32, 3, strides=[2, 2], **same),
    "transposed 3x3": deconv(64, 32, 3, **same),
    "transposed 4x4 /2 to 3 channels": deconv(64, 3, 4, strides=[2, 2], **same),
    "transposed depthwise 4x4 /2": deconv(32, 32, 4, group=32, strides=[2, 2], **same),
    # products
    "dense, open rows": Case([node("MatMul", "x w")], {"x": ("n", 256)}, ROWS, {"w": (256, 256)}),
    "dense, open batch and rows": Case(
        [node("MatMul", "x w", "m"), node("Add", "m b", "a"), node("Relu", "a")],
        {"x": ("n", "t", 128)},
        BATCHES,
        {"w": (128, 200), "b": (200,)},
    ),
    "matmul, all open": Case(
        [node("MatMul", "x v")],
        {"x": ("n", "k"), "v": ("k", "m")},
        [{"n": 128, "k": 128, "m": 128}, {"n": 61, "k": 83, "m": 67}],
        {},
    ),
    "matmul, many open rows": Case(
        [node("MatMul", "x v")],
        {"x": ("n", 24), "v": (24, 40)},
        [{"n": 4020}, {"n": 1000}, {"n": 61}],
        {},
    ),
    "matmul, batches of two names": Case(
        [node("MatMul", "x v")],
        {"x": ("n", 8, 7, 32), "v": ("m", 8, 32, 256)},
        [{"n": 1, "m": 1}, {"n": 4, "m": 1}, {"n": 1, "m": 4}],
        {},
    ),
    "matmul, open batch": Case(
        [node("MatMul", "x v")],
        {"x": ("n", "t", 64), "v": ("n", 64, "t")},
        BATCHES,
        {},
    ),
    "attention": attention(),
    # rows
    "softmax of open rows": Case([node("Softmax", "x", axis=-1)], {"x": ("n", 512)}, ROWS, {}),
    "softmax along an open axis": Case(
        [node("Softmax", "x", axis=-1)],
        {"x": ("n", "t")},
        [*BATCHES, {"n": 512, "t": 33}, {"n": 512, "t": 17}, {"n": 512, "t": 7}],
        {},
    ),
    "softmax over channels": image(node("Softmax", "x", axis=1)),
    "layer norm of open rows": Case(
        [node("LayerNormalization", "x g b", axis=-1)],
        {"x": ("n", 512)},
        ROWS,
        {"g": (512,), "b": (512,)},
    ),
    "sum along an open axis": Case(
        [node("ReduceSum", "x a", keepdims=0)], {"x": ("n", "t", 64)}, BATCHES, {"a": numbers(1)}
    ),
    "top 5 of open rows": Case(
        [helper.make_node("TopK", ["x", "k"], ["y", "i"], axis=-1)],
        {"x": ("n", "t")},
        [{"n": 16, "t": 300}, {"n": 64, "t": 50}],
        {"k": numbers(5)},
    ),
    "running sums of open rows": Case(
        [node("CumSum", "x a")],
        {"x": ("n", "t")},
        [{"n": 64, "t": 200}, {"n": 17, "t": 33}],
        {"a": np.array(1, np.int64)},
    ),
    "greatest of columns": image(node("ReduceMax", "x", axes=[2], keepdims=0)),
    "sum of open rows": Case(
        [node("ReduceSum", "x a", keepdims=0)], {"x": ("n", "t")}, BATCHES, {"a": numbers(1)}
    ),
    "instance norm": image(node("InstanceNormalization", "x g b"), g=(64,), b=(64,)),
    # element by element, and moves
    "elementwise": Case(
        [node("Sigmoid", "x", "s"), node("Mul", "x s")], {"x": (1, 64, "h", "w")}, IMAGES, {}
    ),
    "per channel": image(node("Mul", "x g", "m"), node("Add", "m b"), g=(64, 1, 1), b=(64, 1, 1)),
    "transpose": image(node("Transpose", "x", perm=[0, 2, 3, 1])),
    "channels first": channels("hwc", 2, 0, 1),
    "channels first, of bytes": channels("hwc", 2, 0, 1, dtype=np.uint8),
    "channels first, of bytes, scaled": channels("hwc", 2, 0, 1, dtype=np.uint8, scaled=True),
    "channels last": channels("chw", 1, 2, 0),
    "channels last, of bytes": channels("chw", 1, 2, 0, dtype=np.uint8),
    "channels last, of bytes, scaled": channels("chw", 1, 2, 0, dtype=np.uint8, scaled=True),
    "concat of channels": Case(
        [node("Concat", "x v", axis=1)],
        {"x": (1, 64, "h", "w"), "v": (1, 32, "h", "w")},
        IMAGES,
        {},
    ),
    "concat of columns": Case(
        [node("Concat", "x v", axis=1)],
        {"x": ("n", "t"), "v": ("n", "m")},
        [{"n": 128, "t": 256, "m": 100}, {"n": 61, "t": 83, "m": 67}],
        {},
    ),
    "slice": image(node("Slice", "x s e a"), s=numbers(1, 1), e=numbers(-1, -1), a=numbers(2, 3)),
    "pad": image(node("Pad", "x p"), p=numbers(0, 0, 1, 2, 0, 0, 1, 2)),
    "sum of padded images": image(
        node("Pad", "x p", "q"),
        node("ReduceSum", "q a", keepdims=0),
        p=numbers(0, 0, 1, 2, 0, 0, 1, 2),
        a=numbers(2, 3),
    ),
    "pad, reflected": image(node("Pad", "x p", mode="reflect"), p=numbers(0, 0, 1, 1, 0, 0, 1, 1)),
    "upper triangle": Case(
        [node("Trilu", "x")], {"x": ("n", "t")}, [{"n": 128, "t": 256}, {"n": 61, "t": 83}], {}
    ),
    "space to depth": Case(
        [node("SpaceToDepth", "x", blocksize=2)],
        {"x": (1, 32, "h", "w")},
        [{"h": 28, "w": 40}, {"h": 64, "w": 64}],
        {},
    ),
    "depth to space": image(node("DepthToSpace", "x", blocksize=2)),
    "gate of a row": Case(
        [node("Mul", "x v")],
        {"x": (1, 64, "h", "w"), "v": ("w",)},
        [*IMAGES, {"h": 40, "w": 17}],
        {},
    ),
    "mean of rows": Case(
        [node("ReduceMean", "x", axes=[3])],
        {"x": (1, 64, "h", "w")},
        [*IMAGES, {"h": 40, "w": 17}],
        {},
    ),
    # windows
    "max pool 2x2": image(node("MaxPool", "x", kernel_shape=[2, 2], strides=[2, 2])),
    "max pool 3x3": window("MaxPool", **same),
    "max pool 3x3 SAME_UPPER": window("MaxPool", auto_pad="SAME_UPPER"),
    "mean pool 3x3": window("AveragePool", **same),
    "mean pool 3x3 SAME_UPPER": window("AveragePool", auto_pad="SAME_UPPER"),
    "global mean": image(node("GlobalAveragePool", "x")),
    "packed max pool": packed(
        node("MaxPool", "a", "z", kernel_shape=[3, 3], strides=[2, 2], **same)
    ),
    "packed max pool SAME_UPPER": packed(
        node("MaxPool", "a", "z", kernel_shape=[3, 3], strides=[2, 2], auto_pad="SAME_UPPER")
    ),
    "packed max pool 2x2": packed(node("MaxPool", "a", "z", kernel_shape=[2, 2], strides=[2, 2])),
    "packed mean pool": packed(
        node("AveragePool", "a", "z", kernel_shape=[3, 3], strides=[2, 2], **same)
    ),
    "packed gate": packed(
        node("GlobalAveragePool", "a", "p"), node("Sigmoid", "p", "s"), node("Mul", "a s", "z")
    ),
    "resize, nearest": image(
        node("Resize", "x r s", mode="nearest"),
        r=np.zeros(0, np.float32),
        s=np.array([1, 1, 2, 2], np.float32),
    ),
    "resize, linear": image(
        node("Resize", "x r s", mode="linear"),
        r=np.zeros(0, np.float32),
        s=np.array([1, 1, 2, 2], np.float32),
    ),
    "resize of a line, linear": Case(
        [node("Resize", "x r s", mode="linear")],
        {"x": (1, 4, "w")},
        [{"w": 4801}, {"w": 997}],
        {"r": np.zeros(0, np.float32), "s": np.array([1, 1, 2], np.float32)},
    ),
    # recurrences
    "LSTM": rnn("LSTM", 4),
    "GRU": rnn("GRU", 3),
}


def fallbacks(model: onnx.ModelProto, threads: int) -> list[str]:
    """Why kernels of a model have no schedule of their family."""
    machine = target("cpu")
    jobs = kernel_jobs(prepare(open_source(model).graph(), machine, 3), machine, threads, Watch())
    points = [(job.func, decisions(default(job.func, machine, threads))) for job in jobs[-1]]
    return [why for f, point in points if (why := fallback(f, machine, threads, point))]


def seconds_in_turns(calls: Sequence[partial[Any]]) -> list[float]:
    """The shortest time of each call."""
    seen: list[list[float]] = [[] for _ in calls]
    end, rounds = time.perf_counter() + SECONDS, 0
    while rounds < LEAST or time.perf_counter() < end:
        for call, times in zip(calls, seen, strict=True):
            start = time.perf_counter()
            call()
            times.append(time.perf_counter() - start)
        rounds += 1
    return [min(times) for times in seen]


@dataclass(frozen=True)
class Found:
    """At some sizes: seconds with open and with fixed sizes, and the largest difference of the
    results over the largest value."""

    at: Sizes
    open: float
    fixed: float
    error: float


def measure(case: Case, threads: int) -> list[Found]:
    """The case at each of its sizes."""
    model, found = case.model(), []
    exe = tw.compile(model, threads=threads, cache=False)
    for at in case.sizes:
        fixed = tw.compile(model, shapes=at, threads=threads, cache=False)
        arrays = case.arrays(at)
        got, wanted = exe(*arrays)[0], fixed(*arrays)[0]
        error = float(np.abs(got - wanted).max(initial=0) / max(1e-9, np.abs(wanted).max()))
        ours, its = seconds_in_turns([partial(exe, *arrays), partial(fixed, *arrays)])
        found.append(Found(at, ours, its, error))
    return found


def main(
    names: Annotated[list[str] | None, typer.Argument(help="default: all")] = None,
    threads: Annotated[int, typer.Option(help="of both")] = 1,
    output: Annotated[Path | None, typer.Option(help="markdown file")] = None,
) -> None:
    """Measure open sizes beside fixed ones and print the table."""
    for name in names or []:
        if name not in CASES:
            raise typer.BadParameter(f"no case '{name}'; there are {', '.join(CASES)}")
    warnings.simplefilter("ignore")
    lines = [
        "| operator | sizes | open, us | fixed, us | ratio | error |",
        "|---|---|---|---|---|---|",
    ]
    told, ratios = [], []
    print("\n".join(lines))
    for name in names or CASES:
        for f in measure(CASES[name], threads):
            ratios.append(f.open / f.fixed)
            mark = " ◀" if ratios[-1] > SLOWER else ""
            times = f"{f.open * 1e6:,.0f} | {f.fixed * 1e6:,.0f} | {ratios[-1]:.2f}{mark}"
            at = "×".join(map(str, f.at.values()))
            lines.append(f"| {name} | {at} | {times} | {f.error:.0e} |")
            print(lines[-1], flush=True)
        for why in fallbacks(CASES[name].model(), threads):
            told.append(f"* {name}: {why}")
            print(told[-1], flush=True)
    mean = float(np.exp(np.mean(np.log(ratios))))
    slower = sum(r > SLOWER for r in ratios)
    summary = (
        f"Geometric mean of the ratios: {mean:.2f}; {slower} of {len(ratios)} over {SLOWER}, the"
        f" greatest {max(ratios):.2f}."
    )
    print(summary)
    if output:
        head = [
            "# Open sizes",
            "",
            "Code for open sizes beside code for the same sizes fixed, written by"
            f" `python -m benchmarks.open_sizes --output FILE`: f32, threads: {threads}, minima of"
            f" calls in turns, calls and all. ◀: more than {SLOWER} times the fixed size's time.",
            summary,
            "",
        ]
        tail = ["", "Kernels without a schedule of their family:", "", *told] if told else []
        pages.write(output, "\n".join([*head, *lines, *tail, ""]))


if __name__ == "__main__":
    typer.run(main)
