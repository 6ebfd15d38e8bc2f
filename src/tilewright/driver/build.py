"""`build`: one scheduled function becomes something to call.

In: a function (or a Schedule). Out: an `Executable` whose inputs are the buffers the function only
reads and whose outputs are those it writes. It is compiled as it stands: the schedule is the
user's.
"""

from __future__ import annotations

import io

from tilewright.backend.backend import backend_of, native_of
from tilewright.codegen.host import ENTRY, SHAPES, host_program
from tilewright.codegen.host_steps import Launch, Location
from tilewright.codegen.link import link
from tilewright.graph import sizes
from tilewright.ir.expr import Buffer, Expr, Var, const, maximum
from tilewright.ir.stmt import Func
from tilewright.ir.walk import stores
from tilewright.runtime import abi
from tilewright.runtime.artifact import write_artifact
from tilewright.runtime.executor import Executable
from tilewright.schedule.schedule import Schedule
from tilewright.strategy.work import flops
from tilewright.support.errors import CompileError
from tilewright.support.memory import memory_told
from tilewright.support.version import __version__
from tilewright.target.target import Target
from tilewright.target.target import target as read_target


def build(
    func: Func | Schedule, target: str | Target = "cpu", *, threads: int | None = None
) -> Executable:
    """Compile one function for a CPU, as it is scheduled.

    Args:
        func: a function of `te.func`, or a `Schedule` of one. The buffers that it writes are the
            outputs of what is made, the others its inputs, in the order of its parameters.
        target: the machine, as `tilewright targets` lists them.
        threads: how many share out its parallel loops; None: TILEWRIGHT_THREADS, else all cores.

    Raises:
        CompileError: the machine is none whose code a host program calls (all but CPUs), or the
            function is not one that it can run.
    """
    func = func.func if isinstance(func, Schedule) else func
    if not isinstance(func, Func):
        raise CompileError(
            f"cannot build a {type(func).__qualname__}",
            "it is neither a function nor a Schedule",
            remedy="te.func(name, inputs, outputs) makes a function; tw.compile takes models",
        )
    with memory_told(f"cannot build '{func.name}'"):
        return _build(func, target, threads)


def _build(func: Func, target: str | Target, threads: int | None) -> Executable:
    machine = read_target(target)
    native = native_of(machine, f"cannot build '{func.name}'")
    written = {s.buffer.name for s in stores(func.body)}
    inputs = [b for b in func.buffers if b.name not in written]
    outputs = [b for b in func.buffers if b.name in written]
    emitted = native.emit(backend_of(machine).lowered(func, machine), machine)
    locations = {b.name: Location("input", index=n) for n, b in enumerate(inputs)}
    locations.update((b.name, Location("output", index=n)) for n, b in enumerate(outputs))
    arena: Expr = const(0)
    for buffer in emitted.workspace:
        locations[buffer.name] = Location("arena", offset=sizes.size(arena))
        arena = arena + aligned_bytes(buffer)
    launches = [
        Launch(
            0,
            e.symbol,
            e.extent,
            tuple(locations[b] for b in e.buffers),
            tuple(map(Var, e.symbols)),
            continues=n > 0,
        )
        for n, e in enumerate(emitted.entries)
    ]
    symbols = [p for p in func.params if isinstance(p, Var)]
    shapes = [b.shape for b in outputs] if symbols else None
    text = host_program(launches, machine, [s.name for s in symbols], shapes, sizes.size(arena))
    objects = [native.compile_object(one, machine) for one in (emitted.text, text)]
    image = link(objects, [ENTRY, SHAPES] if symbols else [ENTRY])
    touched = sizes.size(0)
    for buffer in func.buffers:
        touched = touched + buffer_bytes(buffer)
    manifest = abi.Manifest(
        name=func.name,
        inputs=tuple(info(b.name, b) for b in inputs),
        outputs=tuple(info(b.name, b) for b in outputs),
        symbols=tuple(abi.Symbol(s.name) for s in symbols),
        kernels=(
            abi.KernelInfo(
                func.name,
                (func.name,),
                dims(outputs[0].shape) if outputs else (),
                dim(sizes.size(flops(func))),
                dim(sizes.size(touched)),
            ),
        ),
        target=machine.triple,
        compiler=__version__,
    )
    program = abi.Program(
        manifest,
        [variant(machine, image.bytes, image.entries[ENTRY], image.entries.get(SHAPES))],
        arena_bytes=sizes.at(sizes.size(arena), dict.fromkeys(symbols, 1)),
        scratch_bytes=max((e.scratch_bytes for e in emitted.entries), default=0),
    )
    file = io.BytesIO()
    write_artifact(program, file)
    return Executable(file.getvalue(), threads)


def variant(machine: Target, code: bytes, run: int, shapes: int | None) -> abi.Variant:
    """Code for the machine that `machine` describes."""
    return abi.Variant(
        arch=machine.triple.split("-")[0],
        features=tuple(sorted(machine.features)),
        code=code,
        run=run,
        shapes=shapes,
    )


def buffer_bytes(buffer: Buffer) -> Expr:
    """Bytes of a buffer."""
    return sizes.size((sizes.product(buffer.shape) * buffer.dtype.bits + 7) // 8)


def aligned_bytes(buffer: Buffer) -> Expr:
    """Bytes of a buffer, up to the next aligned address; none for a size below 0, which what does
    not run may have."""
    rounded = sizes.size(
        (buffer_bytes(buffer) + (abi.ALIGNMENT - 1)) // abi.ALIGNMENT * abi.ALIGNMENT
    )
    zero = sizes.size(0)
    return rounded if sizes.is_never_more(zero, rounded) else sizes.size(maximum(rounded, zero))


def info(name: str, tensor: object, format: str = "") -> abi.TensorInfo:
    """A buffer or value as the manifest describes it."""
    return abi.TensorInfo(name, tensor.dtype.name, dims(tensor.shape), format)  # type: ignore[attr-defined]


def dims(shape: tuple[Expr, ...]) -> tuple[abi.Dim, ...]:
    """A shape as the manifest writes it."""
    return tuple(dim(d) for d in shape)


def dim(e: Expr) -> abi.Dim:
    """A size as the manifest writes it: a number, or the text of an expression."""
    text = sizes.text(e)
    return int(text) if text.lstrip("-").isdecimal() else text
