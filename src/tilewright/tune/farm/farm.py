"""A farm: hands what is to be measured to whichever device is free.

In: devices, candidates and duels of functions. Out: for each a future, that gets one result. The
one idea: what a device has in hand stays on the books until it answers; if it vanishes, another
gets it, so nothing is lost, and since nobody else has it meanwhile, nothing counts twice. A device
that fails again and again is used no more, and the farm goes on while one is left.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any

from tilewright.support.errors import CompileError, InputError
from tilewright.target.target import Target
from tilewright.tune.farm.device import Device, Function, Vanished
from tilewright.tune.launcher import Code
from tilewright.tune.samples import Verdict
from tilewright.tune.stand import STEADY, Duel, Outcome

WINDOW = 8  # candidates that a device gets at once, at most
FAILURES = 6  # in a row until a device is used no more
PAUSE = 0.3  # seconds until a device that vanished is asked again; twice as many the next time
LOSSES = 4  # how often devices may vanish with a candidate in hand until that counts as its fault
LEAVING = 5.0  # seconds that the farm waits for a device that it lets go
LOST = "each device that ran it vanished"


class FarmWarning(UserWarning):
    """A device is used no more, and why."""


class Deserted(CompileError):
    """No device is left."""


@dataclass(eq=False)
class Job:
    """What one device does: measure a candidate, or compare two. losses: devices that vanished
    while they had it."""

    function: Function
    codes: tuple[Code, ...]
    told: tuple[Any, ...]  # of a duel: seconds, p, turns
    limit: float
    future: Future[Any] = field(default_factory=Future[Any])
    losses: int = 0

    @property
    def is_duel(self) -> bool:
        """Whether two are compared."""
        return len(self.codes) == 2


class Farm:
    """Devices that measure for one machine and number of threads: a context manager.

    Args:
        devices: used until they fail.
        machine: whose code they run; threads: on how many.

    Raises:
        InputError: a device cannot be used, or is not there at the start.
    """

    def __init__(self, devices: Sequence[Device], machine: Target, threads: int) -> None:
        if not devices:
            raise InputError("cannot measure on other machines", "no device is named")
        self.devices, self.machine, self.threads = tuple(devices), machine, threads
        self.retired: dict[str, str] = {}  # why, by the names of devices
        self.busy: dict[str, float] = {d.name: 0.0 for d in devices}  # seconds of work, by name
        self._queue: deque[Job] = deque()
        self._changed = threading.Condition()
        self._is_closed = False
        self._first: dict[str, float] = {}  # seconds of defaults on the first device that ran them
        self._best: dict[str, float] = {}  # of all candidates, by the keys of functions
        self._untold: list[str] = []
        self._workers: list[threading.Thread] = []

    def __enter__(self) -> Farm:
        faults: dict[str, Exception] = {}

        def opened(device: Device) -> None:
            try:
                device.open(self.machine, self.threads)
            except Exception as fault:
                faults[device.name] = fault

        self._all(opened)
        if faults:
            self._all(lambda device: device.close())
            raise _refused(faults)
        self._workers = [
            threading.Thread(target=self._serve, args=(d,), daemon=True) for d in self.devices
        ]
        for worker in self._workers:
            worker.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _all(self, of: Callable[[Device], None]) -> None:
        """Do something with all devices at the same time."""
        threads = [threading.Thread(target=of, args=(d,), daemon=True) for d in self.devices]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def close(self) -> None:
        """Let all devices go, whatever they do."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self.cancel()
        for device in self.devices:
            with contextlib.suppress(Exception):
                device.close()
        for worker in self._workers:
            worker.join(LEAVING)

    @property
    def lanes(self) -> int:
        """Devices that are left."""
        return len(self.devices) - len(self.retired)

    def news(self) -> list[str]:
        """Which devices are used no more, and why: those that were not told of before."""
        with self._changed:
            told, self._untold = self._untold, []
        return told

    # ---- Asking -----------------------------------------------------------------------------

    def measure(self, function: Function, code: Code, limit: float) -> Future[Outcome]:
        """Time a candidate. limit: seconds that it may take."""
        return self._put(Job(function, (code,), (), limit))

    def duel(
        self,
        function: Function,
        codes: tuple[Code, Code],
        seconds: float,
        p: float,
        turns: int,
        limit: float,
    ) -> Future[Duel]:
        """Compare two candidates: see `Stand.duel`."""
        return self._put(Job(function, codes, (seconds, p, turns), limit))

    def _put(self, job: Job) -> Future[Any]:
        with self._changed:
            if not self.lanes:
                job.future.set_exception(self._deserted())
            else:
                self._queue.append(job)
                self._changed.notify()
        return job.future

    def cancel(self) -> None:
        """Forget what no device has in hand yet."""
        with self._changed:
            for job in self._queue:
                job.future.cancel()
            self._queue.clear()

    # ---- A device's thread ------------------------------------------------------------------

    def _serve(self, device: Device) -> None:
        """Give a device what is to be done, until it or the farm is no more."""
        holds, scale, failures = "", 1.0, 0
        while batch := self._take():
            began = time.monotonic()
            try:
                function = batch[0].function
                if holds != function.key:
                    holds = ""
                    scale = self._scale(function, device.begin(function))
                    holds = function.key
                self._work(device, batch, scale)
                failures = 0
            except Vanished as fault:
                holds, why = "", str(fault)
                self._give_back(batch)
                failures = self._again(device, failures + 1, why)
                if failures >= FAILURES:
                    return
            except Exception as fault:
                for job in batch:
                    if not job.future.done():
                        job.future.set_exception(fault)
            finally:
                self.busy[device.name] += time.monotonic() - began
        with contextlib.suppress(Exception):
            device.close()  # it may have come back after the farm was closed

    def _take(self) -> list[Job]:
        """What a device does next: a duel, or some candidates of one function; fewer towards the
        end, so that all devices end at about the same time. Nothing: the farm is closed."""
        with self._changed:
            while True:
                while not self._queue and not self._is_closed:
                    self._changed.wait()
                if self._is_closed:
                    return []
                share = len(self._queue) // (2 * max(1, self.lanes))
                batch = [self._queue.popleft()]
                while self._queue and len(batch) < min(WINDOW, share):
                    if not _go_together(batch[0], self._queue[0]):
                        break
                    batch.append(self._queue.popleft())
                batch = [j for j in batch if j.losses or j.future.set_running_or_notify_cancel()]
                if batch:
                    return batch

    def _scale(self, function: Function, seconds: float) -> float:
        """By which factor a device is slower than the first one."""
        with self._changed:
            first = self._first.setdefault(function.key, seconds)
            self._best.setdefault(function.key, first)
        scale = seconds / first
        return scale if max(scale, 1 / scale) > STEADY else 1.0

    def _work(self, device: Device, batch: Sequence[Job], scale: float) -> None:
        first = batch[0]
        if first.is_duel:
            pair, (seconds, p, turns) = (first.codes[0], first.codes[1]), first.told
            first.future.set_result(device.duel(pair, seconds, p, turns, first.limit))
            return
        codes = {job.codes[0].digest: job.codes[0] for job in batch}
        key = first.function.key
        found = device.measure(codes, self._best[key] * scale, first.limit)
        scaled = {d: replace(o, drift=o.drift * scale) for d, o in found.items()}
        with self._changed:
            self._best[key] = min(self._best[key], *(o.best for o in scaled.values()))
        for job in batch:
            job.future.set_result(scaled[job.codes[0].digest])

    def _give_back(self, batch: Sequence[Job]) -> None:
        """Let others do what a device that vanished had in hand; but not for ever."""
        with self._changed:
            for job in reversed(batch):
                job.losses += 1
                if job.losses < LOSSES or len(batch) > 1:
                    self._queue.appendleft(job)
                elif job.is_duel:
                    job.future.set_result((Verdict(math.nan, 0.0, math.inf, "", why=LOST), (), ()))
                else:
                    job.future.set_result(Outcome("crashed", why=LOST))
            self._changed.notify_all()

    def _again(self, device: Device, failures: int, why: str) -> int:
        """Ask a device that vanished to come back: how often it failed till then."""
        while True:
            with contextlib.suppress(Exception):
                device.close()
            if failures >= FAILURES or self._is_closed:
                self._retire(device, why)
                return FAILURES
            time.sleep(PAUSE * 2 ** (failures - 1))
            try:
                device.open(self.machine, self.threads)
                return failures
            except InputError as fault:  # it came back as another, and will not change
                failures, why = FAILURES, str(fault)
            except Exception as fault:
                failures, why = failures + 1, str(fault)

    def _retire(self, device: Device, why: str) -> None:
        with self._changed:
            self.retired[device.name] = why
            left = f"{self.lanes} are left" if self.lanes != 1 else "1 is left"
            self._untold.append(f"{device.name} is used no more: {why}; of the devices {left}")
            if not self.lanes:
                for job in self._queue:
                    if job.losses or job.future.set_running_or_notify_cancel():
                        job.future.set_exception(self._deserted())
                self._queue.clear()

    def _deserted(self) -> Deserted:
        listed = "; ".join(f"{name}: {why}" for name, why in self.retired.items())
        return Deserted(
            "cannot go on measuring",
            f"no device is left: {listed}",
            remedy="see that the devices run, and tune again; with database= what was measured "
            "till then is recorded",
        )


def _go_together(first: Job, other: Job) -> bool:
    """Whether a device may get both at once. Those that a device vanished with go alone, so that
    none is blamed for another."""
    if first.is_duel or other.is_duel or first.losses or other.losses:
        return False
    return first.function.key == other.function.key and first.limit == other.limit


def _refused(faults: Mapping[str, Exception]) -> InputError:
    """The error of devices that cannot be used."""
    first = next(iter(faults.values()))
    if len(faults) == 1 and isinstance(first, InputError):
        return first
    listed = "; ".join(f"{name}: {str(fault).splitlines()[0]}" for name, fault in faults.items())
    remedy = "see that they run and can be reached, or leave them out"
    return InputError("cannot measure on these devices", listed, remedy=remedy)
