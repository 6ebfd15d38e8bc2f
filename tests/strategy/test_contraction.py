"""Sums of products that are no operator of ours: their result lies in registers, whatever their
axes, and an operand that lies across the vectors is copied first."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from tilewright import te
from tilewright.codegen import inprocess
from tilewright.graph.builder import complete
from tilewright.graph.operator import OPERATORS
from tilewright.ir.expr import Var, as_int
from tilewright.schedule.schedule import replay
from tilewright.strategy.select import default
from tilewright.strategy.space import decisions, sample
from tilewright.target.target import target

CPU = target("cpu")
RNG = np.random.default_rng(11)
N, M = Var("n"), Var("m")


def einsum(words, *shapes, dtype="f32", epilogue=False, combine=None):
    """The function of an einsum over operands of these shapes, and its reference."""
    ins, out = words.split("->")
    ins = ins.split(",")
    sizes = {
        c: s for w, shape in zip(ins, shapes, strict=True) for c, s in zip(w, shape, strict=True)
    }
    reduced = [c for c in sizes if c not in out]
    operands = [te.placeholder(s, dtype, f"x{n}") for n, s in enumerate(shapes)]
    axes = {c: te.reduce_axis((0, sizes[c]), "r" + c) for c in reduced}
    combine = combine or (lambda a, b: a * b)

    def value(*at):
        index = dict(zip(out, at, strict=True)) | axes
        read = [x[tuple(index[c] for c in w)] for x, w in zip(operands, ins, strict=True)]
        return te.sum(combine(*read), [axes[c] for c in reduced])

    made = te.compute([sizes[c] for c in out], value, name="product")
    if epilogue:
        sums = made
        made = te.compute(sums.shape, lambda *i: te.maximum(sums[i], 0.0) * 0.5, name="half")

    def reference(*arrays):
        sums = np.einsum(words, *arrays, optimize=True)
        return np.maximum(sums, 0) * 0.5 if epilogue else sums

    return te.func("f", operands, [made]), reference


def convolution(rank, size, ci, co, kernel):
    """Plain channels before pixels, no padding."""
    x = te.placeholder((ci, *[size] * rank), "f32", "x")
    f = te.placeholder((co, ci, *[kernel] * rank), "f32", "f")
    c = te.reduce_axis((0, ci), "c")
    taps = [te.reduce_axis((0, kernel), f"t{d}") for d in range(rank)]

    def value(o, *at):
        read = x[(c, *[a + t for a, t in zip(at, taps, strict=True)])]
        return te.sum(read * f[(o, c, *taps)], [c, *taps])

    y = te.compute((co, *[size - kernel + 1] * rank), value, name="product")

    def reference(x, f):
        axes = tuple(range(1, rank + 1))
        views = np.lib.stride_tricks.sliding_window_view(x, (kernel,) * rank, axes)
        letters = "abc"[:rank], "xyz"[:rank]
        return np.einsum(f"i{letters[0]}{letters[1]},oi{letters[1]}->o{letters[0]}", views, f)

    return te.func("f", [x, f], [y]), reference


CASES = {
    "rows by columns": lambda: einsum("ik,kj->ij", (67, 45), (45, 83)),
    "epilogue": lambda: einsum("ik,kj->ij", (64, 100), (100, 64), epilogue=True),
    "transposed left": lambda: einsum("ki,kj->ij", (45, 67), (45, 80)),
    "transposed right": lambda: einsum("ik,jk->ij", (67, 45), (83, 45)),
    "batch": lambda: einsum("bhik,bhkj->bhij", (2, 3, 19, 8), (2, 3, 8, 33)),
    "transposed batch": lambda: einsum("bik,bjk->bij", (3, 33, 24), (3, 20, 24), epilogue=True),
    "batch inside": lambda: einsum("ibk,kbj->bij", (40, 3, 24), (24, 3, 37)),
    "two sums": lambda: einsum("iakb,bkaj->ij", (17, 3, 5, 7), (7, 5, 3, 48)),
    "f64": lambda: einsum("ik,kj->ij", (33, 20), (20, 35), dtype="f64"),
    "1-D convolution": lambda: convolution(1, 301, 9, 20, 5),
    "2-D convolution": lambda: convolution(2, 21, 6, 17, 3),
    "3-D convolution": lambda: convolution(3, 18, 4, 9, 3),
}


def check(made, func, reference, sizes=None):
    shapes = [[as_int(d) or sizes[d.name] for d in b.shape] for b in func.buffers]
    arrays = [
        RNG.standard_normal(s).astype(b.dtype.numpy)
        for s, b in zip(shapes[:-1], func.buffers, strict=False)
    ]
    want = reference(*[a.astype(np.float64) for a in arrays])
    out = np.full(want.shape, np.nan, func.buffers[-1].dtype.numpy)
    inprocess.load(made.func, CPU)(*arrays, out, symbols=sizes)
    exact = 3e-6 if out.dtype == np.float32 else 1e-14
    np.testing.assert_allclose(out, want, rtol=0, atol=exact * np.abs(want).max())


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", CASES)
def test_register_tiles(name, threads):
    func, reference = CASES[name]()
    made = default(func, CPU, threads, strict=True)
    found = decisions(made)
    lanes = CPU.lanes(func.buffers[-1].dtype.bits)
    assert found["product.tile_m"] * found["product.tile_n"] >= 8 * lanes
    assert replay(func, made.trace).func == made.func
    check(made, func, reference)


@pytest.mark.parametrize("seed", range(6))
def test_points(seed):
    rng = Random(seed)
    func, reference = CASES[rng.choice(sorted(CASES))]()
    check(sample(func, CPU, rng.choice([1, 2]), rng), func, reference)


@pytest.mark.parametrize("words", ["ik,kj->ij", "ik,jk->ij"])
def test_open_sizes(words):
    shapes = ((N, 40), (40, M)) if words == "ik,kj->ij" else ((N, 40), (M, 40))
    func, reference = einsum(words, *shapes)
    made = default(func, CPU, 2, strict=True)
    assert "product.tile_m" in decisions(made)
    for n, m in ((1, 1), (50, 35), (13, 128)):
        check(made, func, reference, {"n": n, "m": m})


def test_not_only_products():
    """Distances: the sum of absolute differences."""
    func, _ = einsum("ik,jk->ij", (40, 24), (50, 24), combine=lambda a, b: te.abs(a - b))
    made = default(func, CPU, 1, strict=True)
    assert "product.tile_m" in decisions(made)
    check(made, func, lambda a, b: np.abs(a[:, None] - b[None]).sum(2))


def test_an_operand_is_padded_once():
    """A reduction that uses each value often does not compute it each time."""
    x, f = te.placeholder((1, 12, 20, 33), "f32", "x"), te.placeholder((24, 12, 3, 3), "f32", "f")
    attrs = complete("conv", {"pads": ((1, 1), (1, 1))})
    func = te.func("conv", [x, f], [OPERATORS["conv"].define(x, f, **attrs)])
    made = default(func, CPU, 2, strict=True)
    assert "conv_pad" in made.blocks() and "conv.tile_m" in decisions(made)
    check(made, func, lambda x, f: OPERATORS["conv"].reference(x, f, **attrs))


def test_what_is_padded_across_the_vectors_is_read_where_it_lies():
    x, y = te.placeholder((37, 20), "f32", "x"), te.placeholder((40, 20), "f32", "y")
    k = te.reduce_axis((0, 20), "k")

    def value(i, j):
        return te.sum(x[i, k] * te.if_then_else(j < 40, y[j, k], 0.0), k)

    func = te.func("f", [x, y], [te.compute((37, 45), value, name="product")])
    made = default(func, CPU, strict=True)  # no step is refused
    a, b = (RNG.standard_normal(shape).astype(np.float32) for shape in ((37, 20), (40, 20)))
    found = np.full((37, 45), np.nan, np.float32)
    inprocess.run(made.func, a, b, found)
    np.testing.assert_allclose(found, np.pad(a @ b.T, ((0, 0), (0, 5))), atol=1e-5)
