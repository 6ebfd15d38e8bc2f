"""partition_loops: the middle of a loop is free of conditions."""

from __future__ import annotations

import re

import pytest

from tests.lower.programs import MATMUL, PADDED, TAIL, same_meaning
from tilewright.arith.simplify import Facts
from tilewright.ir.expr import Const, Expr, Load, Select, Var, as_int, const
from tilewright.ir.parse import parse_func
from tilewright.ir.stmt import For, Func, If, Seq, Store
from tilewright.ir.text import print_expr, print_func
from tilewright.ir.verify import verify
from tilewright.ir.walk import free_vars, visit
from tilewright.lower.lower_blocks import lower_blocks
from tilewright.lower.partition_loops import _conditions, _Guard, partition_loops
from tilewright.lower.pipeline import simplify


def partitioned(text: str, **symbols: int) -> Func:
    func = parse_func(text)
    made = partition_loops(lower_blocks(func))
    verify(made, "loops")
    same_meaning(func, made, **symbols)
    return simplify(made)


def test_tail_is_cut_off() -> None:
    assert (
        print_func(partitioned(TAIL)).strip()
        == """
def scale(A: f32[60], B: f32[60]):
    for i_o in serial(0, 7):
        for i_i in unroll(0, 8):
            B[i_o * 8 + i_i] = A[i_o * 8 + i_i] * 2.0
    for i_i in unroll(0, 8):
        if i_i < 4:
            B[i_i + 56] = A[i_i + 56] * 2.0
""".strip()
    )


BLOCKS = """
def blocks(A: f32[32], B: f32[32]):
    for o in serial(0, 2):
        for t in serial(0, 2):
            for i in unroll(0, 12):
                if o * 24 + t * 12 + i < 32:
                    B[o * 24 + t * 12 + i] = A[o * 24 + t * 12 + i] * 2.0
"""


def test_a_last_block_without_a_whole_tile_is_a_part_of_one() -> None:
    made = print_func(partitioned(BLOCKS))
    assert "if i < 8:" in made
    assert made.count("serial") == 1


CHUNKS = """
def chunks(A: f32[84], B: f32[84]):
    for chunk in parallel(0, 4):
        for i_o in serial(0, 3):
            for i_i in unroll(0, 8):
                if chunk * 24 + i_o * 8 + i_i < 84:
                    B[chunk * 24 + i_o * 8 + i_i] = A[chunk * 24 + i_o * 8 + i_i] * 2.0
"""


def test_the_last_chunk_has_no_idle_rounds() -> None:
    """Its only part of a tile is one round, so that its conditions are decided; it has the same
    code for whole tiles as the others, which stops sooner."""
    text = print_func(partitioned(CHUNKS))
    whole, last = text.split("        if chunk >= 3:\n")
    assert "for i_o in serial(0, select(chunk < 3, 3, 1)):" in whole
    assert "if" not in whole and "serial" not in last
    assert "if i_i < 4" in last


def test_rounds_that_only_prefetch_are_idle() -> None:
    """They kept the last part of a tile from being one round: each row was a branch of the run."""
    prefetched = CHUNKS.replace(
        "            for i_i", "            prefetch(A[chunk * 24 + i_o * 8])\n            for i_i"
    )
    _, last = print_func(partitioned(prefetched)).split("        if chunk >= 3:\n")
    assert "serial" not in last and "if i_i < 4" in last


OPEN_CHUNKS = """
def chunks(A: f32[n], B: f32[n], n: i64):
    for chunk in parallel(0, (n + 23) // 24):
        for i_o in serial(0, 3):
            for i_i in vectorize(0, 8):
                if chunk * 24 + i_o * 8 + i_i < n:
                    B[chunk * 24 + i_o * 8 + i_i] = A[chunk * 24 + i_o * 8 + i_i] * 2.0
"""
AT = "both // ((n + 23) // 24), both % ((n + 23) // 24) * 24 + i_o * 8 + i_i"
FUSED_CHUNKS = f"""
def chunks(A: f32[m, n], B: f32[m, n], m: i64, n: i64):
    for both in parallel(0, m * ((n + 23) // 24)):
        for i_o in serial(0, 3):
            for i_i in vectorize(0, 8):
                if both % ((n + 23) // 24) * 24 + i_o * 8 + i_i < n:
                    B[{AT}] = A[{AT}] * 2.0
"""


