"""Compiling kernels: one function at a time, or many at once.

In: functions in stage "blocks". Out: object code with the entries the host program will launch.
Symbols are named by what the code is, so that kernels with the same code share it: layers that
differ in nothing but how often a parallel loop runs.

Half of the time is Python's (schedule, lower, emit), half LLVM's, which runs beside Python. So two
cores are this process: one thread writes LLVM text, one makes code of it, and what is left when all
is written is shared. Each further core has a process of its own, started early and fed over pipes.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pickle
import signal
import struct
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field, replace
from queue import Empty, SimpleQueue
from typing import Any, BinaryIO

from tilewright.codegen.llvm import Emitted, Entry, emit
from tilewright.codegen.llvm_compile import compile_assembly, compile_object
from tilewright.driver.observe import Watch
from tilewright.driver.stages import Observer, Stages
from tilewright.ir.stmt import Buffer, Func, annotation
from tilewright.ir.verify import verify
from tilewright.lower.pipeline import Pass, lower
from tilewright.strategy.select import default
from tilewright.support.collector import collector_paused
from tilewright.support.errors import InternalFault, MemoryFault
from tilewright.support.handover import short_turns
from tilewright.support.interpreter import isolated
from tilewright.support.memory import REMEDY, exhausted
from tilewright.support.record import record
from tilewright.target.target import Target, target

SERVE = "from tilewright.driver.kernels import serve; serve()"
IMPORTED = ("tilewright", "numpy", "ml_dtypes", "llvmlite", "typing_extensions")  # by a worker
HERE = 2  # cores that this process uses: a thread that writes, and one in LLVM
MOST = 6  # processes beside it
PATIENCE = 0.5  # seconds between a worker's looks at whether it is still wanted


@record
class Job:
    """A function to compile, and for what."""

    func: Func
    target: str
    threads: int
    watch: Watch = field(default_factory=Watch)


@record
class Kernel:
    """A compiled function: object code, what to launch in order, the memory it needs. fallback: if
    its family's strategy did not schedule it, what did, and why."""

    name: str
    code: bytes
    entries: tuple[Entry, ...]
    workspace: tuple[Buffer, ...]
    seconds: dict[str, float] = field(default_factory=dict[str, float])  # by stage
    fallback: str = ""


@record
class Written:
    """A kernel as LLVM text. content: the same, with symbols that tell what they do, not for whom;
    entries: those of the content."""

    job: Job
    machine: Target
    emitted: Emitted
    stages: Stages
    see: Observer
    fallback: str
    content: str
    entries: tuple[Entry, ...]


def compile_kernel(job: Job, observers: Sequence[Observer] = ()) -> Kernel:
    """Schedule, lower and generate one function. `observers` see each step (`KERNEL_STEPS`)."""
    return translate(write(job, observers))


@collector_paused()
def write(job: Job, observers: Sequence[Observer] = ()) -> Written:
    """The first half of `compile_kernel`: Python's."""
    machine = target(job.target)
    stages = Stages(clock=time.thread_time)
    watchers = [job.watch.trail(job.func.name), *observers]
    check = verify if job.watch.verify else None

    def see(step: str, before: Any, after: Any, seconds: float = 0.0) -> None:
        for observer in watchers:
            observer(step, before, after, seconds)

    def passed(p: Pass, before: Func, after: Func, seconds: float) -> None:
        stages.add(f"lower/{p.name}", seconds)
        see(p.name, before, after, seconds)

    see("te", None, job.func)
    with stages("schedule"):
        scheduled = default(job.func, machine, job.threads).func
    if check:
        check(job.func, "blocks", after="te")
        check(scheduled, "blocks", after="schedule", before=job.func)
    see("schedule", job.func, scheduled, stages.seconds["schedule"])
    with stages("lower"):
        lowered = lower(scheduled, machine, verify=check, observers=[passed])
    with stages("emit"):
        emitted = emit(lowered, machine)
    see("emit", None, emitted.text, stages.seconds["emit"])
    fallback = annotation(scheduled, "fallback", "")
    return Written(job, machine, emitted, stages, see, fallback, *_by_content(emitted, job))


def _by_content(emitted: Emitted, job: Job) -> tuple[str, tuple[Entry, ...]]:
    """The text and the entries of a kernel with symbols that are named by what they are."""
    name = job.func.name
    told = emitted.text.replace(f'@"{name}', '@"') + job.target
    symbol = "k" + hashlib.blake2b(told.encode(), digest_size=12).hexdigest()
    entries = (replace(e, symbol=symbol + e.symbol[len(name) :]) for e in emitted.entries)
    return emitted.text.replace(f'@"{name}', f'@"{symbol}'), tuple(entries)


def translate(written: Written) -> Kernel:
    """The second half of `compile_kernel`: LLVM's."""
    with written.stages("llvm"):
        code = compile_object(written.content, written.machine)
    return _kernel(written, code)


def _kernel(written: Written, code: bytes) -> Kernel:
    """What was written, with its code."""
    seconds, text = written.stages.seconds, written.emitted.text
    took = seconds.setdefault("llvm", 0.0)
    written.see("assembly", None, lambda: compile_assembly(text, written.machine), took)
    made = written.entries, written.emitted.workspace, seconds
    return Kernel(written.job.func.name, code, *made, written.fallback)


