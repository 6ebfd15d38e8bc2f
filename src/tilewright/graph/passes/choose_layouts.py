"""choose_layouts: put convolutions and products on packed layouts, and keep values packed between
them.

In: a graph of plain operators and the number of vector lanes. Out: the same model with packed
operators, constants packed, and conversions only where a packed value meets an operator that does
not know packing. The one idea: a value may exist in two forms, plain and packed; each form is made
when somebody first asks for it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tilewright.graph import sizes
from tilewright.graph.builder import Edit
from tilewright.graph.graph import Graph, Node, Value
from tilewright.graph.operator import BROADCAST, OPERATORS
from tilewright.graph.ops.packed import pack, pack_dense, pack_transposed
from tilewright.ir.dtype import f32
from tilewright.strategy.tiles import register_tile

# Elementwise operators that keep padding channels finite, so that they may run on them.
FINITE = frozenset(
    "add sub mul relu clip sigmoid tanh silu hard_swish hard_sigmoid leaky_relu elu selu gelu abs"
    " neg erf minimum maximum softplus softsign".split()
)
POOLS = frozenset({"max_pool", "avg_pool"})
# Groups whose channels do not fill blocks run as one dense convolution, mostly of zeros, up to
# this many: vectors at
# a fraction of their use still beat one number at a time.
MOST_DENSE_GROUPS = 8
LARGE = 256  # rows that a symbolic size stands for when a tile is chosen


def choose_layouts(graph: Graph, lanes: int, registers: int = 32) -> Graph:
    """Packed layouts for vectors of `lanes` f32 and a machine with `registers` vector registers."""
    return _Layouts(graph, lanes, registers).run()


class _Layouts(Edit):
    """The edit, with the packed form of each value that has one."""

    def __init__(self, graph: Graph, lanes: int, registers: int) -> None:
        super().__init__(graph)
        self.lanes, self.registers = lanes, registers
        self.packed: dict[Value, Value] = {}  # a value of the old graph → its packed form
        self.dense: dict[tuple[Value, int, bool], Value] = {}  # weights of products, packed
        self.handlers: dict[str, Callable[[Node], bool]] = {
            "conv": self.conv,
            "conv_transpose": self.conv_transpose,
            "matmul": self.matmul,
            "concat": self.concat,
            "reduce_mean": self.mean,
            **dict.fromkeys(POOLS, self.pool),
        }

    def run(self) -> Graph:
        for node in self.graph.nodes:
            handler = self.handlers.get(node.op)
            if handler is None and OPERATORS[node.op].fusion is BROADCAST:
                handler = self.elementwise
            if handler is not None and handler(node):
                continue
            for value in node.inputs:
                self.plain(value)
            self.append(self.current(node))
        for value in self.graph.outputs:
            self.plain(value)
        return self.finish_edit() if self.packed or self.replaced else self.graph

    # Forms of a value -----------------------------------------------------------------------

    def plain(self, value: Value) -> Value:
        """The plain form of a value of the old graph."""
        if value in self.packed and value not in self.replaced:
            channels = value.static_shape[1] if value.static_shape else 0
            made = self.emit("unpack_channels", self.packed[value], channels=channels)
            self.replaced[value] = made
        return self.replaced.get(value, value)

    def in_blocks(self, value: Value, block: int) -> Value:
        """The form of a value packed in blocks of `block` channels."""
        found = self.packed.get(value)
        if found is not None and found.static_shape and found.static_shape[-1] == block:
            return found
        if block == 1:  # the same memory under another shape
            return self.emit("reshape", self.plain(value), shape=(*value.shape, 1))
        made = self.emit("pack_channels", self.plain(value), block=block)
        if found is None:
            self.packed[value] = made
            self.replaced.setdefault(value, value)
        return made

    def is_only_packed(self, value: Value) -> bool:
        """Does the value exist in packed form and not (yet) in plain form?"""
        return value in self.packed and value not in self.replaced

    def block_of(self, value: Value) -> int | None:
        """The channel block of the packed form, if there is one."""
        found = self.packed.get(value)
        return None if found is None or found.static_shape is None else found.static_shape[-1]

    # Operators ------------------------------------------------------------------------------

    def conv(self, node: Node) -> bool:
        x, w = node.inputs[:2]
        weights = self.content(w)
        if weights is None or x.dtype is not f32 or x.rank != 4 or x.static_shape is None:
            return False
        bias = self.content(node.inputs[2]) if len(node.inputs) > 2 else None
        if len(node.inputs) > 2 and bias is None:
            return False
        co, per_group, _, _ = weights.shape
        ci, groups = x.static_shape[1], node["groups"]
        window = {
            "strides": tuple(node["strides"]) or (1, 1),
            "pads": tuple(node["pads"]) or ((0, 0), (0, 0)),
            "dilations": tuple(node["dilations"]) or (1, 1),
        }
        ob = self.lanes
        if groups == ci == co:
            filters = pack(weights.reshape(1, co, *weights.shape[2:]), ob)[0]
            made = self.emit(
                "depthwise_packed", self.in_blocks(x, ob), self.constant(filters, "w"), **window
            )
        else:
            cb = ob if ci >= ob else 1  # one number is broadcast at a time: any layout will do
            if groups > 1 and (per_group % cb or (co // groups) % ob):
                if groups > MOST_DENSE_GROUPS:
                    return False
                weights, groups = dense_filter(weights, groups), 1
            filters = pack_filter(weights, cb, ob)
            made = self.emit(
                "conv_packed",
                self.in_blocks(x, cb),
                self.constant(filters, "w"),
                groups=groups,
                **window,
            )
        if bias is not None:
            made = self.emit("add", made, self.per_channel(bias, ob))
        self.packed[node.output] = made
        return True

    def per_channel(self, values: np.ndarray, block: int) -> Value:
        """One number a channel, shaped to broadcast against a packed image."""
        return self.constant(pack(values.reshape(1, -1, 1, 1), block), "b")

    def conv_transpose(self, node: Node) -> bool:
        x, w = node.inputs[:2]
        weights = self.content(w)
        shape = node.output.static_shape
        if weights is None or x.dtype is not f32 or x.rank != 4 or shape is None:
            return False
        bias = self.content(node.inputs[2]) if len(node.inputs) > 2 else None
        strides = tuple(node["strides"]) or (1, 1)
        dilations = tuple(node["dilations"]) or (1, 1)
        plain_window = node["groups"] == 1 and dilations == (1, 1)
        whole = shape[2] % strides[0] == 0 and shape[3] % strides[1] == 0
        if not (plain_window and whole) or (len(node.inputs) > 2 and bias is None):
            return False
        pads = tuple(node["pads"]) or ((0, 0), (0, 0))
        ci, co = weights.shape[:2]
        cb, ob = (self.lanes if ci >= self.lanes else 1), self.lanes
        made = self.emit(
            "conv_transpose_packed",
            self.in_blocks(x, cb),
            self.constant(pack_transposed(weights, strides, cb, ob), "w"),
            strides=strides,
            offsets=(pads[0][0], pads[1][0]),
            rows=shape[2] // strides[0],
            columns=shape[3] // strides[1],
        )
        blocks = -(-co // ob)
        made = self.emit("reshape", made, shape=(shape[0], blocks, shape[2], shape[3], ob))
        if bias is not None:
            made = self.emit("add", made, self.per_channel(bias, ob))
        self.packed[node.output] = made
        return True

    def matmul(self, node: Node) -> bool:
        x, w = node.inputs
        weights = self.content(w)
        if weights is None or weights.ndim != 2 or x.dtype is not f32 or node["transpose_a"]:
            return False
        columns = weights.shape[0 if node["transpose_b"] else 1]
        rows = sizes.static(x.shape[:-1])
        count = int(np.prod(rows)) if rows is not None else LARGE
        vectors = -(-columns // self.lanes)
        _, group = register_tile(count, vectors, self.registers)
        made = self.emit(
            "dense_packed",
            self.plain(x),
            self.dense_weights(w, weights, group * self.lanes, bool(node["transpose_b"])),
            channels=columns,
        )
        self.replaced[node.output] = made
        return True

    def dense_weights(self, w: Value, weights: np.ndarray, block: int, transposed: bool) -> Value:
        """Packed weights of a product; products that share weights share them packed."""
        key = (w, block, transposed)
        if key not in self.dense:
            matrix = weights.T if transposed else weights
            self.dense[key] = self.constant(pack_dense(matrix, block), "w")
        return self.dense[key]

    def pool(self, node: Node) -> bool:
        (x,) = node.inputs
        if x not in self.packed or x.rank != 4:
            return False
        attrs = dict(node.attrs)
        one = {"kernel": 1, "strides": 1, "dilations": 1, "pads": (0, 0)}
        for name, value in one.items():
            if attrs.get(name):
                attrs[name] = (*attrs[name], value)
        self.packed[node.output] = self.emit(node.op, self.packed[x], **attrs)
        return True

    def mean(self, node: Node) -> bool:
        (x,) = node.inputs
        axes = node["axes"]
        space = axes is not None and sorted(a % x.rank for a in axes) == [2, 3]
        if x not in self.packed or x.rank != 4 or not space or not node["keepdims"]:
            return False
        self.packed[node.output] = self.emit(
            "reduce_mean", self.packed[x], axes=(2, 3), keepdims=True
        )
        return True

    def concat(self, node: Node) -> bool:
        blocks = {self.block_of(v) for v in node.inputs}
        if len(blocks) != 1 or None in blocks or node["axis"] % node.output.rank != 1:
            return False
        (block,) = blocks
        assert block is not None
        if any(v.static_shape is None or v.static_shape[1] % block for v in node.inputs):
            return False
        made = self.emit("concat", *[self.packed[v] for v in node.inputs], axis=1)
        self.packed[node.output] = made
        return True

    def elementwise(self, node: Node) -> bool:
        """Run on packed forms if an input exists only so and the others can follow."""
        out = node.output
        if len(node.outputs) != 1 or out.static_shape is None or out.rank != 4:
            return False
        leading = [v for v in node.inputs if self.is_only_packed(v) and v.shape == out.shape]
        if not leading:
            return False
        block = self.block_of(leading[0])
        assert block is not None
        if out.static_shape[1] % block and node.op not in FINITE:
            return False
        forms: list[Value] = []
        for value in node.inputs:
            form = self.follow(value, out, block)
            if form is None:
                return False
            forms.append(form)
        self.packed[out] = self.emit(node.op, *forms, **dict(node.attrs))
        return True

    def follow(self, value: Value, out: Value, block: int) -> Value | None:
        """The form in which an operand joins an elementwise operator on packed values."""
        if value.shape == out.shape:
            return self.in_blocks(value, block)
        array = self.content(value)
        if (
            value in self.packed
            and value.static_shape
            and value.static_shape[1] == out.static_shape[1]
        ):  # type: ignore[index]
            return self.in_blocks(value, block)  # (N, C, 1, 1): a gate for each channel
        if array is None:
            return None
        full = array.reshape((1,) * (4 - array.ndim) + array.shape) if array.ndim <= 4 else None
        if full is None:
            return None
        if full.shape[1] == 1:
            return self.constant(full.reshape(*full.shape, 1), "c")
        return self.constant(pack(full, block), "c")


def pack_filter(weights: np.ndarray, cb: int, ob: int) -> np.ndarray:
    """(Co, Ci, KH, KW) → (Co/ob, Ci/cb, KH, KW, cb, ob); missing channels are zeros."""
    co, ci, kh, kw = weights.shape
    full = np.zeros((-(-co // ob) * ob, -(-ci // cb) * cb, kh, kw), weights.dtype)
    full[:co, :ci] = weights
    split = full.reshape(full.shape[0] // ob, ob, full.shape[1] // cb, cb, kh, kw)
    return np.ascontiguousarray(split.transpose(0, 2, 4, 5, 3, 1))


def dense_filter(weights: np.ndarray, groups: int) -> np.ndarray:
    """The filter of a grouped convolution as one over all channels: zeros between the groups."""
    co, each = weights.shape[:2]
    full = np.zeros((co, each * groups, *weights.shape[2:]), weights.dtype)
    step = co // groups
    for g in range(groups):
        full[g * step : (g + 1) * step, g * each : (g + 1) * each] = weights[
            g * step : (g + 1) * step
        ]
    return full
