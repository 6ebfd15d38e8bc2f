"""LLVM as several threads call it.

llvmlite lets one thread at a time into LLVM, because modules that share a context must not be used
at once. Modules here have a context each, and each thread a code generator, as LLVM asks for; then
it does run in several threads. LLVM's options belong to the process and are set under a lock of
ours.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

from tilewright.support.llvm import function, told, words

# these let other threads have the interpreter meanwhile
_parse = function("LLVMPY_ParseAssembly", lets_others=True)
_verify = function("LLVMPY_VerifyModule", lets_others=True)
_run = function("LLVMPY_RunNewModulePassManager", lets_others=True)
_emit = function("LLVMPY_TargetMachineEmitToMemory", lets_others=True)
_dispose_module = function("LLVMPY_DisposeModule", lets_others=True)
# and these are short
_create_context = function("LLVMPY_ContextCreate")
_dispose_context = function("LLVMPY_ContextDispose")
_buffer_start = function("LLVMPY_GetBufferStart")
_buffer_size = function("LLVMPY_GetBufferSize")
_dispose_buffer = function("LLVMPY_DisposeMemoryBuffer")
_set_option = function("LLVMPY_SetCommandLine")


def translated(
    text: str, machine: Any, passes: Any, builder: Any, *, is_object: bool, verify: bool
) -> bytes:
    """The object code of a module (or its assembly) after `passes`. machine, passes, builder:
    of the calling thread alone. Raises RuntimeError if the text is no module; of values that are
    used where they are not known only `verify` tells."""
    context = _create_context()
    try:
        with told() as message:
            module = _parse(context, text.encode(), ctypes.byref(message))
            if not module:
                raise RuntimeError(f"LLVM IR parsing error\n{words(message)}")
        try:
            if verify:
                with told() as message:
                    if _verify(module, ctypes.byref(message)):
                        raise RuntimeError(words(message))
            _run(passes, module, builder)
            with told() as message:
                buffer = _emit(machine, module, int(is_object), ctypes.byref(message))
                if not buffer:
                    raise RuntimeError(words(message))
        finally:
            _dispose_module(module)
    finally:
        _dispose_context(context)
    try:
        return ctypes.string_at(_buffer_start(buffer), _buffer_size(buffer))
    finally:
        _dispose_buffer(buffer)


_options = threading.Condition()
_on: tuple[str, ...] = ()
_users = 0


@contextmanager
def options(names: Sequence[str]) -> Generator[None]:
    """Code that is generated inside is so under these options of LLVM (those of a switch: "x" for
    "-x"). Threads that ask for the same ones are inside together; others wait, and whoever uses
    llvmlite finds the options off."""
    global _on, _users
    asked = tuple(names)
    with _options:
        _options.wait_for(lambda: not _users or _on == asked)
        if not _users:
            _on = asked
            _switch(asked, 1)
        _users += 1
    try:
        yield
    finally:
        with _options:
            _users -= 1
            if not _users:
                _switch(asked, 0)
                _options.notify_all()


def _switch(names: Sequence[str], on: int) -> None:
    for name in names:
        _set_option(b"", f"-{name}={on}".encode())
