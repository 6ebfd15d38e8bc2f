"""The other passes: folding, elimination, matched patterns, unrolled layers, separate
outputs."""

import math

import numpy as np
import pytest

from tests.graph.rewriting import graph, ops, random_inputs, rewritten
from tilewright.graph import Builder, evaluate, sizes
from tilewright.graph.passes.choose_layouts import choose_layouts
from tilewright.graph.passes.eliminate import eliminate_common, eliminate_dead
from tilewright.graph.passes.fold_batch_norm import fold_batch_norm
from tilewright.graph.passes.fold_constants import fold_constants
from tilewright.graph.passes.fuse_gemms import fuse_gemms
from tilewright.graph.passes.match_patterns import match_patterns
from tilewright.graph.passes.pipeline import PIPELINE, optimise
from tilewright.graph.passes.separate_outputs import separate_outputs
from tilewright.graph.passes.unroll_recurrences import unroll_recurrences
from tilewright.ir.expr import Var
from tilewright.strategy.cpu.layouts import Layouts

random = np.random.default_rng(7)


def f(*shape):
    return random.uniform(0.5, 1.5, shape).astype(np.float32)


def test_pipeline_names_are_unique():
    names = [name for name, _ in PIPELINE]
    assert len(set(names)) == len(names)


def test_dead_nodes_and_constants_go_inputs_stay():
    g = graph(
        """
        def g(x: f32[3], unused: f32[2]):
            c = constant(f32[3], "c")
            d = constant(f32[3], "d")
            dead: f32[3] = mul(x, c)
            y: f32[3] = add(x, d)
            return {"y": y}
        """,
        c=f(3), d=f(3),
    )  # fmt: skip
    after = rewritten(eliminate_dead, g)
    assert ops(after) == ["add"] and len(after.constants) == 1 and len(after.inputs) == 2


def test_products_of_few_rows_with_one_matrix_merge():
    g = graph(
        """
        def g(x: f32[1, 5], y: f32[2, 5]):
            w = constant(f32[5, 5], "w")
            a: f32[1, 5] = matmul(x, w)
            b: f32[1, 5] = relu(a)
            c: f32[1, 5] = matmul(b, w)
            d: f32[2, 5] = matmul(y, w)
            e: f32[2, 5] = add(d, c)
            return {"e": e}
        """,
        w=f(5, 5),
    )
    after = rewritten(fuse_gemms, g)
    assert ops(after).count("matmul") == 2  # c follows from a; d joins a
    assert ops(after).count("slice") == 2


def test_products_of_many_rows_stay():
    g = graph(
        """
        def g(x: f32[64, 5], y: f32[64, 5]):
            w = constant(f32[5, 5], "w")
            a: f32[64, 5] = matmul(x, w)
            b: f32[64, 5] = matmul(y, w)
            c: f32[64, 5] = add(a, b)
            return {"c": c}
        """,
        w=f(5, 5),
    )
    assert fuse_gemms(g) is g


@pytest.mark.parametrize("width, products", [(128, 1), (127, 2)])
def test_products_of_open_batches_merge_where_moving_them_is_little(width, products):
    g = graph(
        f"""
        def g(x: f32[n, 128], y: f32[2, n, 128]):
            w = constant(f32[128, {width}], "w")
            a: f32[n, {width}] = matmul(x, w)
            b: f32[2, n, {width}] = matmul(y, w)
            c: f32[2, n, {width}] = add(a, b)
            return {{"c": c}}
        """,
        w=f(128, width),
    )
    after = rewritten(fuse_gemms, g, 1e-4)
    assert ops(after).count("matmul") == products


def test_equal_nodes_and_equal_constants_merge():
    same = f(300, 400)
    g = graph(
        """
        def g(x: f32[300, 400]):
            c = constant(f32[300, 400], "c")
            d = constant(f32[300, 400], "d")
            e = constant(f32[300, 400], "e")
            p: f32[300, 400] = mul(x, c)
            q: f32[300, 400] = mul(x, d)
            r: f32[300, 400] = mul(x, e)
            s: f32[300, 400] = add(p, q)
            y: f32[300, 400] = add(s, r)
            return {"y": y}
        """,
        c=same, d=same.copy(), e=np.where(np.arange(400) == 7, same + 1, same),
    )  # fmt: skip
    after = rewritten(eliminate_common, g)
    assert ops(after) == ["mul", "mul", "add", "add"] and len(after.constants) == 2


def test_common_attributes_must_be_of_one_type():
    build = Builder()
    x = build.input("x", "f32", (4,))
    a = build.emit("leaky_relu", x, alpha=1.0)
    b = build.emit("elu", x, alpha=1.0)
    g = build.finish([a, b])
    assert eliminate_common(g) is g


