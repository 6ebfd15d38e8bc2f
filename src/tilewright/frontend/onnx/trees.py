"""Translators of ensembles of decision trees: one table of nodes, walked in native code, and one of
the leaves' weights."""

from __future__ import annotations

import itertools
import math
from typing import Any, NamedTuple

import numpy as np

from tilewright.frontend.onnx.coded import Text, constant_text
from tilewright.frontend.onnx.labels import tensor
from tilewright.frontend.onnx.machine_learning import ML
from tilewright.frontend.onnx.registry import NodeContext, Refusal, translates
from tilewright.graph.graph import Value
from tilewright.graph.ops.trees import CODES, GROUP, MISSING

RULES = {"BRANCH_LEQ": 0, "BRANCH_LT": 1, "BRANCH_GTE": 2, "BRANCH_GT": 3, "BRANCH_EQ": 4,
         "BRANCH_NEQ": 5, "LEAF": 7}  # fmt: skip
TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
EQUAL, UNEQUAL, MEMBER, LEAF = 4, 5, 6, 7
MOST_WEIGHTS = 1 << 28


class Walk(NamedTuple):
    """Where walks through trees go: for each root its node, and for each inner node the two that
    follow it side by side; tree by tree from the shallowest, level by level, as few lines of the
    cache hold the first levels. `following` is the position of the first of the two, -1 at a
    leaf."""

    nodes: np.ndarray
    following: np.ndarray
    roots: np.ndarray
    depths: np.ndarray


