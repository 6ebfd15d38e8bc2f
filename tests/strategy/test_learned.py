"""Rows of what was learnt: which functions they are for, and what they decide there."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.tune.functions import norm, product, scaled
from tilewright.ir.expr import Var
from tilewright.ir.stmt import Func
from tilewright.strategy.learned import Row, Table, machine_class, read, row_of, shipped, traits
from tilewright.strategy.select import default
from tilewright.strategy.space import decisions
from tilewright.target.target import target

OLD, HERE = target("cpu -mcpu=nehalem"), target("cpu -mcpu=haswell")
EMPTY = Table()


def row(take: dict[str, Any], **where: Any) -> Row:
    return Row("matmul", machine_class(OLD), where, take, 1.1, 1.05, 3, "1.0")


def decided(func: Func, table: Table, machine: Any = OLD, threads: int = 1) -> dict[str, Any]:
    return decisions(default(func, machine, threads, learned=table))


def test_a_row_decides_and_what_follows_is_the_strategys_own() -> None:
    plain = decided(product(), EMPTY)
    by = decided(product(), Table([row({"tile_n": 16})]))
    assert (plain["C.tile_n"], by["C.tile_n"]) == (8, 16)
    assert by["C.tile_m"] < plain["C.tile_m"]  # as many as registers take beside 4 vectors
    whole = decided(product(), Table([row({"strategy": "sketch"})]))
    assert whole["strategy"] == "sketch" and "C.lane" in whole


def test_what_is_not_legal_or_not_asked_for_is_the_formulas() -> None:
    plain = decided(product(), EMPTY)
    for take in ({"tile_m": 7}, {"tile_m": "6"}, {"nonsense": 1}, {"strategy": "lost"}):
        assert decided(product(), Table([row(take)])) == plain
    own = decided(product(), Table([row({"tile_m": 7, "tile_n": 4})]))
    assert own["C.tile_n"] == 4


def test_a_row_is_for_its_role_its_machines_and_its_ranges() -> None:
    table = Table([row({"tile_n": 16}, row=(40, 50), steps=(None, 96))])
    plain = [decided(f, EMPTY) for f in (product(), product(51), product(k=97), norm())]
    by = [decided(f, table) for f in (product(), product(51), product(k=97), norm())]
    assert [a == b for a, b in zip(plain, by, strict=True)] == [False, True, True, True]
    assert decided(product(), table, HERE) == decided(product(), EMPTY, HERE)
    assert table.fitting(product(Var("n")), OLD, 1) is None  # a size is open
    first = Table([row({"tile_n": 4}, row=(48, 48)), row({"tile_n": 16})])
    assert [decided(product(m), first)["C.tile_n"] for m in (48, 49)] == [4, 16]


def test_traits() -> None:
    assert traits(product(48, 64, 96), 2) == {
        "steps": 96, "results": 48 * 64, "last": 64, "row": 48, "column": 1, "taps": 96,
        "blocks": 2, "kbytes": (48 * 96 + 96 * 64 + 48 * 64) * 4 // 1024, "threads": 2,
    }  # fmt: skip
    assert traits(scaled(1000), 1)["last"] == 1000
    assert traits(norm(Var("rows")), 1) is None


def test_machines_of_a_class() -> None:
    lines = "nehalem", "sandybridge", "haswell", "skylake-avx512", "znver3"
    of = [machine_class(target(f"cpu -mcpu={name}")) for name in lines]
    assert of[:3] == ["cpu 16x4", "cpu 16x8", "cpu 16x8 fma"] and of[4] == of[2] != of[3]


def test_sums_have_one_order_for_any_number_of_threads() -> None:
    table = Table([row({"tile_n": 16})])
    of = [decided(product(96, 96, 96), table, threads=n) for n in (1, 2)]
    assert of[0]["C.tile_n"] == of[1]["C.tile_n"] == 16
    fields = row({"parallel": 2}, threads=(2, None)).fields()
    assert row_of(fields).where == {"threads": (2, None)}
    with pytest.raises(ValueError, match="threads"):
        row_of(fields | {"take": {"parallel": 2, "tile_n": 16}})


def test_a_table_is_text() -> None:
    first = row({"tile_n": 16, "pad.compute_at": "root"}, row=(None, 50))
    table = Table([first, row({"order": 1})])
    again = read(table.lines())
    assert again.rows == table.rows and again.digest == table.digest != EMPTY.digest == ""
    assert str(table.rows[0]) == (
        "matmul on cpu 16x4 where row ≤ 50: pad.compute_at root, tile_n 16"
    )
    head, line, _ = table.lines()
    for wrong in (
        [], [line], [head, "{"], [head, "[]"], [head, line.replace("take", "taken")],
        [head, json.dumps(row({}).fields())], [head, line.replace('"row": [null', '"row": ["a"')],
        [head, line.replace('{"row"', '{"weather"')], [head.replace("1}", "2}"), line],
    ):  # fmt: skip
        with pytest.raises(ValueError):
            read(wrong)


def test_what_a_table_has_of_other_families_stays() -> None:
    mine, theirs = row({"tile_n": 16}), Row("reduction", machine_class(OLD), {}, {"order": 1})
    table = Table([mine]).over(Table([row({"tile_n": 4}), theirs]))
    assert table.rows == (mine, theirs)


def test_the_shipped_table_is_read() -> None:
    assert read(shipped().lines()).digest == shipped().digest
    assert all(r.low > 1 and r.workloads > 1 and r.build for r in shipped())
