"""Boards: the runner, spoken to directly and by SSH, on this machine and on an emulated one."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest

from tests.schedule.programs import matmul
from tilewright.runtime.toolchain import has_zig
from tilewright.strategy.space import decisions, sample
from tilewright.support.errors import InputError, ScheduleError
from tilewright.target.target import Target, target
from tilewright.tune.farm import farm as farms
from tilewright.tune.farm.addresses import devices_of
from tilewright.tune.farm.bench import FarmBench
from tilewright.tune.farm.farm import Farm
from tilewright.tune.launcher import Code
from tilewright.tune.worker import Point

pytest.importorskip("asyncssh")

from tests.tune.boards import CORTEX, QEMU, Board
from tilewright.tune.farm.ssh import SshDevice

needs_qemu = pytest.mark.skipif(
    QEMU is None or not has_zig(), reason="qemu-user or ziglang is not installed"
)
PRODUCT = matmul(24, 32, 20)
FUNC = PRODUCT.func
INPUTS = dict(zip("ABD", PRODUCT.draw(np.random.default_rng(3)), strict=True))
EXPECTED = {"E": PRODUCT.reference(*INPUTS.values())[0].astype(np.float32)}


def points(machine: Target, count: int) -> list[Point]:
    rng, found = Random(2), dict[str, Point]()
    while len(found) < count:
        try:
            point = decisions(sample(FUNC, machine, 1, rng))
        except ScheduleError:
            continue
        found[str(point)] = point
    return list(found.values())


ENDLESS, ILLEGAL = b"\0\0\0\x14", b"\0\0\0\0"  # instructions of AArch64: b ., udf


def damaged(code: Code, how: str) -> Code:
    """The same, but it does nothing, is no code, or never ends."""
    first, *rest = code.steps
    if how == "wrong":
        return replace(code, steps=(replace(first, extent=0), *rest))
    end = len(code.image.bytes)
    image = replace(code.image, bytes=code.image.bytes + (ENDLESS if how == "late" else ILLEGAL))
    return replace(code, image=image, steps=(replace(first, offset=end), *rest))


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Board]:
    made = Board(tmp_path_factory.mktemp("board"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def bench(board: Board) -> Iterator[FarmBench]:
    """On the emulated board. Its results are checked against NumPy's."""
    machine = target(CORTEX)
    given = {"inputs": INPUTS, "expected": EXPECTED, "workers": 1}
    device = SshDevice(board.address, **board.options)
    with (
        Farm([device], machine, 1) as farm,
        FarmBench(FUNC, machine, 1, farm, **given) as it,
    ):
        assert isinstance(it, FarmBench)
        yield it


@needs_qemu
def test_an_emulated_board_measures_right_results(bench: FarmBench) -> None:
    told: dict[int, str] = {}
    some = points(bench.farm.machine, 3)
    found = bench.measure([None, *some, {"x": 1}], lambda n, o: told.update({n: o.status}))
    assert [o.status for o in found] == ["timed"] * 4 + ["refused"], [o.why for o in found]
    assert told == {n: o.status for n, o in enumerate(found)}
    assert all(0 < o.best < 10 for o in found[:4])
    finals = bench.finals(some[:2], 0.4)
    assert len(finals) == 3 and all(f.outcome.seconds for f in finals)


@needs_qemu
@pytest.mark.parametrize(
    ("how", "words"),
    [("wrong", "'E'"), ("crashed", "SIGILL"), ("late", "more than 1"), ("timed", "")],
)
def test_a_candidate_on_a_board_costs_itself(bench: FarmBench, how: str, words: str) -> None:
    code = bench._codes[None]
    assert bench._function is not None
    code = code if how == "timed" else damaged(code, how)
    outcome = bench.farm.measure(bench._function, code, 1.0).result(120)
    assert outcome.status == how and words in outcome.why


@needs_qemu
def test_code_and_arrays_are_sent_once(bench: FarmBench, monkeypatch: pytest.MonkeyPatch) -> None:
    (device,) = bench.farm.devices
    assert isinstance(device, SshDevice)
    sent, real = list[int](), device.send
    monkeypatch.setattr(device, "send", lambda data: (sent.append(len(data)), real(data)))
    code = bench._codes[None]
    assert bench._function is not None
    for _ in range(2):
        assert bench.farm.measure(bench._function, code, 9.0).result(120).status == "timed"
    assert sent and max(sent) < 600 < len(code.image.bytes)


