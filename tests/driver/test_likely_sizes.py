"""Kernels with code of its own for a batch of one, and for images of few channels."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.codegen.host import host_program
from tilewright.codegen.host_steps import Branch, Is, Launch, Location
from tilewright.driver.compile import compile_observed, prepare
from tilewright.driver.kernels import KernelPool
from tilewright.driver.likely_sizes import CHANNELS, batch_symbols, of_likely_sizes
from tilewright.graph import Builder
from tilewright.graph.graph import Graph
from tilewright.ir.expr import Var, const
from tilewright.target.target import target

MACHINE = target("cpu")


def across(batch: int | str = "batch", steps: int | str = "steps") -> Graph:
    """Attention over the batch, by itself in each step."""
    build = Builder("across")
    n, t = (build.symbol(s) if isinstance(s, str) else s for s in (batch, steps))
    x = build.input("x", "f32", (n, t, 24))
    heads = build.emit("transpose", build.emit("reshape", x, shape=(n, t, 3, 8)), perm=(1, 2, 0, 3))
    keys = build.emit("transpose", heads, perm=(0, 1, 3, 2))
    scores = build.emit("relu", build.emit("matmul", heads, keys))
    bias = build.emit("transpose", build.input("bias", "f32", (n, t)), perm=(1, 0))
    extra = build.emit("reshape", bias, shape=(t, 1, n, 1))
    extra = build.emit("expand", extra, shape=(t, 3, n, 1))
    shares = build.emit("softmax", build.emit("concat", scores, extra, axis=3), axis=3)
    found = build.emit("slice", shares, starts=(0, 0, 0, 0), shape=(t, 3, n, n))
    return build.finish({"y": build.emit("matmul", found, heads)})


def expected(x: np.ndarray, bias: np.ndarray) -> np.ndarray:
    n, t, _ = x.shape
    heads = x.astype(np.float64).reshape(n, t, 3, 8).transpose(1, 2, 0, 3)
    scores = np.maximum(heads @ heads.transpose(0, 1, 3, 2), 0)
    extra = np.broadcast_to(bias.T.astype(np.float64).reshape(t, 1, n, 1), (t, 3, n, 1))
    shares = np.concatenate([scores, extra], 3)
    shares = np.exp(shares - shares.max(3, keepdims=True))
    shares /= shares.sum(3, keepdims=True)
    return shares[..., :n] @ heads


@pytest.mark.parametrize("threads", [1, 2])
def test_results_for_one_and_for_many(threads: int) -> None:
    exe = compile_observed(across(), threads=threads, cache=False, pool=KernelPool(1))
    rng = np.random.default_rng(threads)
    for n, t in ((1, 40), (3, 7), (1, 1), (17, 2), (0, 3), (1, 0), (1, 300)):
        x = rng.standard_normal((n, t, 24)).astype(np.float32)
        bias = rng.standard_normal((n, t)).astype(np.float32)
        (y,) = exe(x, bias)
        np.testing.assert_allclose(y, expected(x, bias), rtol=1e-5, atol=1e-5)


def test_a_batch_of_one_is_computed_as_at_a_fixed_size() -> None:
    """Its products are sums of rows, bit by bit those of a model that knows its batch."""
    rng = np.random.default_rng(5)
    x, bias = (rng.standard_normal(s).astype(np.float32) for s in ((1, 40, 24), (1, 40)))
    found = [
        compile_observed(across(n), threads=1, cache=False, pool=KernelPool(1))(x, bias)[0]
        for n in ("batch", 1)
    ]
    assert found[0].tobytes() == found[1].tobytes()


def test_which_kernels_have_code_for_a_batch_of_one() -> None:
    """Those that touch something whose last axis the batch is or is a part of."""
    found = [*of_likely_sizes(prepare(across(), MACHINE, 3))]
    assert {"matmul", "softmax"} <= {op for group, _, _ in found for op in group.ops}
    for group, symbol, versions in found:
        assert symbol == Var("batch") and [*versions] == [1]
        assert versions[1].ops == group.ops
        assert all(Var("batch") not in v.shape for v in (*versions[1].inputs, *versions[1].outputs))
    assert not [*of_likely_sizes(prepare(across(4), MACHINE, 3))]


def test_which_sizes_are_batches() -> None:
    build = Builder("sizes")
    n, t, k, c = (build.symbol(s) for s in ("n", "t", "k", "c"))
    build.ranges["c"] = 2, 9  # never one
    parts = [build.input("x", "f32", (n, t)), build.input("y", "f32", (k,)),
             build.input("z", "f32", (t, 3)), build.input("w", "f32", (c, 3))]  # fmt: skip
    graph = build.finish({f"r{i}": build.emit("relu", p) for i, p in enumerate(parts)})
    assert batch_symbols(graph) == [Var("n")]


def test_the_host_program_looks_at_the_size() -> None:
    one, many = (Launch(0, name, 1, (Location("input"),)) for name in ("one", "many"))
    text = host_program([Branch(Is(Var("n"), 1), (one,), (many,))], MACHINE, ["n"])
    assert "icmp eq i64" in text and '@"one"' in text and '@"many"' in text


MOVES: dict[str, tuple[str, tuple[int, ...]]] = {  # the axes of an image, and how they are moved
    "first": ("hwc", (2, 0, 1)),
    "last": ("chw", (1, 2, 0)),
    "first in a batch": ("bhwc", (0, 3, 1, 2)),
    "last in a batch": ("bchw", (0, 2, 3, 1)),
    "first of one image": ("1hwc", (0, 3, 1, 2)),
}


def moved(axes: str, perm: tuple[int, ...], dtype: str = "u8", *, made: str = "") -> Graph:
    """An image whose channels are moved, and what is made of them, or they of what is made."""
    build = Builder("moved")
    shape = [build.symbol(a) if a.isalpha() else int(a) for a in axes]
    x = build.input("x", dtype, shape)
    if made == "before":
        x = build.emit("mul", build.emit("cast", x, to="f32"), build.constant(np.float32(0.25)))
    y = build.emit("transpose", x, perm=perm)
    if made == "after":
        y = build.emit("mul", build.emit("cast", y, to="f32"), build.constant(np.float32(0.25)))
    return build.finish({"y": y})


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("dtype", "made", "threads"),
    [("u8", "", 1), ("u8", "after", 2), ("f32", "", 2), ("f32", "before", 1), ("f16", "", 1)],
)
@pytest.mark.parametrize("move", MOVES)
def test_images_of_any_channels(move: str, dtype: str, made: str, threads: int) -> None:
    """Bit by bit, whatever the sizes."""
    axes, perm = MOVES[move]
    graph = moved(axes, perm, dtype, made=made)
    exe = compile_observed(graph, threads=threads, cache=False, pool=KernelPool(1))
    rng = np.random.default_rng([threads, len(made), *perm])
    for channels in (*range(10), 15, 16, 17, 33):
        sizes = {"b": rng.integers(1, 4), "c": channels, "1": 1}
        sizes |= {a: rng.integers(0, 40) if rng.random() < 0.8 else 0 for a in "hw"}
        x = rng.integers(0, 256, [sizes[a] for a in axes]).astype(
            {"u8": "u1", "f32": "f4", "f16": "f2"}[dtype]
        )
        (y,) = exe(x)
        expected = x.transpose(perm)
        if made:
            expected = expected.astype(np.float32) * np.float32(0.25)
        assert y.dtype == expected.dtype and y.shape == expected.shape
        assert y.tobytes() == expected.tobytes()


@pytest.mark.parametrize("move", MOVES)
def test_which_images_have_code_for_few_channels(move: str) -> None:
    axes, perm = MOVES[move]
    ((group, symbol, versions),) = of_likely_sizes(prepare(moved(axes, perm), MACHINE, 3))
    assert symbol == Var("c") and [*versions] == [*CHANNELS]
    for number, version in versions.items():
        assert version.ops == group.ops
        assert version.outputs[0].shape[perm.index(axes.index("c"))] == const(number)


@pytest.mark.parametrize(
    ("axes", "perm"),
    [
        ("b2c", (0, 2, 1)),  # past one open axis at most: rows of a text
        ("hwc", (1, 0, 2)),  # which stay where they are
        ("hw3", (2, 0, 1)),  # a number that is known
        ("chw", (1, 0, 2)),  # between rows and columns
    ],
)
def test_which_transpositions_have_none(axes: str, perm: tuple[int, ...]) -> None:
    found = of_likely_sizes(prepare(moved(axes, perm), MACHINE, 3))
    assert not [versions for *_, versions in found if len(versions) > 1]


def test_numbers_that_channels_cannot_be() -> None:
    graph = moved("hwc", (2, 0, 1))
    graph.ranges["c"] = 3, 5
    ((_, _, versions),) = of_likely_sizes(prepare(graph, MACHINE, 3))
    assert [*versions] == [3, 4, 5]
