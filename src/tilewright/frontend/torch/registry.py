"""The table of translators: an ATen operator → a function from its arguments to graph values.

`@translates("relu.default")` registers a function whose parameters are those of the operator's
schema, after the `NodeContext`: the node with its result type and `emit`. Tensors arrive as values
of the graph, sizes as ints or size expressions. What a function cannot translate it refuses with a
reason.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from tilewright.frontend.torch.convert import Refusal, of_torch, size_of
from tilewright.graph import sizes
from tilewright.graph.bounds import Bounds, OutOfBounds, checked
from tilewright.graph.folding import Folding
from tilewright.graph.graph import Value
from tilewright.ir.dtype import DType, dtype
from tilewright.ir.expr import Expr, as_int

Translator = Callable[..., Any]
TRANSLATORS: dict[str, Translator] = {}


def translates(*names: str) -> Callable[[Translator], Translator]:
    """Register a translator for operators, named without their namespace aten ("add.Tensor")."""

    def register(f: Translator) -> Translator:
        for name in names:
            assert f"aten.{name}" not in TRANSLATORS, f"{name} has two translators"
            TRANSLATORS[f"aten.{name}"] = f
        return f

    return register


EVAL = "call module.eval() before compiling"


class NodeContext:
    """A node being translated. `fakes` are its results as PyTorch describes them: no content.
    `seed` gives the value that random numbers start from, if each run of the graph has its own."""

    __slots__ = ("build", "fakes", "node", "seed", "symbols")

    def __init__(
        self,
        build: Folding,
        node: torch.fx.Node,
        symbols: dict[str, Any],
        seed: Callable[[], Value] | None = None,
    ) -> None:
        self.build, self.node, self.symbols, self.seed = build, node, symbols, seed
        fakes = node.meta.get("val")
        self.fakes: Sequence[Any] = fakes if isinstance(fakes, tuple | list) else (fakes,)

    # the result ---------------------------------------------------------------------------------

    @property
    def op(self) -> str:
        """The operator's name without namespace and overload: "add"."""
        return str(self.node.target).split(".")[1].removesuffix("_")

    @property
    def of(self) -> DType:
        """The dtype of the (first) result."""
        return of_torch(self.fakes[0].dtype)

    @property
    def shape(self) -> tuple[Any, ...]:
        """The shape of the (first) result: ints and size expressions."""
        return self.sizes(self.fakes[0].shape)

    def sizes(self, shape: Sequence[Any]) -> tuple[Any, ...]:
        return tuple([size_of(s, self.symbols) for s in shape])

    def fake(self, k: int) -> Any:
        """Argument `k` as PyTorch describes it: a tensor without content, or a number."""
        argument = self.node.args[k]
        return argument.meta["val"] if isinstance(argument, torch.fx.Node) else argument

    def uses(self, k: int) -> bool:
        """Is result `k` of several used?"""
        return any(u.args[1] == k and u.users for u in self.node.users if len(u.args) == 2)

    # emission -----------------------------------------------------------------------------------

    def emit(self, op: str, *inputs: Value, **attrs: Any) -> Any:
        """Append an operator; its output is named after the node."""
        return self.build.emit(op, *inputs, name=self.node.name, **attrs)

    def indices(self, numbers: Value, bounds: Bounds) -> Value:
        """Indices; a run in which one of them is outside the bounds ends there."""
        try:
            return checked(self.build, numbers, bounds, f"{self.op} '{self.node.name}'")
        except OutOfBounds as fault:
            raise Refusal(str(fault)) from None

    def constant(self, content: Any, of: DType | str | None = None) -> Value:
        return self.build.constant(content, "c", of)

    def full(
        self, value: Any, of: DType | None = None, shape: Sequence[Any] | None = None
    ) -> Value:
        """A tensor of one number (default: of the result's type)."""
        shape = self.shape if shape is None else tuple(shape)
        return self.emit("full", shape=shape, value=value, of=(of or self.of).name)

    def cast(self, x: Value, of: DType | str) -> Value:
        of = dtype(of)
        return x if x.dtype is of else self.emit("cast", x, to=of.name)

    def wide(self, x: Value) -> Value:
        """x, small floats as f32: for formulas of several steps, which are rounded once."""
        return self.cast(x, "f32") if x.dtype.is_float and x.dtype.bits < 32 else x

    def operand(self, x: Any, of: DType | None = None) -> Value:
        """A tensor or number as a value of dtype `of` (default: the result's)."""
        of = of or self.of
        if isinstance(x, Value):
            return self.cast(x, of)
        if isinstance(x, Expr):  # a size
            size = self.build.from_sizes(np.array(x, object), dtype("i64"))
            return self.cast(size, of)
        number = x if isinstance(x, int | float | bool | complex) else as_int(x)  # of a size
        return self.constant(np.asarray(number).astype(of.numpy), of)

    def reshape(self, x: Value, shape: Sequence[Any]) -> Value:
        return x if sizes.shape(shape) == x.shape else self.emit("reshape", x, shape=tuple(shape))

    def transpose(self, x: Value, perm: Sequence[int]) -> Value:
        perm = tuple(perm)
        return x if perm == tuple(range(x.rank)) else self.emit("transpose", x, perm=perm)

    def expand(self, x: Value, shape: Sequence[Any]) -> Value:
        return x if sizes.shape(shape) == x.shape else self.emit("expand", x, shape=tuple(shape))

    def cut(self, x: Value, axis: int, start: Any, count: Any, step: Any = 1) -> Value:
        """`count` positions along one axis."""
        if as_int(start) == 0 and as_int(step) == 1 and sizes.size(count) == x.shape[axis]:
            return x
        rank = x.rank
        return self.emit(
            "slice",
            x,
            starts=tuple(start if d == axis else 0 for d in range(rank)),
            shape=tuple(count if d == axis else s for d, s in enumerate(x.shape)),
            steps=tuple(step if d == axis else 1 for d in range(rank)),
        )

    def counted(self, count: Any, step: int = 1) -> Value:
        """0, step, 2 · step, …: i64, so many."""
        return self.emit("arange", length=count, start=0, step=step)

    # questions ----------------------------------------------------------------------------------

    def known(self, x: Value) -> np.ndarray | None:
        """The content of `x` if it is a constant."""
        constant = self.build.constants.get(x)
        return None if constant is None else constant.array

    def static(self, values: Sequence[Any], what: str) -> tuple[int, ...]:
        """Sizes that must be numbers."""
        found = sizes.static(values)
        if found is None:
            raise Refusal(
                f"{what} depends on a symbolic size", "export the module with that size fixed"
            )
        return found


def axis_of(axis: int, rank: int) -> int:
    """`axis` counted from the front; a scalar has axes -1 and 0."""
    return axis % max(rank, 1)


def axes_of(axes: Any, rank: int) -> tuple[int, ...]:
    """Axes counted from the front; none given (None, or an empty list) means all."""
    if axes is None or (not isinstance(axes, int) and len(axes) == 0):
        return tuple(range(rank))
    return tuple(axis_of(a, rank) for a in ((axes,) if isinstance(axes, int) else axes))
