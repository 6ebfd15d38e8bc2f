"""Translator of TfIdfVectorizer: how often constant n-grams stand in rows of words."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from tilewright.frontend.onnx.coded import Text
from tilewright.frontend.onnx.data_dependent import numbers, op
from tilewright.frontend.onnx.registry import NodeContext, Refusal, translates
from tilewright.frontend.onnx.strings import chosen, text
from tilewright.graph import sizes
from tilewright.graph.graph import Value
from tilewright.ir.expr import as_int, maximum


@translates("TfIdfVectorizer")
def vectorise(n: NodeContext) -> Any:
    """Every n-gram is compared at every position, its words next to each other or up to
    `max_skip_count` words apart."""
    mode, least, most = n.text("mode"), n.int("min_gram_length"), n.int("max_gram_length")
    if mode not in ("TF", "IDF", "TFIDF") or not least or not most:
        raise Refusal(f"it needs lengths and a mode: {mode!r}")
    rows, pool = words(n)
    indexes, starts = n.ints("ngram_indexes", ()), [*n.ints("ngram_counts", ()), len(pool)]
    if not indexes or min(indexes) < 0:
        raise Refusal("its positions of n-grams are not positive")
    counts: list[Value] = []
    columns: list[int] = []
    at = 0
    for size, (start, end) in enumerate(itertools.pairwise(starts), 1):
        ngrams = pool[start:end].reshape(-1, size)
        own = indexes[at : at + len(ngrams)]
        at += len(ngrams)
        if len(own) != len(ngrams):
            raise Refusal("it has more n-grams than positions for them")
        if least <= size <= most and len(ngrams):
            counts.append(counted(n, rows, ngrams, n.int("max_skip_count", 0)))
            columns += own
    if len(set(columns)) != len(columns):
        raise Refusal("two of its n-grams have one position")
    zero = n.build.emit("full", shape=(rows.shape[0], 1), value=0, of="i64")
    total = n.build.emit("concat", *counts, zero, axis=1)
    order = np.full(max(indexes) + 1, len(columns))
    order[columns] = np.arange(len(columns))
    y = n.build.emit("gather", total, numbers(n, order), axis=1)
    if mode == "IDF":
        y = n.build.emit("cast", n.build.emit("greater", y, numbers(n, 0)), to="i64")
    y = n.build.emit("cast", y, to="f32")
    weights = n.floats("weights")
    if mode != "TF" and weights is not None:
        # by column, as the reference evaluator and onnxruntime do; the specification says by n-gram
        if len(weights) != len(order):
            raise Refusal(f"it has {len(weights)} weights for {len(order)} columns")
        y = n.build.emit("mul", y, n.constant(list(weights), "f32"))
    single = (n.inputs[0].shape if n.inputs[0] is not None else ())[:-1]
    return n.emit("reshape", y, shape=(*single, len(order)))


def words(n: NodeContext) -> tuple[Value, np.ndarray]:
    """The words as numbers [rows, words], and the pool of n-grams likewise."""
    x = n.optional(0)
    if isinstance(x, Text):
        keys, pool = np.unique(
            np.array(n.texts("pool_strings", ()), dtype=str), return_inverse=True
        )
        position, found = chosen(n, text(n, 0), keys)
        value = op(n, "where", found, position, -1)
    else:
        value, pool = op(n, "cast", n[0], to="i64"), np.array(n.ints("pool_int64s", ()), np.int64)
    if not pool.size or value.rank not in (1, 2):
        raise Refusal("it needs rows of words and a pool of the same type")
    count = value.shape[-1]
    return op(n, "reshape", value, shape=(sizes.product(value.shape[:-1]), count)), pool


def counted(n: NodeContext, rows: Value, ngrams: np.ndarray, skips: int) -> Value:
    """How often each n-gram stands in each row: [rows, n-grams]."""
    total: Value | None = None
    many, size = ngrams.shape
    for step in range(1, 2 if size == 1 else skips + 2):
        length = sizes.size(rows.shape[1] - step * (size - 1))
        known = as_int(length)
        if known is not None and known <= 0:
            continue
        if known is None:
            length = sizes.size(maximum(length, sizes.size(0)))
        start = op(n, "reshape", op(n, "arange", length=length), shape=(length, 1))
        positions = op(n, "add", start, numbers(n, np.arange(size) * step))
        window = op(n, "gather", rows, positions, axis=1)  # rows, positions, size
        window = op(n, "reshape", window, shape=(rows.shape[0], length, 1, size))
        same = op(n, "reduce_all", op(n, "equal", window, numbers(n, ngrams)), axes=(3,))
        found = op(n, "reduce_sum", op(n, "cast", same, to="i64"), axes=(1,))
        total = found if total is None else op(n, "add", total, found)
    if total is None:
        return n.build.emit("full", shape=(rows.shape[0], many), value=0, of="i64")
    return total
