"""Formulas on tensors: operators applied to values and plain numbers of one float dtype."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.frontend.onnx import data_dependent
from tilewright.frontend.onnx.registry import NodeContext
from tilewright.graph.graph import Value
from tilewright.ir.expr import Expr


class Floats:
    """Operators on float tensors and numbers, all of one dtype."""

    def __init__(self, n: NodeContext, of: str = "f64") -> None:
        self.n, self.dtype = n, of

    def __call__(self, op: str, *operands: Value | float, **attrs: Any) -> Value:
        build = self.n.build
        values = [x if isinstance(x, Value) else self.number(x) for x in operands]
        return build.emit(op, *values, **attrs)

    def number(self, x: float) -> Value:
        return self.n.build.constant(np.asarray(x, np.float64), "f", self.dtype)

    def of(self, x: Value) -> Value:
        return x if x.dtype.name == self.dtype else self.n.build.emit("cast", x, to=self.dtype)

    def element(self, v: Value, k: int) -> Value:
        part = self.n.build.emit("slice", v, starts=(k,), shape=(1,))
        return self.n.build.emit("reshape", part, shape=())

    def size(self, s: Expr) -> Value:
        made = np.empty((), object)
        made[()] = s
        return self.of(self.n.build.from_sizes(made, data_dependent.I64))
