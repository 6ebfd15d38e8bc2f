"""One host program for all candidates: it launches any kernels, so many times.

In: `Code`, a candidate's machine code with what to launch. Out: seconds of a call. The one idea: a
session of the runtime, with its pool of threads, is opened once, for a program that reads from a
table what to start and how often, so that a candidate costs LLVM no host program and time passes
between two calls as in a model, without Python.
"""

from __future__ import annotations

import ctypes
import hashlib
import io
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from tilewright.backend.backend import backend_of, native_of
from tilewright.codegen.host import ENTRY, LAUNCH, frame_taker
from tilewright.codegen.inprocess import aligned, map_image
from tilewright.codegen.link import CodeImage, link
from tilewright.codegen.llvm import ATTRIBUTES
from tilewright.ir.expr import as_int
from tilewright.ir.stmt import Func
from tilewright.runtime import abi
from tilewright.runtime.artifact import write_artifact
from tilewright.runtime.bindings import error, lib
from tilewright.runtime.module import Module
from tilewright.support.record import record
from tilewright.target.target import Target

SCRATCH = 1 << 20  # bytes for each thread that nearly all kernels can do with
ROW = 3  # words of the table for each launch: who takes the frame apart, the frame, the extent
EMPTY = 20  # calls of no kernel, the shortest of which is what a call costs besides

Array = np.ndarray[Any, Any]

PROGRAM = f"""
define i32 @{ENTRY}(ptr %call) #0 {{
entry:
  %inputs = load ptr, ptr %call, align 8
  %plan = load ptr, ptr %inputs, align 8
  %launch_at = getelementptr i8, ptr %call, i64 {LAUNCH}
  %launch = load ptr, ptr %launch_at, align 8
  %table = load ptr, ptr %plan, align 8
  %rows_at = getelementptr i8, ptr %plan, i64 8
  %rows = load i64, ptr %rows_at, align 8
  %calls_at = getelementptr i8, ptr %plan, i64 16
  %calls = load i64, ptr %calls_at, align 8
  %end = getelementptr i8, ptr %table, i64 %rows
  br label %again
again:
  %n = phi i64 [ 0, %entry ], [ %n_next, %done ]
  %more = icmp slt i64 %n, %calls
  br i1 %more, label %head, label %out
head:
  %row = phi ptr [ %table, %again ], [ %row_next, %run ]
  %some = icmp ult ptr %row, %end
  br i1 %some, label %run, label %done
run:
  %taker = load ptr, ptr %row, align 8
  %frame_at = getelementptr i8, ptr %row, i64 8
  %frame = load ptr, ptr %frame_at, align 8
  %extent_at = getelementptr i8, ptr %row, i64 16
  %extent = load i64, ptr %extent_at, align 8
  call void %launch(ptr %call, i32 0, ptr %taker, ptr %frame, i64 %extent, i32 0)
  %row_next = getelementptr i8, ptr %row, i64 {8 * ROW}
  br label %head
done:
  %n_next = add nsw i64 %n, 1
  br label %again
out:
  ret i32 0
}}
attributes #0 = {{ {ATTRIBUTES} }}
"""


@record
class Step:
    """A launch of a kernel of known sizes: where its code begins, what it is given."""

    offset: int
    extent: int
    buffers: tuple[str, ...]
    scratch_bytes: int


@record
class Code:
    """A candidate, compiled: plain data, which processes can exchange. workspace: bytes of buffers
    between launches, by name."""

    image: CodeImage
    steps: tuple[Step, ...]
    workspace: tuple[tuple[str, int], ...]

    @property
    def digest(self) -> str:
        """The same for what runs the same."""
        told = repr((self.steps, self.workspace)).encode()
        return hashlib.blake2b(self.image.bytes + told, digest_size=16).hexdigest()


def text_of(func: Func, machine: Target) -> Any:
    """What LLVM is given for a scheduled function, with its entries. Raises CompileError where the
    machine runs nothing that a host program calls, or the function asks for what it lacks."""
    native = native_of(machine, f"cannot measure '{func.name}'")
    return native.emit(backend_of(machine).lowered(func, machine), machine)


def code_of(emitted: Any, machine: Target) -> Code:
    """The code of what `text_of` gave."""
    made = native_of(machine).compile_object(emitted.text, machine, verify=False)
    image = link([made], [e.symbol for e in emitted.entries])
    steps = tuple(
        Step(image.entries[e.symbol], as_int(e.extent) or 0, e.buffers, e.scratch_bytes)
        for e in emitted.entries
    )
    sizes = [(b.name, b.dtype.nbytes(as_int(b.shape[0]) or 0)) for b in emitted.workspace]
    return Code(replace(image, entries={}), steps, tuple(sizes))


