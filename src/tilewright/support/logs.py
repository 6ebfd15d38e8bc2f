"""What the compiler does, for programs that use `logging`: the loggers below "tilewright".

In: a message. Out: a record of the standard library, if somebody can want it. A program that has
not imported `logging` has set up nothing to show, so that it is not imported for it either (it
takes longer than loading a compiled model); nothing here installs a handler.
"""

from __future__ import annotations

import sys
from typing import Any

DEBUG, INFO = 10, 20  # as in logging


def log(level: int, of: str, message: str, *args: object) -> None:
    """A record of the logger `tilewright.<of>`, with `message % args` as its text."""
    logging: Any = sys.modules.get("logging")
    if hasattr(logging, "getLogger"):  # else nobody has it, or another thread is importing it
        logging.getLogger(f"tilewright.{of}").log(level, message, *args, stacklevel=2)


def is_logged(level: int, of: str) -> bool:
    """Does somebody want such records?"""
    logging: Any = sys.modules.get("logging")
    found = hasattr(logging, "getLogger")
    return found and logging.getLogger(f"tilewright.{of}").isEnabledFor(level)
