"""The messages of ONNX's format: the classes that `import onnx` has, without that import.

In: nothing. Out: `ModelProto` and those inside it. onnx's package brings archives, mail headers and
a checker, which takes longer than reading most models, so its definitions are loaded by themselves.
protobuf makes one class of a message however often its definition is loaded: whoever imports onnx,
before or after, has the same classes.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onnx import AttributeProto as AttributeProto
    from onnx import FunctionProto as FunctionProto
    from onnx import GraphProto as GraphProto
    from onnx import ModelProto as ModelProto
    from onnx import NodeProto as NodeProto
    from onnx import SparseTensorProto as SparseTensorProto
    from onnx import TensorProto as TensorProto
    from onnx import TensorShapeProto as TensorShapeProto
    from onnx import TypeProto as TypeProto
    from onnx import ValueInfoProto as ValueInfoProto

DEFINITIONS = "onnx_ml_pb2"  # the module of onnx that protobuf's compiler wrote


def load_definitions() -> Any:
    """The module that has the messages; onnx itself where it is loaded, or lies elsewhere than
    expected. Raises ModuleNotFoundError where it is not installed."""
    package = None if "onnx" in sys.modules else importlib.util.find_spec("onnx")
    for folder in (package and package.submodule_search_locations) or ():
        file = Path(folder, f"{DEFINITIONS}.py")
        spec = importlib.util.spec_from_file_location(f"{__name__}.{DEFINITIONS}", file)
        if file.exists() and spec is not None and spec.loader is not None:
            found = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(found)
            return found
    return importlib.import_module("onnx")


_found = load_definitions()
if not TYPE_CHECKING:
    AttributeProto = _found.AttributeProto
    FunctionProto = _found.FunctionProto
    GraphProto = _found.GraphProto
    ModelProto = _found.ModelProto
    NodeProto = _found.NodeProto
    SparseTensorProto = _found.SparseTensorProto
    TensorProto = _found.TensorProto
    TensorShapeProto = _found.TensorShapeProto
    TypeProto = _found.TypeProto
    ValueInfoProto = _found.ValueInfoProto
