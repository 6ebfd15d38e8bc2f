"""The text of a program: a subset of Python that people read and `ir/parse.py` reads back.

In: a function, statement or expression. Out: text such that `parse(print(f)) == f`. `mark` shows a
program, or the part of it that matters, with one node underlined; errors speak through it. The one
idea: a node is found by printing: the one to mark leaves two signs around its text, which then
become a line of `^`.
"""

from __future__ import annotations

import json
import keyword
from collections.abc import Iterable, Iterator
from typing import Any

from tilewright.ir.dtype import DType, bool_, f32, i64
from tilewright.ir.expr import (
    COMPARISONS,
    Binary,
    BinaryOp,
    Buffer,
    Call,
    Cast,
    Const,
    Expr,
    Load,
    Select,
    Unary,
    UnaryOp,
    Var,
    as_int,
)
from tilewright.ir.stmt import (
    Alloc,
    Annotations,
    Axis,
    Block,
    Eval,
    For,
    Func,
    If,
    Let,
    Module,
    Region,
    Seq,
    Stmt,
    Store,
)
from tilewright.support.node import Node

# How tightly an operator binds, as in Python; a comparison inside another stands in parentheses.
_LEVEL = {
    BinaryOp.logical_or: 1,
    BinaryOp.logical_and: 2,
    **dict.fromkeys(COMPARISONS, 4),
    BinaryOp.bit_or: 5,
    BinaryOp.bit_xor: 6,
    BinaryOp.bit_and: 7,
    BinaryOp.shl: 8,
    BinaryOp.shr: 8,
    BinaryOp.add: 9,
    BinaryOp.sub: 9,
    BinaryOp.mul: 10,
    BinaryOp.div: 10,
    BinaryOp.floordiv: 10,
    BinaryOp.floormod: 10,
}
# of each infix operator its sign, how tightly it binds, and what its left operand must
_INFIX = {op: (op.value, level, level + (op in COMPARISONS)) for op, level in _LEVEL.items()}
_PREFIX = {UnaryOp.logical_not: ("not ", 3), UnaryOp.neg: ("-", 11), UnaryOp.bit_not: ("~", 11)}
_ATOM = 12

# Calls by these names mean something else; an intrinsic so called is written call("name", …).
STATEMENT_WORDS = frozenset("reads writes init block alloc let call cast select".split())
OPERATION_WORDS = frozenset(op.value for op in (*BinaryOp, *UnaryOp) if op.value.isidentifier())

_OPEN, _CLOSE = "\x02", "\x03"  # around the text of the node to mark
_NEAR = 4  # lines shown before and after a marked node
_WHOLE = 24  # programs up to this many lines are shown whole


def is_name(name: str) -> bool:
    """Whether a variable or buffer may be called so: an ASCII identifier, no keyword, inf, nan."""
    return (
        name.isidentifier()
        and name.isascii()
        and not keyword.iskeyword(name)
        and name not in ("inf", "nan")
    )


def print_func(func: Func) -> str:
    """The text of a function, with a newline at its end."""
    return _Printer().func(func)


def print_module(module: Module) -> str:
    """The text of all functions, a blank line between them."""
    return "\n".join(print_func(func) for func in module.funcs)


def print_stmt(stmt: Stmt) -> str:
    """The text of a statement, with a newline at its end."""
    printer = _Printer()
    printer.suite(stmt)
    return printer.text()


def print_expr(e: Expr) -> str:
    """The text of an expression, on one line."""
    return _Printer().expr(e)


def print_region(region: Region) -> str:
    """The text of a region: `A[i:i + 4, k]`."""
    return _Printer().region(region)


def mark(func: Func, target: Node | str, note: str = "", inside: Node | None = None) -> str:
    """The program with `target` underlined by `^^^^`, followed by `note`.

    target: a node of the program (found by identity, else by equality; the first in program order,
    within `inside` if given), or the name of a loop, block, axis, variable or buffer. Of a long
    program only the surroundings are shown: the statements around the node and the headers above
    them. A node that is not in the program leaves the text unmarked.
    """
    attempts: Iterable[Node | None] = [named(func, target)] if isinstance(target, str) else [target]
    for same in (_is, _equal):
        for node in attempts:
            if node is None:
                continue
            text = _Printer(node, same, inside).func(func)
            if _OPEN in text:
                return _underline(text, note)
    return print_func(func)


