"""What must hold of an ONNX file before anything in it is believed.

In: a ModelProto. Out: nothing, or an ImportFault. Names are text; every node has an operator that a
translator knows and as many inputs and outputs as its schema says; attributes have one name each;
subgraphs do not nest without end. What is wrong with single nodes is told in one error.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from typing import Any

from tilewright.frontend.onnx.arity import ARITY, NEWEST
from tilewright.frontend.onnx.messages import (
    AttributeProto,
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    TypeProto,
)
from tilewright.frontend.onnx.registry import translator
from tilewright.graph.outside import FAILED
from tilewright.support.errors import ImportFault, shortened

MOST_DEPTH = 16  # subgraphs inside each other
LONGEST = 120  # characters of a name in a message
MOST_LISTED = 40  # operators and nodes in a message
MOST_NAMED = 5  # nodes of one operator in a message

Key = tuple[str, str]  # domain, operator


def short(name: Any) -> str:
    """A name for a message: text, not longer than LONGEST."""
    shown = name if isinstance(name, str) else repr(name)
    return shown if len(shown) <= LONGEST else f"{shown[:LONGEST]}… ({len(shown)} characters)"


def refuse(why: str, where: str = "", remedy: str = "") -> ImportFault:
    """An ImportFault about the model as a whole."""
    return ImportFault("cannot import the model", why, where, remedy)


def key_of(node: NodeProto) -> Key:
    """(domain, operator), with ai.onnx as ""."""
    return ("" if node.domain == "ai.onnx" else node.domain), node.op_type


def graphs_in(graph: GraphProto) -> Iterator[GraphProto]:
    """The graph and all its subgraphs. Raises ImportFault if they nest too deeply."""
    stack = [(graph, 0)]
    while stack:
        current, depth = stack.pop()
        if depth > MOST_DEPTH:
            raise refuse(f"its subgraphs nest deeper than {MOST_DEPTH}")
        yield current
        stack += [(g, depth + 1) for n in current.node for a in n.attribute for g in subgraphs(a)]


def subgraphs(attribute: AttributeProto) -> list[GraphProto]:
    return [*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs]


def check_model(
    model: ModelProto, functions: Iterable[Key], versions: dict[str, int]
) -> dict[Key, list[str]]:
    """Check the whole model; `functions` are the operators that the model itself defines. Returns
    the operators that nothing here translates, and which nodes have them."""
    own = set(functions)
    missing: dict[Key, list[str]] = {}
    bodies: list[Any] = [*graphs_in(model.graph)]
    for function in model.functions:
        check_names([function.name, function.domain, *function.input, *function.output])
        bodies.append(function)
        for node in function.node:
            bodies += [g for a in node.attribute for s in subgraphs(a) for g in graphs_in(s)]
    for body in bodies:
        if isinstance(body, GraphProto):
            check_graph(body)
        inside = isinstance(body, FunctionProto)
        for node in body.node:
            check_node(node, may_refer=inside or bool(own))
            key = key_of(node)
            known = key in own or translator(*key) is not None
            if not known and not has_definition(key, versions.get(key[0], 1)):
                missing.setdefault(key, []).append(label(node))
    return missing


DEFINE = (
    "an operator that is not supported can be defined in the file by others"
    " (onnx.helper.make_function, model.functions), or registered (tilewright.operator)"
)
UNFUSED = "com.microsoft's are onnxruntime's own: a model exported without its optimiser has none"


def all_faults(
    missing: dict[Key, list[str]], versions: dict[str, int], faults: list[ImportFault]
) -> ImportFault:
    """One error for all that a model asks and that cannot be done: operators that are missing, with
    the nodes that have them, and what else was refused, with what helps there."""
    if len(faults) == 1 and not missing:
        return faults[0]
    lines = [
        f"{short(domain or 'ai.onnx')}.{short(op)} (version {versions.get(domain, '?')}),"
        f" {len(nodes)} ×: {named(nodes)}"
        for (domain, op), nodes in sorted(missing.items())
    ]
    for fault in faults:
        lines.append(shortened(f"{fault.what.removeprefix('cannot import ')}: {fault.why}"))
        lines += [f"  {fault.remedy}"] if fault.remedy else []
    more = len(lines) - 2 * MOST_LISTED
    lines = lines[: 2 * MOST_LISTED] + ([f"and {more} more lines"] if more > 0 else [])
    parts = [f"{len(missing)} of its operators are not supported"] if missing else []
    kinds = sorted({fault.what.split()[2] + "s" for fault in faults})
    parts += [f"{len(faults)} of its {' and '.join(kinds)} cannot be imported"] if faults else []
    remedies = [DEFINE] if missing else []
    remedies += [f"'{name}' failed to register operators ({why})" for name, why in FAILED.items()]
    remedies += [UNFUSED] if any(domain == "com.microsoft" for domain, _ in missing) else []
    return refuse(", and ".join(parts), "\n".join(lines), "; ".join(remedies))


def label(node: NodeProto) -> str:
    """A node's name, or that of its first output."""
    return node.name or next(iter(node.output), "")


