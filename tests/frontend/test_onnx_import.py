"""import_onnx: files, scopes, versions, symbolic sizes, and what it says about files it refuses."""

from __future__ import annotations

import mmap
from importlib import resources
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.frontend.beside_onnxruntime import (
    F,
    I,
    f,
    info,
    model,
    node,
    ops,
    random,
    same_as_onnxruntime,
)  # fmt: skip
from tilewright.frontend.onnx import import_onnx
from tilewright.graph import evaluate, parse
from tilewright.graph.passes.pipeline import optimise
from tilewright.support.errors import ImportFault, InputError


def test_the_demo_model():
    path = resources.files("tilewright.driver") / "demo" / "digits.onnx"
    image = random.uniform(0, 16, (1, 1, 8, 8)).astype(np.float32)
    graph = same_as_onnxruntime(onnx.load(str(path)), image)
    assert graph.input_names == ("image",) and graph.output_names == ("scores",)


# Not SqueezeNet: its weights are all equal, and a softmax of logits near 1e10 shows their rounding.
@pytest.mark.parametrize("name", ["shufflenet"])
def test_light_models_that_ship_with_onnx(name):
    folder = Path(onnx.__file__).parent / "backend/test/data/light"
    expected = onnx.load_tensor(str(folder / f"light_{name}_output_0.pb"))
    graph = import_onnx(folder / f"light_{name}.onnx")
    image = np.ones(graph.inputs[0].static_shape, np.float32)
    (made,) = evaluate(optimise(graph), [image])
    np.testing.assert_allclose(made, numpy_helper.to_array(expected), rtol=1e-3, atol=1e-7)


def test_user_names_and_identifiers():
    m = model([node("Relu", "in.1", "out/1")], [info("in.1", 3)], [info("out/1", 3)])
    graph = import_onnx(m)
    assert graph.input_names == ("in.1",) and graph.output_names == ("out/1",)
    assert graph.inputs[0].name == "in_1" and parse(str(graph)) == graph


def test_one_output_named_several_times():
    m = model([node("Relu", "x", "y")], [info("x", 3)], [info("y", 3), info("y", 3)])
    assert same_as_onnxruntime(m, f(3)).output_names == ("y", "y_1")


def test_initializers_that_are_inputs_are_constants():
    m = model([node("Add", "x w", "y")], [info("x", 3), info("w", 3)], [info("y", 3)], {"w": f(3)})
    assert import_onnx(m).input_names == ("x",)


def test_a_file_in_memory_and_on_disk_are_one_graph(tmp_path):
    m = model(
        [node("MatMul", "x w", "y")], [info("x", 2, 64)], [info("y", 2, 64)], {"w": f(64, 64)}
    )
    path = tmp_path / "m.onnx"
    onnx.save(m, path)
    mapped = import_onnx(path)
    assert mapped == import_onnx(m) == import_onnx(m.SerializeToString())
    (constant,) = mapped.constants.values()
    assert not constant.array.flags.owndata  # the weights are pages of the file


def external(tmp_path, m, location, **changes):
    onnx.save(
        m, tmp_path / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0
    )
    loaded = onnx.load(str(tmp_path / "m.onnx"), load_external_data=False)
    (tensor,) = loaded.graph.initializer
    entries = {e.key: e.value for e in tensor.external_data} | {"location": location} | changes
    del tensor.external_data[:]
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=str(value))
    (tmp_path / "m.onnx").write_bytes(loaded.SerializeToString())
    return tmp_path / "m.onnx"


def matmul_model():
    return model([node("MatMul", "x w", "y")], [info("x", 2, 8)], [info("y", 2, 8)], {"w": f(8, 8)})


def test_external_data_is_mapped(tmp_path):
    m = matmul_model()
    plain = import_onnx(m)
    graph = import_onnx(external(tmp_path, m, "w.bin"))
    assert graph == plain
    (constant,) = graph.constants.values()
    memory = constant.array
    while isinstance(memory, np.ndarray):
        memory = memory.base
    assert isinstance(memory, memoryview) and isinstance(memory.obj, mmap.mmap)


