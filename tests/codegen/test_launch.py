"""Launches of GPUs: where shared buffers lie, and what a machine has no room for."""

from __future__ import annotations

import pytest

from tilewright.codegen.csource import emit_source
from tilewright.codegen.csource_dialect import OPENCL as OPENCL_C
from tilewright.codegen.launch import SharedOffsets
from tilewright.codegen.llvm_gpu import emit_device
from tilewright.ir.parse import parse_func
from tilewright.ir.stmt import Alloc, Func
from tilewright.ir.walk import visit
from tilewright.lower.pipeline import lower
from tilewright.support.errors import CompileError
from tilewright.target.target import target

CUDA, OPENCL = target("cuda -arch=sm_90"), target("opencl")


def branches(condition: str, loop: str = 'thread("blockIdx.x", 0, 2)') -> Func:
    """Two branches, each with a buffer of 65 f32 that its threads fill and read."""
    return parse_func(f"""
def f(A: f32[128], B: f32[128], n: i64):
    for b in {loop}:
        for t in thread("threadIdx.x", 0, 64):
            if {condition}:
                S = alloc(f32[65], "shared")
                S[t] = A[b * 64 + t]
                B[b * 64 + t] = S[t]
            else:
                T = alloc(f32[65], "shared")
                T[t] = A[b * 64 + t]
                B[b * 64 + t] = T[t] + 1.0
""")


def laid_out(func: Func) -> tuple[dict[str, int], int]:
    """Where each shared buffer lies, and the bytes of all."""
    shared = SharedOffsets(func.body, 16)
    names = {id(n): n.buffer.name for n in visit(func.body) if isinstance(n, Alloc)}
    return {names[at]: offset for at, offset in shared.of.items()}, shared.bytes


@pytest.mark.parametrize("condition", ["b < 1", "n < 5"])
def test_branches_of_a_block_share_memory(condition: str) -> None:
    assert laid_out(branches(condition)) == ({"S": 0, "T": 0}, 272)


@pytest.mark.parametrize("condition", ["t < 32", "A[b] < 1.0"])
def test_branches_that_threads_may_take_both_share_none(condition: str) -> None:
    assert laid_out(branches(condition)) == ({"S": 0, "T": 272}, 544)


def test_branches_that_follow_one_another_share_none() -> None:
    """One thread may be in the next round already while another still reads."""
    assert laid_out(branches("b < 1", "serial(0, 2)")) == ({"S": 0, "T": 272}, 544)


def simple(threads: int = 64, blocks: int = 2, axis: str = "y") -> Func:
    count = threads * blocks
    return parse_func(f"""
def f(A: f32[{count}], B: f32[{count}]):
    for b in thread("blockIdx.{axis}", 0, {blocks}):
        for t in thread("threadIdx.x", 0, {threads}):
            B[b * {threads} + t] = A[b * {threads} + t]
""")


@pytest.mark.parametrize(
    ("func", "told"),
    [
        (simple(threads=2048), "it takes 2048 threads in a block, at most 1024 can be had"),
        (simple(blocks=65536), "it takes 65536 blocks along blockIdx.y, at most 65535 can be had"),
    ],
)
def test_launches_beyond_the_limits_are_refused(func: Func, told: str) -> None:
    with pytest.raises(CompileError, match=told):
        emit_device(lower(func, CUDA), CUDA)


def test_limits_are_those_of_the_machine_and_axis() -> None:
    emit_device(lower(simple(blocks=65536, axis="x"), CUDA), CUDA)
    emit_source(lower(simple(threads=256, blocks=65536), OPENCL), OPENCL, OPENCL_C)
    with pytest.raises(CompileError, match="512 threads in a block, at most 256 can be had"):
        emit_source(lower(simple(threads=512), OPENCL), OPENCL, OPENCL_C)


def shared(count: int) -> Func:
    return parse_func(f"""
def f(A: f32[{count}], B: f32[{count}]):
    for t in thread("threadIdx.x", 0, 64):
        S = alloc(f32[{count}], "shared")
        for k in serial(0, {count // 64}):
            S[k * 64 + t] = A[k * 64 + t]
        for k_1 in serial(0, {count // 64}):
            B[k_1 * 64 + t] = S[{count - 1} - k_1 * 64 - t]
""")


def test_a_block_asks_for_the_shared_memory_it_needs() -> None:
    (kernel,) = emit_device(lower(shared(16384), CUDA), CUDA).kernels
    assert kernel.shared_bytes == 65536
    why = "it takes 262144 bytes of shared memory in a block, at most 232448 can be had"
    with pytest.raises(CompileError, match=why):
        emit_device(lower(shared(65536), CUDA), CUDA)
