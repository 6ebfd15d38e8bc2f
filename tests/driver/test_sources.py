"""What `tw.compile` takes: bytes, open files, keyword arguments; and what it tells `logging`."""

from __future__ import annotations

import io
import logging
import pickle
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import tilewright as tw
from tests.driver.conftest import dense, expected
from tilewright.driver.source import open_source
from tilewright.driver.specialised import Specialised
from tilewright.graph.parse import parse

X = np.random.default_rng().standard_normal((3, 8), np.float32)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return dense(tmp_path / "dense.onnx", rows="n")


def is_right(exe: Any, x: np.ndarray = X) -> None:
    np.testing.assert_allclose(exe(x)[0], expected(x), rtol=1e-4, atol=1e-5)


def stage_names(exe: Any) -> set[str]:
    return {name for name in exe.compile_stages.seconds if "/" not in name}


# ---- Bytes and files --------------------------------------------------------------------------


def test_bytes_and_open_files(path):
    content = path.read_bytes()
    for source in (content, bytearray(content), memoryview(content), io.BytesIO(content)):
        is_right(tw.compile(source, threads=1))
    with path.open("rb") as file:
        is_right(tw.compile(file, threads=1))
    with tempfile.NamedTemporaryFile(suffix=".onnx") as file:
        file.write(content)
        file.seek(0)
        is_right(tw.compile(file, threads=1))
    is_right(tw.compile(onnx.load_model_from_string(content), threads=1))


def test_bytes_are_found_in_the_cache(path):
    """As a file of that content is."""
    content = path.read_bytes()
    assert "kernels" in stage_names(tw.compile(content, threads=1))
    again = tw.compile(io.BytesIO(content), threads=1)
    assert stage_names(again) == {"identify", "load"}
    assert stage_names(tw.compile(path, threads=1)) == {"identify", "load"}
    is_right(again)
    other = dense(path.with_name("other.onnx"), seed=1, rows="n").read_bytes()
    made = tw.compile(other, threads=1)
    assert "kernels" in stage_names(made)
    np.testing.assert_allclose(made(X)[0], expected(X, seed=1), rtol=1e-4, atol=1e-5)


def test_bytes_for_given_and_for_special_sizes(path):
    content = path.read_bytes()
    assert tw.compile(content, shapes={"x": (3, 8)}).inputs[0].shape == (3, 8)
    exe = tw.compile(content, specialise=2, threads=1)
    assert isinstance(exe, Specialised)
    is_right(exe)
    assert list(exe.special) == [((3, 8),)]


def test_sources_that_are_none(path):
    def told(source: Any) -> str:
        with pytest.raises(tw.CompileError) as caught:
            tw.compile(source)
        return str(caught.value)

    with path.open(errors="replace") as file:
        assert told(file) == (
            "cannot compile this file: the file is open as text\n"
            "  open it for bytes: open(path, 'rb')"
        )
    compiled = bytes(tw.compile(path).artifact())
    assert told(compiled) == (
        "cannot compile these bytes: they are compiled already\n  tw.load(content)"
    )
    assert "it is no ONNX file" in told(b"not a model") and "is it truncated?" in told(b"\x08")
    assert "its bytes, an onnx.ModelProto" in told(3)


def test_options_that_are_none(path):
    def told(**options: Any) -> str:
        with pytest.raises(tw.CompileError) as caught:
            tw.compile(path, **options)
        return str(caught.value)

    tw.compile(path)  # what is in the cache is refused as well
    for word in ("example_inputs", "example_kwargs", "dynamic_shapes"):
        assert told(**{word: (X,)}).startswith(f"cannot compile this model with {word}: it tells")
    assert "is no description of a machine" in told(target=3)
    assert "is no description of a machine" in told(target=None)


def test_weights_in_other_files_need_the_path(path):
    proto = onnx.load(path)
    outside = path.with_name("outside.onnx")
    onnx.save(proto, outside, save_as_external_data=True, location="weights", size_threshold=0)
    is_right(tw.compile(outside))
    with pytest.raises(tw.CompileError, match="external data"):
        tw.compile(outside.read_bytes())


# ---- Specialised ------------------------------------------------------------------------------


def test_clones_and_pickles_of_code_for_special_sizes(path):
    exe = tw.compile(path, specialise=2, threads=1)
    clone = exe.clone()
    is_right(clone)
    assert len(exe.special) == len(clone.special) == 1, "one compiles for all clones"
    again = pickle.loads(pickle.dumps(clone))
    is_right(again)
    is_right(again, X[:1])
    assert len(again.special) == 2 and len(clone.special) == 1
    assert clone({"x": X})[0].shape == clone.run(["y"], {"x": X})[0].shape == (3, 5)
    y = np.empty((3, 5), np.float32)
    clone.run_into({"y": y}, {"x": X})
    np.testing.assert_allclose(y, expected(X), rtol=1e-4, atol=1e-5)
    is_right(clone, X.tolist())
    with tw.Pool(exe, 2) as pool:
        for rows, (y,) in zip((1, 2, 3), pool.map([X[:1], X[:2], X]), strict=True):
            np.testing.assert_allclose(y, expected(X[:rows]), rtol=1e-4, atol=1e-5)
    assert len(exe.special) == 2


