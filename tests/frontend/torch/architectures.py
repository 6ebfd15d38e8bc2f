"""Architectures through our compiler three ways, beside eager PyTorch.

    python -m tests.frontend.torch.architectures [NAME ...] [--library transformers|timm]
        [--ways static,dynamic,onnx] [--every N] [--log FILE] [--page FILE]

static: torch.export at the example's sizes. dynamic: torch.export with every size open that it can
leave open, compiled once and run at five sets of sizes. onnx: that program through torch.onnx into
our ONNX importer, likewise. Agreement: the largest |difference| to eager is at most `TOLERANCE` of
the largest value, for every output. `--log` keeps what was found, and goes on from it.
"""

from __future__ import annotations

import argparse
import collections
import copy
import json
import logging
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from tests.frontend.torch.architectures_page import page
from tests.frontend.torch.small_models import LIBRARIES
from tilewright.driver.compile import compile_observed
from tilewright.driver.kernels import KernelPool
from tilewright.frontend.onnx import import_onnx
from tilewright.frontend.torch import import_torch
from tilewright.frontend.torch.convert import array
from tilewright.graph import sizes
from tilewright.ir.expr import as_int
from tilewright.ir.walk import substitute
from tilewright.support.errors import UserFault

TOLERANCE = 1e-3
WAYS = ("static", "dynamic", "onnx")
STEPS = (0, -1, 1, 2, 5, 3, 4, 6, 7, 8)  # from the example's sizes to others
SETS = 5  # of sizes that one compilation runs at
LONGEST = 400  # seconds that one way of one model may take
LEAST = 1e-5  # deviation of what a model gives: with less, agreement is no news
OPEN = torch.export.Dim.AUTO


@dataclass
class Finding:
    """What came of one way for one model.

    verdict: "agrees", else what went wrong and where: "not made" and "not exported" are PyTorch's
    doing, "unsupported", "fails", "differs" and "late" ours. error: the largest difference over the
    largest value. sizes: the sets of sizes run at. open: the inputs with their open sizes.
    """

    model: str
    way: str
    verdict: str = "agrees"
    why: str = ""
    error: float = 0.0
    sizes: int = 1
    open: str = ""
    seconds: float = 0.0


class Stop(Exception):
    """Ends a way with a verdict."""

    def __init__(self, verdict: str, why: Any = "") -> None:
        super().__init__(verdict, why)
        if isinstance(why, BaseException):
            why = f"{type(why).__name__}: {why}"
        self.verdict, self.why = verdict, " ".join(str(why).split())[:1500]


class Late(BaseException):
    """The time for one way is over; no handler of what runs there may swallow it."""


class Leaves(nn.Module):
    """A model as a function of tensors to the list of tensors in its result."""

    def __init__(self, model: nn.Module, names: list[str], fixed: dict[str, Any]) -> None:
        super().__init__()
        self.model, self.names, self.fixed = model, names, fixed

    def forward(self, *tensors: Tensor) -> list[Tensor]:
        given = dict(zip(self.names, tensors, strict=True))
        found = self.model(**given, **self.fixed)
        return [y for y in pytree.tree_leaves(found) if isinstance(y, Tensor)]


