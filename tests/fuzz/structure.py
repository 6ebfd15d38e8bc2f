"""Distortions of a model's structure: a sound ModelProto, changed in place into a hostile one.

Each takes the model and a random generator. The registry says whether the result breaks the format
or the operators' rules so surely that a compiler must refuse it; one that finds nothing to change
in a model returns False.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, helper, numpy_helper

Model = onnx.ModelProto
SIZES = (0, -1, -(2**63), 2**31 - 1, 2**31, 2**40, 2**62, 2**63 - 1)
HUGE = (2**31, 2**33, 2**40, 2**50, 2**62)


@dataclass(frozen=True)
class Distortion:
    """A named change; `breaks` when its result must be refused."""

    change: Callable[[Model, Random], bool | None]
    breaks: bool


DISTORTIONS: dict[str, Distortion] = {}


def distortion(
    breaks: bool,
) -> Callable[[Callable[[Model, Random], bool | None]], Callable[[Model, Random], bool | None]]:
    """Register a change under its own name."""

    def register(
        change: Callable[[Model, Random], bool | None],
    ) -> Callable[[Model, Random], bool | None]:
        DISTORTIONS[change.__name__] = Distortion(change, breaks)
        return change

    return register


BREAKS, MAY_BREAK = distortion(True), distortion(False)


def dims_of(value: onnx.ValueInfoProto) -> onnx.TensorShapeProto:
    return value.type.tensor_type.shape


def some_tensor(model: Model, random: Random) -> TensorProto | None:
    return random.choice(model.graph.initializer) if model.graph.initializer else None


def some_node(model: Model, random: Random) -> onnx.NodeProto:
    return random.choice(model.graph.node)


def nodes_with(model: Model, *operators: str) -> list[onnx.NodeProto]:
    return [node for node in model.graph.node if node.op_type in operators]


def all_attributes(model: Model) -> Iterator[tuple[onnx.NodeProto, AttributeProto]]:
    for node in model.graph.node:
        for attribute in node.attribute:
            yield node, attribute


def weights(model: Model, dtype: int) -> list[TensorProto]:
    return [x for x in model.graph.initializer if x.data_type == dtype]


# ---- Shapes -------------------------------------------------------------------------------------


@MAY_BREAK
def odd_input_size(model: Model, random: Random) -> None:
    dims = dims_of(random.choice(model.graph.input)).dim
    random.choice(dims or [dims.add()]).dim_value = random.choice(SIZES)


@MAY_BREAK
def symbolic_input_size(model: Model, random: Random) -> None:
    dims = dims_of(random.choice(model.graph.input)).dim
    names = ("n", "", "2", "a b", "x", "__import__('os')", "é", "n" * 10_000)
    random.choice(dims or [dims.add()]).dim_param = random.choice(names)


@MAY_BREAK
def input_without_shape(model: Model, random: Random) -> None:
    random.choice(model.graph.input).type.tensor_type.ClearField("shape")


@MAY_BREAK
def input_of_other_rank(model: Model, random: Random) -> None:
    dims = dims_of(random.choice(model.graph.input)).dim
    if random.random() < 0.5 and dims:
        del dims[random.randrange(len(dims))]
    else:
        for _ in range(random.choice((1, 3, 60, 1000))):
            dims.add().dim_value = 2


@BREAKS
def weight_of_other_size(model: Model, random: Random) -> bool | None:
    """The dimensions say another number of elements than there are."""
    tensor = some_tensor(model, random)
    if tensor is None or not tensor.raw_data:
        return False
    size = random.choice((*(x for x in SIZES if x), 17))
    if tensor.dims and size != tensor.dims[0]:
        tensor.dims[0] = size
    else:
        tensor.dims.append(17)
    return True


@BREAKS
def weight_of_huge_product(model: Model, random: Random) -> bool | None:
    """Dimensions whose product passes 2**64 and comes back small when it wraps around."""
    tensor = some_tensor(model, random)
    if tensor is None:
        return False
    del tensor.dims[:]
    tensor.dims.extend(random.choice(((2**32, 2**32), (2**33, 2**31, 4), (2**62, 8), (2**21,) * 4)))
    return True


@BREAKS
def weight_without_data(model: Model, random: Random) -> bool | None:
    tensor = some_tensor(model, random)
    if tensor is None or not tensor.raw_data:
        return False
    tensor.ClearField("raw_data")
    return True


@MAY_BREAK
def odd_integers(model: Model, random: Random) -> bool | None:
    """Shapes, axes, pads and indices that are given as constant tensors."""
    found = weights(model, TensorProto.INT64)
    if not found:
        return False
    tensor = random.choice(found)
    values = numpy_helper.to_array(tensor).copy()
    values.reshape(-1)[random.randrange(values.size)] = random.choice((*SIZES, 3, 1000, -7))
    tensor.raw_data = values.tobytes()
    return True


@MAY_BREAK
def more_integers(model: Model, random: Random) -> bool | None:
    """A list of integers of another length or rank."""
    found = weights(model, TensorProto.INT64)
    if not found:
        return False
    tensor = random.choice(found)
    values = np.resize(numpy_helper.to_array(tensor), random.choice(((0,), (5,), (2, 2), (100,))))
    tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    return True


@MAY_BREAK
def huge_result(model: Model, random: Random) -> None:
    """A sound operator whose result would fill any memory, added into the first output."""
    size = random.choice(HUGE)
    amount = numpy_helper.from_array(np.array([size], np.int64), "hostile_amount")
    scalars = [
        numpy_helper.from_array(np.array(value, np.int64), f"hostile_{name}")
        for name, value in (("start", 0), ("limit", size), ("delta", 1), ("last", size - 1))
    ]
    one = numpy_helper.from_array(np.ones(1, np.float32), "hostile_one")
    bounds = numpy_helper.from_array(np.array([0, size], np.int64), "hostile_pads")
    model.graph.initializer.extend([amount, one, bounds, *scalars])
    make = random.choice([
        helper.make_node("ConstantOfShape", ["hostile_amount"], ["hostile"]),
        helper.make_node("Expand", ["hostile_one", "hostile_amount"], ["hostile"]),
        helper.make_node("Tile", ["hostile_one", "hostile_amount"], ["hostile"]),
        helper.make_node("Pad", ["hostile_one", "hostile_pads"], ["hostile"]),
        helper.make_node(
            "Range", ["hostile_start", "hostile_limit", "hostile_delta"], ["hostile"]
        ),
        helper.make_node("OneHot", ["hostile_start", "hostile_limit", "hostile_two"], ["hostile"]),
    ])  # fmt: skip
    pair = numpy_helper.from_array(np.zeros(2, np.float32), "hostile_two")
    model.graph.initializer.append(pair)
    model.graph.node.append(make)
    model.graph.output.add().CopyFrom(
        helper.make_tensor_value_info("hostile", TensorProto.FLOAT, None)
    )


@MAY_BREAK
def huge_cross_product(model: Model, random: Random) -> None:
    """Two small vectors whose outer product is huge."""
    count = 1 << 18
    for name, shape in (("hostile_row", (1, count)), ("hostile_column", (count, 1))):
        model.graph.initializer.append(numpy_helper.from_array(np.zeros(shape, np.float32), name))
    operator = random.choice(("Add", "MatMul", "Mul"))
    order = ["hostile_column", "hostile_row"]
    model.graph.node.append(helper.make_node(operator, order, ["hostile"]))
    model.graph.output.add().CopyFrom(
        helper.make_tensor_value_info("hostile", TensorProto.FLOAT, None)
    )


@MAY_BREAK
def other_output_shape(model: Model, random: Random) -> None:
    dims = dims_of(random.choice(model.graph.output)).dim
    random.choice(dims or [dims.add()]).dim_value = random.choice((*SIZES, 3))


# ---- Graph --------------------------------------------------------------------------------------


@BREAKS
def cycle(model: Model, random: Random) -> bool | None:
    """A node reads what a later node makes from its own result."""
    nodes = model.graph.node
    for node in random.sample(list(nodes), len(nodes)):
        later = makers_after(model, node)
        if later and node.input:
            node.input[0] = random.choice(later).output[0]
            return True
    return False


def makers_after(model: Model, start: onnx.NodeProto) -> list[onnx.NodeProto]:
    """The nodes that depend on `start`, in order."""
    reached, found = set(start.output), []
    for node in model.graph.node:
        if reached & set(node.input):
            reached |= set(node.output)
            found.append(node)
    return found


@BREAKS
def self_loop(model: Model, random: Random) -> bool | None:
    node = some_node(model, random)
    if not node.input:
        return False
    node.input[0] = node.output[0]
    return True


@BREAKS
def missing_weight(model: Model, random: Random) -> bool | None:
    """A weight that is no input either disappears."""
    inputs = {value.name for value in model.graph.input}
    found = [x for x in model.graph.initializer if x.name not in inputs]
    if not found:
        return False
    model.graph.initializer.remove(random.choice(found))
    return True


@BREAKS
def missing_node(model: Model, random: Random) -> None:
    model.graph.node.remove(some_node(model, random))


@BREAKS
def unknown_operand(model: Model, random: Random) -> bool | None:
    node = some_node(model, random)
    if not node.input:
        return False
    node.input[0] = random.choice(("nowhere", "\0", "x" * 100_000, " "))
    return True


@BREAKS
def result_made_twice(model: Model, random: Random) -> None:
    first, second = random.choice(model.graph.node), helper.make_node("Identity", [], [])
    second.input.append(first.output[0])
    second.output.append(first.output[0])
    model.graph.node.append(second)


@MAY_BREAK
def weight_stored_twice(model: Model, random: Random) -> bool | None:
    tensor = some_tensor(model, random)
    if tensor is None:
        return False
    model.graph.initializer.append(tensor)
    return True


@MAY_BREAK
def weight_named_as_result(model: Model, random: Random) -> None:
    values = numpy_helper.from_array(np.zeros(3, np.float32), some_node(model, random).output[0])
    model.graph.initializer.append(values)


@BREAKS
def unmade_output(model: Model, random: Random) -> None:
    random.choice(model.graph.output).name = random.choice(("nothing", ""))


@MAY_BREAK
def no_parts(model: Model, random: Random) -> None:
    """A whole list of the graph is gone, or the graph itself."""
    part = random.choice(("node", "input", "output", "initializer", "graph", "opset_import"))
    if part in ("graph", "opset_import"):
        model.ClearField(part)
    else:
        model.graph.ClearField(part)


@MAY_BREAK
def nodes_out_of_order(model: Model, random: Random) -> None:
    nodes = list(model.graph.node)
    random.shuffle(nodes)
    model.graph.ClearField("node")
    model.graph.node.extend(nodes)


@MAY_BREAK
def empty_names(model: Model, random: Random) -> None:
    node = some_node(model, random)
    for k in range(len(node.input)):
        node.input[k] = ""
    if random.random() < 0.5:
        node.output[0] = ""


@MAY_BREAK
def strange_names(model: Model, random: Random) -> None:
    """A value is renamed everywhere; names are only labels, however they look."""
    old = some_node(model, random).output[0]
    new = random.choice((
        "../../etc/passwd", "a\0b", 'quote"quote', "%s%n{0}", "new\nline", "@llvm.trap", "é漢字🙂",
        "def", "__class__", "n" * 1_000_000, ";", "\\", "-1", " ",
    ))  # fmt: skip
    for node in model.graph.node:
        node.input[:] = [new if name == old else name for name in node.input]
        node.output[:] = [new if name == old else name for name in node.output]
    for value in model.graph.output:
        if value.name == old:
            value.name = new


@MAY_BREAK
def long_chain(model: Model, random: Random) -> None:
    """A thousand operators one after the other, in place of the first output's last."""
    last = model.graph.output[0]
    name = last.name
    for k in range(1000):
        node = helper.make_node(random.choice(("Relu", "Neg", "Identity")), [name], [f"chain_{k}"])
        model.graph.node.append(node)
        name = f"chain_{k}"
    last.name = name


