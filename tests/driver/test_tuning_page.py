"""The page of a run of tuning: it stands alone, and its charts say what was measured."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.driver.test_tuning import run, told, tuned
from tilewright.driver.report.charts import LEFT, RIGHT, TOP, WIDTH
from tilewright.driver.report.courses import Move, course_chart, roofline_moves
from tilewright.driver.report.task_row import TaskRow
from tilewright.driver.report.tuning_page import tuning_page
from tilewright.driver.tuned import Tuning
from tilewright.runtime.profile import Roofline
from tilewright.support.errors import WriteFault
from tilewright.tune.effects import Effect

__all__ = ["told"]  # a fixture
MACHINE = Roofline(gflops=100.0, gbytes=10.0)
SVG, HTML = "{http://www.w3.org/2000/svg}", "{http://www.w3.org/1999/xhtml}"


def corners(chart: str) -> list[tuple[float, float]]:
    line = ElementTree.fromstring(chart).find(f"{SVG}polyline")
    assert line is not None
    pairs = (point.split(",") for point in line.attrib["points"].split())
    return [(float(x), float(y)) for x, y in pairs]


def test_a_course_falls_in_steps() -> None:
    points = corners(course_chart([(2.0, 3e-3), (3.0, 5e-3), (6.0, 1e-3)], 4e-3, 1e-3, 8.0, "it"))
    xs, ys = zip(*points, strict=True)
    width = WIDTH - LEFT - RIGHT
    times = [(x - LEFT) / width * 8 for x in xs]
    assert times == pytest.approx([0, 2, 2, 6, 6, 8], abs=0.01)  # what was slower is no step
    assert ys[0] == ys[1] < ys[2] == ys[3] < ys[4] == ys[5]
    assert (ys[3] - ys[1]) * 2 == pytest.approx(ys[5] - ys[3], abs=0.3)  # 4, 3 and 1 ms
    assert min(ys) >= TOP


def test_nothing_found_is_a_level_line() -> None:
    (_, left), (_, right) = corners(course_chart([(1.0, 9.0)], 4e-3, 4e-3, 8.0, "it"))
    assert left == right


def test_a_task_moves_up_below_the_roof() -> None:
    faster = Move("f", 1_000_000, 10_000, 40e-6, 10e-6, 0.9)  # 25, then 100 GFLOP/s
    untold = Move("copy", 0, 10_000, 40e-6, 10e-6, 0.1)
    svg = ElementTree.fromstring(roofline_moves([faster, untold], MACHINE))
    before, after = svg.iter(f"{SVG}circle")
    assert before.get("class") == "compute ring" and after.get("class") == "compute"
    roof = svg.find(f"{SVG}polyline")
    assert roof is not None
    ridge = float(roof.attrib["points"].split()[1].split(",")[1])
    assert before.get("cx") == after.get("cx")
    assert float(before.attrib["cy"]) > float(after.attrib["cy"]) == pytest.approx(ridge, abs=0.1)
    assert "f: 4.00 times as fast" in (after.findtext(f"{SVG}title") or "")


def row(name: str, course: Any, effects: Any = (), tuned: float = 1e-3) -> TaskRow:
    return TaskRow(name, 2.0, 2e-3, tuned, 6, "beat <it>", course, effects, 10**6, 10**4)


def test_the_page() -> None:
    effect = Effect("C.tile_m", 0.75, 6, 1.25, 24)
    rows = row("a&b", ((1.0, 1e-3),), (effect,)), row("c", (), tuned=2e-3)
    given: Any = SimpleNamespace()
    found = Tuning("n<et", "cpu", 1, rows, 8e-3, 6e-3, "kept", 10.0, 12, False, given)
    text = tuning_page("n<et", found.total, found.ordered(), 10.0, MACHINE)
    page = ElementTree.fromstring(text.partition("\n")[2])
    assert not [*page.iter(f"{HTML}script"), *page.iter(f"{HTML}link"), *page.iter(f"{HTML}img")]
    assert "http" not in text.replace("http://www.w3.org/", "")
    said = " ".join(page.itertext())
    for part in ("Tuning n<et", "a&b", "beat <it>", "C.tile_m", "75 %", "1.25", "1.33 times"):
        assert part in said
    charts = page.findall(f".//{SVG}svg")
    assert len(charts) == 3  # a call, the roofline, the task that was tried
    assert [s.findtext(f"{HTML}h3") for s in page.iter(f"{HTML}section")] == ["a&b"]


def test_a_report_of_a_run(told: Any, model: Path, command: Any) -> None:
    found = tuned(model)
    (task,) = found.tasks
    assert task.flops > 0 and task.nbytes > 0 and len(task.course) == 1
    assert 0 <= task.course[0][0] <= found.seconds and task.course[0][1] == pytest.approx(0.5e-3)
    assert found.report("tuning.html") == Path("tuning.html")
    page = ElementTree.fromstring(Path("tuning.html").read_text().partition("\n")[2])
    assert "beat the default" in " ".join(page.itertext())
    with pytest.raises(WriteFault):
        found.report("nowhere/tuning.html")
    options = "--seconds", 20, "--trials", 6, "--threads", 1, "--report", "its.html"
    assert json.loads(run(command, "tune", model, *options, "--json"))["report"] == "its.html"
    assert Path("its.html").exists()
