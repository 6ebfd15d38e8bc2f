"""overlap_tails: the last vector of an open extent begins where it is whole."""

from __future__ import annotations

import numpy as np
import pytest

from tests.lower.programs import POOL, arrays_for, same_meaning
from tilewright.codegen.inprocess import load
from tilewright.ir import interp
from tilewright.ir.expr import Binary, BinaryOp, Select, as_int
from tilewright.ir.parse import parse_func
from tilewright.ir.stmt import For, Func, If, Stmt, annotation
from tilewright.ir.text import print_expr, print_func
from tilewright.ir.verify import verify
from tilewright.ir.walk import free_vars, visit
from tilewright.lower.overlap_tails import IN_PLACE as IN_PLACE_NOTE
from tilewright.lower.overlap_tails import overlap_tails
from tilewright.lower.partition_loops import partition_loops
from tilewright.lower.pipeline import simplify

SIZES = (0, 1, 2, 3, 7, 8, 9, 10, 15, 16, 17, 18, 33)

COUNTED = POOL.replace(
    "= most[w]", "= most[w] / cast(f32, min(o * 8 + w * 2 + 2, n) - max(o * 8 + w * 2 - 1, 0))"
)
OF_LANES = POOL.replace("= most[w]", "= most[w] + cast(f32, w)")
IN_PLACE = POOL.replace("B[o * 4 + w] = most[w]", "B[o * 4 + w] = most[w] + B[o * 4 + w]")
OPERAND = """
def moved(A: f32[n], B: f32[n], n: i64):
    for o in serial(0, (n + 3) // 4):
        for v in vectorize(0, 4):
            if o * 4 + v < n:
                B[o * 4 + v] = select(o * 4 + v >= 1, A[max(o * 4 + v - 1, 0)], 0.0)
"""

