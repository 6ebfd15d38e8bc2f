"""narrow_tails: a last tile of open width becomes tiles of powers of two, without conditions."""

from __future__ import annotations

from itertools import product

import pytest

from tests.lower.programs import same_meaning
from tilewright.ir.expr import Binary, BinaryOp, Select, as_int
from tilewright.ir.parse import parse_func
from tilewright.ir.stmt import For, Func, If
from tilewright.ir.text import print_expr, print_func
from tilewright.ir.verify import verify
from tilewright.ir.walk import rewrite, substitute, visit
from tilewright.lower.covers import (
    busy_sums,
    covers,
    covers_of_vectors,
    overlaps,
    panels_beside,
)
from tilewright.lower.lower_blocks import lower_blocks
from tilewright.lower.narrow_tails import narrow_tails
from tilewright.lower.partition_loops import partition_loops
from tilewright.lower.pipeline import simplify
from tilewright.target.target import target

SIZES = (0, 1, 2, 3, 5, 6, 7, 8, 12, 13, 27)

TILE = """
def sums(A: f32[n, 3], B: f32[n], n: i64):
    for o in serial(0, (n + 6) // 7):
        with alloc(f32[7], "local") as acc:
            for z in unroll(0, 7):
                if o * 7 + z < n:
                    acc[z] = 0.0
            for k in serial(0, 3):
                for i in unroll(0, 7):
                    if o * 7 + i < n:
                        acc[i] = acc[i] + A[o * 7 + i, k]
            for e in unroll(0, 7):
                if o * 7 + e < n:
                    B[o * 7 + e] = acc[e] * 2.0
"""
FUSED = """
def sums(A: f32[n, n], B: f32[n, n], n: i64):
    for f in parallel(0, n * ((n + 3) // 4)):
        for i in unroll(0, 4):
            if f % ((n + 3) // 4) * 4 + i < n:
                B[f // ((n + 3) // 4), f % ((n + 3) // 4) * 4 + i] = A[f // ((n + 3) // 4), 0]
"""
VECTORS = """
def sums(A: f32[n], B: f32[n], n: i64):
    for o in serial(0, (n + 11) // 12):
        with alloc(f32[12], "local") as acc:
            for z in unroll(0, 3):
                for v in vectorize(0, 4):
                    if o * 12 + z * 4 + v < n:
                        acc[z * 4 + v] = 1.0
            for k in serial(0, 3):
                for i in unroll(0, 3):
                    for w in vectorize(0, 4):
                        if o * 12 + i * 4 + w < n:
                            acc[i * 4 + w] = acc[i * 4 + w] + A[o * 12 + i * 4 + w]
            for e in unroll(0, 3):
                for x in vectorize(0, 4):
                    if o * 12 + e * 4 + x < n:
                        B[o * 12 + e * 4 + x] = acc[e * 4 + x]
"""
PAIRS = VECTORS.replace("12", "8").replace("+ 11", "+ 7").replace("0, 3)", "0, 2)")
OCTETS = VECTORS.replace("12", "32").replace("+ 11", "+ 31").replace("0, 3)", "0, 8)")
BOTH = """
def sums(A: f32[n, n], B: f32[n, n], n: i64):
    for p in serial(0, (n + 2) // 3):
        for o in serial(0, (n + 7) // 8):
            for r in unroll(0, 3):
                for i in unroll(0, 2):
                    for v in vectorize(0, 4):
                        if p * 3 + r < n and o * 8 + i * 4 + v < n:
                            B[p * 3 + r, o * 8 + i * 4 + v] = A[p * 3 + r, o * 8 + i * 4 + v]
"""
RUNNING = """
def sums(A: f32[n], B: f32[n], n: i64):
    for o in serial(0, (n + 3) // 4):
        with alloc(f32[1], "local") as last:
            last[0] = 0.0
            for i in unroll(0, 4):
                if o * 4 + i < n:
                    last[0] = last[0] + A[o * 4 + i]
                    B[o * 4 + i] = last[0]
"""
OVERLAPPING = """
def sums(A: f32[n], B: f32[n], n: i64):
    for o in serial(0, (n + 3) // 4):
        with alloc(f32[5], "local") as acc:
            for z in serial(0, 5):
                acc[z] = 0.0
            for i in unroll(0, 4):
                if o * 4 + i < n:
                    for k in serial(0, 2):
                        acc[i + k] = acc[i + k] + A[o * 4 + i]
            for e in unroll(0, 4):
                if o * 4 + e < n:
                    B[o * 4 + e] = acc[e]
"""
CHOSEN = """
def sums(A: f32[n], B: f32[n], n: i64):
    for o in serial(0, (n + 1) // 2):
        for i in unroll(0, 2):
            if o * 2 + i < n:
                B[o * 2 + i] = choose(i, A[o * 2], A[0], dtype=f32)
"""
SHIFTED = """
def sums(A: f32[n], B: f32[n], n: i64):
    for o in serial(0, (n + 3) // 4):
        for i in unroll(0, 4):
            if o * 4 + i < n:
                B[o * 4 + i] = A[o * 4 + i] + B[max(o * 4 + i - 1, 0)]
"""
CLOSED = """
def sums(A: f32[30], B: f32[30]):
    for o in serial(0, 8):
        for i in unroll(0, 4):
            if o * 4 + i < 30:
                B[o * 4 + i] = A[o * 4 + i]
"""


