"""The knobs that look into a compilation, also where kernels compile in other processes."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tests.driver.conftest import DIGITS, dense
from tilewright.driver import observe
from tilewright.driver.compile import compile_observed
from tilewright.driver.kernels import Job, compile_kernel
from tilewright.driver.stages import Stages
from tilewright.frontend.onnx import import_onnx
from tilewright.graph.parse import parse as parse_graph
from tilewright.ir.expr import as_int
from tilewright.ir.parse import parse_func
from tilewright.support.errors import UserFault, VerifyError


def test_dump_writes_every_form(model, tmp_path, monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_DUMP", str(tmp_path / "dump"))
    tw.compile(model, threads=1)
    folder = tmp_path / "dump/dense"
    files = sorted(p.name for p in folder.iterdir() if p.is_file())
    assert files[0] == "00_import.txt" and files[-1].endswith("_host.ll")
    assert {name[3:] for name in files} >= {"fuse.txt", "plan_memory.txt"}
    assert parse_graph((folder / files[0]).read_text()) == import_onnx(str(model))
    (kernel,) = (p for p in folder.iterdir() if p.is_dir())
    forms = {p.name[3:]: p.read_text() for p in kernel.iterdir()}
    for name in ("te.txt", "compact_buffers.txt", "flatten.txt"):
        assert parse_func(forms[name]).name == kernel.name
    assert f'define void @"{kernel.name}"' in forms["emit.ll"]
    assert f"{kernel.name}:" in forms["assembly.s"] or f'"{kernel.name}":' in forms["assembly.s"]


def test_dump_never_mixes_two_compilations(model, tmp_path, monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_DUMP", str(tmp_path / "dump"))
    for _ in range(3):
        tw.compile(model, threads=1)
    assert {p.name for p in (tmp_path / "dump").iterdir()} == {"dense", "dense-2", "dense-3"}


def test_dump_to_no_folder_is_the_users_fault(model, monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_DUMP", str(model))
    with pytest.raises(UserFault, match="cannot write to TILEWRIGHT_DUMP="):
        tw.compile(model, threads=1)


def test_the_knobs_reach_the_workers(tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("TILEWRIGHT_DUMP", str(tmp_path / "dump"))
    monkeypatch.setenv("TILEWRIGHT_PRINT", "after:flatten")
    monkeypatch.setenv("TILEWRIGHT_VERIFY", "1")
    exe = tw.compile(DIGITS, threads=1)
    names = {k.name for k in exe.manifest.kernels}
    assert len(names) > 2  # so many are compiled by workers
    assert {p.name for p in (tmp_path / "dump/digits").iterdir() if p.is_dir()} == names
    printed = capfd.readouterr().err
    for name in names:
        assert f"# after flatten ({name})\ndef {name}(" in printed


def test_print_shows_a_step_before_or_after(model, monkeypatch, capfd):
    monkeypatch.setenv("TILEWRIGHT_PRINT", "before:fuse")
    tw.compile(model, threads=1)
    assert capfd.readouterr().err.startswith("# before fuse\ndef dense(x: f32[2, 8]):\n")
    monkeypatch.setenv("TILEWRIGHT_PRINT", "after:*")
    tw.compile(model, threads=1)
    printed = capfd.readouterr().err
    for step in ("import", "canonicalise", "fuse", "plan_memory", "te", "simplify", "assembly"):
        assert f"# after {step}" in printed


def test_print_of_no_step_lists_the_steps(model, monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_PRINT", "after:flaten")
    with pytest.raises(UserFault) as caught:
        tw.compile(model)
    assert "cannot print after 'flaten': there is no such step" in str(caught.value)
    assert "the steps are import, eliminate_dead, " in str(caught.value)
    assert "flatten, " in str(caught.value)


def test_diff_shows_what_passes_changed(model, monkeypatch, capfd):
    monkeypatch.setenv("TILEWRIGHT_DIFF", "1")
    tw.compile(model, threads=1)
    printed = capfd.readouterr().err
    assert "# changed by flatten (k" in printed
    assert "\n-" in printed and "\n+" in printed


def test_time_shows_every_stage(model, monkeypatch, capfd):
    monkeypatch.setenv("TILEWRIGHT_TIME", "1")
    tw.compile(model, threads=1)
    fresh = capfd.readouterr().err
    for stage in ("import", "passes", "canonicalise", "te", "kernels", "schedule", "lower",
                  "flatten", "emit", "llvm", "plan", "host", "write", "load", "total"):  # fmt: skip
        assert stage in [line.split()[0] for line in fresh.split("\n") if line]
    tw.compile(model, threads=1)
    cached = capfd.readouterr().err
    assert "# compiling dense took\n" in cached and "llvm" not in cached


def test_a_look_inside_needs_a_fresh_compile(model, monkeypatch, capfd):
    tw.compile(model, threads=1)
    monkeypatch.setenv("TILEWRIGHT_PRINT", "after:fuse")
    tw.compile(model, threads=1)
    assert "# after fuse" in capfd.readouterr().err


def test_verify_finds_a_graph_that_breaks_its_laws(model):
    graph = import_onnx(str(model))
    broken = graph.replace(nodes=graph.nodes[::-1])
    with pytest.raises(VerifyError, match="the graph is not well formed after shuffle"):
        observe.Watch(verify=True).trail()("shuffle", graph, broken, 0.0)


def test_verify_finds_a_kernel_that_is_no_program():
    func = parse_func("def f(A: f32[4]):\n    for i in serial(0, 4):\n        A[i] = 1.0\n")
    twice = func.replace(params=func.params * 2)
    with pytest.raises(VerifyError, match="'f' is no program of stage 'blocks', after te"):
        compile_kernel(Job(twice, "cpu", 1, observe.Watch(verify=True)))


def test_observers_see_the_steps_of_the_model(model):
    seen = {}
    exe = compile_observed(
        model,
        threads=1,
        observers=[lambda step, before, after, seconds: seen.__setitem__(step, after)],
    )
    assert set(seen) == set(observe.model_steps())
    assert len([g for g in seen["fuse"].groups if not g.is_view]) == len(exe.manifest.kernels)


def test_progress_tells_stages_and_kernels(tmp_path):
    told = []
    stages = Stages(progress=lambda *news: told.append(news))
    compile_observed(DIGITS, threads=1, cache=False, stages=stages)
    names = [stage for stage, done, total in told if total == 0]
    assert [*dict.fromkeys(names)] == [name for name in stages.seconds if "/" not in name]
    kernels = [(done, total) for stage, done, total in told if stage == "kernels" and total]
    assert sorted(kernels)[-1][0] == kernels[0][1]


def test_parts_of_stages_are_not_counted_twice():
    stages = Stages()
    for name, seconds in (("a/x", 1.0), ("a/x/y", 0.5), ("b", 4.0), ("a", 2.0), ("b", 1.0)):
        stages.add(name, seconds)
    assert stages.total == 7.0
    assert stages.rows() == [
        (0, "b", 5.0), (0, "a", 2.0), (1, "x", 1.0), (2, "y", 0.5), (0, "total", 7.0)
    ]  # fmt: skip


def test_a_stage_inside_another_is_its_own():
    now = iter([0.0, 1.0, 3.0, 7.0])
    stages = Stages(clock=lambda: next(now))
    with stages("te"), stages("kernels"):
        pass
    assert stages.seconds == {"te": 5.0, "kernels": 2.0} and list(stages.seconds) == [
        "te",
        "kernels",
    ]


def test_what_is_dumped_is_what_runs(tmp_path, monkeypatch):
    """The interpreter computes from a dumped kernel what the compiled model gives."""
    from tilewright.ir import interp

    monkeypatch.setenv("TILEWRIGHT_DUMP", str(tmp_path / "dump"))
    path = dense(tmp_path / "small.onnx")
    exe = tw.compile(path, threads=1, opt_level=1)
    weights = {k.digest: k.array for k in import_onnx(str(path)).constants.values()}
    (text,) = (tmp_path / "dump/small").glob("k*/00_te.txt")
    func = parse_func(text.read_text())
    x = np.random.default_rng(0).standard_normal((2, 8), np.float32)
    by_shape = {a.shape: a for a in (x, *weights.values())}
    arrays = [by_shape[tuple(map(as_int, b.shape))] for b in func.buffers[:-1]]
    y = np.zeros((2, 5), np.float32)
    interp.run(func, *arrays, y)
    np.testing.assert_allclose(exe(x)[0], y, rtol=1e-5, atol=1e-6)
