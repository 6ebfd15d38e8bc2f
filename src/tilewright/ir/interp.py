"""The meaning of the IR: run a function of any stage on NumPy arrays, one scalar at a time.

In: a function and an array for each buffer parameter. Out: the arrays, changed in place; or
InterpError where the program is undefined (an access outside a buffer, a division by zero, the
use of a value that was never stored), or RaceError. The one idea: the function becomes Python
source once and runs many times. Whole numbers carry the interval they lie in, so that checks and
wrapping appear only where they are needed.

Memory is a flat list for each buffer. An element that was never stored is an `Undefined`, which may
be copied but not computed with. The threads of a block run in lockstep between barriers.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from tilewright.ir import scalar
from tilewright.ir.dtype import DType, i64
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
    Var,
    as_selects,
)
from tilewright.ir.memory import (
    InterpError,
    Pointer,
    Undefined,
    give_back,
    length,
    memory_of,
    misfit,
)
from tilewright.ir.race import Clock, Tracked
from tilewright.ir.stmt import THREAD_AXES, Alloc, Block, Eval, For, Func, If, Let, Seq, Stmt, Store
from tilewright.ir.text import mark, print_expr
from tilewright.ir.walk import visit
from tilewright.support.node import Node

Intrinsics = Mapping[str, Callable[..., Any]]
Interval = tuple[int, int]

_LARGEST_SIZE = (1 << 31) - 1  # of a symbolic size
_DEEP = 40  # parentheses that stand inside each other before a value gets a name of its own
_NESTED = 16  # loops inside each other before the inner ones become a function (CPython: 20)


def run(
    func: Func,
    *arrays: np.ndarray[Any, Any],
    symbols: Mapping[str, int] | None = None,
    intrinsics: Intrinsics | None = None,
    check_parallel: bool = False,
    check_regions: bool = False,
) -> None:
    """Run `func`; `arrays` are its buffer parameters in order and change in place.

    symbols: values of the size parameters; a dimension of an array says its own.
    intrinsics: what calls by other names do; an `address_of` argument arrives as a `Pointer`.
    check_parallel: RaceError if two iterations of a parallel loop touch what one of them writes.
    check_regions: a block that touches what its reads and writes do not name is an InterpError.

    An array has the shape of its buffer, or, if the buffer has one dimension, as many elements.
    """
    buffers = func.buffers
    if len(arrays) != len(buffers):
        misfit(func, f"it has {len(buffers)} buffers, here are {len(arrays)} arrays")
    for buffer, array in zip(buffers, arrays, strict=True):
        if array.dtype != buffer.dtype.numpy:
            misfit(func, f"'{buffer.name}' is {buffer.dtype}, the array is {array.dtype}")
    program = _compiled(func, check_parallel, check_regions)
    sizes = _sizes(func, arrays, symbols or {})
    with np.errstate(all="ignore"):
        program(sizes, list(arrays), intrinsics or {})


# Arguments -------------------------------------------------------------------


def _sizes(
    func: Func, arrays: Sequence[np.ndarray[Any, Any]], given: Mapping[str, int]
) -> dict[str, int]:
    """The values of the size parameters."""
    found = dict(given)
    for buffer, array in zip(func.buffers, arrays, strict=True):
        if array.ndim == buffer.rank:
            for dim, length in zip(buffer.shape, array.shape, strict=True):
                if isinstance(dim, Var):
                    found.setdefault(dim.name, length)
    for p in func.params:
        if isinstance(p, Var):
            if p.name not in found:
                misfit(func, f"the size '{p.name}' is not given: symbols={{'{p.name}': …}}")
            if p.dtype is i64 and not 0 <= found[p.name] <= _LARGEST_SIZE:
                misfit(func, f"the size '{p.name}' is {found[p.name]}")
    return found


# The program as Python source ------------------------------------------------


@functools.lru_cache(maxsize=512)
def _compiled(func: Func, check_parallel: bool, check_regions: bool) -> Callable[..., None]:
    """The Python function of a program: (sizes, arrays, intrinsics) -> None."""
    writer = _Writer(func, check_parallel, check_regions)
    source = writer.program()
    scope: dict[str, Any] = writer.globals
    exec(compile(source, f"<{func.name}>", "exec"), scope)
    return scope["program"]


class _Writer:
    """Writes the source, line by line. `globals` are the objects that it names."""

    def __init__(self, func: Func, check_parallel: bool, check_regions: bool) -> None:
        self.func = func
        self.check_parallel, self.check_regions = check_parallel, check_regions
        self.boxes: list[_Boxes] = []  # of the blocks around this point
        self.lines: list[str] = []
        self.depth = 0
        self.globals: dict[str, Any] = {}
        self.constants: dict[Any, str] = {}
        self.intervals: dict[str, Interval] = {}
        self.loops: dict[str, For] = {}
        self.count = 0  # of names made up
        self.nested = 0  # loops around this point, in this Python function
        self.threaded = False
        self.parallel = False
        self.pure = 0  # > 0: inside a side of a select, where no line may be added
        self.stored = {n.buffer.name for n in visit(func.body) if isinstance(n, Store)}
        self.pointed = {
            n.buffer.name
            for call in visit(func.body)
            if isinstance(call, Call)
            for n in visit(call)
            if isinstance(n, Load)
        }
        races = any(isinstance(n, For) and n.kind == "thread" for n in visit(func.body))
        written = self.stored | self.pointed
        self.tracked = written if races or check_parallel else set[str]()

    def line(self, text: str) -> None:
        self.lines.append("  " * self.depth + text)

    def fresh(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    def name_of(self, value: Any, prefix: str = "k") -> str:
        """A global that holds an object."""
        name = self.fresh(prefix)
        self.globals[name] = value
        return name

    # Functions and memory

    def program(self) -> str:
        func = self.func
        self.line("def program(sizes, arrays, intrinsics):")
        self.depth += 1
        self.line(f"clock = {self.name_of(Clock)}()")
        for p in func.params:
            if isinstance(p, Var):
                self.line(f"v_{p.name} = sizes[{p.name!r}]")
                if p.dtype is i64:
                    self.intervals[p.name] = (0, _LARGEST_SIZE)
        for n, b in enumerate(func.buffers):
            shape, strides = self.layout(b)
            fill = self.name_of(functools.partial(memory_of, func, b))
            made = f"{fill}(arrays[{n}], {shape}, {strides})"
            self.line(f"b_{b.name} = {self.watched(b, made)}")
        self.suite(func.body)
        for n, b in enumerate(func.buffers):
            if b.name in self.stored | self.pointed:
                back = self.name_of(functools.partial(give_back, b))
                self.line(f"{back}(arrays[{n}], b_{b.name}, {self.strides_of(b)})")
        return "\n".join(self.lines)

    def layout(self, b: Buffer) -> tuple[str, str]:
        """Lines that compute the strides of a buffer; the source of its shape and strides."""
        shape = [self.expr(d) for d in b.shape]
        if b.strides is not None:
            strides = [self.expr(s) for s in b.strides]
        else:
            strides = ["1"] * b.rank
            for n in range(b.rank - 2, -1, -1):
                strides[n] = _times(strides[n + 1], shape[n + 1])
        for n, s in enumerate(strides):
            if not s.isdigit():
                self.line(f"s_{b.name}_{n} = {s}")
        return f"[{', '.join(shape)}]", self.strides_of(b, strides)

    def strides_of(self, b: Buffer, known: Sequence[str] | None = None) -> str:
        return f"[{', '.join(self.stride(b, n) for n in range(b.rank))}]"

    def stride(self, b: Buffer, n: int) -> str:
        """The source of a stride: a number if it is constant."""
        if b.strides is not None:
            s = b.strides[n]
            return str(s.value) if isinstance(s, Const) else f"s_{b.name}_{n}"
        product = 1
        for d in b.shape[n + 1 :]:
            if not isinstance(d, Const):
                return f"s_{b.name}_{n}"
            product *= int(d.value)
        return str(product)

    def watched(self, b: Buffer, values: str) -> str:
        """The source of a buffer's memory, tracked if it may be raced for."""
        if b.name not in self.tracked or b.scope == "local":
            return values
        return f"{self.name_of(Tracked)}({values}, {b.name!r}, {self.strides_of(b)}, clock)"

    # Statements

    def suite(self, s: Stmt) -> None:
        before = len(self.lines)
        self.stmt(s)
        if len(self.lines) == before:
            self.line("pass")

    def inner(self, s: Stmt) -> None:
        self.depth += 1
        self.suite(s)
        self.depth -= 1

    def stmt(self, s: Stmt) -> None:
        if isinstance(s, Seq):
            for each in s.stmts:
                self.stmt(each)
        elif isinstance(s, Let):
            source, interval = self.value(s.value)
            self.line(f"v_{s.var.name} = {source}")
            self.intervals[s.var.name] = interval
            self.loops.pop(s.var.name, None)
            self.stmt(s.body)
        elif isinstance(s, Alloc):
            self.alloc(s)
        elif not self.threaded and _has_threads(s):
            self.entry(s)
        elif isinstance(s, For):
            self.loop(s)
        elif isinstance(s, Block):
            self.block(s)
        elif isinstance(s, Store):
            offset, value = self.offset(s, s.buffer, s.indices), self.expr(s.value)
            self.line(f"b_{s.buffer.name}[{offset}] = {value}")
        elif isinstance(s, If):
            self.line(f"if {self.expr(s.cond)}:")
            self.inner(s.then)
            if s.other is not None:
                self.line("else:")
                self.inner(s.other)
        elif isinstance(s, Eval):
            self.evaluate(s.value)
        else:
            raise TypeError(f"no meaning for {type(s).__name__}")

    def evaluate(self, e: Expr) -> None:
        if isinstance(e, Call) and e.name.split(".")[0] == "barrier":
            if self.threaded:
                self.line(f"yield {self.fresh('')}")
        else:
            self.line(self.expr(e))

    def alloc(self, s: Alloc) -> None:
        b = s.buffer
        shape, strides = self.layout(b)
        nothing = self.name_of(Undefined(self.func, b))
        made = self.watched(b, f"[{nothing}] * {self.name_of(length)}({shape}, {strides})")
        if self.threaded and b.scope != "local":
            made = f"shared(({self.fresh('')}, *{shape}), lambda: {made})"
        self.line(f"b_{b.name} = {made}")
        self.stmt(s.body)

    def loop(self, s: For) -> None:
        (start, (low, _)), (stop, (_, high)) = self.value(s.start), self.value(s.stop)
        name = f"v_{s.var.name}"
        self.intervals[s.var.name] = (low, max(low, high - 1))
        self.loops[s.var.name] = s
        if s.kind == "thread" and self.threaded:
            self.line(f"{name} = {_axis(s.thread)}")
            self.line(f"if {start} <= {name} < {stop}:")
            self.inner(s.body)
            return
        outermost = s.kind == "parallel" and self.check_parallel and not self.parallel
        values = "clock.iterations" if outermost else "range"
        self.parallel |= outermost
        self.line(f"for {name} in {values}({start}, {stop}):")
        self.nested += 1
        if self.nested % _NESTED:
            self.inner(s.body)
        else:
            self.function(s.body)
        self.nested -= 1
        self.parallel &= not outermost

    def function(self, s: Stmt) -> None:
        """The body of a deep loop as a function of its own."""
        self.depth += 1
        name = self.fresh("f")
        self.line(f"def {name}():")
        self.inner(s)
        if self.threaded:
            self.line("  if 0: yield")
        self.line(f"yield from {name}()" if self.threaded else f"{name}()")
        self.depth -= 1

    def entry(self, s: Stmt) -> None:
        """A statement with thread loops: a generator for one thread, and the launch of the grid."""
        used = {n.thread: list[Expr]() for n in visit(s) if isinstance(n, For) and n.thread}
        for n in visit(s):
            if isinstance(n, For) and n.thread and n.stop not in used[n.thread]:
                used[n.thread].append(n.stop)
        axes = [a for a in THREAD_AXES if a in used]
        extents = {a: f"max({', '.join(map(self.expr, used[a]))}, 0)" for a in axes}
        name = self.fresh("entry")
        self.line(f"def {name}({', '.join([*map(_axis, axes), 'shared'])}):")
        self.threaded, nested, self.nested = True, self.nested, 0
        self.inner(s)
        self.threaded, self.nested = False, nested
        self.line("  if 0: yield")
        grid, block = (
            "[" + ", ".join(extents[a] for a in axes if a.startswith(unit)) + "]"
            for unit in ("block", "thread")
        )
        self.line(f"clock.launch({name}, {grid}, {block})")

    def block(self, s: Block) -> None:
        depth = self.depth
        if s.where is not None:
            self.line(f"if {self.expr(s.where)}:")
            self.depth += 1
        first: list[str] = []
        for axis in s.axes:
            name = f"v_{axis.var.name}"
            source, (low, high) = self.value(axis.value)
            extent, (_, most) = self.value(axis.extent)
            self.line(f"{name} = {source}")
            if not self.inside(axis.value, (low, high), axis.extent):
                at = self.fail_outside(s, axis.value)
                self.line(f"if not 0 <= {name} < {extent}: {at}(0, {name}, {extent})")
                low, high = max(low, 0), min(high, max(0, most - 1))
            self.intervals[axis.var.name] = (low, high)
            self.loops.pop(axis.var.name, None)
            if axis.kind == "reduce":
                first.append(f"{name} == 0")
        if self.check_regions:
            self.boxes.append(self.boxes_of(s))
        if s.init is not None:
            self.line(f"if {' and '.join(first) or 'True'}:")
            self.inner(s.init)
        self.suite(s.body)
        if self.check_regions:
            self.boxes.pop()
        self.depth = depth

    def boxes_of(self, s: Block) -> _Boxes:
        """Lines that compute the regions of a block: a list of boxes for each buffer."""
        found = _Boxes(s, {b.buffer.name for b in visit(s) if isinstance(b, Alloc)})
        for regions, boxes in ((s.writes, found.writes), ((*s.reads, *s.writes), found.reads)):
            for r in regions:
                starts, extents = map(self.expr, r.starts), map(self.expr, r.extents)
                box = ", ".join(f"({a}, {a} + {n})" for a, n in zip(starts, extents, strict=True))
                boxes[r.buffer.name] = boxes.get(r.buffer.name, "") + f"[{box}], "
            for name, inside in boxes.items():
                boxes[name] = self.fresh("r")
                self.line(f"{boxes[name]} = [{inside}]")
        return found

    # Expressions: the source, and for whole numbers the interval

    def expr(self, e: Expr) -> str:
        return self.value(e)[0]

    def value(self, e: Expr) -> tuple[str, Interval]:
        """The source of a value, and the interval of a whole number."""
        source, interval = self.source(e)
        if not self.pure and source.count("(") > _DEEP:
            name = self.fresh("t")
            self.line(f"{name} = {source}")
            source = name
        if not e.dtype.is_int:
            return source, (0, 1)
        low, high = _range(e.dtype)
        if low <= interval[0] and interval[1] <= high:
            return source, interval
        mask = (1 << e.dtype.bits) - 1
        wrapped = f"({source} & {mask})" if low == 0 else f"(({source} + {-low} & {mask}) - {-low})"
        return wrapped, (low, high)

    def source(self, e: Expr) -> tuple[str, Interval]:
        if isinstance(e, Var):
            return f"v_{e.name}", self.intervals.get(e.name, _range(e.dtype))
        if isinstance(e, Const):
            return self.constant(e)
        if isinstance(e, Load):
            offset = self.offset(e, e.buffer, e.indices)
            return f"b_{e.buffer.name}[{offset}]", _range(e.dtype)
        if isinstance(e, Binary):
            return self.binary(e)
        if isinstance(e, Select):
            condition = self.expr(e.cond)
            self.pure += 1
            then, (a, b) = self.value(e.then)
            other, (c, d) = self.value(e.other)
            self.pure -= 1
            return f"({then} if {condition} else {other})", (min(a, c), max(b, d))
        if isinstance(e, Unary):
            f = self.function_of(scalar.unary_function, e.op, e.a.dtype)
            return f"{f}({self.expr(e.a)})", _range(e.dtype)
        if isinstance(e, Cast):
            inner, interval = self.value(e.a)
            if e.dtype.is_int and e.a.dtype.is_int:
                return inner, interval  # wrapped where it does not fit
            f = self.function_of(scalar.conversion, e.a.dtype, e.dtype)
            return f"{f}({inner})", (0, 1) if e.a.dtype.is_bool else _range(e.dtype)
        if isinstance(e, Call):
            return self.call(e), _range(e.dtype)
        raise TypeError(f"no meaning for {type(e).__name__}")

    def constant(self, e: Const) -> tuple[str, Interval]:
        value = scalar.scalar(e.value, e.dtype)
        if not e.dtype.is_float:
            return (str(value) if value >= 0 else f"({value})"), (int(value), int(value))
        if e not in self.constants:
            self.constants[e] = self.name_of(value)
        return self.constants[e], (0, 0)

    def function_of(self, make: Callable[..., Any], *key: Any) -> str:
        """The global that holds a function of `scalar`."""
        if key not in self.constants:
            self.constants[key] = self.name_of(make(*key), "f")
        return self.constants[key]

    def binary(self, e: Binary) -> tuple[str, Interval]:
        op, of = e.op, e.a.dtype
        (a, x), (b, y) = self.value(e.a), self.value(e.b)
        if op in _DIVISIONS and of.is_int:
            if y[0] <= 0 <= y[1]:
                b = self.checked(e, b, "{} == 0", "a whole number is divided by zero")
        elif op in (BinaryOp.shl, BinaryOp.shr) and not (y[0] >= 0 and y[1] < of.bits):
            b = self.checked(e, b, f"not 0 <= {{}} < {of.bits}", "the shift is too far")
        interval = _interval(op, x, y) if of.is_int else None
        if op in COMPARISONS:
            return f"({a} {op.value} {b})", (0, 1)
        if op in (BinaryOp.logical_and, BinaryOp.logical_or):
            return f"({a} {'&' if op is BinaryOp.logical_and else '|'} {b})", (0, 1)
        if op.value.isidentifier():
            f = self.function_of(scalar.binary_function, op, of)
            return f"{f}({a}, {b})", interval or _range(of)
        return f"({a} {op.value} {b})", interval or _range(of)

    def checked(self, e: Expr, source: str, wrong: str, why: str) -> str:
        """`source`, or an error if it is wrong."""
        name = self.fresh("t")
        fail = self.name_of(functools.partial(_undefined, self.func, e, why))
        return f"({fail}() if {wrong.format(f'({name} := {source})')} else {name})"

    def offset(self, at: Node, b: Buffer, indices: Sequence[Expr]) -> str:
        """The flat offset of an element, each index checked against its dimension."""
        terms: list[str] = []
        touched: list[str] = []
        for n, (index, extent) in enumerate(zip(indices, b.shape, strict=True)):
            source, interval = self.value(index)
            if not self.inside(index, interval, extent):
                name, limit = self.fresh("t"), self.expr(extent)
                fail = self.fail_outside(at, Load(b, tuple(indices)))
                checked = f"{name} if 0 <= ({name} := {source}) < {limit}"
                source = f"({checked} else {fail}({n}, {name}, {limit}))"
            if self.boxes:
                name = self.fresh("t")
                touched.append(name)
                source = f"({name} := {source})"
            terms.append(_times(self.stride(b, n), source))
        offset = " + ".join(t for t in terms if t != "0") or "0"
        for boxes in self.boxes:
            if b.name not in boxes.own:
                held = (boxes.writes if isinstance(at, Store) else boxes.reads).get(b.name, "[]")
                check = self.name_of(functools.partial(_covered, self.func, boxes.block, at, b))
                offset = f"{check}({offset}, {held}, [{', '.join(touched)}])"
        return offset

    def fail_outside(self, at: Node, e: Expr) -> str:
        return self.name_of(functools.partial(_outside, self.func, at, e))

    def inside(self, index: Expr, interval: Interval, extent: Expr) -> bool:
        """Whether `index` surely lies in [0, extent)."""
        if interval[0] < 0:
            return False
        if isinstance(extent, Const):
            return interval[1] < extent.value
        loop = self.loops.get(index.name) if isinstance(index, Var) else None
        return loop is not None and loop.stop == extent

    def call(self, e: Call) -> str:
        if e.name == "reinterpret":
            f = self.function_of(scalar.reinterpretation, e.args[0].dtype, e.dtype)
            return f"{f}({self.expr(e.args[0])})"
        if e.name == "address_of" and isinstance(e.args[0], Load):
            b = e.args[0].buffer
            offset = self.offset(e, b, e.args[0].indices)
            return f"{self.name_of(Pointer)}(b_{b.name}, {offset}, {self.name_of(b)})"
        if e.name in ("rounded", "again"):
            return self.expr(e.args[0])
        if e.name == "prefetch":
            return "None"
        if e.name == "choose":
            return self.expr(as_selects(e))
        unknown = self.name_of(functools.partial(_unknown, self.func, e))
        args = ", ".join(map(self.expr, e.args))
        return f"(intrinsics.get({e.name!r}) or {unknown}())({args})"


