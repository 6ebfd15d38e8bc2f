"""Running artifacts: `load` opens one, an `Executable` is called like a function.

In: arrays (NumPy, or anything with DLPack) in the model's order or by name. Out: a list of arrays
of the same kind. The native session does the work; this file finds addresses and words refusals.
What the last call showed (shapes, hence outputs) is kept, so a call costs a few microseconds.
"""

from __future__ import annotations

import ctypes
import math
import os
import re
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.runtime import abi
from tilewright.runtime.artifact import is_data_dependent
from tilewright.runtime.bindings import error, lib
from tilewright.runtime.formats import SHAPE, decode_all, encode
from tilewright.runtime.literals import input_array
from tilewright.runtime.module import Array, Module, Source, contents
from tilewright.runtime.named_outputs import named_outputs
from tilewright.runtime.profile import Profile, Roofline, tabulate
from tilewright.runtime.saving import save
from tilewright.runtime.signing import verified
from tilewright.runtime.tensor import (
    PACKED_BITS,
    WORDS,
    Table,
    address_of,
    from_numpy,
    numpy_dtype,
    pack,
    to_numpy,
    unpack,
)
from tilewright.runtime.threads import thread_count
from tilewright.support.errors import (
    ONE_MAY_BE_1,
    ArtifactError,
    BroadcastFault,
    InputError,
    MemoryFault,
)
from tilewright.support.logs import DEBUG, log
from tilewright.support.memory import exhausted, memory_told

_INPUT, _PROGRAM = 4, 6  # of tw_status
_DENSE = 0x101  # of NumPy's array flags: C-contiguous, aligned to elements
Shapes = tuple[tuple[int, ...], ...]  # of each input


def load(source: Source, threads: int | None = None, *, verify: Any = None) -> Executable:
    """Open an artifact. It is native code: load only what you would also run.

    Args:
        source: a path, the artifact's bytes, or a file open for them.
        threads: how many work on one call; None: TILEWRIGHT_THREADS, else every core.
        verify: a public key (Ed25519; the path of a PEM file, its content, or a key of the
            cryptography package). Only what was signed with its private key and not changed since
            is loaded, from memory that nobody else can write to.

    Raises:
        ArtifactError: it is damaged, not for this machine, or not signed so.
        InputError: `threads` is no number of threads.
    """
    source = contents(source, "cannot load the artifact", ArtifactError)
    made = Executable(source if verify is None else verified(source, verify), threads)
    told = made.name, made.variant, made.threads
    log(DEBUG, "runtime", "loaded '%s', variant %d, threads=%d", *told)
    return made


