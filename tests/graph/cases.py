"""Small applications of every operator: arrays and attributes, seeded."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tilewright.graph import OPERATORS
from tilewright.ir.dtype import dtype


class Case(NamedTuple):
    op: str
    arrays: tuple[np.ndarray, ...]
    attrs: dict[str, Any]

    def __str__(self) -> str:
        shapes = "x".join("·".join(map(str, a.shape)) or "()" for a in self.arrays)
        return f"{self.op}-{shapes}-{'-'.join(f'{k}={v}' for k, v in self.attrs.items())}"[:90]


_random = np.random.default_rng(20180101)


def f(*shape: int, low: float = -2.0, high: float = 2.0) -> np.ndarray:
    """Floats."""
    return _random.uniform(low, high, shape).astype(np.float32)


def i(*shape: int, low: int = -5, high: int = 6, of: Any = np.int64) -> np.ndarray:
    """Integers."""
    return _random.integers(low, high, shape).astype(of)


def boxes(rows: int, count: int) -> np.ndarray:
    """Least and greatest coordinates along both axes [4, rows, count], of which many overlap."""
    low = f(2, rows, count)
    return np.concatenate([low, low + np.abs(f(2, rows, count))])


def b(*shape: int) -> np.ndarray:
    """Booleans."""
    return _random.integers(0, 2, shape).astype(bool)


def letters(*strings: str) -> np.ndarray:
    """Rows of code points, with zeros at the ends."""
    return np.array(strings).view(np.uint32).reshape(len(strings), -1)


def split(*strings: str, mark: str) -> list[np.ndarray]:
    """Rows of code points, and where `mark` begins in them."""
    rows = letters(*strings)
    width = rows.shape[1]
    marks = [[s.startswith(mark, k) for k in range(width)] for s in strings]
    return [rows, np.array(marks)]


_POSITIVE = ("log", "log2", "sqrt", "rsqrt", "reciprocal")
_UNARY = (
    "exp exp2 expm1 log1p sin cos tan sinh cosh tanh ceil floor trunc round asin atan asinh neg abs"
    " sign erf"
    " sigmoid relu silu softplus softsign mish hard_swish isnan leaky_relu elu selu celu"
    " hard_sigmoid shrink rounded"
    " thresholded_relu gelu isinf copy"
).split()
_FLOAT_PAIRS = (
    "add sub mul div fmod minimum maximum equal not_equal less less_equal greater greater_equal"
).split()
_SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0], np.float32)


TREES = (  # two inner nodes and three leaves; one leaf by itself
    np.array([[16, 1], [11, 3], [0, 1], [0, 2], [0, 3], [0, 4]], np.int32),
    np.array([0.5, -0.25, *[np.nan] * 4], np.float32),
    np.array([0, 5, 1, 5, 5, 5, 5, 0], np.int32),
    np.array([2], np.int32),
)


POWERS = {  # multiplies until it was done three times
    "body": """\
def body(i: i64[()], go: bool[()], x: f32[2], by: f32[2]):
    three: i64[()] = full(shape=(), value=2, of='i64')
    more: bool[()] = less(i, three)
    on: bool[()] = logical_and(more, go)
    y: f32[2] = mul(x, by)
    total: f32[()] = reduce_sum(y)
    return {'on': on, 'y': y, 'total': total}
