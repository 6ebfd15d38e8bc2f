"""Translators of the linear models and support vector machines of ai.onnx.ml: products with the
weights or kernels of the support vectors, and votes.

Source: the specification, and where it is silent onnxruntime, with which the tests compare.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from tilewright.frontend.onnx.coded import Maps
from tilewright.frontend.onnx.machine_learning import ML
from tilewright.frontend.onnx.registry import NodeContext, Refusal, translates
from tilewright.frontend.onnx.trees import labelled, rows_of, transformed
from tilewright.graph.graph import Value
from tilewright.ir.expr import as_int
from tilewright.support.errors import SizeWarning


def features(n: NodeContext) -> Value:
    """The features as rows of f32; one example may come alone."""
    if n[0].rank == 1:
        n.inputs[0] = n.build.emit("reshape", n[0], shape=(1, n[0].shape[0]))
    x = rows_of(n)
    return x if x.dtype.name == "f32" else n.build.emit("cast", x, to="f32")


def weights(n: NodeContext, name: str, rows: int | None, width: int | None = None) -> np.ndarray:
    """An attribute of numbers as a matrix."""
    found = np.array(n.floats(name, ()), np.float32)
    shape = (rows or -1, width or -1)
    if not found.size or (rows and found.size % rows) or (width and found.size % width):
        raise Refusal(f"its {found.size} {name} make no matrix of {shape} (-1: any)")
    return found.reshape(shape)


def coefficients(n: NodeContext, x: Value, rows: int) -> np.ndarray:
    """A row of weights for each of `rows` classes or targets. Of more than the features ask for,
    the first count, row by row, as in onnxruntime; that is hardly what was meant, so it is told."""
    found, width = n.floats("coefficients", ()), as_int(x.shape[1])
    if width is None or len(found) <= rows * width:
        return weights(n, "coefficients", rows)
    told = f"{len(found)} coefficients of {rows} rows for {width} features: the first count"
    warnings.warn(f"node '{n.node.name}' has {told}", SizeWarning, stacklevel=2)
    return np.array(found[: rows * width], np.float32).reshape(rows, width)


def product(n: NodeContext, x: Value, w: np.ndarray) -> Value:
    """x wᵀ"""
    if as_int(x.shape[1]) not in (None, w.shape[1]):
        raise Refusal(f"it has weights for {w.shape[1]} features, not {x.type_text}")
    return n.build.emit("matmul", x, n.constant(np.ascontiguousarray(w.T), "f32"))


def shifted(n: NodeContext, y: Value, by: Any) -> Value:
    return y if not len(by) else n.build.emit("add", y, n.constant(list(by), "f32"))


def class_labels(n: NodeContext) -> np.ndarray:
    names = n.texts("classlabels_strings")
    return np.array(names if names else n.ints("classlabels_ints") or ())


@translates("LinearRegressor", domain=ML)
def linear_regressor(n: NodeContext) -> Any:
    """X Cᵀ + intercepts, then the transform."""
    x, targets = features(n), n.int("targets", 1)
    y = shifted(n, product(n, x, coefficients(n, x, targets)), n.floats("intercepts", ()))
    return transformed(n, y, n.text("post_transform", "NONE"))


@translates("LinearClassifier", domain=ML)
def linear_classifier(n: NodeContext) -> Any:
    """The label of the greatest score, and the scores; one score alone is that of the second of two
    classes."""
    x, labels = features(n), class_labels(n)
    intercepts = n.floats("intercepts", ())
    rows = len(intercepts) or len(labels)
    y = shifted(n, product(n, x, coefficients(n, x, rows)), intercepts)
    how = n.text("post_transform", "NONE")
    if rows == 1 and len(labels) == 2:
        y = n.build.emit("concat", n.build.emit("neg", y), y, axis=1)
    elif rows != len(labels) or rows < 2:
        raise Refusal(f"it has {rows} rows of weights for {len(labels)} classes")
    return labelled(n, y, labels), transformed(n, y, how)


def kernel(n: NodeContext, x: Value, vectors: np.ndarray) -> Value:
    """The kernel of each example with each support vector: [examples, vectors]."""
    emit, kind = n.build.emit, n.text("kernel_type", "LINEAR")
    gamma, shift, degree = n.floats("kernel_params") or (0.0, 0.0, 0.0)
    dots = product(n, x, vectors)
    if kind == "LINEAR":
        return dots
    if kind == "RBF":  # |x - v|² in f64: what the squares lose to each other would show
        wide, held = emit("cast", x, to="f64"), vectors.astype(np.float64)
        dots = emit("matmul", wide, n.constant(np.ascontiguousarray(held.T), "f64"))
        own = emit("reduce_sum", emit("mul", wide, wide), axes=(1,), keepdims=True)
        both = emit("add", own, n.constant((held * held).sum(1), "f64"))
        far = emit("sub", both, emit("mul", dots, n.constant(2.0, "f64")))
        return emit("cast", emit("exp", emit("mul", far, n.constant(-gamma, "f64"))), to="f32")
    scaled = emit("add", emit("mul", dots, n.constant(gamma, "f32")), n.constant(shift, "f32"))
    if kind == "SIGMOID":
        return emit("tanh", scaled)
    if kind == "POLY":
        return emit("pow", scaled, n.constant(float(degree), "f32"))
    raise Refusal(f"kernel_type {kind!r} is not known")


@translates("SVMRegressor", domain=ML)
def svm_regressor(n: NodeContext) -> Any:
    """The kernels with the support vectors, weighted; with one class 1 inside and -1 outside."""
    x, count, rho = features(n), n.int("n_supports", 0), n.floats("rho", (0.0,))
    if count:
        k = kernel(n, x, weights(n, "support_vectors", count))
    else:
        k = x
    y = shifted(n, product(n, k, weights(n, "coefficients", 1)), rho[:1])
    if n.flag("one_class"):
        inside = n.build.emit("greater", y, n.constant(0.0, "f32"))
        return n.emit("where", inside, n.constant(1.0, "f32"), n.constant(-1.0, "f32"))
    return transformed(n, y, n.text("post_transform", "NONE"))


@translates("SVMClassifier", domain=ML)
def svm_classifier(n: NodeContext) -> Any:
    """Each two classes compete; the label is that of the most votes, the scores are the outcomes,
    or with prob_a and prob_b probabilities. Without support vectors each class has its weights."""
    x, labels, how = features(n), class_labels(n), n.text("post_transform", "NONE")
    counts, rho = n.ints("vectors_per_class") or (), n.floats("rho", (0.0,))
    if len(labels) < 2:
        raise Refusal("it has fewer than two classes")
    if not counts:
        y = shifted(n, product(n, x, weights(n, "coefficients", len(labels))), rho[:1])
        return labelled(n, y, labels), transformed(n, y, how)
    if len(counts) != len(labels):
        raise Refusal(f"it has vectors of {len(counts)} classes, and {len(labels)} labels")
    total = sum(counts)
    k = kernel(n, x, weights(n, "support_vectors", total))
    coefficients = weights(n, "coefficients", None, total)
    pairs = [(i, j) for i in range(len(counts)) for j in range(i + 1, len(counts))]
    starts = np.cumsum([0, *counts])
    duel = np.zeros((len(pairs), total), np.float32)
    votes = np.zeros(
        (len(pairs), len(counts)), np.float32
    )  # what a won duel adds beside a lost one
    for row, (i, j) in enumerate(pairs):
        own, other = (slice(starts[c], starts[c + 1]) for c in (i, j))
        duel[row, own], duel[row, other] = coefficients[j - 1, own], coefficients[i, other]
        votes[row, i], votes[row, j] = 1, -1
    y = shifted(n, product(n, k, duel), rho)
    won = n.build.emit("cast", n.build.emit("greater", y, n.constant(0.0, "f32")), to="f32")
    tally = shifted(n, product(n, won, votes.T), (votes < 0).sum(0).astype(np.float32))
    label = labelled(n, tally, labels)
    if n.floats("prob_a"):
        return label, transformed(n, probabilities(n, y, pairs, len(labels)), how)
    if len(pairs) == 1:
        y = n.build.emit("concat", n.build.emit("neg", y), y, axis=1)
        if coefficients.min() >= 0:  # as the outcomes cannot be told from probabilities
            first = n.constant(np.array([0.0, 1.0], np.float32))
            label = labelled(n, n.build.emit("add", n.build.emit("mul", y, first), first), labels)
    return label, transformed(n, y, how)


def probabilities(
    n: NodeContext, outcomes: Value, pairs: list[tuple[int, int]], count: int
) -> Value:
    """Of `count` classes, by Platt's sigmoids of the outcomes between each two of them."""
    emit, a, b = n.build.emit, n.floats("prob_a", ()), n.floats("prob_b", ())
    if not len(a) == len(b) == len(pairs):
        raise Refusal(f"it has {len(a)} prob_a and {len(b)} prob_b for {len(pairs)} pairs")
    one = n.constant(1.0, "f32")
    x = emit("add", emit("mul", outcomes, n.constant(list(a), "f32")), n.constant(list(b), "f32"))
    won = emit("clip", emit("sub", one, emit("sigmoid", x)), low=1e-7, high=1 - 1e-7)
    both = emit("concat", won, emit("sub", one, won), axis=1)
    positions = np.zeros((count, count), np.int64)
    for k, (i, j) in enumerate(pairs):
        positions[i, j], positions[j, i] = k, k + len(pairs)
    table = emit("gather", both, n.constant(positions.ravel()), axis=1)
    shape = (outcomes.shape[0], count, count)
    return emit("couple", emit("reshape", table, shape=shape))


@translates("ZipMap", domain=ML)
def zip_map(n: NodeContext) -> Any:
    """A map from labels to numbers for each row; the run gives a list of dicts."""
    x, keys = n[0], n.texts("classlabels_strings") or n.ints("classlabels_int64s") or ()
    count = len(set(keys))
    if not count or x.rank not in (1, 2) or not as_int(x.shape[-1]) == len(keys) == count:
        raise Refusal(f"its {len(keys)} labels do not fit the rows of {x.type_text}")
    return Maps(x, keys)


@translates("CastMap", "DictVectorizer", domain=ML)
def maps(n: NodeContext) -> Any:
    """Not supported: maps of any keys do not live in compiled code."""
    remedy = "make the tensor of its values, in the order of the vocabulary, before the model"
    raise Refusal("maps of any keys have no shape and no position in compiled code", remedy)
