"""A package outside this repository that brings operators, as its author would write it.

In: a folder. Out: the package's project there, and (`install`) the folder that it is installed in.
`SOFT_CAP` is an operator's te expression, for tests that write another one.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.packaging.built import ROOT

PROJECT = """
[build-system]
requires = ["setuptools>=61"]
build-backend = "setuptools.build_meta"

[project]
name = "example-operators"
version = "1.0"

[project.entry-points."tilewright.operators"]
example = "example_operators"

[tool.setuptools]
packages = ["example_operators"]
"""

SOFT_CAP = "te.tanh(x[i] / cap) * cap"

OPERATORS = '''
"""Operators of our own."""

import numpy as np

import tilewright as tw
from example_operators.drawing import numbers
from tilewright import te


@tw.operator(
    fusion="broadcast",
    traits=["finite"],
    reference=lambda x, cap: (cap * np.tanh(x / cap)).astype(x.dtype),
    draw=lambda random: ([numbers(random, 4)], {"cap": float(random.uniform(5, 50))}),
    onnx="com.example::SoftCap",
    torch="example::soft_cap",
)
def soft_cap(x, *, cap=30.0):
    """Numbers squeezed to between -cap and cap."""
    return te.compute(x.shape, lambda *i: SOFT_CAP, name="soft_cap")


def reverse_reference(x):
    return np.flip(x, -1)


@tw.operator(
    fusion="injective",
    reference=reverse_reference,
    draw=lambda random: ([numbers(random, 2)], {}),
    onnx={"com.example::Reverse": lambda node: node.emit("reverse_rows", node[0])},
)
def reverse_rows(x):
    """The elements of each row from the last to the first."""
    last = x.shape[1] - 1
    return te.compute(x.shape, lambda i, j: x[i, last - j], name="reverse_rows")


def _spread(x, *, axes):
    if x.rank <= max(axes, default=0):
        raise ValueError(f"axes {axes} are not all there")
    return x.dtype, tuple(1 if d in axes else s for d, s in enumerate(x.shape))


@tw.operator(
    fusion="reduction",
    infer=_spread,
    reference=lambda x, axes: x.max(axes, keepdims=True) - x.min(axes, keepdims=True),
    draw=lambda random: ([numbers(random, 3)], {"axes": (1, 2)}),
    onnx="com.example::Spread",
)
def spread(x, *, axes):
    """From the least to the greatest along axes, which stay as 1."""
    k = [te.reduce_axis(x.shape[d], f"k{d}") for d in axes]
    shape = tuple(1 if d in axes else s for d, s in enumerate(x.shape))

    def at(i):
        inner = iter(k)
        return tuple(next(inner) if d in axes else i[d] for d in range(len(shape)))

    top = te.compute(shape, lambda *i: te.max(x[at(i)], k), name="top")
    low = te.compute(shape, lambda *i: te.min(x[at(i)], k), name="low")
    return te.compute(shape, lambda *i: top[i] - low[i], name="spread")
'''

DRAWING = '''
"""What operators are checked with."""

import numpy as np


def numbers(random, rank):
    return random.normal(0, 40, random.integers(1, 9, rank)).astype(np.float32)
'''


def write(folder: Path) -> Path:
    """The package's project in a folder."""
    package = folder / "example_operators"
    package.mkdir(parents=True)
    (folder / "pyproject.toml").write_text(PROJECT)
    (package / "__init__.py").write_text(OPERATORS.replace("SOFT_CAP", SOFT_CAP))
    (package / "drawing.py").write_text(DRAWING)
    return folder


def edited(installed: Path, out: Path, old: str, new: str, file: str = "__init__.py") -> Path:
    """The installed package once more, in another folder unless it is there, edited in a file."""
    if not out.exists():
        shutil.copytree(installed, out)
    path = out / "example_operators" / file
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    shutil.rmtree(path.parent / "__pycache__", ignore_errors=True)  # of the same second
    return out


def install(project: Path, out: Path) -> Path:
    """The project installed by pip, of nothing but what is here."""
    options = ("--no-build-isolation", "--no-deps", "--no-index", "--quiet")
    command = [sys.executable, "-m", "pip", "install", *options, "--target", str(out), str(project)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return out


def run(
    installed: Path | None, cache: Path, *command: str, **more: str
) -> subprocess.CompletedProcess[str]:
    """A command with this repository and, if given, what is installed in a folder on the path."""
    folders = [str(ROOT / "src"), str(ROOT), *([str(installed)] if installed else [])]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(folders), **more}
    env["TILEWRIGHT_CACHE_DIR"] = str(cache)
    return subprocess.run(command, capture_output=True, text=True, env=env)
