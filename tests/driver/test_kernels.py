"""Workers that compile kernels: where they come from, and that they end with who started them."""

from __future__ import annotations

import os
import re
import select
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright
from tests.driver.conftest import DIGITS, native
from tilewright.codegen.llvm import MOST_INLINE
from tilewright.codegen.llvm_compile import compile_object
from tilewright.codegen.objects import EMPTY, Object, _pool
from tilewright.driver import kernels
from tilewright.driver.compile import compile_observed
from tilewright.driver.kernels import MOST, SERVE, Job, Kernel, KernelPool
from tilewright.graph import Builder
from tilewright.ir.parse import parse_func
from tilewright.support.errors import InternalFault
from tilewright.target.target import target

PATIENCE = 300  # seconds after which what does not end is said not to
ROWS = (700, 48), (900, 48), (700, 64)


@pytest.mark.skipif(os.name != "posix", reason="other systems keep the number of a dead parent")
@pytest.mark.parametrize("is_up", [False, True], ids=["while it starts", "later"])
def test_a_worker_ends_with_its_parent(is_up: bool) -> None:
    """Its pipe stays open here, as it does while a worker is busy and does not read."""
    code = f"""
import os, subprocess, sys, time
serve = "import sys; " + {SERVE!r}
subprocess.Popen([sys.executable, "-c", serve, str(os.getpid())])
print("started", flush=True)
time.sleep(600)
"""
    command, pipe = [sys.executable, "-c", code], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe) as parent:
        assert parent.stdin is not None and parent.stdout is not None
        assert parent.stdout.readline() == b"started\n"
        if is_up:
            kernels._send(parent.stdin, Job(parse_func(FUNCS["small"]), "cpu", 1))
            kernels._receive(parent.stdout)
        parent.kill()
        ended, _, _ = select.select([parent.stdout], [], [], PATIENCE)
        assert ended, "the worker outlives its parent"
        assert parent.stdout.read() == b""  # nobody has the other end


FUNCS = {
    name: f"""
def {name}({", ".join(f"{b}: f32[8]" for b in buffers)}):
    for i in serial(0, 8):
        with block("B"):
            s = spatial(8, i)
            reads({", ".join(f"{b}[s]" for b in buffers[1:])})
            writes(A[s])
            A[s] = {" + ".join(["1.0", *(f"{b}[s]" for b in buffers[1:])])}
"""
    for name, buffers in {"small": "A", "middle": "AB", "large": "ABC"}.items()
}


def test_workers_run_nothing_that_lies_beside_a_model(tmp_path: Path) -> None:
    """A program elsewhere compiles where files have the names of modules."""
    names = "numpy ml_dtypes llvmlite tilewright pickle struct typing sitecustomize"
    for name in names.split():
        (tmp_path / f"{name}.py").write_text(f"open('ran', 'a').write('{name} ')")
    (tmp_path / "elsewhere").mkdir()
    program = tmp_path / "elsewhere" / "program.py"
    program.write_text(
        "import tilewright as tw\n"
        "from tilewright.driver.compile import compile_observed\n"
        "from tilewright.driver.kernels import KernelPool\n"
        "with KernelPool(4) as pool:\n"
        f"    exe = compile_observed({str(DIGITS)!r}, cache=False, pool=pool)\n"
        "    assert len(pool._processes) == 2\n"
        "print(exe.name)\n"
    )
    found = {"PYTHONPATH": str(Path(tilewright.__file__).parents[1])}  # it may be a relative folder
    done = subprocess.run(
        [sys.executable, program], cwd=tmp_path, capture_output=True, text=True, check=False,
        env=os.environ | found,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert not (tmp_path / "ran").exists()


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="nothing tells the threads")
def test_a_worker_has_no_threads_for_products() -> None:
    """NumPy's library starts one for each core, and all of them spin at first."""
    with KernelPool(4) as pool:
        pool.start()
        for process in pool.processes:
            kernels._send(process.stdin, Job(parse_func(FUNCS["small"]), "cpu", 1))
            kernels._receive(process.stdout)
            assert len(os.listdir(f"/proc/{process.pid}/task")) == 2  # it, and who ends it


def program(pool: KernelPool) -> bytes:
    """An artifact of the digits, of kernels that the pool compiled."""
    with pool:
        return bytes(compile_observed(DIGITS, threads=1, cache=False, pool=pool).artifact())


def test_however_many_compile_the_code_is_the_same() -> None:
    one = program(KernelPool(1))
    assert program(KernelPool(2)) == one
    assert program(KernelPool(3)) == one


