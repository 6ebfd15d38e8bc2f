"""How much work functions are: operations and elements touched, counted from their blocks."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright import te
from tilewright.graph import sizes
from tilewright.ir.expr import Var, as_int
from tilewright.ir.stmt import For, Func
from tilewright.ir.walk import blocks, visit
from tilewright.strategy.select import default
from tilewright.strategy.work import (
    flops,
    is_worth_a_region,
    spare_time,
    spare_times,
    touched,
)
from tilewright.target.target import target
from tilewright.te.program import program


def counts(func: Func, **given: int) -> dict[str, int]:
    """Elements touched by the parameters' names, with these sizes."""
    values = {p: given[p.name] for p in func.params if isinstance(p, Var) and p.name in given}
    return {b.name: sizes.at(sizes.size(n), values) for b, n in touched(func).items()}


def test_a_product_reads_its_operands_once():
    A, B = te.placeholder((64, 32), name="A"), te.placeholder((32, 16), name="B")
    k = te.reduce_axis(32, "k")
    C = te.compute((64, 16), lambda i, j: te.sum(A[i, k] * B[k, j], k), name="C")
    func = te.func("matmul", [A, B], [C])
    assert counts(func) == {"A": 64 * 32, "B": 32 * 16, "C": 64 * 16}
    assert sizes.at(sizes.size(flops(func)), {}) == 2 * 64 * 32 * 16


def test_a_look_up_reads_the_rows_that_it_can_name():
    n = te.var("n")
    table, rows = te.placeholder((1000, 8), name="table"), te.placeholder((n,), "i64", name="rows")
    found = te.compute((n, 8), lambda i, j: table[rows[i], j], name="found")
    func = te.func("look_up", [table, rows], [found])
    assert counts(func, n=5) == {"table": 40, "rows": 5, "found": 40}
    assert counts(func, n=5000)["table"] == 8000  # never more than it has


def test_a_slice_reads_a_part_and_windows_overlap():
    A = te.placeholder((100, 10), name="A")
    part = te.compute((3, 10), lambda i, j: A[50 + i, j], name="part")
    assert counts(te.func("slice", [A], [part])) == {"A": 30, "part": 30}
    k = te.reduce_axis(5, "k")
    X = te.placeholder((20,), name="X")
    windows = te.compute((16,), lambda i: te.max(X[i + k], k), name="windows")
    assert counts(te.func("pool", [X], [windows])) == {"X": 20, "windows": 16}
    both = te.compute((3,), lambda i: A[i, 0] + A[i + 7, 1], name="both")
    assert counts(te.func("two", [A], [both])) == {"A": 6, "both": 3}


def doubled(*shape: object) -> Func:
    A = te.placeholder(shape, name="A")
    return te.func("double", [A], [te.compute(shape, lambda *i: A[i] * 2.0, name="B")])


def test_the_run_is_told_what_is_worth_a_region():
    """At the sizes where code for fixed ones gets threads, the code for open ones runs on them."""
    machine, n = target("cpu"), te.var("n")
    least = int(machine.costs.fork_join) * 4  # f32 of as many results as a fork-join takes to start
    for size, worth in ((least, True), (least - 16, False)):
        assert is_worth_a_region(blocks(doubled(size).body), machine) is worth
        spare = sizes.size(spare_time(doubled(n), machine))
        assert (sizes.at(spare, {n: size}) >= 0) is worth
    assert is_worth_a_region(blocks(doubled(n).body), machine)


def test_what_is_written_in_loops_counts_their_rounds():
    """Of the longest nest; a loop whose end is data goes round once."""
    text = """
def walk(x: f32[n], steps: i32[n], y: f32[n], n: i64):
    for c in parallel(0, (n + 15) // 16):
        for r in serial(0, min(16, n - c * 16)):
            for d in serial(0, i64(steps[c * 16 + r])):
                y[c * 16 + r] = x[c * 16 + r] + y[c * 16 + r]
        y[c] = 0.0
"""
    n = te.var("n")
    x, steps = te.placeholder((n,), name="x"), te.placeholder((n,), "i32", name="steps")
    spare = sizes.size(spare_time(te.func("w", [x, steps], [program(text, [x, steps], "f32")]),
                                  target("cpu")))  # fmt: skip
    region = -sizes.at(spare, {n: 0})
    assert region > 0
    assert sizes.at(spare, {n: 320}) == 320 * 16 - region  # each a quarter of a cycle


