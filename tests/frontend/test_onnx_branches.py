"""Branches that the run chooses: other ranks, other shapes, and what one of them must not do to the
other."""

from __future__ import annotations

import numpy as np
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from tilewright.driver.compile import compile_observed
from tilewright.driver.kernels import KernelPool
from tilewright.frontend.onnx.importer import import_onnx
from tilewright.support.errors import ImportFault, InputError

TYPES = {"float32": TensorProto.FLOAT, "int64": TensorProto.INT64, "bool": TensorProto.BOOL}
TRUE, FALSE = np.array(True), np.array(False)


def branch(nodes, name):
    given = helper.make_tensor_value_info(nodes[-1].output[0], TensorProto.FLOAT, None)
    return helper.make_graph(nodes, name, [], [given])


def model(nodes, inputs, outputs=("y",), **constants):
    """inputs: the dtype and the shape of each."""
    fixed = [numpy_helper.from_array(np.asarray(v), n) for n, v in constants.items()]
    given = [helper.make_tensor_value_info(n, TYPES[t], s) for n, (t, s) in inputs.items()]
    made = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in outputs]
    graph = helper.make_graph(nodes, "g", given, made, fixed)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def chosen(then, other, condition="c"):
    sides = {"then_branch": branch(then, "then"), "else_branch": branch(other, "other")}
    return helper.make_node("If", [condition], ["chosen"], name="if", **sides)


def draw(*shape):
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def check(proto, *runs):
    run = compile_observed(proto, cache=False, pool=KernelPool(1))
    session = ort.InferenceSession(proto.SerializeToString())
    names = [i.name for i in proto.graph.input]
    for arrays in runs:
        wanted = session.run(None, dict(zip(names, arrays, strict=True)))
        for found, right in zip(run(*arrays), wanted, strict=True):
            assert found.shape == right.shape
            np.testing.assert_allclose(found, right, rtol=1e-5, atol=1e-6)
    return run


SQUEEZE = [helper.make_node("Squeeze", ["x", "last"], ["squeezed"])]
SAME = [helper.make_node("Identity", ["x"], ["same"])]


def exported_squeeze(after):
    """squeeze(-1) as PyTorch's exporter writes it."""
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "at"], ["size"]),
        helper.make_node("Equal", ["size", "one"], ["c"]),
        chosen(SQUEEZE, SAME),
        *after,
    ]
    numbers = {"at": np.array(-1), "one": np.array(1), "last": np.array([-1])}
    return model(nodes, {"x": ("float32", ["n", "k"])}, **numbers)


def test_ranks_that_a_size_decides():
    after = [
        helper.make_node("Exp", ["chosen"], ["e"]),
        helper.make_node("Transpose", ["e"], ["t"]),
        helper.make_node("ReduceMax", ["t"], ["y"], keepdims=0),
    ]
    check(exported_squeeze(after), (draw(5, 1),), (draw(3, 4),), (draw(1, 1),))


def test_what_one_rank_alone_allows_is_asserted():
    """A product with columns needs the matrix; with a vector the run stops."""
    after = [helper.make_node("Softmax", ["chosen"], ["y"], axis=1)]
    run = compile_observed(exported_squeeze(after), cache=False, pool=KernelPool(1))
    x = draw(3, 4)
    wanted = np.exp(x) / np.exp(x).sum(1, keepdims=True)
    np.testing.assert_allclose(run(x)[0], wanted, rtol=1e-5)
    with pytest.raises(InputError, match="the condition of Softmax 'y'"):
        run(draw(5, 1))


def test_outputs_of_either_rank():
    nodes = [chosen(SQUEEZE, SAME), helper.make_node("Exp", ["chosen"], ["y"])]
    inputs = {"c": ("bool", []), "x": ("float32", ["n", 1])}
    proto = model(nodes, inputs, last=np.array([1]))
    run = check(proto, (TRUE, draw(6, 1)), (FALSE, draw(6, 1)), (TRUE, draw(1, 1)))
    assert [t.name for t in run.outputs] == ["y", "y.shape"]
    check(
        exported_squeeze([helper.make_node("Neg", ["chosen"], ["y"])]), (draw(5, 1),), (draw(3, 4),)
    )