def test_code_is_the_same_whatever_it_was_compiled_with(monkeypatch: pytest.MonkeyPatch) -> None:
    """One by one, some at once, all at once."""
    made: list[bytes] = []
    for most in (1, 10_000, 10_000_000):
        monkeypatch.setattr(kernels, "BATCH", most)
        made.append(program(KernelPool(1)))
    assert made[0] == made[1] == made[2]


def told_if_alone(whole: Object, code: int, data: int) -> range | None:
    """Where a function's long constants lie, if no others are in the object."""
    several = sum(name.startswith("k") for name, _, _ in whole.symbols) > 1
    return None if several else _pool(whole, code, data)


def test_code_that_cannot_be_told_from_that_of_others_is_made_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Vectors of 64 bytes lie in a section in which nothing says where one begins: a function's are
    told by where they lie or, if they were not, the kernel has an object of its own."""
    machine = "cpu -mcpu=skylake-avx512"
    rows = [exponentials(n).replace("f32[8]", "f32[64]").replace("8", "64") for n in (1, 2)]
    every_other = rows[0].replace("B: f32[64]", "B: f32[128]").replace("B[s]", "B[s * 2]")
    jobs = [Job(parse_func(text), machine, 1) for text in (rows[0], every_other, rows[1])]
    alone = [kernels.compile_kernel(job).code for job in jobs]
    texts = texts_for_llvm(monkeypatch)
    for expected in ([3], [3, 1]):
        texts.clear()
        with KernelPool(1) as pool:
            made = pool.compile(jobs)
        assert [text.count("define void") for text in texts] == expected
        assert [k.code for k in made] == alone
        monkeypatch.setattr("tilewright.codegen.objects._pool", told_if_alone)


def texts_for_llvm(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that kernels are compiled from, one by one."""
    texts: list[str] = []

    def seen(text: str, machine: Any, *, verify: bool) -> bytes:
        texts.append(text)
        return compile_object(text, machine, verify=verify)

    native(monkeypatch, kernels, compile_object=seen)
    return texts


def test_kernels_that_follow_one_another_go_to_llvm_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Which ones depends on their texts alone, not on who wrote them, or when."""
    monkeypatch.setattr(kernels, "BATCH", 12_000)
    jobs = [Job(parse_func(exponentials(n)), "cpu", 1) for n in range(1, 12)]
    jobs.append(replace(jobs[0], target="cpu -mcpu=haswell"))
    found: list[list[list[int]]] = []
    for cores in (1, 2, 3):
        with monkeypatch.context() as patch, KernelPool(cores) as pool:
            texts = texts_for_llvm(patch)
            made = pool.compile(jobs)
        assert [kernel.name for kernel in made] == [job.func.name for job in jobs]
        symbols = [kernel.entries[0].symbol for kernel in made]
        defined = [re.findall(r'define void @"(\w+)"', text) for text in texts]
        found.append(sorted([symbols.index(s) for s in some] for some in defined))
        for symbol, kernel in zip(symbols, made, strict=True):
            assert [name for name, _, _ in kernel.code.symbols] == [symbol]
    assert found[0] == found[1] == found[2]
    assert [n for some in found[0] for n in some] == [*range(12)]
    assert len(found[0][0]) > 1 and found[0][-1] == [11]  # another target's is alone


def exponentials(n: int) -> str:
    """A function that adds n of them: LLVM is told to inline few, and to call many."""
    value = " + ".join(f"exp(B[s] * {k}.0)" for k in range(n))
    return f"""
def rows{n}(A: f32[8], B: f32[8]):
    for i in serial(0, 8):
        with block("B"):
            s = spatial(8, i)
            reads(B[s])
            writes(A[s])
            A[s] = {value}
