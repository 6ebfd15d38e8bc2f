"""The matmul with grid, blocks, threads and shared memory, as OpenCL C, run on PoCL.

It is the very schedule of the PTX proof. The interpreter runs what is emitted, thread by thread,
and calls a removed barrier a race.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.codegen.test_operators import COUNT, operands, operators_of, program, same
from tests.proofs.test_ptx import K, M, N, scheduled
from tilewright import te
from tilewright.codegen.csource import Source, emit_source
from tilewright.codegen.csource_dialect import OPENCL
from tilewright.codegen.inprocess import pack
from tilewright.ir import interp
from tilewright.ir.dtype import ALL, dtype
from tilewright.ir.expr import COMPARISONS, BinaryOp, Var, const
from tilewright.ir.race import RaceError
from tilewright.ir.stmt import Func, Seq
from tilewright.ir.verify import verify
from tilewright.ir.walk import rewrite, substitute, visit
from tilewright.lower.insert_barriers import BARRIER
from tilewright.lower.pipeline import lower
from tilewright.schedule.schedule import Schedule
from tilewright.target.target import target

MACHINE = target("opencl")
Array = np.ndarray[Any, Any]


def on_device(func: Func, *arrays: Array, **symbols: int) -> Source:
    """Lower, emit, build and run `func` on the first OpenCL device; arrays change in place."""
    cl = pytest.importorskip("pyopencl", reason="pyopencl is not installed")
    try:
        device = next(d for p in cl.get_platforms() for d in p.get_devices())
    except (cl.Error, StopIteration):
        pytest.skip("no OpenCL device: the package pocl-opencl-icd is not installed")
    lowered = lower(func, MACHINE, verify=verify)
    source = emit_source(lowered, MACHINE, OPENCL)
    context = cl.Context([device])
    queue = cl.CommandQueue(context)
    built = cl.Program(context, source.text).build()
    flags = cl.mem_flags.READ_WRITE
    memory = {
        b.name: cl.Buffer(context, flags | cl.mem_flags.COPY_HOST_PTR, hostbuf=a)
        for b, a in zip(func.buffers, arrays, strict=True)
    }

    def number(e: Any) -> int:
        return int(substitute(e, {Var(k): const(v) for k, v in symbols.items()}).value)

    for b in source.workspace:
        memory[b.name] = cl.Buffer(context, flags, b.dtype.nbytes(number(b.shape[0])))
    for kernel in source.launches:
        block = [number(e) for e in kernel.block]
        grid = [number(g) * b for g, b in zip(kernel.grid, block, strict=True)]
        run = cl.Kernel(built, kernel.symbol)
        sizes = (np.int64(symbols[s]) for s in kernel.symbols)
        run(queue, grid, block, *(memory[b] for b in kernel.buffers), *sizes)
    for b, a in zip(func.buffers, arrays, strict=True):
        cl.enqueue_copy(queue, a, memory[b.name])
    queue.finish()
    return source


def whole_numbers() -> tuple[Array, Array]:
    random = np.random.default_rng(0)
    a = random.integers(-4, 5, (N, K)).astype(np.float32)
    return a, random.integers(-4, 5, (K, M)).astype(np.float32)


def interpreted(func: Func) -> Array:
    a, b = whole_numbers()
    c = np.zeros(N * M, np.float32)
    interp.run(func, a.reshape(-1), b.reshape(-1), c)
    return c.reshape(N, M)


def test_device_agrees() -> None:
    a, b = whole_numbers()
    c = np.zeros((N, M), np.float32)
    on_device(scheduled(), a, b, c)
    np.testing.assert_array_equal(c, a @ b)


def test_interpreter_agrees() -> None:
    a, b = whole_numbers()
    got = interpreted(lower(scheduled(), MACHINE, verify=verify))
    np.testing.assert_array_equal(got, a @ b)


def test_source_is_cooperative() -> None:
    source = emit_source(lower(scheduled(), MACHINE), MACHINE, OPENCL)
    (kernel,) = source.launches
    assert [int(e.value) for e in (*kernel.grid, *kernel.block)] == [2, 2, 1, 8, 8, 1]
    text = source.text
    for part in (
        "reqd_work_group_size(8, 8, 1)", "__global const float *restrict A",
        "__global float *restrict C", "__local float A_shared[128];",
        "__local float B_shared[128];", "get_group_id(0)", "get_group_id(1)",
        "get_local_id(0)", "get_local_id(1)",
    ):  # fmt: skip
        assert part in text, f"no {part} in:\n{text}"
    assert text.count("barrier(CLK_LOCAL_MEM_FENCE);") == 2


@pytest.mark.parametrize("which", [0, 1])
def test_each_barrier_is_needed(which: int) -> None:
    """Without the first, a step overwrites what others still read; without the second, one reads
    what others have yet to write.
    """
    lowered = lower(scheduled(), MACHINE)
    assert sum(n == BARRIER for n in visit(lowered.body)) == 2
    kept = 0

    def remove(n: Any) -> Any:
        nonlocal kept
        if not isinstance(n, Seq) or BARRIER not in n.stmts:
            return n
        stmts = []
        for s in n.stmts:
            gone = s == BARRIER and kept == which
            kept += s == BARRIER
            stmts += [] if gone else [s]
        return Seq(tuple(stmts))

    broken = lowered.replace(body=rewrite(lowered.body, (Seq,), remove))
    assert sum(n == BARRIER for n in visit(broken.body)) == 1
    with pytest.raises(RaceError):
        interpreted(broken)


def test_kernels_share_a_workspace() -> None:
    """Two launches of a size known when they run, the first into memory between them; tails are
    guarded.
    """
    n = te.var("n")
    x = te.placeholder((n,), name="X")
    y = te.compute((n,), lambda i: te.sigmoid(x[i]) * 2.0, name="Y")
    z = te.compute((n,), lambda j: y[n - 1 - j] + te.tanh(x[j]), name="Z")
    s = Schedule(te.func("two", [x], [z]))
    for name in ("Y", "Z"):
        outer, inner = s.split(s.loops(name)[0], (None, 32))
        s.bind(outer, "blockIdx.x")
        s.bind(inner, "threadIdx.x")
    value = np.random.default_rng(1).standard_normal(70).astype(np.float32)
    got = np.zeros_like(value)
    source = on_device(s.func, value, got, n=70)
    assert len(source.launches) == 2 and len(source.workspace) == 1
    want = (2 / (1 + np.exp(-value.astype(np.float64))))[::-1] + np.tanh(value.astype(np.float64))
    np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", ["f32", "f16", "i8", "u64", "i4"])
def test_operators(name: str) -> None:
    """The device and the interpreter agree on every operator and conversion; packed numbers are
    only read.
    """
    of = dtype(name)
    ops = [op for op in operators_of(of) if not of.is_packed or op in COMPARISONS]
    ops += [to for to in ALL if to is not of and not to.is_packed]
    func, outs = program(of, ops, "serial")
    arrays = []
    for op in ops:
        a, b = operands(of, op if isinstance(op, BinaryOp) else None)
        arrays += [a, b] if isinstance(op, BinaryOp) else [a]
    want = [np.zeros(COUNT, o.dtype.numpy) for o in outs]
    got = [np.zeros(COUNT, o.dtype.numpy) for o in outs]
    interp.run(func, *arrays, *want)
    on_device(func, *(pack(a, of) if of.is_packed else a for a in arrays), *got)
    for op, out, g, w in zip(ops, outs, got, want, strict=True):
        with np.errstate(all="ignore"):
            same(g, w, out.dtype, f"{getattr(op, 'name', op)} on {of}")
