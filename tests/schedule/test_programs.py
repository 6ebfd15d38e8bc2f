"""The programs of the schedule tests compute what NumPy says."""

import numpy as np
import pytest

from tests.schedule.programs import FAMILIES
from tilewright.ir import interp


@pytest.mark.parametrize("family", FAMILIES)
def test_program_agrees_with_numpy(family):
    program = FAMILIES[family]()
    inputs, outputs = program.draw(np.random.default_rng(1)), program.outputs()
    interp.run(program.func, *inputs, *outputs)
    for got, expected in zip(outputs, program.reference(*inputs), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)