SLICED = """
def sliced(A: f32[n + 2], B: f32[n], n: i64):
    for o in serial(0, (n + 3) // 4):
        for v in vectorize(0, 4):
            if o * 4 + v < n:
                B[o * 4 + v] = A[o * 4 + v + 1]
"""
LINES = """
def lines(A: f32[n, 6], B: f32[6, n], n: i64):
    for r_o in serial(0, 3):
        for o in serial(0, (n + 3) // 4):
            for r in unroll(0, 2):
                for v in vectorize(0, 4):
                    if o * 4 + v < n:
                        B[r_o * 2 + r, o * 4 + v] = A[o * 4 + v, r_o * 2 + r]
"""
STRETCHED = """
def stretched(A: f32[n], W: f32[2], B: f32[n * 2], n: i64):
    for o in serial(0, (n * 2 + 3) // 4):
        for v in vectorize(0, 4):
            if o * 4 + v < n * 2:
                B[o * 4 + v] = A[min(max(o * 2 + (v + 1) // 2 - 1, 0), n - 1)] * W[v % 2]
"""
HALVED = """
def halved(A: f32[(n + 1) // 2 + 2], W: f32[2], B: f32[n], n: i64):
    for o in serial(0, (n + 3) // 4):
        for v in vectorize(0, 4):
            if o * 4 + v < n:
                B[o * 4 + v] = A[o * 2 + (v + 2) // 2] * W[(v + 1) % 2]
"""  # n may be odd: the last vector begins at the second half of a pair
PADDED = """
def padded(A: f32[n], B: f32[n + 3], n: i64):
    for o in serial(0, (n + 6) // 4):
        for v in vectorize(0, 4):
            if o * 4 + v < n + 3:
                B[o * 4 + v] = select(o * 4 + v >= 1 and o * 4 + v < n + 1, A[o * 4 + v - 1], 0.0)
"""
COUNTING = """
def counted(A: i64[2], B: i64[n], n: i64):
    for o in serial(0, (n + 3) // 4):
        for v in vectorize(0, 4):
            if o * 4 + v < n:
                B[o * 4 + v] = A[0] + (o * 4 + v) * A[1]
"""
FOLDED = """
def edges(A: f32[n + 1], B: f32[n + 4], n: i64):
    for o in serial(0, (n + 7) // 4):
        for v in vectorize(0, 4):
            if o * 4 + v < n + 4:
                B[o * 4 + v] = A[select(o * 4 + v >= 1, select(o * 4 + v <= n, o * 4 + v - 1, n), 0)]
"""  # noqa: E501
ROWS = """
def rows(A: f32[3, n], B: f32[n], C: f32[3, n], n: i64):
    for y in serial(0, 3):
        for o in serial(0, (n + 3) // 4):
            for v in vectorize(0, 4):
                if o * 4 + v < n:
                    C[y, o * 4 + v] = A[y, o * 4 + v] * B[o * 4 + v]
"""
ROWS_IN_PLACE = ROWS.replace("A[y, o * 4 + v]", "C[y, o * 4 + v]")
OF_ITS_OWN = ROWS.replace("A[y, o * 4 + v]", "C[y, max(o * 4 + v - 1, 0)]")
REFLECTED = """
def reflected(A: f32[n + 4], B: f32[n + 10], n: i64):
    for o in serial(0, (n + 13) // 4):
        for v in vectorize(0, 4):
            if o * 4 + v < n + 10:
                B[o * 4 + v] = A[select(o * 4 + v >= 3, select(o * 4 + v < n + 7, o * 4 + v - 3, n * 2 + 9 - o * 4 - v), 3 - (o * 4 + v))]
"""  # noqa: E501
OF_STEPS = """
def pool(A: f32[2 * n], B: f32[n], n: i64):
    for o in serial(0, (n + 3) // 4):
        with alloc(f32[4], "local") as most:
            for z in vectorize(0, 4):
                if o * 4 + z < n:
                    most[z] = -9.0
            for r in unroll(0, 2):
                for v in vectorize(0, 4):
                    if o * 4 + v < n:
                        most[v] = max(most[v], A[o * 8 + v * 2 + r])
            for w in vectorize(0, 4):
                if o * 4 + w < n:
                    B[o * 4 + w] = most[w]
"""
ROUNDS = """
def rounds(A: f32[n * 2], B: f32[n * 2], n: i64):
    for o in serial(0, (n + 5) // 6):
        with alloc(f32[6, 2], "local") as sums:
            for z in unroll(0, 6):
                for y in vectorize(0, 2):
                    if o * 6 + z < n:
                        sums[z, y] = 0.0
            for r in unroll(0, 5):
                for u in unroll(0, 6):
                    for v in vectorize(0, 2):
                        if o * 6 + u < n:
                            sums[u, v] = sums[u, v] + select(o * 6 + u + r >= 2 and o * 6 + u + r < n + 2, A[o * 12 + u * 2 + r * 2 + v - 4], 0.0)
            for w in unroll(0, 6):
                for x in vectorize(0, 2):
                    if o * 6 + w < n:
                        B[o * 12 + w * 2 + x] = sums[w, x]
"""  # noqa: E501


COLUMNS = """
def columns(A: f32[3, n], B: f32[3, n], n: i64):
    with alloc(f32[3, n], "global") as scaled:
        for o in serial(0, (n + 3) // 4):
            with alloc(f32[4], "local") as sums:
                for z in vectorize(0, 4):
                    if o * 4 + z < n:
                        sums[z] = 0.0
                for r in serial(0, 3):
                    for u in vectorize(0, 4):
                        if o * 4 + u < n:
                            scaled[r, o * 4 + u] = A[r, o * 4 + u] * 2.0
                for s in serial(0, 3):
                    for v in vectorize(0, 4):
                        if o * 4 + v < n:
                            sums[v] = sums[v] + scaled[s, o * 4 + v]
                for t in serial(0, 3):
                    for w in vectorize(0, 4):
                        if o * 4 + w < n:
                            B[t, o * 4 + w] = scaled[t, o * 4 + w] * sums[w]
"""


