"""The network of textgenrnn as an ONNX model, with the weights that its package ships.

Two LSTMs over the characters; an average over all positions of the embeddings and both LSTMs'
outputs, weighted by attention; from that the scores of the next character.
"""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 18
GATES = (0, 3, 1, 2)  # ONNX's order of a cell's gates, in Keras's: in, out, forget, cell


def network(path: Path) -> onnx.ModelProto:
    """ids: i64[length] → scores: f32[1, characters], from Keras's file of weights (HDF5)."""
    weights: dict[str, np.ndarray] = {"batch": np.array([1]), "time": np.array([0])}
    with h5py.File(path) as file:

        def stored(layer: str, name: str) -> np.ndarray:
            return np.asarray(file[f"{layer}/{layer}/{name}:0"])

        weights["embeddings"] = stored("embedding", "embeddings")
        weights["attention"] = stored("attention", "attention_W")
        weights["output"] = stored("output", "kernel")
        weights["output_bias"] = stored("output", "bias")
        for rnn in ("rnn_1", "rnn_2"):
            weights[f"{rnn}_inputs"] = gates_of_cudnn(stored(rnn, "kernel"))
            weights[f"{rnn}_recurrent"] = gates_of_cudnn(stored(rnn, "recurrent_kernel"))
            biases = stored(rnn, "bias").reshape(2, 4, -1)
            weights[f"{rnn}_bias"] = biases[:, GATES].reshape(1, -1)
    hidden = weights["rnn_1_recurrent"].shape[-1]

    def lstm(rnn: str, x: str) -> list[onnx.NodeProto]:
        parts = [f"{rnn}_{part}" for part in ("inputs", "recurrent", "bias")]
        return [
            helper.make_node("LSTM", [x, *parts], [f"{rnn}_y"], hidden_size=hidden),
            helper.make_node("Squeeze", [f"{rnn}_y", "batch"], [rnn]),  # one direction
        ]

    nodes = [  # [length, 1, channels] between them: ONNX's recurrences have the batch second
        helper.make_node("Unsqueeze", ["ids", "batch"], ["column"]),
        helper.make_node("Gather", ["embeddings", "column"], ["embedded"]),
        *lstm("rnn_1", "embedded"),
        *lstm("rnn_2", "rnn_1"),
        helper.make_node("Concat", ["embedded", "rnn_1", "rnn_2"], ["features"], axis=2),
        helper.make_node("MatMul", ["features", "attention"], ["logits"]),
        helper.make_node("Softmax", ["logits"], ["attended"], axis=0),
        helper.make_node("Mul", ["features", "attended"], ["weighted"]),
        helper.make_node("ReduceSum", ["weighted", "time"], ["average"], keepdims=0),
        helper.make_node("Gemm", ["average", "output", "output_bias"], ["scores"]),
    ]
    graph = helper.make_graph(
        nodes,
        "textgenrnn",
        [helper.make_tensor_value_info("ids", TensorProto.INT64, ["length"])],
        [
            helper.make_tensor_value_info(
                "scores", TensorProto.FLOAT, [1, len(weights["output_bias"])]
            )
        ],
        [numpy_helper.from_array(np.ascontiguousarray(a), name) for name, a in weights.items()],
    )
    opsets = [helper.make_opsetid("", OPSET)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def gates_of_cudnn(kernel: np.ndarray) -> np.ndarray:
    """ONNX's weights f32[1, 4 · hidden, inputs] of what Keras keeps of cuDNN's: f32[inputs,
    4 · hidden], gates side by side, in each the numbers of [hidden, inputs] in their order."""
    gates = np.split(kernel, 4, axis=1)
    return np.concatenate([gates[n].reshape(kernel.shape[1] // 4, -1) for n in GATES])[None]
