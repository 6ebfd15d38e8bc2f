"""Trees, labels, n-grams, determinants and gradients, compiled: against the reference evaluator,
NumPy and torch."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnxruntime import InferenceSession

from tilewright.driver.compile import compile_observed
from tilewright.driver.kernels import KernelPool
from tilewright.support.errors import ImportFault

POOL = KernelPool(1)  # kernels are compiled in this process: they are few and small
ML, TRAINING = "ai.onnx.ml", "ai.onnx.preview.training"
random = np.random.default_rng(5)


def model(nodes, arrays, outputs, ml=3):
    """A model of nodes; outputs: name → element type."""
    inputs = []
    for name, a in arrays.items():
        text = a.dtype == object
        kind = TensorProto.STRING if text else helper.np_dtype_to_tensor_dtype(a.dtype)
        inputs.append(helper.make_tensor_value_info(name, kind, a.shape))
    results = [helper.make_tensor_value_info(n, t, None) for n, t in outputs.items()]
    graph = helper.make_graph(nodes, "g", inputs, results)
    imports = [helper.make_opsetid("", 20), helper.make_opsetid(ML, ml)]
    imports.append(helper.make_opsetid(TRAINING, 1))
    return helper.make_model(graph, opset_imports=imports, ir_version=9)


def run(m, arrays):
    return compile_observed(m, cache=False, pool=POOL)(*arrays.values())


def agree(nodes, arrays, outputs, ml=3):
    m = model(nodes, arrays, outputs, ml)
    for a, b in zip(run(m, arrays), ReferenceEvaluator(m).run(None, arrays), strict=True):
        if a.dtype.kind in "fc":
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
        else:
            np.testing.assert_array_equal(a, b)


def forest(trees, depth, features, targets, what):
    """Attributes of random trees, which are not equally deep everywhere."""
    made = {k: [] for k in ("treeids", "nodeids", "modes", "featureids", "values", "truenodeids",
                            "falsenodeids", "missing_value_tracks_true")}  # fmt: skip
    leaves = {k: [] for k in ("treeids", "nodeids", "ids", "weights")}
    for tree in range(trees):
        count, queue = 1, [(0, 0)]
        while queue:
            node, level = queue.pop(0)
            inner = level < depth and (level == 0 or random.random() < 0.7)
            children = (count, count + 1) if inner else (0, 0)
            row = (tree, node, random.choice(["BRANCH_LEQ", "BRANCH_GT"]) if inner else "LEAF",
                   int(random.integers(features)), float(random.normal()), *children,
                   int(random.integers(2)))  # fmt: skip
            for key, value in zip(made, row, strict=True):
                made[key].append(value)
            if inner:
                queue += [(c, level + 1) for c in children]
                count += 2
                continue
            for key, value in zip(leaves, (tree, node, int(random.integers(targets)),
                                           float(random.normal())), strict=True):  # fmt: skip
                leaves[key].append(value)
    return {f"nodes_{k}": v for k, v in made.items()} | {
        f"{what}_{k}": v for k, v in leaves.items()
    }


@pytest.mark.parametrize("how", ["SUM", "AVERAGE", "MIN", "MAX"])
def test_regressor(how):
    attributes = forest(1 if how in ("MIN", "MAX") else 5, 4, 3, 1, "target")
    node = helper.make_node(
        "TreeEnsembleRegressor", ["x"], ["y"], domain=ML, n_targets=1, aggregate_function=how,
        base_values=[0.5], **attributes,
    )  # fmt: skip
    x = random.normal(0, 1, (40, 3)).astype(np.float32)
    agree([node], {"x": x}, {"y": TensorProto.FLOAT})


@pytest.mark.parametrize("post", ["NONE", "SOFTMAX", "LOGISTIC"])
def test_classifier(post):
    node = helper.make_node(
        "TreeEnsembleClassifier", ["x"], ["label", "score"], domain=ML,
        classlabels_strings=["one", "two", "three"], post_transform=post,
        **forest(4, 3, 4, 3, "class"),
    )  # fmt: skip
    x = random.normal(0, 1, (30, 4)).astype(np.float32)
    agree([node], {"x": x}, {"label": TensorProto.STRING, "score": TensorProto.FLOAT})


@pytest.mark.parametrize("mode", ["BRANCH_LEQ", "BRANCH_GTE"])
def test_many_trees_of_one_rule_and_missing_features(mode):
    """One test for all nodes; more trees than are read in any time that grows with their square."""
    attributes = forest(2000, 4, 5, 2, "target")
    inner = np.array(attributes["nodes_modes"]) != "LEAF"
    attributes["nodes_modes"] = np.where(inner, mode, "LEAF").tolist()
    if mode == "BRANCH_LEQ":
        attributes["nodes_missing_value_tracks_true"] = [0] * len(inner)
    node = helper.make_node("TreeEnsembleRegressor", ["x"], ["y"], domain=ML, n_targets=2,
                            **attributes)  # fmt: skip
    x = random.normal(0, 1, (7, 5)).astype(np.float32)
    x[random.random(x.shape) < 0.3] = np.nan
    m = model([node], {"x": x}, {"y": TensorProto.FLOAT})
    (theirs,) = InferenceSession(m.SerializeToString()).run(None, {"x": x})
    np.testing.assert_allclose(run(m, {"x": x})[0], theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("how", ["SUM", "MIN", "MAX"])
def test_a_leaf_that_names_a_target_twice(how):
    leaves = {"treeids": [0] * 6, "nodeids": [1, 2, 1, 2, 1, 2], "ids": [0, 1, 0, 1, 1, 0]}
    attributes = {f"target_{k}": v for k, v in leaves.items()}
    node = helper.make_node(
        "TreeEnsembleRegressor", ["x"], ["y"], domain=ML, n_targets=2, aggregate_function=how,
        nodes_treeids=[0, 0, 0], nodes_nodeids=[0, 1, 2], nodes_featureids=[0, 0, 0],
        nodes_modes=["BRANCH_NEQ", "LEAF", "LEAF"], nodes_values=[0.5, 0.0, 0.0],
        nodes_truenodeids=[1, 0, 0], nodes_falsenodeids=[2, 0, 0],
        target_weights=[*map(float, random.normal(size=6))], **attributes,
    )  # fmt: skip
    x = np.array([[0.5], [np.nan], [np.inf], [-1]], np.float32)
    m = model([node], {"x": x}, {"y": TensorProto.FLOAT})
    (theirs,) = InferenceSession(m.SerializeToString()).run(None, {"x": x})
    np.testing.assert_allclose(run(m, {"x": x})[0], theirs, rtol=1e-6)


def with_members(count, goes_round=False):
    """The root asks whether a feature is one of so many numbers, below are 31 nodes."""
    inner, leaves = 31, np.arange(33)
    children = 2 * np.arange(inner)[:, None] + [1, 2]
    is_leaf = children >= inner
    yes, no = np.where(is_leaf, children - inner, children + 1).T.tolist()
    yes_leaf, no_leaf = is_leaf.T.astype(int).tolist()
    if goes_round:
        yes[3] = 1
    modes = np.array([6] + [0] * inner, np.uint8)
    splits = np.array([0, *random.normal(size=inner)], np.float32)
    return helper.make_node(
        "TreeEnsemble", ["x"], ["y"], domain=ML, n_targets=1, tree_roots=[0],
        nodes_featureids=[0, *[1] * inner], nodes_modes=numpy_helper.from_array(modes),
        nodes_splits=numpy_helper.from_array(splits), nodes_truenodeids=[1, *yes],
        nodes_falsenodeids=[32, *no], nodes_trueleafs=[0, *yes_leaf],
        nodes_falseleafs=[1, *no_leaf], leaf_targetids=[0] * 33,
        leaf_weights=numpy_helper.from_array(leaves.astype(np.float32)),
        membership_values=numpy_helper.from_array(np.array([*range(count), np.nan], np.float32)),
    )  # fmt: skip


def test_all_members_lead_to_the_same_nodes():
    x = random.normal(0, 1, (50, 2)).astype(np.float32)
    x[:, 0] = random.integers(-3, 50, 50)
    m = model([with_members(40)], {"x": x}, {"y": TensorProto.FLOAT}, ml=5)
    (theirs,) = InferenceSession(m.SerializeToString()).run(None, {"x": x})
    np.testing.assert_array_equal(run(m, {"x": x})[0], theirs)


def test_nodes_that_lead_round_are_no_tree():
    x = np.zeros((1, 2), np.float32)
    m = model([with_members(3, goes_round=True)], {"x": x}, {"y": TensorProto.FLOAT}, ml=5)
    with pytest.raises(ImportFault, match="do not make up trees"):
        run(m, {"x": x})


def test_a_node_that_is_missing_is_named():
    attributes = forest(2, 2, 3, 1, "target")
    attributes["nodes_truenodeids"][0] = 99
    node = helper.make_node("TreeEnsembleRegressor", ["x"], ["y"], domain=ML, **attributes)
    x = np.zeros((1, 3), np.float32)
    with pytest.raises(ImportFault, match="tree 0 has no node 99"):
        run(model([node], {"x": x}, {"y": TensorProto.FLOAT}), {"x": x})


def test_labels_there_and_back():
    words = np.array([["b", "a", "?"], ["c", "", "b"]], object)
    to = helper.make_node("LabelEncoder", ["x"], ["k"], domain=ML, keys_strings=["a", "b", "c"],
                          values_int64s=[7, 8, 9], default_int64=-3)  # fmt: skip
    back = helper.make_node("LabelEncoder", ["k"], ["y"], domain=ML, keys_int64s=[9, 8, 7],
                            values_strings=["c", "b", "a"], default_string="none")  # fmt: skip
    m = model([to, back], {"x": words}, {"k": TensorProto.INT64, "y": TensorProto.STRING})
    k, y = run(m, {"x": words})
    np.testing.assert_array_equal(k, [[8, 7, -3], [9, -3, 8]])
    np.testing.assert_array_equal(y, [["b", "a", "none"], ["c", "none", "b"]])


@pytest.mark.parametrize("mode", ["TF", "IDF", "TFIDF"])
def test_ngrams(mode):
    pool = [0, 1, 2, 3, 0, 0, 1, 2, 2, 1, 3]
    node = helper.make_node(
        "TfIdfVectorizer", ["x"], ["y"], mode=mode, min_gram_length=1, max_gram_length=3,
        max_skip_count=2, ngram_counts=[0, 4, 8], ngram_indexes=[3, 0, 1, 2, 5, 4, 6],
        pool_int64s=pool, weights=[0.5, 1, 2, 3, 4, 5, 6],
    )  # fmt: skip
    x = random.integers(0, 5, (3, 9))
    agree([node], {"x": x}, {"y": TensorProto.FLOAT})


def test_ngrams_of_open_rows():
    node = helper.make_node(
        "TfIdfVectorizer", ["x"], ["y"], mode="TF", min_gram_length=1, max_gram_length=3,
        max_skip_count=2, ngram_counts=[0, 2, 4], ngram_indexes=[0, 1, 2, 3],
        pool_int64s=[0, 1, 0, 0, 1, 2, 1],
    )  # fmt: skip
    given = [helper.make_tensor_value_info("x", TensorProto.INT64, ["n", "m"])]
    made = [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 4])]
    graph = helper.make_graph([node], "g", given, made)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    exe = compile_observed(proto, cache=False)
    peer = InferenceSession(proto.SerializeToString())
    for words in (1, 2, 3, 4, 9):
        x = random.integers(0, 3, (2, words))
        np.testing.assert_array_equal(exe(x)[0], peer.run(None, {"x": x})[0])


def test_ngrams_of_words():
    node = helper.make_node(
        "TfIdfVectorizer", ["x"], ["y"], mode="TF", min_gram_length=1, max_gram_length=2,
        max_skip_count=0, ngram_counts=[0, 2], ngram_indexes=[0, 1, 2],
        pool_strings=["a", "bb", "a", "a"],
    )  # fmt: skip
    x = np.array([["a", "a", "bb", "a", "?"], ["", "bb", "bb", "a", "a"]], object)
    m = model([node], {"x": x}, {"y": TensorProto.FLOAT})
    np.testing.assert_array_equal(run(m, {"x": x})[0], [[3, 1, 1], [2, 2, 1]])


@pytest.mark.parametrize("shape", [(1, 1), (3, 3), (2, 4, 5, 5)])
def test_determinant(shape):
    x = random.normal(0, 1, shape).astype(np.float32)
    m = model([helper.make_node("Det", ["x"], ["y"])], {"x": x}, {"y": TensorProto.FLOAT})
    expected = np.linalg.det(x.astype(np.float64))
    np.testing.assert_allclose(run(m, {"x": x})[0], expected, rtol=1e-4, atol=1e-5)


def test_gradient_of_a_small_network():
    arrays = {
        "x": random.normal(0, 1, (5, 4)).astype(np.float32),
        "w": random.normal(0, 1, (4, 3)).astype(np.float32),
        "b": random.normal(0, 1, (3,)).astype(np.float32),
    }
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"]),
        helper.make_node("Add", ["p", "b"], ["q"]),
        helper.make_node("Tanh", ["q"], ["t"]),
        helper.make_node("Sigmoid", ["p"], ["s"]),
        helper.make_node("Div", ["t", "s"], ["d"]),
        helper.make_node("ReduceSum", ["d"], ["y"], keepdims=0),
        helper.make_node("Gradient", ["x", "w", "b"], ["dx", "dw", "db"], domain=TRAINING,
                         xs=["x", "w", "b"], y="y"),
    ]  # fmt: skip
    m = model(nodes, arrays, dict.fromkeys(("dx", "dw", "db"), TensorProto.FLOAT))
    given = {k: torch.tensor(a, requires_grad=True) for k, a in arrays.items()}
    p = given["x"] @ given["w"]
    (torch.tanh(p + given["b"]) / torch.sigmoid(p)).sum().backward()
    for got, t in zip(run(m, arrays), given.values(), strict=True):
        np.testing.assert_allclose(got, t.grad, rtol=1e-4, atol=1e-5)


def test_what_has_no_derivative_here_is_named():
    x = np.ones(3, np.float32)
    nodes = [
        helper.make_node("Erf", ["x"], ["y"]),
        helper.make_node("Gradient", ["x"], ["dx"], domain=TRAINING, xs=["x"], y="y"),
    ]
    with pytest.raises(ImportFault, match="erf is not differentiated"):
        run(model(nodes, {"x": x}, {"dx": TensorProto.FLOAT}), {"x": x})