def named(func: Func, name: str) -> Node | None:
    """The node that introduces `name`: a loop, axis or let, else a block, else a buffer or size."""
    variable: Node | None = None
    block: Node | None = None
    storage: Node | None = next((p for p in func.params if p.name == name), None)
    stack: list[Any] = [func.body]
    while stack and variable is None:
        n = stack.pop()
        if isinstance(n, For | Axis | Let) and n.var.name == name:
            variable = n
        elif isinstance(n, Block) and n.name == name:
            block = block or n
        elif isinstance(n, Alloc) and n.buffer.name == name:
            storage = storage or n
        if not isinstance(n, Expr):
            stack.extend(reversed(n.children()))
    return variable or block or storage


def _is(a: Any, b: Any) -> bool:
    return a is b


def _equal(a: Any, b: Any) -> bool:
    return a.__class__ is b.__class__ and a == b


def _underline(text: str, note: str) -> str:
    """Turn the signs around a node into a line of `^`; show a long program's surroundings."""
    lines = text.rstrip("\n").split("\n")
    at = next(n for n, line in enumerate(lines) if _OPEN in line)
    line = lines[at]
    start = line.index(_OPEN)
    stop = line.index(_CLOSE) - 1
    lines = [each.replace(_OPEN, "").replace(_CLOSE, "") for each in lines]
    carets = " " * start + "^" * max(1, stop - start)
    shown = list(_surroundings(lines, at))
    out: list[str] = []
    for n, previous in zip(shown, [-1, *shown], strict=False):
        if n > previous + 1:
            out.append(_indent_of(lines[n]) + "…")
        out.append(lines[n])
        if n == at:
            out.append(f"{carets} {note}".rstrip())
    if shown[-1] != len(lines) - 1:
        out.append(_indent_of(lines[shown[-1]]) + "…")
    return "\n".join(out) + "\n"


def _surroundings(lines: list[str], at: int) -> Iterator[int]:
    """The lines to show: all of a short program, else those near `at` and the headers above."""
    depth = len(_indent_of(lines[at]))
    headers: set[int] = set()
    for n in range(at - 1, -1, -1):
        if len(_indent_of(lines[n])) < depth:
            headers.add(n)
            depth = len(_indent_of(lines[n]))
    for n in range(len(lines)):
        if len(lines) <= _WHOLE or abs(n - at) <= _NEAR or n in headers:
            yield n


def _indent_of(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" "))]


