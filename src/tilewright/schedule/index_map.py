"""Index maps: where an element (or an instance) goes, and how to come back.

In: variables, their extents, and one expression of them for each new dimension ("lambda n, c: (n,
c // 16, c % 16)"). Out: the extents of the new dimensions and the inverse. The one idea: every map
that layouts are made of moves *digits*: `(x // d) % m` is a digit of x, a new dimension is a row of
digits, and a map is invertible when its digits are each variable's whole representation, once.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Sequence
from typing import Any, cast

from tilewright.ir.expr import (
    Binary,
    BinaryOp,
    Const,
    Expr,
    Var,
    as_int,
    binary,
    ceildiv,
    const,
    eq,
    expr,
)
from tilewright.ir.parse import parse_expr
from tilewright.ir.text import print_expr
from tilewright.ir.walk import substitute
from tilewright.support.errors import UserFault
from tilewright.support.record import record

Size = int | Expr
ZERO, ONE = const(0), const(1)


@record
class Digit:
    """`scale * ((var // low) % size)`, a part of a new index."""

    scale: int
    var: Var
    low: int
    size: Size
    top: bool  # no higher digit follows: the `% size` is not needed


@record
class Row:
    """A new index: its digits by rising scale, and a constant."""

    digits: tuple[Digit, ...]
    offset: int = 0


@record
class Inverse:
    """The way back. `extents` are those of the new dimensions (without the offset of a row)."""

    rows: tuple[Row, ...]
    extents: tuple[Expr, ...]
    old: tuple[tuple[Var, Expr], ...]  # the variables and their extents

    def values(self, indices: Sequence[Expr]) -> dict[Var, Expr]:
        """The old variables, given the new indices."""
        found: dict[Var, Expr] = {var: ZERO for var, _ in self.old}
        for row, index in zip(self.rows, indices, strict=True):
            rest = index - row.offset if row.offset else index
            if len(row.digits) == 1 and row.digits[0].low == 1 and row.digits[0].top:
                found[row.digits[0].var] = rest
                continue
            for n, digit in enumerate(row.digits):
                part = rest // digit.scale
                if n + 1 < len(row.digits):
                    part = part % digit.size
                found[digit.var] = found[digit.var] + part * digit.low
        return found

    def guard(self, indices: Sequence[Expr], bounds: Sequence[Expr]) -> Expr | None:
        """When `indices`, each in [0, bound), come from old ones; None if always."""
        values, conditions = self.values(indices), list[Expr]()
        padded = {v: _padded_extent(self.rows, v) for v, _ in self.old}
        for row, index, extent, bound in zip(self.rows, indices, self.extents, bounds, strict=True):
            if not row.digits:
                if as_int(bound) != 1:
                    conditions.append(eq(index, row.offset))
                continue
            if row.offset:
                conditions.append(index >= row.offset)
            if bound != extent + row.offset and not _below(bound, extent + row.offset):
                conditions.append(index < extent + row.offset)
        conditions += [values[v] < e for v, e in self.old if padded[v] != e]
        whole: Expr | None = None
        for c in conditions:
            whole = c if whole is None else binary(BinaryOp.logical_and, whole, c)
        return whole

    @property
    def is_exact(self) -> bool:
        """Whether every new position comes from an old one (no padding)."""
        return all(_padded_extent(self.rows, v) == e for v, e in self.old)


def _below(a: Expr, b: Expr) -> bool:
    low, high = as_int(a), as_int(b)
    return low is not None and high is not None and low <= high


def _padded_extent(rows: Sequence[Row], var: Var) -> Expr:
    """The extent that the digits of `var` can say."""
    mine = [d for row in rows for d in row.digits if d.var == var]
    if not mine:
        return ONE
    top = max(mine, key=lambda d: d.low)
    return expr(top.size) * top.low


def invert(
    variables: Sequence[Var], extents: Sequence[Expr], outputs: Sequence[Expr]
) -> Inverse | None:
    """The inverse of the map from `variables` (in [0, extent)) to `outputs`, or None."""
    sizes = dict(zip(variables, extents, strict=True))
    if len(outputs) == len(sizes) and sizes.keys() == set(outputs):  # another order, no more
        return Inverse(
            tuple(Row((Digit(1, v, 1, sizes[v], True),)) for v in outputs if isinstance(v, Var)),
            tuple(sizes[v] for v in outputs if isinstance(v, Var)),
            tuple(sizes.items()),
        )
    rows: list[Row] = []
    for out in outputs:
        row = _row(out, sizes)
        if row is None or not _is_positional(row):
            return None
        rows.append(row)
    if not all(
        _is_whole([d for r in rows for d in r.digits if d.var == v], e) for v, e in sizes.items()
    ):
        return None
    new = tuple(expr(r.digits[-1].size) * r.digits[-1].scale if r.digits else ONE for r in rows)
    return Inverse(tuple(rows), new, tuple(sizes.items()))


def _is_positional(row: Row) -> bool:
    """Whether each digit starts where the one below it ends, so that the digits can be read off."""
    weight = 1
    for n, digit in enumerate(row.digits):
        if digit.scale != weight:
            return False
        if n + 1 < len(row.digits):
            if not isinstance(digit.size, int):
                return False
            weight *= digit.size
    return True


def _is_whole(digits: list[Digit], extent: Expr) -> bool:
    """Whether the digits are a variable's whole representation, each once."""
    if not digits:
        return as_int(extent) == 1
    digits.sort(key=lambda d: d.low)
    weight = 1
    for n, digit in enumerate(digits):
        if digit.low != weight or digit.top != (n + 1 == len(digits)):
            return False
        if isinstance(digit.size, int):
            weight *= digit.size
        elif not digit.top:
            return False
    return True


