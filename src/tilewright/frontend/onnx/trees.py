"""Translators of ensembles of decision trees: one table of nodes, walked in native code, and one of
the leaves' weights."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tilewright.frontend.onnx.coded import Text, constant_text
from tilewright.frontend.onnx.labels import tensor
from tilewright.frontend.onnx.machine_learning import ML
from tilewright.frontend.onnx.registry import Refusal, Site, translates
from tilewright.graph.graph import Value

RULES = {"BRANCH_LEQ": 0, "BRANCH_LT": 1, "BRANCH_GTE": 2, "BRANCH_GT": 3, "BRANCH_EQ": 4,
         "BRANCH_NEQ": 5, "LEAF": 7}  # fmt: skip
TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
MEMBER, LEAF = 6, 7
MOST_WEIGHTS = 1 << 26


class Trees:
    """Nodes of all trees in one list; a leaf's `weights` are (target, weight)."""

    def __init__(self) -> None:
        self.rows: list[list[int]] = []  # feature, rule, missing, yes, no
        self.splits: list[float] = []
        self.weights: dict[int, list[tuple[int, float]]] = {}
        self.roots: list[int] = []

    def node(self) -> int:
        """A new node: a leaf, until it is told otherwise."""
        self.rows.append([0, 0, 0, len(self.rows), len(self.rows)])
        self.splits.append(0.0)
        return len(self.rows) - 1

    def depth(self) -> int:
        """The longest way from a root. Raises Refusal for what is no tree."""
        level, depth, seen = list(self.roots), 0, 0
        while True:
            inner = [p for p in level if self.rows[p][3] != p or self.rows[p][4] != p]
            if not inner:
                return depth
            level = [child for p in inner for child in self.rows[p][3:]]
            depth, seen = depth + 1, seen + len(inner)
            if seen > 2 * len(self.rows):
                raise Refusal("its nodes do not make up trees")

    def scores(self, n: Site, x: Value, targets: int, how: str) -> Value:
        """[rows, targets]: the weights of the leaves that each row reaches, put together."""
        build, of = n.build, x.dtype
        features = max((row[0] for row in self.rows), default=0)
        known = x.static_shape
        if min((row[0] for row in self.rows), default=0) < 0 or (known and features >= known[1]):
            raise Refusal(f"a node asks for feature {features}")
        if len(self.rows) * targets > MOST_WEIGHTS:
            raise Refusal(f"{len(self.rows)} nodes with {targets} targets are too many")
        blank = {"MIN": math.inf, "MAX": -math.inf}.get(how, 0.0)
        table = np.full((len(self.rows), targets), blank)
        for leaf, pairs in self.weights.items():
            for target, weight in pairs:
                if not 0 <= target < targets:
                    raise Refusal(f"a leaf has target {target} of {targets}")
                table[leaf, target] = weight if blank else table[leaf, target] + weight
        nodes = build.constant(np.array(self.rows, np.int64).reshape(-1, 5), "nodes")
        splits = build.constant(np.array(self.splits), "splits", of)
        roots = build.constant(np.array(self.roots, np.int64), "roots")
        leaf = build.emit("tree_leaves", x, nodes, splits, roots, depth=self.depth())
        found = build.emit("gather", build.constant(table, "weights", of), leaf, axis=0)
        op = {"MIN": "reduce_min", "MAX": "reduce_max"}.get(how, "reduce_sum")
        total = build.emit(op, found, axes=(1,))
        if how == "AVERAGE":
            total = build.emit("div", total, n.constant(len(self.roots), of))
        if blank:
            none = build.emit("equal", total, n.constant(blank, of))
            total = build.emit("where", none, n.constant(0.0, of), total)
        return total


