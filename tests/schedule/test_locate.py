"""Finding, replacing, copying: the ground that the primitives stand on."""

from itertools import pairwise

import pytest

from tests.schedule.programs import FAMILIES, matmul, softmax
from tilewright.ir.stmt import Alloc, Block, For
from tilewright.ir.text import print_func
from tilewright.ir.verify import verify
from tilewright.ir.walk import statements
from tilewright.schedule import Schedule, locate
from tilewright.support.errors import ScheduleError


def test_paths_lead_from_the_body():
    func = softmax().func
    path = locate.block_path(func, "S")
    assert path[0] is func.body and path[-1].name == "S"
    assert all(b in locate.inner(a) for a, b in pairwise(path))
    assert [f.name for f in locate.loops_above(path)] == ["i_2", "r"]


def test_names_in_program_order():
    func = matmul().func
    assert locate.loop_names(func) == ("i", "j", "k", "i_1", "j_1")
    assert locate.block_names(func) == ("C", "E")
    assert list(locate.buffers(func)) == ["A", "B", "D", "E", "C"]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda s: s.split("z", 2), "cannot split loop 'z' by 2: there is no loop 'z'"),
        (lambda s: s.decompose_reduction("Z", "k"), "there is no block 'Z'; there are 'C', 'E'"),
        (lambda s: s.prefetch("Z", "k", 1), "there is no buffer 'Z'"),
        (lambda s: s.loops("Z"), "there is no block 'Z'"),
    ],
)
def test_unknown_names(call, message):
    with pytest.raises(ScheduleError, match="cannot") as caught:
        call(Schedule(matmul().func))
    assert message in str(caught.value)
    assert caught.value.rule == "P0"


def test_replace_keeps_what_it_does_not_touch():
    func = matmul().func
    path = locate.loop_path(func, "k")
    assert locate.replace(func, path, path[-1]) == func
    changed = locate.replace(func, path, path[-1].replace(kind="unroll"))
    assert locate.find_block(changed, "E") is locate.find_block(func, "E")
    assert locate.find_loop(changed, "k").kind == "unroll"


def test_replace_by_nothing_removes_empty_loops():
    func = matmul().func
    gone = locate.replace(func, locate.block_path(func, "E"), None)
    assert locate.loop_names(gone) == ("i", "j", "k")
    empty = locate.replace(gone, locate.block_path(gone, "C"), None)
    assert locate.loop_names(empty) == ()


def test_copies_have_names_of_their_own():
    func = matmul().func
    path = locate.loop_path(func, "i")
    copy = locate.copy_afresh(func, path[-1])
    both = locate.replace(func, path, locate.seq(path[-1], copy))
    verify(both, "blocks")
    for kind in (For, Block, Alloc):
        found = [
            s.buffer.name if kind is Alloc else s.name
            for s in statements(both.body)
            if isinstance(s, kind)
        ]
        assert len(set(found)) == len(found)


def test_block_nests():
    func = matmul().func
    found = [(b.name, [f.name for f in loops]) for b, loops in locate.block_nests(func.body)]
    assert found == [("C", ["i", "j", "k"]), ("E", ["i_1", "j_1"])]


@pytest.mark.parametrize("family", FAMILIES)
def test_what_is_marked_stands_where_it_stood(family, monkeypatch):
    func = FAMILIES[family]().func
    names = locate.loop_names(func)
    with monkeypatch.context() as patch:
        patch.setattr(locate.Catalogue, "__init__", lambda *_: pytest.fail("walked again"))
        for name in names:
            func = locate.remark(func, name, kind="unroll")
        found = vars(locate.catalogue(func))
    assert found == vars(locate.Catalogue(func))
    assert all(locate.find_loop(func, name).kind == "unroll" for name in names)


@pytest.mark.parametrize("family", FAMILIES)
def test_show_is_the_text(family):
    func = FAMILIES[family]().func
    assert Schedule(func).show() == print_func(func)
