"""Sketches: spaces of schedules made of blocks alone. Every point of one is right, and points as
text, rows and models keep to one another."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tilewright import te
from tilewright.codegen import inprocess
from tilewright.ir.expr import as_int
from tilewright.ir.walk import stores
from tilewright.strategy.select import SKETCH, default
from tilewright.strategy.sketch.tiles import plan, plans
from tilewright.strategy.space import decisions, partial
from tilewright.support.errors import ScheduleError
from tilewright.target.target import target

CPU = target("cpu")


def einsum(words, *shapes, dtype="f32", combine=lambda *x: np.multiply.reduce(x), epilogue=False):
    """The function of a sum over operands of these shapes, and its reference."""
    ins, out = words.split("->")
    ins = ins.split(",")
    sizes = {
        c: s for w, shape in zip(ins, shapes, strict=True) for c, s in zip(w, shape, strict=True)
    }
    operands = [te.placeholder(s, dtype, f"x{n}") for n, s in enumerate(shapes)]
    axes = {c: te.reduce_axis((0, sizes[c]), "r" + c) for c in sizes if c not in out}

    def value(*at):
        index = dict(zip(out, at, strict=True)) | axes
        read = [x[tuple(index[c] for c in w)] for x, w in zip(operands, ins, strict=True)]
        total = read[0]
        for x in read[1:]:
            total = total * x
        return te.sum(total, [*axes.values()])

    made = te.compute([sizes[c] for c in out], value, name="product")
    if epilogue:
        sums = made
        made = te.compute(sums.shape, lambda *i: te.maximum(sums[i], 0.0) * 0.5, name="half")

    def reference(*arrays):
        sums = np.einsum(words, *(a.astype(np.float64) for a in arrays))
        return np.maximum(sums, 0) * 0.5 if epilogue else sums

    return te.func("f", operands, [made]), reference


def stencil():
    x, w = te.placeholder((9, 11, 21), "f32", "x"), te.placeholder((3, 3, 2), "f32", "w")
    a, b, c = (te.reduce_axis((0, n), k) for n, k in zip((3, 3, 2), "abc", strict=True))
    y = te.compute(
        (7, 9, 20), lambda i, j, k: te.sum(x[i + a, j + b, k + c] * w[a, b, c], [a, b, c]), name="y"
    )

    def reference(x, w):
        views = np.lib.stride_tricks.sliding_window_view(x.astype(np.float64), w.shape)
        return np.einsum("ijkabc,abc->ijk", views, w)

    return te.func("f", [x, w], [y]), reference


def distances():
    x, y = te.placeholder((19, 13), "f32", "x"), te.placeholder((23, 13), "f32", "y")
    k = te.reduce_axis((0, 13), "k")
    z = te.compute((19, 23), lambda i, j: te.sum(te.abs(x[i, k] - y[j, k]), k), name="z")

    def reference(x, y):
        return np.abs(x[:, None].astype(np.float64) - y[None]).sum(2)

    return te.func("f", [x, y], [z]), reference


def greatest_sums():
    x, y = te.placeholder((17, 12), "f32", "x"), te.placeholder((12, 21), "f32", "y")
    k = te.reduce_axis((0, 12), "k")
    z = te.compute((17, 21), lambda i, j: te.max(x[i, k] + y[k, j], k), name="z")
    return te.func("f", [x, y], [z]), lambda x, y: (x[:, :, None] + y[None]).max(1)


def rows_by_number():
    v, at = te.placeholder((20, 5), "f32", "v"), te.placeholder((20, 5), "i32", "at")
    x, k = te.placeholder((9, 24), "f32", "x"), te.reduce_axis((0, 5), "k")
    y = te.compute((20, 24), lambda i, j: te.sum(v[i, k] * x[at[i, k], j], k), name="y")

    def reference(v, at, x):
        return np.einsum("ik,ikj->ij", v.astype(np.float64), x[at])

    return te.func("f", [v, at, x], [y]), reference


def nearest():
    """Two reductions, the second one of pairs."""
    x, y = te.placeholder((11, 5), "f32", "x"), te.placeholder((37, 5), "f32", "y")
    k, j = te.reduce_axis((0, 5), "k"), te.reduce_axis((0, 37), "j")
    d = te.compute((11, 37), lambda i, j: te.sum((x[i, k] - y[j, k]) * (x[i, k] - y[j, k]), k))
    v, at = te.compute((11,), lambda i: te.argmin(d[i, j], j), name="v")

    def reference(x, y):
        far = ((x[:, None].astype(np.float64) - y[None]) ** 2).sum(2)
        return far.min(1), far.argmin(1)

    return te.func("f", [x, y], [v, at]), reference


def greatest_products():
    """Pairs in tiles."""
    x, y = te.placeholder((13, 9), "f32", "x"), te.placeholder((9, 26), "f32", "y")
    k = te.reduce_axis((0, 9), "k")
    v, at = te.compute((13, 26), lambda i, j: te.argmax(x[i, k] * y[k, j], k), name="v")

    def reference(x, y):
        terms = x[:, :, None] * y[None]
        return terms.max(1), terms.argmax(1)

    return te.func("f", [x, y], [v, at]), reference


def normalised():
    """Three blocks on one another: the greatest, the sum, and what divides by it."""
    x, (a, b) = te.placeholder((6, 14, 20), "f32", "x"), [te.reduce_axis((0, 14), n) for n in "ab"]
    m = te.compute((6, 20), lambda i, j: te.max(x[i, a, j], a), name="m")
    s = te.compute((6, 20), lambda i, j: te.sum(te.exp(x[i, b, j] - m[i, j]), b), name="s")
    y = te.compute(x.shape, lambda i, k, j: te.exp(x[i, k, j] - m[i, j]) / s[i, j], name="y")

    def reference(x):
        e = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
        return e / e.sum(1, keepdims=True)

    return te.func("f", [x], [y]), reference


def compared():
    """Position and shift walk one dimension of an operand whose copies may lie in another order."""
    x, y = te.placeholder((5, 6, 20), "f32", "x"), te.placeholder((5, 6, 27), "f32", "y")
    k = te.reduce_axis((0, 5), "k")
    z = te.compute((8, 6, 20), lambda d, i, j: te.sum(x[k, i, j] * y[k, i, j + 7 - d], k), name="z")

    def reference(x, y):
        near = np.lib.stride_tricks.sliding_window_view(y.astype(np.float64), 20, 2)[:, :, ::-1]
        return np.einsum("kij,kidj->dij", x, near)

    return te.func("f", [x, y], [z]), reference


def filtered_twice():
    """A filter along one axis, another along the next: the first makes what the second needs."""
    x, w = te.placeholder((12, 10, 21), "f32", "x"), te.placeholder((3,), "f32", "w")
    a, b = (te.reduce_axis((0, 3), n) for n in "ab")
    p = te.compute((12, 8, 21), lambda i, j, k: te.sum(x[i, j + a, k] * w[a], a), name="p")
    q = te.compute((12, 8, 19), lambda i, j, k: te.sum(p[i, j, k + b] * w[b], b), name="q")

    def reference(x, w):
        view, w = np.lib.stride_tricks.sliding_window_view, w.astype(np.float64)
        return view(view(x.astype(np.float64), 3, 1) @ w, 3, 2) @ w

    return te.func("f", [x, w], [q]), reference


def strided_pairs():
    """Operands whose parts lie between one another, and two results of their own blocks."""
    x, y = te.placeholder((9, 12, 2), "f32", "x"), te.placeholder((12, 21, 2), "f32", "y")
    k = te.reduce_axis((0, 12), "k")
    re = te.compute(
        (9, 21), lambda i, j: te.sum(x[i, k, 0] * y[k, j, 0] - x[i, k, 1] * y[k, j, 1], k), name="r"
    )
    im = te.compute(
        (9, 21), lambda i, j: te.sum(x[i, k, 0] * y[k, j, 1] + x[i, k, 1] * y[k, j, 0], k), name="c"
    )

    def reference(x, y):
        z = (x[..., 0] + 1j * x[..., 1]) @ (y[..., 0] + 1j * y[..., 1])
        return z.real, z.imag

    return te.func("f", [x, y], [re, im]), reference


def padded():
    """A convolution whose padding is a block of its own."""
    x, f = te.placeholder((3, 9, 17), "f32", "x"), te.placeholder((5, 3, 3, 3), "f32", "f")
    c, a, b = (te.reduce_axis((0, 3), n) for n in "cab")
    p = te.compute(
        (3, 11, 19),
        lambda c, i, j: te.select(
            (i >= 1) & (i < 10) & (j >= 1) & (j < 18), x[c, i - 1, j - 1], 0.0
        ),
        name="p",
    )
    y = te.compute(
        (5, 9, 17), lambda o, i, j: te.sum(p[c, i + a, j + b] * f[o, c, a, b], [c, a, b]), name="y"
    )

    def reference(x, f):
        wide = np.pad(x.astype(np.float64), ((0, 0), (1, 1), (1, 1)))
        views = np.lib.stride_tricks.sliding_window_view(wide, (3, 3), (1, 2))
        return np.einsum("cijab,ocab->oij", views, f)

    return te.func("f", [x, f], [y]), reference


CASES = {
    "rows by columns": lambda: einsum("ik,kj->ij", (37, 45), (45, 43)),
    "both transposed": lambda: einsum("ki,jk->ij", (24, 33), (40, 24), epilogue=True),
    "four axes": lambda: einsum("abcd,dcef->abef", (5, 6, 7, 3), (3, 7, 4, 9)),
    "five axes": lambda: einsum("aebfc,fdec->abd", (4, 6, 9, 5, 2), (5, 17, 6, 2)),
    "bilinear": lambda: einsum("ni,kij,nj->nk", (9, 8), (12, 8, 10), (9, 10)),
    "sums of the middle": lambda: einsum("abc->b", (6, 17, 10)),
    "of doubles": lambda: einsum("ik,kj->ij", (13, 20), (20, 18), dtype="f64"),
    "stencil": stencil,
    "distances": distances,
    "greatest sums": greatest_sums,
    "rows by number": rows_by_number,
    "nearest": nearest,
    "greatest products": greatest_products,
    "normalised": normalised,
    "strided pairs": strided_pairs,
    "padded": padded,
    "compared": compared,
    "filtered twice": filtered_twice,
}


def arrays_of(func, seed):
    """Random inputs, and results that are no numbers yet."""
    random = np.random.default_rng(seed)
    results = {store.buffer.name for store in stores(func.body)}
    given, found = [], []
    for b in func.buffers:
        shape = tuple(as_int(d) or 0 for d in b.shape)
        if b.name in results:
            found.append(np.full(shape, np.nan if b.dtype.is_float else -1, b.dtype.numpy))
        elif b.dtype.is_float:
            given.append(random.standard_normal(shape).astype(b.dtype.numpy))
        else:
            given.append(random.integers(0, 9, shape, dtype=b.dtype.numpy))
    return given, found


def planned(case, threads=1):
    func, _ = CASES[case]()
    own = plan(func, CPU, threads)
    assert own is not None
    return func, own


def named(own, row):
    return {"strategy": SKETCH, **own.point(row)}


@pytest.mark.parametrize("case", CASES)
def test_every_point_computes_the_same(case, draws):
    func, reference = CASES[case]()
    found = plans(func, CPU, 2)
    assert len(found) == {"padded": 2, "normalised": 2, "filtered twice": 2}.get(case, 1)
    drawn = [(p, r) for p in found for r in (p.pick, *p.draw(draws(5), np.random.default_rng(3)))]
    for seed, (own, row) in enumerate(drawn):
        made = partial(func, CPU, 2, named(own, row))
        given, found = arrays_of(func, seed)
        inprocess.run(made.func, *given, *found)
        expected = reference(*given)
        for one, other in zip(found, expected if len(found) > 1 else [expected], strict=True):
            atol = 2e-5 * np.abs(other).max() if one.dtype.kind == "f" else 0
            np.testing.assert_allclose(one, other, rtol=0, atol=atol, err_msg=str(row))


@pytest.mark.parametrize("case", CASES)
def test_points_are_rows(case):
    func, own = planned(case, 2)
    for row in own.draw(20, np.random.default_rng(5)):
        told = json.loads(json.dumps(named(own, row)))
        made = decisions(partial(func, CPU, 2, told))
        assert made.items() >= told.items()  # the rest is how operands are copied
        assert (own.row(made) == row).all()


def test_the_pick_is_no_slower_by_the_model_than_what_is_drawn():
    _, own = planned("four axes")
    rows = own.draw(500, np.random.default_rng(8))
    assert own.cycles(own.pick[None])[0] <= own.cycles(rows).min()


def test_neighbours_differ_in_one_decision():
    _, own = planned("bilinear")
    around = own.neighbours(own.pick)
    assert len(around) > 5
    assert ((around != own.pick).sum(1) == 1).all()
    assert own.is_legal(around).all()


def test_two_drawers_of_one_seed_draw_the_same():
    _, own = planned("five axes")
    a, b = (own.draw(50, np.random.default_rng(4)) for _ in range(2))
    assert (a == b).all()
    assert len(np.unique(a, axis=0)) == 50


def test_a_point_that_needs_too_many_registers_is_refused():
    func, own = planned("rows by columns")
    wanted = named(own, own.pick) | {"product.tile_0": 16, "product.tile_n": 6}
    with pytest.raises(ScheduleError, match="registers"):
        partial(func, CPU, 1, wanted)


def test_a_value_that_none_may_be_is_refused():
    _, own = planned("rows by columns")
    with pytest.raises(ScheduleError, match=r"decision .product\.unroll."):
        own.row({**own.point(own.pick), "product.unroll": 77})


def elementwise():
    x = te.placeholder((8, 8), "f32", "x")
    return te.func("f", [x], [te.compute((8, 8), lambda i, j: x[i, j] + 1.0, name="y")])


@pytest.mark.parametrize("make", [elementwise, lambda: einsum("ab,ab->", (7, 36), (7, 36))[0]])
def test_what_is_no_reduction_to_several_results_has_no_plan(make):
    func = make()
    assert plan(func, CPU, 1) is None
    with pytest.raises(ScheduleError, match="in tiles"):
        partial(func, CPU, 1, {"strategy": SKETCH})


def test_the_default_of_a_function_is_as_it_was():
    func, _ = CASES["rows by columns"]()
    assert decisions(default(func, CPU, 1))["strategy"] == "family"


@pytest.mark.parametrize("case", ["four axes", "nearest", "normalised"])
def test_the_pick_adds_in_one_order_for_any_number_of_threads(case):
    _, one = planned(case)
    _, several = planned(case, 3)
    of_one, of_several = one.point(one.pick), several.point(several.pick)
    assert of_several.items() >= of_one.items()
    assert all(name.endswith(".parallel") for name in of_several.keys() - of_one.keys())
