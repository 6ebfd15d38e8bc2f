"""Candidates in child processes: made, compiled, run between guarded pages, compared.

In: numbers of functions. Out: a `Verdict` of each: how many candidates ran, which were refused and
why, what failed. The one idea: a child writes down what it does before it does it, so that a crash
or a hang is some candidate's, and the next child goes on behind it.
"""

from __future__ import annotations

import ctypes
import faulthandler
import json
import mmap
import os
import pickle
import re
import resource
import select
import signal
import struct
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from random import Random
from typing import Any, NamedTuple

import numpy as np

from tests.parameters.guard import ROOM, Guarded
from tests.tune import bounded, drawn
from tests.tune.bounded import Array
from tests.tune.cases import Case
from tilewright.codegen.inprocess import aligned, map_image
from tilewright.codegen.link import link
from tilewright.codegen.llvm import Entry, emit
from tilewright.codegen.llvm_compile import compile_object
from tilewright.ir import interp
from tilewright.ir.expr import as_int
from tilewright.ir.stmt import Func
from tilewright.ir.text import print_func
from tilewright.lower.pipeline import lower
from tilewright.schedule.schedule import Schedule
from tilewright.strategy.select import FAMILY, GENERIC, SKETCH
from tilewright.strategy.sketch.plan import Plan
from tilewright.strategy.sketch.tiles import plans
from tilewright.strategy.space import decisions, partial, sample
from tilewright.support.errors import ScheduleError
from tilewright.target.target import Target, target

SECONDS = 60  # that a candidate may take
DRAWN, SLOW, QUICK = 120, 3, 24  # rows of a sketch: of those that are not run, most unroll much
POINTS = 2  # of strategies, of each function
SLOTS = 24  # arrays of a kernel
NOTE = 1 << 16  # bytes for what a child does


class Runs(NamedTuple):
    """What is run: of which seed, for how many threads, for which processors."""

    seed: int
    threads: tuple[int, ...]
    cpus: tuple[str, ...]

    def setting(self, number: int) -> tuple[Target, int]:
        random = Random(f"{self.seed}/{number}/setting")
        cpu, threads = random.choice(self.cpus), random.choice(self.threads)
        return target("cpu" if cpu == "native" else f"cpu -mcpu={cpu}"), threads


class Verdict(NamedTuple):
    """What became of the candidates of a function."""

    number: int
    counts: Counter[str]
    refused: Counter[str]
    failures: tuple[str, ...]


