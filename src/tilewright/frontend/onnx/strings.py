"""Translators of ONNX operators on strings, which are rows of code points here (see `coded`)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from tilewright.frontend.onnx import data_dependent
from tilewright.frontend.onnx import elementwise as _  # noqa: F401  (registers Equal)
from tilewright.frontend.onnx.coded import Text, constant_text, text_of, widened, wider
from tilewright.frontend.onnx.data_dependent import op
from tilewright.frontend.onnx.regex import compile_pattern
from tilewright.frontend.onnx.registry import TRANSLATORS, NodeContext, Refusal, translates
from tilewright.frontend.onnx.runtime_broadcast import broadcast_operands
from tilewright.frontend.onnx.vision import scalar
from tilewright.graph import sizes
from tilewright.graph.graph import Value
from tilewright.graph.operator import broadcast_shape

SPACES = (*range(9, 14), *range(28, 33), 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B),
          0x2028, 0x2029, 0x202F, 0x205F, 0x3000)  # fmt: skip


def text(n: NodeContext, k: int) -> Text:
    """Input `k`, which must hold strings."""
    found = n.optional(k)
    if not isinstance(found, Text):
        raise Refusal(f"input {k} does not hold strings")
    return found


def flat(n: NodeContext, x: Text) -> Value:
    """The code points of all strings: [strings, width]."""
    letters = x.letters(n.build)
    return n.build.emit("reshape", letters, shape=(sizes.product(x.shape), x.width))


def lengths(n: NodeContext, letters: Value) -> Value:
    """How many letters each row has."""
    there = n.build.emit("not_equal", letters, n.constant(0, "u32"))
    return op(n, "reduce_sum", op(n, "cast", there, to="i64"), axes=(letters.rank - 1,))


def broadcast_texts(n: NodeContext, a: Text, b: Text) -> tuple[Text, Text]:
    """Both, of shapes that broadcast: the run finds it out where sizes do not show it."""
    one, two = broadcast_operands(n, (a.rows, b.rows))
    return Text(one, a.table), Text(two, b.table)


def equal(n: NodeContext, a: Text, b: Text) -> Value:
    """Where strings are the same, broadcast."""
    a, b = broadcast_texts(n, a, b)
    width = wider(a.width, b.width)
    one, two = (widened(n.build, t.letters(n.build), width) for t in (a, b))
    same = n.build.emit("equal", one, two)
    return n.build.emit("reduce_all", same, axes=(same.rank - 1,))


@translates("StringConcat")
def concat(n: NodeContext) -> Any:
    x, y = broadcast_texts(n, text(n, 0), text(n, 1))
    shape, width = broadcast_shape(x.shape, y.shape), sizes.size(x.width + y.width)

    def spread(t: Text) -> Value:
        rows = t.rows if t.shape == shape else n.build.emit("expand", t.rows, shape=shape)
        return flat(n, Text(rows, t.table))

    left, right = spread(x), spread(y)
    count = sizes.product(shape)
    position = op(n, "reshape", op(n, "arange", length=width), shape=(1, width))
    size = op(n, "reshape", lengths(n, left), shape=(count, 1))
    wide = widened(n.build, left, width)
    behind = op(n, "sub", position, size)  # where a letter of the second string would come from
    inside = op(n, "logical_and", op(n, "greater_equal", behind, 0),
                op(n, "less", behind, scalar(n, y.width)))  # fmt: skip
    source = op(n, "maximum", op(n, "where", inside, behind, 0), 0)
    letter = op(n, "gather_elements", right, source, axis=1)
    made = n.build.emit("where", inside, letter, wide)
    return text_of(n.build, n.build.emit("reshape", made, shape=(*shape, width)))


def among(n: NodeContext, letters: Value, codes: Sequence[int]) -> Value:
    """Which letters are of a few."""
    wide = n.build.emit("reshape", letters, shape=(*letters.shape, 1))
    same = n.build.emit("equal", wide, n.constant(list(codes), "u32"))
    return n.build.emit("reduce_any", same, axes=(letters.rank,))


def begins(n: NodeContext, letters: Value, mark: str) -> Value:
    """Where a given text begins in rows of letters."""
    width = letters.shape[1]
    row = op(n, "reshape", op(n, "arange", length=width), shape=(width, 1))
    positions = op(n, "add", row, op(n, "arange", length=len(mark)))
    wide = widened(n.build, letters, sizes.size(width + len(mark) - 1))
    window = n.build.emit("gather", wide, positions, axis=1)
    same = n.build.emit("equal", window, n.constant(list(map(ord, mark)), "u32"))
    return n.build.emit("reduce_all", same, axes=(2,))


@translates("StringSplit")
def split(n: NodeContext) -> Any:
    """The parts of each string, as many columns as the longest row has, and how many there are."""
    x, mark, most = text(n, 0), n.text("delimiter"), n.int("maxsplit", -1)
    rows, width = flat(n, x), x.width
    count = rows.shape[0]
    marks = begins(n, rows, mark) if mark else among(n, rows, SPACES)
    attrs = {"length": len(mark), "most": max(most, -1)}
    starts, ends, counts = n.build.emit("split_text", rows, marks, **attrs)
    some = op(n, "concat", counts, data_dependent.numbers(n, [0]), axis=0)
    longest = op(n, "reduce_max", some, axes=(0,), keepdims=True)
    (parts,) = data_dependent.measure(n, longest, "the number of parts")

    def column(v: Value) -> Value:
        cut = op(n, "slice", v, starts=(0, 0), shape=(count, parts))
        return op(n, "reshape", cut, shape=(count, parts, 1))

    start, end = column(starts), column(ends)
    position = op(n, "add", start, op(n, "arange", length=width))
    inside = op(n, "less", position, end)
    position = op(n, "where", inside, position, 0)
    flat_position = op(n, "reshape", position, shape=(count, sizes.size(parts * width)))
    letters = op(n, "gather_elements", rows, flat_position, axis=1)
    letters = op(n, "reshape", letters, shape=(count, parts, width))
    letters = n.build.emit("where", inside, letters, n.constant(0, "u32"))
    made = op(n, "reshape", letters, shape=(*x.shape, parts, width))
    return text_of(n.build, made), op(n, "reshape", counts, shape=x.shape)


@cache
def cases(upper: bool) -> np.ndarray:
    """The other case of each code point, up to the last that has one of a single letter."""
    made = np.arange(0x1E944, dtype=np.uint32)
    for code in range(len(made)):
        if not 0xD800 <= code < 0xE000:
            other = chr(code).upper() if upper else chr(code).lower()
            if len(other) == 1:
                made[code] = ord(other)
    return made


def in_case(n: NodeContext, letters: Value, action: str) -> Value:
    """Code points in upper or lower case."""
    table = cases(action == "UPPER")
    inside = n.build.emit("less", letters, n.constant(len(table), "u32"))
    position = op(n, "where", inside, op(n, "cast", letters, to="i64"), 0)
    changed = op(n, "gather", n.build.constant(table, "cases"), position, axis=0)
    return n.build.emit("where", inside, changed, letters)


@translates("StringNormalizer")
def normalise(n: NodeContext) -> Any:
    """Strings without the stop words, in another case if asked; an empty string if none stay."""
    x, words = text(n, 0), n.texts("stopwords", ())
    action, exact = n.text("case_change_action", "NONE"), n.flag("is_case_sensitive")
    if action not in ("NONE", "UPPER", "LOWER") or len(x.shape) not in (1, 2):
        raise Refusal(f"it changes case by {action!r}, or its input is no list of strings")
    count = sizes.product(x.shape)
    letters = flat(n, x)
    if words:
        own = letters if exact else in_case(n, letters, "LOWER")
        stops = constant_text(n.build, np.array([w if exact else w.lower() for w in words]))
        column = text_of(n.build, n.build.emit("reshape", own, shape=(count, 1, x.width)))
        stopped = equal(n, column, Text(op(n, "reshape", stops.rows, shape=(1, len(words))),
                                        stops.table))  # fmt: skip
        kept = n.build.emit("logical_not", n.build.emit("reduce_any", stopped, axes=(1,)))
    else:
        kept = n.build.emit("full", shape=(count,), value=1, of="bool")
    if action != "NONE":
        letters = in_case(n, letters, action)
    positions, found = n.build.emit("nonzero", kept)
    (many,) = data_dependent.measure(n, op(n, "maximum", found, 1), "the strings that stay")
    blank = n.build.emit("full", shape=(1, x.width), value=0, of="u32")
    table = n.build.emit("concat", letters, blank, axis=0)
    positions = op(n, "concat", positions, data_dependent.numbers(n, [0]), axis=0)
    chosen = op(n, "slice", positions, starts=(0,), shape=(many,))
    rows = op(n, "where", op(n, "equal", found, 0), scalar(n, count), chosen)
    shape = (many,) if len(x.shape) == 1 else (1, many)
    return Text(op(n, "reshape", rows, shape=shape), table)


@translates("RegexFullMatch")
def full_match(n: NodeContext) -> Any:
    """Does the pattern match all of each string? It becomes a finite automaton when compiling."""
    x = text(n, 0)
    automaton = compile_pattern(n.text("pattern"))
    letters = op(n, "cast", flat(n, x), to="i64")
    edges = data_dependent.numbers(n, automaton.edges[None, None, :])
    wide = op(n, "reshape", letters, shape=(*letters.shape, 1))
    passed = op(n, "cast", op(n, "greater_equal", wide, edges), to="i64")
    classes = op(n, "reduce_sum", passed, axes=(2,))  # class 0: the end of the string
    state = op(n, "automaton", classes, data_dependent.numbers(n, automaton.table))
    accepted = n.build.constant(automaton.accepts, "accepts")
    matched = n.build.emit("gather", accepted, state, axis=0)
    return n.build.emit("reshape", matched, shape=x.shape, name=n.node.output[0])


def chosen(n: NodeContext, x: Text, keys: np.ndarray) -> tuple[Value, Value]:
    """For each string its position among constant keys (the first of equals), and whether it is one
    of them."""
    table = constant_text(n.build, keys)
    column = Text(op(n, "reshape", x.rows, shape=(*x.shape, 1)), x.table)
    same = equal(n, column, table)
    position = op(n, "argmax", op(n, "cast", same, to="i32"), axis=same.rank - 1)
    return position, n.build.emit("reduce_any", same, axes=(same.rank - 1,))


_equal_numbers = TRANSLATORS["", "Equal"]  # as `elementwise` registers it


@translates("Equal")
def equal_elements(n: NodeContext) -> Any:
    """x = y, for numbers or strings."""
    if isinstance(n.optional(0), Text):
        return equal(n, text(n, 0), text(n, 1))
    return _equal_numbers(n)
