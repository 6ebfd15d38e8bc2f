"""Translators of `com.microsoft` operators that stand for several of ai.onnx's, or for an older
form of one: what onnxruntime's optimiser writes. Each is put into those.

Source of their meaning: onnxruntime's docs/ContribOperators.md; the tests compare with onnxruntime,
or with NumPy where it has them for GPUs alone.
"""

from __future__ import annotations

from typing import Any

from tilewright.frontend.onnx.contrib import DOMAIN, channels_first, channels_last
from tilewright.frontend.onnx.reductions import squared
from tilewright.frontend.onnx.registry import NodeContext, Refusal, translates
from tilewright.graph import sizes
from tilewright.graph.graph import Value

# Products and convolutions ------------------------------------------------------------------------

# Parameters of an activation by name, in the order in which they are given.
PARAMETERS = {
    "LeakyRelu": ("alpha",),
    "Elu": ("alpha",),
    "ThresholdedRelu": ("alpha",),
    "Selu": ("alpha", "gamma"),
    "HardSigmoid": ("alpha", "beta"),
    "Relu": (), "Sigmoid": (), "Tanh": (), "Softplus": (), "Softsign": (), "HardSwish": (),
}  # fmt: skip


def activated(n: NodeContext, y: Value, given: tuple[float, ...]) -> Value:
    """y after the activation that the node names, with the parameters that it gives."""
    name = n.text("activation")
    if not name:
        return y
    if name == "Clip":
        low, high = given if len(given) == 2 else (None, None)
        return n.apply("Clip", y, version=6, min=low, max=high)
    if name not in PARAMETERS:
        raise Refusal(f"its activation {name!r} is not known")
    return n.apply(name, y, **dict(zip(PARAMETERS[name], given, strict=False)))


@translates("FusedConv", "NhwcFusedConv", "NhwcConv", domain=DOMAIN)
def fused_conv(n: NodeContext) -> Any:
    """A convolution, something added, an activation; images may be [batch, …, channels]."""
    last = n.op.startswith("Nhwc")
    x, more = n[0], n.optional(3)
    if last:
        x = channels_first(n, x)
        more = None if more is None else channels_first(n, more)
    y = n.apply("Conv", x, n[1], n.optional(2))
    y = y if more is None else n.emit("add", y, more)
    y = activated(n, y, n.floats("activation_params", ()))
    return channels_last(n, y) if last else y


@translates("FusedGemm", domain=DOMAIN)
def fused_gemm(n: NodeContext) -> Any:
    y = n.apply("Gemm", n[0], n[1], n.optional(2))
    names = PARAMETERS.get(n.text("activation"), ())
    given = [n.float(f"activation_{name}") for name in names]
    return activated(n, y, tuple(v for v in given if v is not None))


@translates("GemmFastGelu", domain=DOMAIN)
def gemm_gelu(n: NodeContext) -> Any:
    y = n.build.emit("matmul", n[0], n[1])
    y = y if n.optional(2) is None else n.build.emit("add", y, n[2])
    return n.emit("gelu", y, tanh=True)


@translates("FusedMatMul", "TransposeMatMul", "FusedMatMulActivation", domain=DOMAIN)
def fused_matmul(n: NodeContext) -> Any:
    """alpha a b, of operands with their last two axes exchanged, or with the first behind the
    other batch axes."""

    def operand(k: int, side: str) -> Value:
        x = n[k]
        if x.rank < 2:
            raise Refusal("its operands must be matrices")
        if not n.flag(f"transBatch{side}"):
            return x
        return n.build.emit("transpose", x, perm=(*range(1, x.rank - 1), 0, x.rank - 1))

    flags = {"transpose_a": n.flag("transA"), "transpose_b": n.flag("transB")}
    y, alpha = n.emit("matmul", operand(0, "A"), operand(1, "B"), **flags), n.float("alpha", 1.0)
    y = y if alpha == 1.0 else n.emit("mul", y, n.constant(alpha, y.dtype))
    given = (n.float(f"activation_{name}") for name in ("alpha", "beta", "gamma"))
    return activated(n, y, tuple(v for v in given if v is not None))


@translates("ConvTransposeWithDynamicPads", domain=DOMAIN)
def conv_transpose(n: NodeContext) -> Any:
    pads = n.numbers(2) if n.optional(2) is not None else None
    return n.apply("ConvTranspose", n[0], n[1], n.optional(3), pads=pads)


# Sums and norms -----------------------------------------------------------------------------------


@translates("BiasSoftmax", domain=DOMAIN)
def bias_softmax(n: NodeContext) -> Any:
    """softmax(x + bias) over the axes from `axis` on. The bias lacks the inner batch axes of x (its
    own are the first ones), or the outer ones."""
    x, bias = n[0], n[1]
    axis = n.int("axis", 1) % max(x.rank, 1)
    if n.flag("is_inner_broadcast") and bias.rank < x.rank:
        lead = bias.rank - (x.rank - axis)
        if lead < 0:
            raise Refusal(f"its bias has rank {bias.rank}, its input {x.rank}, axis is {axis}")
        shape = (*bias.shape[:lead], *(1,) * (axis - lead), *bias.shape[lead:])
        bias = n.build.emit("reshape", bias, shape=shape)
    return n.apply("Softmax", n.build.emit("add", x, bias), version=11, axis=axis)


