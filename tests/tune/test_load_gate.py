"""The gate waits while others use the cores, less and less long, and never for its own work."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tilewright.tune.load_gate import PATIENCE, LoadGate

pytestmark = pytest.mark.skipif(
    not hasattr(os, "sched_getaffinity"), reason="nothing tells which cores there are"
)


class Machine:
    """The system's files. As time passes, all cores are busy with others or with this process."""

    def __init__(self, root: Path, others: float, own: float = 0.0) -> None:
        self.root, self.others, self.own, self.began = root, others, own, time.monotonic()
        self.ticks, self.cores = os.sysconf("SC_CLK_TCK"), sorted(os.sched_getaffinity(0))
        (root / "proc" / str(os.getpid())).mkdir(parents=True)

    def write(self) -> None:
        passed = (time.monotonic() - self.began) * self.ticks
        busy, own = round(passed * (self.others + self.own)), round(passed * self.own)
        lines = [f"cpu{n} {busy} 0 0 {round(passed)} 5 0 0 0 7 7" for n in self.cores]
        (self.root / "proc/stat").write_text("\n".join(["cpu 1 2 3 4", *lines, "intr 3"]))
        told = f"{os.getpid()} (a (b) c) R {' '.join('1' * 10)} {own * len(self.cores)} 0 0 0"
        (self.root / f"proc/{os.getpid()}/stat").write_text(told)


@pytest.fixture
def gates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def made(others: float, own: float = 0.0) -> LoadGate:
        machine = Machine(tmp_path, others, own)
        gate = LoadGate(len(machine.cores), tmp_path)
        look = gate._look

        def now(workers):
            machine.write()
            return look(workers)

        monkeypatch.setattr(gate, "_look", now)
        gate.wait([])  # the first look
        time.sleep(0.2)
        return gate

    return made


def test_a_quiet_machine_is_not_waited_for(gates) -> None:
    gate = gates(others=0.0)
    assert gate.wait([]) < 0.2
    assert gate.waited < PATIENCE / 2 and gate.patience == PATIENCE


def test_its_own_work_is_not_waited_for(gates) -> None:
    gate = gates(others=0.0, own=1.0)
    assert gate.wait([]) < 0.2 and gate.patience == PATIENCE


def test_a_busy_machine_is_waited_for_less_and_less(gates) -> None:
    gate = gates(others=1.0)
    assert gate.wait([]) > 0.5
    assert gate.waited >= PATIENCE  # as long as it may
    assert gate.patience == PATIENCE / 2


def test_where_the_system_tells_nothing_the_way_is_free(tmp_path: Path) -> None:
    gate = LoadGate(1, tmp_path)
    assert gate.wait([1]) == 0.0 and gate.patience == PATIENCE
