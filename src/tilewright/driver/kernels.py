"""Compiling kernels: one function at a time, or many at once.

In: functions in stage "blocks". Out: object code with the entries the host program will launch.
Symbols are named by what the code is, so that kernels with the same code share it: layers that
differ in nothing but how often a parallel loop runs.

Half of the time is Python's (schedule, lower, emit), half LLVM's, which runs beside Python. So two
cores are this process: one thread writes LLVM text, one makes code of it, and what is left when all
is written is shared. Each further core has one more thread in LLVM, and a process of its own that
writes, started early and fed over pipes. LLVM gets several kernels at once: whatever the cores and
their haste, those that follow one another.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field, replace
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from tilewright.backend.backend import backend_of, native_of
from tilewright.codegen.llvm import Emitted, Entry, Module, joined
from tilewright.codegen.objects import EMPTY, Object, part, read
from tilewright.driver.observe import Watch
from tilewright.driver.stages import Observer, Stages
from tilewright.driver.versions import replayed, versions
from tilewright.ir.expr import Buffer
from tilewright.ir.stmt import Func
from tilewright.ir.verify import verify
from tilewright.lower.pipeline import Pass, lower
from tilewright.schedule.trace import Plain
from tilewright.strategy.select import fallback
from tilewright.support.collector import collector_paused
from tilewright.support.errors import InternalFault, MemoryFault
from tilewright.support.handover import short_turns
from tilewright.support.interpreter import isolated
from tilewright.support.memory import REMEDY, exhausted
from tilewright.support.messages import end_with
from tilewright.support.messages import receive as _receive
from tilewright.support.messages import send as _send
from tilewright.support.record import record
from tilewright.target.processors import host_cores
from tilewright.target.target import Target, target

if TYPE_CHECKING:
    import subprocess

SERVE = "from tilewright.driver.kernels import serve; serve(int(sys.argv[1]))"
IMPORTED = ("tilewright", "numpy", "ml_dtypes", "llvmlite", "typing_extensions")  # by a worker
ALONE = {"OPENBLAS_NUM_THREADS": "1"}  # threads for products, which no worker has, spin 50 ms each
HERE = 2  # cores that this process uses: a thread that writes, and one in LLVM
MOST = 6  # processes beside it
BATCH = 80_000  # characters of text from which on LLVM gets it: 1 ms of its 20 is for a module
VERIFY = False  # LLVM text also where nobody asks for it, as tests do: 2 % of LLVM's time


@record
class Job:
    """A function to compile, and for what. point: of its space, see `versions`; None is the
    strategies' own. trace: the steps of a point that only this process can follow, as JSON."""

    func: Func
    target: str
    threads: int
    watch: Watch = field(default_factory=Watch)
    point: dict[str, Plain] | None = None
    trace: str = ""


@record
class Kernel:
    """A compiled function: its code, whatever it was compiled together with, what to launch in
    order, the memory it needs. point: names its schedule. fallback: if its family's strategy did
    not schedule it, what did, and why."""

    name: str
    code: Object
    entries: tuple[Entry, ...]
    workspace: tuple[Buffer, ...]
    seconds: dict[str, float] = field(default_factory=dict[str, float])  # by stage
    point: dict[str, Plain] = field(default_factory=dict[str, Plain])
    fallback: str = ""


@record
class Written:
    """A kernel as LLVM text. content: the same under `symbol`, which tells what it does, not for
    whom; entries: those of the content; watchers: who sees its steps."""

    job: Job
    emitted: Emitted
    seconds: dict[str, float]
    watchers: tuple[Observer, ...]
    point: dict[str, Plain]
    fallback: str
    symbol: str
    content: Module
    entries: tuple[Entry, ...]

    def __len__(self) -> int:
        """Characters of its text."""
        return sum(map(len, (*self.content.kernels, *self.content.functions)))

    def kernel(self, code: Object) -> Kernel:
        """The kernel whose code this is."""
        made = self.entries, self.emitted.workspace, self.seconds
        return Kernel(self.job.func.name, code, *made, self.point, self.fallback)


def nothing(job: Job) -> Kernel | None:
    """What is known of a job where nothing is."""


def compile_kernel(job: Job, observers: Sequence[Observer] = ()) -> Kernel:
    """Schedule, lower and generate one function. `observers` see each step (`KERNEL_STEPS`)."""
    return translate([write(job, observers)])[0]


