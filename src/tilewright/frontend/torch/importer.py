"""PyTorch to Graph: a program of PyTorch's operators (`program.py`), translated node by node.

In: an `nn.Module` and example inputs, or an `ExportedProgram`. Out: a Graph of our operators whose
constants are views of the module's parameters. All that is not supported is listed in one error.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.export.graph_signature import (
    InputKind,
    OutputKind,
    SymIntArgument,
    TensorArgument,
)
from torch.utils import _pytree as pytree

from tilewright.frontend.torch.branches import chosen, everywhere, is_check, is_cond
from tilewright.frontend.torch.complex import COMPLEX, PARTS, Complex, involves, joined, parted
from tilewright.frontend.torch.convert import Refusal, array, of_torch, size_of
from tilewright.frontend.torch.data_dependent import number_in
from tilewright.frontend.torch.guards import remainders
from tilewright.frontend.torch.inplace import functional, updated
from tilewright.frontend.torch.own import register
from tilewright.frontend.torch.program import (
    PROGRAM,
    decomposed,
    export,
    is_known,
    is_size,
    tracing_lock,
)
from tilewright.frontend.torch.registry import TRANSLATORS, NodeContext
from tilewright.graph import sizes
from tilewright.graph.folding import Folding
from tilewright.graph.graph import Constant, Graph, Value, tensor_type
from tilewright.graph.operator import Unequal
from tilewright.graph.shape_guard import guard_equal
from tilewright.graph.unify import Names, read_unified
from tilewright.ir.dtype import dtype
from tilewright.ir.expr import Var
from tilewright.runtime.abi import MOST_SYMBOL
from tilewright.support.errors import CompileError, ImportFault, InternalFault

MOST_LISTED = 50  # nodes in an error
LEAST_CHECKED = 2  # PyTorch's own range of an open size
MUTATIONS = (OutputKind.BUFFER_MUTATION, OutputKind.USER_INPUT_MUTATION)
MISDESCRIBED = (  # PyTorch gives a wrong rank:
    "aten.unique_consecutive.default",  # of `dim` < 0
    "aten.lstm.input",  # to its states, in 2.6
)
ITEMS = ("aten.item.default", "aten._local_scalar_dense.default")
EXPRESS = "express what they do with other operators, or register them (tilewright.operator)"


def import_torch(
    module: Any,
    example_inputs: Sequence[Any] | Mapping[str, Any] | None = None,
    *,
    example_kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    seeded: bool = False,
) -> Graph:
    """The graph of a torch module, of a function of tensors, or of a program of `torch.export`.

    example_inputs: the positional arguments of the module's forward, tensors or nests of them, or a
    mapping of those that it takes by name (beside positional ones: `example_kwargs`).
    Their shapes are the model's, but for dimensions that `dynamic_shapes` (as torch.export takes
    it) leaves open: those become symbols. Outputs are the tensors of the module's result in order.
    A buffer that running the module changes (a cache of keys and values) is an input after the
    arguments and an output after the results, both under its name; an argument that it changes
    likewise is an output. A number among the results that is only known at run time is a tensor
    without axes. `seeded`: what draws random numbers takes them from one more input at the end,
    "seed" (i64), which is given another number at each run; dropout in training mode needs it.
    Under `torch.autocast` the graph has the conversions that it asks for. Threads take turns: what
    PyTorch traces with (modes, patched classes, the filters of warnings) is the process's.
    Raises ImportFault.
    """
    with tracing_lock():
        if isinstance(module, PROGRAM):
            program = module
        else:
            program = export(module, example_inputs, example_kwargs, dynamic_shapes)
        program = decomposed(program)
    name = getattr(module, "__name__", type(module).__name__)  # a function has one
    called = names_of(dynamic_shapes)
    return read_unified(lambda names: Importer(program, name, names, seeded, called))


def names_of(dynamic_shapes: Any) -> dict[tuple[int | str, int], str]:
    """What the caller calls open sizes (`Dim("batch")`), by input (its position, or its name) and
    axis; of inputs that are tensors."""
    by_name = isinstance(dynamic_shapes, dict)
    listed = dynamic_shapes.items() if by_name else enumerate(dynamic_shapes or ())
    found: dict[tuple[int | str, int], str] = {}
    for key, dims in listed:
        axes = dims.items() if isinstance(dims, dict) else enumerate(dims or ())
        for axis, dim in axes:
            if isinstance(axis, int) and hasattr(dim, "__name__") and not hasattr(dim, "root"):
                found[key, axis] = dim.__name__
    return found


class Importer:
    """A program on its way into a graph. `made` maps nodes to values, sizes and tuples of those."""

    def __init__(
        self,
        program: PROGRAM,
        name: str,
        names: Names | None = None,
        seeded: bool = False,
        called: Mapping[tuple[int | str, int], str] | None = None,
    ) -> None:
        self.called = called or {}
        self.program, self.name = program, name
        self.seed = self.take_seed if seeded else None
        self.seeds: list[Value] = []  # the input that random numbers start from, if any do
        self.build = Folding(name, names)
        self.symbols: dict[str, Any] = {}
        self.remainders = remainders(program)
        self.made: dict[torch.fx.Node, Any] = {}
        self.held: dict[Any, Constant] = {}  # tied parameters are one constant
        self.refused: list[tuple[torch.fx.Node, Refusal]] = []
        self.state: list[Value] = []  # inputs that are buffers which running the module changes

    def graph(self) -> Graph:
        nodes = list(self.program.graph.nodes)
        self.check_supported(nodes)
        self.name_symbols(nodes)
        for node in nodes:
            if node.op == "placeholder":
                self.made[node] = self.placeholder(node)
            else:
                self.read(node)
        self.report_refused()
        outputs = self.outputs(nodes[-1])
        for value in [*self.state, *self.seeds]:  # follow the arguments
            position = self.build.inputs.index(value)
            for listed in (self.build.inputs, self.build.input_names):
                listed.append(listed.pop(position))
        return self.build.finish(outputs)

    def read(self, node: torch.fx.Node) -> None:
        """Take a node that is no argument."""
        if node.op == "get_attr":
            content = operator.attrgetter(node.target)(node.graph.owning_module)
            self.made[node] = self.constant(node, content)
        elif node.op == "call_function":
            self.made[node] = self.translate(node)

    def check_supported(self, nodes: Sequence[torch.fx.Node]) -> None:
        """Refuse, in one error, all operators that no translator knows."""
        register(nodes)
        for node in everywhere(nodes):
            if not is_known(node):
                why = "complex numbers are not supported here"
                if str(node.target) not in TRANSLATORS:
                    why = "no translator knows this operator"
                self.refused.append((node, Refusal(why, EXPRESS)))
        self.report_refused()

    def report_refused(self) -> None:
        if not self.refused:
            return
        lines = []
        for node, refusal in self.refused[:MOST_LISTED]:
            lines.append(f"{node.name} = {node.target}: {refusal.why}")
            schema = getattr(node.target, "_schema", None)
            if schema is not None:
                lines.append(f"    schema: {schema}")
            shown = ", ".join(f"{a.name} {_type_text(a)}" for a in node.all_input_nodes)
            lines.append(f"    inputs: {shown or 'none'}")
            position = _position(node)
            if position:
                lines.append(f"    from: {position}")
        if len(self.refused) > MOST_LISTED:
            lines.append(f"… and {len(self.refused) - MOST_LISTED} more")
        count = len(self.refused)
        raise ImportFault(
            f"cannot import {self.name}",
            f"{count} of its nodes {'is' if count == 1 else 'are'} not supported",
            "\n".join(lines),
            "; ".join(dict.fromkeys(r.remedy for _, r in self.refused if r.remedy)),
        )

    # inputs and outputs -------------------------------------------------------------------------

    def take_seed(self) -> Value:
        """The last input, made when first wanted."""
        if not self.seeds:
            self.seeds.append(self.build.input("seed", "i64", ()))
        return self.seeds[0]

    def name_symbols(self, nodes: Sequence[torch.fx.Node]) -> None:
        """Symbolic sizes take their names before values do: from the first axis that has them, or
        (its root) that is a multiple of them."""
        open_axes: list[tuple[str, Any]] = []
        placeholders = [n for n in nodes if n.op == "placeholder"]
        users = [n.name for n in placeholders if self.is_given(n)]
        for node in placeholders:
            fake = node.meta.get("val")
            if isinstance(fake, torch.Tensor):
                position = users.index(node.name) if node.name in users else -1
                for axis, s in enumerate(fake.shape):
                    if isinstance(s, torch.SymInt):
                        called = self.called.get((position, axis), f"{node.name}_{axis}")
                        open_axes.append((self.called.get((node.name, axis), called), s.node))
        for label, size in open_axes:
            if size.expr.is_Symbol:
                self.name_symbol(size.expr, label, size.hint)
        for label, size in open_axes:
            for root in sorted(size.expr.free_symbols, key=str):
                self.name_symbol(root, f"{label}_root", None)

    def is_given(self, node: torch.fx.Node) -> bool:
        """Is a placeholder an argument of the call?"""
        return self.called != {} and self.specs[node.name].kind is InputKind.USER_INPUT

    def name_symbol(self, symbol: Any, label: str, hint: int | None) -> None:
        """Name one of PyTorch's symbols, if it has no name yet; its range goes with it. One that
        is m · n + k is known by n."""
        if str(symbol) in self.symbols:
            return
        m, k = self.remainders.get(str(symbol), (1, 0))
        stands = self.build.symbol(f"{label}_root" if m > 1 else label)
        self.symbols[str(symbol)] = sizes.size(stands * m + k)
        if not isinstance(stands, Var):
            return
        if hint is not None:
            self.build.hints.setdefault(stands.name, (int(hint) - k) // m)
        allowed = self.program.range_constraints.get(symbol)
        if allowed is None:
            return
        # A least size of 2 says only that PyTorch treats 0 and 1 apart: it checks none below 3.
        low = int(allowed.lower) if int(allowed.lower) > LEAST_CHECKED else 1
        high = int(allowed.upper) if allowed.upper.is_Integer else MOST_SYMBOL * m
        low, high = -(-(low - k) // m), (high - k) // m
        old = self.build.ranges.get(stands.name, (min(low, 1), MOST_SYMBOL))
        found = max(low, old[0]), min(high, old[1])
        if found != (1, MOST_SYMBOL):
            self.build.ranges[stands.name] = found

    def placeholder(self, node: torch.fx.Node) -> Any:
        spec = self.specs[node.name]
        if spec.kind is InputKind.BUFFER and spec.target in self.written:
            value = self.given(node, spec.target)
            self.state.append(self.build.inputs[-1])
            return value
        if spec.kind in (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR):
            program = self.program
            tensor = program.state_dict.get(spec.target)
            return self.constant(node, program.constants[spec.target] if tensor is None else tensor)
        if spec.kind is InputKind.TOKEN:  # orders checks
            return None
        if spec.kind is not InputKind.USER_INPUT:
            raise self.fault(f"its input '{node.name}' is a {spec.kind.name.lower()}, not a tensor")
        if not isinstance(spec.arg, TensorArgument):
            return getattr(
                spec.arg, "value", None
            )  # a number or None, fixed when the module was exported
        return self.given(node, node.name)

    def given(self, node: torch.fx.Node, name: str) -> Value | Complex:
        """A new input of the node's type; a complex one has its parts along a last axis."""
        fake = node.meta["val"]
        try:
            shape = [size_of(s, self.symbols) for s in fake.shape]
            if not fake.is_complex():
                return self.build.input(name, of_torch(fake.dtype), shape)
            value = self.build.input(name, of_torch(PARTS[fake.dtype]), [*shape, 2])
            return parted(NodeContext(self.build, node, self.symbols), value)
        except Refusal as fault:
            raise self.fault(f"its input '{node.name}': {fault.why}") from None

    @property
    def written(self) -> list[str]:
        """The buffers and inputs that running the module changes."""
        return [s.target for s in self.program.graph_signature.output_specs if s.kind in MUTATIONS]

    @property
    def specs(self) -> dict[str, Any]:
        found = getattr(self, "_specs", None)
        if found is None:
            found = {s.arg.name: s for s in self.program.graph_signature.input_specs}
            self._specs = found
        return found

    def constant(self, node: torch.fx.Node, tensor: Any) -> Value | Complex | None:
        if not isinstance(tensor, torch.Tensor):
            return None  # a submodule: whoever uses it is not in the table
        if tensor.is_complex():
            pairs = torch.view_as_real(tensor.detach().resolve_conj()).clone()
            value = self.build.constant(array(pairs), node.name, of_torch(pairs.dtype))
            return parted(NodeContext(self.build, node, self.symbols), value)
        try:
            key = (tensor.untyped_storage().data_ptr(), tensor.storage_offset(), tensor.dtype,
                   tuple(tensor.shape), tensor.stride())  # fmt: skip
            if key not in self.held or not tensor.numel():
                self.held[key] = Constant(array(tensor))
            return self.build.constant(self.held[key], node.name, of_torch(tensor.dtype))
        except Refusal as fault:
            raise self.fault(f"its constant '{node.name}': {fault.why}") from None

    def outputs(self, end: torch.fx.Node) -> dict[str, Value]:
        """The tensors of the module's result, named by their position in it, then the new contents
        of what it changes, under its own name."""
        named: dict[str, Value] = {}
        changed: dict[str, Value] = {}
        paths = iter(_paths(self.program.call_spec.out_spec))
        specs = self.program.graph_signature.output_specs
        for spec, leaf in zip(specs, end.args[0], strict=True):  # type: ignore[arg-type]
            if spec.kind is OutputKind.TOKEN:
                continue
            value = self.made.get(leaf) if isinstance(leaf, torch.fx.Node) else leaf
            if isinstance(value, Complex):
                value = joined(NodeContext(self.build, leaf, self.symbols), value)
            if isinstance(spec.arg, SymIntArgument) and not isinstance(value, Value):
                value = self.build.from_sizes(np.array(value, object), dtype("i64"))
            mutates = spec.kind in MUTATIONS
            name = spec.target if mutates else next(paths)
            if isinstance(value, Value):
                (changed if mutates else named)[name] = value
        for name, value in changed.items():
            named[f"{name}_" if name in named else name] = value
        if not named:
            raise self.fault("it returns no tensor")
        return named

    # nodes --------------------------------------------------------------------------------------

    def translate(self, node: torch.fx.Node) -> Any:
        """The value of a node; after a refusal a stand-in of its type, so that all are found."""
        fake = node.meta.get("val")
        if is_size(node):
            return self.size(node)
        if is_check(node):
            return None, None
        if node.target is operator.getitem:
            return self.made[node.args[0]][node.args[1]]  # type: ignore[index]
        try:
            context = NodeContext(self.build, node, self.symbols, self.seed)
            args = torch.fx.map_arg(node.args, self.made.__getitem__)
            kwargs = torch.fx.map_arg(node.kwargs, self.made.__getitem__)
            if is_cond(node):
                return chosen(context, args[0], args[3], self.made, self.read)
            plain = functional(node.target)
            name = plain or str(node.target)
            table = COMPLEX if involves(args, fake) else TRANSLATORS
            if name not in table:
                raise Refusal(
                    f"{'complex' if table is COMPLEX else 'real'} numbers are not supported here"
                )
            result = self.applied(table[name], context, args, _kept(kwargs))
            self.check(node, result, context)
            if plain is not None:  # later readers of what is updated see the new value
                self.made.update(dict.fromkeys(updated(node), result))
            return result
        except Refusal as refusal:
            self.refused.append((node, refusal))
        except ImportFault:
            raise
        except CompileError as fault:
            self.refused.append((node, Refusal(f"{fault.what}: {fault.why}")))
        except Exception:  # of a value that stands for what was refused
            if not self.refused:
                raise
        several = isinstance(fake, tuple | list)
        made = [self.stand_in(f) for f in (fake if several else (fake,))]
        return made if several else made[0]

    def applied(self, translator: Any, context: NodeContext, args: Any, kwargs: Any) -> Any:
        """What a translator makes; sizes that PyTorch takes to be one are compared in the run if
        nothing here shows that they are."""
        try:
            return translator(context, *args, **kwargs)
        except CompileError as fault:
            rule = fault.__context__
            if not isinstance(rule, Unequal):
                raise
            given = [v for v in pytree.tree_leaves((args, kwargs)) if isinstance(v, Value)]
            what = f"a size of '{context.node.name}' that is one of two in the program"
            made = guard_equal(self.build, *rule.sizes, given, context.node.name, what)
            if not made:
                raise
        again = pytree.tree_map(
            lambda v: made.get(v, v) if isinstance(v, Value) else v, (args, kwargs)
        )
        result = self.applied(translator, context, *again)
        if not isinstance(result, Value):
            return result
        return context.emit("view_as", result, shape=context.shape)

    def size(self, node: torch.fx.Node) -> Any:
        """A node whose value is a number: arithmetic on sizes."""
        value = node.meta["val"]
        if isinstance(value, bool | float):
            return value
        try:
            if str(node.target) in ITEMS:
                content = self.made[node.args[0]]  # type: ignore[index]
                context = NodeContext(self.build, node, self.symbols)
                only_given = all(u.op == "output" or _is_asserted(u) for u in node.users)
                return (
                    context.reshape(content, ())
                    if only_given
                    else number_in(context, content, value)
                )
            if isinstance(value, torch.SymBool):  # asked by assertions, which hold for these sizes
                return True
            return size_of(value, self.symbols)
        except (Refusal, AttributeError):
            if not _is_asserted(node):
                why = f"its value {value} is only known at run time"
                self.refused.append((node, Refusal(why)))
            return 1

    def stand_in(self, fake: Any) -> Value | Complex | None:
        if not isinstance(fake, torch.Tensor):
            return None
        if fake.is_complex():
            part = fake.new_empty(fake.shape, dtype=PARTS[fake.dtype])
            return Complex(self.stand_in_of(part), self.stand_in_of(part))
        return self.stand_in_of(fake)

    def stand_in_of(self, fake: torch.Tensor) -> Value:
        """What stands for a real result of a refused node until all that is refused is told."""
        try:
            shape = [size_of(s, self.symbols) for s in fake.shape]
            return Value("refused", *tensor_type(of_torch(fake.dtype).name, shape))
        except Refusal:
            return Value("refused", *tensor_type("f32", ()))

    def check(self, node: torch.fx.Node, result: Any, context: NodeContext) -> None:
        """Hold a translator to the type that PyTorch gives the node."""
        several = isinstance(result, tuple | list) and not isinstance(result, Complex)
        results = result if several else (result,)
        for number, (value, fake) in enumerate(zip(results, context.fakes, strict=False)):
            if not isinstance(fake, torch.Tensor):
                continue
            if value is None:
                if len(results) == 1 or context.uses(number):
                    raise Refusal(f"its result {number} is wanted")
                continue
            of = of_torch(PARTS.get(fake.dtype, fake.dtype))
            if fake.is_complex() is not isinstance(value, Complex):
                raise InternalFault(f"the translator of {node.target} confuses real and complex")
            value = value.real if isinstance(value, Complex) else value
            want = Value("v", *tensor_type(of.name, context.sizes(fake.shape)))
            same = value.rank == want.rank and all(
                a == b or (sizes.symbols([a, b]) != [])
                for a, b in zip(value.shape, want.shape, strict=True)
            )
            if str(node.target) in MISDESCRIBED and value.rank != want.rank:
                continue
            if value.dtype is not want.dtype or not same:
                raise InternalFault(
                    f"the translator of {node.target} gave {value.type_text} for {node.name}, "
                    f"which is {want.type_text}"
                )

    def fault(self, why: str, remedy: str = "") -> ImportFault:
        return ImportFault(f"cannot import {self.name}", why, remedy=remedy)


