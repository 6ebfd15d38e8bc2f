"""Loops whose states change their sizes, or whose bodies have operators that are kernels
themselves: against onnxruntime, at several sizes, with none and with one position too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from onnx import helper

from tests.frontend.test_onnx_loops import NO, YES, B, F, I, agree, f, node, number
from tilewright.driver.compile import compile_observed
from tilewright.frontend.onnx import import_onnx
from tilewright.graph.specialise import specialise
from tilewright.support.errors import InputError

KEEP = node("Identity", "c", "on")
ROUNDS = (0, 1, 5)


def typed(name: str, of: int, *dims: int | str | None) -> Any:
    return helper.make_tensor_value_info(name, of, list(dims))


def loop(body: Sequence[Any], states: Sequence[Any], results: Sequence[Any], **names: str) -> Any:
    """A Loop: what its body takes and gives beside the round and the condition."""
    given = [typed("i", I), typed("c", B), *states]
    inner = helper.make_graph(list(body), "body", given, [typed("on", B), *results])
    return node("Loop", names["inputs"], names["outputs"], body=inner)


def model(nodes: Sequence[Any], inputs: Sequence[Any], **outputs: int) -> Any:
    results = [typed(name, of, None) for name, of in outputs.items()]
    for entry in results:
        entry.type.tensor_type.ClearField("shape")
    given = [typed("n", I), typed("go", B), *inputs]
    graph = helper.make_graph(list(nodes), "g", given, results)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)


def counts() -> list[tuple[np.ndarray, np.ndarray]]:
    return [(np.array(n), go) for n in ROUNDS for go in (YES, NO)]


def test_a_state_that_grows_by_a_row() -> None:
    rows = [KEEP, node("Concat", "s row", "more", axis=0)]
    grown = loop(rows, [typed("s", F, None, 3)], [typed("more", F, None, 3)],
                 inputs="n go x", outputs="y")  # fmt: skip
    proto = model([grown], [typed("x", F, "k", 3), typed("row", F, 1, 3)], y=F)
    agree(proto, *((*c, f(k, 3), f(1, 3)) for c in counts() for k in (0, 1, 4)))
    graph = specialise(import_onnx(proto), {"k": 2})
    made = compile_observed(graph, cache=False)(np.array(3), YES, x := f(2, 3), row := f(1, 3))
    np.testing.assert_array_equal(made[0], np.concatenate([x, row, row, row]))


def test_a_state_of_a_known_size_that_grows() -> None:
    rows = [KEEP, node("Concat", "s row", "more", axis=0)]
    grown = loop(rows, [typed("s", F, None, 3)], [typed("more", F, None, 3)],
                 inputs="n go x", outputs="y")  # fmt: skip
    proto = model([grown], [typed("x", F, 2, 3), typed("row", F, 1, 3)], y=F)
    agree(proto, *((*c, f(2, 3), f(1, 3)) for c in counts()))


def test_a_state_that_doubles_and_what_its_rounds_give() -> None:
    rows = [KEEP, node("Concat", "s s", "more", axis=0), node("ReduceSum", "more", "r", keepdims=0)]
    grown = loop(rows, [typed("s", F, None)], [typed("more", F, None), typed("r", F)],
                 inputs="n go x", outputs="y sums")  # fmt: skip
    proto = model([grown], [typed("x", F, "k")], y=F, sums=F)
    agree(proto, *((*c, f(k)) for c in counts() for k in (0, 1, 3)))


def test_sizes_that_no_number_holds() -> None:
    """There are no elements, so nothing else ends it."""
    rows = [KEEP, node("Concat", "s s", "more", axis=1)]
    grown = loop(rows, [typed("s", F, None, None)], [typed("more", F, None, None)],
                 inputs="n go x", outputs="y")  # fmt: skip
    run = compile_observed(model([grown], [typed("x", F, "k", "m")], y=F), cache=False)
    with pytest.raises(InputError, match="the sizes of the states of the loop"):
        run(np.array(90), YES, f(0, 1))


def test_greedy_search() -> None:
    """Tokens are put behind one another until the last one is the end."""
    body = [
        node("Gather", "table tokens", "rows", axis=0),
        node("ReduceSum", "rows positions", "sum", keepdims=0),
        node("MatMul", "sum weights", "scores"),
        node("ArgMax", "scores", "next", axis=1, keepdims=1),
        node("Concat", "tokens next", "more", axis=1),
        node("Equal", "next end", "ends"),
        node("Not", "ends", "goes"),
        node("Squeeze", "goes", "on"),
    ]
    search = loop(body, [typed("tokens", I, None, None)], [typed("more", I, None, None)],
                  inputs="n go first", outputs="all")  # fmt: skip
    constants = [number("end", 7), node("Constant", "", "positions", value_ints=[1])]
    inputs = [typed("first", I, 1, "t"), typed("table", F, 11, 6), typed("weights", F, 6, 11)]
    proto = model([*constants, search], inputs, all=I)
    tokens = np.array([[3, 9, 1, 2]])
    agree(proto, *((np.array(n), YES, tokens[:, :k], f(11, 6), f(6, 11))
                   for n in (0, 3, 9) for k in (1, 4)))  # fmt: skip


def test_a_loop_without_a_trip_count_whose_state_shrinks() -> None:
    body = [
        node("Slice", "s one far", "less"),
        node("Shape", "less", "left"),
        node("Greater", "left two", "many"),
        node("Squeeze", "many", "on"),
    ]
    constants = [node("Constant", "", "one", value_ints=[1]),
                 node("Constant", "", "two", value_ints=[2]),
                 node("Constant", "", "far", value_ints=[1000])]  # fmt: skip
    shrink = loop(body, [typed("s", F, None)], [typed("less", F, None)],
                  inputs="most go x", outputs="y")  # fmt: skip
    shrink.input[0] = ""
    proto = model([*constants, shrink], [typed("x", F, "k")], y=F)
    agree(proto, *((np.array(0), go, f(k)) for go in (YES, NO) for k in (1, 3, 10)))


def test_convolutions_and_pools_in_a_loop() -> None:
    """Their weights, which are constants, are packed as anywhere else."""
    weights = helper.make_tensor("w", F, (8, 8, 3, 3), f(8, 8, 3, 3).ravel() / 4)
    body = [
        KEEP,
        node("Conv", "s w", "wide", pads=[1, 1, 1, 1]),
        node("Relu", "wide", "up"),
        node("MaxPool", "up", "less", kernel_shape=[2, 2]),
    ]
    blur = loop(body, [typed("s", F, 1, 8, None, None)], [typed("less", F, 1, 8, None, None)],
                inputs="n go x", outputs="y")  # fmt: skip
    proto = model([blur], [typed("x", F, 1, 8, "h", "w_")], y=F)
    proto.graph.initializer.append(weights)
    agree(proto, *((np.array(n), YES, f(1, 8, *s)) for n in (0, 1, 3) for s in ((5, 5), (9, 6))))


def test_states_whose_rank_the_first_round_makes() -> None:
    """A number stands for what there is not yet: one is never read, and one is added to rows."""
    body = [
        node("Add", "s x", "t"),
        node("Neg", "t", "m"),
        node("Cast", "i", "f", to=F),
        node("Add", "x f", "row"),
        node("ReduceMax", "t", "most", keepdims=0),
        node("Less", "most six", "on"),
    ]
    grown = loop(body, [typed("s", F, "a"), typed("u", F, "b")],
                 [typed("t", F, "a"), typed("m", F, "b"), typed("row", F, "k")],
                 inputs="n go zero one", outputs="y z rows")  # fmt: skip
    numbers = {"zero": 0.0, "one": 1.0, "six": 6.0}
    numbers = [node("Constant", "", name, value_float=v) for name, v in numbers.items()]
    proto = model([*numbers, grown], [typed("x", F, "k")], y=F, z=F, rows=F)
    cases = [(np.array(rounds), YES, abs(f(k)) + 1) for rounds in (1, 2, 300) for k in (1, 5)]
    agree(proto, *cases)
    exe = compile_observed(import_onnx(proto), cache=False)
    for rounds, go in ((0, YES), (3, NO)):
        with pytest.raises(InputError, match="a first round"):
            exe(np.array(rounds), go, f(5))


def test_states_that_every_round_passes_on_are_computed_with_once() -> None:
    """A weight that is carried through the rounds is read from around them, transposed once."""
    body = [
        node("Transpose", "w", "t", perm=[1, 0]),
        node("MatMul", "s t", "m"),
        node("Concat", "s m", "more", axis=0),
        node("Identity", "w", "same"),
        node("Identity", "same", "kept"),
        KEEP,
    ]
    grown = loop(body, [typed("w", F, 3, 3), typed("s", F, None, 3)],
                 [typed("kept", F, 3, 3), typed("more", F, None, 3)],
                 inputs="n go weight x", outputs="v y")  # fmt: skip
    given = [typed("weight", F, 3, 3), typed("x", F, "k", 3)]
    proto = model([grown], given, v=F, y=F)
    agree(proto, *((np.array(n), YES, f(3, 3), f(2, 3)) for n in (0, 1, 3)))
    nodes = {node.op: node for node in import_onnx(proto).nodes}
    assert "transpose" in nodes and nodes["while_loop"]["states"] == 1
    assert " transpose(" not in nodes["while_loop"]["body"]


def test_operators_that_are_kernels_themselves() -> None:
    body = [
        KEEP,
        node("Add", "i one", "k"),
        node("Reshape", "k line", "count"),
        node("TopK", "x count", "best positions"),
        node("Concat", "s best", "more", axis=0),
    ]
    constants = [number("one", 1), node("Constant", "", "line", value_ints=[1])]
    best = loop(body, [typed("s", F, None)], [typed("more", F, None)],
                inputs="n go s0", outputs="y")  # fmt: skip
    proto = model([*constants, best], [typed("s0", F, 1), typed("x", F, 10)], y=F)
    agree(proto, *((np.array(n), YES, f(1), f(10)) for n in ROUNDS))
    exe = compile_observed(import_onnx(proto), cache=False)
    times = exe.profile(np.array(3), YES, f(1), f(10), seconds=0).kernels
    assert {3.0} <= {k.launches for k in times}  # kernels whose sizes only a round knows, too


def test_loops_that_grow_inside_each_other_and_in_branches() -> None:
    rows = [node("Identity", "c2", "on2"), node("Concat", "q u", "q2", axis=0)]
    inner = helper.make_graph(rows, "inner", [typed("j", I), typed("c2", B), typed("q", F, None)],
                              [typed("on2", B), typed("q2", F, None)])  # fmt: skip
    body = [KEEP, node("ReduceSum", "s", "u", keepdims=1), node("Loop", "i c s", "sx", body=inner),
            node("Mul", "sx half", "more")]  # fmt: skip
    outer = loop(body, [typed("s", F, None)], [typed("more", F, None)],
                 inputs="n go x", outputs="y1")  # fmt: skip
    taken = helper.make_graph([outer], "taken", [], [typed("y1", F, None)])
    other = helper.make_graph([node("Neg", "x", "y2")], "other", [], [typed("y2", F, None)])
    choice = node("If", "p", "y", then_branch=taken, else_branch=other)
    half = node("Constant", "", "half", value_float=0.5)
    proto = model([half, choice], [typed("p", B), typed("x", F, "k")], y=F)
    agree(proto, *((*c, p, f(k)) for c in counts() for p in (YES, NO) for k in (0, 1, 3)))


@pytest.mark.parametrize("back", [0, 1])
def test_a_scan_whose_steps_sort(back: int) -> None:
    body = [node("TopK", "row two", "best positions"), node("Add", "s best", "s_new"),
            node("Concat", "s best", "both", axis=0)]  # fmt: skip
    inner = helper.make_graph(body, "body", [typed("s", F, 2), typed("row", F, 5)],
                              [typed("s_new", F, 2), typed("both", F, 4)])  # fmt: skip
    scan = node("Scan", "s0 x", "last all", body=inner, num_scan_inputs=1,
                scan_input_directions=[back])  # fmt: skip
    two = node("Constant", "", "two", value_ints=[2])
    graph = helper.make_graph([two, scan], "g", [typed("s0", F, 2), typed("x", F, "t", 5)],
                              [typed("last", F, 2), typed("all", F, None, None)])  # fmt: skip
    imports = [helper.make_opsetid("", 19)]
    proto = helper.make_model(graph, opset_imports=imports, ir_version=9)
    agree(proto, *((f(2), f(t, 5)) for t in (1, 2, 7)))
    assert states_of(proto) == 1


def states_of(proto: Any) -> int:
    """How many states its loop has, with the rows that grow from round to round."""
    (node,) = [n for n in import_onnx(proto).nodes if n.op == "while_loop"]
    return node["states"]


def test_rows_are_written_where_they_stay_if_it_is_known_how_many_there_are() -> None:
    """Where a condition may end the loop, they are states that grow."""
    body = [node("TopK", "s two", "best at", axis=1), node("Concat", "s best", "both", axis=1),
            node("ReduceSum", "both", "sum", keepdims=0)]  # fmt: skip
    two = node("Constant", "", "two", value_ints=[2])
    for last, states in ((KEEP, 1), (node("Equal", "sum sum", "on"), 3)):
        rounds = loop([*body, last], [typed("s", F, None, None)],
                      [typed("both", F, None, None), typed("best", F, None, 2), typed("sum", F)],
                      inputs="n go x", outputs="last bests sums")  # fmt: skip
        rounds.input[1] = ""
        proto = model([two, rounds], [typed("x", F, "b", 2)], last=F, bests=F, sums=F)
        assert states_of(proto) == states
        agree(proto, *((np.array(n), YES, f(b, 2)) for n in ROUNDS[1:] for b in (1, 3)))


def test_states_of_data_dependent_sizes_that_are_transposed_and_rows_of_such_shapes() -> None:
    grow = [KEEP, node("Concat", "s s", "more", axis=1)]
    wide = loop(grow, [typed("s", F, 2, None)], [typed("more", F, 2, None)],
                inputs="n go x", outputs="y")  # fmt: skip
    turn = [node("Identity", "c", "on"), node("Transpose", "q", "t"),
            node("Softmax", "t", "soft", axis=-1), node("ReduceSum", "soft", "sum", keepdims=1),
            node("Expand", "sum ones", "row")]  # fmt: skip
    back = loop(turn, [typed("q", F, None, None)], [typed("soft", F, None, None),
                  typed("row", F, None, None)], inputs="m go y", outputs="z rows")  # fmt: skip
    shape = [node("Shape", "y", "ones")]
    proto = model([wide, *shape, back], [typed("m", I), typed("x", F, 2, "k")], y=F, z=F, rows=F)
    runs = [(np.array(n), YES, np.array(m), f(2, k))
            for n in (0, 2) for m in (1, 2, 3) for k in (1, 3)]  # fmt: skip
    agree(proto, *runs)
