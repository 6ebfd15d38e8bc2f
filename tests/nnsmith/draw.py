"""A number in, a model of nnsmith's out: a torch module, its inputs, its ONNX file."""

from __future__ import annotations

import functools
import io
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import torch

from nnsmith.abstract.extension import activate_ext
from nnsmith.graph_gen import model_gen
from nnsmith.materialize import Model
from nnsmith.narrow_spec import auto_opset
from tests.differential.reference import NodeReference, Unsound

SECONDS = 10  # of the solver
NODES = (4, 8, 14)
OPSET = 17
DTYPES = "float16 float32 float64 int8 int16 int32 int64 uint8 bool".split()


class Steps(torch.nn.Module):
    """The operators of an nnsmith module one after the other, without its bookkeeping, which
    branches on values and cannot be traced."""

    def __init__(self, symbolic: Any) -> None:
        super().__init__()
        self.layers = symbolic.mlist
        self.steps = [(step, takes, gives) for step, takes, gives, _ in symbolic.instructions]
        self.takes, self.gives = list(symbolic.input_map), list(symbolic.output_map)

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        known = dict(zip(self.takes, inputs, strict=True))
        for step, takes, gives in self.steps:
            results = step(*[known[name] for name in takes])
            results = results if isinstance(results, list) else [results]
            known.update(zip(gives, results, strict=True))
        return tuple(known[name] for name in self.gives)


@dataclass
class Drawn:
    """A module in evaluation mode, its inputs by name, the text of its graph."""

    module: Any
    inputs: dict[str, torch.Tensor]
    text: str

    def onnx(self) -> onnx.ModelProto:
        file = io.BytesIO()
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            torch.onnx.export(
                self.module,
                tuple(self.inputs.values()),
                file,
                input_names=list(self.inputs),
                output_names=self.module.gives,
                opset_version=OPSET,
                do_constant_folding=False,
                dynamo=False,
            )
        return onnx.load_model_from_string(file.getvalue())


class TooLarge(Exception):
    """The solver chose sizes whose weights PyTorch cannot allocate here."""


@functools.cache
def operators() -> tuple[Any, list[Any]]:
    """nnsmith's kind of model and its operators, those that PyTorch has here."""
    kind = Model.init("torch", backend_target="cpu")
    chosen = auto_opset(kind, None)
    activate_ext(opset=chosen, factory=None)
    return kind, chosen


def draw(number: int) -> Drawn:
    """The model of this number; the same each time, but for what a solver does out of time.
    Raises TooLarge."""
    kind, chosen = operators()
    torch.manual_seed(number)
    generated = model_gen(
        opset=chosen,
        method="symbolic-cinit",
        seed=number,
        max_nodes=NODES[number % len(NODES)],
        timeout_ms=1000 * SECONDS,
        dtype_choices=DTYPES,
    ).make_concrete()
    try:
        symbolic = kind.from_gir(generated).torch_model
    except RuntimeError as fault:
        if "can't allocate memory" in str(fault):
            raise TooLarge from None
        raise
    module = Steps(symbolic).eval()
    random = torch.Generator().manual_seed(number)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.requires_grad_(False)
            parameter.copy_(values(parameter, random, number))
    inputs = {
        name: values(torch.empty(like.shape, dtype=like.dtype.torch()), random, number)
        for name, like in symbolic.input_like.items()
    }
    return Drawn(module, inputs, generated.pretty())


def values(like: torch.Tensor, random: torch.Generator, number: int) -> torch.Tensor:
    """Numbers from 1 to 2 for every other model, which no operator minds; else around zero."""
    wide = torch.rand(like.shape, generator=random, dtype=torch.float64)
    if like.dtype == torch.bool:
        return wide > 0.5
    wide = wide + 1 if number % 2 else 6 * wide - 3
    return (wide if like.is_floating_point() else wide.round()).to(like.dtype)


def reference_results(
    proto: onnx.ModelProto, inputs: dict[str, np.ndarray]
) -> list[np.ndarray] | None:
    """What the file's operators give one by one, by onnxruntime or, where it lacks one, by the
    standard's evaluator; None where both do."""
    known = dict(inputs)
    known.update((t.name, onnx.numpy_helper.to_array(t)) for t in proto.graph.initializer)
    for node in proto.graph.node:
        feeds = {name: known[name] for name in node.input if name}
        entries = [(name, a.dtype, list(a.shape)) for name, a in feeds.items()]
        try:
            made = NodeReference(node, entries, [], OPSET)(feeds)
        except Unsound:
            return None
        known.update(zip(node.output, made, strict=True))
    return [known[entry.name] for entry in proto.graph.output]
