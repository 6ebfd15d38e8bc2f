"""Matrix products, convolutions and transposed convolutions.

Convolutions of any rank: x is [batch, channels, *space], weights are [out channels, channels /
groups, *kernel].

Each has `acc_dtype`, the dtype in which sums are accumulated, and `out_dtype`, that of the result.
Where neither is given, operands and result are of one dtype, and small floats are accumulated in
f32. With one of them, the operands may be integers of two dtypes: i8 × u8 → i32. Elements are
converted when they are multiplied; no operand is stored in the dtype of the sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright import te
from tilewright.graph import sizes
from tilewright.graph.operator import (
    COMPLEX,
    WEIGHTED,
    WINDOW,
    Type,
    broadcast_shape,
    need,
    need_same,
    operator,
)
from tilewright.graph.ops.elementwise import element, narrowed, sum_type
from tilewright.ir.dtype import DType, dtype
from tilewright.ir.expr import Expr, as_int

Pads = tuple[tuple[int, int], ...]  # (before, after) for each space axis


def product_types(a: DType, b: DType, acc_dtype: str, out_dtype: str) -> tuple[DType, DType]:
    """The dtypes (of the sums, of the result) of products of `a` and `b`; "": as the operands have
    it. Raises Mismatch where the sums do not hold what is added, or the result is of another kind.
    """
    if not (acc_dtype or out_dtype):
        need(a is b, f"operands have dtypes {a} and {b}")
        return dtype(sum_type(a)), a
    need(a is b or (a.is_int and b.is_int), f"operands have dtypes {a} and {b}")
    out = dtype(out_dtype or acc_dtype)
    wider = max(a, b, out, key=lambda of: of.bits)
    acc = dtype(acc_dtype or sum_type(wider))
    need(not a.is_bool, "has no sums of booleans")
    need(
        acc.is_float == a.is_float == out.is_float and not acc.is_bool and not out.is_bool,
        f"products of {a} cannot be accumulated in {acc} and stored as {out}",
    )
    need(acc.bits >= max(a.bits, b.bits), f"sums in {acc} do not hold products of {a} and {b}")
    return acc, out


def is_of_one_type(node: Any) -> bool:
    """Are the operands and the result of a product or convolution of one dtype? Passes that put
    numbers from behind it into its operands, or the other way, ask."""
    return not (node["acc_dtype"] or node["out_dtype"])


def types_of(node: Any) -> dict[str, str]:
    """The attributes of a product or convolution that name dtypes."""
    return {name: node[name] for name in ("acc_dtype", "out_dtype")}


def _wide(x: np.ndarray, acc: DType, out: DType) -> np.ndarray:
    """An operand as references add its products up: floats in f64 where the result is wider than
    they are."""
    exact = acc.is_float and out.bits > x.dtype.itemsize * 8
    return x.astype(np.float64 if exact else acc.numpy, copy=False)


def _matmul_type(
    a: Any,
    b: Any,
    *,
    transpose_a: bool = False,
    transpose_b: bool = False,
    acc_dtype: str = "",
    out_dtype: str = "",
) -> Type:
    need(len(a.shape) >= 2 and len(b.shape) >= 2, "needs matrices (rank 2 or more)")
    _, of = product_types(a.dtype, b.dtype, acc_dtype, out_dtype)
    m, k = a.shape[-2:][:: -1 if transpose_a else 1]
    k2, n = b.shape[-2:][:: -1 if transpose_b else 1]
    need_same(k, k2, f"the inner sizes are {sizes.text(k)} and {sizes.text(k2)}")
    return of, (*broadcast_shape(a.shape[:-2], b.shape[:-2]), m, n)


def _matmul(
    a: np.ndarray,
    b: np.ndarray,
    transpose_a: bool,
    transpose_b: bool,
    acc_dtype: str = "",
    out_dtype: str = "",
) -> np.ndarray:
    acc, out = product_types(dtype(a.dtype), dtype(b.dtype), acc_dtype, out_dtype)
    a = a.swapaxes(-1, -2) if transpose_a else a
    b = b.swapaxes(-1, -2) if transpose_b else b
    made = np.matmul(_wide(a, acc, out), _wide(b, acc, out))
    return made.astype(out.numpy, copy=False)


@operator(fusion=COMPLEX, infer=_matmul_type, reference=_matmul, traits=WEIGHTED)
def matmul(
    a: Any,
    b: Any,
    *,
    transpose_a: bool = False,
    transpose_b: bool = False,
    acc_dtype: str = "",
    out_dtype: str = "",
) -> Any:
    """The matrix product over the last two axes, the others broadcast. x Wᵀ is matmul(x, W,
    transpose_b=True)."""
    acc, out = product_types(a.dtype, b.dtype, acc_dtype, out_dtype)
    types = {"acc_dtype": acc_dtype, "out_dtype": out_dtype}
    _, shape = _matmul_type(a, b, transpose_a=transpose_a, transpose_b=transpose_b, **types)
    rows, columns = as_int(shape[-2]), as_int(shape[-1])
    dots = (rows == 1 and transpose_b) or (columns == 1 and not transpose_a)  # of lines in memory
    if transpose_b and not dots:
        b, transpose_b = transposed(b), False
    k = te.reduce_axis(a.shape[-2 if transpose_a else -1], "k")

    def at(*i: Expr) -> Expr:
        *batch, m, n = i
        left = element(a, (*batch, k, m) if transpose_a else (*batch, m, k))
        right = element(b, (*batch, n, k) if transpose_b else (*batch, k, n))
        return te.sum(left.astype(acc) * right.astype(acc), k)

    attrs = {"role": "" if dots else "matmul"}
    if len(shape) == 2:
        y = te.compute(shape, lambda i, j: at(i, j), name="matmul", attrs=attrs)
    else:
        y = te.compute(shape, at, name="matmul", attrs=attrs)
    return narrowed(y, out)


def transposed(b: Any) -> Any:
    """A matrix with its last two axes exchanged, stored so: products then read rows of it in
    vectors."""
    *batch, n, k = b.shape
    return te.compute(
        (*batch, k, n),
        lambda *i: b[(*i[:-2], i[-1], i[-2])],
        name="transposed",
        attrs={"role": "pad"},
    )


def convolved(size: Expr, kernel: Any, stride: int, pad: tuple[int, int], dilation: int) -> Expr:
    """The output size of a convolution along one axis."""
    reach = dilation * (kernel - 1) + 1
    need(stride > 0 and dilation > 0, "strides and dilations must be positive")
    free = size + (pad[0] + pad[1] - reach)
    known = as_int(free)
    need(known is None or known >= 0, f"the kernel reaches {reach} but the padded input has less")
    return sizes.size(free // stride + 1)


def window(x: Any, kernel: Sequence[int], strides: Any, pads: Any, dilations: Any) -> Any:
    """The attributes of a window operator with their defaults: (strides, pads, dilations),
    checked."""
    rank = len(kernel)
    need(
        len(x.shape) == rank + 2, f"has a kernel of rank {rank} for an input of rank {len(x.shape)}"
    )
    strides = strides or (1,) * rank
    pads = pads or ((0, 0),) * rank
    dilations = dilations or (1,) * rank
    for what, given in (("strides", strides), ("pads", pads), ("dilations", dilations)):
        need(len(given) == rank, f"has {len(given)} {what} for {rank} space axes")
    return strides, pads, dilations


def kernel_of(w: Any) -> tuple[Any, ...]:
    """The space sizes of a weight tensor: numbers, but for those that only the run knows."""
    need(len(w.shape) > 2, "needs weights with space axes")
    return tuple(size if (known := as_int(size)) is None else known for size in w.shape[2:])


def _conv_type(
    x: Any,
    w: Any,
    bias: Any = None,
    *,
    strides: tuple[int, ...] = (),
    pads: Pads = (),
    dilations: tuple[int, ...] = (),
    groups: int = 1,
    acc_dtype: str = "",
    out_dtype: str = "",
) -> Type:
    kernel = kernel_of(w)
    strides, pads, dilations = window(x, kernel, strides, pads, dilations)
    _, of = product_types(x.dtype, w.dtype, acc_dtype, out_dtype)
    _need_groups(x.shape[1], w.shape[1], w.shape[0], groups)
    if bias is not None:
        _need_entries(bias, w.shape[0])
        need(bias.dtype is of, f"its bias holds {bias.dtype}, its result {of}")
    space = [convolved(*a) for a in zip(x.shape[2:], kernel, strides, pads, dilations, strict=True)]
    return of, (x.shape[0], w.shape[0], *space)


def _need_entries(bias: Any, channels: Expr) -> None:
    told = "its bias must have one entry for each output channel"
    need(len(bias.shape) == 1, told)
    need_same(bias.shape[0], channels, told)


def _need_groups(channels: Expr, each: Expr, outputs: Expr, groups: int) -> None:
    need(groups > 0, "needs a positive number of groups")
    need_same(
        channels,
        sizes.size(each * groups),
        f"the input has {sizes.text(channels)} channels, the weights {groups} × {sizes.text(each)}",
    )
    count = as_int(outputs)
    need(
        count is None or count % groups == 0,
        f"{count} output channels do not divide into {groups} groups",
    )


def _conv(  # type: ignore[no-untyped-def]
    x, w, bias=None, *, strides, pads, dilations, groups, acc_dtype="", out_dtype=""
):
    rank = w.ndim - 2
    acc, out_type = product_types(dtype(x.dtype), dtype(w.dtype), acc_dtype, out_dtype)
    x, w = (_wide(v, acc, out_type) for v in (x, w))
    strides, dilations = strides or (1,) * rank, dilations or (1,) * rank
    x = np.pad(x, ((0, 0), (0, 0), *(pads or ((0, 0),) * rank)))
    views = windows(x, w.shape[2:], strides, dilations)  # [n, c, *out, *kernel]
    n, c, *rest = views.shape
    out = tuple(rest[:rank])
    y = np.empty((n, w.shape[0], *out), np.result_type(x, w))
    each_in, each_out = c // groups, w.shape[0] // groups
    if each_in == 1 and each_out == 1:
        kernel_axes = "uvwxyz"[:rank]
        space = "abdefg"[:rank]
        y = np.einsum(f"nc{space}{kernel_axes},c{kernel_axes}->nc{space}", views, w[:, 0])
    else:
        for g in range(groups):
            part = np.moveaxis(views[:, g * each_in : (g + 1) * each_in], 1, 1 + rank)
            columns = part.reshape(n * int(np.prod(out)), -1)
            weights = w[g * each_out : (g + 1) * each_out].reshape(each_out, -1)
            made = (columns @ weights.T).reshape(n, *out, each_out)
            y[:, g * each_out : (g + 1) * each_out] = np.moveaxis(made, -1, 1)
    y = y.astype(out_type.numpy, copy=False)
    return y if bias is None else y + bias.reshape((-1,) + (1,) * rank)


def windows(
    x: np.ndarray, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> np.ndarray:
    """A view [n, c, *out, *kernel] of the windows of a padded input."""
    rank = len(kernel)
    reach = [d * (k - 1) + 1 for k, d in zip(kernel, dilations, strict=True)]
    axes = tuple(range(2, 2 + rank))
    view = np.lib.stride_tricks.sliding_window_view(x, reach, axis=axes)
    steps = tuple(slice(None, None, s) for s in strides)
    inner = tuple(slice(None, None, d) for d in dilations)
    return view[(slice(None), slice(None), *steps, *inner)]


def padded(x: Any, pads: Pads, value: Any, name: str) -> Any:
    """x with its space axes padded by `value` (x itself where nothing is padded)."""
    if not any(a or b for a, b in pads):
        return x
    space = [sizes.size(s + (a + b)) for s, (a, b) in zip(x.shape[2:], pads, strict=True)]

    def at(*i: Expr) -> Expr:
        inside: Expr = te.const(True, "bool")
        index = list(i)
        for d, ((before, after), size) in enumerate(zip(pads, x.shape[2:], strict=True), 2):
            index[d] = i[d] - before
            if before:
                inside = inside & (i[d] >= before)
            if after:
                inside = inside & (i[d] < size + before)
        return te.select(inside, x[tuple(index)], value)

    return te.compute((*x.shape[:2], *space), at, name=name)


@operator(fusion=COMPLEX, infer=_conv_type, reference=_conv, traits=WINDOW | WEIGHTED)
def conv(
    x: Any,
    w: Any,
    bias: Any = None,
    *,
    strides: tuple[int, ...] = (),
    pads: Pads = (),
    dilations: tuple[int, ...] = (),
    groups: int = 1,
    acc_dtype: str = "",
    out_dtype: str = "",
) -> Any:
    """Cross-correlation of x with w over the space axes, in `groups` independent groups of
    channels."""
    kernel = kernel_of(w)
    acc, out = product_types(x.dtype, w.dtype, acc_dtype, out_dtype)
    types = {"acc_dtype": acc_dtype, "out_dtype": out_dtype}
    _, shape = _conv_type(
        x, w, bias, strides=strides, pads=pads, dilations=dilations, groups=groups, **types
    )
    strides, pads, dilations = window(x, kernel, strides, pads, dilations)
    x = padded(x, pads, te.const(0, x.dtype), "conv_pad")
    each_in, each_out = as_int(w.shape[1]), sizes.size(w.shape[0] // groups)
    one_channel = each_in == 1
    c = te.reduce_axis(w.shape[1], "rc")
    ks = [te.reduce_axis(k, f"r{axis_name(d, len(kernel))}") for d, k in enumerate(kernel)]

    def at(*i: Expr) -> Expr:
        n, o, *space = i
        group = o // each_out if groups > 1 else te.const(0)
        pixel = [y * s + k * d for y, s, k, d in zip(space, strides, ks, dilations, strict=True)]
        channel = group if one_channel else group * w.shape[1] + c
        weight = w[(o, 0 if one_channel else c, *ks)].astype(acc)
        value = x[(n, channel, *pixel)].astype(acc)
        return te.sum(value * weight, ks if one_channel else [c, *ks])

    y = narrowed(te.compute(shape, named(at, len(kernel)), name="conv"), out)
    if bias is None:
        return y
    return te.compute(shape, named(lambda *i: y[i] + bias[i[1]], len(kernel)), name="conv_bias")


def axis_name(d: int, rank: int) -> str:
    """y and x for images, z in front for volumes, x for sequences."""
    return "zyx"[3 - rank + d] if rank <= 3 else f"s{d}"


def named(at: Any, rank: int) -> Any:
    """`at` with its indices called n, c, y, x as the rank has them."""
    if rank == 2:
        return lambda n, c, y, x: at(n, c, y, x)
    if rank == 1:
        return lambda n, c, x: at(n, c, x)
    if rank == 3:
        return lambda n, c, z, y, x: at(n, c, z, y, x)
    return at


def _transposed_type(
    x: Any,
    w: Any,
    bias: Any = None,
    *,
    strides: tuple[int, ...] = (),
    pads: Pads = (),
    dilations: tuple[int, ...] = (),
    extra: tuple[int, ...] = (),
    groups: int = 1,
    acc_dtype: str = "",
    out_dtype: str = "",
) -> Type:
    kernel = kernel_of(w)
    strides, pads, dilations = window(x, kernel, strides, pads, dilations)
    extra = extra or (0,) * len(kernel)
    _, of = product_types(x.dtype, w.dtype, acc_dtype, out_dtype)
    need_same(
        x.shape[1],
        w.shape[0],
        f"the input has {sizes.text(x.shape[1])} channels, the weights {sizes.text(w.shape[0])}",
    )
    count = as_int(x.shape[1])
    need(
        groups > 0 and (count is None or count % groups == 0),
        f"{count} channels do not divide into {groups} groups",
    )
    outputs = sizes.size(w.shape[1] * groups)
    if bias is not None:
        _need_entries(bias, outputs)
        need(bias.dtype is of, f"its bias holds {bias.dtype}, its result {of}")
    space = []
    for s, k, stride, pad, d, e in zip(
        x.shape[2:], kernel, strides, pads, dilations, extra, strict=True
    ):
        need(stride > 0 and d > 0, "strides and dilations must be positive")
        size = sizes.size((s - 1) * stride + (d * (k - 1) + 1 + e - pad[0] - pad[1]))
        known = as_int(size)
        need(known is None or known >= 0, "the pads take away more than there is")
        space.append(size)
    return of, (x.shape[0], outputs, *space)


def _transposed(  # type: ignore[no-untyped-def]
    x, w, bias=None, *, strides, pads, dilations, extra, groups, acc_dtype="", out_dtype=""
):
    rank = w.ndim - 2
    acc, out = product_types(dtype(x.dtype), dtype(w.dtype), acc_dtype, out_dtype)
    x, w = (_wide(v, acc, out) for v in (x, w))
    strides, dilations = strides or (1,) * rank, dilations or (1,) * rank
    pads, extra = pads or ((0, 0),) * rank, extra or (0,) * rank
    full = [
        (s - 1) * st + d * (k - 1) + 1 + e
        for s, st, d, k, e in zip(x.shape[2:], strides, dilations, w.shape[2:], extra, strict=True)
    ]
    each_in, each_out = w.shape[0] // groups, w.shape[1]
    full = [max(f, p[0] + 1) for f, p in zip(full, pads, strict=True)]
    y = np.zeros((x.shape[0], each_out * groups, *full), x.dtype)
    for at in np.ndindex(*w.shape[2:]):
        where = tuple(
            slice(k * d, k * d + (s - 1) * st + 1, st)
            for k, d, s, st in zip(at, dilations, x.shape[2:], strides, strict=True)
        )
        for g in range(groups):
            part = x[:, g * each_in : (g + 1) * each_in]
            weights = w[(slice(g * each_in, (g + 1) * each_in), slice(None), *at)]
            made = np.moveaxis(np.tensordot(part, weights, axes=([1], [0])), -1, 1)
            y[(slice(None), slice(g * each_out, (g + 1) * each_out), *where)] += made
    cut = tuple(slice(a, f - b) for (a, b), f in zip(pads, full, strict=True))
    y = y[(slice(None), slice(None), *cut)].astype(out.numpy, copy=False)
    return y if bias is None else y + bias.reshape((-1,) + (1,) * rank)


@operator(fusion=COMPLEX, infer=_transposed_type, reference=_transposed, traits=WINDOW | WEIGHTED)
def conv_transpose(
    x: Any,
    w: Any,
    bias: Any = None,
    *,
    strides: tuple[int, ...] = (),
    pads: Pads = (),
    dilations: tuple[int, ...] = (),
    extra: tuple[int, ...] = (),
    groups: int = 1,
    acc_dtype: str = "",
    out_dtype: str = "",
) -> Any:
    """The gradient of a convolution by its input; w is [channels, out channels / groups, *kernel].

    With stride s, output pixel s q + p only reads the kernel's taps p, p + s, p + 2 s, …: so the
    result is computed phase by phase p as a plain convolution of stride 1 over q, and no tap falls
    on an inserted zero. `extra` adds pixels at the end (ONNX: output_padding).
    """
    kernel = kernel_of(w)
    acc, out = product_types(x.dtype, w.dtype, acc_dtype, out_dtype)
    attrs: dict[str, Any] = {"strides": strides, "pads": pads, "dilations": dilations}
    attrs |= {"acc_dtype": acc_dtype, "out_dtype": out_dtype}
    _, shape = _transposed_type(x, w, bias, extra=extra, groups=groups, **attrs)
    strides, pads, dilations = window(x, kernel, strides, pads, dilations)
    rank = len(kernel)
    each_in, each_out = sizes.size(w.shape[0] // groups), w.shape[1]
    c = te.reduce_axis(each_in, "rc")
    phases = [s if d == 1 else 1 for s, d in zip(strides, dilations, strict=True)]
    taps = [(k + (p - 1)) // p for k, p in zip(kernel, phases, strict=True)]
    ks = [te.reduce_axis(t, f"r{axis_name(d, rank)}") for d, t in enumerate(taps)]
    first = [
        before // p for (before, _), p in zip(pads, phases, strict=True)
    ]  # the first q of any use
    lasts = [(s + (pad[0] - 1)) // p for s, pad, p in zip(shape[2:], pads, phases, strict=True)]
    quotients = [sizes.size(last - f + 1) for last, f in zip(lasts, first, strict=True)]

    def phase(*i: Expr) -> Expr:
        n, o, *rest = i
        ps, qs = rest[:rank], rest[rank:]
        group = o // each_out if groups > 1 else te.const(0)
        inside: Expr = te.const(True, "bool")
        source, tap = [], []
        for d in range(rank):
            q = qs[d] + first[d]
            tap.append(ps[d] + ks[d] * phases[d])
            if as_int(sizes.size(kernel[d] % phases[d])) != 0:
                inside = inside & (tap[d] < kernel[d])
            if dilations[d] == 1:
                at = q - ks[d]
            else:  # dilated: the tap falls on an input only where it divides
                reached = q - ks[d] * dilations[d]
                at = reached // strides[d]
                inside = inside & te.eq(reached % strides[d], 0)
            inside = inside & (at >= 0) & (at < x.shape[2 + d])
            source.append(at)
        weight = w[(group * each_in + c, o % each_out, *tap)].astype(acc)
        value = x[(n, group * each_in + c, *source)].astype(acc) * weight
        return te.sum(te.select(inside, value, te.const(0, acc)), [c, *ks])

    parts = te.compute((*shape[:2], *phases, *quotients), phase, name="conv_transpose_phases")
    parts = narrowed(parts, out)

    def at(*i: Expr) -> Expr:
        n, o, *space = i
        pixels = [y + before for y, (before, _) in zip(space, pads, strict=True)]
        ps = [y % p for y, p in zip(pixels, phases, strict=True)]
        qs = [y // p - f for y, p, f in zip(pixels, phases, first, strict=True)]
        value = parts[(n, o, *ps, *qs)]
        return value if bias is None else value + bias[o]

    return te.compute(shape, named(at, rank), name="conv_transpose")
