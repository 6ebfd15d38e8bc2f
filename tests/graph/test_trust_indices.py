"""Gathers clamp their indices, but for those that surely lie inside."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.graph import Builder, evaluate, sizes
from tilewright.graph.passes.trust_indices import trust_indices


@pytest.mark.parametrize("op", ["gather", "gather_elements"])
@pytest.mark.parametrize(
    ("how", "is_trusted", "from_start"),
    [("checked", True, False), ("narrowly", True, True), ("widely", False, False),
     ("under a condition", False, False), ("not", False, False), ("found", True, True),
     ("constant", True, False), ("held", True, True), ("held from below", False, False),
     ("held from above", False, False), ("held elsewhere", False, False)],
)  # fmt: skip
def test_gathers(op: str, how: str, is_trusted: bool, from_start: bool):
    build = Builder("g")
    n = build.symbol("n")
    x, i = build.input("x", "f32", (n,)), build.input("i", "i64", (2,))
    only = [build.input("c", "bool", ())] if how == "under a condition" else []
    least, most = sizes.size(0 - n), sizes.size(n - 1)
    if how == "constant":
        x = build.constant(np.arange(3, dtype=np.float32))
        i = build.constant(np.array([-3, 2]))
    elif how == "found":
        i = build.emit("argmax", x, axis=0, keepdims=True)
    elif how.startswith("held"):
        end = n if how == "held elsewhere" else sizes.size(n - 1)
        if how != "held from above":
            i = build.emit("maximum", i, build.constant(np.int64(0)))
        if how != "held from below":
            i = build.emit("minimum", i, build.emit("size_values", values=(end,), shape=()))
    elif how != "not":
        least = sizes.size(0) if how == "narrowly" else least
        most = n if how == "widely" else most
        i = build.emit("check_bounds", i, i, *only, least=(least,), most=(most,), what="r")
    before = build.finish({"y": build.emit(op, x, i, axis=0)})
    after = trust_indices(before)
    assert after.nodes[-1]["trusted"] == is_trusted
    assert after.nodes[-1]["from_start"] == from_start
    assert (after is before) != is_trusted
    arrays = [np.array([3, 5, 4], np.float32), np.array([1, 2]), np.array(True)]
    arrays = arrays[: len(before.inputs)]
    for a, b in zip(evaluate(before, arrays), evaluate(after, arrays), strict=True):
        np.testing.assert_array_equal(a, b)
