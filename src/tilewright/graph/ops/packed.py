"""Operators on blocked channels: the layouts that vector units want.

A packed activation has shape (N, C/b, *spatial, b): `b` neighbouring channels lie side by side and
fill vector registers. Packed weights carry the block of the output innermost, so that a kernel
reads them in one stream. No importer makes these; the layout pass puts them in place of the plain
operators and packs constants.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright import te
from tilewright.graph import sizes
from tilewright.graph.operator import (
    CHEAP,
    COMPLEX,
    INJECTIVE,
    Type,
    need,
    operator,
)
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
    traits=CHEAP,
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
    traits=CHEAP,
)
def unpack_channels(x: te.Tensor, *, channels: int, groups: int = 1) -> te.Tensor:
    """The way back from `pack_channels`: (N, blocks, *S, block) → (N, channels, *S)."""
    n, blocks, *spatial, block = x.shape
    each, of_group = channels // groups, blocks // groups

    def element(*i: Expr) -> Expr:
        if groups == 1:
            return x[(i[0], i[1] // block, *i[2:], i[1] % block)]
        position = i[1] % each
        return x[(i[0], i[1] // each * of_group + position // block, *i[2:], position % block)]

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
    """The sizes of a packed image's spatial axes after a window slides over them."""
    return tuple(
        _extent(*axis) for axis in zip(image[2:-1], kernel, strides, pads, dilations, strict=True)
    )