def narrowed(text: str) -> Func:
    func = parse_func(text)
    made = narrow_tails(lower_blocks(func))
    verify(made, "loops")
    for n in SIZES:
        same_meaning(func, made, n=n)
        same_meaning(func, simplify(partition_loops(made)), n=n)
    return made


def unrolled(func: Func) -> list[int]:
    loops = [n for n in visit(func.body) if isinstance(n, For) and n.kind == "unroll"]
    return [as_int(n.extent) or 0 for n in loops]


def test_a_register_tile() -> None:
    """Sums stay in buffers of the window's own, which count from its first round."""
    made = narrowed(TILE)
    assert unrolled(made) == [7] * 3 + [6] * 3 + [4] * 3
    assert "acc_2[e] * 2.0" in print_func(made)
    conditions = [n for n in visit(made.body) if isinstance(n, If)]
    assert len(conditions) == 3  # whole or not, and one for each width


@pytest.mark.parametrize(
    ("wide", "tails"), [(4, [3, 2, 1]), (8, [8, 6, 4, 1]), (12, [8, 6, 4, 1]), (3, [2, 1])]
)
def test_sums_of_which_the_last_are_taken_again(wide: int, tails: list[int]) -> None:
    """Each tile reads what its rounds share, and few sums wait for themselves: three rounds of a
    wide tile are taken as four, as two would be, five as six, thirteen as eight and six."""
    text = TILE.replace("7", str(wide)).replace("+ 6", f"+ {wide - 1}")
    made = narrowed(text)
    assert unrolled(made) == [w for width in (wide, *tails) for w in [width] * 3]


@pytest.mark.parametrize(("wide", "ways"), [(7, ""), (9, "pair"), (12, "earlier pair")])
def test_the_last_tiles_of_a_row_share_rounds(wide: int, ways: str) -> None:
    """Eleven rounds of twelve are a whole tile that begins one earlier; thirteen in tiles of twelve
    are two of eight, of which the last begins three earlier."""
    func = parse_func(TILE.replace("7", str(wide)).replace("+ 6", f"+ {wide - 1}"))
    made = narrow_tails(lower_blocks(func))
    assert [w for w in ("earlier", "pair") if w in print_func(made)] == ways.split()
    for n in range(3 * wide + 1):
        same_meaning(func, simplify(partition_loops(made)), n=n)


def test_tiles_of_a_chunk_of_a_row_share_no_rounds() -> None:
    """The next chunk begins with a tile of its own: a last one here leaves none to another."""
    chunk = TILE.replace("    for o in serial(0, (n + 6) // 7):", "    for o in serial(0, 2):")
    chunk = (
        chunk.replace("o * 7", "s * 18 + o * 9").replace("7", "9").replace("\n    ", "\n        ")
    )
    chunk = chunk.replace("        for o", "    for s in serial(0, (n + 17) // 18):\n        for o")
    text = print_func(narrowed(chunk))
    assert "earlier" not in text and "pair" not in text
    assert "for o in serial(0, min(2, (n + 8) // 9 - s * 2)):" in text  # the last may have fewer


