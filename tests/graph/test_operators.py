"""Every operator: its type rule, its te definition and its NumPy reference say the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.graph.cases import Case, cases, names
from tilewright import te
from tilewright.driver.check_operator import check_operator, draw
from tilewright.graph import OPERATORS, Builder, evaluate, parse
from tilewright.graph.group import group_func
from tilewright.graph.outside import OWN
from tilewright.graph.passes.fuse import fuse
from tilewright.graph.plugins import discover
from tilewright.ir import interp
from tilewright.ir.expr import Var
from tilewright.support.errors import CompileError

CASES = cases()
discover()  # what installed packages register takes these tests too
OF_PACKAGES = sorted(OWN)


def kind_of(array: np.ndarray) -> Any:
    return array.dtype


def graph_of(case: Case):
    """The case as a graph of one node whose operands are inputs."""
    build = Builder(case.op)
    inputs = [build.input(f"x{n}", kind_of(a), a.shape) for n, a in enumerate(case.arrays)]
    made = build.emit(case.op, *inputs, **case.attrs)
    outputs = made if isinstance(made, tuple) else (made,)
    return build.finish({f"y{n}": v for n, v in enumerate(outputs)})


def test_every_operator_has_a_case():
    ours = set(OPERATORS) - set(OWN)
    assert ours == names() | {"while_loop"}  # of which the host program runs the rounds


@pytest.mark.parametrize("case", CASES, ids=str)
def test_definition_computes_what_the_reference_does(case: Case):
    graph = graph_of(case)
    expected = evaluate(graph, case.arrays)
    (group,) = fuse(graph).groups
    inputs, outputs = group_func(group)
    func = te.func(case.op, inputs, outputs)
    given = dict(zip(graph.inputs, case.arrays, strict=True))
    made = [np.zeros(v.static_shape or (), v.dtype.numpy) for v in group.outputs]
    interp.run(func, *[given[v].copy() for v in group.inputs], *made)
    for got, want in zip(made, expected, strict=True):
        if got.dtype.kind in "iub":
            np.testing.assert_array_equal(got, want)
        else:
            loose = 1e-2 if got.dtype.itemsize == 2 else 2e-5
            np.testing.assert_allclose(
                got.astype(np.float64), want.astype(np.float64), rtol=loose, atol=loose
            )


SYMBOLIC = (
    "abs add conv matmul softmax layer_norm concat slice gather reduce_sum max_pool lstm reshape"
)


def symbolic_graph_of(case: Case):
    """The case with its first axis symbolic wherever that has the batch's size; None if refused."""
    batch = case.arrays[0].shape[0] if case.arrays and case.arrays[0].ndim else None
    if batch is None or batch == 1:
        return None
    build = Builder(case.op)
    n = Var("n")
    inputs = [
        build.input(f"x{k}", kind_of(a), (n, *a.shape[1:]) if a.shape[:1] == (batch,) else a.shape)
        for k, a in enumerate(case.arrays)
    ]
    attrs = dict(case.attrs)
    if "shape" in attrs and attrs["shape"][:1] == (batch,):
        attrs["shape"] = (n, *attrs["shape"][1:])
    try:
        made = build.emit(case.op, *inputs, **attrs)
    except (CompileError, TypeError):
        return None
    outputs = made if isinstance(made, tuple) else (made,)
    return build.finish({f"y{k}": v for k, v in enumerate(outputs)})


@pytest.mark.parametrize("case", CASES, ids=str)
def test_symbolic_sizes_pass_through(case: Case):
    graph = symbolic_graph_of(case)
    if graph is None:
        return
    assert parse(str(graph)) == graph
    fixed = evaluate(graph_of(case), case.arrays)
    expected = evaluate(graph, case.arrays)
    (group,) = fuse(graph).groups
    inputs, outputs = group_func(group)
    func = te.func(case.op, inputs, outputs)
    given = dict(zip(graph.inputs, case.arrays, strict=True))
    made = [np.zeros(a.shape, a.dtype) for a in expected]
    interp.run(
        func,
        *[given[v].copy() for v in group.inputs],
        *made,
        symbols={"n": case.arrays[0].shape[0]},
    )
    for a, b, c in zip(fixed, expected, made, strict=True):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_allclose(c.astype(np.float64), b.astype(np.float64), rtol=1e-2, atol=2e-5)


def test_common_operators_take_symbolic_sizes():
    taken = {c.op for c in CASES if symbolic_graph_of(c) is not None}
    assert set(SYMBOLIC.split()) <= taken


@pytest.mark.parametrize("case", CASES, ids=str)
def test_text_reads_back(case: Case):
    graph = graph_of(case)
    assert parse(str(graph)) == graph


def test_every_operator_is_documented():
    for entry in OPERATORS.values():
        assert len(entry.doc) > 1, entry.name


def fresh_case(name: str) -> Case:
    """A random application of a package's operator."""
    return Case(*draw(OWN[name], int(np.random.default_rng().integers(1 << 32))))


def failures(check: Any) -> dict[str, str]:
    """What a check says of the operators of packages, by their names."""
    found: dict[str, str] = {}
    for name in OF_PACKAGES:
        try:
            check(name)
        except (AssertionError, CompileError) as fault:
            found[name] = str(fault)
    return found


def test_registry_of_packages():
    """What is asked of ours above, on fresh random applications."""

    def check(name: str) -> None:
        for _ in range(5):
            case = fresh_case(name)
            test_definition_computes_what_the_reference_does(case)
            test_symbolic_sizes_pass_through(case)
            test_text_reads_back(case)

    assert failures(check) == {}
    assert OWN.keys() >= set(OF_PACKAGES)


def test_models_of_packages():
    """In compiled models."""
    assert failures(lambda name: check_operator(name, times=2)) == {}
