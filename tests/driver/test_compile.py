"""`tw.compile`: its arguments, its cache, and that every way of calling it gives the same model."""

from __future__ import annotations

import errno
import io

import numpy as np
import onnx
import pytest

import tilewright as tw
import tilewright.driver.compile as compile_module
import tilewright.driver.program as program_module
from tests.driver.conftest import DIGITS, dense, expected, native
from tilewright.codegen.llvm_compile import compile_object
from tilewright.driver.compile import compile_observed
from tilewright.driver.kernels import KernelPool
from tilewright.frontend.onnx import import_onnx
from tilewright.graph import Builder, evaluate
from tilewright.graph.passes.choose_layouts import choose_layouts
from tilewright.graph.passes.pipeline import optimise
from tilewright.ir.expr import const, maximum
from tilewright.runtime.artifact import write_artifact
from tilewright.strategy.cpu.layouts import Layouts
from tilewright.support.errors import CompileError, InputError, InternalFault

X = np.random.default_rng(1).standard_normal((2, 8), np.float32)


def close(got, wanted):
    """Within what sums of f32 in another order differ by, of the largest value."""
    scale = max(1.0, float(np.abs(wanted).max(initial=0)))
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5 * scale)


@pytest.mark.parametrize("level", range(4))
def test_every_level_gives_the_same_results(level, model):
    close(tw.compile(model, opt_level=level, threads=1)(X)[0], expected(X))


def test_sources_of_every_kind(model):
    for source in (model, str(model), onnx.load(model), import_onnx(str(model))):
        close(tw.compile(source)(X)[0], expected(X))


def test_a_torch_module_in_tensors_out():
    torch = pytest.importorskip("torch")
    module = torch.nn.Sequential(torch.nn.Linear(8, 5), torch.nn.ReLU()).eval()
    x = torch.from_numpy(X)
    (y,) = tw.compile(module, example_inputs=(x,))(x)
    assert isinstance(y, torch.Tensor)
    close(y.numpy(), module(x).detach().numpy())


def test_symbolic_sizes(tmp_path):
    exe = tw.compile(dense(tmp_path / "any.onnx", rows="n"))
    assert exe.inputs[0].shape == ("n", 8) and exe.outputs[0].shape == ("n", 5)
    for rows in (1, 2, 7, 2):
        x = np.random.default_rng(rows).standard_normal((rows, 8), np.float32)
        close(exe(x)[0], expected(x))


def test_images_of_symbolic_sizes():
    """Their convolutions are packed as those of known sizes are."""
    build, rng = Builder(), np.random.default_rng(0)
    x = build.input("x", "f32", (*map(build.symbol, "n"), 3, *map(build.symbol, "hw")))
    window = {"strides": (2, 1), "pads": ((1, 1), (1, 1)), "dilations": (1, 1)}
    unit = {"strides": (1, 1), "pads": ((0, 0), (0, 0)), "dilations": (1, 1)}
    layers = [((20, 3, 3, 3), 1, window), ((20, 1, 3, 3), 20, window), ((9, 20, 1, 1), 1, unit)]
    y = x
    for shape, groups, over in layers:
        w = build.constant(rng.standard_normal(shape, np.float32))
        y = build.emit("relu", build.emit("conv", y, w, groups=groups, **over))
    y = build.emit("add", y, build.emit("reduce_mean", y, axes=(2, 3), keepdims=True))
    graph = build.finish([y])
    packed = [n.op for n in choose_layouts(graph, Layouts(32)).nodes if n.op.endswith("_packed")]
    assert packed == ["conv_packed", "depthwise_packed", "conv_packed"]
    exe = tw.compile(graph, threads=1)
    for sizes in (1, 5, 7), (2, 33, 30), (3, 16, 1):
        image = rng.standard_normal((sizes[0], 3, *sizes[1:]), np.float32)
        close(exe(image)[0], evaluate(graph, [image])[0])


@pytest.mark.parametrize("name", ["n", "c", "y", "b", "i0", "k", "rc", "vn"])
def test_sizes_named_as_indices_are(name):
    """An index of the compiler's own must not stand for a size of the model."""
    build, rng = Builder(), np.random.default_rng(2)
    x = build.input("x", "f32", (2, 8, 5, build.symbol(name)))
    w = build.constant(rng.standard_normal((16, 8, 3, 3), np.float32))
    y = build.emit("conv", x, w, strides=(1, 2), pads=((1, 1), (1, 1)))
    y = build.emit("softmax", build.emit("transpose", y, perm=(0, 2, 3, 1)), axis=2)
    graph = build.finish([y])
    exe = tw.compile(graph, threads=1)
    for width in (3, 20):
        image = rng.standard_normal((2, 8, 5, width), np.float32)
        close(exe(image)[0], evaluate(graph, [image])[0])


