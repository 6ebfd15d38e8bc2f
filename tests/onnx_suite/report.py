"""docs/onnx_suite.md: how many tests of the suite pass, and why the others fail."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import onnx

from tests.onnx_suite.suite import Outcome

PAGE = Path(__file__).parents[2] / "docs" / "onnx_suite.md"
HEAD = """# The official ONNX backend suite

Written by `python -m tests.onnx_suite --write`; a slow test runs the whole suite and compares.
Every test compiles its model and runs the native code, with the suite's own tolerances.
"""
TAIL = """
Of these:

* Bernoulli draws random numbers, and the expected ones are those of one run of NumPy's generator:
  the reference evaluator fails, too, and onnxruntime has no such operator.
* `test_loop16_seq_none` compares a sequence whose first element is a scalar and takes the length of
  that: the reference evaluator and onnxruntime fail, too. A test of ours compares the same values.
* `test_attention_4d_causal_fp16` and its expanded form expect a softmax that rounds to f16 after
  each of its steps, which is up to 4.9e-4 beside float64. Ours rounds once: up to 4.0e-4 beside
  float64, within the suite's tolerance of it, but not of those numbers. onnxruntime fails the
  first, too. A test of ours compares both with float64 (docs/decisions/028).
"""


def text(faults: Mapping[str, str], count: int) -> str:
    """The page: `faults` of the `count` tests by name."""
    lines = [
        HEAD,
        f"{count - len(faults)} of the {count} tests of onnx {onnx.__version__} pass. These fail:",
        "",
        "| test | why |",
        "|---|---|",
    ]
    lines += [f"| {name} | {fault} |" for name, fault in sorted(faults.items())]
    return "\n".join(lines) + "\n" + TAIL


def write(outcomes: Sequence[Outcome], count: int) -> None:
    """Write what became of the tests that were run; the page keeps what it says of others."""
    faults = listed()
    for o in outcomes:
        faults.pop(o.name, None)
        if o.fault:
            faults[o.name] = o.fault.replace("|", "/")
    PAGE.write_text(text(faults, count))


def listed() -> dict[str, str]:
    """The tests that the page says fail, and why."""
    rows = [line.split("|") for line in PAGE.read_text().splitlines() if line.startswith("| test_")]
    return {row[1].strip(): row[2].strip() for row in rows}