def _row(e: Expr, sizes: dict[Var, Expr]) -> Row | None:
    """`e` as a row of digits; None if it is not one."""
    if isinstance(e, Const):
        return Row((), int(e.value))
    if isinstance(e, Var):
        if e not in sizes:
            return None
        extent = as_int(sizes[e])
        size: Size = sizes[e] if extent is None else extent
        return Row(() if size == 1 else (Digit(1, e, 1, size, True),))
    if not isinstance(e, Binary):
        return None
    a = _row(e.a, sizes)
    if a is None:
        return None
    if e.op is BinaryOp.add or e.op is BinaryOp.sub:
        b = _row(e.b, sizes)
        if b is None or (e.op is BinaryOp.sub and b.digits):
            return None
        sign = 1 if e.op is BinaryOp.add else -1
        both = sorted(a.digits + b.digits, key=lambda d: d.scale)
        return Row(tuple(both), a.offset + sign * b.offset)
    by = as_int(e.b)
    if by is None and e.op is BinaryOp.mul:
        a, by = _row(e.b, sizes), as_int(e.a)
    if a is None or by is None or by <= 0:
        return None
    if e.op is BinaryOp.mul:
        digits = tuple(Digit(d.scale * by, d.var, d.low, d.size, d.top) for d in a.digits)
        return Row(digits, a.offset * by)
    if e.op is BinaryOp.floordiv or e.op is BinaryOp.floormod:
        return _divide(a, by, e.op is BinaryOp.floormod)
    return None


def _divide(row: Row, by: int, remainder: bool) -> Row | None:
    """A row divided by a constant: each digit goes to one side or is split between the two."""
    if row.offset % by:
        return None
    low: list[Digit] = []
    high: list[Digit] = []
    reach = 0  # the greatest value of the low digits together
    for d in row.digits:
        if d.scale % by == 0:
            high.append(Digit(d.scale // by, d.var, d.low, d.size, d.top))
            continue
        if by % d.scale:
            return None
        part = by // d.scale
        if isinstance(d.size, int) and d.size <= part:
            low.append(d)
            reach += d.scale * (d.size - 1)
            continue
        rest = -(-d.size // part) if isinstance(d.size, int) else ceildiv(d.size, part)
        low.append(Digit(d.scale, d.var, d.low, part, False))
        reach += d.scale * (part - 1)
        high.append(Digit(1, d.var, d.low * part, rest, d.top))
    if reach >= by:
        return None
    if remainder:
        return Row(tuple(low))
    return Row(tuple(sorted(high, key=lambda d: d.scale)), row.offset // by)


def mapping_text(mapping: Callable[..., Any]) -> str:
    """A mapping as the text that a trace records: `lambda n, c: (n, c // 16, c % 16)`."""
    names = list(inspect.signature(mapping).parameters)
    result: Any = mapping(*(Var(n) for n in names))
    outputs = cast("tuple[Any, ...]", result if isinstance(result, tuple) else (result,))
    shown = ", ".join(print_expr(expr(e)) for e in outputs)
    return f"lambda {', '.join(names)}: ({shown}{',' if len(outputs) == 1 else ''})"


def parse_mapping(text: str) -> tuple[tuple[Var, ...], tuple[Expr, ...]]:
    """The variables and the outputs of a mapping's text. Raises ValueError for what is none."""
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ValueError(f"'{text}' cannot be read ({error})") from None
    if not isinstance(tree, ast.Lambda):
        raise ValueError(f"'{text}' is not of the form lambda n, c: (n, c // 16, c % 16)")
    variables = tuple(Var(a.arg) for a in tree.args.args)
    outputs = tree.body.elts if isinstance(tree.body, ast.Tuple) else [tree.body]
    try:
        return variables, tuple(parse_expr(ast.unparse(e), variables) for e in outputs)
    except UserFault as error:
        raise ValueError(f"'{text}' is no mapping of indices: {error.why}") from None


def apply(
    variables: Sequence[Var], outputs: Sequence[Expr], values: Sequence[Expr]
) -> tuple[Expr, ...]:
    """The new indices of the element at `values`."""
    given = dict(zip(variables, values, strict=True))
    return tuple(substitute(out, given) for out in outputs)
