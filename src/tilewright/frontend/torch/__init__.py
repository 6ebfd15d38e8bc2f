"""PyTorch modules into graphs: `import_torch`. Each family of operators has a file."""

from tilewright.frontend.torch import (
    algebra,
    complex,
    elementwise,
    indexing,
    movement,
    neural,
    random,
    recurrent,
    reductions,
    sampling,
    selection,
    special,
)
from tilewright.frontend.torch.importer import import_torch

__all__ = [
    "algebra",
    "complex",
    "elementwise",
    "import_torch",
    "indexing",
    "movement",
    "neural",
    "random",
    "recurrent",
    "reductions",
    "sampling",
    "selection",
    "special",
]