@pytest.mark.parametrize(
    ("location", "changes", "why"),
    [
        ("../w.bin", {}, "lies outside the folder"),
        ("/etc/passwd", {}, "is no relative path"),
        ("link.bin", {}, "lies outside the folder"),
        ("missing.bin", {}, "is not there"),
        ("w.bin", {"offset": 4}, "does not hold"),
        ("w.bin", {"length": 12}, "does not hold"),
        ("w.bin", {"offset": "x"}, "no number"),
        ("w.bin", {"offset": -4}, "does not hold"),
    ],
)
def test_external_data_stays_in_its_folder(tmp_path, location, changes, why):
    inside = tmp_path / "model"
    inside.mkdir()
    (tmp_path / "w.bin").write_bytes(bytes(256))
    (inside / "link.bin").symlink_to(tmp_path / "w.bin")
    with pytest.raises(ImportFault, match=why):
        import_onnx(external(inside, matmul_model(), location, **changes))


def test_symbolic_sizes_go_through_shape_arithmetic():
    nodes = [
        node("Shape", "x", "s"),
        node("Gather", "s zero", "n", axis=0),
        node("Unsqueeze", "n axes", "n1"),
        node("Concat", "n1 minus", "shape", axis=0),
        node("Reshape", "x shape", "y"),
    ]
    constants = {"zero": np.asarray(0), "axes": np.array([0]), "minus": np.array([-1])}
    m = model(nodes, [info("x", "batch", 3, 4)], [info("y", "batch", 12)], constants)
    graph = import_onnx(m)
    assert graph.outputs[0].type_text == "f32[batch, 12]"
    assert ops(optimise(graph)) == ["reshape", "copy"]
    (y,) = evaluate(optimise(graph), [f(5, 3, 4)])
    assert y.shape == (5, 12)
    fixed = import_onnx(m, shapes={"batch": 2})
    assert fixed.outputs[0].static_shape == (2, 12) and ops(fixed) == ["reshape"]


def test_a_size_that_is_written_as_a_name():
    """torch.onnx calls the channels of an image "3"."""
    m = model([node("Relu", "x", "y")], [info("x", "n", "3")], [info("y", "n", "3")])
    assert import_onnx(m).inputs[0].type_text == "f32[n, 3]"


def test_sizes_as_data():
    nodes = [node("Shape", "x", "s"), node("Cast", "s", "t", to=F), node("Mul", "t t", "y")]
    m = model(nodes, [info("x", "n", 3)], [info("y", 2)])
    (y,) = evaluate(import_onnx(m), [f(5, 3)])
    assert y.tolist() == [25.0, 9.0]


def test_functions_of_the_model():
    scaled = helper.make_function(
        "own", "scaled", ["x"], ["y"],
        [
            helper.make_node("Constant", [], ["c"]),
            helper.make_node("Mul", ["x", "c"], ["y"]),
        ],
        [helper.make_opsetid("", 18)], ["by"],
    )  # fmt: skip
    attribute = scaled.node[0].attribute.add(name="value_float", ref_attr_name="by")
    attribute.type = onnx.AttributeProto.FLOAT
    nodes = [
        helper.make_node("scaled", ["x"], ["a"], domain="own", by=2.0),
        helper.make_node("scaled", ["a"], ["c"], domain="own", by=3.0),
    ]
    m = model(
        nodes,
        [info("x", 3)],
        [info("c", 3)],
        functions=[scaled],
        imports=[helper.make_opsetid("own", 1)],
    )
    x = f(3)
    np.testing.assert_allclose(evaluate(import_onnx(m), [x])[0], x * 6, rtol=1e-6)


def test_functions_that_call_each_other_end():
    nodes = [helper.make_node("f", ["x"], ["y"], domain="own")]
    function = helper.make_function(
        "own", "f", ["x"], ["y"], nodes, [helper.make_opsetid("own", 1)]
    )
    m = model(
        nodes,
        [info("x", 3)],
        [info("y", 3)],
        functions=[function],
        imports=[helper.make_opsetid("own", 1)],
    )
    with pytest.raises(ImportFault, match="nest deeper"):
        import_onnx(m)


def branches():
    then = helper.make_graph([helper.make_node("Add", ["x", "x"], ["a"])], "t", [], [info("a", 3)])
    other = helper.make_graph([helper.make_node("Neg", ["x"], ["b"])], "e", [], [info("b", 3)])
    return {"then_branch": then, "else_branch": other}


