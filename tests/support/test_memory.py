"""What is about memory is told apart from what is not, however it is said."""

from __future__ import annotations

import errno
import platform
from pathlib import Path

import pytest

from tilewright.support.errors import CompileError, ImportFault, MemoryFault
from tilewright.support.memory import exhausted, give_back, memory_told, room

ABOUT = [
    MemoryError("Unable to allocate 3 GiB"),
    OSError(errno.ENOMEM, "Cannot allocate memory"),
    RuntimeError("can't start new thread"),
    ImportError("x.so: failed to map segment from shared object"),
    OSError("x.so: cannot enable executable stack: Cannot allocate memory"),
]


@pytest.mark.parametrize("fault", ABOUT, ids=repr)
def test_faults_of_memory(fault):
    made = exhausted("cannot do it", fault, "in its middle")
    assert isinstance(made, MemoryFault) and isinstance(made, MemoryError)
    assert str(made).startswith(f"cannot do it: out of memory in its middle: {fault}")


@pytest.mark.parametrize("fault", ABOUT, ids=repr)
def test_faults_that_came_of_one(fault):
    def read():
        try:
            raise fault
        except Exception:
            raise ImportFault("cannot read m.onnx", "no reason") from None

    told = pytest.raises(MemoryFault, match="cannot compile: out of memory: ")
    with told, memory_told("cannot compile"):
        read()


@pytest.mark.parametrize(
    "fault", [OSError(errno.ENOENT, "No such file"), RuntimeError("odd"), CompileError("a", "b")]
)
def test_other_faults_stay_what_they_are(fault):
    assert exhausted("cannot do it", fault) is None
    with pytest.raises(type(fault)) as found, memory_told("cannot do it"):
        raise fault
    assert found.value is fault


def test_a_fault_of_memory_is_told_once():
    fault = MemoryFault("cannot run 'm'", "out of memory")
    assert exhausted("cannot compile", fault) is fault


def test_room():
    room(1 << 20, "nothing")
    with pytest.raises(MemoryError, match="a giant may need 4611686018427 MB"):
        room(4611686018427 << 20, "a giant")


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other libraries are not asked")
def test_freed_memory_is_given_back():
    """Small blocks below one that is still in use."""
    blocks = [bytes(100_000) for _ in range(400)]
    kept = blocks.pop()
    held = anonymous_bytes()
    del blocks
    give_back()
    assert held - anonymous_bytes() > 20 << 20
    assert not any(kept)


def anonymous_bytes() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("RssAnon"))
