"""The operator registry: everything about an operator in one place.

`@operator(...)` decorates the operator's te definition. The decorated function's name is the
operator's name, its positional parameters are tensors, its keyword-only parameters are attributes
with their defaults, its docstring is the documentation. The decorator's arguments add the type
rule, the NumPy reference and the fusion class. What is not a tensor expression (it is only ever
replaced by others) has no definition. What passes ask of operators of all kinds is a `Trait`: no
set of names stands elsewhere.
"""

from __future__ import annotations

import enum
import inspect
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from tilewright.graph import sizes
from tilewright.ir.dtype import DType
from tilewright.ir.expr import Expr, as_int


class Fusion(enum.Enum):
    """How an operator's loops relate to its neighbours'; in the order of ease of fusion."""

    BROADCAST = "broadcast"  # out[i] reads in[i] (or in[0] along a broadcast axis)
    INJECTIVE = "injective"  # out[i] reads a fixed few elements: transposes, slices, gathers, pads
    REDUCTION = "reduction"  # reduces over axes; may absorb what feeds it
    COMPLEX = "complex"  # convolution, matmul: absorbs element-wise work on its output
    OPAQUE = "opaque"  # never fused


BROADCAST, INJECTIVE, REDUCTION, COMPLEX, OPAQUE = Fusion


class Trait(enum.Flag):
    """What passes ask of an operator beside its types and its fusion."""

    CHEAP = enum.auto()  # computing it again takes no longer than storing and reading it
    FINITE = enum.auto()  # makes finite numbers of finite ones, so that it may run on padding
    MOVES = enum.auto()  # each number it gives is one of its inputs'
    SHAPED = enum.auto()  # the input's elements in order, maybe repeated, in the `shape` given
    STRIDED = enum.auto()  # the reference's result is a view of its input
    WINDOW = enum.auto()  # slides a window over an image
    POOL = enum.auto()  # … that has no weights
    WEIGHTED = enum.auto()  # multiplies its input by matrices
    RECURRENT = enum.auto()  # … in steps that wait for one another
    HOST = enum.auto()  # the host program does it: it binds symbols, or ends the run


NO_TRAIT = Trait(0)
CHEAP, FINITE, MOVES, SHAPED, STRIDED, WINDOW, POOL, WEIGHTED, RECURRENT, HOST = Trait


Type = tuple[DType, tuple[Expr, ...]]


class Mismatch(ValueError):
    """Raised by type rules: why an operator cannot be applied to these inputs."""


class Unequal(Mismatch):
    """Two sizes that should be one, and are not as far as is known."""

    def __init__(self, a: Expr, b: Expr, why: str) -> None:
        super().__init__(why)
        self.sizes = a, b


class Operator:
    """An entry of the registry.

    infer(*inputs, **attrs) -> (dtype, shape) or a list of those: inputs have `.dtype .shape .rank`.
    define(*tensors, **attrs) -> te tensor(s). reference(*arrays, **attrs) -> array(s).
    `view`: the result is the input's memory under another shape. `variadic`: takes any number of
    tensors. `package`: the module outside Tilewright that registered it, "" for our own.
    """

    __slots__ = (
        "attrs",
        "define",
        "fusion",
        "infer",
        "least_inputs",
        "most_inputs",
        "name",
        "package",
        "reference",
        "traits",
        "view",
    )

    def __init__(
        self,
        define: Any,
        fusion: Fusion,
        infer: Callable[..., Any],
        reference: Callable[..., Any],
        view: bool,
        traits: Trait = NO_TRAIT,
    ) -> None:
        self.name = define.__name__.rstrip("_")
        self.define, self.infer, self.reference = define, infer, reference
        self.fusion, self.view, self.traits, self.package = fusion, view, traits, ""
        code = define.__code__  # what inspect.signature reads, in a tenth of its time
        tensors, keywords = code.co_argcount, code.co_kwonlyargcount
        self.least_inputs = tensors - len(define.__defaults__ or ())
        self.most_inputs = None if code.co_flags & inspect.CO_VARARGS else tensors
        given = define.__kwdefaults__ or {}
        self.attrs: dict[str, Any] = {
            name: given.get(name, inspect.Parameter.empty)
            for name in code.co_varnames[tensors : tensors + keywords]
        }  # an attribute without a default is required: its entry is inspect.Parameter.empty

    @property
    def doc(self) -> str:
        """What the operator does."""
        return inspect.getdoc(self.define) or ""

    def types(self, inputs: Sequence[Any], attrs: dict[str, Any]) -> list[Type]:
        """The types of the outputs. Raises Mismatch."""
        count = len(inputs)
        if count < self.least_inputs or (self.most_inputs is not None and count > self.most_inputs):
            raise Mismatch(f"takes {self.arity}, not {count}")
        found = self.infer(*inputs, **attrs)
        return found if isinstance(found, list) else [found]

    @property
    def arity(self) -> str:
        """For messages: 2 inputs, 2 to 3 inputs, 1 or more inputs."""
        if self.most_inputs is None:
            return f"{self.least_inputs} or more inputs"
        if self.least_inputs == self.most_inputs:
            return f"{self.least_inputs} inputs"
        return f"{self.least_inputs} to {self.most_inputs} inputs"

    def __repr__(self) -> str:
        return f"Operator({self.name})"