""",
    "states": 1,
}


def cases() -> list[Case]:
    """All of them."""
    return [
        Case(op, tuple(arrays), attrs)
        for op, arrays, attrs in _elementwise() + _others() + _typed()
    ]


def _elementwise() -> list[tuple[str, list[np.ndarray], dict[str, Any]]]:
    made: list[tuple[str, list[np.ndarray], dict[str, Any]]] = []
    for op in _UNARY:
        span = {"asin": 0.9, "log1p": 0.9}.get(op, 2.0)
        made.append((op, [f(2, 5, low=-span, high=span)], {}))
    made += [(op, [f(7, low=0.1)], {}) for op in _POSITIVE]
    made += [("acos", [f(6, low=-0.9, high=0.9)], {}), ("atanh", [f(6, low=-0.9, high=0.9)], {})]
    made += [("acosh", [f(6, low=1.1)], {}), ("pow", [f(2, 4, low=0.2), f(4)], {})]
    for op in _FLOAT_PAIRS:
        made += [(op, [f(2, 3, 4), f(3, 1)], {}), (op, [f(4), f(2, 4)], {})]
    made += [(op, [i(3, 4), i(3, 4)], {}) for op in ("add", "sub", "mul", "less", "equal")]
    made += [(op, [i(9), i(9, low=1)], {}) for op in ("div", "floormod", "fmod")]
    made += [
        (op, [i(9, of=np.int32), i(9, low=-4, high=0, of=np.int32)], {}) for op in ("div", "fmod")
    ]
    made += [("atan2", [f(6), f(6)], {}), ("prelu", [f(2, 3, 2), f(3, 1)], {})]
    made += [(op, [b(2, 3), b(3)], {}) for op in ("logical_and", "logical_or", "logical_xor")]
    made += [("logical_not", [b(5)], {}), ("bit_not", [i(5)], {})]
    made += [(op, [i(6, low=0), i(6, low=0)], {}) for op in ("bit_and", "bit_or", "bit_xor")]
    made += [(op, [i(6, low=0), i(6, low=0, high=5)], {}) for op in ("shift_left", "shift_right")]
    made += [("gelu", [f(6)], {"tanh": True}), ("leaky_relu", [f(6)], {"alpha": 0.3})]
    made += [("elu", [f(6)], {"alpha": 0.5}), ("celu", [f(6)], {"alpha": 0.5})]
    made += [("hard_sigmoid", [f(6)], {"alpha": 0.5, "beta": 0.25}), ("isnan", [_SPECIAL], {})]
    made += [
        ("isinf", [_SPECIAL], {"positive": p, "negative": n})
        for p in (False, True)
        for n in (False, True)
    ]
    made += [("clip", [f(8)], {"low": -0.5, "high": 0.75}), ("clip", [i(8)], {"high": 2})]
    made += [
        ("cast", [f(8, low=-300, high=300)], {"to": to})
        for to in ("i64", "u8", "f16", "bf16", "f64")
    ]
    made += [
        ("cast", [_SPECIAL], {"to": "i32"}),
        ("cast", [i(8)], {"to": "bool"}),
        ("cast", [b(4)], {"to": "f32"}),
    ]
    made += [("where", [b(3, 1), f(3, 4), f(4)], {})]
    made += [("batch_norm", [f(2, 3, 4), f(3), f(3), f(3), f(3, low=0.1)], {"eps": 1e-3})]
    return made


def _others() -> list[tuple[str, list[np.ndarray], dict[str, Any]]]:
    return [
        *_reductions(),
        *_linear(),
        *_factorisations(),
        *_series(),
        *_pooling(),
        *_data_dependent(),
        *_movement(),
        *_indexing(),
        *_recurrent(),
        *_packed(),
    ]


def _packed() -> list[tuple[str, list[np.ndarray], dict[str, Any]]]:
    """The operators that the layout pass puts in place of plain ones."""
    plain = {"strides": (1, 1), "pads": ((0, 0), (0, 0)), "dilations": (1, 1)}
    apart = {"strides": (2, 1), "pads": ((1, 1), (0, 2)), "dilations": (1, 2)}
    made: list[tuple[str, list[np.ndarray], dict[str, Any]]] = []
    made += [("pack_channels", [f(2, c, 3)], {"block": 4}) for c in (8, 5)]
    made += [("unpack_channels", [f(2, 2, 3, 4)], {"channels": c}) for c in (8, 5)]
    made += [("pack_channels", [f(1, 12, 2)], {"block": 4, "groups": g}) for g in (2, 3)]
    made += [("unpack_channels", [f(1, 4, 2, 4)], {"channels": 12, "groups": 2})]
    made += [("conv_packed", [f(2, 2, 3, 4, 4), f(3, 2, 1, 1, 4, 4)], plain)]
    made += [("conv_packed", [f(1, 2, 5, 6, 4), f(3, 2, 3, 2, 4, 4)], apart)]
    made += [("conv_packed", [f(1, 4, 3, 2, 4), f(2, 2, 1, 1, 4, 4)], plain | {"group": (2, 8, 4)})]
    made += [("conv_packed", [f(1, 4, 5, 6, 4), f(2, 2, 2, 3, 4, 4)], apart | {"group": (2, 8, 4)})]
    made += [("conv_packed", [f(1, 2, 5, 6, 4), f(3, 2, 3, 2, 4, 4)], apart | {"across": True})]
    around = {"pads": ((1, 1), (0, 2))}
    made += [("winograd_packed", [f(2, 2, 5, 6, 4), f(3, a, a, 2, 4, 4)], around) for a in (4, 6)]
    dilated = {"pads": ((1, 2), (3, 2)), "dilations": (2, 3)}
    made += [("winograd_packed", [f(1, 2, 9, 6, 4), f(3, a, a, 2, 4, 4)], dilated) for a in (4, 6)]
    planes = {"pads": ((1, 0), (1, 1), (0, 2)), "dilations": (2, 1, 1)}
    made += [
        ("winograd_packed", [f(2, 2, 5, 5, 6, 4), f(3, a, a, 2, 2, 4, 4)], planes) for a in (4, 6)
    ]
    made += [("depthwise_packed", [f(1, 2, 5, 6, 4), f(2, 3, 2, 4)], apart)]
    taps = {"strides": (2, 2), "offsets": (1, 0), "positions": (3, 3)}
    made += [("conv_transpose_packed", [f(1, 2, 3, 3, 4), f(1, 2, 2, 2, 2, 2, 4, 4)], taps)]
    made += [("depthwise_transpose_packed", [f(2, 2, 3, 3, 4), f(2, 2, 2, 2, 2, 4)], taps)]
    deep = {"strides": (1, 2, 1), "pads": ((1, 0), (1, 1), (0, 2)), "dilations": (1, 1, 2)}
    flat = {"strides": (2, 1, 1), "pads": ((0, 0),) * 3, "dilations": (1, 1, 1)}
    made += [("conv_packed", [f(1, 2, 3, 5, 6, 4), f(3, 2, 2, 3, 2, 4, 4)], deep)]
    made += [("conv_packed", [f(1, 2, 3, 2, 2, 4), f(1, 2, 1, 1, 1, 4, 4)], flat)]
    across = deep | {"across": True}
    made += [("conv_packed", [f(1, 1, 3, 3, 3, 4), f(1, 1, 2, 2, 1, 4, 4)], across)]
    made += [("depthwise_packed", [f(1, 2, 3, 5, 6, 4), f(2, 2, 3, 2, 4)], deep)]
    taps = {"strides": (2, 1, 2), "offsets": (1, 0, 0), "positions": (3, 2, 3)}
    image = f(1, 2, 3, 2, 3, 4)
    made += [("conv_transpose_packed", [image, f(1, 2, 1, 2, 2, 2, 1, 2, 4, 4)], taps)]
    made += [("depthwise_transpose_packed", [image, f(2, 2, 1, 2, 2, 1, 2, 4)], taps)]
    made += [("dense_packed", [f(2, 3, 5), f(2, 5, 4)], {"channels": c}) for c in (8, 6)]
    made += [("dense_packed", [f(2, 3, 3, 5), f(2, 3, 2, 5, 4)], {"channels": 7})]
    made += [("conv_packed", [f(1, 3, 5, 6, 4), f(3, 3, 2, 3, 2, 4)], apart | {"group": (2, 6, 6)})]
    made += [("conv_packed", [f(1, 2, 4, 3, 8), f(3, 1, 1, 1, 4, 8)], plain | {"group": (2, 4, 9)})]
    made += [("conv_packed", [f(1, 2, 4, 3, 8), f(2, 3, 2, 1, 4, 8)], plain)]
    return made


def _reductions() -> list[tuple[str, list[np.ndarray], dict[str, Any]]]:
    made: list[tuple[str, list[np.ndarray], dict[str, Any]]] = []
    for op in ("reduce_sum", "reduce_mean", "reduce_max", "reduce_min", "reduce_prod"):
        made += [
            (op, [f(2, 3, 4)], {"axes": (1,)}),
            (op, [f(2, 3, 4)], {"axes": (-1, 0), "keepdims": True}),
        ]
        made += [(op, [f(2, 3)], {})]
    made += [("reduce_sum", [i(2, 3)], {"axes": (1,)}), ("reduce_max", [i(2, 3)], {"axes": (0,)})]
    made += [("reduce_any", [b(3, 4)], {"axes": (1,)}), ("reduce_all", [b(3, 4)], {"axes": (0,)})]
    rows = np.tile(f(5, 1), 6)
    rows[0], rows[1, 3], rows[2, 2:5], rows[3] = np.nan, np.nan, np.nan, -np.inf
    for op in ("cummax", "cummin"):
        made += [(op, [rows], {"axis": d}) for d in (0, 1)]
        made += [(op, [i(3, 4, 2)], {"axis": 1})]
    for op in ("argmax", "argmin"):
        made += [(op, [rows], {"axis": d, "last": last}) for d in (0, 1) for last in (False, True)]
        made += [
            (op, [i(3, 5)], {"axis": 1}),
            (op, [i(3, 5)], {"axis": 0, "last": True, "keepdims": True}),
        ]
    for op in ("softmax", "log_softmax"):
        made += [(op, [f(3, 5)], {}), (op, [f(2, 3, 4)], {"axis": 1})]
    made += [
        ("layer_norm", [f(2, 3, 8)], {}),
        ("layer_norm", [f(2, 3, 4), f(3, 4), f(3, 4)], {"axis": 1}),
    ]
    made += [
        ("layer_norm", [f(2, 8), f(8)], {"eps": 1e-3}),
        ("rms_norm", [f(2, 8), f(8)], {}),
        ("rms_norm", [f(3, 4)], {}),
    ]
    made += [("group_norm", [f(2, 4, 3), f(4), f(4)], {"groups": 2})]
    made += [("group_norm", [f(2, 4, 3, 2), f(4), f(4)], {"groups": 4, "eps": 1e-3})]
    for exclusive in (False, True):
        for reverse in (False, True):
            attrs = {"axis": 1, "exclusive": exclusive, "reverse": reverse}
            made += [("cumsum", [f(3, 4)], attrs), ("cumprod", [f(3, 4)], attrs)]
    return made


def contests(count: int, size: int) -> np.ndarray:
    """Probabilities of winning against each other: those of both sides make 1."""
    won = np.tril(f(count, size, size, low=0.1, high=0.9), -1)
    return (won + np.triu(1 - won.swapaxes(1, 2), 1)).astype(np.float32)


def _data_dependent() -> list[tuple[str, list[np.ndarray], dict[str, Any]]]:
    return [
        ("bitcast", [f(2, 3)], {"to": "i32"}),
        ("bitcast", [i(4)], {"to": "f64"}),
        ("bitcast", [b(3)], {"to": "u8"}),
        ("measure", [i(2, low=0)], {"symbols": ("a", "b"), "what": "the shape"}),
        ("check_bounds", [f(3), i(4, 2)], {"least": (-5, -6), "most": (5, 9), "what": "a"}),
        (
            "check_bounds",
            [f(3), i(9, of=np.int32), np.array(False)],
            {"least": (0,), "most": (1,), "what": "not now"},
        ),
        ("view_as", [f(3, 4)], {"shape": (2, 6)}),
        ("axes_last", [f(2, 3, 4), np.array([True, False, True])], {"rows": 3, "columns": 8}),
        ("axes_last", [f(2, 3), np.array([False, False])], {"rows": 6, "columns": 1}),
        ("nonzero", [np.array([True, False, True, True, False])], {}),
        ("nonzero", [np.zeros(3, bool)], {}),
        ("chosen", [np.array(True), f(4, 3), f(2, 3)], {"length": 4}),
        ("chosen", [np.array(False), f(4), f(2)], {"length": 2}),
        ("keep_apart", [boxes(2, 9), np.array([0.2], np.float32), b(2, 9), np.array([3])], {}),
        (
            "keep_apart",
            [boxes(1, 4), np.zeros(1, np.float32), np.ones((1, 4), bool), np.array([1])],
            {},
        ),
        ("row_order", [i(37, 3, low=0, high=2)], {}),
        ("row_order", [np.where(b(9, 2), f(9, 2), np.float32("nan"))], {}),
        ("row_order", [f(3, 0)], {}),
        ("couple", [contests(3, 4)], {}),
        ("couple", [contests(2, 2)], {}),
    ]


def symmetric(count: int, size: int) -> np.ndarray:
    """Symmetric matrices, not definite."""
    x = f(count, size, size)
    return x + x.swapaxes(1, 2)


def positive(count: int, size: int) -> np.ndarray:
    """Positive definite matrices."""
    x = f(count, size, size)
    return x @ x.swapaxes(1, 2) + np.eye(size, dtype=np.float32)


def _factorisations() -> list[tuple[str, list[np.ndarray], dict[str, Any]]]:
    made: list[tuple[str, list[np.ndarray], dict[str, Any]]] = []
    for shape in ((2, 4, 4), (1, 3, 5), (2, 5, 3), (1, 0, 2)):
        made += [("lu", [f(*shape)], {}), ("reflectors", [f(*shape)], {})]
        made += [("lu_complex", [f(*shape), f(*shape)], {})]
    rows = np.array([[3, 4, 3], [1, 2, 3]], np.int32)
    for flag in (False, True):
        made += [("swap_rows", [f(2, 4, 3), rows], {"reverse": flag})]
        made += [("reflect", [f(2, 4, 3, high=0.5), f(2, 3), f(2, 4, 2)], {"transpose": flag})]
        for unit in (False, True):
            a = f(2, 4, 4) + 5 * np.eye(4, dtype=np.float32)
            made += [("solve_triangular", [a, f(2, 4, 3)], {"upper": flag, "unit": unit})]
    for size in (1, 4):
        a, b = symmetric(2, size), symmetric(2, size)
        a[0, 0, 0] = b[1, -1, -1] = 1e-3  # pivots of two, and exchanges
        made += [("cholesky", [positive(2, size)], {}), ("ldl", [a], {}), ("ldl", [b], {})]
        made += [("eigh", [symmetric(2, size)], {}), ("matrix_exp", [f(2, size, size)], {})]
    made += [("cholesky", [symmetric(1, 3) - 9 * np.eye(3, dtype=np.float32)], {})]
    made += [("orthogonal_rows", [f(2, 3, 4)], {}), ("orthogonal_rows", [f(1, 3, 3)], {})]
    for a in (symmetric(2, 4), symmetric(1, 5)):
        y, pivots, _ = evaluated("ldl", a)
        made += [("ldl_solve", [y, pivots, f(len(a), a.shape[1], 3)], {})]
    return made


def _series() -> list[tuple[str, list[np.ndarray], dict[str, Any]]]:
    made: list[tuple[str, list[np.ndarray], dict[str, Any]]] = []
    for kind in ("hermite", "hermite_e", "laguerre", "legendre"):
        made += [("polynomial", [f(6), np.array([-1, 0, 1, 2, 3, 5])], {"kind": kind})]
    a, x, front = f(5, low=0.3), f(5, low=0.1), f(5, low=0.1)
    a[:2], x[1:4] = (7, 0.5), (6, 9, 0.2)
    for upper in (False, True):
        given = [v.astype(np.float64) for v in (a, x, front)]
        made += [("incomplete_gamma", given, {"upper": upper})]
    return made


def evaluated(op: str, *arrays: np.ndarray) -> Any:
    """What an operator's reference makes of arrays."""
    return OPERATORS[op].reference(*arrays)


