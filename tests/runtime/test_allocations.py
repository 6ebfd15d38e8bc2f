"""A steady run asks for no memory, and the library is small."""

import re

import pytest

from tests.runtime.allocations import count_requests
from tests.runtime.images import identity_program, scale_program, symbolic_program
from tilewright.runtime.artifact import write_artifact
from tilewright.runtime.bindings import NATIVE, SUFFIX


@pytest.mark.parametrize("program", [identity_program, scale_program, symbolic_program])
@pytest.mark.parametrize("threads", [1, 2])
def test_steady_runs_allocate_nothing(program, threads, tmp_path):
    write_artifact(program(), tmp_path / "m.tw")
    requests, _ = count_requests(tmp_path / "m.tw", threads, runs=200, dim=1000)
    assert requests == 0


def test_library_is_small():
    assert (NATIVE / f"libtilewright{SUFFIX}").stat().st_size <= 100_000


def test_sources_stay_within_their_budget():
    lines = sum(len(path.read_text().splitlines()) for path in NATIVE.glob("*.[ch]"))
    assert lines < 1920  # 150 of them for Windows and macOS


def test_header_alone_is_public():
    """Every function of the header is exported, and nothing else is."""
    import subprocess

    header = (NATIVE / "tilewright.h").read_text()
    declared = set(re.findall(r"TW_API[^;]*?\b(tw_\w+)\(", header))
    listing = subprocess.run(
        ["nm", "-D", "--defined-only", str(NATIVE / f"libtilewright{SUFFIX}")],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert {line.split()[-1] for line in listing.splitlines()} == declared
