"""overlap_tiles: the last register tile begins where it is whole."""

from __future__ import annotations

import pytest

from tests.lower.programs import same_meaning
from tilewright.ir.parse import parse_func
from tilewright.ir.stmt import Func, If
from tilewright.ir.text import print_func
from tilewright.ir.verify import verify
from tilewright.ir.walk import visit
from tilewright.lower.overlap_tiles import overlap_tiles
from tilewright.lower.partition_loops import partition_loops
from tilewright.lower.pipeline import simplify

# 98 rows in tiles of 4, the last of which has 2, as a product has them
ROWS = """
def rows(A: f32[98, 3], B: f32[98], C: f32[98]):
    for t in serial(0, 25):
        with alloc(f32[4], "local") as sums:
            for p in unroll(0, 4):
                if t * 4 + p < 98:
                    sums[p] = 0.0
            for k in serial(0, 3):
                for q in unroll(0, 4):
                    if t * 4 + q < 98:
                        sums[q] = sums[q] + A[t * 4 + q, k]
            for r in unroll(0, 4):
                if t * 4 + r < 98:
                    C[t * 4 + r] = sums[r] + B[t * 4 + r]
"""
FEW = ROWS.replace("98", "34").replace("25", "9")
IN_PLACE = ROWS.replace("+ B[", "+ C[")
OF_TILES = ROWS.replace("+ B[t * 4 + r]", "+ cast(f32, t)")
OF_ROWS = ROWS.replace("+ B[t * 4 + r]", "+ cast(f32, r)")
BESIDE = ROWS.replace("A[t * 4 + q, k]", "select(t * 4 + q + k < 98, A[t * 4 + q + k, k], 0.0)")
NO_SUM = ROWS.replace("sums[q] + A", "A")
# two chunks of them; indices are rows and columns of an image 14 wide, and memory is prefetched
PIXEL = "(chunk * 100 + t * 4 + {0}) // 14, (chunk * 100 + t * 4 + {0}) % 14"
CHUNKS = f"""
def chunks(A: f32[14, 14], B: f32[14, 14], C: f32[14, 14]):
    for chunk in parallel(0, 2):
        for t in serial(0, 25):
            with alloc(f32[4], "local") as sums:
                for p in unroll(0, 4):
                    if chunk * 100 + t * 4 + p < 194:
                        sums[p] = 0.0
                for k in serial(0, 3):
                    prefetch(B[k, min(t, 13)], 2)
                    for q in unroll(0, 4):
                        if chunk * 100 + t * 4 + q < 194:
                            sums[q] = sums[q] + A[{PIXEL.format("q")}]
                for r in unroll(0, 4):
                    if chunk * 100 + t * 4 + r < 194 and chunk * 25 + t < 49:
                        C[{PIXEL.format("r")}] = sums[r] + B[{PIXEL.format("r")}]
"""


def overlapped(text: str) -> Func:
    func = parse_func(text)
    made = overlap_tiles(func)
    verify(made, "loops")
    same_meaning(func, made)
    return made


@pytest.mark.parametrize("text", [ROWS, CHUNKS])
def test_all_tiles_have_one_code(text):
    made = simplify(partition_loops(overlapped(text)))
    assert not any(isinstance(n, If) for n in visit(made.body))
    assert print_func(made).count("unroll") == text.count("unroll")


def test_the_last_tile_takes_the_last_rows() -> None:
    text = print_func(overlapped(ROWS))
    assert "t_at: i64 = min(t * 4, 94)" in text
    assert "C[t_at + r] = sums[r] + B[t_at + r]" in text


def test_a_chunk_stops_where_rows_do() -> None:
    """It has no round more, which would compute its last tile once more."""
    assert "for t in serial(0, min(25, " in print_func(overlapped(CHUNKS))


@pytest.mark.parametrize("text", [FEW, IN_PLACE, OF_TILES, OF_ROWS, NO_SUM, BESIDE])
def test_it_is_left_alone(text):
    """Few rows beside those that are computed twice; a result that is read; numbers that differ
    from one tile to the other; what may lie over its operand, for it does not reduce; and taps
    beside an image, of which the middle of a row must not ask."""
    func = parse_func(text)
    assert overlap_tiles(func) is func
