"""`tilewright machine`: what the kernels of the calibration compute, what they say of this machine,
and that what was calibrated is shown, kept and part of what compiled models are known by."""

from __future__ import annotations

import json

import numpy as np
import pytest

import tilewright as tw
from tests.driver.conftest import expected
from tilewright.codegen.llvm import emit
from tilewright.codegen.llvm_compile import compile_object
from tilewright.driver import calibrate as calibration
from tilewright.driver import identity
from tilewright.driver.build import build
from tilewright.driver.calibrate import Probe, calibrate, constants, probes, regions, tile
from tilewright.lower.pipeline import lower
from tilewright.support import knobs
from tilewright.target.costs import COMMON, NAMES, changed
from tilewright.target.target import _read, keep_costs, target

FOUND = {"multiply_adds": 0.5, "transform": 123.0}


@pytest.fixture(autouse=True)
def targets():
    """Targets that are read anew."""
    _read.cache_clear()
    yield
    _read.cache_clear()


@pytest.mark.parametrize(("rows", "vectors"), [(8, 1), (1, 8), (1, 4), (3, 2)])
def test_a_tile_is_a_product(rows, vectors, monkeypatch):
    monkeypatch.setattr(calibration, "STEPS", 100)
    lanes = target("cpu").lanes(32)
    func, read = tile(rows, vectors, 7 * vectors * lanes * 4, lanes)
    times = read // (7 * vectors)
    assert read == times * 7 * vectors >= 100
    random = np.random.default_rng(rows)
    x = random.standard_normal((rows, 7), np.float32)
    w = random.standard_normal((vectors, 7, lanes), np.float32)
    (found,) = build(func)(x, w)
    wanted = np.einsum("rk,vkl->rvl", x.astype(np.float64), w.astype(np.float64)) + times - 1
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


def test_regions_compute_the_same_side_by_side(monkeypatch):
    monkeypatch.setattr(calibration, "REGIONS", 3)
    key = np.array([5], np.int64)
    wanted = build(regions("serial"), threads=1)(key)[0][..., 0]
    np.testing.assert_array_equal(build(regions("parallel"), threads=3)(key)[0][..., 0], wanted)
    value = 2
    for n in range(calibration.CHUNK):
        value = (value + n) ^ 5
    assert (wanted[:, 2] == value).all()


@pytest.mark.parametrize(
    "line", ["cpu", "cpu -vector=16", "cpu -mcpu=haswell", "cpu -mcpu=nehalem", "cpu -mcpu=x86-64",
             "cpu -mtriple=aarch64-linux-gnu", "cpu -mtriple=riscv64-unknown-linux-gnu",
             "cpu -mcpu=haswell -caches=32768:64:1"],
)  # fmt: skip
def test_there_are_kernels_for_every_machine(line):
    machine = target(line)
    made = probes(machine)
    assert {"clock", "multiply_adds", "latency", "long", "wide", "memory"} <= made.keys()
    for func, count in made.values():
        assert count > 0 and compile_object(emit(lower(func, machine), machine).text, machine)


def test_constants_are_what_kernels_take():
    each = {"multiply_adds": 0.5, "latency": 4.0, "long": 0.5, "wide": 0.75, "memory": 8.0}
    found = constants(each, 16, 32, 1)
    assert found == {"multiply_adds": 2.0, "latency": 4.0, "loads": 1.6, "memory": 8.0}
    each |= {"winograd": 18.0, "parallel": 4000.0, "serial": 6000.0}
    found = constants(each, 16, 32, 2)
    assert (found["transform"], found["fork_join"]) == (8.0, 1000.0)  # 10 cycles are products


def test_calibrating_this_machine():
    parts: list[float] = []
    found = calibrate(target("cpu"), 0.2, parts.append)
    assert found.keys() <= {*NAMES} and {"multiply_adds", "latency", "memory"} <= found.keys()
    changed(COMMON, found)  # none is beyond what a machine can be
    assert found["latency"] * found["multiply_adds"] >= 0.5
    assert parts[0] < 0.2 and parts == sorted(parts) and parts[-1] == 1.0


def test_a_turn_keeps_the_shortest_time():
    probe = Probe(*tile(2, 1, 1024, target("cpu").lanes(32)), target("cpu"))
    probe.turn()
    first = probe.seconds
    probe.turn()
    assert 0 < probe.seconds <= first < 1


def test_the_command_calibrates_keeps_shows_and_forgets(command, monkeypatch):
    status, printed, _ = command("machine")
    assert status == 0 and "Nobody calibrated this machine" in printed
    assert all(name in printed for name in NAMES)
    monkeypatch.setattr(calibration, "calibrate", lambda here, progress: FOUND)
    status, printed, _ = command("machine", "--calibrate")
    assert status == 0 and "123" in printed and "Nobody" not in printed
    (path,) = knobs.machine_folder().iterdir()
    assert str(path) in printed and json.loads(path.read_text())["costs"] == FOUND
    assert "123" in command("machine")[1]
    assert "transform:123.0" in command("targets")[1]
    assert "Nobody" in command("machine", "--forget")[1] and not path.exists()
    assert target("cpu") == target("cpu -costs=default")
    assert command("machine", "--calibrate", "--forget")[0] == 2


def test_what_was_calibrated_is_part_of_what_a_model_is_known_by(model):
    def key() -> str:
        return identity.artifact_key("model", "cpu", 1, 3)

    x = np.random.default_rng(1).standard_normal((2, 8), np.float32)
    before = key()
    np.testing.assert_allclose(tw.compile(model, threads=1)(x)[0], expected(x), rtol=1e-5)
    keep_costs(target("cpu"), FOUND)
    assert key() != before
    np.testing.assert_allclose(tw.compile(model, threads=1)(x)[0], expected(x), rtol=1e-5)
    keep_costs(target("cpu"), FOUND | {"memory": 9.0})
    assert key() != before
    keep_costs(target("cpu"), None)
    assert key() == before
