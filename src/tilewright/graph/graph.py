"""The graph: a model as typed tensor operators in static single assignment.

A `Value` is a tensor that is computed once; a `Node` applies one operator; a `Graph` lists its
nodes in an order in which each value is made before it is used. All are immutable: passes build new
graphs that share what did not change. Constants are held beside the nodes, possibly memory-mapped,
and are compared by content.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from tilewright.graph import sizes
from tilewright.graph.text import to_text
from tilewright.ir.dtype import DType, dtype
from tilewright.ir.expr import Expr, Var
from tilewright.support import html
from tilewright.support.node import Node as Tree
from tilewright.support.node import node

Attrs = tuple[tuple[str, Any], ...]  # in the order of the operator's signature; values are hashable


@node
class Value(Tree):
    """A tensor: its name (an identifier, unique in the graph), element type and sizes."""

    leaf = True
    name: str
    dtype: DType
    shape: tuple[Expr, ...]
    derived = ("static_shape",)

    def derive(self) -> None:
        self.static_shape: tuple[int, ...] | None = sizes.static(self.shape)  # type: ignore[misc]

    def key(self) -> tuple[Any, ...]:
        return (self.name, self.dtype, self.shape)

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def elements(self) -> Expr:
        """How many elements."""
        return sizes.product(self.shape)

    @property
    def nbytes(self) -> Expr:
        """Bytes in memory."""
        count = self.elements
        if self.dtype.bits >= 8:
            return sizes.size(count * (self.dtype.bits // 8))
        return sizes.size((count * self.dtype.bits + 7) // 8)

    @property
    def type_text(self) -> str:
        """As in the text: f32[1, 64, n]; a scalar is f32[()]."""
        return f"{self.dtype}[{', '.join(map(sizes.text, self.shape)) or '()'}]"

    def __repr__(self) -> str:
        return f"{self.name}: {self.type_text}"


@node
class Node(Tree):
    """One application of the operator called `op`."""

    op: str
    inputs: tuple[Value, ...]
    attrs: Attrs
    outputs: tuple[Value, ...]

    @property
    def name(self) -> str:
        """A node is known by its first output."""
        return self.outputs[0].name

    @property
    def output(self) -> Value:
        """The first (mostly the only) output."""
        return self.outputs[0]

    def __getitem__(self, attr: str) -> Any:
        for key, value in self.attrs:
            if key == attr:
                return value
        raise KeyError(f"{self.op} has no attribute {attr!r}")


def binds(node: Node) -> tuple[str, ...]:
    """The symbols that a node gives a value: sizes that only the run can tell."""
    return node["symbols"] if node.op in ("measure", "while_loop") else ()


class Constant:
    """The content of a constant: an array, perhaps memory-mapped; its digest is computed when
    asked for."""

    __slots__ = ("_array", "_digest", "folded")

    def __init__(
        self, array: np.ndarray | None, digest: str | None = None, folded: bool = False
    ) -> None:
        """folded: made of other constants; the others are the model's own."""
        self._array, self._digest, self.folded = array, digest, folded

    @property
    def is_known(self) -> bool:
        """Is its content there (not only its digest)?"""
        return self._array is not None

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.array.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    @property
    def array(self) -> np.ndarray:
        """The content. Raises LookupError if only its digest is known (a graph parsed without
        contents)."""
        if self._array is None:
            raise LookupError(f"the content of constant {self._digest} was not given")
        return self._array

    def rows(self, first: int, last: int | None) -> np.ndarray:
        """`array[first:last]`, made alone where the content is made."""
        return self.array[first:last]

    def parts(self, nbytes: int) -> list[Callable[[], np.ndarray]]:
        """Functions that make the content in parts along its first axis, of about `nbytes`."""
        array = self.array
        if not array.ndim:
            return [lambda: array]
        return _parts(lambda first, last: array[first:last], len(array), array.nbytes, nbytes)

    @property
    def digest(self) -> str:
        """128 bits of BLAKE2b over dtype, shape and bytes, in hexadecimal."""
        if self._digest is None:
            array = self.array
            seen = hashlib.blake2b(f"{array.dtype}{array.shape}".encode(), digest_size=16)
            if array.strides and array.size and not any(array.strides):  # one number, broadcast
                one = np.ascontiguousarray(array.reshape(-1)[:1]).tobytes()
                block = one * max(1, 65536 // max(1, len(one)))
                whole, rest = divmod(array.nbytes, len(block))
                for _ in range(whole):
                    seen.update(block)
                seen.update(block[:rest])
            else:
                seen.update(np.ascontiguousarray(array).view(np.uint8).data if array.size else b"")
            self._digest = seen.hexdigest()
        return self._digest

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Constant) and self.digest == other.digest)

    def __hash__(self) -> int:
        return hash(self.digest)


