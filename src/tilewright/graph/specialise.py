"""A graph with open sizes as the graph for some of them: symbols become numbers.

In: a graph, and a number for some of its symbols or the shapes of its inputs. Out: the graph that a
model of these sizes would have given: what computes on sizes becomes constants, and sizes that the
run would have found follow where what they are read from is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from tilewright.graph import sizes
from tilewright.graph.builder import without_dead
from tilewright.graph.folding import Folding
from tilewright.graph.graph import Graph, Node, Value
from tilewright.graph.group import FusedGroup
from tilewright.graph.ops.data_dependent import MOST
from tilewright.graph.ops.loop import body_of, unseen
from tilewright.graph.ops.while_loop import spoken_of
from tilewright.graph.unify import renamed
from tilewright.ir.expr import Expr, Var, as_int
from tilewright.support.errors import CompileError

Shapes = Mapping[str, int | Sequence[int | str | None]]  # a symbol's number, or an input's sizes


def specialise(graph: Graph, shapes: Shapes) -> Graph:
    """The graph for these sizes; the same graph if none is given.

    shapes: by the name of a symbol its number; by the name of an input its sizes, None for those
    that stay open. Raises CompileError for what the graph has not, or what does not fit it.
    """
    numbers = numbers_of(graph, shapes)
    return _Specialiser(graph, numbers).graph() if numbers else graph


def numbers_of(graph: Graph, shapes: Shapes) -> dict[str, int]:
    """The number of each symbol that `shapes` says. Raises CompileError."""
    inputs = dict(zip(graph.input_names, graph.inputs, strict=True))
    symbols = {s.name for s in graph.symbols}
    found: dict[str, int] = {}
    for name, given in shapes.items():
        if isinstance(given, int) and name in symbols:
            _bind(graph, found, name, given, f"{name}={given}")
        elif not isinstance(given, int) and name in inputs:
            _match(graph, found, name, inputs[name], given)
        else:
            kind = "open size" if isinstance(given, int) else "input"
            listed = sorted(symbols) if isinstance(given, int) else list(inputs)
            raise CompileError(
                f"cannot compile '{graph.name}' for {name}={given}",
                f"it has no {kind} '{name}'",
                remedy=f"it has: {', '.join(listed) or 'none'}",
            )
    return found


def _match(
    graph: Graph, found: dict[str, int], name: str, value: Value, given: Sequence[int | str | None]
) -> None:
    """Bind the symbols of an input by the sizes that it has."""
    asked = f"{name}={list(given)}"
    what = f"cannot compile '{graph.name}' for {asked}"
    if len(given) != value.rank:
        raise CompileError(what, f"the input is {value.type_text}, of rank {value.rank}")
    for axis, (size, number) in enumerate(zip(value.shape, given, strict=True)):
        if number is None:
            continue
        if isinstance(number, str):
            raise CompileError(what, "only the sizes of an ONNX file get other names")
        line = sizes.linear(size)
        if line is None:
            if as_int(size) != number:
                raise CompileError(what, f"axis {axis} of the input is {sizes.text(size)}")
            continue
        symbol, scale, offset = line
        if (number - offset) % scale:
            raise CompileError(what, f"axis {axis} of the input is {sizes.text(size)}")
        _bind(graph, found, symbol.name, (number - offset) // scale, asked)


def _bind(graph: Graph, found: dict[str, int], name: str, number: int, asked: str) -> None:
    what = f"cannot compile '{graph.name}' for {asked}"
    least, most = graph.ranges.get(name, (0, number))
    if not least <= number <= most:
        raise CompileError(what, f"the size '{name}' is from {least} to {most}, not {number}")
    if found.setdefault(name, number) != number:
        raise CompileError(what, f"the size '{name}' is {found[name]} elsewhere, not {number}")


class _Specialiser:
    """A graph that is built again, with what stands for its symbols and its values."""

    def __init__(self, old: Graph, numbers: Mapping[str, int]) -> None:
        self.old = old
        self.stands: dict[Var, Expr] = {Var(s): sizes.size(n) for s, n in numbers.items()}
        self.build = Folding(old.name)
        self.made: dict[Value, Value] = {}
        for symbol in (*old.symbols, *old.data_dependent):
            if symbol not in self.stands:
                self.build.symbol(symbol.name)

    def graph(self) -> Graph:
        old, build, made = self.old, self.build, self.made
        for value, name in zip(old.inputs, old.input_names, strict=True):
            made[value] = build.input(name, value.dtype, renamed(value.shape, self.stands))
        for value, content in old.constants.items():
            made[value] = build.constant(content, value.name, value.dtype)
        for node in old.nodes:
            self.add(node)
        outputs = dict(zip(old.output_names, (made[v] for v in old.outputs), strict=True))
        gone = {s.name for s in self.stands}
        build.ranges = {s: r for s, r in old.ranges.items() if s not in gone}
        build.formats, build.metadata = old.formats, old.metadata
        for size, what in old.required:
            left = renamed(size, self.stands)
            if (as_int(left) or 0) < 0:
                given = ", ".join(f"{s.name}={sizes.text(n)}" for s, n in self.stands.items())
                raise CompileError(
                    f"cannot compile '{old.name}' for {given}", f"{what}: these sizes do not fit"
                )
            if as_int(left) is None:
                build.required[left] = what
        return without_dead(build.finish(outputs))

    def add(self, node: Node) -> None:
        inputs = [self.made[v] for v in node.inputs]
        if node.op == "measure" and self.is_found(node, inputs[0]):
            return
        attrs = dict(_resolved(node, self.stands))
        results = self.build.emit(node.op, *inputs, name=[v.name for v in node.outputs], **attrs)
        several = results if isinstance(results, tuple) else (results,)
        self.made.update(zip(node.outputs, several, strict=True))

    def is_found(self, node: Node, x: Value) -> bool:
        """Sizes that need no measuring any more: their symbols become what they are."""
        known: Any = self.build.sizes_in(x)
        if known is None:
            return False
        found = [sizes.size(v) for v in known.ravel()]
        numbers = [as_int(v) for v in found]
        if any(n is None or not 0 <= n <= MOST for n in numbers):
            return False
        self.stands.update({Var(s): v for s, v in zip(node["symbols"], found, strict=True)})
        self.made[node.output] = x
        return True


def _resolved(node: Node, stands: Mapping[Var, Expr]) -> Iterator[tuple[str, Any]]:
    """A node's attributes with other sizes."""
    is_loop = node.op in ("loop", "while_loop")
    body = _within(body_of(node["body"]), stands) if is_loop else None
    for k, v in node.attrs:
        if body is not None and k in ("body", "extents"):
            asked = unseen if node.op == "loop" else spoken_of
            yield k, str(body) if k == "body" else asked(body)
        else:
            yield k, renamed(v, stands)


