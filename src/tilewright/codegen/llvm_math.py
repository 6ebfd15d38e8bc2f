"""Calls of functions that no instruction computes.

In: the name, float dtype and lanes of a function. Out: a call; `llvm_functions` writes what it
calls, from the definitions in `math.py`, once for each module.
"""

from __future__ import annotations

from tilewright.codegen.llvm_builder import Builder
from tilewright.codegen.llvm_types import register
from tilewright.codegen.math import FUNCTIONS
from tilewright.ir.dtype import DType
from tilewright.support.errors import CompileError

Need = tuple[str, str, int]  # name, dtype, lanes


def math_call(b: Builder, name: str, of: DType, lanes: int, operands: list[str]) -> str:
    """A call of the function `name` on `operands`."""
    if name not in FUNCTIONS:
        raise CompileError(f"cannot generate '{name}'", f"there is no {name} for {of}")
    kind = register(of, lanes)
    b.needs.add((name, of.name, lanes))
    arguments = ", ".join(f"{kind} {o}" for o in operands)
    return b.pure(f'call {kind} @"{symbol(name, of, lanes)}"({arguments})', *operands)


def symbol(name: str, of: DType, lanes: int) -> str:
    """The name of the LLVM function."""
    return f"tw.{name}.{of.name}" + (f".v{lanes}" if lanes else "")