def test_a_known_condition_chooses_a_branch():
    m = model(
        [node("If", "c", "y", **branches())],
        [info("x", 3)],
        [info("y", 3)],
        {"c": np.asarray(False)},
    )
    assert ops(same_as_onnxruntime(m, f(3))) == ["neg"]


@pytest.mark.parametrize("condition", [True, False])
def test_an_unknown_condition_selects(condition):
    m = model(
        [node("If", "c", "y", **branches())],
        [info("x", 3), info("c", of=TensorProto.BOOL)],
        [info("y", 3)],
    )
    assert "where" in ops(same_as_onnxruntime(m, f(3), np.asarray(condition)))


def test_a_loop_of_known_length_unrolls():
    body = helper.make_graph(
        [
            helper.make_node("Mul", ["v", "x"], ["v2"]),
            helper.make_node("Identity", ["go"], ["go2"]),
            helper.make_node("Neg", ["v2"], ["row"]),
        ],
        "body",
        [info("i", of=I), info("go", of=TensorProto.BOOL), info("v", 3)],
        [info("go2", of=TensorProto.BOOL), info("v2", 3), info("row", 3)],
    )
    m = model(
        [node("Loop", "count go v0", "last rows", body=body)],
        [info("x", 3), info("v0", 3)],
        [info("last", 3), info("rows", 4, 3)],
        {"count": np.asarray(4), "go": np.asarray(True)},
    )
    same_as_onnxruntime(m, f(3), f(3))


def test_legacy_broadcast_of_version_6():
    m = model(
        [node("Add", "x b", "y", broadcast=1, axis=1)],
        [info("x", 2, 3, 4)], [info("y", 2, 3, 4)], {"b": f(3)}, opset=6,
    )  # fmt: skip
    x = f(2, 3, 4)
    b = numpy_helper.to_array(m.graph.initializer[0])
    np.testing.assert_allclose(evaluate(import_onnx(m), [x])[0], x + b[:, None], rtol=1e-6)


# refusals ---------------------------------------------------------------------------------------

UNSUPPORTED = """\
cannot import the model: 2 of its operators are not supported

    ai.onnx.ml.Unheard (version 3), 1 ×: 'b'
    own.special (version 1), 2 ×: 'a', 'y'

  an operator that is not supported can be defined in the file by others \
(onnx.helper.make_function, model.functions), or registered (tilewright.operator)"""

AT_A_NODE = """\
cannot import node 'the_MatMul' (MatMul): the inner sizes are 4 and 3

    ai.onnx.MatMul (version 18)
    inputs: 'x' f32[2, 4], 'w' f32[3, 5]
    outputs: y
    matmul of x: f32[2, 4], w: f32[3, 5]
    with transpose_a=False, transpose_b=False
"""

RUN_TIME = """\
cannot import node 'y' (MatMulNBits): input 1 (w: u8[2, 1, 16]) is only known at run time

    com.microsoft.MatMulNBits (version 1)
    inputs: 'x' f32[1, 32], 'w' u8[2, 1, 16], 'scales' f32[2]
    outputs: y

  it must be a constant or follow from the shapes of the inputs"""


def test_all_unsupported_operators_are_listed_at_once():
    nodes = [
        helper.make_node("special", ["x"], ["a"], domain="own"),
        helper.make_node("Unheard", ["a"], ["b"], domain="ai.onnx.ml"),
        helper.make_node("special", ["b"], ["y"], domain="own"),
    ]
    imports = [helper.make_opsetid("own", 1), helper.make_opsetid("ai.onnx.ml", 3)]
    m = model(nodes, [info("x", 3)], [info("y", 3)], imports=imports)
    with pytest.raises(ImportFault) as caught:
        import_onnx(m)
    assert str(caught.value) == UNSUPPORTED


ALL = """\
cannot import the model: 2 of its operators are not supported, and 6 of its inputs and nodes \
cannot be imported

    com.microsoft.Unheard (version 1), 7 ×: 'u0', 'u1', 'u2', 'u3', 'u4' and 2 more
    own.special (version 1), 1 ×: 'r'
    input 'm': it is no tensor (a sequence, map or optional)
    node 'the_MatMul' (MatMul): the inner sizes are 4 and 3
    node 'the_Pad' (Pad): has no mode 'odd'
    node 'the_MatMulNBits' (MatMulNBits): input 1 (v: f32[3, 5]) is only known at run time
      it must be a constant or follow from the shapes of the inputs
    node 'inner' (MatMul): the inner sizes are 4 and 3
    node 'the_Relu' (Relu): it has 2 inputs, Relu takes 1

  an operator that is not supported can be defined in the file by others \
(onnx.helper.make_function, model.functions), or registered (tilewright.operator); \
com.microsoft's are onnxruntime's own: a model exported without its optimiser has none"""


