"""Operators with parameters of the run: a model of each, draws, and what NumPy makes of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

LARGE = 1 << 22  # elements from which a result is not compared
EDGES = [-(1 << 63), -(1 << 62), -(1 << 32), -(1 << 31), -100, -3, -2, -1, 0, 1, 2, 3, 100,
         (1 << 31) - 1, 1 << 31, 1 << 32, (1 << 32) + 1, 1 << 40, (1 << 40) + 1, 1 << 62,
         (1 << 63) - 1]  # fmt: skip
ODD = [0.0, -0.0, math.nan, math.inf, -math.inf, 1e-300, -1e-45, 1e38, -1e38, 2.0**62, 2.0**63, 0.5,
       -1.0, 1.0, 3.0]  # fmt: skip
F32, I64, I32, F64 = TensorProto.FLOAT, TensorProto.INT64, TensorProto.INT32, TensorProto.DOUBLE


class Refused(Exception):
    """These parameters mean nothing: the run must end with an error."""


FAR = 1 << 40  # pads beyond it may be refused


class Free(Exception):
    """Nobody says what these parameters mean, or the result is too large to look at: the run ends,
    but does not crash."""


def need(condition: Any) -> None:
    if not condition:
        raise Refused


def small(shape: Sequence[int]) -> None:
    """Results that are worth comparing have few elements."""
    need(min(shape, default=0) >= 0)
    if max(shape, default=0) > LARGE or math.prod(int(s) for s in shape) > LARGE:
        raise Free


@dataclass(frozen=True)
class Subject:
    """name; a model's nodes; inputs: (name, ONNX type, shape); outputs: (name, type, rank).

    draw(random) gives the arrays, want(*arrays) what the model gives for them."""

    name: str
    nodes: tuple[onnx.NodeProto, ...]
    inputs: tuple[tuple[str, int, tuple[Any, ...]], ...]
    outputs: tuple[tuple[str, int, int], ...]
    draw: Callable[[np.random.Generator], tuple[np.ndarray, ...]]
    want: Callable[..., Any]
    version: int = 19

    def model(self) -> onnx.ModelProto:
        graph = helper.make_graph(
            list(self.nodes),
            self.name,
            [helper.make_tensor_value_info(*i) for i in self.inputs],
            [
                helper.make_tensor_value_info(n, t, [f"{n}_{k}" for k in range(r)])
                for n, t, r in self.outputs
            ],
        )
        opset = helper.make_opsetid("", self.version)
        return helper.make_model(graph, opset_imports=[opset], ir_version=9)


# draws --------------------------------------------------------------------------------------------


def data(random: np.random.Generator, *shape: int) -> np.ndarray:
    """Numbers that are all different."""
    count = math.prod(shape)
    return (random.permutation(count) + 0.5).astype(np.float32).reshape(shape)


def whole(random: np.random.Generator, count: int, low: int, high: int, wild: float = 0.2) -> Any:
    """i64 numbers from low to high, some of them replaced by any."""
    made = random.integers(low, high + 1, count)
    for k in range(count):
        if random.random() < wild:
            made[k] = EDGES[random.integers(len(EDGES))]
    return made.astype(np.int64)


def some(random: np.random.Generator, most: int = 6) -> int:
    return int(random.integers(1, most))


# references ---------------------------------------------------------------------------------------


def pad(mode: str, x: np.ndarray, pads: np.ndarray) -> np.ndarray:
    half = len(pads) // 2
    ends = [(int(pads[k]), int(pads[half + k])) for k in range(half)]
    if any(abs(p) > FAR for p in pads.tolist()):
        raise Free  # even where a cut of as many makes up for it
    if mode == "constant":
        shape = [s + a + b for (a, b), s in zip(ends, x.shape, strict=True)]
        small(shape)
        for d, ((a, _), n) in enumerate(zip(ends, shape, strict=True)):
            source = np.arange(n) - a
            inside = (source >= 0) & (source < x.shape[d])
            side = [-1 if k == d else 1 for k in range(x.ndim)]
            taken = np.take(x, np.where(inside, source, 0), d) if x.shape[d] else x
            if not x.shape[d]:
                taken = np.zeros([n if k == d else s for k, s in enumerate(x.shape)], x.dtype)
            x = np.where(inside.reshape(side), taken, 0).astype(x.dtype)
        return x
    cut = []
    for (a, b), s in zip(ends, x.shape, strict=True):
        left = s + min(a, 0) + min(b, 0)
        need(left >= 0 and (left > 0 or max(a, b) <= 0))
        cut.append(slice(max(-a, 0), s - max(-b, 0)))
    small([s + a + b for (a, b), s in zip(ends, x.shape, strict=True)])
    return np.pad(x[tuple(cut)], [(max(a, 0), max(b, 0)) for a, b in ends], mode)  # type: ignore[call-overload]


def axes_of(axes: np.ndarray, rank: int) -> list[int]:
    need(all(-rank <= a < rank for a in axes.tolist()))
    found = [int(a) % rank for a in axes]
    need(len(set(found)) == len(found))
    return found


def slice_(x: np.ndarray, starts: Any, ends: Any, axes: Any, steps: Any) -> np.ndarray:
    """As ONNX clamps ends: a backward start that lies before the axis is its first place."""
    need((steps != 0).all())
    for d, *numbers in zip(axes_of(axes, x.ndim), starts, ends, steps, strict=True):
        first, last, step = map(int, numbers)
        n = x.shape[d]
        low, high = (0, n) if step > 0 else (-1, n - 1)
        first, last = (v + n if v < 0 else v for v in (first, last))
        places = range(min(max(first, 0), high), min(max(last, low), high), step)
        x = np.take(x, places, d)
    return x


def tile(x: np.ndarray, repeats: np.ndarray) -> np.ndarray:
    need((repeats >= 0).all())
    small([s * int(r) for s, r in zip(x.shape, repeats, strict=True)])
    return np.tile(x, repeats)


def expand(x: np.ndarray, shape: np.ndarray) -> np.ndarray:
    goal = [int(s) for s in shape]
    need(min(goal) >= 0)
    have = [1] * (len(goal) - x.ndim) + list(x.shape)
    need(all(1 in (a, b) or a == b for a, b in zip(have, goal, strict=True)))
    made = [b if a == 1 else a for a, b in zip(have, goal, strict=True)]
    small(made)
    return np.broadcast_to(x, made)


def reshape(zero: bool, x: np.ndarray, shape: np.ndarray) -> np.ndarray:
    goal = [int(s) for s in shape]
    if not zero:
        goal = [x.shape[d] if s == 0 and d < x.ndim else s for d, s in enumerate(goal)]
    need(min(goal) >= -1 and goal.count(-1) <= 1)
    if -1 in goal and 0 in goal:
        raise Free
    need(-1 in goal or math.prod(goal) == x.size)
    rest = math.prod(s for s in goal if s != -1)
    need(rest <= max(x.size, 1) and (-1 not in goal or x.size % rest == 0))
    return x.reshape(goal)


def range_(start: Any, limit: Any, step: Any) -> np.ndarray:
    need(step == step and step != 0 and limit == limit and start == start)
    of = start.dtype
    if of.kind == "i":
        count = max(0, -((int(start) - int(limit)) // int(step)))
    else:
        with np.errstate(all="ignore"):
            share = (np.float64(limit) - np.float64(start)) / np.float64(step)
        if not math.isfinite(share) or not np.isfinite([start, limit, step]).all():
            raise Free
        count = max(0, math.ceil(share))
    small([count])
    with np.errstate(all="ignore"):
        return (np.arange(count).astype(of) * step + start).astype(of)


def filled(shape: np.ndarray) -> np.ndarray:
    small([int(s) for s in shape])
    return np.zeros(shape, np.float32)


def one_hot(indices: np.ndarray, depth: np.ndarray, values: np.ndarray) -> np.ndarray:
    number = float(depth[0])
    need(number == number and abs(number) != math.inf and int(depth[0]) >= 0)
    count = int(depth[0])
    if count == 0:
        raise Free
    small([len(indices), count])
    index = np.array([int(i) + count if i < 0 else int(i) for i in indices], object)
    return np.where(index[:, None] == np.arange(count), values[1], values[0])


def top_k(x: np.ndarray, k: np.ndarray) -> Any:
    need(0 <= k[0] <= x.shape[-1])
    order = np.argsort(-x, axis=-1, kind="stable")[..., : k[0]]
    return np.take_along_axis(x, order, -1), order


def split(x: np.ndarray, parts: np.ndarray) -> Any:
    need((parts >= 0).all() and sum(map(int, parts)) == x.shape[1])
    return tuple(np.split(x, np.cumsum(parts)[:-1], 1))


def squeeze(x: np.ndarray, axes: np.ndarray) -> np.ndarray:
    found = axes_of(axes, x.ndim)
    need(all(x.shape[d] == 1 for d in found))
    return np.squeeze(x, tuple(found))


def cumsum(x: np.ndarray, axis: np.ndarray) -> np.ndarray:
    return np.cumsum(x, axes_of(axis, x.ndim)[0], dtype=np.float32)


def trilu(upper: bool, x: np.ndarray, k: np.ndarray) -> np.ndarray:
    gap = np.arange(x.shape[1]) - np.arange(x.shape[0])[:, None]
    return np.where(gap >= k if upper else gap <= k, x, 0).astype(x.dtype)


def indices_of(indices: np.ndarray, *axes: int) -> np.ndarray:
    bounds = np.array(axes)
    need(((indices >= -bounds) & (indices < bounds)).all())
    return np.where(indices < 0, indices + bounds, indices)


def gather_elements(x: np.ndarray, i: np.ndarray) -> np.ndarray:
    return np.take_along_axis(x, indices_of(i, x.shape[1]), 1)


def gather_nd(x: np.ndarray, i: np.ndarray) -> np.ndarray:
    return x[tuple(indices_of(i, *x.shape[: i.shape[-1]]).T)]


def scatter_elements(x: np.ndarray, i: np.ndarray, u: np.ndarray) -> np.ndarray:
    made, at = x.copy(), indices_of(i, x.shape[1])
    for place in np.ndindex(i.shape):
        made[place[0], at[place]] += u[place]
    return made


def scatter_nd(x: np.ndarray, i: np.ndarray, u: np.ndarray) -> np.ndarray:
    made = x.copy()
    for row, new in zip(indices_of(i, *x.shape[: i.shape[-1]]), u, strict=True):
        made[tuple(row)] = new
    return made


def reverse_sequence(x: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    need(((lengths >= 0) & (lengths <= x.shape[0])).all())
    made = x.copy()
    for b, n in enumerate(lengths):
        made[:n, b] = x[:n, b][::-1]
    return made


def reduced(x: np.ndarray, axes: np.ndarray) -> np.ndarray:
    return x.sum(tuple(axes_of(axes, x.ndim)), dtype=np.float32)


class Resized:
    """ONNX's reference, for factors or sizes that make sense."""

    def __init__(self, model: onnx.ModelProto, by_scales: bool) -> None:
        self.run, self.by_scales = ReferenceEvaluator(model), by_scales

    def __call__(self, x: np.ndarray, given: np.ndarray) -> np.ndarray:
        if self.by_scales:
            need((given > 0).all() and np.isfinite(given).all())
            shape = [math.floor(float(s) * n) for s, n in zip(given, x.shape[2:], strict=True)]
        else:
            need((given >= 0).all())
            shape = [int(s) for s in given]
        small(shape)
        if 0 in shape or 0 in x.shape or math.prod(shape) > 4096:
            raise Free
        return self.run.run(None, {"x": x, "p": given})[0]


