"""What a compilation maps of a model's file is given back while weights are written, and gone when
the result is loaded."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import tilewright as tw
from tilewright.driver import compile
from tilewright.driver.stages import Stages
from tilewright.runtime import artifact
from tilewright.runtime.executor import Executable
from tilewright.support import mapped
from tilewright.support.cache import Cache

WEIGHT = np.random.default_rng(0).standard_normal((64, 256), np.float32)


@pytest.fixture
def product(tmp_path: Path) -> Path:
    """y = x @ w, whose weight stays in the file."""
    entries = [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [4, 64])]
    results = [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [4, 256])]
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    graph = helper.make_graph(nodes, "g", entries, results, [numpy_helper.from_array(WEIGHT, "w")])
    opsets = [helper.make_opsetid("", 18)]
    path = tmp_path / "product.onnx"
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)
    return path


@pytest.mark.parametrize("cache", [True, False])
def test_nothing_of_the_model_is_mapped_when_the_result_is_loaded(
    product: Path, cache: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, seen = len(mapped._living), list[int]()

    def executable(*given: object) -> Executable:
        seen.append(len(mapped._living) - before)
        return Executable(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(compile, "Executable", executable)
    tw.compile(product, cache=cache, threads=1)
    assert seen == [0]


def test_pages_are_given_back_while_weights_are_written(
    product: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given_back: list[int] = []
    monkeypatch.setattr(artifact, "RELEASED", WEIGHT.nbytes // 2)
    monkeypatch.setattr(artifact, "release_pages", lambda: given_back.append(len(mapped._living)))
    before = len(mapped._living)
    tw.compile(product, cache=False, threads=1)
    assert given_back == [before + 1]


def test_pages_are_given_back_when_the_graph_is_optimised(
    product: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stages, seen = Stages(), list[str]()
    monkeypatch.setattr(compile, "release_pages", lambda: seen.append(stages.when()))
    compile.compile_observed(product, cache=False, threads=1, stages=stages)
    assert len(seen) == 1 and "passes" in seen[0]


def test_freed_memory_is_given_back_before_the_result_is_loaded(
    product: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    def executable(path: Path, threads: int) -> Executable:
        seen.append("loaded")
        return Executable(path, threads)

    monkeypatch.setattr(compile, "release_libraries", lambda *names: seen.append(names[0]))
    monkeypatch.setattr(compile, "give_back", lambda: seen.append("given back"))
    monkeypatch.setattr(compile, "Executable", executable)
    tw.compile(product, threads=1)
    assert seen == ["libllvmlite", "given back", "loaded"]


def test_an_entry_that_is_gone_at_once_is_made_again(
    product: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Cache, "fetch", lambda *_: None)
    x = np.random.default_rng(1).standard_normal((4, 64), np.float32)
    np.testing.assert_allclose(tw.compile(product)(x)[0], x @ WEIGHT, rtol=1e-4, atol=1e-4)
