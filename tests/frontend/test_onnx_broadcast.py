"""Open sizes with names of their own: equal in the run, or one of them 1."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from tilewright.driver.compile import compile_observed
from tilewright.driver.kernels import KernelPool
from tilewright.frontend.onnx.importer import import_onnx
from tilewright.graph import sizes
from tilewright.graph.evaluate import evaluate
from tilewright.support.errors import CompileError, InputError


def model(nodes, inputs, **constants):
    """inputs: the shape of each f32 input; the last node's output is the model's."""
    fixed = [numpy_helper.from_array(np.asarray(v), n) for n, v in constants.items()]
    given = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs.items()]
    made = [helper.make_tensor_value_info(nodes[-1].output[0], TensorProto.FLOAT, None)]
    graph = helper.make_graph(nodes, "g", given, made, fixed)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def peer(proto) -> Any:
    return ort.InferenceSession(proto.SerializeToString())


def compiled(proto):
    return compile_observed(proto, cache=False, pool=KernelPool(1))


def sizes_of(graph):
    return [v.type_text for v in graph.inputs]


def check(proto, *runs, wrong=()):
    """Each run (the inputs' shapes) as onnxruntime has it; it too refuses those that are wrong."""
    run, session = compiled(proto), peer(proto)
    graph = import_onnx(proto)
    for k, shapes in enumerate((*runs, *wrong)):
        draw = np.random.default_rng(k).standard_normal
        arrays = [draw(s).astype(np.float32) for s in shapes]
        feed = dict(zip(graph.input_names, arrays, strict=True))
        if shapes in wrong:
            with pytest.raises(InputError):
                run(*arrays)
            with pytest.raises(InputError):
                evaluate(graph, arrays)
            continue
        (wanted,) = session.run(None, feed)
        for found in (run(*arrays), evaluate(graph, arrays)):
            np.testing.assert_allclose(found[0], wanted, rtol=1e-5, atol=1e-6)


def test_two_names():
    nodes = [
        helper.make_node("Add", ["a", "b"], ["c"]),
        helper.make_node("Mul", ["c", "a"], ["y"]),
    ]
    proto = model(nodes, {"a": ["n", 3, "k"], "b": ["m", 1, "l"]})
    assert import_onnx(proto).data_dependent == ()
    runs = [(2, 3, 5), (2, 1, 5)], [(1, 3, 5), (4, 1, 5)], [(6, 3, 1), (1, 1, 7)]
    check(proto, *runs, wrong=[[(2, 3, 5), (3, 1, 5)], [(2, 3, 4), (2, 1, 3)]])


def test_batches_of_a_product_and_the_rows_that_are_added():
    nodes = [helper.make_node("MatMul", ["a", "b"], ["y"])]
    runs = [(5, 3, 4), (5, 4, 2)], [(5, 3, 4), (1, 4, 2)], [(1, 3, 4), (6, 4, 2)]
    check(model(nodes, {"a": ["n", 3, 4], "b": ["m", 4, 2]}), *runs, wrong=[[(2, 3, 4), (3, 4, 2)]])
    two = model(nodes, {"a": ["n", "k", "q", 4], "b": ["m", "l", 4, "p"]})
    check(two, [(1, 5, 7, 4), (3, 1, 4, 9)], [(3, 1, 13, 4), (1, 5, 4, 19)])
    check(model(nodes, {"a": ["n", "k", "q", 4], "b": ["l", 4, "p"]}), [(2, 6, 1, 4), (6, 4, 1)])
    nodes = [helper.make_node("Gemm", ["a", "b", "c"], ["y"])]
    proto = model(nodes, {"a": ["n", 4], "b": [4, 3], "c": ["m", 3]})
    check(proto, [(5, 4), (4, 3), (5, 3)], [(5, 4), (4, 3), (1, 3)])


def test_three_names_and_a_choice():
    nodes = [
        helper.make_node("Less", ["a", "b"], ["less"]),
        helper.make_node("Where", ["less", "c", "b"], ["y"]),
    ]
    runs = [[(7,), (1,), (1,)], [(1,), (1,), (9,)], [(4,), (4,), (1,)]]
    check(model(nodes, {"a": ["p"], "b": ["q"], "c": ["r"]}), *runs, wrong=[[(4,), (1,), (3,)]])


def test_many_names():
    """The term for two names has each three times: for twelve of them it had no end."""
    names = [f"x{k}" for k in range(12)]
    node = helper.make_node("Sum", names, ["y"])
    proto = model([node], {name: [f"n{k}", "m"] for k, name in enumerate(names)})
    runs = [[(1 + 4 * (k % 3 == r), 3) for k in range(12)] for r in range(3)]
    check(proto, *runs, wrong=[[(1 + k % 3, 2) for k in range(12)]])


def test_one_axis_of_the_inputs_and_one_that_the_run_finds():
    """Whether rows may be one does not depend on what is known of the columns."""
    nodes = [
        helper.make_node("Shape", ["b"], ["like"]),
        helper.make_node("Expand", ["a", "like"], ["wide"]),
        helper.make_node("Add", ["c", "wide"], ["y"]),
    ]
    proto = model(nodes, {"a": [3, "k"], "b": [3, "l"], "c": ["n", "l"]})
    runs = [(3, 2), (3, 2), (3, 2)], [(3, 2), (3, 2), (1, 2)], [(3, 1), (3, 4), (1, 4)]
    check(proto, *runs, wrong=[[(3, 2), (3, 2), (2, 2)], [(3, 2), (3, 2), (3, 4)]])


def test_a_name_and_a_number():
    """n beside 5 is 1 or 5, and stays n in what else has it."""
    nodes = [
        helper.make_node("Add", ["a", "b"], ["c"]),
        helper.make_node("ReduceSum", ["a"], ["total"]),
        helper.make_node("Mul", ["c", "total"], ["y"]),
    ]
    proto = model(nodes, {"a": ["n", 3], "b": [5, 1]})
    assert sizes_of(import_onnx(proto)) == ["f32[n, 3]", "f32[5, 1]"]
    check(proto, [(5, 3), (5, 1)], [(1, 3), (5, 1)], wrong=[[(4, 3), (5, 1)], [(0, 3), (5, 1)]])
    several = model([helper.make_node("Sum", ["a", "b", "c"], ["y"])],
                    {"a": ["n"], "b": ["m"], "c": [4]})  # fmt: skip
    runs = [(1,), (4,), (4,)], [(4,), (1,), (4,)], [(1,), (1,), (4,)]
    check(several, *runs, wrong=[[(4,), (2,), (4,)]])


@pytest.mark.parametrize("said", ["?", "", "unk__17", "-1", "None"])
def test_names_that_say_nothing(said):
    """Two sizes called "?" are two."""
    nodes = [helper.make_node("MatMul", ["a", "b"], ["y"])]
    proto = model(nodes, {"a": [said, said], "b": [said, said]})
    assert sizes_of(import_onnx(proto)) == ["f32[a_0, a_1]", "f32[a_1, b_1]"]
    check(proto, [(5, 3), (3, 2)], [(1, 4), (4, 6)])
    if said and said != "-1":
        fixed = import_onnx(proto, shapes={said: 3})
        assert sizes_of(fixed) == ["f32[3, 3]", "f32[3, 3]"]
    assert sizes_of(import_onnx(proto, shapes={"b_1": 2})) == ["f32[a_0, a_1]", "f32[a_1, 2]"]


def test_a_chain_of_sums_of_many_names():
    """Each sum's size is as long as there are names in it: as nested quotients they filled
    memory."""
    count = 10
    nodes = [
        helper.make_node("Add", [f"s{k - 1}" if k > 1 else "x0", f"x{k}"], [f"s{k}"])
        for k in range(1, count)
    ]
    proto = model(nodes, {f"x{k}": [f"n{k}"] for k in range(count)})
    (y,) = import_onnx(proto).outputs
    assert len(sizes.text(y.shape[0])) < 30 * count
    one, other = [(1,)] * count, [(3,) if k % 3 else (1,) for k in range(count)]
    check(proto, one, other, [(0,), *one[1:]], wrong=[[*other[:-2], (2,), (3,)]])


def half(source, made):
    """Every other row: as many as an input's size, or what data decides, makes of it."""
    return [helper.make_node("Slice", [source, "first", "end", "first", "step"], [made])]


def positive(source, made):
    """The rows that data decides on."""
    column = [helper.make_node("ReduceMax", [source], [f"{made}_most"], axes=[1], keepdims=0)]
    column.append(helper.make_node("Greater", [f"{made}_most", "zero"], [f"{made}_is"]))
    return [*column, helper.make_node("Compress", [source, f"{made}_is"], [made], axis=0)]


def like(source, other, made):
    shape = helper.make_node("Shape", [other], [f"{other}_shape"])
    return [shape, helper.make_node("Expand", [source, f"{other}_shape"], [made])]


def joined(*names, op="Add"):
    return [helper.make_node(op, names, ["y"])]


def chosen(a, b):
    return [helper.make_node("Greater", [a, "zero"], ["is"]), *joined("is", b, a, op="Where")]


NUMBERS = {
    "first": np.array([0]),
    "end": np.array([1 << 40]),
    "step": np.array([2]),
    "zero": np.float32(0),
}
FOUND = [*positive("a", "k"), *positive("b", "l")]  # by data, both
OF_DATA = {
    "one made of the other's kind": [*FOUND, *half("k", "h"), *joined("h", "l")],
    "both": [*FOUND, *half("k", "h"), *half("l", "m"), *joined("h", "m")],
    "three": [*FOUND, *half("k", "h"), *half("h", "q"), *joined("q", "l", "k", op="Max")],
    "Expand by both": [*FOUND, *half("l", "m"), *like("k", "m", "y")],
    "Where of both": [*FOUND, *half("k", "h"), *chosen("h", "l")],
}
OF_INPUTS = {
    "two made": [*half("a", "h"), *half("b", "m"), *joined("h", "m")],
    "an input's own": [*half("a", "h"), *joined("h", "b")],
    "data": [*half("a", "h"), *positive("b", "l"), *joined("h", "l")],
    "made of data and an input's own": [*positive("a", "k"), *half("k", "h"), *joined("h", "b")],
    "Where": [*half("a", "h"), *half("b", "m"), *chosen("h", "m")],
    "Expand": [*half("a", "h"), *positive("b", "l"), *like("l", "h", "y")],
    "a chain": [*half("a", "h"), *half("b", "m"), *half("m", "q"),
                helper.make_node("Add", ["h", "m"], ["c"]), *joined("c", "q", op="Mul")],
}  # fmt: skip


def rows_beside(proto, counts) -> tuple[dict[str, np.ndarray], Any]:
    """So many rows, the first positive, and what onnxruntime gives; None: it refuses them."""
    draw = np.random.default_rng(counts).standard_normal
    feed = {name: draw((n, 3)).astype(np.float32) for name, n in zip("ab", counts, strict=True)}
    for x in feed.values():
        x[0] = abs(x[0])
    options = ort.SessionOptions()
    options.log_severity_level = 4
    session: Any = ort.InferenceSession(proto.SerializeToString(), options)
    try:
        return feed, session.run(None, feed)[0]
    except Exception:  # of a type of its own
        return feed, None


@pytest.mark.parametrize("case", OF_DATA)
def test_sizes_made_of_what_data_decides(case):
    """Whichever is 1, the other is what they broadcast to: nothing is gained by a guess."""
    proto = model(OF_DATA[case], {"a": ["n", 3], "b": ["m", 3]}, **NUMBERS)
    run, taken = compiled(proto), 0
    for counts in itertools.product((1, 2, 5, 8), (1, 3, 7)):
        feed, wanted = rows_beside(proto, counts)
        if wanted is None:
            with pytest.raises(InputError):
                run(*feed.values())
            continue
        taken += 1
        found = run(*feed.values())[0]
        assert found.shape == wanted.shape
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
    assert taken > 3


@pytest.mark.parametrize("case", OF_INPUTS | OF_DATA)
def test_code_for_fixed_sizes_takes_what_onnxruntime_takes(case):
    """That a size made of an input's is 1 and another is not, code for all sizes refuses."""
    proto = model((OF_INPUTS | OF_DATA)[case], {"a": ["n", 3], "b": ["m", 3]}, **NUMBERS)
    whole, told = import_onnx(proto), set()
    for counts in itertools.product((1, 2, 4), (1, 2, 5, 6)):
        feed, wanted = rows_beside(proto, counts)
        for shapes in (None, dict(zip("nm", counts, strict=True))):
            try:
                graph = whole if shapes is None else import_onnx(proto, shapes=shapes)
                found = evaluate(graph, [*feed.values()])[0]
            except (CompileError, InputError):
                assert wanted is None or shapes is None
                continue
            told.add(shapes is None)
            assert wanted is not None and found.shape == wanted.shape
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
    assert told == {True, False}


def test_batches_of_a_product_for_fixed_sizes():
    nodes = [*half("a", "h"), *half("b", "m"), *joined("h", "m", op="MatMul")]
    proto = model(nodes, {"a": ["n", 2, 3], "b": ["m", 3, 2]}, **NUMBERS)
    for n, m in ((1, 6), (6, 2), (5, 6)):
        arrays = [np.random.default_rng(n).standard_normal(s).astype(np.float32)
                  for s in ((n, 2, 3), (m, 3, 2))]  # fmt: skip
        wanted = arrays[0][::2] @ arrays[1][::2]
        run = compile_observed(proto, cache=False, pool=KernelPool(1), shapes={"n": n, "m": m})
        np.testing.assert_allclose(run(*arrays)[0], wanted, rtol=1e-5, atol=1e-6)