def _small(*shape: int, of: str = "i8") -> np.ndarray:
    """All that an integer of few bits may be, or small floats."""
    kind = dtype(of)
    if kind.is_float:
        return f(*shape).astype(kind.numpy)
    return i(*shape, low=int(kind.lowest), high=int(kind.highest) + 1, of=kind.numpy)


def _many(count: int) -> np.ndarray:
    """Integers of 32 bits."""
    return i(count, low=-(10**6), high=10**6, of=np.int32)


_turned = {"transpose_a": True, "transpose_b": True}


def _typed() -> list[tuple[str, list[np.ndarray], dict[str, Any]]]:
    """Products and convolutions whose sums or results are of another dtype than operands."""
    return [
        ("reduce_mean", [_small(3, 40, of="u8")], {"axes": (1,)}),
        ("reduce_mean", [i(3, 40, low=90, high=128, of=np.int8)], {"axes": (0,)}),
        ("reduce_mean", [_many(50) * 2000], {}),
        ("reduce_mean", [i(6, 5, low=-9, high=1, of=np.int32)], {"axes": (1,), "keepdims": True}),
        ("matmul", [_small(3, 7), _small(7, 5, of="u8")], {"out_dtype": "i32"}),
        ("matmul", [_small(3, 7), _small(7, 5)], {}),
        ("matmul", [_small(4, 3), _small(5, 4)], _turned | {"acc_dtype": "i32", "out_dtype": "i8"}),
        ("matmul", [_small(3, 7, of="bf16"), _small(7, 5, of="bf16")], {"out_dtype": "f32"}),
        ("matmul", [_small(3, 7, of="f16"), _small(7, 1, of="f16")], {"acc_dtype": "f32"}),
        ("conv", [_small(1, 3, 6, 5, of="u8"), _small(4, 3, 3, 2), _many(4)], {"out_dtype": "i32"}),
        (
            "conv",
            [_small(1, 2, 5, 4, of="bf16"), _small(2, 1, 2, 2, of="bf16")],
            {"groups": 2, "out_dtype": "f32", "pads": ((1, 0), (0, 1))},
        ),
        (
            "conv_transpose",
            [_small(1, 3, 3, 3), _small(3, 2, 2, 2, of="u8"), _many(2)],
            {"strides": (2, 1), "out_dtype": "i32"},
        ),
        (
            "conv_transpose",
            [_small(1, 2, 4, of="f16"), _small(2, 2, 3, of="f16")],
            {"strides": (2,), "out_dtype": "f32"},
        ),
    ]


