"""`tw.tune`: better schedules for a model's kernels, or for one function, in so many seconds.

In: a model or a function, a machine that this one runs, a budget. Out: a `Tuning`. The one idea: a
kernel's champion won beside the default, and a model's champions together have to do so, too: the
tuned model runs in turns with the untuned one, and if it is slower nothing is kept.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from tilewright.driver.build import build
from tilewright.driver.champions import database_path, won
from tilewright.driver.compile import compile_observed, jobs_of, machines_of, thread_count_of
from tilewright.driver.fixed_sizes import with_sizes
from tilewright.driver.kernels import Job
from tilewright.driver.report.inputs import read_inputs
from tilewright.driver.report.task_row import TaskRow
from tilewright.driver.source import open_source
from tilewright.driver.stages import named
from tilewright.driver.tuned import Tuning
from tilewright.ir.expr import Var, as_int
from tilewright.ir.stmt import Func
from tilewright.runtime.executor import Executable
from tilewright.runtime.module import contents
from tilewright.runtime.profile import Profile
from tilewright.schedule.schedule import Schedule
from tilewright.strategy import space
from tilewright.strategy.select import default
from tilewright.strategy.work import flops, touched
from tilewright.support import html
from tilewright.support.errors import CompileError, InputError
from tilewright.support.memory import memory_told
from tilewright.target.target import Target
from tilewright.tune.database import Database
from tilewright.tune.farm.device import missing_here
from tilewright.tune.farm.farm import Farm
from tilewright.tune.ledger import Ledger
from tilewright.tune.samples import SequentialTest, Verdict, log_ratio
from tilewright.tune.tasks import Campaign, Found, Standing, Task, merged

PROFILED, MOST_PROFILED = 0.03, 1.0  # part of the seconds that finding the tasks' times takes
PROFILES = 3  # of whose times the least counts: noise only adds
COMPARED, MOST_COMPARED = 0.1, 5.0  # part of them for the model before and after
OPEN = "not tuned: its sizes are open"
SLICE = 0.5e-3  # seconds that what is timed lasts at least

Progress = Callable[[float, str], None]  # the part of the budget that is spent, and what for


def _silent(part: float, what: str) -> None:
    """The progress of who does not look."""


def tune(
    source: Any,
    target: str | Target = "cpu",
    *,
    devices: Any = None,
    seconds: float = 60.0,
    trials: int | None = None,
    database: bool | str | os.PathLike[str] | Database | None = None,
    threads: int | None = None,
    shapes: Mapping[str, int | Sequence[int | str | None]] | None = None,
    example_inputs: Sequence[Any] | Mapping[str, Any] | None = None,
    example_kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    opt_level: int = 3,
    winograd: bool | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Tuning:
    """Search better schedules for the kernels of a model, or for one function.

    Candidates are compiled and run in processes of their own, compared with the default's results,
    and the best run in turns with the default: only a schedule that was shown to be faster is kept.
    The machine had better be idle. Ctrl-C ends the search, and keeps what was found.

    Args:
        source: a model, as `compile` takes it, or a function of `te.func`. Arguments that are not
            told of here are those of `compile`.
        target: the machine; one whose code this machine runs, or the devices do.
        devices: who measures instead of this machine: "ssh://user@host:port" is a board, "ray" or
            "ray://host:port" a cluster; several in a list. Give `threads`, too.
        seconds: that this takes, about; reaching devices comes on top.
        trials: at most so many candidates are timed.
        database: where what is found is recorded, and what is known comes from: a path, made if
            there is none, True for your own, None for nowhere. `compile(database=)` reads it.
        threads: that run a call; None: TILEWRIGHT_THREADS, else all cores.
        shapes: numbers for open sizes, as `compile` takes them; of a function by their names. There
            must be one for each: schedules are timed.
        seed: of inputs and candidates.
        progress: called with the part of the budget that is spent, from 0 to 1, and what it is
            spent on.

    Returns:
        A `Tuning`: a row for each kernel, the time of a call before and after, `executable`; of a
        function its `schedule`, too.

    Raises:
        InputError: the budget is none, there cannot be such a database, or a device cannot be used.
        CompileError: the source cannot be compiled, sizes are open, this machine does not run code
            for the target and no devices are named, or none of them is left.
        RecordsFault: the database is damaged, another program's, or of a later version.
    """
    began = time.monotonic()
    asked = f"cannot tune {_named(source)}"
    _check_budget(asked, seconds, trials)
    machine, count = _machine(asked, target, devices is not None), thread_count_of(threads)
    with memory_told(asked), ExitStack() as stack:
        ledger = Ledger(_opened(database, stack))
        farm = _farm(devices, machine, count, stack)
        began = began if farm is None else time.monotonic()  # reaching devices comes on top
        told = seconds, trials, ledger, seed, progress or _silent, began, farm
        run = _Run(machine, count, *told)
        if isinstance(source, Schedule):
            source = _unscheduled(source)
        if isinstance(source, Func):
            return _tune_func(asked, source, shapes, run)
        source = contents(source, "cannot tune this file", CompileError)
        given = example_inputs, None, shapes, dynamic_shapes, example_kwargs
        graph = open_source(source, *given).graph()
        _check_closed(asked, [s for s in graph.symbols if s not in graph.data_dependent])
        if missing_here(machine):
            return _tune_elsewhere(graph, run, {"opt_level": opt_level, "winograd": winograd})
        return _tune_model(graph, run, {"opt_level": opt_level, "winograd": winograd})


def _named(source: Any) -> str:
    return f"'{source.name}'" if isinstance(source, Func) else named(source)


def _check_budget(asked: str, seconds: float, trials: int | None) -> None:
    if not seconds > 0 or (trials is not None and trials < 1):
        told = f"{seconds:g} seconds" + (f" and {trials} trials" if trials is not None else "")
        raise InputError(
            asked,
            f"a budget of {told} measures nothing",
            remedy="give it a few seconds for each kernel, and no trials or one at least",
        )


def _farm(devices: Any, machine: Target, threads: int, stack: ExitStack) -> Farm | None:
    """The devices that measure; None for this machine."""
    if devices is None:
        return None
    from tilewright.tune.farm.addresses import devices_of

    return stack.enter_context(Farm(devices_of(devices, machine, threads), machine, threads))


def _machine(asked: str, target: Any, has_devices: bool) -> Target:
    """The machine to tune for. Raises CompileError for several, and for one whose code cannot run
    here where it has to."""
    if not isinstance(target, str | Target):
        raise CompileError(
            asked, "each machine has schedules of its own", remedy="name one target at a time"
        )
    (machine,) = machines_of(target)
    why = missing_here(machine)
    if why and not has_devices:
        raise CompileError(
            f"{asked} for '{machine}'",
            f"candidates are run on this machine, and {why}",
            remedy='name one that runs them, as in devices="ssh://user@host" (--device); or tune '
            "on such a machine with database=, export the records there (tilewright records "
            "--export), and merge them here",
        )
    return machine


def _opened(database: Any, stack: ExitStack) -> Database | None:
    if database is None or database is False:
        return None
    if isinstance(database, Database):
        return database
    return stack.enter_context(Database(database_path(database)))


def _unscheduled(schedule: Schedule) -> Func:
    if schedule.trace.steps:
        raise CompileError(
            f"cannot tune '{schedule.func.name}'",
            "it is scheduled already, and tuning looks for a schedule of its own",
            remedy="give the function that te.func made",
        )
    return schedule.func


def _check_closed(asked: str, symbols: Sequence[Var]) -> None:
    if symbols:
        names = [s.name for s in symbols]
        raise CompileError(
            asked,
            f"its sizes are open ({', '.join(names)}), and schedules are timed at some",
            remedy="name them, as in shapes={" + ", ".join(f'"{n}": 128' for n in names) + "}; "
            "on the command line " + " ".join(f"--size {n}=128" for n in names),
        )


class _Run:
    """What one call of `tune` was asked for, and how far it is."""

    def __init__(
        self,
        machine: Target,
        threads: int,
        seconds: float,
        trials: int | None,
        ledger: Ledger,
        seed: int,
        progress: Progress,
        began: float,
        farm: Farm | None,
    ) -> None:
        self.machine, self.threads, self.seconds, self.trials = machine, threads, seconds, trials
        self.farm = farm
        self.ledger, self.seed, self.progress, self.began = ledger, seed, progress, began

    @property
    def spent(self) -> float:
        """Seconds so far."""
        return time.monotonic() - self.began

    def tell(self, what: str) -> None:
        """Say what comes now."""
        self.progress(min(1.0, self.spent / self.seconds), what)

    def campaign(
        self, tasks: Sequence[Task], reserved: float, is_profiled: bool = True
    ) -> Campaign:
        """Tune tasks for the seconds that are left, but for those that are reserved. is_profiled:
        whether their seconds are known."""
        made = Campaign(tasks, self.machine, self.threads, self.ledger, self.seed, self.farm)
        if not is_profiled:
            made.profile()

        def told(standing: Standing) -> None:
            self.tell(standing.task.name)

        left = max(0.1 * self.seconds, self.seconds - self.spent - reserved)
        made.run(left, self.trials, told)
        return made

    def report(self, name: str, rows: Sequence[TaskRow], *what: Any, **more: Any) -> Tuning:
        """The report. what: `Tuning`'s before, after and decided."""
        done, self_told = self.spent, (str(self.machine), self.threads)
        trials = sum(row.trials for row in rows)
        return Tuning(name, *self_told, tuple(rows), *what, seconds=done, trials=trials, **more)