def test_results_of_unknown_length_have_parallel_chunks():
    def kinds(func: Func, threads: int) -> set[str]:
        made = default(func, target("cpu"), threads).func
        return {s.kind for s in visit(made.body) if isinstance(s, For)}

    n, batch = te.var("n"), te.var("batch")
    for func in (doubled(n), doubled(batch, n), doubled(1, n, 3)):
        assert "parallel" in kinds(func, 2) and "parallel" not in kinds(func, 1)


def test_a_multiply_add_is_cheaper_than_a_result():
    n, k = te.var("n"), te.reduce_axis(64, "k")
    A, B = te.placeholder((n, 64), name="A"), te.placeholder((64, 64), name="B")

    def product(attrs: Mapping[str, object]) -> Func:
        body = te.sum
        C = te.compute(
            (n, 64), lambda i, j: body(A[i, k] * B[k, j], k), name="C", attrs=dict(attrs)
        )
        return te.func("matmul", [A, B], [C])

    found = [spare_time(product(attrs), target("cpu")) for attrs in ({}, {"role": "matmul"})]
    plain, fast = (sizes.at(sizes.size(spare), {n: 50}) for spare in found)
    assert plain > fast


def test_one_row_waits_for_its_weights():
    """A product of one row with 256 KB of weights has few multiply-adds and is worth threads."""
    n, k = te.var("n"), te.reduce_axis(128, "k")
    A, B = te.placeholder((n, 128), name="A"), te.placeholder((128, 512), name="B")
    C = te.compute(
        (n, 512), lambda i, j: te.sum(A[i, k] * B[k, j], k), name="C", attrs={"role": "matmul"}
    )
    spare = sizes.size(spare_time(te.func("matmul", [A, B], [C]), target("cpu")))
    assert sizes.at(spare, {n: 1}) > 0


def test_each_launch_counts_for_itself():
    """The padded copy of a few rows is no product, and what a launch keeps is its own."""
    n, k = te.var("n"), te.reduce_axis(128, "k")
    A, B = te.placeholder((n, 128), name="A"), te.placeholder((128, 512), name="B")
    pad = te.compute((n, 128), lambda i, j: A[i, j] + 1.0, name="pad")
    C = te.compute(
        (n, 512), lambda i, j: te.sum(pad[i, k] * B[k, j], k), name="C", attrs={"role": "matmul"}
    )
    D = te.compute((n, 512), lambda i, j: C[i, j] * 2.0, name="D")
    func = te.func("padded", [A, B], [D])
    launches = [{"A", "pad"}, {"pad", "B", "D"}, {"D"}]
    copy, product, nothing = (
        sizes.at(sizes.size(spare), {n: 1}) for spare in spare_times(func, target("cpu"), launches)
    )
    assert (
        copy
        < 0
        < product
        < nothing
        == sizes.at(sizes.size(spare_time(func, target("cpu"))), {n: 1})
    )


def test_whole_planes_have_several_independent_vectors_and_single_rows_one():
    """Of open sizes a plane is likely long; of a row most would be what is left over."""
    h, w = te.var("h"), te.var("w")
    machine = target("cpu -mcpu=skylake-avx512")

    def unrolled(func: Func) -> list[int]:
        loops = [n for n in visit(default(func, machine, 1).func.body) if isinstance(n, For)]
        return [as_int(n.extent) or 0 for n in loops if n.kind == "unroll"]

    assert unrolled(doubled(8, h, w)) == [4]
    assert unrolled(doubled(w)) == []
    assert unrolled(doubled(8, 640)) == [4]