def _linear() -> list[tuple[str, list[np.ndarray], dict[str, Any]]]:
    return [
        ("matmul", [f(3, 4), f(4, 5)], {}),
        ("matmul", [f(4, 3), f(5, 4)], {"transpose_a": True, "transpose_b": True}),
        ("matmul", [f(2, 1, 3, 4), f(3, 4, 2)], {}),
        ("matmul", [f(2, 3, 4), f(4, 2)], {}),
        (
            "conv",
            [f(1, 3, 6, 5), f(4, 3, 3, 2), f(4)],
            {"pads": ((1, 0), (0, 1)), "strides": (2, 1)},
        ),
        ("conv", [f(2, 4, 7), f(6, 2, 3)], {"groups": 2, "dilations": (2,)}),
        ("conv", [f(1, 3, 5, 5), f(6, 1, 3, 3)], {"groups": 3, "pads": ((1, 1), (1, 1))}),
        ("conv", [f(1, 2, 3, 4, 3), f(2, 2, 2, 2, 2)], {}),
        (
            "conv_transpose",
            [f(1, 3, 4, 3), f(3, 2, 4, 4)],
            {"strides": (2, 2), "pads": ((1, 1), (1, 1))},
        ),
        (
            "conv_transpose",
            [f(2, 4, 5), f(4, 3, 3), f(6)],
            {"strides": (3,), "groups": 2, "extra": (1,)},
        ),
        (
            "conv_transpose",
            [f(1, 2, 4, 4), f(2, 3, 3, 3)],
            {"strides": (2, 1), "pads": ((0, 1), (2, 0))},
        ),
        (
            "conv_transpose",
            [f(1, 2, 5), f(2, 2, 3)],
            {"strides": (2,), "dilations": (2,), "pads": ((1, 2),)},
        ),
        ("conv_transpose", [f(1, 2, 5), f(2, 2, 2)], {"strides": (3,)}),
        ("conv_transpose", [f(1, 1, 3, 3), f(1, 1, 2, 2)], {"dilations": (2, 2)}),
    ]