@collector_paused()
def write(job: Job, observers: Sequence[Observer] = ()) -> Written:
    """The first half of `compile_kernel`: Python's."""
    machine, backend = target(job.target), backend_of(job.target)
    stages = Stages(clock=time.thread_time)
    watchers = job.watch.trail(job.func.name), *observers
    check = verify if job.watch.verify else None

    def see(step: str, before: Any, after: Any, seconds: float = 0.0) -> None:
        for observer in watchers:
            observer(step, before, after, seconds)

    def passed(p: Pass, before: Func, after: Func, seconds: float) -> None:
        stages.add(f"lower/{p.name}", seconds)
        see(p.name, before, after, seconds)

    see("te", None, job.func)
    with stages("schedule"):
        if job.trace:
            made = replayed(job.func, job.trace)
        else:
            made = versions(job.func, machine, job.threads, job.point)
        scheduled = made.schedule.func
    if check:
        check(job.func, "blocks", after="te")
        check(scheduled, "blocks", after="schedule", before=job.func)
    see("schedule", job.func, scheduled, stages.seconds["schedule"])
    with stages("lower"):
        lowered = lower(made.func, machine, backend.pipeline, check, [passed])
    with stages("emit"):
        emitted = native_of(machine).emit(lowered, machine)
    see("emit", None, emitted.text, stages.seconds["emit"])
    told = fallback(job.func, machine, job.threads, made.point)
    content = _by_content(emitted, job)
    return Written(job, emitted, stages.seconds, watchers, made.point, told, *content)


def _by_content(emitted: Emitted, job: Job) -> tuple[str, Module, tuple[Entry, ...]]:
    """A kernel's symbol, text and entries, named by what they are; the functions that it calls too:
    how depends on how often."""
    name, made = job.func.name, emitted.module
    told = emitted.text.replace(f'@"{name}', '@"') + job.target
    symbol = "k" + _digest(told, 12)
    kernels = tuple(k.replace(f'@"{name}', f'@"{symbol}') for k in made.kernels)
    functions = made.functions
    if functions:
        of = _digest("\n".join(functions), 6)
        kernels, functions = (
            tuple(t.replace('@"tw.', f'@"{of}.') for t in texts) for texts in (kernels, functions)
        )
    entries = tuple(replace(e, symbol=symbol + e.symbol[len(name) :]) for e in emitted.entries)
    return symbol, replace(made, kernels=kernels, functions=functions), entries


def _digest(text: str, size: int) -> str:
    return hashlib.blake2b(text.encode(), digest_size=size).hexdigest()


def translate(batch: Sequence[Written]) -> list[Kernel]:
    """The second half of `compile_kernel`: LLVM's, for kernels of one target. One whose code cannot
    be told from that of others is translated alone."""
    began = time.thread_time()
    text, machine = joined([w.content for w in batch]).text, target(batch[0].job.target)
    verify = VERIFY or any(w.job.watch.verify for w in batch)
    whole = read(native_of(machine).compile_object(text, machine, verify=verify))
    each = (time.thread_time() - began) / max(1, sum(map(len, batch)))  # empty ones have no code
    made: list[Kernel] = []
    for one in batch:
        one.seconds["llvm"] = one.seconds.get("llvm", 0.0) + each * len(one)
        own = part(whole, [e.symbol for e in one.entries])
        if own is None and len(batch) > 1:
            made += translate([one])
        else:
            made.append(_kernel(one, own or whole))
    return made


def _kernel(written: Written, code: Object) -> Kernel:
    """What was written, with its code, shown to who watches."""
    job, text = written.job, written.emitted.text
    took = written.seconds.setdefault("llvm", 0.0)
    for watcher in written.watchers:
        watcher("assembly", None, lambda: _assembly(text, target(job.target)), took)
    return written.kernel(code)


def _assembly(text: str, machine: Target) -> str:
    assembly = backend_of(machine).assembly
    return assembly(text, machine) if assembly else text


