"""docs/onnx_suite.md: how many tests of the suite pass, and why the others fail."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import onnx

from tests.onnx_suite.suite import Outcome

PAGE = Path(__file__).parents[2] / "docs" / "onnx_suite.md"
HEAD = """# The official ONNX backend suite

Written by `python -m tests.onnx_suite --write`; a slow test runs the whole suite and compares.
Every test compiles its model and runs the native code, with the suite's own tolerances.
"""


def text(outcomes: Sequence[Outcome]) -> str:
    """The page."""
    failed = sorted(o for o in outcomes if o.fault)
    lines = [
        HEAD,
        f"{len(outcomes) - len(failed)} of the {len(outcomes)} tests of onnx {onnx.__version__}"
        " pass. These fail:",
        "",
        "| test | why |",
        "|---|---|",
    ]
    lines += [f"| {o.name} | {o.fault.replace('|', '/')} |" for o in failed]
    return "\n".join(lines) + "\n"


def write(outcomes: Sequence[Outcome]) -> None:
    PAGE.write_text(text(outcomes))


def listed() -> set[str]:
    """The tests that the page says fail."""
    rows = [line.split("|") for line in PAGE.read_text().splitlines() if line.startswith("| test_")]
    return {row[1].strip() for row in rows}
