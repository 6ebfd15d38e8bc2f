"""What a compilation and a run say of themselves, as tables.

In: the records that other rooms make (stages, groups, plans, profiles, times). Out: tables. Nothing
is computed here that they do not know.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.driver.report.compare import OURS, Times
from tilewright.driver.report.layout import Column, Table
from tilewright.driver.stages import Stages
from tilewright.runtime import abi
from tilewright.runtime.formats import values_of
from tilewright.runtime.profile import Profile
from tilewright.support import knobs
from tilewright.support.errors import UserFault

if TYPE_CHECKING:
    from tilewright.strategy import learned
    from tilewright.tune.records import Stats


def words(name: str, drop: int = 0) -> Column:
    """A column of words; the larger `drop`, the sooner it is left out; 0: never."""
    return Column(name, drop)


def numbers(name: str, drop: int = 0) -> Column:
    """A column of numbers; `drop`: as for words."""
    return Column(name, drop, is_number=True)


def stages_table(stages: Stages, parts: bool = False) -> Table:
    """What each stage of compiling took; `parts`: with the parts of stages."""
    made = Table("compile stages", words("stage"), numbers("ms"))
    for depth, name, seconds in stages.rows():
        if depth == 0 or parts:
            style = "bold" if name == "total" else "" if depth == 0 else "dim"
            name += stages.note(depth, name)
            made.add_row("  " * depth + name, f"{seconds * 1e3:.1f}", style=style)
    return made


def groups_table(kernels: Sequence[abi.KernelInfo], groups: Sequence[Any]) -> Table:
    """The fused groups: the kernel of each, its operators, its result and why it ends there."""
    made = Table(
        "the fused graph",
        words("kernel"),
        words("operators in one pass"),
        words("result", 2),
        words("why it ends there", 1),
    )
    for kernel, group in zip(kernels, groups, strict=True):
        ends = [why for subject, why in group.why.items() if subject.endswith("is cut")]
        result = ", ".join(v.type_text for v in group.outputs)
        ops = " → ".join(op.removesuffix("_packed") for op in group.ops)
        made.add_row(kernel.name, ops, result, "; ".join(dict.fromkeys(ends)))
    return made


def tensors_table(title: str, infos: Sequence[abi.TensorInfo], arrays: Sequence[Any]) -> Table:
    """Arrays with what can be said of them in one line."""
    made = Table(
        title,
        words("name"),
        words("type"),
        words("first values", 2),
        numbers("least"),
        numbers("mean", 1),
        numbers("largest"),
    )
    for info, array in zip(infos, arrays, strict=True):
        values = values_of(array)
        shape = type_text(info, values)
        flat = values.reshape(-1)
        if flat.size == 0 or flat.dtype.kind in "OSU":
            first = " ".join(repr(str(v)) for v in flat[:4])
            made.add_row(info.name, shape, first, "", "", "")
            continue
        values = flat.astype(np.float64)
        summary = (values.min(), values.mean(), values.max())
        first = " ".join(f"{v:.4g}" for v in values[:4]) + (" …" if flat.size > 4 else "")
        made.add_row(info.name, shape, first, *(f"{v:.4g}" for v in summary))
    return made


def type_text(info: abi.TensorInfo, array: Any) -> str:
    """An array's type: the tensor's dtype, the shape that symbols have come to."""
    return f"{info.dtype}[{', '.join(map(str, np.shape(array))) or '()'}]"


def inputs_text(infos: Sequence[abi.TensorInfo], arrays: Sequence[Any]) -> str:
    """What a model was run on: names and types."""
    pairs = zip(infos, arrays, strict=True)
    return ", ".join(f"{info.name}: {type_text(info, array)}" for info, array in pairs)


def profile_table(profile: Profile) -> Table:
    """Where the time of a run goes."""
    head, *rows = profile.rows()
    drop = {"ops fused": 4, "limit": 3, "GB/s": 2, "GFLOP/s": 1}
    made = Table(
        "kernels",
        *(words(name, drop.get(name, 0)) for name in head[:3]),
        *(numbers(name, drop.get(name, 0)) for name in head[3:]),
    )
    for row in rows:
        made.add_row(*row)
    return made


def times_table(title: str, found: Mapping[str, Times], errors: Mapping[str, float]) -> Table:
    """Engines side by side; the ratio is ours over theirs, so below 1 we are faster."""
    made = Table(
        title,
        words("engine"),
        numbers("min µs", 1),
        *map(numbers, ("median µs", "ours / theirs", "max error")),
    )
    ours = found[OURS]
    for name, times in found.items():
        ratio = "" if name == OURS else f"{ours.over(times):.2f}"
        error = f"{errors[name]:.1e}" if name in errors else ""
        row = (f"{times.minimum * 1e6:.1f}", f"{times.median * 1e6:.1f}", ratio, error)
        made.add_row(name, *row)
    return made


def bytes_text(count: float) -> str:
    """A number of bytes for people."""
    for unit in ("bytes", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.2f} GB"


def kernels_table(kernels: Sequence[abi.KernelInfo]) -> Table:
    """The kernels of a program in the order in which they run, and their work."""
    made = Table(
        "kernels",
        words("kernel"),
        words("operators", 2),
        words("result"),
        numbers("flops"),
        numbers("bytes", 1),
    )
    for k in kernels:
        shape = "x".join(map(str, k.shape))
        made.add_row(k.name, " ".join(k.ops), shape, str(k.flops), str(k.bytes))
    return made


def kernel_groups_table(kernels: Sequence[abi.KernelInfo]) -> Table:
    """The fused groups as an artifact knows them."""
    made = Table(
        "the fused graph", words("kernel"), words("operators in one pass"), words("result", 1)
    )
    for k in kernels:
        ops = " → ".join(op.removesuffix("_packed") for op in k.ops)
        made.add_row(k.name, ops, "x".join(map(str, k.shape)))
    return made


def memory_text(arena: int, live: int) -> str:
    """The bytes of a memory plan."""
    return f"{bytes_text(arena)} planned; {bytes_text(live)} live at once"


def fallbacks_tables(manifest: abi.Manifest) -> list[Table]:
    """The kernels that did not get their family's schedule, and why; nothing if there are none."""
    told = manifest.notes.get("fallbacks")
    if not isinstance(told, dict) or not told:
        return []
    made = Table("not scheduled by their family's strategy", words("kernel"), words("what it took"))
    for kernel, why in told.items():  # pyright: ignore[reportUnknownVariableType]
        made.add_row(str(kernel), str(why))  # pyright: ignore[reportUnknownArgumentType]
    return [made]


