"""`tw.check_operator`: random applications of an operator, each way that a model may take.

In: an operator's name. Out: nothing, or an error that shows the application which is wrong. The one
idea: what a package registers says the same four times (type rule, definition, reference, and the
compiled code next to other operators), so that each is checked by the others.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tilewright import te
from tilewright.driver.compile import compile_observed
from tilewright.graph import sizes
from tilewright.graph.builder import Builder, complete
from tilewright.graph.evaluate import evaluate
from tilewright.graph.graph import Graph, Value
from tilewright.graph.group import group_func
from tilewright.graph.operator import OPERATORS, Fusion, Operator, Trait
from tilewright.graph.outside import OWN, Own
from tilewright.graph.parse import parse
from tilewright.graph.passes.fuse import fuse
from tilewright.graph.plugins import discover
from tilewright.ir import interp
from tilewright.ir.dtype import dtype
from tilewright.ir.expr import Var
from tilewright.support.errors import CompileError

SMALL, WIDE = 1e-2, 2e-5  # what results may differ by, of floats of 16 bits or fewer, and others
WAYS = ((0, 1), (3, 2))  # opt_level, threads


class Application(NamedTuple):
    """An operator on arrays."""

    op: str
    arrays: tuple[np.ndarray, ...]
    attrs: dict[str, Any]

    def __str__(self) -> str:
        shown = [f"{dtype(a.dtype)}{list(a.shape)}" for a in self.arrays]
        return f"{self.op}({', '.join([*shown, *(f'{k}={v!r}' for k, v in self.attrs.items())])})"


def check_operator(operator: str | Operator, times: int = 5, seed: int | None = None) -> None:
    """Check an operator that `tw.operator` registered, on random applications.

    The type rule, the definition as the IR's interpreter runs it and the reference have to say the
    same; so do compiled models in which the operator stands alone and between others, with fixed
    and open sizes, on one thread and on two. What its fusion and traits promise is checked too.

    Args:
        operator: its name, or what `tw.operator` gave.
        times: how many applications its `draw` draws.
        seed: the first number of their generators, so that a failure can be repeated (the error
            tells it); None: any.

    Raises:
        CompileError: there is no such operator, or it is wrong.
    """
    name = operator.name if isinstance(operator, Operator) else operator
    if name not in OWN:
        discover()
    if name not in OWN:
        kind = "Tilewright's own" if name in OPERATORS else "not registered"
        known = ", ".join(sorted(OWN)) or "none"
        raise CompileError(
            f"cannot check the operator '{name}'", f"it is {kind}", remedy=f"registered: {known}"
        )
    seed = secrets.randbits(32) if seed is None else seed
    for number in range(times):
        check_application(OWN[name], draw(OWN[name], seed + number), seed + number)


def draw(own: Own, seed: int) -> Application:
    """An application of an operator. Raises CompileError if what it draws is none."""
    try:
        arrays, attrs = own.draw(np.random.default_rng(seed))
        arrays = tuple([np.asarray(a) for a in arrays])
        if not isinstance(attrs, Mapping):
            raise TypeError(f"{attrs!r:.100} are no attributes")
        return Application(own.name, arrays, dict(attrs))
    except Exception as fault:  # whatever code of others raises
        raise CompileError(
            f"cannot draw an application of the operator '{own.name}'",
            f"{type(fault).__name__}: {fault}",
            remedy="draw(random) returns (arrays, attributes), as in (random.random((2, 3)),), {}",
        ) from fault


def check_application(own: Own, case: Application, seed: int) -> None:
    """Check one application (see `check_operator`)."""

    def fail(what: str, why: str) -> CompileError:
        again = f'tw.check_operator("{own.name}", times=1, seed={seed}) repeats it'
        return CompileError(f"the operator '{own.name}' is wrong {what}", why, str(case), again)

    def same(what: str, found: Sequence[Any], wanted: Sequence[Any]) -> None:
        for n, (a, b) in enumerate(zip(found, wanted, strict=True)):
            if why := differs(np.asarray(a), np.asarray(b)):
                raise fail(what, f"result {n} {why}" if len(wanted) > 1 else why)

    alone = graph_of(case)
    check_types(own, case, alone, fail)
    wanted = evaluate(alone, case.arrays)
    same("as its definition has it", interpreted(alone, case.arrays), wanted)
    if parse(str(alone)) != alone:
        raise fail("as text", "its graph does not read back: attributes are numbers or text")
    between = graph_of(case, between=True)
    graphs = {"alone": alone, "between others": between}
    for where, graph in [*graphs.items()]:
        if (opened := open_graph_of(case, between=graph is between)) is not None:
            graphs[f"{where}, with an open size"] = opened
    for where, graph in graphs.items():
        arrays = given(case, where.startswith("between"))
        wanted = evaluate(graph, arrays)
        for opt_level, threads in WAYS:
            made = compile_observed(graph, threads=threads, opt_level=opt_level, cache=False)
            said = f"compiled {where} (opt_level={opt_level}, threads={threads})"
            same(said, made(*arrays), wanted)
    check_promises(own, case, fail)


def check_types(own: Own, case: Application, graph: Graph, fail: Any) -> None:
    """What the reference gives is of the type that the rule says."""
    made = own.entry.reference(*case.arrays, **complete(case.op, case.attrs))
    results = made if isinstance(made, tuple) else (made,)
    if len(results) != len(graph.outputs):
        raise fail("in its reference", f"it gives {len(results)} results, not {len(graph.outputs)}")
    for value, result in zip(graph.outputs, map(np.asarray, results), strict=True):
        if result.dtype != value.dtype.numpy:
            why = f"it gives {result.dtype} where the type rule says {value.dtype}"
            raise fail("in its reference", f"{why}: .astype(x.dtype) may be missing")


def check_promises(own: Own, case: Application, fail: Any) -> None:
    """What fusion and traits say of an operator holds for its reference."""
    entry, attrs = own.entry, complete(case.op, case.attrs)

    def results(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        made = entry.reference(*arrays, **attrs)
        return [*map(np.asarray, made if isinstance(made, tuple) else (made,))]

    if Trait.FINITE in entry.traits:
        for of in (0.0, 1e4, -1e4):
            numbers = [np.full_like(a, of) if dtype(a.dtype).is_float else a for a in case.arrays]
            if not all(np.isfinite(y.astype(np.float64)).all() for y in results(numbers)):
                raise fail("in its traits", f"it is not 'finite': {of} gives what is no number")
    if entry.fusion is Fusion.BROADCAST and len({a.shape for a in case.arrays}) == 1:
        flat = results([a.reshape(-1) for a in case.arrays])
        for a, b in zip(flat, results(case.arrays), strict=True):
            if differs(a, b.reshape(-1)):
                why = "the same numbers in another shape give others: it is not element-wise"
                raise fail("in fusion='broadcast'", why)


def differs(found: np.ndarray, wanted: np.ndarray) -> str:
    """How results differ; empty if they do not."""
    if found.shape != wanted.shape:
        return f"has the shape {list(found.shape)}, not {list(wanted.shape)}"
    if dtype(wanted.dtype).is_float:
        loose = SMALL if wanted.dtype.itemsize <= 2 else WIDE
        a, b = found.astype(np.float64), wanted.astype(np.float64)
        wrong = ~np.isclose(a, b, rtol=loose, atol=loose, equal_nan=True)
    else:
        wrong = found != wanted
    count = np.count_nonzero(wrong)
    if not count:
        return ""
    at = tuple(int(k) for k in np.argwhere(wrong)[0])
    shown = f"[{', '.join(map(str, at))}]" if at else ""
    told = f"{found[at]!s} where the reference gives {wanted[at]!s}"
    return f"{count} of {wanted.size} elements differ; the first{shown} is {told}"


def interpreted(graph: Graph, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """What the definition of a graph's one node gives, as the IR's interpreter runs it."""
    (group,) = fuse(graph).groups
    func = te.func("checked", *group_func(group))
    given = dict(zip(graph.inputs, arrays, strict=True))
    made = [np.zeros(v.static_shape or (), v.dtype.numpy) for v in group.outputs]
    interp.run(func, *[given[v].copy() for v in group.inputs], *made)
    return made


def graph_of(
    case: Application, shapes: Sequence[Any] | None = None, between: bool = False
) -> Graph:
    """An application as a graph; between: its operands are negated first, its results pass a
    relu."""
    build = Builder(case.op)
    shapes = shapes or [a.shape for a in case.arrays]
    inputs: list[Value] = []
    for n, (array, shape) in enumerate(zip(case.arrays, shapes, strict=True)):
        x = build.input(f"x{n}", dtype(array.dtype), shape)
        inputs.append(build.emit("neg", x) if between and x.dtype.is_float else x)
    made = build.emit(case.op, *inputs, **case.attrs)
    outputs: list[Value] = list(made) if isinstance(made, tuple) else [made]
    if between:
        outputs = [build.emit("relu", y) if y.dtype.is_float else y for y in outputs]
    return build.finish({f"y{n}": y for n, y in enumerate(outputs)})


def given(case: Application, between: bool) -> list[np.ndarray]:
    """What the graph of an application is called with, so that it computes on what was drawn."""
    return [-a if between and dtype(a.dtype).is_float else a for a in case.arrays]


def open_graph_of(case: Application, between: bool) -> Graph | None:
    """`graph_of` with an open first size, wherever inputs have that of the first one; None if the
    type rule takes none."""
    first = next((a.shape[0] for a in case.arrays[:1] if a.ndim), None)
    if first is None:
        return None
    n = Var("n")
    shapes = [(n, *a.shape[1:]) if a.shape[:1] == (first,) else a.shape for a in case.arrays]
    try:
        graph = graph_of(case, shapes, between)
    except CompileError as fault:
        if fault.what.startswith("cannot apply"):
            return None
        raise
    shown = {s for v in graph.inputs for s in sizes.symbols(v.shape)}
    return graph if shown else None