class Subject:
    """A model on its ways; what two of them need is made once."""

    def __init__(self, model: nn.Module, inputs: dict[str, Any], pool: KernelPool) -> None:
        self.names = [k for k, v in inputs.items() if isinstance(v, Tensor)]
        fixed = {k: v for k, v in inputs.items() if k not in self.names}
        self.module = Leaves(model, self.names, fixed)
        self.tensors = tuple(inputs[k] for k in self.names)
        self.pool = pool
        self.opened: Any = None

    def says_something(self) -> bool:
        """Do the numbers of an output differ from each other? Else agreement means nothing."""
        with torch.no_grad():
            found = self.module(*copy.deepcopy(self.tensors))
        return any(y.numel() > 1 and float(y.double().std()) > LEAST for y in found)

    def static(self, found: Finding) -> None:
        program = exported(self.module, self.tensors)
        self.judge(found, lambda: program)

    def dynamic(self, found: Finding) -> None:
        program = self.open_program(found)
        if not is_open(program):
            raise Stop("fixed", "torch.export leaves no size open")
        self.judge(found, lambda: program, program)

    def onnx(self, found: Finding) -> None:
        """The dynamic program if torch.onnx can export it, else that at the example's sizes."""
        try:
            program = self.open_program(found)
            model = to_onnx(program)
        except Stop as first:
            program = exported(self.module, self.tensors)
            model = to_onnx(program)
            found.why = f"at fixed sizes, for with open ones: {first.verdict}: {first.why}"
        self.judge(found, lambda: sized(model, program), program)

    @property
    def twice(self) -> tuple[Tensor, ...]:
        """The example with a batch of two at least: torch.export takes a one for fixed."""
        return tuple(fitted(x, (max(2, x.shape[0]), *x.shape[1:])) for x in self.tensors)

    def open_program(self, found: Finding) -> Any:
        """The program with all sizes open, or if torch.export refuses that, the first axes' alone."""
        if self.opened is None:
            try:
                self.opened = exported(self.module, self.twice, lambda x: range(x.dim()))
            except Stop as first:
                found.why = f"with all sizes open: {first.why}"
                try:
                    self.opened = exported(self.module, self.twice, lambda x: (0,))
                except Stop:
                    self.opened = first
        if isinstance(self.opened, Stop):
            raise self.opened
        return self.opened

    def judge(self, found: Finding, source: Callable[[], Any], program: Any = None) -> None:
        """Compile once; run at all sizes that the program leaves open and compare."""
        try:
            run = compile_observed(source(), cache=False, pool=self.pool)
        except UserFault as fault:
            raise Stop("unsupported", fault) from fault
        except Exception as fault:  # any other is our fault: the verdict
            raise Stop("fails", fault) from fault
        found.sizes, several = 0, iter([self.tensors])
        if program is not None and is_open(program):
            taken = [info.shape for info in run.inputs]
            found.open = ", ".join(
                f"{name}{list(map(str, shape))}".replace("'", "")
                for name, shape in zip(self.names, taken, strict=True)
                if not all(isinstance(s, int) for s in shape)
            )
            several = resized(program, self.module, self.twice, taken)
        for tensors in several:
            found.sizes += 1
            try:
                found.error = max(found.error, compare(run, self.module, tensors))
            except Stop as stop:
                stop.why = f"at {[tuple(x.shape) for x in tensors]}: {stop.why}"
                raise


def exported(
    module: nn.Module, tensors: tuple[Tensor, ...], axes: Callable[[Tensor], Any] | None = None
) -> Any:
    """The program of torch.export, with those axes of every input open."""
    shapes = {"tensors": tuple(dict.fromkeys(axes(x), OPEN) for x in tensors)} if axes else None
    try:
        with torch.no_grad():
            return torch.export.export(module, tensors, dynamic_shapes=shapes)
    except Exception as fault:  # it runs the model's code and passes on what that raises
        raise Stop("not exported", fault) from fault


def to_onnx(program: Any) -> Any:
    try:
        with torch.no_grad():
            return torch.onnx.export(program, dynamo=True, verbose=False).model_proto
    except Exception as fault:  # it has no common class of errors
        raise Stop("not exported", fault) from fault


def sized(model: Any, program: Any) -> Any:
    """The ONNX model of a program with numbers for the open sizes that it can have in one way
    alone: ONNX keeps no example, so whoever imports such a model says what they are."""
    if not is_open(program):
        return model
    taken = [value.shape for value in import_torch(program).inputs]
    dims = {
        str(s): count
        for shape, ours in zip(input_shapes(program), taken, strict=False)
        for s, t in zip(shape, ours, strict=True)
        if isinstance(s, torch.SymInt)
        and not s.node.expr.is_number
        and (count := as_int(t)) is not None
    }
    return import_onnx(model, shapes=dims) if dims else model


