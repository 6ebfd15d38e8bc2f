"""Source in the C family: C99 built by a C compiler and run through the native call convention.

The compiled source agrees with the interpreter on every operator and dtype; names, loops, scratch
memory and refusals are checked on small programs.
"""

from __future__ import annotations

import ctypes
import dataclasses
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.codegen.test_math import BOUND, ONE, TWO, errors, operands, reference
from tests.codegen.test_operators import COUNT, operators_of, program, same
from tests.codegen.test_operators import operands as edges_of
from tilewright import te
from tilewright.codegen import csource_dialect
from tilewright.codegen.csource import Source, emit_source
from tilewright.codegen.inprocess import aligned, launch, pack
from tilewright.ir import interp
from tilewright.ir.dtype import ALL, DType
from tilewright.ir.expr import BinaryOp, Var, const
from tilewright.ir.parse import parse_func
from tilewright.ir.stmt import Func
from tilewright.ir.verify import verify
from tilewright.ir.walk import substitute
from tilewright.lower.pipeline import lower
from tilewright.schedule.schedule import Schedule
from tilewright.support.errors import CompileError
from tilewright.target.target import target

C, OPENCL = target("c"), target("opencl")
LANGUAGES = {C: csource_dialect.C99, OPENCL: csource_dialect.OPENCL}


def source_of(func: Func) -> Source:
    return emit_source(lower(func, C, verify=verify), C, csource_dialect.C99)


def library(folder: Path, sources: Sequence[Source]) -> ctypes.CDLL:
    """All sources in one shared library, with a compiler's warnings as errors."""
    files = []
    for n, source in enumerate(sources):
        files.append(folder / f"source{n}.c")
        files[-1].write_text(source.text)
    compiler = (
        [shutil.which("cc")] if shutil.which("cc") else [sys.executable, "-m", "ziglang", "cc"]
    )
    made = folder / "library.so"
    command = [*compiler, "-std=c99", "-O0", "-Wall", "-Wno-unused", "-Werror", "-fPIC", "-shared",
               "-fno-sanitize=undefined", *map(str, files), "-lm", "-o", str(made)]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[:4000]
    return ctypes.CDLL(str(made))


def call(built: ctypes.CDLL, source: Source, func: Func, *arrays: Any, **symbols: int) -> None:
    """Run every entry; whole parallel loops at once."""

    def number(e: Any) -> int:
        return int(substitute(e, {Var(k): const(v) for k, v in symbols.items()}).value)

    memory = {}
    for b, a in zip(func.buffers, arrays, strict=True):
        memory[b.name] = pack(a, b.dtype) if b.dtype.is_packed else a
    for b in source.workspace:
        memory[b.name] = aligned(b.dtype.nbytes(number(b.shape[0])))
    for entry in source.launches:
        address = ctypes.cast(built[entry.symbol], ctypes.c_void_p).value
        launch(address or 0, entry, memory, symbols)()
    for b, a in zip(func.buffers, arrays, strict=True):
        if b.dtype.is_packed:
            a[...] = unpacked(memory[b.name], b.dtype, a.size)


def unpacked(memory: Any, of: DType, count: int) -> Any:
    per = 8 // of.bits
    flat = (memory[:, None] >> (np.arange(per) * of.bits)) & ((1 << of.bits) - 1)
    flat = flat.reshape(-1)[:count].astype(np.int64)
    if of.is_signed:
        flat = (flat ^ (1 << (of.bits - 1))) - (1 << (of.bits - 1))
    return flat.astype(of.numpy)


def run(folder: Path, func: Func, *arrays: Any, **symbols: int) -> Source:
    source = source_of(func)
    call(library(folder, [source]), source, func, *arrays, **symbols)
    return source


# Operators and dtypes ---------------------------------------------------------------------------


def grid(of: DType) -> tuple[Func, list[Any], list[Any]]:
    """A function of all operators and casts of a dtype; its operators; its outputs."""
    ops = [*operators_of(of), *(to for to in ALL if to is not of)]
    func, outs = program(of, ops, "serial")
    return func.replace(name=f"ops_{of}"), ops, outs


