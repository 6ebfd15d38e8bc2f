"""Open sizes that become numbers: the same results, nothing left to compute on sizes."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.graph.builder import Builder
from tilewright.graph.evaluate import evaluate
from tilewright.graph.folding import Folding
from tilewright.graph.graph import Graph
from tilewright.graph.parse import parse
from tilewright.graph.specialise import numbers_of, specialise
from tilewright.ir.dtype import dtype
from tilewright.ir.expr import Var
from tilewright.support.errors import CompileError


def rows_and_columns() -> Graph:
    """A transposed tensor, and how many elements it has."""
    build = Folding("model")
    rows, columns = build.symbol("rows"), build.symbol("columns")
    x = build.input("x", "f32", (rows, columns * 2 + 1))
    y = build.emit("transpose", x, perm=(1, 0))
    count = build.from_sizes(np.array([rows * (columns * 2 + 1)], object), dtype("i64"))
    return build.finish({"y": build.emit("mul", y, y), "count": count})


@pytest.mark.parametrize(
    "shapes", [{"rows": 3, "columns": 2}, {"x": (3, 5)}, {"rows": 3, "x": (None, 5)}]
)
def test_numbers_stand_for_symbols(shapes):
    graph = specialise(rows_and_columns(), shapes)
    assert graph.symbols == () and [n.op for n in graph.nodes] == ["transpose", "mul"]
    x = np.random.default_rng(1).standard_normal((3, 5)).astype(np.float32)
    y, count = evaluate(graph, [x])
    np.testing.assert_array_equal(y, x.T * x.T)
    assert count.tolist() == [15]
    assert parse(str(graph), {c.digest: c.array for c in graph.constants.values()}) == graph


def test_some_sizes_stay_open():
    graph = specialise(rows_and_columns(), {"columns": 1})
    assert [s.name for s in graph.symbols] == ["rows"]
    assert graph.inputs[0].type_text == "f32[rows, 3]"
    assert specialise(graph, {}) is graph


def test_what_does_not_fit_is_refused():
    graph = rows_and_columns()
    ranged = graph.replace(ranges={"rows": (2, 8)})
    for shapes, why in (
        ({"row": 3}, "it has no open size 'row'"),
        ({"y": (3, 5)}, "it has no input 'y'"),
        ({"x": (3,)}, "of rank 2"),
        ({"x": (3, 4)}, "axis 1 of the input is columns \\* 2 \\+ 1"),
        ({"x": (3, 5), "columns": 4}, "is 2 elsewhere, not 4"),
        ({"rows": -1}, "is from 0 to"),
    ):
        with pytest.raises(CompileError, match=why):
            numbers_of(graph, shapes)
    with pytest.raises(CompileError, match="from 2 to 8, not 9"):
        specialise(ranged, {"rows": 9})


def test_sizes_that_were_measured_are_known():
    build = Builder("model")
    n = build.symbol("n")
    x = build.input("x", "f32", (n, 4))
    sizes = build.emit("size_values", values=(n * 2,), shape=(1,), of="i64")
    build.emit("measure", sizes, symbols=("m",))
    build.symbol("m")
    twice = build.emit("concat", x, x, axis=0)
    y = build.emit("view_as", twice, shape=(Var("m"), 4))
    graph = specialise(build.finish([y]), {"n": 3})
    assert graph.data_dependent == () and graph.outputs[0].static_shape == (6, 4)
    a = np.random.default_rng(2).standard_normal((3, 4)).astype(np.float32)
    np.testing.assert_array_equal(evaluate(graph, [a])[0], np.concatenate([a, a]))
