"""The calibration of this machine: kept, used by "cpu" alone, and ignored when it is damaged."""

import json
import warnings

import pytest

from tilewright.target import calibration, target
from tilewright.target.target import _read, keep_costs

FOUND = {"multiply_adds": 1.5, "memory": 9.0}


@pytest.fixture(autouse=True)
def folder(monkeypatch, tmp_path):
    """A cache of one's own, and targets that are read anew."""
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path / "cache"))
    _read.cache_clear()
    yield tmp_path / "cache"
    _read.cache_clear()


def test_this_machine_has_what_was_calibrated():
    default = target("cpu")
    assert default == target("cpu -costs=default")
    path = keep_costs(default, FOUND)
    assert path is not None and path == calibration.path_of(default.processor)
    assert calibration.fetch(default.processor) == FOUND
    own = target("cpu")
    assert (own.costs.multiply_adds, own.costs.memory) == (1.5, 9.0)
    assert own.costs.transform == default.costs.transform
    assert target(str(own)) == own
    assert target("cpu -cores=1").costs == own.costs
    keep_costs(own, None)
    assert target("cpu") == default and not path.exists()


def test_other_machines_have_not():
    before = [
        target(line) for line in ("cpu -mcpu=haswell", "cpu -vector=16", "cpu -costs=default")
    ]
    keep_costs(target("cpu"), FOUND)
    assert target("cpu").costs.memory == 9.0
    assert [target(str(t)) for t in before] == before
    assert target("cpu -vector=16") == before[1] and target("cpu -costs=default") == before[2]
    assert target("cpu -costs=loads:1").costs.memory == before[2].costs.memory


def written(**changes):
    kept = {"version": calibration.VERSION, "machine": target("cpu").processor, "costs": FOUND}
    return json.dumps(kept | changes).encode()


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (lambda: b"", "Expecting value"),
        (lambda: b"\x80\xff\0", "decode"),
        (lambda: written()[:-9], "Unterminated string"),
        (lambda: b"[" * 100_000, ""),
        (lambda: b"[1, 2]", "holds no constants"),
        (lambda: written(costs=None), "holds no constants"),
        (lambda: written(version=0), "another machine"),
        (lambda: written(machine="cpu -mcpu=haswell"), "another machine"),
        (lambda: written(costs={"speed": 3}), "there is no constant 'speed'"),
        (lambda: written(costs={"second_cache": 9.0}), "there is no constant 'second_cache'"),
        (lambda: written(costs={"memory": "9"}), "memory:9 is not a number"),
        (lambda: written(costs={"memory": True}), "memory:True is not a number"),
        (lambda: written(costs={"memory": 0}), "memory:0 is not between"),
        (lambda: written(costs={"memory": float("nan")}), "memory:nan is not between"),
    ],
)
def test_a_damaged_file_is_ignored_with_a_warning(data, why):
    default = target("cpu")
    path = keep_costs(default, FOUND)
    assert path is not None
    path.write_bytes(data())
    _read.cache_clear()
    with pytest.warns(calibration.CalibrationWarning, match="machine --calibrate") as told:
        assert target("cpu") == default
    assert why in str(told[0].message) and str(path) in str(told[0].message)


def test_a_folder_that_takes_no_files(folder):
    folder.write_text("not a folder")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        default = target("cpu")
        assert keep_costs(default, FOUND) is None
        assert target("cpu") == default
        keep_costs(default, None)


def test_the_cache_makes_no_room_by_forgetting_machines(folder):
    from tilewright.support.cache import Cache

    default = target("cpu")
    path = keep_costs(default, FOUND)
    assert path is not None
    cache = Cache(limit=1)
    cache.store_bytes("model", bytes(100))
    cache.clear()
    assert path.exists()
