"""canonicalise: each rule on a program of its own, as text."""

import numpy as np
import pytest

from tests.graph.rewriting import graph, ops, rewritten
from tilewright.graph import Builder, evaluate
from tilewright.graph.passes.canonicalise import canonicalise, permuted_runs
from tilewright.graph.passes.eliminate import eliminate_dead
from tilewright.graph.sizes import shape


def clean(g):
    return eliminate_dead(canonicalise(g))


RULES = {
    "mean of the whole image": (
        "y: f32[2, 3, 1, 1] = avg_pool(x, kernel=(4, 5))",
        "f32[2, 3, 4, 5]",
        ["reduce_mean"],
    ),
    "greatest of the whole image": (
        "y: f32[2, 3, 1, 1] = max_pool(x, kernel=(4, 5), strides=(2, 2))",
        "f32[2, 3, 4, 5]",
        ["reduce_max"],
    ),
    "greatest of most of the image": (
        "y: f32[2, 3, 1, 1] = max_pool(x, kernel=(4, 4), strides=(2, 2))",
        "f32[2, 3, 4, 5]",
        ["max_pool"],
    ),
    "mean of an image with an edge": (
        "y: f32[2, 3, 1, 1] = avg_pool(x, kernel=(4, 5), strides=(4, 4),"
        " pads=((1, 0), (1, 0)), count_pads=True)",
        "f32[2, 3, 4, 5]",
        ["avg_pool"],
    ),
    "reshape of reshape": (
        "a: f32[2, 6] = reshape(x, shape=(2, 6)); y: f32[3, 4] = reshape(a, shape=(3, 4))",
        "f32[12]",
        ["reshape"],
    ),
    "reshape to itself": ("y: f32[3] = reshape(x, shape=(3,))", "f32[3]", []),
    "repetitions along two axes": (
        "y: f32[4, 3, 15] = tile(x, repeats=(2, 1, 3))",
        "f32[2, 3, 5]",
        ["reshape", "expand", "reshape"],
    ),
    "repetitions of one element": (
        "y: f32[2, 7] = tile(x, repeats=(1, 7))",
        "f32[2, 1]",
        ["expand"],
    ),
    "repetitions along an open axis": (
        "y: f32[2 * n, 3] = tile(x, repeats=(2, 1))",
        "f32[n, 3]",
        ["reshape", "expand", "reshape"],
    ),
    "none of either axis's repetitions": (
        "y: f32[0, 6] = tile(x, repeats=(0, 2))",
        "f32[1, 3]",
        ["reshape", "expand", "reshape"],
    ),
    "no repetitions": ("y: f32[2, 7] = tile(x, repeats=(1, 1))", "f32[2, 7]", []),
    "transposes that cancel": (
        "a: f32[3, 2] = transpose(x, perm=(1, 0)); y: f32[2, 3] = transpose(a, perm=(1, 0))",
        "f32[2, 3]",
        [],
    ),
    "transposes that combine": (
        "a: f32[3, 2, 4] = transpose(x, perm=(1, 0, 2));"
        " y: f32[4, 3, 2] = transpose(a, perm=(2, 0, 1))",
        "f32[2, 3, 4]",
        ["transpose"],
    ),
    "transpose of size-1 axes": (
        "y: f32[3, 1, 4] = transpose(x, perm=(1, 0, 2))",
        "f32[1, 3, 4]",
        ["reshape"],
    ),
    "transpose of a squeezed value": (
        "a: f32[3, 4] = reshape(x, shape=(3, 4)); b: f32[4, 3] = transpose(a, perm=(1, 0));"
        " y: f32[1, 4, 3] = reshape(b, shape=(1, 4, 3))",
        "f32[1, 3, 4]",
        ["transpose"],
    ),
    "expand that broadcasting does": (
        "a: f32[2, 3] = expand(x, shape=(2, 3)); y: f32[2, 3] = mul(a, z)",
        "f32[3]",
        ["mul"],
    ),
    "whole slice": ("y: f32[3, 4] = slice(x, starts=(0, 0), shape=(3, 4))", "f32[3, 4]", []),
    "empty pad": ("y: f32[3] = pad(x, before=(0,), after=(0,))", "f32[3]", []),
    "cast to itself": ('y: f32[3] = cast(x, to="f32")', "f32[3]", []),
    "clip at 0": ("y: f32[3] = clip(x, low=0.0)", "f32[3]", ["relu"]),
    "clip without bounds": ("y: f32[3] = clip(x)", "f32[3]", []),
    "relu of relu": ("a: f32[3] = relu(x); y: f32[3] = relu(a)", "f32[3]", ["relu"]),
    "log of softmax": (
        "a: f32[2, 3] = softmax(x); y: f32[2, 3] = log(a)",
        "f32[2, 3]",
        ["log_softmax"],
    ),
}


