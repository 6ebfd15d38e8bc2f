"""Frozen tables: what many schedules of one function took, kept so that searches can be replayed.

In: rows of a plan with their measured times. Out: one small file of arrays, and from it tables
whose rows are rows of today's plan. The one idea: a row is kept as values of named decisions, so
that a table still says what it measured after the plan's values, or the order of them, changed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from benchmarks.tuning.operators import OPERATORS
from tilewright.ir.stmt import Func
from tilewright.strategy.sketch.plan import Numbers, Plan, Rows
from tilewright.strategy.sketch.tiles import plan
from tilewright.support.errors import InputError
from tilewright.target.target import target

FROZEN = Path(__file__).with_name("frozen.npz")
DRAWN, WEIGHED, SEARCHED = 0, 1, 2  # where a row is from: chance, the prior's best, a search
FORMAT = 1


@dataclass(frozen=True)
class Task:
    """What a table is of. decisions: pairs of a name and the values that a row's numbers stand for;
    default: seconds of the schedule that is taken without a search."""

    operator: str
    sizes: Mapping[str, int]
    decisions: tuple[tuple[str, tuple[int, ...]], ...]
    default: float

    @property
    def name(self) -> str:
        """The operator and its sizes."""
        return " ".join([self.operator, *(f"{k}={v}" for k, v in self.sizes.items())])

    def func(self) -> Func:
        """The function that was scheduled."""
        return OPERATORS[self.operator](**self.sizes).func


@dataclass(frozen=True)
class Table:
    """Rows that were measured: numbers of values of `task.decisions`, seconds, and where each row
    is from."""

    task: Task
    rows: Rows
    seconds: Numbers
    origin: Rows

    def within(self, own: Plan) -> tuple[Rows, Numbers, Rows]:
        """What of the table is legal in a plan: its rows there, their seconds, their origin. A
        decision that was not there when the table was made has its least value, which does nothing;
        one that is there no more may only have had that one."""
        known = dict(self.task.decisions)
        columns = {name: n for n, (name, _) in enumerate(self.task.decisions)}
        kept = np.ones(len(self.rows), bool)
        for name in known.keys() - {d.name for d in own.decisions}:
            kept &= self.rows[:, columns[name]] == 0
        found = np.zeros((len(self.rows), len(own.decisions)), np.int64)
        for n, decision in enumerate(own.decisions):
            if decision.name not in known:
                continue
            positions = {value: at for at, value in enumerate(decision.values)}
            moved = np.asarray([positions.get(v, -1) for v in known[decision.name]])
            found[:, n] = moved[self.rows[:, columns[decision.name]]]
        kept &= (found >= 0).all(1)
        kept[kept] &= own.is_legal(found[kept])
        found, first = np.unique(found[kept], axis=0, return_index=True)
        return found, self.seconds[kept][first], self.origin[kept][first]


@dataclass(frozen=True)
class Frozen:
    """Tables that were made in one run. machine: the target's line; processor: its name; threads:
    of each kernel; build: what made the code."""

    machine: str
    processor: str
    threads: int
    build: str
    tables: tuple[Table, ...]

    def plans(self) -> list[Plan]:
        """Today's plan of each task, for the machine that was measured."""
        machine, found = target(self.machine), list[Plan]()
        for table in self.tables:
            own = plan(table.task.func(), machine, self.threads)
            if own is None:
                raise InputError(
                    f"cannot replay '{table.task.name}'",
                    "no plan schedules this function today",
                    remedy="make the tables anew: python -m benchmarks.tuning.freeze",
                )
            found.append(own)
        return found


def save(frozen: Frozen, file: Path = FROZEN) -> None:
    """Write tables to a file."""
    arrays: dict[str, Any] = {}
    for n, table in enumerate(frozen.tables):
        arrays[f"rows{n}"] = table.rows.astype(np.uint8)
        arrays[f"seconds{n}"] = table.seconds.astype(np.float32)
        arrays[f"origin{n}"] = table.origin.astype(np.uint8)
    about = {
        "format": FORMAT,
        "machine": frozen.machine,
        "processor": frozen.processor,
        "threads": frozen.threads,
        "build": frozen.build,
        "tasks": [asdict(t.task) for t in frozen.tables],
    }
    np.savez_compressed(file, about=np.frombuffer(json.dumps(about).encode(), np.uint8), **arrays)


def load(file: Path = FROZEN) -> Frozen:
    """Read tables from a file. Raises InputError for one that holds none, or of another format."""
    try:
        with np.load(file, allow_pickle=False) as arrays:
            about = json.loads(bytes(arrays["about"]))
            if about["format"] != FORMAT:
                raise ValueError(f"its format is {about['format']}, and this reads {FORMAT}")
            pairs = enumerate(about["tasks"])
            tables = tuple(_table(_task(told), n, arrays) for n, told in pairs)
    except (OSError, EOFError, KeyError, ValueError, BadZipFile) as error:
        raise InputError(f"cannot read frozen tables of '{file}'", str(error)) from error
    return Frozen(about["machine"], about["processor"], about["threads"], about["build"], tables)


def _table(task: Task, n: int, arrays: Mapping[str, Any]) -> Table:
    rows, origin = (arrays[f"{what}{n}"].astype(np.int64) for what in ("rows", "origin"))
    return Table(task, rows, arrays[f"seconds{n}"].astype(np.float64), origin)


def _task(told: Mapping[str, Any]) -> Task:
    decisions = tuple((name, tuple(values)) for name, values in told["decisions"])
    return Task(told["operator"], told["sizes"], decisions, told["default"])


def named(own: Plan) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """A plan's decisions, as a task keeps them."""
    return tuple((d.name, d.values) for d in own.decisions)


def operators(tables: Sequence[Table]) -> list[str]:
    """The operators that tables are of, each once."""
    return list(dict.fromkeys(t.task.operator for t in tables))
