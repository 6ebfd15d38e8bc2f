"""A model saved as a library: a C program links it and runs it without Python."""

import importlib.util
import subprocess
import sys

import numpy as np
import pytest

from tests.runtime.images import scale_program, symbolic_program
from tilewright.runtime.executor import load
from tilewright.runtime.export import find_c_compiler
from tilewright.support.errors import CompileError


def build_and_run(folder, name, x):
    """Compile the example beside the library, run it on x; its output's bytes."""
    command = [*find_c_compiler(), "-Wall", "-Werror", "example.c", "-L.", f"-l{name}"]
    subprocess.run([*command, "-Wl,-rpath,$ORIGIN", "-o", "example"], cwd=folder, check=True)
    x.tofile(folder / "x.bin")
    empty = {"PATH": "", "LD_LIBRARY_PATH": ""}
    done = subprocess.run(
        ["./example", "x.bin"], cwd=folder, env=empty, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return (folder / "output0.bin").read_bytes(), done.stdout


def test_a_c_program_runs_it(loaded, tmp_path):
    folder = loaded(scale_program(name="my model-2")).save(tmp_path / "lib", kind="library")
    assert sorted(path.name for path in folder.iterdir()) == [
        "example.c",
        "libmy_model_2.so",
        "my_model_2.h",
        "my_model_2.tw",
        "tilewright.h",
    ]
    x = np.arange(1000, dtype=np.float32)
    output, text = build_and_run(folder, "my_model_2", x)
    np.testing.assert_array_equal(np.frombuffer(output, np.float32), 2 * x + 3)
    assert text == "y: 4000 bytes -> output0.bin\n"
    assert np.array_equal(load(folder / "my_model_2.tw", 1)(x)[0], 2 * x + 3)
    header = (folder / "my_model_2.h").read_text()
    assert "tw_module *my_model_2_open(void);" in header and "input  0  x: f32[1000]" in header


def test_symbolic_model_as_a_library(loaded, tmp_path):
    folder = loaded(symbolic_program()).save(tmp_path / "lib", kind="library")
    output, _ = build_and_run(folder, "test", np.array([4.0], np.float32))
    assert np.frombuffer(output, np.float32).tolist() == [11.0]


def test_names_cannot_break_out_of_the_sources(loaded, tmp_path):
    exe = loaded(scale_program(name='9 */ int main; "\\\n#error'))
    folder = exe.save(tmp_path / "lib", kind="library")
    x = np.zeros(1000, np.float32)
    output, _ = build_and_run(folder, "model_9____int_main______error", x)
    assert np.frombuffer(output, np.float32)[0] == 3


def poison(folder):
    """Fill it with what must not be taken for a system header or a Python module."""
    folder.mkdir()
    for name in ("stdio.h", "stdint.h", "pthread.h"):
        (folder / name).write_text("#error taken for a system header")
    for name in ("ziglang.py", "runpy.py", "os.py"):
        (folder / name).write_text("raise SystemExit('run from the folder')")


def test_what_lies_in_the_folder_is_not_used(loaded, tmp_path):
    poison(tmp_path / "lib")
    loaded(scale_program()).save(tmp_path / "lib", kind="library")


@pytest.mark.skipif(not importlib.util.find_spec("ziglang"), reason="ziglang is not installed")
def test_ziglang_serves_where_no_compiler_is(loaded, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    command = find_c_compiler()
    assert command[0] == sys.executable and command[-2] == "cc" and "ziglang" in command[-3]
    poison(tmp_path / "lib")
    folder = loaded(scale_program()).save(tmp_path / "lib", kind="library")
    assert (folder / "libtest.so").stat().st_size > 10_000


def test_no_compiler_at_all(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(CompileError, match="there is no C compiler"):
        find_c_compiler()


def test_unknown_kind(loaded, tmp_path):
    with pytest.raises(ValueError, match="kind is 'artifact' or 'library', not 'zip'"):
        loaded(scale_program()).save(tmp_path, kind="zip")
