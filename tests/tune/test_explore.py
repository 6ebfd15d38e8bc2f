"""Explorers: they propose what is legal and new, the same for the same seed, and soon the best."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

from tests.tune.spaces import BEST, bowl, seconds
from tilewright.strategy.sketch.plan import Plan
from tilewright.tune.anneal import Annealing
from tilewright.tune.boosted import Boosted
from tilewright.tune.evolve import Evolution
from tilewright.tune.explore import Descent, Explorer, Grid, History, Portfolio, Random
from tilewright.tune.smooth import Smooth

Maker = Callable[[Plan, np.random.Generator], Explorer]
LEARNING: dict[str, Maker] = {
    "descent": Descent,
    "descent, smooth": lambda plan, random: Descent(plan, random, Smooth),
    "annealing": Annealing,
    "evolution": Evolution,
}
ALL: dict[str, Maker] = {"random": Random, "grid": Grid, "portfolio": Portfolio, **LEARNING}
FEW = 6
PLAN = bowl()


def searched(maker: Maker, plan: Plan, trials: int, seed: int, enough: float = 0.0) -> History:
    """A search of so many trials, or till a row is as fast as is enough."""
    explorer, history = maker(plan, np.random.default_rng(seed)), History(plan)
    while len(history.rows) < trials and not (history.seconds <= enough).any():
        rows = explorer.propose(history, FEW)
        assert 0 < len(rows) <= FEW
        history.add(rows, list(seconds(plan, rows)))
    return history


def trials_to_best(maker: Maker, seed: int) -> int:
    """After how many trials a search comes to the best row or one next to it; 90 at most."""
    return len(searched(maker, PLAN, 90, seed, 1.21e-4).rows)


@pytest.mark.parametrize("name", ALL)
def test_no_proposal_is_illegal_or_was_seen(name: str) -> None:
    history = searched(ALL[name], plan := PLAN, 36, 0)
    assert plan.is_legal(history.rows).all()
    assert len(np.unique(history.rows, axis=0)) == len(history.rows)


@pytest.mark.parametrize("name", ALL)
def test_a_seed_says_what_is_proposed(name: str) -> None:
    first, again = (searched(ALL[name], PLAN, 18, 5).rows for _ in range(2))
    assert np.array_equal(first, again)


@pytest.mark.parametrize("name", LEARNING)
def test_what_learns_needs_far_fewer_trials_than_chance(name: str) -> None:
    own = np.mean([trials_to_best(LEARNING[name], seed) for seed in range(4)])
    chance = np.mean([trials_to_best(Random, seed) for seed in range(12)])
    assert own < chance / 2


@pytest.mark.parametrize("name", ALL)
def test_what_failed_is_learnt_from_and_not_proposed_again(name: str) -> None:
    plan, random = PLAN, np.random.default_rng(0)
    explorer, history = ALL[name](plan, random), History(plan)
    for n in range(4):
        rows = explorer.propose(history, FEW)
        history.add(rows, [np.inf] * len(rows) if n % 2 else list(seconds(plan, rows)))
    assert len(np.unique(history.rows, axis=0)) == len(history.rows)


def test_a_grid_comes_by_every_legal_row() -> None:
    plan, random = PLAN, np.random.default_rng(0)
    explorer, history = Grid(plan, random), History(plan)
    while len(rows := explorer.propose(history, 512)):
        history.add(rows, [1.0] * len(rows))
    every = np.stack(np.meshgrid(*[np.arange(8)] * 4, indexing="ij"), -1).reshape(-1, 4)
    assert len(history.rows) == plan.is_legal(every).sum()


def test_trees_without_a_prior_start_at_random() -> None:
    plan, random = PLAN, np.random.default_rng(0)
    model = partial(Boosted, knows_prior=False)
    first = Annealing(plan, random, model, Random(plan, random)).propose(History(plan), 100)
    expected = plan.cycles(first).mean() / plan.cycles(plan.draw(400, random)).mean()
    assert expected == pytest.approx(1, abs=0.1)


def test_moved_rows_are_legal_and_differ_in_one_decision() -> None:
    plan, random = PLAN, np.random.default_rng(3)
    rows = plan.draw(200, random)
    moved = plan.moved(rows, random)
    changed = (rows != moved).sum(1)
    assert plan.is_legal(moved).all() and changed.max() == 1 and changed.mean() > 0.8


def test_the_prior_is_wrong_in_these_spaces() -> None:
    plan = PLAN
    best = np.asarray([list(BEST.values())])
    assert seconds(plan, plan.pick[None])[0] > 1.5 * seconds(plan, best)[0]
