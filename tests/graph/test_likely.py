"""Inputs of whole numbers: what the graph says they hold."""

from __future__ import annotations

import numpy as np

from tilewright.graph.builder import Builder
from tilewright.graph.likely import likely_values


def test_indices_lie_in_the_smallest_table_that_they_reach():
    build = Builder("model")
    ids = build.input("ids", "i64", (1, 5))
    flat = build.emit("reshape", ids, shape=(5,))
    large = build.constant(np.zeros((70, 3), np.float32))
    small = build.constant(np.zeros((3, 40), np.float32))
    a = build.emit("gather", large, ids, axis=0)
    b = build.emit("gather", small, flat, axis=-1)
    assert likely_values(build.finish([a, b])) == {"ids": (0, 39)}


def test_what_is_compared_with_constants_is_one_of_them():
    build = Builder("model")
    rate = build.input("sr", "i64", ())
    slow = build.emit("equal", rate, build.constant(np.array(8000)))
    fast = build.emit("equal", rate, build.constant(np.array([16000])))
    assert likely_values(build.finish([slow, fast])) == {"sr": (16000, 16000)}


def test_a_mask_leaves_everything_in_and_other_numbers_are_not_guessed():
    build = Builder("model")
    mask = build.input("attention_mask", "i64", (1, 5))
    other = build.input("steps", "i64", (1, 5))
    image = build.input("image", "f32", (1, 5))
    y = build.emit("mul", build.emit("cast", build.emit("add", mask, other), to="f32"), image)
    assert likely_values(build.finish([y])) == {"attention_mask": (1, 1)}
