"""The native library as Python functions: found beside its C sources, loaded once, typed.

In: nothing. Out: `lib`, whose functions are those of `tilewright.h`, and `error`, the last failure
as an exception of the right class.
"""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

import numpy as np

from tilewright.runtime import abi
from tilewright.support.errors import ArtifactError, InputError, MemoryFault, TilewrightError
from tilewright.support.memory import REMEDY, memory_limit

NATIVE = Path(__file__).parent / "native"
SUFFIX = {"darwin": ".dylib", "win32": ".dll"}.get(sys.platform, ".so")

_P, _I, _L = ctypes.c_void_p, ctypes.c_int32, ctypes.c_size_t
_SIGNATURES = {
    "tw_abi_version": (_I, []),
    "tw_cpu_has": (_I, [ctypes.c_char_p]),
    "tw_default_threads": (_I, []),
    "tw_error": (ctypes.c_char_p, []),
    "tw_error_status": (_I, []),
    "tw_input_count": (_I, [_P]),
    "tw_input_info": (ctypes.POINTER(abi.Info), [_P, _I]),
    "tw_kernel_count": (_I, [_P]),
    "tw_output_count": (_I, [_P]),
    "tw_output_info": (ctypes.POINTER(abi.Info), [_P, _I]),
    "tw_hash_feed": (None, [_P, _P, _L]),
    "tw_hash_finish": (ctypes.c_uint64, [_P]),
    "tw_limit_memory": (None, [_L]),
    "tw_module_bytes": (_P, [_P, _P]),
    "tw_module_close": (None, [_P]),
    "tw_module_manifest": (_P, [_P, _P]),
    "tw_module_open": (_P, [ctypes.c_char_p]),
    "tw_module_open_memory": (_P, [_P, _L]),
    "tw_module_variant": (_I, [_P]),
    "tw_output_shapes": (_I, [_P, _P, _P]),
    "tw_probe_machine": (_I, [_P, _P, _P]),
    "tw_profile": (_I, [_P, _I]),
    "tw_profile_read": (_I, [_P, _P, _P]),
    "tw_result": (_I, [_P, _I, _P]),
    "tw_run": (_I, [_P, _P, _P]),
    "tw_session_arena_bytes": (ctypes.c_int64, [_P]),
    "tw_session_create": (_P, [_P, _I]),
    "tw_session_destroy": (None, [_P]),
    "tw_session_threads": (_I, [_P]),
    "tw_symbol_value": (ctypes.c_int64, [_P, _I]),
}


def _load() -> ctypes.CDLL:
    path = NATIVE / f"libtilewright{SUFFIX}"
    if not path.exists():
        raise TilewrightError(
            f"the native runtime is not built: {path} is missing; install the package, or run "
            "build_backend/tilewright_build.py in its source tree"
        )
    library = ctypes.CDLL(str(path))
    for name, (result, arguments) in _SIGNATURES.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    if library.tw_abi_version() != abi.ABI_VERSION:
        raise TilewrightError(
            f"the native runtime {path} has ABI {library.tw_abi_version()}, this package needs "
            f"{abi.ABI_VERSION}: install the package again"
        )
    library.tw_limit_memory(memory_limit())
    return library


lib = _load()

OUT_OF_MEMORY = 3  # of tw_status
_FAILURES = {
    1: (
        ArtifactError,
        "cannot load the artifact",
        "name a whole file that `tilewright compile` or save() of this version wrote",
    ),
    2: (
        ArtifactError,
        "cannot run the artifact here",
        "compile the model on this machine, or for it (--target)",
    ),
    4: (InputError, "cannot run the model on these tensors", ""),
}


def error(status: int = 0, what: str = "cannot run the model", file: str = "") -> TilewrightError:
    """The exception for a `tw_status` (0: that of the last failure), with the native library's
    text; `what` was asked for, if memory is missing; `file`: what was read."""
    status = status or lib.tw_error_status()
    text = lib.tw_error().decode("utf-8", "replace")
    if status == OUT_OF_MEMORY:
        return MemoryFault(what, text, remedy=REMEDY)
    if file and file not in text:
        text = f"'{file}': {text}"
    kind, what, remedy = _FAILURES.get(status, (None, "", ""))
    return kind(what, text, remedy=remedy) if kind else TilewrightError(text)


def hash_bytes(*parts: object) -> int:
    """The 64-bit hash of the concatenation of `parts` (anything with a contiguous buffer)."""
    state = abi.Hash()
    for part in parts:
        feed_hash(state, part)
    return lib.tw_hash_finish(ctypes.byref(state))


def feed_hash(state: abi.Hash, part: object) -> None:
    """Feed the bytes of `part` into a running hash."""
    if isinstance(part, bytes):
        lib.tw_hash_feed(ctypes.byref(state), part, len(part))
        return
    view = np.frombuffer(part, dtype=np.uint8)  # type: ignore[call-overload]
    lib.tw_hash_feed(ctypes.byref(state), view.ctypes.data, view.nbytes)
