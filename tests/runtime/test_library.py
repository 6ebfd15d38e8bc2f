"""A model saved for C programs: they link or compile it and run it without Python."""

import importlib.util
import io
import re
import subprocess
import sys

import numpy as np
import pytest

from tests.runtime.c_programs import STRICT, flags, needs, run, run_example, without_compilers
from tests.runtime.images import scale_program, symbolic_program
from tilewright.runtime import abi, amalgamation
from tilewright.runtime.artifact import write_artifact
from tilewright.runtime.executor import load
from tilewright.runtime.export import KINDS, Library
from tilewright.runtime.toolchain import find_c_compiler, platform_of, zig
from tilewright.support.errors import CompileError

ziglang = pytest.mark.skipif(
    not importlib.util.find_spec("ziglang"), reason="ziglang is not installed"
)
PREFIX = [
    "include/NAME.h",
    "lib/cmake/NAME/NAMEConfig.cmake",
    "lib/cmake/NAME/NAMEConfigVersion.cmake",
    "lib/pkgconfig/NAME.pc",
    "share/NAME/example.c",
]
FILES = {
    "library": [*PREFIX, "lib/libNAME.so"],
    "static": [*PREFIX, "lib/libNAME.a"],
    "c-array": ["NAME.c", "NAME.h", "example.c"],
}


def files_in(folder):
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


@pytest.mark.parametrize("kind", KINDS)
def test_a_c_program_runs_it(loaded, tmp_path, kind):
    exe = loaded(scale_program(name="my model-2"))
    folder = exe.save(tmp_path / "made", kind=kind)
    assert files_in(folder) == sorted(f.replace("NAME", "my_model_2") for f in FILES[kind])
    x = np.random.default_rng().standard_normal(1000, np.float32)
    output, text = run_example(folder, "my_model_2", x.tobytes())
    assert output == exe(x)[0].tobytes()
    assert text == "y: 4000 bytes -> output0.bin\n"
    header = next(folder.rglob("my_model_2.h")).read_text()
    assert "my_model_2_module *my_model_2_open(void);" in header
    assert "input  0  x: f32[1000]" in header


@pytest.mark.parametrize("kind", KINDS)
def test_symbolic_model(loaded, tmp_path, kind):
    folder = loaded(symbolic_program()).save(tmp_path, kind=kind)
    output, _ = run_example(folder, "test", np.array([4.0], np.float32).tobytes())
    assert np.frombuffer(output, np.float32).tolist() == [11.0]
    header = next(folder.rglob("test.h")).read_text()
    assert "test_call(test_session *session, int64_t n, const float *x, float *y)" in header


