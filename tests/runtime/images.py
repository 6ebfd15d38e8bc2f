"""Code images for tests of the runtime, from C: what codegen makes, without the compiler.

In: C functions that use no library. Out: a flat position-independent image and the offset of each
exported function. The C compiler links them as a shared object whose segments are laid out flat.
"""

from __future__ import annotations

import functools
import platform
import struct
import subprocess
import tempfile
from pathlib import Path

import numpy as np

from tilewright.runtime import abi
from tilewright.runtime.bindings import NATIVE
from tilewright.runtime.toolchain import find_c_compiler

ARCH = platform.machine()
FLAGS = "-O2 -fPIC -shared -nostdlib -ffreestanding -fno-stack-protector -Wl,-z,norelro".split()
PRELUDE = '#include "tilewright.h"\n#define EXPORT __attribute__((visibility("default")))\n'


@functools.cache
def compile_c(source: str) -> tuple[bytes, dict[str, int]]:
    """The image of these C functions, and the offsets of those marked EXPORT."""
    with tempfile.TemporaryDirectory() as folder:
        code, library = Path(folder) / "code.c", Path(folder) / "code.so"
        code.write_text(PRELUDE + source)
        command = [*find_c_compiler(), *FLAGS, "-fvisibility=hidden", f"-I{NATIVE}"]
        subprocess.run([*command, "-o", str(library), str(code)], check=True)
        return _flatten(library.read_bytes())


def _flatten(elf: bytes) -> tuple[bytes, dict[str, int]]:
    segments, _, _, entry, segment_count, section_entry, section_count = struct.unpack_from(
        "<QQIxxHHHH", elf, 32
    )
    section_at = struct.unpack_from("<Q", elf, 40)[0]
    image = bytearray()
    for i in range(segment_count):
        kind, _, offset, address, _, size = struct.unpack_from("<IIQQQQ", elf, segments + i * entry)
        if kind == 1:  # PT_LOAD
            image += bytes(max(0, address + size - len(image)))
            image[address : address + size] = elf[offset : offset + size]
    headers = [
        struct.unpack_from("<IIQQQQIIQQ", elf, section_at + i * section_entry)
        for i in range(section_count)
    ]
    assert not any(h[1] in (4, 9) and h[5] for h in headers), "the code needs relocations"
    table = next(h for h in headers if h[1] == 11)  # SHT_DYNSYM
    names = headers[table[6]][4]
    offsets = {}
    for at in range(table[4], table[4] + table[5], table[9]):
        name, _, _, section, value, _ = struct.unpack_from("<IBBHQQ", elf, at)
        if section:
            text = elf[names + name :]
            offsets[text[: text.index(b"\0")].decode()] = value
    return bytes(image), offsets


def program(
    source: str,
    inputs: tuple[abi.TensorInfo, ...],
    outputs: tuple[abi.TensorInfo, ...],
    *,
    weights: tuple[np.ndarray, ...] = (),
    features: tuple[str, ...] = (),
    **options: object,
) -> abi.Program:
    """A program whose entries are the C functions `run` and, if there is one, `shapes`."""
    code, offsets = compile_c(source)
    variant = abi.Variant(ARCH, features, code, offsets["run"], offsets.get("shapes"))
    starts, _ = abi.plan_weights([w.nbytes for w in weights])
    stored = [abi.Weight(at, w.nbytes, w) for at, w in zip(starts, weights, strict=True)]
    known = {
        name: options.pop(name) for name in ("arena_bytes", "scratch_bytes") if name in options
    }
    manifest = abi.Manifest(str(options.pop("name", "test")), inputs, outputs, **options)
    return abi.Program(manifest, [variant], stored, **known)


# y = x * 2 + w on `n` floats, in parallel chunks of 64 with a copy through the arena.
SCALE = """
static void scale(void *const *frame, void *scratch, int64_t begin, int64_t end) {
    const float *x = frame[0];
    float *y = frame[1], *t = scratch;
    int64_t n = (int64_t)frame[2];
    for (int64_t i = begin * 64; i < end * 64 && i < n; i++) {
        t[i % 64] = x[i] * 2.0f;
        y[i] = t[i % 64];
    }
}
static void add(void *const *frame, void *scratch, int64_t begin, int64_t end) {
    const float *x = frame[0], *w = frame[1];
    float *y = frame[2];
    int64_t n = (int64_t)frame[3];
    for (int64_t i = begin * 64; i < end * 64 && i < n; i++) y[i] = x[i] + w[0];
}
EXPORT int32_t run(tw_call *call) {
    int64_t n = COUNT;
    void *first[] = {call->inputs[0], call->arena, (void *)n};
    call->launch(call, 0, scale, first, (n + 63) / 64, 0);
    void *second[] = {call->arena, (void *)call->weights, call->outputs[0], (void *)n};
    call->launch(call, 1, add, second, (n + 63) / 64, 0);
    return 0;
}
"""


def scale_program(n: int = 1000, **options: object) -> abi.Program:
    """y = 2x + 3 on f32[n]; two parallel kernels, arena, scratch and a weight."""
    return program(
        SCALE.replace("COUNT", str(n)),
        (abi.TensorInfo("x", "f32", (n,)),),
        (abi.TensorInfo("y", "f32", (n,)),),
        weights=(np.array([3.0], np.float32),),
        kernels=(
            abi.KernelInfo("scale", ("mul",), (n,), n, 8 * n),
            abi.KernelInfo("add", ("add",), (n,), n, 8 * n),
        ),
        arena_bytes=4 * n,
        scratch_bytes=256,
        **options,
    )


SYMBOLIC_SHAPES = """
EXPORT int32_t shapes(const int64_t *dims, int64_t *shapes, int64_t *arena_bytes) {
    shapes[0] = dims[0];
    *arena_bytes = dims[0] * 4;
    return 0;
}
"""


def symbolic_program() -> abi.Program:
    """y = 2x + 3 on f32[n]."""
    return program(
        SCALE.replace("COUNT", "call->dims[0]") + SYMBOLIC_SHAPES,
        (abi.TensorInfo("x", "f32", ("n",)),),
        (abi.TensorInfo("y", "f32", ("n",)),),
        weights=(np.array([3.0], np.float32),),
        symbols=(abi.Symbol("n", 1, 1 << 20),),
        kernels=(
            abi.KernelInfo("scale", ("mul",), ("n",), "n", "8 * n"),
            abi.KernelInfo("add", ("add",), ("n",), "n", "8 * n"),
        ),
        scratch_bytes=256,
    )


IDENTITY = """
EXPORT int32_t run(tw_call *call) {
    *(float *)call->outputs[0] = *(const float *)call->inputs[0];
    return 0;
}
"""


def identity_program() -> abi.Program:
    """y = x on one float: what remains is the cost of a call."""
    tensor = abi.TensorInfo("x", "f32", (1,))
    return program(IDENTITY, (tensor,), (abi.TensorInfo("y", "f32", (1,)),))