OPERATORS: dict[str, Operator] = {}
_having: dict[Trait, set[str]] = {}  # what `having` has given out


def operator(
    *,
    fusion: Fusion,
    infer: Callable[..., Any],
    reference: Callable[..., Any],
    view: bool = False,
    traits: Trait = NO_TRAIT,
) -> Callable[[Callable[..., Any]], Operator]:
    """Register the decorated te definition as an operator (see the module's opening)."""

    def register(define: Callable[..., Any]) -> Operator:
        entry = Operator(define, fusion, infer, reference, view, traits)
        assert entry.name not in OPERATORS, f"operator {entry.name} is declared twice"
        add(entry)
        return entry

    return register


def add(entry: Operator) -> None:
    """Put an operator into the registry; sets that `having` gave out get to know it too."""
    OPERATORS[entry.name] = entry
    for trait, names in _having.items():
        if trait in entry.traits:
            names.add(entry.name)


def remove(name: str) -> None:
    """Take an operator out of the registry."""
    del OPERATORS[name]
    for names in _having.values():
        names.discard(name)


def having(trait: Trait) -> AbstractSet[str]:
    """The names of the operators that have a trait: a set that grows with the registry. Ask once
    all of ours are registered (graph/ops)."""
    found = _having.get(trait)
    if found is None:
        found = {name for name, entry in OPERATORS.items() if trait in entry.traits}
        assert found, f"no operator is registered that has {trait}: import tilewright.graph.ops"
        _having[trait] = found
    return found


def need(condition: bool, why: str) -> None:
    """Raise Mismatch(why) unless `condition` holds; for type rules."""
    if not condition:
        raise Mismatch(why)


def need_same(a: Expr, b: Expr, why: str) -> None:
    """Raise Unequal(why) unless the sizes are the same; for type rules."""
    if a is not b and a != b:
        raise Unequal(a, b, why)


def need_same_shape(a: sizes.Shape, b: sizes.Shape, why: str) -> None:
    """Raise Mismatch(why) unless the ranks are the same, Unequal(why) unless the sizes are."""
    need(len(a) == len(b), why)
    for one, other in zip(a, b, strict=True):
        need_same(one, other, why)


def axis_of(axis: int, rank: int) -> int:
    """`axis` counted from the front. Raises Mismatch if it is out of range."""
    if not -rank <= axis < rank:
        raise Mismatch(f"axis {axis} is out of range for rank {rank}")
    return axis % rank


def axes_of(axes: Sequence[int] | None, rank: int) -> tuple[int, ...]:
    """Sorted axes counted from the front; None means all. Raises Mismatch for repeats."""
    if axes is None:
        return tuple(range(rank))
    found = sorted(axis_of(a, rank) for a in axes)
    if len(set(found)) != len(found):
        raise Mismatch(f"axes {tuple(axes)} repeat an axis")
    return tuple(found)


def broadcast_size(a: Expr, b: Expr) -> Expr:
    """The size of an axis after NumPy broadcasting. Raises Mismatch."""
    if a is b or a == b:
        return a
    if a is ONE or as_int(a) == 1:
        return b
    if b is ONE or as_int(b) == 1:
        return a
    raise Unequal(a, b, f"sizes {sizes.text(a)} and {sizes.text(b)} do not broadcast")


ONE = sizes.size(1)


def broadcast_shape(*shapes: sizes.Shape) -> sizes.Shape:
    """The common shape after NumPy broadcasting. Raises Mismatch."""
    result = shapes[0]
    for other in shapes[1:]:
        if result == other:
            continue
        if len(other) > len(result):
            result, other = other, result
        lead = len(result) - len(other)
        result = result[:lead] + tuple(
            [broadcast_size(a, b) for a, b in zip(result[lead:], other, strict=True)]
        )
    return result
