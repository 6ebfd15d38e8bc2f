"""The command line: what each command does, what it says of a mistake, and its exit status."""

from __future__ import annotations

import io
import subprocess
import sys

import numpy as np
import pytest

import tilewright as tw
from tests.driver.conftest import DIGITS, dense, expected
from tilewright.driver.cli import Form, app

COMMANDS = (
    *("compile", "run", "bench", "inspect", "tune", "records", "distil", "opt", "demo", "targets"),
    *("machine", "knobs"),
)
SCALE = """\
def scale(A: f32[60], B: f32[60]):
    for i in serial(0, 60):
        with block("B"):
            vi = spatial(60, i)
            reads(A[vi])
            writes(B[vi])
            B[vi] = A[vi] * 2.0
"""


@pytest.fixture
def artifact(model, tmp_path):
    return tw.compile(model, threads=1).save(tmp_path / "dense.tw")


def test_every_command_has_help(command):
    assert {c.name or c.callback.__name__ for c in app.registered_commands} == set(COMMANDS)
    status, printed, _ = command("--help")
    assert status == 0 and all(name in printed for name in COMMANDS)
    for name in COMMANDS:
        status, printed, _ = command(name, "--help")
        assert status == 0 and f"tilewright {name}" in printed and len(printed.split()) > 20


def test_version(command):
    assert command("--version") == (0, f"tilewright {tw.__version__}\n", "")


def test_it_is_a_module_too():
    done = subprocess.run(
        [sys.executable, "-m", "tilewright", "--version"], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, f"tilewright {tw.__version__}\n")


# ---- compile, run -----------------------------------------------------------------------------


def test_compile_writes_an_artifact(command, model, tmp_path):
    status, printed, errors = command("compile", model, "-o", tmp_path / "out.tw", "--threads", 1)
    assert (status, errors) == (0, "")
    assert "x: f32[2, 8] → y: f32[2, 5]" in printed and "kernels" in printed
    x = np.random.default_rng(0).standard_normal((2, 8), np.float32)
    np.testing.assert_allclose(tw.load(tmp_path / "out.tw")(x)[0], expected(x), rtol=1e-5)


def test_compile_names_the_artifact_after_the_model(command, model, tmp_path):
    assert command("compile", model)[0] == 0
    assert (tmp_path / "dense.tw").exists()


def test_compile_makes_a_library(command, model, tmp_path):
    made = tmp_path / "made"
    status, printed, _ = command("compile", model, "--library", made)
    assert status == 0 and f"{made}: library, header and example" in printed
    assert (made / "include/dense.h").exists() and list((made / "lib").glob("libdense.*"))
    status, *_ = command("compile", model, "--library", made, "--kind", "c-array", "--name", "net")
    assert status == 0
    assert (made / "net.c").exists() and (made / "net.h").exists()


def test_options_of_libraries_need_one(command, model):
    for option in (("--kind", "static"), ("--name", "net")):
        status, _, errors = command("compile", model, *option)
        assert status == 2 and "it is a part of --library" in errors


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--kind", "dll"), "the kinds are library, static, c-array"),
        (("--name", "my-net"), "cannot name a library 'my-net'"),
        (("--target", "cpu -mtriple=riscv64-linux-gnu"), "whole models run on x86-64 and"),
        (("--target", "cpu -mtriple=aarch64-linux-android"), "libraries are built for x86_64"),
    ],
)
def test_libraries_that_cannot_be_are_told_before_compiling(
    command, model, tmp_path, monkeypatch, arguments, message
):
    monkeypatch.setattr("tilewright.driver.compile.compile_graph", None)
    status, _, errors = command("compile", model, "--library", tmp_path / "made", *arguments)
    assert status == 1 and message in errors
    assert not (tmp_path / "made").exists() and not (tmp_path / "dense.tw").exists()


def test_compile_for_another_machine(command, model, tmp_path):
    other = "aarch64" if tw.build(scale()).manifest.target.startswith("x86") else "x86_64"
    target = f"cpu -mtriple={other}-linux-gnu"
    assert command("compile", model, "-o", "other.tw", "--target", target)[0] == 0
    status, _, errors = command("run", "other.tw")
    assert status == 1 and "the artifact has no code for this machine" in errors


def scale():
    from tilewright.ir.parse import parse_func

    return parse_func(SCALE)