TWO = """
#include <stdio.h>
#include <string.h>
#include "one.h"
#include "two.h"

int main(void) {
    float x[1000], y[1000], z[5];
    for (int i = 0; i < 1000; i++) x[i] = (float)i;
    one_module *first = one_open();
    two_module *second = two_open();
    if (!first || !second) return 1;
    one_session *a = one_session_create(first, 2);
    two_session *b = two_session_create(second, 1);
    if (!a || !b || one_call(a, x, y) || two_call(b, 5, x, z)) return 2;
    for (int i = 0; i < 1000; i++) if (y[i] != 2 * x[i] + 3) return 3;
    for (int i = 0; i < 5; i++) if (z[i] != 2 * x[i] + 3) return 4;
    if (two_call(b, -1, x, z) != TW_ERROR_INPUT) return 5;
    printf("%s|%s\\n", one_error(), two_error());
    one_session_destroy(a);
    two_session_destroy(b);
    one_close(first);
    two_close(second);
    return 0;
}
"""
SAID = "|input 0 'x': dimension 0 is -1, expected n from 1 to 1048576\n"


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A function that gives the folder with both models, saved as a kind once."""
    made = {}

    def folder(kind):
        if kind not in made:
            made[kind] = tmp_path_factory.mktemp(kind)
            for name, program in (("one", scale_program()), ("two", symbolic_program())):
                file = io.BytesIO()
                write_artifact(program, file)
                load(file.getvalue(), 1).save(made[kind], kind=kind, name=name)
        return made[kind]

    return folder


def build(program, compiler, source, saved, **kinds):
    """Compile a program with models of these kinds."""
    for name, kind in kinds.items():
        folder = saved(kind)
        array = [str(folder / f"{name}.c"), f"-I{folder}"] if kind == "c-array" else []
        file = next((folder / "lib").glob(f"lib{name}.*"), None)  # not -l: others lie there, too
        compiler = [*compiler, *(array or [f"-I{folder}/include"])]
        source = [*source, *([] if array else [str(file), f"-Wl,-rpath,{folder}/lib"])]
    run([*compiler, *source, "-pthread", "-o", program.name], program.parent)
    return run([f"./{program.name}"], program.parent)


@pytest.mark.parametrize(
    ("first", "second"),
    [*zip(KINDS, KINDS, strict=True), ("library", "static"), ("static", "c-array")],
)
def test_two_models_in_one_program(saved, tmp_path, first, second):
    (tmp_path / "main.c").write_text(TWO)
    compiler = [*find_c_compiler(), *STRICT]
    said = build(tmp_path / "main", compiler, ["main.c"], saved, one=first, two=second)
    assert said == SAID


@needs("g++")
@pytest.mark.parametrize(("kind", "standard"), [("library", "c++11"), ("static", "c++20")])
def test_two_models_in_a_program_of_cpp(saved, tmp_path, kind, standard):
    (tmp_path / "main.cpp").write_text(TWO)
    compiler = ["g++", f"-std={standard}", *STRICT, "-pedantic"]
    assert build(tmp_path / "main", compiler, ["main.cpp"], saved, one=kind, two=kind) == SAID


def test_whole_archives_define_nothing_twice(saved, tmp_path):
    own = "int allocate, cpu_has_all, dtype_name, fail, launch, pool_run, release, tw_run;\n"
    (tmp_path / "main.c").write_text(own + TWO)
    whole = ["-Wl,--whole-archive", "-lone", "-ltwo", "-Wl,--no-whole-archive"]
    command = [*find_c_compiler(), "main.c", *flags(saved("static")), *whole]
    run([*command, "-o", "main"], tmp_path)
    assert run(["./main"], tmp_path) == SAID


@needs("nm")
@pytest.mark.parametrize("kind", ["library", "static"])
def test_all_that_it_defines_has_its_name(saved, kind):
    folder = saved(kind)
    (file,) = (folder / "lib").glob("libone.*")
    listed = run(["nm", "-D" if kind == "library" else "-g", "--defined-only", file], folder)
    defined = {line.split()[-1] for line in listed.splitlines() if len(line.split()) == 3}
    header = (folder / "include/one.h").read_text()
    assert defined == set(re.findall(r"^TW_API .*?\b(one_\w+)\(", header, re.MULTILINE))
    assert {"one_open", "one_run", "one_close"} < defined


def test_a_header_of_another_release_is_told(saved, tmp_path):
    (tmp_path / "main.c").write_text(TWO)
    headers = saved("c-array")
    (tmp_path / "one.h").write_text((headers / "one.h").read_text())
    text = (headers / "two.h").read_text()
    (tmp_path / "two.h").write_text(re.sub(r"(TW_ABI_VERSION (?:!= )?)4", r"\g<1>9", text))
    command = [*find_c_compiler(), "-c", "main.c", "-o", "main.o"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert "headers of different releases of Tilewright" in done.stderr


def test_a_kind_beside_another_leaves_it(loaded, tmp_path):
    exe = loaded(scale_program())
    for kind in ("library", "static"):
        exe.save(tmp_path, kind=kind, name="net")
    assert {"lib/libnet.so", "lib/libnet.a"} < set(files_in(tmp_path))


def test_the_header_knows_every_dtype():
    codes = set(re.findall(r"\bTW_\w+", amalgamation.types()))
    assert {f"TW_{dtype.upper()}" for dtype in abi.DTYPE_CODES} <= codes


# ---- Names -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("title", "name"),
    [
        ('9 */ int main; "\\\n#error', "model_9____int_main______error"),
        ("int", "model_int"),
        ("math", "model_math"),
        ("m", "model_m"),
        ("模型", "model"),
        ("__x", "x"),
        ("/* $name ${x} %d // ??/", "name___x___d"),
        ("n" * 300, "n" * 64),
    ],
)
def test_names_of_models_become_identifiers(loaded, tmp_path, title, name):
    folder = loaded(scale_program(name=title)).save(tmp_path, kind="c-array")
    found = {p.stem for p in folder.glob("*.h")}
    if title.startswith("/*"):  # what is no word of C becomes _
        (name,) = found
    assert found == {name}
    output, _ = run_example(folder, name, np.zeros(1000, np.float32).tobytes())
    assert np.frombuffer(output, np.float32)[0] == 3


def test_names_of_tensors_become_parameters(loaded, tmp_path):
    program = scale_program()
    x, y = program.manifest.inputs[0], program.manifest.outputs[0]
    vars_of = object.__setattr__
    vars_of(x, "name", "for")
    vars_of(y, "name", "1:0 */ x")
    folder = loaded(program).save(tmp_path, kind="c-array", name="net")
    assert "const float *tensor_for, float *tensor_1_0____x)" in (folder / "net.h").read_text()
    run_example(folder, "net", np.zeros(1000, np.float32).tobytes())


@pytest.mark.parametrize(
    ("name", "why", "remedy"),
    [
        ("my-net", "it is no identifier of C", "name it my_net"),
        ("2net", "it is no identifier of C", "name it model_2net"),
        ("", "it is no identifier of C", "name it model"),
        ("nét", "it is no identifier of C", "name it n_t"),
        ("a/../b", "it is no identifier of C", "name it a____b"),
        ("_net", "are the compiler's own", "name it net"),
        ("while", "it is a word of C", "name it model_while"),
        ("class", r"it is a word of C or C\+\+", "name it model_class"),
        ("stdio", "stdio.h is a header of the system", "name it model_stdio"),
        ("tilewright", "is a header", "name it model_tilewright"),
        ("m", "libm or m_open is the system's", "name it model_m"),
        ("shm", "libshm or shm_open is the system's", "name it model_shm"),
    ],
)
def test_names_that_cannot_be(loaded, tmp_path, name, why, remedy):
    with pytest.raises(CompileError, match=f"cannot name a library '{name}'.*{why}") as fault:
        loaded(scale_program()).save(tmp_path / "made", kind="static", name=name)
    assert fault.value.remedy == remedy
    assert not (tmp_path / "made").exists()


# ---- Folders and compilers ---------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_folders_that_cannot_be_written(loaded, tmp_path, kind):
    (tmp_path / "file").write_text("")
    exe = loaded(scale_program())
    for folder in (tmp_path / "file", tmp_path / "file" / "below", "/proc/none/here"):
        with pytest.raises(CompileError, match=f"cannot write a library into '{folder}'") as fault:
            exe.save(folder, kind=kind)
        assert fault.value.remedy == "name another folder"
    assert files_in(tmp_path) == ["file"]


def test_what_fails_leaves_what_was_there(loaded, tmp_path, monkeypatch):
    other = loaded(scale_program(n=64))
    folder = loaded(scale_program()).save(tmp_path / "made", kind="library", name="net")
    before = {f: (folder / f).read_bytes() for f in files_in(folder)}
    compiler = tmp_path / "cc"
    compiler.write_text("#!/bin/sh\necho 'no space left' >&2\nexit 1\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CC", str(compiler))
    with pytest.raises(CompileError, match="no space left"):
        other.save(folder, kind="library", name="net")
    assert {f: (folder / f).read_bytes() for f in files_in(folder)} == before


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


@ziglang
@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "magic"),
    [
        ("x86_64-windows-gnu", b"MZ"),
        ("aarch64-macos", b"\xcf\xfa\xed\xfe"),
        ("x86_64-macos", b"\xcf\xfa\xed\xfe"),
    ],
)
def test_c_arrays_are_built_for_other_systems(saved, tmp_path, target, magic):
    """No system that these run on is at hand."""
    sources = [str(saved("c-array") / f"{name}.c") for name in ("one", "two")]
    (tmp_path / "main.c").write_text(TWO)
    compiler = zig("cc", "-target", target, "-O2", "-std=c11", *STRICT)
    headers = f"-I{saved('c-array')}"
    run([*compiler, "main.c", *sources, headers, "-pthread", "-o", "main"], tmp_path)
    built = next(p for p in (tmp_path / "main", tmp_path / "main.exe") if p.exists())
    assert built.read_bytes().startswith(magic)


@ziglang
@pytest.mark.parametrize("kind", ["library", "static"])
def test_ziglang_serves_where_no_compiler_is(loaded, tmp_path, monkeypatch, kind):
    exe = loaded(scale_program())
    with monkeypatch.context() as without:
        without_compilers(without, tmp_path)
        command = find_c_compiler()
        assert command[0] == sys.executable and command[-2] == "cc" and "ziglang" in command[-3]
        poison(tmp_path / "lib")
        folder = exe.save(tmp_path / "lib", kind=kind)
    x = np.random.default_rng().standard_normal(1000, np.float32)
    for header in folder.glob("*.h"):
        header.unlink()
    assert run_example(folder, "test", x.tobytes())[0] == exe(x)[0].tobytes()


def test_no_compiler_at_all(loaded, monkeypatch, tmp_path):
    exe = loaded(scale_program())
    without_compilers(monkeypatch, tmp_path)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(CompileError, match="there is no C compiler"):
        find_c_compiler()
    with pytest.raises(CompileError, match="there is no C compiler"):
        exe.save(tmp_path / "lib", kind="library")
    exe.save(tmp_path / "array", kind="c-array")  # this one needs none
    with pytest.raises(CompileError, match="not installed") as fault:
        Library(tmp_path).check("aarch64-linux-musl")
    assert "pip install ziglang" in fault.value.remedy


@pytest.mark.parametrize(
    ("triple", "platform"),
    [
        ("x86_64-unknown-linux-gnu", "x86_64-linux-gnu"),
        ("x86_64-linux", "x86_64-linux-gnu"),
        ("amd64-pc-linux-musl", "x86_64-linux-musl"),
        ("arm64-linux-gnu", "aarch64-linux-gnu"),
        ("aarch64-alpine-linux-musl", "aarch64-linux-musl"),
        ("arm64-apple-darwin23.1", "aarch64-macos"),
        ("aarch64-linux-android", "aarch64-linux-android"),
        ("x86_64-unknown-freebsd", ""),
    ],
)
def test_platforms(triple, platform):
    assert platform_of(triple) == platform


def test_triples_that_no_library_is_built_for(tmp_path):
    for triple in ("aarch64-linux-android", "x86_64-unknown-freebsd", "x86_64-linux-gnux32"):
        with pytest.raises(CompileError, match=f"cannot build a library for {triple}") as fault:
            Library(tmp_path).check(triple)
        assert "aarch64-linux-musl" in fault.value.why and "c-array" in fault.value.remedy
        Library(tmp_path, "c-array").check(triple)


def test_on_windows_there_are_c_arrays(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(CompileError, match="cannot build a library for Windows") as fault:
        Library(tmp_path).check()
    assert "c-array" in fault.value.remedy
    Library(tmp_path, "c-array").check()


def test_unknown_kind(loaded, tmp_path):
    exe = loaded(scale_program())
    with pytest.raises(ValueError, match=r"kind is 'artifact' or one of 'library'.*, not 'zip'"):
        exe.save(tmp_path, kind="zip")
    with pytest.raises(ValueError, match="name is for libraries"):
        exe.save(tmp_path / "m.tw", name="net")
    with pytest.raises(CompileError, match="the kinds are library, static, c-array"):
        Library(tmp_path, "zip").check()