# the table ----------------------------------------------------------------------------------------


def subject(
    op: str, inputs: Any, draw: Any, want: Any, *, name: str = "", rank: int = 1,
    outputs: Any = None, version: int = 19, **attrs: Any,
) -> Subject:  # fmt: skip
    """A model of one node; an input "" is left out."""
    outputs = outputs or [("y", F32, rank)]
    node = helper.make_node(op, [i[0] for i in inputs], [o[0] for o in outputs], **attrs)
    given = tuple(i for i in inputs if i[0])
    return Subject(name or op, (node,), given, tuple(outputs), draw, want, version)


def resized(mode: str, how: str, by_scales: bool) -> Subject:
    of = F32 if by_scales else I64
    inputs = [("x", F32, (1, 2, "h", "w")), ("", 0, ())]
    inputs += [("p", of, (2,))] if by_scales else [("", 0, ()), ("p", of, (2,))]

    def draw(random: np.random.Generator) -> tuple[np.ndarray, ...]:
        x = data(random, 1, 2, some(random), some(random))
        if not by_scales:
            return x, whole(random, 2, 1, 9, 0.1)
        scales = random.uniform(0.3, 3, 2)
        for k in range(2):
            if random.random() < 0.1:
                scales[k] = ODD[random.integers(len(ODD))]
        with np.errstate(all="ignore"):
            return x, scales.astype(np.float32)

    made = subject("Resize", inputs, draw, None, rank=4, mode=mode, axes=[2, 3],
                   coordinate_transformation_mode=how)  # fmt: skip
    want = Resized(made.model(), by_scales)
    name = f"Resize {mode} {how} by {'scales' if by_scales else 'sizes'}"
    return Subject(name, made.nodes, made.inputs, made.outputs, draw, want)


