"""What folding may make: how much memory, and how much work.

In: the constants of a model. Out: yes or no to each result. A file of a few kilobytes may ask for
gigabytes (concatenate a constant with itself eighteen times), so results count together, against
what the model brought itself; what does not fit stays in the graph and is computed in the run.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import Any

import numpy as np

from tilewright.graph.graph import Constant, Deferred, Scaled, Value
from tilewright.graph.operator import STRIDED, WINDOW, having

FREE = 1 << 12  # bytes that a result may take uncounted: its node takes about as much
FLOOR = 64 << 20  # bytes that folding may make of any model
TIMES = 4  # and how often the bytes of the model's own constants beside them
MOST_PRODUCTS = 1 << 34  # multiplications of floats that one result may take, by a matrix library
MOST_WHOLE = 1 << 30  # of whole numbers, one by one


class Budget:
    """Bytes of a model's own constants, and of those that folding has made of them."""

    def __init__(self) -> None:
        self.own = self.made = 0
        self.counted: dict[int, Constant] = {}  # by identity, held: a loop's body may have it too

    @classmethod
    def of(cls, constants: Iterable[Constant]) -> Budget:
        """The budget of a graph with these constants."""
        made = cls()
        for constant in constants:
            made.bring(constant)
        return made

    @property
    def left(self) -> int:
        """Bytes that may still be made."""
        return FLOOR + TIMES * self.own - self.made

    def bring(self, constant: Constant) -> None:
        """Count a constant that is there already; again it counts nothing."""
        if id(constant) in self.counted:
            return
        self.counted[id(constant)] = constant
        nbytes = taken(constant)
        if constant.folded:
            self.made += nbytes
        else:
            self.own += nbytes

    def allows(
        self,
        op: str,
        arrays: Sequence[np.ndarray],
        attrs: dict[str, Any],
        output: Value,
    ) -> bool:
        """May `op` be computed of these arrays?"""
        assert output.static_shape is not None
        nbytes = math.prod(output.static_shape) * output.dtype.numpy.itemsize
        if nbytes > FREE and nbytes > self.left:
            return False
        if nbytes + between(op, arrays, attrs, output.static_shape) > FLOOR + TIMES * self.own:
            return False
        kinds = {a.dtype.kind for a in arrays}
        most = MOST_WHOLE if kinds & set("iu") else MOST_PRODUCTS
        return products(op, arrays, attrs, output.static_shape) <= most

    def take(self, array: np.ndarray, sources: Iterable[Constant]) -> Constant:
        """What folding made of `sources`, counted unless it is their memory under another
        shape."""
        for source in sources:
            is_view = not isinstance(source, Deferred) and np.may_share_memory(array, source.array)
            if is_view and array.nbytes <= source.array.nbytes:
                return Constant(array, folded=source.folded)
        if array.nbytes > FREE:
            self.made += array.nbytes
        return Constant(array, folded=array.nbytes > FREE)


def taken(constant: Constant) -> int:
    """Bytes that a constant takes; what is not there yet counts whole."""
    if isinstance(constant, Deferred | Scaled):
        return math.prod(constant.shape) * constant.dtype.itemsize
    return held(constant.array) if constant.is_known else 0


def held(array: np.ndarray) -> int:
    """Bytes that an array really takes (a broadcast number takes few)."""
    return array.nbytes if all(array.strides) or not array.size else array.itemsize


def between(
    op: str, arrays: Sequence[np.ndarray], attrs: dict[str, Any], shape: Sequence[int]
) -> int:
    """Bytes that a reference needs beside inputs and result, where they may be far more: broadcast
    inputs made whole, padded images and their windows."""
    total = 0 if op in _VIEWS else sum(a.nbytes - held(a) for a in arrays)
    if op not in _WINDOWS:
        return total
    x, pads = arrays[0], attrs["pads"] or ()
    image = {"conv_transpose": shape[2:], "col2im": attrs.get("image")}.get(op) or x.shape[2:]
    wide = [size + sum(around) for size, around in zip_longest(image, pads, fillvalue=())]  # type: ignore[operator]
    channels = shape[1] if op == "conv_transpose" else x.shape[1]
    total += 8 * x.shape[0] * channels * math.prod(wide)
    if op not in ("conv_transpose", "col2im"):
        kernel = arrays[1].shape[2:] if op == "conv" else attrs["kernel"]
        total += 8 * x.shape[0] * channels * math.prod(shape[2:]) * math.prod(kernel)
    return total


def products(
    op: str, arrays: Sequence[np.ndarray], attrs: dict[str, Any], shape: Sequence[int]
) -> int:
    """Multiplications that a product or convolution takes; 0 for what goes over its elements."""
    if op == "matmul":
        return math.prod(shape) * arrays[0].shape[-2 if attrs["transpose_a"] else -1]
    if op == "conv":
        return math.prod(shape) * math.prod(arrays[1].shape[1:])
    if op == "conv_transpose":
        return math.prod(arrays[0].shape) * math.prod(arrays[1].shape[1:])
    return 0


_WINDOWS = having(WINDOW)
_VIEWS = having(STRIDED)  # of broadcast inputs are as small