@needs_qemu
def test_a_board_that_was_off_for_a_moment_is_used_again(
    board: Board, bench: FarmBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(farms, "PAUSE", 0.01)
    uploads = sum("cat >" in c for c in board.commands)
    board.cut()
    (found,) = bench.measure(points(bench.farm.machine, 4)[3:])
    assert found.status == "timed" and bench.farm.lanes == 1
    assert uploads == 1 == sum("cat >" in c for c in board.commands)


@needs_qemu
@pytest.mark.parametrize(
    ("machine", "words"),
    [
        ("cpu -mcpu=haswell", "it is Linux on aarch64"),
        ("cpu -mtriple=aarch64-linux-gnu -mcpu=neoverse-v2", r"it lacks bf16, .*sve"),
    ],
)
def test_a_board_of_another_kind_is_refused(board: Board, machine: str, words: str) -> None:
    device = SshDevice(board.address, **board.options)
    with pytest.raises(InputError, match=words), Farm([device], target(machine), 1):
        pass


def test_who_is_not_known_or_not_let_in_is_told_what_to_do(board: Board, tmp_path: Path) -> None:
    import asyncssh

    strange = {**board.options, "client_keys": [asyncssh.generate_private_key("ssh-ed25519")]}
    (tmp_path / "known_hosts").write_text("")
    unknown = {**board.options, "known_hosts": str(tmp_path / "known_hosts")}
    away = f"ssh://127.0.0.1:{unused_port()}"
    for address, options, words in (
        (board.address, strange, "it refused the key .*\n.*needs no password"),
        (board.address, unknown, "its host key is not trusted .*\n.*connect once with ssh"),
        ("ssh://board.invalid", board.options, "no host of that name .*\n.*ssh/config"),
        (away, board.options, "no connection: .*\n.*can be reached"),
    ):
        device = SshDevice(address, **options)
        with pytest.raises(InputError, match=words), Farm([device], target(CORTEX), 1):
            pass
    assert "cat >" not in board.commands[-1]


def unused_port() -> int:
    import socket

    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@pytest.mark.parametrize(
    ("named", "words"),
    [
        ("board", "'board': it is no device"),
        ("ssh://", "no address of a board"),
        ("ssh://host:port", "(?i)port"),
        ("ssh://user:secret@host", "has a password"),
        (["ssh://host", "ssh://host"], "named twice"),
        ([], "no device is named"),
        ([3], "3: it is no device"),
    ],
)
def test_what_is_no_address_is_refused(named, words: str) -> None:
    with pytest.raises(InputError, match=words) as fault:
        devices_of(named, target("cpu"), 1)
    assert "secret" not in str(fault.value)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    for package, address in (("asyncssh", "ssh://host"), ("ray", "ray")):
        monkeypatch.setitem(sys.modules, package, None)
        with pytest.raises(InputError, match=r"pip install 'tilewright\[farm\]'"):
            devices_of(address, target("cpu"), 1)


@pytest.mark.skipif(shutil.which("cc") is None and not has_zig(), reason="no C compiler")
def test_two_threads_of_a_board_give_the_same_results(tmp_path: Path) -> None:
    """On a board that is this machine."""
    import platform

    product, machine = matmul(120, 96, 64), target("cpu")
    inputs = dict(zip("ABD", product.draw(np.random.default_rng(3)), strict=True))
    expected = {"E": product.reference(*inputs.values())[0].astype(np.float32)}
    board = Board(tmp_path, platform.machine())
    devices = [SshDevice(board.address, **board.options)]
    try:
        with Farm(devices, machine, 2) as farm:
            given = {"inputs": inputs, "expected": expected}
            with FarmBench(product.func, machine, 2, farm, **given) as bench:
                assert [o.status for o in bench.measure([None])] == ["timed"]
                assert any(s.extent > 1 for s in bench._codes[None].steps)
    finally:
        board.close()
