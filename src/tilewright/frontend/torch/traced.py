"""A traced graph module (ATen operators, functional) to Graph: what `torch.compile` hands over.

In: the module, and the content of those inputs that stay the same from call to call. Out: a
`Traced`: the graph over the other inputs, and where each result of the module comes from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch

from tilewright.frontend.torch.complex import PARTS, Complex, joined, parted
from tilewright.frontend.torch.convert import Refusal, of_torch, size_of
from tilewright.frontend.torch.importer import Importer
from tilewright.frontend.torch.registry import NodeContext
from tilewright.graph.graph import Graph, Value
from tilewright.graph.unify import Names, read_unified
from tilewright.ir.expr import Var


class Traced(NamedTuple):
    """inputs: the numbers of the placeholders that are the graph's inputs; where a placeholder is
    a size n, the input is an empty tensor [n, 0] that carries it. results: for each result of the
    module its `Output`, or what it is if no tensor (None, a number, a size over `symbols`).
    symbols: (symbol, number of an input, axis) by which sizes are found. seeded: is there one more
    input at the end, the number (i64) from which this run draws its random ones?"""

    graph: Graph
    inputs: list[int]
    results: list[Any]
    symbols: list[tuple[Var, int, int]]
    seeded: bool


class Output(NamedTuple):
    """A result of the module that is output `number` of the graph; a complex one is its real and
    imaginary parts along a last axis."""

    number: int
    is_complex: bool = False


def import_traced(
    module: torch.fx.GraphModule, held: Mapping[int, torch.Tensor], name: str = "traced"
) -> Traced:
    """The graph of a traced module; `held` by placeholder number. Raises ImportFault."""
    read: list[TraceImporter] = []

    def reader(names: Names) -> TraceImporter:
        read.append(TraceImporter(module, held, name, names))
        return read[-1]

    graph, last = read_unified(reader), read[-1]
    return Traced(graph, last.taken, last.results, last.bound, bool(last.seeds))


class TraceImporter(Importer):
    """An Importer whose inputs and outputs are the placeholders and results of a module."""

    def __init__(
        self,
        module: torch.fx.GraphModule,
        held: Mapping[int, torch.Tensor],
        name: str,
        names: Names,
    ) -> None:
        program: Any = SimpleNamespace(
            graph=module.graph, graph_module=module, range_constraints={}
        )
        super().__init__(program, name, names, seeded=True)
        self.held_inputs = held
        self.numbers = {n: k for k, n in enumerate(module.graph.find_nodes(op="placeholder"))}
        self.taken: list[int] = []
        self.results: list[Any] = []
        self.bound: list[tuple[Var, int, int]] = []

    def name_symbols(self, nodes: Sequence[torch.fx.Node]) -> None:
        """No size may become a number: PyTorch calls what it has with other sizes too."""
        super().name_symbols(nodes)
        self.build.hints.clear()

    def placeholder(self, node: torch.fx.Node) -> Any:
        number, fake = self.numbers[node], node.meta.get("val")
        if number in self.held_inputs:
            return self.constant(node, self.held_inputs[number])
        try:
            if isinstance(fake, torch.SymInt):
                size = self.size_input(node, fake)
                self.taken.append(number)
                return size
            if not isinstance(fake, torch.Tensor):
                return fake
            shape = [size_of(s, self.symbols) for s in fake.shape]
            if fake.is_complex():
                shape, kind = [*shape, 2], PARTS[fake.dtype]
            else:
                kind = fake.dtype
            value = self.build.input(node.name, of_torch(kind), shape)
        except Refusal as fault:
            raise self.fault(f"its input '{node.name}': {fault.why}") from None
        self.bind(value)
        self.taken.append(number)
        context = NodeContext(self.build, node, self.symbols)
        return parted(context, value) if fake.is_complex() else value

    def size_input(self, node: torch.fx.Node, fake: torch.SymInt) -> Any:
        """A size among the inputs. No shape may show it, so an empty tensor does."""
        if fake.node.expr.is_Symbol:
            self.symbols.setdefault(str(fake.node.expr), self.build.symbol(node.name))
        size = size_of(fake, self.symbols)
        self.bind(self.build.input(node.name, "u8", (size, 0)))
        return size

    def bind(self, value: Value) -> None:
        for axis, size in enumerate(value.shape):
            if type(size) is Var:
                self.bound.append((size, len(self.taken), axis))

    def outputs(self, end: torch.fx.Node) -> dict[str, Value]:
        named: dict[str, Value] = {}
        for leaf in end.args[0]:  # type: ignore[union-attr]
            made = self.made.get(leaf) if isinstance(leaf, torch.fx.Node) else leaf
            is_complex = isinstance(made, Complex)
            if isinstance(made, Complex):
                made = joined(NodeContext(self.build, leaf, self.symbols), made)
            if isinstance(made, Value):
                self.results.append(Output(len(named), is_complex))
                named[f"output_{len(named)}"] = made
            else:
                self.results.append(made)
        if not named:
            raise self.fault("it returns no tensor")
        return named
