"""Looking into models and artifacts: the fused graph as an ONNX file, a .tw's options."""

from __future__ import annotations

import re
import shutil
import sys

import numpy as np
import onnx
import pytest

import tilewright as tw
from tests.driver.conftest import DIGITS
from tests.driver.test_cli import recurrence
from tilewright.driver import disassembly
from tilewright.driver.report import onnx_graph
from tilewright.runtime.artifact import CODE, WEIGHTS, list_sections

# ---- The fused graph as an ONNX file ------------------------------------------------------------


def test_the_fused_graph_is_an_onnx_model(command, tmp_path):
    status, printed, errors = command("inspect", DIGITS, "--onnx", "graph.onnx", "--threads", 1)
    assert (status, errors) == (0, "") and "netron.app" in printed
    made = onnx.load("graph.onnx")
    onnx.checker.check_model(made, full_check=True)
    kernels = [n for n in made.graph.node if n.domain == onnx_graph.KERNELS]
    manifest = tw.compile(DIGITS, threads=1).manifest
    assert [n.op_type for n in kernels] == [k.name for k in manifest.kernels]
    told = {p.key: p.value for p in kernels[0].metadata_props}
    assert told["flops"] == str(manifest.kernels[0].flops) and "element-wise" in str(told)
    functions = {f.name: [n.op_type for n in f.node] for f in made.functions}
    for kernel in manifest.kernels:
        assert functions[kernel.name] == list(kernel.ops)
    (image,), (scores,) = made.graph.input, made.graph.output
    assert [d.dim_value for d in image.type.tensor_type.shape.dim] == [1, 1, 8, 8]
    assert [d.dim_value for d in scores.type.tensor_type.shape.dim] == [1, 10]
    weights = {t.name: onnx.numpy_helper.to_array(t) for t in made.graph.initializer}
    original = {t.name: onnx.numpy_helper.to_array(t) for t in onnx.load(DIGITS).graph.initializer}
    np.testing.assert_array_equal(weights["classifier_2_bias"], original["classifier.2.bias"])


def test_values_have_their_types(command, tmp_path):
    command("inspect", DIGITS, "--onnx", "graph.onnx", "--threads", 1)
    graph = onnx.load("graph.onnx").graph
    known = {v.name for v in (*graph.value_info, *graph.input, *graph.output, *graph.initializer)}
    assert {name for n in graph.node for name in (*n.input, *n.output)} <= known


def test_loops_hold_their_rounds(command, tmp_path):
    path = recurrence(tmp_path / "recurrence.onnx", units=256)
    assert command("inspect", path, "--onnx", "graph.onnx", "--threads", 1)[0] == 0
    made = onnx.load("graph.onnx")
    onnx.checker.check_model(made, full_check=True)
    (loop,) = (n for n in made.graph.node if n.op_type == "while_loop")
    (body,) = (a.g for a in loop.attribute if a.type == onnx.AttributeProto.GRAPH)
    assert any("sigmoid" in n.op_type for n in body.node)
    assert made.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "steps"


def test_large_weights_stand_beside_the_file(command, monkeypatch):
    monkeypatch.setattr(onnx_graph, "LARGEST", 1000)
    for _ in range(2):  # a second one replaces it
        assert command("inspect", DIGITS, "--onnx", "graph.onnx", "--threads", 1)[0] == 0
    made = onnx.load("graph.onnx")
    onnx.checker.check_model("graph.onnx")
    assert any(t.dims == [10] for t in made.graph.initializer)


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f8e4m3", "i4", "u4", "i8", "bool"])
def test_weights_of_every_type(dtype, tmp_path):
    from tilewright.graph.graph import Value
    from tilewright.ir.dtype import dtype as dtype_of
    from tilewright.ir.expr import const
    from tilewright.runtime.tensor import numpy_dtype

    array = np.array([1, 0, 1]).astype(numpy_dtype(dtype))
    writer = onnx_graph._Writer(onnx, {})
    made = writer.tensor("w", Value("w", dtype_of(dtype), (const(3),)), array)
    onnx.checker.check_tensor(made)
    got = onnx.numpy_helper.to_array(made).astype(np.float32)
    np.testing.assert_array_equal(got, [1, 0, 1])


def test_attributes():
    given = [True, 3, 1.5, "same", (1, 2), (1.0, 2.5), ("a", "b"), ((1, 2), (3, 4)), (), (1, None)]
    assert [onnx_graph.plain(value) for value in given] == [
        1, 3, 1.5, "same", [1, 2], [1.0, 2.5], ["a", "b"], "((1, 2), (3, 4))", "()", "(1, None)"
    ]  # fmt: skip


def test_without_the_package(command, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(tw.CompileError, match="pip install"):
        onnx_graph.write_onnx(None, {}, "graph.onnx")  # type: ignore[arg-type]


# ---- Artifacts ----------------------------------------------------------------------------------


@pytest.fixture
def artifact(tmp_path):
    return tw.compile(DIGITS, threads=1).save(tmp_path / "digits.tw")


def test_an_artifact_shows_what_it_holds(command, artifact):
    status, printed, _ = command("inspect", artifact, "--fused", "--memory", "--kernels")
    assert status == 0 and "conv → add → relu" in printed
    sections = list_sections(tw.load(artifact).artifact())
    (weights,) = (len(data) for kind, _, data in sections if kind == WEIGHTS)
    told = re.search(r"live at once; ([\d.]+) kB of weights", printed)
    assert told and abs(float(told[1]) * 1e3 - weights) < 0.02 * weights and "flops" in printed
    status, printed, _ = command("inspect", artifact)
    assert status == 0 and "inputs: image: f32[1, 1, 8, 8]" in printed and "flops" in printed


@pytest.mark.parametrize("tool", ["llvm-objdump", "objdump"])
@pytest.mark.parametrize("form", [(), ("--stage", "asm")])
def test_a_kernel_of_an_artifact_is_disassembled(tool, form, command, artifact, monkeypatch):
    if shutil.which(tool) is None:
        pytest.skip(f"no {tool}")
    monkeypatch.setattr(disassembly, "TOOLS", (tool,))
    exe = tw.load(artifact)
    for kernel in exe.manifest.kernels[:3]:
        status, printed, errors = command("inspect", artifact, "--kernel", kernel.name, *form)
        assert (status, errors) == (0, "") and printed.startswith(f"{kernel.name}:\n")
        assert "ret" in printed
    assert "unknown" not in printed.partition("ret")[0]


def test_the_code_of_every_variant_and_kernel_is_noted(model, tmp_path):
    exe = tw.compile(model, ["cpu", "cpu -mcpu=x86-64-v2"], threads=1)
    for number, starts in enumerate(exe.manifest.notes["code"]):
        assert set(starts) == {k.name for k in exe.manifest.kernels}
        sections = list_sections(exe.artifact())
        (size,) = (len(data) for kind, n, data in sections if (kind, n) == (CODE, number))
        assert all(0 <= at < size for functions in starts.values() for at in functions)


def test_without_a_disassembler(command, artifact, monkeypatch):
    monkeypatch.setattr(disassembly, "TOOLS", ("no-such-objdump",))
    status, _, errors = command("inspect", artifact, "--kernel", "k0")
    assert status == 1 and "install LLVM or binutils" in errors