class Trees(NamedTuple):
    """Nodes of all trees side by side: arrays of one length each, of which a leaf's `yes` and `no`
    are its own position. A leaf's weights are entries of `leaves`, `targets` and `weights`."""

    features: np.ndarray
    rules: np.ndarray
    missing: np.ndarray
    splits: np.ndarray
    yes: np.ndarray
    no: np.ndarray
    roots: np.ndarray
    leaves: np.ndarray
    targets: np.ndarray
    weights: np.ndarray

    def is_inner(self) -> np.ndarray:
        """Which nodes lead to others."""
        own = np.arange(len(self.yes))
        return (self.yes != own) | (self.no != own)

    def heights(self) -> np.ndarray:
        """The longest way from each node to a leaf; -1 if a way leads round in a circle."""
        is_inner = self.is_inner()
        parents = np.flatnonzero(is_inner)
        goals = np.concatenate([self.yes[parents], self.no[parents]])
        by_goal = np.argsort(goals, kind="stable")
        parents = np.concatenate([parents, parents])[by_goal]
        ends = np.cumsum(np.bincount(goals, minlength=len(self.yes)))
        heights, waits = np.where(is_inner, -1, 0), 2 * is_inner
        done = np.flatnonzero(heights == 0)
        for height in itertools.count(1):
            counts = ends[done] - np.where(done > 0, ends[done - 1], 0)
            edges = np.arange(counts.sum()) + np.repeat(ends[done] - np.cumsum(counts), counts)
            above, many = np.unique(parents[edges], return_counts=True)
            waits[above] -= many
            done = above[waits[above] == 0]
            if not done.size:
                return heights
            heights[done] = height
        raise AssertionError

    def walk(self) -> Walk:
        """Where walks go. Raises Refusal for what is no tree."""
        heights, pairs = self.heights(), np.full(len(self.yes), -1)
        tree, level = np.arange(len(self.roots)), self.roots
        trees, nodes, many = [tree], [level], len(tree)
        while level.size:
            unique, first = np.unique(level, return_index=True)
            first = np.sort(first[(heights[unique] != 0) & (pairs[unique] < 0)])
            level, tree = level[first], np.repeat(tree[first], 2)
            pairs[level] = many + 2 * np.arange(len(level))
            level = np.stack([self.yes[level], self.no[level]], 1).ravel()
            trees.append(tree)
            nodes.append(level)
            many += len(level)
        node, depths = np.concatenate(nodes), heights[self.roots]
        if heights[node].min(initial=0) < 0:
            raise Refusal("its nodes do not make up trees")
        order = np.argsort(depths, kind="stable")  # a group takes as many steps as its deepest
        by_tree = np.argsort(np.argsort(order)[np.concatenate(trees)], kind="stable")
        position, node = np.argsort(by_tree), node[by_tree]
        following = np.where(pairs[node] < 0, -1, position[pairs[node]])
        return Walk(node, following, position[order], depths[order])

    def table(self, walk: Walk, of: Any) -> tuple[np.ndarray, np.ndarray, tuple[int, ...]]:
        """What `tree_leaves` walks: nodes, splits, and the rules that occur; a leaf of no tree
        comes last."""
        nodes, following = walk.nodes, walk.following
        is_inner, own = following >= 0, np.arange(len(nodes))
        rules = np.where(is_inner, (self.rules + MISSING * (self.missing != 0))[nodes], 0)
        leaf = int(rules[is_inner].min(initial=MISSING)) % MISSING
        codes = np.where(is_inner, self.features[nodes] * CODES + rules, leaf)
        following = np.where(is_inner, following, own - (leaf != UNEQUAL))
        last = [leaf, len(nodes) - (leaf != UNEQUAL)]
        splits = np.append(np.where(is_inner, self.splits[nodes], math.nan), math.nan)
        table = np.vstack([np.stack([codes, following], 1), last]).astype(np.int32)
        present = np.unique(table[:, 0] % CODES)
        return table, splits.astype(of.numpy), tuple(present.tolist())

    def scores(self, n: NodeContext, x: Value, targets: int, how: str) -> Value:
        """[rows, targets]: the weights of the leaves that each row reaches, put together."""
        build, of, known = n.build, x.dtype, x.static_shape
        features = int(self.features.max(initial=0))
        if self.features.min(initial=0) < 0 or (known and features >= known[1]):
            raise Refusal(f"a node asks for feature {features}")
        walk = self.walk()
        many = len(walk.nodes)
        most = max(many, len(self.yes))  # nodes that no way leads to have weights, too
        if (most + 1) * targets > MOST_WEIGHTS or features >= (1 << 31) // CODES:
            raise Refusal(f"{most} nodes with {targets} targets are too many")
        astray = self.targets[(self.targets < 0) | (self.targets >= targets)]
        if astray.size:
            raise Refusal(f"a leaf has target {astray[0]} of {targets}")
        blank = {"MIN": math.inf, "MAX": -math.inf}.get(how, 0.0)
        joined = {"MIN": np.minimum, "MAX": np.maximum}.get(how, np.add)
        weights = np.full((len(self.yes) + 1, targets), blank)
        joined.at(weights, (self.leaves, self.targets), self.weights)
        weights = weights[np.append(walk.nodes, -1)]
        none = np.full(-len(walk.roots) % GROUP, many)
        roots = np.concatenate([walk.roots, none])
        steps = np.append(walk.depths, none * 0).reshape(-1, GROUP).max(1, initial=0)
        nodes, splits, rules = self.table(walk, of)
        leaf = build.emit(
            "tree_leaves",
            x,
            build.constant(nodes, "nodes"),
            build.constant(splits, "splits"),
            build.constant(roots.astype(np.int32), "roots"),
            build.constant(steps.astype(np.int32), "depths"),
            rules=rules,
        )
        found = build.emit("gather", build.constant(weights, "weights", of), leaf, axis=0)
        op = {"MIN": "reduce_min", "MAX": "reduce_max"}.get(how, "reduce_sum")
        total = build.emit(op, found, axes=(1,))
        if how == "AVERAGE":
            total = build.emit("div", total, n.constant(len(self.roots), of))
        if blank:
            nothing = build.emit("equal", total, n.constant(blank, of))
            total = build.emit("where", nothing, n.constant(0.0, of), total)
        return total


def transformed(n: NodeContext, y: Value, how: str) -> Value:
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


def probit(n: NodeContext, y: Value) -> Value:
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


