"""`tw.tune` for a machine that is not here: an emulated board measures, by SSH."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tilewright as tw
from tests.driver.conftest import dense
from tests.tune.functions import product
from tilewright.runtime.toolchain import has_zig
from tilewright.support.errors import CompileError
from tilewright.target.target import target
from tilewright.tune.database import Database
from tilewright.tune.farm import farm as farms
from tilewright.tune.workload import workload

pytest.importorskip("asyncssh")

from tests.tune.boards import CORTEX, QEMU, Board
from tilewright.tune.farm.ssh import SshDevice

pytestmark = pytest.mark.skipif(
    QEMU is None or not has_zig(), reason="qemu-user or ziglang is not installed"
)
BUDGET: dict[str, Any] = {"seconds": 2.0, "trials": 4, "threads": 1, "database": "records.db"}


@pytest.fixture
def board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Board]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(farms, "PAUSE", 0.01)
    made = Board(tmp_path)
    yield made
    made.close()


def test_a_function_and_a_model_are_tuned_for_a_board(board: Board, tmp_path: Path) -> None:
    given = {"target": CORTEX, "devices": SshDevice(board.address, **board.options), **BUDGET}
    func = product(8, 16, 12)
    found = tw.tune(func, **given)
    assert found.executable is None and found.schedule is not None
    assert 0 < found.after <= found.before and found.trials > 0
    model = dense(tmp_path / "dense.onnx")
    whole = tw.tune(model, **given)
    assert whole.executable is None and ("a call is the sum" in whole.decided) == (whole.ratio > 1)
    assert whole.tasks and whole.before == sum(t.launches * t.default for t in whole.tasks)
    with Database("records.db") as records:
        assert records.stats().trials == found.trials + whole.trials
        assert records.champion(workload(func), target(CORTEX), 1) is not None
    artifact = tw.export(model, "dense.tw", target=CORTEX, threads=1, database="records.db")
    assert artifact.stat().st_size > 0


def test_what_was_measured_is_kept_when_the_board_vanishes(board: Board) -> None:
    seen: list[str] = []

    def told(part: float, what: str) -> None:
        seen.append(what)
        board.close()

    device = SshDevice(board.address, **board.options)
    given = {**BUDGET, "seconds": 60.0, "trials": None}
    with (
        pytest.warns(farms.FarmWarning, match="is used no more"),
        pytest.raises(CompileError, match=r"no device is left: ssh://(.|\n)*is recorded"),
    ):
        tw.tune(product(8, 16, 12), CORTEX, devices=[device], progress=told, **given)
    with Database("records.db") as records:
        assert seen and records.stats().trials > 0
