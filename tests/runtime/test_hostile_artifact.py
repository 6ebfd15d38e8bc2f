"""No damaged or forged artifact crashes the loader; no damaged one is accepted."""

import io

import pytest

from tests.runtime.hostile import try_mutants
from tests.runtime.images import scale_program, symbolic_program
from tilewright.runtime.artifact import write_artifact


def artifact_of(program):
    file = io.BytesIO()
    write_artifact(program, file)
    return file.getvalue()


@pytest.mark.parametrize("program", [scale_program, symbolic_program])
def test_mutants_are_refused_without_a_crash(program):
    outcome = try_mutants(artifact_of(program()), 200)
    assert outcome["damaged refused"] == 100, outcome
    assert not [kind for kind in outcome if kind.endswith("crashed")], outcome
    assert outcome["forged refused"] > 50, outcome