@MAY_BREAK
def deep_branches(model: Model, random: Random) -> None:
    """Branches within branches, up to the depth that protobuf reads."""
    output = helper.make_tensor_value_info("inner", TensorProto.FLOAT, [1])
    end = [helper.make_node("Identity", ["deep_one"], ["inner"])]
    leaf = graph = helper.make_graph(end, "leaf", [], [output])
    for _ in range(random.choice((10, 20, 28))):
        node = helper.make_node("If", ["deep_flag"], ["inner"], then_branch=graph, else_branch=leaf)
        graph = helper.make_graph([node], "level", [], [output])
    model.graph.initializer.append(numpy_helper.from_array(np.array(True), "deep_flag"))
    model.graph.initializer.append(numpy_helper.from_array(np.ones(1, np.float32), "deep_one"))
    model.graph.node.append(
        helper.make_node("If", ["deep_flag"], ["deep"], then_branch=graph, else_branch=leaf)
    )
    model.graph.output.add().CopyFrom(helper.make_tensor_value_info("deep", TensorProto.FLOAT, [1]))


@BREAKS
def endless_function(model: Model, random: Random) -> None:
    """Functions that call each other without end."""
    names = [f"f{k}" for k in range(random.choice((1, 2, 5)))]
    imports = [helper.make_opsetid("hostile", 1), helper.make_opsetid("", 18)]
    for k, name in enumerate(names):
        following = names[(k + 1) % len(names)]
        body = [helper.make_node(following, ["a"], ["b"], domain="hostile")]
        model.functions.append(helper.make_function("hostile", name, ["a"], ["b"], body, imports))
    model.opset_import.append(helper.make_opsetid("hostile", 1))
    output = model.graph.output[0]
    call = helper.make_node(names[0], [output.name], ["endless"], domain="hostile")
    model.graph.node.append(call)
    output.name = "endless"