def overlapped(text: str, *, masks: bool = True) -> Func:
    func = parse_func(text)
    made = overlap_tails(func, masks=masks)
    verify(made, "loops")
    for n in SIZES:
        same_meaning(func, made, n=n)
        same_meaning(func, simplify(partition_loops(made)), n=n)
    return made


@pytest.mark.parametrize("text", [POOL, COUNTED])
def test_windows(text: str) -> None:
    """More results than lanes are computed without conditions on lanes, the last ones from the end
    on."""
    made = overlapped(text)
    branch = next(n for n in visit(made.body) if isinstance(n, If) and n.other is not None)
    guards = [n for n in visit(branch.then) if isinstance(n, If) and n.other is None]
    assert not guards
    whole = simplify(partition_loops(made))
    assert "n >= 9" in print_func(whole)  # five results
    rows = branches(whole.body)
    ends = [n for n in rows if n.other is not None and "% 2" in print_expr(n.cond)]
    assert len(ends) == 3  # of a whole vector, of half a one, and of one result that is left over
    for last in ends:  # whether the last tap is there is asked once
        assert not [n for n in visit(last) if isinstance(n, Select) and "n" in print_expr(n.cond)]


@pytest.mark.parametrize("text", [SLICED, PADDED, COUNTING, FOLDED, REFLECTED, STRETCHED, HALVED])
def test_what_is_moved_to_another_shape(text: str) -> None:
    """Its result never lies over its operand: more elements than lanes need no masks."""
    branch = branches(overlapped(text).body)[0]
    assert branch.other is not None
    assert not [n for n in visit(branch.then) if isinstance(n, If)]
    assert [n for n in visit(branch.other) if isinstance(n, If)]


@pytest.mark.parametrize("text", [SLICED, PADDED, COUNTING, FOLDED, REFLECTED, STRETCHED, HALVED])
def test_few_elements_without_masks(text: str) -> None:
    """Up to one vector of them is made of narrower ones, none of which has a lane off."""
    made = overlapped(text, masks=False)
    vectors = [n for n in visit(made.body) if isinstance(n, For) and n.kind == "vectorize"]
    assert {as_int(v.extent) for v in vectors} == {1, 2, 4}
    assert not [n for v in vectors for n in visit(v.body) if isinstance(n, If)]


@pytest.mark.parametrize(("dtype", "widths"), [("f32", {4}), ("u8", {1, 2, 4}), ("f16", {1, 2, 4})])
def test_few_elements_of_narrow_lines(dtype: str, widths: set[int]) -> None:
    """Masks of elements of less than 32 bits are slow, and lines that are transposed ask for
    many."""
    made = overlapped(LINES.replace("f32", dtype))
    vectors = [n for n in visit(made.body) if isinstance(n, For) and n.kind == "vectorize"]
    assert {as_int(v.extent) for v in vectors} == widths
    masked = [n for v in vectors for n in visit(v.body) if isinstance(n, If)]
    assert bool(masked) == (dtype == "f32")


@pytest.mark.parametrize("more", [-1, 0, 1, 2])
def test_rows_are_long_enough_for_lanes_to_be_held_at_one_end(more: int) -> None:
    """The first vector's at the row's first element, the last one's at its last."""
    func = parse_func(STRETCHED.replace("// 2 - 1,", f"// 2 + {more},").replace("+ -1", "- 1"))
    made = simplify(partition_loops(overlap_tails(func)))
    for n in SIZES:
        same_meaning(func, made, n=n)
    (whole,) = [n.then for n in visit(made.body) if isinstance(n, If) and n.other is not None][:1]
    vectors = [n for n in visit(whole) if isinstance(n, For) and n.kind == "vectorize"]
    for vector, ends in ((vectors[0], BinaryOp.min), (vectors[-1], BinaryOp.max)):
        assert not [n for n in visit(vector) if isinstance(n, Binary) and n.op is ends]


