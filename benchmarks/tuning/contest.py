"""The command: `python -m benchmarks.tuning.contest [NAME …] --seeds 30 --output page.md`.

In: frozen tables, explorers with models. Out: after how many trials each is how close to a table's
best, what a schedule that was picked without any trial is worth, and whether a search ever deploys
what is worse than the default.

What a model knows of other functions, it learnt from the tables of other operators: never from
another size of the same one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from benchmarks import pages
from benchmarks.tuning.replay import (
    Maker,
    Replayed,
    champion,
    interval,
    mean,
    replay,
    replayed,
    zero_trial,
)
from benchmarks.tuning.tables import FROZEN, Frozen, load
from tilewright.strategy.sketch.plan import Numbers, Plan, Rows
from tilewright.tune.anneal import Annealing
from tilewright.tune.boosted import Boosted
from tilewright.tune.evolve import Evolution
from tilewright.tune.explore import Descent, Grid, Portfolio, Random
from tilewright.tune.model import Ensemble, Model, Prior
from tilewright.tune.smooth import Smooth
from tilewright.tune.transfer import Known, Transferred, learnt

WITHIN = (0.2, 0.1, 0.05, 0.02)
CURVE = (1, 2, 4, 8, 16, 32, 64)  # trials after which regret is told
TOPS = (1, 5, 8)  # rows of a zero-trial pick
Made = Callable[[Plan, np.random.Generator], Model]
PAGE = """# Searches, replayed on frozen tables

Written by `python -m benchmarks.tuning.contest`: {tasks} tables of {operators} operators, {rows}
rows, measured on {processor} (`{machine}`) by build {build}; {seeds} seeds of each explorer on
each table, at most {trials} trials, times seen with {noise:.0%} of noise. Trials are geometric
means over tables of means over seeds; who was not there counts as {trials}.

