"""choose_layouts: put convolutions and products on packed layouts, and keep values packed between
them.

In: a graph of plain operators and the number of vector lanes. Out: the same model with packed
operators, constants packed, and conversions only where a packed value meets an operator that does
not know packing. The one idea: a value may exist in two forms, plain and packed; each form is made
when somebody first asks for it.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf, prod
from typing import Any

import numpy as np

from tilewright.arith.estimate import SEQUENCE, estimate, estimate_by_symbols
from tilewright.arith.simplify import Facts
from tilewright.graph import sizes
from tilewright.graph.graph import Constant, Deferred, Graph, Node, Value
from tilewright.graph.operator import BROADCAST, OPERATORS
from tilewright.graph.ops.linear import is_of_one_type
from tilewright.graph.ops.packed import pack_dense
from tilewright.graph.ops.packed_transposed import pack_transposed, pack_transposed_each
from tilewright.graph.ops.recurrent import pack_recurrent, packed_recurrent
from tilewright.graph.ops.winograd import TAPS, pack_winograd
from tilewright.graph.passes.channels import (
    Channels,
    Packing,
    along_rows,
    dense,
    dense_filter,
    grouped,
)
from tilewright.graph.passes.packed_images import IMAGES
from tilewright.graph.passes.packed_values import PackedValues
from tilewright.graph.passes.phases_apart import Phase, phases_apart, saves_steps
from tilewright.graph.passes.sought_layouts import (
    FINITE,
    POOLS,
    channels_of,
    is_image,
)
from tilewright.ir.dtype import DType, f32
from tilewright.ir.expr import Expr, as_int
from tilewright.ir.walk import free_vars
from tilewright.strategy.cpu.padding import part_met
from tilewright.strategy.cpu.tiles import Weights, panel_vectors, prefers_pixels, winograd_tile
from tilewright.target.costs import COMMON, Costs

RECURRENT = ("lstm", "gru", "rnn")
FEW = 48  # rows of a product up to which packing its other operand in the run does not pay
FEW_ACROSS = 12  # the same for an operand whose vectors would be gathered, if it is small
SMALL = 8 << 10  # bytes of it up to which it is small
NEAR = 32 << 10  # bytes of it that stay close by as they are: a first-level cache
TURNED = 96  # columns of weights from which turning the left operand pays for however few rows
LINE = 8  # numbers of an open number of lines from which each is summed up by itself
FAR = 4  # this part of the second-level cache taken by it, columns of the left one do not stay


def choose_layouts(
    graph: Graph,
    lanes: int,
    registers: int = 32,
    first_cache: int = 32 << 10,
    second_cache: int = 512 << 10,
    costs: Costs = COMMON,
    winograd: bool = True,
) -> Graph:
    """Packed layouts for vectors of `lanes` f32 and a machine with `registers` vector registers,
    caches of so many bytes, and these constants. `winograd`: may convolutions be Winograd's?"""
    return _Layouts(graph, lanes, registers, (first_cache, second_cache), costs, winograd).run()