@pytest.mark.parametrize("text", [OPEN_CHUNKS, FUSED_CHUNKS])
def test_chunks_of_an_open_extent_end_where_it_does(text):
    """Whole vectors ask nothing, at most one asks, and none is idle."""
    made, *_ = (partitioned(text, n=n, m=3) for n in (5, 0, 8, 23, 24, 29, 48, 77))
    names = [{v.name for v in free_vars(s.cond)} for s in visit(made.body) if isinstance(s, If)]
    assert sum("i_i" in asked for asked in names) == 1
    assert "(n + 7) // 8" in print_func(made)  # where vectors without elements begin


def test_chunks_of_whole_vectors_end_where_the_open_extent_does() -> None:
    """Rows of 16 vectors ask for no lane: a chunk's last rounds did nothing, but asked whether."""
    text = """
def rows(A: f32[n, 128], B: f32[n, 128], n: i64):
    for chunk in parallel(0, (n + 127) // 128):
        for i_o in serial(0, 2048):
            for i_i in vectorize(0, 8):
                if chunk * 2048 + i_o < n * 16:
                    B[chunk * 128 + i_o // 16, i_o % 16 * 8 + i_i] = 1.0
"""
    made, *_ = (partitioned(text, n=n) for n in (1, 0, 129))
    assert not any(isinstance(s, If) for s in visit(made.body))


CELL = "both // 2, both % 2 * 96 + i_o * 8 + i_i"
FILLED = f"""
def fill(A: f32[m, n], B: f32[m, 192], m: i64, n: i64):
    for both in parallel(0, m * 2):
        for i_o in serial(0, 12):
            for i_i in vectorize(0, 8):
                B[{CELL}] = select(both % 2 * 96 + i_o * 8 + i_i < n, A[{CELL}], 0.0)
"""


def test_chunks_of_a_result_read_an_open_operand_up_to_its_end() -> None:
    """One vector at most asks for lanes; the whole ones before it do not, those beyond read
    nothing: a load whose lanes are all off takes as long as dozens."""
    made, *_ = (partitioned(FILLED, n=n, m=2) for n in (5, 0, 8, 95, 96, 101, 192, 200))
    stores = [s.value for s in visit(made.body) if isinstance(s, Store)]
    assert [type(value) for value in stores] == [Load, Select, Const]


FUSED = """
def fused(A: f32[64, 80], B: f32[64, 80]):
    for chunk in parallel(0, 8):
        for i_o in serial(0, 3):
            for i_i in unroll(0, 6):
                for j in unroll(0, 40):
                    if chunk // 2 * 18 + i_o * 6 + i_i < 64 and chunk // 2 * 3 + i_o < 11:
                        B[chunk // 2 * 18 + i_o * 6 + i_i, chunk % 2 * 40 + j] = 2.0
"""


def test_a_condition_that_follows_from_another_costs_no_copy() -> None:
    """The budget is left for the last chunk, which is cut where its tiles are whole no more."""
    whole, rest = print_func(partitioned(FUSED)).split("        if chunk // 2 >= 3:\n")
    assert "if" not in whole
    assert "if i_i < 4" in rest


IDLE = """
def idle(A: f32[{count}, 2], B: f32[{count}, 2]):
    for f in parallel(0, {chunks}):
        for t in serial(0, 3):
            for i_o in serial(0, 3):
                for i in unroll(0, 8):
                    if t < 2 and f // 2 * 48 + t * 24 + i_o * 8 + i < {count}:
                        B[f // 2 * 48 + t * 24 + i_o * 8 + i, f % 2] = \\
                            A[f // 2 * 48 + t * 24 + i_o * 8 + i, f % 2] * 2.0
"""


