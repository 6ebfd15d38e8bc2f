"""Trees: boosted regression trees, small and in NumPy alone.

In: a matrix of features and a number for each row. Out: a function of features. The one idea: all
nodes of one depth of a tree ask the same question, so that a tree is a table of eight numbers, its
fit three searches over sums in bins, and its prediction one look-up; a hundred trees on a few
hundred rows take some ten milliseconds.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.support.record import record

Numbers = np.ndarray[Any, np.dtype[np.float64]]
Whole = np.ndarray[Any, np.dtype[np.int64]]
BINS = 16  # of each feature, equally full


@record
class Tree:
    """asked: which features, one for each depth; above: the bins from which the answer is yes;
    leaves: what a row is given by its answers, the first one counting most."""

    asked: tuple[int, ...]
    above: tuple[int, ...]
    leaves: Numbers

    def predict(self, bins: Whole) -> Numbers:
        """A number for each row of bins."""
        position = np.zeros(len(bins), np.int64)
        for feature, least in zip(self.asked, self.above, strict=True):
            position = 2 * position + (bins[:, feature] >= least)
        return self.leaves[position]


class Trees:
    """A sum of trees, each fitted to what those before it left over.

    Args:
        rounds: how many trees; depth: how many questions each asks; rate: what part of what a leaf
            should be is added; ridge: rows of no difference that each leaf has besides.
    """

    def __init__(
        self, rounds: int = 60, depth: int = 3, rate: float = 0.15, ridge: float = 2.0
    ) -> None:
        self.rounds, self.depth, self.rate, self.ridge = rounds, depth, rate, ridge
        self.edges: Numbers = np.empty((0, 0))
        self.trees: list[Tree] = []

    def fit(self, features: Numbers, wanted: Numbers, weights: Numbers | None = None) -> Trees:
        """Fit to rows, each as important as its weight says."""
        weights = np.ones(len(wanted)) if weights is None else weights
        parts = np.linspace(0, 1, BINS + 1)[1:-1]
        self.edges, self.trees = np.quantile(features, parts, axis=0), []
        bins, left = self._bins(features), wanted.astype(np.float64)
        for _ in range(self.rounds):
            tree = self._grown(bins, left, weights)
            self.trees.append(tree)
            left = left - tree.predict(bins)
        return self

    def predict(self, features: Numbers) -> Numbers:
        """A number for each row; 0 before anything was fitted."""
        if not self.trees:
            return np.zeros(len(features))
        bins = self._bins(features)
        return np.sum([tree.predict(bins) for tree in self.trees], 0)

    def _bins(self, features: Numbers) -> Whole:
        """How many edges of its feature each number is above."""
        return (features[:, None, :] > self.edges[None]).sum(1)

    def _grown(self, bins: Whole, left: Numbers, weights: Numbers) -> Tree:
        position = np.zeros(len(left), np.int64)
        asked, above = list[int](), list[int]()
        for depth in range(self.depth):
            feature, least = self._question(bins, left, weights, position, 2**depth)
            asked.append(feature)
            above.append(least)
            position = 2 * position + (bins[:, feature] >= least)
        total = np.bincount(position, weights * left, 2**self.depth)
        count = np.bincount(position, weights, 2**self.depth)
        leaves = self.rate * total / (count + self.ridge)
        return Tree(tuple(asked), tuple(above), leaves)

    def _question(
        self, bins: Whole, left: Numbers, weights: Numbers, position: Whole, nodes: int
    ) -> tuple[int, int]:
        """The feature and the bin that explain most if all nodes are parted by them."""
        count = bins.shape[1]
        slots = ((position[:, None] * count + np.arange(count)) * BINS + bins).ravel()
        shape, size = (nodes, count, BINS), nodes * count * BINS
        of_rows = np.repeat(weights, count)
        sums = np.bincount(slots, np.repeat(weights * left, count), size).reshape(shape)
        rows = np.bincount(slots, of_rows, size).reshape(shape)
        under, below = sums.cumsum(2)[:, :, :-1], rows.cumsum(2)[:, :, :-1]
        over = sums.sum(2, keepdims=True) - under
        beyond = rows.sum(2, keepdims=True) - below
        gain = under**2 / (below + self.ridge) + over**2 / (beyond + self.ridge)
        best = int(gain.sum(0).argmax())
        return best // (BINS - 1), best % (BINS - 1) + 1
