"""A process that may not have more memory gets an error that says so, and goes on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from tilewright.driver import kernels
from tilewright.driver.compile import kernel_jobs, prepare
from tilewright.driver.kernels import KernelPool
from tilewright.driver.observe import Watch
from tilewright.graph import Builder
from tilewright.runtime.artifact import MAGIC
from tilewright.runtime.bindings import lib
from tilewright.support.errors import MemoryFault
from tilewright.support.memory import memory_limit
from tilewright.target.target import target

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits address space")

CHILD = """
import resource, sys
import numpy as np
import tilewright as tw
import tilewright.backend.cpu
import tilewright.driver.compile
from tilewright.graph import Builder

path, most = sys.argv[1], resource.getrlimit(resource.RLIMIT_AS)[1]

def try_with(megabytes, what, result=None):
    pages = int(open("/proc/self/statm").read().split()[0])
    less = pages * resource.getpagesize() + (megabytes << 20)
    resource.setrlimit(resource.RLIMIT_AS, (less, most))
    try:
        what()
        told = "done"
    except tw.TilewrightError as fault:
        assert isinstance(fault, MemoryError), fault
        told = str(fault).splitlines()[0]
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
    print(told, flush=True)

def graph():
    build = Builder()
    x = build.input("x", "f32", (64, 64))
    w = build.constant(np.ones((64, 64), np.float32))
    return build.finish([build.emit("matmul", x, w)])

