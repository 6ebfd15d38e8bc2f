"""--json: one object on standard output, of the keys that docs/command_line.md lists, in which
numbers are numbers; and the trace of a profile."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from tests.driver.conftest import DIGITS, dense
from tilewright.driver.report import terminal
from tilewright.runtime.profile import KernelTime, Profile, Roofline
from tilewright.runtime.trace import trace

PAGE = Path(__file__).parents[2] / "docs/command_line.md"


@pytest.fixture
def told(command):
    """What a command says with --json."""

    def call(*arguments):
        status, printed, errors = command(*arguments, "--json")
        assert (status, errors) == (0, "")
        found = json.loads(printed, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
        assert (found["schema"], found["tilewright"]) == (1, tw.__version__)
        assert found["command"] == arguments[0]
        return found

    return call


OF_NAMES = "why", "attributes", "fallbacks"  # whose keys are the model's names


def keys(value):
    """All keys in a record, at any depth."""
    if isinstance(value, list):
        return {key for one in value for key in keys(one)}
    if isinstance(value, dict):
        inner = [keys(one) for name, one in value.items() if name not in OF_NAMES]
        return set(value).union(*inner)
    return set()


def test_compile(told, model):
    found = told("compile", model, "-o", "out.tw", "--threads", 1)
    assert (found["artifact"], found["bytes"]) == ("out.tw", Path("out.tw").stat().st_size)
    assert found["inputs"] == [{"name": "x", "dtype": "f32", "shape": [2, 8]}]
    (kernel,) = found["kernels"]
    assert kernel["flops"] > 100 and kernel["shape"] == [2, 5] and found["library"] is None
    assert {s["stage"] for s in found["stages"]} >= {"import", "kernels", "write"}
    assert all(s["us"] >= 0 for s in found["stages"])


def test_open_sizes_are_texts(told, tmp_path):
    found = told("compile", dense(tmp_path / "any.onnx", rows="n"), "-o", "out.tw")
    assert found["inputs"][0]["shape"] == ["n", 8] and found["symbols"][0]["name"] == "n"


def test_run(told, model):
    found = told("run", model, "--seed", 3, "--profile", "-o", "out.npz")
    (call,) = found["calls"]
    (y,) = tw.compile(model)(np.random.default_rng(3).standard_normal((2, 8)).astype(np.float32))
    assert call["outputs"][0]["largest"] == pytest.approx(float(y.max()))
    assert call["kept"] == "out.npz" and found["profile"]["kernels"][0]["us"] > 0


def test_bench(told, model):
    pytest.importorskip("onnxruntime")
    found = told("bench", model, "--threads", "1,2", "--seconds", "0.02")
    assert [t["threads"] for t in found["times"]] == [1, 2]
    ours, theirs = found["times"][0]["engines"]
    assert (ours["engine"], ours["ours_over_theirs"]) == ("tilewright", None)
    assert theirs["ours_over_theirs"] > 0 and theirs["max_error"] < 1e-5
    assert 0 < ours["minimum_us"] <= ours["median_us"]


def test_roofline(told, model):
    found = told("bench", model, "--roofline", "--seconds", "0.02", "--trace", "t.json")
    (profile,) = found["profiles"]
    assert profile["peak_gflops"] > 1 and profile["kernels"][0]["limit"] in ("compute", "memory")
    assert json.loads(Path("t.json").read_text())["traceEvents"]


def test_inspect(told, tmp_path):
    found = told("inspect", DIGITS, "--threads", 1)
    names = {v["name"] for v in found["graph"]["values"]}
    for node in found["graph"]["nodes"]:
        assert names.issuperset(node["inputs"]) and names.issuperset(node["outputs"])
    assert [g["kernel"] for g in found["groups"]] == [k["name"] for k in found["kernels"]]
    assert found["memory"]["arena_bytes"] >= found["memory"]["live_bytes"] > 0
    assert set(told("inspect", DIGITS, "--graph")) & {"groups", "memory", "kernels"} == set()
    kernel = told("inspect", DIGITS, "--kernel", "k0", "--stage", "te")
    assert kernel["text"].startswith("def k0_")
    tw.compile(DIGITS, threads=1).save(tmp_path / "digits.tw")
    packed = told("inspect", "digits.tw")
    assert packed["kernels"] == found["kernels"] and packed["memory"]["weight_bytes"] > 100_000


def test_targets_machine_and_knobs(told, monkeypatch):
    found = told("targets")
    assert {"cpu", "opencl"} <= {kind["kind"] for kind in found["kinds"]}
    assert found["here"]["target"].startswith("cpu -") and found["here"]["vector_bytes"] % 4 == 0
    constants = {c["constant"]: c for c in told("machine")["constants"]}
    assert constants["latency"]["default"] > 0 and constants["latency"]["calibrated"] is None
    monkeypatch.setenv("TILEWRIGHT_THREADS", "none")
    monkeypatch.setenv("TILEWRIGHT_PRINT", "after:fuse")
    variables = {k["variable"]: k for k in told("knobs")["knobs"]}
    assert variables["TILEWRIGHT_VERIFY"]["value"] is False
    assert variables["TILEWRIGHT_CACHE_MB"]["value"] == 4096
    assert variables["TILEWRIGHT_PRINT"]["value"] == "after:fuse"
    assert variables["TILEWRIGHT_THREADS"]["value"] == "none"
    assert "none" in variables["TILEWRIGHT_THREADS"]["error"]


def test_every_key_is_documented(told, model):
    documented = set(re.findall(r"`(\w+)`", PAGE.read_text(encoding="utf-8")))
    found = [
        told("compile", model, "-o", "out.tw"),
        told("run", model, "--profile"),
        told("bench", model, "--against", "none", "--seconds", "0.01"),
        told("bench", model, "--roofline", "--seconds", "0.01"),
        told("inspect", model),
        told("inspect", model, "--kernel", "k0"),
        told("inspect", "out.tw"),
        *(told(name) for name in ("targets", "machine", "knobs")),
    ]
    assert not {key for one in found for key in keys(one)} - documented


def test_errors_stay_on_standard_error(command):
    status, printed, errors = command("run", "nowhere.onnx", "--json")
    assert (status, printed) == (1, "") and errors.startswith("error: ")


def test_numbers_that_json_has_not_are_null(capsys):
    terminal.show_json({"a": [math.nan, math.inf, 1.5, True, None], "b": {"c": -math.inf}})
    found = json.loads(capsys.readouterr().out)
    assert found == {"a": [None, None, 1.5, True, None], "b": {"c": None}}


# ---- The trace ----------------------------------------------------------------------------------


def test_the_trace_of_a_profile(model, tmp_path):
    exe = tw.compile(model, threads=1)
    profile = exe.profile(np.zeros((2, 8), np.float32), seconds=0.01)
    path = profile.save_trace(tmp_path / "trace.json", "dense")
    events = check_trace(json.loads(path.read_text()))
    run, kernel = (e for e in events if e["ph"] == "X")
    assert run["name"] == "dense" and run["dur"] >= kernel["dur"] > 0
    assert kernel["name"] == exe.manifest.kernels[0].name
    assert kernel["args"]["shape"] == "2x5" and kernel["args"]["launches"] == 1


def test_the_trace_of_kernels_that_run_often_or_never():
    machine = Roofline(100.0, 10.0)
    kernels = (
        KernelTime("a", ("add",), (4,), 1.0, 10.0, 4, 0, "compute", 50.0),
        KernelTime("never", ("mul",), (), 0.0, 0.0, 0, 0, "memory", 0.0),
        KernelTime("b", ("conv", "relu"), (1, 2), 3.0, 20.0, 8, 8, "memory", 5.0),
    )
    profiles = [Profile(kernels, 40.0, machine, threads) for threads in (1, 2)]
    events = check_trace(json.loads(json.dumps(trace(profiles, "m"), allow_nan=False)))
    slices = [e for e in events if e["ph"] == "X" and e["pid"] == 2]
    assert [(e["name"], e["ts"], e["dur"]) for e in slices] == [
        ("m", 0.0, 40.0), ("a", 0.0, 10.0), ("b", 10.0, 20.0)
    ]  # fmt: skip
    names = [e["args"]["name"] for e in events if e["name"] == "process_name"]
    assert names == ["m, 1 thread", "m, 2 threads"]
    assert slices[1]["args"]["flop/byte"] is None and slices[2]["args"]["launches"] == 3


def check_trace(found):
    """The trace event format: what each kind of event must have, and slices of one row that lie in
    one another or apart. Returns the events."""
    assert set(found) == {"displayTimeUnit", "traceEvents"} and found["displayTimeUnit"] == "ns"
    rows = {}
    for event in found["traceEvents"]:
        assert {"ph", "name", "pid", "tid", "args"} <= set(event)
        assert isinstance(event["pid"], int) and isinstance(event["tid"], int)
        if event["ph"] == "M":
            assert event["name"] in ("process_name", "thread_name")
            assert isinstance(event["args"]["name"], str)
            continue
        assert event["ph"] == "X" and isinstance(event["cat"], str)
        assert event["ts"] >= 0 and event["dur"] >= 0
        rows.setdefault((event["pid"], event["tid"]), []).append(event)
    for slices in rows.values():
        whole, *inner = slices
        ends = [whole["ts"], *(e["ts"] + e["dur"] for e in inner)]
        assert all(e["ts"] >= end - 1e-9 for e, end in zip(inner, ends, strict=False))
        assert ends[-1] <= whole["ts"] + whole["dur"] + 1e-6
    return found["traceEvents"]
