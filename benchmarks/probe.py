"""What the machine can do at best: f32 multiply-adds a second and bytes read from memory a second.

Two kernels, written as LLVM text at the machine's vector width, run on as many threads as asked.
They are called between the engines' slices, so that the ceiling is measured in the same minutes.
"""

from __future__ import annotations

import ctypes
import mmap
import threading
import time
from collections.abc import Callable

import llvmlite.binding as llvm
import numpy as np

ACCUMULATORS = 12  # enough to hide a latency of 5 at two a cycle, few enough for 16 registers
STEPS = 8_000_000  # some 20 ms: what starting a thread takes does not show
BYTES = 128 << 20  # read by each thread: several times a slice of the last-level cache


class Probe:
    """The compiled kernels and the memory they read, for a number of threads."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self.lanes = lanes()
        self.engine = build(fma_text(self.lanes) + sum_text(self.lanes))
        float_p = ctypes.POINTER(ctypes.c_float)
        self.fma = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_float, float_p)(
            self.engine.get_function_address("fma")
        )
        self.sum = ctypes.CFUNCTYPE(None, ctypes.c_int64, float_p, float_p)(
            self.engine.get_function_address("sum")
        )
        self.memory = [huge_pages(BYTES) for _ in range(threads)]
        self.results = [np.zeros(64, np.float32) for _ in range(threads)]

    def flops(self) -> float:
        """f32 operations a second, a multiply-add being two, all threads together."""
        work = 2 * ACCUMULATORS * self.lanes * STEPS * self.threads
        return work / self.together(lambda k: self.fma(STEPS, 0.5, pointer(self.results[k])))

    def bandwidth(self) -> float:
        """Bytes read a second, all threads together."""
        count = BYTES // 4 // (ACCUMULATORS * self.lanes)
        work = count * ACCUMULATORS * self.lanes * 4 * self.threads
        return work / self.together(
            lambda k: self.sum(count, pointer(self.memory[k]), pointer(self.results[k]))
        )

    def together(self, run: Callable[[int], None]) -> float:
        """Seconds from the moment all threads are let go until the last is done."""
        gate = threading.Barrier(self.threads + 1)

        def body(k: int) -> None:
            gate.wait()
            run(k)

        crew = [threading.Thread(target=body, args=(k,)) for k in range(self.threads)]
        for member in crew:
            member.start()
        gate.wait()
        start = time.perf_counter()
        for member in crew:
            member.join()
        return time.perf_counter() - start


def huge_pages(size: int) -> np.ndarray:
    """f32 ones, `size` bytes, aligned to 2 MB and on huge pages where the system grants them."""
    align = 2 << 20
    memory = mmap.mmap(-1, size + align, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)
    whole = np.frombuffer(memory, np.float32)
    skip = -whole.ctypes.data % align // 4
    array = whole[skip : skip + size // 4]
    array[:] = 1
    return array


def pointer(array: np.ndarray) -> ctypes._Pointer:
    return array.ctypes.data_as(ctypes.POINTER(ctypes.c_float))


def lanes() -> int:
    """f32 values in the widest vector register."""
    features = llvm.get_host_cpu_features()
    return 16 if features.get("avx512f") else 8 if features.get("avx") else 4


def build(text: str) -> llvm.ExecutionEngine:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=3
    )
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(text), machine)
    engine.finalize_object()
    return engine


def fma_text(width: int) -> str:
    """`fma(n, x, out)`: n steps of independent multiply-adds, all in registers."""
    v = f"<{width} x float>"
    intrinsic = f"@llvm.fma.v{width}f32"
    each = range(ACCUMULATORS)
    phis = "\n".join(
        f"  %a{k} = phi {v} [ zeroinitializer, %entry ], [ %b{k}, %loop ]" for k in each
    )
    steps = "\n".join(f"  %b{k} = call {v} {intrinsic}({v} %a{k}, {v} %x, {v} %x)" for k in each)
    return f"""
declare {v} {intrinsic}({v}, {v}, {v})
define void @fma(i64 %n, float %scalar, ptr %out) {{
entry:
  %one = insertelement {v} poison, float %scalar, i32 0
  %x = shufflevector {v} %one, {v} poison, <{width} x i32> zeroinitializer
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
{phis}
{steps}
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %n
  br i1 %more, label %loop, label %done
done:
{total(v, "b")}
}}
"""


def sum_text(width: int) -> str:
    """`sum(n, in, out)`: adds n blocks of ACCUMULATORS vectors; the additions hide in the reads."""
    v = f"<{width} x float>"
    each = range(ACCUMULATORS)
    phis = "\n".join(
        f"  %a{k} = phi {v} [ zeroinitializer, %entry ], [ %b{k}, %loop ]" for k in each
    )
    steps = "\n".join(
        f"  %p{k} = getelementptr {v}, ptr %block, i64 {k}\n"
        f"  %l{k} = load {v}, ptr %p{k}, align 4\n"
        f"  %b{k} = fadd {v} %a{k}, %l{k}"
        for k in each
    )
    return f"""
define void @sum(i64 %n, ptr %in, ptr %out) {{
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
{phis}
  %at = mul i64 %i, {ACCUMULATORS}
  %block = getelementptr {v}, ptr %in, i64 %at
{steps}
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %n
  br i1 %more, label %loop, label %done
done:
{total(v, "b")}
}}
"""


def total(v: str, name: str) -> str:
    """Add the accumulators and store them, so that no work can be left out."""
    lines = [f"  %t0 = fadd {v} %{name}0, %{name}1"]
    for k in range(2, ACCUMULATORS):
        lines.append(f"  %t{k - 1} = fadd {v} %t{k - 2}, %{name}{k}")
    return "\n".join([*lines, f"  store {v} %t{ACCUMULATORS - 2}, ptr %out, align 4", "  ret void"])