def _tune_func(asked: str, func: Func, shapes: Any, run: _Run) -> Tuning:
    """Tune one function: who wins is decided there already."""
    func = with_sizes(func, shapes or {}, asked)
    _check_closed(asked, [p for p in func.params if isinstance(p, Var)])
    campaign = run.campaign([Task(func.name, func)], 0.0)
    (found,) = campaign.found()
    standing = campaign.standings[0]
    if standing.why and not found.is_better:
        raise CompileError(asked, standing.why)
    made = default(func, run.machine, run.threads)
    if found.champion is not None and found.is_better:
        made = space.point(func, run.machine, run.threads, found.champion.point)
    is_here = not missing_here(run.machine)
    executable = build(made, run.machine, threads=run.threads) if is_here else None
    rows = [_row(found)]
    told = found.default, found.tuned, found.decided
    ended = campaign.is_interrupted
    more = {"is_interrupted": ended, "executable": executable, "schedule": made}
    return run.report(func.name, rows, *told, **more)


def _tune_model(graph: Any, run: _Run, options: Mapping[str, Any]) -> Tuning:
    """Tune the kernels of a model, and let the model have the last word."""
    jobs: list[Job] = []

    def seen(job: Job) -> Job:
        jobs.append(job)
        return job

    def compiled(points: Callable[[Job], Job]) -> Executable:
        given = {"threads": run.threads, "points": points, **options}
        return compile_observed(graph, run.machine, **given)

    run.tell("compiling")
    untuned = compiled(seen)
    arrays = read_inputs(untuned.manifest, [], {}, run.seed)
    run.tell("profiling")
    each = min(MOST_PROFILED, PROFILED * run.seconds) / PROFILES
    profiles = [untuned.profile(*arrays, seconds=each) for _ in range(PROFILES)]
    tasks, left_out = tasks_of(jobs, profiles)
    compared = min(MOST_COMPARED, COMPARED * run.seconds)
    campaign = run.campaign(tasks, compared + 0.5 * _compile_seconds(untuned))
    found = campaign.found()
    kept = {
        s.workload.key: (s.workload, f.champion)
        for s, f in zip(campaign.standings, found, strict=True)
        if f.champion is not None and f.is_better
    }
    rows = [*map(_row, found), *left_out]
    ended, own = campaign.is_interrupted, 1e-6 * min(p.microseconds for p in profiles)
    if not kept:
        what = own, own, _why_nothing(tasks)
        return run.report(untuned.name, rows, *what, is_interrupted=ended, executable=untuned)
    run.tell("comparing the model before and after")
    try:
        tuned = compiled(won(kept, run.machine).job)
        before, after, verdict = compared_calls(untuned, tuned, arrays, compared)
        if not verdict.decided and not verdict.ratio < 1:  # it may be noise: once more
            before, after, verdict = compared_calls(untuned, tuned, arrays, compared)
    except KeyboardInterrupt:
        told = "what won is recorded, but the model was not compared, and is left untuned"
        more: dict[str, Any] = {"is_interrupted": True, "executable": untuned}
        return run.report(untuned.name, rows, own, own, told, **more)
    if verdict.decided == "a" or not verdict.ratio < 1:
        campaign.retract()
        rows = [*map(_retracted, rows)]
        told = f"the model took {verdict.ratio:.3f} of the time by what won, so nothing is kept"
        more = {"is_interrupted": ended, "executable": untuned}
        return run.report(untuned.name, rows, before, before, told, **more)
    more = {"is_interrupted": ended, "executable": tuned}
    return run.report(untuned.name, rows, before, after, _decided(verdict, len(kept)), **more)