def specialised_group(group: FusedGroup, numbers: Mapping[Var, int]) -> FusedGroup:
    """A group with numbers for some of its symbols: its operators, as they are."""
    stands: dict[Var, Expr] = {s: sizes.size(n) for s, n in numbers.items()}
    return FusedGroup(
        group.name,
        [_node(n, stands) for n in group.nodes],
        _values(group.inputs, stands),
        _values(group.outputs, stands),
        _node(group.anchor, stands),
        dict(zip(_values(group.embedded, stands), group.embedded.values(), strict=True)),
        group.why,
        group.demand,
    )


def _node(n: Node, stands: Mapping[Var, Expr]) -> Node:
    inputs, outputs = _values(n.inputs, stands), _values(n.outputs, stands)
    return Node(n.op, inputs, tuple(_resolved(n, stands)), outputs)


def _values(old: Iterable[Value], stands: Mapping[Var, Expr]) -> tuple[Value, ...]:
    return tuple([Value(v.name, v.dtype, renamed(v.shape, stands)) for v in old])


def _within(body: Graph, stands: Mapping[Var, Expr]) -> Graph:
    """A loop's body with other sizes: its operators, as they are."""
    return body.replace(
        inputs=_values(body.inputs, stands),
        outputs=_values(body.outputs, stands),
        nodes=[_node(n, stands) for n in body.nodes],
        required=[(renamed(size, stands), what) for size, what in body.required],
    )