def _pooling() -> list[tuple[str, list[np.ndarray], dict[str, Any]]]:
    made: list[tuple[str, list[np.ndarray], dict[str, Any]]] = []
    plain = [
        {"kernel": (2, 2), "strides": (2, 2)},
        {"kernel": (3, 3), "strides": (2, 2), "pads": ((1, 1), (0, 1))},
        {"kernel": (3, 2), "strides": (2, 2), "pads": ((1, 0), (0, 1)), "ceil_mode": True},
        {"kernel": (2, 2), "strides": (3, 3), "ceil_mode": True},
        {"kernel": (2, 3), "dilations": (2, 1), "pads": ((1, 1), (1, 1))},
    ]
    for attrs in plain:
        made += [("max_pool", [f(1, 2, 6, 5)], attrs), ("avg_pool", [f(1, 2, 6, 5)], attrs)]
        made += [("avg_pool", [f(1, 2, 6, 5)], {**attrs, "count_pads": True})]
        made += [("max_pool_index", [i(1, 2, 6, 5, low=0, high=4)], attrs)]
        inside = {**attrs, "inside": ((1, 4), (2, 5))}
        made += [("avg_pool", [np.arange(60, dtype="f4").reshape(1, 2, 6, 5)], inside)]
    made += [
        ("max_pool_index", [f(2, 2, 7)], {"kernel": (3,)}),
        ("max_pool_index", [np.full((1, 1, 4), -np.inf, np.float32)], {"kernel": (2,)}),
        ("max_pool_index", [np.array([[[1, np.nan, 2, np.nan, 0, 1]]], "f4")], {"kernel": (3,)}),
        ("col2im", [f(2, 10, 9)], {"image": (3, 6), "block": (1, 5), "pads": ((0, 0), (1, 0))}),
        ("col2im", [f(1, 8, 4)], {"image": (4, 7), "block": (2, 2), "strides": (2, 3)}),
        ("col2im", [f(1, 4, 9)], {"image": (5, 5), "block": (2, 2), "dilations": (2, 2)}),
        ("col2im", [f(1, 6, 4)], {"image": (6,), "block": (3,)}),
        ("split_text", split("a,b,,cd", ",", "", "abc", mark=","), {"length": 1}),
        ("split_text", split("a,b,,cd", ",,,,", "x,", mark=","), {"length": 1, "most": 2}),
        ("split_text", split("aaaaa", "aa", "baab", mark="aa"), {"length": 2}),
        ("split_text", split(" to be  or", "", "   ", "not ", mark=" "), {}),
        ("split_text", split(" to be  or ", "a", " b c ", mark=" "), {"most": 1}),
        ("tree_leaves", [_SPECIAL.reshape(3, 2), *TREES], {"rules": (0, 11)}),
        ("tree_leaves", [f(4, 2), *TREES], {"rules": (0, 11)}),
        ("automaton", [i(3, 5, low=0, high=2), i(4, 2, low=0, high=4)], {}),
        ("loop", [np.array(3), np.array(True), f(2), f(2)], {**POWERS, "length": 3}),
        ("loop", [np.array(5), np.array(True), f(2), f(2)], {**POWERS, "length": 6}),
        ("loop", [np.array(0), np.array(True), f(2), f(2)], {**POWERS, "length": 1}),
        ("loop", [np.array(4), np.array(False), f(2), f(2)], {**POWERS, "length": 4}),
        ("mersenne", [np.array([12345])], {"count": 3}),
        ("random_bits", [np.array(7)], {"shape": (3, 5)}),
        ("random_bits", [np.array(-3)], {"shape": (4,), "stream": 2}),
        ("max_pool", [f(2, 2, 7)], {"kernel": (3,)}),
        ("max_pool", [i(1, 1, 4, 4)], {"kernel": (2, 2)}),
    ]
    made += [
        ("lrn", [f(1, 6, 2, 2)], {"size": 3}),
        ("lrn", [f(1, 6, 2, 2)], {"size": 2, "beta": 1.5}),
        ("lrn", [f(1, 6, 2, 2)], {"size": 2, "beta": 0.3}),
        ("lrn_packed", [f(2, 3, 2, 5, 8)], {"size": 5, "alpha": 0.2}),
        ("lrn_packed", [f(1, 1, 3, 9, 4)], {"size": 4, "alpha": 0.5, "beta": 0.3}),
        ("lrn", [f(1, 5, 3)], {"size": 4, "alpha": 0.5, "bias": 2.0}),
    ]
    return made


