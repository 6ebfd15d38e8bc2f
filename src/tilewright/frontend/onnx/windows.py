"""Translators of pooling, its positions and its way back, and of columns added into images."""

from __future__ import annotations

from typing import Any

from tilewright.frontend.onnx import data_dependent
from tilewright.frontend.onnx.data_dependent import op
from tilewright.frontend.onnx.neural import padded_window, same_pads, window
from tilewright.frontend.onnx.registry import NodeContext, Refusal, translates
from tilewright.frontend.onnx.vision import scalar
from tilewright.graph import sizes
from tilewright.graph.bounds import from_start
from tilewright.graph.graph import Value
from tilewright.ir.expr import as_int


@translates("MaxPool", "AveragePool")
def pool(n: NodeContext) -> Any:
    """Max pooling also tells where the greatest values lie, if that is asked."""
    kernel = n.ints("kernel_shape")
    if not kernel or any(k < 1 for k in kernel):
        raise Refusal(f"kernel_shape {kernel} is not positive")
    if n.op == "MaxPool" and len(n.node.output) == 1:
        x, attrs = padded_window(n, n[0], kernel, n[0].dtype.lowest)
        return n.emit("max_pool", x, kernel=kernel, **attrs, ceil_mode=n.flag("ceil_mode"))
    if n.op == "AveragePool":
        return average_pool(n, kernel)
    attrs = window(n, n[0], kernel, pool=True)
    attrs["ceil_mode"] = n.flag("ceil_mode")
    y = n.emit("max_pool", n[0], kernel=kernel, **attrs)
    if not n.node.output[1]:
        return y, None
    return y, whole_positions(n, n[0], n.build.emit("max_pool_index", n[0], kernel=kernel, **attrs))


def average_pool(n: NodeContext, kernel: tuple[int, ...]) -> Value:
    """The mean of each window, of what is in x where x comes padded."""
    count = n.flag("count_include_pad")
    x, attrs = padded_window(n, n[0], kernel, 0.0)
    attrs = {**attrs, "kernel": kernel, "ceil_mode": n.flag("ceil_mode")}
    if x is n[0] or count:
        return n.emit("avg_pool", x, **attrs, count_pads=count)
    steps = zip(n[0].shape[2:], kernel, attrs["strides"], attrs["dilations"], strict=True)
    firsts = [same_pads(*axis, n.text("auto_pad"))[0] for axis in steps]
    inside = [(f, sizes.size(f + s)) for f, s in zip(firsts, n[0].shape[2:], strict=True)]
    return n.emit("avg_pool", x, **attrs, inside=tuple(inside))


def whole_positions(n: NodeContext, x: Value, index: Value) -> Value:
    """Positions in the space of each channel as positions in all of x, which storage_order 1 counts
    by columns."""
    space = x.shape[2:]
    if n.flag("storage_order"):
        by_columns: Value | None = None
        for d, size in enumerate(space):
            after = scalar(n, sizes.product(space[d + 1 :]))
            position = op(n, "floormod", data_dependent.floordiv(n, index, after), scalar(n, size))
            step = scalar(n, sizes.product(space[:d]))
            part = op(n, "mul", position, step)
            by_columns = part if by_columns is None else op(n, "add", by_columns, part)
        assert by_columns is not None
        index = by_columns
    planes = sizes.product(x.shape[:2])
    first = op(n, "mul", op(n, "arange", length=planes), scalar(n, sizes.product(space)))
    first = op(n, "reshape", first, shape=(*x.shape[:2], *(1,) * len(space)))
    return n.build.emit("add", index, first, name=n.node.output[1])


@translates("MaxUnpool")
def unpool(n: NodeContext) -> Any:
    """Values put back at their positions, zeros elsewhere. A given output shape adds zeros at the
    ends; the positions count in the shape without them."""
    x, positions, kernel = n[0], n[1], n.ints("kernel_shape")
    rank = x.rank - 2
    if not kernel or len(kernel) != rank:
        raise Refusal(f"kernel_shape {kernel} does not fit {rank} space axes")
    strides = n.ints("strides") or (1,) * rank
    pads = n.ints("pads") or (0,) * (2 * rank)
    if len(strides) != rank or len(pads) != 2 * rank:
        raise Refusal(f"its strides {strides} and pads {pads} do not fit {rank} space axes")
    space = [
        sizes.size((s - 1) * stride + (k - pads[d] - pads[rank + d]))
        for d, (s, stride, k) in enumerate(zip(x.shape[2:], strides, kernel, strict=True))
    ]
    shape = (*x.shape[:2], *space)
    flat = n.build.emit("full", shape=(sizes.product(shape),), value=0, of=x.dtype.name)
    positions = n.checked(positions, from_start(sizes.product(shape)))
    rows = [n.build.emit("reshape", v, shape=(x.elements,)) for v in (positions, x)]
    y = n.build.emit("scatter_elements", flat, *rows)
    y = n.build.emit("reshape", y, shape=shape)
    if n.optional(2) is None:
        return y
    if data_dependent.is_known(n, 2):
        goal = n.sizes(2)
    else:
        goal = data_dependent.measure(n, data_dependent.vector(n, 2, x.rank), "the output shape")
    if len(goal) != x.rank:
        raise Refusal(f"its output shape has {len(goal)} axes, its input {x.rank}")
    after = tuple(sizes.size(g - s) for g, s in zip(map(sizes.size, goal), shape, strict=True))
    return n.emit("pad", y, before=(0,) * x.rank, after=after)


@translates("Col2Im")
def col2im(n: NodeContext) -> Any:
    x = n[0]
    stated = [len(v) // k for v, k in ((n.ints("strides"), 1), (n.ints("pads"), 2)) if v]
    told, both = data_dependent.told_rank(n), [as_int(n[k].elements) for k in (1, 2)]
    many = next((k for k in (*both, *stated, told and told - 2) if k), None)
    image, block = (
        n.sizes(k)
        if data_dependent.is_known(n, k)
        else data_dependent.measure(n, data_dependent.vector(n, k, many), what)
        for k, what in ((1, "the image"), (2, "the block"))
    )
    rank = len(image)
    pads = n.ints("pads") or (0,) * (2 * rank)
    if len(pads) != 2 * rank:
        raise Refusal(f"it has {len(pads)} pads, {2 * rank} are needed")
    return n.emit(
        "col2im",
        x,
        image=tuple(map(sizes.size, image)),
        block=tuple(map(sizes.size, block)),
        strides=n.ints("strides") or (1,) * rank,
        pads=tuple(zip(pads[:rank], pads[rank:], strict=True)),
        dilations=n.ints("dilations") or (1,) * rank,
    )
