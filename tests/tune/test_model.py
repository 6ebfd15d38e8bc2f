"""Models: what they say is nearer the truth, and surer, the more they were told."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.tune.spaces import bowl, seconds
from tilewright.strategy.sketch.plan import Plan
from tilewright.tune.boosted import Boosted
from tilewright.tune.model import Ensemble, Model, Prior
from tilewright.tune.smooth import Smooth
from tilewright.tune.transfer import Transferred, learnt
from tilewright.tune.trees import Trees

MODELS: dict[str, Callable[[Plan, np.random.Generator], Model]] = {
    "ensemble": Ensemble,
    "smooth": Smooth,
    "boosted": Boosted,
    "boosted, no prior": lambda plan, random: Boosted(plan, random, knows_prior=False),
}


def told(model: Model, plan: Plan, count: int) -> tuple[float, float]:
    """How far off a model is that was told so many rows, and how unsure it says it is."""
    random = np.random.default_rng(2)
    rows = plan.draw(count + 300, random)
    known, new = rows[:count], rows[count:]
    model.learn(known, seconds(plan, known))
    expected, unsure = model.predict(new)
    return float(np.abs(expected - np.log(seconds(plan, new))).mean()), float(unsure.mean())


@pytest.mark.parametrize("name", MODELS)
def test_more_measurements_make_it_better_and_better_than_the_prior(name: str) -> None:
    plan = bowl()
    errors = [told(MODELS[name](plan, np.random.default_rng(0)), plan, n)[0] for n in (10, 200)]
    assert errors[1] < 0.6 * errors[0]
    assert errors[1] < 0.6 * told(Prior(plan), plan, 200)[0]


def test_uncertainty_shrinks_with_measurements() -> None:
    plan = bowl()
    unsure = [told(Smooth(plan, np.random.default_rng(0)), plan, n)[1] for n in (6, 40, 250)]
    assert unsure[0] > unsure[1] > unsure[2] > 0


def test_what_was_measured_is_surer_than_what_was_not() -> None:
    plan, random = bowl(), np.random.default_rng(0)
    rows, model = plan.draw(80, random), Smooth(plan, random)
    model.learn(rows[:40], seconds(plan, rows[:40]))
    unsure = model.predict(rows)[1]
    assert unsure[:40].max() < unsure[40:].mean()


@pytest.mark.parametrize("name", MODELS)
def test_it_answers_before_it_was_told_anything(name: str) -> None:
    plan, random = bowl(), np.random.default_rng(0)
    expected, unsure = MODELS[name](plan, random).predict(plan.draw(5, random))
    assert np.isfinite(expected).all() and np.isfinite(unsure).all()


def test_what_others_taught_ranks_what_nobody_measured() -> None:
    random, others = np.random.default_rng(0), [bowl(rotated=n) for n in (1, 2, 3)]
    drawn = [(plan, plan.draw(200, random)) for plan in others]
    known = learnt([(plan, rows, seconds(plan, rows)) for plan, rows in drawn])
    plan = bowl()
    rows = plan.draw(300, random)
    truth = np.log(seconds(plan, rows))
    own, taught = (np.corrcoef(truth, m.predict(rows)[0])[0, 1]
                   for m in (Prior(plan), Transferred(plan, known)))  # fmt: skip
    assert 1 - taught < 0.7 * (1 - own)


def test_a_model_may_stand_on_what_others_taught() -> None:
    random, other = np.random.default_rng(0), bowl(rotated=1)
    rows = other.draw(200, random)
    known = learnt([(other, rows, seconds(other, rows))])
    plan = bowl()
    own = told(Smooth(plan, np.random.default_rng(0)), plan, 8)[0]
    taught = told(Smooth(plan, np.random.default_rng(0), Transferred(plan, known)), plan, 8)[0]
    assert taught < own


def test_trees_learn_steps_and_what_weighs() -> None:
    random = np.random.default_rng(0)
    features = random.random((400, 5))
    wanted = np.where(features[:, 2] > 0.5, 1.0, 0.0) * np.where(features[:, 4] > 0.25, 2.0, 1.0)
    assert not Trees().predict(features).any()
    fitted = Trees().fit(features, wanted).predict(features)
    assert np.abs(fitted - wanted).mean() < 0.1
    only = (features[:, 2] > 0.5).astype(float)  # those of 0 weigh nothing
    noise = wanted + (1 - only) * random.standard_normal(400)
    trees = [Trees().fit(features, told, only).predict(features) for told in (wanted, noise)]
    assert np.array_equal(*trees)