def test_tiles_that_share_rounds_have_all() -> None:
    for wide, sums, alone in product(range(2, 32), (1, 2, 3, 4, 6, 12), (False, True)):
        again, few, half = overlaps(wide, sums, alone)
        assert 0 <= again < wide - few
        assert not few or wide + few <= 2 * half
        assert {half} == {w for t, _ in covers(wide, sums, alone).values() for w in t if w == half}


def test_unrolled_steps_of_a_reduction_are_no_sums_of_their_own() -> None:
    """Eight steps add to the same sums, one after the other: three rounds are taken as four."""
    steps = TILE.replace("7", "8").replace("+ 6", "+ 7")
    steps = steps.replace("k in serial(0, 3)", "k in unroll(0, 8)").replace(", k]", ", k // 3]")
    tails = unrolled(narrowed(steps))
    assert tails == [w for width in (8, 8, 6, 4, 1) for w in (width, 8, width, width)]


def test_tiles_of_few_sums_prefetch_nothing() -> None:
    """Of eight rounds a tile is busy; those of 6, 4 and 1 wait for themselves."""
    quiet = TILE.replace("7", "8").replace("+ 6", "+ 7")
    steps = "            for k in serial(0, 3):\n"
    inner = "                "
    request = f"{inner}for p in unroll(0, 3):\n{inner}    prefetch(A[min(o, n - 1), p], 2)\n"
    made = narrowed(quiet.replace(steps, steps + request))
    assert print_func(made).count("prefetch") == 2
    assert unrolled(made) == [*[8, 3, 8, 8] * 2, *[w for w in (6, 4, 1) for _ in range(3)]]


def test_results_that_may_lie_where_operands_were_are_made_once() -> None:
    text = """
def sums(A: f32[n], B: f32[n], n: i64):
    for o in serial(0, (n + 3) // 4):
        for i in unroll(0, 4):
            if o * 4 + i < n:
                B[o * 4 + i] = A[o * 4 + i] + 1.0
"""
    assert unrolled(narrowed(text)) == [4, 2, 1]


@pytest.mark.parametrize(
    ("text", "widths"),
    [(VECTORS, [3, 3, 2, 1]), (PAIRS, [2, 2, 1]), (OCTETS, [8, 8, 6, 5, 4, 3, 2, 1])],
)
def test_vectors_of_which_the_last_is_cut(text: str, widths: list[int]) -> None:
    """All vectors may be needed, and the last of them still not be whole."""
    made = narrowed(text)
    assert unrolled(made)[::3] == widths
    assert print_func(made).count("first_lane_runs=True") == 3 * (len(widths) - 1)


def test_only_vectors_that_may_be_the_last_ask() -> None:
    """Of as many as there are the last one, of one more the last two, which are the same."""
    made = narrowed(OCTETS)
    for n in (29, 31, 32, 33, 61):
        same_meaning(lower_blocks(parse_func(OCTETS)), made, n=n)
    asked = [n for n in visit(made.body) if isinstance(n, Binary) and n.op is BinaryOp.logical_or]
    whole = [as_int(n.a.b) for n in asked if isinstance(n.a, Binary)]
    assert whole[::3] == [6, 5, 4, 3, 2, 1]  # the only vector always asks


@pytest.mark.parametrize(
    ("size", "read", "where", "edges"),
    [
        ("n", "t + r - 1", "{} >= 0 and {} < n", 1),
        ("n", "t + r * 2 - 2", "{} >= 0 and {} < n", 2),  # which may be of two tiles
        ("(n + 1) // 2", "t * 2 + r", "{} < n", 1),  # windows two apart
        ("n", "t - r", "{} >= 0", 0),  # a beginning is no edge of a last tile
    ],
)
def test_windows_over_the_end_of_a_row(size: str, read: str, where: str, edges: int) -> None:
    """Only the last rounds ask whether what they read is there, each with code of its own."""
    at = read.replace("t", "(o * 3 + i)")
    choice = f"select({where.format(at, at)}, A[{at}], 0.0)"
    made = narrowed(f"""
def windows(A: f32[n], B: f32[n], n: i64):
    for o in serial(0, ({size} + 2) // 3):
        with alloc(f32[3], "local") as acc:
            for z in unroll(0, 3):
                if o * 3 + z < {size}:
                    acc[z] = 0.0
            for r in serial(0, 3):
                for i in unroll(0, 3):
                    if o * 3 + i < {size}:
                        acc[i] = acc[i] + {choice}
            for e in unroll(0, 3):
                if o * 3 + e < {size}:
                    B[o * 3 + e] = acc[e]
""")
    assert unrolled(made) == [3] * 3 + [2] * 3 + [1] * 3 + [1] * 3 * edges
    asked = [n.cond for n in visit(made.body) if isinstance(n, Select)]
    ends = [c for c in asked if "< n" in print_expr(c)]
    assert len(ends) == edges