def taker_image(machine: Target, count: int) -> tuple[CodeImage, int]:
    """Code that calls a kernel of so many buffers with what its frame says, and where it begins."""
    name = f"take{count}"
    text = frame_taker(name, count, 0).replace("define internal", "define")
    text = f'target triple = "{machine.triple}"\n{text}\nattributes #0 = {{ {ATTRIBUTES} }}\n'
    image = link([native_of(machine).compile_object(text, machine)], [name])
    return image, image.entries[name]


class Loaded:
    """Code bound to memory: a table for the launcher. It holds all that the table points to."""

    def __init__(self, code: Code, memory: Mapping[str, Array], takers: Mapping[int, int]) -> None:
        self.mapping, address = map_image(code.image)
        self.memory, self.frames = memory, list[Array]()
        rows: list[int] = []
        for step in code.steps:
            frame = [address + step.offset, *(memory[name].ctypes.data for name in step.buffers)]
            self.frames.append(np.array(frame, np.int64))
            rows += [takers[len(step.buffers)], self.frames[-1].ctypes.data, step.extent]
        self.table = np.array(rows, np.int64)


class Launcher:
    """Runs candidates for one machine on a number of threads: a session of the runtime. Raises
    ArtifactError where this machine cannot run code for that one."""

    def __init__(self, machine: Target, threads: int) -> None:
        self.machine, self.threads = machine, threads
        self._takers: dict[int, int] = {}  # addresses, by the buffers that they pass
        self._kept: list[Any] = []  # mappings of their code
        self._workspace = aligned(0)
        self._plan = np.zeros(3, np.int64)
        self._shape = np.array([3], np.int64)
        of = abi.DTYPE_CODES["i64"]
        self._input = abi.Tensor(self._plan.ctypes.data, self._shape.ctypes.data, 1, of)
        self._session = 0
        self._module: Module | None = None
        self._scratch = SCRATCH
        self._open()
        nothing = np.zeros(0, np.int64)
        self.besides = 0.0
        self.besides = min(self._seconds(nothing, 1) for _ in range(EMPTY))

    def _open(self) -> None:
        """Start a session whose threads have `_scratch` bytes each."""
        self.close()
        native, triple = native_of(self.machine), f'target triple = "{self.machine.triple}"'
        image = link([native.compile_object(triple + PROGRAM, self.machine)], [ENTRY])
        arch = self.machine.triple.split("-")[0]
        features = tuple(sorted(self.machine.features))
        variant = abi.Variant(arch, features, image.bytes, image.entries[ENTRY])
        manifest = abi.Manifest(
            "launcher", (abi.TensorInfo("plan", "i64", (3,)),), (), target=self.machine.triple
        )
        file = io.BytesIO()
        write_artifact(abi.Program(manifest, [variant], scratch_bytes=self._scratch), file)
        self._module = Module(file.getvalue())
        self._session = lib.tw_session_create(self._module.handle, self.threads)
        if not self._session:
            raise error(what=f"cannot run kernels on {self.threads} threads")

    def close(self) -> None:
        """Stop the threads."""
        if self._session:
            lib.tw_session_destroy(self._session)
        self._session, self._module = 0, None

    def load(self, code: Code, memory: Mapping[str, Array]) -> Loaded:
        """Code bound to these buffers, by name, and to the workspace, which all candidates use."""
        most = max((s.scratch_bytes for s in code.steps), default=0)
        if most > self._scratch:
            self._scratch = most
            self._open()
        needed = sum(abi.align(size) for _, size in code.workspace)
        if needed > self._workspace.size:
            self._workspace = aligned(needed)
        spaces, offset = dict(memory), 0
        for name, size in code.workspace:
            spaces[name] = self._workspace[offset : offset + size]
            offset += abi.align(size)
        for step in code.steps:
            self._taker(len(step.buffers))
        return Loaded(code, spaces, self._takers)

    def _taker(self, count: int) -> None:
        """Have code that calls a kernel of so many buffers with what its frame says."""
        if count in self._takers:
            return
        image, offset = taker_image(self.machine, count)
        mapping, address = map_image(image)
        self._kept.append(mapping)
        self._takers[count] = address + offset

    def seconds(self, loaded: Loaded, calls: int = 1) -> float:
        """What one call takes, of so many one after another. Raises the runtime's errors."""
        return max(self._seconds(loaded.table, calls) - self.besides, 1e-9) / calls

    def _seconds(self, table: Array, calls: int) -> float:
        self._plan[:] = table.ctypes.data, table.nbytes, calls
        start = time.perf_counter()
        status = lib.tw_run(self._session, ctypes.byref(self._input), None)
        taken = time.perf_counter() - start
        if status:
            raise error(status, "cannot run a candidate")
        return taken
