"""Complex numbers: pairs of real tensors while a program is translated.

The graph knows real numbers only. A `Complex` is what the importer holds for a complex tensor;
operators that move elements work on both parts, arithmetic is expanded, and Fourier transforms
are products with matrices of cosines and sines, split by the factors of their length. A complex
input or result of the module becomes one real tensor with the parts along a last axis of 2.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch

from tilewright.frontend.torch import (  # noqa: F401  whose translators serve both parts
    elementwise,
    indexing,
    movement,
    reductions,
)
from tilewright.frontend.torch.convert import of_torch
from tilewright.frontend.torch.registry import TRANSLATORS, NodeContext, axes_of, translates
from tilewright.graph import fourier, sizes
from tilewright.graph.graph import Value
from tilewright.ir.dtype import DType, dtype
from tilewright.ir.expr import Expr, as_int


class Complex(NamedTuple):
    real: Value
    imag: Value


F64 = dtype("f64")
Translator = Callable[..., Any]
COMPLEX: dict[str, Translator] = {}  # of operators with a complex argument or result
PARTS = {torch.complex32: torch.float16, torch.complex64: torch.float32,
         torch.complex128: torch.float64}  # fmt: skip

BOTH = (  # operators that do the same to both parts
    "alias.default as_strided.default broadcast_to.default cat.default chunk.default"
    " clone.default contiguous.default cumsum.default detach.default"
    " diagonal.default expand.default expand_as.default flatten.using_ints flip.default"
    " gather.default index.Tensor index_select.default lift_fresh.default"
    " lift_fresh_copy.default mT.default mean.default mean.dim movedim.int movedim.intlist"
    " narrow.default neg.default numpy_T.default permute.default permute_copy.default"
    " repeat.default reshape.default resolve_conj.default resolve_neg.default roll.default"
    " select.int slice.Tensor split.Tensor split_with_sizes.default squeeze.default"
    " squeeze.dim squeeze.dims stack.default sub.Tensor sum.default sum.dim_IntList t.default"
    " transpose.int tril.default triu.default unbind.int unsqueeze.default unflatten.int"
    " view.default view_copy.default _unsafe_view.default"
).split()


def involves(args: Any, fake: Any) -> bool:
    """Is an argument or the result complex?"""
    fakes = fake if isinstance(fake, tuple | list) else (fake,)
    if any(isinstance(f, torch.Tensor) and f.is_complex() for f in fakes):
        return True
    return any(isinstance(a, Complex) or (isinstance(a, list) and involves(a, None)) for a in args)


def of_complex(*names: str) -> Callable[[Translator], Translator]:
    """Register a translator for operators when they involve complex numbers."""

    def register(f: Translator) -> Translator:
        for name in names:
            COMPLEX[f"aten.{name}"] = f
        return f

    return register


def part_type(n: NodeContext) -> DType:
    """The dtype of the parts of the (first) result."""
    kind = n.fakes[0].dtype
    return of_torch(PARTS.get(kind, kind))


def pair(n: NodeContext, x: Any, of: DType) -> Complex:
    """A tensor or number, complex or not, with parts of dtype `of`."""
    if isinstance(x, Complex):
        return Complex(n.cast(x.real, of), n.cast(x.imag, of))
    if isinstance(x, Value):
        return Complex(n.cast(x, of), n.full(0, of, x.shape))
    x = complex(x)
    return Complex(n.constant(x.real, of), n.constant(x.imag, of))


def _part(x: Any, which: int) -> Any:
    if isinstance(x, Complex):
        return x[which]
    return [_part(v, which) for v in x] if isinstance(x, list) else x


def _both(name: str) -> Translator:
    def translate(n: NodeContext, *args: Any, **named: Any) -> Any:
        of = part_type(n)
        args = tuple(_paired(n, a, of) for a in args)
        real, imag = (
            TRANSLATORS[f"aten.{name}"](PartContext(n), *[_part(a, k) for a in args], **named)
            for k in (0, 1)
        )
        if isinstance(real, list | tuple):
            return [None if r is None else Complex(r, i) for r, i in zip(real, imag, strict=True)]
        return Complex(real, imag)

    return translate


def _paired(n: NodeContext, x: Any, of: DType) -> Any:
    """Tensors in a list beside complex ones (of cat) and operands become complex."""
    if isinstance(x, list) and any(isinstance(v, Complex) for v in x):
        return [pair(n, v, of) if isinstance(v, Value | Complex) else v for v in x]
    return x


class PartContext(NodeContext):
    """A node whose result is one part of a complex tensor."""

    __slots__ = ()

    def __init__(self, n: NodeContext) -> None:
        super().__init__(n.build, n.node, n.symbols)
        self.fakes = [
            f if not isinstance(f, torch.Tensor) or not f.is_complex() else f.real for f in n.fakes
        ]


for _name in BOTH:
    if f"aten.{_name}" in TRANSLATORS:
        COMPLEX[f"aten.{_name}"] = _both(_name)


# between complex and real -----------------------------------------------------------------------


@of_complex("complex.default")
def complex_of(n: NodeContext, real: Value, imag: Value) -> Complex:
    shape = n.shape
    return Complex(n.expand(real, shape), n.expand(imag, shape))


@of_complex("polar.default")
def polar(n: NodeContext, size: Value, angle: Value) -> Complex:
    return Complex(*(n.emit("mul", size, n.emit(op, angle)) for op in ("cos", "sin")))


@of_complex("view_as_complex.default", "view_as_complex_copy.default")
def view_as_complex(n: NodeContext, x: Value) -> Complex:
    last = x.rank - 1
    return Complex(*(n.reshape(n.cut(x, last, k, 1), x.shape[:-1]) for k in (0, 1)))


@of_complex("view_as_real.default", "view_as_real_copy.default")
def view_as_real(n: NodeContext, x: Complex) -> Value:
    return joined(n, x)


def parted(n: NodeContext, x: Value) -> Complex:
    """What `joined` joined."""
    return view_as_complex(n, x)


def joined(n: NodeContext, x: Complex) -> Value:
    """The parts along a last axis of 2."""
    parts = [n.reshape(p, (*p.shape, 1)) for p in x]
    return n.emit("concat", *parts, axis=x.real.rank)


@of_complex("real.default")
def real(n: NodeContext, x: Complex) -> Value:
    return x.real


@of_complex("imag.default")
def imag(n: NodeContext, x: Complex) -> Value:
    return x.imag


@of_complex("abs.default")
def magnitude(n: NodeContext, x: Complex) -> Value:
    return elementwise.length(n, x.real, x.imag)


@of_complex("angle.default")
def angle(n: NodeContext, x: Complex) -> Value:
    return n.emit("atan2", x.imag, x.real)


@translates("angle.default")
def angle_of_real(n: NodeContext, x: Value) -> Value:
    """0 or π, by the sign."""
    v = n.operand(x)
    found = n.emit("where", n.emit("less", v, n.constant(0, v.dtype)),
                   n.constant(math.pi, v.dtype), n.constant(0, v.dtype))  # fmt: skip
    return n.emit("where", n.emit("isnan", v), v, found) if v.dtype.is_float else found


@of_complex("conj.default", "_conj.default", "_conj_physical.default", "conj_physical.default")
def conj(n: NodeContext, x: Complex) -> Complex:
    return Complex(x.real, n.emit("neg", x.imag))


@of_complex("_to_copy.default", "to.dtype", "to.dtype_layout")
def convert(n: NodeContext, x: Any, *_: Any, **named: Any) -> Any:
    of = part_type(n)
    if n.fakes[0].is_complex():
        return pair(n, x, of)
    return n.cast(x.real, of)


# arithmetic -------------------------------------------------------------------------------------


@of_complex("add.Tensor", "sub.Tensor", "rsub.Scalar")
def add(n: NodeContext, x: Any, y: Any, alpha: Any = 1) -> Complex:
    of = part_type(n)
    a, b = pair(n, x, of), pair(n, y, of)
    if alpha != 1:
        b = times(n, b, pair(n, alpha, of))
    if n.op == "rsub":
        a, b = b, a
    op = "add" if n.op == "add" else "sub"
    return Complex(*(n.emit(op, p, q) for p, q in zip(a, b, strict=True)))


@of_complex("mul.Tensor", "mul.Scalar")
def mul(n: NodeContext, x: Any, y: Any) -> Complex:
    of = part_type(n)
    for a, b in ((x, y), (y, x)):  # by a real number
        if isinstance(a, Complex) and not isinstance(b, Complex) and not isinstance(b, complex):
            return Complex(*(n.emit("mul", p, n.operand(b, of)) for p in pair(n, a, of)))
    return times(n, pair(n, x, of), pair(n, y, of))


def times(
    n: NodeContext, a: Complex, b: Complex, op: str | Callable[..., Value] = "mul"
) -> Complex:
    """The product, with `op` for products of parts."""
    product = (lambda x, y: n.emit(op, x, y)) if isinstance(op, str) else op
    parts = {(p, q): product(a[p], b[q]) for p in (0, 1) for q in (0, 1)}
    return Complex(n.emit("sub", parts[0, 0], parts[1, 1]), n.emit("add", parts[0, 1], parts[1, 0]))


@of_complex("div.Tensor", "div.Scalar", "reciprocal.default")
def div(n: NodeContext, x: Any, y: Any = None) -> Complex:
    of = part_type(n)
    a, b = (pair(n, 1, of), pair(n, x, of)) if y is None else (pair(n, x, of), pair(n, y, of))
    return quotient(n, a, b)


def quotient(n: NodeContext, a: Complex, b: Complex) -> Complex:
    size = n.emit("add", n.emit("mul", b.real, b.real), n.emit("mul", b.imag, b.imag))
    product = times(n, a, Complex(b.real, n.emit("neg", b.imag)))
    return Complex(*(n.emit("div", p, size) for p in product))


@of_complex("exp.default")
def exp(n: NodeContext, x: Complex) -> Complex:
    size = n.emit("exp", x.real)
    return Complex(*(n.emit("mul", size, n.emit(op, x.imag)) for op in ("cos", "sin")))


@of_complex("log.default")
def log(n: NodeContext, x: Complex) -> Complex:
    return Complex(n.emit("log", magnitude(n, x)), angle(n, x))


@of_complex("sqrt.default")
def sqrt(n: NodeContext, x: Complex) -> Complex:
    """The root whose real part is not negative. Its parts are t = √((|x| + |a|) / 2) and |b| / 2t,
    so that nothing cancels."""
    half, zero = n.constant(0.5, x.real.dtype), n.constant(0, x.real.dtype)
    size = n.emit("abs", x.real)
    large = n.emit("sqrt", n.emit("mul", n.emit("add", magnitude(n, x), size), half))
    small = n.emit("div", n.emit("mul", n.emit("abs", x.imag), half), large)
    small = n.emit("where", n.emit("equal", large, zero), zero, small)
    right, below = n.emit("greater_equal", x.real, zero), n.emit("less", x.imag, zero)
    real, imag = (n.emit("where", right, *p) for p in ((large, small), (small, large)))
    return Complex(real, n.emit("where", below, n.emit("neg", imag), imag))


@of_complex("pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar")
def power(n: NodeContext, x: Any, y: Any) -> Complex:
    """By products for small whole numbers, else e^(y log x); 0 stays 0."""
    of = part_type(n)
    a = pair(n, x, of)
    if isinstance(y, int) and 0 < y < 5:
        found = a
        for _ in range(y - 1):
            found = times(n, found, a)
        return found
    found = exp(n, times(n, pair(n, y, of), log(n, a)))
    none = n.emit("equal", magnitude(n, a), n.constant(0, of))
    return (
        found
        if y == 0
        else Complex(*(n.emit("where", none, p, q) for p, q in zip(a, found, strict=True)))
    )


@of_complex("sgn.default")
def direction(n: NodeContext, x: Complex) -> Complex:
    """x / |x|; 0 of 0."""
    size = magnitude(n, x)
    none = n.emit("equal", size, n.constant(0, size.dtype))
    return Complex(*(n.emit("where", none, p, n.emit("div", p, size)) for p in x))


@of_complex("sin.default", "cos.default", "sinh.default", "cosh.default")
def wave(n: NodeContext, x: Complex) -> Complex:
    """Products of functions of the parts: sin(a + ib) = sin a cosh b + i cos a sinh b, …"""
    outer = ("sin", "cos") if n.op in ("sin", "sinh") else ("cos", "sin")
    if n.op in ("sin", "cos"):
        of_real, of_imag = outer, ("cosh", "sinh")
    else:
        of_real = ("sinh", "cosh") if n.op == "sinh" else ("cosh", "sinh")
        of_imag = ("cos", "sin")
    real, imag = (
        n.emit("mul", n.emit(p, x.real), n.emit(q, x.imag))
        for p, q in zip(of_real, of_imag, strict=True)
    )
    return Complex(real, n.emit("neg", imag) if n.op == "cos" else imag)


@of_complex("tanh.default")
def tanh(n: NodeContext, x: Complex) -> Complex:
    """(t + i u) / (1 + i t u) with t = tanh a and u = tan b."""
    t, u = n.emit("tanh", x.real), n.emit("tan", x.imag)
    one = n.constant(1, t.dtype)
    return quotient(n, Complex(t, u), Complex(n.expand(one, t.shape), n.emit("mul", t, u)))


@of_complex("sigmoid.default")
def sigmoid(n: NodeContext, x: Complex) -> Complex:
    below = exp(n, Complex(*(n.emit("neg", p) for p in x)))
    of = x.real.dtype
    return quotient(
        n, pair(n, 1, of), Complex(n.emit("add", below.real, n.constant(1, of)), below.imag)
    )


@of_complex("eq.Tensor", "ne.Tensor", "eq.Scalar", "ne.Scalar")
def equal(n: NodeContext, x: Any, y: Any) -> Value:
    of = next(v.real.dtype for v in (x, y) if isinstance(v, Complex))
    a, b = pair(n, x, of), pair(n, y, of)
    same = n.emit("logical_and", *(n.emit("equal", p, q) for p, q in zip(a, b, strict=True)))
    return same if n.op == "eq" else n.emit("logical_not", same)


@of_complex("isnan.default", "isinf.default")
def is_special(n: NodeContext, x: Complex) -> Value:
    return n.emit("logical_or", *(n.emit(n.op, p) for p in x))


@of_complex("linalg_vector_norm.default")
def vector_norm(n: NodeContext, x: Complex, ord: float = 2, dim: Any = None, keepdim: bool = False,
                dtype: Any = None) -> Value:  # fmt: skip
    return reductions.norm_of(n, magnitude(n, x), ord, dim, keepdim)


@of_complex("linear.default", "conv1d.default", "conv2d.default", "conv3d.default",
            "convolution.default")  # fmt: skip
def linear(n: NodeContext, x: Any, weight: Any, bias: Any = None, *rest: Any) -> Complex:
    """As of real numbers, four times."""
    of, real = part_type(n), TRANSLATORS[str(n.node.target)]
    made = times(n, pair(n, x, of), pair(n, weight, of),
                 lambda a, b: real(PartContext(n), a, b, None, *rest))  # fmt: skip
    if bias is None:
        return made
    b = pair(n, bias, of)
    space = 0 if n.op == "linear" else made.real.rank - 2 - (made.real.rank == weight.real.rank - 1)
    shape = (b.real.shape[0], *(1,) * space)
    return Complex(*(n.emit("add", p, n.reshape(q, shape)) for p, q in zip(made, b, strict=True)))


@of_complex("mm.default", "bmm.default", "matmul.default")
def matmul(n: NodeContext, a: Any, b: Any) -> Complex:
    of = part_type(n)
    return times(n, pair(n, a, of), pair(n, b, of), "matmul")


@of_complex("where.self")
def where(n: NodeContext, condition: Value, x: Any, y: Any) -> Complex:
    of = part_type(n)
    a, b = pair(n, x, of), pair(n, y, of)
    return Complex(*(n.emit("where", condition, p, q) for p, q in zip(a, b, strict=True)))


# Fourier transforms -----------------------------------------------------------------------------


def along(n: NodeContext, x: fourier.Parts, axis: int, sign: int) -> Complex:
    """The transform along an axis, not scaled."""
    shape = x.real.shape
    real, imag = fourier.transform(n.build, flat(n, x, axis), sign)
    if imag is None:
        imag = n.full(0, real.dtype, real.shape)
    return Complex(n.reshape(real, shape), n.reshape(imag, shape))


def flat(n: NodeContext, x: fourier.Parts, axis: int) -> fourier.Parts:
    """x[outer, count, inner] around an axis."""
    shape = x.real.shape
    goal = (sizes.product(shape[:axis]), shape[axis], sizes.product(shape[axis + 1 :]))
    return x.viewed(n.build, goal)


def normalised(n: NodeContext, parts: Any, lengths: Iterable[Expr], kind: int) -> Any:
    """Divided by nothing (0), the root of how many are transformed together (1) or that (2)."""
    if kind == 0:
        return parts
    count, of = sizes.product(lengths), parts[0].dtype
    if (known := as_int(count)) is not None:
        factor = n.constant(1 / math.sqrt(known) if kind == 1 else 1 / known, of)
    else:
        many = n.cast(n.build.size_vector(count), F64)
        many = n.emit("sqrt", many) if kind == 1 else many
        factor = n.cast(n.emit("div", n.constant(1.0, F64), many), of)
    scaled = [n.emit("mul", p, factor) for p in parts]
    return Complex(*scaled) if len(scaled) == 2 else scaled


@of_complex("_fft_c2c.default")
def fft_c2c(n: NodeContext, x: Complex, dim: Any, normalization: int, forward: bool) -> Complex:
    axes = axes_of(list(dim), x.real.rank) if len(dim) else ()
    for axis in axes:
        x = along(n, fourier.Parts(*x), axis, -1 if forward else 1)
    return normalised(n, x, [x.real.shape[a] for a in axes], normalization)


@of_complex("_fft_r2c.default")
def fft_r2c(n: NodeContext, x: Value, dim: Any, normalization: int, onesided: bool) -> Complex:
    axes = axes_of(list(dim), x.rank)
    y: Any = fourier.Parts(n.cast(x, part_type(n)), None)
    for k, axis in enumerate(reversed(axes)):
        y = along(n, fourier.Parts(*y), axis, -1)
        if k == 0 and onesided:  # the rest is its mirror
            half = sizes.size(x.shape[axis] // 2 + 1)
            y = Complex(*(n.cut(p, axis, 0, half) for p in y))
    return normalised(n, y, [x.shape[a] for a in axes], normalization)


@of_complex("_fft_c2r.default")
def fft_c2r(n: NodeContext, x: Complex, dim: Any, normalization: int, last_dim_size: Any) -> Value:
    axes = axes_of(list(dim), x.real.rank)
    for axis in axes[:-1]:
        x = along(n, fourier.Parts(*x), axis, 1)
    axis, size, shape = axes[-1], sizes.size(last_dim_size), x.real.shape
    y = fourier.to_real(n.build, flat(n, fourier.Parts(*x), axis), size)
    y = n.reshape(y, (*shape[:axis], size, *shape[axis + 1 :]))
    (y,) = normalised(n, (y,), [size, *(shape[a] for a in axes[:-1])], normalization)
    return y
