"""ONNX models into graphs: `import_onnx`. One file for each family of operators fills the table;
those that few models use are in `seldom`."""

from functools import partial
from importlib import import_module

from tilewright.frontend.onnx import (
    elementwise,
    images,
    indexing,
    neural,
    own,
    quantised,
    random,
    recurrent,
    reductions,
    selection,
    strings,
    tensors,
    vision,
    windows,
)
from tilewright.frontend.onnx.importer import import_onnx
from tilewright.frontend.onnx.registry import LATER

__all__ = [
    "elementwise",
    "images",
    "import_onnx",
    "indexing",
    "neural",
    "own",
    "quantised",
    "random",
    "recurrent",
    "reductions",
    "selection",
    "strings",
    "tensors",
    "vision",
    "windows",
]

LATER.append(partial(import_module, "tilewright.frontend.onnx.seldom"))
