"""Random legal schedules, run and compared with NumPy: `python -m tests.schedule.random_schedules`.

In: a count and a seed. Out: for each schedule the interpreter's (and, on request, the compiled
code's) outputs against NumPy's; a mismatch prints the trace that reproduces it. The one idea: draw
primitives and arguments blindly; a refusal is just another draw, so whatever is *not* refused must
be right.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.schedule.programs import FAMILIES, Program
from tilewright.ir import interp
from tilewright.ir.expr import as_int
from tilewright.ir.parse import parse_func
from tilewright.ir.stmt import For, Func
from tilewright.ir.text import print_func
from tilewright.ir.verify import verify
from tilewright.schedule import Schedule, Trace, locate, replay
from tilewright.schedule.depend import uses
from tilewright.schedule.schedule import PRIMITIVES
from tilewright.support.errors import ScheduleError

SIZES: dict[str, dict[str, tuple[int, int]]] = {
    "matmul": {"n": (1, 9), "m": (1, 9), "k": (1, 9)},
    "conv2d": {"ci": (1, 3), "co": (1, 4), "h": (3, 5), "w": (3, 5), "s": (1, 2)},
    "depthwise": {"c": (1, 3), "h": (3, 6), "w": (3, 6)},
    "softmax": {"n": (1, 5), "m": (1, 9)},
    "layer_norm": {"n": (1, 5), "m": (1, 9)},
    "attention": {"n": (1, 4), "m": (4, 6), "d": (1, 5)},
    "scan": {"t": (1, 5), "n": (1, 4)},
    "argmax": {"n": (1, 4), "m": (1, 9)},
}
LARGEST = 40_000  # iterations of all loops together; what grows beyond is not drawn on


class Draw:
    """Random arguments for primitives, looked up in the function as it is."""

    def __init__(self, random: np.random.Generator, func: Func) -> None:
        self.random, self.func = random, func
        self.loops, self.blocks = locate.loop_names(func), locate.block_names(func)

    def one(self, among: Sequence[Any]) -> Any:
        """One of several; ScheduleError if there is none."""
        if not among:
            raise ScheduleError("cannot draw", "there is nothing to choose from")
        return among[int(self.random.integers(len(among)))]

    def number(self, low: int, high: int) -> int:
        return int(self.random.integers(low, high + 1))

    def chance(self, of: float) -> bool:
        return bool(self.random.random() < of)

    def loop(self) -> str:
        return self.one(self.loops)

    def block(self) -> str:
        return self.one(self.blocks)

    def extent(self, loop: str) -> int:
        return as_int(locate.find_loop(self.func, loop).extent) or 8

    def nest(self, shortest: int) -> list[str]:
        """Some neighbours in a perfect nest."""
        chain = [locate.find_loop(self.func, self.loop())]
        while isinstance(inner := chain[-1].body, For):
            chain.append(inner)
        names = [f.name for f in chain][: self.number(2, 4)]
        if len(names) < shortest:
            raise ScheduleError("cannot draw", "the nest is too short")
        return names

    def reduction(self) -> tuple[str, str]:
        """A block that reduces, and a loop of its."""
        block = self.block()
        path = locate.block_path(self.func, block)
        over = uses(locate.the_block(path), ("reduce",))
        loops = [f.name for f in locate.loops_above(path) if f.var in over or self.chance(0.1)]
        return block, self.one(loops)

    def partner(self, kind: str, of: str) -> tuple[str, str]:
        """A block, and mostly a loop of a block that `kind` what it `of` ("reads", "writes")."""
        block = self.block()
        names = {r.buffer.name for r in getattr(locate.find_block(self.func, block), of)}
        loops = [
            f.name
            for other, nest in locate.block_nests(self.func.body)
            if names & {r.buffer.name for r in getattr(other, kind)} and other.name != block
            for f in nest
        ]
        return block, self.one(loops) if loops and self.chance(0.9) else self.loop()

    def touched(self, kind: str) -> tuple[str, str]:
        """A block, and a buffer that it reads or writes."""
        block = self.block()
        regions = getattr(locate.find_block(self.func, block), kind)
        return block, self.one(regions).buffer.name


def draw_split(d: Draw) -> tuple[Any, ...]:
    loop = d.loop()
    if d.chance(0.7):
        return loop, d.number(1, max(2, d.extent(loop)))
    parts: list[int | None] = [d.number(1, 4) for _ in range(d.number(2, 3))]
    if d.chance(0.8):
        parts[d.number(0, len(parts) - 1)] = None
    return loop, tuple(parts)


def draw_reorder(d: Draw) -> tuple[Any, ...]:
    names = d.nest(2)
    return tuple(str(n) for n in d.random.permutation(names))


def draw_tile(d: Draw) -> tuple[Any, ...]:
    names = d.nest(2)[:2]
    return names, [d.number(1, 4) for _ in names]


def draw_bind(d: Draw) -> tuple[Any, ...]:
    return d.loop(), d.one(["blockIdx.x", "blockIdx.y", "threadIdx.x", "threadIdx.y"])


def draw_partition(d: Draw) -> tuple[Any, ...]:
    loop = d.loop()
    extent = d.extent(loop)
    points = {d.number(0, extent) for _ in range(d.number(1, 2))}
    return loop, sorted(points)


def draw_merge(d: Draw) -> tuple[Any, ...]:
    inits = [b for b in d.blocks if "_init" in b]
    init = d.one(inits)
    return init, init.split("_init")[0]


def draw_pipeline(d: Draw) -> tuple[Any, ...]:
    bodies = {name: locate.find_loop(d.func, name).body for name in d.loops}
    loop = d.one([n for n, b in bodies.items() if hasattr(b, "stmts") or d.chance(0.05)])
    count = len(getattr(bodies[loop], "stmts", (0,)))
    return loop, sorted(d.number(0, 1) for _ in range(count))


def draw_mapping(d: Draw, names: Sequence[str]) -> str:
    """An index map: a permutation, with one dimension in two parts or two in one."""
    order = [str(n) for n in d.random.permutation(list(names))]
    if order and d.chance(0.6):
        at, size = d.number(0, len(order) - 1), d.number(2, 4)
        whole = order[at]
        order[at] = f"{whole} // {size}"
        order.insert(d.number(0, len(order)), f"{whole} % {size}")
    return f"lambda {', '.join(names)}: ({', '.join(order)},)"


def draw_transform_layout(d: Draw) -> tuple[Any, ...]:
    buffer = d.one(list(locate.buffers(d.func).values()))
    pad = (0,) if d.chance(0.5) else ()
    return buffer.name, draw_mapping(d, [f"d{n}" for n in range(buffer.rank)]), *pad


def draw_transform_block_layout(d: Draw) -> tuple[Any, ...]:
    block = d.block()
    return block, draw_mapping(d, [a.var.name for a in locate.find_block(d.func, block).axes])


def draw_prefetch(d: Draw) -> tuple[Any, ...]:
    over = (d.loop(),) if d.chance(0.5) else ()
    return d.touched("reads")[1], d.loop(), d.number(1, 2), *over


SHAPING: dict[str, Callable[[Draw], tuple[Any, ...]]] = {
    "split": draw_split,
    "fuse": lambda d: tuple(d.nest(2)[: d.number(2, 3)]),
    "reorder": draw_reorder,
    "tile": draw_tile,
    "partition_loop": draw_partition,
    "rfactor": lambda d: (*d.reduction(), d.number(-2, 1)),
    "decompose_reduction": lambda d: d.reduction(),
    "cascade_reduction": lambda d: d.reduction(),
    "merge_reduction": draw_merge,
    "compute_at": lambda d: d.partner("reads", "writes"),
    "reverse_compute_at": lambda d: d.partner("writes", "reads"),
    "compute_inline": lambda d: (d.block(),),
    "reverse_compute_inline": lambda d: (d.block(),),
    "cache_read": lambda d: (*d.touched("reads"), d.one(["global", "local"])),
    "cache_write": lambda d: (*d.touched("writes"), d.one(["global", "local"])),
    "reindex": lambda d: d.touched(d.one(["reads", "writes"])),
    "set_scope": lambda d: (d.one(list(locate.buffers(d.func))), d.one(["global", "local"])),
    "storage_align": lambda d: (d.one(list(locate.buffers(d.func))), d.number(0, 2), 8),
    "storage_gap": lambda d: (d.one(list(locate.buffers(d.func))), d.number(0, 2), 8),
    "double_buffer": lambda d: (d.block(),),
    "transform_layout": draw_transform_layout,
    "transform_block_layout": draw_transform_block_layout,
    "pad_einsum": lambda d: (d.block(), [d.number(1, 4) for _ in range(d.number(2, 5))]),
    "blockize": lambda d: (d.loop(),),
}
MARKING: dict[str, Callable[[Draw], tuple[Any, ...]]] = {
    "parallel": lambda d: (d.loop(),),
    "vectorize": lambda d: (d.loop(),),
    "unroll": lambda d: (d.loop(),),
    "vthread": lambda d: (d.loop(),),
    "bind": draw_bind,
    "prefetch": draw_prefetch,
    "software_pipeline": draw_pipeline,
    "annotate": lambda d: (d.one([d.loop(), d.block()]), "note", d.number(0, 9)),
}


@dataclass
class Tally:
    """What was drawn so far: applied and refused, for each primitive."""

    applied: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)


def iterations(func: Func) -> int:
    """About how many iterations a function runs: over all blocks, the product of their loops."""
    total = 0
    for _, loops in locate.block_nests(func.body):
        product = 1
        for f in loops:
            product *= as_int(f.extent) or 1
        total += product
    return total


def draw_schedule(
    func: Func, random: np.random.Generator, steps: int, tally: Tally, leave_out: Sequence[str] = ()
) -> Schedule:
    """A random legal schedule: shaping steps, then mostly marking steps."""
    schedule = Schedule(func)
    shaping = [n for n in SHAPING if n in PRIMITIVES]
    marking = [n for n in MARKING if n in PRIMITIVES and n not in leave_out]
    for n in range(steps):
        late = n >= 2 * steps // 3
        name = str(random.choice(marking if late and random.random() < 0.8 else shaping))
        before = schedule.func, schedule.trace
        try:
            args = {**SHAPING, **MARKING}[name](Draw(random, schedule.func))
            getattr(schedule, name)(*args)
        except ScheduleError as refusal:
            assert str(refusal).startswith("cannot ")
            tally.refused[name] += 1
            continue
        if iterations(schedule.func) > LARGEST:
            schedule.func, schedule.trace = before
        else:
            tally.applied[name] += 1
    return schedule


def draw_program(family: str, random: np.random.Generator) -> Program:
    """A program of the family with random small sizes."""
    sizes = {
        name: int(random.integers(low, high + 1)) for name, (low, high) in SIZES[family].items()
    }
    if family == "attention":
        sizes["n"] = min(sizes["n"], sizes["m"])
    return FAMILIES[family](**sizes)


def check(
    program: Program,
    schedule: Schedule,
    random: np.random.Generator,
    build: Callable[[Func], Callable[..., Any]] | None = None,
) -> None:
    """Raise unless the scheduled function is well formed, replays, and computes what NumPy says."""
    func = schedule.func
    verify(func, "blocks")
    assert parse_func(print_func(func)) == func, "the text does not read back"
    again = replay(program.func, Trace.from_json(schedule.trace.to_json()))
    assert again.func == func, "the trace does not replay"
    inputs = program.draw(random)
    expected = program.reference(*inputs)
    outputs = program.outputs()
    interp.run(func, *inputs, *outputs, check_parallel=True)
    _compare("interpreted", outputs, expected)
    if build is not None:
        outputs = program.outputs()
        build(func)(*inputs, *outputs)
        _compare("compiled", outputs, expected)


def _compare(how: str, outputs: Sequence[Any], expected: Sequence[Any]) -> None:
    for n, (got, right) in enumerate(zip(outputs, expected, strict=True)):
        np.testing.assert_allclose(got, right, rtol=1e-4, atol=1e-4, err_msg=f"{how}: output {n}")


def run_one(
    family: str, seed: int, steps: int, tally: Tally, build: Any = None
) -> tuple[Schedule, Exception | None]:
    """Draw and check one schedule; gives it, and what was wrong."""
    random = np.random.default_rng(seed)
    program = draw_program(family, random)
    schedule = Schedule(program.func)
    try:
        devices = () if build is None else ("bind",)  # code is compiled for the CPU
        schedule = draw_schedule(program.func, random, steps, tally, devices)
        check(program, schedule, random, build)
    except Exception as error:
        return schedule, error
    return schedule, None


def main() -> int:
    """Run many; the exit status is 1 if any mismatched."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=18)
    parser.add_argument("--family", choices=list(SIZES), action="append")
    parser.add_argument("--compiled", action="store_true", help="run the compiled code too")
    parser.add_argument("--stop", action="store_true", help="stop at the first mismatch")
    options = parser.parse_args()
    build = None
    if options.compiled:
        from tilewright.codegen.inprocess import load as build
    tally, wrong, start = Tally(), 0, time.perf_counter()
    families = options.family or list(SIZES)
    for n in range(options.count):
        family, seed = families[n % len(families)], options.seed + n
        schedule, error = run_one(family, seed, options.steps, tally, build)
        if error is not None:
            wrong += 1
            print(f"\n{family}, seed {seed}: {type(error).__name__}: {str(error)[:2000]}")
            print(f"trace: {schedule.trace.to_json()}", flush=True)
            if options.stop:
                break
        elif (n + 1) % 100 == 0:
            print(
                f"{n + 1} schedules, {wrong} wrong, {time.perf_counter() - start:.0f} s", flush=True
            )
    print(f"\n{'primitive':24}{'applied':>9}{'refused':>9}")
    for name in sorted({*tally.applied, *tally.refused}):
        print(f"{name:24}{tally.applied[name]:>9}{tally.refused[name]:>9}")
    print(f"{options.count} schedules, {sum(tally.applied.values())} steps, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
