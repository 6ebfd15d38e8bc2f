"""Which products of two matrices of the run are packed, and that they stay the same products."""

from __future__ import annotations

import numpy as np
import pytest

from tests.graph.rewriting import ops, rewritten
from tilewright.driver.compile import compile_observed
from tilewright.driver.kernels import KernelPool
from tilewright.graph import Builder, Graph, Value, evaluate
from tilewright.graph.passes.choose_layouts import choose_layouts
from tilewright.ir.expr import as_int
from tilewright.strategy.cpu.layouts import Layouts
from tilewright.target.costs import HALVES

CACHE = 128 << 10  # bytes of L2


def product(a: tuple[int, ...], b: tuple[int, ...], **attrs: bool) -> Graph:
    build = Builder()
    made = build.emit("matmul", build.input("a", "f32", a), build.input("b", "f32", b), **attrs)
    return build.finish([made])


def laid_out(before: Graph) -> list[str]:
    return ops(rewritten(lambda g: choose_layouts(g, Layouts(64, l2=CACHE)), before, 1e-4))


@pytest.mark.parametrize(
    ("a", "b", "packed"),
    [
        ((64, 96), (96, 100), True),
        ((3, 64, 96), (96, 100), True),  # the rows of all matrices are those of one
        ((3, 64, 96), (3, 96, 100), True),
        ((96, 96), (96, 96, 100), False),  # a batch as large as a size of the one matrix
        ((2, 2, 64, 96), (2, 96, 100), False),  # a batch beside the second axis, not the first
        ((1, 64, 96), (3, 96, 100), False),
        ((40, 96), (96, 100), False),  # few rows
        ((64, 96), (96, 40), False),  # a small operand
    ],
)
def test_operands_of_the_run_are_packed(a, b, packed):
    assert ("dense_packed" in laid_out(product(a, b))) == packed


@pytest.mark.parametrize(
    ("a", "b", "packed"),
    [
        ((5, 20, 32), (5, 27, 32), True),
        ((5, 8, 32), (5, 27, 32), False),  # few rows of a small operand
        ((2, 64), (512, 64), True),
        ((1, 64), (512, 64), False),  # one row walks it as it lies
    ],
)
def test_operands_that_lie_across_the_vectors_are_packed(a, b, packed):
    assert ("dense_packed" in laid_out(product(a, b, transpose_b=True))) == packed


def open_scores(transposed: bool) -> Graph:
    """Rows of open number with each other's, as in attention."""
    build = Builder()
    n, t = build.symbol("n"), build.symbol("t")
    q = build.input("q", "f32", (n, 2, t, 48))
    k = build.input("k", "f32", (n, 2, t, 48) if transposed else (n, 2, 48, t))
    return build.finish([build.emit("matmul", q, k, transpose_b=transposed)])


@pytest.mark.parametrize("transposed", [True, False])
def test_columns_of_open_number_are_packed(transposed):
    """In panels no step of the product asks for its end."""
    graph = open_scores(transposed)
    assert "dense_packed" in laid_out(graph)
    run = compile_observed(graph, cache=False, pool=KernelPool(1), threads=2)
    draw = np.random.default_rng(5).standard_normal
    for n, t in ((1, 1), (2, 33), (1, 64), (3, 130), (2, 7), (1, 0)):
        q, k = (draw((n, 2, t, 48), np.float32) for _ in "qk")
        wanted = q.astype(np.float64) @ k.swapaxes(2, 3)
        found = run(q, k if transposed else np.ascontiguousarray(k.swapaxes(2, 3)))[0]
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("b", [(100, 96), (96, 100)])
@pytest.mark.parametrize(("rows", "transposes"), [((64,), True), ((2, 64), True), ((40,), False)])
def test_a_transposed_left_operand_is_stored_plain_beside_a_large_one(rows, transposes, b):
    a = (*rows[:-1], 96, rows[-1])
    made = laid_out(product(a, b, transpose_a=True, transpose_b=b[0] == 100))
    assert made[-1] == ("dense_packed" if transposes else "matmul")
    assert not transposes or "transpose" in made