class _Printer:
    """Lines of text, growing. `target` is the node to mark, once, within the statement `inside`."""

    def __init__(self, target: Node | None = None, same: Any = _is, inside: Node | None = None):
        self.lines: list[str] = []
        self.depth = 0
        self.target, self.same, self.inside = target, same, inside
        self.known: dict[Expr, tuple[str, int]] = {}  # texts of operations

    def text(self) -> str:
        return "".join(line + "\n" for line in self.lines)

    def signed(self, n: Node, text: str) -> str:
        """`text` of node `n`, between signs if it is the node to mark."""
        if self.target is None or self.inside is not None or not self.same(n, self.target):
            return text
        self.target = None
        return _OPEN + text + _CLOSE

    def line(self, n: Node, text: str, end: str = "") -> None:
        self.lines.append("    " * self.depth + self.signed(n, text) + end)

    # Statements

    def func(self, func: Func) -> str:
        if func.annotations:
            self.lines.append(f"@annotate({', '.join(self.annotations(func.annotations, set()))})")
        parameters = [self.signed(p, f"{p.name}: {self.type_of(p)}") for p in func.params]
        self.line(func, f"def {func.name}({', '.join(parameters)})", ":")
        self.inner(func.body)
        return self.text()

    def type_of(self, p: Buffer | Var) -> str:
        if isinstance(p, Var):
            return p.dtype.name
        if p.scope == "global" and p.strides is None:
            return self.elements(p)
        return f"buffer({self.storage(p)})"

    def elements(self, b: Buffer) -> str:
        return f"{b.dtype.name}[{self.indices(b.shape)}]"

    def storage(self, b: Buffer) -> str:
        strides = ""
        if b.strides is not None:
            strides = f", strides=[{', '.join(map(self.expr, b.strides))}]"
        return f'{self.elements(b)}, "{b.scope}"{strides}'

    def inner(self, stmt: Stmt) -> None:
        self.depth += 1
        self.suite(stmt)
        self.depth -= 1

    def suite(self, stmt: Stmt) -> None:
        """The statements of a suite; a binder that ends a suite takes no deeper indentation."""
        stmts = stmt.stmts if isinstance(stmt, Seq) else (stmt,)
        if not stmts:
            self.line(stmt, "pass")
        for s in stmts:
            self.stmt(s, last=s is stmts[-1])

    def stmt(self, s: Stmt, last: bool) -> None:
        if s is self.inside:
            self.inside = None
        _STATEMENTS[s.__class__](self, s, last)

    def loop(self, s: For, last: bool) -> None:
        arguments = [f'"{s.thread}"'] if s.kind == "thread" else []
        arguments += [self.expr(s.start), self.expr(s.stop)]
        arguments += self.annotations(s.annotations, set())
        self.line(s, f"for {s.var.name} in {s.kind}({', '.join(arguments)})", ":")
        self.inner(s.body)

    def block(self, s: Block, last: bool) -> None:
        arguments = [_quoted(s.name)]
        arguments += [] if s.where is None else [f"where={self.expr(s.where)}"]
        arguments += self.annotations(s.annotations, {"where"})
        self.line(s, f"with block({', '.join(arguments)})", ":")
        self.depth += 1
        for a in s.axes:
            self.line(a, f"{a.var.name} = {a.kind}({self.expr(a.extent)}, {self.expr(a.value)})")
        for word, regions in (("reads", s.reads), ("writes", s.writes)):
            if regions:
                self.line(s, f"{word}({', '.join(map(self.region, regions))})")
        if s.init is not None:
            self.line(s, "with init()", ":")
            self.inner(s.init)
        self.suite(s.body)
        self.depth -= 1

    def store(self, s: Store, last: bool) -> None:
        self.line(s, f"{s.buffer.name}[{self.indices(s.indices)}] = {self.expr(s.value)}")

    def branch(self, s: If, last: bool, word: str = "if") -> None:
        self.line(s, f"{word} {self.expr(s.cond)}", ":")
        self.inner(s.then)
        if isinstance(s.other, If):
            self.branch(s.other, last, "elif")
        elif s.other is not None:
            self.lines.append("    " * self.depth + "else:")
            self.inner(s.other)

    def let(self, s: Let, last: bool) -> None:
        kind, value = s.var.dtype.name, self.expr(s.value)
        if last:
            self.line(s, f"{s.var.name}: {kind} = {value}")
            self.suite(s.body)
        else:
            self.line(s, f"with let({kind}, {value}) as {s.var.name}", ":")
            self.inner(s.body)

    def alloc(self, s: Alloc, last: bool) -> None:
        storage = f"alloc({self.storage(s.buffer)})"
        if last:
            self.line(s, f"{s.buffer.name} = {storage}")
            self.suite(s.body)
        else:
            self.line(s, f"with {storage} as {s.buffer.name}", ":")
            self.inner(s.body)

    def sequence(self, s: Seq, last: bool) -> None:
        self.suite(
            s
        )  # a sequence inside a sequence: `verify` refuses it, the text shows its statements

    def evaluate(self, s: Eval, last: bool) -> None:
        self.line(s, self.expr(s.value))

    def annotations(self, annotations: Annotations, taken: set[str]) -> list[str]:
        """Keyword arguments; keys that are no names, or taken, go in a `**{…}`."""
        if not annotations:
            return []
        odd = {k: v for k, v in annotations if not is_name(k) or k in taken}
        plain = [f"{k}={_plain(v)}" for k, v in annotations if k not in odd]
        inside = ", ".join(f"{_quoted(k)}: {_plain(v)}" for k, v in odd.items())
        return plain + ([f"**{{{inside}}}"] if odd else [])

    # Expressions

    def indices(self, indices: tuple[Expr, ...]) -> str:
        return ", ".join([self.expr(i) for i in indices]) or "()"

    def region(self, r: Region) -> str:
        inside = ", ".join(map(self.range_of, r.starts, r.extents)) or "()"
        return self.signed(r, f"{r.buffer.name}[{inside}]")

    def range_of(self, start: Expr, extent: Expr) -> str:
        if as_int(extent) == 1:
            return self.expr(start)
        first, count = as_int(start), as_int(extent)
        if first == 0:
            stop = self.expr(extent)
        elif first is not None and count is not None:
            stop = str(first + count)
        else:
            stop = self.expr(Binary(BinaryOp.add, start, extent))
        return f"{self.expr(start)}:{stop}"

    def expr(self, e: Expr, level: int = 0) -> str:
        """The text of `e`, in parentheses if it binds less tightly than `level`."""
        if self.target is not None:
            text, own = self.operation(e)
            text = self.signed(e, text)
        elif type(e) is Var:
            return e.name
        elif type(e) is Const:
            return _constant(e.value, e.dtype)
        elif (known := self.known.get(e)) is not None:
            text, own = known
        else:
            text, own = self.known[e] = self.operation(e)
        return f"({text})" if own < level else text

    def operation(self, e: Any) -> tuple[str, int]:
        """The text of `e` as it is, and how tightly it binds."""
        kind = e.__class__
        if kind is Var:
            return e.name, _ATOM
        if kind is Const:
            return _constant(e.value, e.dtype), _ATOM
        if kind is Binary and (infix := _INFIX.get(e.op)) is not None:
            sign, own, left = infix
            return f"{self.expr(e.a, left)} {sign} {self.expr(e.b, own + 1)}", own
        if kind is Unary and e.op in _PREFIX and not _looks_folded(e):
            sign, own = _PREFIX[e.op]
            return sign + self.expr(e.a, own), own
        if kind is Load:
            return f"{e.buffer.name}[{self.indices(e.indices)}]", _ATOM
        return self.call_like(e), _ATOM

    def call_like(self, e: Any) -> str:
        kind = e.__class__
        if kind is Binary:
            name, args = e.op.value, [e.a, e.b]
        elif kind is Unary:
            name, args = e.op.value, [e.a]
        elif kind is Select:
            name, args = "select", [e.cond, e.then, e.other]
        elif kind is Cast and e.a.__class__ is Const:
            return f"cast({e.dtype.name}, {self.expr(e.a)})"
        elif kind is Cast:
            name, args = e.dtype.name, [e.a]
        elif kind is Call:
            return self.call(e)
        else:
            raise TypeError(f"no text for {kind.__name__}")
        return f"{name}({', '.join(map(self.expr, args))})"

    def call(self, e: Call) -> str:
        arguments = [*map(self.expr, e.args)]
        name = e.name
        if name.startswith("barrier.") and not e.args:
            name, arguments = "barrier", [_quoted(name.removeprefix("barrier."))]
        elif not is_intrinsic_name(name):
            name, arguments = "call", [_quoted(name), *arguments]
        if e.dtype is not i64:
            arguments.append(f"dtype={e.dtype.name}")
        return f"{name}({', '.join(arguments)})"


