"""The examples' pages: what each prints, and its figures in docs/examples.md.

    python -m tests.examples.pages [SECONDS]    runs them all, best on an idle machine, and writes

In: the examples. Out: the ```text block of each page, and the row of each in the index. SECONDS:
of measuring each engine, 20 without it.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
INDEX = ROOT / "docs/examples.md"
BLOCK = re.compile(r"(?<=^```text\n).*?(?=^```$)", re.MULTILINE | re.DOTALL)
COMPARED = re.compile(
    r"\n\n(?P<what>.*): (?P<ours>[\d.e+]+) ms, onnxruntime (?P<theirs>[\d.e+]+) ms, \d+ thread\n"
    r"greatest difference from onnxruntime: (?P<apart>[\d.e+-]+)\n$"
)
RUN = """
import runpy, sys
from examples import beside
name, beside.SECONDS = sys.argv.pop(1), float(sys.argv.pop(1))
runpy.run_module(f"examples.{name}", run_name="__main__")
"""


def page(name: str) -> Path:
    return ROOT / "examples" / name / "README.md"


def shown(name: str) -> tuple[str, re.Match[str]]:
    """What the page of an example says that it prints: without the comparison, and that."""
    (block,) = BLOCK.findall(page(name).read_text())
    compared = COMPARED.search(block)
    assert compared, f"{page(name)}: no comparison with onnxruntime in\n{block}"
    return block[: compared.start()], compared


def row(figures: re.Match[str]) -> str:
    """The end of an example's row in the index."""
    return " | ".join(figures[key] for key in ("what", "ours", "theirs", "apart")) + " |"


def bring_up_to_date(name: str, seconds: float) -> None:
    command = [sys.executable, "-W", "ignore", "-c", RUN, name, str(seconds)]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    before = row(shown(name)[1])
    text = BLOCK.sub(lambda _: done.stdout, page(name).read_text())
    page(name).write_text(text)
    INDEX.write_text(INDEX.read_text().replace(before, row(shown(name)[1])))


if __name__ == "__main__":
    for path in sorted((ROOT / "examples").glob("*/README.md")):
        if BLOCK.search(path.read_text()):
            bring_up_to_date(path.parent.name, float((sys.argv[1:] or ["20"])[0]))