def _movement() -> list[tuple[str, list[np.ndarray], dict[str, Any]]]:
    made: list[tuple[str, list[np.ndarray], dict[str, Any]]] = [
        ("reshape", [f(2, 3, 4)], {"shape": (4, 6)}),
        ("reshape", [f(2, 1, 3)], {"shape": (6, 1)}),
        ("reshape", [f(2, 3, 4)], {"shape": (2, 12)}),
        ("reshape", [f(1)], {"shape": ()}),
        ("transpose", [f(2, 3, 4)], {"perm": (2, 0, 1)}),
        ("stretch", [f(1, 3, 1)], {"shape": (2, 3, 4)}),
        ("stretch", [i(2, 1)], {"shape": (2, 5)}),
        ("expand", [f(3, 1)], {"shape": (2, 3, 4)}),
        ("concat", [f(2, 3), f(2, 1), f(2, 2)], {"axis": 1}),
        ("concat", [i(2, 3)], {"axis": 0}),
        ("slice", [f(5, 6)], {"starts": (1, 5), "shape": (3, 3), "steps": (1, -2)}),
        ("slice", [f(5, 6)], {"starts": (0, 2), "shape": (5, 2)}),
        ("tile", [f(2, 3)], {"repeats": (2, 2)}),
        ("gather", [f(5, 3), i(2, 2, low=-5, high=5)], {"axis": 0}),
        ("gather", [f(2, 5, 3), i(4, low=0, high=5, of=np.int32)], {"axis": 1}),
        ("gather", [f(2, 5), i(low=0, high=2)], {"axis": 0}),
        ("sample", [f(2, 5)], {"axis": 1, "length": 11, "times": 2, "first": 1, "base": -1}),
        ("sample", [f(3, 2)], {"axis": 0, "length": 4, "times": 4, "first": 3, "base": 1}),
        ("gather_elements", [f(3, 4), i(2, 4, low=-3, high=3)], {"axis": 0}),
        ("full", [], {"shape": (2, 3), "value": 1.5, "of": "f32"}),
        ("arange", [], {"length": 5, "start": 2, "step": 3, "of": "i64"}),
        ("arange", [], {"length": 4, "start": 0.5, "step": -0.25, "of": "f32"}),
        ("size_values", [], {"values": (3, 5, 7), "shape": (3,), "of": "i64"}),
        ("size_values", [], {"values": (*range(20), *range(40, 68)), "shape": (3, 16)}),
        ("trilu", [f(2, 4, 5)], {"k": 1}),
        ("trilu", [f(4, 4)], {"upper": False, "k": -1}),
    ]
    for mode in ("constant", "edge", "reflect", "wrap"):
        made.append(
            ("pad", [f(3, 4)], {"before": (1, 0), "after": (2, 3), "mode": mode, "value": 0.5})
        )
    return made


