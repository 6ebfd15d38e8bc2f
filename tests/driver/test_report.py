"""The HTML report: a page that stands alone, and charts whose coordinates say what was measured."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from tilewright.driver.report.charts import HEIGHT, LEFT, TOP, WIDTH, roofline_plot, timeline
from tilewright.driver.report.page import page
from tilewright.runtime.profile import KernelTime, Profile, Roofline

MACHINE = Roofline(gflops=100.0, gbytes=10.0)
SVG = "{http://www.w3.org/2000/svg}"
HTML = "{http://www.w3.org/1999/xhtml}"


def kernel(name="k", us=10.0, flops=0, nbytes=1000, launches=1.0, ops=("add",), shape=(4, 8)):
    least = MACHINE.seconds(flops, nbytes) * launches
    limit = MACHINE.limit(flops, nbytes)
    share = 100 * least / (us * 1e-6) if us else 0.0
    return KernelTime(name, ops, shape, launches, us, flops, nbytes, limit, share)


def profile(*kernels, us=100.0):
    return Profile(kernels, us, MACHINE, 1)


def dots(*kernels):
    """The circles of the plot by their kernels' names."""
    circles = ElementTree.fromstring(roofline_plot(profile(*kernels))).iter(f"{SVG}circle")
    return {c.findtext(f"{SVG}title").partition(":")[0]: c for c in circles}


def at(circle):
    return float(circle.get("cx")), float(circle.get("cy"))


def roof(*kernels):
    """The corners of the roofs: left end, ridge, right end."""
    svg = ElementTree.fromstring(roofline_plot(profile(*kernels)))
    points = svg.find(f"{SVG}polyline").get("points").split()
    return [tuple(map(float, point.split(","))) for point in points]


def test_a_kernel_at_the_limit_lies_on_the_roof():
    full = kernel("compute", us=10.0, flops=1_000_000, nbytes=10_000)  # 100 GFLOP/s, 100 flop/byte
    slow = kernel("slow", us=100.0, flops=1_000_000, nbytes=10_000)
    streams = kernel("memory", us=10.0, flops=100_000, nbytes=100_000)  # 10 GB/s, 1 flop/byte
    (x0, y0), (x1, y1), (_, y2) = roof(full, slow, streams)
    found = dots(full, slow, streams)
    assert at(found["compute"])[1] == y1 == y2
    assert at(found["slow"])[0] == at(found["compute"])[0] and at(found["slow"])[1] > y1
    x, y = at(found["memory"])
    assert y == pytest.approx(y0 + (y1 - y0) * (x - x0) / (x1 - x0), abs=0.2)  # on the slope
    assert [found[name].get("class") for name in found] == ["compute", "compute", "memory"]
    assert float(found["slow"].get("r")) > float(found["compute"].get("r"))  # by time


def test_kernels_without_operations_stand_on_the_left_edge():
    moves, never = kernel("moves", us=1.0, nbytes=10_000), kernel("never", us=0.0, nbytes=10)
    found = dots(moves, never)
    assert list(found) == ["moves"]  # a branch that was not taken has no position in the plot
    assert at(found["moves"]) == roof(moves)[0]  # it reaches the memory's rate
    assert found["moves"].get("class") == "memory ring"


def test_every_dot_lies_in_the_plot():
    strange = [
        kernel("nothing", flops=0, nbytes=0),
        kernel("registers", us=1e-3, flops=10**9, nbytes=0),
        kernel("slow", us=1e12, flops=1, nbytes=10**12),
    ]
    for circle in dots(*strange).values():
        x, y = at(circle)
        assert LEFT <= x <= WIDTH and TOP <= y <= HEIGHT


def test_the_timeline_gives_each_kernel_its_share_of_the_run():
    kernels = kernel("a", us=60.0, nbytes=300_000), kernel("b", us=20.0, launches=3.0)
    svg = ElementTree.fromstring(timeline(profile(*kernels)))
    rects = {kind: [] for kind in ("room", "full", "between")}
    for rect in svg.iter(f"{SVG}rect"):
        rects[rect.get("class")].append({k: float(rect.get(k)) for k in ("x", "width", "height")})
    (a, b), (rest,) = rects["room"], rects["between"]
    unit = a["width"] / 60
    assert (b["width"], rest["width"]) == pytest.approx((20 * unit, 20 * unit))
    assert (a["x"], b["x"], rest["x"]) == pytest.approx((LEFT, LEFT + 60 * unit, LEFT + 80 * unit))
    assert rects["full"][0]["height"] == pytest.approx(a["height"] / 2)  # 50 % of its limit
    titles = [g.findtext(f"{SVG}title") for g in svg.iter(f"{SVG}g")]
    assert "20.0 us, 3 launches" in titles[1]


@pytest.mark.parametrize(
    "kernels", [(), (kernel(),), (kernel("n", us=0.0, flops=0, nbytes=0, launches=0.0, shape=()),)]
)
def test_the_page_of_few_kernels(kernels):
    root = ElementTree.fromstring(page("m", "", [profile(*kernels, us=0.0)]))
    assert len(list(root.iter(f"{HTML}tr"))) == 1 + len(kernels)


def test_the_page_escapes_names_and_stands_alone():
    name = "<script>alert('&\"')</script>"
    one = profile(kernel(name, us=90.0, ops=(name,)))
    text = page(name, f"{name}: f32[2]", [one, one])
    assert "<script" not in text and "&lt;script&gt;" in text
    root = ElementTree.fromstring(text)  # what is open is closed
    assert not list(root.iter(f"{HTML}script")) and not list(root.iter(f"{HTML}link"))
    assert not re.search(r"\b(src|href)=|url\(|@import", text)
    assert len(list(root.iter(f"{SVG}svg"))) == 4
    cells = [cell.text for cell in root.iter(f"{HTML}td")]
    assert cells[:3] == [name, name, "4x8"] and "memory" in cells