def transformed(n: Site, y: Value, how: str) -> Value:
    """A post transform of scores [rows, targets]."""
    if how == "NONE":
        return y
    if how == "LOGISTIC":
        return n.build.emit("sigmoid", y)
    if how == "SOFTMAX":
        return n.build.emit("softmax", y, axis=1)
    if how == "SOFTMAX_ZERO":  # scores of 0 stay 0 and take no part
        none = n.build.emit("equal", y, n.constant(0.0, y.dtype))
        held = n.build.emit("where", none, n.constant(-math.inf, y.dtype), y)
        return n.build.emit("where", none, y, n.build.emit("softmax", held, axis=1))
    if how == "PROBIT":
        return probit(n, y)
    raise Refusal(f"post_transform {how!r} is not known")


def probit(n: Site, y: Value) -> Value:
    """√2 · erf⁻¹(2 y - 1). Source: Winitzki, "A handy approximation for the error function"."""

    def f(op: str, a: Value, *b: float | Value) -> Value:
        held = [v if isinstance(v, Value) else n.constant(v, y.dtype) for v in b]
        return n.build.emit(op, a, *held)

    x = f("sub", f("mul", y, 2.0), 1.0)
    w = f("log", f("sub", n.constant(1.0, y.dtype), f("mul", x, x)))
    v = f("add", f("mul", w, 0.5), 2 / (math.pi * 0.147))
    root = f("sqrt", f("sub", f("mul", v, v), f("div", w, 0.147)))
    size = f("sqrt", f("sub", root, v))
    return f("mul", f("mul", f("sign", x), size), math.sqrt(2))


def rows_of(n: Site) -> Value:
    """The features as rows of floats."""
    x = n[0]
    if x.rank != 2:
        raise Refusal("its features do not stand in rows")
    return x if x.dtype.is_float else n.build.emit("cast", x, to="f32")


@translates("TreeEnsemble", domain=ML)
def tree_ensemble(n: Site) -> Any:
    x = rows_of(n)
    modes, splits = tensor(n, "nodes_modes"), tensor(n, "nodes_splits")
    features = n.ints("nodes_featureids", ())
    trees = Trees()
    inner = [trees.node() for _ in features]
    leaves = [trees.node() for _ in n.ints("leaf_targetids", ())]
    weights = tensor(n, "leaf_weights")
    for leaf, target, weight in zip(leaves, n.ints("leaf_targetids", ()), weights, strict=True):
        trees.weights[leaf] = [(target, float(weight))]
    missing = n.ints("nodes_missing_value_tracks_true") or (0,) * len(inner)
    sets = members(n)
    columns = zip(
        inner, features, modes.tolist(), splits.tolist(), missing,
        n.ints("nodes_truenodeids"), n.ints("nodes_trueleafs"),
        n.ints("nodes_falsenodeids"), n.ints("nodes_falseleafs"), strict=True,
    )  # fmt: skip
    for at, feature, mode, split, nan, yes, yes_leaf, no, no_leaf in columns:
        goals = [(leaves if leaf else inner)[k] for k, leaf in ((yes, yes_leaf), (no, no_leaf))]
        if mode != MEMBER:
            trees.rows[at], trees.splits[at] = [feature, mode, nan, *goals], split
            continue
        own = next(sets, None)  # a chain of nodes, one for each member
        if not own:
            raise Refusal("a node tests membership, but its members are missing")
        for k, value in enumerate(own):
            after = goals[1] if k == len(own) - 1 else trees.node()
            trees.rows[at], trees.splits[at] = [feature, 4, nan, goals[0], after], value
            at = after
    trees.roots = [inner[k] for k in n.ints("tree_roots", ())]
    how = AGGREGATES[n.int("aggregate_function", 1)]
    y = trees.scores(n, x, n.int("n_targets", 1), how)
    return transformed(n, y, TRANSFORMS[n.int("post_transform", 0)])


def members(n: Site) -> Any:
    """The sets of membership tests, in the order of their nodes; a NaN ends each."""
    found: list[float] = []
    if "membership_values" in n.attributes:
        for value in tensor(n, "membership_values").tolist():
            if value == value:
                found.append(value)
            else:
                yield found
                found = []
    if found:
        yield found


