"""Random products and convolutions whose sums are of another dtype than their operands: compiled
code beside PyTorch in float64, which adds small integers exactly.

    python -m tests.strategy.typed_products --count 500 [--seed S] [--family conv] [--types "…"]

No operand may be stored in the dtype of the sums: the loops of all kernels are read for that.
"""

from __future__ import annotations

import random
import sys
from typing import Annotated, Any

import numpy as np
import torch
import typer
from rich.progress import track

from tilewright.driver.compile import compile_observed, kernel_jobs, prepare
from tilewright.driver.kernels import KernelPool
from tilewright.driver.observe import Watch
from tilewright.graph import Builder, Graph
from tilewright.ir.dtype import DType, dtype
from tilewright.ir.expr import Binary, BinaryOp, Cast, Expr, as_int
from tilewright.ir.stmt import Alloc, Func, Store
from tilewright.ir.walk import visit
from tilewright.lower.pipeline import lower
from tilewright.strategy.select import default
from tilewright.target.target import target

TYPES = {
    "i8 × i8 → i32": ("i8", "i8", "i32"),
    "u8 × i8 → i32": ("u8", "i8", "i32"),
    "bf16 × bf16 → f32": ("bf16", "bf16", "f32"),
    "f16 × f16 → f32": ("f16", "f16", "f32"),
}
SIZES = (1, 2, 3, 5, 7, 8, 9, 14, 16, 17, 28, 31, 33)
CHANNELS = (1, 2, 3, 4, 7, 8, 16, 17, 24, 31, 32, 33, 65)
TOLERANCE = 1e-5  # of the largest sum of absolute products
POOL = KernelPool(1)

Case = tuple[Graph, list[np.ndarray], np.ndarray, float]


def numbers(rng: np.random.Generator, of: str, shape: tuple[int, ...]) -> np.ndarray:
    """Integers over the whole of their range, or floats about 1."""
    kind = dtype(of)
    if kind.is_int:
        return rng.integers(int(kind.lowest), int(kind.highest), shape, endpoint=True).astype(
            kind.numpy
        )
    return rng.standard_normal(shape).astype(np.float32).astype(kind.numpy)


def matmul(rng: random.Random) -> tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]:
    """Shapes of the operands, and attributes."""
    m, n = (rng.choice(SIZES + CHANNELS) for _ in range(2))
    k = rng.choice(CHANNELS) * rng.choice([1, 1, 3])
    batch = tuple(rng.choice([1, 2, 3]) for _ in range(rng.choice([0, 0, 1, 2])))
    other = batch if rng.random() < 0.6 else ()
    transposed = {"transpose_a": rng.random() < 0.2, "transpose_b": rng.random() < 0.4}
    a = (k, m) if transposed["transpose_a"] else (m, k)
    b = (n, k) if transposed["transpose_b"] else (k, n)
    return (*batch, *a), (*other, *b), transposed


