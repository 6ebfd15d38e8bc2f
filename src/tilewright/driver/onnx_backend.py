"""The interface of `onnx.backend`: prepare a model, then run it on arrays.

In: a ModelProto. Out: a `Prepared` whose `run` takes and gives NumPy arrays. Everything that it
computes is compiled; nothing falls back to an evaluator.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx
from onnx.backend.base import Backend, BackendRep, Device, DeviceType

from tilewright.driver.compile import compile_observed
from tilewright.driver.kernels import KernelPool


class Prepared(BackendRep):
    """A compiled model."""

    def __init__(self, model: onnx.ModelProto, pool: KernelPool | None = None) -> None:
        self.executable = compile_observed(model, cache=False, pool=pool)

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """The outputs for `inputs`: arrays in the model's order, or by name. Raises InputError."""
        if isinstance(inputs, dict):
            return tuple(self.executable(**inputs))
        return tuple(self.executable(*inputs))


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
