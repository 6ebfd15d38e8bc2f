"""The fused graph as an ONNX file, to be looked at (netron.app shows it).

In: a compiled model's groups and kernels. Out: an ONNX model that its checker takes: a node for
each kernel, whose name is that of a function of the model's own, in which its operators stand. They
are Tilewright's, so nothing else runs the file. Loops of the host program are nodes with their
rounds as a graph.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.driver.build import dims
from tilewright.graph.graph import Node, Value
from tilewright.graph.group import FusedGraph, FusedGroup
from tilewright.graph.text import attr_text
from tilewright.runtime import abi
from tilewright.runtime.tensor import PACKED_BITS, numpy_dtype, pack
from tilewright.support.errors import CompileError
from tilewright.support.version import __version__

KERNELS, OPERATORS = "tilewright.kernels", "tilewright.operators"
IR_VERSION, OPSET = 10, 17
LARGEST = 1 << 30  # bytes of weights that stand in the file; more stand in one beside it
TYPES = {  # ONNX's names, where they are not those of NumPy's types
    "f64": "DOUBLE", "f32": "FLOAT", "f16": "FLOAT16", "bf16": "BFLOAT16",
    "f8e4m3": "FLOAT8E4M3FN", "f8e5m2": "FLOAT8E5M2",
    "f8e4m3fnuz": "FLOAT8E4M3FNUZ", "f8e5m2fnuz": "FLOAT8E5M2FNUZ", "bool": "BOOL",
    "i2": "INT2", "u2": "UINT2", "i1": "UINT8", "u1": "UINT8",
}  # fmt: skip


def write_onnx(
    fused: FusedGraph,
    kernels: Mapping[str, abi.KernelInfo],
    path: str | os.PathLike[str],
) -> None:
    """Write a fused graph. kernels: by the names of their groups. Weights of more than a gigabyte
    go into a file beside it. Raises CompileError where the package onnx is not installed."""
    try:
        import onnx
    except ModuleNotFoundError:
        raise CompileError(
            "cannot write the graph as an ONNX file",
            "the package 'onnx' is not installed",
            remedy="pip install 'tilewright[onnx]'",
        ) from None
    made = _Writer(onnx, kernels).model(fused)
    whole = sum(c.array.nbytes for part in fused.parts() for c in part.graph.constants.values())
    if whole <= LARGEST:
        onnx.save(made, os.fspath(path))
        return
    beside = Path(path).name + ".data"
    Path(path).with_name(beside).unlink(missing_ok=True)  # it would be written behind what is there
    onnx.save(made, os.fspath(path), save_as_external_data=True, location=beside)


class _Writer:
    """Writes the parts of one model; functions are those of all."""

    def __init__(self, onnx: Any, kernels: Mapping[str, abi.KernelInfo]) -> None:
        self.onnx, self.helper, self.kernels = onnx, onnx.helper, kernels
        self.functions: dict[tuple[str, bytes], Any] = {}  # by their kernels and what they say
        self.names: dict[str, int] = {}

    def model(self, fused: FusedGraph) -> Any:
        """The whole model."""
        graph = self.graph(fused, "")
        made = self.helper.make_model(
            graph,
            functions=list(self.functions.values()),
            opset_imports=self.opsets(),
            ir_version=IR_VERSION,
            producer_name="tilewright",
            producer_version=__version__,
        )
        return made

    def opsets(self) -> list[Any]:
        """The versions of the operators that nodes may be."""
        versions = {"": OPSET, KERNELS: 1, OPERATORS: 1}
        return [self.helper.make_opsetid(*pair) for pair in versions.items()]

    def graph(self, fused: FusedGraph, prefix: str) -> Any:
        """A graph of groups. prefix: of all its names, which are unique in the model."""
        graph = fused.graph
        read = {v for g in fused.groups for v in g.inputs} | {*graph.outputs}
        weights = [v for v in graph.constants if v in read]
        made = [v for g in fused.groups for v in g.outputs if v not in graph.outputs]
        return self.helper.make_graph(
            [node for group in fused.groups for node in self.group(group, fused, prefix)],
            prefix.rstrip("/") or graph.name,
            [self.info(v, prefix) for v in graph.inputs],
            [self.info(v, prefix) for v in graph.outputs],
            initializer=[
                self.tensor(prefix + v.name, v, np.asarray(graph.array(v))) for v in weights
            ],
            value_info=[self.info(v, prefix) for v in dict.fromkeys(made)],
        )

    def group(self, group: FusedGroup, fused: FusedGraph, prefix: str) -> Iterable[Any]:
        """The nodes of a group: one, its kernel; operators as they are where it needs no code."""
        if group.is_loop:
            body = self.graph(fused.bodies[group.name], f"{prefix}{group.name}/")
            return [self.node(n, prefix, rounds=body) for n in group.nodes]
        if group.name not in self.kernels:
            constants = self.constants(group.embedded, prefix)
            return [*constants, *(self.node(n, prefix) for n in group.nodes)]
        kernel = self.kernels[group.name]
        node = self.helper.make_node(
            self.function(group, kernel),
            [prefix + v.name for v in group.inputs],
            [prefix + v.name for v in group.outputs],
            name=prefix + group.name,
            domain=KERNELS,
        )
        told = {"kernel": kernel.name, "flops": kernel.flops, "bytes": kernel.bytes, **group.why}
        for key, value in told.items():
            node.metadata_props.add(key=key, value=str(value))
        return [node]

    def function(self, group: FusedGroup, kernel: abi.KernelInfo) -> str:
        """The name of the function of the group's operators: its kernel's, which others may have;
        numbered where these differ in what only names a size or a number."""
        names = {v: f"x{n}" for n, v in enumerate(group.inputs)}
        for value in (*group.embedded, *(v for n in group.nodes for v in n.outputs)):
            names[value] = f"v{len(names)}"
        nodes = [*self.constants(group.embedded, "", names)]
        nodes += [self.node(n, "", names) for n in group.nodes]
        made = self.helper.make_function(
            KERNELS,
            "",
            [names[v] for v in group.inputs],
            [names[v] for v in group.outputs],
            nodes,
            self.opsets(),
        )
        content = kernel.name, made.SerializeToString(deterministic=True)
        if content not in self.functions:
            count = self.names[kernel.name] = self.names.get(kernel.name, 0) + 1
            made.name = kernel.name if count == 1 else f"{kernel.name}_{count}"
            self.functions[content] = made
        return self.functions[content].name

    def constants(
        self, values: Mapping[Value, Any], prefix: str, names: Mapping[Value, str] | None = None
    ) -> Iterable[Any]:
        """Nodes for the numbers that stand in code."""
        for value, number in values.items():
            name = names[value] if names else prefix + value.name
            array = np.full([1 if d < 0 else d for d in value.static_shape or ()], number)
            tensor = self.tensor(name, value, array)
            yield self.helper.make_node("Constant", [], [name], value=tensor)

    def node(
        self,
        node: Node,
        prefix: str,
        names: Mapping[Value, str] | None = None,
        rounds: Any = None,
    ) -> Any:
        """An operator. rounds: of a loop, as a graph."""

        def name(value: Value) -> str:
            return names[value] if names else prefix + value.name

        made = self.helper.make_node(
            node.op, [*map(name, node.inputs)], [*map(name, node.outputs)], domain=OPERATORS
        )
        for key, value in node.attrs:
            if value is not None and not (rounds is not None and key == "body"):
                made.attribute.append(self.helper.make_attribute(key, plain(value)))
        if rounds is not None:
            made.attribute.append(self.helper.make_attribute("body", rounds))
        return made

    def info(self, value: Value, prefix: str) -> Any:
        """A value's type."""
        shape = list(dims(value.shape))
        return self.helper.make_tensor_value_info(
            prefix + value.name, self.type(value.dtype.name), shape
        )

    def type(self, name: str) -> int:
        """ONNX's number for an element type; bytes where it has none."""
        longer = name.replace("i", "INT").replace("u", "UINT")
        known = self.onnx.TensorProto.DataType
        word = TYPES.get(name, longer)
        return known.Value(word if word in dict(known.items()) else "UINT8")

    def tensor(self, name: str, value: Value, array: np.ndarray) -> Any:
        """A constant's content."""
        of = value.dtype.name
        if of in PACKED_BITS:
            data = pack(array, PACKED_BITS[of]).tobytes()
        else:
            data = np.ascontiguousarray(array.astype(numpy_dtype(of), copy=False)).tobytes()
        made = self.onnx.TensorProto(name=name, data_type=self.type(of), dims=array.shape)
        made.raw_data = data
        return made


def plain(value: Any) -> Any:
    """An attribute's value as ONNX has it: a number, a text, a list of one kind; else its text."""
    if isinstance(value, bool | int | float | str):
        return int(value) if isinstance(value, bool) else value
    if isinstance(value, tuple) and value:
        items: Sequence[Any] = value
        for kind in (int, float, str):
            if all(type(item) is kind for item in items):
                return list(items)
    return attr_text(value)
