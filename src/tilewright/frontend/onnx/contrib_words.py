"""Translators of `com.microsoft` operators on the numbers of words and characters: hashes of
n-grams, words read letter by letter, guesses of words, paths along two texts.

Source of their meaning: onnxruntime's docs/ContribOperators.md; the tests compare with onnxruntime.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.frontend.onnx.contrib import DOMAIN, results
from tilewright.frontend.onnx.contrib_packed import Packed
from tilewright.frontend.onnx.data_dependent import FAR, counted, measure, op, view_of
from tilewright.frontend.onnx.loops import within
from tilewright.frontend.onnx.registry import NodeContext, Refusal, translates
from tilewright.graph import sizes
from tilewright.graph.bounds import from_start
from tilewright.graph.graph import Value
from tilewright.ir.expr import as_int

# Hashes of n-grams --------------------------------------------------------------------------------


@translates("NGramHashMapping", domain=DOMAIN)
def ngram_hashes(n: NodeContext) -> Any:
    """Hashes [B, S, heads] of each token and those before it; and the last tokens, for the next
    call."""
    ids, segments, back = n[0], n.optional(6), order_of(n) - 1
    (batch, length), past = ids.shape, n.optional(3)
    if past is None:
        past = op(n, "expand", filler(n, ids), shape=(batch, back))
    whole = op(n, "concat", past, ids, axis=1)

    def earlier(k: int) -> Value:
        return op(n, "slice", whole, starts=(0, back - k), shape=(batch, length))

    def starts(k: int) -> Value:
        """Whether another segment starts with the token k before this one."""
        assert segments is not None
        first = op(n, "slice", segments, starts=(0, 0), shape=(batch, 1))
        line = op(n, "concat", *[first] * (k + 1), segments, axis=1)
        here, there = (op(n, "slice", line, starts=(0, at), shape=(batch, length)) for at in (1, 0))
        return op(n, "not_equal", here, there)

    y = hashes(n, earlier, None if segments is None else starts, 4, 5)
    kept = op(n, "slice", whole, starts=(0, length), shape=(batch, back))
    return results(n, y, kept)


@translates("VarlenNGramHashMapping", domain=DOMAIN)
def packed_ngram_hashes(n: NodeContext) -> Any:
    """The same of requests that are packed end to end."""
    ids, past, segments, back = n[0], n.optional(4), n.optional(7), order_of(n) - 1
    if n.int("state_update_capacity", 0):
        raise Refusal("it captures states of prefixes", "leave state_update out")
    packed = Packed(n, n[3], ids.shape[0])
    if past is None:
        past = op(n, "expand", filler(n, ids, 6), shape=(packed.batch, back))
    old = n.optional(8)
    if segments is not None and old is None:  # that of the first token: nothing starts with it
        old = op(n, "gather", segments, op(n, "reshape", packed.first, shape=(packed.batch, 1)),
                 axis=0)  # fmt: skip
        old = op(n, "expand", old, shape=(packed.batch, back))

    def earlier(k: int) -> Value:
        return packed.before(ids, past, k) if k else ids

    def starts(k: int) -> Value:
        here = packed.before(segments, old, k) if k else segments
        return op(n, "not_equal", here, packed.before(segments, old, k + 1))

    y = hashes(n, earlier, None if segments is None else starts, 5, 6)
    kept = None if segments is None else packed.last(segments, old)
    return results(n, y, packed.last(ids, past), kept)


def order_of(n: NodeContext) -> int:
    order, heads = n.int("max_ngram_size", 0), n.int("n_head_per_ngram", 0)
    if order < 2 or heads < 1 or n.int("pad_id") is None:
        raise Refusal("it needs pad_id, a greatest size of n-grams of at least 2, and heads")
    return order


def filler(n: NodeContext, ids: Value, end: int = 5) -> Value:
    """What stands before the first token, [1, 1]: the one that ends sequences, if input `end` is
    there."""
    if n.optional(end) is not None:
        return op(n, "reshape", n[end], shape=(1, 1))
    return op(n, "reshape", n.constant(n.int("pad_id"), ids.dtype), shape=(1, 1))


def hashes(
    n: NodeContext,
    earlier: Callable[[int], Value],
    starts: Callable[[int], Value] | None,
    offsets: int,
    end: int,
) -> Value:
    """Of each token its products with those before it (`earlier(k)`), joined by "xor", as
    remainders; nothing is seen across the end of a sequence or where a segment `starts`."""
    order, heads = order_of(n), n.int("n_head_per_ngram")
    tokens, found = earlier(0), []
    fill = op(n, "reshape", filler(n, tokens, end), shape=())
    ends = n[end] if n.optional(end) is not None and n.flag("reset_on_eos") else None
    apart: Value | None = None
    mixed: Value | None = None
    for k in range(order):
        token = earlier(k)
        if k:
            reasons = [] if apart is None else [apart]
            if ends is not None:
                reasons.append(op(n, "equal", token, op(n, "reshape", ends, shape=())))
            if starts is not None:
                reasons.append(starts(k - 1))
            for reason in reasons:
                apart = reason if apart is None else op(n, "logical_or", apart, reason)
            token = token if apart is None else op(n, "where", apart, fill, token)
        by = op(n, "slice", n[1], starts=(k,), shape=(1,))
        product = op(n, "mul", token, op(n, "reshape", by, shape=()))
        mixed = product if mixed is None else op(n, "bit_xor", mixed, product)
        if k:
            of = op(n, "slice", n[2], starts=((k - 1) * heads,), shape=(heads,))
            column = op(n, "reshape", mixed, shape=(*tokens.shape, 1))
            found.append(op(n, "floormod", column, of))
    y = op(n, "concat", *found, axis=tokens.rank) if len(found) > 1 else found[0]
    return y if n.optional(offsets) is None else op(n, "add", y, n[offsets])


# Letters ------------------------------------------------------------------------------------------


@translates("WordConvEmbedding", domain=DOMAIN)
def words_of_letters(n: NodeContext) -> Any:
    """Of words [W, letters] (0 behind the last one) the greatest of tanh of a convolution over the
    letters' rows in a table, among the positions where all taps cover letters, or the first: [W,
    filters]; 0 for a word without letters."""
    letters, w, bias, table = n[0], n[1], n[2], n[3]
    taps = as_int(w.shape[2])
    if letters.rank != 2 or w.rank != 4 or not taps:
        raise Refusal("it needs words [words, letters] and a known window of letters")
    words = letters.shape[0]
    at = n.checked(letters, from_start(table.shape[0]))
    rows = op(n, "transpose", op(n, "gather", table, at, axis=0), perm=(0, 2, 1))
    filters = op(n, "reshape", w, shape=(w.shape[0], taps, w.shape[3]))
    filters = op(n, "transpose", filters, perm=(0, 2, 1))
    y = op(n, "tanh", op(n, "conv", rows, filters, bias))  # [W, filters, positions]
    is_letter = op(n, "not_equal", letters, n.constant(0, letters.dtype))
    count = op(n, "cast", is_letter, to="i64")
    count = op(n, "reduce_sum", count, axes=(1,), keepdims=True)
    position = op(n, "arange", length=y.shape[2])
    last = op(n, "maximum", op(n, "sub", count, taps), 0)
    covered = op(n, "less_equal", op(n, "reshape", position, shape=(1, y.shape[2])), last)
    covered = op(n, "reshape", covered, shape=(words, 1, y.shape[2]))
    y = op(n, "reduce_max", op(n, "where", covered, y, n.constant(-1.0, "f32")), axes=(2,))
    first = op(n, "slice", is_letter, starts=(0, 0), shape=(words, 1))
    return n.emit("where", first, y, n.constant(0.0, "f32"))


# Guesses that are checked -------------------------------------------------------------------------


@translates("BifurcationDetector", domain=DOMAIN)
def bifurcation(n: NodeContext) -> Any:
    """What was said [C] with as much of a guess [P] as the source [S] bears out, and one more; and
    behind which position of the source its end stands there once (-1: nowhere, or several
    times)."""
    source, said, start, guess = n[0], n[1], n[2], n.optional(3)
    shortest, longest = n.int("min_ngram_size", 1), n.int("max_ngram_size", 3)
    size = source.shape[0]
    last = op(n, "sub", counted(n, size), 1)

    def of_source(at: Value) -> Value:
        return op(n, "gather", source, op(n, "minimum", at, last), axis=0)

    words = said
    if guess is not None:
        most = sizes.size(size + 1 - guess.shape[0])  # a guess reaches beyond the source by one
        start = op(n, "reshape", n.checked(start, [(most, most)]), shape=(1,))
        at = op(n, "add", op(n, "arange", length=guess.shape[0]), start)
        same = op(n, "equal", guess, of_source(at))
        same = op(n, "logical_and", same, op(n, "less_equal", at, last))
        run = op(n, "cumprod", op(n, "cast", same, to="i64"), axis=0)
        right = op(n, "reduce_sum", run, axes=(0,), keepdims=True)
        (count,) = measure(n, op(n, "add", right, 1), "how much of the guess is right")
        words = op(n, "concat", said, op(n, "slice", guess, starts=(0,), shape=(count,)), axis=0)
    position, total = op(n, "arange", length=size), counted(n, words.shape[0])
    found = n.build.constant(np.array([-1]), "none")
    goes_on = n.build.constant(np.array([True]), "on")
    for many in range(shortest, longest + 1):
        matches = op(n, "less_equal", op(n, "add", position, many - 1), last)
        for k in range(many):
            own = op(n, "maximum", op(n, "add", total, k - many), 0)
            here = of_source(op(n, "add", position, k))
            matches = op(
                n, "logical_and", matches, op(n, "equal", here, op(n, "gather", words, own, axis=0))
            )
        times = op(n, "reduce_sum", op(n, "cast", matches, to="i64"), axes=(0,), keepdims=True)
        behind = op(n, "where", matches, op(n, "add", position, many), n.constant(FAR, "i64"))
        behind = op(n, "reduce_min", behind, axes=(0,), keepdims=True)
        goes_on = op(n, "logical_and", goes_on, op(n, "greater_equal", total, many))
        is_end = op(n, "greater_equal", behind, counted(n, size))
        is_clear = op(n, "logical_or", op(n, "equal", times, 1), is_end)
        several = op(n, "greater", times, 1)
        one = op(n, "logical_and", op(n, "greater", times, 0), is_clear)
        found = op(n, "where", op(n, "logical_and", goes_on, one), behind, found)
        more = op(n, "logical_and", several, op(n, "logical_not", is_end))
        goes_on = op(n, "logical_and", goes_on, more)
    return results(n, op(n, "copy", words) if words is said else words, found)


# Paths --------------------------------------------------------------------------------------------

DIAGONAL = """diagonal (float[m1] before, float[m1] last, float[m] cost)
    => (float[m1] last_, float[m1] now, int64[m] moves) {
    zero = Constant<value_ints: ints = [0]>()
    one = Constant<value_ints: ints = [1]>()
    minus = Constant<value_ints: ints = [-1]>()
    far = Constant<value_ints: ints = [9223372036854775807]>()
    stay = Constant<value = int64 {2}>()
    down = Constant<value = int64 {1}>()
    both = Constant<value = int64 {0}>()
    a = Slice(before, zero, minus)
    b = Slice(last, zero, minus)
    c = Slice(last, one, far)
    ab = Less(a, b)
    ac = Less(a, c)
    isa = And(ab, ac)
    ba = Less(b, a)
    bc = Less(b, c)
    isb = And(ba, bc)
    bore = Where(isb, b, c)
    least = Where(isa, a, bore)
    total = Add(least, cost)
    border = Slice(last, zero, one)
    now = Concat<axis = 0>(border, total)
    last_ = Identity(last)
    bc_ = Where(isb, down, stay)
    moves = Where(isa, both, bc_)
}"""

BACK = """back (int64 round, bool on, int64[1] i, int64[1] j)
    => (bool goes, int64[1] i2, int64[1] j2, int64[2] point) {
    stay = Constant<value = int64 {2}>()
    down = Constant<value = int64 {1}>()
    none = Constant<value = int64 {0}>()
    point = Concat<axis = 0>(i, j)
    diagonal = Add(i, j)
    line = Mul(diagonal, width)
    at = Add(line, i)
    move = Gather(moves, at)
    goes_down = Less(move, stay)
    goes_right = Equal(move, down)
    right_ = Not(goes_right)
    di = Cast<to = 7>(goes_down)
    dj = Cast<to = 7>(right_)
    i2 = Sub(i, di)
    j2 = Sub(j, dj)
    left = GreaterOrEqual(i2, none)
    goes = Squeeze(left)
}"""


@translates("DynamicTimeWarping", domain=DOMAIN)
def warping(n: NodeContext) -> Any:
    """The path of least cost from one corner of costs [M, N] to the other, i32 [2, points]: sums
    diagonal by diagonal, each with the move that led there, then back from the end."""
    from onnx.parser import parse_graph

    cost = n[0]
    if cost.rank == 3:
        cost = view_of(n, cost, cost.shape[1:])
    rows, columns = cost.shape
    steps = sizes.size(rows + columns - 1)
    step = op(n, "reshape", op(n, "arange", length=steps), shape=(steps, 1))
    i = op(n, "reshape", op(n, "arange", length=rows), shape=(1, rows))
    j = op(n, "sub", step, i)
    held = op(n, "minimum", op(n, "maximum", j, 0), op(n, "sub", counted(n, columns), 1))
    inside = op(n, "equal", j, held)
    pair = [op(n, "reshape", op(n, "expand", v, shape=(steps, rows)), shape=(steps, rows, 1))
            for v in (i, held)]  # fmt: skip
    skewed = op(n, "gather_nd", cost, op(n, "concat", *pair, axis=2))
    infinite = n.constant(np.inf, "f32")
    skewed = op(n, "where", inside, skewed, infinite)
    wide = sizes.size(rows + 1)
    at = op(n, "arange", length=wide)
    nowhere = op(n, "full", shape=(wide,), value=np.inf, of="f32")
    origin = op(n, "where", op(n, "equal", at, 0), n.constant(0.0, "f32"), nowhere)
    *_, moves = n.apply(
        "Scan", origin, nowhere, skewed, body=parse_graph(DIAGONAL), num_scan_inputs=1
    )
    flat = op(n, "reshape", moves, shape=(sizes.size(steps * rows),))
    ends = [op(n, "sub", counted(n, size), 1) for size in (rows, columns)]
    limit = op(n, "reshape", counted(n, steps), shape=())
    with within(n, {"moves": flat, "width": counted(n, rows)}):
        *_, points = n.apply(
            "Loop", limit, n.constant(np.array(True)), *ends, body=parse_graph(BACK)
        )
    count = points.shape[0]
    order = op(n, "sub", op(n, "sub", counted(n, count), 1), op(n, "arange", length=count))
    path = op(n, "transpose", op(n, "gather", points, order, axis=0), perm=(1, 0))
    return n.emit("cast", path, to="i32")