@MAY_BREAK
def doubling_functions(model: Model, random: Random) -> None:
    """Thirty functions, each calling the one before twice: a thousand million operators inlined."""
    imports = [helper.make_opsetid("hostile", 1), helper.make_opsetid("", 18)]
    bottom = [helper.make_node("Neg", ["a"], ["b"])]
    model.functions.append(helper.make_function("hostile", "g0", ["a"], ["b"], bottom, imports))
    for k in range(1, 31):
        body = [
            helper.make_node(f"g{k - 1}", ["a"], ["m"], domain="hostile"),
            helper.make_node(f"g{k - 1}", ["m"], ["b"], domain="hostile"),
        ]
        model.functions.append(
            helper.make_function("hostile", f"g{k}", ["a"], ["b"], body, imports)
        )
    model.opset_import.append(helper.make_opsetid("hostile", 1))
    output = model.graph.output[0]
    model.graph.node.append(helper.make_node("g30", [output.name], ["doubled"], domain="hostile"))
    output.name = "doubled"


# ---- Types --------------------------------------------------------------------------------------


@MAY_BREAK
def weight_of_other_type(model: Model, random: Random) -> bool | None:
    tensor = some_tensor(model, random)
    if tensor is None:
        return False
    tensor.data_type = random.choice((*range(24), 99, -1, 2**31 - 1))
    return True


