"""fuse: which nodes share a kernel, and why; the laws of groups."""

from typing import Any

import numpy as np
import pytest

from tests.graph.rewriting import graph
from tilewright import te
from tilewright.graph import Builder, Graph
from tilewright.graph.group import FusedGraph, computation, group_func
from tilewright.graph.passes.fuse import MOST_INLINED, fuse
from tilewright.ir.expr import Var, maximum

WEIGHTS = {"w": np.ones((4, 4, 3, 3), np.float32), "b": np.ones((4, 1, 1), np.float32)}


def shown(fused: FusedGraph) -> list[str]:
    return [" ".join(g.ops) for g in fused.groups]


def check_laws(fused: FusedGraph) -> None:
    """Every node is in one group; a group's inputs are made before it; what it hides nobody else
    reads."""
    g: Graph = fused.graph
    nodes = [n for group in fused.groups for n in group.nodes]
    assert sorted(n.name for n in nodes) == sorted(n.name for n in g.nodes)
    ready = {*g.inputs, *g.constants}
    users = g.users()
    for group in fused.groups:
        assert set(group.inputs) <= ready
        inside = set(group.nodes)
        for n in group.nodes:
            for v in n.outputs:
                if v not in group.outputs:
                    assert v not in g.outputs and set(users[v]) <= inside
        ready.update(group.outputs)
        assert group.name and group.anchor in group.nodes
    assert len({group.name for group in fused.groups}) == len(fused.groups)


def test_convolution_takes_element_wise_work_on_its_output():
    g = graph(
        """
        def g(x: f32[1, 4, 8, 8], r: f32[1, 4, 8, 8]):
            w = constant(f32[4, 4, 3, 3], "w")
            b = constant(f32[4, 1, 1], "b")
            c: f32[1, 4, 8, 8] = conv(x, w, pads=((1, 1), (1, 1)))
            d: f32[1, 4, 8, 8] = add(c, b)
            e: f32[1, 4, 8, 8] = add(d, r)
            y: f32[1, 4, 8, 8] = relu(e)
            z: f32[1, 4, 4, 4] = max_pool(y, kernel=(2, 2), strides=(2, 2))
            return {"z": z}
        """,
        **WEIGHTS,
    )
    fused = fuse(g)
    check_laws(fused)
    assert shown(fused) == ["conv add add relu", "max_pool"]
    first = fused.groups[0]
    assert [v.name for v in first.inputs] == ["x", "w", "b", "r"] and first.anchor.op == "conv"
    assert first.why["y"] == "element-wise on the output of conv"
    assert "not element-wise" in first.why["z (max_pool) is cut"]
    assert "conv, " not in first.explain() and "anchor c" in first.explain()


def test_a_residual_waits_for_the_later_convolution():
    g = graph(
        """
        def g(x: f32[1, 4, 8, 8]):
            w = constant(f32[4, 4, 3, 3], "w")
            a: f32[1, 4, 6, 6] = conv(x, w)
            b: f32[1, 4, 6, 6] = conv(x, w, dilations=(1, 1))
            s: f32[1, 4, 6, 6] = add(a, b)
            y: f32[1, 4, 6, 6] = relu(s)
            return {"y": y}
        """,
        **WEIGHTS,
    )
    fused = fuse(g)
    check_laws(fused)
    assert shown(fused) in (["conv", "conv add relu"], ["conv add relu", "conv"])
    assert shown(fused)[-1] == "conv add relu"  # its group runs after what it reads


def test_a_value_that_others_read_ends_its_group():
    g = graph(
        """
        def g(x: f32[4, 4], w: f32[4, 4]):
            a: f32[4, 4] = matmul(x, w)
            b: f32[4, 4] = tanh(a)
            c: f32[4, 4] = matmul(a, b)
            return {"c": c}
        """
    )
    fused = fuse(g)
    check_laws(fused)
    assert shown(fused) == ["matmul", "tanh", "matmul"]


