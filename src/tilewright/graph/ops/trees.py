"""Decision trees: the leaf that each row of features reaches in each tree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.graph import sizes
from tilewright.graph.operator import OPAQUE, Type, need, operator
from tilewright.ir.dtype import dtype
from tilewright.te.program import program

I32 = dtype("i32")
RULES = ("<=", "<", ">=", ">", "==", "!=")  # a node's rule is an index of this list
MISSING = 8  # added to the rule: a NaN follows it
CODES = 16  # a node's first number is its feature times this, plus its rule
GROUP = 8  # trees that are walked side by side: none waits for the other's memory


def _type(
    x: Any, nodes: Any, splits: Any, roots: Any, depths: Any, *, rules: tuple[int, ...]
) -> Type:
    need(x.dtype.is_float and len(x.shape) == 2, "needs rows of floats")
    whole = all(t.dtype is I32 for t in (nodes, roots, depths))
    need(whole, "nodes, roots and depths are i32")
    need(len(nodes.shape) == 2 and nodes.shape[1] == sizes.size(2), "a node has two numbers")
    need(splits.dtype is x.dtype, f"splits are {splits.dtype}, features {x.dtype}")
    need(splits.shape == nodes.shape[:1], "needs a split for each node")
    need(len(roots.shape) == len(depths.shape) == 1, "roots and depths stand in vectors")
    many = sizes.size(depths.shape[0] * GROUP)
    need(roots.shape[0] == many, f"{GROUP} roots for each depth")
    known = all(0 <= r % MISSING < len(RULES) and r < CODES for r in rules)
    need(bool(rules) and known, "rules are indices of RULES, or that and MISSING")
    return I32, (x.shape[0], roots.shape[0])


def _leaves(
    x: np.ndarray, nodes: np.ndarray, splits: np.ndarray, roots: np.ndarray, depths: np.ndarray,
    rules: tuple[int, ...],
) -> np.ndarray:  # fmt: skip
    tests = (np.less_equal, np.less, np.greater_equal, np.greater, np.equal, np.not_equal)
    leaf = np.empty((x.shape[0], roots.shape[0]), np.int32)
    for r, t in np.ndindex(*leaf.shape):
        at = roots[t]
        for _ in range(depths[t // GROUP]):
            code, following = nodes[at]
            value, rule = x[r, code // CODES], code % CODES
            holds = tests[rule % MISSING](value, splits[at])
            at = following + (not (holds or (rule >= MISSING and value != value)))
        leaf[r, t] = at
    return leaf


_LEAVES = """
def tree_leaves(x: T[n, f], nodes: i32[m, two], splits: T[m], roots: i32[t], depths: i32[g],
                leaf: i32[n, t],
                n: i64, f: i64, m: i64, two: i64, t: i64, g: i64):
    for c in parallel(0, (n + ROWS - 1) // ROWS):
        lacks = alloc(bool[ROWS], "local")
        for s in serial(0, min(ROWS, n - c * ROWS)):
            lack = alloc(bool[1], "local")
            lack[0] = False
            for e in serial(0, ASKED):
                lack[0] = lack[0] or x[c * ROWS + s, e] != x[c * ROWS + s, e]
            lacks[s] = lack[0]
        for b in serial(0, g):
            for r in serial(0, min(ROWS, n - c * ROWS)):
                at = alloc(i64[GROUP], "local")
                moved = alloc(i64[1], "local")
                for k in unroll(0, GROUP):
                    at[k] = i64(roots[b * GROUP + k])
                moved[0] = 1
                if not lacks[r]:
                    WALK
                else:
                    WALK
                for k in unroll(0, GROUP):
                    leaf[c * ROWS + r, b * GROUP + k] = i32(at[k])
"""
_WALK = """for d in serial(0, i64(depths[b])):
                        if moved[0] != 0:
                            moved[0] = 0
                            for k in unroll(0, GROUP):
                                code: i64 = i64(nodes[at[k], 0])
                                value: T = x[c * ROWS + r, code // CODES]
                                split: T = splits[at[k]]
                                following: i64 = i64(nodes[at[k], 1]) + select(TEST, 0, 1)
                                moved[0] = moved[0] | (following ^ at[k])
                                at[k] = following"""
ROWS = 16  # that a group of trees is walked for before the next: its nodes stay in the cache


def _text(rules: tuple[int, ...]) -> str:
    """The program, where `rules` are all that occur. Few rows lack a number, and only those ask
    what a NaN does."""
    plain = sorted({rule % MISSING for rule in rules})
    asked = any(rule >= MISSING for rule in rules)
    text = _LEAVES.replace("ASKED", "f" if asked else "0")
    text = text.replace("WALK", _WALK.replace("TEST", _test(plain, MISSING)), 1)
    other = _WALK.replace("TEST", _test(rules, CODES)) if asked else "moved[0] = 0"
    text = text.replace("WALK", other)
    for name, number in (("ROWS", ROWS), ("GROUP", GROUP), ("CODES", CODES)):
        text = text.replace(name, str(number))
    return text


def _test(rules: Sequence[int], codes: int) -> str:
    """Does a node's rule hold, where `rules` are all that occur, told apart modulo `codes`?"""
    found = []
    for rule in rules:
        test = f"value {RULES[rule % MISSING]} split"
        if rule >= MISSING:
            test = f"({test} or value != value)"
        found.append(test if len(rules) == 1 else f"code % {codes} == {rule} and {test}")
    return " or ".join(found)


@operator(fusion=OPAQUE, infer=_type, reference=_leaves)
def tree_leaves(
    x: Any, nodes: Any, splits: Any, roots: Any, depths: Any, *, rules: tuple[int, ...]
) -> Any:
    """The node that each row reaches in each tree: [rows, roots].

    A node has two numbers: its feature times CODES plus its rule (an index of RULES, which compares
    the feature with the node's split; MISSING more if a NaN follows it), and the first of two nodes
    that stand side by side: that where the walk goes on if the rule holds, before that if it does
    not. A leaf leads to itself, being one of the two: its split is NaN, to which no number but by
    `!=` compares. Trees stand in groups of GROUP, of which `depths` tells the most steps: those
    whose trees have all led to leaves take no more. `rules` are the rules that occur.
    """
    return program(_text(rules), [x, nodes, splits, roots, depths], x.dtype)