# ---- Arguments by name ------------------------------------------------------------------------


def test_a_module_whose_arguments_have_names():
    torch = pytest.importorskip("torch")

    class Masked(torch.nn.Module):
        def forward(self, x: Any, *, mask: Any, scale: float = 2.0) -> Any:
            return torch.where(mask, x * scale, 0.0)

    x, module = torch.randn(2, 3), Masked()
    given = {"mask": x > 0, "x": x}
    want = module(**given)
    for options in (
        {"example_inputs": given},
        {"example_inputs": (x,), "example_kwargs": {"mask": x > 0}},
        {"example_inputs": (x.numpy(),), "example_kwargs": {"mask": (x > 0).numpy()}},
        {"example_kwargs": given},
    ):
        exe = tw.compile(module, threads=1, **options)
        assert sorted(exe.input_names) == ["mask", "x"]
        torch.testing.assert_close(exe(given)[0], want)
        torch.testing.assert_close(exe(**given)[0], want)
    rows = torch.export.Dim("rows", min=1, max=9)
    shapes = {"x": {0: rows}, "mask": {0: rows}}
    exe = tw.compile(module, example_inputs=given, dynamic_shapes=shapes, threads=1)
    y = torch.randn(5, 3)
    torch.testing.assert_close(exe(x=y, mask=y > 0)[0], module(y, mask=y > 0))
    exe = tw.compile(module, example_inputs=given, dynamic_shapes=shapes, specialise=1, threads=1)
    torch.testing.assert_close(exe(x=y, mask=y > 0)[0], module(y, mask=y > 0))


def test_a_function_of_tensors():
    torch = pytest.importorskip("torch")
    weights = torch.randn(3, 4)

    def scaled(x: Any, by: Any) -> Any:
        return (x @ weights) * by

    x, by = torch.randn(2, 3), torch.tensor(2.0)
    exe = tw.compile(scaled, example_inputs=(x, by), threads=1)
    assert exe.name == "scaled" and exe.input_names == ["x", "by"]
    torch.testing.assert_close(exe(x, 2)[0], scaled(x, by))
    doubled = tw.compile(lambda x: 2 * x, example_inputs={"x": x}, threads=1)
    torch.testing.assert_close(doubled(x=x)[0], 2 * x)
    with pytest.raises(tw.CompileError, match="it is a builtins"):
        tw.compile(scaled)


def test_what_a_file_says_besides_is_kept(path):
    model = onnx.load(path)
    onnx.helper.set_model_props(model, {"names": "{0: 'cat', 1: 'dog'}", "author": "someone"})
    told = {"names": "{0: 'cat', 1: 'dog'}", "author": "someone"}
    content = model.SerializeToString()
    for exe in (
        tw.compile(content),
        tw.compile(content, shapes={"n": 3}),
        tw.load(tw.compile(content).save(path.with_name("m.tw"))),
    ):
        assert exe.metadata == told
    assert tw.compile(path).metadata == {}
    graph = open_source(content).graph()
    assert graph.metadata == told and parse(str(graph)) == graph


def test_arguments_by_name_that_are_none():
    torch = pytest.importorskip("torch")
    module = torch.nn.Linear(2, 2)
    with pytest.raises(tw.CompileError, match="is no mapping of arguments by their names"):
        tw.compile(module, example_kwargs=[torch.ones(1, 2)])
    with pytest.raises(tw.CompileError, match=r"torch\.export fails on it"):
        tw.compile(module, example_inputs={"nothing": torch.ones(1, 2)})


# ---- Logging ----------------------------------------------------------------------------------


def test_a_compilation_tells_logging(path, caplog):
    with caplog.at_level(logging.DEBUG, logger="tilewright"):
        tw.compile(path, threads=1)
    records = [(r.name, r.levelname, r.getMessage()) for r in caplog.records]
    name, level, first = records[0]
    assert (name, level) == ("tilewright.compile", "INFO")
    assert first == f"compiling '{path}' for cpu, threads=1"
    name, level, last = records[-1]
    assert (level, last.startswith("compiled 'dense' in ")) == ("INFO", True)
    stages = [said for _, level, said in records if level == "DEBUG"]
    assert any(said.startswith("kernels: ") for said in stages)
    caplog.clear()
    with caplog.at_level(logging.INFO, logger="tilewright"):
        saved = tw.compile(path, threads=1).save(path.with_name("m.tw"))
    assert [r.getMessage().split(" in ")[0] for r in caplog.records] == ["found 'dense'"]
    caplog.clear()
    with caplog.at_level(logging.DEBUG, logger="tilewright.runtime"):
        tw.load(saved, 1)
    assert [r.getMessage() for r in caplog.records] == ["loaded 'dense', variant 0, threads=1"]


def test_no_handler_and_no_import(path):
    """A program that does not use logging pays nothing for it and sees nothing."""
    saved = tw.compile(path).save(path.with_name("m.tw"))
    code = (
        "import sys, tilewright as tw\n"
        f"tw.load({str(saved)!r}); assert 'logging' not in sys.modules\n"
        f"import logging; tw.compile({str(path)!r})\n"
        "assert not logging.getLogger('tilewright').handlers and not logging.root.handlers\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
