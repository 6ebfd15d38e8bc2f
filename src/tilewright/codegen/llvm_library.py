"""LLVM as several threads call it.

llvmlite lets one thread at a time into LLVM, because modules that share a context must not be used
at once. Modules here have a context each, and each thread a code generator, as LLVM asks for; then
it does run in several threads: what takes long lets others have the interpreter. LLVM's options
belong to the process and are set under a lock of ours. The library is loaded by the first call.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

from tilewright.support.llvm import function, told, words


def translated(
    text: str, machine: Any, passes: Any, builder: Any, *, is_object: bool, verify: bool
) -> bytes:
    """The object code of a module (or its assembly) after `passes`. machine, passes, builder:
    of the calling thread alone. Raises RuntimeError if the text is no module; of values that are
    used where they are not known only `verify` tells."""
    context = function("LLVMPY_ContextCreate")()
    try:
        with told() as message:
            parse = function("LLVMPY_ParseAssembly", lets_others=True)
            module = parse(context, text.encode(), ctypes.byref(message))
            if not module:
                raise RuntimeError(f"LLVM IR parsing error\n{words(message)}")
        try:
            if verify:
                with told() as message:
                    refuses = function("LLVMPY_VerifyModule", lets_others=True)
                    if refuses(module, ctypes.byref(message)):
                        raise RuntimeError(words(message))
            function("LLVMPY_RunNewModulePassManager", lets_others=True)(passes, module, builder)
            with told() as message:
                emit = function("LLVMPY_TargetMachineEmitToMemory", lets_others=True)
                buffer = emit(machine, module, int(is_object), ctypes.byref(message))
                if not buffer:
                    raise RuntimeError(words(message))
        finally:
            function("LLVMPY_DisposeModule", lets_others=True)(module)
    finally:
        function("LLVMPY_ContextDispose")(context)
    try:
        start = function("LLVMPY_GetBufferStart")(buffer)
        return ctypes.string_at(start, function("LLVMPY_GetBufferSize")(buffer))
    finally:
        function("LLVMPY_DisposeMemoryBuffer")(buffer)


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
        function("LLVMPY_SetCommandLine")(b"", f"-{name}={on}".encode())
