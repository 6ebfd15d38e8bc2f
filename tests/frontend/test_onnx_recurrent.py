"""Recurrent layers of ONNX: directions, lengths, coupled gates, and all activations."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from tests.frontend.beside_onnxruntime import f, info, model, same_as_onnxruntime


@pytest.mark.parametrize("op", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("lengths", [False, True])
def test_recurrent_layers(op, direction, lengths):
    gates, d = {"LSTM": 4, "GRU": 3, "RNN": 1}[op], 2 if direction == "bidirectional" else 1
    steps, batch, size, hidden = 4, 2, 3, 5
    constants = {
        "w": f(d, gates * hidden, size),
        "r": f(d, gates * hidden, hidden),
        "b": f(d, 2 * gates * hidden),
        "h": f(d, batch, hidden),
    }
    outputs = [info("y", steps, d, batch, hidden), info("last", d, batch, hidden)]
    given, made = "x w r b l h", "y last"
    if lengths:
        constants["l"] = np.array([2, 4], np.int32)
    inputs = given.split() if lengths else [n if n != "l" else "" for n in given.split()]
    if op == "LSTM":
        constants["c"] = f(d, batch, hidden)
        inputs.append("c")
        made += " cell"
        outputs.append(info("cell", d, batch, hidden))
    layer = helper.make_node(op, inputs, made.split(), direction=direction, hidden_size=hidden)
    m = model([layer], [info("x", steps, batch, size)], outputs, constants)
    same_as_onnxruntime(m, f(steps, batch, size), tolerance=2e-5)


def test_coupled_gates_of_an_lstm():
    """Where the input gate lets in nothing, the forget gate keeps everything: f = 1 - i."""
    constants = {"w": f(2, 20, 3), "r": f(2, 20, 5), "b": f(2, 40), "p": f(2, 15)}
    layer = helper.make_node(
        "LSTM", ["x", "w", "r", "b", "", "", "", "p"], ["y", "last", "cell"], hidden_size=5,
        direction="bidirectional", input_forget=1, clip=0.7,
    )  # fmt: skip
    outputs = [info("y", 4, 2, 2, 5), info("last", 2, 2, 5), info("cell", 2, 2, 5)]
    m = model([layer], [info("x", 4, 2, 3)], outputs, constants)
    same_as_onnxruntime(m, f(4, 2, 3), tolerance=2e-5)


@pytest.mark.parametrize("first", [
    "HardSigmoid", "Softsign", "Softplus", "Affine", "LeakyRelu", "ScaledTanh", "Elu", "Relu",
])  # fmt: skip
@pytest.mark.parametrize("op", ["GRU", "RNN"])
def test_activations_of_recurrent_layers(op, first):
    """Each with the number that it takes by itself, and with given ones: in the direction back
    those that are left of the lists."""
    gates = {"GRU": 3, "RNN": 1}[op]
    chosen = [first] + ["Elu"] * (op == "GRU")
    given = [{"activation_alpha": [0.3, 0.7, 0.4, 0.6], "activation_beta": [0.4, 0.2]}]
    if first not in ("Affine", "ScaledTanh"):  # of which ONNX states no default numbers
        given.append({})
    for numbers in given:
        constants = {"w": f(2, gates * 5, 3) / 4, "r": f(2, gates * 5, 5) / 4}
        layer = helper.make_node(
            op, ["x", "w", "r"], ["y", "last"], hidden_size=5, direction="bidirectional",
            activations=chosen * 2, **numbers,
        )  # fmt: skip
        outputs = [info("y", 4, 2, 2, 5), info("last", 2, 2, 5)]
        m = model([layer], [info("x", 4, 2, 3)], outputs, constants)
        same_as_onnxruntime(m, f(4, 2, 3), tolerance=2e-5)