class Deferred(Constant):
    """A constant whose content is made whenever it is asked for and not kept, so that a model's
    rewritten weights are never all in memory: each is made when it is written, part by part."""

    __slots__ = ("_dtype", "_make", "_rows", "_shape")

    def __init__(
        self,
        make: Callable[[], np.ndarray],
        of: np.dtype[Any],
        shape: tuple[int, ...],
        rows: Callable[[int, int], np.ndarray] | None = None,
    ) -> None:
        """rows: what `make()[first:last]` is, where that can be made alone."""
        super().__init__(None)
        self._make, self._dtype, self._shape, self._rows = make, of, shape, rows

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self._shape

    @property
    def array(self) -> np.ndarray:
        made = self._make()
        assert made.shape == self._shape, f"a constant of shape {made.shape}, not {self._shape}"
        return made

    def parts(self, nbytes: int) -> list[Callable[[], np.ndarray]]:
        """As Constant.parts; one where the content can only be made whole."""
        if self._rows is None:
            return [lambda: self.array]
        whole = math.prod(self._shape) * self._dtype.itemsize
        return _parts(self._rows, self._shape[0], whole, nbytes)


class Scaled(Constant):
    """A constant times one number for each of its rows, made whenever it is asked for and not kept:
    weights that a pass scaled are as large as the model, and most are only read when they are
    written."""

    __slots__ = ("by", "source")

    def __init__(self, source: Constant, by: np.ndarray) -> None:
        """by: of the source's dtype, one number for each row."""
        super().__init__(None)
        self.source, self.by = source, by.reshape(-1, *(1,) * (len(source.shape) - 1))

    @property
    def is_known(self) -> bool:
        return self.source.is_known

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.source.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self.source.shape

    @property
    def array(self) -> np.ndarray:
        return self.rows(0, None)

    def rows(self, first: int, last: int | None) -> np.ndarray:
        """As Constant.rows."""
        return self.source.rows(first, last) * self.by[first:last]

    def parts(self, nbytes: int) -> list[Callable[[], np.ndarray]]:
        """As Constant.parts."""
        whole = math.prod(self.shape) * self.dtype.itemsize
        return _parts(self.rows, len(self.by), whole, nbytes)


