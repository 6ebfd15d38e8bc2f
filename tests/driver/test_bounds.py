"""Indices out of bounds: a run that meets one ends with an error that names the operator."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper

import tilewright as tw
from tilewright.frontend.onnx import import_onnx
from tilewright.support.errors import CompileError, InputError

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def info(name: str, of: int, shape: list | None):
    return helper.make_tensor_value_info(name, of, shape)


def made(nodes, inputs, outputs, constants=()):
    """A model of version 18."""
    initializers = [onnx.numpy_helper.from_array(a, name) for name, a in constants]
    graph = helper.make_graph(nodes, "g", inputs, outputs, initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])


def gather(x: list, indices: list, of: int = INT64, axis: int = 0):
    node = helper.make_node("Gather", ["x", "i"], ["r"], axis=axis)
    return made([node], [info("x", FLOAT, x), info("i", of, indices)], [info("r", FLOAT, None)])


def compiled(model, **named):
    return tw.compile(model, cache=False, **named)


def refused(model, *arrays) -> str:
    with pytest.raises(InputError) as caught:
        model(*arrays)
    return caught.value.why


def floats(*shape: int) -> np.ndarray:
    return np.random.default_rng(3).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize(
    ("opt_level", "of"), [(0, "int64"), (1, "int64"), (2, "int32"), (3, "int64")]
)
def test_an_index_outside_ends_the_run(opt_level: int, of: str):
    code = helper.np_dtype_to_tensor_dtype(np.dtype(of))
    model = compiled(gather([10, 4], [21], code), opt_level=opt_level)
    x, indices = floats(10, 4), np.arange(-10, 11).astype(of) % 20 - 10
    for at in (0, 7, 8, 20):  # among whole vectors, and behind them
        for wrong in (10, 11, -11, 999, np.iinfo(of).max, np.iinfo(of).min):
            bad = indices.copy()
            bad[at] = wrong
            assert refused(model, x, bad) == f"Gather 'r': index {wrong} is not from -10 to 9"
    np.testing.assert_array_equal(model(x, indices)[0], x[indices])  # the next run works


def test_open_sizes_set_the_bounds():
    model = compiled(gather(["n", 3], ["k"]))
    random = np.random.default_rng(1)
    for n, k in ((1, 1), (7, 9), (4, 40_000)):  # of many, each thread checks some
        x, indices = floats(n, 3), random.integers(-n, n, k)
        np.testing.assert_array_equal(model(x, indices)[0], x[indices])
        indices[k - 1] = n
        assert refused(model, x, indices) == f"Gather 'r': index {n} is not from {-n} to {n - 1}"


def test_each_operator_names_itself_and_the_bounds_of_its_columns():
    indices = {
        "GatherElements": np.array([[0, -4], [3, 2]]),
        "GatherND": np.array([[3, 4], [-4, -5]]),
        "ScatterElements": np.array([[0, -4], [3, 2]]),
        "ScatterND": np.array([[0, -5], [1, 4]]),
    }
    nodes = [
        helper.make_node("GatherElements", ["x", "i_GatherElements"], ["GatherElements"]),
        helper.make_node("GatherND", ["x", "i_GatherND"], ["GatherND"]),
        helper.make_node("ScatterElements", ["x", "i_ScatterElements", "u2"], ["ScatterElements"]),
        helper.make_node("ScatterND", ["x", "i_ScatterND", "u1"], ["ScatterND"]),
    ]
    inputs = [info("x", FLOAT, [4, 5]), info("u2", FLOAT, [2, 2]), info("u1", FLOAT, [2])]
    inputs += [info(f"i_{op}", INT64, list(i.shape)) for op, i in indices.items()]
    proto = made(nodes, inputs, [info(op, FLOAT, None) for op in indices])
    model, peer = compiled(proto), onnxruntime.InferenceSession(proto.SerializeToString())
    given = {"x": floats(4, 5), "u2": floats(2, 2), "u1": floats(2)}
    given |= {f"i_{op}": i for op, i in indices.items()}
    for got, want in zip(model(**given), peer.run(None, given), strict=True):
        np.testing.assert_array_equal(got, want)
    for op, right in indices.items():
        for position in np.ndindex(right.shape):
            size = 5 if op.endswith("ND") and position[1] else 4
            for index in (size, -size - 1):
                wrong = right.copy()
                wrong[position] = index
                with pytest.raises(InputError) as caught:
                    model(**{**given, f"i_{op}": wrong})
                told = f"{op} '{op}': index {index} is not from {-size} to {size - 1}"
                assert caught.value.why == told
    model(**given)


def test_constants_are_checked_when_compiling():
    node = helper.make_node("Gather", ["x", "i"], ["r"])
    inputs, outputs = [info("x", FLOAT, [3, 2])], [info("r", FLOAT, None)]
    with pytest.raises(CompileError, match="index 3 is not from -3 to 2"):
        compiled(made([node], inputs, outputs, [("i", np.array([0, 3]))]))
    x = floats(3, 2)
    model = compiled(made([node], inputs, outputs, [("i", np.array([0, -3]))]))
    np.testing.assert_array_equal(model(x)[0], x[[0, 0]])


def test_a_branch_that_is_not_taken_is_not_checked():
    def branch(name: str, table: str):
        nodes = [helper.make_node("Gather", [table, "i"], [f"r_{name}"])]
        return helper.make_graph(nodes, name, [], [info(f"r_{name}", FLOAT, [2])])

    choice = helper.make_node(
        "If", ["c"], ["y"], then_branch=branch("long", "x"), else_branch=branch("short", "s")
    )
    inputs = [info("c", BOOL, []), info("x", FLOAT, [9]), info("s", FLOAT, [3]),
              info("i", INT64, [2])]  # fmt: skip
    model = compiled(made([choice], inputs, [info("y", FLOAT, [2])]))
    x, s, indices = floats(9), floats(3), np.array([1, 8])
    np.testing.assert_array_equal(model(np.array(True), x, s, indices)[0], x[indices])
    assert "Gather 'r_short': index 8" in refused(model, np.array(False), x, s, indices)


def test_the_knob_leaves_the_checks_out(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TILEWRIGHT_CHECK_INDICES", "0")
    model = compiled(gather([4], [2]))
    monkeypatch.delenv("TILEWRIGHT_CHECK_INDICES")
    x = floats(4)
    np.testing.assert_array_equal(model(x, np.array([1, 99]))[0], x[[1, 3]])


def test_what_surely_lies_within_is_not_checked():
    nodes = [
        helper.make_node("ArgMax", ["x"], ["i"], axis=0, keepdims=0),
        helper.make_node("Gather", ["x", "i"], ["r"]),
    ]
    graph = import_onnx(made(nodes, [info("x", FLOAT, ["n", 4])], [info("r", FLOAT, None)]))
    assert not any(node.op == "check_bounds" for node in graph.nodes)


class Indexing(torch.nn.Module):
    def forward(self, x, i, j, k, m, p):
        taken = x[i, :, j]
        put = x.clone()
        put[:, k] = 1.0
        scattered = x.scatter(2, m, 2.0)
        return taken, put, scattered, torch.take(x, p), x.gather(2, m), x.index_select(1, k)


def test_indexing_of_torch():
    x = torch.randn(3, 4, 5)
    good = {
        "i": torch.tensor([-3, 2]), "j": torch.tensor([4, -5]), "k": torch.tensor([0, 3]),
        "m": torch.tensor([[[0, 4]]]), "p": torch.tensor([-60, 59]),
    }  # fmt: skip
    module = Indexing().eval()
    model = compiled(module, example_inputs=(x, *good.values()))
    for got, want in zip(model(x, *good.values()), module(x, *good.values()), strict=True):
        np.testing.assert_array_equal(got, want)
    for name, outside in (("i", (3, -4)), ("j", (5, -6)), ("k", (4, -5)), ("m", (5, -1)),
                          ("p", (60, -61))):  # fmt: skip
        for index in outside:
            bad = {n: v.clone() for n, v in good.items()}
            bad[name].view(-1)[1] = index
            with pytest.raises((IndexError, RuntimeError)):
                module(x, *bad.values())
            assert f"index {index} is not from" in refused(model, x, *bad.values())


def test_an_embedding_of_torch():
    module = torch.nn.Embedding(10, 4).eval()
    model = compiled(module, example_inputs=(torch.tensor([[1, 2, 3]]),))
    good = torch.tensor([[0, 9, 5]])
    np.testing.assert_array_equal(model(good)[0], module(good).detach())
    assert "index 999 is not from 0 to 9" in refused(model, torch.tensor([[1, 999, 3]]))
    assert "index -1 is not from 0 to 9" in refused(model, torch.tensor([[1, -1, 3]]))


class Writing(torch.nn.Module):
    def forward(self, x, a, c, f, r, s):
        added = x.index_add(1, a, s, alpha=2)
        copied, filled = x.index_copy(-1, c, s[:, :1]), x.index_fill(1, f, 7.0)
        return added, copied, filled, x.index_reduce(1, r, s, "amax"), x[0].index_add(0, a, s[0])


def test_writing_at_indices_of_torch():
    """Of all these only `index_fill` counts from the end too."""
    x, s = torch.randn(3, 4), torch.randn(3, 2)
    good = {"a": [3, 3], "c": [0], "f": [-4, 3], "r": [0, 3]}
    given = {k: torch.tensor(v) for k, v in good.items()}
    module = Writing().eval()
    model = compiled(module, example_inputs=(x, *given.values(), s))
    for got, want in zip(model(x, *given.values(), s), module(x, *given.values(), s), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-6)
    for name in good:
        for index in (4, -5 if name == "f" else -1):
            bad = {n: v.clone() for n, v in given.items()}
            bad[name][-1] = index
            with pytest.raises((IndexError, RuntimeError)):
                module(x, *bad.values(), s)
            assert f"index {index} is not from" in refused(model, x, *bad.values(), s)