def test_a_recurrence_behind_a_squeeze():
    """What a voice detector asks in each step: rows out of an axis that has to be 1 there, and a
    state whose batch has another name."""
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "at"], ["size"]),
        helper.make_node("Equal", ["size", "one"], ["c"]),
        chosen(SQUEEZE, SAME),
        helper.make_node("Unsqueeze", ["chosen", "first"], ["frames"]),
        helper.make_node(
            "LSTM", ["frames", "w", "r", "", "", "h", "h"], ["", "y", "cell"], hidden_size=3
        ),
    ]
    numbers = {"at": np.array(-1), "one": np.array(1), "last": np.array([-1])}
    numbers |= {"first": np.array([0]), "w": draw(1, 12, 4), "r": draw(1, 12, 3)}
    inputs = {"x": ("float32", ["b", 4, "k"]), "h": ("float32", [1, "n", 3])}
    proto = model(nodes, inputs, ("y", "cell"), **numbers)
    run = check(proto, (draw(2, 4, 1), draw(1, 2, 3)), (draw(5, 4, 1), draw(1, 5, 3)))
    for wrong in ((2, 4, 2), (2, 4, 0), (3, 4, 1)):
        with pytest.raises(InputError):
            run(draw(*wrong), draw(1, 2, 3))


def test_what_a_branch_drops_is_read_not_reduced():
    """An axis that has to be 1 where its branch is taken, and has none or more elsewhere."""
    squeeze = [
        helper.make_node("Greater", ["x", "zero"], ["above"]),
        helper.make_node("Squeeze", ["above", "last"], ["v"]),
        helper.make_node("Cast", ["v"], ["f"], to=TensorProto.FLOAT),
    ]
    total = [helper.make_node("ReduceSum", ["x", "last"], ["sum"], keepdims=0)]
    proto = model(
        [chosen(squeeze, total), helper.make_node("Neg", ["chosen"], ["y"])],
        {"c": ("bool", []), "x": ("float32", ["n", "k"])},
        last=np.array([1]),
        zero=np.float32(0),
    )
    run = check(proto, (TRUE, draw(5, 1)), *[(FALSE, draw(4, k)) for k in (0, 1, 3)])
    assert all("reduce_any" not in kernel.ops for kernel in run.manifest.kernels)
    with pytest.raises(InputError, match="whether axis 1 has size 1"):
        run(TRUE, draw(5, 2))


def test_a_condition_that_the_run_checks_is_known_from_there_on():
    """Softmax along axis 1 lets only matrices through, so what follows is a matrix too; and where
    nobody reads the softmax, the run still stops."""
    softmax = helper.make_node("Softmax", ["chosen"], ["s"], axis=1)
    sides = {
        "then_branch": branch([helper.make_node("Squeeze", ["s", "last"], ["a"])], "then"),
        "else_branch": branch([helper.make_node("Neg", ["s"], ["b"])], "other"),
    }
    again = helper.make_node("If", ["c"], ["y"], **sides)
    proto = exported_squeeze([softmax, again])
    run = check(proto, (draw(3, 4),), (draw(2, 7),))
    assert [t.name for t in run.outputs] == ["y"]
    assert "where" not in [node.op for node in import_onnx(proto).nodes]
    sides = {"then_branch": branch(SQUEEZE, "then"), "else_branch": branch(SAME, "other")}
    run = check(
        exported_squeeze([softmax, helper.make_node("If", ["c"], ["y"], **sides)]), (draw(3, 4),)
    )
    with pytest.raises(InputError, match="the condition of Softmax 's'"):
        run(draw(5, 1))


def test_a_branch_inside_of_one_of_the_same_condition():
    inner = chosen(SQUEEZE, SAME)
    nodes = [inner, helper.make_node("Exp", ["chosen"], ["e"])]
    sides = {
        "then_branch": branch(nodes, "then"),
        "else_branch": branch(
            [helper.make_node("ReduceSum", ["x", "last"], ["b"], keepdims=0)], "o"
        ),
    }
    proto = model(
        [helper.make_node("If", ["c"], ["y"], **sides)],
        {"c": ("bool", []), "x": ("float32", ["n", 1])},
        last=np.array([1]),
    )
    run = check(proto, (TRUE, draw(6, 1)), (FALSE, draw(6, 1)))
    assert [t.name for t in run.outputs] == ["y"]