class KernelPool:
    """What compiles kernels on so many cores: a context manager. `compile` keeps the jobs' order.

    One core is this thread, the second LLVM's thread; further ones are processes that write, MOST
    at most: by then what is done once for a model takes longer. LLVM has as many threads as there
    are cores, but for this one.
    """

    def __init__(self, workers: int | None = None) -> None:
        here = bool(sys.executable)  # empty where Python is a part of another program
        self.workers = workers or host_cores()
        self.most = min(MOST, self.workers - HERE) if here else 0
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self) -> KernelPool:
        """Start the processes now, so that they are ready when the first job comes."""
        if len(self._processes) < self.most:
            self._start()
        return self

    def _start(self) -> None:
        import subprocess

        while len(self._processes) < self.most:
            command, pipe = [*isolated(SERVE, IMPORTED), str(os.getpid())], subprocess.PIPE
            try:
                process = subprocess.Popen(command, stdin=pipe, stdout=pipe, env=os.environ | ALONE)
            except OSError:  # too little memory, too many processes: fewer do it
                self.most = len(self._processes)
                break
            self._processes.append(process)

    def compile(
        self, jobs: Sequence[Job], done: Callable[[int], None] = lambda count: None
    ) -> list[Kernel]:
        """Compile all jobs. `done` is told how many are ready. Raises what a job raises."""
        with self.work(done) as work:
            for job in jobs:
                work.add(job)
            return work.finish()

    def work(
        self,
        done: Callable[[int], None] = lambda count: None,
        known: Callable[[Job], Kernel | None] = nothing,
    ) -> Work:
        """Jobs that come one by one: a context manager, see `Work`."""
        return Work(self, done, known)

    @property
    def processes(self) -> Sequence[subprocess.Popen[bytes]]:
        """The processes that were started."""
        return self._processes

    def close(self) -> None:
        """Let the workers end."""
        for process in self._processes:
            if process.stdin is not None:
                with contextlib.suppress(OSError):
                    _send(process.stdin, None)  # a forked child may hold its pipe open
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with contextlib.suppress(OSError):  # it ended with a job half sent
                        pipe.close()
            process.wait()
        self._processes = []

    def __enter__(self) -> KernelPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Work:
    """The jobs of a model, and what comes of each: a Kernel or an exception. A context manager.
    known: gives the kernels of jobs that were compiled before.

    What is added while LLVM has too little to do is written at once, so that it starts before all
    jobs are known; the others wait for `finish`. Kernels of one content are translated once, and
    as many as follow one another in the order of the jobs as make a batch: it depends on nothing
    but the jobs, so that neither does the code.
    """

    def __init__(
        self,
        pool: KernelPool,
        done: Callable[[int], None],
        known: Callable[[Job], Kernel | None],
    ) -> None:
        self.pool, self.done, self.known = pool, done, known
        self.jobs: list[Job] = []
        self.results: list[Any] = []
        self._lock = threading.Lock()
        self._waiting: deque[int] = deque()  # jobs that nobody has taken yet
        self._arrived: dict[int, Any] = {}  # what comes after one that is missing
        self._next = 0  # the first job that has not arrived
        self._batch: list[tuple[int, Written]] = []  # what LLVM gets next,
        self._size = 0  # its characters,
        self._pending = 0  # and those of all that is written, and not translated
        self._batches: SimpleQueue[list[tuple[int, Written]] | None] = SimpleQueue()
        self._translators: list[threading.Thread] = []
        self._first: dict[str, int] = {}  # the job that a content was written for
        self._again: list[tuple[int, Written]] = []
        self._turns = contextlib.ExitStack()
        self._announced: list[Kernel | None] = []  # kernels whose code is not there yet

    def add(self, job: Job) -> None:
        """Take one more job."""
        self.jobs.append(job)
        self.results.append(None)
        self._announced.append(None)
        n = len(self.jobs) - 1
        if (kernel := self.known(job)) is not None:
            self.arrive(n, kernel)
            return
        self._waiting.append(n)
        if self.pool.workers > 1 and not self.pool.most:
            while self._waiting and self._pending < BATCH:
                self._write(self._waiting.popleft())

    def written(self) -> Sequence[Kernel]:
        """The kernels of all jobs once they are written, without their code, which LLVM goes on to
        make. Raises what a job raised."""
        self._write_all()
        if self._pending and not self._translators and self.pool.workers > 1:
            self._one_more_translates()
        self._raise_faults()
        return [kernel for kernel in self._announced if kernel is not None]

    def finish(self) -> list[Kernel]:
        """The kernels of all jobs, in their order. Raises what a job raised."""
        self._write_all()
        for _ in self._translators:
            self._batches.put(None)
        self._batches.put(None)
        self._translate_waiting()  # what is left now all threads translate
        for translator in self._translators:
            translator.join()
        for n, one in self._again:
            same = self.results[self._first[one.symbol]]
            self.end(n, _kernel(one, same.code) if isinstance(same, Kernel) else same)
        self._raise_faults()
        return self.results

    def _raise_faults(self) -> None:
        for result in self.results:
            if isinstance(result, Exception):
                raise result

    def _write_all(self) -> None:
        """Write what is not written, and let LLVM have it."""
        if self._next == len(self.jobs) and not self._batch:
            return
        if len(self._waiting) > 1:
            self.pool.start()
        feeders = [
            threading.Thread(target=_feed, args=(p, self), daemon=True) for p in self.pool.processes
        ]
        for feeder in feeders:
            feeder.start()
        for n in self:
            self._write(n)
            if self.pool.workers == 1:
                self._translate_waiting(block=False)
        for feeder in feeders:
            feeder.join()
        missing = [n for n in range(self._next, len(self.jobs)) if n not in self._arrived]
        for n in missing:  # a worker ended before it could begin
            self._write(n)
        self._hand_over()

    def __iter__(self) -> Iterator[int]:
        """The numbers of jobs that nobody has taken yet, taken one by one."""
        while True:
            with self._lock:
                if not self._waiting:
                    return
                n = self._waiting.popleft()
            yield n

    def end(self, n: int, result: Any) -> None:
        """Note what came of a job."""
        self.results[n] = result
        self.done(sum(result is not None for result in self.results))

    def _write(self, n: int) -> None:
        """Write a job here."""
        try:
            one: Any = write(self.jobs[n])
        except Exception as fault:
            one = fault
        self.arrive(n, one)

    def arrive(self, n: int, one: Written | Kernel | Exception) -> None:
        """Take what was written for a job, or why it was not: when those before it are there, it
        is put to what LLVM gets next. A kernel that was known needs nothing."""
        with self._lock:
            self._arrived[n] = one
            while self._next in self._arrived:
                n, one = self._next, self._arrived.pop(self._next)
                self._next += 1
                if not isinstance(one, Written):
                    self._announced[n] = one if isinstance(one, Kernel) else None
                    self.end(n, one)
                    continue
                self._announced[n] = one.kernel(EMPTY)
                if self._first.setdefault(one.symbol, n) != n:
                    self._again.append((n, one))
                else:
                    self._append(n, one)

    def _append(self, n: int, one: Written) -> None:
        if self._batch and self._batch[0][1].job.target != one.job.target:
            self._hand_over()
        self._pending += len(one)
        self._batch.append((n, one))
        self._size += len(one)
        if self._size >= BATCH:
            self._one_more_translates()
            self._hand_over()

    def _hand_over(self) -> None:
        """Let whoever translates have the batch."""
        if self._batch:
            self._batches.put(self._batch)
        self._batch, self._size = [], 0

    def _one_more_translates(self) -> None:
        """Start a thread, if not each core has one."""
        if len(self._translators) < min(self.pool.workers, MOST + HERE) - 1:
            self._turns.enter_context(short_turns())
            thread = threading.Thread(target=self._translate_waiting, name="llvm")
            with contextlib.suppress(RuntimeError):  # no memory for one: `finish` does it
                thread.start()
                self._translators.append(thread)

    def _translate_waiting(self, block: bool = True) -> None:
        """Translate what is written until told that there is no more, or that is all there is."""
        with contextlib.suppress(Empty):
            while (batch := self._batches.get(block)) is not None:
                try:
                    made: Sequence[Any] = translate([one for _, one in batch])
                except Exception as fault:
                    made = [fault] * len(batch)
                for (n, _), result in zip(batch, made, strict=True):
                    self.end(n, result)
                with self._lock:
                    self._pending -= sum(len(one) for _, one in batch)

    def __enter__(self) -> Work:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._turns.close()
        if kind is not None:  # something stopped it: what was not begun is left
            with contextlib.suppress(Empty):
                while True:
                    self._batches.get_nowait()
            for _translator in self._translators:
                self._batches.put(None)


