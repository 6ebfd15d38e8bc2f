"""Regions: they hold every cell that is touched, and no more where the indices are affine."""

from __future__ import annotations

import itertools
import random

import pytest
from index_programs import Undefined, evaluate, random_index

from tilewright.arith.region import clip, cover, cover_region, signature, touched, union
from tilewright.arith.simplify import Facts, simplify
from tilewright.ir.dtype import f32
from tilewright.ir.expr import Buffer, Expr, Load, Var, const, expr
from tilewright.ir.parse import parse_expr, parse_func
from tilewright.ir.stmt import Block, For, Region
from tilewright.ir.text import print_expr, print_region
from tilewright.ir.walk import blocks, statements

NAMES = ("oh", "oh_o", "kh", "c", "c_o", "i", "j", "n", "m", "k", "b")
STILL = {Var("oh_o"): (0, 6), Var("c_o"): (0, 7), Var("n"): (1, None), Var("m"): (1, None)}

COVERED = """
    oh * 2 + kh | oh: 0..7; kh: 0..2 | 0 : 17
    oh * 2 + kh - 1 | oh: 0..7; kh: 0..2 | -1 : 17
    (oh_o * 8 + oh) * 2 + kh | oh: 0..7; kh: 0..2 | oh_o * 16 : 17
    oh_o * 8 + oh + kh * 2 | oh: 0..7; kh: 0..2 | oh_o * 8 : 12
    7 - oh | oh: 0..7 | 0 : 8
    oh_o * 8 - oh | oh: 0..7 | oh_o * 8 - 7 : 8
    (c_o * 32 + c) // 16 | c: 0..31 | c_o * 2 : 2
    (c_o * 32 + c) % 16 | c: 0..31 | 0 : 16
    (c_o * 8 + c) // 16 | c: 0..7 | c_o // 2 : 1
    (c_o * 8 + c) % 16 | c: 0..7 | c_o % 2 * 8 : 8
    (c_o * 6 + c) // 4 | c: 0..5 | c_o + c_o // 2 : 2
    (c_o * 6 + c) % 4 | c: 0..5 | 0 : 4
    i | i: 0..n - 1 | 0 : n
    i * m + j | i: 0..n - 1; j: 0..m - 1 | 0 : n * m
    i | i: k..k + 3 | k : 4
    k * 4 + i | i: 0..min(4, n - k * 4) - 1 | k * 4 : min(4, n - k * 4)
    max(0, min(oh_o * 8 + oh - 1, 55)) | oh: 0..9 | max(0, oh_o * 8 - 1) : 10
    b | i: 0..3 | b : 1
    3 | i: 0..3 | 3 : 1
    i * k | i: 0..3 | ? : ?
"""


def rows() -> list[tuple[str, str, str]]:
    lines = COVERED.strip().splitlines()
    return [tuple(part.strip() for part in line.split("|")) for line in lines]  # type: ignore[misc]


def read(text: str) -> Expr:
    return parse_expr(text, tuple(Var(n) for n in NAMES))


@pytest.mark.parametrize(("index", "varying", "want"), rows())
def test_covers(index: str, varying: str, want: str) -> None:
    ranges = {}
    for part in varying.split("; "):
        name, ends = part.split(": ")
        lo, hi = ends.split("..")
        ranges[Var(name)] = (read(lo), read(hi))
    if want == "? : ?":
        with pytest.raises(ValueError, match="no known bounds"):
            cover([read(index)], ranges, STILL)
        assert cover([read(index)], ranges, STILL, [Var("n")]) == (
            (const(0),),
            (Var("n"),),
        )
        return
    (start,), (extent,) = cover([read(index)], ranges, STILL)
    assert f"{print_expr(start)} : {print_expr(extent)}" == want


def cells(index: Expr, varying: dict, at: dict) -> set[int]:
    """Every value of `index`, by brute force."""
    found = set()
    for values in itertools.product(*(range(lo, hi + 1) for lo, hi in varying.values())):
        found.add(evaluate(index, {**at, **dict(zip(varying, values, strict=True))}))
    return found


