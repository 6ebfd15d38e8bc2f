"""Statements as LLVM instructions.

In: statements in stage "vector", one after another. Out: lines in a Builder. Unrolled loops run
here, in the compiler, with the variable as a constant; a vectorised loop sets `lanes`, and a
condition on lanes sets `mask`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tilewright.codegen.llvm_builder import Again, Carried
from tilewright.codegen.llvm_expressions import Expressions, read_anyway, repeats
from tilewright.codegen.llvm_index import Linear
from tilewright.codegen.llvm_lanes import only_live_lanes_are_read
from tilewright.codegen.llvm_memory import MOST_COVER, Cells, spread
from tilewright.codegen.llvm_registers import cells_of
from tilewright.codegen.llvm_transpose import Candidates, Guards, slope, transposable
from tilewright.codegen.llvm_types import (
    Value,
    constant,
    known_lanes,
    literal,
    mangle,
    memory,
    register,
    vector,
    vector_constant,
)
from tilewright.ir.dtype import bool_, f32, f64, i64
from tilewright.ir.expr import Binary, BinaryOp, Call, Const, Expr, Load, Select, as_int, const
from tilewright.ir.stmt import Alloc, Eval, For, If, Let, Seq, Stmt, Store, annotation
from tilewright.ir.walk import statements
from tilewright.lower.lanes import FIRST_LANE_RUNS, lane_reduction
from tilewright.support.errors import CompileError, InternalFault
from tilewright.target.target import Target

FEW_ROUNDS, FEW_BITS = 4, 32  # below, lines under a mask take as long as gathering elements
Summed = tuple[Load, Expr, Expr, Expr | None] | None  # see `sum_of_product`
_FUSED = (f32, f64)  # what machines multiply and add in one step
STACK_LIMIT = 64 << 10  # bytes of one local buffer that may lie on the stack


class Statements(Expressions):
    """Writes statements; expressions come from the class above."""

    most_stack = STACK_LIMIT

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        self.scratch_bytes = 0
        self.scratch_used = 0
        self.first_lane = False  # the first lane satisfies every condition of the vectorised loop
        # by identity: loops with numbers for ends, where they start, and how many rounds they have
        self.unrolled: dict[int, tuple[For, Linear, int]] = {}
        self.open: list[Again] = []  # the loops that are being written
        self.lanes_of: dict[int, tuple[For, int, bool, Linear | None]] = {}  # see `vectorize`
        self.repeating: dict[int, tuple[Store, bool, Summed]] = {}  # by identity, see `repeats`
        self.written: dict[int, tuple[For, set[str], bool]] = {}  # by identity of the loop
        self.as_values: dict[int, tuple[Alloc, Cells | None]] = {}  # likewise
        self.candidates: dict[int, tuple[For, Candidates | None]] = {}  # to transpose, likewise

    def run(self, stmt: Stmt) -> None:
        self.evaluated = {}
        getattr(self, _METHODS[stmt.__class__])(stmt)

    def sequence(self, stmt: Seq) -> None:
        for s in stmt.stmts:
            self.run(s)

    def let(self, stmt: Let) -> None:
        if stmt.var.dtype is i64:
            self.env[stmt.var.name] = self.index(stmt.value)
        else:
            self.env[stmt.var.name] = self.eval(stmt.value)
        self.run(stmt.body)

    def evaluate(self, stmt: Eval) -> None:
        self.eval(stmt.value)
        if _may_write(stmt):
            self.forget()

    def forget(self) -> None:
        """Memory may have changed in ways that no store shows."""
        for name in self.memory.pointers:
            self.memory.version[name] = self.memory.version.get(name, 0) + 1

    # -- loops -------------------------------------------------------------------------------------

    def parallel(self, stmt: For) -> None:
        """The loop of a launch: parts [begin, end)."""
        start = self.index(stmt.start)
        with self.b.loop("%begin", "%end", surely=False) as variable:
            self.b.regions[-1].is_parallel = True
            moved = start.plus(Linear(0, {variable: 1}))
            assert moved is not None
            self.env[stmt.var.name] = moved
            self.run(stmt.body)

    def loop(self, stmt: For) -> None:
        if stmt.kind == "vectorize" and not self.lanes:
            return self.vectorize(stmt)
        if stmt.kind == "thread":
            raise CompileError(
                f"cannot run loop '{stmt.name}' on {stmt.thread}",
                f"target '{self.target.kind}' has no threads of that kind",
                remedy="mark the loop parallel instead",
            )
        known = self.unrolled.get(id(stmt))
        if known is not None:  # as mostly, within unrolled loops
            return self.unroll(*known)
        start, stop = self.index(stmt.start), self.index(stmt.stop)
        extent = stop.plus(start, -1)
        count = extent.constant if extent is not None and extent.is_constant else None
        if count is not None and count <= 0:
            return None
        if count == 1 or (count is not None and stmt.kind in ("unroll", "vectorize")):
            if stmt.start.__class__ is Const and stmt.stop.__class__ is Const:
                self.unrolled[id(stmt)] = stmt, start, count
            return self.unroll(stmt, start, count)
        written, innermost = self.stored_in(stmt)
        for name in written:
            self.memory.version[name] = self.memory.version.get(name, 0) + 1
        first, last = self.uniform(start), self.uniform(stop)
        kept = written if innermost else None
        surely, carried = count is not None, self.carried(written)
        phis = [*carried.values()]
        self.open.append(again := Again(stmt.var.name))
        with self.b.loop(
            first, last, surely=surely, writes=kept, carried=phis, again=again
        ) as variable:
            self.env[stmt.var.name] = Linear(0, {variable: 1})
            self.run(stmt.body)
            self.open.pop()
            for (name, at), phi in carried.items():
                phi.last = self.memory.cells[name][at].text
        for (name, at), phi in carried.items():
            held = self.memory.cells[name][at]
            self.memory.cells[name][at] = Value(phi.left, held.dtype, held.lanes)
        return None

    def carried(self, written: set[str]) -> dict[tuple[str, int], Carried]:
        """What rounds of a loop hand on of the buffers that it writes: cells hold it inside."""
        found: dict[tuple[str, int], Carried] = {}
        for name, cells in self.memory.cells.items():
            for at, held in cells.items() if name in written else ():
                kind, inside = register(held.dtype, held.lanes), self.b.name()
                found[name, at] = Carried(kind, held.text, inside)
                cells[at] = Value(inside, held.dtype, held.lanes)
        return found

    def branch(self, condition: str, then: Stmt, other: Stmt | None = None) -> None:
        """Run `then` if the i1 `condition` holds, else `other`; what cells hold is joined."""
        cells = self.memory.cells
        before = {name: dict(held) for name, held in cells.items()}
        ends: list[tuple[str, dict[str, Cells]]] = []

        def arm(stmt: Stmt) -> Callable[[], None]:
            def run() -> None:
                for name, held in before.items():
                    cells[name] = dict(held)
                self.run(stmt)
                ends.append((self.b.block, {name: cells[name] for name in before}))

            return run

        here = self.b.block
        self.b.branch(condition, arm(then), None if other is None else arm(other))
        if other is None:
            ends.append((here, before))
        (a_end, a_cells), (b_end, b_cells) = ends
        for name in before:
            joined = cells[name] = dict(a_cells[name])
            for at, a in joined.items():
                b = b_cells[name][at]
                if a.text != b.text:
                    kind = register(a.dtype, a.lanes)
                    text = f"phi {kind} [ {a.text}, %{a_end} ], [ {b.text}, %{b_end} ]"
                    joined[at] = Value(self.b.value(text), a.dtype, a.lanes)

    def stored_in(self, stmt: For) -> tuple[set[str], bool]:
        """The buffers that a loop stores to, and whether that is all: it holds no other loop."""
        known = self.written.get(id(stmt))
        if known is None:
            inside = list(statements(stmt.body))
            names = {n.buffer.name for n in inside if isinstance(n, Store)}
            loops = any(
                isinstance(n, For) and n.kind not in ("unroll", "vectorize") for n in inside
            )
            known = self.written[id(stmt)] = stmt, names, not loops
        return known[1:]

    def unroll(self, stmt: For, start: Linear, count: int) -> None:
        if not self.lanes:
            self.transpose(stmt, start, count)
        for n in range(count):
            self.env[stmt.var.name] = self.moved(start, n)
            self.run(stmt.body)
        self.memory.transposed.clear()

    def moved(self, start: Linear, by: int, lanes: int = 0) -> Linear:
        """A loop's variable in one round; in all `lanes`, if given."""
        if start.terms or start.offsets is not None or start.varying is not None:
            offsets = range(lanes) if lanes else start.offsets
            return Linear(start.constant + by, start.terms, offsets, start.varying)
        return self.number(start.constant + by, lanes)

    def transpose(self, stmt: For, start: Linear, count: int) -> None:
        """Make what all rounds of an unrolled loop read across memory in one go."""
        if count == 1:
            return
        known = self.candidates.get(id(stmt))
        if known is None:  # asked again in each round of an unrolled loop around it
            known = self.candidates[id(stmt)] = stmt, transposable(stmt, MOST_COVER)
        if known[1] is None:
            return
        loop, candidates = known[1]
        lanes = as_int(loop.extent) or 0
        first = self.index(loop.start)
        if lanes & (lanes - 1):
            return
        self.lanes = lanes
        self.bind(loop, Linear(first.constant, first.terms, range(lanes)))
        for load, guards in candidates:
            here, line = self.line(load.indices[0], stmt, start, count)
            far = here.varying or abs(here.stride or 0) * (lanes - 1) >= MOST_COVER * lanes
            if far and line > 1 and not load.buffer.dtype.is_packed:
                on = self.guarded_lanes(guards)
                few = line < FEW_ROUNDS or load.buffer.dtype.bits < FEW_BITS
                if any(on) if isinstance(on, list) else not few:
                    self.memory.transpose(load.buffer, here, lanes, line, on)
        self.lanes = 0

    def line(self, index: Expr, stmt: For, start: Linear, count: int) -> tuple[Linear, int]:
        """An index in a loop's first round, and for how many rounds it is one more in each; leaves
        the loop's variable at one of them."""
        self.bind(stmt, start)
        here = self.index(index)
        for n in range(1, count):
            self.bind(stmt, Linear(start.constant + n, start.terms))
            if _step(here, self.index(index)) != n:  # of i % 2 too
                return here, n
            if slope(index, stmt.var) == 1:
                break
        return here, count

    def bind(self, loop: For, form: Linear) -> None:
        """Let a loop's variable be another number within a statement."""
        self.env[loop.var.name] = form
        self.evaluated = {}

    def guarded_lanes(self, guards: Guards) -> list[bool] | str:
        """The lanes in which all guards hold; a mask where only the run knows."""
        on, mask = [True] * self.lanes, ""
        for condition, way in guards:
            value = self.eval(condition)
            known = value.const is not None
            holds = [bool(value.const)] * self.lanes if known else known_lanes(value.text)
            if holds:
                on = [a and b is way for a, b in zip(on, holds, strict=True)]
                continue
            text = spread(self.b, value, self.lanes).text
            text = text if way else self.against(text)
            flag = vector("i1", self.lanes)
            mask = self.b.pure(f"and {flag} {mask}, {text}", mask, text) if mask else text
        if not mask or not any(on):
            return on
        flag, known_on = vector("i1", self.lanes), vector_constant(on, bool_)
        return mask if all(on) else self.b.pure(f"and {flag} {mask}, {known_on}", mask)

    def vectorize(self, stmt: For) -> None:
        known = self.lanes_of.get(id(stmt))
        if known is None:  # an unrolled loop around it comes here again and again
            extent, first_runs = as_int(stmt.extent), bool(annotation(stmt, FIRST_LANE_RUNS))
            if extent is None:
                raise InternalFault(f"vectorised loop '{stmt.name}' has no constant extent")
            fixed = stmt.start.__class__ is Const
            form = self.moved(self.index(stmt.start), 0, extent) if fixed else None
            known = self.lanes_of[id(stmt)] = stmt, extent, first_runs, form
        _, count, first_runs, form = known
        if count <= 1:
            return self.unroll(stmt, self.index(stmt.start), count)
        form = form or self.moved(self.index(stmt.start), 0, count)
        self.lanes, outside = count, self.lane_buffers
        self.first_lane, self.lane_buffers = first_runs, set()
        self.env[stmt.var.name] = form
        self.run(stmt.body)
        self.lanes, self.lane_buffers, self.first_lane = 0, outside, False
        return None

    def uniform(self, index: Linear) -> str:
        if not index.is_uniform:
            raise InternalFault("a loop bound varies over the lanes of a vectorised loop")
        return index.scalar(self.b)

    # -- conditions --------------------------------------------------------------------------------

    def condition(self, stmt: If) -> None:
        """Parts that all lanes share branch; the rest becomes a mask."""
        cond = self.eval(stmt.cond)
        if cond.const is not None:
            chosen = stmt.then if cond.const else stmt.other
            return None if chosen is None else self.run(chosen)
        if not cond.lanes:
            return self.branch(cond.text, stmt.then, stmt.other)
        self.masked(self.also(cond.text), stmt.then)
        if stmt.other is not None:
            self.masked(self.also(self.against(cond.text)), stmt.other)
        return None

    def masked(self, mask: str, body: Stmt) -> None:
        """Run `body` in the lanes of `mask`, and not at all if there are none."""
        outside = self.mask, self.some_active
        self.mask, self.some_active = mask, True
        if mask.startswith("<") or self.first_lane:  # some lane is on
            self.run(body)
        else:
            self.branch(self.any_lane(mask), body)
        self.mask, self.some_active = outside

    # -- memory ------------------------------------------------------------------------------------

    def alloc(self, stmt: Alloc) -> None:
        buffer = stmt.buffer
        lanes = max(1, self.lanes)
        count = as_int(buffer.shape[0])
        if count is None:
            raise CompileError(
                f"cannot allocate buffer '{buffer.name}'",
                "its size inside a loop is not a constant",
            )
        cells = None if self.lanes else self.cells(stmt)
        if cells is not None:
            return self.valued(stmt, cells)
        if self.lanes:
            self.lane_buffers.add(buffer.name)
        size = buffer.dtype.nbytes(count) * lanes
        used = self.scratch_used
        name = f"%m{len(self.b.allocas)}"
        if buffer.scope == "local" and size <= self.most_stack:
            total = count * lanes + self.overhang(stmt)
            self.b.allocas.append(f"  {name} = alloca [{total} x {memory(buffer.dtype)}], align 64")
            self.memory.private.add(buffer.name)
            if not self.lanes and only_live_lanes_are_read(stmt):
                self.memory.unmasked.add(buffer.name)
        else:
            self.b.allocas.append(f"  {name} = getelementptr i8, ptr %scratch, i64 {used}")
            self.scratch_used = used + (size + 63) // 64 * 64
            self.scratch_bytes = max(self.scratch_bytes, self.scratch_used)
        self.memory.pointers[buffer.name] = name
        self.memory.version[buffer.name] = self.memory.version.get(buffer.name, 0) + 1
        self.run(stmt.body)
        self.scratch_used = used

    def cells(self, stmt: Alloc) -> Cells | None:
        """The cells of a buffer that can be values; an unrolled loop comes here again and again."""
        known = self.as_values.get(id(stmt))
        if known is None:
            made = cells_of(stmt) if stmt.buffer.scope == "local" else None
            known = self.as_values[id(stmt)] = stmt, made
        return known[1]

    def valued(self, stmt: Alloc, cells: Cells) -> None:
        """Run the body of an allocation with what the buffer holds as values."""
        name = stmt.buffer.name
        self.memory.private.add(name)
        if only_live_lanes_are_read(stmt):
            self.memory.unmasked.add(name)
        self.memory.cells[name] = dict(cells)
        self.run(stmt.body)
        del self.memory.cells[name]

    def overhang(self, stmt: Alloc) -> int:
        """How many elements a masked vector access might reach past the end of the buffer."""
        inside = list(statements(stmt.body))
        if not any(isinstance(n, If) for n in inside):
            return 0
        loops = [n for n in inside if isinstance(n, For) and n.kind == "vectorize"]
        return max([as_int(n.extent) or 0 for n in loops], default=0)

    def store(self, stmt: Store) -> None:
        known = self.repeating.get(id(stmt))
        if known is None:  # an unrolled loop around it comes here again and again
            summed = sum_of_product(stmt)
            known = self.repeating[id(stmt)] = stmt, repeats((*stmt.indices, stmt.value)), summed
        if not known[1]:
            self.evaluated = None
        where = stmt.indices[0]
        index = self.location(stmt.buffer, where) if self.lane_buffers else self.index(where)
        if index.is_uniform and self.lanes and self.varies(stmt.value):
            return self.reduce_lanes(stmt, index)
        summed = known[2]
        value = self.eval(stmt.value) if summed is None else self.multiply_add(*summed)
        if not index.is_uniform:
            value = spread(self.b, value, self.lanes)
        self.memory.store(stmt.buffer, index, value, self.lanes, self.mask)
        return None

    def multiply_add(self, total: Load, a: Expr, b: Expr, where: Expr | None) -> Value:
        """total + a b, rounded once where the machine can; total where `where` does not hold. Left
        to LLVM, a sum of which one lane is wanted was split, and rounded twice in that lane, as
        were products of which a condition chose."""
        old = self.eval(total)
        if where is None:
            return self.fused(self.eval(a), self.eval(b), old)
        cond = self.eval(where)
        if cond.const is not None:
            return self.fused(self.eval(a), self.eval(b), old) if cond.const else old
        if cond.lanes:
            read = read_anyway(where)
            x, y = (self.under(cond.text, e, read) for e in (a, b))
            new = self.fused(x, y, old)
            return self.ops.select(cond.text, self.lanes, new, spread(self.b, old, self.lanes))
        lanes = self.lanes if old.lanes or self.varies(a) or self.varies(b) else 0
        old = spread(self.b, old, lanes) if lanes else old
        text = self.b.choose(
            cond.text,
            register(total.dtype, lanes),
            lambda: self.fused(self.aside(a, lanes), self.aside(b, lanes), old).text,
            lambda: old.text,
        )
        return Value(text, total.dtype, lanes)

    def reduce_lanes(self, stmt: Store, index: Linear) -> None:
        """All lanes write one element: a reduction `C = C op f(lane)`."""
        found = lane_reduction(stmt)
        if found is None:
            raise InternalFault(
                f"lanes of a vectorised loop write one element of '{stmt.buffer.name}'"
            )
        op, rest = found
        dtype = stmt.buffer.dtype
        value = spread(self.b, self.eval(rest), self.lanes)
        if self.mask is not None:
            neutral = constant(_NEUTRAL[op](dtype), dtype, self.lanes)
            value = self.ops.select(self.mask, self.lanes, value, neutral)
        old = self.memory.load(stmt.buffer, index, 0, None)
        kind, wide = register(dtype), register(dtype, self.lanes)
        name = _REDUCE[op][{"float": 0, "int": 1, "uint": 2, "bool": 3}[dtype.kind]]
        full = f"llvm.vector.reduce.{name}.{mangle(wide)}"
        if name in ("fadd", "fmul"):
            start = literal(0.0 if name == "fadd" else 1.0, dtype)
            total = self.b.call(
                kind, full, [(kind, start), (wide, value.text)], flags="reassoc contract "
            )
        else:
            total = self.b.call(kind, full, [(wide, value.text)])
        new = self.ops.binary(op, old, self.ops.finish(total, dtype, 0, False, False))
        self.memory.store(stmt.buffer, index, new, 0, None)