@pytest.mark.parametrize("masks", [True, False])
@pytest.mark.parametrize("text", [POOL, COUNTED])
def test_few_windows(text: str, masks: bool) -> None:
    """Of more than half a vector of them, the first half and the last: no lane is off."""
    branch = branches(overlapped(text, masks=masks).body)[0]
    half = branch.other
    assert isinstance(half, If)
    assert print_expr(half.cond) == "(n + 1) // 2 > 2"
    assert not [n for n in visit(half.then) if isinstance(n, If) and n.other is None]
    vectors = [n for n in visit(half.then) if isinstance(n, For) and n.kind == "vectorize"]
    assert {as_int(v.extent) for v in vectors} == {2}


@pytest.mark.parametrize(("lanes", "widths"), [(8, [4]), (16, [8, 4])])
def test_few_windows_of_wide_vectors(lanes: int, widths: list[int]) -> None:
    """Fewer than half a vector are two quarters, down to a few lanes."""
    text = POOL.replace("o * 8", f"o * {2 * lanes}").replace("o * 4", f"o * {lanes}")
    text = text.replace("+ 3) // 4", f"+ {lanes - 1}) // {lanes}").replace(
        "f32[4]", f"f32[{lanes}]"
    )
    few = branches(overlapped(text.replace("(0, 4)", f"(0, {lanes})")).body)[0].other
    found = []
    while isinstance(few, If):
        vectors = [n for n in visit(few.then) if isinstance(n, For) and n.kind == "vectorize"]
        (wide,) = {as_int(v.extent) for v in vectors}
        assert print_expr(few.cond) == f"(n + 1) // 2 > {wide}"
        found.append(wide)
        few = few.other
    assert found == widths


def test_what_a_round_makes_anew() -> None:
    """A column's part of memory that is written before it is read may be written again; masks are
    no reason to keep sums of neighbours whole."""
    branch = branches(overlapped(COLUMNS, masks=False).body)[0]
    assert not [n for n in visit(branch.then) if isinstance(n, If) and n.other is None]
    assert overlap_tails(parse_func(COLUMNS)) == parse_func(COLUMNS)


@pytest.mark.parametrize(
    ("made", "instead"),
    [
        ("A[r, o * 4 + u] * 2.0", "scaled[r, o * 4 + u] + A[r, o * 4 + u]"),
        ("sums[v] + scaled[s, o * 4 + v]", "sums[v] + scaled[s, max(o * 4 + v - 1, 0)]"),
        ("B[t, o * 4 + w] = scaled[t, o * 4 + w]", "scaled[t, o * 4 + w] = scaled[t, o * 4 + w]"),
    ],
    ids=["sum", "neighbour", "later"],
)
def test_memory_that_another_round_sees(made: str, instead: str) -> None:
    assert made in COLUMNS
    func = parse_func(COLUMNS.replace(made, instead))
    assert overlap_tails(func, masks=False) == func


def test_sizes_are_asked_once_around_rows() -> None:
    """So that rows of each side may have copies for the ends of their own."""
    made = overlapped(ROWS, masks=False)
    assert isinstance(made.body, If)
    assert isinstance(made.body.then, For)


def test_rounds_of_windows_are_taken_again() -> None:
    """Of more rounds than a tile has, the last are computed in a tile that ends with them, and
    what they read is known: no round beside the first tile's asks for the size."""
    whole = simplify(partition_loops(overlapped(ROUNDS)))
    first = branches(whole.body)[0]
    assert print_expr(first.cond) == "n >= 8"  # a tile, and two that the windows reach beyond
    asking = [n for n in visit(first.then) if isinstance(n, Select)]
    assert asking
    assert not [n for n in asking if "n" in {v.name for v in free_vars(n.cond)}]


