"""Compiled models in C programs: found by pkg-config and CMake, two in one, on other machines.

What a program writes is what the executable in Python gives, in bits.
"""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

import tilewright as tw
from tests.driver.conftest import DIGITS, dense
from tests.runtime.c_programs import STRICT, flags, needs, run, run_example
from tilewright.driver.compile import compile_file
from tilewright.runtime.export import KINDS, Library
from tilewright.runtime.toolchain import CROSS, find_c_compiler, find_toolchain, this_platform

ziglang = pytest.mark.skipif(
    not importlib.util.find_spec("ziglang"), reason="ziglang is not installed"
)
QEMU = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")
LOADERS = {  # what runs a program that is linked with shared libraries, by platform
    "x86_64-linux-musl": Path("/lib/ld-musl-x86_64.so.1"),
    "aarch64-linux-gnu": Path("/usr/aarch64-linux-gnu/lib/ld-linux-aarch64.so.1"),
}
HERE = this_platform()
# Each model runs on a thread of its own, the second one three times.
MAIN = """
#include <pthread.h>
#include <stdio.h>
#include "digits.h"
#include "dense.h"

static float image[64], scores[10], x[ROWS * 8], y[ROWS * 5];

static void *read_digit(void *threads) {
    digits_module *module = digits_open();
    digits_session *session = module ? digits_session_create(module, *(int *)threads) : NULL;
    if (!session || digits_call(session, CALL image, scores)) {
        fprintf(stderr, "digits: %s\\n", digits_error());
        return threads;
    }
    digits_session_destroy(session);
    digits_close(module);
    return NULL;
}

static void *multiply(void *threads) {
    dense_module *module = dense_open();
    dense_session *session = module ? dense_session_create(module, *(int *)threads) : NULL;
    for (int i = 0; i < 3; i++)
        if (!session || dense_call(session, ROWS, x, y)) {
            fprintf(stderr, "dense: %s\\n", dense_error());
            return threads;
        }
    dense_session_destroy(session);
    dense_close(module);
    return NULL;
}

static int file(const char *path, const char *mode, float *data, size_t count) {
    FILE *f = fopen(path, mode);
    size_t done = !f ? 0 : *mode == 'r' ? fread(data, 4, count, f) : fwrite(data, 4, count, f);
    return done != count || fclose(f);
}

int main(void) {
    int threads = 2;
    pthread_t one, two;
    void *first, *second;
    if (file("image.bin", "rb", image, 64) || file("x.bin", "rb", x, ROWS * 8)) return 1;
    pthread_create(&one, NULL, read_digit, &threads);
    pthread_create(&two, NULL, multiply, &threads);
    pthread_join(one, &first);
    pthread_join(two, &second);
    if (first || second) return 2;
    return file("scores.bin", "wb", scores, 10) || file("y.bin", "wb", y, ROWS * 5);
}
"""
ROWS = 7
IMAGE = (1, 1, 8, 8)


class Two:
    """Two models, one of open size; what goes in; what the executables give."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.paths = {"digits": DIGITS, "dense": dense(folder / "dense.onnx", rows="n")}
        random = np.random.default_rng()
        self.image = random.random(IMAGE, np.float32)
        self.x = random.standard_normal((ROWS, 8), np.float32)
        self.image.tofile(folder / "image.bin")
        self.x.tofile(folder / "x.bin")
        call = "1, " if isinstance(self.executable("digits").inputs[0].shape[0], str) else ""
        (folder / "main.c").write_text(MAIN.replace("ROWS", str(ROWS)).replace("CALL ", call))

    def executable(self, name: str, target: str = "cpu") -> tw.Executable:
        return tw.compile(self.paths[name], target, threads=2)

    def save(self, kind: str, target: str = "cpu") -> Path:
        """Both as libraries of one prefix, as a user would."""
        for name in self.paths:
            self.executable(name, target).save(self.folder / "made", kind=kind, name=name)
        return self.folder / "made"

    def cross(self, kind: str, triple: str) -> Path:
        """As `save`, for another machine."""
        for name, path in self.paths.items():
            library = Library(self.folder / "made", kind, name)
            artifact = self.folder / f"{name}.tw"
            compile_file(path, artifact, f"cpu -mtriple={triple}", threads=2, library=library)
        return self.folder / "made"

    def results(self) -> tuple[np.ndarray, np.ndarray]:
        return tuple(np.fromfile(self.folder / f"{f}.bin", np.float32) for f in ("scores", "y"))

    def expected(self, target: str = "cpu") -> tuple[np.ndarray, np.ndarray]:
        (scores,) = self.executable("digits", target)(self.image)
        (y,) = self.executable("dense", target)(self.x)
        return scores.ravel(), y.ravel()

    def check(self, target: str = "cpu") -> None:
        """The program wrote the executables' bits."""
        for found, wanted in zip(self.results(), self.expected(target), strict=True):
            np.testing.assert_array_equal(found.view(np.uint32), wanted.view(np.uint32))


@pytest.fixture
def two(tmp_path):
    return Two(tmp_path)


@pytest.mark.parametrize("kind", ["library", "static"])
@needs("pkg-config")
def test_found_by_pkg_config(two, tmp_path, monkeypatch, kind):
    prefix = two.save(kind).rename(tmp_path / "moved with spaces")
    monkeypatch.setenv("PKG_CONFIG_PATH", str(prefix / "lib/pkgconfig"))
    assert run(["pkg-config", "--modversion", "dense"], tmp_path) == f"{tw.__version__}\n"
    compiler = " ".join([*find_c_compiler(), *STRICT])
    build = f"{compiler} main.c $PKG_CONFIG_FLAGS -pthread -o main"
    asked = run(["pkg-config", "--cflags", "--libs", "digits", "dense"], tmp_path).strip()
    run(["sh", "-c", build.replace("$PKG_CONFIG_FLAGS", asked)], tmp_path)
    run(["./main"], tmp_path, {"LD_LIBRARY_PATH": str(prefix / "lib")})
    two.check()