@pytest.mark.parametrize("count", [41, 48, 50, 72, 75, 89, 96, 100, 143])
def test_rounds_that_all_chunks_leave_out_stay_out(count: int) -> None:
    """Where the chunks are joined they have the rounds that they have, not those of the loop."""
    text = IDLE.replace("\\\n" + 28 * " ", "").format(count=count, chunks=-(-count // 48) * 2)
    loops = [n for n in visit(partitioned(text).body) if isinstance(n, For) and n.name == "t"]
    assert all(as_int(n.stop) != 3 for n in loops)


def test_launch_branches_instead() -> None:
    """A parallel loop stays one loop; its middle rows have a middle without a select."""
    made = partitioned(PADDED)
    assert [n.name for n in visit(made.body) if isinstance(n, For) and n.kind == "parallel"] == [
        "y"
    ]
    assert (
        print_func(made).strip()
        == """
def pad(A: f32[6, 8], B: f32[8, 10]):
    for y in parallel(0, 8):
        if y >= 1:
            if y < 7:
                B[y, 0] = 0.0
                for x in serial(1, 9):
                    B[y, x] = A[y - 1, x - 1]
                B[y, 9] = 0.0
            else:
                for x in serial(0, 10):
                    B[7, x] = 0.0
        else:
            for x in serial(0, 10):
                B[0, x] = 0.0
""".strip()
    )


def test_tile_of_a_launch() -> None:
    made = partitioned(MATMUL)
    first = made.body
    assert isinstance(first, For) and isinstance(first.body, If)
    assert not any(isinstance(n, If | Select) for n in visit(first.body.then))


def test_indices_that_are_folded_back() -> None:
    """Where an index is chosen, its loop is cut where the choice changes."""
    made = partitioned("""
def reflect(A: f32[20], B: f32[26]):
    for i in serial(0, 26):
        B[i] = A[select(i >= 3, select(i < 23, i - 3, 41 - i), 3 - i)]
""")
    assert (
        print_func(made).strip()
        == """
def reflect(A: f32[20], B: f32[26]):
    for i in serial(0, 3):
        B[i] = A[3 - i]
    for i in serial(3, 23):
        B[i] = A[i - 3]
    for i in serial(23, 26):
        B[i] = A[41 - i]
""".strip()
    )


def test_lanes_that_are_held_within_a_row() -> None:
    """Where no lane is held back, they read as they lie; what only rows ask costs no copy."""
    made = partitioned("""
def stretched(A: f32[9, 20], B: f32[18, 40]):
    for i in serial(0, 18):
        for o in serial(0, 10):
            for v in vectorize(0, 4):
                B[i, o * 4 + v] = A[max((i + 1) // 2 - 1, 0), max(o * 2 + (v + 1) // 2 - 1, 0)]
""")
    assert (
        print_func(made).strip()
        == """
def stretched(A: f32[9, 20], B: f32[18, 40]):
    for i in serial(0, 18):
        for v in vectorize(0, 4):
            B[i, v] = A[max((i + 1) // 2 - 1, 0), max((v + 1) // 2 - 1, 0)]
        for o in serial(1, 10):
            for v in vectorize(0, 4):
                B[i, o * 4 + v] = A[max((i + 1) // 2 - 1, 0), o * 2 + (v + 1) // 2 - 1]
""".strip()
    )


def test_symbolic_size() -> None:
    text = """
def scale(A: f32[n], B: f32[n], n: i64):
    for i_o in serial(0, (n + 7) // 8):
        for i_i in vectorize(0, 8):
            if i_o * 8 + i_i < n:
                B[i_o * 8 + i_i] = A[i_o * 8 + i_i] * 2.0
"""
    for n in (0, 1, 7, 8, 9, 24):
        made = partitioned(text, n=n)
    assert isinstance(made.body, Seq)
    stmts = made.body.stmts
    assert len(stmts) == 2
    assert not any(isinstance(s, If) for s in visit(stmts[0]))
    assert any(isinstance(s, If) for s in visit(stmts[1]))


def test_choices_of_open_sizes_are_made_in_the_middle() -> None:
    """Two ends hold back where the middle stops: there, neither choice nor condition is left."""
    text = """
def pad(A: f32[n], B: f32[n], n: i64):
    for i_o in serial(0, (n + 15) // 16):
        for i_i in vectorize(0, 16):
            if i_o * 16 + i_i < n:
                B[i_o * 16 + i_i] = select(i_o * 16 + i_i < n - 2, A[i_o * 16 + i_i + 2], 0.0)
"""
    for n in (1, 7, 13, 16, 31, 64):
        made = partitioned(text, n=n)
    assert isinstance(made.body, Seq)
    middle, *last = made.body.stmts
    assert not any(isinstance(s, If | Select) for s in visit(middle))
    assert any(isinstance(s, Select) for part in last for s in visit(part))


@pytest.mark.parametrize(("size", "parts"), [(400, 3), (40, 2)])
def test_what_lies_beyond_the_end_reads_nothing(size: int, parts: int) -> None:
    """The rounds of which all lanes are off are a part of their own, where there may be many."""
    text = f"""
def pad(A: f32[n], B: f32[{size}], n: i64):
    for i_o in serial(0, {size // 8}):
        for i_i in vectorize(0, 8):
            B[i_o * 8 + i_i] = select(i_o * 8 + i_i < n, A[i_o * 8 + i_i], 0.0)
"""
    for n in (0, 1, 7, 8, 9, 31, size - 1, size, size + 3):
        made = partitioned(text, n=n)
    assert isinstance(made.body, Seq) and len(made.body.stmts) == parts
    assert [any(isinstance(s, Select) for s in visit(p)) for p in made.body.stmts][:2] == [
        False,
        True,
    ]
    assert parts == 2 or not any(isinstance(s, Load) for s in visit(made.body.stmts[2]))
    known = partitioned(text.replace(", n: i64", "").replace("< n", "< 45").replace("[n]", "[45]"))
    assert print_func(known).count("A[") == parts - 1


def test_a_branch_around_loops_of_open_sizes_is_not_cut_away() -> None:
    """A row of taps is asked for once; what is asked inside, under the same condition, falls."""
    text = """
def rows(A: f32[n], B: f32[n], n: i64):
    for y in serial(0, n):
        for r in serial(0, 3):
            if y + r >= 1 and y + r < n + 1:
                for k in unroll(0, 2):
                    B[y] = B[y] + select(y + r > 0 and y + r <= n, A[y + r - 1], 0.0)
"""
    for n in (0, 1, 2, 9):
        made = partitioned(text, n=n)
    assert not any(isinstance(n, Select) for n in visit(made.body))
    assert sum(isinstance(n, For) for n in visit(made.body)) == 3


def test_fused_loop_gets_a_branch() -> None:
    text = """
def rows(A: f32[3, 10, 4], B: f32[3, 10, 4]):
    for f in parallel(0, 9):
        for k in serial(0, 4):
            for i in unroll(0, 4):
                for l in unroll(0, 4):
                    if f % 3 * 4 + i < 10:
                        B[f // 3, f % 3 * 4 + i, k] = A[f // 3, f % 3 * 4 + i, l]
"""
    made = partitioned(text)
    assert isinstance(made.body, For) and isinstance(made.body.body, If)
    assert not any(isinstance(n, If) for n in visit(made.body.body.then))


def test_a_fused_loop_that_reads_much_gets_a_branch() -> None:
    """Three stores of look-ups: under a guard each would be a lane at a time."""
    text = """
def rows(A: f32[3, 50], B: f32[3, n], I: i64[3, n], J: i64[3, n], n: i64):
    for f in parallel(0, 3 * ((n + 7) // 8)):
        for i in unroll(0, {rows}):
            for l in vectorize(0, 8):
                if f % ((n + 7) // 8) * 8 + l < n:
                    B[{at}] = A[f // ((n + 7) // 8), {index}]
"""
    at = "f // ((n + 7) // 8), f % ((n + 7) // 8) * 8 + l"
    looked_up = f"min(max(I[{at}] + J[{at}], 0), 49)"
    made = partitioned(text.format(rows=3, at=at, index=looked_up), n=21)
    assert isinstance(made.body, For) and isinstance(made.body.body, If)
    assert not any(isinstance(n, If) for n in visit(made.body.body.then))
    made = partitioned(text.format(rows=1, at=at, index="0"), n=21)
    assert isinstance(made.body, For) and not isinstance(made.body.body, If)


def test_a_loop_that_says_where_it_may_end_gets_no_branch() -> None:
    """It says so in the body itself: in a branch nothing would end its many rounds."""
    text = """
def rounds(A: f32[9], B: f32[9], on: bool[1]):
    for u in serial(0, 5):
        for t in serial(0, 1000):
            on[0] = {ending}
            for i in unroll(0, 9):
                if t < u:
                    B[i] = A[i] * 2.0
"""
    for ending, branches in (("again(t < u, t, dtype=bool)", False), ("t < u", True)):
        made = partitioned(text.format(ending=ending))
        loop = next(n for n in visit(made.body) if isinstance(n, For) and n.var.name == "t")
        assert isinstance(loop.body, If) == branches


EDGES = """
def tiles(A: f32[10, 14], B: f32[10, 14]):
    for f in parallel(0, 6):
        for k in serial(0, 4):
            for i in unroll(0, 4):
                for l in unroll(0, 8):
                    if f // 2 * 4 + i < 10 and f % 2 * 8 + l < 14:
                        B[f // 2 * 4 + i, f % 2 * 8 + l] = A[f // 2 * 4 + i, f % 2 * 8 + l] * 2.0
"""


def test_a_fused_loop_knows_each_edge() -> None:
    """Four cases, and in none of them a condition of the loop that was fused: what is asked of the
    unrolled loops is known once each round has code of its own."""
    made = partitioned(EDGES)
    (loop,) = [n for n in visit(made.body) if isinstance(n, For) and n.var.name == "f"]
    conditions = [n.cond for n in visit(loop) if isinstance(n, If)]
    of_f = [c for c in conditions if loop.var in free_vars(c)]
    assert len(of_f) == 3  # one asks for rows, and on either side one for columns
    inner = [c for c in conditions if loop.var not in free_vars(c)]
    assert {print_expr(c) for c in inner} == {"i < 2", "l < 6"}


def test_nests_that_ask_nothing_are_not_copied() -> None:
    """Whether a plane is outside is asked where it is padded; memory that begins to live after that
    does not make what walks it a part of the question."""
    made = partitioned("""
def planes(A: f32[8, 8], B: f32[2, 6, 8]):
    for f in parallel(0, 12):
        P = alloc(f32[8], "global")
        for y in serial(0, 8):
            for u in unroll(0, 8):
                P[y] = select(f % 6 >= 1 and y >= 1, A[f % 6 - 1, y - 1] + A[f % 6, u], 0.0)
        H = alloc(f32[8], "global")
        for y in serial(0, 8):
            H[y] = P[y] * 2.0
        for y in serial(0, 8):
            B[f // 6, f % 6, y] = H[y] + P[y]
""")
    written = [n.buffer.name for n in visit(made.body) if isinstance(n, Store)]
    assert written == ["P", "P", "P", "H", "B"]


def test_a_loop_that_stops_sooner_near_an_end_is_known_to_be_no_longer() -> None:
    text = """
def phases(A: f32[n, 16, 64], B: f32[n, 16, 64], n: i64):
    for o in serial(0, (n + 7) // 8):
        for i in serial(0, 32):
            for r in serial(0, 4):
                for c in unroll(0, 8):
                    for u in vectorize(0, 8):
                        if o * 8 + r * 2 + i // 16 < n:
                            B[o * 8 + r * 2 + i // 16, i % 16, c * 8 + u] = A[n - 1, i % 16, u]
"""
    func = parse_func(text)
    made = partition_loops(lower_blocks(func))
    same_meaning(func, made, n=13)
    loops = [n for n in visit(made) if isinstance(n, For) and n.var.name == "r"]
    known = Facts({Var("n"): (0, None)})
    assert any(as_int(loop.stop) is None for loop in loops)
    assert all(known.bounds(known.affine(loop.stop))[1] == 4 for loop in loops)


def test_many_edges_share_a_branch_where_copies_cost_too_much() -> None:
    made = partitioned(
        EDGES.replace("unroll(0, 8)", "unroll(0, 128)").replace("14", "200").replace("* 8", "* 128")
    )
    (loop,) = [n for n in visit(made.body) if isinstance(n, For) and n.var.name == "f"]
    assert sum(loop.var in free_vars(n.cond) for n in visit(loop) if isinstance(n, If)) >= 1
    assert isinstance(loop.body, If)
    assert not any(isinstance(n, If) for n in visit(loop.body.then))


def test_budget_bounds_the_code() -> None:
    body = "B[y, x] = select(y >= 1 and y < 7 and x >= 1 and x < 9, A[y - 1, x - 1], 0.0)"
    many = "\n".join("            " + body for _ in range(300))
    made = partitioned(PADDED.replace("            " + body, many))
    assert sum(1 for n in visit(made.body) if isinstance(n, For)) <= 6


@pytest.mark.parametrize("text", [TAIL, PADDED, MATMUL])
def test_without_conditions_nothing_changes(text: str) -> None:
    func = simplify(partition_loops(lower_blocks(parse_func(text.replace("60", "64")))))
    assert partition_loops(func) is func or any(isinstance(n, If) for n in visit(func.body))


def test_a_condition_on_a_let_inside_the_loop_stays_inside() -> None:
    text = """
def f(A: f32[16], W: i64[16], B: f32[16]):
    for i in serial(0, 16):
        w: i64 = W[i]
        if i < w:
            B[i] = A[i]
            B[i] = B[i] + A[i]
            B[i] = B[i] + A[i]
            B[i] = B[i] + A[i]
            B[i] = B[i] + A[i]
            B[i] = B[i] + A[i]
            B[i] = B[i] + A[i]
            B[i] = B[i] + A[i]
"""
    made = partition_loops(parse_func(text))
    verify(made, "loops")
    assert made == parse_func(text)


def test_equal_conditions_of_reads_are_decided_once(monkeypatch: pytest.MonkeyPatch) -> None:
    i, j = Var("i"), Var("j")
    inner = For(j, const(0), const(4), "unroll", Seq(()))
    guard = _Guard(i * 4 + j < 30, (inner,), frozenset({i, j}))
    asked: list[Expr] = []
    decide = Facts.condition

    def condition(known: Facts, e: Expr) -> Expr:
        asked.append(e)
        return decide(known, e)

    monkeypatch.setattr(Facts, "condition", condition)
    (form,) = _conditions(i, [guard, guard, guard], Facts({i: (0, 7)}))
    assert asked == [guard.cond]
    assert (form.terms, form.const) == ({i: -4}, 26)  # 29 - 4 * i - 3


def test_each_remainder_of_a_size_has_copies_of_its_own() -> None:
    """Some sizes always take the second side: the first leaves as much for it as it takes."""
    loop = """
        for y in serial(0, n):
            for u in unroll(0, 500):
                B[y, u] = select(y >= 1, A[max(y - 1, 0), u], {other})
"""
    head = "def sides(A: f32[n, 500], B: f32[n, 500], n: i64):\n    if n % 2 >= 1:"
    text = head + loop.format(other="0.0")
    func = parse_func(text + "    else:" + loop.format(other="1.0"))
    made = partition_loops(lower_blocks(func))
    assert not any(isinstance(n, Select) for n in visit(made.body))


def test_sides_of_a_choice_of_sizes_ask_for_their_own_edges() -> None:
    """In a launch, too, which is not cut: of what only the other side asks, there are no copies."""
    side = """
            for u in serial(0, 4):
                for l in unroll(0, 8):
                    B[f * 32 + u * 8 + l] = select({edge}, A[f * 32 + u * 8 + l], 0.0)
"""
    text = """
def sides(A: f32[n * n * 32], B: f32[n * n * 32], n: i64):
    for f in parallel(0, n * n):
        if n % 2 >= 1:"""
    text += side.format(edge="f % n * 32 + u * 8 + l >= 3") + "        else:"
    made = partitioned(text + side.format(edge="f % n * 32 + u * 8 + l < n * 32 - 5"), n=2)
    (choice,) = [n for n in visit(made.body) if isinstance(n, If) and "% 2" in print_expr(n.cond)]
    assert choice.other is not None
    for half in (choice.then, choice.other):
        rounds = [n for n in visit(half) if isinstance(n, For) and n.var.name == "u"]
        assert not all(any(isinstance(m, Select) for m in visit(n)) for n in rounds)


def test_a_cut_costs_what_it_adds() -> None:
    """Not what its parts were made from: each drops the side that it does not take."""
    text = """
def f(B: f32[n * 8, 240], n: i64):
    for o in serial(0, n + 1):
        if o * 8 + 8 <= n * 8:
            for c in serial(0, 2):
                for u in unroll(0, 120):
                    if c * 120 + u < 200:
                        B[o * 8, c * 120 + u] = 1.0
        else:
            for v in unroll(0, 600):
                B[0, v % 7] = 2.0
"""
    made = partitioned(text, n=2)
    conds = [n.cond for n in visit(made.body) if isinstance(n, If)]
    assert {v.name for cond in conds for v in free_vars(cond)} == {"u"}  # lanes of the last tile


def test_chunks_of_an_open_row_that_threads_share_know_each_end() -> None:
    """One branch for each end: of both in one, little would follow for a tap."""
    text = """
def taps(A: f32[n], W: f32[9], B: f32[(n + 2) // 3], n: i64):
    for c in parallel(0, ((n + 2) // 3 + 31) // 32):
        for r in serial(0, 4):
            for k in serial(0, 9):
                for x in vectorize(0, 8):
                    if AT < (n + 2) // 3:
                        B[AT] = B[AT] + select(TAP >= 4 and TAP < n + 4, A[TAP - 4], 0.0) * W[k]
"""
    text = text.replace("AT", "c * 32 + r * 8 + x")
    func = parse_func(text.replace("TAP", "c * 96 + r * 24 + x * 3 + k"))
    made = partition_loops(func)
    for n in (0, 1, 7, 95, 96, 97, 300, 301, 302, 303):
        same_meaning(func, made, n=n)
    middle = re.split(" el(?:se|if)", print_func(made))[0]
    assert middle.count("for ") == 4 and middle.count("if ") == 3 and "select" not in middle