def numbers(of: Any) -> Callable[[np.random.Generator], tuple[np.ndarray, ...]]:
    """Start, limit and step of a range."""

    def draw(random: np.random.Generator) -> tuple[np.ndarray, ...]:
        if np.dtype(of).kind == "i":
            made = [*whole(random, 2, -9, 9), *whole(random, 1, -3, 3)]
            info = np.iinfo(of)
            return tuple(np.array(min(max(int(v), info.min), info.max), of) for v in made)
        made = [*random.uniform(-9, 9, 2), random.uniform(-3, 3)]
        for k in range(3):
            if random.random() < 0.2:
                made[k] = ODD[random.integers(len(ODD))]
        with np.errstate(all="ignore"):
            return tuple(np.array(v, of) for v in made)

    return draw


def subjects() -> list[Subject]:
    x2 = ("x", F32, (2, "n"))
    found = [
        subject("Pad", [x2, ("p", I64, (4,))],
                lambda r: (data(r, 2, some(r)), whole(r, 4, -3, 5)),
                lambda x, p, mode=mode: pad(mode, x, p), name=f"Pad {mode}", rank=2, mode=mode)
        for mode in ("constant", "edge", "reflect", "wrap")
    ]  # fmt: skip
    found += [
        subject("Slice", [("x", F32, (3, "n", 2)), *((k, I64, (2,)) for k in "seap")],
                lambda r: (data(r, 3, some(r), 2), whole(r, 2, -7, 7), whole(r, 2, -7, 7),
                           np.array([[0, 1], [1, 2], [2, 0], [-1, 1], whole(r, 2, -4, 4)]
                                    [r.integers(5)], np.int64), whole(r, 2, -3, 3, 0.1)),
                slice_, rank=3),
        subject("Tile", [x2, ("p", I64, (2,))],
                lambda r: (data(r, 2, some(r)), whole(r, 2, 0, 4)), tile, rank=2),
        subject("Expand", [("x", F32, (1, "n")), ("p", I64, (3,))],
                lambda r: (data(r, 1, some(r, 4)), whole(r, 3, 0, 4)), expand, rank=3),
        subject("ConstantOfShape", [("p", I64, (3,))],
                lambda r: (whole(r, 3, 0, 5),), filled, rank=3),
        subject("TopK", [x2, ("k", I64, (1,))], lambda r: (data(r, 2, some(r)), whole(r, 1, 0, 6)),
                top_k, outputs=[("y", F32, 2), ("i", I64, 2)]),
        subject("Split", [x2, ("p", I64, (3,))], lambda r: parts(r), split, axis=1,
                outputs=[(k, F32, 2) for k in "abc"]),
        subject("Squeeze", [("x", F32, (1, "n", 1)), ("p", I64, (1,))],
                lambda r: (data(r, 1, some(r, 4), 1), whole(r, 1, -4, 3)), squeeze, rank=2),
        subject("Unsqueeze", [("x", F32, ("n", 2)), ("p", I64, (2,))],
                lambda r: (data(r, some(r, 4), 2), whole(r, 2, -5, 4)),
                lambda x, p: np.expand_dims(x, tuple(axes_of(p, 4))), rank=4),
        subject("CumSum", [x2, ("p", I64, (1,))],
                lambda r: (data(r, 2, some(r)), whole(r, 1, -3, 2)), cumsum, rank=2),
        subject("ReduceSum", [("x", F32, (2, "n", 3)), ("p", I64, (1,))],
                lambda r: (data(r, 2, some(r), 3), whole(r, 1, -4, 3)), reduced, rank=2,
                keepdims=0),
        subject("ReverseSequence", [("x", F32, (4, "n")), ("p", I64, ("n",))],
                lambda r: (lambda n: (data(r, 4, n), whole(r, n, 0, 4, 0.1)))(some(r)),
                reverse_sequence, rank=2, batch_axis=1, time_axis=0),
        subject("Gather", [x2, ("i", I64, ("k",))],
                lambda r: (lambda n: (data(r, 2, n), whole(r, some(r, 20), -n, n - 1, 0.05)))(
                    some(r)),
                lambda x, i: x[:, indices_of(i, x.shape[1])], rank=2, axis=1),
        subject("GatherElements", [x2, ("i", I64, (2, "k"))],
                lambda r: (lambda n: (data(r, 2, n),
                                      whole(r, 2 * (k := some(r, 9)), -n, n - 1, 0.04)
                                      .reshape(2, k)))(some(r)),
                gather_elements, rank=2, axis=1),
        subject("GatherND", [("x", F32, (3, "n", 2)), ("i", I64, ("k", 2))],
                lambda r: (lambda n: (data(r, 3, n, 2), pairs(r, n)))(some(r)), gather_nd, rank=2),
        subject("ScatterElements", [x2, ("i", I64, (2, "k")), ("u", F32, (2, "k"))],
                lambda r: (lambda n, k: (data(r, 2, n), whole(r, 2 * k, -n, n - 1, 0.04)
                                         .reshape(2, k), data(r, 2, k)))(some(r), some(r, 9)),
                scatter_elements, rank=2, axis=1, reduction="add"),
        subject("ScatterND", [("x", F32, (3, "n", 2)), ("i", I64, ("k", 2)), ("u", F32, ("k", 2))],
                lambda r: (lambda n: (data(r, 3, n, 2), i := pairs(r, n), data(r, len(i), 2)))(
                    some(r)), scatter_nd, rank=3),
    ]  # fmt: skip
    for zero in (0, 1):
        found.append(
            subject("Reshape", [("x", F32, (2, 3, "n")), ("p", I64, (3,))],
                    lambda r: (data(r, 2, 3, some(r)), shapes(r)),
                    lambda x, p, zero=zero: reshape(bool(zero), x, p), name=f"Reshape {zero}",
                    rank=3, allowzero=zero)
        )  # fmt: skip
    for upper in (0, 1):
        found.append(
            subject("Trilu", [("x", F32, (3, "n")), ("k", I64, ())],
                    lambda r: (data(r, 3, some(r)), whole(r, 1, -4, 4).reshape(())),
                    lambda x, k, upper=upper: trilu(bool(upper), x, k), name=f"Trilu {upper}",
                    rank=2, upper=upper)
        )  # fmt: skip
    for of, kind in ((I64, np.int64), (I32, np.int32), (F32, np.float32), (F64, np.float64)):
        found.append(
            subject("Range", [(k, of, ()) for k in "abc"], numbers(kind), range_,
                    name=f"Range {np.dtype(kind)}", outputs=[("y", of, 1)])
        )  # fmt: skip
    for of in (I64, F32):
        found.append(
            subject("OneHot", [("i", I64, ("k",)), ("d", of, (1,)), ("v", F32, (2,))],
                    lambda r, of=of: depths(r, of == F32), one_hot, rank=2,
                    name="OneHot of floats" if of == F32 else "OneHot")
        )  # fmt: skip
    kinds = [("nearest", "half_pixel"), ("linear", "align_corners"), ("cubic", "half_pixel")]
    found += [resized(*kind, by) for kind in kinds for by in (True, False)]
    return found