def _need_axes(x: Any, w: Any, more: int, strides: Sequence[int]) -> None:
    """Raise Mismatch unless image and weights, of `more` other axes, have as many spatial ones as
    the window has strides, two or three."""
    rank = len(strides)
    need(rank in (2, 3), f"slides windows over 2 or 3 axes, not {rank}")
    need(
        x.rank == rank + 3 and w.rank == rank + more,
        f"takes a packed image of rank {rank + 3} and weights of rank {rank + more}",
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
    _need_axes(x, w, 4, strides)
    count, block, co, ci, step, ob = (
        as_int(n) or 0 for n in (x.shape[1], x.shape[-1], *w.shape[:2], *w.shape[-2:])
    )
    need(step > 0 and block % step == 0, "the weights' steps are no parts of the image's blocks")
    if group:
        groups, sources, results = group
        need(sources % step == 0, "the weights' steps reach from one group into the next")
        last = min((co * ob - 1) // results, groups - 1) * sources
    need((last if group else 0) + ci * step <= count * block, "the weights ask for more channels")
    size = _window(x.shape, w.shape[2:-2], strides, pads, dilations)
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
    blocks, _, *kernel, _, ob = w.shape
    rank = len(kernel)
    filters = np.moveaxis(np.moveaxis(w, -1, 1), -1, 3).reshape(blocks * ob, -1, *kernel)
    plain = np.moveaxis(x, -1, 2).reshape(x.shape[0], -1, *x.shape[2:-1])
    padded = np.pad(plain, [(0, 0), (0, 0), *map(tuple, pads)])
    size = tuple(
        (n - (k - 1) * d - 1) // s + 1
        for n, k, d, s in zip(padded.shape[2:], kernel, dilations, strides, strict=True)
    )
    depth = filters.shape[1]
    out = np.zeros((x.shape[0], blocks * ob, *size), x.dtype)
    groups, sources, results = group or (1, 0, blocks * ob)
    for g in range(groups):
        own = slice(g * results, blocks * ob if g == groups - 1 else (g + 1) * results)
        for tap in np.ndindex(*kernel):
            view = padded[:, g * sources : g * sources + depth]
            view = view[(..., *_seen(tap, size, strides, dilations))]
            weights = filters[(own, slice(None), *tap)]
            out[:, own] += np.einsum("nc...,oc->no...", view, weights)
    return np.moveaxis(out.reshape(x.shape[0], blocks, ob, *size), 2, 2 + rank).copy()


def _seen(
    tap: Sequence[int], size: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> tuple[slice, ...]:
    """Which pixels of a padded image one tap of a window reads."""
    return tuple(
        slice(t * d, t * d + (n - 1) * s + 1, s)
        for t, n, s, d in zip(tap, size, strides, dilations, strict=True)
    )


Indices = Sequence[Any]  # an index for each spatial axis


def _image(
    shape: Sequence[Any],
    element: Callable[[Expr, Expr, Indices, Expr], Any],
    name: str,
    role: str,
    **attrs: Any,
) -> Any:
    """A packed image (N, C/b, *S, b) from a function of (image, block, pixel, channel of the
    block); its spatial axes are z, y, x."""
    given = {"role": role, **attrs}
    if len(shape) == 5:
        return te.compute(shape, lambda n, o, y, x, i: element(n, o, (y, x), i), name, given)
    return te.compute(shape, lambda n, o, z, y, x, i: element(n, o, (z, y, x), i), name, given)


def padded_image(x: te.Tensor, pads: Pads) -> te.Tensor:
    """The image (N, C, *S, b) with zeros around its spatial axes; itself if there is nothing to
    pad."""
    if all(as_int(p) == 0 for pair in pads for p in pair):
        return x

    def element(n: Expr, c: Expr, at: Indices, b: Expr) -> Expr:
        inside: Expr | None = None
        for position, size, (before, _) in zip(at, x.shape[2:-1], pads, strict=True):
            for side in (position >= before, position < size + before):
                inside = side if inside is None else inside & side
        assert inside is not None
        source = [position - before for position, (before, _) in zip(at, pads, strict=True)]
        return te.if_then_else(inside, x[(n, c, *source, b)], te.const(0, x.dtype))

    size = [n + (before + after) for n, (before, after) in zip(x.shape[2:-1], pads, strict=True)]
    return _image((*x.shape[:2], *size, x.shape[-1]), element, "pad", "pad")


def _every(x: te.Tensor, size: Sequence[Expr], strides: Sequence[int]) -> te.Tensor:
    """The pixels that a convolution of one pixel with strides reads, side by side; itself if
    it reads all."""
    if all(step == 1 for step in strides):
        return x

    def element(n: Expr, c: Expr, at: Indices, b: Expr) -> Expr:
        return x[(n, c, *(y * step for y, step in zip(at, strides, strict=True)), b)]

    return _image((*x.shape[:2], *size, x.shape[-1]), element, "kept", "pad")


def taps_over(kernel: Sequence[Expr]) -> list[Any]:
    """The axes that are reduced over a window."""
    names = ("rz", "ry", "rx")[3 - len(kernel) :]
    return [te.reduce_axis(size, name) for size, name in zip(kernel, names, strict=True)]


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
    """Convolution of a packed image over two or three axes.

    x: (N, Ci/b, [D,] H, W, b); w: (Co/ob, depth/step, [KD,] KH, KW, step, ob), where `step`, a part
    of b, channels of the image are walked in one go; result (N, Co/ob, [D',] H', W', ob). `group`:
    how many groups there are, and how many channels of the image and of the result one of them has,
    missing ones included; () is no groups. Groups need not be whole blocks. `across`: the result's
    pixels form one axis, so that tiles may span rows; those of windows of one pixel always do.
    """
    blocks, inner, *kernel, step, ob = w.shape
    block = x.shape[-1]
    size = _window(x.shape, kernel, strides, pads, dilations)
    shape = (x.shape[0], blocks, *size, ob)
    rc, ri = te.reduce_axis(inner, "rc"), te.reduce_axis(step, "ri")
    if all(as_int(k) == 1 for k in kernel) and not np.any(pads):
        image, across = _every(x, size, strides), True
        strides = dilations = (1,) * len(kernel)
        reduced, taps = [], [0] * len(kernel)
    else:
        image = padded_image(x, pads)
        reduced = taps = taps_over(kernel)
    groups, sources, results = group or (1, 0, 0)
    exceeds = groups * results < (as_int(blocks * ob) or 0)

    def element(n: Expr, o: Expr, at: Indices, i: Expr) -> Expr:
        channel = rc * step + ri
        if group:
            of_group = (o * ob + i) // results
            if exceeds:  # missing channels, whose weights are zeros, are of the last group
                of_group = minimum(of_group, const(groups - 1))
            channel = of_group * sources + channel
        seen = [y * s + r * d for y, s, r, d in zip(at, strides, taps, dilations, strict=True)]
        value = image[(n, channel // block, *seen, channel % block)]
        return te.sum(value * w[(o, rc, *taps, ri, i)], [rc, *reduced, ri])

    same_input = {"same_input": results} if group else {}  # so many neighbours read one group
    if not across:
        return _image(shape, element, "conv", "conv_packed", **same_input)
    pixels = te.compute(
        (shape[0], blocks, sizes.product(size), ob),
        lambda n, o, p, i: element(n, o, unravel(p, size), i),
        name="conv",
        attrs={"role": "pointwise_packed", **same_input},
    )
    return _image(shape, lambda n, o, at, i: pixels[n, o, ravel(at, size), i], "pixels", "columns")


def _depthwise_type(
    x: Any, w: Any, *, strides: Sequence[int], pads: Pads, dilations: Sequence[int]
) -> Type:
    _need_axes(x, w, 2, strides)
    need(x.shape[1] == w.shape[0] and x.shape[-1] == w.shape[-1], "the channel blocks differ")
    size = _window(x.shape, w.shape[1:-1], strides, pads, dilations)
    return x.dtype, (x.shape[0], x.shape[1], *size, x.shape[-1])


def _depthwise_reference(
    x: np.ndarray, w: np.ndarray, strides: Sequence[int], pads: Pads, dilations: Sequence[int]
) -> np.ndarray:
    _, *kernel, _ = w.shape
    padded = np.pad(x, [(0, 0), (0, 0), *map(tuple, pads), (0, 0)])
    size = tuple(
        (n - (k - 1) * d - 1) // s + 1
        for n, k, d, s in zip(padded.shape[2:-1], kernel, dilations, strides, strict=True)
    )
    out = np.zeros((*x.shape[:2], *size, x.shape[-1]), x.dtype)
    for tap in np.ndindex(*kernel):
        weights = w[(slice(None), *tap)].reshape(-1, *(1 for _ in kernel), w.shape[-1])
        out += padded[(..., *_seen(tap, size, strides, dilations), slice(None))] * weights
    return out


@operator(fusion=COMPLEX, infer=_depthwise_type, reference=_depthwise_reference)
def depthwise_packed(
    x: te.Tensor, w: te.Tensor, *, strides: Sequence[int], pads: Pads, dilations: Sequence[int]
) -> te.Tensor:
    """Each channel convolved with its own kernel. x: (N, C/b, [D,] H, W, b); w: (C/b, [KD,] KH,
    KW, b)."""
    _, *kernel, _ = w.shape
    shape = (*x.shape[:2], *_window(x.shape, kernel, strides, pads, dilations), x.shape[-1])
    image = padded_image(x, pads)
    taps = taps_over(kernel)

    def element(n: Expr, c: Expr, at: Indices, i: Expr) -> Expr:
        seen = [y * s + r * d for y, s, r, d in zip(at, strides, taps, dilations, strict=True)]
        return te.sum(image[(n, c, *seen, i)] * w[(c, *taps, i)], taps)

    return _image(shape, element, "depthwise", "depthwise_packed")


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
        row = [position for n in of for position in unravel(n, batch)]
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
