"""Where the time of a model goes: one row a kernel, against what the machine could do.

In: nanoseconds and launches of each kernel, added up, and the manifest's account of its work. Out:
a `Profile`, printable as a table. The roofline of a kernel is the larger of two times: that of its
multiply-adds at the machine's peak, and that of its bytes from main memory; data that is still in a
cache can beat it. Which of the two is larger is the kernel's binding limit.
"""

from __future__ import annotations

import ast
import json
import math
import operator
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tilewright.runtime import abi
from tilewright.runtime.trace import trace
from tilewright.support.files import writing
from tilewright.support.record import record


@record
class Roofline:
    """The machine's peaks: f32 GFLOP/s in registers, GB/s from main memory."""

    gflops: float
    gbytes: float

    def seconds(self, flops: int, nbytes: int) -> float:
        """The least time for this much work."""
        return max(flops / self.gflops, nbytes / self.gbytes) * 1e-9

    def limit(self, flops: int, nbytes: int) -> str:
        """What that least time is spent on: "compute" or "memory"."""
        return "compute" if flops / self.gflops > nbytes / self.gbytes else "memory"


@record
class KernelTime:
    """One kernel in one run of the model, averaged over the profiled runs."""

    name: str
    ops: tuple[str, ...]
    shape: tuple[int, ...]
    launches: float  # in one run
    microseconds: float  # of all its launches in one run
    flops: int
    bytes: int
    limit: str  # of the machine, that binds it: "compute" or "memory"
    roofline: float  # the least time that the machine allows, in percent of the time taken

    @property
    def gflops(self) -> float:
        """GFLOP/s that it reached."""
        return self.flops * self.launches / (self.microseconds * 1e3 or 1)

    @property
    def gbytes(self) -> float:
        """GB/s that it reached."""
        return self.bytes * self.launches / (self.microseconds * 1e3 or 1)

    @property
    def intensity(self) -> float:
        """Its operations for each byte; infinite if it touches none."""
        return self.flops / self.bytes if self.bytes else math.inf


@record
class Profile:
    """The kernels of a model in their order, and one whole run of it in microseconds."""

    kernels: tuple[KernelTime, ...]
    microseconds: float
    machine: Roofline
    threads: int

    def __iter__(self) -> Any:
        return iter(self.kernels)

    def rows(self) -> list[tuple[str, ...]]:
        """The table as text, its heading first."""
        rows = [("kernel", "ops fused", "shape", "us", "GFLOP/s", "GB/s", "limit", "% of it")]
        for k in self.kernels:
            shape = "x".join(map(str, k.shape))
            times = f" (x{k.launches:g})" if k.launches != 1 else ""
            rows.append(
                (
                    k.name + times,
                    " ".join(k.ops),
                    shape,
                    f"{k.microseconds:.1f}",
                    f"{k.gflops:.1f}",
                    f"{k.gbytes:.1f}",
                    k.limit,
                    f"{k.roofline:.0f}",
                )
            )
        return rows

    def __repr__(self) -> str:
        kernels, time = len(self.kernels), f"{self.microseconds:.1f} us"
        return f"<Profile of {kernels} kernel{'s' * (kernels != 1)}, {time} on {self._on()}>"

    def _on(self) -> str:
        return f"{self.threads} thread{'s' * (self.threads > 1)}"

    def _repr_html_(self) -> str:
        from tilewright.runtime.representation import profile_html

        return profile_html(self)

    def __str__(self) -> str:
        rows = self.rows()
        widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
        lines = [
            "  ".join(
                cell.ljust(width) if i < 3 else cell.rjust(width)
                for i, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in rows
        ]
        inside = sum(k.microseconds for k in self.kernels)
        lines.append(
            f"{inside:.1f} us in kernels, {self.microseconds:.1f} us in all; "
            f"{self._on()}; "
            f"peak {self.machine.gflops:.0f} GFLOP/s, {self.machine.gbytes:.1f} GB/s"
        )
        return "\n".join(lines)

    def save_trace(self, path: str | os.PathLike[str], name: str = "model") -> Path:
        """Write one run as a trace that Perfetto (ui.perfetto.dev) and chrome://tracing open: the
        kernels in their order on one row, each with its shape, rates and limit; `name` is the
        model's. Returns the path. Raises WriteFault where it cannot be written."""
        target = Path(path)
        with writing(target):
            target.write_text(json.dumps(trace([self], name)), encoding="utf-8")
        return target


def tabulate(
    manifest: abi.Manifest,
    dims: Mapping[str, int],
    nanoseconds: Sequence[int],
    launches: Sequence[int],
    runs: int,
    machine: Roofline,
) -> tuple[KernelTime, ...]:
    """The rows of a profile, from what each kernel took and how often it was launched in `runs`
    runs with these values of the symbols."""
    times: list[KernelTime] = []
    work = [(evaluate(k.flops, dims), evaluate(k.bytes, dims)) for k in manifest.kernels]
    nanoseconds, launches = list(nanoseconds), list(launches)
    for team in manifest.notes.get("together", []):
        part_among(team, [work[k][0] for k in team], nanoseconds, launches)
    for n, (kernel, spent, count) in enumerate(
        zip(manifest.kernels, nanoseconds, launches, strict=True)
    ):
        flops, nbytes = work[n]
        least = machine.seconds(flops, nbytes) * count
        times.append(
            KernelTime(
                name=kernel.name,
                ops=kernel.ops,
                shape=tuple(evaluate(d, dims) for d in kernel.shape),
                launches=count / runs,
                microseconds=spent / runs * 1e-3,
                flops=flops,
                bytes=nbytes,
                limit=machine.limit(flops, nbytes),
                roofline=100 * least / (spent * 1e-9) if spent else 0.0,
            )
        )
    return tuple(times)


def part_among(
    team: Sequence[int], flops: Sequence[int], nanoseconds: list[int], launches: list[int]
) -> None:
    """Part the time of kernels that run at once, which is noted for the first of them, by their
    work: how long each of them took nobody measures."""
    first, whole = team[0], sum(flops)
    spent, count = nanoseconds[first], launches[first]
    for k, own in zip(team, flops, strict=True):
        nanoseconds[k] = spent * own // whole if whole else spent // len(team)
        launches[k] = count


_BINARY: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_CALLS = {"min": min, "max": max}


def evaluate(dim: abi.Dim, dims: Mapping[str, int]) -> int:
    """The value of a dimension's expression: whole numbers, symbols, + - * // %, min and max."""
    if isinstance(dim, int):
        return dim

    def value(node: ast.expr) -> int:
        match node:
            case ast.Constant(value=int(number)):
                return number
            case ast.Name(id=name) if name in dims:
                return dims[name]
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -value(operand)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
                return _BINARY[type(op)](value(left), value(right))
            case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _CALLS:
                return _CALLS[name](*map(value, args))
            case _:
                raise ValueError(f"not an expression of dimensions: {ast.unparse(node)}")

    return value(ast.parse(dim, mode="eval").body)