class _Layouts(PackedValues):
    """The edit, and what it knows of the machine."""

    def __init__(
        self,
        graph: Graph,
        lanes: int,
        registers: int,
        caches: tuple[int, int],
        costs: Costs,
        winograd: bool,
    ) -> None:
        super().__init__(graph, lanes, costs)
        self.winograd, self.registers, self.caches = winograd, registers, caches
        self.wanted: dict[Value, Packing] = {}
        self.wanted = self.wishes()
        self.weights: dict[tuple[Any, ...], Value] = {}  # packed, by what they were packed from

    def wishes(self) -> dict[Value, Packing]:
        """The packing that a grouped convolution wants of a value, seen through what runs on any
        packing."""
        wanted: dict[Value, Packing] = {}
        for node in reversed(self.graph.nodes):
            channels = channels_of(node.inputs[0]) if node.op == "conv" else 0
            if channels:
                groups = node["groups"]
                if groups == channels and node.output in wanted:
                    wanted.setdefault(node.inputs[0], wanted[node.output])
                elif 1 < groups < channels:
                    co, _, *window = (as_int(n) or 0 for n in node.inputs[1].shape)
                    lie = co and self.channels(node.inputs[0], co, groups, prod(window))
                    if lie and not self.is_along_rows(node):
                        wanted[node.inputs[0]] = lie.image
            elif node.op in FINITE | POOLS and node.output in wanted:
                for value in node.inputs:
                    if value.shape == node.output.shape or node.op in POOLS:
                        wanted.setdefault(value, wanted[node.output])
        return wanted

    def run(self) -> Graph:
        for node in self.graph.nodes:
            handler = _HANDLERS.get(node.op)
            if handler is None and OPERATORS[node.op].fusion is BROADCAST:
                handler = _Layouts.elementwise
            is_empty = any(as_int(s) == 0 for v in (*node.inputs, *node.outputs) for s in v.shape)
            if handler is not None and not is_empty and handler(self, node):
                continue
            for value in node.inputs:
                self.plain(value)
            self.append(self.current(node))
        for value in self.graph.outputs:
            self.plain(value)
        return self.finish_edit() if self.packed or self.replaced else self.graph

    # Operators ------------------------------------------------------------------------------

    def conv(self, node: Node) -> bool:
        x, w = node.inputs[:2]
        weights = self.known(w)
        ci = channels_of(x)
        if weights is None or not _is_f32(node) or not is_image(x) or not ci:
            return False
        bias = self.content(node.inputs[2]) if len(node.inputs) > 2 else None
        if len(node.inputs) > 2 and bias is None:
            return False
        co, groups = weights.shape[0], node["groups"]
        one = (1,) * (x.rank - 2)
        window = {
            "strides": tuple(node["strides"]) or one,
            "pads": tuple(node["pads"]) or tuple((0, 0) for _ in one),
            "dilations": tuple(node["dilations"]) or one,
        }
        if groups == ci == co:
            if self.is_along_rows(node):
                return False
            packing = self.packed.get(x) or self.wanted.get(x) or self.own_packing(ci)
            filters = self.constant(
                packing.pack(weights.array.reshape(1, co, *weights.shape[2:]))[0], "w"
            )
            made = self.emit("depthwise_packed", self.pack(x, packing), filters, **window)
        else:
            lie = self.channels(x, co, groups, prod(weights.shape[2:]))
            if lie is None:
                return False
            if lie.groups != groups:
                weights = Constant(dense_filter(weights.array, groups))
            tiled = self.in_tiles(ci, lie)
            packing, edge = lie.result, self.winograd_edge(node, weights.shape, tiled, window)
            if self.is_along_rows(node, edge):
                return False
            if edge:
                lie = tiled
            shape = lie.filter_shape(weights.shape)

            def packed(first: int = 0, last: int | None = None) -> np.ndarray:
                block = lie.result.block
                own = weights.rows(first * block, None if last is None else last * block)
                filters = lie.pack_filter(own)
                return pack_winograd(filters, edge) if edge else filters

            if edge:
                shape = (shape[0], edge + 2, edge + 2, *shape[2:-4], shape[1], *shape[-2:])
            rows = packed if lie.result.groups == 1 else None  # blocks hold neighbouring channels
            filters = self.later((w, groups, lie, edge), packed, weights.dtype, shape, rows)
            image = self.pack(x, lie.image)
            if edge:
                own = {name: window[name] for name in ("pads", "dilations")}
                made = self.emit("winograd_packed", image, filters, **own)
            else:
                group, across = lie.group(ci, co), self.across(node, packing)
                made = self.emit(
                    "conv_packed", image, filters, group=group, across=across, **window
                )
        if bias is not None:
            made = self.emit("add", made, self.per_channel(bias, packing, x.rank))
        self.made(node.output, made, packing)
        return True

    def is_along_rows(self, node: Node, edge: int = 0) -> bool:
        """Whether a convolution (of Winograd's tiles with this edge) had better stay plain."""
        x, w = node.inputs[:2]
        steps, width = prod(as_int(n) or 1 for n in w.shape[1:]), as_int(node.output.shape[-1])
        of = channels_of(x), channels_of(node.output), steps, width
        is_packed = self.is_only_packed(x) or x in self.wanted
        return along_rows(*of, self.lanes, is_packed, edge > 0, self.costs)

    def channels(self, x: Value, co: int, groups: int, taps: int) -> Channels | None:
        """How the channels of a convolution of `x` lie; None where it had better stay plain."""
        ci = channels_of(x)
        if groups > 1:
            return grouped(ci, co, groups, taps, self.lanes, self.costs)
        found = self.packed.get(x)
        ready = found is not None and self.is_only_packed(x)
        return dense(ci, co, self.lanes, found if ready else None, self.costs)

    def in_tiles(self, ci: int, lie: Channels) -> Channels:
        """How channels lie for Winograd's tiles, which walk whole blocks of those of the image."""
        image, own = lie.image, self.own_packing(ci)
        image = own if image.block == 1 and own.block <= ci else image
        return lie._replace(image=image, step=image.block)

    def costs_of(self, packing: Packing) -> Costs:
        """The machine's for vectors of a block."""
        return self.costs if packing.block >= self.lanes else self.costs.of_halves

    def winograd_edge(
        self, node: Node, shape: tuple[int, ...], lie: Channels, window: dict[str, Any]
    ) -> int:
        """The edge of the tiles for Winograd's convolution with filters of this shape; 0 where it
        does not apply or pay."""
        if not self.winograd or shape[-2:] != (3, 3):
            return 0
        images, _, *deep, height, width = map(as_int, node.output.shape)
        *_, dy, dx = window["dilations"]
        if None in (*deep, height, width) and all(map(self.never_negative, node.output.shape)):
            *deep, height, width = map(estimate_by_symbols, node.output.shape[2:])
        unit = set(window["strides"]) == {1} and lie.groups == 1
        if not (unit and lie.image.block > 1 and height and width and all(deep)):
            return 0
        planes = prod(d or 1 for d in deep)
        rows = (images or 1) * planes * height  # an open batch pays if one image does
        ci, co = lie.depth().padded(shape[1]), lie.result.padded(shape[0])
        of = rows, width, ci, co, lie.result.block, self.registers, self.caches[1]
        met = 1.0
        for size, pads, taps, step in zip(
            node.inputs[0].shape[2:], window["pads"], shape[2:], window["dilations"], strict=True
        ):
            met *= part_met(estimate_by_symbols(size), pads, taps, step)
        taps, apart = prod(shape[2:-2]), window["dilations"][0]
        read = (planes + (taps - 1) * apart) / planes
        costs, dtype = self.costs_of(lie.result), node.output.dtype
        return winograd_tile(*of, costs, (dy, dx), met, taps, read, dtype)

    def never_negative(self, size: Expr) -> bool:
        """Whether a kernel knows that tiles of it are never less than none: however small what it
        is made of, or because it is counted from there (driver/own_sizes.py)."""
        known = Facts(dict.fromkeys(free_vars(size), (0, None)))
        low, high = known.bounds(known.affine(size))
        of_one = len([m for m in sizes.monomials(size) if m]) == 1 == len(sizes.factors(size))
        if low > -TAPS:
            return True
        return of_one and high == inf and set(self.graph.measured).isdisjoint(free_vars(size))

    def across(self, node: Node, packing: Packing) -> bool:
        """Whether tiles of a convolution's result had better span rows of the image."""
        _, channels, *planes, height, width = map(as_int, node.output.shape)
        if not (channels and height and width and all(planes)):
            return False
        rows, vectors = height * prod(filter(None, planes)), packing.padded(channels)
        of = rows, width, vectors // packing.block, self.registers
        return prefers_pixels(*of, self.costs_of(packing))

    def per_channel(self, values: np.ndarray, packing: Packing, rank: int) -> Value:
        """One number a channel, shaped to broadcast against a packed image of plain rank `rank`."""
        return self.constant(packing.pack(values.reshape(1, -1, *(1,) * (rank - 2))), "b")

    def conv_transpose(self, node: Node) -> bool:
        x, w = node.inputs[:2]
        weights = self.content(w)
        if weights is None or not _is_f32(node) or not is_image(x):
            return False
        shape = node.output.shape
        bias = self.content(node.inputs[2]) if len(node.inputs) > 2 else None
        one = (1,) * (x.rank - 2)
        strides = tuple(node["strides"]) or one
        each = 1 < node["groups"] == weights.shape[0] == channels_of(node.output)  # depthwise
        if each and not self.is_worth_packing(node.output):
            return False
        plain_window = (each or node["groups"] == 1) and (tuple(node["dilations"]) or one) == one
        places = [sizes.size((s + (k - 1)) // k) for s, k in zip(shape[2:], strides, strict=True)]
        # A number more or less of places for each phase than the image has.
        near = all(
            as_int(sizes.size(p - own)) is not None
            for p, own in zip(places, x.shape[2:], strict=True)
        )
        if not (plain_window and near) or (len(node.inputs) > 2 and bias is None):
            return False
        begins = [before for before, _ in node["pads"] or ((0, 0),) * len(one)]
        ci, co = weights.shape[0], weights.shape[1] * node["groups"]
        cb = self.own_packing(ci).block if ci >= self.lanes or self.is_only_packed(x) else 1
        ob = self.own_packing(co).block
        window = {"strides": strides, "offsets": tuple(begins), "places": tuple(places)}
        apart = None
        if not each and saves_steps(ci, weights.shape[2:], strides, self.costs):
            apart = phases_apart(weights, strides, begins, tuple(places), x.shape[2:])
        if apart is not None:
            made = self.together([self.of_phase(x, phase) for phase in apart], strides)
        elif each:
            filters = self.constant(pack_transposed_each(weights, strides, ob), "w")
            image = self.pack(x, Packing(ob))
            made = self.emit("depthwise_transpose_packed", image, filters, **window)
        else:
            filters = self.constant(pack_transposed(weights, strides, cb, ob), "w")
            image = self.pack(x, Packing(cb))
            made = self.emit("conv_transpose_packed", image, filters, **window)
        whole = [sizes.size(p * k) for p, k in zip(places, strides, strict=True)]
        made = self.emit("reshape", made, shape=(shape[0], -(-co // ob), *whole, ob))
        if tuple(whole) != tuple(shape[2:]):  # the last phases may have a place less than the first
            kept = (*made.shape[:2], *shape[2:], ob)
            made = self.emit("slice", made, starts=(0,) * made.rank, shape=kept)
        if bias is not None:
            made = self.emit("add", made, self.per_channel(bias, Packing(ob), x.rank))
        self.made(node.output, made, Packing(ob))
        return True

    def is_worth_packing(self, result: Value) -> bool:
        """Is the result of a transposed depthwise convolution read as it is packed, or unpacked
        while it is still near? As an image of open size it takes twice as long unpacked."""
        count = [as_int(size) for size in result.shape]
        if None in count or result in self.sought:
            return True
        return 2 * result.dtype.nbytes(prod(map(int, filter(None, count)))) <= self.caches[1]

    def of_phase(self, x: Value, phase: Phase) -> Value:
        """One phase of a transposed convolution, packed."""
        lie, one = self.channels(x, len(phase.weights), 1, 1), (1,) * (x.rank - 2)
        assert lie is not None, "only groups may better stay plain"
        window = {"strides": one, "pads": phase.pads, "dilations": one}
        filters = self.constant(lie.pack_filter(phase.weights), "w")
        return self.emit("conv_packed", self.pack(x, lie.image), filters, across=False, **window)

    def together(self, phases: list[Value], strides: tuple[int, ...]) -> Value:
        """The pixels of packed phases (N, C, *places, b), in row-major order, beside each other."""
        n, c, *places, b = phases[0].shape
        pairs = [size for place in places for size in (place, 1)]
        found = [self.emit("reshape", v, shape=(n, c, *pairs, b)) for v in phases]
        for d, stride in reversed([*enumerate(strides)]):
            runs = (found[k : k + stride] for k in range(0, len(found), stride))
            found = [self.emit("concat", *run, axis=3 + 2 * d) for run in runs]
        return found[0]

    def matmul(self, node: Node) -> bool:
        x, w = node.inputs
        weights, transposed = self.constants.get(w), bool(node["transpose_b"])
        *batch, depth, columns = w.shape[:-2] + (w.shape[:-3:-1] if transposed else w.shape[-2:])
        depth, wide = as_int(depth), as_int(columns)
        if depth is None or (wide is None and weights is not None) or not _is_f32(node):
            return False
        many = SEQUENCE if wide is None else wide
        if batch and (weights is not None or tuple(batch) != x.shape[:-2]):
            return False
        turned, size = bool(node["transpose_a"]), w.dtype.nbytes(depth * many)
        rows = sizes.static(node.output.shape[len(batch) : -1])
        count = prod(rows) if rows is not None else SEQUENCE
        if wide == 1 and not turned and (rows is not None or depth >= LINE):
            return False  # one lane of a panel would count: rows are vectors, as they lie
        few = count < FEW and (weights is None or many < TURNED)
        if turned and (few or size * FAR <= self.caches[1]):
            return False
        if transposed:
            as_it_is = count == 1 or (count < FEW_ACROSS and size <= SMALL)
        else:
            as_it_is = count < FEW or size <= NEAR
        if weights is None and (as_it_is or 0 in (as_int(s) for s in w.shape)):
            return False
        vectors = None if wide is None else -(-wide // self.lanes)
        block = self.panel(w.dtype, depth, count, vectors)
        packed = (
            self.pack_in_run(w, block, transposed)
            if weights is None
            else self.dense_weights(w, weights, block, transposed)
        )
        left = self.plain(x)
        if turned:
            *lead, inner, outer = range(x.rank)
            left = self.emit("transpose", left, perm=(*lead, outer, inner))
        self.replaced[node.output] = self.emit("dense_packed", left, packed, channels=columns)
        return True

    def panel(self, of: DType, depth: int, rows: int, vectors: int | None) -> int:
        """How many columns a panel of weights has, which are `depth` deep and `vectors` wide (None:
        only the run knows), in a product of so many rows."""
        apart = of.nbytes(depth)
        near = Weights.beside(self.lanes, depth, *self.caches, apart=apart, of=of)
        return self.lanes * panel_vectors(rows, vectors, self.registers, near, self.costs)

    def pack_in_run(self, w: Value, block: int, transposed: bool) -> Value:
        """What `pack_dense` does, for an operand that the run computes."""
        w = self.plain(w)
        *batch, rows, columns = w.shape
        n = len(batch)
        wide = rows if transposed else columns
        blocks = sizes.size((wide + (block - 1)) // block)
        more = sizes.size(blocks * block - wide)
        if as_int(more) != 0:
            after: list[sizes.SizeLike] = [0] * w.rank
            after[n if transposed else n + 1] = more
            w = self.emit("pad", w, before=(0,) * w.rank, after=tuple(after))
        cut = (blocks, block, columns) if transposed else (rows, blocks, block)
        perm = (n, n + 2, n + 1) if transposed else (n + 1, n, n + 2)
        in_blocks = self.emit("reshape", w, shape=(*batch, *cut))
        return self.emit("transpose", in_blocks, perm=(*range(n), *perm))

    def dense_weights(self, w: Value, weights: Constant, block: int, transposed: bool) -> Value:
        """Packed weights of a product."""
        k, n = weights.shape[::-1] if transposed else weights.shape

        def packed(first: int = 0, last: int | None = None) -> np.ndarray:
            own = weights.array.T if transposed else weights.array
            return pack_dense(own[:, first * block : None if last is None else last * block], block)

        shape = (-(-n // block), k, block)
        return self.later((w, block, transposed), packed, weights.dtype, shape, packed)

    def later(
        self,
        key: tuple[Any, ...],
        make: Callable[[], np.ndarray],
        of: np.dtype[Any],
        shape: tuple[int, ...],
        rows: Callable[[int, int], np.ndarray] | None = None,
    ) -> Value:
        """Packed weights, to be made when they are written (see Deferred); those of one key are one
        constant."""
        if key not in self.weights:
            self.weights[key] = self.constant(Deferred(make, of, shape, rows), "w")
        return self.weights[key]

    def recurrent(self, node: Node) -> bool:
        """Weights of the state stand in panels, each of neighbouring rows of one gate: vectors of a
        gate's elements lie along memory, which a step's product walks as it lies."""
        w, h = node.inputs[1], node.inputs[2 + (node.op == "gru")]
        weights = self.constants.get(w)
        if weights is None or w.rank == 3:
            return False
        rows, hidden = weights.shape
        block = hidden
        if hidden > self.lanes:
            count, vectors = estimate(h.shape[0]), -(-hidden // self.lanes)
            most = self.panel(w.dtype, hidden, count, vectors) // self.lanes
            fitting = [n for n in (most, most - 1) if n and vectors % n == 0]  # zeros fill none
            block = self.lanes * (fitting or [most])[0]
        panels = self.later(
            (w, block, "recurrent"),
            lambda: pack_recurrent(weights.array, block),
            weights.dtype,
            packed_recurrent(rows, hidden, block),
        )
        inputs = [panels if n == 1 else self.plain(v) for n, v in enumerate(node.inputs)]
        made = self.emit(node.op, *inputs, **dict(node.attrs))
        self.replaced.update(zip(node.outputs, made, strict=True))
        return True

    def instance_norm(self, node: Node) -> bool:
        """Each channel by itself, normalised over its pixels: lanes stay lanes. Sums are taken
        along one axis after the others, so that threads have parts of an image too."""
        x, *parts = node.inputs
        vectors = [self.content(v) for v in parts]
        if not self.is_only_packed(x) or not is_image(x) or node["groups"] != channels_of(x):
            return False
        scale, bias = vectors
        packing = self.packed[x]
        if scale is None or bias is None or not packing.is_full(channels_of(x)):
            return False
        image = self.forms[x, packing]
        first, *others = range(2, x.rank)

        def mean(value: Value) -> Value:
            rows = self.emit("reduce_mean", value, axes=tuple(others), keepdims=True)
            return self.emit("reduce_mean", rows, axes=(first,), keepdims=True)

        middle = mean(image)
        centred = self.emit("sub", image, middle)
        power = mean(self.emit("mul", centred, centred))
        power = self.emit("add", power, self.constant(np.float32(node["eps"]), "eps"))
        gain = self.emit("mul", self.emit("rsqrt", power), self.per_channel(scale, packing, x.rank))
        # Again, and not as the same value, which would be stored for both.
        centred = self.emit("add", image, self.emit("neg", middle))
        made = self.emit("mul", centred, gain)
        made = self.emit("add", made, self.per_channel(bias, packing, x.rank))
        self.made(node.output, made, packing)
        return True

    def elementwise(self, node: Node) -> bool:
        """Run on packed forms if an input exists only so and the others can follow."""
        out = node.output
        if len(node.outputs) != 1 or not is_image(out):
            return False
        leading = [v for v in node.inputs if self.is_only_packed(v) and v.shape == out.shape]
        if not leading:
            return False
        packing = self.packed[leading[0]]
        if not packing.is_full(channels_of(out)) and node.op not in FINITE:
            return False
        forms: list[Value] = []
        for value in node.inputs:
            form = self.follow(value, out, packing)
            if form is None:
                return False
            forms.append(form)
        self.made(out, self.emit(node.op, *forms, **dict(node.attrs)), packing)
        return True

    def follow(self, value: Value, out: Value, packing: Packing) -> Value | None:
        """The form in which an operand joins an elementwise operator on packed values."""
        if value.shape == out.shape:
            return self.pack(value, packing)
        array = self.content(value)
        if value in self.packed and channels_of(value) == channels_of(out):
            return self.pack(value, packing)  # (N, C, 1, 1): a gate for each channel
        if value.rank > out.rank:
            return None
        if array is None:  # a mask of pixels is the same for all channels
            shape = (*(sizes.size(1) for _ in range(out.rank - value.rank)), *value.shape)
            alike = as_int(shape[1]) == 1
            return self.emit("reshape", self.plain(value), shape=(*shape, 1)) if alike else None
        full = array.reshape((1,) * (out.rank - array.ndim) + array.shape)
        if full.shape[1:2] == (1,):
            return self.constant(full.reshape(*full.shape, 1), "c")
        return self.constant(packing.pack(full), "c")


def _is_f32(node: Node) -> bool:
    """Is it a product or convolution of f32 alone? Others have no packed kernels."""
    return is_of_one_type(node) and node.output.dtype is f32


_HANDLERS: dict[str, Callable[[Any, Node], bool]] = {
    **IMAGES,
    "conv": _Layouts.conv,
    "conv_transpose": _Layouts.conv_transpose,
    "matmul": _Layouts.matmul,
    "group_norm": _Layouts.instance_norm,
    **dict.fromkeys(RECURRENT, _Layouts.recurrent),
}
