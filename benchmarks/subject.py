"""What an engine is given, and what it makes of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

Arrays = list[np.ndarray]
Call = Callable[[Arrays], Arrays]


@dataclass(frozen=True)
class Subject:
    """The file, and the name and batch for engines that read modules."""

    name: str
    batch: int
    path: Path
