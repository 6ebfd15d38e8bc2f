"""ONNX to Graph: walk the nodes in order, translate each by the table in `registry`.

In: a path, bytes or a ModelProto. Out: a Graph of our operators, with constants folded and shapes
known. Functions that the model defines and subgraphs are translated where they are called, in a
scope of their own.
"""

from __future__ import annotations

import contextlib
import itertools
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from tilewright.frontend.onnx.checks import (
    MOST_DEPTH,
    MOST_LISTED,
    Key,
    all_faults,
    check_counts,
    check_model,
    key_of,
    label,
    refuse,
    short,
    standard_function,
)
from tilewright.frontend.onnx.choice import either, elements_and_shape
from tilewright.frontend.onnx.coded import (
    CODED,
    FLOATS,
    MOVES,
    OF_SHAPES,
    Coded,
    Text,
    constant_of,
    input_of,
    moved,
    outputs_of,
)
from tilewright.frontend.onnx.files import TYPES, Source, dense, read, type_of
from tilewright.frontend.onnx.given import Called, Shapes, given_sizes
from tilewright.frontend.onnx.given import label as label_of
from tilewright.frontend.onnx.messages import (
    AttributeProto,
    FunctionProto,
    GraphProto,
    NodeProto,
    TensorProto,
    TensorShapeProto,
    TypeProto,
    ValueInfoProto,
)
from tilewright.frontend.onnx.order import in_order
from tilewright.frontend.onnx.registry import (
    NEWEST,
    OLDEST,
    TRANSLATORS,
    Choice,
    NodeContext,
    Refusal,
    translator,
)
from tilewright.frontend.onnx.registry import Sequence as Sequence_
from tilewright.frontend.onnx.runtime_broadcast import (
    BROADCASTS,
    broadcast_operands,
    unify_operands,
)
from tilewright.frontend.onnx.size_names import contradiction, shared_names, sizes_apart
from tilewright.graph import sizes
from tilewright.graph.bounds import Bounds, OutOfBounds, checked
from tilewright.graph.builder import MOST_RANK, identifier
from tilewright.graph.folding import Folding
from tilewright.graph.graph import Graph, Value
from tilewright.graph.operator import Unequal
from tilewright.graph.unify import Names, read_unified
from tilewright.ir.expr import as_int
from tilewright.ir.walk import fresh
from tilewright.support.errors import CompileError, ImportFault, SizeWarning

MOST_NODES = 200_000  # translated nodes, after functions and loops are expanded

Scope = dict[str, Value | None]
CLOSED = "\0closed"  # a name in a scope beyond which nothing is seen


Structure = Mapping[str, Iterable[tuple[int, ...]] | None]


def import_onnx(
    source: Any, *, shapes: Shapes | None = None, structure: Structure | None = None
) -> Graph:
    """The graph of an ONNX model: a path, bytes or a ModelProto.

    `shapes` gives numbers to open sizes by their name ({"batch": 1}), or the sizes of an input by
    its name ({"image": (1, 3, None, 320)}); what it does not say stays open. Text in the place of
    a number is a name: sizes are equal that have one name, which some files give to others, too;
    where operators need sizes of several inputs to be what their common name denies, each input has
    its own, and a SizeWarning says so.
    `structure` says of inputs that are sequences what shapes their tensors have, and of optional
    ones that are not there that they are None. A sequence x becomes the graph's inputs "x.0",
    "x.1", …; so do sequences among the outputs. One whose length the run finds becomes the outputs
    "x.elements" (the elements end to end) and "x.shapes" (a row of sizes for each, -1 behind those
    of lower rank); an optional one also "x.present", a bool. An output x whose rank the run
    finds is its elements, with their shape in "x.shape". Raises ImportFault.
    """
    opened = read(source)
    proto = opened.model.graph
    fixed, called = given_sizes(proto, shapes or {})
    elements, shared = dict(structure or {}), shared_names(proto, called)

    def reading(called: Called) -> tuple[Graph, str]:
        readers: list[Importer] = []

        def reader(names: Names) -> Importer:
            readers.append(Importer(opened, fixed, called, elements, names))
            return readers[-1]

        graph, build = read_unified(reader), readers[-1].build
        symbols = [build.symbol(name) for name in shared if name not in fixed]
        return graph, contradiction(symbols, build.compared)

    graph, fault = None, None
    try:
        graph, doubt = reading(called)
    except CompileError as raised:
        fault, doubt = raised, raised.why
    if shared and doubt:
        with contextlib.suppress(CompileError):
            graph, _ = reading(sizes_apart(proto, called))
            told = "; ".join(f"'{name}' of {', '.join(of)}" for name, of in shared.items())
            named = f"where the file gives them one name ({told})"
            why = f"inputs have sizes of their own {named}: {doubt}"
            warnings.warn(why, SizeWarning, stacklevel=2)
    if graph is not None:
        said = {entry.key: entry.value for entry in opened.model.metadata_props}
        return graph.replace(metadata=said) if said else graph
    assert fault is not None
    if isinstance(fault, ImportFault):
        raise fault
    raise refuse(fault.why, fault.what) from None