CMAKE = """\
cmake_minimum_required(VERSION 3.10)
project(two LANGUAGES C)
find_package(digits 0.1 REQUIRED)
find_package(dense REQUIRED)
find_package(dense REQUIRED)  # a second time, as subprojects do
find_package(Threads REQUIRED)
add_executable(main main.c)
target_link_libraries(main PRIVATE digits::digits dense::dense Threads::Threads)
"""


@pytest.mark.parametrize("kind", ["library", "static"])
@needs("cmake", "make")
def test_found_by_cmake(two, tmp_path, kind):
    prefix = two.save(kind).rename(tmp_path / "moved with spaces")
    (tmp_path / "CMakeLists.txt").write_text(CMAKE)
    found = f"-DCMAKE_PREFIX_PATH={prefix}"
    run(["cmake", "-S", ".", "-B", "build", "-G", "Unix Makefiles", found], tmp_path)
    run(["cmake", "--build", "build"], tmp_path)
    run(["build/main"], tmp_path, {})
    two.check()


def test_as_c_arrays(two, tmp_path):
    made = two.save("c-array")
    sources = ["main.c", "made/digits.c", "made/dense.c"]
    run([*find_c_compiler(), *STRICT, *sources, "-Imade", "-pthread", "-o", "main"], tmp_path)
    run(["./main"], tmp_path, {})
    assert {p.name for p in made.iterdir()} > {"digits.h", "dense.h", "example.c"}
    two.check()


def test_the_example_asks_for_what_only_a_run_tells(tmp_path):
    graph = helper.make_graph(
        [helper.make_node("NonZero", ["x"], ["y"])],
        "nonzero",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, "n"])],
        [helper.make_tensor_value_info("y", TensorProto.INT64, [2, "m"])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    exe = tw.compile(model, threads=1)
    folder = exe.save(tmp_path / "made", kind="static")
    assert "nonzero_call" not in (folder / "include/nonzero.h").read_text()
    x = np.array([0, 1, 0, 2], np.float32)
    output, text = run_example(folder, "nonzero", x.tobytes())
    assert output == exe(x[:, None])[0].tobytes() and text.startswith("y: 32 bytes")


# ---- Other machines ----------------------------------------------------------------------------


def how_to_run(triple: str, kind: str, prefix: Path) -> list[str]:
    """The command that runs a program for a platform here; skips where there is none."""
    if triple == HERE:
        return []
    if kind == "library" and triple not in LOADERS:
        pytest.skip(f"no loader of shared libraries for {triple} is packaged")
    loader = LOADERS.get(triple) if kind == "library" or "gnu" in triple else None
    if loader and not loader.exists():
        pytest.skip(f"not installed: {loader}")
    if not triple.startswith("aarch64"):
        return [str(loader), "--library-path", str(prefix / "lib")] if loader else []
    if QEMU is None:
        pytest.skip("qemu-user is not installed")
    path = ["-E", f"LD_LIBRARY_PATH={prefix}/lib"] if loader else []
    return [QEMU, *(["-L", str(loader.parents[1])] if loader else []), *path]


QUICK = "aarch64-linux-musl", "static"  # for others zig first builds other C libraries: minutes


@ziglang
@pytest.mark.parametrize(
    ("triple", "kind"),
    [
        pytest.param(triple, kind, marks=() if (triple, kind) == QUICK else pytest.mark.slow)
        for triple in CROSS
        for kind in ("library", "static")
    ],
)
def test_for_another_machine(two, tmp_path, triple, kind):
    prefix = two.cross(kind, triple)
    (file,) = (prefix / "lib").glob("libdense.*")
    machine = {"x86_64": 62, "aarch64": 183}[triple.split("-")[0]]
    data = file.read_bytes()
    elf = data[data.index(b"\x7fELF") :]
    assert int.from_bytes(elf[18:20], "little") == machine
    command = how_to_run(triple, kind, prefix)
    linked = ["-static"] if triple.endswith("-musl") and kind == "static" else []
    compiler = find_toolchain(triple).compiler
    sources = ["main.c", *flags(prefix, "digits", "dense")]
    run([*compiler, *STRICT, "-O2", *sources, *linked, "-o", "main"], tmp_path)
    run([*command, "./main"], tmp_path, {})
    if triple.split("-")[0] == HERE.split("-")[0]:
        two.check(f"cpu -mtriple={triple}")
    for found, wanted in zip(two.results(), two.expected(), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


# ---- Under valgrind ----------------------------------------------------------------------------


@pytest.mark.slow
@needs("valgrind")
@pytest.mark.skipif(not HERE.startswith("x86_64"), reason="the processor named is x86-64")
@pytest.mark.parametrize("kind", KINDS)
def test_valgrind_finds_nothing(two, tmp_path, kind):
    target = "cpu -mcpu=haswell"  # valgrind knows no AVX-512
    made = two.save(kind, target)
    built = ["made/digits.c", "made/dense.c", "-Imade"] if kind == "c-array" else []
    linked = [] if built else flags(made, "digits", "dense")
    command = [*find_c_compiler(), "-g", "main.c", *built, *linked, "-pthread", "-o", "main"]
    run(command, tmp_path)
    checks = ["--error-exitcode=9", "--leak-check=full", "--errors-for-leak-kinds=all"]
    run(["valgrind", *checks, "--track-fds=yes", "./main"], tmp_path)
    two.check(target)
