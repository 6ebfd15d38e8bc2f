"""Operators of a package outside the repository, used as its users would."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from subprocess import CompletedProcess

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.packaging.built import ROOT
from tests.packaging.own_package import SOFT_CAP, edited, install, run, write

CAP = 1.5


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("package")
    return install(write(folder / "project"), folder / "installed")


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A convolution, the operator, a ReLU, rows reversed: of images of any number and size."""
    weights = np.random.default_rng().normal(size=(8, 3, 3, 3)).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["image", "w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("SoftCap", ["c"], ["s"], domain="com.example", cap=CAP),
        helper.make_node("Relu", ["s"], ["r"]),
        helper.make_node("Spread", ["r"], ["p"], domain="com.example", axes=[2, 3]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("Reverse", ["f"], ["y"], domain="com.example"),
    ]
    shape = ["n", 3, "height", 20]
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, shape)
    outputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in ("r", "y")]
    constants = [numpy_helper.from_array(weights, "w")]
    graph = helper.make_graph(nodes, "capped", [image], outputs, constants)
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.example", 1)]
    made = helper.make_model(graph, opset_imports=imports, ir_version=9)
    path = tmp_path / "model.onnx"
    onnx.save(made, path)
    return path


def python(
    installed: Path | None, cache: Path, code: str, *arguments: object
) -> CompletedProcess[str]:
    return run(installed, cache, sys.executable, "-c", code, *map(str, arguments))


# Convolution and maximum by NumPy alone: nothing here is Tilewright's.
REFERENCE = """
import pickle, sys
import numpy as np, onnx
from onnx import numpy_helper
import tilewright as tw

path = sys.argv[1]
w = numpy_helper.to_array(onnx.load(path).graph.initializer[0])

def expected(x):
    wide = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    seen = np.lib.stride_tricks.sliding_window_view(wide, (3, 3), (2, 3))
    c = np.einsum("nchwij,ocij->nohw", seen, w)
    r = np.maximum(1.5 * np.tanh(c / 1.5), 0)
    return r, (r.max((2, 3)) - r.min((2, 3)))[:, ::-1]

def check(exe, *sizes):
    for n, height in sizes:
        x = np.random.default_rng().normal(size=(n, 3, height, 20)).astype(np.float32)
        for got, want in zip(exe(x), expected(x), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
"""

COMPILE = """
sizes = {"n": 2, "height": 16}
for opt_level in range(4):
    threads = 1 + opt_level % 2
    exe = tw.compile(path, threads=threads, opt_level=opt_level)
    check(exe, (1, 8), (3, 5), (2, 16))
    fixed = tw.compile(path, shapes=sizes, threads=threads, opt_level=opt_level)
    check(fixed, (2, 16))
exe = tw.compile(path, ["cpu", "cpu -mcpu=nehalem"], threads=2) if HAS_VARIANTS else exe
check(exe, (1, 8))
check(pickle.loads(pickle.dumps(exe)), (2, 7))
fixed.save(sys.argv[2])
print(*[kernel.name for kernel in fixed.manifest.kernels])
"""


def test_a_model_compiles_fuses_and_computes_what_numpy_does(
    installed: Path, cache: Path, model: Path, tmp_path: Path
) -> None:
    variants = "import platform\nHAS_VARIANTS = platform.machine() == 'x86_64'\n"
    saved = tmp_path / "model.tw"
    done = python(installed, cache, REFERENCE + variants + COMPILE, model, saved)
    assert done.returncode == 0, done.stderr
    first, *others = done.stdout.split()
    assert re.fullmatch(r"k\d+_conv_.*soft_cap_relu", first), done.stdout
    assert not any("soft_cap" in name or "relu" in name for name in others)
    assert any("spread" in name for name in others)
    # the artifact needs the package no more than Tilewright's compiler
    alone = python(None, cache, REFERENCE + "check(tw.load(sys.argv[2]), (2, 16))", model, saved)
    assert alone.returncode == 0, alone.stderr