def classic(n: Site, what: str) -> tuple[Trees, Value]:
    """The trees of the operators before TreeEnsemble, and their features."""
    x = rows_of(n)
    x = x if x.dtype.name == "f32" else n.build.emit("cast", x, to="f32")
    trees, at = Trees(), {}
    keys = list(zip(n.ints("nodes_treeids", ()), n.ints("nodes_nodeids", ()), strict=True))
    for tree, node in keys:
        at[tree, node] = trees.node()
        if (tree, node) == next(k for k in keys if k[0] == tree):
            trees.roots.append(at[tree, node])
    values = floats(n, "nodes_values")
    missing = n.ints("nodes_missing_value_tracks_true") or (0,) * len(keys)
    columns = zip(
        keys, n.texts("nodes_modes", ()), n.ints("nodes_featureids", ()), values, missing,
        n.ints("nodes_truenodeids", ()), n.ints("nodes_falsenodeids", ()), strict=True,
    )  # fmt: skip
    for (tree, node), mode, feature, split, nan, yes, no in columns:
        rule = RULES.get(mode)
        if rule is None:
            raise Refusal(f"a node has mode {mode!r}")
        if rule != LEAF:
            goals = [at[tree, yes], at[tree, no]]
            trees.rows[at[tree, node]] = [feature, rule, nan, *goals]
            trees.splits[at[tree, node]] = split
    leaves = zip(
        n.ints(f"{what}_treeids", ()), n.ints(f"{what}_nodeids", ()), n.ints(f"{what}_ids", ()),
        floats(n, f"{what}_weights"), strict=True,
    )  # fmt: skip
    for tree, node, target, weight in leaves:
        trees.weights.setdefault(at[tree, node], []).append((target, weight))
    return trees, x


def floats(n: Site, name: str) -> list[float]:
    """An attribute of floats, or the tensor that stands in for it."""
    if f"{name}_as_tensor" in n.attributes:
        return tensor(n, f"{name}_as_tensor").tolist()
    return list(n.floats(name, ()))


def with_base(n: Site, y: Value, targets: int) -> Value:
    base = floats(n, "base_values")
    if not base:
        return y
    if len(base) not in (1, targets):
        raise Refusal(f"it has {len(base)} base values for {targets} targets")
    return n.build.emit("add", y, n.constant(base, y.dtype))


@translates("TreeEnsembleRegressor", domain=ML)
def regressor(n: Site) -> Any:
    trees, x = classic(n, "target")
    targets = n.int("n_targets", 1)
    y = trees.scores(n, x, targets, n.text("aggregate_function", "SUM"))
    return transformed(n, with_base(n, y, targets), n.text("post_transform", "NONE"))


@translates("TreeEnsembleClassifier", domain=ML)
def classifier(n: Site) -> Any:
    """The label of the greatest score, and the scores."""
    trees, x = classic(n, "class")
    names, numbers = n.texts("classlabels_strings"), n.ints("classlabels_int64s")
    labels = np.array(names if names is not None else numbers or ())
    if labels.size < 2:
        raise Refusal("it has fewer than two classes")
    how = n.text("post_transform", "NONE")
    y = with_base(n, trees.scores(n, x, len(labels), "SUM"), len(labels))
    if len(set(n.ints("class_ids", ()))) == 1:  # the score of one class tells that of the other
        score = n.build.emit("slice", y, starts=(0, 0), shape=(y.shape[0], 1))
        if how == "NONE":
            other = n.build.emit("sub", n.constant(1.0, y.dtype), score)
        else:
            other = n.build.emit("neg", score)
        y = n.build.emit("concat", other, score, axis=1)
    y = transformed(n, y, how)
    return labelled(n, y, labels), y


def labelled(n: Site, scores: Value, labels: np.ndarray) -> Any:
    """The label of each row's greatest score."""
    place = n.build.emit("argmax", scores, axis=1)
    if labels.dtype.kind == "U":
        table = constant_text(n.build, labels)
        return Text(n.build.emit("gather", table.rows, place, axis=0), table.table)
    return n.build.emit("gather", n.constant(labels.astype(np.int64)), place, axis=0)