def test_rows_of_fewer_rounds_than_a_tile_and_an_edge() -> None:
    """They are taken in two narrower tiles, of which what they read is known."""
    made = overlapped(ROUNDS)
    for n in (4, 5, 6, 11):
        same_meaning(parse_func(ROUNDS), made, n=n)
    other = branches(simplify(partition_loops(made)).body)[0].other
    assert other is not None
    narrow = branches(other)[0]
    assert print_expr(narrow.cond) == "n >= 6"  # four, and two that the windows reach beyond
    widths = [as_int(n.extent) for n in visit(narrow.then) if isinstance(n, For)]
    assert {4, 2} <= {*widths} and 6 not in widths
    asking = [n for n in visit(narrow.then) if isinstance(n, Select)]
    assert asking
    assert not [n for n in asking if "n" in {v.name for v in free_vars(n.cond)}]


def test_windows_that_reach_far_are_narrowed() -> None:
    """Where more rounds may ask than the narrower tile leaves, nothing is known of the last."""
    far = ROUNDS.replace("unroll(0, 5)", "unroll(0, 9)").replace("+ r", "+ r - 2")
    func = parse_func(far.replace("r * 2 + v", "r * 2 - 4 + v"))
    assert overlap_tails(func) is func


def test_steps_without_padding() -> None:
    """Elements that lie apart need masks for each tap, though all taps are there."""
    first = branches(overlapped(OF_STEPS).body)[0]
    assert not [n for n in visit(first.then) if isinstance(n, If) and n.other is None]


def test_sums_of_neighbours_stay() -> None:
    func = parse_func(OF_STEPS.replace("o * 8 + v * 2 + r", "o * 4 + v"))
    assert overlap_tails(func) is func


def test_a_single_last_one_is_no_vector() -> None:
    made = simplify(partition_loops(overlapped(POOL)))
    (single,) = [n for n in branches(made.body) if "% 4" in print_expr(n.cond)]
    assert single.other is not None
    assert [n for n in visit(single.then) if isinstance(n, For) and n.kind == "vectorize"]
    assert not [n for n in visit(single.other) if isinstance(n, For) and n.kind == "vectorize"]


def test_long_bodies_have_no_copies() -> None:
    made = overlapped(POOL.replace("unroll(0, 3)", "unroll(0, 23)"))
    assert len(branches(made.body)) == 1


def branches(body: Stmt) -> list[If]:
    return [n for n in visit(body) if isinstance(n, If) and n.other is not None]


@pytest.mark.parametrize(
    "text",
    [
        OF_LANES,
        IN_PLACE,
        OPERAND,
        HALVED.replace("o * 2 +", "o +"),  # not by which element it is
        HALVED.replace("(v + 1) % 2", "v % 3 % 2"),
        HALVED.replace("(v + 1) % 2", "v // 2"),
    ],
)
def test_what_must_not_be_computed_twice(text: str) -> None:
    """A value that the lane tells, a result that is read, and an operand that may lie where the
    result does (nothing is reduced)."""
    func = parse_func(text)
    assert overlap_tails(func) is func


def test_a_row_that_reads_another_element_of_itself() -> None:
    func = parse_func(OF_ITS_OWN)
    assert overlap_tails(func, masks=False) is func


def test_loops_that_threads_share_stay() -> None:
    func = parse_func(POOL.replace("for o in serial", "for o in parallel"))
    assert overlap_tails(func) is func
    assert all(n.kind != "parallel" for n in visit(overlapped(POOL).body) if isinstance(n, For))


TRANSPOSED = """
def transposed(A: f32[k, n, 5], B: f32[k, 5, n], k: i64, n: i64):
    for f in parallel(0, k * ((n + 7) // 8)):
        for c in serial(0, 5):
            for v in vectorize(0, 8):
                if f % ((n + 7) // 8) * 8 + v < n:
                    B[f // ((n + 7) // 8), c, f % ((n + 7) // 8) * 8 + v] = A[f // ((n + 7) // 8), f % ((n + 7) // 8) * 8 + v, c]
"""  # noqa: E501
ALL_FUSED = """
def fused(A: f32[k, n, 5], B: f32[k, 5, n], k: i64, n: i64):
    for f in parallel(0, k * ((n + 3) // 4) * 5):
        for v in vectorize(0, 4):
            if f // 5 % ((n + 3) // 4) * 4 + v < n:
                B[f // 5 // ((n + 3) // 4), f % 5, f // 5 % ((n + 3) // 4) * 4 + v] = A[f // 5 // ((n + 3) // 4), f // 5 % ((n + 3) // 4) * 4 + v, f % 5]
"""  # noqa: E501
ONE_ROW = """
def row(A: f32[k, n + 2], B: f32[n], k: i64, n: i64):
    for o in parallel(0, (n + 3) // 4):
        for v in vectorize(0, 4):
            if o * 4 + v < n:
                B[o * 4 + v] = A[0, o * 4 + v + 1]
"""