def test_constants_fold_but_do_not_grow():
    g = graph(
        """
        def g(x: f32[2, 3]):
            c = constant(f32[3, 2], "c")
            t: f32[2, 3] = transpose(c, perm=(1, 0))
            a: f32[2, 3] = add(x, t)
            return {"a": a}
        """,
        c=f(3, 2),
    )
    assert ops(rewritten(fold_constants, g)) == ["add"]
    build = Builder()
    one = build.constant(np.float32(1))
    wide = build.emit("expand", one, shape=(1 << 20,))
    kept = fold_constants(build.finish([wide]))
    assert ops(kept) == ["expand"]


BATCH_NORM = {"s": f(4), "b": f(4), "m": f(4), "v": f(4)}


@pytest.mark.parametrize("op", ["conv", "conv_transpose"])
@pytest.mark.parametrize("groups", [1, 2])
def test_batch_norm_goes_into_the_convolution(op, groups):
    build = Builder()
    x = build.input("x", "f32", (2, 4, 6, 6))
    shape = (4, 4 // groups, 3, 3)
    y = build.emit(op, x, build.constant(f(*shape)), build.constant(f(4)), groups=groups)
    y = build.emit("batch_norm", y, *[build.constant(BATCH_NORM[k]) for k in "sbmv"])
    y = build.emit("mul", y, build.constant(np.float32(0.5)))
    after = eliminate_dead(rewritten(fold_batch_norm, build.finish([build.emit("relu", y)]), 1e-4))
    assert ops(after) == [op, "relu"]


def test_batch_norm_alone_becomes_one_product_and_one_sum():
    build = Builder()
    x = build.input("x", "f32", (2, 4, 3))
    y = build.emit("batch_norm", x, *[build.constant(BATCH_NORM[k]) for k in "sbmv"])
    y = build.emit("mul", y, build.constant(f(4, 1)))
    y = build.emit("add", y, build.constant(f(1, 4, 1)))
    assert ops(eliminate_dead(rewritten(fold_batch_norm, build.finish([y]), 1e-4))) == [
        "mul",
        "add",
    ]


@pytest.mark.parametrize("of", [np.float32, np.float16])
def test_batch_norm_of_computed_statistics_takes_any_layout(of):
    """It is element-wise work, of packed channels, too, behind a convolution."""
    build, kind = Builder(), np.dtype(of).name.replace("float", "f")
    x = build.input("x", kind, (2, 16, 6, 6))
    given = [build.input(k, kind, (16,)) for k in "sbmv"]
    y = build.emit("conv", x, build.constant(f(16, 8, 3, 1).astype(of)), groups=2)
    graph = build.finish([build.emit("batch_norm", y, *given)])
    values = [f(2, 16, 6, 6).astype(of), *(np.abs(f(16)).astype(of) for _ in given)]
    packed = choose_layouts(optimise(graph), Layouts(32))
    assert ("conv_packed" in ops(packed)) == (of is np.float32)
    (expected,), (found,) = (evaluate(g, values) for g in (graph, packed))
    bound = 1e-4 if of is np.float32 else 1e-2
    np.testing.assert_allclose(found, expected, rtol=bound, atol=bound)


def test_a_convolution_with_two_users_keeps_its_weights():
    build = Builder()
    x = build.input("x", "f32", (1, 4, 5))
    y = build.emit("conv", x, build.constant(f(4, 4, 3)))
    z = build.emit("mul", y, build.constant(np.float32(0.5)))
    assert ops(rewritten(fold_batch_norm, build.finish([y, z]))) == ["conv", "mul"]


def test_scales_go_into_weights():
    build = Builder()
    x = build.input("x", "f32", (1, 3, 5))
    scaled = build.emit("mul", x, build.constant(np.float32(1 / 255)))
    y = build.emit("conv", scaled, build.constant(f(2, 3, 3)), pads=((1, 1),))
    assert ops(eliminate_dead(rewritten(fold_batch_norm, build.finish([y]), 1e-5))) == ["conv"]
    build = Builder()
    x = build.input("x", "f32", (2, 3))
    y = build.emit("mul", build.emit("matmul", x, build.constant(f(3, 4))), build.constant(f(4)))
    assert ops(eliminate_dead(rewritten(fold_batch_norm, build.finish([y]), 1e-5))) == ["matmul"]


class Written:
    """Arithmetic in the order in which an exporter might write it."""

    def __init__(self, *shape):
        self.build = Builder()
        self.x = self.build.input("x", "f32", shape)

    def number(self, value):
        return self.build.constant(np.float32(value))

    def __call__(self, op, *operands, **attrs):
        values = [self.number(v) if isinstance(v, float) else v for v in operands]
        return self.build.emit(op, *values, **attrs)

    def meant(self, y):
        return ops(eliminate_dead(rewritten(match_patterns, self.build.finish([y]), 1e-4)))


def gelu_forms():
    def erf(w, inner):
        return w("add", w("erf", inner), 1.0)

    yield lambda w: w("mul", w("mul", w.x, 0.5), erf(w, w("div", w.x, math.sqrt(2.0))))
    yield lambda w: w("mul", w("mul", w.x, erf(w, w("mul", w.x, 0.70710678))), 0.5)
    yield lambda w: w("mul", w.x, w("mul", erf(w, w("div", w.x, 1.4142)), 0.5))
    yield lambda w: w("mul", erf(w, w("div", w.x, 1.41421356)), w("div", w.x, 2.0))


def tanh_forms():
    root = math.sqrt(2 / math.pi)

    def cubes(w):
        return (
            w("pow", w.x, 3.0),
            w("mul", w("mul", w.x, w.x), w.x),
            w("mul", w.x, w("mul", w.x, w.x)),
        )

    for n in range(3):
        yield lambda w, n=n: w(
            "mul",
            w("mul", 0.5, w.x),
            w(
                "add",
                1.0,
                w("tanh", w("mul", root, w("add", w.x, w("mul", 0.044715, cubes(w)[n])))),
            ),
        )
    yield lambda w: w(
        "mul",
        w("mul", w.x, 0.5),
        w(
            "add",
            w(
                "tanh",
                w(
                    "mul",
                    w("mul", w.x, root),
                    w("add", w("mul", w("mul", w.x, w.x), 0.044715), 1.0),
                ),
            ),
            1.0,
        ),
    )


@pytest.mark.parametrize("form", [*gelu_forms(), *tanh_forms()])
def test_gelu(form):
    w = Written(3, 5)
    assert w.meant(form(w)) == ["gelu"]


def test_what_is_almost_gelu_stays():
    w = Written(3)
    y = w("mul", w("mul", w.x, 0.5), w("add", w("erf", w("div", w.x, 1.5)), 1.0))
    assert "gelu" not in w.meant(y)


def test_activations():
    for op, form in {
        "silu": lambda w: w("mul", w("sigmoid", w.x), w.x),
        "mish": lambda w: w("mul", w.x, w("tanh", w("softplus", w.x))),
        "hard_swish": lambda w: w("mul", w.x, w("hard_sigmoid", w.x, alpha=1 / 6, beta=0.5)),
    }.items():
        w = Written(4)
        assert w.meant(form(w)) == [op]
    w = Written(4)
    gate = w("clip", w("add", w.x, 3.0), low=0.0, high=6.0)
    assert w.meant(w("div", w("mul", w.x, gate), 6.0)) == ["hard_swish"]


@pytest.mark.parametrize("inverse", ["div", "rsqrt", "reciprocal"])
@pytest.mark.parametrize("centred", [True, False])
@pytest.mark.parametrize("power", ["mul", "pow"])
def test_norms(inverse, centred, power):
    w = Written(2, 3, 8)
    y = w.x
    if centred:
        y = w("sub", w.x, w("reduce_mean", w.x, axes=(-1,), keepdims=True))
    square = w("mul", y, y) if power == "mul" else w("pow", y, 2.0)
    mean = w("add", w("reduce_mean", square, axes=(2,), keepdims=True), 1e-5)
    if inverse == "div":
        y = w("div", y, w("sqrt", mean))
    elif inverse == "rsqrt":
        y = w("mul", w("rsqrt", mean), y)
    else:
        y = w("mul", y, w("reciprocal", w("sqrt", mean)))
    y = w("mul", w.build.constant(f(8)), y)
    name = "layer_norm" if centred else "rms_norm"
    if centred:
        y = w("add", y, w.build.constant(f(8)))
    assert w.meant(y) == [name]


def test_softmax_of_its_parts():
    w = Written(3, 5)
    e = w("exp", w("sub", w.x, w("reduce_max", w.x, axes=(1,), keepdims=True)))
    assert w.meant(w("div", e, w("reduce_sum", e, axes=(1,), keepdims=True))) == ["softmax"]


def lstm_graph(steps=3, hidden=182, batch=2, **attrs):
    build = Builder()
    gates = build.input("gates", "f32", (steps, batch, 4 * hidden))
    h, c = (build.input(name, "f32", (batch, hidden)) for name in "hc")
    weights = build.constant(f(4 * hidden, hidden) / 16)
    return build.finish(list(build.emit("lstm", gates, weights, h, c, **attrs)))


def test_lstm_cell_of_its_parts():
    steps = 2
    build = Builder()
    h, c = build.input("h", "f32", (2, 3)), build.input("c", "f32", (2, 3))
    w = build.constant(f(3, 12))
    for _ in range(steps):
        gates = build.emit("matmul", h, w)
        i, o, g, fo = [
            build.emit("slice", gates, starts=(0, 3 * k), shape=(2, 3)) for k in range(4)
        ]
        kept = build.emit("mul", build.emit("sigmoid", fo), c)
        new = build.emit("mul", build.emit("sigmoid", i), build.emit("tanh", g))
        c = build.emit("add", new, kept)
        h = build.emit("mul", build.emit("tanh", c), build.emit("sigmoid", o))
    after = eliminate_dead(rewritten(match_patterns, build.finish([h, c]), 1e-5))
    assert ops(after) == ["matmul", "lstm_cell"] * 2 and after.nodes[1]["order"] == (0, 3, 2, 1)


@pytest.mark.parametrize(("hidden", "block"), [(96, 48), (100, 64), (650, 96), (16, 16), (12, 12)])
@pytest.mark.parametrize("op", ["lstm", "gru", "rnn"])
def test_weights_of_open_recurrences_are_packed_in_panels_of_a_gate(op, hidden, block):
    gates = {"lstm": 4, "gru": 3, "rnn": 1}[op]
    build = Builder()
    x = build.input("x", "f32", (Var("n"), 1, gates * hidden))
    states = [build.input(name, "f32", (1, hidden)) for name in ("h", "c")[: 1 + (op == "lstm")]]
    rest = [build.constant(f(hidden))] if op == "gru" else []
    weights = build.constant(f(gates * hidden, hidden))
    graph = build.finish(list(build.emit(op, x, weights, *rest, *states)))
    after = choose_layouts(graph, Layouts(64))
    (node,) = [n for n in after.nodes if n.op == op]
    panels = gates * -(-hidden // block)
    assert sizes.static(node.inputs[1].shape) == (panels, hidden, block)
    inputs = [f(5, 1, gates * hidden), *(f(1, hidden) for _ in states)]
    for a, b in zip(evaluate(graph, inputs), evaluate(after, inputs), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("reverse", [False, True])
def test_recurrent_layers_unroll(reverse):
    after = rewritten(unroll_recurrences, lstm_graph(reverse=reverse), 1e-5)
    assert ops(after).count("lstm_cell") == 3 and "lstm" not in ops(after)
    for after_reset in (False, True):
        build = Builder()
        gates, h = build.input("gates", "f32", (3, 2, 660)), build.input("h", "f32", (2, 220))
        parts = (build.constant(f(660, 220) / 16), build.constant(f(220)))
        made = build.emit("gru", gates, *parts, h, reverse=reverse, reset_after=after_reset)
        assert "gru" not in ops(rewritten(unroll_recurrences, build.finish(list(made)), 1e-5))
    build = Builder()
    gates, h = (build.input(*of) for of in (("x", "f32", (3, 2, 370)), ("h", "f32", (2, 370))))
    weights = build.constant(f(370, 370) / 16)
    made = build.emit("rnn", gates, weights, h, reverse=reverse, activation="relu")
    assert "rnn" not in ops(rewritten(unroll_recurrences, build.finish(list(made)), 1e-5))


def test_layers_that_cannot_unroll_stay_and_those_of_small_steps():
    for g in (lstm_graph(clip=0.5), lstm_graph(steps=0), lstm_graph(hidden=96)):
        assert unroll_recurrences(g) is g
    assert "lstm" not in ops(unroll_recurrences(lstm_graph(hidden=96, batch=32)))  # many at once


def test_outputs_get_memory_of_their_own():
    g = graph(
        """
        def g(x: f32[4], y: f32[2]):
            c = constant(f32[4], "c")
            a: f32[4] = relu(x)
            b: f32[2, 2] = reshape(a, shape=(2, 2))
            return {"a": a, "b": b, "again": a, "x": x, "c": c, "view": b}
        """,
        c=f(4),
    )
    after = rewritten(separate_outputs, g)
    assert ops(after) == ["relu", "reshape"] + ["copy"] * 5
    assert len(set(after.outputs)) == 6


def test_observers_see_every_pass():
    seen = []
    optimise(lstm_graph(), observers=[lambda name, before, after, seconds: seen.append(name)])
    assert seen == [name for name, _ in PIPELINE]


def test_the_pipeline_keeps_values():
    g = lstm_graph()
    arrays = random_inputs(g)
    for a, b in zip(evaluate(g, arrays), evaluate(optimise(g), arrays), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