def test_operators_and_nodes_that_fail_are_listed_together():
    inner = helper.make_node("MatMul", ["x", "w"], ["i"], name="inner")
    relus = [node("Relu", "i", "j"), node("Relu", "x x", "k")]
    scaled = helper.make_function(
        "own", "scaled", ["x", "w"], ["j", "k"], [inner, *relus], [helper.make_opsetid("", 18)]
    )
    few = {"K": 4, "N": 5, "bits": 4, "block_size": 16, "name": "the_MatMulNBits"}
    nodes = [
        node("MatMul", "x w", "p"),
        node("Relu", "p", "q"),  # needs what the product would have made: not a fault of its own
        helper.make_node("special", ["q"], ["r"], domain="own"),
        node("Pad", "x pads", "s", mode="odd"),
        helper.make_node("MatMulNBits", ["x", "v", "v"], ["t"], domain="com.microsoft", **few),
        helper.make_node("scaled", ["x", "w"], ["a", "b"], domain="own"),
        helper.make_node("scaled", ["x", "w"], ["c", "d"], domain="own"),  # told once
        *(helper.make_node("Unheard", ["x"], [f"u{k}"], domain="com.microsoft") for k in range(7)),
        node("Add", "r s", "y"),
    ]
    pads = {"w": f(3, 5), "pads": np.ones(4, np.int64)}
    imports = [helper.make_opsetid("own", 1), helper.make_opsetid("com.microsoft", 1)]
    inputs = [info("x", 2, 4), info("v", 3, 5), optional_input("m")]
    m = model(nodes, inputs, [info("y", 2, 5)], pads, imports=imports, functions=[scaled])
    with pytest.raises(ImportFault) as caught:
        import_onnx(m)
    assert str(caught.value) == ALL


def optional_input(name):
    tensor = helper.make_tensor_type_proto(F, [2])
    return helper.make_value_info(name, helper.make_optional_type_proto(tensor))


def nested(order):
    """A model with a branch and a function, the nodes of each in an order."""

    def side(op):
        nodes = [node(op, "c x", "i"), node("Neg", "i", "j"), node("Mul", "j c", "k")]
        return helper.make_graph(order(nodes), op, [], [info("k", 2, 4)])

    chain = [node("Exp", "x", "u"), node("Neg", "u", "v"), node("Add", "u v", "w")]
    function = helper.make_function(
        "own", "chain", ["x"], ["w"], order(chain), [helper.make_opsetid("", 18)]
    )
    nodes = [
        node("Abs", "x", "a"),
        node("Sin", "a", "b"),
        node("Add", "a b", "c"),
        node("ReduceMax", "b", "m", keepdims=0),
        node("Cast", "m", "yes", to=TensorProto.BOOL),
        helper.make_node("If", ["yes"], ["k"], then_branch=side("Add"), else_branch=side("Sub")),
        helper.make_node("chain", ["k"], ["y"], domain="own"),
    ]
    return model(
        order(nodes), [info("x", 2, 4)], [info("y", 2, 4)],
        imports=[helper.make_opsetid("own", 1)], functions=[function],
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(4))
def test_nodes_stand_in_any_order(seed):
    """In the graph (onnxruntime sorts that, too), in branches and in functions."""
    draw, x = np.random.default_rng(seed), f(2, 4)
    expected = evaluate(same_as_onnxruntime(nested(list), x), [x])
    mixed = nested(lambda nodes: [nodes[k] for k in draw.permutation(len(nodes))])
    np.testing.assert_array_equal(evaluate(import_onnx(mixed), [x]), expected)


def test_nodes_that_need_each_other():
    nodes = [node("Add", "x q", "p"), node("Relu", "p", "q"), node("Neg", "q", "y")]
    with pytest.raises(ImportFault) as caught:
        import_onnx(model(nodes, [info("x", 2)], [info("y", 2)]))
    assert "need each other's results\n\n    'the_Add', 'the_Relu'" in str(caught.value)