def targets_table() -> Table:
    """The kinds of machines, their options and what can be made for them."""
    # showing a run's results does without machines
    from tilewright.backend.backend import backend_of_kind
    from tilewright.target.target import KINDS

    made = Table("targets", *map(words, ("kind", "options", "what is compiled for it")))
    for kind, about in KINDS.items():
        options = " ".join(f"-{option}=…" for option in about.options)
        made.add_row(kind, options, backend_of_kind(kind).compiles)
    return made


def costs_table(default: Any, found: Mapping[str, float] | None) -> Table:
    """The constants of the analytic model: of a machine that nobody calibrated, and of this one."""
    made = Table(
        "the model's constants",
        words("constant"),
        *map(numbers, ("default", "calibrated")),
        words("unit", 1),
        words("decides", 2),
    )
    for constant in dataclasses.fields(default):
        name, told = constant.name, constant.metadata
        own = f"{found[name]:g}" if found and name in found else "-"
        value = f"{getattr(default, name):g}"
        made.add_row(name, value, own, told["unit"], told["decides"])
    return made


def stats_table(found: Stats) -> Table:
    """How many records of tuning there are."""
    made = Table("records of tuning", words("what"), numbers("how many"))
    told = {
        "functions": found.workloads,
        "families of functions": found.families,
        "machines": found.machines,
        "builds of the compiler": found.builds,
        "trials": found.trials,
        "trials of this build": found.current,
        "champions": found.champions,
    }
    for what, count in told.items():
        made.add_row(what, str(count))
    return made


def learned_table(table: learned.Table) -> Table:
    """The rules that were distilled, in their order."""
    made = Table(
        "learned schedules", words("rule"), *map(numbers, ("gain", "at least")),
        numbers("workloads", 1),
    )  # fmt: skip
    for row in table:
        made.add_row(str(row), f"{row.gain:.3f}", f"{row.low:.3f}", str(row.workloads))
    return made


def knobs_table() -> Table:
    """The environment variables, as `support.knobs` has them."""
    made = Table(
        "knobs", words("variable"), words("values", 1), *map(words, ("now", "what it does"))
    )
    for knob in knobs.ALL:
        try:
            value = knob.read()
        except UserFault:
            value = f"{os.environ[knob.name]} (wrong)"
        now = "" if value is None else str(int(value) if isinstance(value, bool) else value)
        made.add_row(knob.name, knob.values, now, knob.help)
    return made