def candidates(
    case: Case, machine: Target, threads: int, number: int, seed: int
) -> Iterator[tuple[str, Any]]:
    """How each candidate is called, and what makes its schedule."""
    found = plans(case.func, machine, threads)
    for own in found:
        random = np.random.default_rng([seed, number])
        rows = own.draw(DRAWN, random)
        most = -(-QUICK // len(found))
        quick = np.argsort([unrolled(own, row) for row in rows[SLOW:]])[:most] + SLOW
        pick = [own.pick] if len(rows) else []
        for row in [*pick, *rows[:SLOW], *rows[quick]]:
            point = {"strategy": SKETCH, **own.point(row)}
            yield (
                f"sketch {json.dumps(point)}",
                lambda p=point: partial(case.func, machine, threads, p),
            )
    for n in range(POINTS):
        for strategy in (FAMILY, GENERIC) if n == 0 else (FAMILY,):
            random = Random(f"{seed}/{number}/{n}")
            yield (
                f"{strategy} {n}",
                lambda r=random, s=strategy: sample(case.func, machine, threads, r, s),
            )


def unrolled(own: Plan, row: Any) -> int:
    """About how many instances stand side by side in a row's code: how long it is to compile."""
    sizes = Counter[str]()
    for name, value in own.point(row).items():
        block, _, what = name.rpartition(".")
        if what.startswith("tile_") or what == "unroll":
            sizes[block] = max(1, sizes[block]) * value
    return sizes.total()


class Kernel:
    """A compiled candidate."""

    def __init__(self, func: Func, machine: Target, quick: bool) -> None:
        emitted = emit(lower(func, machine), machine)
        self.image = link(
            [compile_object(emitted.text, machine)], [e.symbol for e in emitted.entries]
        )
        self.entries, self.workspace = emitted.entries, emitted.workspace
        self.names = [b.name for b in func.buffers]
        self.memory, self.address = map_image(self.image)

    def run(self, arrays: Sequence[Array], slots: Sequence[Guarded], shares: Random) -> None:
        """Every entry, in shares of several threads, in any order."""
        known = dict(zip(self.names, arrays, strict=True))
        free = list(slots)
        for b in self.workspace:
            size = b.dtype.nbytes(as_int(b.shape[0]) or 0) if b.shape else b.dtype.nbytes(1)
            held = aligned(size)
            if size % 64 == 0 and 0 < size <= ROOM and free:
                held = free.pop().hold(held, True)
            known[b.name] = held
        for entry in self.entries:
            self.launch(entry, known, shares)

    def launch(self, entry: Entry, known: dict[str, Array], shares: Random) -> None:
        extent = as_int(entry.extent)
        assert extent is not None and not entry.symbols
        cuts = {0, extent, *(shares.randint(0, extent) for _ in range(shares.choice((0, 2))))}
        parts = list(pairwise(sorted(cuts)))
        shares.shuffle(parts)
        buffers = [known[name].ctypes.data for name in entry.buffers]
        for begin, end in parts:
            scratch = aligned(entry.scratch_bytes)
            arguments = [*buffers, scratch.ctypes.data, begin, end]
            passed = [ctypes.c_int64(n) for n in arguments]
            address = self.address + self.image.entries[entry.symbol]
            ctypes.CFUNCTYPE(None, *map(type, passed))(address)(*passed)


class Trial:
    """A function with its arrays and results, on which candidates are tried."""

    def __init__(self, runs: Runs, number: int, slots: Sequence[Guarded]) -> None:
        self.case, self.slots = drawn.draw(number, runs.seed), slots
        self.given = self.case.arrays(np.random.default_rng([runs.seed, number, 1]))
        self.wanted = self.case.reference(self.given)
        self.shares = Random(f"{runs.seed}/{number}/shares")

    def results(self) -> list[Array]:
        """Arrays for the results, which hold what none of them is."""
        found: list[Array] = []
        for source in self.case.outputs:
            array = np.empty(source.shape, source.tensor.dtype.numpy)
            array.view(np.uint8)[...] = 0x01 if source.dtype == "bool" else 0xA5
            found.append(array)
        return found

    def wrong(self, func: Func, machine: Target) -> str:
        """What is wrong with the results of a schedule; empty if nothing is."""
        quick = self.shares.random() < 0.5  # every load is made then, whether it is needed or not
        kernel = Kernel(func, machine, quick)
        arrays, slots = [*self.given, *self.results()], [*self.slots]
        held = [slots.pop(0).hold(a, self.shares.random() < 0.7) for a in arrays]
        kernel.run(held, slots, self.shares)
        return self.compared(held)

    def compared(self, arrays: Sequence[Array]) -> str:
        inputs = len(self.given)
        for one, other in zip(arrays, self.given, strict=False):
            if one.tobytes() != other.tobytes():
                return "changes an input"
        for source, got, want in zip(self.case.outputs, arrays[inputs:], self.wanted, strict=True):
            bad = bounded.is_wrong(got, want)
            if bad.any():
                at = tuple(int(n) for n in np.argwhere(bad)[0])
                told = f"{source.tensor.name}{[*at]} is {got[at]}, not {want.value[at]}"
                return f"{told} within {want.bound[at]:.3g}; {bad.sum()} of {bad.size}"
        return ""

    def interpreted(self) -> str:
        """What is wrong with the results of the interpreter: then the reference may be."""
        arrays = [*(a.copy() for a in self.given), *self.results()]
        interp.run(self.case.func, *arrays)
        return self.compared(arrays)


def judged(runs: Runs, number: int, slots: Sequence[Guarded], note: Any) -> Verdict:
    """Try the candidates of a function. `note` is called before each step that may not end."""
    counts, refused, failures = Counter[str](), Counter[str](), list[str]()
    trial, (machine, threads) = Trial(runs, number, slots), runs.setting(number)
    for name, make in candidates(trial.case, machine, threads, number, runs.seed):
        told = f"{machine}, {threads} threads, {name}"
        kind = name.split()[0]
        note(told)
        try:
            schedule: Schedule = make()
        except ScheduleError as fault:
            counts["refused"] += 1
            refused[f"{kind}: {reason(fault)}"] += 1
            continue
        except Exception:
            counts["internal"] += 1
            failures.append(f"INTERNAL {told}\n{traceback.format_exc()[-1500:]}")
            continue
        if kind != "sketch":
            told = f"{machine}, {threads} threads, {json.dumps(decisions(schedule))}"
        try:
            why = trial.wrong(schedule.func, machine)
        except Exception:
            counts["internal"] += 1
            failures.append(f"INTERNAL {told}\n{traceback.format_exc()[-1500:]}")
            continue
        counts["run"] += 1
        if why:
            beside = trial.interpreted()
            why += f"; so says the interpreter: {beside}" if beside else ""
            counts["doubtful" if beside else "wrong"] += 1
            failures.append(f"WRONG {told}: {why}")
    return Verdict(number, counts, refused, tuple(failures))


def reason(fault: ScheduleError) -> str:
    """Why a candidate is refused, without the names and numbers in it."""
    assert fault.what and fault.why
    return re.sub(r"\d+", "N", re.sub(r"'[^']*'", "'…'", f"{fault.what}: {fault.why}"))[:200]


def told_case(runs: Runs, number: int) -> str:
    case = drawn.draw(number, runs.seed)
    return f"{print_func(case.func)}\nfilled with {case.fill}"


# Children ---------------------------------------------------------------------------------------


def run_cases(runs: Runs, first: int) -> Iterator[Verdict]:
    """Verdicts of functions, without an end."""
    number = first
    while True:
        note = mmap.mmap(-1, NOTE)
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reading)
            _work(runs, number, writing, note)
        os.close(writing)
        how = ""
        try:
            with os.fdopen(reading, "rb", buffering=0) as stream:
                while (verdict := _received(stream, note)) is not None:
                    number = verdict.number + 1
                    yield verdict
            how = _ended(child)
        finally:
            if not how:  # nobody wants more
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
        (length,) = struct.unpack("q", note[:8])
        told = note[8 : 8 + length].decode()
        yield Verdict(number, Counter({how.lower(): 1}), Counter(), (f"{how} {told}",))
        number += 1


