"""Decision trees: the leaf that each row of features reaches in each tree."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.graph import sizes
from tilewright.graph.operator import OPAQUE, Type, need, operator
from tilewright.ir.dtype import dtype
from tilewright.te.program import program

I64 = dtype("i64")
RULES = ("<=", "<", ">=", ">", "==", "!=")  # a node's rule is a place in this list


def _type(x: Any, nodes: Any, splits: Any, roots: Any, *, depth: int) -> Type:
    need(x.dtype.is_float and len(x.shape) == 2, "needs rows of floats")
    need(nodes.dtype is I64 and roots.dtype is I64, "nodes and roots are i64")
    need(len(nodes.shape) == 2 and nodes.shape[1] == sizes.size(5), "a node has five numbers")
    need(splits.dtype is x.dtype, f"splits are {splits.dtype}, features {x.dtype}")
    need(splits.shape == nodes.shape[:1], "needs a split for each node")
    need(len(roots.shape) == 1 and depth >= 0, "roots stand in a vector; depth is not negative")
    return I64, (x.shape[0], roots.shape[0])


def _leaves(
    x: np.ndarray, nodes: np.ndarray, splits: np.ndarray, roots: np.ndarray, depth: int
) -> np.ndarray:
    rules = (np.less_equal, np.less, np.greater_equal, np.greater, np.equal, np.not_equal)
    leaf = np.empty((x.shape[0], roots.shape[0]), np.int64)
    for r, t in np.ndindex(*leaf.shape):
        at = roots[t]
        for _ in range(depth):
            feature, rule, missing, yes, no = nodes[at]
            value = x[r, feature]
            at = yes if rules[rule](value, splits[at]) or (missing and value != value) else no
        leaf[r, t] = at
    return leaf


_LEAVES = """
def tree_leaves(x: T[n, f], nodes: i64[m, five], splits: T[m], roots: i64[t], leaf: i64[n, t],
                n: i64, f: i64, m: i64, five: i64, t: i64, depth: i64):
    for r in serial(0, n):
        for k in serial(0, t):
            leaf[r, k] = roots[k]
            for d in serial(0, depth):
                value: T = x[r, nodes[leaf[r, k], 0]]
                split: T = splits[leaf[r, k]]
                rule: i64 = nodes[leaf[r, k], 1]
                low: bool = rule == 0 and value <= split or rule == 1 and value < split
                high: bool = rule == 2 and value >= split or rule == 3 and value > split
                same: bool = rule == 4 and value == split or rule == 5 and value != split
                gone: bool = nodes[leaf[r, k], 2] != 0 and value != value
                if low or high or same or gone:
                    leaf[r, k] = nodes[leaf[r, k], 3]
                else:
                    leaf[r, k] = nodes[leaf[r, k], 4]
"""


@operator(fusion=OPAQUE, infer=_type, reference=_leaves)
def tree_leaves(x: Any, nodes: Any, splits: Any, roots: Any, *, depth: int) -> Any:
    """The node that each row reaches in each tree after `depth` steps from its root.

    A node has five numbers: feature, rule (a place in RULES; it compares the feature with the
    node's split), whether a NaN follows the rule, the next node if so, and the next if not. A leaf
    leads to itself.
    """
    return program(_LEAVES, [x, nodes, splits, roots], x.dtype, depth=sizes.size(depth))