def _parts(
    rows: Callable[[int, int], np.ndarray], count: int, whole: int, nbytes: int
) -> list[Callable[[], np.ndarray]]:
    """`rows` of ranges, one after another, that are `count` rows and `whole` bytes together."""
    step = max(1, count * nbytes // max(1, whole))
    return [partial(rows, at, min(at + step, count)) for at in range(0, count, step)]


class Graph:
    """A model. `input_names` and `output_names` are the user's words; values carry identifiers.

    formats: by the user's name of an input or output, what its elements stand for if that is not
    what the dtype says (see `runtime.formats`).
    ranges: by symbol, the least and the most it may be where the model says so; runs refuse others.
    metadata: what the model's file says of it besides (labels, a licence), words by their names.
    required: sizes of the inputs' symbols that no run may find negative, and what to say if one is.
    """

    __slots__ = (
        "constants",
        "formats",
        "input_names",
        "inputs",
        "metadata",
        "name",
        "nodes",
        "output_names",
        "outputs",
        "ranges",
        "required",
    )

    def __init__(
        self,
        name: str,
        inputs: Sequence[Value],
        outputs: Sequence[Value],
        constants: Mapping[Value, Constant],
        nodes: Iterable[Node],
        input_names: Sequence[str] | None = None,
        output_names: Sequence[str] | None = None,
        formats: Mapping[str, str] | None = None,
        ranges: Mapping[str, tuple[int, int]] | None = None,
        required: Iterable[tuple[Expr, str]] = (),
        metadata: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.inputs, self.outputs = tuple(inputs), tuple(outputs)
        self.constants = dict(constants)
        self.nodes = tuple(nodes)
        self.input_names = tuple(input_names or [v.name for v in self.inputs])
        self.output_names = tuple(output_names or [v.name for v in self.outputs])
        self.formats = dict(formats or {})
        self.ranges = dict(ranges or {})
        self.required = tuple(required)
        self.metadata = dict(metadata or {})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Graph) and all(
            getattr(self, part) == getattr(other, part) for part in reversed(Graph.__slots__)
        )

    __hash__ = object.__hash__

    @property
    def symbols(self) -> tuple[Var, ...]:
        """The symbolic sizes of the inputs, in order of first appearance."""
        return tuple(sizes.symbols(s for v in self.inputs for s in v.shape))

    @property
    def data_dependent(self) -> tuple[Var, ...]:
        """The symbolic sizes that nodes bind while the model runs, in their order."""
        return tuple([Var(s) for n in self.nodes for s in binds(n)])

    @property
    def values(self) -> list[Value]:
        """Inputs, constants, then what nodes make, in order."""
        return [*self.inputs, *self.constants, *(v for n in self.nodes for v in n.outputs)]

    def array(self, value: Value) -> np.ndarray:
        """The content of a constant."""
        return self.constants[value].array

    def producers(self) -> dict[Value, Node]:
        """The node that makes each value (inputs and constants have none)."""
        return {v: n for n in self.nodes for v in n.outputs}

    def users(self) -> dict[Value, list[Node]]:
        """The nodes that read each value, once for each node; every value of the graph has an
        entry."""
        found: dict[Value, list[Node]] = {v: [] for v in self.values}
        for n in self.nodes:
            for v in dict.fromkeys(n.inputs):
                found[v].append(n)
        return found

    def replace(self, **changes: Any) -> Graph:
        """A copy with some parts changed."""
        parts = {part: getattr(self, part) for part in Graph.__slots__}
        return Graph(**{**parts, **changes})

    def __str__(self) -> str:
        return to_text(self)

    def __repr__(self) -> str:
        return f"Graph({self.name!r}, {html.counted(len(self.nodes), 'node')})"

    def _repr_html_(self) -> str:
        values = zip(
            ["input"] * len(self.inputs) + ["output"] * len(self.outputs),
            (*self.input_names, *self.output_names),
            (v.type_text for v in (*self.inputs, *self.outputs)),
            strict=True,
        )
        text = str(self)
        program = html.folded("program", html.preformatted(text), text.count("\n"))
        held = html.counted(len(self.constants), "constant")
        return html.block(
            f"Graph {self.name}",
            f"{html.counted(len(self.nodes), 'node')}, {held}",
            html.table([("", "name", "type"), *values], left=3),
            program,
        )


def tensor_type(name: Any, shape: Iterable[sizes.SizeLike]) -> tuple[DType, tuple[Expr, ...]]:
    """An element type and sizes in their normal form."""
    return dtype(name), sizes.shape(shape)


_PLAIN = frozenset({bool, str, int})  # as most values of attributes are


def plain(value: Any) -> Any:
    """An attribute value in the form in which graphs keep it: hashable, NaN as the one
    `math.nan`."""
    if value is None or value.__class__ in _PLAIN or isinstance(value, str):
        return value
    if isinstance(value, tuple | list):
        return tuple([plain(v) for v in value])
    if isinstance(value, int | np.integer):
        return int(value)
    if isinstance(value, float | np.floating):
        return math.nan if value != value else float(value)
    if isinstance(value, DType):
        return value.name
    if isinstance(value, Expr):
        reduced = sizes.size(value)
        return getattr(reduced, "value", reduced)
    raise TypeError(f"an attribute cannot hold {value!r}")
