"""The models the compiler is judged by: seeded random weights, f32, an ONNX file and a module each.

    names()                    every model, in the order of the tables
    model("resnet18", batch=2) .onnx_path (made on first use), .module, .inputs(seed), .input_names

Files are made outside the repository, in `$TILEWRIGHT_ZOO` or the user's cache folder, and are
the same bytes each time. `python -m tests.zoo` makes, checks and describes all of them.
"""

from tests.zoo.registry import Model, batches, model, names

__all__ = ["Model", "batches", "model", "names"]