@pytest.mark.parametrize("both", [True, False])
def test_sizes_that_every_branch_needs_equal(both):
    """They are one for the inputs; what one branch alone needs is asked where it is taken."""
    joined = [helper.make_node("Concat", ["x", "h"], ["t"], axis=1)]
    other = [
        helper.make_node("Exp", ["x"], ["e"]),
        helper.make_node("Concat", ["h" if both else "x", "e"], ["o"], axis=1),
    ]
    proto = model(
        [chosen(joined, other), helper.make_node("Neg", ["chosen"], ["y"])],
        {"c": ("bool", []), "x": ("float32", ["n", 3]), "h": ("float32", ["m", 3])},
    )
    run = check(proto, (TRUE, draw(4, 3), draw(4, 3)), (FALSE, draw(2, 3), draw(2, 3)))
    assert (run.inputs[1].shape == run.inputs[2].shape) is both
    assert (run.outputs[0].shape == ("n", 6)) is both
    with pytest.raises(InputError):
        run(TRUE, draw(4, 3), draw(2, 3))
    if not both:
        check(proto, (FALSE, draw(4, 3), draw(2, 3)))


def test_squeezing_what_the_run_finds_to_be_one():
    nodes = [helper.make_node("Squeeze", ["x"], ["s"]), helper.make_node("Exp", ["s"], ["y"])]
    runs = [(draw(*s),) for s in ((1, 3, 1, 4), (1, 1, 1, 4), (1, 1, 1, 1), (1, 5, 1, 1))]
    check(model(nodes, {"x": ("float32", [1, "n", 1, "m"])}), *runs)
    nodes = [nodes[0], helper.make_node("Transpose", ["s"], ["y"], perm=[1, 0])]
    run = check(model(nodes, {"x": ("float32", ["n", 1, 4])}), (draw(3, 1, 4),))
    with pytest.raises(InputError):
        run(draw(1, 1, 4))


@pytest.mark.parametrize(
    "then, constants, wrong",
    [
        ([helper.make_node("Add", ["x", "k"], ["t"])], {"k": draw(4, 3)}, draw(5, 3)),
        ([helper.make_node("MatMul", ["k", "x"], ["t"])], {"k": draw(2, 4)}, draw(5, 3)),
        ([helper.make_node("Reshape", ["x", "k"], ["t"])], {"k": np.array([2, 6])}, draw(5, 3)),
        ([helper.make_node("Reshape", ["x", "k"], ["t"])], {"k": np.array([2, -1])}, draw(7, 3)),
        ([helper.make_node("Concat", ["x", "k"], ["t"], axis=1)], {"k": draw(4, 2)}, draw(5, 3)),
        ([helper.make_node("Expand", ["x", "k"], ["t"])], {"k": np.array([4, 3])}, draw(5, 3)),
    ],
    ids=["add", "matmul", "reshape", "reshape-rest", "concat", "expand"],
)
def test_a_branch_that_is_not_taken_asks_nothing(then, constants, wrong):
    """Four rows are asked for in one branch; the other one takes any number."""
    total = helper.make_node("ReduceSum", ["t"], ["total"], keepdims=0)
    rest = [helper.make_node("ReduceMax", ["x"], ["most"], keepdims=0)]
    nodes = [chosen([*then, total], rest), helper.make_node("Exp", ["chosen"], ["y"])]
    inputs = {"c": ("bool", []), "x": ("float32", ["n", 3])}
    proto = model(nodes, inputs, **constants)
    run = check(proto, (TRUE, draw(4, 3)), (FALSE, draw(4, 3)), (FALSE, wrong))
    with pytest.raises(InputError):
        run(TRUE, wrong)


