"""LLVM's functions, out of the library that the package llvmlite ships.

In: a function's name. Out: the function, with its prototype. llvmlite's own modules are not
imported: that takes 20 ms, most of it for what builds and runs code, which nobody here uses, and
its functions let one thread at a time into LLVM. What the functions take is written down here for
the releases that it was compared with; under any other one llvmlite's declarations are read.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import importlib.util
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

COMPARED = ("0.50.",)  # releases of llvmlite that declare what PROTOTYPES says

_P, _TEXT, _INT = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int
_OUT = ctypes.POINTER(ctypes.c_char_p)  # where a text is put, which LLVMPY_DisposeString frees
PROTOTYPES: dict[str, tuple[Any, tuple[Any, ...]]] = {  # by name: the result, what it takes
    "LLVMPY_ContextCreate": (_P, ()),
    "LLVMPY_ContextDispose": (None, (_P,)),
    "LLVMPY_CreateNewModulePassManager": (_P, ()),
    "LLVMPY_CreatePassBuilder": (_P, (_P, _P)),
    "LLVMPY_CreatePipelineTuningOptions": (_P, ()),
    # target, triple, processor, features, level, relocation, code model, print, for a JIT, ABI
    "LLVMPY_CreateTargetMachine": (
        _P,
        (_P, _TEXT, _TEXT, _TEXT, _INT, _TEXT, _TEXT, _INT, _INT, _TEXT),
    ),
    "LLVMPY_DisposeMemoryBuffer": (None, (_P,)),
    "LLVMPY_DisposeModule": (None, (_P,)),
    "LLVMPY_DisposeNewModulePassManger": (None, (_P,)),  # as it is spelt
    "LLVMPY_DisposePassBuilder": (None, (_P,)),
    "LLVMPY_DisposePipelineTuningOptions": (None, (_P,)),
    "LLVMPY_DisposeString": (None, (_TEXT,)),
    "LLVMPY_DisposeTargetMachine": (None, (_P,)),
    "LLVMPY_GetBufferSize": (ctypes.c_size_t, (_P,)),
    "LLVMPY_GetBufferStart": (_P, (_P,)),
    "LLVMPY_GetDefaultTargetTriple": (None, (_OUT,)),
    "LLVMPY_GetHostCPUFeatures": (_INT, (_OUT,)),
    "LLVMPY_GetHostCPUName": (None, (_OUT,)),
    "LLVMPY_GetTargetFromTriple": (_P, (_TEXT, _OUT)),
    "LLVMPY_InitializeAllAsmPrinters": (None, ()),
    "LLVMPY_InitializeAllTargetInfos": (None, ()),
    "LLVMPY_InitializeAllTargetMCs": (None, ()),
    "LLVMPY_InitializeAllTargets": (None, ()),
    "LLVMPY_ParseAssembly": (_P, (_P, _TEXT, _OUT)),
    "LLVMPY_RunNewModulePassManager": (None, (_P, _P, _P)),
    "LLVMPY_SetCommandLine": (None, (_TEXT, _TEXT)),
    "LLVMPY_TargetMachineEmitToMemory": (_P, (_P, _P, _INT, _OUT)),
    "LLVMPY_VerifyModule": (ctypes.c_bool, (_P, _OUT)),
    "LLVMPY_module_AddAlwaysInlinerPass": (None, (_P,)),
    "LLVMPY_module_AddInstCombinePass": (None, (_P,)),
    "LLVMPY_module_AddSROAPass": (None, (_P,)),
    "LLVMPY_module_AddSimplifyCFGPass": (None, (_P,)),
}


@functools.cache
def function(name: str, *, lets_others: bool = False) -> Any:
    """A function of LLVM's. lets_others: other threads have the interpreter while it runs; getting
    it back takes longer than a short call."""
    own = getattr(_library(lets_others), name)
    own.restype, own.argtypes = prototype(name)
    return own


def prototype(name: str) -> tuple[Any, Any]:
    """What a function gives and takes."""
    if _is_compared():
        return PROTOTYPES[name]
    return declared(name)


def declared(name: str) -> tuple[Any, Any]:
    """What llvmlite declares that a function gives and takes."""
    known = getattr(importlib.import_module("llvmlite.binding").ffi.lib, name)
    return known.restype, known.argtypes


@functools.lru_cache(maxsize=1)
def _is_compared() -> bool:
    return importlib.import_module("llvmlite").__version__.startswith(COMPARED)


@functools.lru_cache(maxsize=2)
def _library(lets_others: bool) -> ctypes.CDLL:
    return ctypes.CDLL(_path()) if lets_others else ctypes.PyDLL(_path())


def _path() -> str:
    found = importlib.util.find_spec("llvmlite")
    if found is None or not found.submodule_search_locations:
        raise ModuleNotFoundError("No module named 'llvmlite'", name="llvmlite")
    names = {"win32": "llvmlite.dll", "darwin": "libllvmlite.dylib"}
    folder = found.submodule_search_locations[0]
    return os.path.join(folder, "binding", names.get(sys.platform, "libllvmlite.so"))


def release() -> str:
    """What tells this LLVM from others, without loading it: llvmlite's release, and how long the
    library is."""
    version = importlib.import_module("llvmlite").__version__
    return f"{version} {os.stat(_path()).st_size}"


@contextmanager
def told() -> Generator[ctypes.c_char_p]:
    """Where LLVM leaves a text, for the block that reads it."""
    text = ctypes.c_char_p(None)
    try:
        yield text
    finally:
        if text:
            function("LLVMPY_DisposeString")(text)


def words(text: ctypes.c_char_p) -> str:
    """What LLVM left."""
    return (text.value or b"").decode(errors="replace")


def says(name: str) -> str:
    """The text that a function gives which takes nothing else."""
    with told() as text:
        function(name)(ctypes.byref(text))
        return words(text)


class Owned:
    """What LLVM made, disposed of with this object. A function takes it as the pointer."""

    def __init__(self, pointer: Any, dispose: str) -> None:
        self._as_parameter_ = pointer
        self._dispose = function(dispose)

    def __del__(self) -> None:
        self._dispose(self._as_parameter_)
