"""Machines of a Ray cluster, which is started on this one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from tests.schedule.programs import matmul
from tilewright.support.errors import InputError
from tilewright.target.target import target
from tilewright.tune.farm import farm as farms
from tilewright.tune.farm.addresses import devices_of
from tilewright.tune.farm.bench import FarmBench
from tilewright.tune.farm.cluster import RayDevice
from tilewright.tune.farm.farm import Farm

ray: Any = pytest.importorskip("ray")

CPU = target("cpu")
FUNC = matmul(24, 32, 20).func


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    os.environ["RAY_ENABLE_UV_RUN_RUNTIME_ENV"] = "0"
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, configure_logging=False)
    yield
    ray.shutdown()


def test_where_no_cluster_is_that_is_said() -> None:
    with pytest.raises(InputError, match=r"no cluster answers there(.|\n)*ray start --head"):
        devices_of("ray", CPU, 1)


@pytest.mark.usefixtures("cluster")
def test_a_node_measures_and_what_it_had_in_hand_is_not_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(farms, "PAUSE", 0.01)
    (device,) = devices_of("ray", CPU, 1)
    assert isinstance(device, RayDevice)
    with Farm([device], CPU, 1) as farm, FarmBench(FUNC, CPU, 1, farm, workers=1) as bench:
        found = bench.measure([None, {"x": 1}])
        assert [o.status for o in found] == ["timed", "refused"], found[0].why
        ray.kill(device._actor)
        finals = bench.finals([], 0.1)
        assert finals[0].point is None
        assert not bench.duel(None, None, 0.1).why
        assert farm.lanes == 1 and farm.busy[device.name] > 0


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize(
    ("machine", "threads", "words"),
    [
        ("cpu -mtriple=aarch64-linux-gnu", 1, "no node can run code .*: ray node .*: it is x86_64"),
        ("cpu", 2, "has less than 2 cores"),
    ],
)
def test_nodes_that_do_not_fit_are_told(machine: str, threads: int, words: str) -> None:
    if machine != "cpu" and not target("cpu").triple.startswith("x86_64"):
        pytest.skip("it would fit")
    with pytest.raises(InputError, match=words):
        devices_of("ray", target(machine), threads)