@pytest.mark.sampled
@pytest.mark.parametrize("has_branches", [True, False])
@pytest.mark.parametrize(
    "then, constants, shapes, fits, wrong",
    [
        ([helper.make_node("DepthToSpace", ["x"], ["t"], blocksize=2)], {},
         [[1, "c", 2, 2]], [(1, 8, 2, 2)], [(1, 6, 2, 2)]),
        ([helper.make_node("SpaceToDepth", ["x"], ["t"], blocksize=2)], {},
         [[1, 3, "h", "w"]], [(1, 3, 4, 2)], [(1, 3, 3, 2)]),
        ([helper.make_node("Einsum", ["x", "z"], ["t"], equation="ij,jk->ik")], {},
         [["n", "k"], ["m", 3]], [(4, 5), (5, 3)], [(4, 2), (3, 3)]),
        ([helper.make_node("Einsum", ["x", "z"], ["t"], equation="bij,kji->bk")], {},
         [[2, "n", "k"], [3, "m", "l"]], [(2, 4, 5), (3, 5, 4)], [(2, 4, 2), (3, 5, 2)]),
        ([helper.make_node("InstanceNormalization", ["x", "k", "k"], ["t"])], {"k": draw(6)},
         [[2, "c", 9]], [(2, 6, 9)], [(2, 4, 9)]),
        ([helper.make_node("SequenceConstruct", ["x", "z"], ["s"]),
          helper.make_node("ConcatFromSequence", ["s"], ["t"], axis=0)], {},
         [["n", 2], [3, "m"]], [(4, 2), (3, 2)], [(4, 2), (3, 5)]),
    ],
    ids=["blocks", "to-blocks", "sums", "two-sums", "channels", "sequence"],
)  # fmt: skip
def test_sizes_that_have_to_fit_where_they_are_read(
    then, constants, shapes, fits, wrong, has_branches
):
    """Sizes of the inputs that no symbol's meaning makes fit: the run is asked, in a branch only
    where it is taken."""
    nodes = [*then, helper.make_node("ReduceSum", ["t"], ["total"], keepdims=0)]
    rest = [helper.make_node("ReduceMax", ["x"], ["most"], keepdims=0)]
    inputs = dict(zip(["x", "z"], [("float32", s) for s in shapes], strict=False))
    if has_branches:
        inputs = {"c": ("bool", []), **inputs}
        nodes = [chosen(nodes, rest), helper.make_node("Exp", ["chosen"], ["y"])]
    else:
        nodes.append(helper.make_node("Exp", ["total"], ["y"]))
    given, bad = ([np.float32(0.1) * draw(*s) for s in some] for some in (fits, wrong))
    proto = model(nodes, inputs, **constants)
    first = ([TRUE], [FALSE]) if has_branches else ([],)
    run = check(proto, *([*c, *given] for c in first), *([*c, *bad] for c in first[1:]))
    with pytest.raises(InputError):
        run(*first[0], *bad)


def test_other_shapes():
    other = [helper.make_node("Concat", ["x", "x", "x"], ["longer"], axis=0)]
    nodes = [chosen(SAME, other), helper.make_node("Tanh", ["chosen"], ["y"])]
    inputs = {"c": ("bool", []), "x": ("float32", ["n", 2])}
    check(model(nodes, inputs), (TRUE, draw(4, 2)), (FALSE, draw(4, 2)))


def test_an_lstm_whose_rank_is_wrong_in_one_branch():
    """Two rates of a speech model: only one of them fits what comes in."""
    w, r = draw(1, 28, 5), draw(1, 28, 7)

    def side(source, made):
        lstm = helper.make_node("LSTM", [source, "w", "r"], ["", made], hidden_size=7)
        return [lstm, helper.make_node("Identity", [made], [made + "out"])]

    deeper = [helper.make_node("Unsqueeze", ["x", "first"], ["deep"]), *side("deep", "b")]
    nodes = [
        helper.make_node("Equal", ["rate", "high"], ["c"]),
        chosen(side("x", "a"), deeper),
        helper.make_node("Relu", ["chosen"], ["y"]),
    ]
    inputs = {"rate": ("int64", []), "x": ("float32", ["time", "batch", 5])}
    constants = {"w": w, "r": r, "first": np.array([0]), "high": np.array(16000)}
    run = compile_observed(model(nodes, inputs, **constants), cache=False, pool=KernelPool(1))
    alone = model([*side("x", "a"), helper.make_node("Relu", ["aout"], ["y"])], inputs, **constants)
    session, x = ort.InferenceSession(alone.SerializeToString()), draw(3, 2, 5)
    (wanted,) = session.run(None, {"rate": np.array(16000), "x": x})
    np.testing.assert_allclose(run(np.array(16000), x)[0], wanted, rtol=1e-5, atol=1e-6)
    with pytest.raises(InputError, match="must have rank 3"):
        run(np.array(8000), x)