def rows_of(n: NodeContext) -> Value:
    """The features as rows of floats."""
    x = n[0]
    if x.rank != 2:
        raise Refusal("its features do not stand in rows")
    return x if x.dtype.is_float else n.build.emit("cast", x, to="f32")


@translates("TreeEnsemble", domain=ML)
def tree_ensemble(n: NodeContext) -> Any:
    x, trees = rows_of(n), several(n)
    how = AGGREGATES[n.int("aggregate_function", 1)]
    y = trees.scores(n, x, n.int("n_targets", 1), how)
    return transformed(n, y, TRANSFORMS[n.int("post_transform", 0)])


def several(n: NodeContext) -> Trees:
    """The trees of TreeEnsemble: inner nodes first, then leaves, then what membership tests add."""
    features = whole(n, "nodes_featureids")
    targets, weights = whole(n, "leaf_targetids"), tensor(n, "leaf_weights")
    inner, leaves = len(features), len(targets)
    splits = np.asarray(tensor(n, "nodes_splits"), np.float64)
    missing = whole(n, "nodes_missing_value_tracks_true", inner)
    rules = np.asarray(tensor(n, "nodes_modes")).astype(np.int64)

    def goals(which: str) -> np.ndarray:
        nodes, is_leaf = whole(n, f"nodes_{which}nodeids"), whole(n, f"nodes_{which}leafs")
        if len(nodes) != inner or len(is_leaf) != inner:
            raise Refusal(f"it has {inner} nodes, but {len(nodes)} of nodes_{which}nodeids")
        if np.any((nodes < 0) | (nodes >= np.where(is_leaf != 0, leaves, inner))):
            raise Refusal("a node leads to one that is missing")
        return nodes + np.where(is_leaf != 0, inner, 0)

    if not len(rules) == len(splits) == inner or len(weights) != leaves:
        raise Refusal("its attributes are not of one length")
    own = inner + np.arange(leaves)
    columns = [
        np.append(a, b)
        for a, b in (
            (features, 0 * own), (rules, 0 * own), (missing, 0 * own), (splits, 0.0 * own),
            (goals("true"), own), (goals("false"), own),
        )
    ]  # fmt: skip
    columns = with_members(n, columns)
    roots = whole(n, "tree_roots")
    if np.any((roots < 0) | (roots >= inner)):
        raise Refusal("a tree begins at a node that is missing")
    return Trees(*columns, roots, own, targets, np.asarray(weights, np.float64))


def with_members(n: NodeContext, columns: list[np.ndarray]) -> list[np.ndarray]:
    """A test of membership as a chain of tests, one for each member."""
    features, rules, missing, splits, yes, no = columns
    more: list[tuple[Any, ...]] = []
    sets = members(n)
    for at in np.flatnonzero(rules == MEMBER).tolist():
        values = next(sets, None)
        if not values:
            raise Refusal("a node tests membership, but its members are missing")
        added = len(rules) + len(more)
        rules[at], splits[at], after = EQUAL, values[0], no[at]
        if len(values) > 1:
            no[at] = added
        for k, value in enumerate(values[1:], 1):
            then = after if k == len(values) - 1 else added + k
            more.append((features[at], EQUAL, missing[at], value, yes[at], then))
    if not more:
        return columns
    return [np.append(a, b) for a, b in zip(columns, zip(*more, strict=True), strict=True)]


def members(n: NodeContext) -> Any:
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


