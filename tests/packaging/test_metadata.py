"""What the two projects say of themselves, and what the build backend takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import parse_wheel_filename

from tests.packaging.built import BACKEND, ROOT, native, run_hook

tomllib = pytest.importorskip("tomllib", reason="Python 3.11 brings it")


def project(file: Path) -> dict[str, Any]:
    return tomllib.loads(file.read_text())["project"]


WHOLE, ALONE = project(ROOT / "pyproject.toml"), project(BACKEND / "runtime" / "pyproject.toml")


def test_the_runtime_needs_numpy_alone() -> None:
    assert [Requirement(line).name for line in ALONE["dependencies"]] == ["numpy"]
    assert ALONE["dependencies"][0] in WHOLE["dependencies"]


def test_the_projects_agree() -> None:
    for name in ("requires-python", "license", "license-files", "dynamic", "readme"):
        assert WHOLE[name] == ALONE[name], name
    assert set(ALONE["classifiers"]) == {
        line for line in WHOLE["classifiers"] if not line.endswith("Compilers")
    }


def test_torch_is_not_pinned_for_users() -> None:
    (line,) = WHOLE["optional-dependencies"]["torch"]
    assert all(Requirement(line).specifier.contains(v) for v in ("2.6.0", "2.13.0", "2.15.0"))


def test_the_classifiers_name_the_supported_pythons() -> None:
    said = [line.rpartition(" ")[2] for line in WHOLE["classifiers"] if "Python :: 3." in line]
    assert said == [f"3.{minor}" for minor in range(10, 15)]


def test_platforms_are_tags_of_wheels() -> None:
    assert {p.partition("_")[0] for p in native.PLATFORMS} >= {"manylinux", "musllinux", "macosx"}
    for platform in native.PLATFORMS:
        *_, tags = parse_wheel_filename(f"tilewright-1.0-py3-none-{platform}.whl")
        assert {tag.platform for tag in tags} == {platform}
        suffix = {"mac": ".dylib", "win": ".dll"}.get(platform[:3], ".so")
        assert native.library_name(platform) == "libtilewright" + suffix


def test_a_platform_that_is_not_known_is_refused_with_those_that_are() -> None:
    settings = {"platform": "beos_x86"}
    call = f"hooks.build_wheel(sys.argv[1], {settings})"
    with pytest.raises(
        AssertionError, match=r"platform=beos_x86: platform is one of manylinux_2_17"
    ):
        run_hook(call, "unused")


def test_other_platforms_ask_for_the_compiler_that_builds_for_them() -> None:
    settings = {"platform": "win_amd64"}
    assert "ziglang" in run_hook(f"hooks.get_requires_for_build_wheel({settings})")


def test_the_backend_names_the_compiler_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(RuntimeError, match="no C compiler for here: install one, set CC, or `pip"):
        native.find_compiler()
    with pytest.raises(RuntimeError, match="no C compiler for win_amd64: `pip install ziglang`"):
        native.find_compiler("win_amd64")
