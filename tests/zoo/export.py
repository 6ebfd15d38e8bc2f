"""A torch module in, an ONNX file out: standard operators, folded constants, no machine's traces.

The exporter's own optimiser is left out because it would fold the batch norms, which is the
compiler's to do; only what has no input (shapes, weight reordering) is folded here.
"""

from __future__ import annotations

import logging
import os
import warnings
from pathlib import Path

import numpy as np
import onnx
import onnxscript.optimizer
import torch
from onnxscript import ir
from torch import nn

LARGE_WEIGHT = 1 << 20  # bytes
LARGEST_CONSTANT = 1 << 30  # bytes: recurrent weights are reordered at export, not at run time


def export(
    module: nn.Module, inputs: dict[str, np.ndarray], outputs: list[str], opset: int, path: Path
) -> None:
    """Write `module`, traced on `inputs`, to `path`; the same bytes for the same arguments."""
    arguments = tuple(torch.from_numpy(x) for x in inputs.values())
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        logging.getLogger("torch.onnx").setLevel(logging.ERROR)
        program = torch.onnx.export(
            module,
            arguments,
            input_names=list(inputs),
            output_names=outputs,
            opset_version=opset,
            dynamo=True,
            optimize=False,
            verbose=False,
        )
    assert program is not None
    write(clean(program.model), path)


def clean(model: ir.Model) -> onnx.ModelProto:
    """Fold what is constant, drop what is unused, and drop every note the exporter made."""
    onnxscript.optimizer.fold_constants(
        model,
        input_size_limit=LARGEST_CONSTANT,
        output_size_limit=LARGEST_CONSTANT,
        should_fold=lambda node: False if transposes_tied_weight(node) else None,
    )
    onnxscript.optimizer.remove_unused_nodes(model)
    proto = ir.to_proto(model)
    del proto.metadata_props[:]  # notes name source files of the exporting machine
    del proto.graph.metadata_props[:]
    del proto.graph.value_info[:]
    for node in proto.graph.node:
        del node.metadata_props[:]
        node.doc_string = ""
    return proto


def transposes_tied_weight(node: ir.Node) -> bool:
    """Whether folding would store a second copy of a large weight that another operator reads."""
    value = node.inputs[0] if node.op_type == "Transpose" else None
    if value is None or value.const_value is None:
        return False
    return value.const_value.nbytes > LARGE_WEIGHT and len(value.uses()) > 1


def write(proto: onnx.ModelProto, path: Path) -> None:
    """Write the file whole or not at all: another process may be making the same one."""
    onnx.checker.check_model(proto, full_check=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(f".{os.getpid()}.part")
    onnx.save(proto, part)
    part.replace(path)