def _feed(process: subprocess.Popen[bytes], work: Work) -> None:
    """Have jobs written by a worker. What it was doing when it stopped is a fault; the next job is
    someone else's."""
    assert process.stdin is not None and process.stdout is not None
    for n in work:
        try:
            _send(process.stdin, work.jobs[n])
            work.arrive(n, _receive(process.stdout))
        except (OSError, EOFError):
            if (fault := _stopped(process.wait(), work.jobs[n])) is not None:
                work.arrive(n, fault)
            return


def serve(parent: int) -> None:
    """A worker: write the jobs that come in until there are no more, or until the process of this
    number, which started it, is gone: it may be so already."""
    threading.Thread(target=end_with, args=(parent,), daemon=True).start()
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever prints must not disturb the answers
    while True:
        try:
            job = _receive(sys.stdin.buffer)
        except EOFError:
            return
        if job is None:
            return
        try:
            answer: Any = write(job)
        except Exception as fault:
            answer = _portable(fault, job)
        _send(answers, answer)


def _stopped(code: int, job: Job) -> Exception | None:
    """What becomes of the job of a worker that ended with `code`: None if it ended before it could
    begin, and the job is to be done elsewhere."""
    import signal

    if code > 0:
        return None
    what = f"cannot compile kernel '{job.func.name}'"
    if -code in (signal.SIGABRT, signal.SIGKILL):  # LLVM's own end; the system's
        return MemoryFault(what, "its compile worker ran out of memory", remedy=REMEDY)
    return InternalFault(f"{what}: its compile worker ended with code {code}")


def _portable(fault: Exception, job: Job) -> Exception:
    """The fault if it can be sent, else its text."""
    if memory := exhausted(f"cannot compile kernel '{job.func.name}'", fault):
        return memory
    import traceback

    told = "".join(traceback.format_exception(fault))
    return InternalFault(f"compiling kernel {job.func.name} failed\n{told}")