def _received(stream: Any, note: mmap.mmap) -> Verdict | None:
    """The next verdict of a child; None if it ends or does nothing new for long."""
    before = b""
    while not select.select([stream], [], [], SECONDS)[0]:
        now = note[:4096]
        if now == before:
            return None
        before = now
    head = stream.read(8)
    if len(head) < 8:
        return None
    (length,) = struct.unpack("q", head)
    body = b""
    while len(body) < length:
        part = stream.read(length - len(body))
        if not part:
            return None
        body += part
    return pickle.loads(body)


def _ended(child: int) -> str:
    """End a child: how it had ended before."""
    done, status = os.waitpid(child, os.WNOHANG)
    if done:
        return f"CRASH {status}"
    for _ in range(20):  # it may be ending
        time.sleep(0.05)
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return f"CRASH {os.WTERMSIG(status)}"
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "HANG"


def _work(runs: Runs, number: int, writing: int, note: mmap.mmap) -> None:
    """In the child: judge functions until it is ended."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    faulthandler.disable()  # its parent says what crashed
    try:
        slots = [Guarded() for _ in range(SLOTS)]
        while True:

            def write_down(told: str, number: int = number) -> None:
                text = f"case {number}: {told}".encode()[: NOTE - 8]
                note[:8] = struct.pack("q", len(text))
                note[8 : 8 + len(text)] = text

            write_down("is drawn")
            try:
                verdict = judged(runs, number, slots, write_down)
            except Exception:
                told = (f"INTERNAL {traceback.format_exc()[-2500:]}",)
                verdict = Verdict(number, Counter(internal=1), Counter(), told)
            body = pickle.dumps(verdict)
            body = struct.pack("q", len(body)) + body
            while body:
                body = body[os.write(writing, body) :]
            number += 1
    finally:
        os._exit(1)
