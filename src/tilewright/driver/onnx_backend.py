"""The interface of `onnx.backend`: prepare a model, then run it on arrays.

In: a ModelProto. Out: a `Prepared` whose `run` takes and gives NumPy arrays. Everything that it
computes is compiled; nothing falls back to an evaluator.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx.backend.base import Backend, BackendRep, Device, DeviceType

from tilewright.driver.compile import compile_observed
from tilewright.driver.kernels import KernelPool
from tilewright.frontend.onnx import import_onnx
from tilewright.runtime.executor import Executable


class Prepared(BackendRep):
    """A compiled model. One that takes sequences or optional tensors is compiled for each structure
    of inputs that it is given: how many tensors, of what shapes, and which are there."""

    def __init__(self, model: onnx.ModelProto, pool: KernelPool | None = None) -> None:
        self.model, self.pool = model, pool
        given = {t.name for t in model.graph.initializer}
        self.inputs = [e for e in model.graph.input if e.name not in given]
        self.made: dict[Any, Executable] = {}
        self.is_structured = any(not e.type.HasField("tensor_type") for e in self.inputs)
        if not self.is_structured:
            self.made[None] = compile_observed(model, cache=False, pool=pool)

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """The outputs for `inputs`: arrays (lists of them, None) in the model's order, or by name.
        Raises InputError."""
        if isinstance(inputs, dict):
            inputs = [inputs[e.name] for e in self.inputs]
        if not self.is_structured:
            return self.grouped(self.made[None](*inputs), self.made[None])
        structure: dict[str, Any] = {}
        dims: dict[str, int] = {}
        flat: list[Any] = []
        for entry, value in zip(self.inputs, inputs, strict=True):
            if not entry.type.HasField("tensor_type"):
                parts = value if isinstance(value, list | tuple) else [value]
                structure[entry.name] = None if value is None else tuple(p.shape for p in parts)
                flat += [] if value is None else parts
            else:
                flat.append(value)
                for dim, size in zip(entry.type.tensor_type.shape.dim, value.shape, strict=False):
                    if dim.dim_param:
                        dims[dim.dim_param] = size
        key = (*structure.items(), *dims.items())
        if key not in self.made:
            graph = import_onnx(self.model, shapes=dims, structure=structure)
            self.made[key] = compile_observed(graph, cache=False, pool=self.pool)
        return self.grouped(self.made[key](*flat), self.made[key])

    def grouped(self, results: list[Any], executable: Executable) -> tuple[Any, ...]:
        """Results as the model declares them: sequences as lists, what is not there as None."""
        by_name = dict(zip([t.name for t in executable.outputs], results, strict=True))
        return tuple(declared(entry.name, by_name) for entry in self.model.graph.output)


def declared(name: str, by_name: Mapping[str, Any]) -> Any:
    """The output `name` of the model from the outputs of the graph."""
    if not by_name.get(f"{name}.present", True):
        return None
    if name in by_name:
        return by_name[name]
    if f"{name}.shapes" in by_name:
        shapes = [[s for s in row if s >= 0] for row in by_name[f"{name}.shapes"].tolist()]
        ends = np.cumsum([math.prod(s) for s in shapes])[:-1]
        parts = np.split(by_name[f"{name}.elements"], ends) if shapes else []
        return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]
    names = (f"{name}.{k}" for k in itertools.count())
    return [by_name[k] for k in itertools.takewhile(by_name.__contains__, names)]


class TilewrightBackend(Backend):
    """`onnx.backend` by Tilewright, on CPUs. `pool` compiles the kernels of all models."""

    pool: KernelPool | None = None

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> Prepared:
        """Compile a model. Raises ImportFault or CompileError."""
        return Prepared(model, cls.pool)

    @classmethod
    def run_node(
        cls,
        node: onnx.NodeProto,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Sequence[Any] | None = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """Compile and run one node, with inputs of these types and shapes."""
        entries = [
            onnx.helper.make_tensor_value_info(
                name, onnx.helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
            )
            for name, array in zip(filter(None, node.input), inputs, strict=True)
        ]
        results = [onnx.ValueInfoProto(name=name) for name in node.output if name]
        model = onnx.helper.make_model(onnx.helper.make_graph([node], "node", entries, results))
        if "opset_version" in kwargs:
            model.opset_import[0].version = kwargs["opset_version"]
        return cls.prepare(model, device).run(inputs)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Only the CPU."""
        return Device(device).type == DeviceType.CPU


is_compatible = TilewrightBackend.is_compatible
prepare = TilewrightBackend.prepare
run = TilewrightBackend.run_model
run_node = TilewrightBackend.run_node
supports_device = TilewrightBackend.supports_device
