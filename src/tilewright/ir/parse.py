"""Read a program's text (see `ir/text.py`): `parse(print(f)) == f`.

In: text. Out: a function, module, statement or expression; nodes are built as written, nothing
folds. Text that is no program raises ParseError, which knows the line and column. The one idea:
Python's `ast` reads the characters, so what is left here is one small method for each construct;
nothing is ever evaluated.
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn, TypeVar

from tilewright.ir.dtype import DType, bool_, f32, i64
from tilewright.ir.expr import (
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
    wrap,
)
from tilewright.ir.stmt import (
    AXIS_KINDS,
    LOOP_KINDS,
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
from tilewright.support.errors import UserFault

_BINARY: dict[type, BinaryOp] = {
    ast.Add: BinaryOp.add,
    ast.Sub: BinaryOp.sub,
    ast.Mult: BinaryOp.mul,
    ast.Div: BinaryOp.div,
    ast.FloorDiv: BinaryOp.floordiv,
    ast.Mod: BinaryOp.floormod,
    ast.BitAnd: BinaryOp.bit_and,
    ast.BitOr: BinaryOp.bit_or,
    ast.BitXor: BinaryOp.bit_xor,
    ast.LShift: BinaryOp.shl,
    ast.RShift: BinaryOp.shr,
    ast.And: BinaryOp.logical_and,
    ast.Or: BinaryOp.logical_or,
    ast.Eq: BinaryOp.eq,
    ast.NotEq: BinaryOp.ne,
    ast.Lt: BinaryOp.lt,
    ast.LtE: BinaryOp.le,
    ast.Gt: BinaryOp.gt,
    ast.GtE: BinaryOp.ge,
}
_UNARY: dict[type, UnaryOp] = {
    ast.USub: UnaryOp.neg,
    ast.Not: UnaryOp.logical_not,
    ast.Invert: UnaryOp.bit_not,
}
_BINARY_CALLS = {op.value: op for op in BinaryOp if op.value.isidentifier()}
_UNARY_CALLS = {op.value: op for op in UnaryOp if op.value.isidentifier()}
_FLOATS = {"inf": float("inf"), "nan": float("nan")}

T = TypeVar("T")


class ParseError(UserFault):
    """The text is no program. `line` and `column` count from 1."""

    def __init__(self, why: str, source: str, line: int, column: int) -> None:
        lines = source.split("\n")
        shown = lines[line - 1] if 0 < line <= len(lines) else ""
        where = f"{shown}\n{' ' * (column - 1)}^"
        super().__init__(f"cannot read line {line}, column {column}", why, where)
        self.line, self.column = line, column


def parse_func(text: str) -> Func:
    """The one function in `text`."""
    funcs = parse_module(text).funcs
    if len(funcs) != 1:
        raise ParseError(f"one function is wanted, here are {len(funcs)}", text, 1, 1)
    return funcs[0]


def parse_module(text: str) -> Module:
    """All functions in `text`."""
    reader, tree = _read(text, "exec")
    return Module(tuple(reader.func(each) for each in tree.body))


def parse_stmt(text: str, names: Sequence[Var | Buffer] = ()) -> Stmt:
    """The statements in `text`; `names` are the variables and buffers it may speak of."""
    reader, tree = _read(text, "exec", names)
    return reader.suite(tree.body)


def parse_expr(text: str, names: Sequence[Var | Buffer] = ()) -> Expr:
    """The expression in `text`; `names` are the variables and buffers it may speak of."""
    reader, tree = _read(text.strip(), "eval", names)
    return reader.expr(tree.body)


def _read(text: str, mode: str, names: Sequence[Var | Buffer] = ()) -> tuple[_Reader, Any]:
    text = textwrap.dedent(text)
    try:
        tree = ast.parse(text, mode=mode)
    except SyntaxError as e:
        raise ParseError(e.msg, text, e.lineno or 1, max(1, e.offset or 1)) from None
    except (ValueError, RecursionError, MemoryError) as e:
        raise ParseError(str(e) or "it is nested too deeply", text, 1, 1) from None
    return _Reader(text, names), tree


class _Reader:
    """Turns Python's tree into ours. Variables and buffers are two name spaces."""

    def __init__(self, source: str, names: Sequence[Var | Buffer]) -> None:
        self.source = source
        self.vars = {n.name: n for n in names if isinstance(n, Var)}
        self.buffers = {n.name: n for n in names if isinstance(n, Buffer)}

    def fail(self, at: Any, why: str) -> NoReturn:
        line: int = getattr(at, "lineno", 1)
        raise ParseError(why, self.source, line, self.column(line, getattr(at, "col_offset", 0)))

    def column(self, line: int, byte: int) -> int:
        """ast counts bytes from 0; people count characters from 1."""
        return len(self.source.split("\n")[line - 1].encode()[:byte].decode(errors="ignore")) + 1

    @contextmanager
    def scope(self, *vars: Var, buffer: Buffer | None = None) -> Generator[None, None, None]:
        """Names that hold inside a `with`."""
        before = self.vars, self.buffers
        self.vars = {**self.vars, **{v.name: v for v in vars}}
        if buffer is not None:
            self.buffers = {**self.buffers, buffer.name: buffer}
        yield
        self.vars, self.buffers = before

    # Functions

    def func(self, n: ast.stmt) -> Func:
        if not isinstance(n, ast.FunctionDef):
            self.fail(n, "a function is wanted: def name(...):")
        a = n.args
        if a.posonlyargs or a.kwonlyargs or a.vararg or a.kwarg or a.defaults:
            self.fail(n, "parameters are plain: name: dtype or name: dtype[shape]")
        if n.returns is not None:
            self.fail(n.returns, "a function returns nothing; it writes to its buffers")
        self.vars = {p.arg: Var(p.arg, self.dtype(p.annotation)) for p in a.args if _is_size(p)}
        self.buffers = {}
        params = tuple(self.parameter(p) for p in a.args)
        annotations: Annotations = ()
        for d in n.decorator_list:
            if _called(d) != "annotate" or annotations:
                self.fail(d, "the one decorator is @annotate(key=value)")
            annotations = self.annotations(d)
        return Func(n.name, params, self.suite(n.body), annotations)

    def parameter(self, p: ast.arg) -> Buffer | Var:
        if p.annotation is None:
            self.fail(p, f"parameter '{p.arg}' has no type: write {p.arg}: f32[64, 64]")
        if _is_size(p):
            return self.vars[p.arg]
        if _called(p.annotation) == "buffer":
            made = self.storage(p.annotation, p.arg)
        else:
            made = Buffer(p.arg, *self.elements(p.annotation))
        self.buffers[p.arg] = made
        return made

    def elements(self, n: ast.expr) -> tuple[tuple[Expr, ...], DType]:
        """`f32[64, n]` → shape and dtype."""
        if not isinstance(n, ast.Subscript):
            self.fail(n, "a buffer's type is wanted: f32[64, 64]")
        return tuple(self.expr(d) for d in _elements(n.slice)), self.dtype(n.value)

    def storage(self, n: Any, name: str) -> Buffer:
        """`alloc(f32[12, 32], "local", strides=[40, 1])` → the buffer."""
        args, keywords = n.args, _keywords(n)
        strides = keywords.pop("strides", None)
        if not 1 <= len(args) <= 2 or keywords:
            self.fail(n, f'write {_called(n)}(f32[64, 64], "scope", strides=[…])')
        shape, of = self.elements(args[0])
        scope = self.literal(args[1], str) if len(args) == 2 else "global"
        if strides is None:
            return Buffer(name, shape, of, scope)
        if not isinstance(strides, ast.List):
            self.fail(strides, "strides are a list: strides=[64, 1]")
        return Buffer(name, shape, of, scope, tuple(self.expr(e) for e in strides.elts))

    # Statements

    def suite(self, stmts: Sequence[ast.stmt]) -> Stmt:
        """A suite; a let or an allocation binds what comes after it."""
        made: list[Stmt] = []
        for n, each in enumerate(stmts):
            rest = stmts[n + 1 :]
            if isinstance(each, ast.AnnAssign):
                made.append(self.let(each, rest))
                break
            if isinstance(each, ast.Assign) and _called(each.value) == "alloc":
                buffer = self.storage(each.value, self.target(each))
                with self.scope(buffer=buffer):
                    made.append(Alloc(buffer, self.suite(rest)))
                break
            if not isinstance(each, ast.Pass):
                made.append(self.stmt(each))
        return made[0] if len(made) == 1 else Seq(tuple(made))

    def stmt(self, n: ast.stmt) -> Stmt:
        if isinstance(n, ast.For):
            return self.loop(n)
        if isinstance(n, ast.With):
            return self.with_(n)
        if isinstance(n, ast.If):
            other = self.suite(n.orelse) if n.orelse else None
            return If(self.typed(n.test, bool_), self.suite(n.body), other)
        if isinstance(n, ast.Assign) and isinstance(n.targets[0], ast.Subscript):
            if len(n.targets) > 1:
                self.fail(n, "one element is stored to at a time")
            buffer, inside = self.access(n.targets[0])
            value = self.expr(n.value)
            if value.dtype is not buffer.dtype:
                self.fail(n.value, f"{value.dtype} is stored to '{buffer.name}' of {buffer.dtype}")
            return Store(buffer, tuple(self.typed(i, i64) for i in inside), value)
        if isinstance(n, ast.Expr):
            return Eval(self.expr(n.value))
        self.fail(n, "this is no statement of the program language")

    def let(self, n: ast.AnnAssign, rest: Sequence[ast.stmt]) -> Stmt:
        if not isinstance(n.target, ast.Name) or n.value is None:
            self.fail(n, "a let is written name: dtype = value")
        var = Var(n.target.id, self.dtype(n.annotation))
        value = self.typed(n.value, var.dtype)
        with self.scope(var):
            return Let(var, value, self.suite(rest))

    def loop(self, n: ast.For) -> Stmt:
        kind = _called(n.iter)
        if kind not in LOOP_KINDS or n.orelse:
            self.fail(n.iter, f"a loop's kind is one of {', '.join(LOOP_KINDS)}")
        if not isinstance(n.target, ast.Name):
            self.fail(n.target, "a loop has one variable")
        args = self.args_of(n.iter, 3 if kind == "thread" else 2)
        thread = self.literal(args.pop(0), str) if kind == "thread" else ""
        start, stop = (self.typed(a, i64) for a in args)
        annotations = self.annotations(n.iter)
        var = Var(n.target.id)
        with self.scope(var):
            return For(var, start, stop, kind, self.suite(n.body), thread, annotations)

    def with_(self, n: ast.With) -> Stmt:
        if len(n.items) != 1:
            self.fail(n, "a with has one item")
        item, name = n.items[0].context_expr, n.items[0].optional_vars
        kind = _called(item)
        if kind == "block" and name is None:
            return self.block(item, n.body)
        if kind in ("alloc", "let") and isinstance(name, ast.Name):
            if kind == "alloc":
                buffer = self.storage(item, name.id)
                with self.scope(buffer=buffer):
                    return Alloc(buffer, self.suite(n.body))
            of, value = self.args_of(item, 2)
            var = Var(name.id, self.dtype(of))
            bound = self.typed(value, var.dtype)
            with self.scope(var):
                return Let(var, bound, self.suite(n.body))
        self.fail(item, 'after with stands block("name"), alloc(…) as name or let(…) as name')

    def block(self, head: Any, body: Sequence[ast.stmt]) -> Stmt:
        (label,) = self.args_of(head, 1)
        guard = _keywords(head).get("where")
        where = None if guard is None else self.typed(guard, bool_)
        rest = list(body)
        axes: list[Axis] = []
        while rest and (kind := _called(getattr(rest[0], "value", None))) in AXIS_KINDS:
            n: Any = rest.pop(0)
            extent, value = (self.typed(a, i64) for a in self.args_of(n.value, 2))
            axes.append(Axis(Var(self.target(n)), str(kind), extent, value))
        with self.scope(*[a.var for a in axes]):
            regions: dict[str, tuple[Region, ...]] = {"reads": (), "writes": ()}
            while rest and (word := _called(getattr(rest[0], "value", None))) in regions:
                n = rest.pop(0)
                regions[str(word)] = tuple(self.region(a) for a in n.value.args)
            init = None
            if rest and isinstance(rest[0], ast.With):
                first = rest[0].items[0].context_expr
                if _called(first) == "init":
                    init = self.suite(rest[0].body)
                    rest.pop(0)
            inside = self.suite(rest)
        return Block(
            self.literal(label, str),
            tuple(axes),
            regions["reads"],
            regions["writes"],
            init,
            inside,
            where,
            self.annotations(head, but="where"),
        )

    def region(self, n: ast.expr) -> Region:
        buffer, inside = self.access(n)
        starts: list[Expr] = []
        extents: list[Expr] = []
        for each in inside:
            if not isinstance(each, ast.Slice):
                starts.append(self.typed(each, i64))
                extents.append(Const(1, i64))
                continue
            if each.lower is None or each.upper is None or each.step is not None:
                self.fail(n, "a range is written start:stop")
            start, stop = self.typed(each.lower, i64), self.typed(each.upper, i64)
            starts.append(start)
            extents.append(_extent(start, stop))
        return Region(buffer, tuple(starts), tuple(extents))

    def annotations(self, n: Any, but: str = "") -> Annotations:
        """Keyword arguments, except `but`; keys that are no free names stand in a `**{…}`."""
        pairs = [(k, v) for k, v in _keywords(n).items() if k != but]
        for k in n.keywords:
            if k.arg is None:
                if not isinstance(k.value, ast.Dict):
                    self.fail(k.value, '** takes a dictionary display: **{"key": 1}')
                for key, value in zip(k.value.keys, k.value.values, strict=True):
                    pairs.append((self.literal(key, str), value))
        found = {k: self.literal(v, bool, int, float, str) for k, v in pairs}
        return tuple(sorted(found.items()))

    # Expressions

    def expr(self, n: ast.expr) -> Expr:
        """Any expression."""
        if isinstance(n, ast.Name):
            return self.name(n)
        if isinstance(n, ast.Constant):
            return self.constant(n, n.value)
        if isinstance(n, ast.BinOp) and type(n.op) in _BINARY:
            return self.binary(n, _BINARY[type(n.op)], self.expr(n.left), self.expr(n.right))
        if isinstance(n, ast.Compare) and type(n.ops[0]) in _BINARY:
            if len(n.ops) > 1:
                self.fail(n, "write a < b and b < c, not a < b < c")
            op = _BINARY[type(n.ops[0])]
            return self.binary(n, op, self.expr(n.left), self.expr(n.comparators[0]))
        if isinstance(n, ast.BoolOp):
            made, *others = (self.typed(v, bool_) for v in n.values)
            for other in others:
                made = Binary(_BINARY[type(n.op)], made, other)
            return made
        if isinstance(n, ast.UnaryOp) and type(n.op) in _UNARY:
            value = _number(n)
            if value is not None:
                return self.constant(n, value)
            return Unary(_UNARY[type(n.op)], self.expr(n.operand))
        if isinstance(n, ast.Subscript):
            buffer, inside = self.access(n)
            return Load(buffer, tuple(self.typed(i, i64) for i in inside))
        if isinstance(n, ast.Call):
            return self.call(n)
        self.fail(n, "this is no expression of the program language")

    def typed(self, n: ast.expr, of: DType) -> Expr:
        made = self.expr(n)
        if made.dtype is not of:
            self.fail(n, f"{of} is wanted here, this is {made.dtype}")
        return made

    def name(self, n: ast.Name) -> Expr:
        if n.id in self.vars:
            return self.vars[n.id]
        if n.id in _FLOATS:
            return Const(_FLOATS[n.id], f32)
        if n.id in self.buffers:
            self.fail(n, f"'{n.id}' is a buffer: index it, {n.id}[…]")
        self.fail(n, f"unknown name '{n.id}'")

    def constant(self, n: ast.expr, value: Any, of: DType | None = None) -> Expr:
        if isinstance(value, bool):
            of = of or bool_
        elif isinstance(value, int):
            of = of or i64
        elif isinstance(value, float):
            of = of or f32
        if of is None or not isinstance(value, bool | int | float):
            self.fail(n, f"{value!r} is no constant of the program language")
        if of.is_float and (isinstance(value, float) or abs(value) < 1 << 1000):
            return Const(of.round(float(value)), of)
        if of.is_bool or (of.is_int and isinstance(value, int) and wrap(value, of) == value):
            return Const(value, of)
        self.fail(n, f"{value} does not fit {of}")

    def binary(self, n: ast.expr, op: BinaryOp, a: Expr, b: Expr) -> Expr:
        if a.dtype is not b.dtype:
            self.fail(n, f"the operands of '{op.value}' are {a.dtype} and {b.dtype}; cast one")
        return Binary(op, a, b)

    def access(self, n: ast.expr) -> tuple[Buffer, list[ast.expr]]:
        """`A[i, j]` → the buffer and what stands inside."""
        if not isinstance(n, ast.Subscript) or not isinstance(n.value, ast.Name):
            self.fail(n, "a buffer's element is wanted: A[i, j]")
        buffer = self.buffers.get(n.value.id)
        if buffer is None:
            self.fail(n.value, f"unknown buffer '{n.value.id}'")
        inside = _elements(n.slice)
        if len(inside) != buffer.rank:
            self.fail(n, f"'{buffer.name}' has {buffer.rank} dimensions, not {len(inside)}")
        return buffer, inside

    def call(self, n: ast.Call) -> Expr:
        name = _called(n)
        if name is None:
            self.fail(n, "an operation's name is wanted before (")
        if name in _BINARY_CALLS:
            return self.binary(n, _BINARY_CALLS[name], *map(self.expr, self.args_of(n, 2)))
        if name in _UNARY_CALLS:
            return Unary(_UNARY_CALLS[name], *map(self.expr, self.args_of(n, 1)))
        if name in DType.by_name:
            (a,) = self.args_of(n, 1)
            value = _number(a)
            of = self.dtype(n.func)
            return Cast(of, self.expr(a)) if value is None else self.constant(a, value, of)
        if name == "cast":
            to, a = self.args_of(n, 2)
            return Cast(self.dtype(to), self.expr(a))
        if name == "select":
            condition, then, other = self.args_of(n, 3)
            left, right = self.expr(then), self.expr(other)
            if left.dtype is not right.dtype:
                self.fail(n, f"the sides of select are {left.dtype} and {right.dtype}; cast one")
            return Select(self.typed(condition, bool_), left, right)
        return self.intrinsic(n, name)

    def intrinsic(self, n: ast.Call, name: str) -> Expr:
        keywords, args = _keywords(n), list(n.args)
        of = self.dtype(keywords.pop("dtype")) if "dtype" in keywords else i64
        if keywords:
            self.fail(n, f"'{name}' takes no argument '{next(iter(keywords))}'")
        if name == "barrier" and len(args) == 1:
            return Call("barrier." + self.literal(args[0], str), (), of)
        if name == "call" and args:
            name = self.literal(args.pop(0), str)
        return Call(name, tuple(self.expr(a) for a in args), of)

    # Leaves

    def dtype(self, n: Any) -> DType:
        found = DType.by_name.get(n.id) if isinstance(n, ast.Name) else None
        if found is None:
            self.fail(n, f"a dtype is wanted: {', '.join(DType.by_name)}")
        return found

    def literal(self, n: ast.expr | None, *kinds: type[T]) -> T:
        """A literal number or string."""
        value: Any = n.value if isinstance(n, ast.Constant) else n and _number(n)
        if type(value) not in kinds:
            self.fail(n, f"a literal is wanted: {' or '.join(k.__name__ for k in kinds)}")
        return value

    def args_of(self, n: Any, count: int) -> list[ast.expr]:
        if len(n.args) != count:
            self.fail(n, f"'{_called(n)}' takes {count} arguments, not {len(n.args)}")
        return list(n.args)

    def target(self, n: Any) -> str:
        if len(n.targets) != 1 or not isinstance(n.targets[0], ast.Name):
            self.fail(n, "one name is wanted left of =")
        return n.targets[0].id