_STATEMENTS: dict[type, Any] = {
    For: _Printer.loop,
    Block: _Printer.block,
    Store: _Printer.store,
    If: _Printer.branch,
    Let: _Printer.let,
    Alloc: _Printer.alloc,
    Seq: _Printer.sequence,
    Eval: _Printer.evaluate,
}


def is_intrinsic_name(name: str) -> bool:
    """Whether a call of `name` is written plainly: a dotted name with no other meaning."""
    first, *rest = name.split(".")
    if not all(map(is_name, (first, *rest))):
        return False
    if rest:
        return first != "barrier"
    return first not in OPERATION_WORDS | STATEMENT_WORDS | {"barrier"} | set(DType.by_name)


def _looks_folded(e: Unary) -> bool:
    """`-3` is a constant; the negation of the constant 3 is written neg(3)."""
    return e.op is UnaryOp.neg and e.a.__class__ is Const


def _constant(value: int | float | bool, of: DType) -> str:
    if of is bool_:
        return str(bool(value))
    if of is i64:
        return str(int(value))
    text = _float(float(value), of) if of.is_float else str(int(value))
    return text if of is f32 else f"{of.name}({text})"


def _float(value: float, of: DType) -> str:
    """The shortest text that `of` reads as `value`: with a point, an exponent, or inf or nan."""
    exact = of.round(value)
    if exact != exact:
        return "nan"
    if exact in (float("inf"), float("-inf")):
        return "inf" if exact > 0 else "-inf"
    text = next(t for p in range(1, 18) if of.round(float(t := f"{exact:.{p}g}")) == exact)
    return text if "." in text or "e" in text else text + ".0"


def _plain(value: Any) -> str:
    """An annotation's value."""
    return _quoted(value) if isinstance(value, str) else repr(value)


def _quoted(text: str) -> str:
    """A string in double quotes; JSON's escapes are Python's."""
    return json.dumps(text, ensure_ascii=False)
