"""A sample of random legal schedules; the whole is `python -m tests.schedule.random_schedules`."""

import pytest

from tests.schedule.random_schedules import SIZES, Tally, run_one

EACH = 6


@pytest.mark.parametrize("family", SIZES)
def test_random_schedules_agree_with_numpy(family):
    tally = Tally()
    for seed in range(EACH):
        schedule, error = run_one(family, seed, 14, tally)
        if error is not None:
            raise AssertionError(f"seed {seed}: {schedule.trace.to_json()}") from error
    assert sum(tally.applied.values()) >= 5 * EACH and sum(tally.refused.values())
