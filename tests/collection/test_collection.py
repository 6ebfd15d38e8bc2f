"""The collection's own parts, on a file made here: sizes, values, archives, the float64 twin."""

import json
import zipfile

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from tests.collection import exact, packages, subject, worker


@pytest.fixture
def model(tmp_path, monkeypatch):
    """A matrix product of f32[n, 4] with weights, times a mask i64[n, 1]."""
    monkeypatch.setenv("TILEWRIGHT_COLLECTION", str(tmp_path))
    weights = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"]),
        helper.make_node("Cast", ["mask"], ["m"], to=onnx.TensorProto.FLOAT),
        helper.make_node("Mul", ["p", "m"], ["y"]),
    ]
    entries = [
        helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", 4]),
        helper.make_tensor_value_info("mask", onnx.TensorProto.INT64, ["n", 1]),
    ]
    result = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["n", 3])
    graph = helper.make_graph(
        nodes, "made", entries, [result], [numpy_helper.from_array(weights, "w")]
    )
    (tmp_path / "home").mkdir()
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(proto, tmp_path / "home/made.onnx")
    return subject.read("home/made", tmp_path / "home/made.onnx")


def test_a_model_is_compiled_and_compared_at_all_its_sizes(model, capsys):
    worker.check(model, worker.reference(model, 1), 1)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    compared = [line for line in lines if "error" in line]
    assert [line["way"] for line in compared] == ["fixed", "open 1", "open 2"]
    assert all(line["error"] < 1e-6 and not line["fault"] for line in compared)


def test_what_differs_is_told_beside_float64(model):
    arrays = model.arrays(model.sizes[1], {})
    expected = worker.reference(model, 1)(arrays)
    (truth,) = exact.outputs(model, arrays)
    assert truth.dtype == np.float64 and 0 < np.abs(truth - expected[0]).max() < 1e-5
    (moved,) = exact.moved(model, arrays, 0)
    assert 0 < np.abs(moved - expected[0]).max() < 1e-5
    assert worker.compare(model, arrays, expected, expected) == ""
    wrong = [expected[0] + np.float32(0.01)]
    assert "from float64, onnxruntime" in worker.compare(model, arrays, wrong, expected)
    assert "expected float32" in worker.compare(model, arrays, [expected[0][0]], expected)


def test_archives_give_models_once_by_their_names(model, tmp_path):
    content = model.path.read_bytes()
    with zipfile.ZipFile(tmp_path / "a.whl", "w") as wheel:
        wheel.writestr("a/first.onnx", content)
        wheel.writestr("a/code.py", "raise SystemExit")
    assert [name for name, _ in packages.members(tmp_path / "a.whl")] == ["a/first.onnx"]
    (tmp_path / "home/again.onnx").write_bytes(content)
    assert list(packages.models()) == ["home/again"]