@translates("BiasAdd", domain=DOMAIN)
def bias_add(n: NodeContext) -> Any:
    """x + bias + skip"""
    return n.emit("add", n.build.emit("add", n[0], n[1]), n[2])


@translates("BiasSplitGelu", domain=DOMAIN)
def bias_split_gelu(n: NodeContext) -> Any:
    """The first half of x + bias times the gelu of the other one."""
    x = n.build.emit("add", n[0], n[1])
    half = sizes.size(x.shape[-1] // 2)
    lead, shape = (0,) * (x.rank - 1), (*x.shape[:-1], half)
    a, b = (n.build.emit("slice", x, starts=(*lead, at), shape=shape) for at in (0, half))
    return n.emit("mul", a, n.build.emit("gelu", b))


@translates("GroupNorm", "SkipGroupNorm", domain=DOMAIN)
def group_norm(n: NodeContext) -> Any:
    """Of images that are [batch, height, width, channels] unless channels_last is 0, with SiLU
    behind it where activation is 1. SkipGroupNorm adds a skip and a bias first, and gives that sum,
    too."""
    x, last = n[0], n.flag("channels_last", True)
    if n.op == "SkipGroupNorm":
        skip = n[3]
        if skip.rank == 2:
            near = (skip.shape[0], 1, 1, skip.shape[1])
            skip = n.build.emit("reshape", skip, shape=near if last else (*skip.shape, 1, 1))
        x = n.build.emit("add", x, skip)
        if n.optional(4) is not None:
            bias = n[4]
            shape = bias.shape if last else (*bias.shape, 1, 1)
            x = n.build.emit("add", x, n.build.emit("reshape", bias, shape=shape))
    parts = [n.build.emit("cast", n[k], to=x.dtype.name) for k in (1, 2)]
    given = {"groups": n.int("groups"), "eps": n.float("epsilon", 1e-5)}
    y = n.emit("group_norm", channels_first(n, x) if last else x, *parts, **given)
    y = n.emit("silu", y) if n.flag("activation") else y
    y = channels_last(n, y) if last else y
    return (y, x) if n.op == "SkipGroupNorm" else y


# Older forms --------------------------------------------------------------------------------------


@translates(
    "Trilu", "GridSample", "GatherND", "Range", "Pad", "QuantizeLinear", "DequantizeLinear",
    domain=DOMAIN,
)  # fmt: skip
def as_standard(n: NodeContext) -> Any:
    inputs: list[Any] = list(n.inputs)
    if n.op == "Range" and len(inputs) == 2:
        inputs.append(n.constant(1, n[0].dtype))
    return n.apply(n.op, *inputs)


@translates("Unique", domain=DOMAIN)
def unique(n: NodeContext) -> Any:
    """The elements in the order of their first positions, how each is numbered, and how many."""
    values, _, numbers, counts = n.apply("Unique", n[0], sorted=0)
    return values, numbers, counts


@translates("ExpandDims", domain=DOMAIN)
def expand_dims(n: NodeContext) -> Any:
    return n.apply("Unsqueeze", n[0], n.build.emit("cast", n[1], to="i64"))


@translates("Inverse", domain=DOMAIN)
def inverse(n: NodeContext) -> Any:
    """By LU with exchanged rows."""
    x = squared(n, n[0])
    wide = "f64" if x.dtype.name == "f64" else "f32"
    emit, size, lead = n.build.emit, x.shape[-1], sizes.product(x.shape[:-2])
    a = emit("reshape", emit("cast", x, to=wide), shape=(lead, size, size))
    factors, rows, _ = emit("lu", a)
    positions = emit("arange", length=size)
    one = emit("equal", positions, emit("reshape", positions, shape=(size, 1)))
    one = emit("reshape", emit("cast", one, to=wide), shape=(1, size, size))
    y = emit("expand", one, shape=a.shape)
    y = emit("swap_rows", y, rows)
    y = emit("solve_triangular", factors, y, unit=True)
    y = emit("solve_triangular", factors, y, upper=True)
    return emit("cast", emit("reshape", y, shape=x.shape), to=x.dtype.name)


@translates("CDist", domain=DOMAIN)
def distances(n: NodeContext) -> Any:
    """Between each row of a and each of b: lengths of differences, or their squares."""
    a, b, emit = n[0], n[1], n.build.emit
    metric = n.text("metric", "sqeuclidean")
    if metric not in ("euclidean", "sqeuclidean"):
        raise Refusal(f"its metric {metric!r} is not known")
    a = emit("reshape", a, shape=(a.shape[0], 1, a.shape[1]))
    b = emit("reshape", b, shape=(1, *b.shape))
    apart = emit("sub", a, b)
    y = emit("reduce_sum", emit("mul", apart, apart), axes=(2,))
    return emit("sqrt", y) if metric == "euclidean" else y
