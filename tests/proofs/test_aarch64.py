"""The same matmul for another processor: an AArch64 object, linked and run under qemu-user.

Once the object goes through a C linker into a program; once our own linker makes a code image of
it, which a C program maps and enters, as the runtime does. Both print the product, which NumPy
checks.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tilewright import te
from tilewright.codegen.link import link
from tilewright.codegen.llvm import emit
from tilewright.codegen.llvm_compile import compile_object
from tilewright.ir.stmt import Func
from tilewright.lower.pipeline import lower
from tilewright.schedule.schedule import Schedule
from tilewright.target.target import target

MACHINE = "cpu -mtriple=aarch64-unknown-linux-gnu -mcpu=cortex-a72"
N, M, K = 20, 24, 19
QEMU = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")
pytestmark = pytest.mark.skipif(QEMU is None, reason="qemu-user is not installed")

COMMON = """
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
typedef void (*kernel)(float *a, float *b, float *e, void *scratch, int64_t begin, int64_t end);
static float A[N * K], B[K * M], E[N * M];
static char scratch[1 << 16] __attribute__((aligned(64)));
static int run(kernel fn) {
    for (int i = 0; i < N * K; i++) A[i] = (float)(i * 7 % 11) - 5;
    for (int i = 0; i < K * M; i++) B[i] = (float)(i * 5 % 13) - 6;
    for (int64_t p = 0; p < EXTENT; p++) fn(A, B, E, scratch, p, p + 1);
    for (int i = 0; i < N * M; i++) printf("%.9g\\n", E[i]);
    return 0;
}
"""
LINKED = """
extern void matmul(float *, float *, float *, void *, int64_t, int64_t);
int main(void) { return run(matmul); }
"""
MAPPED = """
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
int main(int argc, char **argv) {
    int file = open(argv[1], O_RDONLY);
    long size = lseek(file, 0, SEEK_END);
    char *code = mmap(0, size, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, 0);
    return run((kernel)(code + atol(argv[2])));
}
"""


def scheduled() -> Func:
    """E = exp(A B / 64) in tiles of 4 × 8; rows in parallel."""
    a, b = te.placeholder((N, K), name="A"), te.placeholder((K, M), name="B")
    k = te.reduce_axis(K, "k")
    c = te.compute((N, M), lambda i, j: te.sum(a[i, k] * b[k, j], k), name="C")
    e = te.compute((N, M), lambda y, x: te.exp(c[y, x] * 0.015625), name="E")
    s = Schedule(te.func("matmul", [a, b], [e]))
    y, x = s.loops("E")
    y_o, y_i = s.split(y, (None, 4))
    x_o, x_i = s.split(x, (None, 8))
    s.reorder(y_o, x_o, y_i, x_i)
    s.compute_at("C", x_o)
    i, j, k_ = s.loops("C")[-3:]
    s.reorder(k_, i, j)
    s.unroll(i)
    s.vectorize(j)
    s.unroll(y_i)
    s.vectorize(x_i)
    s.parallel(y_o)
    return s.func


def program(folder: Path, main: str, objects: list[Path], extent: int) -> Path:
    """A static AArch64 program, by the C compiler of the `ziglang` wheel."""
    source, out = folder / "main.c", folder / "program"
    source.write_text(COMMON + main)
    sizes = [f"-DN={N}", f"-DM={M}", f"-DK={K}", f"-DEXTENT={extent}"]
    command = [sys.executable, "-m", "ziglang", "cc", "-target", "aarch64-linux-musl", "-O1",
               *sizes, str(source), *map(str, objects), "-o", str(out)]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    return out


def check(output: str) -> None:
    a = ((np.arange(N * K) * 7 % 11) - 5).astype(np.float32).reshape(N, K)
    b = ((np.arange(K * M) * 5 % 13) - 6).astype(np.float32).reshape(K, M)
    got = np.array(output.split(), np.float32).reshape(N, M)
    np.testing.assert_allclose(got, np.exp(a @ b / 64), rtol=1e-6)


def test_object_in_a_program_of_c(tmp_path: Path) -> None:
    machine = target(MACHINE)
    emitted = emit(lower(scheduled(), machine), machine)
    (entry,) = emitted.entries
    code = tmp_path / "matmul.o"
    code.write_bytes(compile_object(emitted.text, machine))
    built = program(tmp_path, LINKED, [code], entry.extent.value)
    done = subprocess.run([str(QEMU), str(built)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    check(done.stdout)


def test_image_of_our_own_linker(tmp_path: Path) -> None:
    machine = target(MACHINE)
    emitted = emit(lower(scheduled(), machine), machine)
    (entry,) = emitted.entries
    image = link([compile_object(emitted.text, machine)], [entry.symbol])
    assert image.machine == "aarch64"
    code = tmp_path / "matmul.image"
    code.write_bytes(image.bytes)
    built = program(tmp_path, MAPPED, [], entry.extent.value)
    command = [str(QEMU), str(built), str(code), str(image.entries[entry.symbol])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    check(done.stdout)
