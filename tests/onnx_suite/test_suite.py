"""Every test of the official suite passes compiled, or is listed in docs/onnx_suite.md."""

from __future__ import annotations

import pytest

from tests.onnx_suite.report import listed
from tests.onnx_suite.suite import judge, judge_all, tests

FAST = 40  # every so many tests of the suite are in the fast suite


@pytest.mark.slow
def test_suite_passes_but_for_what_is_listed():
    outcomes = list(judge_all(sorted(tests())))
    assert len(outcomes) > 2000
    failed = {o.name: o.fault for o in outcomes if o.fault}
    known = listed().keys()
    worse = [f"{name}: {failed[name]}" for name in sorted(failed.keys() - known)]
    assert not worse, "fail now:\n" + "\n".join(worse)
    better = sorted(known - failed.keys())
    assert not better, f"pass now (python -m tests.onnx_suite --write): {better}"


def test_sample_passes():
    names = sorted(tests().keys() - listed().keys())[::FAST]
    assert len(names) > 25
    faults = [f"{o.name}: {o.fault}" for o in map(judge, names) if o.fault]
    assert not faults, "\n".join(faults)
