"""What a compilation takes, measured from outside: processes, memory, stages, and engines that
fail."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from benchmarks import compilers
from benchmarks.compile_times import AGAIN, Found, first_run, measure, page, resident
from benchmarks.engines import ENGINES, OURS
from benchmarks.subject import Subject


@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc")
def test_memory_is_that_of_all_processes() -> None:
    code = "import sys; held = b'x' * (64 << 20); print(flush=True); sys.stdin.read()"
    before = resident(os.getpid())
    child = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert child.stdin is not None and child.stdout is not None
    child.stdout.readline()
    assert resident(child.pid) > 64 << 20
    assert resident(os.getpid()) - before > 60 << 20
    child.stdin.close()
    child.wait()
    child.stdout.close()
    assert resident(child.pid) == 0


def test_a_model_is_compiled_and_then_found() -> None:
    found = measure("dqn", [OURS], 1, None)
    fresh, again = found[OURS], found[AGAIN]
    assert not fresh.failure and not again.failure
    assert fresh.stages["kernels"] > 0 and "kernels" not in again.stages
    assert fresh.cpu > 0 and 0 < fresh.load + fresh.run < fresh.seconds


def test_the_end_of_the_process_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor what the system takes to notice it."""
    told = "import json, time; print(json.dumps({'ended': time.monotonic()}), flush=True)"
    code = f"{told}; time.sleep(0.5)"
    known = subprocess.Popen

    def started(command: list[str], **given: object) -> subprocess.Popen[bytes]:
        return known([command[0], "-S", "-c", code], **given)  # type: ignore[call-overload]

    monkeypatch.setattr(subprocess, "Popen", started)
    before = time.monotonic()
    found = first_run(OURS, tmp_path, tmp_path, 1, tmp_path, None)
    assert 0 < found.seconds < time.monotonic() - before - 0.4


def test_an_engine_that_fails_says_why(tmp_path: Path) -> None:
    np.savez(tmp_path / "inputs.npz", x=np.zeros(1))
    missing = tmp_path / "missing.onnx"
    found = first_run(OURS, missing, tmp_path / "inputs.npz", 1, tmp_path / "cache", None)
    assert found.failure.startswith("CompileError: ") and "missing.onnx" in found.failure


def test_the_page_has_all_of_it() -> None:
    stages = {"identify": 0.125, "kernels": 1.5, "kernels/llvm": 0.75, "load": 0.25}
    ours = Found(3.0, 4.5, 300_000_000, 2.0, 0.5, stages)
    text = page({"net": {OURS: ours, "openvino": Found(failure="no")}}, {"net": 100_000_000}, 2)
    assert f"| model | file MB | wanted MB | {OURS} s | cpu | MB | openvino s | cpu | MB |" in text
    assert "| net | 100 | 330 | 3.00 | 4.50 | 300 | ✗ | |  |" in text
    assert "| together | | | 3.0 | 4.5 |" in text
    (row,) = [line for line in text.splitlines() if line.startswith("| net | 0.12")]
    assert row.split(" | ")[-1] == "0.62 |"  # 3.0 less the stages and the run


def test_a_first_run_imports_nothing_for_other_compilers() -> None:
    """It would count as time that the engine takes."""
    code = "import sys, benchmarks.first_run; print('benchmarks.compilers' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_other_compilers_are_found_when_they_load_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compilers, "tvm", lambda subject, threads: (subject, threads))
    assert ENGINES["tvm"].load(Subject("m", 1, Path("m.onnx")), 2) == (
        Subject("m", 1, Path("m.onnx")), 2,
    )  # fmt: skip
