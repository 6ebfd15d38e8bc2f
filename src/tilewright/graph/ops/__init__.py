"""The operators, one file for each family; importing this package registers them all."""

from tilewright.graph.ops import (
    elementwise,
    indexing,
    linear,
    measured,
    movement,
    packed,
    pooling,
    random,
    recurrent,
    reductions,
    windows,
    winograd,
)

__all__ = [
    "elementwise",
    "indexing",
    "linear",
    "measured",
    "movement",
    "packed",
    "pooling",
    "random",
    "recurrent",
    "reductions",
    "windows",
    "winograd",
]