def test_sequences_of_symbolic_length():
    """Windows along one axis run as windows along two, packed, and so do transposed ones."""
    build, rng = Builder(), np.random.default_rng(1)
    y = build.input("x", "f32", (1, 6, build.symbol("n")))
    for op, shape, window in (
        ("conv", (24, 6, 5), {"strides": (2,), "pads": ((2, 2),), "dilations": (1,)}),
        ("conv_transpose", (24, 9, 4), {"strides": (2,), "pads": ((1, 1),), "dilations": (1,)}),
        ("max_pool", None, {"kernel": (3,), "strides": (1,), "pads": ((1, 1),)}),
        ("conv", (9, 1, 3), {"strides": (1,), "pads": ((1, 1),), "groups": 9}),
    ):
        weights = [] if shape is None else [build.constant(rng.standard_normal(shape, np.float32))]
        y = build.emit("relu", build.emit(op, y, *weights, **window))
    graph = build.finish([y])
    packed = [
        n.op for n in choose_layouts(optimise(graph), Layouts(32)).nodes if n.op.endswith("_packed")
    ]
    assert packed == ["conv_packed", "conv_transpose_packed", "depthwise_packed"]
    exe = tw.compile(graph, threads=1)
    for length in (3, 8, 61):
        series = rng.standard_normal((1, 6, length), np.float32)
        close(exe(series)[0], evaluate(graph, [series])[0])


def test_threads_are_those_asked_for(model, monkeypatch):
    assert tw.compile(model, threads=2).threads == 2
    monkeypatch.setenv("TILEWRIGHT_THREADS", "3")
    assert tw.compile(model).threads == 3


# ---- Errors -----------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [0, -1, True, 1.5, "2", 1025, 2**32 + 2])
def test_threads_must_be_a_positive_number(threads, model):
    with pytest.raises(CompileError, match=r"for threads=.*: expected 1 to 1024"):
        tw.compile(model, threads=threads)


@pytest.mark.parametrize("level", [-1, 4, "3", None])
def test_opt_level_is_from_0_to_3(level, model):
    with pytest.raises(CompileError, match="it is a whole number from 0 to 3"):
        tw.compile(model, opt_level=level)


def test_models_run_on_cpus(model):
    with pytest.raises(CompileError) as caught:
        tw.compile(model, target="opencl")
    assert str(caught.value) == (
        "cannot compile a model for 'opencl': whole models run on CPUs; other targets compile"
        " single functions\n  use target='cpu', or tw.build(func, target) for one function"
    )


def test_paths_that_are_no_models(tmp_path, model):
    saved = tw.compile(model).save(tmp_path / "model.tw")
    (tmp_path / "noise.onnx").write_bytes(b"no model at all")
    for path, why in (
        ("nowhere.onnx", "there is no such file"),
        (tmp_path, "it is a folder"),
        (saved, "it is compiled already"),
        (tmp_path / "noise.onnx", "noise.onnx"),
    ):
        with pytest.raises(CompileError, match=why):
            tw.compile(path)


def test_objects_that_are_no_models():
    with pytest.raises(CompileError) as caught:
        tw.compile({"x": 1})
    assert "it is a builtins.dict" in str(caught.value)
    assert "an onnx.ModelProto, a torch.nn.Module or a Graph" in str(caught.value)


def test_a_torch_module_needs_example_inputs():
    torch = pytest.importorskip("torch")
    with pytest.raises(CompileError, match="its input shapes are not known"):
        tw.compile(torch.nn.Linear(2, 2))


def test_wrong_inputs_name_what_was_expected(model):
    exe = tw.compile(model)
    with pytest.raises(InputError) as caught:
        exe(X.astype(np.float64))
    assert str(caught.value) == (
        "cannot run 'dense': input 0 'x': dtype is float64, expected float32\n"
        "  the model takes x: f32[2, 8]"
    )


# ---- The cache --------------------------------------------------------------------------------


def is_fresh(exe):
    return "kernels" in exe.compile_stages.seconds


def test_a_hit_is_what_a_fresh_compile_makes(model):
    first, again = tw.compile(model), tw.compile(model)
    assert is_fresh(first) and not is_fresh(again)
    assert bytes(first.artifact()) == bytes(again.artifact())
    assert bytes(tw.compile(model, cache=False).artifact()) == bytes(first.artifact())
    close(again(X)[0], expected(X))


def test_a_changed_model_is_compiled_anew(model):
    tw.compile(model)
    dense(model, seed=5)
    exe = tw.compile(model)
    assert is_fresh(exe)
    close(exe(X)[0], expected(X, seed=5))


def test_other_options_are_other_entries(model):
    tw.compile(model, threads=1)
    assert is_fresh(tw.compile(model, threads=2))
    assert is_fresh(tw.compile(model, threads=1, opt_level=1))
    assert not is_fresh(tw.compile(model, threads=1))


def test_without_the_cache_nothing_is_kept(model, tmp_path):
    assert is_fresh(tw.compile(model, cache=False))
    assert not (tmp_path / "cache").exists()


