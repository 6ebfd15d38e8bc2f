"""Wheels for every platform: what they hold, what their library needs, and that it runs models.

A program in C runs each library that a machine like this one can run: its own, that of AArch64
under qemu, those of musl with musl's loader, that of Windows under Wine. What is not installed is
skipped by name: libc6-arm64-cross, musl, wine.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from packaging.utils import parse_wheel_filename

from tests.packaging.binaries import needs_of
from tests.packaging.built import BACKEND, build_wheel, native, unpack
from tests.packaging.models import write_for

pytestmark = pytest.mark.slow
PROGRAM = Path(__file__).with_name("program.c")
GLIBC = {"libc.so.6", "libpthread.so.0", "ld-linux-x86-64.so.2"}
QEMU = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")
# Where the systems of other machines lie: qemu's own variable, then Debian's folder.
ROOTS = (os.environ.get("QEMU_LD_PREFIX", "/"), "/usr/aarch64-linux-gnu")
LOADERS = {
    "manylinux_2_17_x86_64": "lib64/ld-linux-x86-64.so.2",
    "manylinux_2_17_aarch64": "lib/ld-linux-aarch64.so.1",
    "musllinux_1_2_x86_64": "lib/ld-musl-x86_64.so.1",
    "musllinux_1_2_aarch64": "lib/ld-musl-aarch64.so.1",
}


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The runtime's wheel for each platform."""
    out = tmp_path_factory.mktemp("wheels")
    return {platform: build_wheel(out, "runtime", platform) for platform in native.PLATFORMS}


def native_of(wheel: Path, out: Path) -> Path:
    return unpack(wheel, out) / "tilewright_runtime" / "runtime" / "native"


@pytest.mark.parametrize("platform", native.PLATFORMS)
def test_a_wheel_is_for_its_platform_alone(wheels, platform: str, tmp_path: Path) -> None:
    name, _, _, tags = parse_wheel_filename(wheels[platform].name)
    assert name == "tilewright-runtime" and [str(tag) for tag in tags] == [f"py3-none-{platform}"]
    held = native_of(wheels[platform], tmp_path).iterdir()
    (info,) = tmp_path.glob("*.dist-info")
    assert f"Tag: py3-none-{platform}\n" in (info / "WHEEL").read_text()
    assert "Root-Is-Purelib: false" in (info / "WHEEL").read_text()
    libraries = {p.name for p in held if p.suffix in (".so", ".dylib", ".dll", ".lib")}
    assert libraries == {native.library_name(platform)}


@pytest.mark.parametrize("platform", native.PLATFORMS)
def test_a_library_needs_what_its_platform_has(wheels, platform: str, tmp_path: Path) -> None:
    needs = needs_of(native_of(wheels[platform], tmp_path) / native.library_name(platform))
    is_arm = platform.endswith(("aarch64", "arm64"))
    assert needs.machine == ("AArch64" if is_arm else "x64")
    if platform.startswith("manylinux"):
        assert needs.libraries <= GLIBC and (2, 0) < needs.glibc <= (2, 17)
    elif platform.startswith("musllinux"):
        assert needs.libraries == {"libc.so"}
    elif platform.startswith("macosx"):
        assert needs.libraries == {"/usr/lib/libSystem.B.dylib"} and needs.macos == (11, 0)
        assert needs.is_signed or not is_arm  # Apple's ARM machines load nothing unsigned
    else:
        system = ("api-ms-win-crt-", "kernel32.dll")
        assert needs.libraries and all(name.startswith(system) for name in needs.libraries)


@pytest.mark.parametrize("platform", native.PLATFORMS)
def test_no_path_of_the_build_is_left_in_a_library(wheels, platform: str, tmp_path: Path) -> None:
    data = (native_of(wheels[platform], tmp_path) / native.library_name(platform)).read_bytes()
    for word in (str(BACKEND.parent), "/tmp/tmp", "building-"):
        assert word.encode() not in data, word


def program_for(platform: str, folder: Path, out: Path) -> Path:
    """The program, linked with a platform's library."""
    built = out / ("program.exe" if platform.startswith("win") else "program")
    library = folder / native.library_name(platform)
    command = [*native.find_compiler(platform), "-O1", "-Wall", "-Werror", f"-I{folder}"]
    command += ["-dynamic"] if platform.startswith("musl") else []
    command += [str(PROGRAM), str(library), "-o", str(built)]
    subprocess.run(command, cwd=out, check=True)
    shutil.copyfile(library, out / library.name)
    return built


def runner(platform: str) -> list[str]:
    """The command that runs a platform's programs here; skips the test where none does."""
    if platform == "win_amd64":
        return [shutil.which("wine") or pytest.skip("wine is not installed")]
    loader = LOADERS[platform]
    if not platform.endswith("aarch64"):
        return [] if Path("/", loader).exists() else pytest.skip(f"{loader} is not installed")
    root = next((root for root in ROOTS if Path(root, loader).exists()), None)
    if QEMU is None or root is None:
        pytest.skip(f"qemu-aarch64 or {loader} is not installed")
    return [QEMU, "-L", root]


@pytest.mark.parametrize("platform", [*LOADERS, "win_amd64"])
@pytest.mark.parametrize("name", ["residual", "lstm"])
def test_a_program_runs_models(wheels, platform: str, name: str, tmp_path: Path) -> None:
    before = runner(platform)
    write_for(tmp_path, name, "cpu -mcpu=cortex-a72" if platform.endswith("aarch64") else "cpu")
    built = program_for(platform, native_of(wheels[platform], tmp_path), tmp_path)
    told = np.load(tmp_path / f"{name}.npz")
    told["input"].tofile(tmp_path / "x.bin")
    env = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path), "WINEDEBUG": "-all"}
    env["WINEPREFIX"] = str(tmp_path.parent / "wine")
    done = subprocess.run(
        [*before, str(built), f"{name}.tw", "2", "x.bin", "y.bin"],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    expected = told["output0"]
    found = np.fromfile(tmp_path / "y.bin", expected.dtype).reshape(expected.shape)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