def test_run_on_random_inputs(command, model, artifact):
    first, second = (command("run", path, "--seed", 3) for path in (model, artifact))
    assert first == second and first[0] == 0
    assert "f32[2, 8]" in first[1] and "f32[2, 5]" in first[1]


def test_run_on_files_and_keep_the_outputs(command, model):
    x = np.random.default_rng(4).standard_normal((2, 8), np.float32)
    np.save("x.npy", x)
    assert command("run", model, "--input", "x=x.npy", "-o", "out.npz")[0] == 0
    np.testing.assert_allclose(np.load("out.npz")["y"], expected(x), rtol=1e-5)


def test_run_gives_symbolic_dimensions_a_size(command, tmp_path):
    path = dense(tmp_path / "any.onnx", rows="n")
    assert "f32[1, 5]" in command("run", path)[1]
    assert "f32[6, 5]" in command("run", path, "--size", "n=6")[1]


def test_run_profiles(command, artifact):
    status, printed, _ = command("run", artifact, "--profile")
    assert status == 0 and "% of it" in printed and "us in kernels" in printed


def test_running_an_artifact_loads_no_compiler(artifact):
    code = (
        "import sys; from tilewright.driver import cli\n"
        f"sys.argv = ['tilewright', 'run', {str(artifact)!r}]\n"
        "try: cli.main()\n"
        "except SystemExit: pass\n"
        "print('loaded', *(m for m in sys.modules if m.startswith(('tilewright.ir', 'llvmlite'))))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "f32[2, 5]" in done.stdout and done.stdout.rstrip().split("\n")[-1] == "loaded"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nowhere.onnx",), "cannot compile 'nowhere.onnx': there is no such file"),
        (("nowhere.tw",), "nowhere.tw"),
        (("dense.onnx", "--input", "z=x.npy"), "the model has no 'z'\n  it has: x"),
        (("dense.onnx", "--input", "x"), "cannot read input 'x' from 'x': there is no such file"),
        (("dense.onnx", "--input", "x=no.npy"), "cannot read input 'x' from 'no.npy'"),
        (("dense.onnx", "--input", "x=dense.onnx"), "cannot read input 'x' from 'dense.onnx'"),
        (("dense.onnx", "--input", "x=wide.npy"), "dimension 1 is 9, expected 8"),
        (("dense.onnx", "--size", "n=2"), "the model has no 'n'\n  it has: none"),
        (("dense.onnx", "-o", "no/folder.npz"), "there is no folder 'no'"),
    ],
)
def test_mistakes_are_told_without_a_traceback(arguments, message, command, model):
    np.save("wide.npy", np.zeros((2, 9), np.float32))
    status, _, errors = command("run", *arguments)
    assert status == 1
    assert errors.startswith("error: ") and message in errors and "Traceback" not in errors


def test_a_size_is_a_number(command, tmp_path):
    path = dense(tmp_path / "any.onnx", rows="n")
    assert "it is no whole number" in command("run", path, "--size", "n=many")[2]


@pytest.mark.parametrize(
    "arguments",
    [
        ("run",),
        ("paint",),
        ("run", "a.tw", "--threads", "0"),
        ("run", "a.tw", "--threads", "two"),
        ("compile", "a.onnx", "--opt-level", "9"),
        ("bench", "a.onnx", "--threads", "1,x"),
        ("bench", "a.onnx", "--against", "nobody"),
        ("bench", "a.onnx", "--html", "page.html"),
        ("inspect", "a.onnx", "--stage", "soup"),
    ],
)
def test_wrong_usage_exits_2(arguments, command):
    status, _, errors = command(*arguments)
    assert status == 2 and "Usage: " in errors


# ---- bench, inspect ---------------------------------------------------------------------------


def test_bench_compares_in_turns(command, model):
    pytest.importorskip("onnxruntime")
    status, printed, errors = command("bench", model, "--threads", "1,2", "--seconds", "0.05")
    assert (status, errors) == (0, "")
    assert "dense, 1 thread" in printed and "dense, 2 threads" in printed
    for name in ("tilewright", "onnxruntime"):
        assert printed.count(f"\n  {name} ") == 2


def test_bench_alone(command, artifact):
    status, printed, _ = command("bench", artifact, "--against", "none", "--seconds", "0.02")
    assert status == 0 and "tilewright" in printed and "onnxruntime" not in printed


def test_bench_of_an_artifact_has_nothing_to_compare(command, artifact):
    status, _, errors = command("bench", artifact)
    assert status == 1 and "other engines read the ONNX file" in errors


