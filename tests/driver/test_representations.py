"""What objects show of themselves: in a notebook (HTML) and at a prompt."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.driver.conftest import dense
from tilewright import te
from tilewright.driver.source import open_source
from tilewright.runtime.profile import Roofline
from tilewright.support import html

EVIL = "<script>alert('&\"')</script>\x00\x1b"


def parsed(shown: str) -> ElementTree.Element:
    """The markup, which must be well-formed and hold no script."""
    tree = ElementTree.fromstring(shown)
    tags = {e.tag for e in tree.iter()}
    assert tags <= set("div b span table tr th td details summary pre".split())
    assert all(set(e.attrib) <= {"style", "open"} for e in tree.iter())
    return tree


def words(tree: ElementTree.Element) -> str:
    return " ".join(tree.itertext())


@pytest.fixture
def exe(tmp_path):
    return tw.compile(dense(tmp_path / "dense.onnx", rows="n"), threads=1)


def test_an_executable(exe):
    text = words(parsed(exe._repr_html_()))
    for part in ("Executable dense", "1 kernel", "KB", "1 thread", "input x f32 [n, 8]", "[n, 5]"):
        assert part in text
    assert repr(exe) == "<Executable dense(x: f32[n, 8]) -> (y: f32[n, 5]), 1 thread>"


def test_a_profile(exe):
    profile = exe.profile(np.ones((3, 8), np.float32), seconds=0, machine=Roofline(100, 10))
    text = words(parsed(profile._repr_html_()))
    assert "us a run" in text and "peak 100 GFLOP/s, 10.0 GB/s" in text and "% of time" in text
    assert profile.kernels[0].name in text
    assert repr(profile).startswith("<Profile of 1 kernel, ")


def test_a_graph(tmp_path):
    graph = open_source(dense(tmp_path / "dense.onnx", rows="n")).graph()
    text = words(parsed(graph._repr_html_()))
    assert "Graph dense" in text and "3 nodes, 2 constants" in text and "input x f32[n, 8]" in text
    assert "matmul(" in text
    assert repr(graph) == "Graph('dense', 3 nodes)"


def scaled() -> Any:
    A = te.placeholder((60,), name="A")
    return te.func("scale", [A], [te.compute((60,), lambda i: A[i] * 2.0, name="B")])


def test_a_schedule():
    s = tw.Schedule(scaled())
    assert repr(s) == "<Schedule of scale, 0 steps, loops i>"
    s.vectorize(s.split("i", 4)[1])
    s.decide("B.tile_m", 4, (4, 8))
    text = words(parsed(s._repr_html_()))
    for part in ("Schedule of scale", "2 steps", "split('i', 4)", "vectorize('i_i')", "B.tile_m"):
        assert part in text
    assert s.show().splitlines()[0] in text
    assert repr(s) == "<Schedule of scale, 2 steps, loops i_o, i_i>"


def test_what_is_long_is_folded():
    short, long = (parsed(html.folded("rows", html.table([[k] for k in range(n)]), n))
                   for n in (3, 100))  # fmt: skip
    assert short.get("open") and not long.get("open")
    text = words(parsed(html.preformatted("\n".join(map(str, range(5000))))))
    assert text.startswith("0\n1\n") and text.endswith("4999")
    assert "… 3000 lines left out …" in text and len(text.splitlines()) == html.MOST_LINES + 1


def test_names_are_text_and_nothing_else(tmp_path):
    import onnx

    model = onnx.load(dense(tmp_path / "dense.onnx"))
    model.graph.name = model.graph.input[0].name = model.graph.node[0].input[0] = EVIL
    graph = open_source(model).graph()
    text = words(parsed(graph._repr_html_()))
    assert "<script>alert('&\"')</script>" in text
    exe = tw.compile(model)
    assert "<script>alert('&\"')</script>" in words(parsed(exe._repr_html_()))
    row = words(parsed(html.block(EVIL, EVIL, html.table([[EVIL]]), html.folded(EVIL, "", 0))))
    assert row.count("alert") == 4 and "\x00" not in row and "\x1b" not in row