def test_a_diamond_of_element_wise_work_joins_as_one():
    g = graph(
        """
        def g(x: f32[4, 4], w: f32[4, 4]):
            a: f32[4, 4] = matmul(x, w)
            s: f32[4, 4] = sigmoid(a)
            t: f32[4, 4] = tanh(a)
            u: f32[4, 4] = mul(s, t)
            y: f32[4, 4] = add(u, a)
            return {"y": y}
        """
    )
    fused = fuse(g)
    check_laws(fused)
    assert shown(fused) == ["matmul sigmoid tanh mul add"]


def test_ways_from_several_inputs_join_where_they_meet():
    g = graph(
        """
        def g(a: f32[8], b: f32[8], c: f32[8]):
            x: f32[8] = exp(a)
            y: f32[8] = exp(b)
            u: f32[8] = sin(y)
            z: f32[8] = add(x, u)
            v: f32[8] = exp(c)
            w: f32[8] = mul(z, v)
            return {"v": v, "w": w}
        """
    )
    fused = fuse(g)
    check_laws(fused)
    assert shown(fused) == ["exp", "exp exp sin add mul"]  # v is a result


@pytest.mark.parametrize(
    ("columns", "kernels"),
    [(16, 2), (4, 2), (2, 1)],  # of which a row has eight
)
@pytest.mark.parametrize("n", ["6", "n"])
def test_rows_that_are_stretched_are_stored_first(n: str, columns: int, kernels: int):
    g = graph(
        f"""
        def g(x: f32[9, 8], i: i64[{n}], j: i64[{n}], k: i64[{columns}], l: i64[{columns}]):
            a: f32[{n}, 8] = gather(x, i)
            b: f32[{n}, 8] = gather(x, j)
            rows: f32[{n}, 8] = add(a, b)
            c: f32[{n}, {columns}] = gather(rows, k, axis=1)
            d: f32[{n}, {columns}] = gather(rows, l, axis=1)
            y: f32[{n}, {columns}] = add(c, d)
            return {{"y": y}}
        """
    )
    fused = fuse(g)
    check_laws(fused)
    way = ["gather", "gather", "add"]
    assert [list(group.ops) for group in fused.groups] == (
        [way, way] if kernels == 2 else [way * 2]
    )


def test_reductions_take_what_feeds_them():
    g = graph(
        """
        def g(x: f32[4, 8], m: f32[8]):
            a: f32[4, 8] = add(x, m)
            s: f32[4, 8] = softmax(a)
            y: f32[4, 8] = mul(s, m)
            return {"y": y}
        """
    )
    fused = fuse(g)
    check_laws(fused)
    assert shown(fused) == ["add softmax mul"]
    assert fused.groups[0].why["a"] == "computed where softmax reads it"


def test_a_reduction_does_not_take_what_others_read():
    g = graph(
        """
        def g(x: f32[4, 8], r: f32[4, 8]):
            a: f32[4, 8] = add(x, r)
            n: f32[4, 8] = layer_norm(a)
            y: f32[4, 8] = sub(n, a)
            return {"y": y}
        """
    )
    fused = fuse(g)
    check_laws(fused)
    assert shown(fused) == ["add", "layer_norm sub"]
    assert fused.groups[1].why["a (add) is cut"] == "others read it too"


def test_moves_join_across_a_view():
    g = graph(
        """
        def g(x: f32[2, 6, 12]):
            a: f32[2, 6, 4] = slice(x, starts=(0, 0, 4), shape=(2, 6, 4))
            b: f32[2, 6, 2, 2] = reshape(a, shape=(2, 6, 2, 2))
            y: f32[2, 2, 6, 2] = transpose(b, perm=(0, 2, 1, 3))
            return {"y": y}
        """
    )
    fused = fuse(g)
    check_laws(fused)
    assert shown(fused) == ["slice reshape transpose"]


