"""The constants of the analytic model: as text, in a target's line, and what cannot be one."""

import dataclasses

import pytest

from tilewright.support.errors import CompileError
from tilewright.target import costs, target
from tilewright.target.costs import COMMON, HALVES, WIDE, Costs


def test_every_constant_says_its_unit_and_what_it_decides():
    for constant in dataclasses.fields(Costs):
        assert constant.metadata["unit"] and constant.metadata["decides"]


def test_wide_vectors_of_one_port_cost_twice_as_much():
    assert target("cpu -mcpu=znver4").costs == HALVES
    assert target("cpu -mcpu=znver4 -vector=32").costs == COMMON
    for name in ("haswell", "neoverse-n1"):
        assert target(f"cpu -mcpu={name}").costs == COMMON
    assert target("cpu -mcpu=sapphirerapids").costs == WIDE


def test_the_text_gives_the_constants_back():
    own = dataclasses.replace(COMMON, loads=0.1 + 0.2, fork_join=1700.0)
    assert costs.written(COMMON, COMMON) == ""
    assert costs.read(COMMON, costs.written(own, COMMON)) == own


def test_a_target_carries_constants():
    plain = target("cpu -mcpu=haswell")
    read = target("cpu -mcpu=haswell -costs=memory:20,loads:1")
    assert read.costs == dataclasses.replace(COMMON, memory=20.0, loads=1.0)
    assert target(str(read)) == read != plain
    assert target("cpu -mcpu=haswell -costs=default") == plain
    assert target(f"cpu -mcpu=haswell -costs=memory:{COMMON.memory}") == plain
    assert read.processor == plain.processor == target("cpu -mcpu=haswell -cores=4").processor


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ("loads", "loads:'' is not a number"),
        ("loads:fast", "loads:'fast' is not a number"),
        ("lodas:1", "there is no constant 'lodas'"),
        ("loads:0", "loads:0.0 is not between"),
        ("loads:-1", "loads:-1.0 is not between"),
        ("memory:nan", "memory:nan is not between"),
        ("memory:inf", "memory:inf is not between"),
    ],
)
def test_faults_name_the_constant(told: str, why: str):
    with pytest.raises(CompileError) as fault:
        target(f"cpu -mcpu=haswell -costs={told}")
    assert why in str(fault.value) and "write name:number" in str(fault.value)


def test_two_digits():
    assert [costs.rounded(v) for v in (0.9787, 4.001, 30.15, 1629.0)] == [0.98, 4.0, 30.0, 1600.0]


def test_half_a_vector_takes_half_as_long_where_one_unit_makes_a_whole_one():
    assert HALVES.of_halves == dataclasses.replace(COMMON, memory=6.0, transform=6.5)
    assert (COMMON.of_halves, WIDE.of_halves) == (COMMON, WIDE)
