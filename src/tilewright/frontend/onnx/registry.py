"""The table of translators: (domain, operator) → a function from an ONNX node to values of the
graph.

`@translates("Conv", "ConvInteger")` registers a function of one `NodeContext`: the node with its
inputs as values, its attributes checked by type, and `emit`. What a function cannot translate it
refuses with a reason. `translator` finds what is registered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from tilewright.frontend.onnx.files import array_of, type_of
from tilewright.frontend.onnx.messages import AttributeProto, GraphProto, NodeProto
from tilewright.graph import sizes
from tilewright.graph.bounds import Bounds, into
from tilewright.graph.folding import Folding
from tilewright.graph.graph import Value
from tilewright.ir.dtype import DType
from tilewright.ir.expr import as_int
from tilewright.support.record import record

Translator = Callable[["NodeContext"], Any]
TRANSLATORS: dict[tuple[str, str], Translator] = {}
LATER: list[Callable[[], object]] = []  # what registers those that are seldom needed
OTHERS: list[Callable[[str, str], Translator | None]] = []  # know those of outside packages

MAIN = ""  # the domain ai.onnx
OLDEST, NEWEST = 1, 28  # its versions that the translators know


def translates(*names: str, domain: str = MAIN) -> Callable[[Translator], Translator]:
    """Register a translator for operators of `domain`."""

    def register(f: Translator) -> Translator:
        for name in names:
            TRANSLATORS[domain, name] = f
        return f

    return register


def translator(domain: str, name: str) -> Translator | None:
    """The translator of an operator, None where there is none."""
    if (domain, name) not in TRANSLATORS:
        for register in LATER:
            register()
        if (domain, name) not in TRANSLATORS:
            return next(filter(None, (find(domain, name) for find in OTHERS)), None)
    return TRANSLATORS[domain, name]


class Sequence(tuple[Value, ...]):
    """A sequence of tensors whose length is known when compiling: a name for several values."""

    __slots__ = ()

    @property
    def type_text(self) -> str:
        """For messages."""
        return f"sequence({', '.join(v.type_text for v in self)})"


@record
class Ragged:
    """A sequence whose length, or the shapes in it, only the run knows: the elements end to end in
    `data` [total], and their shapes as the rows of `shapes` (i64 [count, axes]), -1 behind the axes
    of an element that has fewer. `rank` is that of every element, None if they differ."""

    data: Value
    shapes: Value
    rank: int | None

    @property
    def type_text(self) -> str:
        """For messages."""
        return f"sequence of {self.data.dtype} tensors, {sizes.text(self.shapes.shape[0])} of them"


@record
class Maybe:
    """An optional value: whether it is there (a bool), and what is then there (None: never)."""

    present: Value
    content: Any

    @property
    def type_text(self) -> str:
        """For messages."""
        held = "nothing" if self.content is None else self.content.type_text
        return f"optional({held})"


@record
class Choice:
    """One of two tensors of different ranks, each perhaps a choice itself: `then` where the
    condition (a bool) holds."""

    condition: Value
    then: Any
    other: Any

    @property
    def dtype(self) -> DType:
        return self.then.dtype

    @property
    def type_text(self) -> str:
        """For messages."""
        return f"{self.then.type_text} or {self.other.type_text}"


class Refusal(Exception):
    """Why a node cannot be translated, and what would help."""

    def __init__(self, why: str, remedy: str = "") -> None:
        super().__init__(why)
        self.why, self.remedy = why, remedy


_A = AttributeProto
_KINDS = {
    "i": _A.INT,
    "f": _A.FLOAT,
    "s": _A.STRING,
    "t": _A.TENSOR,
    "g": _A.GRAPH,
    "ints": _A.INTS,
    "floats": _A.FLOATS,
    "strings": _A.STRINGS,
}


class NodeContext:
    """An ONNX node being translated. `inputs` has None where an optional input is left out."""

    __slots__ = ("attributes", "importer", "inputs", "node", "version")

    def __init__(
        self, importer: Any, node: NodeProto, inputs: list[Value | None], version: int
    ) -> None:
        self.importer, self.node, self.inputs, self.version = importer, node, inputs, version
        given = [(a.name, importer.argument(a)) for a in node.attribute]
        self.attributes = {name: a for name, a in given if a is not None}

    @property
    def op(self) -> str:
        return self.node.op_type

    @property
    def build(self) -> Folding:
        return self.importer.build

    def emit(self, op: str, *inputs: Value, **attrs: Any) -> Any:
        """Append an operator; its output is named after the node's first output."""
        return self.build.emit(
            op, *inputs, name=self.node.output[0] if self.node.output else "", **attrs
        )

    def wide(self, x: Value) -> Value:
        """x, small floats as f32: for formulas of several steps, which are rounded once."""
        small = x.dtype.is_float and x.dtype.bits < 32
        return self.build.emit("cast", x, to="f32") if small else x

    def narrowed(self, y: Value, of: DType) -> Value:
        """What was computed from `wide` operands, in their own dtype."""
        return y if y.dtype is of else self.build.emit("cast", y, to=of.name)

    def indices(self, k: int, *axes: sizes.SizeLike) -> Value:
        """Input `k`, which holds indices into axes of these sizes (one for each column, or one for
        all); negative ones count from the end."""
        return self.checked(self[k], into(*axes))

    def checked(self, numbers: Value, bounds: Bounds) -> Value:
        """Numbers with bounds that the operator's definition sets; others end the run."""
        name = self.node.name or next(iter(self.node.output), "")
        return self.importer.checked(numbers, bounds, f"{self.op} '{name}'")

    def constant(self, content: Any, of: DType | str | None = None) -> Value:
        return self.build.constant(content, "c", of)

    def standing_for(
        self, op: str, inputs: Iterable[Any], version: int | None = None, **attributes: Any
    ) -> NodeContext:
        """This node as one of ai.onnx's operator `op`, of the newest version that our translators
        know unless one is given: with these inputs (None: left out) and its own attributes, but for
        those given here (None: none)."""
        from onnx.helper import make_attribute

        node = NodeProto(op_type=op, name=self.node.name, output=self.node.output)
        given = {k: make_attribute(k, v) for k, v in attributes.items() if v is not None}
        kept = {k: a for k, a in self.attributes.items() if k not in attributes}
        made = NodeContext(self.importer, node, list(inputs), version or NEWEST)
        made.attributes = kept | given
        return made

    def apply(self, op: str, *inputs: Any, version: int | None = None, **attributes: Any) -> Any:
        """What ai.onnx's operator `op` makes of these inputs, as `standing_for` describes."""
        context = self.standing_for(op, inputs, version, **attributes)
        return self.importer.apply((MAIN, op), context)

    # inputs ------------------------------------------------------------------------------------

    def __getitem__(self, n: int) -> Value:
        """Input `n`, which must be there."""
        value = self.optional(n)
        if value is None:
            raise Refusal(f"input {n} is missing")
        if isinstance(value, Sequence | Ragged):
            raise Refusal(f"input {n} is a sequence, not a tensor")
        if isinstance(value, Maybe):
            raise Refusal(f"input {n} is optional", "OptionalGetElement gives its element")
        if not isinstance(value, Value):
            raise Refusal(f"input {n} ({value!r}) holds elements that {self.op} does not work on")
        return value

    def optional(self, n: int) -> Value | None:
        """Input `n`, or None."""
        return self.inputs[n] if n < len(self.inputs) else None

    def array(self, n: int) -> np.ndarray:
        """The content of input `n`, which must be known when compiling."""
        value = self[n]
        constant = self.build.constants.get(value)
        if constant is None:
            raise Refusal(
                f"input {n} ({value!r}) is only known at run time",
                "it must be a constant or follow from the shapes of the inputs",
            )
        return constant.array

    def sizes(self, n: int) -> tuple[Any, ...]:
        """The elements of integer input `n` as ints and size expressions."""
        value = self[n]
        found = self.build.sizes_in(value)
        if found is None:
            if value in self.build.constants:
                raise Refusal(f"input {n} ({value!r}) holds no sizes")
            self.array(n)
        return tuple(found.ravel().tolist())  # type: ignore[union-attr]

    def numbers(self, n: int) -> tuple[int, ...]:
        """The elements of integer input `n`, which must be numbers."""
        found = []
        for s in self.sizes(n):
            number = as_int(s)
            if number is None:
                raise Refusal(f"input {n} depends on the symbolic size {sizes.text(s)}")
            found.append(number)
        return tuple(found)

    def scalar(self, n: int, default: Any = None) -> Any:
        """The one element of constant input `n`, or `default` if it is left out."""
        if self.optional(n) is None:
            return default
        array = self.array(n)
        if array.size != 1:
            raise Refusal(f"input {n} must hold one number, not {array.size}")
        return array.reshape(())[()].item()

    # attributes --------------------------------------------------------------------------------

    def _attribute(self, name: str, field: str) -> Any:
        found = self.attributes.get(name)
        if found is None:
            return None
        if found.type not in (_KINDS[field], 0):
            kind = (
                _A.AttributeType.Name(found.type)
                if found.type in _A.AttributeType.values()
                else found.type
            )
            raise Refusal(
                f"attribute '{name}' has the type {kind},"
                f" not {_A.AttributeType.Name(_KINDS[field])}"
            )
        return getattr(found, field)

    def int(self, name: str, default: Any = None) -> Any:
        value = self._attribute(name, "i")
        return default if value is None else int(value)

    def flag(self, name: str, default: bool = False) -> bool:
        return bool(self.int(name, int(default)))

    def float(self, name: str, default: Any = None) -> Any:
        """Attribute `name`; the specification's defaults are f32 as well."""
        value = self._attribute(name, "f")
        if value is not None:
            return value
        return float(np.float32(default)) if isinstance(default, float) else default

    def text(self, name: str, default: str = "") -> str:
        value = self._attribute(name, "s")
        return default if value is None else value.decode("utf-8", "replace")

    def ints(self, name: str, default: Any = None) -> Any:
        value = self._attribute(name, "ints")
        return default if value is None else tuple(value)

    def floats(self, name: str, default: Any = None) -> Any:
        value = self._attribute(name, "floats")
        return default if value is None else tuple(value)

    def texts(self, name: str, default: Any = None) -> Any:
        value = self._attribute(name, "strings")
        return default if value is None else tuple(v.decode("utf-8", "replace") for v in value)

    def tensor(self, name: str) -> np.ndarray | None:
        value = self._attribute(name, "t")
        return None if value is None else array_of(value, self.importer.folder)

    def graph(self, name: str) -> GraphProto:
        value = self._attribute(name, "g")
        if value is None:
            raise Refusal(f"attribute '{name}' is missing")
        return value

    def dtype(self, name: str, default: DType | None = None) -> DType:
        code = self.int(name)
        if code is None:
            if default is None:
                raise Refusal(f"attribute '{name}' is missing")
            return default
        return type_of(code, f"{self.op} to")