def test_open_sizes_written_in_two_ways_are_no_growth():
    g = graph(
        """
        def g(x: f32[2, h, 1, w, 1]):
            a: f32[2, h, 2, w, 1] = expand(x, shape=(2, h, 2, w, 1))
            b: f32[2, h * 2, w, 1] = reshape(a, shape=(2, h * 2, w, 1))
            y: f32[2, h * 2, w, 2] = expand(b, shape=(2, h * 2, w, 2))
            return {"y": y}
        """
    )
    fused = fuse(g)
    check_laws(fused)
    assert shown(fused) == ["expand reshape expand"]


def test_views_alone_are_no_code():
    g = graph(
        """
        def g(x: f32[2, 6]):
            a: f32[2, 6] = relu(x)
            b: f32[12] = reshape(a, shape=(12,))
            y: f32[12] = softmax(b)
            return {"y": y}
        """
    )
    fused = fuse(g)
    check_laws(fused)
    assert shown(fused) == ["relu", "reshape", "softmax"]
    assert [group.is_view for group in fused.groups] == [False, True, False]


def test_costly_work_is_not_repeated_by_a_broadcast():
    g = graph(
        """
        def g(x: f32[4, 1], z: f32[4, 8]):
            a: f32[4, 1] = tanh(x)
            y: f32[4, 8] = mul(a, z)
            b: f32[4, 1] = neg(x)
            w: f32[4, 8] = mul(b, z)
            return {"y": y, "w": w}
        """
    )
    fused = fuse(g)
    check_laws(fused)
    assert shown(fused) == ["tanh", "mul", "neg mul"]
    assert "computed for each" in fused.groups[0].why["y (mul) is cut"]


def test_expressions_do_not_explode():
    build = Builder()
    x = build.input("x", "f32", (4,))
    for _ in range(20):
        x = build.emit("mul", x, x)  # inlined, it would double each time
    fused = fuse(build.finish([x]))
    check_laws(fused)
    assert len(fused.groups) > 1
    for group in fused.groups:
        assert 2 ** len(group.nodes) <= 2 * MOST_INLINED


def test_operators_with_several_outputs_stand_alone():
    build = Builder()
    gates, c = build.input("gates", "f32", (2, 12)), build.input("c", "f32", (2, 3))
    h, new = build.emit("lstm_cell", gates, c)
    fused = fuse(build.finish([build.emit("relu", h), new]))
    check_laws(fused)
    assert shown(fused) == ["lstm_cell", "relu"] and len(fused.groups[0].outputs) == 2


def test_single_numbers_stand_in_the_code_but_indices_do_not():
    build = Builder()
    x = build.input("x", "f32", (5, 3))
    row = build.emit("gather", x, build.constant(np.asarray(2)), axis=0)
    y = build.emit("mul", row, build.constant(np.float32(3)))
    (group,) = fuse(build.finish([y])).groups
    assert list(group.embedded.values()) == [3.0] and len(group.inputs) == 2


@pytest.mark.parametrize("seed", range(40))
def test_laws_on_random_graphs(seed):
    random = np.random.default_rng(seed)
    build = Builder()
    values = [build.input(f"x{n}", "f32", (4, 4)) for n in range(2)]
    ops = {
        "matmul": 2, "add": 2, "mul": 2, "tanh": 1, "softmax": 1, "transpose": 1, "reshape": 1,
        "relu": 1,
    }  # fmt: skip
    for _ in range(30):
        op = str(random.choice(list(ops)))
        operands = [
            values[int(n)] for n in random.integers(max(0, len(values) - 6), len(values), ops[op])
        ]
        given: dict[str, Any] = {"transpose": {"perm": (1, 0)}, "reshape": {"shape": (4, 4)}}
        attrs = given.get(op, {})
        values.append(build.emit(op, *operands, **attrs))
    check_laws(fuse(build.finish([values[-1], values[-3]])))