def _indexing() -> list[tuple[str, list[np.ndarray], dict[str, Any]]]:
    repeated = np.array([[1], [0], [1]])
    return [
        ("gather_nd", [f(3, 4, 2), i(5, 2, low=-3, high=3)], {}),
        ("gather_nd", [f(2, 4, 2), i(2, 3, 1, low=0, high=4)], {"batch_dims": 1}),
        ("scatter_elements", [f(3, 4), i(2, 4, low=-3, high=3), f(2, 4)], {"axis": 0}),
        (
            "scatter_elements",
            [f(3, 4), i(3, 2, low=0, high=4), f(3, 2)],
            {"axis": 1, "reduction": "add"},
        ),
        ("scatter_nd", [f(3, 4), repeated, f(3, 4)], {}),
        ("scatter_nd", [f(3, 4), repeated, f(3, 4)], {"reduction": "max"}),
        ("one_hot", [i(2, 3, low=-4, high=4), f(2)], {"depth": 4}),
        ("one_hot", [i(3, low=0, high=3), i(2)], {"depth": 3, "axis": 0}),
        ("top_k", [i(3, 6)], {"k": 3}),
        ("top_k", [f(4, 3)], {"k": 4, "axis": 0, "largest": False}),
        ("top_k", [f(5)], {"k": 2}),
        ("top_k", [f(3, 150)], {"k": 150}),
        ("top_k", [i(2, 97, 3)], {"k": 90, "axis": 1, "largest": False}),
    ]


