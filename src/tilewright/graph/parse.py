"""Reading a graph's text back: parse(str(graph)) == graph.

In: the text that `text.to_text` writes. Out: a Graph whose constants know their digests (and their
contents, where `contents` has them). Every application is checked again by its operator's type
rule.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np

from tilewright.graph import sizes
from tilewright.graph.builder import Builder, complete
from tilewright.graph.graph import Constant, Graph, Node, Value
from tilewright.graph.operator import OPERATORS
from tilewright.ir.dtype import DType, dtype
from tilewright.ir.expr import BinaryOp, Expr, Var, binary
from tilewright.support.errors import CompileError

_BINARY = {
    ast.Add: BinaryOp.add,
    ast.Sub: BinaryOp.sub,
    ast.Mult: BinaryOp.mul,
    ast.FloorDiv: BinaryOp.floordiv,
    ast.Mod: BinaryOp.floormod,
}
_CALLS = {op.value: op for op in (BinaryOp.min, BinaryOp.max, BinaryOp.truncdiv, BinaryOp.truncmod)}


def parse(text: str, contents: Mapping[str, np.ndarray] | None = None) -> Graph:
    """The graph that `text` describes; `contents` gives arrays by digest. Raises CompileError."""
    return _Parser(text, contents or {}).graph()


class _Parser:
    """The text, and the builder that its statements fill."""

    def __init__(self, text: str, contents: Mapping[str, np.ndarray]) -> None:
        self.lines = text.split("\n")
        self.contents = contents
        self.known: dict[str, Value] = {}
        self.announced: dict[str, tuple[DType, sizes.Shape]] = {}
        try:
            (self.function,) = ast.parse(text).body
        except (SyntaxError, ValueError) as fault:
            raise CompileError("cannot parse a graph", str(fault)) from None

    def graph(self) -> Graph:
        function = self.function
        if not isinstance(function, ast.FunctionDef):
            self.refuse(function, "a graph is one function definition")
        self.builder = Builder(function.name)
        for decorator in function.decorator_list:
            match decorator:
                case ast.Call(func=ast.Name(id="formats"), args=[said]):
                    self.builder.formats = ast.literal_eval(said)
                case ast.Call(func=ast.Name(id="metadata"), args=[said]):
                    self.builder.metadata = ast.literal_eval(said)
                case ast.Call(func=ast.Name(id="ranges"), args=[said]):
                    self.builder.ranges = ast.literal_eval(said)
                case ast.Call(func=ast.Name(id="requires"), args=[size, said]):
                    self.builder.required[sizes.size(self.attribute(size))] = ast.literal_eval(said)
                case _:
                    self.refuse(decorator, "expected metadata, formats, ranges or requires")
        parameters = function.args.args
        defaults = [None] * (len(parameters) - len(function.args.defaults)) + function.args.defaults
        for parameter, default in zip(parameters, defaults, strict=True):
            value = self.declare(parameter.arg, *self.type(parameter.annotation))
            self.builder.inputs.append(value)
            self.builder.input_names.append(
                value.name if default is None else ast.literal_eval(default)
            )
        for statement in function.body[:-1]:
            self.statement(statement)
        last = function.body[-1]
        if not isinstance(last, ast.Return) or not isinstance(last.value, ast.Dict):
            self.refuse(last, "the last statement returns a dictionary of outputs")
        names = [ast.literal_eval(k) for k in last.value.keys if k is not None]
        results = [self.value(v) for v in last.value.values]
        made = self.builder
        return Graph(
            made.name,
            made.inputs,
            results,
            made.constants,
            made.nodes,
            made.input_names,
            names,
            made.formats,
            made.ranges,
            made.required.items(),
            made.metadata,
        )

    def statement(self, s: ast.stmt) -> None:
        if isinstance(s, ast.AnnAssign) and isinstance(s.target, ast.Name):
            announced = self.type(s.annotation)
            if s.value is None:
                self.announced[s.target.id] = announced
            else:
                self.apply(s, [s.target.id], s.value, [announced])
            return
        if isinstance(s, ast.Assign) and isinstance(s.value, ast.Call):
            (target,) = s.targets
            if isinstance(target, ast.Tuple):
                names = [e.id for e in target.elts if isinstance(e, ast.Name)]
                self.apply(s, names, s.value, [self.announced.get(n) for n in names])
                return
            if isinstance(target, ast.Name) and getattr(s.value.func, "id", "") == "constant":
                self.constant(target.id, s.value)
                return
        self.refuse(s, "expected a constant or an operator applied to values")

    def constant(self, name: str, call: ast.Call) -> None:
        of, shape = self.type(call.args[0])
        digest = ast.literal_eval(call.args[1])
        array = self.contents.get(digest)
        self.builder.constants[self.declare(name, of, shape)] = Constant(array, digest)

    def apply(self, s: ast.stmt, names: list[str], call: ast.expr, expected: list[Any]) -> None:
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            self.refuse(s, "expected an operator applied to values")
        op = call.func.id
        if op not in OPERATORS:
            from tilewright.graph.plugins import discover

            discover()
        if op not in OPERATORS:
            self.refuse(s, f"there is no operator {op!r}")
        inputs = [self.value(a) for a in call.args]
        attrs = complete(op, {k.arg: self.attribute(k.value) for k in call.keywords if k.arg})
        types = [(t, sizes.shape(shape)) for t, shape in self.builder.infer(op, inputs, attrs)]
        if types != expected:
            shown = ", ".join(repr(Value(n, *t)) for n, t in zip(names, types, strict=False))
            self.refuse(s, f"its type rule gives {shown}")
        outputs = tuple([self.declare(n, *t) for n, t in zip(names, types, strict=True)])
        self.builder.append(Node(op, tuple(inputs), tuple(attrs.items()), outputs))

    def declare(self, name: str, of: DType, shape: sizes.Shape) -> Value:
        if name in self.known:
            self.refuse(self.function, f"value {name!r} is defined twice")
        self.known[name] = value = Value(name, of, shape)
        return value

    def value(self, e: ast.expr) -> Value:
        if not isinstance(e, ast.Name) or e.id not in self.known:
            self.refuse(e, "is no value defined above")
        return self.known[e.id]

    def type(self, e: ast.expr | None) -> tuple[DType, sizes.Shape]:
        """f32[1, n]."""
        if isinstance(e, ast.Subscript) and isinstance(e.value, ast.Name):
            parts = e.slice.elts if isinstance(e.slice, ast.Tuple) else [e.slice]
            return dtype(e.value.id), sizes.shape([self.size(p) for p in parts])
        self.refuse(e or self.function, "expected a type such as f32[1, n]")

    def size(self, e: ast.expr) -> Expr:
        if isinstance(e, ast.Constant | ast.UnaryOp):
            return sizes.size(ast.literal_eval(e))
        if isinstance(e, ast.Name):
            return Var(e.id)
        if isinstance(e, ast.BinOp) and type(e.op) in _BINARY:
            return binary(_BINARY[type(e.op)], self.size(e.left), self.size(e.right))
        if isinstance(e, ast.Call) and getattr(e.func, "id", "") in _CALLS:
            return binary(_CALLS[e.func.id], *[self.size(a) for a in e.args])  # type: ignore[attr-defined]
        self.refuse(e, "is no size")

    def attribute(self, e: ast.expr) -> Any:
        if isinstance(e, ast.Tuple):
            return tuple([self.attribute(x) for x in e.elts])
        if isinstance(e, ast.Constant):
            return e.value
        if isinstance(e, ast.Name) and e.id in ("inf", "nan"):
            return math.inf if e.id == "inf" else math.nan
        if isinstance(e, ast.UnaryOp) and isinstance(e.op, ast.USub):
            return -self.attribute(e.operand)
        return self.size(e)

    def refuse(self, at: ast.AST, why: str) -> NoReturn:
        number = getattr(at, "lineno", 1)
        line = self.lines[number - 1]
        start = getattr(at, "col_offset", 0)
        width = max(1, (getattr(at, "end_col_offset", 0) or 0) - start)
        raise CompileError(
            "cannot parse a graph",
            why,
            f"{number}: {line}\n{' ' * (len(str(number)) + 2 + start)}{'^' * width}",
        )
