"""Values whose elements are codes: floats that the compiler has no dtype for, and strings.

A `Coded` is a tensor of whole numbers and the format that they are in. A `Text` is a tensor of
numbers of rows in a table of strings, each row a string's code points with zeros at its end. So
whatever only moves elements moves the numbers, and the operators of ONNX that do are translated as
ever.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.frontend.onnx.files import array_of
from tilewright.frontend.onnx.messages import TensorProto
from tilewright.frontend.onnx.registry import Maybe, NodeContext, Ragged, Refusal, Sequence
from tilewright.graph import sizes
from tilewright.graph.folding import Folding
from tilewright.graph.graph import Value
from tilewright.ir.expr import Expr, as_int, maximum
from tilewright.runtime.formats import FORMATS, encode, map_format
from tilewright.support.errors import ImportFault

_T = TensorProto
FLOATS = {_T.FLOAT4E2M1: "f4e2m1", _T.FLOAT8E8M0: "f8e8m0"}
_STORED = {_T.FLOAT4E2M1: _T.UINT4, _T.FLOAT8E8M0: _T.UINT8}
CODED = {*FLOATS, _T.STRING}

MOVES = frozenset(
    "Reshape Transpose Flatten Squeeze Unsqueeze Slice Gather GatherElements GatherND Split Expand"
    " Tile Concat Compress DepthToSpace SpaceToDepth ReverseSequence Where ScatterElements"
    " ScatterND Pad Trilu ArrayFeatureExtractor".split()
)  # operators whose results hold elements of their inputs, as they are
OF_SHAPES = frozenset(["Shape", "Size"])  # operators that look at no element


class Coded:
    """A tensor of floats as whole numbers in a format of `runtime.formats`."""

    def __init__(self, codes: Value, format: str) -> None:
        self.codes, self.format = codes, format

    @property
    def type_text(self) -> str:
        """For messages."""
        return self.codes.type_text.replace(self.codes.dtype.name, self.format, 1)

    def __repr__(self) -> str:
        return f"{self.codes.name}: {self.type_text}"


class Text:
    """A tensor of strings: rows of `table` [strings, width] (u32 code points, zeros at the
    ends)."""

    def __init__(self, rows: Value, table: Value) -> None:
        self.rows, self.table = rows, table

    @property
    def shape(self) -> tuple[Expr, ...]:
        return self.rows.shape

    @property
    def width(self) -> Expr:
        return self.table.shape[1]

    @property
    def type_text(self) -> str:
        """For messages."""
        return self.rows.type_text.replace(self.rows.dtype.name, "string", 1)

    def __repr__(self) -> str:
        return f"{self.rows.name}: {self.type_text}"

    def letters(self, build: Folding) -> Value:
        """The code points [*shape, width]."""
        return build.emit("gather", self.table, self.rows, axis=0)


class Maps:
    """Maps with the same keys: the rows of a matrix of their values."""

    def __init__(self, values: Value, keys: tuple[str, ...] | tuple[int, ...]) -> None:
        self.values, self.keys = values, keys

    @property
    def type_text(self) -> str:
        """For messages."""
        return f"maps of {len(self.keys)} keys to {self.values.dtype}"

    def __repr__(self) -> str:
        return f"{self.values.name}: {self.type_text}"


# making them ----------------------------------------------------------------------------------


def text_of(build: Folding, letters: Value) -> Text:
    """Strings from their code points [*shape, width]."""
    shape = letters.shape[:-1]
    count = sizes.product(shape)
    table = build.emit("reshape", letters, shape=(count, letters.shape[-1]))
    rows = build.emit("reshape", build.emit("arange", length=count), shape=shape)
    return Text(rows, table)


def constant_text(build: Folding, strings: np.ndarray, name: str = "text") -> Text:
    """A constant tensor of strings."""
    found, rows = np.unique(strings.astype(str).reshape(-1), return_inverse=True)
    if not found.size:
        found = np.zeros(1, "U1")
    table = build.constant(encode(found, "string"), f"{name}_table", "u32")
    return Text(build.constant(rows.reshape(strings.shape).astype(np.int64), name), table)


def strings_of(raw: Any) -> np.ndarray:
    """A list of ONNX's strings (bytes) as an array. Raises ImportFault."""
    try:
        return np.array([s.decode("utf-8") for s in raw], dtype=str)
    except UnicodeDecodeError as fault:
        raise ImportFault("cannot import a string", f"it is not UTF-8 ({fault})") from None


def constant_of(
    build: Folding, tensor: TensorProto, folder: Path | None, raw: Any = None, name: str = ""
) -> Any:
    """The value of a tensor of any type. Raises ImportFault."""
    label = name or tensor.name or "c"
    if tensor.data_type == _T.STRING:
        strings = strings_of(tensor.string_data)
        shape = tuple(tensor.dims)
        if min(shape, default=0) < 0 or strings.size != np.prod(shape, dtype=np.int64):
            why = f"{strings.size} strings do not fill the shape {list(shape)}"
            raise ImportFault(f"cannot import tensor '{tensor.name[:120]}'", why)
        return constant_text(build, strings.reshape(shape), label)
    format = FLOATS.get(tensor.data_type)
    if format is None:
        return build.constant(array_of(tensor, folder, raw), label)
    twin = TensorProto()
    twin.CopyFrom(tensor)
    twin.data_type = _STORED[tensor.data_type]
    return Coded(build.constant(array_of(twin, folder, raw), label, FORMATS[format]), format)


