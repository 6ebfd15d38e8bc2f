"""A workload is what a function is, whatever its names are; points go from one name to another."""

from __future__ import annotations

import re
from collections.abc import Iterator
from random import Random

import pytest

from tests.strategy.random_shapes import FAMILIES, draw_case
from tests.tune.functions import norm, product, renamed, scaled, written
from tilewright import te
from tilewright.driver.compile import kernel_jobs, prepare
from tilewright.driver.observe import Watch
from tilewright.driver.versions import SHORT_ROWS, versions
from tilewright.graph import Builder, Graph
from tilewright.ir.dtype import f32, i64
from tilewright.ir.expr import Buffer, Const, Var
from tilewright.ir.parse import parse_func
from tilewright.ir.stmt import Block, Func, annotated
from tilewright.ir.text import print_func
from tilewright.ir.walk import blocks, fresh, rewrite
from tilewright.strategy.select import default
from tilewright.strategy.space import decisions
from tilewright.support.errors import ScheduleError
from tilewright.target.target import Target, target
from tilewright.tune.decision_names import PREFIXES, Renaming
from tilewright.tune.workload import workload

MACHINE = target("cpu -mcpu=znver4")  # whose short rows have a version


def drawn(machine: Target, each: int = 2) -> Iterator[Func]:
    """Some of the kernels of random shapes of every family, and one of two versions."""
    for name in FAMILIES:
        for number in range(each):
            yield from kernels(draw_case(number, 1, name)[0], machine)
    build = Builder("rows")
    x = build.input("x", "f32", (*map(build.symbol, "abc"),))
    yield from kernels(build.finish([build.emit("softmax", x, axis=2)]), machine)


def kernels(graph: Graph, machine: Target) -> list[Func]:
    """The functions that a graph is compiled as."""
    jobs = kernel_jobs(prepare(graph, machine, opt_level=3), machine, 1, Watch())[-1]
    return [job.func for job in jobs]


FUNCS = [*written(), *drawn(MACHINE)]


def annotate(func: Func, key: str, value: object) -> Func:
    """The function with an annotation on its first block."""
    first = blocks(func.body)[0]

    def change(b: Block) -> Block:
        same = b.name == first.name
        return b.replace(annotations=annotated(b.annotations, key, value)) if same else b

    return rewrite(func, (Block,), change)


def test_names_do_not_count() -> None:
    for number, func in enumerate(FUNCS):
        found, other = workload(func), workload(renamed(func, number))
        assert print_func(renamed(func, number)) != print_func(func)
        assert (found.key, found.text, found.family, found.sizes) == (
            other.key, other.text, other.family, other.sizes,
        )  # fmt: skip


def test_the_canonical_text_is_a_program_of_the_same_key() -> None:
    for func in FUNCS:
        found = workload(func)
        again = workload(parse_func(found.text))
        assert again.text == found.text and again.key == found.key
        assert again.names.blocks == tuple((new, new) for _, new in found.names.blocks)


def test_functions_that_differ_have_keys_of_their_own() -> None:
    texts = {print_func(f.replace(name="f")) for f in FUNCS}
    assert len({workload(f).key for f in FUNCS}) == len(
        {workload(parse_func(t)).key for t in texts}
    )
    base = product()
    others = [
        product(m=47), product(n=65), product(k=97), product(dtype="f64"), product(Var("m")),
        product(role="other"), annotate(base, "batch", 1), scaled(), scaled(1001), scaled(by=2.5),
        parse_func(print_func(base).replace("max(", "min(")),
        parse_func(print_func(base).replace('"global"', '"local"')),
        parse_func(print_func(base).replace("1.5", "1.25")),
    ]  # fmt: skip
    assert len({workload(f).key for f in (base, *others)}) == len(others) + 1


def test_the_order_of_parameters_does_not_count() -> None:
    for func in FUNCS:
        for params in (func.params[::-1], Random(1).sample(func.params, len(func.params))):
            assert workload(func.replace(params=tuple(params))).text == workload(func).text
    unused = [Buffer(n, (Const(4, i64),) * r, f32) for r, n in enumerate("pqs")] + [Var("z")]
    func = product()
    found = {
        workload(func.replace(params=(*func.params, *Random(seed).sample(unused, 4)))).key
        for seed in range(5)
    }
    assert len(found) == 1 and found != {workload(func).key}


@pytest.mark.parametrize(("key", "value"), [("note", "a b"), ("note_layer", 3), ("layer", "")])
def test_notes_for_people_and_empty_words_do_not_count(key: str, value: object) -> None:
    func = product()
    assert workload(annotate(func, key, value)).key == workload(func).key
    noted = func.replace(annotations=((key, value),))
    assert workload(noted).key == workload(func).key
    assert workload(annotate(func, "noted", value or "x")).key != workload(func).key


