"""Programs for the runtime's tests, written and loaded."""

import io

import pytest

from tilewright.runtime.artifact import write_artifact
from tilewright.runtime.executor import load


@pytest.fixture
def loaded():
    """A function that loads a program from memory."""

    def load_program(program, threads=1):
        file = io.BytesIO()
        write_artifact(program, file)
        return load(file.getvalue(), threads)

    return load_program
