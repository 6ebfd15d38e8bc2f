"""What vectors read across memory is read along it: lines, transposed in registers."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tilewright.codegen import inprocess, llvm_statements
from tilewright.codegen.llvm import emit
from tilewright.codegen.llvm_compile import compile_assembly
from tilewright.codegen.llvm_transpose import transposable
from tilewright.driver.compile import compile_observed
from tilewright.driver.kernels import KernelPool
from tilewright.graph import OPERATORS, Builder
from tilewright.ir.parse import parse_func
from tilewright.ir.stmt import For
from tilewright.lower.flatten import flatten
from tilewright.lower.pipeline import lower
from tilewright.target.target import target

POOL = KernelPool(1)
MACHINES = ["skylake-avx512", "haswell", "nehalem"]
LANES = {"skylake-avx512": 16, "haswell": 8, "nehalem": 4}
TRANSPOSED = """
def transposed(A: f32[40, 48], B: f32[48, 40]):
    for i_o in serial(0, {blocks}):
        for j_o in serial(0, {vectors}):
            for i in unroll(0, {rows}):
                for j in vectorize(0, {lanes}):
                    {store}
"""
HERE, THERE = "B[i_o * {rows} + i, j_o * {lanes} + j]", "A[j_o * {lanes} + j, i_o * {rows} + i]"
STORES = {  # what stands in the vectorised loop, and whether lines are read
    "copied": (f"{HERE} = {THERE}", True),
    "with more": (f"{HERE} = {THERE} * 2.0 + A[i, j_o * {{lanes}} + j]", True),
    "in some lanes": (f"{HERE} = select(j < 3, {THERE}, 0.5)", True),
    "in lanes of each round": (f"{HERE} = select(j < i, {THERE}, 0.5)", False),
    "backwards": (f"{HERE} = A[j_o * {{lanes}} + j, 47 - i_o * {{rows}} - i]", False),
}


def program(case: str, rows: int, lanes: int) -> str:
    store = STORES[case][0].format(rows=rows, lanes=lanes)
    blocks, vectors = 48 // rows, 40 // lanes
    return TRANSPOSED.format(rows=rows, lanes=lanes, blocks=blocks, vectors=vectors, store=store)


def wanted(case: str, a: np.ndarray, rows: int, lanes: int) -> np.ndarray:
    """What the program writes, number by number."""
    b = np.zeros((48, 40), np.float32)
    for r in range(48 // rows * rows):
        for c in range(40 // lanes * lanes):
            i, j = r % rows, c % lanes
            b[r, c] = {
                "copied": a[c, r],
                "with more": a[c, r] * np.float32(2) + a[i, c],
                "in some lanes": a[c, r] if j < 3 else 0.5,
                "in lanes of each round": a[c, r] if j < i else 0.5,
                "backwards": a[c, 47 - r],
            }[case]
    return b


@pytest.mark.parametrize("rows", [2, 3])
@pytest.mark.parametrize("case", STORES)
@pytest.mark.parametrize("cpu", MACHINES)
def test_lines_are_read(cpu, case, rows):
    machine = target(f"cpu -mcpu={cpu}")
    lanes = LANES[cpu]
    func = lower(parse_func(program(case, rows, lanes)), machine)
    text = emit(func, machine).text
    lines = re.findall(rf"load <{rows} x float>", text)
    on = 3 if case == "in some lanes" else lanes
    assert len(lines) == (on if STORES[case][1] else 0)


@pytest.mark.parametrize(
    ("rows", "halves"), [(5, 0), (6, 0), (7, 4), (9, 0), (11, 8), (13, 8), (16, 0)]
)
def test_lines_of_bytes_that_are_no_power_of_two(rows, halves):
    """They are two vectors that overlap, not what is left over byte by byte; of two parts the
    second is inserted."""
    text = program("copied", rows, 16).replace("f32", "u8")
    machine = target("cpu -mcpu=skylake-avx512")
    made = emit(lower(parse_func(text), machine), machine).text
    assert len(re.findall(rf"load <{halves or rows} x i8>", made)) == (32 if halves else 16)
    a = np.random.default_rng(rows).integers(0, 256, (40, 48), np.uint8)
    b = np.zeros((48, 40), np.uint8)
    inprocess.run(parse_func(text), a, b)
    whole = 48 // rows * rows
    np.testing.assert_array_equal(b[:whole, :32], a.T[:whole, :32])


@pytest.mark.parametrize("rows", [2, 3, 4, 8, 13, 16])
@pytest.mark.parametrize("case", STORES)
def test_the_same_numbers(case, rows):
    a = np.random.default_rng(7).standard_normal((40, 48), np.float32)
    b = np.zeros((48, 40), np.float32)
    inprocess.run(parse_func(program(case, rows, 16)), a, b)
    np.testing.assert_array_equal(b, wanted(case, a, rows, 16))


@pytest.mark.parametrize("lanes", [2, 4])
@pytest.mark.parametrize("rows", [3, 8, 13])
@pytest.mark.parametrize("case", STORES)
def test_fewer_lanes_than_rounds(case, rows, lanes):
    """Two lines or four become many short columns."""
    a = np.random.default_rng(7).standard_normal((40, 48), np.float32)
    b = np.zeros((48, 40), np.float32)
    func = parse_func(program(case, rows, lanes))
    inprocess.run(func, a, b)
    np.testing.assert_array_equal(b, wanted(case, a, rows, lanes))


OPEN = """
def transposed(A: f32[n, 16], B: f32[16, 16], n: i64):
    for i in unroll(0, 16):
        for j in vectorize(0, 16):
            B[i, j] = select(j < n, A[j, i], 0.5)
