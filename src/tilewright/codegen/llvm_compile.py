"""LLVM text → object code or assembly, through the library of llvmlite.

The pass list was chosen by measurement: the emitter already hoists, unrolls, vectorises and reuses,
so what remains is to bring local buffers into registers and to tidy up. The code generator's own
passes are fixed but for those that an option leaves out (docs/decisions/030).
"""

from __future__ import annotations

import ctypes
import functools
import re
import threading

from tilewright.codegen.llvm_library import options, translated
from tilewright.support import llvm
from tilewright.support.errors import InternalFault
from tilewright.support.memory import room
from tilewright.target.processors import architecture
from tilewright.target.target import Target

LEAST_ROOM = 32 << 20  # bytes that LLVM may need for any text, with its targets,
ROOM_PER_BYTE = 256  # and for each byte of it
LEFT_OUT = {  # where that was measured
    "x86_64": (
        "disable-lsr",  # a fifth of LLVM's time for addresses that are as good without
        "disable-post-ra",  # AMD: a twelfth for an order that processors find themselves
        # a fifteenth for three that find nothing to do in what the emitter writes
        "disable-select-optimize",
        "disable-constant-hoisting",
        "disable-postra-machine-licm",
        "disable-copyprop",  # a fiftieth for copies that processors rename
    ),
    # its addresses lie at odd distances, over which the assembler joins no loads of shared memory
    "nvptx64": ("disable-lsr",),
}
PASSES = ("AlwaysInliner", "SROA", "InstCombine", "SimplifyCFG")
_starting = threading.Lock()


@functools.lru_cache(maxsize=1)
def _initialize() -> None:
    for part in ("TargetInfos", "Targets", "TargetMCs", "AsmPrinters"):
        llvm.function(f"LLVMPY_InitializeAll{part}")()


def machine(target: Target, level: int = 3) -> llvm.Owned:
    """LLVM's code generator for a target, at a level of optimisation from 0 to 3: not for several
    threads at once."""
    with _starting:
        _initialize()
    with llvm.told() as fault:
        found = llvm.function("LLVMPY_GetTargetFromTriple")(
            target.triple.encode(), ctypes.byref(fault)
        )
        if not found:
            raise RuntimeError(llvm.words(fault))
    asked = (target.triple, target.cpu, target.llvm_features)
    made = llvm.function("LLVMPY_CreateTargetMachine")(
        found, *map(str.encode, asked), level, b"pic", b"small", False, False, b""
    )
    if not made:
        raise RuntimeError(f"LLVM makes no code for {asked}")
    return llvm.Owned(made, "LLVMPY_DisposeTargetMachine")


def _generator(target: Target, quick: bool) -> tuple[llvm.Owned, ...]:
    return machine(target, 0 if quick else 3), _passes(quick)


def _builder(machine: llvm.Owned) -> llvm.Owned:
    """What passes are run with, once: each run leaves it callbacks that its end makes invalid."""
    tuning = llvm.Owned(
        llvm.function("LLVMPY_CreatePipelineTuningOptions")(),
        "LLVMPY_DisposePipelineTuningOptions",
    )
    return llvm.Owned(
        llvm.function("LLVMPY_CreatePassBuilder")(machine, tuning), "LLVMPY_DisposePassBuilder"
    )


def _passes(quick: bool) -> llvm.Owned:
    """The passes before the code generator's."""
    passes = llvm.Owned(
        llvm.function("LLVMPY_CreateNewModulePassManager")(), "LLVMPY_DisposeNewModulePassManger"
    )
    for name in () if quick else PASSES:
        llvm.function(f"LLVMPY_module_Add{name}Pass")(passes)
    return passes


class _Own(threading.local):
    """What each thread has: for a target the code generator, and the passes before it."""

    def __init__(self) -> None:
        self.generator = functools.lru_cache(maxsize=16)(_generator)


_own = _Own()


def _compiled(
    text: str, target: Target, *, quick: bool = False, is_object: bool = True, verify: bool = True
) -> bytes:
    room(LEAST_ROOM + ROOM_PER_BYTE * len(text), "LLVM")  # it ends the process when it has none
    chosen = LEFT_OUT.get(architecture(target.triple) or target.triple.split("-")[0], ())
    try:
        with options(chosen):
            made, passes = _own.generator(target, quick)
            run_with = made, passes, _builder(made)
            return translated(text, *run_with, is_object=is_object, verify=verify)
    except RuntimeError as fault:
        raise InternalFault(
            f"LLVM refused the text it was given: {_excerpt(text, fault)}"
        ) from fault


def _excerpt(text: str, fault: RuntimeError) -> str:
    """The fault, and the lines of the text around it."""
    found = re.search(r":(\d+):\d+: error", str(fault))
    at = int(found[1]) if found else 0
    return f"{fault}\n" + "\n".join(text.splitlines()[max(0, at - 8) : at + 2])


def compile_object(text: str, target: Target, quick: bool = False, *, verify: bool = True) -> bytes:
    """A relocatable object. Several threads may compile at once. quick: as it is written, in an
    eighth of the time, for code that runs seldom. verify: see that the text is a program, which
    takes a fiftieth of the time; without, LLVM believes what it could read."""
    return _compiled(text, target, quick=quick, verify=verify)


def compile_assembly(text: str, target: Target) -> str:
    """The same code as assembly text."""
    return _compiled(text, target, is_object=False).decode()
