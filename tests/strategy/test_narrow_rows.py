"""narrow_rows: rows of few elements have a version of half vectors."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
import pytest

from tests.parameters.guard import Guarded
from tilewright.driver import versions
from tilewright.driver.compile import compile_observed, kernel_jobs, prepare
from tilewright.driver.kernels import KernelPool
from tilewright.driver.observe import Watch
from tilewright.graph.builder import Builder
from tilewright.graph.graph import Graph, Value
from tilewright.ir.expr import Expr, as_int
from tilewright.ir.stmt import For, Func
from tilewright.ir.text import print_expr
from tilewright.ir.walk import statements
from tilewright.lower.join_versions import join_versions
from tilewright.strategy.cpu.narrow_rows import narrow_rows
from tilewright.strategy.select import default
from tilewright.target.target import target

HALVES = target("cpu -mcpu=znver4")  # makes vectors of two halves, and has masks
HERE = f"{target('cpu')} -costs=multiply_adds:1" if "costs" not in str(target("cpu")) else "cpu"
SIZES = (0, 1, 7, 8, 9, 15, 16, 17, 24, 31, 32, 33, 40, 47, 48, 49, 63, 64, 65, 100, 1000)
Made = Callable[[Builder, Value, Value], Value]

OPS: dict[str, tuple[Made, Callable[[np.ndarray, np.ndarray], np.ndarray]]] = {
    "sum": (
        lambda build, x, v: build.emit("reduce_sum", x, axes=(2,)),
        lambda x, v: x.sum(2),
    ),
    "mean": (
        lambda build, x, v: build.emit("reduce_mean", x, axes=(2,), keepdims=True),
        lambda x, v: x.mean(2, keepdims=True),
    ),
    "max": (
        lambda build, x, v: build.emit("reduce_max", x, axes=(2,)),
        lambda x, v: x.max(2),
    ),
    "softmax": (
        lambda build, x, v: build.emit("softmax", x, axis=2),
        lambda x, v: np.exp(x) / np.exp(x).sum(2, keepdims=True),
    ),
    "gate": (
        lambda build, x, v: build.emit("mul", x, v),
        lambda x, v: x * v,
    ),
    "gate, costly": (
        lambda build, x, v: build.emit("mul", build.emit("exp", x), v),
        lambda x, v: np.exp(x) * v,
    ),
    "moved": (
        lambda build, x, v: build.emit("transpose", x, perm=(1, 0, 2)),
        lambda x, v: x.transpose(1, 0, 2),
    ),
    "moved apart": (
        lambda build, x, v: build.emit("transpose", in_threes(build, x), perm=(0, 2, 1)),
        lambda x, v: x.reshape(len(x), x.shape[2], 3).transpose(0, 2, 1),
    ),
}


def in_threes(build: Builder, x: Value) -> Value:
    return build.emit("reshape", x, shape=(x.shape[0], x.shape[2], x.shape[1]))


def graph(op: str) -> Graph:
    """An operator along open rows."""
    build = Builder("m")
    n, t = build.symbol("n"), build.symbol("t")
    x, v = build.input("x", "f32", (n, 3, t)), build.input("v", "f32", (t,))
    return build.finish({"y": OPS[op][0](build, x, v)})


@pytest.mark.parametrize("op", OPS)
def test_rows_of_any_length(op: str) -> None:
    """One compilation, short rows and long ones, which end where nobody may read on: the numbers
    are the same for any number of threads."""
    both = [
        compile_observed(graph(op), target=HERE, threads=t, cache=False, pool=KernelPool(1))
        for t in (1, 2)
    ]
    memory, rng = Guarded(), np.random.default_rng(5)
    for t in SIZES[op == "max" :]:
        for n in (1, 5):
            x, v = (rng.standard_normal(s).astype(np.float32) for s in ((n, 3, t), (t,)))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)  # the mean of nothing
                wanted = OPS[op][1](x.astype(np.float64), v.astype(np.float64))
            found = [run(memory.hold(x, at_end), v)[0] for run in both for at_end in (True, False)]
            np.testing.assert_allclose(found[0], wanted, rtol=1e-5, atol=1e-5)
            for other in found[1:]:
                np.testing.assert_array_equal(other, found[0])


@pytest.mark.parametrize(
    ("op", "short"),
    [
        ("sum", "t < 48"),
        ("mean", "t < 48"),
        ("softmax", "t < 32"),
        ("gate", "t < 48"),
        ("gate, costly", "t < 32"),
        ("moved", "t > 16 and t < 48"),
        ("moved apart", "t > 16 and t < 48"),
    ],
)
@pytest.mark.parametrize("threads", [1, 2])
def test_which_rows_are_short(op: str, short: str, threads: int) -> None:
    """Three vectors, or two where values cost more than to read them, and what is moved more than
    one; both versions have the same parallel loops, or there is one."""
    *_, (job,) = kernel_jobs(prepare(graph(op), HALVES, 3, []), HALVES, threads, Watch())
    narrow = narrow_rows(job.func, HALVES)
    assert narrow is not None and print_expr(narrow.cond) == short
    version = narrow.schedule(threads).func
    loops = [s for s in statements(version.body) if isinstance(s, For)]
    assert {as_int(s.extent) for s in loops if s.kind == "vectorize"} <= {4, 8}
    whole = default(job.func, HALVES, threads, strict=True).func
    joined = join_versions(narrow.cond, version, whole)
    assert joined is not None or (narrow.moves and threads > 1)
    made = versions.versions(job.func, HALVES, threads)
    assert made.joined == joined and made.point["strategy"] == "family"


def test_threads_that_cannot_run_both_run_neither(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else two threads would add short rows in the order of long ones, one thread would not."""
    jobs = [
        kernel_jobs(prepare(graph("sum"), HALVES, 3, []), HALVES, threads, Watch())[-1][0]
        for threads in (1, 2)
    ]
    alone = default(jobs[0].func, HALVES, 1).func
    wanted, joined = (versions.versions(job.func, HALVES, job.threads).joined for job in jobs)
    assert wanted is not None and joined != wanted

    def refuse(cond: Expr, where: Func, others: Func) -> Func | None:
        return join_versions(cond, where, others) if others == alone else None

    monkeypatch.setattr(versions, "join_versions", refuse)
    made = versions.versions(jobs[1].func, HALVES, 2)
    assert made.joined == wanted
    assert {made.point[n] for n in ("strategy", "short_rows.strategy")} == {"one_thread"}


def test_other_kernels_have_one_version() -> None:
    """What is no row, what is as long as is known, what lies further apart, and other machines'."""
    build = Builder("m")
    n, t = build.symbol("n"), build.symbol("t")
    x, w = build.input("x", "f32", (n, 3, t)), build.input("w", "f32", (n, 64))
    made = {
        "plane": build.emit("reduce_sum", build.input("i", "f32", (4, n, t)), axes=(1, 2)),
        "column": build.emit("reduce_sum", x, axes=(0,)),
        "known": build.emit("softmax", w, axis=1),
        "all": build.emit("mul", x, x),
        "transposed": build.emit("transpose", x, perm=(2, 1, 0)),
    }
    *_, jobs = kernel_jobs(prepare(build.finish(made), HALVES, 3, []), HALVES, 1, Watch())
    assert [narrow_rows(job.func, HALVES) for job in jobs] == [None] * len(jobs)
    *_, (job,) = kernel_jobs(prepare(graph("mean"), HALVES, 3, []), HALVES, 1, Watch())
    for name in ("haswell", "skylake-avx512"):
        assert narrow_rows(job.func, target(f"cpu -mcpu={name}")) is None
