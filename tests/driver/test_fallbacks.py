"""A kernel that its family's strategy did not schedule is named: by a warning when the model is
compiled, in the artifact, by `inspect` and by `bench`."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import tilewright as tw
from tests.driver.conftest import expected
from tilewright.strategy import select
from tilewright.strategy.cpu import families
from tilewright.strategy.roles import ROLES
from tilewright.support.errors import ScheduleError

WHY = "cannot unroll loop 'p_init': its extent is not a constant"


@pytest.fixture
def refusing(monkeypatch):
    """Strategies that are refused a step."""

    def refuse(*_):
        raise ScheduleError("cannot unroll loop 'p_init'", "its extent is not a constant")

    refusing = replace(families.CPU, families=dict.fromkeys(ROLES, refuse))
    monkeypatch.setattr(select, "strategies_of", lambda kind: refusing)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_fallback_is_told(command, model, refusing, tmp_path, threads):
    with pytest.warns(tw.ScheduleWarning, match=r"k0_\w+: the generic schedule, cannot unroll"):
        exe = tw.compile(model, threads=threads)
    (kernel, *_) = exe.manifest.kernels
    assert exe.manifest.notes["fallbacks"][kernel.name] == f"the generic schedule, {WHY}"
    x = np.random.default_rng(1).standard_normal((2, 8), np.float32)
    np.testing.assert_allclose(exe(x)[0], expected(x), rtol=1e-5)
    path = exe.save(tmp_path / "dense.tw")
    status, printed, _ = command("inspect", path)
    assert status == 0 and kernel.name in printed and f"the generic schedule, {WHY}" in printed
    status, printed, _ = command("bench", path, "--against", "none", "--seconds", "0.01")
    assert status == 0 and f"the generic schedule, {WHY}" in printed


def test_no_fallback_no_word(command, model, recwarn):
    exe = tw.compile(model, threads=1)
    assert "fallbacks" not in exe.manifest.notes
    assert not [w for w in recwarn if issubclass(w.category, tw.ScheduleWarning)]
    assert "generic" not in command("inspect", model)[1]