def conv(rng: random.Random) -> tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]:
    rank = rng.choice([1, 2, 2, 2, 3])
    ci, co, groups = rng.choice(CHANNELS), rng.choice(CHANNELS), 1
    if rng.random() < 0.4:
        groups = rng.choice([2, 3, 4, 8])
        ci, co = (groups * rng.choice([1, 1, 2, 3, 8]) for _ in range(2))
    kernel = [rng.choice([1, 1, 2, 3, 5]) for _ in range(rank)]
    dilations = tuple(rng.choice([1, 1, 1, 2]) for _ in range(rank))
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    image = [max(rng.choice(SIZES[: 13 - 4 * (rank == 3)]), r) for r in reach]
    attrs = {
        "groups": groups,
        "strides": tuple(rng.choice([1, 1, 2, 3]) for _ in range(rank)),
        "dilations": dilations,
        "pads": tuple((rng.randrange(k), rng.randrange(k)) for k in kernel),
    }
    return (rng.choice([1, 1, 2]), ci, *image), (co, ci // groups, *kernel), attrs


def conv_transpose(rng: random.Random) -> tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]:
    rank = rng.choice([1, 2, 2])
    groups = rng.choice([1, 1, 2, 4])
    ci, each = groups * rng.choice([1, 3, 8, 16]), rng.choice([1, 2, 3, 8, 17])
    kernel = [rng.choice([1, 2, 3, 4]) for _ in range(rank)]
    image = [rng.choice(SIZES[:8]) for _ in range(rank)]
    strides = tuple(rng.choice([1, 2, 2, 3]) for _ in range(rank))
    pads = tuple((rng.randrange((k + 1) // 2), rng.randrange((k + 1) // 2)) for k in kernel)
    attrs = {"groups": groups, "strides": strides, "pads": pads}
    return (rng.choice([1, 2]), ci, *image), (ci, each, *kernel), attrs


FAMILIES = {"matmul": matmul, "conv": conv, "conv_transpose": conv_transpose}


def in_float64(op: str, x: np.ndarray, w: np.ndarray, attrs: dict[str, Any]) -> np.ndarray:
    """What PyTorch makes of the operands as float64."""
    a, b = (torch.from_numpy(np.ascontiguousarray(v.astype(np.float64))) for v in (x, w))
    if op == "matmul":
        a = a.transpose(-1, -2) if attrs["transpose_a"] else a
        b = b.transpose(-1, -2) if attrs["transpose_b"] else b
        return torch.matmul(a, b).numpy()
    rank, strides, groups = x.ndim - 2, attrs["strides"], attrs["groups"]
    if op == "conv":
        a = torch.nn.functional.pad(a, [n for pair in reversed(attrs["pads"]) for n in pair])
        run = getattr(torch.nn.functional, f"conv{rank}d")
        return run(a, b, stride=strides, dilation=attrs["dilations"], groups=groups).numpy()
    run = getattr(torch.nn.functional, f"conv_transpose{rank}d")
    y = run(a, b, stride=strides, groups=groups).numpy()
    kept = (slice(p, n - q) for (p, q), n in zip(attrs["pads"], y.shape[2:], strict=True))
    return y[(slice(None), slice(None), *kept)]


def draw_case(number: int, seed: int, family: str, types: str) -> Case:
    """A graph, its inputs, its result in float64, and the largest sum of absolute products."""
    rng = random.Random(f"{seed} {family} {types} {number}")
    draws, (left, right, sums) = np.random.default_rng(rng.getrandbits(32)), TYPES[types]
    a, b, attrs = FAMILIES[family](rng)
    x, w = numbers(draws, left, a), numbers(draws, right, b)
    build, arrays = Builder(f"{family}_{number}"), [x]
    operands = [build.input("x", left, a)]
    if rng.random() < 0.6:
        operands.append(build.constant(w))
    else:
        operands.append(build.input("w", right, b))
        arrays.append(w)
    expected = in_float64(family, x, w, attrs)
    size = in_float64(family, np.abs(x.astype(np.float64)), np.abs(w.astype(np.float64)), attrs)
    if family != "matmul" and rng.random() < 0.4:
        bias = numbers(draws, sums, (expected.shape[1],))
        operands.append(build.constant(bias))
        expected = expected + bias.reshape(-1, *(1,) * (x.ndim - 2))
    y = build.emit(family, *operands, out_dtype=sums, **attrs)
    return build.finish({"y": y}), arrays, expected, float(size.max(initial=1.0))


def kernels(graph: Graph, threads: int) -> list[tuple[Func, Func]]:
    """The kernels of a graph, as their blocks say, and their loops."""
    machine = target("cpu")
    *_, jobs = kernel_jobs(prepare(graph, machine, opt_level=3), machine, threads, Watch())
    made = [default(job.func, machine, threads, strict=True).func for job in jobs]
    return [(job.func, lower(f, machine)) for job, f in zip(jobs, made, strict=True)]


def widened(graph: Graph, found: list[tuple[Func, Func]]) -> list[str]:
    """The buffers in memory that hold an operand, or a part of one, in the dtype of the sums: what
    is stored there was converted and not multiplied, or they have the sizes of an operand, in any
    order. (Phases of a transposed convolution may have those too.)"""
    node, y = graph.nodes[0], graph.outputs[0]
    narrow = {v.dtype for v in node.inputs[:2]}
    copies = [s for _, loops in found for s in visit(loops.body) if isinstance(s, Store)]
    copies = [s.buffer for s in copies if s.buffer.dtype is y.dtype and _is_copy(s.value, narrow)]
    buffers = [b for func, _ in found for b in func.buffers]
    for _, loops in found:
        buffers += [s.buffer for s in visit(loops.body) if isinstance(s, Alloc)]
    looked_for = {_sizes(v.shape) for v in node.inputs[:2]} - {_sizes(y.shape)}
    if node.op != "conv_transpose":
        wide = [b for b in buffers if b.dtype is y.dtype and len(_sizes(b.shape)) > 1]
        copies += [b for b in wide if _sizes(b.shape) in looked_for]
    return [b.name for b in copies if b.scope == "global"]


def _is_copy(value: Expr, of: set[DType]) -> bool:
    """Is a value converted from one of these dtypes, and not multiplied?"""
    inside = [*visit(value)]
    converted = any(isinstance(n, Cast) and n.a.dtype in of for n in inside)
    return converted and not any(isinstance(n, Binary) and n.op is BinaryOp.mul for n in inside)


def _sizes(shape: tuple[Expr, ...]) -> tuple[int, ...]:
    return tuple(sorted(n for d in shape if (n := as_int(d) or 0) != 1))


def judge(case: Case, threads: int) -> str:
    """What is wrong with the compiled graph; empty if nothing is."""
    graph, arrays, expected, size = case
    if wide := widened(graph, kernels(graph, threads)):
        return f"an operand is widened: {', '.join(wide)}"
    (found,) = compile_observed(graph, threads=threads, cache=False, pool=POOL)(*arrays)
    if found.shape != expected.shape or found.dtype != graph.outputs[0].dtype.numpy:
        return f"{found.dtype} of shape {found.shape} instead of {expected.shape}"
    if found.dtype.kind == "i":
        wrapped = expected.astype(np.int64).astype(found.dtype)
        return "" if np.array_equal(found, wrapped) else "other integers"
    error = float(np.abs(found - expected).max(initial=0)) / size
    return "" if error <= TOLERANCE else f"error {error:.1e} of the largest sum"


def main(
    count: Annotated[int, typer.Option(help="cases of each family and types")] = 100,
    seed: Annotated[int, typer.Option(help="of all random choices")] = 1,
    family: Annotated[str, typer.Option(help="only this family")] = "",
    types: Annotated[str, typer.Option(help="only these types")] = "",
    first: Annotated[int, typer.Option(help="the first case's number")] = 0,
) -> None:
    """Compare; exit code 1 if a case fails."""
    failures = 0
    for name in [family] if family else list(FAMILIES):
        for of in [types] if types else list(TYPES):
            for number in track(range(first, first + count), f"{name} {of}", transient=True):
                case, threads = draw_case(number, seed, name, of), 1 + number % 3
                try:
                    wrong = judge(case, threads)
                except Exception as fault:  # one broken case must not end the run
                    wrong = f"{type(fault).__name__}: {str(fault).splitlines()[0]}"
                if wrong:
                    failures += 1
                    print(f"{name} {of} {number} ({threads} threads): {wrong}\n{case[0]}\n")
            print(f"{name} {of}: {count} cases, {failures} failures so far", flush=True)
    sys.exit(bool(failures))


if __name__ == "__main__":
    typer.run(main)
