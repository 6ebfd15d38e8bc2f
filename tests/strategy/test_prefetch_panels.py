"""The next panel of weights is prefetched where its transfer takes long and tiles reread it."""

import pytest

from tilewright import te
from tilewright.graph.operator import OPERATORS
from tilewright.schedule import Schedule
from tilewright.strategy.select import default
from tilewright.strategy.space import decisions, partial
from tilewright.target.target import target

WIDE = target("cpu -mcpu=znver4")  # 1 MB of L2, vectors of 64 bytes


def product(rows: int, depth: int, columns: int) -> Schedule:
    x = te.placeholder((rows, depth), "f32", "x")
    w = te.placeholder((columns // 64, depth, 64), "f32", "w")
    func = te.func("f", [x, w], [OPERATORS["dense_packed"].define(x, w, channels=columns)])
    return default(func, WIDE, strict=True)


@pytest.mark.parametrize(
    ("rows", "columns", "prefetch"),
    [
        (36, 4096, 1),
        (16, 4096, 1),
        (128, 4096, 1),
        (1, 4096, 0),
        (4, 4096, 0),
        (1024, 4096, 0),
        (36, 128, 0),
    ],
)
def test_asked_for_where_it_pays(rows, columns, prefetch):
    """Not for one row, which reads everything once, nor for weights that stay near."""
    made = product(rows, 512, columns)
    assert decisions(made)["dense.prefetch"] == prefetch
    assert ("prefetch(w[" in made.show()) == bool(prefetch)


def test_the_first_tiles_of_unknown_rows_ask():
    x = te.placeholder((te.var("n"), 64), "f32", "x")
    w = te.placeholder((64, 64, 64), "f32", "w")
    func = te.func("f", [x, w], [OPERATORS["dense_packed"].define(x, w, channels=4096)])
    made = default(func, WIDE, strict=True)
    assert decisions(made)["dense.prefetch"] == 1
    assert "prefetch(w[" in made.show()


def test_it_is_a_decision():
    x = te.placeholder((36, 64), "f32", "x")
    w = te.placeholder((4, 64, 64), "f32", "w")
    func = te.func("f", [x, w], [OPERATORS["dense_packed"].define(x, w, channels=256)])
    assert "prefetch(w[" in partial(func, WIDE, 1, {"dense.prefetch": 1}).show()
    for n in (0, 1):
        assert decisions(partial(func, WIDE, 1, {"dense.prefetch": n}))["dense.prefetch"] == n
