"""Kernels come from the cache whoever left them there, and nothing of a model depends on it."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.driver.conftest import DIGITS
from tilewright.driver import compile as compile_module
from tilewright.driver import kernels
from tilewright.driver.compile import compile_observed, kernel_jobs, prepare
from tilewright.driver.kernel_cache import KernelCache
from tilewright.driver.kernels import Job, KernelPool
from tilewright.driver.observe import Watch
from tilewright.driver.source import open_source
from tilewright.graph import Builder, Graph
from tilewright.ir.text import print_func
from tilewright.runtime.executor import Executable
from tilewright.strategy.space import decisions, sample
from tilewright.support import knobs
from tilewright.support.cache import Cache
from tilewright.support.errors import CacheWarning
from tilewright.support.makers import MAKERS
from tilewright.support.sources import ROOT as PACKAGE
from tilewright.target.target import target

ROOT = Path(PACKAGE)


def net(classes: int = 10, seed: int = 0) -> Graph:
    """Two convolutions, a mean and a classifier."""
    random = np.random.default_rng(seed)

    def weights(*shape: int) -> Any:
        return build.constant(random.standard_normal(shape, np.float32) / 8)

    build = Builder("net")
    x = build.input("x", "f32", (1, 3, 12, 12))
    for channels, of in ((16, 3), (32, 16)):
        x = build.emit("conv", x, weights(channels, of, 3, 3), pads=((1, 1), (1, 1)))
        x = build.emit("relu", x)
    x = build.emit("reduce_mean", x, axes=(2, 3))
    return build.finish([build.emit("matmul", x, weights(32, classes))])


def compiled(graph: Graph | Path, **options: Any) -> Executable:
    return compile_observed(graph, threads=1, pool=KernelPool(1), **options)


def content(made: Executable) -> bytes:
    return bytes(made.artifact())


def note(made: Executable) -> str:
    """How many kernels were known."""
    return made.compile_stages.notes["kernels"]


def kept() -> list[Path]:
    """The files of kernels, which are longer than what is remembered of the sources, and no list,
    as what LLVM said of the machine is."""
    folder = knobs.kernel_folder()
    found = folder.iterdir() if folder.exists() else ()
    return sorted(p for p in found if p.stat().st_size > 100 and b'["' not in p.read_bytes()[:32])


def jobs_of(source: Graph | Path, threads: int = 1) -> list[Job]:
    machine = target("cpu")
    graph = source if isinstance(source, Graph) else open_source(source).graph()
    return kernel_jobs(prepare(graph, machine, 3), machine, threads, Watch())[-1]


@pytest.mark.parametrize("make", [net, lambda: DIGITS], ids=["graph", "file"])
def test_an_artifact_is_the_same_whatever_was_known(make: Callable[[], Any]) -> None:
    """No kernel, some of them, all of them: on one core and on two."""
    source = make()
    expected = content(compiled(source, cache=False))
    assert not kept()
    first = compiled(source)
    count = note(first).split()[-2]
    assert note(first) == f"0 of {count} known"
    assert content(first) == expected
    for gone in (slice(0, None, 2), slice(1, None, 3), slice(0, 0), slice(0, None)):
        for cores in (1, 2):
            for path in kept()[gone]:
                path.unlink()
            for path in knobs.cache_folder().iterdir():
                if path.is_file():
                    path.unlink()  # the model
            made = compile_observed(source, threads=1, pool=KernelPool(cores))
            assert content(made) == expected, note(made)
    last = compiled(make() if isinstance(source, Graph) else source)
    assert isinstance(source, Path) or note(last) == f"{count} of {count} known"


def test_what_is_known_is_not_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    made = compiled(net())
    x = np.random.default_rng(1).standard_normal((1, 3, 12, 12), np.float32)

    def fail(*_: object, **__: object) -> Any:
        raise AssertionError("there was nothing to do")

    monkeypatch.setattr(kernels, "write", fail)
    monkeypatch.setattr(kernels, "translate", fail)
    monkeypatch.setattr("tilewright.codegen.llvm_library.translated", fail)
    other = compiled(net(seed=1))  # other weights
    count = note(other).split()
    assert count[0] == count[2] and int(count[0]) > 2
    assert str(other.compile_stages).count("known)") == 1
    again = compiled(net())
    np.testing.assert_array_equal(again(x)[0], made(x)[0])
    assert not np.array_equal(other(x)[0], made(x)[0])


def test_another_classifier_is_one_new_kernel() -> None:
    compiled(net())
    found = note(compiled(net(classes=17))).split()
    assert int(found[0]) == int(found[2]) - 1


def test_a_job_s_name_is_not_what_it_is_known_by() -> None:
    cache, job = KernelCache(), jobs_of(net())[1]
    other = replace(job, func=job.func.replace(name="k7_something_else"))
    assert cache.key(job) == cache.key(other)
    one, two = kernels.compile_kernel(job), kernels.compile_kernel(other)
    assert replace(one, name="", seconds={}) == replace(two, name="", seconds={})


def test_kernels_that_differ_are_not_mistaken() -> None:
    """The key follows the printed function: models of the suite in which no two are equal."""
    cache = KernelCache()
    sources = net(), net(17), DIGITS
    jobs = [job for n in (1, 2) for source in sources for job in jobs_of(source, n)]
    jobs += [replace(job, target="cpu -mcpu=haswell") for job in jobs]
    jobs += [replace(job, point={"tile": 4}) for job in jobs]
    told = {(print_func(j.func.replace(name="f")), j.target, j.threads, str(j.point)) for j in jobs}
    assert len({cache.key(job) for job in jobs}) == len(told)


def test_each_process_knows_a_kernel_by_the_same_key() -> None:
    """The hash of a text differs from process to process."""
    program = (
        "from tests.driver.test_kernel_cache import *\n"
        "print(*[KernelCache().key(job) for job in jobs_of(DIGITS)])"
    )
    told = [python(program, PYTHONHASHSEED=str(seed)).split() for seed in (1, 2)]
    assert told[0] == told[1] == [KernelCache().key(job) for job in jobs_of(DIGITS)]


def python(program: str, **knobs: str) -> str:
    """What a program prints, in a process of its own."""
    paths = os.pathsep.join([str(ROOT.parent), str(ROOT.parents[1])])
    environment = os.environ | {"PYTHONPATH": paths} | knobs
    command = [sys.executable, "-c", program]
    return subprocess.run(
        command, env=environment, check=True, stdout=subprocess.PIPE, text=True
    ).stdout


def test_all_that_makes_kernels_is_in_the_key() -> None:
    """Whatever a process imports that writes and translates a job."""
    told = python(
        "import sys\n"
        "from tests.driver.test_kernels import FUNCS, Job, parse_func\n"
        "import pickle; job = pickle.dumps(Job(parse_func(FUNCS['large']), 'cpu', 2))\n"
        "for name in [n for n in sys.modules if n.startswith(('tilewright', 'tests'))]:\n"
        "    del sys.modules[name]\n"
        "from tilewright.driver.kernels import compile_kernel\n"
        "compile_kernel(pickle.loads(job))\n"
        "print(*[m.__file__ for n, m in sys.modules.items() if n.startswith('tilewright')])"
    ).split()
    found = {str(Path(file).relative_to(ROOT)) for file in told}
    others = {name for name in found if not name.startswith(MAKERS)}
    # names of packages, and what only watches: neither makes anything
    assert others == {"__init__.py", "driver/__init__.py", "driver/observe.py", "driver/stages.py"}


def test_a_point_is_another_kernel() -> None:
    job = next(j for j in jobs_of(net()) if "matmul" in j.func.name or "dense" in j.func.name)
    machine, own = target(job.target), kernels.compile_kernel(job)
    same = replace(job, point=own.point)
    assert kernels.compile_kernel(same).code == own.code
    others = [
        replace(job, point=decisions(sample(job.func, machine, 1, Random(seed))))
        for seed in range(6)
    ]
    codes = [kernels.compile_kernel(other).code for other in others]
    assert any(code != own.code for code in codes)
    points = {str(one.point) for one in (job, same, *others)}
    assert len({KernelCache().key(one) for one in (job, same, *others)}) == len(points)


def test_without_the_cache_nothing_is_known_or_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled(net(), cache=False)
    compiled(net(), observers=[lambda *_: None])
    monkeypatch.setenv("TILEWRIGHT_VERIFY", "1")
    compiled(net())
    assert not kept()
    monkeypatch.delenv("TILEWRIGHT_VERIFY")
    compiled(net())
    monkeypatch.setattr(KernelCache, "fetch", None)
    assert "kernels" not in compiled(net(), cache=False).compile_stages.notes


def test_damage_is_made_anew() -> None:
    """A kernel's bytes, and a kernel in the place of another."""
    expected = content(compiled(net()))
    paths = kept()
    for path in paths[::2]:
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
    os.replace(paths[1], paths[3])
    made = compiled(net())
    assert content(made) == expected
    assert content(compiled(net())) == expected and kept() == paths