def _is_size(p: ast.arg) -> bool:
    return isinstance(p.annotation, ast.Name)


def _called(n: Any) -> str | None:
    """The (dotted) name that `n` calls, or None."""
    if not isinstance(n, ast.Call):
        return None
    parts: list[str] = []
    f = n.func
    while isinstance(f, ast.Attribute):
        parts.append(f.attr)
        f = f.value
    return ".".join([f.id, *reversed(parts)]) if isinstance(f, ast.Name) else None


def _keywords(n: Any) -> dict[str, Any]:
    """The keyword arguments of a call."""
    return {k.arg: k.value for k in n.keywords if k.arg is not None}


def _elements(n: ast.expr) -> list[ast.expr]:
    return list(n.elts) if isinstance(n, ast.Tuple) else [n]


def _number(n: ast.expr) -> int | float | None:
    """The value of a number as written, its sign included."""
    if isinstance(n, ast.UnaryOp) and isinstance(n.op, ast.USub):
        value = None if isinstance(n.operand, ast.UnaryOp) else _number(n.operand)
        return None if value is None else -value
    if isinstance(n, ast.Name):
        return _FLOATS.get(n.id)
    value = n.value if isinstance(n, ast.Constant) else None
    return value if type(value) is int or type(value) is float else None


def _extent(start: Expr, stop: Expr) -> Expr:
    """The extent of the range `start:stop`, as the printer meant it."""
    first, last = as_int(start), as_int(stop)
    if first == 0:
        return stop
    if first is not None and last is not None:
        return Const(last - first, i64)
    if isinstance(stop, Binary) and stop.op is BinaryOp.add and stop.a == start:
        return stop.b
    return Binary(BinaryOp.sub, stop, start)
