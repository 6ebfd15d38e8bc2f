"""Translators of ONNX operators that read parts of an image between its positions: regions of
interest and convolutions whose taps are moved."""

from __future__ import annotations

from typing import Any

from tilewright.frontend.onnx import data_dependent
from tilewright.frontend.onnx.arithmetic import Floats
from tilewright.frontend.onnx.data_dependent import op
from tilewright.frontend.onnx.neural import weights_of
from tilewright.frontend.onnx.registry import NodeContext, Refusal, translates
from tilewright.frontend.onnx.vision import scalar
from tilewright.graph import grid_sample, sizes
from tilewright.graph.bounds import from_start
from tilewright.graph.graph import Value
from tilewright.graph.ops.linear import kernel_of


@translates("DeformConv")
def deform_conv(n: NodeContext) -> Any:
    """A convolution whose taps each position moves: the taps are read between the positions of the
    image, side by side, and multiplied with the weights. Source: Zhu et al. 2019."""
    x, w, offset, bias, mask = n[0], weights_of(n), n[2], n.optional(3), n.optional(4)
    kernel = kernel_of(w)
    rank, out = len(kernel), offset.shape[2:]
    strides, dilations = n.ints("strides") or (1,) * rank, n.ints("dilations") or (1,) * rank
    pads = n.ints("pads") or (0,) * (2 * rank)
    groups, moved = n.int("group", 1), n.int("offset_group", 1)
    if len(strides) != rank or len(dilations) != rank or len(pads) != 2 * rank or moved < 1:
        raise Refusal(f"its strides, dilations and pads do not fit {rank} space axes")
    build, batch = n.build, x.shape[0]
    f = grid_sample.Floats(build, "f64" if x.dtype.name == "f64" else "f32")
    taps, positions = sizes.product(kernel), sizes.product(out)
    lead = sizes.size(batch * moved)
    parts = build.emit("reshape", f.of(offset), shape=(lead, taps, rank, positions))
    at: list[Value] = []
    for d in range(rank):
        own = build.emit("slice", parts, starts=(0, 0, d, 0), shape=(lead, taps, 1, positions))
        own = build.emit("reshape", own, shape=(lead, *kernel, *out))
        for axis, size, step, first in (
            (1 + d, kernel[d], dilations[d], 0),
            (1 + rank + d, out[d], strides[d], -pads[d]),
        ):
            side: list[Any] = [1] * own.rank
            side[axis] = size
            line = build.emit("arange", length=size, start=first, step=step)
            own = f("add", own, build.emit("reshape", f.of(line), shape=tuple(side)))
        at.append(build.emit("reshape", own, shape=(lead, sizes.size(taps * positions))))
    each = sizes.size(x.shape[1] // moved)
    image = build.emit("reshape", x, shape=(lead, each, *x.shape[2:]))
    ends = [(f.number(0.0), f.number(0.0))] * rank
    columns = grid_sample.sampled(f, image, at, "linear", "zeros", ends)
    if mask is not None:
        by = build.emit("reshape", mask, shape=(lead, 1, sizes.size(taps * positions)))
        columns = build.emit("mul", columns, by)
    deep = sizes.size(w.shape[1] * taps)
    columns = build.emit("reshape", columns, shape=(batch, groups, deep, positions))
    weights = build.emit("reshape", w, shape=(groups, sizes.size(w.shape[0] // groups), deep))
    y = build.emit("matmul", weights, columns)
    y = build.emit("reshape", y, shape=(batch, w.shape[0], *out))
    if bias is None:
        return y
    return n.emit("add", y, build.emit("reshape", bias, shape=(w.shape[0], *(1,) * rank)))


@translates("RoiAlign")
def roi_align(n: NodeContext) -> Any:
    """The mean (or greatest) of samples in each bin of each region. Source: He et al. 2017."""
    x, rois, image = n[0], n[1], n[2]
    if x.rank != 4 or rois.rank != 2:
        raise Refusal("it needs images [batch, channels, height, width] and a list of regions")
    mode, half = n.text("mode", "avg"), "half_pixel" if n.version >= 16 else "output_half_pixel"
    if mode not in ("avg", "max"):
        raise Refusal(f"mode {mode!r} is not known")
    shifted = n.text("coordinate_transformation_mode", half) == "half_pixel"
    regions = Regions(n, x, rois, n.int("sampling_ratio", 0), shifted)
    high = regions.along(1, 3, x.shape[2], n.int("output_height", 1))
    wide = regions.along(0, 2, x.shape[3], n.int("output_width", 1))
    return regions.pooled(image, high, wide, mode == "max")


class Along:
    """The samples along one axis: bins and samples of each; and of every sample the two positions
    that it lies between (i64), their weights, and whether it counts."""

    def __init__(self, bins: int, samples: Any, taps: Any, counts: Value, active: Value) -> None:
        self.bins, self.samples, self.taps = bins, samples, taps
        self.counts, self.active = counts, active


class Regions:
    """Regions of interest of images x, sampled `ratio` times in each bin (0: as often as the bin
    has positions)."""

    def __init__(self, n: NodeContext, x: Value, rois: Value, ratio: int, shifted: bool) -> None:
        self.n, self.x, self.ratio, self.shifted = n, x, ratio, shifted
        self.f = Floats(n, "f64" if x.dtype.name == "f64" else "f32")
        self.rois, self.count = self.f.of(rois), rois.shape[0]
        self.scale = n.float("spatial_scale", 1.0)

    def column(self, k: int) -> Value:
        """One edge of all regions, in positions of x: [regions, 1, 1]."""
        part = self.n.build.emit("slice", self.rois, starts=(0, k), shape=(self.count, 1))
        part = self.n.build.emit("reshape", part, shape=(self.count, 1, 1))
        part = self.f("mul", part, self.scale)
        return self.f("sub", part, 0.5) if self.shifted else part

    def along(self, first: int, last: int, size: Any, bins: int) -> Along:
        """Where the samples along one axis lie: arrays [regions, bins · samples]."""
        n, f, build = self.n, self.f, self.n.build
        start, end = self.column(first), self.column(last)
        extent = f("sub", end, start)
        if not self.shifted:
            extent = f("maximum", extent, 1.0)
        width = f("div", extent, float(bins))
        samples: Any = self.ratio
        counts = f("full", shape=width.shape, value=self.ratio, of=f.dtype)
        if self.ratio <= 0:
            counts = f("maximum", f("ceil", width), 0.0)
            most = build.emit("reduce_max", counts, axes=(0, 1, 2), keepdims=True)
            most = f("maximum", most, 0.0)  # of no regions
            most = op(n, "cast", build.emit("reshape", most, shape=(1,)), to="i64")
            samples = data_dependent.measure(n, most, "the samples")[0]
        one = f.of(op(n, "reshape", op(n, "arange", length=bins), shape=(bins, 1)))
        two = f.of(op(n, "reshape", op(n, "arange", length=samples), shape=(1, samples)))
        inner = f("div", f("mul", f("add", two, 0.5), width), f("maximum", counts, 1.0))
        at = f("add", f("add", start, f("mul", one, width)), inner)
        shape = (self.count, sizes.size(samples * bins))
        active = build.emit("less", two, counts)
        active = build.emit("expand", active, shape=(self.count, bins, samples))
        at, active = (build.emit("reshape", v, shape=shape) for v in (at, active))
        edge = f("sub", f.size(size), 1.0)
        away = f("logical_or", f("less", at, -1.0), f("greater", at, f.size(size)))
        held = f("minimum", f("maximum", at, 0.0), edge)
        low = f("floor", held)
        high = f("minimum", f("add", low, 1.0), edge)
        rest = f("sub", held, low)
        taps = [
            (build.emit("cast", position, to="i64"), f("where", away, 0.0, weight))
            for position, weight in ((low, f("sub", 1.0, rest)), (high, rest))
        ]
        return Along(
            bins, samples, taps, build.emit("reshape", counts, shape=(self.count,)), active
        )

    def pooled(self, image: Value, high: Along, wide: Along, greatest: bool) -> Value:
        n, f, build, x = self.n, self.f, self.n.build, self.x
        rows, columns = high.active.shape[1], wide.active.shape[1]
        count, channels = self.count, x.shape[1]
        flat = build.emit("reshape", x, shape=(*x.shape[:2], sizes.product(x.shape[2:])))
        flat = f.of(build.emit("transpose", flat, perm=(0, 2, 1)))
        image = op(n, "reshape", op(n, "cast", image, to="i64"), shape=(count, 1, 1))
        image = op(n, "expand", image, shape=(count, rows, columns))

        def outer(name: str, a: Value, b: Value) -> Value:
            a = build.emit("reshape", a, shape=(count, rows, 1))
            return build.emit(name, a, build.emit("reshape", b, shape=(count, 1, columns)))

        total: Value | None = None
        for y_position, y_weight in high.taps:
            line = op(n, "mul", y_position, scalar(n, x.shape[3]))
            for x_position, x_weight in wide.taps:
                position = outer("add", line, x_position)
                goal = (count, rows, columns, 1)
                pair = [build.emit("reshape", v, shape=goal) for v in (image, position)]
                found = build.emit("gather_nd", flat, build.emit("concat", *pair, axis=3))
                by = build.emit("reshape", outer("mul", y_weight, x_weight), shape=goal)
                part = f("mul", found, by)
                kind = "maximum" if greatest else "add"
                total = part if total is None else f(kind, total, part)
        assert total is not None
        counts = outer("logical_and", high.active, wide.active)
        counts = build.emit("reshape", counts, shape=(count, rows, columns, 1))
        total = f("where", counts, total, float("-inf") if greatest else 0.0)
        bins = (count, high.bins, high.samples, wide.bins, wide.samples, channels)
        total = build.emit("reshape", total, shape=bins)
        y = build.emit("reduce_max" if greatest else "reduce_sum", total, axes=(2, 4))
        if greatest:
            y = f("where", f("equal", y, float("-inf")), 0.0, y)
        else:
            many = f("maximum", f("mul", high.counts, wide.counts), 1.0)
            y = f("div", y, build.emit("reshape", many, shape=(count, 1, 1, 1)))
        y = build.emit("transpose", y, perm=(0, 3, 1, 2))
        return y if y.dtype is x.dtype else build.emit("cast", y, to=x.dtype.name)


@translates("MaxRoiPool")
def max_roi_pool(n: NodeContext) -> Any:
    """The greatest number in each bin of each region, 0 in an empty bin: along one axis, then along
    the other. Source: Girshick 2015; regions are (image, x, y, x, y), both corners inside."""
    x, rois, bins = n[0], n[1], n.ints("pooled_shape")
    if x.rank != 4 or rois.rank != 2 or len(bins or ()) != 2:
        raise Refusal("it needs images [batch, channels, height, width] and two pooled sizes")
    f = Floats(n, "f64" if x.dtype.name == "f64" else "f32")
    count, scale = rois.shape[0], n.float("spatial_scale", 1.0)

    def corner(k: int) -> Value:
        part = n.build.emit("slice", rois, starts=(0, k), shape=(count, 1))
        return f("floor", f("add", f("mul", f.of(part), scale), 0.5))

    image = n.build.emit("slice", rois, starts=(0, 0), shape=(count, 1))
    image = op(n, "reshape", op(n, "cast", image, to="i64"), shape=(count,))
    image = n.checked(image, from_start(x.shape[0]))
    y = n.build.emit("gather", f.of(x), image, axis=0)
    for d, first, last in ((2, 2, 4), (3, 1, 3)):
        start, size, many = corner(first), x.shape[d], bins[d - 2]
        extent = f("maximum", f("add", f("sub", corner(last), start), 1.0), 1.0)
        steps = f.of(op(n, "reshape", op(n, "arange", length=many), shape=(1, many)))
        width = f("div", extent, float(many))
        low = f("add", f("floor", f("mul", steps, width)), start)
        high = f("add", f("ceil", f("mul", f("add", steps, 1.0), width)), start)
        position = f.of(op(n, "reshape", op(n, "arange", length=size), shape=(1, 1, size)))
        ends = [op(n, "reshape", v, shape=(count, many, 1)) for v in (low, high)]
        inside = f(
            "logical_and", f("greater_equal", position, ends[0]), f("less", position, ends[1])
        )
        line = (count, 1, many, size, 1) if d == 2 else (count, 1, 1, many, size)
        inside = op(n, "reshape", inside, shape=line)
        spread = (*y.shape[:d], 1, *y.shape[d:])
        held = f("where", inside, op(n, "reshape", y, shape=spread), float("-inf"))
        y = op(n, "reduce_max", held, axes=(d + 1,))
    y = f("where", f("equal", y, float("-inf")), 0.0, y)
    return y if y.dtype is x.dtype else n.build.emit("cast", y, to=x.dtype.name)
