"""The models the compiler is judged by: seeded random weights, f32, an ONNX file and a module each.

    names()                    every model, in the order of the tables
    OTHERS                     sixty more architectures, which need timm; for the benchmarks only
    model("resnet18", batch=2) .onnx_path (made on first use), .module, .inputs(seed), .input_names

Files are made outside the repository, in `$TILEWRIGHT_ZOO` or the user's cache folder, and are
the same bytes each time. `python -m tests.zoo` makes, checks and describes all of them.
"""

from tests.zoo.others import OTHERS
from tests.zoo.registry import Model, batches, model, names

__all__ = ["OTHERS", "Model", "batches", "model", "names"]
