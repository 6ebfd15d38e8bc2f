"""How often the tuner sees a winner where there is none: `python -m benchmarks.tuning_noise`.

In: how many duels, beside how many busy processes. Out: of duels of a kernel against itself, the
fraction that had a winner, which is to be 5 % at most, and how far their ratios were from 1.
"""

from __future__ import annotations

import multiprocessing
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import numpy as np
import typer

from tilewright import te
from tilewright.ir.stmt import Func
from tilewright.target.target import target
from tilewright.tune.measure import Bench
from tilewright.tune.samples import EFFECT, Verdict

MOST_FALSE = 0.05


def product(n: int) -> Func:
    """C = A B of n × n matrices of f32."""
    a, b = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
    k = te.reduce_axis(n, "k")
    c = te.compute((n, n), lambda i, j: te.sum(a[i, k] * b[k, j], k), name="C")
    return te.func("product", [a, b], [c])


def work() -> None:
    """Multiply matrices, as a busy neighbour does, until somebody ends it."""
    some = np.random.default_rng(0).standard_normal((300, 300))
    while True:
        some = np.tanh(some @ some)


@contextmanager
def neighbours(count: int) -> Iterator[None]:
    """So many busy processes meanwhile."""
    start = multiprocessing.get_context("spawn")
    busy = [start.Process(target=work, daemon=True) for _ in range(count)]
    for process in busy:
        process.start()
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.join()


def table(verdicts: list[Verdict]) -> str:
    """What came of the duels, in a few lines."""
    won = [v for v in verdicts if v.decided]
    ratios = [v.ratio for v in verdicts]
    rounds = [v.rounds for v in verdicts]
    away = max(abs(r - 1) for r in ratios)
    return (
        f"winners: {len(won)} of {len(verdicts)} = {len(won) / len(verdicts):.1%}, "
        f"wanted: {MOST_FALSE:.0%} at most ({' '.join(f'{v.ratio:.3f}' for v in won) or 'none'})\n"
        f"ratios: median {statistics.median(ratios):.4f}, "
        f"spread {statistics.pstdev(ratios):.2%}, the farthest {away:.2%} from 1; "
        f"effect {EFFECT:.0%}\n"
        f"rounds: median {statistics.median(rounds):.0f}, from {min(rounds)} to {max(rounds)}"
    )


def main(
    count: Annotated[int, typer.Option(help="duels")] = 200,
    size: Annotated[int, typer.Option(help="rows and columns of the matrices")] = 96,
    threads: Annotated[int, typer.Option(help="of the kernel")] = 1,
    busy: Annotated[int, typer.Option(help="busy processes beside it")] = 0,
    seconds: Annotated[float, typer.Option(help="for one duel at most")] = 0.25,
) -> None:
    """Duel a matrix product against itself."""
    with neighbours(busy), Bench(product(size), target("cpu"), threads) as bench:
        time.sleep(1.0 if busy else 0.0)  # until they are busy
        began = time.perf_counter()
        verdicts = [bench.duel(None, None, seconds) for _ in range(count)]
        took = time.perf_counter() - began
    typer.echo(f"{threads} threads, {busy} busy processes, {took:.0f} s")
    typer.echo(table(verdicts))


if __name__ == "__main__":
    typer.run(main)
