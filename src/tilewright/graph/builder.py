"""Building graphs: values in, nodes appended in order, types inferred and checked on the way.

`Builder` starts from nothing; `Edit` walks an existing graph and lets a pass keep, replace or add
nodes. Both append only, so the order of nodes is always an order of computation.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from inspect import Parameter
from typing import Any

import numpy as np

from tilewright.graph import sizes
from tilewright.graph.graph import Constant, Deferred, Graph, Node, Value, binds, plain
from tilewright.graph.operator import OPERATORS, Mismatch
from tilewright.ir.dtype import DType, dtype
from tilewright.ir.expr import Const, Expr, Var
from tilewright.support.errors import CompileError

LONGEST = 160  # characters of a name
MOST_SHOWN = 8  # operands in a message
MOST_RANK = 32
MOST_ELEMENTS = 1 << 42
_KEYWORDS = frozenset(
    "False None True and as assert async await break class continue def del elif else except"
    " finally for "
    "from global if import in is lambda nonlocal not or pass raise return try while with yield inf"
    " nan".split()
)


class Builder:
    """Collects the parts of a graph."""

    def __init__(self, name: str = "model") -> None:
        self.name = identifier(name)
        self.inputs: list[Value] = []
        self.input_names: list[str] = []
        self.constants: dict[Value, Constant] = {}
        self.nodes: list[Node] = []
        self.made_by: dict[Value, Node] = {}
        self.sizes: set[Expr] = set()  # that values have, where the run finds them
        self.metadata: dict[str, str] = {}
        self.formats: dict[str, str] = {}  # of inputs and outputs, by the user's name
        self.ranges: dict[str, tuple[int, int]] = {}  # least and most of symbols
        self.required: dict[Expr, str] = {}  # what must not be negative → what to say
        self._taken: dict[str, int] = {}

    def share_names(self, other: Builder) -> None:
        """From here on a name that is taken here or there is taken in both: a value of one is never
        mistaken for one of the other."""
        self._taken = other._taken

    def symbol(self, name: str) -> Var:
        """A symbolic size; its name is no longer free for values."""
        made = identifier(name)
        self._taken.setdefault(made, 0)
        return Var(made)

    def input(self, name: str, of: DType | str, shape: Iterable[sizes.SizeLike]) -> Value:
        """A new input; `name` may be any text."""
        shape = sizes.shape(shape)
        for symbol in sizes.symbols(shape):
            self._taken.setdefault(symbol.name, 0)
        value = self.value(name, dtype(of), shape)
        self.inputs.append(value)
        self.input_names.append(name)
        return value

    def constant(self, content: Any, name: str = "c", of: DType | str | None = None) -> Value:
        """A new constant; `of` converts Python numbers (default: the array's own dtype, f32 for
        floats)."""
        if isinstance(content, Constant):
            array: Any = content
        else:
            if isinstance(content, np.generic):
                content = np.asarray(content)
            if not isinstance(content, np.ndarray):
                content = np.asarray(content, None if of is None else dtype(of).numpy)
                if of is None and content.dtype == np.float64:
                    content = content.astype(np.float32)
            if of is not None and content.dtype != dtype(of).numpy:
                content = content.astype(dtype(of).numpy)
            array, content = content, Constant(content)
        value = self.value(
            name, dtype(of if of is not None else array.dtype), sizes.shape(array.shape)
        )
        self.constants[value] = content
        return value

    def value(self, name: str, of: DType, shape: sizes.Shape) -> Value:
        """A value with a name that is free: `name` made an identifier, numbered if it is taken.

        Raises CompileError for a rank or a number of elements that nobody means.
        """
        what = f"cannot make '{name[:LONGEST]}'"
        if len(shape) > MOST_RANK:
            raise CompileError(what, f"it has rank {len(shape)}, the most is {MOST_RANK}")
        made = Value(self.fresh(name), of, shape)
        static = made.static_shape
        if static is None:
            self.sizes.update(s for s in shape if not isinstance(s, Const))
        elif min(static, default=0) < 0 or math.prod(static) > MOST_ELEMENTS:
            raise CompileError(what, f"its shape is {list(static)}")
        return made

    def fresh(self, name: str) -> str:
        """`name` as an identifier that is not taken yet; it is taken now."""
        name = identifier(name)
        taken = self._taken
        if name not in taken:
            taken[name] = 0
            return name
        count = taken[name]
        while True:
            count += 1
            candidate = f"{name}_{count}"
            if candidate not in taken:
                taken[name] = count
                taken[candidate] = 0
                return candidate

    def emit(self, op: str, *inputs: Value, name: str | Sequence[str] = "", **attrs: Any) -> Any:
        """Append a node and return its output (a tuple if it has several).

        `name` is the name wanted for the output, or one for each. Raises CompileError if the
        operator's rule refuses the inputs.
        """
        entry = OPERATORS[op]
        full = complete(op, attrs)
        types = self.infer(op, inputs, full)
        names = [name] if isinstance(name, str) else list(name)
        names += [""] * (len(types) - len(names))
        outputs = tuple(
            [
                self.value(n or op, t, sizes.shape(s))
                for n, (t, s) in zip(names, types, strict=False)
            ]
        )
        self.append(Node(entry.name, tuple(inputs), tuple(full.items()), outputs))
        return outputs[0] if len(outputs) == 1 else outputs

    def infer(self, op: str, inputs: Sequence[Value], attrs: dict[str, Any]) -> list[Any]:
        """The output types of an application. Raises CompileError."""
        try:
            return OPERATORS[op].types(inputs, attrs)
        except Mismatch as fault:
            shown = ", ".join(repr(v)[:LONGEST] for v in inputs[:MOST_SHOWN]) or "no inputs"
            shown += f" and {len(inputs) - MOST_SHOWN} more" if len(inputs) > MOST_SHOWN else ""
            given = ", ".join(f"{k}={v}" for k, v in attrs.items() if v != "")[:LONGEST]
            raise CompileError(
                f"cannot apply {op}",
                f"it {fault}" if str(fault).startswith("takes") else str(fault),
                f"{op} of {shown}" + (f"\nwith {given}" if given else ""),
            ) from None

    def append(self, node: Node) -> None:
        """Append a node whose outputs have free names."""
        self.nodes.append(node)
        for value in node.outputs:
            self.made_by[value] = node

    def finish(self, outputs: Mapping[str, Value] | Sequence[Value]) -> Graph:
        """The graph; outputs by user-visible name, or in order with their own names."""
        if not isinstance(outputs, Mapping):
            outputs = {v.name: v for v in outputs}
        return Graph(
            self.name,
            self.inputs,
            list(outputs.values()),
            self.constants,
            self.nodes,
            self.input_names,
            list(outputs),
            self.formats,
            self.ranges,
            self.required.items(),
            self.metadata,
        )


Rule = Callable[["Edit", Node], Any]  # the replacement value(s), or None: keep the node


class Edit(Builder):
    """A new graph made by walking an old one in order.

    Rules see each node with its inputs already replaced, and what they emit passes through the
    rules too.
    """

    def __init__(self, graph: Graph, rules: Mapping[str, Sequence[Rule]] | None = None) -> None:
        super().__init__(graph.name)
        self.graph = graph
        self.rules = rules or {}
        self.inputs, self.input_names = list(graph.inputs), list(graph.input_names)
        self.constants = dict(graph.constants)
        self.replaced: dict[Value, Value] = {}
        self._taken = {v.name: 0 for v in graph.values}
        self._taken.update((s.name, 0) for s in (*graph.symbols, *graph.data_dependent))
        self._depth = 0

    @cached_property
    def uses(self) -> dict[Value, int]:
        """How often each value is used; what replaces others has their uses too."""
        found = Counter(v for node in self.graph.nodes for v in node.inputs)
        found.update(dict.fromkeys(self.graph.outputs, 1))
        for old, new in self.replaced.items():
            found[new] += found[old]
        return found

    def run(self) -> Graph:
        """Apply the rules to every node; the same graph comes back if none fired."""
        self.changed = False
        if not any(node.op in self.rules for node in self.graph.nodes):
            return self.graph
        for node in self.graph.nodes:
            self.rewrite(self.current(node))
        return self.finish_edit() if self.changed else self.graph

    def current(self, node: Node) -> Node:
        """The node with replaced inputs (the same node if none was)."""
        replaced = self.replaced
        for value in node.inputs:
            if value in replaced:
                return Node(
                    node.op,
                    tuple([replaced.get(v, v) for v in node.inputs]),
                    node.attrs,
                    node.outputs,
                )
        return node

    def rewrite(self, node: Node) -> None:
        """Append the node, or what the first rule that fires makes of it."""
        for rule in self.rules.get(node.op, ()):
            result = rule(self, node)
            if result is not None:
                self.changed = True
                self.substitute(node.outputs, result)
                return
        self.append(node)

    def substitute(self, old: Sequence[Value], new: Value | Sequence[Value]) -> None:
        """Later uses of `old` become `new`. Types must be equal."""
        new = (new,) if isinstance(new, Value) else tuple(new)
        for a, b in zip(old, new, strict=True):
            assert a.dtype is b.dtype and a.shape == b.shape, f"{a!r} cannot become {b!r}"
            if a is not b:
                self.replaced[a] = b
                if "uses" in vars(self):  # else whoever asks first counts them
                    self.uses[b] += self.uses[a]

    def emit(self, op: str, *inputs: Value, name: str | Sequence[str] = "", **attrs: Any) -> Any:
        """As Builder.emit; the rules get the new node first."""
        mark = len(self.nodes)
        made = super().emit(op, *inputs, name=name, **attrs)
        if self._depth < 16:
            node = self.nodes[mark]
            for rule in self.rules.get(op, ()):
                self._depth += 1
                result = rule(self, node)
                self._depth -= 1
                if result is not None:
                    return result
        return made

    def producer(self, value: Value, op: str | None = None) -> Node | None:
        """The node that makes `value` here, if there is one (and it applies `op`)."""
        node = self.made_by.get(value)
        return node if node is not None and (op is None or node.op == op) else None

    def only(self, value: Value) -> bool:
        """Has `value` at most one user?"""
        return self.uses.get(value, 0) <= 1

    def known(self, value: Value) -> Constant | None:
        """The constant that is there, its content not asked for; else None."""
        constant = self.constants.get(value)
        return None if isinstance(constant, Deferred) else constant

    def content(self, value: Value) -> np.ndarray | None:
        """The array of a constant that is there, else None."""
        constant = self.known(value)
        return None if constant is None else constant.array

    def finish_edit(self) -> Graph:
        """The graph with the old outputs, replaced where they were, without what nobody reads."""
        outputs = [self.replaced.get(v, v) for v in self.graph.outputs]
        return without_dead(
            self.graph.replace(
                inputs=tuple(self.inputs),
                outputs=tuple(outputs),
                constants=self.constants,
                nodes=self.nodes,
                input_names=tuple(self.input_names),
            )
        )


def without_dead(graph: Graph) -> Graph:
    """The graph without nodes and constants that no output depends on (itself if there are
    none)."""
    needed = set(graph.outputs)
    data_dependent = set(graph.data_dependent)
    asked = {s for v in graph.outputs for s in sizes.symbols(v.shape)} if data_dependent else set()
    kept: list[Node] = []
    for node in reversed(graph.nodes):
        if any(v in needed for v in node.outputs) or (
            data_dependent and any(Var(s) in asked for s in binds(node))
        ):
            needed.update(node.inputs)
            if data_dependent:
                asked.update(symbols_of(node))
            kept.append(node)
    constants = {v: c for v, c in graph.constants.items() if v in needed}
    if len(kept) == len(graph.nodes) and len(constants) == len(graph.constants):
        return graph
    return graph.replace(nodes=reversed(kept), constants=constants)


def symbols_of(node: Node) -> list[Var]:
    """The symbols in a node's attributes and in the shapes of what it reads and makes."""

    def sizes_in(value: Any) -> list[Any]:
        if isinstance(value, tuple):
            return [s for v in value for s in sizes_in(v)]
        return [value] if isinstance(value, Expr) else []

    found = sizes_in(tuple(value for _, value in node.attrs))
    return sizes.symbols([*found, *(s for v in (*node.inputs, *node.outputs) for s in v.shape)])


def complete(op: str, attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Every attribute of `op` in signature order, defaults filled in. Raises CompileError."""
    entry = OPERATORS[op].attrs
    full = {k: plain(attrs[k]) if k in attrs else default for k, default in entry.items()}
    unknown = [k for k in attrs if k not in entry]
    missing = [k for k, v in full.items() if v is Parameter.empty]
    if unknown or missing:
        why = (
            f"it has no attribute {unknown[0]!r}"
            if unknown
            else f"attribute {missing[0]!r} is missing"
        )
        raise CompileError(f"cannot apply {op}", why)
    return full


def identifier(name: str) -> str:
    """`name` as a Python identifier of bounded length: other characters become underscores."""
    if len(name) <= LONGEST and name.isidentifier() and name.isascii() and name not in _KEYWORDS:
        return name
    made = re.sub(r"\W", "_", name[:LONGEST], flags=re.ASCII).strip("_") or "v"
    return f"v{made}" if made[0].isdigit() or made in _KEYWORDS else made
