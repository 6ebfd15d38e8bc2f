"""`tw.export`: what the command line writes, from Python."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from tests.driver.conftest import dense

ARM = "cpu -mtriple=aarch64-linux-gnu -mcpu=cortex-a72"


@pytest.fixture
def model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    dense(tmp_path / "dense.onnx")
    return tmp_path / "dense.onnx"


def test_an_artifact_for_this_machine_is_what_save_writes(model, tmp_path):
    path = tw.export(model, tmp_path / "exported.tw", threads=1)
    exe = tw.compile(model, threads=1)
    assert path == tmp_path / "exported.tw"
    assert path.read_bytes() == exe.save(tmp_path / "saved.tw").read_bytes()
    x = np.random.default_rng().normal(size=(2, 8)).astype(np.float32)
    np.testing.assert_array_equal(tw.load(path, 1)(x)[0], exe(x)[0])


def test_other_machines_get_what_the_command_line_writes(model, tmp_path, command):
    status, _, errors = command(
        *("compile", str(model), "-o", "cli.tw", "--target", ARM, "--threads", "1"),
        *("--library", "cli", "--kind", "c-array", "--name", "digits"),
    )
    assert status == 0, errors
    tw.export(model, "api.tw", target=ARM, threads=1)
    assert Path("api.tw").read_bytes() == Path("cli.tw").read_bytes()
    tw.export(model, "api", "c-array", target=ARM, threads=1, name="digits")
    names = sorted(p.name for p in Path("cli").iterdir())
    assert (
        names
        == sorted(p.name for p in Path("api").iterdir())
        == ["digits.c", "digits.h", "example.c"]
    )
    for name in names:
        assert Path("api", name).read_text() == Path("cli", name).read_text()
    with pytest.raises(tw.ArtifactError):
        tw.load("api.tw")
    assert not [p for p in tmp_path.iterdir() if p.name.startswith("tilewright-")]


def test_modules_and_bytes_are_exported(model):
    torch = pytest.importorskip("torch")
    module, x = torch.nn.Linear(8, 4), torch.randn(3, 8)
    path = tw.export(module, "linear.tw", example_inputs=(x,), threads=1)
    torch.testing.assert_close(tw.load(path, 1)(x)[0], module(x).detach(), rtol=1e-5, atol=1e-5)
    tw.export(model.read_bytes(), "bytes.tw", threads=1)
    assert tw.load("bytes.tw", 1).inputs == tw.compile(model, threads=1).inputs
