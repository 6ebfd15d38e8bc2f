"""A tiny model, a cache of one's own, and the command line called in this process."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tilewright.backend.backend import native_of
from tilewright.driver import cli
from tilewright.driver.report import terminal
from tilewright.support import knobs
from tilewright.target.target import target

DIGITS = Path(cli.__file__).parent / "demo/digits.onnx"


def dense(path: Path, seed: int = 0, rows: int | str = 2) -> Path:
    """y = relu(x @ W + b): one kernel."""
    random = np.random.default_rng(seed)
    weights = random.standard_normal((8, 5), np.float32), random.standard_normal(5, np.float32)
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "W"], ["p"]),
            helper.make_node("Add", ["p", "b"], ["s"]),
            helper.make_node("Relu", ["s"], ["y"]),
        ],
        "dense",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [rows, 5])],
        [numpy_helper.from_array(w, n) for w, n in zip(weights, "Wb", strict=True)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    onnx.save(model, path)
    return path


def expected(x: np.ndarray, seed: int = 0) -> np.ndarray:
    """What `dense` computes."""
    random = np.random.default_rng(seed)
    w, b = random.standard_normal((8, 5), np.float32), random.standard_normal(5, np.float32)
    return np.maximum(x @ w + b, 0)


@pytest.fixture(autouse=True)
def alone(monkeypatch, tmp_path):
    """No knobs but an empty cache, a folder of one's own, a wide terminal."""
    for knob in knobs.ALL:
        monkeypatch.delenv(knob.name, raising=False)
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)
    for console in (terminal.console, terminal.errors):
        monkeypatch.setattr(console, "width", 200)


@pytest.fixture
def model(tmp_path) -> Path:
    """The path of a model of one kernel."""
    return dense(tmp_path / "dense.onnx")


@pytest.fixture
def command(monkeypatch, capsys) -> Callable[..., tuple[int, str, str]]:
    """Run the program with these arguments: exit status, what it printed, its errors."""

    def call(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["tilewright", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            cli.main()
        printed = capsys.readouterr()
        return int(end.value.code or 0), printed.out, printed.err

    return call


def native(monkeypatch: pytest.MonkeyPatch, module: Any, **changed: Any) -> None:
    """Let a module find these parts in the place of those that make code for processors."""
    made = replace(native_of(target("cpu")), **changed)
    monkeypatch.setattr(module, "native_of", lambda machine: made)
