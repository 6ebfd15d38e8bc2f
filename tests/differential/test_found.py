"""Faults that random graphs found, each as the small graph that shows it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.differential.draw_control import Body
from tests.differential.growth import F32, F64, I64, SYMBOLS, Growth, Value
from tests.differential.verdict import run


def growth(version: int = 18, *symbols: str) -> Growth:
    g = Growth(np.random.default_rng(7), version, symbols)
    g.count = 3 if symbols else 1
    return g


def made(g: Growth, *sizes: int | str, of: Any = F32, fixed: bool = False) -> Value:
    """A new tensor; sizes by number or symbol (N is 6, 11, 1; M is 10, 3, 19)."""
    dims = tuple(SYMBOLS[s][: g.count] if isinstance(s, str) else g.same(s) for s in sizes)
    return g.fresh(of, dims, fixed=fixed)


def check(g: Growth) -> None:
    run(g.finish())


def test_product_without_rows() -> None:
    for rows, inner in ((0, 1), (3, 0), (0, 0)):
        g = growth()
        g.apply("Gemm", made(g, rows, inner), made(g, inner, 4, fixed=True), transB=0)
        check(g)


def test_rounding_of_a_constant_beside_a_pad() -> None:
    """Folding made round(c) from round(c), again and again."""
    g = growth(20)
    g.count = 2
    x = g.given([np.ones((1, 4), np.float32)] * 2, False)
    (wide,) = g.apply("Pad", x, g.told([[0, 2, 0, 0], [1, 0, 0, 3]]), g.constant(-0.6, F32))
    g.apply("QuantizeLinear", wide, g.constant(0.06, F32), g.constant(-2, np.int8))
    check(g)


def test_default_epsilon_is_f32() -> None:
    g = growth()
    x = made(g, 3, 6, of=F64)
    g.apply("LayerNormalization", x, made(g, 6, of=F64), made(g, 6, of=F64))
    check(g)


@pytest.mark.parametrize(
    "start, end, step",
    [(-1, 11, 1), (0, 5, 1), (2, 1 << 40, 1), (0, -2, 1), (-4, -1, 1), (-1, -(1 << 40), -1),
     (1 << 40, 2, -2), (1, 1 << 40, 3), (-3, 0, -1), (7, 9, 1), (10, 10, 3)],
)  # fmt: skip
def test_slice_of_a_symbolic_axis(start: int, end: int, step: int) -> None:
    g = growth(13, "N")
    x = made(g, 2, "N")
    ends = (g.constant([start]), g.constant([end]), g.constant([1]), g.constant([step]))
    g.apply("Slice", x, *ends, exact=True)
    check(g)


def test_parts_of_a_symbolic_axis_make_it_up() -> None:
    g = growth(13, "N")
    x = made(g, 2, "N")
    far, one = g.constant([1 << 40]), g.constant([1])
    for at in (2, -2):
        (left,) = g.apply("Slice", x, g.constant([0]), g.constant([at]), one, exact=True)
        (right,) = g.apply("Slice", x, g.constant([at]), far, one, exact=True)
        (whole,) = g.apply("Concat", right, left, axis=1, exact=True)
        g.apply("Add", whole, x)
    check(g)


def test_top_of_a_single_number() -> None:
    g = growth(19)
    g.apply("TopK", made(g, 1, fixed=True), g.constant([1]), axis=0, outputs=2, exact=True)
    check(g)


def test_gather_nd_to_a_scalar() -> None:
    g = growth(17)
    g.apply("GatherND", made(g, 2, fixed=True), g.constant([1]), exact=True)
    check(g)


def test_arena_that_would_be_negative_at_size_one() -> None:
    g = growth(16, "N")
    g.count = 2
    x = made(g, 1, 4, "N", 17)
    w = made(g, 8, 1, 5, 5, fixed=True)
    (y,) = g.apply("Conv", x, w, group=4, pads=[1, 1, 0, 1])
    g.apply("Gather", y, g.given([np.array(0)] * 2, False), axis=-2, exact=True)
    check(g)


def test_result_of_one_channel_broadcasts() -> None:
    g = growth()
    w = made(g, 1, 36, 3, 1, fixed=True)
    (y,) = g.apply("Conv", made(g, 3, 36, 2, 3), w, pads=[2, 0, 1, 0])
    g.apply("Add", y, w)
    check(g)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("way", ["half_pixel", "asymmetric", "align_corners"])
def test_resize_of_symbolic_axes(mode: str, way: str) -> None:
    for scale in (2.0, 1.5) if way != "align_corners" else (2.0,):
        g = growth(19, "N")
        scales = g.constant([1, 1, scale, 3.0 if way == "align_corners" else 0.75], F32)
        attrs = {"mode": mode, "coordinate_transformation_mode": way}
        g.apply("Resize", made(g, 1, 2, "N", 4), None, scales, rough=True, **attrs)
        check(g)


def test_resize_to_one_by_pytorch_half_pixel() -> None:
    g = growth(19)
    g.apply(
        "Resize", made(g, 1, 1, 4, 4), None, None, g.constant([1, 1, 1, 5]), rough=True,
        mode="cubic", coordinate_transformation_mode="pytorch_half_pixel",
    )  # fmt: skip
    check(g)


def test_cubic_sampling_holds_each_tap() -> None:
    for padding in ("border", "zeros", "reflection"):
        g = growth(20)
        grid = g.fresh(F32, tuple(g.same(s) for s in (1, 3, 3, 2)), -1.3, 1.3, fixed=False)
        attrs = {"mode": "cubic", "padding_mode": padding, "align_corners": 1}
        g.apply("GridSample", made(g, 1, 2, 4, 5), grid, rough=True, **attrs)
        check(g)


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize("pads", [[0, 0], [1, 0], [1, 1]])
def test_last_partial_window_of_a_symbolic_axis(op: str, pads: list[int]) -> None:
    g = growth(19, "M")
    x = made(g, 1, 2, "M")
    g.apply(op, x, kernel_shape=[3], strides=[2], pads=pads, ceil_mode=1)
    g.apply(op, x, kernel_shape=[2], strides=[3], ceil_mode=1)
    check(g)


def test_normalisation_over_a_symbolic_axis() -> None:
    g = growth(18, "M")
    g.apply("InstanceNormalization", made(g, 2, 3, "M"), made(g, 3), made(g, 3))
    check(g)


def test_first_greatest_along_a_symbolic_axis() -> None:
    g = growth(18, "M")
    g.apply("Hardmax", made(g, 2, "M"), exact=True)
    check(g)


def test_eye_of_a_symbolic_size() -> None:
    g = growth(17, "N")
    g.apply("EyeLike", made(g, "N", 7), k=-2, exact=True)
    g.apply("EyeLike", made(g, "N", 7, of=I64), k=1, exact=True)
    check(g)


def test_transposed_convolution_padded_by_itself() -> None:
    g = growth(20, "M")
    g.apply(
        "ConvTranspose", made(g, 2, 4, "M"), made(g, 4, 3, 3, fixed=True), auto_pad="SAME_LOWER"
    )
    check(g)


def test_unique_values_of_an_input() -> None:
    """Elements that a gather takes by positions of the run have no names of their own."""
    g = growth(17)
    g.apply("Unique", made(g, 2, of=I64), sorted=1, exact=True)
    check(g)


@pytest.mark.parametrize("auto", ["SAME_UPPER", "SAME_LOWER"])
def test_strides_with_pads_that_only_the_run_knows(auto: str) -> None:
    g = growth(18, "N")
    x = made(g, 1, 3, "N", 9)
    attrs = {"auto_pad": auto, "strides": [2, 3]}
    (y,) = g.apply("Conv", x, made(g, 4, 3, 3, 5, fixed=True), **attrs)
    (z,) = g.apply("MaxPool", x, kernel_shape=[3, 4], exact=True, **attrs)
    g.apply("Concat", y, z, axis=1, exact=True)
    check(g)


def test_slice_of_nothing_in_steps() -> None:
    """A quotient of what may be below zero is no size."""
    g = growth(15, "M")
    x = made(g, "M", 3)
    ends = (g.constant([12]), g.constant([12]), g.constant([0]), g.constant([5]))
    g.apply("Slice", x, *ends, exact=True)
    check(g)


def test_counts_that_follow_from_symbolic_sizes() -> None:
    g = growth(18, "N")
    x = made(g, "N", 4)
    (shape,) = g.apply("Shape", x, exact=True)
    g.apply("NonZero", shape, exact=True)
    (count,) = g.apply("Slice", shape, *(g.constant([k]) for k in (0, 1)), exact=True)
    g.apply("TopK", x, count, axis=0, outputs=2, exact=True)
    (depth,) = g.apply("Squeeze", count, exact=True)
    positions, ends = g.constant([0, -1]), g.constant([0, 2], F32)
    g.apply("OneHot", positions, depth, ends, exact=True)
    g.apply("Trilu", x, depth, exact=True)
    check(g)


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_resize_to_the_size_of_another_image(mode: str) -> None:
    g = growth(18, "N", "M")
    x, y = made(g, 1, 2, "N", 4), made(g, 1, 2, "M", 7)
    (shape,) = g.apply("Shape", y, exact=True)
    attrs = {"mode": mode, "coordinate_transformation_mode": "asymmetric"}
    (z,) = g.apply("Resize", x, None, None, shape, rough=True, **attrs)
    g.apply("Add", z, y)
    check(g)


def rounds(g: Growth, state: Value, count: Value, build: Callable[[Body, list[Value]], Any]) -> Any:
    """A loop of one state; `build` makes (the next state, *rows) of [round, condition, state]."""
    contents = ([np.asarray(x)] * g.count for x in (np.int64(0), np.True_))
    formals = [*(Value(g.name("f"), w) for w in contents), Value(g.name("f"), state.worlds)]
    body = Body(g, formals)
    results = [body.result(v) for v in (formals[1], *build(body, formals))]
    proto, captured = body.graph(results)
    made = g.apply(
        "Loop", count, None, state, outputs=len(results) - 1, captured=captured, rough=True,
        body=proto,
    )  # fmt: skip
    check(g)
    return made


def test_product_by_a_vector_in_a_loop() -> None:
    g = growth()
    w = made(g, 4, 4)
    rounds(g, made(g, 4), g.told([3]), lambda b, f: b.apply("MatMul", f[2], w))


def test_loop_over_symbolic_sizes() -> None:
    """What is the same in each round is computed once: there it may be anything, a sort too."""
    g = growth(18, "N")
    x, y = made(g, 2, "N"), made(g, "N", 3)

    def build(b: Body, f: list[Value]) -> list[Value]:
        (top, _) = b.apply("TopK", y, b.constant([1]), axis=0, outputs=2, exact=True)
        (new,) = b.apply("Add", f[2], b.apply("ReduceSum", top)[0])
        return [new, b.apply("MatMul", f[2], y)[0]]

    rounds(g, x, g.told([3, 1, 5]), build)


def test_loop_of_known_length_that_data_ends() -> None:
    g = growth()
    stop = g.told([2])
    index, go, x = (g.told([v], v.dtype) for v in (np.int64(0), np.True_, np.float32(1)))
    body = Body(g, [Value(g.name("f"), v.worlds) for v in (index, go, x)])
    (on,) = body.apply("Less", body.formals[0], stop, exact=True)
    (new,) = body.apply("Add", body.formals[2], x)
    proto, captured = body.graph([on, new])
    g.apply("Loop", g.constant(7), None, x, captured=captured, body=proto)
    check(g)


def test_rows_of_a_size_that_each_round_would_measure() -> None:
    g = growth()
    x, k = made(g, 3), g.told([[2]])

    def build(b: Body, f: list[Value]) -> list[Value]:
        (top, _) = b.apply("TopK", x, k, axis=0, outputs=2, exact=True)
        return [b.apply("Add", f[2], x)[0], top]

    rounds(g, made(g, 3), g.constant(3), build)


@pytest.mark.parametrize("backwards", [0, 1])
def test_scan_of_a_symbolic_length(backwards: int) -> None:
    g = growth(18, "N", "M")
    x, state = made(g, 3, "N"), made(g, 3)
    body = Body(g, [Value(g.name("f"), state.worlds),
                    Value(g.name("f"), [w[:, 0] for w in x.worlds])])  # fmt: skip
    (total,) = body.apply("Add", *body.formals)
    (row,) = body.apply("Mul", total, body.formals[0])
    proto, captured = body.graph([total, row])
    g.apply(
        "Scan", state, x, outputs=2, captured=captured, body=proto, num_scan_inputs=1,
        scan_input_axes=[1], scan_input_directions=[backwards],
        scan_output_directions=[backwards], scan_output_axes=[1],
    )  # fmt: skip
    check(g)


def test_expansion_of_a_symbolic_axis_to_a_size_of_the_run() -> None:
    g = growth(18, "N")
    for goal in ([[6, 3], [1, 3], [5, 3]], [[2, 6, 1], [2, 11, 1], [2, 7, 1]]):
        g.apply("Expand", made(g, "N", 3), g.told(goal), exact=True)
    check(g)


def test_branches_of_unlike_shapes() -> None:
    g = growth(18, "N")
    sides = [Body(g), Body(g)]
    results = [b.result(made(g, 2, n)) for b, n in zip(sides, ("N", 3), strict=True)]
    (then, one), (other, two) = (b.graph([v]) for b, v in zip(sides, results, strict=True))
    condition = g.told([True, False, True], bool)
    g.apply("If", condition, captured=[*one, *two], then_branch=then, else_branch=other)
    check(g)


def test_mean_of_a_window_in_the_padding_alone() -> None:
    g = growth(23)
    x = made(g, 1, 4, 1, 1)
    attrs = {"kernel_shape": [2, 1], "dilations": [2, 3], "pads": [1, 0, 1, 0], "strides": [2, 1]}
    g.apply("AveragePool", x, **attrs)
    g.apply("AveragePool", x, count_include_pad=1, **attrs)
    check(g)


def test_parts_are_known_to_make_up_the_whole() -> None:
    g = growth(20)
    x, parts = made(g, 16), g.fresh(I64, (g.same(2),))
    parts.worlds[:] = [np.array([2, 14])]
    first, last = g.apply("Split", x, parts, outputs=2, axis=0, exact=True)
    (whole,) = g.apply("Concat", last, x, first, axis=0, exact=True)
    g.apply("Greater", whole, made(g, 32), exact=True)
    check(g)


def test_size_that_a_sum_leaves_to_a_reshape() -> None:
    g = growth(21, "M")
    ends = g.constant([3, 0, 0, 2])
    (wide,) = g.apply("Pad", made(g, "M", 5), ends, mode="edge", exact=True)
    g.apply("Reshape", wide, g.constant([0, -1]), exact=True)
    check(g)


def test_corners_of_a_size_that_only_the_run_knows() -> None:
    """From 19 positions to 3: the one in the middle is the ninth, not a last bit behind it."""
    g = growth(22, "M")
    attrs = {"coordinate_transformation_mode": "align_corners", "nearest_mode": "ceil"}
    x, goal = made(g, 1, 2, "M"), g.constant([1, 2, 3])
    g.apply("Resize", x, None, None, goal, mode="nearest", exact=True, **attrs)
    check(g)


def test_product_along_the_only_axis_and_a_pad_that_sums_take_in() -> None:
    g = growth(22)
    g.apply("ReduceProd", made(g, 7), g.told([[0]]), keepdims=1)
    (wide,) = g.apply(
        "Pad", made(g, 5, 7, 6, 3), g.constant([0, 0, 3, 3, 0, 3, 0, 0]), g.constant(-0.6, F32)
    )
    g.apply("ReduceSumSquare", wide)
    check(g)


def test_rows_of_a_scan_that_each_step_would_measure() -> None:
    g = growth(21)
    x, state, goal = made(g, 4, 1, 2), made(g, 1), g.told([[1, 2]])
    body = Body(g, [Value(g.name("f"), state.worlds),
                    Value(g.name("f"), [w[0] for w in x.worlds])])  # fmt: skip
    (row,) = body.apply("Reshape", body.formals[1], goal, exact=True)
    (total,) = body.apply("Add", body.formals[0], body.formals[0])
    proto, captured = body.graph([total, row])
    g.apply("Scan", state, x, outputs=2, captured=captured, body=proto, num_scan_inputs=1)
    check(g)


def test_batch_axes_that_only_the_run_knows() -> None:
    g = growth(20)
    (x,) = g.apply("ConstantOfShape", g.told([[3, 1]]), exact=True)
    positions = g.told([[[[-1], [0]], [[0], [-1]], [[-1], [0]]]])
    g.apply("GatherND", x, positions, batch_dims=1, exact=True)
    check(g)


def test_one_row_beside_none() -> None:
    """Of N rows every third from the seventh on: none, or some."""
    g = growth(24, "N", "M")
    big = 1 << 40
    (x,) = g.apply(
        "Slice", made(g, "M", "N"), g.constant([19, 7]), g.constant([-big, big]),
        g.constant([0, 1]), g.constant([-1, 3]), exact=True,
    )  # fmt: skip
    g.apply("Add", made(g, "M", 1), x, exact=True)
    check(g)


def test_chains_that_read_what_they_follow_many_times() -> None:
    """Written into one expression, each step makes it several times as long."""
    g = growth(20)
    x = made(g, 4)
    for _ in range(24):
        (x,) = g.apply("Gelu", x)
    check(g)
    g = growth(20)
    x, positions = made(g, 4), g.told([[2, 0, -1, 1]])
    for _ in range(12):
        (other,) = g.apply("Gather", x, positions)
        (x,) = g.apply("Add", x, other)
    check(g)
