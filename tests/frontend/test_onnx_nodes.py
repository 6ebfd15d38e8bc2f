"""Every node test of the onnx package is computed correctly, or refused and listed in
onnx_refused.txt."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.frontend.node_cases import fault_of, node_cases
from tilewright.support.errors import ImportFault

LIST = Path(__file__).with_name("onnx_refused.txt")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_node_cases():
    refused, wrong = set(), []
    for case in node_cases():
        try:
            fault = fault_of(case)
        except ImportFault:
            refused.add(case.name)
            continue
        if fault:
            wrong.append(f"{case.name}: {fault}")
    assert not wrong, "\n".join(wrong)
    listed = set(LIST.read_text().split())
    assert not refused - listed, f"no longer supported: {sorted(refused - listed)}"
    assert not listed - refused, f"supported now: {sorted(listed - refused)}"