_DIVISIONS = (BinaryOp.floordiv, BinaryOp.floormod, BinaryOp.truncdiv, BinaryOp.truncmod)


class _Boxes:
    """The regions of a block as source: for each buffer a variable that holds its boxes."""

    def __init__(self, block: Block, own: set[str]) -> None:
        self.block, self.own = block, own
        self.reads: dict[str, str] = {}
        self.writes: dict[str, str] = {}


def _covered(
    func: Func, block: Block, at: Node, b: Buffer, offset: int, boxes: Any, index: list[int]
) -> int:
    """`offset`, if some box holds the index."""
    for box in boxes:
        if all(low <= i < high for i, (low, high) in zip(index, box, strict=True)):
            return offset
    touched = f"{b.name}[{', '.join(map(str, index))}]"
    why = f"block '{block.name}' touches {touched}, which its regions do not name"
    raise InterpError(f"cannot run '{func.name}'", why, lambda: mark(func, at, "here"))


def _outside(func: Func, at: Node, e: Expr, dim: int, value: int, limit: int) -> NoReturn:
    why = f"index {value} of {print_expr(e)}, dimension {dim}, is not in 0 … {limit - 1}"
    raise InterpError(f"cannot run '{func.name}'", why, lambda: mark(func, at, "here"))


def _undefined(func: Func, at: Node, why: str) -> NoReturn:
    raise InterpError(f"cannot run '{func.name}'", why, lambda: mark(func, at, "here"))


