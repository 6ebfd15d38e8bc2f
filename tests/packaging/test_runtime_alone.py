"""`tilewright_runtime` with NumPy and nothing else: what it holds, and that it runs models."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from tests.packaging.built import ROOT, runtime_tree
from tests.packaging.models import CHECK, MODELS, write

# No package but these is found, whatever is installed.
BLOCKED = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top not in sys.stdlib_module_names | {"numpy", "tilewright_runtime"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocker())
"""


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return runtime_tree(tmp_path_factory.mktemp("runtime") / "tree")


def run_alone(tree: Path, code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Python with the runtime's tree, NumPy and the standard library."""
    folders = [str(tree), str(Path(np.__file__).parents[1])]
    code = f"import sys; sys.path += {folders!r}\n{BLOCKED}\n{code}"
    command = [sys.executable, "-I", "-S", "-c", code, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True)


def test_it_runs_ten_models(tree: Path, tmp_path: Path) -> None:
    for name in MODELS:
        write(tmp_path, name, threads=2)
    done = run_alone(tree, CHECK, tmp_path, 2)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["10", *sorted(MODELS)]


def test_it_has_the_names_that_need_no_compiler(tree: Path) -> None:
    done = run_alone(tree, "import tilewright_runtime as tw; print(tw.__doc__); print(*dir(tw))")
    doc, *_, names = done.stdout.splitlines()
    assert doc == "Tilewright's runtime alone: runs compiled models."
    rooms = ("tilewright.runtime.", "tilewright.support.")
    expected = {name for name, module in tw._PUBLIC.items() if module.startswith(rooms)}
    assert set(names.split()) == expected >= {"load", "Executable", "ArtifactError", "__version__"}


def test_unknown_names_are_told_of_the_package_that_was_asked(tree: Path) -> None:
    done = run_alone(tree, "import tilewright_runtime as tw; tw.compile")
    assert "module 'tilewright_runtime' has no attribute 'compile'" in done.stderr


def test_it_imports_nothing_else(tree: Path) -> None:
    """Neither at once nor later, but for what extras bring."""
    found: set[str] = set()
    for file in tree.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                found |= {name.name.partition(".")[0] for name in node.names}
            elif isinstance(node, ast.ImportFrom):
                found.add((node.module or "").partition(".")[0])
    extras = {"ml_dtypes", "cryptography", "PIL", "typing_extensions"}  # the last for checkers only
    assert found - sys.stdlib_module_names - extras == {"numpy", "tilewright_runtime"}


def test_no_word_leads_to_the_compiler(tree: Path) -> None:
    for file in tree.rglob("*.py"):
        assert not re.search(r"\btilewright\.(?!com|h\b)[a-z_]+ import", file.read_text()), file


def test_dtypes_that_numpy_lacks_name_their_package(tree: Path, tmp_path: Path) -> None:
    import torch

    module = torch.nn.Linear(4, 3).to(torch.bfloat16)
    exe = tw.compile(module, example_inputs=(torch.ones(2, 4, dtype=torch.bfloat16),))
    exe.save(tmp_path / "m.tw")
    code = "import sys, tilewright_runtime as tw; tw.load(sys.argv[1])"
    done = run_alone(tree, code, tmp_path / "m.tw")
    assert "the package 'ml_dtypes' is not installed" in done.stderr
    assert "pip install ml_dtypes" in done.stderr


def test_both_packages_in_one_process(tree: Path, tmp_path: Path) -> None:
    """Each has its own library: models of one run beside those of the other."""
    write(tmp_path, "perceptron")
    code = f"""
import sys
sys.path.insert(0, {str(tree)!r})
import numpy as np
import tilewright, tilewright_runtime
told = np.load(sys.argv[1] + "/perceptron.npz")
path = sys.argv[1] + "/perceptron.tw"
first, second = tilewright.load(path, 2), tilewright_runtime.load(path, 2)
assert type(first) is not type(second)
assert np.array_equal(first(told["input"])[0], second(told["input"])[0])
"""
    path = {"PYTHONPATH": f"{ROOT / 'src'}"}
    command = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, env=path)
    assert done.returncode == 0, done.stderr
