"""Processors: machine code that LLVM makes, in the calling convention of the host program."""

from __future__ import annotations

from tilewright.backend.backend import Backend, Native
from tilewright.codegen.inprocess import load
from tilewright.codegen.llvm import emit
from tilewright.codegen.llvm_compile import compile_assembly, compile_object
from tilewright.strategy.cpu.layouts import Layouts

CPU = Backend(
    kind="cpu",
    emit=emit,
    assembly=compile_assembly,
    native=Native(emit, compile_object, Layouts.of, load),
)