def test_bench_shows_kernels_against_the_machine(command, tmp_path):
    path = dense(tmp_path / "any.onnx", rows="n")
    status, printed, errors = command(
        "bench", path, "--roofline", "--html", "page.html", "--size", "n=6", "--threads", "1,2",
        "--seconds", "0.01",
    )  # fmt: skip
    assert (status, errors) == (0, "")
    assert printed.count("% of it") == 2 and "memory" in printed and "onnxruntime" not in printed
    page = (tmp_path / "page.html").read_text()
    assert "x: f32[6, 8]" in page and "2 threads: " in page and page.count("<circle") >= 2


def test_inspect_shows_all_parts(command, model):
    status, printed, _ = command("inspect", model, "--threads", 1)
    assert status == 0
    assert "def dense(x: f32[2, 8]):" in printed  # the graph
    assert "element-wise on the output of" in printed  # why
    assert "arena: " in printed and "live at once" in printed  # the memory plan
    assert "flops" in printed  # the kernels
    status, printed, _ = command("inspect", model, "--graph")
    assert status == 0 and printed.startswith("def dense(")
    assert "arena" not in printed


def test_inspect_shows_the_kernels_of_loops(command, tmp_path):
    """Those of a recurrence's rounds, too."""
    path = recurrence(tmp_path / "recurrence.onnx", units=256)
    status, printed, said = command("inspect", path, "--threads", 1, "--fused")
    assert status == 0, said
    assert "k0_dense" in printed and "sigmoid" in printed  # before the rounds, and in one