def test_rounds_that_ask_where_they_are_are_not_taken_twice() -> None:
    """Where such a round is would be a choice by the size in itself."""
    reading = "select(o * 7 + i >= 1, A[o * 7 + i - 1, k], 0.0)"
    asking = narrowed(TILE.replace("A[o * 7 + i, k]", reading))
    assert "count" in print_func(narrowed(TILE)) and "count" not in print_func(asking)


@pytest.mark.parametrize("keep", [4, 8])
@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize("sums", [1, 2, 3, 4, 6, 12])
@pytest.mark.parametrize("wide", range(2, 32))
def test_narrower_tiles_cover_every_rest(wide: int, sums: int, alone: bool, keep: int) -> None:
    """With no more rounds taken again than the last tile has; as many rounds are always the same
    tiles, and together they are little more code than a whole one."""
    found = covers(wide, sums, alone, keep=keep)
    assert [*found] == [*range(1, wide)]
    assert all(sum(tiles) == r + again for r, (tiles, again) in found.items())
    assert all(again < tiles[-1] for tiles, again in found.values())
    together = {r + again: tiles for r, (tiles, again) in found.items()}
    assert all(together[r + again] == tiles for r, (tiles, again) in found.items())
    used = {w for tiles, _ in found.values() for w in tiles}
    assert sum(used) <= 2.6 * wide


@pytest.mark.parametrize("wide", range(2, 20))
def test_one_tile_covers_vectors(wide: int) -> None:
    """With one of them taken again at most."""
    found = covers_of_vectors(wide)
    assert [*found] == [*range(1, wide + 1)]
    assert all(tiles == (r + again,) and again < 2 for r, (tiles, again) in found.items())


def test_a_tile_that_is_left_over_alone() -> None:
    """Five rounds of six that are two sums each, of which eight do not wait: one tile, and fewer
    one of four; where panels are jammed, narrower tiles wait no longer."""
    assert [covers(6, 2, alone=True)[r][0] for r in range(1, 6)] == [(4,)] * 4 + [(5,)]
    assert [covers(6, 2)[r][0] for r in range(1, 6)] == [(1,), (2,), (4,), (4,), (4, 1)]
    regrouped = covers(6, 2, regrouped=3)
    assert [regrouped[r][0] for r in range(1, 6)] == [(1,), (2,), (3,), (4,), (3, 2)]


@pytest.mark.parametrize(("wide", "sums"), [(14, 2), (7, 4), (9, 3), (28, 1)])
def test_no_round_is_taken_twice_where_panels_are_jammed(wide: int, sums: int) -> None:
    """Registers for a large tile hold the sums of several panels' small ones, too."""
    found = covers(wide, sums)
    assert all(again == 0 for _, again in found.values())
    assert found[3][0] == (3,) and found[5][0] == (3, 2)
    for rounds in {w for tiles, _ in found.values() for w in tiles}:
        together = rounds * sums * max(1, panels_beside(rounds, sums, wide))
        assert 8 <= together <= wide * sums
    if sums > 2:  # as many as three rounds keep a machine busy with
        assert covers(wide, sums, alone=True)[3][0] == (3,)


def test_one_unit_waits_for_fewer_sums() -> None:
    """A machine that makes whole vectors of two halves has three rounds of two sums to do, where
    two units would wait: it takes no fourth one."""
    lines = ("cpu -mcpu=znver4", "cpu -mcpu=skylake-avx512", "cpu -mcpu=haswell")
    assert [busy_sums(target(line).costs) for line in lines] == [4, 8, 8]
    assert covers(14, 2, alone=True)[3] == ((4,), 1)
    assert covers(14, 2, alone=True, keep=4)[3] == ((3,), 0)


