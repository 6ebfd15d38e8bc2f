"""Operators on blocked channels: the layouts that vector units want.

A packed activation has shape (N, C/b, *spatial, b): `b` neighbouring channels lie side by side and
fill vector registers. Packed weights carry the block of the output innermost, so that a kernel
reads them in one stream. No importer makes these; the layout pass puts them in place of the plain
operators and packs constants.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright import te
from tilewright.graph import sizes
from tilewright.graph.operator import COMPLEX, INJECTIVE, Type, need, operator
from tilewright.graph.ops.movement import ravel, unravel
from tilewright.ir.expr import Expr, as_int, const, minimum

Pads = Sequence[Sequence[int]]  # ((before, after) for each spatial axis)


# Activations --------------------------------------------------------------------------------


def blocks_of(channels: int | Expr, block: int, groups: int) -> int | Expr:
    """How many blocks hold the channels when no block straddles two groups."""
    return ((channels // groups) + (block - 1)) // block * groups


def _pack_type(x: Any, *, block: int, groups: int = 1) -> Type:
    need(x.rank >= 2, f"packs the channels of rank 2 or more, not {x.rank}")
    n, c, *spatial = x.shape
    count = as_int(c)
    need(groups == 1 or (count is not None and count % groups == 0), "groups of unequal size")
    return x.dtype, (n, sizes.size(blocks_of(c, block, groups)), *spatial, sizes.size(block))


def pack(array: np.ndarray, block: int, groups: int = 1) -> np.ndarray:
    """NumPy twin of `pack_channels`: channels beyond the last of a group are zeros."""
    return np.ascontiguousarray(in_blocks(array, block, groups))


def in_blocks(array: np.ndarray, block: int, groups: int = 1) -> np.ndarray:
    """`pack`, copying nothing where no channels are missing."""
    n, c, *spatial = array.shape
    each = -(-c // groups // block)
    full = array.reshape(n, groups, c // groups, *spatial)
    if each * block != c // groups:
        full = np.zeros((n, groups, each * block, *spatial), array.dtype)
        full[:, :, : c // groups] = array.reshape(n, groups, c // groups, *spatial)
    return np.moveaxis(full.reshape(n, groups * each, block, *spatial), 2, -1)


@operator(
    fusion=INJECTIVE,
    infer=_pack_type,
    reference=lambda x, block, groups=1: pack(x, block, groups),
)
def pack_channels(x: te.Tensor, *, block: int, groups: int = 1) -> te.Tensor:
    """(N, C, *S) → (N, groups*ceil(C/groups/block), *S, block); missing channels are zeros.

    Each of the `groups` equal runs of channels begins a block of its own.
    """
    n, c, *spatial = x.shape
    blocks = blocks_of(c, block, groups)
    each = c // groups
    exact = as_int(each) is not None and as_int(each) % block == 0  # type: ignore[operator]

    def element(*i: Expr) -> Expr:
        channel = i[1] * block + i[-1]
        if exact:
            return x[(i[0], channel, *i[2:-1])]
        if groups > 1:
            of_group = blocks // groups
            channel = i[1] % of_group * block + i[-1]
            value = x[(i[0], i[1] // of_group * each + channel, *i[2:-1])]
        else:
            value = x[(i[0], channel, *i[2:-1])]
        return te.if_then_else(channel < each, value, te.const(0, x.dtype))

    return te.compute((n, blocks, *spatial, block), lambda *i: element(*i), name="packed")


def _unpack_type(x: Any, *, channels: int, groups: int = 1) -> Type:
    need(x.rank >= 3, f"unpacks rank 3 or more, not {x.rank}")
    n, _, *spatial, _ = x.shape
    return x.dtype, (n, sizes.size(channels), *spatial)


def unpack(array: np.ndarray, channels: int, groups: int = 1) -> np.ndarray:
    """NumPy twin of `unpack_channels`."""
    n, blocks, *spatial, block = array.shape
    split = np.moveaxis(array, -1, 2).reshape(n, groups, blocks // groups * block, *spatial)
    return split[:, :, : channels // groups].reshape(n, channels, *spatial)


@operator(
    fusion=INJECTIVE,
    infer=_unpack_type,
    reference=lambda x, channels, groups=1: unpack(x, channels, groups),
)
def unpack_channels(x: te.Tensor, *, channels: int, groups: int = 1) -> te.Tensor:
    """The way back from `pack_channels`: (N, blocks, *S, block) → (N, channels, *S)."""
    n, blocks, *spatial, block = x.shape
    each, of_group = channels // groups, blocks // groups

    def element(*i: Expr) -> Expr:
        if groups == 1:
            return x[(i[0], i[1] // block, *i[2:], i[1] % block)]
        place = i[1] % each
        return x[(i[0], i[1] // each * of_group + place // block, *i[2:], place % block)]

    return te.compute((n, channels, *spatial), lambda *i: element(*i), name="unpacked")


# Convolution --------------------------------------------------------------------------------


def _extent(size: Expr, kernel: Expr, stride: int, pad: Sequence[int], dilation: int) -> Expr:
    """The size of an axis after a window slides over it."""
    return sizes.size((size + (pad[0] + pad[1]) - ((kernel - 1) * dilation + 1)) // stride + 1)


def _window(
    image: Sequence[Expr],
    kernel: Sequence[Expr],
    strides: Sequence[int],
    pads: Pads,
    dilations: Sequence[int],
) -> tuple[Expr, ...]:
    """The sizes of H and W after a window slides over a packed image."""
    return tuple(
        _extent(image[2 + d], kernel[d], strides[d], pads[d], dilations[d]) for d in range(2)
    )


def _conv_type(
    x: Any,
    w: Any,
    *,
    strides: Sequence[int],
    pads: Pads,
    dilations: Sequence[int],
    group: Sequence[int] = (),
    across: bool = False,
) -> Type:
    need(x.rank == 5 and w.rank == 6, "takes a packed image of rank 5 and weights of rank 6")
    count, block, co, ci, step, ob = (
        as_int(n) or 0 for n in (x.shape[1], x.shape[4], *w.shape[:2], *w.shape[4:])
    )
    need(step > 0 and block % step == 0, "the weights' steps are no parts of the image's blocks")
    if group:
        groups, sources, results = group
        need(sources % step == 0, "the weights' steps reach from one group into the next")
        last = min((co * ob - 1) // results, groups - 1) * sources
    need((last if group else 0) + ci * step <= count * block, "the weights ask for more channels")
    size = _window(x.shape, w.shape[2:4], strides, pads, dilations)
    return x.dtype, (x.shape[0], w.shape[0], *size, w.shape[-1])


def _conv_reference(
    x: np.ndarray,
    w: np.ndarray,
    strides: Sequence[int],
    pads: Pads,
    dilations: Sequence[int],
    group: Sequence[int] = (),
    across: bool = False,
) -> np.ndarray:
    blocks, _, kh, kw, _, ob = w.shape
    filters = w.transpose(0, 5, 1, 4, 2, 3).reshape(blocks * ob, -1, kh, kw)
    plain = np.moveaxis(x, -1, 2).reshape(x.shape[0], -1, *x.shape[2:4])
    padded = np.pad(plain, [(0, 0), (0, 0), *map(tuple, pads)])
    height, width = (
        (padded.shape[2 + d] - (filters.shape[2 + d] - 1) * dilations[d] - 1) // strides[d] + 1
        for d in range(2)
    )
    depth = filters.shape[1]
    out = np.zeros((x.shape[0], blocks * ob, height, width), x.dtype)
    groups, sources, results = group or (1, 0, blocks * ob)
    for g in range(groups):
        own = slice(g * results, blocks * ob if g == groups - 1 else (g + 1) * results)
        for a in range(kh):
            for b in range(kw):
                y0, x0 = a * dilations[0], b * dilations[1]
                view = padded[
                    :,
                    g * sources : g * sources + depth,
                    y0 : y0 + (height - 1) * strides[0] + 1 : strides[0],
                    x0 : x0 + (width - 1) * strides[1] + 1 : strides[1],
                ]
                out[:, own] += np.einsum("nchw,oc->nohw", view, filters[own, :, a, b])
    return np.moveaxis(out.reshape(x.shape[0], blocks, ob, height, width), 2, -1).copy()


def padded_image(x: te.Tensor, pads: Pads) -> te.Tensor:
    """The image (N, C, H, W, b) with zeros around H and W; itself if there is nothing to pad."""
    (top, bottom), (left, right) = pads
    if not (top or bottom or left or right):
        return x
    n, c, h, w, block = x.shape

    def element(n: Expr, c: Expr, y: Expr, x_: Expr, b: Expr) -> Expr:
        inside = (y >= top) & (y < h + top) & (x_ >= left) & (x_ < w + left)
        return te.if_then_else(inside, x[n, c, y - top, x_ - left, b], te.const(0, x.dtype))

    shape = (n, c, h + (top + bottom), w + (left + right), block)
    return te.compute(
        shape, lambda n, c, y, x, b: element(n, c, y, x, b), name="pad", attrs={"role": "pad"}
    )


def _every(x: te.Tensor, size: Sequence[Expr], strides: Sequence[int]) -> te.Tensor:
    """The pixels that a 1×1 convolution with strides reads, side by side; itself if it reads
    all."""
    if tuple(strides) == (1, 1):
        return x
    sy, sx = strides
    return te.compute(
        (*x.shape[:2], *size, x.shape[-1]),
        lambda n, c, y, x_, b: x[n, c, y * sy, x_ * sx, b],
        name="kept",
        attrs={"role": "pad"},
    )


@operator(fusion=COMPLEX, infer=_conv_type, reference=_conv_reference)
def conv_packed(
    x: te.Tensor,
    w: te.Tensor,
    *,
    strides: Sequence[int],
    pads: Pads,
    dilations: Sequence[int],
    group: Sequence[int] = (),
    across: bool = False,
) -> te.Tensor:
    """Two-dimensional convolution of a packed image.

    x: (N, Ci/b, H, W, b); w: (Co/ob, depth/step, KH, KW, step, ob), where `step`, a part of b,
    channels of the image are walked in one go; result (N, Co/ob, H', W', ob). `group`: how many
    groups there are, and how many channels of the image and of the result one of them has, missing
    ones included; () is no groups. Groups need not be whole blocks. `across`: the result's pixels
    form one axis, so that tiles may span rows; that of a 1×1 convolution always do.
    """
    blocks, inner, kh, kw, step, ob = w.shape
    block = x.shape[-1]
    shape = (x.shape[0], blocks, *_window(x.shape, (kh, kw), strides, pads, dilations), ob)
    rc, ri = te.reduce_axis(inner, "rc"), te.reduce_axis(step, "ri")
    if (as_int(kh), as_int(kw)) == (1, 1) and not np.any(pads):
        image, (strides, dilations) = _every(x, shape[2:4], strides), ((1, 1), (1, 1))
        across, taps, ry, rx = True, (), 0, 0
    else:
        image = padded_image(x, pads)
        taps = ry, rx = te.reduce_axis(kh, "ry"), te.reduce_axis(kw, "rx")
    (sy, sx), (dy, dx) = strides, dilations
    groups, sources, results = group or (1, 0, 0)
    exceeds = groups * results < (as_int(blocks * ob) or 0)

    def element(n: Expr, o: Expr, y: Expr, x: Expr, i: Expr) -> Expr:
        channel = rc * step + ri
        if group:
            of_group = (o * ob + i) // results
            if exceeds:  # missing channels, whose weights are zeros, are of the last group
                of_group = minimum(of_group, const(groups - 1))
            channel = of_group * sources + channel
        value = image[n, channel // block, y * sy + ry * dy, x * sx + rx * dx, channel % block]
        return te.sum(value * w[o, rc, ry, rx, ri, i], [rc, *taps, ri])

    alike = {"alike": results} if group else {}  # so many neighbours read the same of the image

    if across:
        height, width = shape[2:4]
        pixels = te.compute(
            (shape[0], blocks, height * width, ob),
            lambda n, o, p, i: element(n, o, p // width, p % width, i),
            name="conv",
            attrs={"role": "pointwise_packed", **alike},
        )
        return te.compute(
            shape,
            lambda n, o, y, x, i: pixels[n, o, y * width + x, i],
            name="pixels",
            attrs={"role": "columns"},
        )
    return te.compute(
        shape,
        lambda n, o, y, x, i: element(n, o, y, x, i),
        name="conv",
        attrs={"role": "conv_packed", **alike},
    )


def _depthwise_type(
    x: Any, w: Any, *, strides: Sequence[int], pads: Pads, dilations: Sequence[int]
) -> Type:
    need(x.rank == 5 and w.rank == 4, "takes a packed image of rank 5 and weights of rank 4")
    need(x.shape[1] == w.shape[0] and x.shape[-1] == w.shape[-1], "the channel blocks differ")
    size = _window(x.shape, w.shape[1:3], strides, pads, dilations)
    return x.dtype, (x.shape[0], x.shape[1], *size, x.shape[-1])


def _depthwise_reference(
    x: np.ndarray, w: np.ndarray, strides: Sequence[int], pads: Pads, dilations: Sequence[int]
) -> np.ndarray:
    _, kh, kw, _ = w.shape
    padded = np.pad(x, [(0, 0), (0, 0), *map(tuple, pads), (0, 0)])
    n, c, h, wide, b = padded.shape
    height = (h - (kh - 1) * dilations[0] - 1) // strides[0] + 1
    width = (wide - (kw - 1) * dilations[1] - 1) // strides[1] + 1
    out = np.zeros((n, c, height, width, b), x.dtype)
    for y in range(kh):
        for z in range(kw):
            rows = slice(
                y * dilations[0], y * dilations[0] + (height - 1) * strides[0] + 1, strides[0]
            )
            columns = slice(
                z * dilations[1], z * dilations[1] + (width - 1) * strides[1] + 1, strides[1]
            )
            out += padded[:, :, rows, columns] * w[None, :, y, z][:, :, None, None, :]
    return out


@operator(fusion=COMPLEX, infer=_depthwise_type, reference=_depthwise_reference)
def depthwise_packed(
    x: te.Tensor, w: te.Tensor, *, strides: Sequence[int], pads: Pads, dilations: Sequence[int]
) -> te.Tensor:
    """Each channel convolved with its own kernel. x: (N, C/b, H, W, b); w: (C/b, KH, KW, b)."""
    blocks, kh, kw, b = w.shape
    shape = (x.shape[0], blocks, *_window(x.shape, (kh, kw), strides, pads, dilations), b)
    image = padded_image(x, pads)
    ry, rx = te.reduce_axis(kh, "ry"), te.reduce_axis(kw, "rx")
    (sy, sx), (dy, dx) = strides, dilations
    return te.compute(
        shape,
        lambda n, c, y, x, i: te.sum(
            image[n, c, y * sy + ry * dy, x * sx + rx * dx, i] * w[c, ry, rx, i], [ry, rx]
        ),
        name="depthwise",
        attrs={"role": "depthwise_packed"},
    )


# Transposed convolution ---------------------------------------------------------------------


def _phases(kernel: int, stride: int) -> int:
    """Taps of the kernel that meet one output phase."""
    return -(-kernel // stride)


def pack_transposed(weights: np.ndarray, strides: Sequence[int], cb: int, ob: int) -> np.ndarray:
    """(Ci, Co, KH, KW) → (Co/ob, sy, sx, Ci/cb, RY, RX, cb, ob), the taps of each phase together.

    Tap r of phase p is kernel row p + r * stride; taps beyond the kernel are zeros.
    """
    ci, co, kh, kw = weights.shape
    (sy, sx), ry, rx = strides, _phases(kh, strides[0]), _phases(kw, strides[1])
    full = np.zeros((-(-ci // cb) * cb, -(-co // ob) * ob, ry * sy, rx * sx), weights.dtype)
    full[:ci, :co, :kh, :kw] = weights
    split = full.reshape(full.shape[0] // cb, cb, full.shape[1] // ob, ob, ry, sy, rx, sx)
    return np.ascontiguousarray(split.transpose(2, 5, 7, 0, 4, 6, 1, 3))


def _transpose_type(
    x: Any, w: Any, *, strides: Sequence[int], offsets: Sequence[int], rows: int, columns: int
) -> Type:
    need(x.rank == 5 and w.rank == 8, "takes a packed image of rank 5 and weights of rank 8")
    need(x.shape[-1] == w.shape[-2], "the channel blocks of image and weights differ")
    size = sizes.shape((rows, strides[0], columns, strides[1]))
    return x.dtype, (x.shape[0], w.shape[0], *size, w.shape[-1])


def _transpose_reference(
    x: np.ndarray,
    w: np.ndarray,
    strides: Sequence[int],
    offsets: Sequence[int],
    rows: int,
    columns: int,
) -> np.ndarray:
    co, sy, sx, _, ry, rx, _, ob = w.shape
    n, _, h, wide, _ = x.shape
    out = np.zeros((n, co, rows, sy, columns, sx, ob), x.dtype)
    for r in range(rows * sy):
        for c in range(columns * sx):
            (my, py), (mx, px) = divmod(r + offsets[0], sy), divmod(c + offsets[1], sx)
            for a in range(ry):
                for b in range(rx):
                    if 0 <= my - a < h and 0 <= mx - b < wide:
                        out[:, :, r // sy, r % sy, c // sx, c % sx] += np.einsum(
                            "nci,ocik->nok", x[:, :, my - a, mx - b], w[:, py, px, :, a, b]
                        )
    return out


@operator(fusion=COMPLEX, infer=_transpose_type, reference=_transpose_reference)
def conv_transpose_packed(
    x: te.Tensor,
    w: te.Tensor,
    *,
    strides: Sequence[int],
    offsets: Sequence[int],
    rows: Expr,
    columns: Expr,
) -> te.Tensor:
    """Transposed convolution without the zeros between the pixels: one small convolution for each
    phase.

    x: (N, Ci/cb, H, W, cb); w as `pack_transposed` gives it; result (N, Co/ob, rows, sy, columns,
    sx, ob), which is the image of rows*sy × columns*sx pixels in row-major order. Pixel (Y, X)
    takes tap r of phase (Y + offset) % stride from image row (Y + offset) // stride - r.
    """
    n, ci, h, wide, cb = x.shape
    co, sy, sx, _, ny, nx, _, ob = (d if d.__class__ is int else as_int(d) for d in w.shape)
    (oy, ox) = offsets
    # rows of zeros so that every tap of every phase reads inside the image
    top, left = ny - 1, nx - 1
    more = (as_int(sizes.size(a - b)) or 0 for a, b in ((rows, h), (columns, wide)))
    bottom, right = (
        max(0, extra + (s - 1 + o) // s)
        for extra, s, o in zip(more, (sy, sx), offsets, strict=True)
    )
    image = padded_image(x, ((top, bottom), (left, right)))
    rc, ri = te.reduce_axis(ci, "rc"), te.reduce_axis(cb, "ri")
    ry, rx = te.reduce_axis(ny, "ry"), te.reduce_axis(nx, "rx")

    def element(b: Expr, o: Expr, y: Expr, p: Expr, z: Expr, q: Expr, i: Expr) -> Expr:
        row, column = p + oy, q + ox
        value = image[b, rc, y + row // sy + top - ry, z + column // sx + left - rx, ri]
        return te.sum(value * w[o, row % sy, column % sx, rc, ry, rx, ri, i], [rc, ry, rx, ri])

    return te.compute(
        (n, co, rows, sy, columns, sx, ob),
        lambda b, o, y, p, z, q, i: element(b, o, y, p, z, q, i),
        name="conv_transpose",
        attrs={"role": "conv_transpose_packed"},
    )


# Matrix product with one operand in panels -----------------------------------------------------


def pack_dense(weights: np.ndarray, block: int) -> np.ndarray:
    """(K, N) → (ceil(N/block), K, block); missing columns are zeros."""
    k, n = weights.shape
    blocks = -(-n // block)
    if blocks * block != n:
        weights = np.pad(weights, [(0, 0), (0, blocks * block - n)])
    return np.ascontiguousarray(weights.reshape(k, blocks, block).transpose(1, 0, 2))


def _dense_type(x: Any, w: Any, *, channels: int) -> Type:
    need(
        w.rank >= 3 and x.rank >= w.rank - 2, "takes a tensor and packed weights of rank 3 or more"
    )
    need(x.shape[-1] == w.shape[-2], "the inner sizes differ")
    need(x.shape[: w.rank - 3] == w.shape[:-3], "the batches differ")
    return x.dtype, (*x.shape[:-1], sizes.size(channels))


def _dense_reference(x: np.ndarray, w: np.ndarray, channels: int) -> np.ndarray:
    *batch, blocks, k, block = w.shape
    columns = np.moveaxis(w, -3, -2).reshape(*batch, k, blocks * block)
    rows = x.reshape(*batch, -1, k)
    return (rows @ columns).reshape(*x.shape[:-1], blocks * block)[..., :channels]


@operator(fusion=COMPLEX, infer=_dense_type, reference=_dense_reference)
def dense_packed(x: te.Tensor, w: te.Tensor, *, channels: int) -> te.Tensor:
    """x (*batch, …, K) times packed weights (*batch, N/b, K, b); the result has `channels` of the N
    columns."""
    *batch, blocks, depth, block = w.shape
    lead = x.shape[len(batch) : -1]
    k = te.reduce_axis(depth, "k")

    def element(*at: Expr) -> Expr:
        *of, m, o, i = at
        row = [place for n in of for place in unravel(n, batch)]
        return te.sum(x[(*row, *unravel(m, lead), k)] * w[(*row, o, k, i)], k)

    whole = te.compute(
        (*([sizes.product(batch)] if batch else []), sizes.product(lead), blocks, block),
        element,
        name="dense",
        attrs={"role": "dense_packed", "batch": len(batch)},
    )

    def column(*i: Expr) -> Expr:
        of, rest = i[: len(batch)], i[len(batch) : -1]
        at = (ravel(of, batch),) if batch else ()
        return whole[(*at, ravel(rest, lead), i[-1] // block, i[-1] % block)]

    return te.compute((*batch, *lead, channels), column, name="columns", attrs={"role": "columns"})
