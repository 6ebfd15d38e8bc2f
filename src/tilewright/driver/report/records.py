"""What commands say with --json: plain records, described in docs/command_line.md.

In: the records that other rooms make. Out: dicts and lists of text, numbers and None, under keys
that stay. `document` puts the schema's number and the version at their head. Times are in
microseconds, sizes in bytes; a size that is open is a text, an expression of symbols.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.driver.report.compare import OURS, Times
from tilewright.driver.stages import Stages
from tilewright.runtime import abi
from tilewright.runtime.formats import values_of
from tilewright.runtime.profile import Profile
from tilewright.support import knobs
from tilewright.support.errors import UserFault
from tilewright.support.version import __version__

if TYPE_CHECKING:
    from tilewright.driver.tuned import Tuning
    from tilewright.strategy.learned import Table
    from tilewright.tune.distil import Judged
    from tilewright.tune.learned_log import Entry
    from tilewright.tune.records import Stats

SCHEMA = 1  # a number that changes when a key is taken away or means something else
Record = dict[str, Any]


def document(command: str, **parts: Any) -> Record:
    """What a command says."""
    return {"schema": SCHEMA, "tilewright": __version__, "command": command, **parts}


def tensor(info: abi.TensorInfo) -> Record:
    """An input or output as the model declares it."""
    return {"name": info.name, "dtype": info.dtype, "shape": list(info.shape)}


def symbol(info: abi.Symbol) -> Record:
    """An open size and what it may be."""
    return {
        "name": info.name,
        "minimum": info.minimum,
        "maximum": info.maximum,
        "data_dependent": info.data_dependent,
    }


def model(manifest: abi.Manifest) -> Record:
    """What a compiled model takes and gives."""
    return {
        "model": manifest.name,
        "inputs": [tensor(t) for t in manifest.inputs],
        "outputs": [tensor(t) for t in manifest.outputs],
        "symbols": [symbol(s) for s in manifest.symbols],
    }


def kernel(info: abi.KernelInfo) -> Record:
    """A kernel and its work."""
    return {
        "name": info.name,
        "ops": list(info.ops),
        "shape": list(info.shape),
        "flops": info.flops,
        "bytes": info.bytes,
    }


def kernels(manifest: abi.Manifest) -> Record:
    """The kernels in the order in which they run, and those that fell back, with why."""
    told = manifest.notes.get("fallbacks")
    return {
        "kernels": [kernel(k) for k in manifest.kernels],
        "fallbacks": dict(told) if isinstance(told, dict) else {},  # pyright: ignore
    }


def stages(found: Stages) -> list[Record]:
    """What each stage of compiling took; of parts, "stage/part"."""
    return [{"stage": name, "us": 1e6 * taken} for name, taken in found.seconds.items()]


def array(info: abi.TensorInfo, given: Any) -> Record:
    """An array that went in or came out."""
    values = values_of(given)
    record: Record = {"name": info.name, "dtype": info.dtype, "shape": list(np.shape(values))}
    if values.size and values.dtype.kind not in "OSU":
        floats = values.astype(np.float64)
        record |= {"least": float(floats.min()), "mean": float(floats.mean())}
        record |= {"largest": float(floats.max())}
    return record


def arrays(infos: Sequence[abi.TensorInfo], given: Sequence[Any]) -> list[Record]:
    """Arrays of all inputs, or of all outputs."""
    return [array(info, one) for info, one in zip(infos, given, strict=True)]


def times(threads: int, found: Mapping[str, Times], errors: Mapping[str, float]) -> Record:
    """Engines on one number of threads, ours first."""
    ours = found[OURS]
    return {
        "threads": threads,
        "engines": [
            {
                "engine": name,
                "minimum_us": 1e6 * one.minimum,
                "median_us": 1e6 * one.median,
                "ours_over_theirs": None if name == OURS else ours.over(one),
                "max_error": errors.get(name),
            }
            for name, one in found.items()
        ],
    }


def profile(found: Profile) -> Record:
    """Where the time of a run goes."""
    return {
        "threads": found.threads,
        "us": found.microseconds,
        "peak_gflops": found.machine.gflops,
        "peak_gbytes": found.machine.gbytes,
        "kernels": [
            {
                "name": k.name,
                "ops": list(k.ops),
                "shape": list(k.shape),
                "launches": k.launches,
                "us": k.microseconds,
                "flops": k.flops,
                "bytes": k.bytes,
                "gflops": k.gflops,
                "gbytes": k.gbytes,
                "limit": k.limit,
                "percent_of_limit": k.roofline,
            }
            for k in found.kernels
        ],
    }


def artifact(path: Path, manifest: abi.Manifest, found: Stages) -> Record:
    """What compiling wrote."""
    return {
        "artifact": str(path),
        "bytes": path.stat().st_size,
        "targets": list(manifest.notes.get("targets", [manifest.target])),
        **model(manifest),
        **kernels(manifest),
        "stages": stages(found),
    }


def targets(here: Any, kinds: Mapping[str, Any], compiles: Mapping[str, str]) -> Record:
    """The kinds of machines, and this one."""
    return {
        "kinds": [
            {"kind": kind, "options": list(about.options), "compiles": compiles[kind]}
            for kind, about in kinds.items()
        ],
        "here": {
            "target": str(here),
            "cores": here.cores,
            "vector_bytes": here.vector_bytes,
            "vector_registers": here.vector_registers,
            "caches": [
                {"bytes": c.size, "line_bytes": c.line, "shared_by": c.shared_by}
                for c in here.caches
            ],
        },
    }


def costs(default: Any, found: Mapping[str, float] | None) -> list[Record]:
    """The constants of the analytic model: the default ones, and this machine's."""
    return [
        {
            "constant": f.name,
            "default": getattr(default, f.name),
            "calibrated": (found or {}).get(f.name),
            "unit": f.metadata["unit"],
            "decides": f.metadata["decides"],
        }
        for f in dataclasses.fields(default)
    ]


