"""Small kernels that show what the machine does at best: steps in registers, bytes of each cache.

In: a machine and a number of threads. Out: for each kind of step and each level of memory a
function, written as a program, and how much it does. The one idea: a step is measured as operators
make it, in a register tile whose operands come from L1, so that what overlaps on this machine
overlaps here, too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from math import isqrt
from textwrap import indent

from tilewright.ir.dtype import f32
from tilewright.ir.parse import parse_func
from tilewright.ir.stmt import Func
from tilewright.target.target import Target

DEPTH = 64  # steps over which a tile's operands reach: few enough that they stay in L1
STEPS = 2_000_000  # vectors that a kernel steps or reads on each thread: what a call takes is lost
SLOW_STEPS = 200_000  # of kinds that take many instructions
VECTORS = 8  # that are read side by side
MOST_READ = 128 << 20  # bytes from memory


@dataclass(frozen=True)
class Step:
    """A way to make a kind of step. result: the new accumulator, in terms of the old one `a`, the
    operands `x` of a row and `w` of a vector, and `v`, which is `value`. rows, vectors: of the
    tile. index: the new index, where one is kept, in terms also of the old one `n` and the position
    `p`. of, index_of: dtypes of operands and index. pairs: two steps at once, of operands `x0`,
    `x1`, …. depth: over how many steps the operands reach; those of one stay in registers. steps:
    of vectors, in a call.
    """

    result: str
    rows: int = 4
    vectors: int = 2
    value: str = ""
    index: str = ""
    of: str = "f32"
    index_of: str = "i32"
    pairs: bool = False
    depth: int = DEPTH
    steps: int = STEPS


GREATER = "v > a or v == a and p < n"  # of equal terms the first one, in whatever order they come
LESS = "v < a or isnan(v) and not isnan(a) or (v == a or isnan(v) and isnan(a)) and p < n"
_GREATEST = Step(
    f"select({GREATER}, v, a)", value="x * w", index=f"select({GREATER}, p, n)", steps=SLOW_STEPS
)
_LEAST = Step(
    f"select({LESS}, v, a)",
    1,
    4,
    value="x + w",
    index=f"select({LESS}, p, n)",
    index_of="i64",
    steps=SLOW_STEPS,
)
KINDS: dict[str, tuple[Step, ...]] = {  # of several ways to make a step the fastest counts
    "multiply_add": (Step("a + x * w", 6, 2), Step("a * x + w", 4, 2, depth=1)),
    "add": (Step("a + w", 3, 4), Step("a + w", 1, 12, depth=1)),
    "max": (Step("max(a, w)", 2, 2), Step("max(a, w)", 6, 2)),
    "max_add": (Step("max(a, x + w)", 2, 2), Step("max(a, x + w)", 6, 2)),
    "abs_difference": (Step("a + abs(x - w)", 2, 2), Step("a + abs(x - w)", 4, 2)),
    "squared_difference": (Step("a + v * v", 4, 2, "x - w"), Step("a + v * v", 6, 2, "x - w")),
    "argmax_multiply": (_GREATEST, replace(_GREATEST, rows=1, vectors=4)),
    "argmin": (_LEAST, replace(_LEAST, rows=3, vectors=2)),
    "exp": (
        Step("a + exp(x * w)", 1, 2, steps=SLOW_STEPS),
        Step("a + exp(x * w)", 3, 4, steps=SLOW_STEPS),
    ),
    "gelu": (Step("a + gelu(x * w)", 1, 2, steps=SLOW_STEPS),),
    "multiply_add_i8": (
        Step("a + i32(x) * i32(w)", 3, 4, of="i8"),
        Step("a + (i32(x0) * i32(w0) + i32(x1) * i32(w1))", 4, 2, of="i8", pairs=True),
    ),
}


@dataclass(frozen=True)
class Kernel:
    """A function, and how much one call of it does: steps of single elements, or bytes."""

    func: Func
    amount: int


def step_kernel(step: Step, lanes: int, threads: int) -> Kernel:
    """A tile's accumulators, to which the same operands are added again and again."""
    each, depth = 1 + step.pairs, step.depth
    times = -(-step.steps // (depth * step.rows * step.vectors * each))
    sums = {"A": "i32" if step.of == "i8" else step.of} | (
        {"N": step.index_of} if step.index else {}
    )
    results = dict(zip("AN", ("R", "I"), strict=True))
    tile = f"{step.rows}, {step.vectors}, {lanes}"
    lines = [
        f"{name}{n if step.pairs else ''}: {step.of} = {array}[q, {at}, {n}]"
        for name, array, at in (("x", "X", "c, k"), ("w", "W", "d, k, j"))
        for n in range(each)
    ]
    lines += [f"v: {step.of} = {step.value}"] if step.value else []
    lines += [f"a: {sums['A']} = A[c, d, j]"]
    if step.index:
        lines += [f"n: {step.index_of} = N[c, d, j]", f"p: {step.index_of} = {step.index_of}(k)"]
    lines += [f"A[c, d, j] = {step.result}"]
    lines += [f"N[c, d, j] = {step.index}"] if step.index else []
    parameters = [f"{results[name]}: {of}[{threads}, {tile}]" for name, of in sums.items()]
    allocated = [f'{name} = alloc({of}[{tile}], "local")' for name, of in sums.items()]
    start = tile_loops(step, lanes, [f"{name}[c, d, j] = {of}(0)" for name, of in sums.items()])
    end = tile_loops(
        step, lanes, [f"{results[name]}[q, c, d, j] = {name}[c, d, j]" for name in sums]
    )
    text = f"""
def step(X: {step.of}[{threads}, {step.rows}, {depth}, {each}],
         W: {step.of}[{threads}, {step.vectors}, {depth}, {lanes}, {each}],
         {", ".join(parameters)}):
    for q in parallel(0, {threads}):
{indent(chr(10).join([*allocated, start]), " " * 8)}
        for t in serial(0, {times}):
            for k in serial(0, {depth}):
{indent(tile_loops(step, lanes, lines), " " * 16)}
{indent(end, " " * 8)}
"""
    amount = threads * times * depth * step.rows * step.vectors * lanes * each
    return Kernel(parse_func(text), amount)


def tile_loops(step: Step, lanes: int, body: list[str]) -> str:
    """`body` for each element of a tile, c and d its row and vector, j the lane."""
    head = f"""for c in unroll(0, {step.rows}):
    for d in unroll(0, {step.vectors}):
        for j in vectorize(0, {lanes}):
"""
    return head + indent("\n".join(body), " " * 12)


def read_kernel(size: int, lanes: int, threads: int) -> Kernel:
    """Each thread adds up `size` bytes of its own, several times."""
    depth = size // f32.nbytes(VECTORS * lanes) or 1
    times = -(-STEPS // (depth * VECTORS))
    text = f"""
def read(W: f32[{threads}, {depth}, {VECTORS}, {lanes}], R: f32[{threads}, {VECTORS}, {lanes}]):
    for q in parallel(0, {threads}):
        A = alloc(f32[{VECTORS}, {lanes}], "local")
        for d in unroll(0, {VECTORS}):
            for i in vectorize(0, {lanes}):
                A[d, i] = 0.0
        for t in serial(0, {times}):
            for k in serial(0, {depth}):
                for e in unroll(0, {VECTORS}):
                    for j in vectorize(0, {lanes}):
                        A[e, j] = A[e, j] + W[q, k, e, j]
        for f in unroll(0, {VECTORS}):
            for l in vectorize(0, {lanes}):
                R[q, f, l] = A[f, l]
"""
    return Kernel(parse_func(text), threads * times * depth * f32.nbytes(VECTORS * lanes))


def levels(target: Target, threads: int) -> list[tuple[int, int]]:
    """Of each cache and of memory: up to how many bytes of a working set come from it (memory: 0),
    and how many each thread reads to show its rate."""
    sizes = [cache.size for cache in target.caches]
    fit = [cache.size * (threads if cache.shared_by == 1 else 1) for cache in target.caches]
    read = [sizes[0] // 2, *(isqrt(small * large) for small, large in pairwise(sizes))]
    read.append(min(4 * sizes[-1], MOST_READ))
    shared = [1 if c.shared_by == 1 else threads for c in target.caches] + [threads]
    return [(n, r // s) for n, r, s in zip([*fit, 0], read, shared, strict=True)]