@pytest.fixture(scope="module")
def grids(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    folder = tmp_path_factory.mktemp("grids")
    return library(folder, [source_of(grid(of)[0]) for of in ALL])


@pytest.mark.parametrize("of", ALL, ids=str)
def test_operators_and_casts(of: DType, grids: ctypes.CDLL) -> None:
    func, ops, outs = grid(of)
    arrays = []
    for op in ops:
        a, b = edges_of(of, op if isinstance(op, BinaryOp) else None)
        arrays += [a, b] if isinstance(op, BinaryOp) else [a]
    want = [np.zeros(COUNT, o.dtype.numpy) for o in outs]
    got = [np.zeros(COUNT, o.dtype.numpy) for o in outs]
    interp.run(func, *arrays, *want)
    call(grids, source_of(func), func, *arrays, *got)
    for op, out, g, w in zip(ops, outs, got, want, strict=True):
        with np.errstate(all="ignore"):
            same(g, w, out.dtype, f"{getattr(op, 'name', op)} on {of}")


# Mathematical functions -------------------------------------------------------------------------


def functions() -> Func:
    x, _ = operands("f32")
    a, b = te.placeholder(x.shape, name="X"), te.placeholder(x.shape, name="Y")
    outs = []
    for name in (*ONE, *TWO):
        f = te.power if name == "pow" else getattr(te, name)
        body = (lambda i, f=f: f(a[i], b[i])) if name in TWO else (lambda i, f=f: f(a[i]))
        outs.append(te.compute(x.shape, body, name=f"Z_{name}"))
    return te.func("functions", [a, b], outs)


def test_our_definitions_in_c(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dialect without mathematical functions gets ours, within the same bounds."""
    bare = dataclasses.replace(csource_dialect.C99, functions=frozenset())
    monkeypatch.setattr(csource_dialect, "C99", bare)
    x, y = operands("f32")
    got = [np.zeros_like(x) for _ in (*ONE, *TWO)]
    source = run(tmp_path, functions(), x, y, *got)
    assert "tw_exp_f32" in source.text and "expf(" not in source.text
    for name, g in zip((*ONE, *TWO), got, strict=True):
        off = errors(g, reference(name, "f32", x, y))
        assert off.max() <= BOUND["f32"][name], (
            f"{name}({x[np.argmax(off)]!r}): {off.max():.3g} ulp"
        )


def test_functions_of_the_language_are_used() -> None:
    text = source_of(functions()).text
    for name in ("expf(", "tanhf(", "powf(", "sqrtf(", "erff(", "tw_sigmoid_f32("):
        assert name in text
    assert "tw_exp_f32" not in text


# Programs ---------------------------------------------------------------------------------------


def test_matmul_for_the_native_convention(tmp_path: Path) -> None:
    """Parallel rows, a register tile, a vectorised loop, sizes that do not divide."""
    n, m, k = 20, 23, 19
    a, b = te.placeholder((n, k), name="A"), te.placeholder((k, m), name="B")
    r = te.reduce_axis(k, "r")
    c = te.compute((n, m), lambda i, j: te.sum(a[i, r] * b[r, j], r), name="C")
    s = Schedule(te.func("matmul", [a, b], [c]))
    tile = s.cache_write("C", "C", "local")
    i, j = s.loops(tile)
    i_o, i_i = s.split(i, (None, 4))
    j_o, j_i = s.split(j, (None, 8))
    s.reorder(i_o, j_o, i_i, j_i)
    s.compute_at("C", j_o)
    s.vectorize(j_i)
    s.parallel(i_o)
    random = np.random.default_rng(0)
    x, y = (random.integers(-4, 5, shape).astype(np.float32) for shape in ((n, k), (k, m)))
    out = np.zeros((n, m), np.float32)
    source = run(tmp_path, s.func, x, y, out)
    (entry,) = source.launches
    assert int(entry.extent.value) == 5 and "= begin;" in source.text
    np.testing.assert_array_equal(out, x @ y)


def test_names_of_the_language_are_avoided(tmp_path: Path) -> None:
    func = parse_func("""
def double(int: f32[8], exp: f32[8], frame: i64):
    for float in serial(0, 8):
        while_: f32 = exp(int[float])
        for short in serial(0, frame):
            exp[float] = while_ + f32(short)
""")
    x, out = np.linspace(0, 1, 8).astype(np.float32), np.zeros(8, np.float32)
    run(tmp_path, func, x, out, frame=3)
    np.testing.assert_allclose(out, np.exp(x) + 2, rtol=1e-6)


def test_a_name_twice_and_memory_of_every_scope(tmp_path: Path) -> None:
    """Two buffers of one name in a row; a large one lies in scratch memory."""
    func = parse_func("""
def twice(A: i64[4], B: i64[4]):
    for i in serial(0, 4):
        T = alloc(i64[2], "local")
        T[0] = A[i] * 3
        B[i] = T[0]
    for i in serial(0, 4):
        T = alloc(i64[20000], "local")
        T[19999 - i] = B[i] + 1
        U = alloc(i64[2], "shared")
        U[1] = T[19999 - i] * 2
        B[i] = U[1]
""")
    a, b = np.array([1, 2, -3, 1 << 61]), np.zeros(4, np.int64)
    want = b.copy()
    interp.run(func, a, want)
    source = run(tmp_path, func, a, b)
    np.testing.assert_array_equal(b, want)
    assert source.launches[0].scratch_bytes >= 160000


def test_bounds_that_the_body_changes(tmp_path: Path) -> None:
    func = parse_func("""
def bounds(A: i64[1], B: i64[1]):
    for i in serial(0, A[0]):
        A[0] = 0
        B[0] = B[0] + 1
""")
    a, b = np.array([5]), np.array([0])
    run(tmp_path, func, a, b)
    assert b[0] == 5


def test_arithmetic_is_plain_where_it_cannot_overflow() -> None:
    func = parse_func("""
def index(A: f32[4096], B: i64[64], n: i64):
    for i in serial(0, 64):
        for j in serial(0, 64):
            A[i * 64 + (j + n) % 64] = A[i * 64 + j // 3] + 1.0
        B[i] = B[i] * 3 + 1
""")
    text = source_of(func).text
    assert "A[i * 64 + (j + n) % 64] = A[i * 64 + j / 3] + 1.0f;" in text
    assert "(uint64_t)B[i]" in text  # what memory holds may be anything


# Refusals ---------------------------------------------------------------------------------------


def refused(text: str, machine: Any, message: str) -> None:
    with pytest.raises(CompileError, match=message) as seen:
        emit_source(parse_func(text), machine, LANGUAGES[machine])
    assert "def f(A" in str(seen.value)


def test_c_has_no_threads() -> None:
    refused("""
def f(A: f32[4]):
    for t in thread("threadIdx.x", 0, 4):
        A[t] = 0.0
""", C, "C99 has no threads")  # fmt: skip


def test_a_kernel_allocates_no_global_memory() -> None:
    refused("""
def f(A: f32[4]):
    for t in thread("threadIdx.x", 0, 4):
        T = alloc(f32[4], "global")
        T[t] = 0.0
        A[t] = T[t]
""", OPENCL, "cannot allocate global memory")  # fmt: skip


def test_threads_do_not_share_bytes() -> None:
    refused("""
def f(A: i4[4]):
    for t in thread("threadIdx.x", 0, 4):
        A[t] = i4(1)
""", OPENCL, "share a byte")  # fmt: skip


def test_unknown_intrinsic() -> None:
    func = parse_func("def f(A: f32[4]):\n    mystery(1)\n    A[0] = 0.0\n")
    with pytest.raises(CompileError, match="'mystery'"):
        emit_source(func, C, csource_dialect.C99)