"""


class Remembered:
    """A model that is asked once for all rows of a table after each learning."""

    def __init__(self, plan: Replayed, model: Model) -> None:
        self.plan, self.model = plan, model
        self.told = model.predict(plan.rows)

    def learn(self, rows: Rows, seconds: Numbers) -> None:
        """See `Model`."""
        self.model.learn(rows, seconds)
        self.told = self.model.predict(self.plan.rows)

    def predict(self, rows: Rows) -> tuple[Numbers, Numbers]:
        """See `Model`."""
        positions = self.plan.positions(rows)
        return self.told[0][positions], self.told[1][positions]


class Contest:
    """Who takes part, on which tables."""

    def __init__(self, frozen: Frozen) -> None:
        self.plans = replayed(frozen)
        self.known = lru_cache(None)(self._learnt)

    def _learnt(self, operator: str) -> Known:
        """What the tables of all other operators teach."""
        others = [p for p in self.plans if p.task.operator != operator]
        return learnt([(p, p.rows, p.seconds) for p in others])

    def transferred(self, plan: Plan) -> Transferred:
        """The prior with what other operators taught."""
        assert isinstance(plan, Replayed)
        return Transferred(plan, self.known(plan.task.operator))

    def explorers(self) -> dict[str, Maker]:
        """Explorers with their models, by names."""
        alone: dict[str, Made] = {
            "prior": lambda plan, random: Prior(plan),
            "ensemble": Ensemble,
            "smooth": Smooth,
            "boosted": Boosted,
        }
        taught: dict[str, Made] = {
            "transfer": lambda plan, random: self.transferred(plan),
            "ensemble, transfer": lambda p, random: Ensemble(p, random, self.transferred(p)),
            "smooth, transfer": lambda p, random: Smooth(p, random, self.transferred(p)),
            "boosted, transfer": lambda p, random: Boosted(p, random, self.transferred(p)),
        }
        bare: Made = partial(Boosted, knows_prior=False)
        found: dict[str, Maker] = {"random": Random, "grid": Grid}
        for name, made in (alone | taught).items():
            found[f"descent: {name}"] = _with(Descent, made)
        found["portfolio: prior"] = Portfolio
        found["portfolio: transfer"] = lambda p, r: Portfolio(p, r, self.transferred(p))
        for name in ("smooth", "ensemble, transfer"):
            found[f"annealing: {name}"] = _with(Annealing, (alone | taught)[name])
            found[f"evolution: {name}"] = _with(Evolution, (alone | taught)[name])
        found["annealing: boosted, no prior"] = _with(Annealing, bare, Random)
        found["evolution: boosted, no prior"] = _with(Evolution, bare, Random)
        return found


def _with(explorer: Callable[..., object], made: Made, first: Maker | None = None) -> Maker:
    def maker(plan: Plan, random: np.random.Generator) -> object:
        assert isinstance(plan, Replayed)
        start = first and first(plan, random)
        return explorer(plan, random, lambda p, r: Remembered(plan, made(p, r)), start)

    return maker  # type: ignore[return-value]


def trials_of(
    plans: Sequence[Replayed], maker: Maker, seeds: int, trials: int
) -> dict[float, np.ndarray]:
    """For each part of `WITHIN`, trials by task and seed; `trials` where it did not get there."""
    found = {within: np.empty((len(plans), seeds)) for within in WITHIN}
    for n, plan in enumerate(plans):
        for seed in range(seeds):
            run = replay(plan, maker, trials, seed, min(WITHIN))
            for within in WITHIN:
                found[within][n, seed] = min(run.trials_to(plan.best, within), trials)
    return found


def regrets(plans: Sequence[Replayed], maker: Maker, seeds: int) -> list[float]:
    """The mean regret after each number of trials of `CURVE`."""
    runs = [
        replay(plan, maker, max(CURVE), seed, 1e-9).regret(plan.best, max(CURVE))
        for plan in plans
        for seed in range(seeds)
    ]
    return [float(np.mean([run[n - 1] for run in runs])) for n in CURVE]


def worse_than_default(
    plans: Sequence[Replayed], maker: Maker, replays: int, trials: int = 24
) -> tuple[int, int]:
    """How many of so many searches deploy what is slower than the default by more than what a duel
    tells apart, and how many deploy the default."""
    worse = kept = 0
    for n in range(replays):
        plan = plans[n % len(plans)]
        took = champion(plan, replay(plan, maker, trials, n), n)
        worse += took > plan.task.default
        kept += took == plan.task.default
    return worse, kept


def zero_trials(contest: Contest) -> str:
    """What picks without a trial are worth, as a table."""
    lines = [["picked by", *(f"best of {n}" for n in TOPS), "worst of 1"], ["---"] * 5]

    def prior(plan: Plan, rows: Rows) -> Numbers:
        return plan.cycles(rows)

    def taught(plan: Plan, rows: Rows) -> Numbers:
        return contest.transferred(plan).predict(rows)[0]

    for name, score in (("the prior", prior), ("the prior and other operators", taught)):
        parts = [[zero_trial(p, score, top) for p in contest.plans] for top in TOPS]
        cells = [f"{mean(p):.1%}" for p in parts]
        lines.append([name, *cells, f"{min(parts[0]):.0%}"])
    return table(lines)


def table(lines: list[list[str]]) -> str:
    """Cells as markdown."""
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def main(
    names: Annotated[list[str] | None, typer.Argument(help="explorers; default: all")] = None,
    seeds: Annotated[int, typer.Option(help="of each explorer on each table")] = 30,
    trials: Annotated[int, typer.Option(help="at most, in a search")] = 150,
    tables: Annotated[Path, typer.Option(help="frozen tables")] = FROZEN,
    output: Annotated[Path | None, typer.Option(help="markdown file")] = None,
) -> None:
    """Replay explorers and print the page."""
    frozen = load(tables)
    contest = Contest(frozen)
    makers = contest.explorers()
    lines = [["explorer: model", *(f"{w:.0%}" for w in WITHIN), "fewer than at random, to 5 %",
              *(f"regret after {n}" for n in CURVE)], ["---"] * (6 + len(CURVE))]  # fmt: skip
    base = trials_of(contest.plans, Random, seeds, trials)[0.05].mean(1)
    for name in names or makers:
        found = trials_of(contest.plans, makers[name], seeds, trials)
        ratios = base / found[0.05].mean(1)
        low, high = interval(list(ratios))
        curve = regrets(contest.plans, makers[name], max(1, seeds // 10))
        told = [f"{mean(list(found[w].mean(1))):.1f}" for w in WITHIN]
        ratio = f"{mean(list(ratios)):.1f} ({low:.1f}-{high:.1f})"
        lines.append([name, *told, ratio, *(f"{r:.0%}" for r in curve)])
        print(" | ".join(lines[-1]), file=sys.stderr, flush=True)
    worse, kept = worse_than_default(contest.plans, makers["descent: ensemble"], 1000)
    text = PAGE.format(
        tasks=len(contest.plans), operators=len({p.task.operator for p in contest.plans}),
        rows=sum(len(p.rows) for p in contest.plans), processor=frozen.processor,
        machine=frozen.machine, build=frozen.build, seeds=seeds, trials=trials, noise=0.02,
    )  # fmt: skip
    text += table(lines) + "\n" + zero_trials(contest)
    text += f"\nOf 1,000 searches of 24 trials {worse} deploy what is slower than the default; "
    text += f"{kept} keep the default.\n"
    print(text)
    if output is not None:
        pages.write(output, text)


if __name__ == "__main__":
    typer.run(main)