class Executable:
    """A loaded model.

    Calls from several threads take turns; a clone (`clone`, `copy.copy`) shares code and weights
    and runs side by side, and a `Pool` has several. A pickle holds the whole artifact: native code,
    so unpickle only what you would also run. A forked child may call what it inherited, whatever
    the parent's threads did.
    """

    def __init__(self, source: Source, threads: int | None = None) -> None:
        count = thread_count(threads)
        self._module = Module(source)
        self._expected = [
            None if t.dtype in PACKED_BITS else numpy_dtype(t.dtype) for t in self.inputs
        ]
        self._packs_outputs = any(t.dtype in PACKED_BITS for t in self.outputs)
        self._formats = [t.format for t in self.outputs]
        self._has_formats = any(self._formats)
        tensors = enumerate(self.outputs)
        self._data_dependent = [i for i, t in tensors if is_data_dependent(t, self.manifest)]
        self._sizes_of = {
            i: ctypes.c_int64 * len(self.outputs[i].shape) for i in self._data_dependent
        }
        self.compile_stages: Any = None  # what compiling took, if this process compiled it
        self.code_for: Callable[[Shapes], Executable | None] | None = None  # these alone; if it can
        self._forget()
        self._open_session(count)
        _living.add(self)

    def _open_session(self, threads: int) -> None:
        """Arena and threads of one's own."""
        session = lib.tw_session_create(self._module.handle, threads)
        if not session:
            raise error(what=f"cannot run '{self.name}'")
        self._session: int = session
        self._close = weakref.finalize(self, lib.tw_session_destroy, session)
        self._close.atexit = False  # a daemon thread may still be in a call
        self._inherited = False

    def _forget(self) -> None:
        """The state before the first call."""
        self._lock = threading.Lock()
        self._inputs = Table(self.manifest.inputs)
        self._outputs = Table(self.manifest.outputs)
        # Of each output: the array's shape (nothing while the session holds it) and dtype.
        self._results: list[tuple[tuple[int, ...], np.dtype[Any]]] = []
        self._held = abi.Tensor()
        self._held_at = ctypes.addressof(self._held)
        self._stale = True  # those do not follow from the inputs' shapes yet

    # ---- Copies -----------------------------------------------------------------------------

    def clone(self, threads: int | None = None) -> Executable:
        """An executable of the same code and weights, with an arena and threads of its own, so that
        calls of the two run side by side.

        Args:
            threads: how many; None: as many as this one has.

        Raises:
            InputError: `threads` is no number of threads.
        """
        cloned = object.__new__(type(self))
        cloned.__dict__.update(self.__dict__)
        cloned._forget()
        cloned._open_session(self.threads if threads is None else thread_count(threads))
        _living.add(cloned)
        return cloned

    def __copy__(self) -> Executable:
        return self.clone()

    def __deepcopy__(self, memo: dict[int, Any]) -> Executable:
        return self.clone()

    def __reduce__(self) -> tuple[Any, ...]:
        with memory_told(f"cannot pickle '{self.name}'"):
            return load, (bytes(self.artifact()), self.threads)

    def _enter_child(self) -> None:
        """After a fork, in the child: the parent's other threads are gone, in whatever they were.
        A session that one of them was using stays as it is; the next call opens another."""
        if self._lock.locked():
            self._close.detach()
        self._forget()
        self._inherited = True

    def _own_session(self) -> int:
        """The session, which is not the parent's."""
        if self._inherited:
            close = self._close
            self._open_session(self.threads)
            close()
        return self._session

    # ---- What it is -------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The model's name."""
        return self.manifest.name

    @property
    def manifest(self) -> abi.Manifest:
        """What the artifact says about itself."""
        return self._module.manifest

    @property
    def inputs(self) -> tuple[abi.TensorInfo, ...]:
        """Name, dtype and shape of each input."""
        return self.manifest.inputs

    @property
    def outputs(self) -> tuple[abi.TensorInfo, ...]:
        """Name, dtype and shape of each output."""
        return self.manifest.outputs

    @property
    def input_names(self) -> list[str]:
        """The names of the inputs in the order of a call's arguments."""
        return [t.name for t in self.inputs]

    @property
    def output_names(self) -> list[str]:
        """The names of a call's results, in their order."""
        return [t.name for t in self.outputs if t.format != SHAPE]

    @property
    def metadata(self) -> dict[str, str]:
        """What the model's file said of it besides (ONNX: `metadata_props`)."""
        return dict(self.manifest.notes.get("metadata", {}))

    @property
    def threads(self) -> int:
        """How many threads work on one call."""
        return lib.tw_session_threads(self._session)

    @property
    def arena_bytes(self) -> int:
        """The size of the arena for intermediate values, at present."""
        return lib.tw_session_arena_bytes(self._session)

    @property
    def variant(self) -> int:
        """Which of the artifact's code variants runs on this machine."""
        return lib.tw_module_variant(self._module.handle)

    def artifact(self) -> memoryview:
        """The bytes of the artifact; read-only."""
        return self._module.artifact()

    def __repr__(self) -> str:
        inputs, outputs = ", ".join(map(str, self.inputs)), ", ".join(map(str, self.outputs))
        threads = f"{self.threads} thread{'s' * (self.threads > 1)}"
        return f"<Executable {self.name}({inputs}) -> ({outputs}), {threads}>"

    def _repr_html_(self) -> str:
        from tilewright.runtime.representation import executable_html

        return executable_html(self.manifest, self.artifact().nbytes, self.threads)

    # ---- Running ----------------------------------------------------------------------------

    def __call__(self, *arrays: Any, **named: Any) -> list[Any]:
        """Run the model.

        Args:
            *arrays: the inputs in their order, or all of them as one dict by name. An input is an
                array (NumPy's, or with DLPack, read where it lies) of the dtype that the model
                takes, or a number or nested list, which gets that dtype where it says the same.
            **named: inputs by name, beside others by position.

        Returns:
            The outputs in their order: of the first input's kind (torch tensors for torch tensors),
                else NumPy arrays; ONNX's maps come as a list of dicts.

        Raises:
            InputError: the inputs do not fit. The executable stays as it was.
            MemoryFault: memory for the run cannot be had (a MemoryError, too).
        """
        try:
            return self._call(arrays, named)
        except BroadcastFault as fault:
            arrays = self.in_order(arrays, named)
            return self._code_for(arrays, fault)(*arrays)
        except MemoryFault:
            raise
        except MemoryError as fault:
            raise self._exhausted(fault) from fault

    def _call(self, arrays: tuple[Any, ...], named: dict[str, Any]) -> list[Any]:
        first = arrays[0].__class__ if arrays else np.ndarray
        if named or first is dict or len(arrays) != len(self._inputs.infos):
            arrays = self.in_order(arrays, named)
            first = arrays[0].__class__ if arrays else np.ndarray
        with self._lock:
            keep = self._bind(arrays)
            results = self._allocate()
            self._run()
            for i in self._data_dependent:
                results[i] = self._fetch(i)
        del keep  # converted inputs had to outlive the run
        if self._packs_outputs:
            results = [
                unpack(result, shape, info.dtype) if info.dtype in PACKED_BITS else result
                for result, shape, info in zip(
                    results, self._outputs.shapes, self.outputs, strict=True
                )
            ]
        if self._has_formats:
            results = decode_all(results, self._formats)
        if first is not np.ndarray:
            return [
                result if isinstance(result, list) else from_numpy(result, arrays[0])
                for result in results
            ]
        return results

    def run(self, outputs: Sequence[str] | None, inputs: Mapping[str, Any]) -> list[Any]:
        """Run the model as a session of onnxruntime.

        Args:
            outputs: the names of those that are wanted; None: all, in their order.
            inputs: arrays by the names of the inputs.

        Raises:
            InputError: as in a call, and for names that the model does not have.
        """
        if not isinstance(inputs, Mapping):
            raise self._refuse(f"inputs by name are a dict, not a {type(inputs).__qualname__}")
        return named_outputs(self.output_names, outputs, self(dict(inputs)), self.name)

    def run_into(
        self, outputs: Sequence[Any] | Mapping[str, Any], inputs: Sequence[Any] | Mapping[str, Any]
    ) -> None:
        """Run the model into memory of the caller's; nothing is allocated.

        Args:
            outputs: in order or by name, dense and writable arrays of the outputs' dtypes and
                shapes, which do not overlap the inputs.
            inputs: in order or by name, as in a call.

        Raises:
            InputError: an array does not fit, or only the run can tell an output's shape.
        """
        for what, given in (("inputs", inputs), ("outputs", outputs)):
            if not isinstance(given, Iterable):
                raise self._refuse(f"{what} are a list or a dict, not a {type(given).__qualname__}")
        arrays = self.in_order((inputs,) if isinstance(inputs, Mapping) else tuple(inputs), {})
        try:
            self._call_into(self._results_in_order(outputs), arrays)
        except BroadcastFault as fault:
            self._code_for(arrays, fault).run_into(outputs, arrays)
        except MemoryFault:
            raise
        except MemoryError as fault:
            raise self._exhausted(fault) from fault

    def _results_in_order(self, outputs: Sequence[Any] | Mapping[str, Any]) -> Sequence[Any]:
        if not isinstance(outputs, Mapping):
            return outputs
        if outputs.keys() != set(self._outputs.names):
            given, wanted = ", ".join(outputs), ", ".join(self._outputs.names)
            raise self._refuse(f"arrays for the outputs {given} were given, expected {wanted}")
        return [outputs[name] for name in self._outputs.names]

    def _call_into(self, outputs: Sequence[Any], arrays: tuple[Any, ...]) -> None:
        infos = self._outputs.infos
        if self._data_dependent:
            name = infos[self._data_dependent[0]].name
            raise self._refuse(f"the shape of output '{name}' is only known after a call")
        if len(outputs) != len(infos):
            raise self._refuse(f"{len(outputs)} outputs were given, expected {len(infos)}")
        with self._lock:
            keep = self._bind(arrays)
            for i, value in enumerate(outputs):
                array = self._view("output", i, infos[i], value)
                if infos[i].dtype in PACKED_BITS or infos[i].format:
                    raise self._refuse(f"output {i} '{infos[i].name}': packed dtypes need a call")
                if array.flags.num & _DENSE != _DENSE or not array.flags.writeable:
                    raise self._refuse(f"output {i} '{infos[i].name}' is not dense and writable")
                if array.shape != self._outputs.shapes[i]:
                    if self.code_for:  # does a run take the sizes that this shape follows from?
                        keep += self._allocate()
                        self._run()
                    raise self._wrong_shape("output", i, array, self._outputs.shapes[i])
                self._outputs.words[WORDS * i] = address_of(array)
            self._run()
        del keep

    def _code_for(self, arrays: Sequence[Any], fault: BroadcastFault) -> Executable:
        """The code for these sizes alone, of inputs in order, that runs what this code refuses."""
        found = self.code_for and self.code_for(tuple([tuple(np.shape(x)) for x in arrays]))
        if found is None:
            raise fault
        return found

    def in_order(self, arrays: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, ...]:
        names = self._inputs.names
        if len(arrays) == 1 and not named and isinstance(arrays[0], Mapping):
            arrays, named = (), dict(arrays[0])
        values = dict(zip(names, arrays, strict=False))
        twice = [name for name in named if name in values]
        unknown = [name for name in named if name not in names]
        missing = [name for name in names if name not in values and name not in named]
        if len(arrays) > len(names) or (missing and not named):
            raise self._refuse(f"{len(arrays)} inputs were given, expected {len(names)}")
        for words, wrong in (
            ("was given twice", twice),
            ("is no input of the model", unknown),
            ("is missing", missing),
        ):
            if wrong:
                raise self._refuse(f"input '{wrong[0]}' {words}")
        return tuple(values[name] if name in values else named[name] for name in names)

    def _bind(self, arrays: tuple[Any, ...]) -> list[Array]:
        """Fill the input table and, when a shape changed, the outputs' shapes."""
        keep: list[Array] = []
        shapes, dtypes, words = self._inputs.shapes, self._expected, self._inputs.words
        for i, array in enumerate(arrays):
            if not (
                type(array) is np.ndarray
                and array.dtype is dtypes[i]
                and array.shape == shapes[i]
                and array.flags.num & _DENSE == _DENSE
            ):
                array = self._accept(i, array)
                keep.append(array)
            words[WORDS * i] = address_of(array)
        if self._stale:
            self._infer()
        return keep

    def _accept(self, i: int, value: Any) -> Array:
        """An input that is not the array expected at once: view, densify or refuse it."""
        table, info = self._inputs, self._inputs.infos[i]
        array = self._view("input", i, info, value)
        if array.shape != table.shapes[i]:
            self._stale = True
            table.set_shape(i, array.shape)
        if info.dtype in PACKED_BITS:
            return pack(array, PACKED_BITS[info.dtype])
        return np.require(array, requirements=("C", "A")).reshape(array.shape)

    def _view(self, what: str, i: int, info: abi.TensorInfo, value: Any) -> Array:
        try:
            value = encode(value, info.format) if info.format else value
            array = input_array(value, info.dtype) if what == "input" else to_numpy(value)
        except (TypeError, ValueError, BufferError, RuntimeError) as fault:
            raise self._refuse(f"{what} {i} '{info.name}': {fault}") from fault
        expected = numpy_dtype(info.dtype)
        if array.dtype.kind == "c" and array.ndim == len(info.shape) - 1:  # pairs of its parts
            dense = np.asarray(array, order="C") if what == "input" else array
            if dense.flags.c_contiguous:
                part = np.dtype(f"f{dense.dtype.itemsize // 2}")
                array = dense.view(part).reshape(*dense.shape, 2)
        if array.dtype != expected:
            raise self._refuse(
                f"{what} {i} '{info.name}': dtype is {array.dtype}, expected {expected}"
            )
        if array.ndim != len(info.shape):
            raise self._wrong_shape(what, i, array, info.shape)
        return array

    def _infer(self) -> None:
        table = self._outputs
        self._check(lib.tw_output_shapes(self._own_session(), self._inputs.address, table.dims))
        for i, info in enumerate(table.infos):
            start = table.starts[i]
            table.shapes[i] = tuple(table.dims[start : start + len(info.shape)])
        self._results = []
        for i, (shape, info) in enumerate(zip(table.shapes, table.infos, strict=True)):
            dtype = numpy_dtype(info.dtype)
            if i in self._data_dependent:
                shape = (0,)
            elif info.dtype in PACKED_BITS:
                shape = ((math.prod(shape) * PACKED_BITS[info.dtype] + 7) // 8,)
                dtype = np.dtype(np.uint8)
            self._results.append((shape, dtype))
        self._stale = False

    def _allocate(self) -> list[Array]:
        """Fresh arrays for the outputs, their addresses in the output table."""
        words, results = self._outputs.words, []
        for i, (shape, dtype) in enumerate(self._results):
            result = self._new(i, shape, dtype)
            words[WORDS * i] = address_of(result)
            results.append(result)
        return results

    def _new(self, i: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """Memory for output `i`."""
        try:
            return np.empty(shape, dtype)
        except (MemoryError, ValueError) as fault:  # ValueError: more bytes than addresses, or < 0
            told = f"output {i} '{self.outputs[i].name}'"
            if min(shape, default=0) < 0:
                raise self._refuse(f"{told} would have the shape {list(shape)}") from fault
            nbytes = math.prod(shape) * dtype.itemsize
            told = f"{told} of shape {list(shape)} has {nbytes} bytes"
            raise self._exhausted(MemoryError(told)) from fault

    def _fetch(self, i: int) -> Array:
        """A copy of an output whose shape the run has found."""
        held, info = self._held, self._outputs.infos[i]
        self._check(lib.tw_result(self._session, i, self._held_at))
        shape = tuple(self._sizes_of[i].from_address(held.shape)) if held.rank else ()
        self._outputs.shapes[i] = shape
        dtype = numpy_dtype(info.dtype)
        if info.dtype in PACKED_BITS:
            shape = ((math.prod(shape) * PACKED_BITS[info.dtype] + 7) // 8,)
            dtype = np.dtype(np.uint8)
        result = self._new(i, shape, dtype)
        if result.nbytes:
            ctypes.memmove(address_of(result), held.data, result.nbytes)
        return result

    def _run(self) -> None:
        status = lib.tw_run(self._session, self._inputs.address, self._outputs.address)
        if status:
            raise self._failure(status)

    def _wrong_shape(
        self, what: str, i: int, array: Array, expected: Sequence[abi.Dim]
    ) -> InputError:
        name = (self.inputs if what == "input" else self.outputs)[i].name
        given, wanted = ", ".join(map(str, array.shape)), ", ".join(map(str, expected))
        return self._refuse(f"{what} {i} '{name}': shape is [{given}], expected [{wanted}]")

    def _failure(self, status: int) -> Exception:
        said = lib.tw_error().decode()
        told = re.fullmatch(r"the model's program stopped with code (\d+)", said)
        faults = self.manifest.notes.get("faults", [])
        if status == _PROGRAM and told and 0 < int(told[1]) <= len(faults):
            said = self._told(faults[int(told[1]) - 1])
        elif status != _INPUT:
            return error(status, f"cannot run '{self.name}'")
        return self._refuse(said, BroadcastFault if ONE_MAY_BE_1 in said else InputError)

    def _exhausted(self, fault: MemoryError) -> Exception:
        return exhausted(f"cannot run '{self.name}'", fault) or fault

    def _told(self, what: str) -> str:
        """What a run stopped at, with the sizes that it had found by then."""
        words = set(re.findall(r"\w+", what))
        found = [f"{k} = {v}" for k, v in self._symbols().items() if k in words and v >= 0]
        return f"{what}: these values do not fit" + (f" ({', '.join(found)})" if found else "")

    def _refuse(self, why: str, kind: type[InputError] = InputError) -> InputError:
        takes = ", ".join(map(str, self.inputs)) or "no inputs"
        remedy = f"the model takes {takes}"
        if re.search(r"expected \d+ = [a-z]", why):
            remedy += "; where a file gives unequal sizes one name, `shapes=` names them"
        if kind is BroadcastFault:
            remedy += "; compiled for these alone (`shapes=`) it runs them, if they fit each other"
        return kind(f"cannot run '{self.name}'", why, remedy=remedy)

    # ---- Measuring --------------------------------------------------------------------------

    def profile(
        self, *arrays: Any, seconds: float = 0.5, machine: Roofline | None = None, **named: Any
    ) -> Profile:
        """Time each kernel, and compare it with what the machine could do.

        Args:
            *arrays: inputs as in a call.
            seconds: for how long runs are repeated: three at least, after one to warm up.
            machine: the machine's peaks; None: those that `roofline` measures.
            **named: inputs by name.
        """
        runner = self.clone()  # of its own session: other callers' runs are not counted
        machine = machine or runner.roofline()
        try:
            runner._call(arrays, named)
        except BroadcastFault as fault:
            arrays = self.in_order(arrays, named)
            return self._code_for(arrays, fault).profile(*arrays, seconds=seconds, machine=machine)
        self._check(lib.tw_profile(runner._session, 1))
        runs, start = 0, time.perf_counter()
        while runs < 3 or time.perf_counter() - start < seconds:
            runner(*arrays, **named)
            runs += 1
        taken = time.perf_counter() - start
        count = len(self.manifest.kernels)
        spent, launches = (ctypes.c_int64 * count)(), (ctypes.c_int64 * count)()
        self._check(lib.tw_profile_read(runner._session, spent, launches))
        kernels = tabulate(
            self.manifest, runner._symbols(), list(spent), list(launches), runs, machine
        )
        return Profile(kernels, taken / runs * 1e6, machine, self.threads)

    def roofline(self) -> Roofline:
        """The machine's peaks on this executable's threads: f32 GFLOP/s in registers, and GB/s from
        main memory. Measured once in a process, which takes about half a second."""
        if self.threads not in _rooflines:
            flops, nbytes = ctypes.c_double(), ctypes.c_double()
            with self._lock:
                status = lib.tw_probe_machine(
                    self._own_session(), ctypes.byref(flops), ctypes.byref(nbytes)
                )
            self._check(status)
            _rooflines[self.threads] = Roofline(flops.value, nbytes.value)
        return _rooflines[self.threads]

    def _check(self, status: int) -> None:
        if status:
            raise self._failure(status)

    def _symbols(self) -> dict[str, int]:
        """The values of the symbols in the last call."""
        return {
            s.name: lib.tw_symbol_value(self._session, i)
            for i, s in enumerate(self.manifest.symbols)
        }

    # ---- Keeping ----------------------------------------------------------------------------

    def save(
        self,
        path: str | os.PathLike[str],
        kind: str = "artifact",
        *,
        name: str | None = None,
        sign: Any = None,
    ) -> Path:
        """Write the model to disk.

        Args:
            path: of the file; of the folder, for kinds other than "artifact".
            kind: "artifact": one file for `tilewright.load` and `tw_module_open`. The others are
                for programs without Python (see docs/deploy_in_c.md): "library", a shared library
                for this machine, and "static", an archive, both with a C header, an example,
                pkg-config and CMake files (they need a C compiler or the ziglang package);
                "c-array", a C source file of everything, and its header.
            name: what a library's files and functions are called, an identifier of C; None: as the
                model.
            sign: a private key (Ed25519; the path of a PEM file, its content, or a key of the
                cryptography package) to sign the artifact with, for `load(verify=...)`.

        Returns:
            The path written.

        Raises:
            CompileError: a library cannot be built, named or written.
            WriteFault: the artifact cannot be written. It is an ArtifactError, and an OSError, too.
        """
        return save(self.artifact(), self.manifest, Path(path), kind, name, sign)


_living: weakref.WeakSet[Executable] = weakref.WeakSet()
_rooflines: dict[int, Roofline] = {}  # by threads


def _enter_child() -> None:
    for executable in list(_living):
        executable._enter_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_enter_child)