def parts(random: np.random.Generator) -> tuple[np.ndarray, ...]:
    n = some(random, 9)
    a, b = sorted(random.integers(0, n + 1, 2))
    made = np.array([a, b - a, n - b])
    if random.random() < 0.4:
        made[random.integers(3)] = whole(random, 1, 0, n, 0.6)[0]
    return data(random, 2, n), made


def pairs(random: np.random.Generator, n: int) -> np.ndarray:
    k = some(random, 9)
    columns = [whole(random, k, -size, size - 1, 0.04) for size in (3, n)]
    return np.stack(columns, 1)


def shapes(random: np.random.Generator) -> np.ndarray:
    made = [[0, 0, -1], [-1, 3, 2], [0, -1, 3], [3, 2, -1], [2, 3, 0], [1, 6, -1]]
    shape = np.array(made[random.integers(len(made))])
    if random.random() < 0.5:
        shape[random.integers(3)] = whole(random, 1, -2, 6, 0.5)[0]
    return shape


def depths(random: np.random.Generator, floats: bool) -> tuple[np.ndarray, ...]:
    depth: Any = whole(random, 1, 0, 7)
    if floats:
        with np.errstate(all="ignore"):
            odd = random.random() < 0.5
            depth = np.array([ODD[random.integers(len(ODD))]]) if odd else depth
            depth = depth.astype(np.float32)
    return whole(random, some(random), -7, 7, 0.1), depth, np.array([-1, 2], np.float32)
