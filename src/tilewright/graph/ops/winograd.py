"""Winograd's convolution: fewer multiplications for a 3×3 window, for more additions.

A tile of m × m results of a convolution with r taps takes (m + r - 1)² multiplications per pair of
channels instead of m² * r²: the image's tile and the filter are transformed, multiplied element by
element (over all channels that is a matrix product for each element), and the result is transformed
back. In one dimension this is polynomial multiplication (Toom and Cook): evaluate both at m + r - 1
points, multiply, interpolate; the convolution is its transpose. S. Winograd, Arithmetic Complexity
of Computations (1980); A. Lavin and S. Gray, Fast Algorithms for Convolutional Neural Networks
(2015), for the two-dimensional use.

Over three axes the last two are transformed, and taps along the first are part of the reduction:
a plane of the image is transformed once and multiplied for each of them.

No importer makes these; the layout pass puts them in place of packed convolutions where they pay.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import numpy as np

from tilewright import te
from tilewright.graph import sizes
from tilewright.graph.operator import COMPLEX, Type, need, operator
from tilewright.graph.ops.packed import Pads, padded_image
from tilewright.ir.expr import Expr, as_int

TAPS = 3
COLUMNS = 1 << 13  # numbers of each tap that are transformed at a time: they stay in cache
LONG = 16  # tiles across: a run has not several rows of more
EVEN = (2, 3, 5)  # rows of register tiles, in which shorter rows, or several, are multiplied
# The points to evaluate at, besides infinity, for tiles of m: found by trying pairs ±p of small
# exact fractions for the least error in f32. For m = 4 ±1, ±2, the common ones, err four times as
# much.
POINTS = {
    2: (Fraction(0), Fraction(1), Fraction(-1)),
    4: (Fraction(0), Fraction(3, 4), Fraction(-3, 4), Fraction(5, 4), Fraction(-5, 4)),
}
Matrix = tuple[tuple[Fraction, ...], ...]


class Transforms(NamedTuple):
    """For m results from an image of m + r - 1: result = back ((filter g) * (image d))."""

    image: Matrix  # (m + r - 1, m + r - 1)
    filter: Matrix  # (m + r - 1, r)
    back: Matrix  # (m, m + r - 1)


@lru_cache
def transforms(m: int) -> Transforms:
    """The transforms of m results of a convolution with r = 3 taps.

    Row k of `filter` evaluates a polynomial of r coefficients at point k, that of `back`
    (transposed) one of m; row k of `image` holds the coefficients of the polynomial that is zero at
    every other point. The last point is infinity, where a polynomial is its highest coefficient.
    """
    points, r = POINTS[m], TAPS
    top = (Fraction(0),)
    one = (Fraction(1),)
    image: list[tuple[Fraction, ...]] = []
    filters: list[tuple[Fraction, ...]] = []
    for p in points:
        others = [q for q in points if q != p]
        scale = Fraction(1)
        for q in others:
            scale *= p - q
        sign = -1 if scale < 0 else 1  # for the twins p and -p to have the same signs in `image`
        image.append(tuple(sign * c for c in _with_roots(others)) + top)
        filters.append(tuple(sign * p**j / scale for j in range(r)))
    image.append(_with_roots(points))
    filters.append(top * (r - 1) + one)
    back = [tuple(p**i for p in points) + (one if i == m - 1 else top) for i in range(m)]
    return Transforms(tuple(image), tuple(filters), tuple(back))


def _with_roots(roots: Sequence[Fraction]) -> tuple[Fraction, ...]:
    """The coefficients, lowest first, of the product of (x - root)."""
    made = [Fraction(1)]
    for root in roots:
        shifted = [Fraction(0), *made]
        made = [a - root * b for a, b in zip(shifted, [*made, Fraction(0)], strict=True)]
    return tuple(made)


def pack_winograd(filters: np.ndarray, m: int) -> np.ndarray:
    """Packed filters (Co/ob, Ci/cb, [KD,] 3, 3, cb, ob), transformed: (Co/ob, a, a, [KD,] Ci/cb,
    cb, ob)."""
    g = np.array(transforms(m).filter, np.float64)
    both = np.kron(g, g)  # (a * a, 9): rows and columns at once
    if filters.ndim == 7:
        filters = np.moveaxis(filters, 2, 1)
    blocks, *around, _, _, cb, ob = filters.shape
    made = np.empty((blocks, len(g), len(g), *around, cb, ob), filters.dtype)
    inner = prod(around)
    taps = filters.reshape(blocks * inner, TAPS**2, -1)
    elements = np.moveaxis(made.reshape(blocks, len(both), inner, -1), 1, 2)
    # few at a time, in products too small for threads, which would wait for each other's cores
    step = max(1, COLUMNS // taps.shape[-1])
    for block in range(blocks):
        for first in range(0, inner, step):
            last = min(first + step, inner)
            some = taps[block * inner + first : block * inner + last].astype(np.float64)
            elements[block, first:last] = both @ some
    return made


def tiles(size: int | Expr, m: int, dilation: int = 1) -> Any:
    """How many tiles cover `size` where each has m pixels, so many steps of `dilation` apart: those
    of a phase (pixels that are a multiple of it apart) stand between those of the others."""
    span = m * dilation
    return (size + (span - 1)) // span * dilation


def _result(x: Any, w: Any, pads: Pads, dilations: Sequence[int]) -> list[Expr]:
    """The spatial sizes of the result."""
    taps = (*w.shape[3:-3], TAPS, TAPS)
    return [
        sizes.size(size + sum(pad) - (count - 1) * step)
        for size, pad, count, step in zip(x.shape[2:-1], pads, taps, dilations, strict=True)
    ]


def _type(x: Any, w: Any, *, pads: Pads, dilations: Sequence[int] = ()) -> Type:
    rank = len(pads)
    need(rank in (2, 3), f"slides windows over 2 or 3 axes, not {rank}")
    need(
        x.rank == rank + 3 and w.rank == rank + 4,
        f"takes a packed image of rank {rank + 3} and weights of rank {rank + 4}",
    )
    need(x.shape[-1] == w.shape[-2], "the channel blocks of image and weights differ")
    steps = tuple(dilations) or (1,) * rank
    need(len(steps) == rank and min(steps) > 0, f"takes {rank} positive dilations")
    return x.dtype, (x.shape[0], w.shape[0], *_result(x, w, pads, steps), w.shape[-1])


def _reference(
    x: np.ndarray, w: np.ndarray, pads: Pads, dilations: Sequence[int] = ()
) -> np.ndarray:
    *deep, dy, dx = tuple(dilations) or (1,) * len(pads)
    image = np.pad(x, [(0, 0), (0, 0), *map(tuple, pads), (0, 0)])
    if deep:  # the sum of what each tap along the first axis gives
        taps = w.shape[3]
        planes = image.shape[2] - (taps - 1) * deep[0]

        def of_tap(r: int) -> np.ndarray:
            own = np.moveaxis(image[:, :, r * deep[0] :][:, :, :planes], 2, 1)
            flat = own.reshape(-1, *own.shape[2:])
            made = _dilated(flat, w[:, :, :, r], dy, dx)
            return np.moveaxis(made.reshape(*own.shape[:2], *made.shape[1:]), 1, 2)

        return sum((of_tap(r) for r in range(1, taps)), of_tap(0))
    return _dilated(image, w, dy, dx)


def _dilated(image: np.ndarray, w: np.ndarray, dy: int, dx: int) -> np.ndarray:
    height, width = (n - (TAPS - 1) * d for n, d in zip(image.shape[2:4], (dy, dx), strict=True))
    made = np.empty((image.shape[0], w.shape[0], height, width, w.shape[-1]), image.dtype)
    for p in range(min(dy, height)):
        for q in range(min(dx, width)):
            made[:, :, p::dy, q::dx] = _undilated(image[:, :, p::dy, q::dx], w)
    return made


def _undilated(image: np.ndarray, w: np.ndarray) -> np.ndarray:
    m = w.shape[1] - TAPS + 1
    d, _, s = (np.array(t, np.float64) for t in transforms(m))
    size = [image.shape[2 + k] - (TAPS - 1) for k in range(2)]
    more = [(0, tiles(n, m) * m - n) for n in size]
    full = np.pad(image, [(0, 0), (0, 0), *more, (0, 0)])
    views = np.lib.stride_tricks.sliding_window_view(full, w.shape[1:3], (2, 3))[:, :, ::m, ::m]
    v = np.einsum("ik,nctubkl,jl->nijctub", d, views, d, optimize=True)
    product = np.einsum("nijctub,oijcbk->noijtuk", v, w, optimize=True)
    made = np.einsum("yi,noijtuk,xj->notyuxk", s, product, s, optimize=True)
    n, o, t, _, u, _, k = made.shape
    return made.reshape(n, o, t * m, u * m, k)[:, :, : size[0], : size[1]]


@operator(fusion=COMPLEX, infer=_type, reference=_reference)
def winograd_packed(
    x: te.Tensor, w: te.Tensor, *, pads: Pads, dilations: Sequence[int] = ()
) -> te.Tensor:
    """A convolution of a packed image by Winograd's transforms: of 3×3 taps along the last two
    axes, and any number of planes of them along the first of three.

    x: (N, Ci/cb, [D,] H, W, cb); w as `pack_winograd` gives it, whose a says that tiles are of
    m = a - 2 pixels; result (N, Co/ob, [D',] H', W', ob). The pixels of a tile, like the taps, are
    `dilations` apart.
    """
    n, inner, *deep, height, width, cb = x.shape
    blocks, a, _, *planes, _, _, ob = w.shape
    m = (as_int(a) or 0) - TAPS + 1
    d, _, s = transforms(m)
    dilations = tuple(dilations) or (1,) * len(pads)
    *results, rows, columns = _result(x, w, pads, dilations)
    *apart, dy, dx = dilations
    reach = TAPS - 1
    high, wide = tiles(rows, m, dy), tiles(columns, m, dx)
    *around, (top, _), (left, _) = pads
    bottom, right = (  # beyond the last tile nothing is read
        sizes.size(count * m + reach * step - size - before)
        for count, step, size, before in ((high, dy, height, top), (wide, dx, width, left))
    )
    whole: Any = (*around, (top, bottom), (left, right))  # numbers, or of open sizes
    image = padded_image(x, whole)
    plane = high * wide  # tiles of it; tile t of plane z of the result is number z * plane + t
    half = _half(image, d, (high, wide), (dy, dx))
    by_tile = is_by_tile(deep, (high, wide))

    def element(n: Expr, i: Expr, j: Expr, c: Expr, *at: Expr) -> Expr:
        *z, t, b = at
        if by_tile:
            return _row(d, j, lambda k: half[(n, c, *z, t, i, k, b)])
        x = t % wide
        return _row(d, j, lambda k: half[(n, c, *z, t // wide, i, _pixel(x, k, m, dx), b)])

    spread = te.compute(
        (n, a, a, inner, *image.shape[2:-3], plane, cb),
        element,
        name="spread",
        attrs={"role": "winograd_spread"},
    )
    rc, ri = te.reduce_axis(inner, "rc"), te.reduce_axis(cb, "ri")
    taps = [te.reduce_axis(size, "rz") for size in planes]
    count = sizes.product((*results, plane))

    def read(t: Expr) -> tuple[Expr, ...]:
        """The tile, or for each tap of tile t the one that many planes further on."""
        if not deep:
            return (t,)
        further = [r * step for r, step in zip(taps, apart, strict=True)]
        return sum(further, t // plane), t % plane

    product = te.compute(
        (n, blocks, a, a, count, ob),
        lambda n, o, i, j, t, b: te.sum(
            spread[(n, i, j, rc, *read(t), ri)] * w[(o, i, j, *taps, rc, ri, b)],
            [*taps, rc, ri],
        ),
        name="product",
        attrs={
            "role": "winograd_product",
            "across": 0 if by_tile else as_int(wide),
            "dy": dy,
            "dx": dx,
        },
    )
    gathered = te.compute(
        (n, blocks, count, m, a, ob),
        lambda n, o, t, y, j, b: _row(s, y, lambda k: product[n, o, k, j, t, b]),
        name="gathered",
        attrs={"role": "winograd_gathered"},
    )

    def pixel(n: Expr, o: Expr, *at: Expr) -> Expr:
        *z, y, x, b = at
        tile = _tile(y, m, dy) * wide + _tile(x, m, dx)
        of = sum((p * plane for p in z), tile)
        return _row(s, x // dx % m, lambda k: gathered[n, o, of, y // dy % m, k, b])

    shape = (n, blocks, *results, rows, columns, ob)
    names = {"name": "conv", "attrs": {"role": "winograd_result"}}
    if deep:
        return te.compute(shape, lambda n, o, z, y, x, b: pixel(n, o, z, y, x, b), **names)
    return te.compute(shape, lambda n, o, y, x, b: pixel(n, o, y, x, b), **names)


def is_by_tile(deep: Sequence[Any], counts: tuple[Any, Any]) -> bool:
    """Is the image transformed tile by tile, so that a run of tiles may end anywhere in a row?

    It is where only the run finds out how many there are across. At an open height that leaves no
    choice but whole rows, so are long rows that nothing cuts evenly (and planes of them).
    """
    high, wide = map(as_int, counts)
    if wide is None or high is not None:
        return wide is None
    return bool(deep) or (wide > LONG and all(wide % n for n in EVEN))


def _half(
    image: te.Tensor, d: Matrix, counts: tuple[Any, Any], dilations: tuple[int, int]
) -> te.Tensor:
    """The image transformed along its columns: rows of tiles (neighbours share what they read), or
    tile by tile."""
    n, inner, *deep, _, _, cb = image.shape
    (high, wide), (dy, dx), a, m = counts, dilations, len(d), len(d) - TAPS + 1

    def of_tile(n: Expr, c: Expr, *at: Expr) -> Expr:
        *z, t, i, k, b = at
        x = _pixel(t % wide, k, m, dx)
        return _row(d, i, lambda r: image[(n, c, *z, _pixel(t // wide, r, m, dy), x, b)])

    def of_row(n: Expr, c: Expr, *at: Expr) -> Expr:
        *z, t, i, x, b = at
        return _row(d, i, lambda k: image[(n, c, *z, _pixel(t, k, m, dy), x, b)])

    by_tile = is_by_tile(deep, counts)
    own = (high * wide, a, a) if by_tile else (high, a, wide * m + (TAPS - 1) * dx)
    return te.compute(
        (n, inner, *deep, *own, cb),
        of_tile if by_tile else of_row,
        name="half",
        attrs={"role": "winograd_half"},
    )


def _pixel(tile: Expr, k: Expr | int, m: int, dilation: int) -> Expr:
    """Where pixel `k` of a tile lies along an axis."""
    if dilation == 1:
        return tile * m + k
    return (tile // dilation * m + k) * dilation + tile % dilation


def _tile(pixel: Expr, m: int, dilation: int) -> Expr:
    """The tile of a pixel along an axis."""
    if dilation == 1:
        return pixel // m
    return pixel // (m * dilation) * dilation + pixel % dilation


def _row(matrix: Matrix, i: Expr, value: Callable[[int], Expr]) -> Expr:
    """Row i of a matrix times a vector, `i` chosen where the loop over it is unrolled."""
    values = [value(k) for k in range(len(matrix[0]))]
    made = [_combination(row, values) for row in matrix]
    return te.choose(i, made)


def _combination(row: Sequence[Fraction], values: Sequence[Expr]) -> Expr:
    """The sum of coefficient * value, even indices apart from odd ones.

    The rows of the points p and -p differ in the sign of one of the two, so code that computes both
    shares them.
    """
    parts: list[tuple[int, Expr]] = []
    for start in (0, 1):
        indices = [k for k in range(start, len(row), 2) if row[k]]
        if not indices:
            continue
        sign = -1 if row[indices[-1]] < 0 else 1
        total: Expr | None = None
        for k in reversed(indices):
            c = row[k] * sign
            term = values[k] if abs(c) == 1 else values[k] * te.const(float(abs(c)), "f32")
            if total is None:
                total = term
            else:
                total = total + term if c > 0 else total - term
        assert total is not None
        parts.append((sign, total))
    parts.sort(key=lambda part: -part[0])
    sign, e = parts[0]
    if sign < 0:
        e = te.const(0.0, "f32") - e
    for sign, more in parts[1:]:
        e = e + more if sign > 0 else e - more
    return e
