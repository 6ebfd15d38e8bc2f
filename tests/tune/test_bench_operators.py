"""The operators of the tuning bench: their expressions, references and libraries' versions agree,
and their counts of work follow their sizes."""

from __future__ import annotations

import pytest

import tilewright as tw
from benchmarks.tuning.operator import Operator, error, several
from benchmarks.tuning.operators import OPERATORS
from tilewright.ir.walk import blocks
from tilewright.strategy.roles import family
from tilewright.strategy.select import default
from tilewright.target.target import target

TOLERANCE = 1e-4
SMALL: dict[str, dict[str, int]] = {  # mostly sizes that vectors do not divide
    "five_point": {"height": 7, "width": 37},
    "stencil_27": {"depth": 5, "height": 6, "width": 19},
    "bilateral": {"height": 6, "width": 21},
    "separable_filter": {"depth": 5, "height": 6, "width": 19},
    "windowed_variance": {"rows": 5, "length": 67, "window": 7},
    "cost_volume": {"channels": 5, "height": 4, "width": 21, "disparities": 6},
    "matmul": {"m": 17, "n": 35, "k": 23},
    "matmul_transposed": {"m": 18, "n": 13, "k": 21},
    "contraction_4": {"outer": 5, "inner": 3},
    "contraction_5": {"a": 2, "b": 3, "c": 9, "d": 4, "e": 3, "f": 10},
    "outer_products": {"batch": 3, "samples": 17, "rows": 11, "columns": 9},
    "bilinear_form": {"batch": 5, "forms": 9, "size": 11},
    "complex_product": {"m": 9, "n": 18, "k": 13},
    "masked_scores": {"heads": 2, "length": 19, "width": 12},
    "grouped_gelu": {"batch": 7, "groups": 3, "inputs": 10, "results": 18},
    "grouped_conv_i8": {"groups": 2, "inputs": 3, "results": 4, "height": 7, "width": 13},
    "max_plus": {"m": 9, "n": 21, "k": 17},
    "argmax_product": {"m": 9, "n": 21, "k": 17},
    "l1_distances": {"m": 9, "n": 21, "k": 17},
    "nearest_point": {"queries": 9, "points": 37, "width": 5},
    "logsumexp": {"outer": 3, "middle": 11, "inner": 19},
    "linear_recurrence": {"steps": 9, "channels": 21},
    "bilinear_gather": {"points": 33, "height": 6, "width": 7, "channels": 11},
    "sparse_rows": {"rows": 13, "slots": 5, "table": 40, "columns": 19},
}


def small(name: str) -> Operator:
    return OPERATORS[name](**SMALL[name])


def test_there_are_24_and_each_has_reduced_sizes() -> None:
    assert len(OPERATORS) == 24
    assert all(OPERATORS[name]().name == name for name in OPERATORS)
    assert SMALL.keys() == OPERATORS.keys()


@pytest.mark.parametrize("name", OPERATORS)
def test_default_schedule_and_reference_agree(name: str) -> None:
    operator, machine = small(name), target("cpu")
    assert operator.name == operator.func.name == name
    inputs, results = operator.inputs(3), operator.outputs()
    exe = tw.build(default(operator.func, machine, 1), machine, threads=1)
    exe.run_into(results, inputs)
    assert error(results, operator.expected(inputs)) <= TOLERANCE


@pytest.mark.parametrize("name", OPERATORS)
def test_numpy_agrees_in_the_operators_own_dtypes(name: str) -> None:
    operator = small(name)
    inputs = operator.inputs(4)
    if operator.numpy is not None:
        got = several(operator.numpy(*inputs))
        assert error(got, operator.expected(inputs)) <= TOLERANCE


@pytest.mark.parametrize("name", OPERATORS)
def test_torch_agrees(name: str) -> None:
    torch, operator = pytest.importorskip("torch"), small(name)
    inputs = operator.inputs(5)
    assert operator.torch is not None
    got = several(operator.torch(torch, *map(torch.from_numpy, inputs)))
    assert error(got, operator.expected(inputs)) <= TOLERANCE


@pytest.mark.parametrize("name", OPERATORS)
def test_no_strategy_knows_it(name: str) -> None:
    func = small(name).func
    assert all("role" not in dict(block.annotations) for block in blocks(func.body))
    assert family(func) in {"reduction", "pointwise"}
