"""LLVM's functions as llvmlite declares them, found without llvmlite's modules."""

from __future__ import annotations

import ctypes
import gc
import subprocess
import sys
from typing import Any

import llvmlite
import llvmlite.binding
import pytest

from tilewright.support import llvm


def is_pointer(kind: Any) -> bool:
    pointers = (ctypes.c_void_p, ctypes.c_char_p)
    return kind in pointers or hasattr(kind, "contents")


def like(kind: Any) -> Any:
    """A type as far as a caller has to know it."""
    if kind is None:
        return None
    return "pointer" if is_pointer(kind) else (ctypes.sizeof(kind), kind)


@pytest.mark.parametrize("name", llvm.PROTOTYPES)
def test_prototypes_are_those_of_llvmlite(name: str) -> None:
    """This release is one that was compared: what is written down is what it declares."""
    assert llvmlite.__version__.startswith(llvm.COMPARED)
    result, takes = llvm.PROTOTYPES[name]
    known_result, known = llvm.declared(name)
    if known_result is not ctypes.c_int or result is not None:  # what nobody declared counts as int
        assert like(result) == like(known_result)
    if known is not None:
        assert list(map(like, takes)) == list(map(like, known))


def test_another_release_has_what_llvmlite_declares() -> None:
    code = """
import llvmlite
llvmlite.__version__ = "9.9.9"
from tilewright.support import llvm
import sys
assert llvm.says("LLVMPY_GetHostCPUName") and "llvmlite.binding" in sys.modules
import numpy as np, tilewright as tw
from tilewright import te
x = te.placeholder((4,), "f32", name="x")
y = te.compute((4,), lambda i: x[i] * 2.0, name="y")
run = tw.build(te.func("twice", [x], [y]))
made = run(np.arange(4, dtype=np.float32))
assert np.ravel(made).tolist() == [0, 2, 4, 6], made
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_what_llvm_made_is_disposed_of_once(monkeypatch: pytest.MonkeyPatch) -> None:
    gone: list[Any] = []
    monkeypatch.setattr(llvm, "function", lambda name: gone.append)
    made = llvm.Owned(7, "LLVMPY_DisposeModule")
    assert not gone
    del made
    gc.collect()
    assert gone == [7]


def test_a_text_of_llvms_is_read() -> None:
    assert llvm.says("LLVMPY_GetHostCPUName") == llvmlite.binding.get_host_cpu_name()
    assert llvm.says("LLVMPY_GetDefaultTargetTriple") == llvmlite.binding.get_default_triple()