def recurrence(path, units):
    """A GRU of an open number of steps."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    weights = np.full((1, 3 * units, units), 0.01, np.float32)
    graph = helper.make_graph(
        [helper.make_node("GRU", ["x", "w", "w"], ["y"], hidden_size=units)],
        "recurrence",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["steps", 1, units])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(weights, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    onnx.save(model, path)
    return path


@pytest.mark.parametrize(
    ("form", "sign"),
    {
        "te": "with block(",
        "trace": "s.vectorize(",
        "schedule": "with block(",
        "loops": " in vectorize(",
        "flat": " in vectorize(",
        "vector": " in vectorize(",
        "llvm": "define void @",
        "asm": "ret",
    }.items(),
)
def test_inspect_shows_a_kernel_in_any_form(form, sign, command, model):
    assert form in list(Form)
    names = [k.name for k in tw.compile(model, threads=1).manifest.kernels]
    status, printed, _ = command("inspect", model, "--kernel", names[-1], "--stage", form)
    assert status == 0 and sign in printed


def test_inspect_finds_kernels_by_number(command, model):
    status, printed, _ = command("inspect", model, "--kernel", "k0", "--stage", "te")
    assert status == 0 and printed.startswith("def k0_")
    status, _, errors = command("inspect", model, "--kernel", "k99")
    assert status == 1 and "there is no such kernel\n  kernels: k0_" in errors


def test_inspect_an_artifact(command, artifact):
    status, printed, _ = command("inspect", artifact)
    assert status == 0 and "x: f32[2, 8]" in printed and "k0_" in printed


# ---- opt --------------------------------------------------------------------------------------


@pytest.fixture
def opt(command, tmp_path):
    (tmp_path / "scale.txt").write_text(SCALE)
    return lambda *steps: command("opt", "scale.txt", *(a for s in steps for a in ("-p", s)))


def test_opt_without_steps_prints_the_program(opt):
    assert opt() == (0, SCALE, "")


def test_opt_applies_primitives_and_passes(opt):
    status, printed, _ = opt("split(i, 16), vectorize(i_i)", "lower")
    assert status == 0
    assert printed.count("for i_i in vectorize(0, 16") == 2  # without and with a guard
    assert "B[i_o * 16 + i_i] = A[i_o * 16 + i_i] * 2.0" in printed
    assert "if i_i < 12:\n" in printed and "B[i_i + 48] = A[i_i + 48] * 2.0" in printed


def test_opt_runs_single_passes_and_makes_code(opt):
    assert "B[i] = A[i] * 2.0" in opt("compact_buffers,flatten")[1]
    assert 'define void @"scale"' in opt("emit")[1]
    assert "scale" in opt("assembly")[1]
    assert opt("verify")[1] == SCALE


def test_opt_makes_code_for_other_machines(command, tmp_path):
    (tmp_path / "scale.txt").write_text(SCALE)
    steps = "bind(i, threadIdx.x)"
    for target, step, sign in (
        ("opencl", "emit", "void scale("),
        ("cuda", "assembly", ".visible .entry scale"),
        ("cpu -mtriple=aarch64-linux-gnu", "assembly", "\tldr\t"),
    ):
        given = ["-p", step] if target.startswith("cpu") else ["-p", steps, "-p", step]
        status, printed, errors = command("opt", "scale.txt", *given, "--target", target)
        assert (status, errors) == (0, "") and sign in printed
    status, _, errors = command("opt", "scale.txt", "-p", "assembly", "--target", "opencl")
    assert status == 1 and "its code is source" in errors
    status, _, errors = command("opt", "scale.txt", "-p", "emit", "--target", "metal")
    assert status == 1 and "cannot generate code for 'metal'" in errors and "cuda" in errors


def test_opt_shows_every_step(command, tmp_path):
    (tmp_path / "scale.txt").write_text(SCALE)
    _, printed, _ = command("opt", "scale.txt", "-p", "split(i, 6), parallel(i_o)", "--each")
    assert printed.count("def scale(") == 2 and "# after split(i, 6)\n" in printed


def test_opt_takes_index_maps(opt):
    status, printed, errors = opt("transform_layout(B, lambda i: (i // 4, i % 4))")
    assert (status, errors) == (1, errors) or "B[" in printed  # a parameter's layout is refused
    assert "Traceback" not in errors


def test_opt_reads_graphs(command, model, tmp_path):
    from tilewright.frontend.onnx import import_onnx

    (tmp_path / "graph.txt").write_text(str(import_onnx(str(model))))
    _, printed, _ = command("opt", "graph.txt", "-p", "eliminate_dead, fuse")
    assert "complex, anchor " in printed
    assert "there is no such pass" in command("opt", "graph.txt", "-p", "flatten")[2]


def test_opt_reads_standard_input(command, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO(SCALE))
    assert command("opt", "-", "-p", "split(i, 6)")[0] == 0


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ("paint", "there is no such step for 'cpu'\n  passes: compact_buffers,"),
        ("split(i, 0)", "cannot split loop 'i' by 0"),
        ("split(q, 2)", "there is no loop 'q'"),
        ("split()", "cannot apply 'split'"),
        ("split(i, ", "cannot read the step"),
        ("emit, simplify", "code is the end"),
    ],
)
def test_opt_refuses(steps, message, opt):
    status, _, errors = opt(steps)
    assert status == 1 and message in errors and "Traceback" not in errors


def test_opt_of_no_program(command, tmp_path):
    (tmp_path / "bad.txt").write_text("def f(A: f32[4]):\n    A[0] = Q[1]\n")
    status, _, errors = command("opt", "bad.txt")
    assert status == 1 and "Q" in errors
    assert command("opt", "nowhere.txt")[0] == 1


# ---- targets, knobs ---------------------------------------------------------------------------


def test_targets(command):
    status, printed, _ = command("targets")
    assert status == 0 and "opencl" in printed and "cpu -caches=" in printed


def test_knobs(command, monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_THREADS", "3")
    status, printed, _ = command("knobs")
    assert status == 0
    (line,) = (line for line in printed.split("\n") if "TILEWRIGHT_THREADS" in line)
    assert " 3 " in line
    monkeypatch.setenv("TILEWRIGHT_THREADS", "none")
    assert "none (wrong)" in command("knobs")[1]
    assert "set it to 1 or more" in command("run", DIGITS)[2]


def test_compile_signs_what_it_writes(command, model, tmp_path):
    serialization = pytest.importorskip("cryptography.hazmat.primitives.serialization")
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    (tmp_path / "key.pem").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    out = str(tmp_path / "signed.tw")
    command("compile", model, "-o", out, "--sign", tmp_path / "key.pem")
    assert tw.load(out, verify=key.public_key()).inputs
    public = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    (tmp_path / "public.pem").write_bytes(public)
    assert command("run", out, "--verify", tmp_path / "public.pem")[0] == 0
    for other in (
        tw.load(out).save(tmp_path / "other.tw", sign=Ed25519PrivateKey.generate()),
        model,
    ):
        status, _, errors = command("run", other, "--verify", tmp_path / "public.pem")
        assert status == 1 and ("another key" in errors or "only artifacts" in errors)