def fitted(x: Tensor, shape: Sequence[int]) -> Tensor:
    """x repeated and cut to a shape: what it holds stays valid."""
    times = [-(-want // have) for want, have in zip(shape, x.shape, strict=True)]
    return x.repeat(times)[tuple(slice(0, want) for want in shape)].contiguous()


def input_shapes(program: Any) -> list[tuple[Any, ...]]:
    given = {s.arg.name for s in program.graph_signature.input_specs if s.kind.name == "USER_INPUT"}
    nodes = [n for n in program.graph.nodes if n.op == "placeholder" and n.name in given]
    return [tuple(n.meta["val"].shape) for n in nodes]


def is_open(program: Any) -> bool:
    return any(isinstance(s, torch.SymInt) for shape in input_shapes(program) for s in shape)


def resized(
    program: Any, module: nn.Module, tensors: tuple[Tensor, ...], taken: Sequence[Sequence[Any]]
) -> Iterator[tuple[Tensor, ...]]:
    """The inputs at `SETS` sets of sizes, as far as the program leaves them open.

    All open sizes change together, but for those that eager refuses to change, each by itself, and
    those that `taken`, the shapes that the compiled model takes, has fixed."""
    shapes = input_shapes(program)
    hints = example_sizes(shapes, tensors)
    units = steps_of(program)
    fixed: set[Any] = set()
    for shape, ours in zip(shapes, taken, strict=True):
        for s, t in zip(shape, ours, strict=True):
            if isinstance(s, torch.SymInt) and isinstance(t, int):
                fixed |= s.node.expr.free_symbols
    ranges = {str(k): v for k, v in program.range_constraints.items()}

    def at(step: int, changing: Iterable[Any]) -> tuple[Tensor, ...]:
        values = dict(hints)
        for e in changing:
            known = ranges.get(str(e))
            low, high = (2, 1 << 20) if known is None else (known.lower, known.upper)
            moved = hints[e] + step * max(1, hints[e] // (32 * units[e])) * units[e]
            values[e] = int(max(low, min(high, moved)))
        goal = [[number(s, values) for s in shape] for shape in shapes]
        return tuple(fitted(x, shape) for x, shape in zip(tensors, goal, strict=True))

    changing = [e for e in hints if e not in fixed]
    if not runs(module, at(1, changing)):
        changing = [e for e in changing if runs(module, at(1, [e]))]
    seen: set[tuple[Any, ...]] = set()
    for step in STEPS:
        other = at(step, changing)
        shape = tuple(x.shape for x in other)
        if shape not in seen and len(seen) < SETS and runs(module, other):
            seen.add(shape)
            yield other


def number(s: Any, values: dict[Any, int]) -> int:
    """A size where PyTorch's symbols have these values."""
    return int(s.node.expr.subs(values)) if isinstance(s, torch.SymInt) else s


def steps_of(program: Any) -> dict[Any, int]:
    """By PyTorch's symbol, the steps in which the compiled program takes a size."""
    found: dict[Any, int] = collections.defaultdict(lambda: 1)
    for shape, ours in zip(input_shapes(program), import_torch(program).inputs, strict=False):
        for s, t in zip(shape, ours.shape, strict=True):
            roots = sizes.symbols([t])
            if isinstance(s, torch.SymInt) and s.node.expr.is_Symbol and len(roots) == 1:
                ends = [substitute(t, {roots[0]: sizes.size(n)}) for n in (1, 2)]
                found[s.node.expr] = as_int(sizes.size(ends[1] - ends[0])) or 1
    return found


def example_sizes(shapes: Any, tensors: tuple[Tensor, ...]) -> dict[Any, int]:
    """What PyTorch's symbols for sizes are in the example."""
    import sympy

    hints: dict[Any, int] = {}
    for shape, x in zip(shapes, tensors, strict=True):
        for s, v in zip(shape, x.shape, strict=True):
            free = s.node.expr.free_symbols if isinstance(s, torch.SymInt) else ()
            if len(free) == 1:
                (e,) = free
                hints.setdefault(e, int(sympy.solve(s.node.expr - v, e)[0]))
    return hints


def runs(module: nn.Module, tensors: tuple[Tensor, ...]) -> bool:
    """Does the eager module take the inputs?"""
    try:
        with torch.no_grad():
            module(*copy.deepcopy(tensors))
    except Exception:  # a model's own code says no in any words
        return False
    return True


def compare(run: Any, module: nn.Module, tensors: tuple[Tensor, ...]) -> float:
    """The largest difference to eager over the largest value. Raises Stop if that is too much."""
    with torch.no_grad():
        expected = module(*copy.deepcopy(tensors))
    try:
        found = run(*[array(x) for x in tensors])
    except Exception as fault:  # any is our fault: the verdict
        raise Stop("fails", fault) from fault
    if len(found) != len(expected):
        raise Stop("differs", f"{len(found)} outputs for {len(expected)}")
    error = 0.0
    for number, (a, b) in enumerate(zip(found, map(array, expected), strict=True)):
        if a.shape != b.shape or a.dtype != b.dtype:
            raise Stop("differs", f"output {number} is {a.dtype}{a.shape}, not {b.dtype}{b.shape}")
        a, b = a.astype(np.float64), b.astype(np.float64)
        same = a == b  # infinities too
        most = float(np.abs(b[np.isfinite(b)]).max(initial=0))
        worst = float(np.abs(np.where(same, 0.0, a - b)).max(initial=0))
        if not worst <= TOLERANCE * max(most, 1e-6):
            raise Stop("differs", f"output {number} by {worst:.1e} of {most:.1e}")
        error = max(error, worst / max(most, 1e-6))
    return error


@contextmanager
def limited(seconds: int) -> Iterator[None]:
    """Stop what takes longer."""

    def late(*_: Any) -> None:
        raise Late

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def examine(key: str, ways: Sequence[str], pool: KernelPool) -> Iterator[Finding]:
    """One model, all ways."""
    library, _, name = key.partition("/")
    try:
        torch.manual_seed(0)
        subject = Subject(*LIBRARIES[library][1](name), pool)
        if not subject.says_something():
            subject = Stop("not made", "its outputs are the same number everywhere")
    except Exception as fault:  # a library's own code, given a configuration that nobody uses
        subject = Stop("not made", fault)
    for way in ways:
        found, start = Finding(key, way), time.perf_counter()
        try:
            if isinstance(subject, Stop):
                raise subject
            with limited(LONGEST):
                getattr(subject, way)(found)
        except Stop as stop:
            found.verdict, found.why = stop.verdict, stop.why
        except Late:
            found.verdict, found.why = "late", f"more than {LONGEST} s"
            pool.close()  # the workers may be in the middle of something
        found.seconds = round(time.perf_counter() - start, 1)
        yield found


def read(log: Path | None) -> dict[tuple[str, str], Finding]:
    """What a log holds; the last finding counts."""
    lines = log.read_text().splitlines() if log and log.exists() else []
    return {(f.model, f.way): f for f in (Finding(**json.loads(line)) for line in lines)}


def wanted(given: argparse.Namespace) -> list[str]:
    """The models that the command names, "library/name"; without names all of them."""
    libraries = [given.library] if given.library else list(LIBRARIES)
    keys = [f"{lib}/{name}" for lib in libraries for name in LIBRARIES[lib][0][:: given.every]]
    if given.names:
        return [k for n in given.names for k in keys if n in (k, k.partition("/")[2])]
    return keys


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.frontend.torch.architectures")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--library", choices=sorted(LIBRARIES))
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--every", type=int, default=1, help="take one of so many models")
    parser.add_argument("--log", type=Path)
    parser.add_argument("--page", type=Path)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.ERROR)
    done = read(given.log)
    with KernelPool() as pool:
        for key in wanted(given):
            ways = [w for w in given.ways.split(",") if (key, w) not in done]
            for found in examine(key, ways, pool) if ways else ():
                done[key, found.way] = found
                print(f"{key} {found.way} ({found.seconds} s): {found.verdict} "
                      f"{found.error:.0e} {found.open} {found.why}"[:400], flush=True)  # fmt: skip
                if given.log:
                    with given.log.open("a") as file:
                        file.write(json.dumps(asdict(found)) + "\n")
    if given.page:
        given.page.write_text(page(done.values()))
    return any(f.verdict in ("fails", "differs", "unsupported", "late") for f in done.values())


if __name__ == "__main__":
    sys.exit(main())
