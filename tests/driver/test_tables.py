"""Every table at 60, 80 and 120 columns, as `tables_60.txt` and so on beside this file have them
(`pytest --update-golden` writes them), and what holds for tables of any content: no line is longer
than the terminal is wide, and no number is broken."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from tilewright.driver import inspection
from tilewright.driver.report import layout, tables, terminal
from tilewright.driver.report.compare import Times
from tilewright.driver.stages import Stages
from tilewright.graph.parse import parse
from tilewright.graph.passes.fuse import fuse
from tilewright.graph.passes.plan_memory import plan_memory
from tilewright.runtime import abi
from tilewright.runtime.profile import Profile, Roofline, tabulate
from tilewright.target.costs import COMMON

WIDTHS = 60, 80, 120
GRAPH = """\
def vision(image: f32[n, 3, 224, 224]):
    weights = constant(f32[64, 3, 7, 7], "00")
    conv: f32[n, 64, 112, 112] = conv(image, weights, strides=(2, 2), pads=((3, 3), (3, 3)))
    relu: f32[n, 64, 112, 112] = relu(conv)
    pool: f32[n, 64, 56, 56] = max_pool(relu, kernel=(3, 3), strides=(2, 2), pads=((1, 1), (1, 1)))
    return {"features": pool}
"""
KERNELS = (
    abi.KernelInfo("k0_conv_add_relu", ("conv_packed", "add", "relu"), (1, 8, 112, 112, 16),
                   236027904, 12895232),
    abi.KernelInfo("k1_winograd_add_relu_resize_etc", ("winograd_packed", "add", "relu", "resize",
                   "concat", "sigmoid"), (1, 128, 1024, 1024, 16), "n * 1207959552 + 3", "n * 64"),
    abi.KernelInfo("k2_softmax", ("softmax",), ("n", 1000), 5000, 8000),
)  # fmt: skip
FALLBACKS = {
    "k1_winograd_add_relu_resize_etc": "loops as they are: no tile of 6x16 fits 12 registers"
}
MANIFEST = abi.Manifest("vision", (), (), kernels=KERNELS, notes={"fallbacks": FALLBACKS})


class Group:
    """What a table of groups reads of one."""

    def __init__(self, ops, why):
        self.ops, self.why = ops, why
        (self.outputs,) = [parse(GRAPH).outputs]


def stages():
    made = Stages()
    for name, seconds in (("import", 0.0941), ("kernels", 128.3456), ("write", 0.00004)):
        made.add(name, seconds)
    made.notes["kernels"] = "14 of 15 known"
    return made


def profile():
    symbols = {"n": 4}
    machine = Roofline(232.4, 34.7)
    rows = tabulate(MANIFEST, symbols, [123456789, 98765432, 0], [10, 20, 0], 10, machine)
    return Profile(rows, 12345.6, machine, 2)


def every_table(monkeypatch) -> Iterator[object]:
    """A table of each kind, with numbers and names that are long."""
    yield tables.stages_table(stages())
    image = np.linspace(-2.117904, 2.64, 3 * 480 * 640, dtype=np.float32).reshape(1, 3, 480, 640)
    infos = [abi.TensorInfo("pixel_values", "f32", image.shape), abi.TensorInfo("id", "i64", ())]
    yield tables.tensors_table("inputs", infos, [image, np.array(1234567)])
    found = {"tilewright": Times([[0.012345678]]), "onnxruntime": Times([[0.0234567]])}
    yield tables.times_table("vision, 2 threads", found, {"onnxruntime": 2.9e-7})
    yield tables.profile_table(profile())
    cut = {"max_pool is cut": "max_pool is not element-wise"}
    conv = Group(("conv_packed", "add", "relu"), cut)
    rest = Group(("winograd_packed", "add", "sigmoid"), {}), Group(("softmax",), {})
    yield tables.groups_table(KERNELS, [conv, *rest])
    yield tables.kernel_groups_table(KERNELS)
    yield tables.kernels_table(KERNELS)
    yield from tables.fallbacks_tables(MANIFEST)
    yield tables.targets_table()
    yield tables.costs_table(COMMON, {"memory": 6.25})
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", "/home/somebody/.cache/compilers/tilewright-0.1.0")
    yield tables.knobs_table()


def printed(width, *shown):
    console = Console(width=width, file=open("/dev/null", "w"), record=True)  # noqa: SIM115
    for one in shown:
        console.print(one)
    return console.export_text()


@pytest.mark.parametrize("width", WIDTHS)
def test_every_table(width, request, monkeypatch):
    told = printed(width, *every_table(monkeypatch))
    graph = parse(GRAPH)
    fused = fuse(graph)
    plan = plan_memory(fused)
    manifest = abi.Manifest("vision", (), (), kernels=())
    for console in (terminal.console, terminal.errors):
        monkeypatch.setattr(console, "width", width)
    found = inspection.Look(graph, fused, plan, manifest)
    with terminal.console.capture() as text:
        inspection.show(found, ["graph", "memory"])
        terminal.show_text(str(fused))
        terminal.say(str(profile()).rpartition("\n")[2])
    told += text.get()
    assert max(cell_len(line) for line in told.split("\n")) <= width
    assert not [line for line in told.split("\n") if line != line.rstrip()]
    golden = Path(__file__).with_name(f"tables_{width}.txt")
    if request.config.getoption("--update-golden"):
        golden.write_text(told, encoding="utf-8")
    assert told == golden.read_text(encoding="utf-8")


def test_a_pipe_is_not_cut(monkeypatch):
    """Where a program reads, every row is a line, with all its columns."""
    told = printed(terminal.ENDLESS, *every_table(monkeypatch))
    assert "without:" not in told
    rows = [line for line in told.split("\n") if "n * 1207959552 + 3" in line]
    assert len(rows) == 1
    for word in ("winograd_packed add relu resize concat sigmoid", "1x128x1024x1024x16", "n * 64"):
        assert word in rows[0]


def test_the_program_in_a_pipe():
    environment = {k: v for k, v in os.environ.items() if k != "COLUMNS"}
    environment["PYTHONPATH"] = os.pathsep.join(sys.path)
    command = [sys.executable, "-m", "tilewright", "knobs"]
    done = subprocess.run(command, capture_output=True, env=environment, check=True)
    rows = done.stdout.decode().split("\n")
    (row,) = (row for row in rows if "TILEWRIGHT_CACHE_MB" in row)
    assert len(row) > 120 and row.endswith("beside them")


NUMBER = re.compile(r"\d[\d.]*(?:e[+-]?\d+)?")
CELL = st.one_of(
    st.integers(0, 10**12).map(str),
    st.floats(-1e9, 1e9).map(lambda x: f"{x:.6g}"),
    st.lists(st.integers(0, 5000), min_size=1, max_size=6).map(lambda s: "x".join(map(str, s))),
    st.text("abc_xyz 0123456789./→é", max_size=60),
    st.text(max_size=12),
)


@settings(deadline=None, max_examples=150)
@given(st.lists(st.tuples(CELL, CELL, CELL, CELL), max_size=5), st.integers(40, 140))
def test_tables_of_anything(rows, width):
    columns = layout.Column("name"), layout.Column("what it is", 2), layout.Column("us", 1, True)
    made = layout.Table("a title", *columns, layout.Column("a long heading", 3, True))
    for row in rows:
        made.add_row(*row)
    lines = [line for line, _ in made.lines(width)]
    whole = {n for row in rows for cell in row for n in NUMBER.findall(layout.printable(cell))}
    longest = max(map(len, whole), default=0)
    assert all(cell_len(line) <= max(width, longest + layout.GAP) for line in lines)
    shown = {n for line in lines[3:] if "without:" not in line for n in NUMBER.findall(line)}
    assert shown <= whole  # none is cut or broken


@given(st.text("ab,_ x1234567890.", max_size=80), st.integers(12, 60))
def test_folding_loses_nothing(text, width):
    folded = layout.fold(text, width)
    assert "".join(folded).replace(" ", "") == text.replace(" ", "")
    assert NUMBER.findall(" ".join(folded)) == NUMBER.findall(text)