@BREAKS
def weight_of_no_type(model: Model, random: Random) -> bool | None:
    tensor = some_tensor(model, random)
    if tensor is None:
        return False
    tensor.data_type = random.choice((0, 99, 1000, -1, 2**31 - 1))
    return True


@MAY_BREAK
def input_of_other_type(model: Model, random: Random) -> None:
    value = random.choice(model.graph.input)
    value.type.tensor_type.elem_type = random.choice((*range(24), 99, -1))


@BREAKS
def input_that_is_no_tensor(model: Model, random: Random) -> None:
    value = random.choice([v for v in model.graph.input if v.name in operands(model)])
    kind = TensorProto.FLOAT
    element = helper.make_tensor_type_proto(kind, [2])
    value.type.CopyFrom(
        random.choice((
            helper.make_sequence_type_proto(element),
            helper.make_optional_type_proto(element),
            helper.make_map_type_proto(TensorProto.INT64, element),
            helper.make_sparse_tensor_type_proto(kind, [2]),
            onnx.TypeProto(),
        ))
    )  # fmt: skip


def operands(model: Model) -> set[str]:
    """Names that some node reads and no weight defines."""
    stored = {tensor.name for tensor in model.graph.initializer}
    return {name for node in model.graph.node for name in node.input} - stored