def _tune_elsewhere(graph: Any, run: _Run, options: Mapping[str, Any]) -> Tuning:
    """Tune the kernels of a model whose code does not run here: what a call takes is what its
    kernels take together, and no whole model has a say."""
    run.tell("compiling")
    tasks: list[Task] = []
    left_out: list[TaskRow] = []
    for job, launches in jobs_of(graph, run.machine, run.threads, **options):
        if any(isinstance(p, Var) for p in job.func.params):
            left_out.append(TaskRow(job.func.name, launches, 0.0, 0.0, 0, OPEN))
        elif launches:
            tasks.append(Task(job.func.name, job.func, launches))
    run.tell("profiling")
    campaign = run.campaign(merged(tasks), 0.0, is_profiled=False)
    rows = [*map(_row, campaign.found()), *left_out]
    before, after = (
        sum(row.launches * took for row, took in zip(rows, times, strict=True))
        for times in ([r.default for r in rows], [r.tuned for r in rows])
    )
    kept = sum(f.is_better for f in campaign.found())
    told = f"{html.counted(kept, 'schedule')} kept; a call is the sum of its kernels"
    told = told if kept else _why_nothing(tasks)
    more: dict[str, Any] = {"is_interrupted": campaign.is_interrupted, "executable": None}
    return run.report(graph.name, rows, before, after, told, **more)


