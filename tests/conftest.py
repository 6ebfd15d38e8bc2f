"""Options of the whole suite."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.sampling import left_out

T = TypeVar("T")
PART = 3  # one of so many draws, settings or cases is tried, unless --long asks for all
# Each process of `-n auto` imports PyTorch and compiles models: some two gigabytes.
MOST_PROCESSES = 8
_numbers = itertools.count()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="write what is printed into documentation"
    )
    parser.addoption(
        "--long", action="store_true", help=f"long tests: every case, not one of {PART}"
    )


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Where slow tests alone run, files that do not know the word are not even imported."""
    wanted = config.option.markexpr != "slow" or collection_path.suffix != ".py"
    return None if wanted or "slow" in collection_path.read_text() else True


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of matrices marked `sampled` a part is tried, unless --long or a name asks for all."""
    is_named = config.option.keyword or any("[" in argument for argument in config.args)
    if not (is_named or config.getoption("--long")) and (left := left_out(items, PART)):
        config.hook.pytest_deselected(items=left)
        gone = set(left)
        items[:] = [item for item in items if item not in gone]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    return min(os.cpu_count() or 1, MOST_PROCESSES)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Tests of seconds stand beside ones of minutes: who has done all takes from who has not."""
    from xdist.scheduler import WorkStealingScheduling

    return WorkStealingScheduling(config, log) if config.getoption("dist") == "load" else None


@pytest.fixture(scope="session")
def draws(request: pytest.FixtureRequest) -> Callable[[int], int]:
    """How many of so many random cases a long test tries: a part, with --long all of them."""
    part = 1 if request.config.getoption("--long") else PART
    return lambda count: -(-count // part)


@pytest.fixture(scope="session")
def turn(request: pytest.FixtureRequest) -> Callable[[Sequence[T], int], Sequence[T]]:
    """Which of several settings case number n of a long test is tried in: a part of them or one, so
    that each is tried in many cases, with --long all."""
    most = 1 if request.config.getoption("--long") else PART

    def chosen(settings: Sequence[T], n: int) -> Sequence[T]:
        part = min(most, len(settings))
        return settings[n % part :: part]

    return chosen


@pytest.fixture(autouse=True)
def cache_of_its_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """No test finds what another one, which may have changed the compiler, has compiled."""
    folder = tmp_path_factory.getbasetemp() / f"cache-{next(_numbers)}"
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(folder))


@pytest.fixture(autouse=True)
def llvm_text_is_verified(monkeypatch: pytest.MonkeyPatch) -> None:
    """That of kernels too. Tests that need no LLVM do not load it for this."""
    if (kernels := sys.modules.get("tilewright.driver.kernels")) is not None:
        monkeypatch.setattr(kernels, "VERIFY", True)


@pytest.fixture(autouse=True)
def no_operators_are_left() -> Iterator[None]:
    """What a test registers, no other test has; what installed packages registered stays."""
    yield
    if (known := sys.modules.get("tilewright.graph.outside")) is not None and known.OWN:
        plugins = sys.modules.get("tilewright.graph.plugins")
        for name in known.OWN.keys() - (plugins.FOUND if plugins else set()):
            known.forget(name)
        if (importer := sys.modules.get("tilewright.frontend.torch.own")) is not None:
            importer.register(())