def named(nodes: list[str]) -> str:
    """The first few nodes by name."""
    more = len(nodes) - MOST_NAMED
    shown = ", ".join(f"'{short(name)}'" for name in nodes[:MOST_NAMED])
    return shown + (f" and {more} more" if more > 0 else "")


def check_graph(graph: GraphProto) -> None:
    check_names([graph.name])
    for entry in (*graph.input, *graph.output):
        check_names([entry.name])
        check_names(d.dim_param for d in entry.type.tensor_type.shape.dim)
    for tensor in graph.initializer:
        check_names([tensor.name, *(e.key for e in tensor.external_data)])
        check_names(e.value for e in tensor.external_data)
    check_names(sparse.values.name for sparse in graph.sparse_initializer)


def check_names(names: Iterable[Any]) -> None:
    """Names are text; protobuf gives bytes for what is not UTF-8."""
    for name in names:
        if not isinstance(name, str):
            raise refuse(f"the name {short(name)} is not UTF-8")


def check_node(node: NodeProto, may_refer: bool) -> None:
    check_names([node.op_type, node.domain, node.name, *node.input, *node.output])
    seen: set[str] = set()
    for attribute in node.attribute:
        check_names([attribute.name, attribute.ref_attr_name])
        if attribute.name in seen:
            raise refuse(
                f"node '{short(node.name)}' has the attribute '{short(attribute.name)}' twice"
            )
        if attribute.ref_attr_name and not may_refer:
            raise refuse(
                f"attribute '{short(attribute.name)}' of node '{short(node.name)}' refers to a"
                " function's parameter outside a function"
            )
        seen.add(attribute.name)


def check_counts(node: NodeProto, version: int) -> None:
    """As many inputs and outputs as the operator's schema allows."""
    limits = _limits(node.op_type, version, "" if node.domain == "ai.onnx" else node.domain)
    if limits is None:
        return
    given = {"inputs": len(node.input), "outputs": len(node.output)}
    for (what, count), (least, most) in zip(given.items(), limits, strict=True):
        if not least <= count <= most:
            wanted = f"{least}" if least == most else f"{least} to {most}"
            raise ImportFault(
                f"cannot import node '{short(label(node))}' ({short(node.op_type)})",
                f"it has {count} {what}, {node.op_type} takes {wanted}",
            )


def has_definition(key: Key, version: int) -> bool:
    """Does ONNX itself define the operator by others?"""
    schema = _schema(key[1], version, key[0])
    return schema is not None and (schema.has_function or schema.has_context_dependent_function)


def standard_function(
    node: NodeProto, version: int, types: list[TypeProto]
) -> FunctionProto | None:
    """ONNX's definition of a node by other operators, for inputs of these types."""
    domain, op = key_of(node)
    schema = _schema(op, version, domain)
    if schema is None:
        return None
    made = FunctionProto()
    if schema.has_function:
        made.CopyFrom(schema.function_body)
        defaults = [a.default_value for a in schema.attributes.values()]
        made.attribute_proto.extend(a for a in defaults if a.type)
        return made
    if not schema.has_context_dependent_function:
        return None
    encoded = [t.SerializeToString() for t in types]
    try:
        made.ParseFromString(
            schema.get_context_dependent_function(node.SerializeToString(), encoded)
        )
    except (RuntimeError, ValueError):
        return None
    return made if made.node else None


def _schema(op: str, version: int, domain: str) -> Any:
    import onnx.defs

    try:
        return onnx.defs.get_schema(op, max(version, 1), domain)
    except (onnx.defs.SchemaError, TypeError):
        return None


@functools.cache
def _limits(op: str, version: int, domain: str) -> tuple[tuple[int, int], tuple[int, int]] | None:
    """The fewest and the most inputs, and outputs; None where no schema says."""
    rows = ARITY.get(domain, {}).get(op, ())
    if version <= NEWEST.get(domain, 0) and rows:
        row = max((row for row in rows if row[0] <= max(version, 1)), default=None)
        return row and (row[1:3], row[3:5])
    schema = _schema(op, version, domain)
    if schema is None:
        return None
    return (schema.min_input, schema.max_input), (schema.min_output, schema.max_output)
