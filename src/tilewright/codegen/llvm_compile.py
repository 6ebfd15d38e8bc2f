"""LLVM text → object code, assembly or optimised text, through llvmlite.

The pass list was chosen by measurement: the emitter already hoists, unrolls, vectorises and shares,
so what remains is to bring local buffers into registers and to tidy up. The code generator's own
passes are fixed but for those that an option leaves out (docs/decisions/030).
"""

from __future__ import annotations

import functools
import re
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import llvmlite.binding as llvm

from tilewright.support.errors import InternalFault
from tilewright.support.memory import room
from tilewright.target.processors import architecture
from tilewright.target.target import Target

LEAST_ROOM = 32 << 20  # bytes that LLVM may need for any text, with its targets,
ROOM_PER_BYTE = 256  # and for each byte of it
LEFT_OUT = (
    "disable-lsr",  # a fifth of LLVM's time for addresses that are as good without
    "disable-post-ra",  # AMD: a twelfth for an order that processors find themselves
)

_options = threading.Lock()


@functools.lru_cache(maxsize=1)
def _initialize() -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()


@functools.lru_cache(maxsize=16)
def machine(target: Target) -> Any:
    """LLVM's code generator for a target."""
    _initialize()
    found = llvm.Target.from_triple(target.triple)
    features = target.llvm_features if target.kind == "cpu" else ""
    return found.create_target_machine(
        cpu=target.cpu, features=features, opt=3, reloc="pic", codemodel="small"
    )


def optimise(text: str, target: Target) -> Any:
    """Parse, check and optimise a module."""
    room(LEAST_ROOM + ROOM_PER_BYTE * len(text), "LLVM")  # it ends the process when it has none
    _initialize()
    try:
        module = llvm.parse_assembly(text)
        module.verify()
    except RuntimeError as fault:
        raise InternalFault(
            f"LLVM refused the text it was given: {_excerpt(text, fault)}"
        ) from fault
    passes, builder = _passes(target)
    passes.run(module, builder)
    return module


def _excerpt(text: str, fault: RuntimeError) -> str:
    """The fault, and the lines of the text around it."""
    found = re.search(r":(\d+):\d+: error", str(fault))
    at = int(found[1]) if found else 0
    return f"{fault}\n" + "\n".join(text.splitlines()[max(0, at - 8) : at + 2])


@functools.lru_cache(maxsize=16)
def _passes(target: Target) -> tuple[Any, Any]:
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    options.loop_vectorization = False
    options.slp_vectorization = False
    options.loop_unrolling = False
    options.loop_interleaving = False
    builder = llvm.create_pass_builder(machine(target), options)
    passes = llvm.create_new_module_pass_manager()
    passes.add_always_inliner_pass()
    passes.add_sroa_pass()
    passes.add_instruction_combine_pass()
    passes.add_simplify_cfg_pass()
    return passes, builder


@contextmanager
def _left_out(target: Target) -> Generator[None]:
    """Without the passes of `LEFT_OUT`, where that was measured. LLVM's options belong to the
    process: another user of llvmlite finds them as they were."""
    chosen = LEFT_OUT if architecture(target.triple) == "x86_64" else ()
    with _options:
        try:
            for name in chosen:
                llvm.set_option("", f"-{name}=1")
            yield
        finally:
            for name in chosen:
                llvm.set_option("", f"-{name}=0")


def compile_object(text: str, target: Target) -> bytes:
    """A relocatable object."""
    module = optimise(text, target)
    with _left_out(target):
        return machine(target).emit_object(module)


def compile_assembly(text: str, target: Target) -> str:
    """The same code as assembly text."""
    module = optimise(text, target)
    with _left_out(target):
        return machine(target).emit_assembly(module)
