"""What somebody does to a file while a model loaded from it is in use."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.runtime.images import program, scale_program
from tilewright.runtime import abi
from tilewright.runtime.artifact import write_artifact
from tilewright.runtime.executor import load
from tilewright.support.errors import ArtifactError

LARGE = 32 << 20  # bytes of weights that are mapped, as module.c has it
X = np.arange(1000, dtype=np.float32)
LAST = (  # y = the last weight
    "EXPORT int32_t run(tw_call *c) {"
    " *(float *)c->outputs[0] = ((const float *)c->weights)[COUNT - 1]; return 0; }"
)


def truncate(path: Path) -> None:
    os.truncate(path, 100)


def overwrite(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(b"\xff" * path.stat().st_size)


def lengthen(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"more")


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An artifact whose weights are mapped: its output is their last one, 7."""
    count = LARGE // 4
    weights = np.zeros(count, np.float32)
    weights[-1] = 7
    path = tmp_path_factory.mktemp("large") / "m.tw"
    of = abi.TensorInfo("y", "f32", ())
    write_artifact(program(LAST.replace("COUNT", str(count)), (), (of,), weights=(weights,)), path)
    return path


@pytest.mark.parametrize("change", [truncate, overwrite, os.unlink])
def test_a_small_model_keeps_what_it_read(change, tmp_path):
    path = tmp_path / "m.tw"
    write_artifact(scale_program(), path)
    exe = load(path)
    before = bytes(exe.artifact())
    change(path)
    assert (exe(X)[0] == 2 * X + 3).all()
    assert exe.artifact() == before
    again = load(exe.save(path))  # and can mend the file
    assert (again(X)[0] == 2 * X + 3).all()


@pytest.mark.parametrize("change", [truncate, overwrite, lengthen])
def test_a_large_model_refuses_to_run_on_changed_weights(change, large, tmp_path):
    path = tmp_path / "m.tw"
    path.write_bytes(large.read_bytes())
    exe = load(path)
    assert exe()[0] == 7
    change(path)
    with pytest.raises(ArtifactError, match=r"its file was written to since.*: load it again"):
        exe()
    assert exe.name == "test" and exe.outputs[0].dtype == "f32"


def test_a_large_model_may_be_replaced_renamed_and_used(large, tmp_path):
    """None of these writes to the file that is mapped."""
    path = tmp_path / "m.tw"
    path.write_bytes(large.read_bytes())
    exe = load(path)
    path.rename(tmp_path / "other.tw")
    os.link(tmp_path / "other.tw", path)
    assert exe()[0] == 7
    exe.save(path)
    write_artifact(scale_program(), tmp_path / "other.tw")
    assert exe()[0] == 7 and load(path)()[0] == 7
    path.unlink()
    assert exe()[0] == 7


def test_large_weights_are_mapped_and_the_rest_is_not(large):
    code = f"""
from tilewright.runtime.executor import load
exe = load({str(large)!r})
assert exe()[0] == 7
kept = [line.split() for line in open("/proc/self/maps") if {str(large)!r} in line]
sizes = [int(a, 16) - int(b, 16) for b, a in (line[0].split("-") for line in kept)]
print(sum(sizes), {{line[1] for line in kept}}, len(__import__("os").listdir("/proc/self/fd")))
del exe
import gc; gc.collect()
assert not any({str(large)!r} in line for line in open("/proc/self/maps"))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"{LARGE} {{'r--p'}}")


def test_a_file_cut_while_it_is_read_is_an_error(tmp_path):
    path = tmp_path / "m.tw"
    write_artifact(scale_program(), path)
    os.truncate(path, path.stat().st_size - 1)
    with pytest.raises(ArtifactError, match="cut short"):
        load(path)