class Unknown(Exception):
    """A node needs what another that was refused would have made."""


class Importer:
    """A model on its way into a graph. `scopes` map names to values, the innermost last."""

    def __init__(
        self,
        source: Source,
        dims: dict[str, int],
        called: Called,
        structure: dict[str, Any] | None = None,
        names: Names | None = None,
    ) -> None:
        self.structure = structure or {}
        self.source, self.model, self.folder = source, source.model, source.folder
        self.dims, self.called = dims, called
        self.build = Folding(names=names)
        self.scopes: list[Scope] = [{"": None}]
        self.versions = {_domain(o.domain): o.version for o in self.model.opset_import}
        self.functions: dict[Key, FunctionProto] = {
            (_domain(f.domain), f.name): f for f in self.model.functions
        }
        self.arguments: list[dict[str, AttributeProto]] = []  # of the functions being expanded
        self.translated = 0
        self.body: Any = None  # of the loop that is being translated
        self.missing: dict[Key, list[str]] = {}  # operators that nothing here translates: nodes
        self.faults: list[ImportFault] = []  # of what else cannot be imported
        self.unknown: set[str] = set()  # what nodes that were refused would have made
        self.streams = 0  # of random numbers, of nodes without a seed

    def graph(self) -> Graph:
        """The whole model."""
        self.check_versions()
        self.missing = check_model(self.model, self.functions, self.versions)
        proto = self.model.graph
        self.build.name = identifier(proto.name or "model")
        self.reserve_symbols()
        for tensor, raw in self.source.initializers():
            with self.noting("cannot import tensor", [tensor.name]):
                self.define(tensor.name, constant_of(self.build, tensor, self.folder, raw))
        for sparse in proto.sparse_initializer:
            with self.noting("cannot import sparse tensor", [sparse.values.name]):
                self.define(sparse.values.name, self.dense(sparse))
        for entry in proto.input:
            if entry.name not in self.scopes[0]:
                with self.noting("cannot import input", [entry.name]):
                    self.define(entry.name, self.input(entry))
        self.translate_all(proto.node)
        outputs: dict[str, Value] = {}
        for entry in proto.output:
            value = self.scopes[0].get(entry.name)
            if value is None:
                raise refuse(f"nothing makes its output '{short(entry.name)}'")
            if isinstance(value, Choice):
                node = NodeProto(op_type="output", output=[entry.name])
                made = elements_and_shape(NodeContext(self, node, [], NEWEST), value)
            else:
                made = outputs_of(self.build, entry.name, value)
            for name, output in made.items():
                # Files may name one output several times
                outputs[fresh(name, set(outputs))] = output
        if not outputs:
            raise refuse("it has no outputs")
        return self.build.finish(outputs)

    @property
    def in_kernel(self) -> bool:
        """Is what is translated part of a kernel, as a round of a loop may be?"""
        return self.body is not None and self.body.in_kernel

    def told_rank(self, name: str) -> int | None:
        """The rank that the model says a tensor of its outermost graph has."""
        graph = self.model.graph
        for entry in (*graph.output, *graph.value_info):
            if entry.name == name and entry.type.tensor_type.HasField("shape"):
                return len(entry.type.tensor_type.shape.dim)
        return None

    def check_versions(self) -> None:
        version = self.versions.setdefault("", NEWEST)
        if not OLDEST <= version <= NEWEST:
            raise refuse(
                f"it needs version {version} of ai.onnx",
                remedy=f"versions {OLDEST} to {NEWEST} work; onnx.version_converter converts it",
            )

    def reserve_symbols(self) -> None:
        """Symbolic sizes take their names before values do."""
        for entry in self.model.graph.input:
            for n, dim in enumerate(entry.type.tensor_type.shape.dim):
                name = label_of(entry, n, self.called)
                said = self.called.get((entry.name, n), dim.dim_param)
                if said == name and name not in self.dims and _number(dim) is None:
                    self.build.symbol(name)

    def input(self, entry: ValueInfoProto) -> Any:
        what = f"input '{short(entry.name)}'"
        kind = entry.type
        if kind.HasField("optional_type"):
            if entry.name in self.structure and self.structure[entry.name] is None:
                return None
            kind = kind.optional_type.elem_type
        if kind.HasField("sequence_type") and self.structure.get(entry.name) is not None:
            element = kind.sequence_type.elem_type.tensor_type
            of = type_of(element.elem_type, what)
            shapes = list(self.structure[entry.name])
            return Sequence_(
                self.build.input(f"{entry.name}.{k}", of, s) for k, s in enumerate(shapes)
            )
        if kind is not entry.type and kind.HasField("tensor_type"):
            given = self.structure.get(entry.name)
            if given is not None:
                of = type_of(kind.tensor_type.elem_type, what)
                return self.build.input(entry.name, of, next(iter(given)))
        if not entry.type.HasField("tensor_type"):
            raise ImportFault(
                f"cannot import {what}", "it is no tensor (a sequence, map or optional)"
            )
        proto = entry.type.tensor_type
        if proto.elem_type not in CODED:
            type_of(proto.elem_type, what)
        if not proto.HasField("shape"):
            raise ImportFault(f"cannot import {what}", "its shape is not given, not even its rank")
        if len(proto.shape.dim) > MOST_RANK:
            raise ImportFault(f"cannot import {what}", f"it has rank {len(proto.shape.dim)}")
        shape = []
        for n, dim in enumerate(proto.shape.dim):
            name = label_of(entry, n, self.called)
            if name in self.dims:
                shape.append(sizes.size(self.dims[name]))
            elif (number := _number(dim)) is not None:
                shape.append(sizes.size(number))
            else:
                shape.append(self.build.symbol(name))
        if proto.elem_type in CODED:
            return input_of(self.build, entry.name, proto.elem_type, shape)
        return self.build.input(entry.name, type_of(proto.elem_type, what), shape)

    # scopes ---------------------------------------------------------------------------------

    def define(self, name: str, value: Value | None) -> None:
        if name in self.scopes[-1]:
            raise refuse(f"the value '{short(name)}' is defined twice")
        self.scopes[-1][name] = value

    def find(self, name: str) -> tuple[bool, Value | None]:
        """Whether `name` is known here, and its value (None: an input left out)."""
        for scope in reversed(self.scopes):
            if name in scope:
                return True, scope[name]
            if CLOSED in scope:
                break
        return False, None

    def forget(self, value: Value) -> None:
        """From here on, nothing has this value."""
        for scope in self.scopes:
            for name in [k for k, v in scope.items() if v is value]:
                del scope[name]

    def lookup(self, name: str, node: NodeProto) -> Value | None:
        known, value = self.find(name)
        if not known and name in self.unknown:
            raise Unknown
        if not known:
            why = f"nothing makes its input '{short(name)}'"
            raise self.fault(node, why, "")
        return value if self.body is None else self.body.own(value)

    def argument(self, attribute: AttributeProto) -> AttributeProto | None:
        """An attribute; one that names a function's parameter is what the caller gave for it."""
        if not attribute.ref_attr_name:
            return attribute
        given = self.arguments[-1].get(attribute.ref_attr_name) if self.arguments else None
        if given is None or given.name == attribute.name:
            return given
        renamed = AttributeProto()
        renamed.CopyFrom(given)
        renamed.name = attribute.name
        return renamed

    # nodes ----------------------------------------------------------------------------------

    @contextmanager
    def noting(self, what: str, names: Iterable[str]) -> Iterator[None]:
        """What is refused in here is told later, with all else that is; `names` stay unknown."""
        try:
            yield
            return
        except ImportFault as fault:
            if not fault.what.startswith(what):
                raise  # about the model as a whole
            if str(fault) not in map(str, self.faults):
                self.faults.append(fault)
        except Unknown:
            pass
        self.unknown.update(names)
        if len(self.faults) > MOST_LISTED:
            raise all_faults(self.missing, self.versions, self.faults)

    def translate_all(self, nodes: Sequence[NodeProto]) -> None:
        """Translate the main graph's nodes. What cannot be translated is told in one error; nodes
        that need its results are passed over."""
        for node in in_order(nodes):
            with self.noting("cannot import node", node.output):
                self.translate(node)
        if self.faults or self.missing:
            raise all_faults(self.missing, self.versions, self.faults)

    def translate(self, node: NodeProto) -> None:
        """Emit what a node means and define its outputs."""
        self.translated += 1
        if self.translated > MOST_NODES:
            raise refuse(f"it expands to more than {MOST_NODES} nodes")
        key = key_of(node)
        if key in self.missing:
            raise Unknown
        if key not in self.functions:
            check_counts(node, self.versions.get(key[0], 1))
        inputs = [self.lookup(name, node) for name in node.input]
        context = NodeContext(self, node, inputs, self.versions.get(key[0], 1))
        try:
            results = self.results(key, context)
        except Refusal as refusal:
            raise self.fault(node, refusal.why, refusal.remedy) from None
        except ImportFault:
            raise
        except CompileError as fault:
            raise self.fault(node, fault.why, "", fault.where) from None
        except (ArithmeticError, LookupError, TypeError, ValueError) as fault:
            why = f"its inputs and attributes do not fit together ({type(fault).__name__}: {fault})"
            raise self.fault(node, short(why), "if they should, this is a fault of ours") from fault
        for n, name in enumerate(node.output):
            if not name:
                continue
            if n >= len(results) or results[n] is None:
                raise self.fault(node, f"its output {n} ('{short(name)}') is not supported", "")
            self.define(name, results[n])

    def results(self, key: Key, context: NodeContext) -> tuple[Any, ...]:
        """A node's outputs. Of inputs that are a choice: both, and a choice where they differ."""
        chosen = next((v for v in context.inputs if isinstance(v, Choice)), None)
        if chosen is not None:
            if self.in_kernel:
                raise Refusal(f"a loop's body reads {chosen.type_text}, which the run chooses")

            def side(which: str) -> tuple[Any, ...]:
                own = [
                    getattr(v, which) if getattr(v, "condition", None) is chosen.condition else v
                    for v in context.inputs
                ]
                return self.results(key, NodeContext(self, context.node, own, context.version))

            return either(context, chosen.condition, [lambda: side("then"), lambda: side("other")])
        own = self.functions.get(key)
        if own is None and translator(*key) is None:
            own = self.standard(context)
        if own is not None:
            made = self.call(own, context)
        elif key[1] in MOVES | OF_SHAPES and any(
            isinstance(v, Coded | Text) for v in context.inputs
        ):
            made = moved(context, TRANSLATORS[key])
        else:
            made = self.apply(key, context)
        single = not isinstance(made, tuple) or isinstance(made, Sequence_)
        return (made,) if single else made

    def attempt(self, side: Callable[[], tuple[Any, ...]]) -> Any:
        """What `side` gives, or what refuses it, of which nothing is noted then."""
        known, unknown = len(self.faults), set(self.unknown)
        try:
            return side()
        except Unknown:
            if len(self.faults) == known:  # of what was refused before
                raise
            fault: Any = self.faults[known]
        except (ImportFault, Refusal) as refusal:
            fault = refusal
        except CompileError as refusal:
            fault = Refusal(refusal.why)
        except (ArithmeticError, LookupError, TypeError, ValueError) as wrong:
            fault = Refusal(f"its inputs and attributes do not fit together ({wrong})")
        del self.faults[known:]
        self.unknown = unknown
        return fault

    def apply(self, key: tuple[str, str], context: NodeContext) -> Any:
        """What a node's translator makes; sizes that only the run can compare are guarded there."""
        translate = translator(*key)
        assert translate is not None, f"nothing translates {key}"
        own = BROADCASTS.get(key)
        build, node = self.build, context.node
        before, build.about = build.about, f"{context.op} '{label(node)}'"
        try:
            if build.same and not self.in_kernel:
                one = build.unified_value
                context.inputs = [one(v) if isinstance(v, Value) else v for v in context.inputs]
            if own is not None:
                tensors = [v for v in context.inputs if isinstance(v, Value)]
                if len(tensors) == len(context.inputs) > 1:
                    context.inputs = list[Value | None](broadcast_operands(context, tensors, own))
            while True:  # each round leaves the inputs with fewer sizes
                try:
                    return translate(context)
                except CompileError as fault:
                    rule = fault.__context__
                    if (
                        not isinstance(rule, Unequal)
                        or own == 0
                        or not unify_operands(context, *rule.sizes)
                    ):
                        raise
        finally:
            build.about = before

    def checked(self, numbers: Value, bounds: Bounds, what: str, of: Value | None = None) -> Value:
        """`of`, or the numbers themselves; a run in which one of these is outside its bounds ends
        there (or after the loop in whose body it is), but not in a branch that is not taken."""
        try:
            if self.in_kernel:
                self.body.check(numbers, bounds, what, self.build.under)
                return numbers if of is None else of
            return checked(self.build, numbers, bounds, what, self.build.under, of)
        except OutOfBounds as fault:
            raise Refusal(str(fault)) from None

    def dense(self, sparse: Any) -> Value:
        """A sparse tensor of the model as a constant."""
        return self.build.constant(dense(sparse, self.folder), sparse.values.name or "sparse")

    def inline(self, graph: GraphProto, inputs: Sequence[Value]) -> tuple[Value, ...]:
        """The outputs of a subgraph, which sees the values around it."""
        if len(graph.input) != len(inputs):
            raise Refusal(f"its subgraph has {len(graph.input)} inputs, not {len(inputs)}")
        scope: Scope = dict(zip([e.name for e in graph.input], inputs, strict=True))
        for tensor in graph.initializer:
            if tensor.name not in scope:
                scope[tensor.name] = constant_of(self.build, tensor, self.folder)
        for sparse in graph.sparse_initializer:
            scope.setdefault(sparse.values.name, self.dense(sparse))
        return self.run(scope, graph.node, [o.name for o in graph.output])

    def call(self, function: FunctionProto, context: NodeContext) -> tuple[Value | None, ...]:
        """The outputs of a function that the caller asks for; it sees its inputs alone."""
        if len(context.inputs) > len(function.input):
            raise Refusal(
                f"the function takes {len(function.input)} inputs, not {len(context.inputs)}"
            )
        missing = [None] * (len(function.input) - len(context.inputs))
        scope: Scope = dict(zip(function.input, [*context.inputs, *missing], strict=True))
        scope.update({"": None, CLOSED: None})
        defaults = {a.name: a for a in function.attribute_proto}
        before = self.versions
        self.versions = {**before, **{_domain(o.domain): o.version for o in function.opset_import}}
        self.arguments.append(defaults | context.attributes)
        try:
            wanted = zip(function.output, context.node.output, strict=False)
            return self.run(scope, function.node, [own if asked else "" for own, asked in wanted])
        finally:
            self.arguments.pop()
            self.versions = before

    def standard(self, context: NodeContext) -> FunctionProto:
        """The function by which ONNX itself defines an operator, for these inputs."""
        node = NodeProto()
        node.CopyFrom(context.node)
        del node.attribute[:]
        node.attribute.extend(context.attributes.values())
        found = standard_function(node, context.version, [_type_proto(v) for v in context.inputs])
        if found is None:
            raise Refusal(f"ONNX has no definition of {context.op} for these inputs")
        return found

    def run(
        self, scope: Scope, nodes: Sequence[NodeProto], outputs: Sequence[str]
    ) -> tuple[Any, ...]:
        """Translate nodes in a scope of their own; the values of `outputs` (None for a name "")."""
        if len(self.scopes) > MOST_DEPTH:
            raise refuse(f"its functions and subgraphs nest deeper than {MOST_DEPTH}")
        self.scopes.append(scope)
        try:
            for node in in_order(nodes):
                with self.noting("cannot import node", node.output):
                    self.translate(node)
            found = []
            for name in outputs:
                _, value = self.find(name)
                if value is None and name in self.unknown:
                    raise Unknown
                if value is None and name:
                    raise Refusal(f"nothing makes the output '{short(name)}' of its body")
                found.append(value)
            return tuple(found)
        finally:
            self.scopes.pop()

    def fault(self, node: NodeProto, why: str, remedy: str, more: str = "") -> ImportFault:
        """An error at a node, with its name, operator, version, inputs and outputs."""
        domain, op = key_of(node)

        def shown(name: str) -> str:
            _, value = self.find(name)
            return f"'{short(name)}'" + (f" {short(value.type_text)}" if value is not None else "")

        def listed(texts: Iterable[str]) -> str:
            return ", ".join(itertools.islice(texts, MOST_LISTED)) or "none"

        position = (
            f"{short(domain or 'ai.onnx')}.{short(op)} (version {self.versions.get(domain, '?')})"
        )
        position += f"\ninputs: {listed(map(shown, node.input))}"
        position += f"\noutputs: {listed(map(short, node.output))}"
        return ImportFault(
            f"cannot import node '{short(label(node))}' ({short(op)})",
            why,
            position + (f"\n{more}" if more else ""),
            remedy,
        )


def _number(dim: TensorShapeProto.Dimension) -> int | None:
    """A dimension that is a number; torch.onnx also writes one as a name ("3")."""
    if dim.dim_param:
        return int(dim.dim_param) if dim.dim_param.isdecimal() and len(dim.dim_param) < 19 else None
    return dim.dim_value if dim.HasField("dim_value") and dim.dim_value >= 0 else None


def _type_proto(value: Value | None) -> TypeProto:
    """A value's type in ONNX's terms (empty for an input left out)."""
    made = TypeProto()
    if value is not None:
        tensor = made.tensor_type
        if isinstance(value, Coded):
            tensor.elem_type = next(c for c, of in FLOATS.items() if of == value.format)
            value = value.codes
        elif isinstance(value, Text):
            tensor.elem_type, value = TensorProto.STRING, value.rows
        else:
            tensor.elem_type = next(code for code, of in TYPES.items() if of is value.dtype)
        tensor.shape.SetInParent()
        for s in value.shape:
            dim = tensor.shape.dim.add()
            number = as_int(s)
            if number is not None:
                dim.dim_value = number
    return made


def _domain(name: str) -> str:
    return "" if name == "ai.onnx" else name