@pytest.mark.parametrize("text", [TRANSPOSED, ALL_FUSED, ONE_ROW])
def test_rows_of_parallel_vectors_end_in_narrower_ones(text: str) -> None:
    """Where masks are no registers, and in elements of no other round."""
    func = parse_func(text)
    assert overlap_tails(func) is func
    made = overlap_tails(func, masks=False)
    verify(made, "loops")
    lanes = [n for n in visit(made.body) if isinstance(n, For) and n.kind == "vectorize"]
    assert len(lanes) > 3 and not any(isinstance(n.body, If) for n in lanes)
    for k, n in [(1, n) for n in SIZES] + [(3, 1), (3, 5), (3, 11), (2, 16)]:
        same_meaning(func, made, k=k, n=n)
        arrays = arrays_for(made, k=k, n=n)
        interp.run(made, *arrays, symbols={"k": k, "n": n}, check_parallel=True)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("f // 5 % ((n + 3) // 4) * 4 + v, f % 5]", "f // 5 % ((n + 3) // 4) * 4 + v, f % 3]"),
        ("A[f // 5 // ((n + 3) // 4)", "A[f // (((n + 3) // 4) * 5)"),  # told in another way
        ("for f in parallel", "for f in serial"),
    ],
)
def test_vectors_that_are_not_told_by_their_indices_stay(old: str, new: str) -> None:
    text = ALL_FUSED.replace(old, new)
    assert text != ALL_FUSED
    func = parse_func(text)
    assert overlap_tails(func, masks=False) is func


@pytest.mark.parametrize("text", [ROWS, ROWS_IN_PLACE])
def test_rows_hold_their_last_vector(text: str) -> None:
    """Where masks are no registers, what may lie over its operand is computed before that is
    written over: more elements than lanes need no masks."""
    made = overlapped(text, masks=False)
    (branch,) = branches(made.body)
    assert not [n for n in visit(branch.then) if isinstance(n, If)]
    assert annotation(made, IN_PLACE_NOTE, False)
    assert overlap_tails(parse_func(text)) == parse_func(text)
    assert overlap_tails(parse_func(text), holds=True) == made  # where their stores take longer


def test_vectors_of_several_rows_are_not_held() -> None:
    """A square is transposed four rows at a time, of which each has a last vector."""
    text = """
def transposed(A: f32[n, n], B: f32[n, n], n: i64):
    for i_o in serial(0, (n + 3) // 4):
        for j_o in serial(0, (n + 3) // 4):
            for i_i in unroll(0, 4):
                for j_i in vectorize(0, 4):
                    if i_o * 4 + i_i < n and j_o * 4 + j_i < n:
                        B[i_o * 4 + i_i, j_o * 4 + j_i] = A[j_o * 4 + j_i, i_o * 4 + i_i]
"""
    overlapped(text, masks=False)


@pytest.mark.parametrize("n", SIZES)
def test_a_result_over_its_operand(n: int) -> None:
    """No read of the operand moves behind the stores."""
    rng = np.random.default_rng(n)
    a, b = (rng.random(s, np.float32) for s in ((3, n), (n,)))
    wanted = a * b
    eight = ROWS.replace("n + 3) // 4", "n + 7) // 8").replace("* 4", "* 8").replace("0, 4", "0, 8")
    load(parse_func(eight))(a, b, a, symbols={"n": n})
    np.testing.assert_array_equal(a, wanted)