def _unknown(func: Func, call: Call) -> NoReturn:
    raise InterpError(
        f"cannot run '{func.name}'",
        f"nothing says what '{call.name}' does",
        lambda: mark(func, call),
        f"pass it: run(func, …, intrinsics={{'{call.name}': function}})",
    )


def _has_threads(s: Stmt) -> bool:
    return any(isinstance(n, For) and n.kind == "thread" for n in visit(s))


def _axis(thread: str) -> str:
    return "ax_" + thread.replace(".", "_")


def _times(a: str, b: str) -> str:
    if a == "1" or b == "0":
        return b
    if a == "0" or b == "1":
        return a
    return str(int(a) * int(b)) if a.isdigit() and b.isdigit() else f"{a} * {b}"


def _range(of: DType) -> Interval:
    return (int(of.lowest), int(of.highest)) if of.is_int else (0, 1)


def _interval(op: BinaryOp, x: Interval, y: Interval) -> Interval | None:
    """Where the exact (unwrapped) result lies; None: anywhere in the dtype."""
    (a, b), (c, d) = x, y
    if op is BinaryOp.add:
        return a + c, b + d
    if op is BinaryOp.sub:
        return a - d, b - c
    if op is BinaryOp.mul:
        corners = (a * c, a * d, b * c, b * d)
        return min(corners), max(corners)
    if op is BinaryOp.min:
        return min(a, c), min(b, d)
    if op is BinaryOp.max:
        return max(a, c), max(b, d)
    if op is BinaryOp.floormod and c > 0:
        return (a, b) if a >= 0 and b < c else (0, d - 1)
    if op is BinaryOp.floordiv and c > 0:
        return min(a // c, a // d), max(b // c, b // d)
    if op is BinaryOp.floordiv:
        top = max(abs(a), abs(b))
        return -top, top  # the most negative number divided by -1 wraps
    if op is BinaryOp.shl:
        most = max(0, min(d, 63))  # farther is refused when it runs
        return min(a << most, a), max(b << most, b)
    return None