_PLACEMENT = frozenset(
    {"device", "layout", "pin_memory", "memory_format", "non_blocking", "requires_grad"}
)


def _kept(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Keyword arguments that change the result: where a tensor lies and how does not."""
    return {k: v for k, v in kwargs.items() if k not in _PLACEMENT}


def _is_asserted(node: torch.fx.Node) -> bool:
    """Is the node used for nothing but truth values, which assertions ask for?"""
    users = [u for u in node.users if not str(u.target).startswith("aten._assert")]
    return all(isinstance(u.meta.get("val"), torch.SymBool | bool) for u in users)


def _type_text(node: torch.fx.Node) -> str:
    fake = node.meta.get("val")
    if isinstance(fake, torch.Tensor):
        return f"{str(fake.dtype).removeprefix('torch.')}{list(fake.shape)}"
    return "" if fake is None else str(type(fake).__name__)


def _position(node: torch.fx.Node) -> str:
    """The path of the submodule whose forward made the node."""
    stack = node.meta.get("nn_module_stack") or {}
    last = list(stack.values())[-1:]
    if not last:
        return ""
    path, kind = last[0]
    return f"{path or 'the module itself'} ({kind if isinstance(kind, str) else kind.__qualname__})"


def _paths(spec: Any) -> list[str]:
    """A name for each leaf of a result: its keys joined by "_", or output, output_1, …"""
    leaves, _ = pytree.tree_flatten_with_path(pytree.tree_unflatten(range(spec.num_leaves), spec))
    names: dict[str, None] = {}
    for number, (path, _) in enumerate(leaves):
        keys = [str(getattr(k, "key", getattr(k, "name", getattr(k, "idx", "")))) for k in path]
        named = any(not k.isdigit() for k in keys)
        plain = "output" if len(leaves) == 1 else f"output_{number}"
        name = "_".join(keys) if named else plain
        while name in names:
            name += "_"
        names[name] = None
    return list(names)