def classic(n: NodeContext, what: str) -> tuple[Trees, Value]:
    """The trees of the operators before TreeEnsemble, and their features."""
    x = rows_of(n)
    x = x if x.dtype.name == "f32" else n.build.emit("cast", x, to="f32")
    tree, node = whole(n, "nodes_treeids"), whole(n, "nodes_nodeids")
    many = len(tree)
    modes, kinds = np.unique(np.array(n.texts("nodes_modes") or (), str), return_inverse=True)
    for mode in modes.tolist():
        if mode not in RULES:
            raise Refusal(f"a node has mode {mode!r}")
    rules = np.array([RULES[mode] for mode in modes.tolist()], np.int64)[kinds]
    features, splits = whole(n, "nodes_featureids"), np.asarray(floats(n, "nodes_values"))
    missing = whole(n, "nodes_missing_value_tracks_true", many)
    yes, no = whole(n, "nodes_truenodeids"), whole(n, "nodes_falsenodeids")
    columns = (node, rules, features, splits, missing, yes, no)
    if any(len(c) != many for c in columns):
        raise Refusal("its attributes are not of one length")
    positions = Positions(tree, node)
    is_leaf, own = rules == LEAF, np.arange(many)
    goals = [own.copy(), own.copy()]
    for goal, asked in zip(goals, (yes, no), strict=True):
        goal[~is_leaf] = positions.of(tree[~is_leaf], asked[~is_leaf])
    first = np.sort(np.unique(tree, return_index=True)[1])
    leaves = positions.of(whole(n, f"{what}_treeids"), whole(n, f"{what}_nodeids"))
    targets, weights = whole(n, f"{what}_ids"), np.asarray(floats(n, f"{what}_weights"))
    if not len(leaves) == len(targets) == len(weights):
        raise Refusal("its attributes are not of one length")
    found = (features, rules, missing, splits, *goals, first, leaves, targets, weights)
    return Trees(*found), x


class Positions:
    """Where each node of each tree stands."""

    def __init__(self, tree: np.ndarray, node: np.ndarray) -> None:
        self.trees, self.nodes = np.unique(tree), np.unique(node)
        key = self.key(tree, node)
        self.order = np.argsort(key, kind="stable")
        self.keys = key[self.order]

    def key(self, tree: np.ndarray, node: np.ndarray) -> np.ndarray:
        rank = np.searchsorted(self.trees, tree)
        return rank * (len(self.nodes) + 1) + np.searchsorted(self.nodes, node)

    def of(self, tree: np.ndarray, node: np.ndarray) -> np.ndarray:
        """Raises Refusal for a node that is missing."""
        lost = ~(np.isin(tree, self.trees) & np.isin(node, self.nodes))
        asked = self.key(tree, node)
        at = np.minimum(np.searchsorted(self.keys, asked), len(self.keys) - 1)
        lost |= self.keys[at] != asked
        if lost.any():
            raise Refusal(f"tree {tree[lost][0]} has no node {node[lost][0]}")
        return self.order[at]


def whole(n: NodeContext, name: str, many: int = 0) -> np.ndarray:
    """An attribute of whole numbers; `many` zeros where it is missing."""
    found = n.ints(name, ())
    return np.array(found, np.int64) if found else np.zeros(many, np.int64)


def floats(n: NodeContext, name: str) -> list[float]:
    """An attribute of floats, or the tensor that stands in for it."""
    if f"{name}_as_tensor" in n.attributes:
        return tensor(n, f"{name}_as_tensor").tolist()
    return list(n.floats(name, ()))


def with_base(n: NodeContext, y: Value, targets: int) -> Value:
    base = floats(n, "base_values")
    if not base:
        return y
    if len(base) not in (1, targets):
        raise Refusal(f"it has {len(base)} base values for {targets} targets")
    return n.build.emit("add", y, n.constant(base, y.dtype))


@translates("TreeEnsembleRegressor", domain=ML)
def regressor(n: NodeContext) -> Any:
    trees, x = classic(n, "target")
    targets = n.int("n_targets", 1)
    y = trees.scores(n, x, targets, n.text("aggregate_function", "SUM"))
    return transformed(n, with_base(n, y, targets), n.text("post_transform", "NONE"))


@translates("TreeEnsembleClassifier", domain=ML)
def classifier(n: NodeContext) -> Any:
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


def labelled(n: NodeContext, scores: Value, labels: np.ndarray) -> Any:
    """The label of each row's greatest score."""
    position = n.build.emit("argmax", scores, axis=1)
    if labels.dtype.kind == "U":
        table = constant_text(n.build, labels)
        return Text(n.build.emit("gather", table.rows, position, axis=0), table.table)
    return n.build.emit("gather", n.constant(labels.astype(np.int64)), position, axis=0)