@pytest.mark.parametrize(
    ("rows", "columns", "transposes"), [(2, 128, True), (40, 128, True), (40, 64, False)]
)
def test_a_few_transposed_rows_are_stored_plain_beside_wide_weights(rows, columns, transposes):
    build, draw = Builder(), np.random.default_rng(3)
    weights = build.constant(draw.standard_normal((160, columns)).astype("f"))
    x = build.input("x", "f32", (160, rows))
    made = laid_out(build.finish([build.emit("matmul", x, weights, transpose_a=True)]))
    assert made == (["transpose", "dense_packed"] if transposes else ["matmul"])


def test_a_transposed_left_operand_is_read_as_it_is_beside_a_small_one():
    assert laid_out(product((96, 64), (96, 64), transpose_a=True)) == ["matmul"]


@pytest.mark.parametrize(
    ("depth", "rows", "packed"),
    [(64, None, False), (7, 40, False), (64, 40, False), (7, None, True)],
)
def test_a_product_of_one_column_reads_lines_as_vectors(depth, rows, packed):
    """In a panel one lane of each vector would count."""
    build, draw = Builder(), np.random.default_rng(4)
    x = build.input("x", "f32", (build.symbol("n") if rows is None else rows, depth))
    weights, bias = (draw.standard_normal(s).astype("f") for s in ((depth, 1), 1))
    made = build.emit("matmul", x, build.constant(weights))
    graph = build.finish([build.emit("add", made, build.constant(bias))])
    assert ("dense_packed" in laid_out(graph)) == packed
    run = compile_observed(graph, cache=False, pool=KernelPool(1), threads=2)
    for count in (0, 1, 5, 40, 333) if rows is None else (rows,):
        a = draw.standard_normal((count, depth)).astype("f")
        wanted = a.astype(np.float64) @ weights + bias
        np.testing.assert_allclose(run(a)[0], wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("columns", [40, 128, 144, 512])
def test_rows_of_any_number_give_the_same_numbers(columns, threads):
    """Whatever tiles they are in, with whichever panels."""
    build, draw = Builder(), np.random.default_rng(6)
    x = build.input("x", "f32", (build.symbol("n"), 48))
    weights = draw.standard_normal((48, columns)).astype("f")
    made = build.emit("matmul", x, build.constant(weights))
    run = compile_observed(build.finish([made]), cache=False, pool=KernelPool(1), threads=threads)
    rows = draw.standard_normal((33, 48)).astype("f")
    whole = run(rows)[0]
    np.testing.assert_allclose(whole, rows.astype(np.float64) @ weights, rtol=1e-4, atol=1e-4)
    for count in range(33):
        np.testing.assert_array_equal(run(rows[:count])[0], whole[:count])


def volumes() -> Graph:
    """A net over three axes: windows of taps along all, along some, of one pixel; a branch, a pool,
    a transposed convolution and a mean."""
    build, draw = Builder(), np.random.default_rng(7)

    def filters(*shape: int) -> Value:
        return build.constant(draw.standard_normal(shape).astype("f") / 8)

    around = {"pads": ((1, 1),) * 3}
    x = build.input("x", "f32", (2, 3, 6, 9, 8))
    a = build.emit("relu", build.emit("conv", x, filters(32, 3, 3, 3, 3), filters(32), **around))
    b = build.emit("conv", a, filters(32, 1, 3, 3, 3), groups=32, **around)
    c = build.emit("conv", build.emit("relu", b), filters(32, 32, 1, 1, 1), filters(32))
    d = build.emit("max_pool", build.emit("add", a, c), kernel=(2, 3, 2), strides=(2, 3, 2))
    e = build.emit("conv_transpose", d, filters(32, 16, 2, 2, 2), strides=(2, 2, 2))
    f = build.emit("conv", e, filters(20, 16, 3, 1, 1), filters(20), pads=((1, 1), (0, 0), (0, 0)))
    return build.finish([build.emit("reduce_mean", f, axes=(2, 3, 4), keepdims=True)])


def test_volumes_stay_packed():
    made = laid_out(volumes())
    packed = {"conv_packed": 3, "depthwise_packed": 1, "conv_transpose_packed": 1}
    assert {op: made.count(op) for op in packed} == packed
    assert made.count("unpack_channels") == 1
    assert made.index("unpack_channels") > made.index("reduce_mean")


@pytest.mark.parametrize("threads", [1, 2])
def test_volumes_give_what_plain_operators_give(threads):
    graph = volumes()
    x = np.random.default_rng(8).standard_normal((2, 3, 6, 9, 8)).astype("f")
    (wanted,) = evaluate(graph, [x], precise=True)
    (found,) = compile_observed(graph, threads=threads, cache=False, pool=KernelPool(1))(x)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5 * abs(wanted).max())