def test_a_damaged_entry_is_compiled_anew(model, tmp_path):
    tw.compile(model)
    (entry,) = (path for path in (tmp_path / "cache").iterdir() if path.is_file())
    data = bytearray(entry.read_bytes())
    data[len(data) // 2] ^= 0xFF
    entry.write_bytes(data)
    exe = tw.compile(model)
    assert is_fresh(exe)
    close(exe(X)[0], expected(X))


def test_a_folder_that_takes_no_files_is_no_fault(model, monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(model))  # a file
    close(tw.compile(model)(X)[0], expected(X))


def test_a_fault_in_a_worker_is_told(monkeypatch):
    serve = "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"
    monkeypatch.setattr("tilewright.driver.kernels.SERVE", serve)
    told = pytest.raises(InternalFault, match="its compile worker ended with code -11")
    with told, KernelPool(4) as pool:
        compile_observed(DIGITS, threads=1, cache=False, pool=pool)


def build_nothing() -> tw.Executable:
    """x[5:], which is nothing of a short x."""
    build = Builder("rest")
    size = build.symbol("T")
    x = build.input("x", "f32", (size,))
    rest = build.emit("slice", x, starts=(5,), shape=(maximum(size - 5, const(0)),))
    return tw.compile(build.finish({"y": build.emit("neg", rest)}), cache=False, threads=1)


def test_a_slice_beyond_its_operand_is_refused_when_it_runs() -> None:
    build = Builder("cut")
    size = build.symbol("T")
    x, mask = build.input("x", "f32", (size,)), build.constant(np.arange(8, dtype=np.float32))
    y = build.emit("add", x, build.emit("slice", mask, starts=(0,), shape=(size,)))
    exe = tw.compile(build.finish({"y": y}), cache=False, threads=1)
    for count in (8, 3):
        (found,) = exe(np.ones(count, np.float32))
        np.testing.assert_array_equal(found, np.arange(count) + 1)
    nothing = build_nothing()
    assert [a.shape for a in nothing(np.ones(3, np.float32))] == [(0,)]
    with pytest.raises(InputError, match=r"slice 'slice' of .*f32\[8\]: these values do not fit"):
        exe(np.ones(9, np.float32))


def test_host_programs_are_compiled_as_they_are_unless_they_check_indices(monkeypatch) -> None:
    seen = list[bool]()

    def see(text, machine, quick=False):
        seen.append(quick)
        return compile_object(text, machine, quick)

    native(monkeypatch, program_module, compile_object=see)
    for checked in (False, True):
        build = Builder("rows")
        table, rows = build.input("table", "f32", (5, 3)), build.input("rows", "i64", (4,))
        if checked:
            told = {"least": (-5,), "most": (4,), "what": "gather"}
            table = build.emit("check_bounds", table, rows, **told)
        tw.compile(build.finish({"y": build.emit("gather", table, rows, axis=0)}), cache=False)
    assert seen == [True, False]


@pytest.mark.parametrize("opt_level", [0, 1, 2, 3])
def test_outputs_that_are_views_and_inputs_at_every_level(opt_level: int) -> None:
    build = Builder("views")
    x = build.input("x", "f32", (2, 6))
    y = build.emit("reshape", x, shape=(3, 4))
    total = build.emit("add", y, y)
    again = build.emit("reshape", total, shape=(12,))
    graph = build.finish({"x_again": x, "y": y, "total": total, "again": again, "once_more": total})
    exe = tw.compile(graph, opt_level=opt_level, cache=False, threads=1)
    given = np.arange(12, dtype=np.float32).reshape(2, 6)
    twice = 2 * given
    expected = [given, given.reshape(3, 4), twice.reshape(3, 4), twice.ravel(), twice.reshape(3, 4)]
    for found, wanted in zip(exe(given), expected, strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_what_cannot_be_cached_leaves_nothing_behind(model, monkeypatch, tmp_path):
    """Neither in the cache's folder nor in the one for temporary files."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(model))  # a file
    exe = tw.compile(model)
    close(exe(X)[0], expected(X))
    assert list(temporary.iterdir()) == []


def test_a_full_disk_is_no_fault(model, monkeypatch, tmp_path):
    """Nor are two: what fits no folder is kept in memory."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path / "cache"))
    real = write_artifact

    def full(program, file):
        if not isinstance(file, io.BytesIO):
            file.write(bytes(100))
            raise OSError(errno.ENOSPC, "No space left on device")
        real(program, file)

    monkeypatch.setattr("tilewright.driver.compile.write_artifact", full)
    close(tw.compile(model)(X)[0], expected(X))
    kernels = tmp_path / "cache" / "kernels"
    found = [p for p in tmp_path.rglob("*") if p.is_file() and p.parent != kernels]
    assert found == [model]


def test_a_model_that_changes_while_it_is_compiled_is_not_cached(tmp_path, monkeypatch):
    path = tmp_path / "m.onnx"
    path.write_bytes(DIGITS.read_bytes())
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path / "cache"))

    def change(*arguments):
        path.write_bytes(path.read_bytes() + b"\x1a\x00")
        return real(*arguments)

    real = compile_module.prepare
    monkeypatch.setattr(compile_module, "prepare", change)
    tw.compile(path, threads=1, opt_level=0)
    assert [p.name for p in (tmp_path / "cache").glob("*")] == ["kernels"]
