"""The tuning bench's rates and limits: kernels do what they are counted for, limits follow from
work, and the table shows what was compared."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.tuning import compare as comparison
from benchmarks.tuning.__main__ import cells, page
from benchmarks.tuning.compare import Row, Seconds, WrongResult, compare, scheduled
from benchmarks.tuning.operator import Traffic, Work, error
from benchmarks.tuning.operators import OPERATORS
from benchmarks.tuning.rate_kernels import KINDS, levels, read_kernel, step_kernel
from benchmarks.tuning.rates import Rates, attainable, limit
from tilewright.driver.build import build
from tilewright.ir.expr import as_int
from tilewright.schedule.schedule import Schedule
from tilewright.strategy.select import default
from tilewright.target.target import target

LANES = 4
WAYS = [(name, n) for name, ways in KINDS.items() for n in range(len(ways))]
RATES = Rates(1, dict.fromkeys(KINDS, 1e9), ((1 << 15, 4e9), (1 << 19, 2e9), (0, 1e9)))


def small_matmul() -> comparison.Operator:
    return OPERATORS["matmul"](m=8, n=16, k=8)


class Still:
    """Rates that need no measuring."""

    def turn(self) -> None: ...

    def rates(self) -> Rates:
        return RATES


@pytest.mark.parametrize("name, n", WAYS)
def test_a_kinds_kernel_makes_as_many_steps_as_it_is_counted_for(name: str, n: int) -> None:
    step = replace(KINDS[name][n], steps=1)
    kernel = step_kernel(step, LANES, 2)
    elements = 2 * step.rows * step.vectors * LANES
    assert kernel.amount % elements == 0
    x, w = kernel.func.buffers[:2]
    one = np.ones([as_int(d) or 0 for d in x.shape], x.dtype.numpy)
    half = np.full([as_int(d) or 0 for d in w.shape], 0.5 if w.dtype.is_float else 1, w.dtype.numpy)
    sums = build(kernel.func, threads=1)(one, half)[0]
    each = kernel.amount // elements  # steps of one accumulator
    expected = {
        "multiply_add": each / 2,
        "add": each / 2,
        "max": 0.5,
        "max_add": 1.5,
        "abs_difference": each / 2,
        "squared_difference": each / 4,
        "argmax_multiply": 0.5,
        "argmin": 0.0,
        "exp": each * np.exp(0.5),
        "gelu": each * 0.345731,
        "multiply_add_i8": each,
    }[name]
    np.testing.assert_allclose(sums, expected, rtol=1e-4)


def test_a_read_kernel_reads_what_it_is_counted_for() -> None:
    kernel = read_kernel(1 << 12, LANES, 2)
    exe = build(kernel.func, threads=1)
    (sums,) = exe(np.ones(exe.inputs[0].shape, np.float32))
    assert sums.sum() * 4 == kernel.amount


def test_levels_hold_what_is_read_to_show_their_rates() -> None:
    machine = target("cpu -caches=32768:64:1,524288:64:1,33554432:64:2")
    fit, read = zip(*levels(machine, 2), strict=True)
    assert fit == (1 << 16, 1 << 20, 1 << 25, 0)
    assert read[0] < 1 << 15 < read[1] < 1 << 19 < 2 * read[2] < 1 << 25 < 2 * read[3]


def test_the_limit_is_the_larger_of_steps_and_bytes() -> None:
    operator = small_matmul()
    work = Work({"multiply_add": 3000, "exp": 1000}, (Traffic(4000, 1 << 14), Traffic(3000, 1)))
    operator = replace(operator, work=work)
    assert attainable(operator, RATES) == pytest.approx(4e-6)
    assert limit(operator, RATES) == "compute"
    operator = replace(operator, work=replace(work, traffic=(Traffic(10000, 1 << 20),)))
    assert attainable(operator, RATES) == pytest.approx(1e-5)
    assert limit(operator, RATES) == "memory"


def test_work_grows_with_the_sizes_and_moves_every_parameter_once() -> None:
    operator = small_matmul()
    assert operator.work.steps == {"multiply_add": 8 * 16 * 8}
    assert operator.work.traffic == (Traffic(4 * (64 + 128 + 128), 4 * 320),)


@pytest.mark.parametrize("name", OPERATORS)
def test_every_kind_of_step_has_a_rate(name: str) -> None:
    operator = OPERATORS[name]()
    assert operator.work.steps.keys() <= KINDS.keys()
    assert attainable(operator, RATES) > 0


def test_subjects_are_checked_timed_and_shown() -> None:
    operator = small_matmul()
    row = compare(operator, target("cpu"), 1, 0.01, Still())  # type: ignore[arg-type]
    assert row.found.keys() == {"default", "numpy"}
    assert all(0 < s.minimum <= s.median for s in row.found.values())
    assert "geometric mean" in page([row], 1, RATES.describe())


def test_a_tuned_schedule_gets_a_column(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "tuned", lambda f, t, n, s: default(f, t, n))
    row = compare(small_matmul(), target("cpu"), 1, 0.01, Still(), tuning=1.0)  # type: ignore[arg-type]
    assert row.found.keys() == {"default", "tuned", "numpy"}


def test_the_table_counts_in_parts_of_what_is_attainable() -> None:
    found = {"default": Seconds(4e-6, 5e-6), "tuned": Seconds(2e-6, 2e-6)}
    row = Row("matmul", "a product", 1e-6, "compute", found)
    assert cells(row) == ["matmul", "compute", "1", "4", "25%", "2", "50%", "2.00", "", ""]


def test_a_wrong_schedule_is_told() -> None:
    operator = small_matmul()
    inputs = operator.inputs(1)
    wrong = tuple(e + 1 for e in operator.expected(inputs))
    with pytest.raises(WrongResult, match="the default schedule of matmul is off by"):
        scheduled("default", operator, Schedule(operator.func), target("cpu"), 1, inputs, wrong)


def test_errors_are_of_the_largest_value_and_whole_numbers_are_equal() -> None:
    one = np.array([1.0, 100.0])
    assert error((one + np.array([1.0, 0.0]),), (one,)) == pytest.approx(0.01)
    assert error((np.array([np.nan, 100.0]),), (one,)) == float("inf")
    assert error((np.array([1, 2]),), (np.array([1, 3]),)) == float("inf")
    assert error((np.array([1, 2], np.int32),), (np.array([1, 2]),)) == 0.0