def resized(build: Builder, x: Value, height: int, width: int) -> Value:
    """Twice as many pixels each way, between neighbours."""
    for axis, size in ((2, height), (3, width)):
        parts = []
        for step in (0, 1):
            taps = np.minimum((np.arange(2 * size) + step) // 2, size - 1)
            weights = np.full((2 * size, 1) if axis == 2 else (2 * size,), 0.5, np.float32)
            part = build.emit("gather", x, build.constant(taps), axis=axis)
            parts.append(build.emit("mul", part, build.constant(weights)))
        x = build.emit("add", *parts)
    return x


@pytest.mark.parametrize("convolved", [True, False])
def test_images_are_resized_as_they_are_packed(convolved):
    """Between convolutions, and from a plain image to one: whole vectors of channels are moved."""
    build, draw = Builder(), np.random.default_rng(9)

    def weights(*shape: int) -> Value:
        return build.constant(draw.standard_normal(shape, np.float32) / 10)

    x, other = build.input("x", "f32", (1, 32, 5, 6)), build.input("y", "f32", (1, 16, 10, 12))
    small = build.emit("conv", x, weights(32, 32, 1, 1)) if convolved else x
    both = build.emit("concat", resized(build, small, 5, 6), other, axis=1)
    made = build.emit("conv", both, weights(32, 48, 1, 1))
    found = laid_out(build.finish([made]))
    assert found.count("pack_channels") == 2 and found.count("unpack_channels") == 1
    assert found.index("gather") > found.index("pack_channels")


def test_an_image_that_is_also_read_plain_is_resized_plain():
    build, draw = Builder(), np.random.default_rng(9)
    large = resized(build, build.input("x", "f32", (1, 32, 5, 6)), 5, 6)
    filters = build.constant(draw.standard_normal((16, 32, 1, 1), np.float32))
    found = laid_out(build.finish([build.emit("conv", large, filters), large]))
    assert found.index("gather") < found.index("pack_channels")


@pytest.mark.parametrize("shape", [(1, 1, 6, 7), (6, 7), (7,), (6, 1)])
def test_masks_of_the_run_leave_images_packed(shape):
    build, draw = Builder(), np.random.default_rng(9)
    filters = build.constant(draw.standard_normal((32, 32, 1, 1), np.float32) / 10)
    x, mask = build.input("x", "f32", (1, 32, 6, 7)), build.input("mask", "f32", shape)
    y = build.emit("mul", build.emit("conv", x, filters), mask)
    found = laid_out(build.finish([build.emit("conv", y, filters)]))
    assert found.count("pack_channels") == found.count("unpack_channels") == 1


@pytest.mark.parametrize("size", [(9, 13), (4, 5, 6)])
def test_packed_images_are_normalised_by_channel_as_they_are(size):
    """Sums of a channel stay in its lane; the mean is far from zero beside what varies."""
    build, draw, rank = Builder(), np.random.default_rng(5), len(size)

    def numbers(*shape: int) -> Value:
        return build.constant(draw.standard_normal(shape).astype(np.float32))

    x = build.input("x", "f32", (2, 16, *size))
    y = build.emit("conv", x, numbers(32, 16, *(3,) * rank), pads=((1, 1),) * rank)
    y = build.emit("add", y, build.constant(np.float32(100)))
    y = build.emit("group_norm", y, numbers(32), numbers(32), groups=32)
    y = build.emit("conv", y, numbers(32, 32, *(1,) * rank))
    made = ops(
        rewritten(lambda g: choose_layouts(g, Layouts(64), winograd=False), build.finish([y]), 1e-3)
    )
    assert "group_norm" not in made and made.count("reduce_mean") == 4
    assert made.count("pack_channels") == made.count("unpack_channels") == 1


@pytest.mark.parametrize("is_open", [False, True])
def test_transposed_depthwise_convolutions_stay_packed_between_others(is_open):
    build, draw = Builder(), np.random.default_rng(9)
    size = (build.symbol("h"), build.symbol("w")) if is_open else (9, 12)
    x = build.input("x", "f32", (1, 24, *size))
    w = build.constant(draw.standard_normal((24, 24, 1, 1), np.float32))
    each = build.constant(draw.standard_normal((24, 1, 4, 4), np.float32))
    y = build.emit("conv", x, w)
    y = build.emit("conv_transpose", y, each, strides=(2, 2), pads=((1, 1), (1, 1)), groups=24)
    made = choose_layouts(build.finish([build.emit("conv", y, w)]), Layouts(32))
    assert "depthwise_transpose_packed" in ops(made)
    assert ops(made).count("pack_channels") == ops(made).count("unpack_channels") == 1


def narrow() -> Graph:
    """Images of 8 and of 24 channels between wide ones: Winograd's windows and others, windows of
    each channel, a sum, phases of a transposed convolution."""
    build, draw = Builder(), np.random.default_rng(9)

    def conv(x: Value, *shape: int, groups: int = 1, stride: int = 1) -> Value:
        weights = draw.standard_normal(shape).astype("f") / np.float32(np.prod(shape[1:]) ** 0.5)
        attrs = {"pads": ((shape[2] // 2,) * 2,) * 2, "strides": (stride, stride)}
        made = build.emit("conv", x, build.constant(weights), groups=groups, **attrs)
        return build.emit("sigmoid", made)

    x = build.input("x", "f32", (1, 8, 24, 28))
    a = conv(conv(x, 64, 8, 3, 3), 24, 64, 3, 3)
    b = conv(conv(a, 24, 1, 5, 5, groups=24), 24, 24, 1, 1)
    c = conv(build.emit("add", a, b), 40, 24, 3, 3, stride=2)
    w = build.constant(draw.standard_normal((40, 24, 4, 4)).astype("f") / 16)
    d = build.emit("conv_transpose", c, w, strides=(2, 2), pads=((1, 1), (1, 1)))
    return build.finish([conv(conv(d, 8, 24, 3, 3), 32, 8, 3, 3)])


def test_narrow_images_have_blocks_of_half_a_vector():
    """Where one unit makes a whole vector of two halves; they stay packed all the way."""
    made = rewritten(lambda g: choose_layouts(g, Layouts(64, costs=HALVES)), narrow(), 1e-4)
    blocks = {v.shape[-1] for n in made.nodes for v in n.outputs if n.op.endswith("_packed")}
    assert {as_int(b) for b in blocks} == {8, 16}
    assert ops(made).count("unpack_channels") == 1
    assert ops(made).count("winograd_packed") >= 3
    whole = rewritten(lambda g: choose_layouts(g, Layouts(64)), narrow(), 1e-4)
    assert all(as_int(n.output.shape[-1]) == 16 for n in whole.nodes if n.op == "winograd_packed")


@pytest.mark.parametrize("threads", [1, 2])
def test_narrow_images_give_what_plain_operators_give(threads):
    graph = narrow()
    x = np.random.default_rng(8).standard_normal((1, 8, 24, 28)).astype("f")
    (wanted,) = evaluate(graph, [x], precise=True)
    (found,) = compile_observed(graph, threads=threads, cache=False, pool=KernelPool(1))(x)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5 * abs(wanted).max())


@pytest.mark.parametrize(
    ("size", "between", "packed"),
    [(48, True, True), (48, False, False), (8, False, True), (None, False, True)],
)
def test_large_results_of_known_size_are_packed_where_they_are_read_so(size, between, packed):
    """To unpack what left L2 takes longer than packing it saves."""
    build, draw = Builder(), np.random.default_rng(9)
    sides = (size, size) if size else (build.symbol("h"), build.symbol("w"))
    x = build.input("x", "f32", (1, 32, *sides))
    each = build.constant(draw.standard_normal((32, 1, 4, 4), np.float32))
    y = build.emit("conv_transpose", x, each, strides=(2, 2), pads=((1, 1), (1, 1)), groups=32)
    if between:
        y = build.emit("conv", y, build.constant(draw.standard_normal((32, 32, 1, 1), np.float32)))
    made = ops(choose_layouts(build.finish([y]), Layouts(32)))
    assert ("depthwise_transpose_packed" in made) == packed
