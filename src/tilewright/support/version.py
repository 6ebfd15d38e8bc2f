"""The compiler's version, which artifacts and keys of caches state; the package's metadata has it
from here."""

from __future__ import annotations

__version__ = "0.1.0"
