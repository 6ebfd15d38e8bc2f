"""Sizes: numbers for open ones, code for the shapes that calls bring, those to measure at."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import tilewright as tw
from tests.driver.conftest import dense, expected
from tilewright.driver.specialised import Specialised


@pytest.fixture
def path(tmp_path):
    return dense(tmp_path / "dense.onnx", rows="batch size")


def rows(count: int) -> np.ndarray:
    return np.random.default_rng(count).standard_normal((count, 8)).astype(np.float32)


@pytest.mark.parametrize(
    "shapes", [{"batch size": 3}, {"batch_size": np.int64(3)}, {"x": [3, 8]}, {"x": (3, None)}]
)
def test_a_number_for_an_open_size(path, shapes):
    exe = tw.compile(path, shapes=shapes)
    assert exe.inputs[0].shape == (3, 8) and not exe.manifest.symbols
    np.testing.assert_allclose(exe(rows(3))[0], expected(rows(3)), rtol=1e-5)
    with pytest.raises(tw.InputError, match="dimension 0 is 4, expected 3"):
        exe(rows(4))
    assert tw.compile(path, shapes={"batch size": 4}).inputs[0].shape == (4, 8)  # another
    assert tw.compile(path).inputs[0].shape == ("batch_size", 8)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"shapes": {"rows": 3}}, "it has no open size 'rows'\n  it has: batch_size"),
        ({"shapes": {"y": (3, 8)}}, "it has no input 'y'"),
        ({"shapes": {"x": (3, 9)}}, "axis 1 of the input is 8"),
        ({"shapes": {"x": (3,)}}, "the input has 2 axes"),
        ({"shapes": {"x": (3, 8), "batch size": 4}}, "is 3 elsewhere, not 4"),
        ({"shapes": {"batch size": -1}}, "cannot be -1"),
        ({"shapes": {"batch size": 2.5}}, "they are numbers by the names of sizes"),
        ({"shapes": [3]}, "they are numbers by the names of sizes"),
        ({"specialise": -1}, "it is a number of shapes"),
        ({"dynamic_shapes": {"x": {0: "n"}}}, "it tells torch.export of inputs and their"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(path, options, why):
    with pytest.raises(tw.CompileError, match=why.replace("(", r"\(")):
        tw.compile(path, **options)


def test_code_for_the_first_shapes_that_calls_bring(path):
    exe = tw.compile(path, specialise=2)
    assert isinstance(exe, Specialised) and exe.inputs[0].shape == ("batch_size", 8)
    for count in (3, 5, 7, 3):
        np.testing.assert_allclose(exe(rows(count))[0], expected(rows(count)), rtol=1e-5)
        np.testing.assert_allclose(exe(x=rows(count))[0], expected(rows(count)), rtol=1e-5)
    assert list(exe.special) == [((3, 8),), ((5, 8),)]
    out = np.empty((5, 5), np.float32)
    exe.run_into([out], [rows(5)])
    np.testing.assert_allclose(out, expected(rows(5)), rtol=1e-5)
    with pytest.raises(tw.InputError, match="dimension 1 is 9, expected 8"):
        exe(np.zeros((3, 9), np.float32))
    with pytest.raises(tw.InputError, match="is no input"):
        exe(y=rows(3))
    fixed = tw.compile(dense(path.parent / "fixed.onnx", rows=2), specialise=2)
    assert isinstance(fixed, tw.Executable)


def test_a_model_in_memory_is_read_for_the_shapes_that_calls_bring():
    """One row beside two: code for all sizes takes them to be the same, as they nearly always
    are."""
    proto = fine_and_coarse()
    exe = tw.compile(proto, specialise=3)
    assert isinstance(exe, Specialised)
    for count in (2, 4, 1, 8):
        x = rows(count)
        wanted = x[::2] + np.tile(x[::4], (2, 1))
        np.testing.assert_array_equal(exe(x)[0], wanted)
    assert len(exe.special) == 3


def test_one_beside_others_has_code_of_its_own(tmp_path):
    """Code for all sizes takes ⌈n / 2⌉ and 2 · ⌈n / 4⌉ to be the same, as they nearly always
    are; 1 and 2 are not. What nobody can compile for them says so."""
    path = tmp_path / "fine.onnx"
    path.write_bytes(fine_and_coarse().SerializeToString())
    executables = [tw.compile(path), tw.compile(fine_and_coarse())]
    for exe in executables:
        for count in (4, 2, 8, 1, 2):
            x = rows(count)
            wanted = x[::2] + np.tile(x[::4], (2, 1))
            np.testing.assert_array_equal(exe(x)[0], wanted)
            np.testing.assert_array_equal(copy.copy(exe)(x=x)[0], wanted)
            out = np.empty_like(wanted)
            exe.run_into([out], [x])
            np.testing.assert_array_equal(out, wanted)
        assert all(k.launches for k in exe.profile(rows(2), seconds=0.01).kernels)
        with pytest.raises(tw.InputError, match="in code for fixed sizes, one of them may be 1"):
            exe(rows(5))  # 3 rows beside 4
        with pytest.raises(tw.InputError, match="in code for fixed sizes, one of them may be 1"):
            pickle.loads(pickle.dumps(exe))(rows(2))


def test_bench_asks_for_sizes(path, command, monkeypatch):
    status, _, said = command("bench", path, "--against", "none", "--seconds", "0.02")
    assert status == 0, said  # a batch may be of one
    wide = dense(path.parent / "wide.onnx", rows="n")
    status, shown, _ = command("inspect", wide, "--size", "n=6", "--kernels")
    assert status == 0 and "6x5" in shown.replace(" ", "")
    out = path.parent / "six.tw"
    assert command("compile", wide, "--size", "n=6", "-o", out)[0] == 0
    assert tw.load(out).inputs[0].shape == (6, 8)
    status, _, said = command("bench", wide, "--size", "m=6", "--against", "none")
    assert status == 1 and "the model has no 'm'\n  it has: n" in said
    status, _, said = command("bench", wide, "--size", "n=6", "--open", "--seconds", "0.02")
    assert status == 0, said


def test_bench_refuses_to_guess_inner_sizes(command, tmp_path):
    path = square(tmp_path / "square.onnx")
    status, _, said = command("bench", path, "--against", "none")
    assert status == 1 and "say which to measure: --size height=… --size width=…" in said
    status, _, said = command(
        "bench", path, "--size", "height=4", "--size", "width=5", "--seconds", "0.02"
    )
    assert status == 0, said


def test_sizes_that_only_share_a_name(tmp_path):
    """As the states of a matting net do, which at first are one pixel."""
    path = with_state(tmp_path / "state.onnx")
    x, state = rows(3), np.ones((1, 1), np.float32)
    with pytest.raises(tw.InputError, match=r"expected 3 = n(.|\n)*`shapes=` names them"):
        tw.compile(path)(x, state)
    for shapes in ({"state": ("m", None)}, {"x": (3, 8), "state": (1, 1)}):
        exe = tw.compile(path, shapes=shapes)
        np.testing.assert_array_equal(exe(x, state)[0], x + 1)
    assert exe.inputs[1].shape == (1, 1)
    named = tw.compile(path, shapes={"state": ("m", None)}, specialise=1)
    for _ in range(2):
        np.testing.assert_array_equal(named(x, state)[0], x + 1)
    with pytest.raises(tw.CompileError, match="'1 2' is no name for a size"):
        tw.compile(path, shapes={"x": ("1 2", 8)})


def fine_and_coarse():
    """Every other row of x, plus every fourth twice over."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    numbers = {"first": [0], "end": [1 << 40], "two": [2], "times": [2, 1]}
    nodes = [
        helper.make_node("Slice", ["x", "first", "end", "first", "two"], ["fine"]),
        helper.make_node("Slice", ["fine", "first", "end", "first", "two"], ["coarse"]),
        helper.make_node("Tile", ["coarse", "times"], ["twice"]),
        helper.make_node("Add", ["fine", "twice"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "pyramid",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, 8])],
        [numpy_helper.from_array(np.array(v), k) for k, v in numbers.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(model)
    return model


def with_state(path):
    """y = x + state, whose rows have one name."""
    import onnx
    from onnx import TensorProto, helper

    shapes = {"x": ["n", 8], "state": ["n", 1]}
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "state"], ["y"])],
        "state",
        [helper.make_tensor_value_info(k, TensorProto.FLOAT, s) for k, s in shapes.items()],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, 8])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    onnx.save(model, path)
    return path


def square(path):
    """y = x · x of images whose sizes are all open."""
    import onnx
    from onnx import TensorProto, helper

    shape = ["batch", "height", "width"]
    graph = helper.make_graph(
        [helper.make_node("Mul", ["x", "x"], ["y"])],
        "square",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    onnx.save(model, path)
    return path