def input_of(build: Folding, name: str, type_: int, shape: list[Any]) -> Any:
    """An input of a type that is coded."""
    if type_ == _T.STRING:
        width = build.symbol(build.fresh(f"{name}_width"))
        value = build.input(name, FORMATS["string"], [*shape, width])
        build.formats[name] = "string"
        return text_of(build, value)
    build.formats[name] = FLOATS[type_]
    return Coded(build.input(name, FORMATS[FLOATS[type_]], shape), FLOATS[type_])


def output_of(build: Folding, name: str, value: Any) -> Value:
    """What the graph gives for a value; notes its format."""
    if isinstance(value, Text):
        build.formats[name] = "string"
        return value.letters(build)
    if isinstance(value, Coded):
        build.formats[name] = value.format
        return value.codes
    if isinstance(value, Maps):
        build.formats[name] = map_format(value.keys)
        return value.values
    return value


def outputs_of(build: Folding, name: str, value: Any) -> dict[str, Value]:
    """What the graph gives for a value, by name. A sequence x gives x.0, x.1, …, or, where the run
    knows its length, x.elements and x.shapes; an optional one x.present beside what it may hold."""
    if isinstance(value, Sequence):
        return {f"{name}.{k}": output_of(build, f"{name}.{k}", v) for k, v in enumerate(value)}
    if isinstance(value, Ragged):
        return {f"{name}.elements": value.data, f"{name}.shapes": value.shapes}
    if isinstance(value, Maybe):
        content = {} if value.content is None else outputs_of(build, name, value.content)
        return {f"{name}.present": value.present, **content}
    return {name: output_of(build, name, value)}


def decoded_input(build: Folding, encoded: Value, pixel_format: str) -> Value:
    """The pixels of an input that is an encoded image: the input itself comes in decoded. Raises
    Refusal if the value is no input, or is read otherwise, too."""
    format = f"image/{pixel_format}"
    if format not in FORMATS:
        raise Refusal(f"pixel_format {pixel_format!r} is not known")
    if encoded not in build.inputs or any(encoded in node.inputs for node in build.nodes):
        raise Refusal("what it decodes is not an input of the model that nothing else reads")
    at = build.inputs.index(encoded)
    name = build.input_names[at]
    height, width = (build.symbol(build.fresh(f"{name}_{what}")) for what in ("height", "width"))
    channels = 1 if pixel_format == "Grayscale" else 3
    value = build.value(f"{name}_pixels", encoded.dtype, sizes.shape((height, width, channels)))
    build.inputs[at] = value
    build.formats[name] = format
    return value


# moving them ----------------------------------------------------------------------------------


def widened(build: Folding, letters: Value, width: Expr) -> Value:
    """Code points with zeros up to a width that is not less."""
    own = letters.shape[-1]
    if own == width:
        return letters
    after = (*(0,) * (letters.rank - 1), sizes.size(width - own))
    return build.emit("pad", letters, before=(0,) * letters.rank, after=after)


def wider(a: Expr, b: Expr) -> Expr:
    """The greater of two widths."""
    known = as_int(a), as_int(b)
    if None not in known:
        return sizes.size(max(known))  # type: ignore[type-var]
    return a if a == b else sizes.size(maximum(a, b))


def in_one_table(build: Folding, texts: list[Text]) -> list[Text]:
    """The same strings as rows of one table."""
    if all(t.table == texts[0].table for t in texts):
        return texts
    width = texts[0].width
    for t in texts[1:]:
        width = wider(width, t.width)
    table = build.emit("concat", *(widened(build, t.table, width) for t in texts), axis=0)
    made, start = [], sizes.size(0)
    for t in texts:
        first = np.empty((), object)
        first[()] = start
        rows = build.emit("add", t.rows, build.from_sizes(first, t.rows.dtype))
        made.append(Text(rows, table))
        start = sizes.size(start + t.table.shape[0])
    return made


def moved(context: NodeContext, translate: Callable[[NodeContext], Any]) -> Any:
    """What an operator that moves elements makes of coded ones."""
    given = context.inputs
    texts = [v for v in given if isinstance(v, Text)]
    formats = {v.format for v in given if isinstance(v, Coded)}
    if len(formats) + bool(texts) > 1:
        raise Refusal("its inputs hold elements of different types")
    if texts:
        together = iter(in_one_table(context.build, texts))
        given = [next(together) if isinstance(v, Text) else v for v in given]
        table = next(v.table for v in given if isinstance(v, Text))
        context.inputs = [v.rows if isinstance(v, Text) else v for v in given]
    else:
        context.inputs = [v.codes if isinstance(v, Coded) else v for v in given]
    made = translate(context)
    if context.op in OF_SHAPES:
        return made

    def wrapped(v: Value) -> Any:
        return Text(v, table) if texts else Coded(v, *formats)

    return tuple(map(wrapped, made)) if isinstance(made, tuple) else wrapped(made)
