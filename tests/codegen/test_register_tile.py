"""A 12×32 f32 tile accumulates in registers: 24 fused multiply-adds, nothing on the stack."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tilewright import te
from tilewright.codegen import inprocess
from tilewright.codegen.llvm import emit
from tilewright.codegen.llvm_compile import compile_assembly
from tilewright.graph import Builder
from tilewright.graph.group import group_func
from tilewright.graph.passes.fuse import fuse
from tilewright.ir.expr import Var
from tilewright.ir.parse import parse_func
from tilewright.lower.pipeline import lower
from tilewright.strategy.select import default
from tilewright.target.target import target

TILE = """
def matmul(A: f32[48, 40], B: f32[2, 40, 32], C: f32[48, 64]):
    for j_o in serial(0, 2):
        for i_o in serial(0, 4):
            acc = alloc(f32[12, 32], "local")
            for k in serial(0, 40):
                for i_i in unroll(0, 12):
                    for j_i in vectorize(0, 32):
                        with block("C"):
                            vi = spatial(12, i_i)
                            vj = spatial(32, j_i)
                            vk = reduce(40, k)
                            reads(A[i_o * 12 + vi, vk], B[j_o, vk, vj])
                            writes(acc[vi, vj])
                            with init():
                                acc[vi, vj] = 0.0
                            acc[vi, vj] = acc[vi, vj] + A[i_o * 12 + vi, vk] * B[j_o, vk, vj]
            for i in unroll(0, 12):
                for j in vectorize(0, 32):
                    C[i_o * 12 + i, j_o * 32 + j] = acc[i, j]
"""


def inner_loop(assembly: str) -> list[str]:
    """The instructions of the innermost loop: from the last label before the first FMA to the jump
    back.
    """
    lines = assembly.splitlines()
    first = next(n for n, line in enumerate(lines) if "vfmadd" in line)
    start = max(n for n in range(first) if re.match(r"\.LBB\w+:", lines[n]))
    label = lines[start].split(":")[0]
    stop = next(n for n in range(first, len(lines)) if re.search(rf"\tj\w+\t{label}\b", lines[n]))
    return [line.strip() for line in lines[start + 1 : stop + 1]]


def test_tile_lives_in_registers() -> None:
    machine = target("cpu -mcpu=skylake-avx512")
    body = inner_loop(
        compile_assembly(emit(lower(parse_func(TILE), machine), machine).text, machine)
    )
    assert sum("vfmadd" in line for line in body) == 24
    assert not any("rsp" in line for line in body)
    stores = [line for line in body if re.match(r"vmov\w+\s+%zmm\d+, .*\(", line)]
    assert stores == []
    assert len(body) < 24 + 12 + 2 + 8


@pytest.mark.parametrize("machine", ["cpu", "cpu -mcpu=x86-64-v3", "cpu -mcpu=x86-64-v2"])
def test_tile_computes_the_product(machine: str) -> None:
    random = np.random.default_rng(0)
    a = random.standard_normal((48, 40), np.float32)
    b = random.standard_normal((40, 64), np.float32)
    c = np.zeros((48, 64), np.float32)
    packed = np.ascontiguousarray(b.reshape(40, 2, 32).transpose(1, 0, 2))
    inprocess.run(parse_func(TILE), a, packed, c, target=machine)
    np.testing.assert_allclose(c, a @ b, rtol=1e-4, atol=1e-4)


TAIL = TILE.replace("B: f32[2, 40, 32]", "B: f32[40, 60]").replace(
    "C: f32[48, 64]", "C: f32[48, 60]"
)
TAIL = TAIL.replace("B[j_o, vk, vj]", "B[vk, j_o * 32 + vj]")
TAIL = TAIL.replace('block("C")', 'block("C", where=j_o * 32 + j_i < 60)')
TAIL = TAIL.replace(
    "                    C[i_o * 12 + i, j_o * 32 + j] = acc[i, j]",
    "                    if j_o * 32 + j < 60:\n"
    "                        C[i_o * 12 + i, j_o * 32 + j] = acc[i, j]",
)


def test_tail_of_a_tile_is_masked() -> None:
    """Two copies of the tile, whole and masked; both keep their accumulators in registers."""
    machine = target("cpu -mcpu=skylake-avx512")
    text = compile_assembly(emit(lower(parse_func(TAIL), machine), machine).text, machine)
    assert sum("vfmadd" in line for line in text.splitlines()) == 48
    assert "vfmadd231ss" not in text and "vmovss" not in text
    assert re.search(r"vmovups\s+%zmm\d+, \d*\(.*\) \{%k\d\}", text), "no masked store"
    assert "(%rsp)" not in text


@pytest.mark.parametrize("machine", ["cpu", "cpu -mcpu=x86-64-v3", "cpu -mcpu=x86-64-v2"])
def test_tail_computes_the_product(machine: str) -> None:
    random = np.random.default_rng(0)
    a = random.standard_normal((48, 40), np.float32)
    b = random.standard_normal((40, 60), np.float32)
    c = np.zeros((48, 60), np.float32)
    inprocess.run(parse_func(TAIL), a, b, c, target=machine)
    np.testing.assert_allclose(c, a @ b, rtol=1e-4, atol=1e-4)


def test_tiles_on_both_sides_of_a_branch_live_in_registers() -> None:
    """The last panel of 896 columns lacks a vector. Both sides start with the same zeros."""
    build = Builder()
    x, w = build.input("x", "f32", (Var("n"), 224)), build.input("w", "f32", (19, 224, 48))
    product = build.emit("dense_packed", x, w, channels=896)
    graph = build.finish({"y": build.emit("add", product, build.input("b", "f32", (896,)))})
    (group,) = fuse(graph).groups
    machine = target("cpu -mcpu=skylake-avx512")
    func = default(te.func("product", *group_func(group)), machine, 2, strict=True).func
    text = compile_assembly(emit(lower(func, machine), machine).text, machine)
    assert not re.search(r"\(%rsp\), %zmm|%zmm\d+, \d*\(%rsp\)", text)


def test_invariant_load_stands_in_front_of_the_inner_loop() -> None:
    text = """
def scale(A: f32[8, 64], S: f32[8], B: f32[8, 64]):
    for i in serial(0, 8):
        for j_o in serial(0, 4):
            for j in vectorize(0, 16):
                B[i, j_o * 16 + j] = A[i, j_o * 16 + j] * S[i]
"""
    machine = target("cpu -mcpu=skylake-avx512")
    assembly = compile_assembly(emit(lower(parse_func(text), machine), machine).text, machine)
    lines = assembly.splitlines()
    product = next(n for n, line in enumerate(lines) if "vmulps" in line)
    load = next(n for n, line in enumerate(lines) if "vbroadcastss" in line)
    assert any(re.match(r"\.LBB\w+:", line) for line in lines[load:product])
    assert "{1to16}" not in assembly
