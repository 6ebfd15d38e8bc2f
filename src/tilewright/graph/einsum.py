"""Einstein summation as sums, transposes, views and matrix products.

In: a builder, an equation ("bij,bjk->bik", ellipses allowed) and tensors. Out: a tensor. Operands
are taken together from left to right; the labels of two operands are a batch (in both and needed
later), the rows and columns (in one), or summed (in both and never needed again).
"""

from __future__ import annotations

import string
from collections.abc import Sequence

from tilewright.graph import sizes
from tilewright.graph.builder import Builder
from tilewright.graph.graph import Value
from tilewright.graph.operator import ONE, Unequal, need_same
from tilewright.support.errors import CompileError


def einsum(build: Builder, equation: str, operands: Sequence[Value]) -> Value:
    """The sum that `equation` describes. Raises CompileError if it does not fit the operands."""
    terms, result = parsed(equation, operands)
    diagonals = [diagonal(build, *part) for part in zip(terms, operands, strict=True)]
    terms, operands = [label for label, _ in diagonals], [value for _, value in diagonals]
    parts = list(zip(terms, operands, strict=True))
    label, value = parts[0]
    for n, (other_label, other) in enumerate(parts[1:], 1):
        later = set(result).union(*[t for t, _ in parts[n + 1 :]])
        label, value = pair(build, label, value, other_label, other, later)
    label, value = summed(build, label, value, set(result))
    perm = tuple(label.index(c) for c in result)
    return value if perm == tuple(range(len(perm))) else build.emit("transpose", value, perm=perm)


def diagonal(build: Builder, label: str, value: Value) -> tuple[str, Value]:
    """A label that an operand repeats runs along both axes at once: 0 elsewhere, then a sum."""
    while len(set(label)) != len(label):
        first, second = next(
            (d, e) for d in range(len(label)) for e in range(d) if label[d] == label[e]
        )
        indices = []
        for d in (first, second):
            shape = tuple(s if k == d else 1 for k, s in enumerate(value.shape))
            at = build.emit("arange", length=value.shape[d])
            indices.append(build.emit("reshape", at, shape=shape))
        zero = build.constant(0, "zero", value.dtype)
        kept = build.emit("where", build.emit("equal", *indices), value, zero)
        value = build.emit("reduce_sum", kept, axes=(first,))
        label = label[:first] + label[first + 1 :]
    return label, value


def parsed(equation: str, operands: Sequence[Value]) -> tuple[list[str], str]:
    """The labels of each operand and of the result, ellipses replaced by labels of their own."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(operands):
        raise refuse(equation, f"it has {len(terms)} operands, not {len(operands)}")
    spare = [c for c in string.ascii_letters if c not in equation]
    widest = max(
        (
            v.rank - len(t.replace("...", ""))
            for t, v in zip(terms, operands, strict=True)
            if "..." in t
        ),
        default=0,
    )
    if widest < 0 or widest > len(spare):
        raise refuse(equation, "an operand has too few or too many axes")
    dots = "".join(spare[:widest])
    labels: list[str] = []
    for term, value in zip(terms, operands, strict=True):
        width = value.rank - len(term.replace("...", ""))
        label = term.replace("...", dots[len(dots) - width :] if width > 0 else "")
        if len(label) != value.rank or not (label.isalpha() or not label):
            raise refuse(equation, f"'{term}' does not fit {value.type_text}")
        labels.append(label)
    if arrow:
        result = right.replace("...", dots)
    else:
        joined = "".join(t.replace("...", "") for t in terms)
        result = dots + "".join(sorted(c for c in set(joined) if joined.count(c) == 1))
    known = set("".join(labels))
    if len(set(result)) != len(result) or not set(result) <= known:
        raise refuse(equation, "its result repeats a label or names one that no operand has")
    return labels, result


def refuse(equation: str, why: str) -> CompileError:
    return CompileError(f"cannot build einsum '{equation[:80]}'", why)


def summed(build: Builder, label: str, value: Value, kept: set[str]) -> tuple[str, Value]:
    """Sum over the labels that are not kept."""
    axes = tuple(d for d, c in enumerate(label) if c not in kept)
    if not axes:
        return label, value
    total = build.emit("reduce_sum", value, axes=axes)
    return "".join(c for c in label if c in kept), total


def pair(build: Builder, a: str, x: Value, b: str, y: Value, later: set[str]) -> tuple[str, Value]:
    """Two operands taken together; `later`: labels that are needed afterwards."""
    a, x = summed(build, a, x, later | set(b))
    b, y = summed(build, b, y, later | set(a))
    shared = [c for c in a if c in b]
    batch = [c for c in shared if c in later]
    inner = [c for c in shared if c not in later]
    rows = [c for c in a if c not in shared]
    columns = [c for c in b if c not in shared]
    size = dict(zip(b, y.shape, strict=True))
    for c, s in zip(a, x.shape, strict=True):
        if size.get(c, ONE) == ONE:
            size[c] = s
        elif s != ONE:
            try:
                why = f"'{c}' is {sizes.text(s)} of one operand, {sizes.text(size[c])} of another"
                need_same(s, size[c], why)
            except Unequal as fault:
                raise refuse(f"{a},{b}", str(fault)) from None

    def arranged(label: str, value: Value, order: list[str]) -> Value:
        perm = tuple(label.index(c) for c in order)
        if perm != tuple(range(len(perm))):
            value = build.emit("transpose", value, perm=perm)
        return value

    left = arranged(a, x, [*batch, *rows, *inner])
    right = arranged(b, y, [*batch, *columns, *inner])
    if not inner:  # no sum: an outer product
        left = build.emit("reshape", left, shape=(*left.shape, *[1] * len(columns)))
        middle = (*right.shape[: len(batch)], *[1] * len(rows), *right.shape[len(batch) :])
        right = build.emit("reshape", right, shape=middle)
        return "".join([*batch, *rows, *columns]), build.emit("mul", left, right)

    if not (batch or rows or columns):
        return "", build.emit("reduce_sum", build.emit("mul", left, right))

    def matrix(value: Value, count: int) -> Value:
        lead, free = value.shape[: len(batch)], value.shape[len(batch) : len(batch) + count]
        depth = sizes.product(size[c] for c in inner)
        return build.emit("reshape", value, shape=(*lead, sizes.product(free), depth))

    left, right = matrix(left, len(rows)), matrix(right, len(columns))
    made = build.emit("matmul", left, right, transpose_b=True)
    shape = [size[c] for c in (*batch, *rows, *columns)]
    return "".join([*batch, *rows, *columns]), build.emit("reshape", made, shape=tuple(shape))
