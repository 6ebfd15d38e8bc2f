"""Records are what frozen dataclasses are, at a tenth of the cost of defining them."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import threading
from dataclasses import FrozenInstanceError, dataclass, field
from typing import Any

import pytest

from tilewright.support.record import record


@record
class Point:
    """One with every kind of field."""

    x: int
    y: int = 2
    tags: list[str] = field(default_factory=list)
    name: str = field(default="p", metadata={"unit": "none"})


@dataclass(frozen=True)
class Known:
    """The same, as the library makes it."""

    x: int
    y: int = 2
    tags: list[str] = field(default_factory=list)
    name: str = field(default="p", metadata={"unit": "none"})


@record
class One:
    value: int


@record
class Nothing:
    pass


@record
class Checked(One):
    more: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.value < 0:
            raise ValueError("negative")

    def __repr__(self) -> str:
        return f"<{self.value}>"


CALLS: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((1,), {}), ((1, 3), {}), ((1,), {"name": "q"}), ((), {"x": 1, "tags": ["a"]}),
]  # fmt: skip


@pytest.mark.parametrize("arguments, named", CALLS)
def test_records_hold_what_dataclasses_do(
    arguments: tuple[Any, ...], named: dict[str, Any]
) -> None:
    made, known = Point(*arguments, **named), Known(*arguments, **named)
    assert repr(made) == repr(known).replace("Known", "Point")
    assert dataclasses.asdict(made) == dataclasses.asdict(known)
    assert dataclasses.replace(made, y=7) == Point(**(vars(made) | {"y": 7}))
    for same in (copy.copy(made), copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        assert same == made and same is not made


def test_wrong_arguments_are_refused() -> None:
    for arguments, named in (((), {}), ((1, 2, [], "", 5), {}), ((1,), {"z": 1})):
        with pytest.raises(TypeError, match=r"Point\.__init__"):
            Point(*arguments, **named)


def test_defaults_are_made_for_each_object() -> None:
    assert Point(1).tags is not Point(1).tags
    assert list(inspect.signature(Point(1).__init__).parameters) == ["x", "y", "tags", "name"]


def test_equality_and_hash_follow_the_fields() -> None:
    assert Checked(1, (2,)) == Checked(1, (2,)) != Checked(1, (3,))
    assert len({Checked(1, (2,)), Checked(1, (2,)), One(1), One(1), Nothing(), Nothing()}) == 3
    assert One(1) != Checked(1) and One(1) != 1
    with pytest.raises(TypeError, match="unhashable"):
        hash(Point(1))


def test_nothing_can_be_set() -> None:
    one, name = One(1), "value"
    with pytest.raises(FrozenInstanceError):
        setattr(one, name, 2)
    with pytest.raises(FrozenInstanceError):
        delattr(one, name)
    assert one == One(1)


def test_a_class_keeps_its_own_methods() -> None:
    assert repr(Checked(5)) == "<5>" and repr(One(5)) == "One(value=5)"
    with pytest.raises(ValueError, match="negative"):
        Checked(-1)


def test_defining_one_compiles_no_text(monkeypatch: pytest.MonkeyPatch) -> None:
    def no(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr("builtins.exec", no)

    @record
    class Local:
        value: int = 1

    with pytest.raises(AssertionError):
        Local()


def test_fields_are_looked_at_when_they_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[type] = []

    def told(**how: Any) -> Any:
        return lambda cls: seen.append(cls) or dataclass(**how)(cls)  # type: ignore[func-returns-value]

    monkeypatch.setattr("tilewright.support.record.dataclass", told)

    @record
    class Base:
        value: list[int] = field(default_factory=list[int])

    @record
    class More(Base):
        name: str = "m"

    assert not seen
    assert [f.name for f in dataclasses.fields(More)] == ["value", "name"]
    assert dataclasses.is_dataclass(Base) and seen == [More, Base]
    assert More() == More([]) and len(seen) == 2


def test_threads_that_make_the_first_object_at_once_make_the_same() -> None:
    for _ in range(20):

        @record
        class Fresh:
            value: list[int] = field(default_factory=list[int])
            name: str = field(default="n")

        made: list[Any] = []
        begin = threading.Barrier(4)

        def make(
            cls: Any = Fresh, begin: threading.Barrier = begin, made: list[Any] = made
        ) -> None:
            begin.wait()
            made.append(cls())

        threads = [threading.Thread(target=make) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [(one.value, one.name) for one in made] == [([], "n")] * 4