def test_random_indices_are_covered() -> None:
    checked = 0
    x, y, z, i, j, n = (Var(v) for v in "xyzijn")
    for seed in range(300):
        rng = random.Random(seed)
        e = random_index(rng, 3)
        varying = {x: (0, rng.choice((0, 3, 7))), y: (rng.choice((0, -2)), 3), n: (0, 2)}
        still = {z: (0, 9), i: (-4, 4), j: (1, 7)}
        try:
            (start,), (extent,) = cover([e], varying, still)
        except ValueError:
            continue
        for _ in range(4):
            at = {v: rng.randint(*r) for v, r in still.items()}
            try:
                found = cells(e, varying, at)
                low = evaluate(start, at)
                high = low + evaluate(extent, at)
            except Undefined:
                continue
            assert all(low <= f < high for f in found), print_expr(e)
            checked += 1
    assert checked > 700


def test_affine_regions_of_unit_tiles_are_exact() -> None:
    for seed in range(300):
        rng = random.Random(seed)
        inner, outer = Var("x"), Var("z")
        tile = rng.randint(1, 9)
        e: Expr = outer * rng.randint(-3, 9) + inner * rng.choice((1, -1)) + rng.randint(-5, 5)
        varying = {inner: (0, tile - 1)}
        (start,), (extent,) = cover([e], varying, {outer: (0, 9)})
        at = {outer: rng.randint(0, 9)}
        low = evaluate(start, at)
        assert set(range(low, low + evaluate(extent, at))) == cells(e, varying, at)


def buffer(*shape: int | Expr, name: str = "A") -> Buffer:
    return Buffer(name, tuple(expr(s) for s in shape), f32)


def region(of: Buffer, *pairs: tuple[object, object]) -> Region:
    return Region(of, tuple(expr(a) for a, _ in pairs), tuple(expr(b) for _, b in pairs))


def test_constant_regions_stay_inside_the_buffer() -> None:
    oh, kh = Var("oh"), Var("kh")
    got = cover([oh * 2 + kh - 1], {oh: (0, 27), kh: (0, 2)}, shape=[const(56)])
    assert got == ((const(0),), (const(56),))


def test_a_region_as_large_as_the_buffer_is_the_buffer() -> None:
    i, k = Var("i"), Var("k")
    got = cover([k + i], {i: (0, 9)}, shape=[const(8)])
    assert got == ((const(0),), (const(8),))


def test_union() -> None:
    a, i, j = buffer(64, 64), Var("i"), Var("j")
    got = union(
        [region(a, (i, 1), (0, 8)), region(a, (i + 2, 1), (4, 8)), region(a, (i - 1, 1), (4, 1))]
    )
    assert got == region(a, (i - 1, 4), (0, 12))
    got = union([region(a, (i, 4), (0, 1)), region(a, (j, 4), (0, 1))], {i: (0, 3), j: (0, 5)})
    assert simplify(got.extents[1]) == const(1)
    known = Facts({i: (0, 3), j: (0, 5)})
    for vi, vj in itertools.product(range(4), range(6)):
        at = {i: vi, j: vj}
        low = evaluate(got.starts[0], at)
        high = low + evaluate(got.extents[0], at)
        assert low <= min(vi, vj) and max(vi, vj) + 4 <= high
    assert known.simplify(got.extents[0]) == got.extents[0]
    far = union([region(a, (i, 4), (0, 1)), region(a, (j, 4), (0, 1))])
    assert print_expr(far.starts[0]) == "min(i, j)"


def test_clip() -> None:
    i = Var("i")
    a = buffer(56)
    got = clip(region(a, (i * 8 - 1, 10)), {i: (0, 6)})
    assert print_expr(got.starts[0]) == "max(i * 8 - 1, 0)"
    assert print_expr(got.extents[0]) == "min(i * 8 + 9, 56) - max(i * 8 - 1, 0)"
    inside = region(a, (i * 8, 8))
    assert clip(inside, {i: (0, 6)}) == inside


def test_cover_region_adds_extents() -> None:
    i, j = Var("i"), Var("j")
    got = cover_region(region(buffer(64, 64), (i * 4 + j, 3), (j, 1)), {j: (0, 3)}, {i: (0, 9)})
    assert got == region(buffer(64, 64), (i * 4, 6), (0, 4))