def test_a_family_is_what_is_left_without_sizes() -> None:
    base = workload(product())
    for sizes in ((47, 64, 96), (48, 1, 96), (480, 640, 2)):
        other = workload(product(*sizes))
        assert (other.family == base.family) and len(other.sizes) == len(base.sizes)
    m, k, n = 480, 2, 640
    assert other.sizes == (m, k, k, n, m, n, m, n, k, m, n)
    apart = [product(), product(Var("m")), product(dtype="f64"), product(role=""), norm(), scaled()]
    assert len({workload(f).family for f in apart}) == len(apart)
    assert workload(product(Var("m"))).sizes[0] == 0

    def padded(size: int, step: int) -> Func:
        x = te.placeholder((size,), "f32", "x")
        wide = te.compute(
            (size + 2,),
            lambda i: te.select((i >= 1) & (i < size + 1), x[te.minimum(i, size) - 1], 0.0),
            "wide",
        )
        return te.func("f", [x], [te.compute((size // step,), lambda i: wide[i * step + 1], "y")])

    assert workload(padded(100, 2)).family == workload(padded(64, 2)).family
    assert workload(padded(100, 2)).family != workload(padded(100, 3)).family


@pytest.mark.parametrize("threads", [1, 2])
def test_points_of_defaults_go_to_canonical_names_and_back(threads: int) -> None:
    """And to those of the function under other names, whose default has them."""
    seen: set[str] = set()
    for number, func in enumerate(FUNCS):
        other = renamed(func, number)
        here, there = workload(func), workload(other)
        point, its = (versions(f, MACHINE, threads).point for f in (func, other))
        assert decisions(default(func, MACHINE, threads)).items() <= point.items()
        canonical = here.to_canonical(point)
        assert here.from_canonical(canonical) == point
        assert there.from_canonical(canonical) == its
        assert there.to_canonical(its) == canonical
        seen.update(canonical)
    assert any(re.fullmatch(r"t\d+_local\.tile_m", name) for name in seen)
    assert any(name.startswith(f"{SHORT_ROWS}.b") for name in seen) and SHORT_ROWS in PREFIXES


@pytest.mark.parametrize(
    "name", ["E.tile_m", "C_local_01.tile_m", "C_.order", "local.x", "short_rows.E.order", ".x"]
)
def test_a_point_of_another_function_is_refused(name: str) -> None:
    with pytest.raises(ScheduleError, match=r"cannot translate the decision .*the blocks are C, D"):
        workload(product()).to_canonical({"strategy": "family", name: 1})
    with pytest.raises(ScheduleError, match="cannot translate"):
        workload(product()).from_canonical({name: 1})


def test_decisions_of_the_whole_function_and_of_parts_of_a_block() -> None:
    found = workload(product())
    point = {
        "strategy": "family", "versions": "one", "C.tile.0": 3, "short_rows.D.order": "rows",
        "short_rows.strategy": "family", "C_init.x": None, "D_local_reindex_2.y": True,
    }  # fmt: skip
    canonical = found.to_canonical(point)
    assert canonical == {
        "strategy": "family", "versions": "one", "b0.tile.0": 3, "short_rows.b1.order": "rows",
        "short_rows.strategy": "family", "b0_init.x": None, "t3_local_reindex_2.y": True,
    }  # fmt: skip
    assert found.from_canonical(canonical) == point


def test_blocks_that_primitives_make_keep_what_they_are_named_after() -> None:
    """Names of two functions that are equal but for names, in which some stand where a primitive
    would put its own: whatever is made of a block or buffer goes to what is made of the same."""
    words = ("local", "reindex", "pad", "rf", "init", "o", "shared")
    for seed in range(200):
        random = Random(seed)
        count = random.randint(1, 4)
        nasty = [f"a{tail}" for tail in ("", "_local", "_rf", "_rf_1", "_local_1", "_pad", "_b")]
        here = Renaming(*(_drawn(random, nasty, kind, count) for kind in "bt"))
        there = Renaming(*(_drawn(random, [*nasty, "c"], kind, count) for kind in "bt"))
        made = [_State(here), _State(there)]
        for _ in range(6):
            word, at = random.choice(words), random.randrange(100)
            names = [state.make(word, at) for state in made]
            canonical = here.translated({f"{names[0]}.x": 1})
            assert there.reversed().translated(canonical) == {f"{names[1]}.x": 1}, (here, there)


def _drawn(random: Random, names: list[str], kind: str, count: int) -> tuple[tuple[str, str], ...]:
    return tuple((n, f"{kind}{k}") for k, n in enumerate(random.sample(names, count)))


class _State:
    """A function's names while primitives make blocks and buffers."""

    def __init__(self, of: Renaming) -> None:
        self.blocks, self.buffers = ([old for old, _ in pairs] for pairs in (of.blocks, of.buffers))

    def make(self, word: str, at: int) -> str:
        """The name of a block that is made of the block, or of the buffer, of that number."""
        of_block = word in ("init", "o", "rf")
        base = self.blocks if of_block else self.buffers
        new = fresh(f"{base[at % len(base)]}_{word}", {*self.blocks, *self.buffers})
        self.blocks.append(new)
        if not of_block:
            self.buffers.append(new)
        return new