ATTENTION = """
    def g(q: f32[2, 8, 4], k: f32[2, 4, 6], v: f32[{v}], m: f32[8, 6]):
        x: f32[2, 8, 6] = matmul(q, k)
        s: f32[2, 8, 6] = add(x, m)
        p: f32[2, 8, 6] = softmax(s{axis})
        n: bool[2, 8, 6] = isnan(p)
        w: f32[2, 8, 6] = where(n, m, p)
        y: f32[{y}] = matmul(w, v)
        z: f32[{y}] = relu(y)
        return {{"z": z{also}}}
"""


def attention(v: str = "2, 6, 5", y: str = "2, 8, 5", axis: str = "", also: str = "") -> FusedGraph:
    fused = fuse(graph(ATTENTION.format(v=v, y=y, axis=axis, also=also)))
    check_laws(fused)
    return fused


def test_two_products_and_the_softmax_between_them_are_one_kernel():
    (group,) = attention().groups
    assert shown(attention()) == ["matmul add softmax isnan where matmul relu"]
    assert group.anchor.name == "y" and [v.name for v in group.outputs] == ["z"]
    assert (
        group.why["x"] == group.why["p"] == "its rows are made in tiles, with those of the result"
    )


@pytest.mark.parametrize(
    "change",
    [
        {"also": ', "p": p'},  # the weights are a result too
        {"also": ', "x": x'},  # and so are the scores
        {"axis": ", axis=-2"},  # a row is not normalised by itself
        {"v": "3, 1, 6, 5", "y": "3, 2, 8, 5"},  # the scores would be made three times
        {"v": "2, 6, 1", "y": "2, 8, 1"},  # no tile
    ],
)
def test_what_is_no_attention_in_tiles_is_several_kernels(change: dict[str, str]):
    assert "relu" in shown(attention(**change))[-1]
    assert len(attention(**change).groups) > 1


def test_groups_of_one_computation_have_one_function():
    """Whatever their values are called; a number of another sign or kind is another computation."""
    g = graph(
        """
        def g(x: f32[4, 8], y: f32[4, 8], z: f32[4, 6]):
            one = constant(f32[()], "one")
            zero = constant(f32[()], "zero")
            below = constant(f32[()], "below")
            a: f32[4, 8] = add(x, one)
            b: f32[4, 8] = add(y, one)
            c: f32[4, 8] = add(y, zero)
            d: f32[4, 8] = add(y, below)
            e: f32[4, 6] = add(z, one)
            f: f32[4, 8] = add(x, x)
            h: f32[4, 8] = softmax(x, axis=1)
            i: f32[4, 8] = softmax(y, axis=1)
            j: f32[4, 8] = softmax(y, axis=0)
            return {"a": a, "b": b, "c": c, "d": d, "e": e, "f": f, "h": h, "i": i, "j": j}
        """,
        one=np.ones((), np.float32),
        zero=np.zeros((), np.float32),
        below=-np.zeros((), np.float32),
    )
    by_function: dict[object, set[str]] = {}
    by_computation: dict[object, set[str]] = {}
    for group in fuse(g).groups:
        names = {v.name for v in group.outputs}
        by_function.setdefault(te.func("f", *group_func(group)), set()).update(names)
        by_computation.setdefault(computation(group), set()).update(names)
    assert [*by_computation.values()] == [*by_function.values()]
    assert {"a", "b"} in by_computation.values() and {"h", "i"} in by_computation.values()
    assert len(by_computation) == 7


def test_counting_along_an_open_size_is_no_kernel():
    build, batch, length = Builder(), Var("batch"), Var("length")
    x, ends = build.input("x", "f32", (batch, length)), build.input("ends", "i64", (batch, 1))
    there = build.emit("less", build.emit("arange", length=length), ends)
    fused = fuse(build.finish({"y": build.emit("where", there, x, build.constant(np.float32(0)))}))
    assert shown(fused) == ["arange less where"]
    check_laws(fused)


def test_a_range_is_computed_where_it_is_read_though_a_view_lies_between():
    build = Builder()
    ends = build.input("ends", "i64", (Var("b"), 1))
    line = build.emit("reshape", build.emit("arange", length=Var("n")), shape=(1, Var("n")))
    graph = build.finish({"mask": build.emit("less", line, ends)})
    assert [g.ops for g in fuse(graph).groups] == [("arange", "reshape", "less")]


