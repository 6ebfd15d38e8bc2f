"""The measurement counts work rightly, survives engines that fail, and writes a readable page."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from benchmarks import kernels, machine, measure, pages, probe, report, work
from benchmarks.measure import Measurement, Plan, Rates, Result
from benchmarks.process import Process, WorkerError
from tests import zoo
from tilewright.runtime.profile import KernelTime, Profile, Roofline

MACHINE = {
    "processor": "P", "cores": 2, "instruction_sets": ["avx2"], "caches": {"L1": "32K"},
    "last_level_bytes": 0, "memory_gb": 8, "system": "S", "load_at_start": 0.0,
}  # fmt: skip


def test_inner_products_are_counted() -> None:
    dqn = 4 * 64 * 32 * 20**2 + 32 * 16 * 64 * 9**2 + 64 * 9 * 64 * 7**2 + 3136 * 512 + 512 * 18
    assert work.measure(zoo.model("dqn").onnx_path).macs == dqn
    layers = ((512, 256, 4), (256, 128, 8), (128, 64, 16), (64, 3, 32))
    generator = 100 * 512 * 16 + sum(i * o * 16 * size**2 for i, o, size in layers)
    assert work.measure(zoo.model("dcgan_half").onnx_path).macs == generator


def test_floor_takes_the_slower_of_computing_and_reading() -> None:
    some = work.Work(macs=10**9, weight_bytes=10**9)
    assert some.floor(flops=2e9, bandwidth=1e10, cached=0) == 1.0
    assert some.floor(flops=2e12, bandwidth=1e9, cached=5 * 10**8) == 0.5


def test_probe_measures_something_possible() -> None:
    found = probe.Probe(threads=1)
    assert 1e9 < found.flops() < 1e12
    assert 1e8 < found.bandwidth() < 1e12


def test_a_worker_that_fails_says_why() -> None:
    with Process(threads=1) as process, pytest.raises(WorkerError, match="FileNotFoundError"):
        process.ask("load", engine="none", name="", batch=1, path="", threads=1, inputs="")


def test_a_worker_that_dies_is_noticed() -> None:
    with Process(threads=1) as process:
        process.child.kill()
        process.child.wait()
        with pytest.raises(WorkerError, match="the process ended with code -9"):
            process.ask("probe", threads=1)


def test_a_worker_that_takes_too_long_is_ended() -> None:
    with Process(threads=1) as process:
        with pytest.raises(WorkerError, match="no answer to 'probe'"):
            process.ask("probe", threads=1, timeout=0.001)
        assert process.child.returncode == -9


def test_a_killed_worker_leaves_no_files() -> None:
    with Process(threads=1) as process:
        process.ask("probe", threads=1)
        kept = process.folder / "model.bin"
        kept.write_bytes(b"weights")
    assert not kept.exists() and not process.folder.exists()


def test_measurement_end_to_end(tmp_path: Path) -> None:
    plan = Plan(["dqn"], ["onnxruntime", "torch"], [1], seconds=0.01)
    said: list[str] = []
    found = measure.measure(plan, tmp_path, said.append)
    assert len(said) == measure.steps(plan)
    for engine in plan.engines:
        result = found.result("dqn", 1, engine)
        assert result is not None and not result.failure
        assert result.is_correct
        assert len(result.times) >= measure.ROUNDS
    assert "| dqn |" in report.page(plan, found, machine.describe())
    assert report.document(plan, found, MACHINE)["results"][0]["calls"] >= measure.ROUNDS


def result(engine: str, seconds: float, error: float = 0.0, failure: str = "") -> Result:
    times = [] if failure else [seconds, 2 * seconds]
    return Result(engine, "m", 1, times, error, 0.5, 10**6, 10**6, failure)


def test_ratio_is_ours_over_the_best_correct_peer() -> None:
    plan = Plan(["m"], ["tilewright", "onnxruntime", "torch", "openvino"], [1], seconds=1.0)
    found = Measurement(
        [
            result("tilewright", 0.003),
            result("onnxruntime", 0.002),
            result("torch", 0.001, error=0.5),
            result("openvino", 0.0, failure="RuntimeError: no"),
        ],
        {1: Rates(flops=2e12, bandwidth=1e10)},
        {"m": work.Work(macs=10**9, weight_bytes=0)},
    )
    text = report.page(plan, found, MACHINE)
    assert (
        "| 3.00 (4.50) | 2.00 (3.00) | 1.00 (1.50) ✗ | - | onnxruntime (50% of floor) | 1.50"
        in text
    )
    assert "Geometric mean of the ratios (1 models): 1.50" in text
    assert "- openvino, m: RuntimeError: no" in text
    assert "- torch, m: off by 5.0e-01 of the largest value" in text


def test_a_model_without_our_time_has_no_ratio() -> None:
    assert math.isnan(report.over(None, result("torch", 1.0)))
    assert math.isnan(report.over(result("tilewright", 1.0), None))
    assert math.isnan(report.over(result("tilewright", 1.0, error=1.0), result("torch", 1.0)))


def test_tuned_schedules_are_no_peer_and_have_a_column_of_their_own() -> None:
    plan = Plan(["m"], ["tilewright", "tuned", "torch"], [1], seconds=1.0, tuning=60.0)
    timed = [result("tilewright", 0.003), result("tuned", 0.001), result("torch", 0.002)]
    rates, works = {1: Rates(flops=2e12, bandwidth=1e10)}, {"m": work.Work(10**9, 0)}
    text = report.page(plan, Measurement(timed, rates, works), MACHINE)
    assert "60 s of tuning" in text.replace("\n", " ") and "| gain |" in text
    row = next(line for line in text.splitlines() if line.startswith("| m | 1"))
    assert row.split(" | ")[-3:] == ["torch (50% of floor)", "1.50", "3.00 |"]
    assert "gains (1 models): 3.00" in text


def test_shapes_that_differ_are_named(tmp_path: Path) -> None:
    model = zoo.model("dqn")
    np.savez(tmp_path / "inputs.npz", **model.inputs(0))
    np.savez(tmp_path / "outputs.npz", np.zeros((2, 18), np.float32))
    with Process(threads=1) as process:
        process.ask("load", engine="onnxruntime", threads=1, **measure.fields(model, tmp_path))
        with pytest.raises(WorkerError, match=r"shapes \[\(1, 18\)\], expected \[\(2, 18\)\]"):
            process.ask("check", path=str(tmp_path / "outputs.npz"))


# ---- Kernels ----------------------------------------------------------------------------------


def kernel(name: str, us: float, shape: tuple[int, ...] = (8,), starts: float = 1) -> KernelTime:
    """A kernel that adds: 1,000 operations, 10,000 bytes."""
    return KernelTime(name, ("add",), shape, starts, us, 1000, 10_000, "compute", 0.0)


def rounds(*times: tuple[float, ...]) -> list[Profile]:
    slow = Roofline(1.0, 1.0)
    return [
        Profile(tuple(kernel(f"k{i}", us) for i, us in enumerate(each)), sum(each), slow, 1)
        for each in times
    ]


def test_each_kernel_counts_at_its_best_against_the_best_machine() -> None:
    found = kernels.fastest(rounds((4.0, 1.0), (2.0, 3.0)), Roofline(100.0, 10.0))
    assert [k.microseconds for k in found.kernels] == [2.0, 1.0]
    assert found.kernels[0].limit == "memory"  # 1 us against 0.01 us
    assert [k.roofline for k in found.kernels] == pytest.approx([50.0, 100.0])
    assert found.microseconds == 5.0


def test_equal_kernels_share_a_row() -> None:
    each = (
        kernel("a", 3.0),
        kernel("b", 8.0, shape=(9,)),
        kernel("c", 6.0, starts=2),
        kernel("never", 0.0, shape=(7,), starts=0),
    )
    profile = Profile(each, 20.0, Roofline(100.0, 10.0), 1)
    found = [(row.kernel.name, row.times, row.microseconds) for row in kernels.distinct(profile)]
    assert found == [("a", 3, 3.0), ("b", 1, 8.0)]
    text = kernels.section("m, 1 thread", profile, MACHINE)
    assert "| add | 8 | 3 | 3.00 | 52.9% | 3.3 GB/s | memory | 33% |" in text
    assert "4 starts of 2 distinct kernels, 0.017 ms in them" in text


def test_the_kernels_page_keeps_what_was_not_measured() -> None:
    plan = Plan(["dqn"], [], [1], seconds=0.05)
    old = "# Kernels\n\nOld words.\n\n## resnet18, 1 thread\n\nkept\n\n## dqn, 1 thread\n\ngone\n"
    text = kernels.write(plan, machine.describe(), old, lambda step: None)
    assert "## resnet18, 1 thread\n\nkept\n" in text and "gone" not in text and "Old" not in text
    assert "add relu" in text and "## dqn, 1 thread" in text
    assert text.index("## resnet18") < text.index("## dqn")  # the zoo's order
    assert kernels.sections(text).keys() == {"resnet18, 1 thread", "dqn, 1 thread"}


def test_page_keeps_what_is_written_by_hand(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    pages.write(page, "first\n")
    assert page.read_text() == "first\n"
    page.write_text(f"first\n\n{pages.BY_HAND}\n\nby hand\n")
    pages.write(page, "second")
    assert page.read_text() == f"second\n\n{pages.BY_HAND}\n\nby hand\n"