"""


@pytest.mark.parametrize("n", [0, 1, 7, 15, 16, 19])
def test_lines_of_lanes_that_the_run_knows(n):
    """None is read beyond the last, as memory behind it may not be there."""
    a = np.random.default_rng(7).standard_normal((n, 16), np.float32)
    b = np.zeros((16, 16), np.float32)
    inprocess.run(parse_func(OPEN), a, b, symbols={"n": n})
    expected = np.full((16, 16), 0.5, np.float32)
    expected[:, :n] = a.T[:, :16]
    np.testing.assert_array_equal(b, expected)
    machine = target("cpu -mcpu=skylake-avx512")
    assert "gather" not in emit(lower(parse_func(OPEN), machine), machine).text


REPEATED = """
def repeated(A: f32[n, {size}], B: f32[6, 16], n: i64):
    for i in unroll(0, 6):
        for j in vectorize(0, 16):
            B[i, j] = A[j % n, {index}]
"""


PHASES = """
def phases(A: f32[2, n], B: f32[n, 2], n: i64):
    for i_o in serial(0, n // 8):
        for i in unroll(0, 8):
            for j in vectorize(0, 2):
                B[i_o * 8 + i, j] = A[j, i_o * 8 + i]
"""


def test_phases_that_lie_apart_by_an_open_size():
    """They are two lines, no sixteen numbers."""
    machine = target("cpu -mcpu=haswell")
    text = emit(lower(parse_func(PHASES), machine), machine).text
    assert len(re.findall("load <8 x float>", text)) == 2
    assert "gather" not in text
    a = np.random.default_rng(7).standard_normal((2, 40), np.float32)
    b = np.zeros((40, 2), np.float32)
    inprocess.run(parse_func(PHASES), a, b, symbols={"n": 40})
    np.testing.assert_array_equal(b, a.T)


@pytest.mark.parametrize("size, index, line", [(2, "i % 2", 2), (4, "min(i, 3)", 4)])
def test_lines_end_where_rounds_do_not_walk_on(size, index, line):
    """Behind the last row may be no memory."""
    text = REPEATED.format(size=size, index=index)
    a = np.random.default_rng(7).standard_normal((5, size), np.float32)
    b = np.zeros((6, 16), np.float32)
    inprocess.run(parse_func(text), a, b, symbols={"n": 5})
    columns = [{"i % 2": i % 2, "min(i, 3)": min(i, 3)}[index] for i in range(6)]
    np.testing.assert_array_equal(b, a[np.arange(16) % 5][:, columns].T)
    machine = target("cpu -mcpu=skylake-avx512")
    read = re.findall(r"load <(\d+) x float>", emit(lower(parse_func(text), machine), machine).text)
    assert set(map(int, read)) == {line}


def test_a_loop_is_looked_at_once(monkeypatch):
    """However often the loops around it are unrolled."""
    seen = []
    monkeypatch.setattr(llvm_statements, "transposable", lambda s, _: seen.append(s))
    text = """
def often(A: f32[4, 8, 16], B: f32[4, 8, 16]):
    for a in unroll(0, 4):
        for i in unroll(0, 8):
            for j in vectorize(0, 16):
                B[a, i, j] = A[a, i, j] * 2.0
"""
    machine = target("cpu -mcpu=haswell")
    emit(lower(parse_func(text), machine), machine)
    assert len(seen) == len(set(map(id, seen)))


@pytest.mark.parametrize(
    ("index", "asked"),
    [
        ("A[j, i]", True),
        ("A[j, i * 2]", False),
        ("A[i, j]", False),
        ("A[j // 2, i]", True),
        ("A[j // 2, i * 2]", False),
    ],
)
def test_what_is_plainly_no_square_is_not_asked_for(index, asked):
    text = f"""
def copy(A: f32[64, 64], B: f32[16, 16]):
    for i in unroll(0, 16):
        for j in vectorize(0, 16):
            B[i, j] = {index} * 2.0
"""
    stmt = flatten(parse_func(text)).body
    assert isinstance(stmt, For)
    assert (transposable(stmt, 4) is not None) is asked


def test_transposition_needs_no_tables_of_indices():
    """Each step is one instruction with its indices in it: blocks are interleaved, or moved."""
    machine = target("cpu -mtriple=x86_64-unknown-linux-gnu -mcpu=skylake-avx512")
    func = lower(parse_func(program("copied", 16, 16)), machine)
    code = compile_assembly(emit(func, machine).text, machine)
    assert "vunpcklps" in code
    assert not re.search(r"vpermt2|vpermi2|vpermps", code)


@pytest.mark.parametrize("cpu", MACHINES)
def test_steps_of_a_large_square_are_not_joined(cpu):
    """A fence for each line between two steps, which is no instruction of the machine."""
    machine, lanes = target(f"cpu -mtriple=x86_64-unknown-linux-gnu -mcpu={cpu}"), LANES[cpu]
    func = lower(parse_func(program("copied", lanes, lanes)), machine)
    text = emit(func, machine).text
    steps = lanes.bit_length() - 1
    assert len(re.findall(r"call .* @llvm.arithmetic.fence", text)) == (
        lanes * (steps - 1) if steps > 2 else 0
    )
    code = compile_assembly(text, machine)
    assert "ARITH_FENCE" not in re.sub(r"#.*", "", code)


@pytest.mark.parametrize("dtype", ["f32", "f64", "f16", "i8", "i64"])
@pytest.mark.parametrize(
    ("shape", "perm"),
    [
        ((3, 20, 35), (0, 2, 1)),
        ((20, 3, 35), (1, 2, 0)),
        ((2, 17, 5, 9), (0, 2, 3, 1)),
        ((2, 5, 9, 17), (0, 3, 1, 2)),
        ((129, 70), (1, 0)),
        ((100, 8), (1, 0)),
        ((8, 100), (1, 0)),
    ],
)
def test_transposes(dtype, shape, perm):
    build = Builder("g")
    x = build.input("x", dtype, shape)
    graph = build.finish({"y": build.emit("transpose", x, perm=perm)})
    a = (np.random.default_rng(7).standard_normal(shape) * 50).astype(x.dtype.numpy)
    found = compile_observed(graph, cache=False, pool=POOL, threads=2)(a)[0]
    np.testing.assert_array_equal(found, a.transpose(perm))


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("space", [(7, 7), (14, 13), (9, 31)])
@pytest.mark.parametrize("channels", [6, 16, 20, 24, 64])
def test_packed_and_back(channels, space, groups):
    build = Builder("g")
    x = build.input("x", "f32", (2, channels, *space))
    packed = build.emit("pack_channels", x, block=16, groups=groups)
    back = build.emit(
        "relu", build.emit("unpack_channels", packed, channels=channels, groups=groups)
    )
    graph = build.finish({"packed": packed, "back": back})
    a = np.random.default_rng(7).standard_normal((2, channels, *space), np.float32)
    found = compile_observed(graph, cache=False, pool=POOL)(a)
    reference = OPERATORS["pack_channels"].reference(a, block=16, groups=groups)
    np.testing.assert_array_equal(found[0], reference)
    np.testing.assert_array_equal(found[1], np.maximum(a, 0))