def test_what_reads_a_tensor_steps_over_a_view_to_a_move_only():
    build = Builder()
    x, ends = build.input("x", "i64", (Var("n"),)), build.input("ends", "i64", (Var("b"), 1))
    line = build.emit("reshape", build.emit("neg", x), shape=(1, Var("n")))
    graph = build.finish({"mask": build.emit("less", line, ends)})
    assert [g.ops for g in fuse(graph).groups] == [("neg",), ("reshape",), ("less",)]


def bilinear(channels: int, taps: int) -> Graph:
    """Points of an image between its pixels: rows of channels are gathered, weighed and added."""
    build = Builder()
    x = build.input("x", "f32", (1, channels, 50))
    flat = build.emit("transpose", x, perm=(0, 2, 1))
    total: Any = None
    for n in range(taps):
        index = build.input(f"at{n}", "i64", (1, 70, 1))
        weight = build.input(f"by{n}", "f32", (1, 70, 1))
        found = build.emit("mul", build.emit("gather_nd", flat, index, batch_dims=1), weight)
        total = found if total is None else build.emit("add", total, found)
    return build.finish({"y": build.emit("transpose", total, perm=(0, 2, 1))})


@pytest.mark.parametrize(("channels", "taps", "kernels"), [(64, 4, 3), (3, 4, 1), (64, 1, 1)])
def test_rows_that_are_gathered_several_times_are_read_in_one_piece(channels, taps, kernels):
    fused = fuse(bilinear(channels, taps))
    check_laws(fused)
    assert len(fused.groups) == kernels
    if kernels > 1:
        assert shown(fused)[0] == shown(fused)[-1] == "transpose"


@pytest.mark.parametrize(
    ("have", "want", "also", "kernels"),
    [
        ("b, 3, 4", "t, 3, 4", "a", ["stretch matmul"]),
        ("n, m, 4", "n, 3, 4", "a", ["stretch", "matmul"]),  # it repeats rows of matrices
        ("b, 3, 4", "t, 3, 4", "s", ["stretch", "matmul"]),  # they leave the graph, too
    ],
)
def test_a_product_reads_the_matrices_of_another_batch_where_they_are(have, want, also, kernels):
    batch = want[0]
    g = graph(
        f"""
        def g(a: f32[{have}], x: f32[{batch}, 4, 5]):
            s: f32[{want}] = stretch(a, shape=({want}))
            y: f32[{batch}, 3, 5] = matmul(s, x)
            return {{"y": y, "{also}": {also}}}
        """
    )
    fused = fuse(g)
    check_laws(fused)
    assert shown(fused) == kernels


def test_a_product_of_what_has_no_inputs():
    g = graph(
        """
        def g(x: f32[n, 4]):
            w: f32[4, 5] = full(shape=(4, 5), value=0.5, of="f32")
            y: f32[n, 5] = matmul(x, w)
            return {"y": y}
        """
    )
    fused = fuse(g)
    check_laws(fused)
    assert shown(fused) == ["full", "matmul"]


@pytest.mark.parametrize("rows", [Var("n"), 4, 1])
def test_what_is_padded_by_an_open_amount_is_made_where_a_reduction_reads_it(rows):
    w = Var("w")
    wide = maximum(w, 6)
    build = Builder("g")
    x, table = build.input("x", "u32", (rows, 1, w)), build.input("t", "u32", (85, 6))
    x = build.emit("pad", x, before=(0, 0, 0), after=(0, 0, wide - w))
    table = build.emit("pad", table, before=(0, 0), after=(0, wide - 6))
    same = build.emit("reduce_all", build.emit("equal", x, table), axes=(-1,))
    fused = fuse(build.finish({"y": same}))
    check_laws(fused)
    assert shown(fused) == ["pad pad equal reduce_all"]
