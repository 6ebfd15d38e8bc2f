"""The zoo gives the same bytes each time, files and modules agree, and inputs follow their seed."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from tests import zoo
from tests.zoo import light
from tests.zoo.__main__ import TOLERANCE, disagreement

QUICK = ["dqn", "dcgan_half", "light_squeezenet", "filled_squeezenet", "filled_shufflenet"]


@pytest.mark.parametrize("name", QUICK)
def test_file_agrees_with_module(name: str) -> None:
    assert disagreement(zoo.model(name)) <= TOLERANCE


SLOW = [name for name in zoo.names() if name not in QUICK]


@pytest.mark.slow
@pytest.mark.parametrize("name", SLOW)
def test_every_file_agrees_with_its_module(name: str, turn) -> None:
    for batch in turn(zoo.batches(name), SLOW.index(name)):
        assert disagreement(zoo.Model(name, batch)) <= TOLERANCE


@pytest.mark.parametrize("name", ["dqn", "filled_squeezenet"])
def test_same_bytes_each_time(name: str, tmp_path, monkeypatch) -> None:
    files = []
    for folder in ("first", "second"):
        monkeypatch.setenv("TILEWRIGHT_ZOO", str(tmp_path / folder))
        files.append(zoo.Model(name, 1).onnx_path.read_bytes())
    assert files[0] == files[1]
    assert b"site-packages" not in files[0] and b".py" not in files[0]


@pytest.mark.parametrize("name", zoo.names())
def test_inputs_follow_their_seed(name: str) -> None:
    model = zoo.model(name)
    first, again, other = model.inputs(3), model.inputs(3), model.inputs(4)
    assert list(first) == model.input_names
    for key, value in first.items():
        assert value.dtype in (np.float32, np.int64)
        assert np.array_equal(value, again[key])
    assert any(not np.array_equal(first[key], other[key]) for key in first)


def test_batch_norms_stay_in_the_file() -> None:
    graph = onnx.load(zoo.model("dcgan_half").onnx_path).graph
    means = {n.input[3] for n in graph.node if n.op_type == "BatchNormalization"}
    values = [onnx.numpy_helper.to_array(t) for t in graph.initializer if t.name in means]
    assert len(values) == 4
    assert all(np.abs(value).max() > 0.01 for value in values)


def test_filled_models_differ_by_input() -> None:
    assert len(light.names()) == 18
    model = zoo.model("filled_squeezenet")
    session = onnx.load(model.onnx_path)
    assert all(node.op_type != "ConstantOfShape" for node in session.graph.node)


def test_unknown_names_and_batches_are_refused() -> None:
    with pytest.raises(KeyError, match="no model 'resnet1001'"):
        zoo.model("resnet1001")
    with pytest.raises(ValueError, match="batch 1, not 2"):
        zoo.model("light_vgg19", batch=2)
