"""ONNX models into graphs: `import_onnx`. One file for each family of operators fills the table."""

from tilewright.frontend.onnx import (
    control,
    elementwise,
    images,
    indexing,
    machine_learning,
    neural,
    quantised,
    recurrent,
    reductions,
    selection,
    sequences,
    signal,
    tensors,
    training,
    vision,
)
from tilewright.frontend.onnx.importer import import_onnx

__all__ = [
    "control",
    "elementwise",
    "images",
    "import_onnx",
    "indexing",
    "machine_learning",
    "neural",
    "quantised",
    "recurrent",
    "reductions",
    "selection",
    "sequences",
    "signal",
    "tensors",
    "training",
    "vision",
]
