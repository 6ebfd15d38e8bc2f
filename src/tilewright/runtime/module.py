"""An open artifact: the native module, the memory beneath it, what it says of itself.

In: a path, or the bytes of an artifact. Out: a `Module`, which any number of sessions run at once;
it is closed when nobody holds it. Nothing in it ever changes: bytes that somebody else could write
to are copied first.
"""

from __future__ import annotations

import ctypes
import os
import weakref
from typing import Any

import numpy as np

from tilewright.runtime import abi
from tilewright.runtime.artifact import parse_manifest
from tilewright.runtime.bindings import error, lib
from tilewright.support.errors import ArtifactError, UserFault
from tilewright.support.memory import memory_told

Array = np.ndarray[Any, Any]
Source = str | os.PathLike[str] | bytes | bytearray | memoryview | Array


class Module:
    """A loaded artifact. Raises ArtifactError if it is damaged or not for this machine."""

    def __init__(self, source: Source) -> None:
        if isinstance(source, str | os.PathLike):
            handle = lib.tw_module_open(os.fsencode(source))
        else:
            with memory_told("cannot load the artifact"):
                self.memory = unchanging(source)  # the module reads it while it lives
            handle = lib.tw_module_open_memory(self.memory.ctypes.data, self.memory.nbytes)
        if not handle:
            file = os.fsdecode(source) if isinstance(source, str | os.PathLike) else ""
            raise error(what="cannot load the artifact", file=file)
        weakref.finalize(self, lib.tw_module_close, handle).atexit = False
        self.handle: int = handle
        self.manifest = parse_manifest(self._bytes_of(lib.tw_module_manifest))
        self._check_manifest()

    def artifact(self) -> memoryview:
        """The bytes of the artifact; read-only."""
        return self._bytes_of(lib.tw_module_bytes)

    def _check_manifest(self) -> None:
        """The manifest must list the tensors and kernels that the loader found in its tables."""
        for tensors, count, info in (
            (self.manifest.inputs, lib.tw_input_count, lib.tw_input_info),
            (self.manifest.outputs, lib.tw_output_count, lib.tw_output_info),
        ):
            found = [info(self.handle, i).contents for i in range(count(self.handle))]
            said = [(abi.DTYPE_CODES[t.dtype], len(t.shape)) for t in tensors]
            if said != [(t.dtype, t.rank) for t in found]:
                raise ArtifactError("cannot load the artifact", "its manifest lists other tensors")
        if len(self.manifest.kernels) != lib.tw_kernel_count(self.handle):
            raise ArtifactError("cannot load the artifact", "its manifest lists other kernels")

    def _bytes_of(self, question: Any) -> memoryview:
        """Memory of the module that a C function points to."""
        size = ctypes.c_size_t()
        address = question(self.handle, ctypes.byref(size))
        block: Any = (ctypes.c_uint8 * size.value).from_address(address)
        block.owner = self  # views keep the module open
        return memoryview(block).cast("B").toreadonly()


def unchanging(source: Any) -> Array:
    """The bytes of a buffer; a copy if it is one that can be written to. Raises ArtifactError for
    what is no buffer."""
    try:
        view = np.frombuffer(source, np.uint8)
    except (TypeError, ValueError, BufferError):
        raise ArtifactError(
            "cannot load the artifact",
            f"a {type(source).__qualname__} is neither a path nor bytes",
            remedy='give a path, as in tw.load("model.tw"), its bytes or an open file',
        ) from None
    return view.copy() if view.flags.writeable else view


def contents(source: Any, what: str, fault: type[UserFault]) -> Any:
    """The bytes that an open file still has, else the source. Raises `fault` of `what` for a file
    that is open as text."""
    if not (hasattr(source, "read") and hasattr(source, "readable")):
        return source
    found = source.read()
    if isinstance(found, str):
        raise fault(what, "the file is open as text", remedy="open it for bytes: open(path, 'rb')")
    return found
