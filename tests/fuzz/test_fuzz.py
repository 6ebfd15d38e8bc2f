"""The fuzz check judges rightly, its cases are reproducible, a sample of them is handled well."""

from __future__ import annotations

import faulthandler
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.fuzz import cases, judge, seeds
from tests.fuzz.case import SECRET, Case, Link, Pipe
from tests.fuzz.places import PLACES
from tests.fuzz.structure import DISTORTIONS
from tilewright.support.errors import CompileError, UserFault

ROOT = Path(__file__).parents[2]


def refuse() -> None:
    raise CompileError("cannot compile", "it is a test", "here", "nothing to do")


class LongFault(UserFault):
    """One whose message nobody would read."""

    def __str__(self) -> str:
        return "x" * 1_000_000


def refuse_at_length() -> None:
    raise LongFault("cannot", "it is a test")


def divide() -> None:
    raise ZeroDivisionError("division by zero")


def die() -> None:
    faulthandler.disable()  # pytest's, which would fill the screen
    os.kill(os.getpid(), signal.SIGSEGV)


def leave() -> None:
    os._exit(3)


def spin() -> None:
    while True:
        pass


def grow() -> None:
    bytearray(2 * judge.GROWTH)  # well above: a forked child has its parent's thread stacks free


EXPECTED = [
    (lambda: None, "ok", ""),
    (refuse, "refused", "cannot compile: it is a test"),
    (refuse_at_length, "exception", ": a message of 1000000 characters"),
    (divide, "exception", "ZeroDivisionError at"),
    (die, "crash", "SIGSEGV"),
    (leave, "crash", "exit code 3"),
    (lambda: time.sleep(60), "hang", "no end in time"),
    (spin, "hang", "no end in its time on the processor"),
    (grow, "exception", "MemoryError at"),
]


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
@pytest.mark.parametrize(("work", "kind", "detail"), EXPECTED)
def test_verdicts(work, kind: str, detail: str) -> None:
    verdict = judge.judge(work, seconds=2.0)
    assert verdict.kind == kind
    assert detail in verdict.detail


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
def test_accepting_a_broken_file_is_a_failure() -> None:
    assert judge.judge(lambda: None, must_refuse=True).kind == "accepted"
    assert judge.judge(refuse, must_refuse=True).kind == "refused"


def test_the_same_number_gives_the_same_case() -> None:
    for number in range(60):
        assert cases.case(number, {}) == cases.case(number, {})


def test_every_distortion_and_place_occurs() -> None:
    seen = {part for n in range(1000) for part in cases.case(n, {}).title.split("/")}
    assert set(DISTORTIONS) <= seen
    assert set(PLACES) <= seen


def test_broken_models_differ_from_their_seed() -> None:
    sound = {cases.sound(name).files["inside/model.onnx"] for name in seeds.SEEDS}
    for number in range(400):
        case = cases.case(number, {})
        if case.must_refuse and not case.title.startswith("external/"):
            assert case.files["inside/model.onnx"] not in sound, case.title


def test_the_file_outside_would_fit() -> None:
    case = next(cases.case(n, {}) for n in range(9, 999) if "above" in cases.case(n, {}).title)
    weight = onnx.load_from_string(case.files["inside/model.onnx"]).graph.initializer[0]
    assert len(case.files[SECRET]) >= 4 * np.prod(weight.dims)


def test_cases_are_written_with_links_and_pipes(tmp_path: Path) -> None:
    files = {"inside/a": b"x", "inside/b": Link("a"), "inside/c": Pipe()}
    path = Case("t", files, "inside/b").write(tmp_path)
    assert path.read_bytes() == b"x"
    assert (tmp_path / "inside/c").is_fifo()


@pytest.mark.parametrize(("work", "count"), [("import", 100), ("compile", 30)])
def test_a_sample_is_handled_well(work: str, count: int) -> None:
    """The command itself, in a process without threads; the whole check is `--count 2000`."""
    command = [sys.executable, "-m", "tests.fuzz", "--count", str(count), "--work", work]
    path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    assert f"{count} cases" in done.stdout