few, many = np.ones((4, 512), np.float32), np.ones((1 << 17, 512), np.float32)
try_with(1, lambda: tw.load(path, threads=1))
exe = tw.load(path, threads=1)
try_with(0, lambda: exe(many))
try_with(300, lambda: exe(many))
try_with(8, lambda: exe(few))
try_with(16, lambda: tw.load(path, threads=16))
try_with(8, lambda: tw.compile(graph(), cache=False, threads=1))
tw.compile(graph(), cache=False, threads=1)  # with all of LLVM that its first call loads
try_with(8, lambda: tw.compile(graph(), cache=False, threads=1))
made = tw.compile(graph(), cache=False, threads=1)(np.ones((64, 64), np.float32))[0]
print((made == 64).all(), exe(few)[0].shape)
"""


def dense(layers: int = 2):
    rng = np.random.default_rng(1)
    build = Builder("dense")
    x = build.input("x", "f32", (build.symbol("n"), 512))
    for _ in range(layers):
        w = build.constant(rng.standard_normal((512, 512), np.float32))
        x = build.emit("relu", build.emit("matmul", x, w))
    return build.finish([x])


def test_what_cannot_be_had_is_told_and_the_process_goes_on(tmp_path):
    tw.compile(dense(), cache=False, threads=1).save(tmp_path / "m.tw")
    command = [sys.executable, "-c", CHILD, str(tmp_path / "m.tw")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    load, output, arena, fits, threads, first, compiled, last = done.stdout.splitlines()
    assert load.startswith("cannot load the artifact: out of memory") and " bytes" in load
    assert output.startswith("cannot run 'dense': out of memory: output 0")
    assert "[131072, 512] has 268435456 bytes" in output and " MB)" in output
    assert "these shapes need an arena of 268435456 bytes" in arena
    assert fits == "done"
    assert threads.startswith("cannot run 'dense': out of memory: 16 threads cannot be started")
    assert first.startswith("cannot compile this Graph: out of memory")
    assert compiled.startswith("cannot compile this Graph: out of memory in stage 'kernels'")
    assert "LLVM may need" in compiled
    assert last == "True (4, 512)"


def jobs():
    build = Builder()
    outputs = [
        build.emit(op, build.input(op, "f32", (5, k)), axis=-1)
        for k, op in enumerate(("softmax", "log_softmax", "cumsum"), 3)
    ]
    machine = target("cpu")
    fused = prepare(build.finish(outputs), machine, 1)
    return kernel_jobs(fused, machine, 1, Watch())[-1]


def test_a_worker_that_runs_out_of_memory_is_an_error(monkeypatch):
    monkeypatch.setattr(kernels, "SERVE", "import os; os.abort()")
    with KernelPool(4) as pool, pytest.raises(MemoryFault, match="worker ran out of memory"):
        pool.start().compile(jobs())


@pytest.mark.parametrize("serve", ["raise SystemExit(1)", "never started"])
def test_without_workers_the_process_compiles_by_itself(serve, monkeypatch):
    def refuse(*_: object, **__: object) -> None:
        raise OSError(12, "Cannot allocate memory")

    if serve == "never started":
        monkeypatch.setattr(subprocess, "Popen", refuse)
    monkeypatch.setattr(kernels, "SERVE", serve)
    with KernelPool(4) as pool:
        made = pool.start().compile(jobs())
    assert len(made) == 3 and all(kernel.code for kernel in made)


def test_a_stage_that_runs_out_of_memory_is_named(monkeypatch):
    def fold(*_: object) -> None:
        raise MemoryError("Unable to allocate 3 GiB")

    monkeypatch.setattr("tilewright.driver.compile.prepare", fold)
    with pytest.raises(
        MemoryFault, match="in stage 'passes' of compiling: Unable to allocate 3 GiB"
    ):
        tw.compile(dense(), cache=False, threads=1)


def test_a_file_with_a_hole_is_not_read_into_memory(tmp_path: Path):
    path = tmp_path / "hole.tw"
    for start, fault in ((MAGIC, MemoryFault), (b"something else", tw.ArtifactError)):
        with path.open("wb") as file:
            file.write(start)
            file.truncate(1 << 42)
        with pytest.raises(fault):
            tw.load(path)


@pytest.mark.parametrize(
    ("groups", "files", "least"),
    [
        ("0::/a/b", {"a/b/memory.max": "max", "a/memory.max": "5000000"}, 5_000_000),
        ("0::/a/b", {"a/b/memory.max": "7000", "a/memory.max": "5000000"}, 7_000),
        ("0::/", {"memory.max": "6000"}, 6_000),
        ("4:cpu,cpuacct:/a\n3:memory:/a/b", {"memory/a/memory.limit_in_bytes": "8000"}, 8_000),
        ("3:memory:/not/seen", {"memory/memory.limit_in_bytes": "9000"}, 9_000),
        ("3:memory:/a\n0::/", {"memory/a/memory.limit_in_bytes": str((1 << 63) - 4096)}, None),
        ("4:cpu:/a", {"memory/a/memory.limit_in_bytes": "1", "a/memory.max": "1"}, None),
        (None, {}, None),
    ],
)
def test_the_limits_of_control_groups(tmp_path: Path, groups, files, least) -> None:
    """The least of a group and those around it, of both versions; else the machine's memory."""
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if groups is not None:
        (tmp_path / "proc/self").mkdir(parents=True)
        (tmp_path / "proc/self/cgroup").write_text(groups + "\n")
    for name, content in files.items():
        path = tmp_path / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content + "\n")
    assert memory_limit(tmp_path) == (machine if least is None else least)
    assert 0 < memory_limit() <= machine


def test_what_a_container_may_not_have_is_refused(tmp_path: Path) -> None:
    build = Builder()
    x = build.input("x", "f32", (build.symbol("n"), 512))
    wide = build.emit("exp", build.emit("cumsum", x, axis=0))
    graph = build.finish([build.emit("cumsum", wide, axis=1)])
    exe = tw.compile(graph, cache=False, threads=1)
    x = np.zeros((1 << 14, 512), np.float32)  # 32 MB
    try:
        lib.tw_limit_memory(16 << 20)
        with pytest.raises(MemoryFault):
            exe(x)
    finally:
        lib.tw_limit_memory(memory_limit())
    assert np.asarray(exe(x)[0]).shape == x.shape