def test_the_only_tile_of_a_run() -> None:
    """A run of one tile, beside which something is done for each of its elements: the loop over
    tiles runs once, and no condition has its counter."""
    text = """
def sums(A: f32[n, 3], B: f32[n], n: i64):
    for run in serial(0, (n + 6) // 7):
        with alloc(f32[7], "global") as made:
            for o in serial(0, 1):
                with alloc(f32[7], "local") as acc:
                    for z in unroll(0, 7):
                        if run * 7 + z < n:
                            acc[z] = 0.0
                    for k in serial(0, 3):
                        for i in unroll(0, 7):
                            if run * 7 + i < n:
                                acc[i] = acc[i] + A[run * 7 + i, k]
                    for e in unroll(0, 7):
                        if run * 7 + e < n:
                            made[e] = acc[e] * 2.0
            for x in serial(0, 7):
                if run * 7 + x < n:
                    B[run * 7 + x] = made[x] + made[x]
"""
    widths = unrolled(narrowed(text))
    assert max(widths) == 7
    assert len(set(widths)) > 1


@pytest.mark.parametrize(("held", "cut"), [(9, False), (12, True)])
def test_tiles_stay_inside_of_what_a_buffer_holds(held: int, cut: bool) -> None:
    """Of 9 - n rows there are nine at most; a last tile that takes some twice would have twelve."""
    text = TILE.replace("(n + 6) // 7", "1").replace("0, 7", "0, 12")
    text = text.replace("f32[7]", f"f32[{held}]")
    for counter in "zie":
        text = text.replace(f"o * 7 + {counter} < n", f"n + {counter} < 9")
    text = text.replace("o * 7 + ", "").replace("f32[n", "f32[9 - n")
    before = parse_func(text)
    after = narrow_tails(before)
    assert (after is not before) is cut
    for n in range(10):
        same_meaning(before, after, n=n)


def test_rows_and_vectors() -> None:
    """A whole tile of rows is narrowed along its vectors too; other rows keep their masks."""
    assert unrolled(narrowed(BOTH)) == [3, 2, 3, 2, 3, 1, 2, 2, 1, 2]


def test_the_tiles_of_a_fused_loop() -> None:
    assert unrolled(narrowed(FUSED)) == [4, 2, 1]


@pytest.mark.parametrize("text", [RUNNING, OVERLAPPING, SHIFTED])
def test_rounds_that_read_each_other_stay_together(text: str) -> None:
    assert set(unrolled(narrowed(text))) == {4}


def test_a_choice_by_the_round_needs_the_round() -> None:
    """With a round that only the run knows, all that may be chosen would be computed."""
    assert unrolled(narrowed(CHOSEN)) == [2]


def test_known_sizes_stay_as_they_are() -> None:
    func = lower_blocks(parse_func(CLOSED))
    assert narrow_tails(func) is func


WAYS = """
def ways(A: f32[n], B: f32[n], n: i64):
    for f in parallel(0, (n + 1) // 2):
        if n % 2 >= 1:
            for i in unroll(0, 2):
                if f % (n // 2 + 1) * 2 + i < n:
                    B[f % (n // 2 + 1) * 2 + i] = A[f % (n // 2 + 1) * 2 + i] * 2.0
        else:
            for j in unroll(0, 2):
                if f % (n // 2) * 2 + j < n:
                    B[f % (n // 2) * 2 + j] = A[f % (n // 2) * 2 + j] * 2.0
"""


def test_ways_of_a_parallel_loop_have_tiles_of_their_own() -> None:
    """A way is not narrowed by what another one asks, though they share a loop's variable, as the
    copies of a loop for each remainder of a size do."""
    func = parse_func(WAYS)
    i, j = (n.var for n in visit(func.body) if isinstance(n, For) and n.kind == "unroll")

    def shared(loop: For) -> For:
        return loop if loop.var != j else loop.replace(var=i, body=substitute(loop.body, {j: i}))

    func = func.replace(body=rewrite(func.body, (For,), shared))
    made = narrow_tails(func)
    assert isinstance(made.body, For) and isinstance(made.body.body, If)
    ways = made.body.body.then, made.body.body.other
    assert all(isinstance(way, If) for way in ways)  # whole tiles, and what they leave over
    for n in SIZES:
        same_meaning(func, made, n=n)