def test_the_command_line_finds_the_package(
    installed: Path, cache: Path, model: Path, tmp_path: Path
) -> None:
    tilewright = (sys.executable, "-m", "tilewright")
    x = np.random.default_rng().normal(size=(2, 3, 9, 20)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    saved = tmp_path / "cli.tw"
    done = run(installed, cache, *tilewright, "compile", str(model), "-o", str(saved))
    assert done.returncode == 0, done.stderr
    results = []
    for runs, package in ((model, installed), (saved, None)):
        out = tmp_path / f"{runs.suffix[1:]}.npz"
        given = ("--input", f"image={tmp_path / 'x.npy'}", "--out", str(out))
        done = run(package, cache, *tilewright, "run", str(runs), *given)
        assert done.returncode == 0, done.stderr
        results.append(dict(np.load(out)))
    assert results[0].keys() == results[1].keys()
    for name, array in results[0].items():
        np.testing.assert_array_equal(array, results[1][name])
    missing = run(None, tmp_path / "empty", *tilewright, "compile", str(model), "-o", str(saved))
    assert missing.returncode == 1
    assert "com.example.SoftCap" in missing.stderr and "tilewright.operator" in missing.stderr


TORCH = """
import torch, tilewright as tw, warnings
warnings.simplefilter("error", tw.PluginWarning)

@torch.library.custom_op("example::soft_cap", mutates_args=())
def soft_cap(x: torch.Tensor, cap: float = 30.0) -> torch.Tensor:
    return cap * torch.tanh(x / cap)

@soft_cap.register_fake
def _(x, cap=30.0):
    return torch.empty_like(x)

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 8, 3, padding=1)

    def forward(self, x):
        return torch.relu(torch.ops.example.soft_cap(self.conv(x), cap=1.5))

net = Net().eval()
with torch.no_grad():
    x = torch.randn(2, 3, 12, 20)
    expected = net(x)
    exe = tw.compile(net, example_inputs=(x,))
    torch.testing.assert_close(exe(x)[0], expected, rtol=1e-4, atol=1e-5)
    print(*[kernel.name for kernel in exe.manifest.kernels])
    batch = {"x": {0: torch.export.Dim("batch")}}
    opened = tw.compile(net, example_inputs=(x,), dynamic_shapes=batch)
    seen = torch.compile(net, backend="tilewright")
    from tilewright.driver.torch_backend import EagerWarning
    warnings.simplefilter("error", EagerWarning)
    for n in (2, 5, 3):
        x = torch.randn(n, 3, 12, 20)
        torch.testing.assert_close(opened(x)[0], net(x), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(seen(x), net(x), rtol=1e-4, atol=1e-5)
"""


def test_pytorch_finds_the_package(installed: Path, cache: Path) -> None:
    done = python(installed, cache, TORCH)
    assert done.returncode == 0, done.stderr
    assert re.search(r"k\d+_conv_add_soft_cap_relu", done.stdout), done.stdout
    assert done.stdout.count("soft_cap") == 1


def test_the_registry_fuzzes_it_and_sees_a_wrong_definition(
    installed: Path, cache: Path, tmp_path: Path
) -> None:
    tests = ["-q", "-k", "of_packages", "-p", "no:cacheprovider", "--basetemp", str(tmp_path / "b")]
    command = [sys.executable, "-m", "pytest", str(ROOT / "tests/graph/test_operators.py"), *tests]
    done = run(installed, cache, *command)
    assert done.returncode == 0, done.stdout
    assert "2 passed" in done.stdout
    wrong = SOFT_CAP.replace("/ cap", "/ (cap + 0.5)")
    other = edited(installed, tmp_path / "installed", SOFT_CAP, wrong)
    done = run(other, cache, *command)
    assert done.returncode == 1 and "2 failed" in done.stdout, done.stdout
    (told,) = re.findall(r"the operator '(\w+)' is wrong [^\n]*", done.stdout)[:1]
    assert told == "soft_cap" and "the operator 'spread'" not in done.stdout


def test_an_edited_operator_is_compiled_again(installed: Path, model: Path, tmp_path: Path) -> None:
    code = """
import sys, numpy as np, tilewright as tw
exe = tw.compile(sys.argv[1], threads=1)
y, _ = exe(np.full((1, 3, 8, 20), 100.0, np.float32))
print("import" in str(exe.compile_stages), y.max())
"""
    out, cache = tmp_path / "installed", tmp_path / "cache"

    def told() -> tuple[bool, float]:
        done = python(out, cache, code, model)
        assert done.returncode == 0, done.stderr
        is_new, top = done.stdout.split()
        return is_new == "True", float(top)

    edited(installed, out, SOFT_CAP, f"{SOFT_CAP} * 1")
    assert told() == (True, pytest.approx(CAP))
    assert told() == (False, pytest.approx(CAP))
    edited(installed, out, "cap * 1", "cap * 2")
    assert told() == (True, pytest.approx(2 * CAP))
    # a helper in another file of the package counts as well
    edited(installed, out, "40", "41", "drawing.py")
    assert told() == (True, pytest.approx(2 * CAP))


def test_a_broken_package_harms_nobody_else(installed: Path, model: Path, tmp_path: Path) -> None:
    end = 'name="spread")'
    wrong = f"{end}\n\n\nraise RuntimeError('half of it is missing')"
    out, cache = edited(installed, tmp_path / "installed", end, wrong), tmp_path / "cache"
    command = (sys.executable, "-m", "tilewright")
    done = run(out, cache, *command, "compile", str(model), "-o", str(tmp_path / "m.tw"))
    assert done.returncode == 1 and "Traceback" not in done.stderr
    said = " ".join(done.stderr.split())
    assert "'example-operators'" in said and "half of it is missing" in said
    assert "com.example.SoftCap" in said
    digits = ROOT / "src/tilewright/driver/demo/digits.onnx"
    done = run(out, cache, *command, "compile", str(digits), "-o", str(tmp_path / "m.tw"))
    assert done.returncode == 0 and "example" not in done.stderr


SCRIPT = """
import sys
import numpy as np
import tilewright as tw
from tilewright import te

LIMIT = 1.5

@tw.operator(
    fusion="broadcast",
    reference=lambda x, cap: np.clip(x, -LIMIT, LIMIT),
    draw=lambda random: ([random.random((2, 3), np.float32)], {}),
    onnx="com.example::SoftCap",
)
def limited(x, *, cap=1.0):
    \"\"\"Numbers between limits.\"\"\"
    return te.compute(x.shape, lambda *i: te.maximum(te.minimum(x[i], LIMIT), -LIMIT))

exe = tw.compile(sys.argv[1], threads=1)
print("import" in str(exe.compile_stages), exe(np.full((2, 3), 9, np.float32))[0].max())
"""


def test_a_script_is_known_by_its_code(tmp_path: Path) -> None:
    """Of each of two runs whether the model was compiled anew, and what it gives."""
    node = helper.make_node("SoftCap", ["x"], ["y"], domain="com.example")
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2, 3]) for n in "xy"]
    graph = helper.make_graph([node], "g", ends[:1], ends[1:])
    imports = [helper.make_opsetid(domain, 17) for domain in ("", "com.example")]
    path, script = tmp_path / "model.onnx", tmp_path / "script.py"
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=9), path)
    told: list[str] = []
    for text in (SCRIPT, SCRIPT, SCRIPT.replace("LIMIT = 1.5", "LIMIT = 2.5")):
        script.write_text(text)
        done = run(None, tmp_path / "cache", sys.executable, str(script), str(path))
        assert done.returncode == 0, done.stderr
        told.append(done.stdout.strip())
    assert told == ["True 1.5", "False 1.5", "True 2.5"]
