"""LLVM's functions as several threads call them: without llvmlite's lock.

llvmlite lets one thread at a time into LLVM, because modules that share a context must not be used
at once. Modules here have a context each, and each thread a code generator, as LLVM asks for; then
it does run in several threads. The functions are those of llvmlite's library, with the prototypes
that llvmlite gives them. LLVM's options belong to the process and are set under a lock of ours.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

from llvmlite.binding import ffi

_name: str = ffi.lib._name  # pyright: ignore[reportPrivateUsage]
_long = ctypes.CDLL(_name)  # lets other threads have the interpreter meanwhile
_short = ctypes.PyDLL(_name)  # keeps it: getting it back would take longer than the call


def _function(name: str, library: ctypes.CDLL = _short) -> Any:
    known: Any = getattr(ffi.lib, name)
    own = getattr(library, name)
    own.argtypes, own.restype = known.argtypes, known.restype
    return own


_parse = _function("LLVMPY_ParseAssembly", _long)
_verify = _function("LLVMPY_VerifyModule", _long)
_run = _function("LLVMPY_RunNewModulePassManager", _long)
_emit = _function("LLVMPY_TargetMachineEmitToMemory", _long)
_dispose_module = _function("LLVMPY_DisposeModule", _long)
_create_context = _function("LLVMPY_ContextCreate")
_dispose_context = _function("LLVMPY_ContextDispose")
_buffer_start = _function("LLVMPY_GetBufferStart")
_buffer_size = _function("LLVMPY_GetBufferSize")
_dispose_buffer = _function("LLVMPY_DisposeMemoryBuffer")
_dispose_string = _function("LLVMPY_DisposeString")
_set_option = _function("LLVMPY_SetCommandLine")


@contextmanager
def _told() -> Generator[ctypes.c_char_p]:
    """Where LLVM leaves a message, for the block that reads it."""
    message = ctypes.c_char_p(None)
    try:
        yield message
    finally:
        if message:
            _dispose_string(message)


def _text(message: ctypes.c_char_p) -> str:
    return (message.value or b"").decode(errors="replace")


def translated(text: str, machine: Any, passes: Any, builder: Any, is_object: bool) -> bytes:
    """The object code of a module (or its assembly) after `passes`. machine, passes, builder:
    llvmlite's, of the calling thread alone. Raises RuntimeError if the text is no module."""
    context = _create_context()
    try:
        with _told() as message:
            module = _parse(context, text.encode(), ctypes.byref(message))
            if not module:
                raise RuntimeError(f"LLVM IR parsing error\n{_text(message)}")
        try:
            with _told() as message:
                if _verify(module, ctypes.byref(message)):
                    raise RuntimeError(_text(message))
            _run(passes, module, builder)
            with _told() as message:
                buffer = _emit(machine, module, int(is_object), ctypes.byref(message))
                if not buffer:
                    raise RuntimeError(_text(message))
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