@BREAKS
def mixed_types(model: Model, random: Random) -> bool | None:
    """A weight of an arithmetic operator becomes f64, its data with it; the other operand stays."""
    stored = {x.name: x for x in model.graph.initializer if x.data_type == TensorProto.FLOAT}
    found = [
        stored[node.input[1]]
        for node in nodes_with(model, "Conv", "Gemm", "MatMul", "Mul", "Add", "LSTM")
        if len(node.input) > 1 and node.input[1] in stored and node.input[0] not in stored
    ]
    found = [x for x in found if x.raw_data]
    if not found:
        return False
    tensor = random.choice(found)
    values = numpy_helper.to_array(tensor).astype(np.float64)
    tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    return True


@MAY_BREAK
def data_in_two_fields(model: Model, random: Random) -> bool | None:
    tensor = some_tensor(model, random)
    if tensor is None:
        return False
    tensor.float_data.extend([1.0, 2.0])
    tensor.int64_data.extend([1, 2])
    tensor.string_data.append(b"text")
    return True


@MAY_BREAK
def sparse_weight(model: Model, random: Random) -> bool | None:
    """A weight becomes sparse, with an index that may lie outside."""
    tensor = some_tensor(model, random)
    if tensor is None or not tensor.dims:
        return False
    values = numpy_helper.from_array(np.ones(2, np.float32), tensor.name)
    indices = np.array(random.choice(((0, 1), (0, 2**40), (-5, 1), (1, 0))), np.int64)
    sparse = helper.make_sparse_tensor(
        values, numpy_helper.from_array(indices, "indices"), list(tensor.dims)
    )
    model.graph.initializer.remove(tensor)
    model.graph.sparse_initializer.append(sparse)
    return True


# ---- Operators and attributes -------------------------------------------------------------------


@BREAKS
def unknown_operator(model: Model, random: Random) -> None:
    node = some_node(model, random)
    node.op_type = random.choice(("Convolve", "", "conv", "__init__", "x" * 10_000, "System\n"))


@BREAKS
def unknown_domain(model: Model, random: Random) -> None:
    some_node(model, random).domain = random.choice(("com.example", "ai.onnx.ml", "../..", "\0"))


@MAY_BREAK
def other_operator(model: Model, random: Random) -> None:
    """A known operator where its operands and attributes make no sense."""
    some_node(model, random).op_type = random.choice((
        "Add", "Concat", "Conv", "Gather", "If", "LSTM", "Loop", "MatMul", "MaxPool", "Pad", "Relu",
        "Reshape", "Resize", "Scan", "Shape", "Slice", "Softmax", "Split", "TopK", "Transpose",
    ))  # fmt: skip


@BREAKS
def odd_opset(model: Model, random: Random) -> None:
    for entry in model.opset_import:
        if entry.domain == "":
            entry.version = random.choice((0, -1, 999, 2**40, -(2**63)))


@MAY_BREAK
def other_opset(model: Model, random: Random) -> None:
    """A version that is known, but that has other forms of some operators."""
    model.opset_import[0].version = random.randrange(1, 24)


@MAY_BREAK
def odd_versions(model: Model, random: Random) -> None:
    model.ir_version = random.choice((0, -1, 1, 99, 2**62))
    if random.random() < 0.5:
        model.opset_import.append(helper.make_opsetid("", random.choice((1, 18, 99))))


@MAY_BREAK
def fewer_operands(model: Model, random: Random) -> bool | None:
    node = some_node(model, random)
    if not node.input:
        return False
    del node.input[random.randrange(len(node.input)) :]
    return True


@BREAKS
def too_many_operands(model: Model, random: Random) -> bool | None:
    found = nodes_with(
        model, "Conv", "Relu", "MatMul", "Add", "Gemm", "Softmax", "Transpose", "Mul"
    )
    if not found:
        return False
    node = random.choice(found)
    node.input.extend([node.input[0]] * random.choice((4, 5, 1000)))
    return True


@MAY_BREAK
def swapped_operands(model: Model, random: Random) -> None:
    node = some_node(model, random)
    names = list(node.input)
    random.shuffle(names)
    node.input[:] = names