@pytest.mark.skipif(os.name != "posix", reason="modes of files")
@pytest.mark.parametrize("folder", [knobs.kernel_folder, knobs.cache_folder])
def test_what_others_can_write_is_not_read(
    folder: Callable[[], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled(net())
    folder().chmod(0o777)
    with pytest.warns(CacheWarning, match="somebody else may write"):
        assert note(compiled(net())).startswith("0 of")


def test_a_folder_that_takes_no_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path / "file" / "cache"))
    assert note(compiled(net())).startswith("0 of")


KILLED = """
import os, signal
from tests.driver.test_kernel_cache import *
made, real = [], os.replace
def replace_or_die(a, b):
    if "kernels" in str(b):
        made.append(b)
        if len(made) - 2 == {n}:  # the sources' digest and the machine are two
            {early}
            os.kill(os.getpid(), signal.SIGKILL)
    real(a, b)
os.replace = replace_or_die
compiled(DIGITS)
"""


@pytest.mark.skipif(os.name != "posix", reason="SIGKILL")
@pytest.mark.parametrize("early", ["pass", "os.truncate(a, 120); real(a, b)"])
def test_a_compilation_that_is_killed_leaves_nothing_broken(early: str) -> None:
    """With some kernels kept, one of them half of itself."""
    with pytest.raises(subprocess.CalledProcessError) as end:
        python(KILLED.format(n=2, early=early))
    assert end.value.returncode == -9
    assert len(kept()) == 2
    for path in knobs.cache_folder().iterdir():
        if path.is_file():
            path.unlink()  # the model, which may have been written first
    made = compiled(DIGITS)
    assert note(made).startswith("1 of")
    assert content(made) == content(compiled(DIGITS, cache=False))