def tuning(found: Tuning) -> Record:
    """What tuning found, and what that took."""
    return {
        "model": found.name,
        "target": found.target,
        "threads": found.threads,
        "tasks": [
            {
                "kernel": row.name,
                "launches": row.launches,
                "default_us": 1e6 * row.default,
                "tuned_us": 1e6 * row.tuned,
                "trials": row.trials,
                "decided": row.decided,
            }
            for row in found.tasks
        ],
        "before_us": 1e6 * found.before,
        "after_us": 1e6 * found.after,
        "decided": found.decided,
        "seconds": found.seconds,
        "trials": found.trials,
        "interrupted": found.is_interrupted,
    }


def stats(path: Path, found: Stats) -> Record:
    """How many records a database has."""
    counts = {f.name: getattr(found, f.name) for f in dataclasses.fields(found)}
    nbytes = counts.pop("nbytes")
    return {"database": str(path), **counts, "bytes": nbytes}


def distilled(
    path: Path, table: Table, entries: Sequence[Entry], judged: Sequence[Judged]
) -> Record:
    """The rules that count, what was decided of tables, and how families were judged."""
    return {
        "log": str(path),
        "rules": [row.fields() for row in table],
        "decisions": [{"at": e.at, "decided": e.decided, "why": [*e.why]} for e in entries],
        "judged": [
            {
                "role": j.role,
                "machine": j.machine,
                "accepted": j.accepted,
                "workloads": j.workloads,
                "changed": len(j.ratios),
                "unknown": j.unknown,
                "gain": j.gain,
                "low": j.low,
            }
            for j in judged
        ],
    }


def all_knobs() -> list[Record]:
    """The environment variables: a number, a boolean, text or None; `error` if it is wrong."""
    return [_knob(knob) for knob in knobs.ALL]


def _knob(knob: knobs.Knob[Any]) -> Record:
    record: Record = {"variable": knob.name, "values": knob.values, "help": knob.help}
    try:
        value = knob.read()
    except UserFault as fault:
        return record | {"value": os.environ[knob.name], "error": fault.why}
    plain = value is None or isinstance(value, bool | int)
    return record | {"value": value if plain else ":".join(map(str, _parts(value))), "error": None}


def _parts(value: Any) -> Iterable[Any]:
    return value if isinstance(value, tuple) else (value,)  # pyright: ignore
