"""Tensors and the operations that make them: the algorithm, with no word on how it runs.

In: shapes and Python functions from indices to expressions. Out: `Tensor`s, linked through the
operations that produce them. The one idea: a tensor's element `T[i, j]` is an ordinary expression,
so a computation is one expression over named axes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from tilewright.ir.dtype import DType, i64
from tilewright.ir.dtype import dtype as to_dtype
from tilewright.ir.expr import Buffer, Expr, Var, expr
from tilewright.ir.stmt import Annotations, Stmt
from tilewright.ir.walk import distinct
from tilewright.support.node import node

Shape = tuple[Expr, ...]
A = TypeVar("A", bound="ComputeAxis")


class Tensor:
    """A value with a shape (whole-number expressions) and a dtype; `T[i, j]` is one element.

    Tensors are equal only to themselves. `op` made it; `index` says which of the op's outputs it
    is.
    """

    __slots__ = ("dtype", "index", "name", "op", "shape")

    def __init__(self, name: str, shape: Shape, of: DType, op: Operation, index: int = 0) -> None:
        self.name, self.shape, self.dtype, self.op, self.index = name, shape, of, op, index

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __getitem__(self, indices: Any) -> Expr:
        if not isinstance(indices, tuple):
            indices = (indices,)
        if len(indices) != self.ndim:
            raise IndexError(
                f"tensor '{self.name}' has {self.ndim} dimensions, indexed with {len(indices)}"
            )
        converted = tuple(expr(i, i64) for i in indices)
        return Read(self, tuple(i if i.dtype is i64 else i.astype(i64) for i in converted))

    def __len__(self) -> int:
        raise TypeError("a Tensor has no length; see .shape")

    def __repr__(self) -> str:
        return f"Tensor({self.name}: {self.dtype}{list(self.shape)})"


@node
class Read(Expr):
    """An element of a tensor; becomes a Load when the function is built."""

    tensor: Any
    indices: tuple[Expr, ...]
    derived = ("dtype",)

    def derive(self) -> None:
        self.dtype = self.tensor.dtype


class ComputeAxis(Var):
    """An axis of a computation. Equal only to itself: a size may have its name."""

    __slots__ = ()

    def __new__(cls: type[A], name: str, *_: Any) -> A:
        made = object.__new__(cls)
        for field, value in (("name", name), ("dtype", i64)):
            setattr(made, field, value)
        return made


class ReduceAxis(ComputeAxis):
    """An axis to reduce over: lo, lo + 1, …, lo + extent - 1."""

    __slots__ = ("extent", "lo")

    def __init__(self, name: str, lo: Expr, extent: Expr) -> None:
        self.lo, self.extent = lo, extent


class Operation:
    """What makes tensors. `outputs` are the tensors it makes, `inputs` those it reads."""

    __slots__ = ("name", "outputs")
    name: str
    outputs: tuple[Tensor, ...]

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        return ()


class Placeholder(Operation):
    """An input of the function."""

    __slots__ = ()


class Compute(Operation):
    """One expression for each output over the same axes; all plain, or all parts of one
    reduction.
    """

    __slots__ = ("_inputs", "attrs", "axes", "extents", "values")

    def __init__(
        self,
        name: str,
        axes: tuple[Var, ...],
        extents: Shape,
        values: tuple[Expr, ...],
        attrs: Annotations,
    ) -> None:
        self.name, self.axes, self.extents, self.values, self.attrs = (
            name,
            axes,
            extents,
            values,
            attrs,
        )
        self._inputs: tuple[Tensor, ...] | None = None

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        if self._inputs is None:
            self._inputs = tensors_in(self.values)
        return self._inputs


class Extern(Operation):
    """Hand-written statements over whole buffers."""

    __slots__ = ("_inputs", "body")

    def __init__(
        self,
        name: str,
        inputs: tuple[Tensor, ...],
        body: Callable[[list[Buffer], list[Buffer]], Stmt],
    ) -> None:
        self.name, self._inputs, self.body = name, inputs, body

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        return self._inputs


def tensors_in(values: Sequence[Expr]) -> tuple[Tensor, ...]:
    """The tensors that expressions read, in order of first appearance."""
    return tuple(dict.fromkeys([n.tensor for n in distinct(values) if isinstance(n, Read)]))


def shape_of(shape: Any) -> Shape:
    """A shape as expressions: ints, expressions, or one of either for a vector."""
    dims = shape if isinstance(shape, tuple | list) else (shape,)
    made = tuple(expr(d, i64) for d in dims)
    for d in made:
        if d.dtype is not i64:
            raise TypeError(f"a dimension must be a whole number of dtype i64, not {d.dtype}")
    return made


def var(name: str) -> Var:
    """A symbolic size: a dimension whose number a call brings."""
    return Var(name, i64)


def placeholder(shape: Any, dtype: Any = "f32", name: str = "A") -> Tensor:
    """An input tensor.

    Args:
        shape: whole numbers, `te.var`s and expressions of them; one of either for a vector.
        dtype: of the elements, as in "f32", "bf16", "i8", "bool".
        name: of the parameter of the function.
    """
    op = Placeholder()
    op.name = name
    op.outputs = (Tensor(name, shape_of(shape), to_dtype(dtype), op),)
    return op.outputs[0]


def reduce_axis(extent: Any, name: str = "k") -> ReduceAxis:
    """An axis to reduce over.

    Args:
        extent: how many, from 0; or a pair (lo, hi), hi exclusive.
        name: of the loop over it.
    """
    lo, hi = extent if isinstance(extent, tuple) else (0, extent)
    return ReduceAxis(name, expr(lo, i64), expr(hi, i64) - expr(lo, i64))


def extern(
    shapes: Any,
    inputs: Sequence[Tensor],
    body: Callable[[list[Buffer], list[Buffer]], Stmt],
    dtype: Any = "f32",
    name: str = "extern",
) -> Any:
    """Tensors made by hand-written statements.

    Args:
        shapes: one shape, or a list of shapes for several outputs.
        inputs: the tensors that the statements read.
        body: `body(input buffers, output buffers)` gives the statements.
        dtype: of the output, or a list of dtypes.
        name: of the output; several are numbered.

    Returns:
        The output, or a tuple of them for a list of shapes.
    """
    many = isinstance(shapes, list)
    made = [shape_of(s) for s in shapes] if many else [shape_of(shapes)]
    types = (
        [to_dtype(d) for d in dtype] if isinstance(dtype, list) else [to_dtype(dtype)] * len(made)
    )
    op = Extern(name, tuple(inputs), body)
    op.outputs = tuple(
        Tensor(f"{name}_{n}" if many else name, s, t, op, n)
        for n, (s, t) in enumerate(zip(made, types, strict=True))
    )
    return op.outputs if many else op.outputs[0]
