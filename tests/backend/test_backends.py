"""Each kind of machine has a backend, and nobody else asks of which kind a machine is."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

import tilewright as tw
from tests.arch.test_imports import FILES, ROOT
from tests.strategy.random_shapes import FAMILIES, draw_case
from tilewright import te
from tilewright.backend.backend import backend_of, backend_of_kind
from tilewright.driver.kernels import Job, compile_kernel
from tilewright.graph.group import group_func
from tilewright.graph.passes.fuse import fuse
from tilewright.ir.parse import parse_func
from tilewright.ir.stmt import Func
from tilewright.strategy.roles import ROLES, family
from tilewright.strategy.select import NoStrategy, default
from tilewright.strategy.space import sample
from tilewright.support.errors import CompileError
from tilewright.target.target import KINDS, target

WITHOUT = ("opencl", "metal", "cuda", "accel")  # nobody has written strategies for these yet


def test_each_kind_has_a_backend_that_knows_it() -> None:
    for kind in KINDS:
        assert backend_of(kind) is backend_of_kind(kind)
        assert backend_of(kind).kind == kind


def test_processors_have_a_family_for_every_role() -> None:
    for kind in set(KINDS) - set(WITHOUT):
        assert sorted(backend_of(kind).strategies.families) == sorted(ROLES)


def with_role(role: str) -> Func:
    """A function with that role: as its operator's definition says, or by its form."""
    n = 64
    x, y = te.placeholder((n, n), name="x"), te.placeholder((n, n), name="y")
    k, q = te.reduce_axis(n, "k"), te.reduce_axis(n, "q")

    def product(a, b, name, role="matmul"):
        r = te.reduce_axis(n, f"{name}_r")
        return te.compute(
            (n, n), lambda i, j: te.sum(a[i, r] * b[r, j], r), name=name, attrs={"role": role}
        )

    if role == "attention":
        scores = product(x, y, "scores")
        top = te.compute((n,), lambda i: te.max(scores[i, k], k), name="top")
        e = te.compute((n, n), lambda i, j: te.exp(scores[i, j] - top[i]), name="e")
        made = product(e, y, "made")
    elif role == "pointwise":
        made = te.compute((n, n), lambda i, j: x[i, j] + y[i, j], name="made")
    elif role == "reduction":
        made = te.compute((n,), lambda i: te.sum(x[i, q] + y[i, q], q), name="made")
    else:
        made = product(x, y, "made", role)
    return te.func("f", [x, y], [made])


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("kind", WITHOUT)
def test_a_role_without_a_strategy_is_told(kind: str, role: str) -> None:
    func, machine = with_role(role), target(kind)
    assert family(func) == role
    told = f"cannot schedule 'f' for '{kind}': there is no strategy for the role '{role}' on such"
    for schedule in (
        lambda: default(func, machine),
        lambda: default(func, machine, 8),
        lambda: default(func, machine, strict=True),
        lambda: sample(func, machine, 1, None),  # type: ignore[arg-type]
        lambda: compile_kernel(Job(func, str(machine), 1)),
    ):
        with pytest.raises(NoStrategy) as caught:
            schedule()
        assert str(caught.value).startswith(told) and "tw.Schedule" in str(caught.value)


@pytest.mark.parametrize("kind", WITHOUT)
@pytest.mark.parametrize("operator", FAMILIES)
def test_no_operator_gets_the_schedule_of_another_kind(kind: str, operator: str) -> None:
    for number in range(3):
        graph, _ = draw_case(number, 61, operator)
        for group in fuse(graph).groups:
            func = te.func("f", *group_func(group))
            with pytest.raises(NoStrategy, match=f"for '{kind}'"):
                default(func, target(kind), 2)


@pytest.mark.parametrize("kind", sorted(set(KINDS) - {"cpu"}))
def test_what_does_not_run_here_is_refused(kind: str) -> None:
    with pytest.raises(tw.CompileError, match=f"cannot build 'f' for '{kind}': functions that run"):
        tw.build(with_role("pointwise"), kind)


def test_a_kind_that_nothing_writes_code_for() -> None:
    with pytest.raises(tw.CompileError) as caught:
        backend_of("metal").code(with_role("pointwise"), target("metal"))
    assert str(caught.value) == (
        "cannot generate code for 'metal': such machines are described, and nothing writes code "
        "for them yet\n  there is code for cpu, c, opencl, cuda, accel"
    )


def asks_for_the_kind(source: str) -> Iterator[str]:
    """Comparisons of a machine's kind, and tables that are looked up by it."""
    for n in ast.walk(ast.parse(source)):
        if isinstance(n, ast.Compare):
            asked = [n.left, *n.comparators]
        elif isinstance(n, ast.Subscript):
            asked = [n.slice]
        elif isinstance(n, ast.Match):
            asked = [n.subject]
        else:
            continue
        for e in asked:
            if isinstance(e, ast.Attribute) and e.attr == "kind":
                words = ast.unparse(e.value).lower()
                if any(word in words for word in ("target", "machine", "cpu", "gpu")):
                    yield f"line {n.lineno}: {ast.unparse(n)}"


def test_only_backends_and_machines_ask_for_the_kind() -> None:
    rooms = [f for f in FILES if f.relative_to(ROOT).parts[0] not in ("target", "backend")]
    assert not [(f, line) for f in rooms for line in asks_for_the_kind(f.read_text())]


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ('machine.kind == "cpu"', True),
        ('x = 1 if e.target.kind != "cpu" else 2', True),
        ('read_target(t).kind in ("c", "cpu")', True),
        ("TABLE[machine.kind]", True),
        ('loop.kind == "parallel"', False),
        ('f"{target.kind}"', False),
    ],
)
def test_asking_is_found(line: str, found: bool) -> None:
    assert bool([*asks_for_the_kind(line)]) is found


def test_stages_that_nothing_lowers_are_refused() -> None:
    """They would run one by one under the name of a schedule that overlaps them."""
    func = parse_func(
        "def f(A: f32[8], B: f32[8]):\n"
        "    T = alloc(f32[8], 'global')\n"
        "    for i in serial(0, 8):\n"
        "        with block('T'):\n"
        "            vi = spatial(8, i)\n"
        "            reads(A[vi])\n"
        "            writes(T[vi])\n"
        "            T[vi] = A[vi]\n"
        "        with block('B'):\n"
        "            ui = spatial(8, i)\n"
        "            reads(T[ui])\n"
        "            writes(B[ui])\n"
        "            B[ui] = T[ui]\n".replace("'", '"')
    )
    s = tw.Schedule(func)
    s.software_pipeline("i", [0, 1])
    for kind in ("cpu", "cuda", "opencl"):
        with pytest.raises(CompileError, match="nothing lowers its stages"):
            backend_of(kind).code(s.func, target(kind))
    with pytest.raises(CompileError, match="double_buffer or prefetch"):
        tw.build(s)