def test_branches_inside_branches():
    inner = [
        helper.make_node("Less", ["k", "x"], ["less"]),
        helper.make_node("Cast", ["less"], ["many"], to=TensorProto.FLOAT),
        helper.make_node("ReduceMax", ["many"], ["some"], keepdims=0),
        helper.make_node("Cast", ["some"], ["d"], to=TensorProto.BOOL),
        helper.make_node(
            "If", ["d"], ["deep"],
            then_branch=branch([helper.make_node("Add", ["x", "k"], ["added"])], "added"),
            else_branch=branch([helper.make_node("Neg", ["x"], ["negated"])], "negated"),
        ),
    ]  # fmt: skip
    nodes = [chosen(inner, SAME), helper.make_node("Exp", ["chosen"], ["y"])]
    inputs = {"c": ("bool", []), "x": ("float32", ["n", 3])}
    low, high = -np.ones((4, 3), np.float32), 5 + draw(4, 3)
    proto = model(nodes, inputs, k=draw(4, 3) * 0)
    run = check(proto, (TRUE, low), (TRUE, high), (FALSE, low), (FALSE, draw(5, 3)))
    with pytest.raises(InputError):
        run(TRUE, draw(5, 3))


def test_two_branches_that_both_fail_are_refused():
    bad = [helper.make_node("Softmax", ["x"], ["t"], axis=3)]
    nodes = [chosen(bad, bad), helper.make_node("Exp", ["chosen"], ["y"])]
    with pytest.raises(ImportFault, match="axis 3"):
        import_onnx(model(nodes, {"c": ("bool", []), "x": ("float32", ["n", 3])}))


CUTS = {
    "pad": [helper.make_node("Pad", ["v", "less"], ["r"])],
    "conv": [helper.make_node("Conv", ["v", "w"], ["q"]), helper.make_node("Relu", ["q"], ["r"])],
    "pool": [helper.make_node("MaxPool", ["v"], ["r"], kernel_shape=[3, 3])],
}


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("cut", CUTS)
def test_sizes_that_only_one_branch_needs(cut, whole):
    """An image may be smaller than a window that the branch not taken has, and what lies beside it
    in memory keeps its content. whole: the branches give images of two sizes."""
    then, other = [*CUTS[cut]], [helper.make_node("Neg", ["v"], ["m"])]
    if not whole:
        then.append(helper.make_node("ReduceSum", ["r"], ["s"], keepdims=0))
        other = [helper.make_node("ReduceMax", ["v"], ["m"], keepdims=0)]
    nodes = [
        helper.make_node("Exp", ["x"], ["v"]),
        helper.make_node("Softmax", ["v"], ["beside"]),
        chosen(then, other),
        helper.make_node("CumSum", ["beside", "axis"], ["z"]),
    ]
    less, w = np.array([0, 0, -3, 0, 0, 0, 0, -1]), draw(2, 2, 5, 2)
    given = {"c": ("bool", []), "x": ("float32", [1, 2, "h", "w_"])}
    proto = model(nodes, given, ("chosen", "z"), less=less, axis=np.array(2), w=w)
    small = [(FALSE, draw(1, 2, *s)) for s in ((1, 1), (2, 9), (9, 1))]
    run = check(proto, *small, (TRUE, draw(1, 2, 7, 8)), (FALSE, draw(1, 2, 7, 8)))
    with pytest.raises(InputError, match="the size h"):
        run(TRUE, draw(1, 2, 1, 8))
