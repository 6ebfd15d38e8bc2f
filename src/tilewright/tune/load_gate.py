"""A gate that waits while others use the cores.

In: how many cores are needed. Out: after a while, the way is free. The one idea: the system tells
what all cores did since the last look, and what this process and its workers did; the rest is
others'. A machine that is never quiet must not stop the search, so each wait in vain halves the
patience for the next.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

from tilewright.support.record import record
from tilewright.target.processors import host_cores

STEP = 0.05  # seconds between looks: the system counts in hundredths
PATIENCE = 0.4  # seconds for one wait, at first
BUSY = 0.25  # of a core that is needed: what others may have of it
IDLE_FIELDS = (3, 4)  # idle, waiting for files
COUNTED = 8  # fields that exclude one another; the others are parts of those


@record
class _Look:
    """A moment: seconds that the cores were busy with anything, and with what is our own."""

    at: float
    busy: float
    own: float


class LoadGate:
    """Waits for cores. root: where the system's files are."""

    def __init__(self, needed: int, root: Path = Path("/")) -> None:
        self.needed, self.root = needed, root
        self.cores = host_cores()
        self.patience = PATIENCE
        self.waited = 0.0  # seconds in all
        self._last: _Look | None = None

    def wait(self, workers: Sequence[int]) -> float:
        """Wait until the cores needed are free, or for as long as is worth it. workers: numbers of
        processes that are our own. Gives the fraction of the cores needed that others use."""
        busy = self._others(workers)
        end, began = time.monotonic() + self.patience, time.monotonic()
        while busy > BUSY and time.monotonic() < end:
            time.sleep(STEP)
            busy = self._others(workers)
        self.waited += time.monotonic() - began
        if busy > BUSY:
            self.patience /= 2
        else:
            self.patience = min(PATIENCE, self.patience * 2 + STEP)
        return busy

    def _others(self, workers: Sequence[int]) -> float:
        """The fraction of the cores needed that others used since the last look; 0 where nothing is
        known or the last look was a moment ago."""
        last, now = self._last, self._look(workers)
        if now is None:
            return 0.0
        if last is None or now.at - last.at >= STEP:
            self._last = now
        if last is None or now.at - last.at < STEP:
            return 0.0
        taken = (now.busy - last.busy - max(0.0, now.own - last.own)) / (now.at - last.at)
        return max(0.0, min(1.0, (taken + self.needed - self.cores) / self.needed))

    def _look(self, workers: Sequence[int]) -> _Look | None:
        try:
            ticks = os.sysconf("SC_CLK_TCK")
            busy = 0
            allowed = os.sched_getaffinity(0)
            for line in (self.root / "proc/stat").read_text().splitlines():
                name, *fields = line.split()
                if name[:3] == "cpu" and name[3:].isdigit() and int(name[3:]) in allowed:
                    counts = [int(f) for f in fields[:COUNTED]]
                    busy += sum(c for n, c in enumerate(counts) if n not in IDLE_FIELDS)
        except (OSError, ValueError, AttributeError):
            return None
        own = sum(self._used(number) for number in (os.getpid(), *workers))
        return _Look(time.monotonic(), busy / ticks, own / ticks)

    def _used(self, number: int) -> int:
        """Ticks that a process used; 0 for one that is gone."""
        try:
            told = (self.root / f"proc/{number}/stat").read_text()
            user, system = told.rpartition(")")[2].split()[11:13]
            return int(user) + int(system)
        except (OSError, ValueError):
            return 0