def _recurrent() -> list[tuple[str, list[np.ndarray], dict[str, Any]]]:
    lengths = np.array([2, 4])
    made: list[tuple[str, list[np.ndarray], dict[str, Any]]] = []
    for reverse in (False, True):
        attrs = {"reverse": reverse}
        made += [
            ("lstm", [f(4, 2, 12), f(12, 3), f(2, 3), f(2, 3)], attrs),
            (
                "lstm",
                [f(4, 2, 12), f(12, 3), f(2, 3), f(2, 3), f(9), lengths],
                {**attrs, "clip": 0.8},
            ),
            (
                "lstm",
                [f(4, 2, 12), f(12, 3), f(2, 3), f(2, 3), f(9), lengths],
                {**attrs, "rounds": True},
            ),
            ("gru", [f(4, 2, 9), f(9, 3), f(3), f(2, 3)], {**attrs, "reset_after": reverse}),
            (
                "gru",
                [f(4, 2, 9), f(9, 3), f(3), f(2, 3), lengths],
                {**attrs, "reset_after": not reverse},
            ),
            ("rnn", [f(4, 2, 3), f(3, 3), f(2, 3)], {**attrs, "activation": "relu"}),
            ("rnn", [f(4, 2, 3), f(3, 3), f(2, 3), lengths], attrs),
        ]
    made += [  # weights in panels
        ("lstm", [f(4, 2, 20), f(4, 5, 5), f(2, 5), f(2, 5), f(15), lengths], {}),
        ("lstm", [f(4, 2, 24), f(8, 6, 3), f(2, 6), f(2, 6)], {"reverse": True}),
        ("gru", [f(4, 2, 15), f(3, 5, 5), f(5), f(2, 5), lengths], {}),
        ("gru", [f(4, 2, 18), f(9, 6, 2), f(6), f(2, 6)], {"reset_after": False}),
        ("rnn", [f(4, 2, 6), f(3, 6, 2), f(2, 6)], {}),
        ("lstm_cell", [f(2, 12), f(2, 3)], {}),
        ("lstm_cell", [f(2, 12), f(2, 3)], {"order": (0, 3, 1, 2)}),
    ]
    return made


def names() -> set[str]:
    """Operators that have a case."""
    return {c.op for c in cases()}