def sum_of_product(stmt: Store) -> Summed:
    """(C, a, b, None) if a store is `C = C + a b`, with the condition if it is `C = C + (a b where
    it holds, else 0)`."""
    value = stmt.value
    if not (isinstance(value, Binary) and value.op is BinaryOp.add and value.dtype in _FUSED):
        return None
    total, product, where = value.a, value.b, None
    if isinstance(product, Select) and product.other == const(0, value.dtype):
        product, where = product.then, product.cond
    if not (isinstance(product, Binary) and product.op is BinaryOp.mul):
        return None
    if isinstance(total, Load) and total.buffer is stmt.buffer and total.indices == stmt.indices:
        return total, product.a, product.b, where
    return None


def _is_loop(s: Stmt) -> bool:
    return isinstance(s, For) and s.kind not in ("unroll", "vectorize")


def _may_write(s: Stmt) -> bool:
    """Whether a call may change memory, or wait until others have changed it."""
    return isinstance(s, Eval) and not (isinstance(s.value, Call) and s.value.name == "prefetch")


_REDUCE = {
    BinaryOp.add: ("fadd", "add", "add", "or"),
    BinaryOp.mul: ("fmul", "mul", "mul", "and"),
    BinaryOp.min: ("fminimum", "smin", "umin", "and"),
    BinaryOp.max: ("fmaximum", "smax", "umax", "or"),
    BinaryOp.bit_and: ("", "and", "and", "and"),
    BinaryOp.bit_or: ("", "or", "or", "or"),
    BinaryOp.bit_xor: ("", "xor", "xor", "xor"),
    BinaryOp.logical_and: ("", "", "", "and"),
    BinaryOp.logical_or: ("", "", "", "or"),
}
_NEUTRAL: dict[BinaryOp, Callable[[Any], Any]] = {
    BinaryOp.add: lambda d: 0,
    BinaryOp.mul: lambda d: 1,
    BinaryOp.min: lambda d: float("inf") if d.is_float else d.highest,
    BinaryOp.max: lambda d: float("-inf") if d.is_float else d.lowest,
    BinaryOp.bit_and: lambda d: -1 if not d.is_bool else True,
    BinaryOp.bit_or: lambda d: 0,
    BinaryOp.bit_xor: lambda d: 0,
    BinaryOp.logical_and: lambda d: True,
    BinaryOp.logical_or: lambda d: False,
}
_METHODS: dict[type, str] = {  # by name: machines with threads have loops of their own
    Seq: "sequence",
    For: "loop",
    If: "condition",
    Let: "let",
    Alloc: "alloc",
    Store: "store",
    Eval: "evaluate",
}


def _step(here: Linear, next_: Linear) -> int | None:
    """How far `next_` is from `here`; None where only the run knows, or lanes differ."""
    if here.varying and next_.varying and here.varying.text == next_.varying.text:
        here, next_ = (replace(x, varying=None) for x in (here, next_))
    step = next_.plus(here, -1)
    return step.constant if step is not None and step.is_constant else None