def _compile_seconds(executable: Executable) -> float:
    return executable.compile_stages.total if executable.compile_stages else 0.0


def _why_nothing(tasks: Sequence[Task]) -> str:
    if not tasks:
        return "there is nothing to tune: it has no kernels of known sizes"
    return "nothing beat the default schedules, which are kept"


def _decided(verdict: Verdict, count: int) -> str:
    schedules = f"{count} schedule{'s' * (count != 1)} kept"
    if verdict.decided:
        return schedules
    return f"{schedules}; that the whole is faster is within what was noise"


def tasks_of(jobs: Sequence[Job], profiles: Sequence[Profile]) -> tuple[list[Task], list[TaskRow]]:
    """The tasks of a model, and the rows of kernels that are none: their sizes are known when they
    run. profiles: of one model, of whose times the least count."""
    launches: dict[str, float] = defaultdict(float)
    spent: dict[str, float] = defaultdict(float)
    bound: dict[str, float] = {}
    for same in zip(*(p.kernels for p in profiles), strict=True):
        k = min(same, key=lambda one: one.microseconds)
        count = max(k.launches, 1e-9)
        own = k.microseconds * 1e-6 / count
        launches[k.name] += k.launches
        spent[k.name] += own * k.launches
        # What is faster than main memory has its data in a cache: only computing binds it.
        computing = k.flops / (profiles[0].machine.gflops * 1e9)
        bound[k.name] = own * k.roofline / 100 if k.roofline <= 100 else computing
    tasks: list[Task] = []
    left_out: list[TaskRow] = []
    for job in jobs:
        name = job.func.name
        if launches[name] <= 0:
            continue
        own = spent[name] / launches[name]
        if any(isinstance(p, Var) for p in job.func.params):
            left_out.append(TaskRow(name, launches[name], own, own, 0, OPEN))
        else:
            tasks.append(Task(name, job.func, launches[name], own, bound[name]))
    return merged(tasks), left_out


def _row(found: Found) -> TaskRow:
    task = found.task
    told = task.name, task.launches, found.default, found.tuned, found.trials, found.decided
    held = sum(b.dtype.nbytes(as_int(count) or 0) for b, count in touched(task.func).items())
    work = as_int(flops(task.func)) or 0, held
    return TaskRow(*told, found.course, found.effects, *work)


def _retracted(row: TaskRow) -> TaskRow:
    if row.tuned >= row.default:
        return row
    return replace(row, tuned=row.default, decided=f"not kept; {row.decided}")


def compared_calls(
    a: Executable, b: Executable, arrays: Sequence[Any], seconds: float
) -> tuple[float, float, Verdict]:
    """Calls of two models in turns, for so many seconds or until it is certain: seconds of a call
    of each, and who is faster."""
    calls: tuple[Callable[[], Any], ...] = (lambda: a(*arrays), lambda: b(*arrays))
    once = max(1e-7, min(_timed(call, 1) for call in (*calls, *calls)))
    count = max(1, round(SLICE / once))
    test, rounds = SequentialTest(), list[tuple[float, float]]()
    end = time.perf_counter() + seconds
    while not test.is_over and (time.perf_counter() < end or not rounds):
        order = (0, 1, 1, 0) if len(rounds) % 2 else (1, 0, 0, 1)
        took: tuple[list[float], list[float]] = [], []
        for which in order:
            took[which].append(_timed(calls[which], count))
        rounds.append((min(took[0]), min(took[1])))
        test.add(log_ratio(*took))
    verdict = test.verdict()
    before = sorted(x for x, _ in rounds)[len(rounds) // 2]
    return before, before * verdict.ratio, verdict


def _timed(call: Callable[[], Any], count: int) -> float:
    """Seconds of a call, the mean of so many."""
    began = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - began) / count
