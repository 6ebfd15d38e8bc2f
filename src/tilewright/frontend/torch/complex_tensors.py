"""Complex tensors that are made, written at indices, and reduced: further translators."""

from __future__ import annotations

from typing import Any

from tilewright.frontend.torch.complex import (
    Complex,
    PartContext,
    matmul,
    of_complex,
    pair,
    part_type,
    quotient,
    sqrt,
    times,
)
from tilewright.frontend.torch.movement import VALUES
from tilewright.frontend.torch.reductions import reduced
from tilewright.frontend.torch.registry import TRANSLATORS, NodeContext, axis_of
from tilewright.graph import sizes
from tilewright.graph.graph import Value
from tilewright.ir.expr import as_int


def part_of(n: NodeContext, *args: Any, **named: Any) -> Value:
    """What the node's own translator makes of real arguments."""
    return TRANSLATORS[f"aten.{n.op}.{str(n.node.target).rpartition('.')[2]}"](
        PartContext(n), *args, **named
    )


@of_complex("full.default", "full_like.default", "new_full.default", "scalar_tensor.default",
            *(f"{name}.default" for name in VALUES if name != "empty"))  # fmt: skip
def full(n: NodeContext, *args: Any, **named: Any) -> Complex:
    at = {"full": 1, "full_like": 1, "new_full": 2, "scalar_tensor": 0}.get(n.op)
    value = VALUES[n.op] if at is None else (args[at] if len(args) > at else named["fill_value"])
    made = pair(n, value, part_type(n))
    return Complex(*(n.expand(p, n.shape) for p in made))


@of_complex("constant_pad_nd.default")
def pad(n: NodeContext, x: Complex, pad: Any, value: Any = 0) -> Complex:
    value = complex(value)
    return Complex(part_of(n, x.real, pad, value.real), part_of(n, x.imag, pad, value.imag))


@of_complex("index_put.default", "index_copy.default", "index_add.default", "scatter.src")
def written(n: NodeContext, x: Any, *args: Any, **named: Any) -> Complex:
    """Both parts of x with those of the source at the same positions."""
    of, at = part_type(n), 1 if n.op == "index_put" else 2
    source = pair(n, args[at], of)
    if named.get("alpha", 1) != 1:
        source = times(n, source, pair(n, named.pop("alpha"), of))
    parts = zip(pair(n, x, of), source, strict=True)
    return Complex(*(part_of(n, p, *args[:at], q, *args[at + 1 :], **named) for p, q in parts))


@of_complex("where.ScalarOther", "where.ScalarSelf", "masked_fill.Scalar", "masked_fill.Tensor")
def where(n: NodeContext, *args: Any) -> Complex:
    condition, x, y = args if n.op == "where" else (args[1], args[2], args[0])
    a, b = (pair(n, v, part_type(n)) for v in (x, y))
    return Complex(*(n.emit("where", condition, p, q) for p, q in zip(a, b, strict=True)))


@of_complex("any.default", "any.dim", "any.dims", "all.default", "all.dim", "all.dims",
            "logical_not.default")  # fmt: skip
def truth(n: NodeContext, x: Complex, *args: Any, **named: Any) -> Value:
    """As of truth values: what is not zero."""
    nothing = n.constant(0, x.real.dtype)
    some = n.emit("logical_or", *(n.emit("not_equal", p, nothing) for p in x))
    return part_of(n, some, *args, **named)


@of_complex("_assert_tensor_metadata.default")
def asserted(n: NodeContext, *args: Any, **named: Any) -> None:
    """What tracing asserted holds of what it traced."""


# products ---------------------------------------------------------------------------------------


@of_complex("square.default")
def square(n: NodeContext, x: Complex) -> Complex:
    return times(n, x, x)


@of_complex("rsqrt.default")
def rsqrt(n: NodeContext, x: Complex) -> Complex:
    return quotient(n, pair(n, 1, x.real.dtype), sqrt(n, x))


@of_complex("dot.default", "vdot.default")
def dot(n: NodeContext, x: Complex, y: Complex) -> Complex:
    if n.op == "vdot":
        x = Complex(x.real, n.emit("neg", x.imag))
    return Complex(*(reduced(n, "sum", p, None) for p in times(n, x, y)))


@of_complex("addmm.default", "baddbmm.default")
def addmm(n: NodeContext, x: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1) -> Complex:
    of = part_type(n)
    parts = [matmul(n, a, b), pair(n, x, of)]
    for k, factor in enumerate((alpha, beta)):
        if factor != 1:
            parts[k] = times(n, parts[k], pair(n, factor, of))
    return Complex(*(n.emit("add", p, q) for p, q in zip(*parts, strict=True)))


def along(n: NodeContext, x: Complex, axis: int, start: Any, count: Any) -> Complex:
    return Complex(*(n.cut(p, axis, start, count) for p in x))


def joined_along(n: NodeContext, axis: int, *parts: Complex) -> Complex:
    return Complex(*(n.emit("concat", *p, axis=axis) for p in zip(*parts, strict=True)))


@of_complex("prod.default", "prod.dim_int")
def prod(
    n: NodeContext, x: Any, dim: int | None = None, keepdim: bool = False, dtype: Any = None
) -> Complex:  # fmt: skip
    """Halves of the axis times each other, again and again."""
    x = pair(n, x, part_type(n))
    if dim is None or not x.real.rank:
        x, dim = Complex(*(n.reshape(p, (p.elements,)) for p in x)), 0
    axis = axis_of(dim, x.real.rank)
    if as_int(x.real.shape[axis]) == 0:
        return pair_of_ones(n, n.shape)
    return Complex(*(n.reshape(p, n.shape) for p in multiplied(n, x, axis)))


def multiplied(n: NodeContext, x: Complex, axis: int) -> Complex:
    """The product of the one or more numbers along an axis, which stays, of size 1."""
    (count,) = n.static(x.real.shape[axis : axis + 1], "how many numbers are multiplied")
    while count > 1:
        half = count // 2
        y = times(n, along(n, x, axis, 0, half), along(n, x, axis, half, half))
        x = joined_along(n, axis, y, along(n, x, axis, 2 * half, 1)) if count % 2 else y
        count -= half
    return x


@of_complex("cumprod.default")
def cumprod(n: NodeContext, x: Any, dim: int, dtype: Any = None) -> Complex:
    """Each times what stands 1, 2, 4, … before it."""
    x = pair(n, x, part_type(n))
    if not x.real.rank:
        return x
    axis, step = axis_of(dim, x.real.rank), 1
    (count,) = n.static(x.real.shape[axis : axis + 1], "how many numbers are multiplied")
    while step < count:
        shape = tuple(sizes.size(step) if d == axis else s for d, s in enumerate(x.real.shape))
        before = joined_along(n, axis, pair_of_ones(n, shape), along(n, x, axis, 0, count - step))
        x, step = times(n, x, before), 2 * step
    return x


def pair_of_ones(n: NodeContext, shape: Any) -> Complex:
    return Complex(n.full(1, part_type(n), shape), n.full(0, part_type(n), shape))