def test_kernels_are_kept_while_the_artifact_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    began, keep, write = threading.Event(), Cache.store_all, compile_module.write_artifact

    def keep_later(self: Cache, values: dict[str, bytes]) -> None:
        assert len(values) == 1 or began.wait(30)  # the sources' digest is one
        keep(self, values)

    def begin(*given: Any) -> None:
        began.set()
        write(*given)

    monkeypatch.setattr(Cache, "store_all", keep_later)
    monkeypatch.setattr(compile_module, "write_artifact", begin)
    count = note(compiled(net())).split()[-2]
    assert len(kept()) > int(count)  # with the host program, when all is done


def test_processes_share_it_at_once() -> None:
    """They compile, keep and find the same kernels meanwhile."""
    program = (
        "from tests.driver.test_kernel_cache import *\n"
        "made = compiled(net())\n"
        "print(hashlib.sha256(content(made)).hexdigest())"
    )
    paths = os.pathsep.join([str(ROOT.parent), str(ROOT.parents[1])])
    command, environment = [sys.executable, "-c", program], os.environ | {"PYTHONPATH": paths}
    running = [
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    told = {process.communicate()[0].strip() for process in running}
    last = compiled(net())
    assert told == {hashlib.sha256(content(last)).hexdigest()}
    count = note(last).split()
    assert count[0] == count[2]


def test_kernels_take_an_eighth_of_what_models_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE_MB", "1")
    store = KernelCache().store
    assert store.limit == 1 << 17
    store.store_all({f"{n:040x}": bytes(10_000) for n in range(20)})
    assert store.size() <= store.limit
    compiled(net())
    assert store.size() <= store.limit and note(compiled(net())).startswith("4 of")


def test_a_model_from_a_file_is_found_before_its_kernels() -> None:
    made = tw.compile(DIGITS, threads=1)
    assert "kernels" in made.compile_stages.notes
    assert not tw.compile(DIGITS, threads=1).compile_stages.notes
