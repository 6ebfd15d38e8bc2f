"""Translators of ai.onnx.ml operators that look labels up in constant tables."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.frontend.onnx.coded import Text, constant_of, constant_text
from tilewright.frontend.onnx.machine_learning import ML
from tilewright.frontend.onnx.registry import NodeContext, Refusal, translates
from tilewright.frontend.onnx.strings import chosen, text
from tilewright.graph.graph import Value

KINDS = ("strings", "int64s", "floats")
DEFAULTS = {"strings": ("default_string", "_Unused"), "int64s": ("default_int64", -1),
            "floats": ("default_float", -0.0)}  # fmt: skip
DTYPES = {"int64s": np.int64, "floats": np.float32}


def listed(n: NodeContext, what: str) -> np.ndarray | None:
    """The attribute `what`_tensor, _strings, _int64s or _floats as an array."""
    if f"{what}_tensor" in n.attributes:
        return tensor(n, f"{what}_tensor")
    for kind in KINDS:
        if f"{what}_{kind}" in n.attributes:
            read = {"strings": n.texts, "int64s": n.ints, "floats": n.floats}[kind]
            found = read(f"{what}_{kind}")
            return np.array(found, dtype=DTYPES.get(kind, str))
    return None


def tensor(n: NodeContext, name: str) -> np.ndarray:
    """An attribute's tensor, of strings too."""
    proto = n.attributes[name].t
    value = constant_of(n.build, proto, n.importer.folder)
    if isinstance(value, Text):
        return np.array([s.decode("utf-8") for s in proto.string_data], dtype=str)
    return n.build.constants[value].array.reshape(-1)


def position_of(n: NodeContext, keys: np.ndarray) -> tuple[Value, Value]:
    """For each element of the first input its position among the keys, and whether it is one."""
    if keys.dtype.kind == "U":
        return chosen(n, text(n, 0), keys)
    x, build = n[0], n.build
    wide = build.emit("reshape", x, shape=(*x.shape, 1))
    same = build.emit("equal", wide, n.constant(keys.astype(x.dtype.numpy)))
    if x.dtype.is_float and np.isnan(keys.astype(np.float64)).any():
        blank = n.constant(np.isnan(keys.astype(np.float64)))
        unlike = build.emit("logical_and", build.emit("isnan", wide), blank)
        same = build.emit("logical_or", same, unlike)
    last = same.rank - 1
    position = build.emit("argmax", build.emit("cast", same, to="i32"), axis=last)
    return position, build.emit("reduce_any", same, axes=(last,))


def looked_up(n: NodeContext, keys: np.ndarray, values: np.ndarray, default: Any) -> Any:
    """The value of each element's key, or the default."""
    position, found = position_of(n, keys)
    if values.dtype.kind == "U":
        table = constant_text(n.build, np.append(values, default))
        rows = n.build.emit("where", found, position, n.constant(len(values), "i64"))
        return Text(n.build.emit("gather", table.rows, rows, axis=0), table.table)
    chosen_ = n.build.emit("gather", n.constant(values), position, axis=0)
    other = n.constant(np.asarray(default, values.dtype))
    return n.emit("where", found, chosen_, other)


@translates("LabelEncoder", domain=ML)
def label_encoder(n: NodeContext) -> Any:
    """The value of each key; what is no key gets the default."""
    if n.version < 2:
        raise Refusal("it is of version 1", "convert it to version 2")
    keys, values = listed(n, "keys"), listed(n, "values")
    if keys is None or values is None or keys.size != values.size:
        raise Refusal("it needs as many values as keys")
    if "default_tensor" in n.attributes:
        default = tensor(n, "default_tensor").reshape(-1)[0]
    elif values.dtype.kind == "U":
        default = n.text(*DEFAULTS["strings"])
    elif values.dtype.kind == "f":
        default = n.float(*DEFAULTS["floats"])
    else:
        default = n.int(*DEFAULTS["int64s"])
    return looked_up(n, keys, values, default)


@translates("CategoryMapper", domain=ML)
def category_mapper(n: NodeContext) -> Any:
    """Strings to numbers or numbers to strings."""
    names = np.array(n.texts("cats_strings", ()), dtype=str)
    numbers = np.array(n.ints("cats_int64s", ()), np.int64)
    if not names.size or names.size != numbers.size:
        raise Refusal("it needs as many names as numbers")
    if isinstance(n.optional(0), Text):
        return looked_up(n, names, numbers, n.int("default_int64", -1))
    return looked_up(n, numbers, names, n.text("default_string", "_Unused"))


@translates("OneHotEncoder", domain=ML)
def one_hot(n: NodeContext) -> Any:
    """A row of f32 for each element: 1 at its category, else 0."""
    names, numbers = n.texts("cats_strings"), n.ints("cats_int64s")
    if isinstance(n.optional(0), Text) != (names is not None):
        raise Refusal("its categories are not of its input's type")
    keys = np.array(names if names is not None else numbers or ())
    if not keys.size:
        raise Refusal("it has no categories")
    if not n.flag("zeros", True):
        raise Refusal("it fails for unknown categories", "set its attribute zeros to 1")
    position, found = position_of(n, keys)
    values = n.constant(np.array([0, 1], np.float32))
    row = n.build.emit("one_hot", position, values, depth=len(keys), axis=-1)
    wide = n.build.emit("reshape", found, shape=(*found.shape, 1))
    return n.emit("where", wide, row, n.constant(0.0, "f32"))


@translates("Imputer", domain=ML)
def imputer(n: NodeContext) -> Any:
    """Values instead of those that stand for none, one for each column or one for all."""
    x = n[0]
    if x.dtype.is_float:
        values, missing = n.floats("imputed_value_floats"), n.float("replaced_value_float", 0.0)
    else:
        values, missing = n.ints("imputed_value_int64s"), n.int("replaced_value_int64", 0)
    if not values:
        raise Refusal("it has no values to put in")
    if missing != missing:
        gone = n.build.emit("isnan", x)
    else:
        gone = n.build.emit("equal", x, n.constant(missing, x.dtype))
    return n.emit("where", gone, n.constant(list(values), x.dtype), x)


@translates("FeatureVectorizer", domain=ML)
def feature_vectorizer(n: NodeContext) -> Any:
    """The columns of all inputs side by side, as f32."""
    columns = []
    for k in range(len(n.inputs)):
        x = n[k] if n[k].rank > 1 else n.build.emit("reshape", n[k], shape=(n[k].elements, 1))
        x = n.build.emit("reshape", x, shape=(x.shape[0], _rest(x)))
        columns.append(x if x.dtype.name == "f32" else n.build.emit("cast", x, to="f32"))
    return columns[0] if len(columns) == 1 else n.emit("concat", *columns, axis=1)


def _rest(x: Value) -> Any:
    total: Any = 1
    for s in x.shape[1:]:
        total = s * total
    return total