@pytest.mark.parametrize("name", RULES)
def test_rule(name):
    body, kind, expected = RULES[name]
    inputs = f"x: {kind}" + (", z: f32[2, 3]" if "z)" in body else "")
    text = f"def g({inputs}):\n    {body}\n    return {{'y': y}}\n"
    assert ops(rewritten(clean, graph(text), 1e-5)) == expected


@pytest.mark.parametrize(
    ("op", "constant", "expected"),
    [
        ("add", 0.0, []), ("sub", 0.0, []), ("mul", 1.0, []), ("div", 1.0, []), ("pow", 1.0, []),
        ("div", 4.0, ["mul"]), ("div", 3.0, ["div"]), ("maximum", 0.0, ["relu"]), ("mul", 2.0,
        ["mul"]),
    ],
)  # fmt: skip
def test_arithmetic_with_a_constant(op, constant, expected):
    g = graph(
        f"""
        def g(x: f32[2, 3]):
            c = constant(f32[()], "c")
            y: f32[2, 3] = {op}(x, c)
            return {{"y": y}}
        """,
        c=np.float32(constant),
    )
    assert ops(rewritten(clean, g)) == expected


def test_a_neutral_element_that_broadcasts_the_result_stays():
    g = graph(
        """
        def g(x: f32[3]):
            c = constant(f32[2, 3], "c")
            y: f32[2, 3] = add(x, c)
            return {"y": y}
        """,
        c=np.zeros((2, 3), np.float32),
    )
    assert ops(rewritten(clean, g)) == ["add"]


def test_pad_goes_into_convolution_and_average():
    g = graph(
        """
        def g(x: f32[1, 2, 5, 5], w: f32[3, 2, 3, 3]):
            a: f32[1, 2, 7, 6] = pad(x, before=(0, 0, 1, 0), after=(0, 0, 1, 1))
            b: f32[1, 3, 7, 6] = conv(a, w, pads=((1, 1), (1, 1)))
            c: f32[1, 3, 9, 8] = pad(b, before=(0, 0, 1, 1), after=(0, 0, 1, 1))
            y: f32[1, 3, 4, 4] = avg_pool(c, kernel=(2, 2), strides=(2, 2))
            return {"y": y}
        """
    )
    after = rewritten(clean, g)
    assert ops(after) == ["conv", "avg_pool"]
    assert after.nodes[0]["pads"] == ((2, 2), (1, 2)) and after.nodes[1]["count_pads"] is True


@pytest.mark.parametrize(("inside", "left"), [("((1, 6), (1, 6))", 1), ("((1, 6), (0, 6))", 2)])
def test_a_mean_that_does_not_count_zeros_takes_the_pad_that_adds_them(inside, left):
    g = graph(
        f"""
        def g(x: f32[1, 2, 5, 5]):
            a: f32[1, 2, 7, 7] = pad(x, before=(0, 0, 1, 1), after=(0, 0, 1, 1))
            y: f32[1, 2, 3, 3] = avg_pool(a, kernel=(3, 3), strides=(2, 2), inside={inside})
            return {{"y": y}}
        """
    )
    after = rewritten(clean, g)
    assert len(after.nodes) == left and not after.nodes[-1]["count_pads"]


def test_a_pad_with_values_stays_before_a_convolution():
    g = graph(
        """
        def g(x: f32[1, 1, 5], w: f32[1, 1, 3]):
            a: f32[1, 1, 7] = pad(x, before=(0, 0, 1), after=(0, 0, 1), value=1.0)
            y: f32[1, 1, 5] = conv(a, w)
            return {"y": y}
        """
    )
    assert ops(rewritten(clean, g)) == ["pad", "conv"]


def test_matmul_reads_a_transposed_operand():
    g = graph(
        """
        def g(q: f32[2, 5, 3, 4], k: f32[2, 5, 3, 4]):
            a: f32[2, 3, 5, 4] = transpose(q, perm=(0, 2, 1, 3))
            b: f32[2, 3, 4, 5] = transpose(k, perm=(0, 2, 3, 1))
            y: f32[2, 3, 5, 5] = matmul(a, b)
            return {"y": y}
        """
    )
    after = rewritten(clean, g, 1e-5)
    assert ops(after) == ["transpose", "transpose", "matmul"]
    assert [n["perm"] for n in after.nodes[:2]] == [(0, 2, 1, 3)] * 2 and after.nodes[2][
        "transpose_b"
    ]