"""


def test_functions_are_inlined_as_if_a_kernel_were_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilewright.codegen.llvm.MOST_LINES", 0)
    build, lanes = Builder("powers"), target("cpu").lanes(32)
    x = build.input("x", "f32", (4 * lanes,))
    many = x
    for _ in range(MOST_INLINE + 1):
        many = build.emit("exp", build.emit("neg", many))
    outputs = {"many": many, "one": build.emit("softmax", build.emit("exp", x))}
    texts = texts_for_llvm(monkeypatch)
    made = compile_observed(build.finish(outputs), threads=1, cache=False, pool=KernelPool(1))
    found = re.findall(rf'\.exp\.f32\.v{lanes}"\(.* (#[12]) section', texts[0])
    assert sorted(found) == ["#1", "#2"]
    given = np.random.default_rng(7).standard_normal(4 * lanes, np.float32)
    many = one = given.astype(np.float64)
    for _ in range(MOST_INLINE + 1):
        many = np.exp(-many)
    one = np.exp(np.exp(one))
    for y, want in zip(made(given), (many, one / one.sum()), strict=True):
        np.testing.assert_allclose(y, want, rtol=1e-5)


def test_kernels_that_differ_in_nothing_but_rounds_share_their_code(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rows of one length, so many and more; a third one's rows are longer."""
    build = Builder("equal")
    inputs = [build.input(f"x{n}", "f32", (rows, long)) for n, (rows, long) in enumerate(ROWS)]
    graph = build.finish({f"y{n}": build.emit("softmax", x) for n, x in enumerate(inputs)})
    texts = texts_for_llvm(monkeypatch)
    made = compile_observed(graph, threads=2, cache=False, pool=KernelPool(2))
    assert [text.count("define void") for text in texts] == [2]
    alone = compile_observed(graph, threads=2, cache=False, pool=KernelPool(1))
    assert alone.artifact() == made.artifact()
    arrays = [np.random.default_rng(7).standard_normal(of, np.float32) for of in ROWS]
    for x, y in zip(arrays, made(*arrays), strict=True):
        e = np.exp(x.astype(np.float64) - x.max(-1, keepdims=True))
        np.testing.assert_allclose(y, e / e.sum(-1, keepdims=True), rtol=1e-5)


def test_two_cores_are_this_process() -> None:
    """Each other process would load the compiler once more."""
    with KernelPool(2).start() as pool:
        assert not pool._processes
    with KernelPool(100) as pool:
        assert pool.most == MOST


def test_both_threads_translate_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    translate, first, second = kernels.translate, threading.Event(), threading.Event()
    monkeypatch.setattr(kernels, "BATCH", 1)

    def together(written: Any) -> list[Kernel]:
        if first.is_set():
            second.set()
        first.set()
        second.wait(20)
        return translate(written)

    monkeypatch.setattr(kernels, "translate", together)
    program(KernelPool(2))
    assert second.is_set()


def test_it_begins_with_the_first_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes while LLVM is busy waits until all jobs are known."""
    write, translate = kernels.write, kernels.translate
    inside, go_on = threading.Event(), threading.Event()
    order: list[str] = []
    monkeypatch.setattr(kernels, "BATCH", 1)

    def writes(job: Job) -> Any:
        order.append(job.func.name)
        return write(job)

    def waits(written: Any) -> list[Kernel]:
        inside.set()
        go_on.wait(20)
        return translate(written)

    monkeypatch.setattr(kernels, "write", writes)
    monkeypatch.setattr(kernels, "translate", waits)
    with KernelPool(2).work() as work:
        for name, text in FUNCS.items():
            work.add(Job(parse_func(text), "cpu", 1))
            assert inside.wait(20)
            assert order == ["small"], name
        go_on.set()
        made = work.finish()
    assert order == ["small", "middle", "large"]
    assert [kernel.name for kernel in made] == list(FUNCS)


def test_what_is_stopped_while_jobs_come_ends_its_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "BATCH", 1)
    with pytest.raises(KeyboardInterrupt), KernelPool(2).work() as work:
        work.add(Job(parse_func(FUNCS["small"]), "cpu", 1))
        raise KeyboardInterrupt
    (translator,) = work._translators
    translator.join(20)
    assert not translator.is_alive()


def test_faults_of_both_halves_are_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise InternalFault("no")

    for half in ("emit", "compile_object"):
        with monkeypatch.context() as patch, pytest.raises(InternalFault, match=r"^no"):
            native(patch, kernels, **{half: fail})
            program(KernelPool(2))


def test_what_stops_it_is_not_held_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    native(monkeypatch, kernels, emit=interrupt)
    with pytest.raises(KeyboardInterrupt):
        program(KernelPool(2))


def test_what_needs_no_code_is_done_while_llvm_makes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    translate, told = kernels.translate, threading.Event()

    def late(written: Any) -> list[Kernel]:
        assert told.wait(20)
        return translate(written)

    monkeypatch.setattr(kernels, "translate", late)
    with KernelPool(2) as pool, pool.work() as work:
        for n in (1, 2):
            work.add(Job(parse_func(exponentials(n)), "cpu", 1))
        written = work.written()
        told.set()
        made = work.finish()
    assert [(k.name, k.entries, k.code) for k in written] == [
        (k.name, k.entries, EMPTY) for k in made
    ]
    assert all(k.code.sections for k in made)
