"""PyTorch modules into graphs: `import_torch`. Each family of operators has a file."""

from tilewright.frontend.torch import (
    algebra,
    bits,
    complex,
    elementwise,
    indexing,
    measured,
    movement,
    neural,
    prims,
    random,
    recurrent,
    reductions,
    sampling,
    segments,
    selection,
    series,
    special,
)
from tilewright.frontend.torch.importer import import_torch

__all__ = [
    "algebra",
    "bits",
    "complex",
    "elementwise",
    "import_torch",
    "indexing",
    "measured",
    "movement",
    "neural",
    "prims",
    "random",
    "recurrent",
    "reductions",
    "sampling",
    "segments",
    "selection",
    "series",
    "special",
]
