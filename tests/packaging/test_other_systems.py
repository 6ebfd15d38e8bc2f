"""What is asked of systems that are not here: Windows lacks functions of POSIX, Apple's keeps a
register for itself."""

from __future__ import annotations

import functools
import operator
import os
import re
from pathlib import Path

import numpy as np
import pytest

from tilewright import te
from tilewright.codegen.llvm import emit
from tilewright.codegen.llvm_compile import compile_assembly
from tilewright.driver.identity import read_content
from tilewright.lower.pipeline import lower
from tilewright.runtime import signing
from tilewright.runtime.artifact import MAGIC
from tilewright.support.memory import memory_limit
from tilewright.target.processors import as_linux
from tilewright.target.target import target


def test_memory_without_sysconf(monkeypatch: pytest.MonkeyPatch) -> None:
    """The native runtime asks the system itself."""
    monkeypatch.delattr(os, "sysconf")
    assert memory_limit.__wrapped__() >= 1 << 40


def test_files_are_hashed_without_pread(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(np.random.default_rng(1).bytes(10 << 20))
    with path.open("rb") as file:
        expected = read_content(file.fileno(), 10 << 20)
        monkeypatch.delattr(os, "pread")
        assert read_content(file.fileno(), 10 << 20) == expected


def test_signed_files_are_read_without_posix(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    content = MAGIC + bytes(range(256)) * 1000
    (tmp_path / "m.tw").write_bytes(content)
    for name in ("pread", "O_NONBLOCK"):
        monkeypatch.delattr(os, name)
    assert signing._read(tmp_path / "m.tw").tobytes() == content


@pytest.mark.parametrize(
    ("said", "taken"),
    [
        ("x86_64-unknown-linux-gnu", "x86_64-unknown-linux-gnu"),
        ("aarch64-alpine-linux-musl", "aarch64-alpine-linux-musl"),
        ("x86_64-pc-windows-msvc", "x86_64-unknown-linux-gnu"),
        ("arm64-apple-darwin24.1.0", "aarch64-unknown-linux-gnu"),
        ("sparc64-sun-solaris", "sparc64-sun-solaris"),
    ],
)
def test_code_is_that_of_linux(said: str, taken: str) -> None:
    assert as_linux(said) == taken


def test_code_for_aarch64_leaves_the_systems_register_alone() -> None:
    """The addresses of 40 tensors take all general registers that there are."""
    tensors = [te.placeholder((64,), name=f"A{n}") for n in range(40)]
    total = te.compute((64,), lambda i: functools.reduce(operator.add, [a[i] for a in tensors]))
    machine = target("cpu -mcpu=cortex-a72")
    emitted = emit(lower(te.func("total", tensors, [total]), machine), machine)
    used = set(re.findall(r"\b[xw](\d+)\b", compile_assembly(emitted.text, machine)))
    assert len(used) > 25 and "18" not in used