CONV = """
def conv(X: f32[8, 56, 56], W: f32[8, 3, 3], Y: f32[56, 56], B: f32[56]):
    for y_o in serial(0, 7):
        for y_i in serial(0, 8):
            for x in serial(0, 56):
                for c in serial(0, 8):
                    for ky in serial(0, 3):
                        for kx in serial(0, 3):
                            with block("Y", where=y_o * 8 + y_i < 56):
                                vy = spatial(56, y_o * 8 + y_i)
                                vx = spatial(56, x)
                                vc = reduce(8, c)
                                vky = reduce(3, ky)
                                vkx = reduce(3, kx)
                                reads(X[vc, vy + vky - 1, vx + vkx - 1], W[vc, vky, vkx], B[vy])
                                writes(Y[vy, vx])
                                with init():
                                    Y[vy, vx] = B[vy]
                                Y[vy, vx] = Y[vy, vx] + W[vc, vky, vkx] * PADDED
""".replace(
    "PADDED",
    "select(vy + vky >= 1 and vy + vky < 57 and vx + vkx >= 1 and vx + vkx < 57, "
    "X[vc, vy + vky - 1, vx + vkx - 1], 0.0)",
)


def test_touched_by_a_tile_of_a_convolution() -> None:
    func = parse_func(CONV)
    inner = func.body.body  # the loop over y_i, in terms of y_o
    reads, writes = touched(inner, {Var("y_o"): (0, 6)})
    assert [print_region(r) for r in reads] == [
        "X[0:8, y_o * 8 - 1:y_o * 8 - 1 + 10, 0:56]",
        "W[0:8, 0:3, 0:3]",
        "B[y_o * 8:y_o * 8 + 8]",
    ]
    assert [print_region(w) for w in writes] == ["Y[y_o * 8:y_o * 8 + 8, 0:56]"]


def test_signature_of_a_block() -> None:
    block = blocks(parse_func(CONV))[0]
    reads, writes = signature(block.axes, block.init, block.body)
    assert set(map(print_region, reads)) == {
        "X[vc, vy + vky - 1, vx + vkx - 1]",
        "W[vc, vky, vkx]",
        "B[vy]",
    }
    assert writes == block.writes


GUARDED = """
def guarded(A: f32[64], B: f32[64], C: f32[64], t: i64):
    t_0 = alloc(f32[4], "local")
    for i in serial(0, 64):
        x: i64 = i // 2
        if i < 8:
            B[x] = A[i] + t_0[0]
        else:
            C[i] = A[63 - i] + A[t]
"""


def test_touched_by_statements() -> None:
    reads, writes = touched(parse_func(GUARDED).body)
    (read,) = reads
    assert [print_expr(read.starts[0]), print_expr(read.extents[0])] == [
        "min(0, t)",
        "max(56, t + 1) - min(0, t)",
    ]
    assert [print_region(w) for w in writes] == ["B[0:4]", "C[8:64]"]


def test_touched_holds_every_access() -> None:
    """Run the convolution by hand and look at each cell."""
    func = parse_func(CONV)
    block = blocks(func)[0]
    loops = [s for s in statements(func.body) if isinstance(s, For)]
    reads, _ = touched(loops[0].body, {Var("y_o"): (0, 6)})
    held = next(r for r in reads if r.buffer.name == "X")
    rng = random.Random(0)
    for _ in range(300):
        at = {s.var: rng.randrange(s.stop.value) for s in loops}
        axes = {a.var: evaluate(a.value, at) for a in block.axes}
        wanted = [evaluate(s, axes) for s in block.reads[0].starts]
        if not all(0 <= w < size.value for w, size in zip(wanted, held.buffer.shape, strict=True)):
            continue  # padding: guarded
        for w, start, extent in zip(wanted, held.starts, held.extents, strict=True):
            low = evaluate(start, at)
            assert low <= w < low + evaluate(extent, at)


def test_opaque_indices_take_the_whole_dimension() -> None:
    table = Buffer("T", (expr(9),), Var("n").dtype)
    a = buffer(Var("n"))
    i = Var("i")
    (start,), (extent,) = cover([Load(table, (i,))], {i: (0, 8)}, shape=a.shape)
    assert (start, extent) == (const(0), Var("n"))


def test_blocks_are_found() -> None:
    assert isinstance(blocks(parse_func(CONV))[0], Block)