@pytest.mark.parametrize("transpose_b", ["False", "True"])
def test_one_column_of_a_transposed_operand_is_one_row(transpose_b):
    g = graph(
        f"""
        def g(x: f32[2, 7, 5], w: f32[{"1, 7" if transpose_b == "True" else "7, 1"}]):
            t: f32[2, 5, 7] = transpose(x, perm=(0, 2, 1))
            y: f32[2, 5, 1] = matmul(t, w, transpose_b={transpose_b})
            return {{"y": y}}
        """
    )
    after = rewritten(clean, g, 1e-5)
    assert [op for op in ops(after) if op != "reshape"] == ["matmul"]
    assert after.nodes[-2].output.shape[-2:] == after.nodes[-1].output.shape[:-3:-1]


def test_views_move_behind_a_layer():
    g = graph(
        """
        def g(x: f32[n, 5, 4], w: f32[4, 6], b: f32[6], r: f32[n, 5, 6]):
            rows: f32[n * 5, 4] = reshape(x, shape=(n * 5, 4))
            product: f32[n * 5, 6] = matmul(rows, w)
            sum: f32[n * 5, 6] = add(product, b)
            back: f32[n, 5, 6] = reshape(sum, shape=(n, 5, 6))
            act: f32[n, 5, 6] = gelu(back)
            y: f32[n, 5, 6] = add(act, r)
            return {"y": y}
        """
    )
    assert ops(rewritten(clean, g, 1e-5)) == ["matmul", "add", "gelu", "add"]


def test_scales_of_queries_and_keys_meet_behind_their_product():
    g = graph(
        """
        def g(q: f32[2, 3, 4], k: f32[2, 5, 4]):
            s = constant(f32[()], "s")
            a: f32[2, 3, 4] = mul(q, s)
            t: f32[2, 4, 5] = transpose(k, perm=(0, 2, 1))
            b: f32[2, 4, 5] = mul(t, s)
            y: f32[2, 3, 5] = matmul(a, b)
            return {"y": y}
        """,
        s=np.float32(0.5),
    )
    after = rewritten(clean, g, 1e-5)
    assert ops(after)[0] == "matmul" and set(ops(after)) == {"matmul", "mul"}


def test_small_floats_are_scaled_before_their_product():
    g = graph(
        """
        def g(q: f16[2, 4], k: f16[4, 3]):
            s = constant(f16[()], "s")
            a: f16[2, 4] = mul(q, s)
            y: f16[2, 3] = matmul(a, k)
            return {"y": y}
        """,
        s=np.float16(2**-8),
    )
    after = clean(g)
    assert ops(after) == ["mul", "matmul"]  # the product of numbers near 300 is no f16
    big = [np.full(s, 300, np.float16) for s in ((2, 4), (4, 3))]
    np.testing.assert_array_equal(evaluate(after, big)[0], np.float16(4 * 300 * 300 / 256))


def test_permuted_runs():
    assert permuted_runs(shape((2, 3, 4)), shape((6, 4)), (1, 0)) == (2, 0, 1)
    assert permuted_runs(shape((3, 1, 4)), shape((3, 4)), (1, 0)) == (1, 2, 0)
    assert permuted_runs(shape((6, 4)), shape((2, 3, 4)), (2, 0, 1)) == (1, 0)
    assert permuted_runs(shape((6, 4)), shape((2, 3, 4)), (0, 2, 1)) is None


@pytest.mark.parametrize(
    ("perm", "depth", "expected"),
    [
        ((1, 2, 0, 3), 2, ["reshape", "gather"]),  # as exporters write x[:, a, b]
        ((2, 3, 0, 1), 2, ["reshape", "gather"]),
        ((1, 2, 3, 0), 3, ["reshape", "gather"]),
        ((0, 1, 2, 3), 2, ["reshape", "gather"]),
        ((2, 1, 0, 3), 2, ["transpose", "reshape", "gather", "transpose"]),  # no neighbours
    ],
)
def test_indices_along_neighbouring_axes_are_gathered_along_one(perm, depth, expected):
    size = (3, 4, 5, 2)
    sizes = [size[d] for d in perm[:depth]]  # clamped; negative ones count from behind
    columns = [np.arange(-3, 5) * (d + 1) % (2 * n + 3) - n - 1 for d, n in enumerate(sizes)]
    build = Builder("g")
    x = build.input("x", "f32", size)
    y = build.emit("transpose", x, perm=perm)
    y = build.emit("gather_nd", y, build.constant(np.stack(columns, 1)))
    back = tuple(np.argsort([perm[0], *perm[depth:]]).tolist())
    y = build.emit("transpose", y, perm=back)
    assert ops(rewritten(clean, build.finish({"y": y}))) == expected
