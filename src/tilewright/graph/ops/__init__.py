"""The operators, one file for each family; importing this package registers them all."""

from tilewright.graph.ops import (
    elementwise,
    factor,
    indexing,
    linear,
    measured,
    movement,
    packed,
    pooling,
    random,
    recurrent,
    reductions,
    spectral,
    symmetric,
    text,
    windows,
    winograd,
)

__all__ = [
    "elementwise",
    "factor",
    "indexing",
    "linear",
    "measured",
    "movement",
    "packed",
    "pooling",
    "random",
    "recurrent",
    "reductions",
    "spectral",
    "symmetric",
    "text",
    "windows",
    "winograd",
]