def test_a_fault_names_its_node():
    m = model([node("MatMul", "x w", "y")], [info("x", 2, 4)], [info("y", 2, 5)], {"w": f(3, 5)})
    with pytest.raises(ImportFault) as caught:
        import_onnx(m)
    assert str(caught.value) == AT_A_NODE


def test_weights_known_at_run_time_alone():
    sizes = {"K": 32, "N": 2, "bits": 4, "block_size": 32}
    op = helper.make_node(
        "MatMulNBits", ["x", "w", "scales"], ["y"], domain="com.microsoft", **sizes
    )
    inputs = [info("x", 1, 32), info("w", 2, 1, 16, of=TensorProto.UINT8), info("scales", 2)]
    imports = [helper.make_opsetid("com.microsoft", 1)]
    m = model([op], inputs, [info("y", 1, 2)], imports=imports)
    with pytest.raises(ImportFault) as caught:
        import_onnx(m)
    assert str(caught.value) == RUN_TIME


def test_a_shape_known_at_run_time_alone():
    m = model(
        [node("Reshape", "x shape", "y")],
        [info("x", 2, 4), info("shape", 2, of=I)],
        [info("y", 8, 1)],
    )
    graph, x = import_onnx(m), f(2, 4)
    for shape in ((8, 1), (-1, 2), (0, 4)):
        (y,) = evaluate(graph, [x, np.array(shape)])
        np.testing.assert_array_equal(y, x.reshape([n or 2 for n in shape]))
    with pytest.raises(InputError, match="the shape of Reshape 'the_Reshape'"):
        evaluate(graph, [x, np.array([3, 3])])


def broken(change):
    m = model(
        [node("Conv", "x w", "a", strides=[1, 1]), node("Relu", "a", "y")],
        [info("x", 1, 2, 5, 5)], [info("y", 1, 3, 3, 3)], {"w": f(3, 2, 3, 3)},
    )  # fmt: skip
    change(m)
    return m


def no_maker(m):
    del m.graph.node[0]


def cycle(m):
    m.graph.node[0].input[0] = "y"


def twice(m):
    m.graph.node[1].output[0] = "a"


def no_output(m):
    m.graph.output[0].name = "nowhere"


def negative_dimension(m):
    m.graph.initializer[0].dims[0] = -3


def short_data(m):
    m.graph.initializer[0].raw_data = m.graph.initializer[0].raw_data[:-4]


def huge(m):
    m.graph.initializer[0].dims[:] = [1 << 40, 1 << 40, 3, 3]


def complex_type(m):
    m.graph.input[0].type.tensor_type.elem_type = TensorProto.COMPLEX64


def wrong_attribute(m):
    m.graph.node[0].attribute[0].type = onnx.AttributeProto.FLOAT


def no_rank(m):
    m.graph.input[0].type.tensor_type.ClearField("shape")


def zero_stride(m):
    m.graph.node[0].attribute[0].ints[0] = 0


def future(m):
    m.opset_import[0].version = 1000


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (no_maker, "nothing makes its input 'a'"),
        (cycle, "nodes of it need each other's results"),
        (twice, "defined twice"),
        (no_output, "nothing makes its output 'nowhere'"),
        (negative_dimension, "has the shape"),
        (short_data, "the file has 212"),
        (huge, "takes"),
        (complex_type, "its element type is COMPLEX64"),
        (wrong_attribute, "has the type FLOAT, not INTS"),
        (no_rank, "its shape is not given"),
        (zero_stride, "too small"),
        (future, "it needs version 1000"),
    ],
    ids=lambda x: getattr(x, "__name__", ""),
)
def test_broken_models_are_refused(change, why):
    with pytest.raises(ImportFault, match=why):
        import_onnx(broken(change))


def test_truncated_files(tmp_path):
    whole = broken(lambda m: None).SerializeToString()
    path = tmp_path / "m.onnx"
    for length in range(0, len(whole), 7):
        path.write_bytes(whole[:length])
        with pytest.raises(ImportFault):
            import_onnx(path)
    with pytest.raises(ImportFault, match="cannot read"):
        import_onnx(tmp_path / "missing.onnx")