class KernelPool:
    """What compiles kernels on so many cores: a context manager. `compile` keeps the jobs' order.

    One core is this thread, the second LLVM's thread; further ones are processes, MOST at most: by
    then what is done once for a model takes longer.
    """

    def __init__(self, workers: int | None = None) -> None:
        here = bool(sys.executable)  # empty where Python is a part of another program
        self.workers = workers or max(1, len(os.sched_getaffinity(0)))
        self.most = min(MOST, self.workers - HERE) if here else 0
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self) -> KernelPool:
        """Start the processes now, so that they are ready when the first job comes."""
        while len(self._processes) < self.most:
            command = isolated(SERVE, IMPORTED)
            try:
                process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            except OSError:  # too little memory, too many processes: fewer do it
                self.most = len(self._processes)
                break
            self._processes.append(process)
        return self

    def compile(
        self, jobs: Sequence[Job], done: Callable[[int], None] = lambda count: None
    ) -> list[Kernel]:
        """Compile all jobs; a single one is compiled by this thread. `done` is told how many are
        ready. Raises what a job raises."""
        if self.workers == 1 or (len(jobs) <= 1 and not self._processes):
            found: list[Kernel] = []
            for job in jobs:
                found.append(compile_kernel(job))
                done(len(found))
            return found
        self.start()
        work = _Work(jobs, done)
        feeders = [
            threading.Thread(target=_feed, args=(p, work), daemon=True) for p in self._processes
        ]
        for feeder in feeders:
            feeder.start()
        _compile_here(work)
        for feeder in feeders:
            feeder.join()
        for result in work.results:
            if isinstance(result, Exception):
                raise result
        return [result or compile_kernel(jobs[n]) for n, result in enumerate(work.results)]

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


class _Work:
    """Jobs that several threads take, and what comes of each: a Kernel or an exception."""

    def __init__(self, jobs: Sequence[Job], done: Callable[[int], None]) -> None:
        self.jobs, self.done = jobs, done
        self.results: list[Any] = [None] * len(jobs)
        # the longest first would be best; functions with more text tend to take longer
        self._waiting = iter(sorted(range(len(jobs)), key=lambda n: -len(jobs[n].func.params)))
        self._lock = threading.Lock()

    def __iter__(self) -> Iterator[int]:
        """The numbers of jobs that nobody has taken yet, taken one by one."""
        while True:
            with self._lock:
                n = next(self._waiting, None)
            if n is None:
                return
            yield n

    def end(self, n: int, result: Any) -> None:
        """Note what came of a job."""
        self.results[n] = result
        self.done(sum(result is not None for result in self.results))


def _feed(process: subprocess.Popen[bytes], work: _Work) -> None:
    """Have jobs done by a worker. What it was doing when it stopped is a fault; the next job is
    someone else's."""
    assert process.stdin is not None and process.stdout is not None
    for n in work:
        try:
            _send(process.stdin, work.jobs[n])
            work.end(n, _receive(process.stdout))
        except (OSError, EOFError):
            work.end(n, _stopped(process.wait(), work.jobs[n]))
            return


def _compile_here(work: _Work) -> None:
    """Do jobs in this process: this thread writes, another translates what is written, and what
    then still waits both translate. Kernels of one content are translated once."""
    written: SimpleQueue[tuple[int, Written] | None] = SimpleQueue()
    first: dict[str, int] = {}  # the job that a content was written for
    again: list[tuple[int, Written]] = []

    def translate_waiting() -> None:
        while (one := written.get()) is not None:
            n, text = one
            try:
                result: Any = translate(text)
            except Exception as fault:
                result = fault
            work.end(n, result)

    translator = threading.Thread(target=translate_waiting, name="llvm")
    with short_turns():
        translator.start()
        try:
            for n in work:
                try:
                    one = write(work.jobs[n])
                except Exception as fault:
                    work.end(n, fault)
                else:
                    known = first.setdefault(one.content, n) != n
                    (again.append if known else written.put)((n, one))
            written.put(None)
            written.put(None)
            translate_waiting()
        except BaseException:  # the user wants it to stop
            with contextlib.suppress(Empty):
                while True:
                    written.get_nowait()
            written.put(None)
            raise
        translator.join()
    for n, one in again:
        same = work.results[first[one.content]]
        work.end(n, _kernel(one, same.code) if isinstance(same, Kernel) else same)


def _send(pipe: BinaryIO | Any, value: Any) -> None:
    data = pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    pipe.write(struct.pack("<Q", len(data)) + data)
    pipe.flush()


def _receive(pipe: BinaryIO | Any) -> Any:
    header = pipe.read(8)
    if len(header) < 8:
        raise EOFError("no answer")
    (size,) = struct.unpack("<Q", header)
    return pickle.loads(pipe.read(size))


def end_with(parent: int) -> None:
    """End this process when its parent is gone, even in the middle of a long job."""
    while os.getppid() == parent:
        time.sleep(PATIENCE)
    os._exit(1)


def serve() -> None:
    """A worker: compile the jobs that come in until there are no more."""
    threading.Thread(target=end_with, args=(os.getppid(),), daemon=True).start()
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
            answer: Any = compile_kernel(job)
        except Exception as fault:
            answer = _portable(fault, job)
        _send(answers, answer)


def _stopped(code: int, job: Job) -> Exception | None:
    """What becomes of the job of a worker that ended with `code`: None if it ended before it could
    begin, and the job is to be done elsewhere."""
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
    told = "".join(traceback.format_exception(fault))
    return InternalFault(f"compiling kernel {job.func.name} failed\n{told}")
