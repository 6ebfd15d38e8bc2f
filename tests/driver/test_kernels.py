"""Workers that compile kernels end with the process that started them."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

SERVE = "from tilewright.driver.kernels import serve; serve()"


@pytest.mark.skipif(os.name != "posix", reason="other systems keep the number of a dead parent")
def test_a_worker_ends_with_its_parent() -> None:
    """Its pipe stays open here, as it does while a worker is busy and does not read."""
    code = f"""
import os, subprocess, sys, time
worker = subprocess.Popen([sys.executable, "-c", {SERVE!r}])
print(worker.pid, flush=True)
time.sleep(600)
"""
    parent = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert parent.stdin is not None and parent.stdout is not None
    worker = int(parent.stdout.readline())
    while b"tilewright" not in _command(worker):  # until it is itself and has seen its parent
        time.sleep(0.05)
    time.sleep(3.0)
    os.kill(worker, 0)
    parent.kill()
    parent.wait()
    end = time.monotonic() + 60
    while time.monotonic() < end:
        try:
            os.kill(worker, 0)
        except ProcessLookupError:
            break
        time.sleep(0.1)
    else:
        pytest.fail("the worker outlives its parent")
    parent.stdin.close()
    parent.stdout.close()


def _command(pid: int) -> bytes:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read()
    except FileNotFoundError:
        return b"tilewright"  # a system without /proc: the wait below has to do