@MAY_BREAK
def odd_results(model: Model, random: Random) -> None:
    node = some_node(model, random)
    if random.random() < 0.5:
        node.output.extend(f"more_{k}" for k in range(random.choice((1, 3, 1000))))
    else:
        node.ClearField("output")


@MAY_BREAK
def missing_attribute(model: Model, random: Random) -> bool | None:
    found = list(all_attributes(model))
    if not found:
        return False
    node, attribute = random.choice(found)
    node.attribute.remove(attribute)
    return True


@MAY_BREAK
def attribute_of_other_kind(model: Model, random: Random) -> bool | None:
    found = list(all_attributes(model))
    if not found:
        return False
    _, attribute = random.choice(found)
    value = random.choice((1, 1.5, "text", [1, 2], [0.5], ["a", "b"], b"\xff\xfe"))
    attribute.CopyFrom(helper.make_attribute(attribute.name, value))
    return True


@MAY_BREAK
def attribute_kind_mislabelled(model: Model, random: Random) -> bool | None:
    """The kind says one field, the value is in another."""
    found = list(all_attributes(model))
    if not found:
        return False
    random.choice(found)[1].type = random.randrange(0, 15)
    return True


@MAY_BREAK
def odd_attribute(model: Model, random: Random) -> bool | None:
    """Integers of any size, lists of any length, numbers that are none."""
    found = [
        attribute
        for _, attribute in all_attributes(model)
        if attribute.type in (AttributeProto.INT, AttributeProto.INTS, AttributeProto.FLOAT)
    ]
    if not found:
        return False
    attribute = random.choice(found)
    size = random.choice((*SIZES, 7, -2, 1000))
    if attribute.type == AttributeProto.INT:
        attribute.i = size
    elif attribute.type == AttributeProto.FLOAT:
        attribute.f = random.choice((float("nan"), float("inf"), -1.0, 0.0, 3e38))
    elif attribute.ints and random.random() < 0.5:
        attribute.ints[random.randrange(len(attribute.ints))] = size
    else:
        attribute.ints[:] = [size] * random.choice((0, 1, 9, 10_000))
    return True


@BREAKS
def no_steps(model: Model, random: Random) -> bool | None:
    """Strides of zero or less, which no window can take."""
    found = [a for _, a in all_attributes(model) if a.name == "strides"]
    if not found:
        return False
    attribute = random.choice(found)
    attribute.ints[random.randrange(len(attribute.ints))] = random.choice((0, -1, -(2**63)))
    return True


@BREAKS
def axis_outside(model: Model, random: Random) -> bool | None:
    found = [a for _, a in all_attributes(model) if a.name == "axis"]
    if not found:
        return False
    random.choice(found).i = random.choice((9, -9, 2**31, 2**63 - 1, -(2**63)))
    return True


@BREAKS
def odd_permutation(model: Model, random: Random) -> bool | None:
    found = [a for _, a in all_attributes(model) if a.name == "perm"]
    if not found:
        return False
    random.choice(found).ints[:] = random.choice(([0, 0, 1, 2], [0, 1, 2, 9], [0], [3, 2, 1, -8]))
    return True


@BREAKS
def odd_groups(model: Model, random: Random) -> bool | None:
    """Groups that do not divide the channels."""
    found = [a for _, a in all_attributes(model) if a.name == "group"]
    if not found:
        return False
    random.choice(found).i = random.choice((0, -1, 3, 7, 2**40))
    return True


@BREAKS
def attribute_given_twice(model: Model, random: Random) -> bool | None:
    found = list(all_attributes(model))
    if not found:
        return False
    node, attribute = random.choice(found)
    node.attribute.append(attribute)
    return True


@BREAKS
def reference_outside_function(model: Model, random: Random) -> bool | None:
    """An attribute that refers to a function's parameter where there is no function."""
    found = list(all_attributes(model))
    if not found:
        return False
    _, attribute = random.choice(found)
    reference = AttributeProto(name=attribute.name, type=attribute.type, ref_attr_name="absent")
    attribute.CopyFrom(reference)
    return True
