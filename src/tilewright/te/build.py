"""From tensors to a loop function.

In: input and output tensors. Out: an `ir.Func` in stage "blocks": one block under one loop nest for
each compute, producers first, intermediate tensors allocated around them. The one idea: nothing is
decided here that a schedule could decide.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tilewright.arith.simplify import Facts
from tilewright.ir.expr import Binary, Buffer, Const, Expr, Load, Var, const
from tilewright.ir.stmt import Alloc, Axis, Block, For, Func, Let, Region, Stmt, Store, seq
from tilewright.ir.walk import distinct, free_vars, fresh, reads, refold, visit
from tilewright.support.errors import CompileError
from tilewright.support.recursion import recursive
from tilewright.te.reduce import Reduce, identity_of
from tilewright.te.scan import Scan
from tilewright.te.tensor import Compute, Extern, Operation, Placeholder, Read, ReduceAxis, Tensor

ZERO, ONE = const(0), const(1)
Times = tuple[tuple[Var, Var, Expr], ...]


def func(name: str, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> Func:
    """The function that computes `outputs` from `inputs`: a loop nest for each tensor on the way.

    Its parameters are the inputs, the outputs, then the symbolic sizes in order of appearance.

    Raises:
        CompileError: an output depends on a placeholder that is not among the inputs, is an input,
            or is given twice.
    """
    return _Builder(name, tuple(inputs), tuple(outputs)).build()


class _Builder:
    """Names, buffers and statements of one function while it is built."""

    def __init__(self, name: str, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]) -> None:
        self.name, self.inputs, self.outputs = name, inputs, outputs
        self.buffers: dict[Tensor, Buffer] = {}
        self.taken: set[str] = set()  # loops and variables
        self.taken_buffers: set[str] = set()
        self.taken_blocks: set[str] = set()
        self.local: list[Buffer] = []  # intermediates, in order of definition
        self.free: set[Var] = set()  # what nothing here binds: symbolic sizes

    def build(self) -> Func:
        for tensor in (*self.inputs, *self.outputs):
            if not all(isinstance(d, Const) for d in tensor.shape):
                self.taken.update(
                    n.name for d in tensor.shape for n in visit(d) if isinstance(n, Var)
                )
        parameters = [self.declare(t) for t in self.inputs]
        for tensor in self.outputs:
            if isinstance(tensor.op, Placeholder) or tensor in self.buffers:
                raise CompileError(
                    f"cannot build '{self.name}'",
                    f"output '{tensor.name}' is an input or is given twice",
                    remedy="copy it: te.compute(T.shape, lambda *i: T[i])",
                )
            parameters.append(self.declare(tensor))
        body = seq(*[s for op in self.order() for s in self.operation(op)])
        for buffer in reversed(self.local):
            body = Alloc(buffer, body)
        return Func(self.name, (*parameters, *self.symbols(parameters)), body)

    def symbols(self, parameters: list[Buffer]) -> tuple[Var, ...]:
        """Symbolic sizes of the parameters and intermediates, and those that are values."""
        found: dict[Var, None] = {}
        for buffer in (*parameters, *self.local):
            for d in buffer.shape:
                if d.__class__ is not Const:
                    found.update(dict.fromkeys(n for n in visit(d) if isinstance(n, Var)))
        found.update(dict.fromkeys(sorted(self.free, key=lambda n: n.name)))
        return tuple(found)

    def size(self, e: Expr) -> Expr:
        """An expression of sizes, seen."""
        if e.__class__ is not Const:
            self.free |= free_vars(e)
        return e

    def order(self) -> list[Operation]:
        """The operations to run, producers first."""
        order: list[Operation] = []
        seen: set[Operation] = set()
        stack: list[tuple[Operation, bool]] = [(t.op, False) for t in reversed(self.outputs)]
        while stack:
            op, ready = stack.pop()
            if ready:
                order.append(op)
            elif op not in seen:
                seen.add(op)
                if isinstance(op, Placeholder):
                    self.check_given(op)
                    continue
                stack.append((op, True))
                stack.extend((t.op, False) for t in reversed(op.inputs) if t not in self.inputs)
        return order

    def check_given(self, op: Placeholder) -> None:
        if op.outputs[0] not in self.buffers:
            raise CompileError(
                f"cannot build '{self.name}'",
                f"placeholder '{op.name}' is read but is not among the inputs",
                remedy=f"pass it: te.func('{self.name}', [..., {op.name}], outputs)",
            )

    def declare(self, tensor: Tensor) -> Buffer:
        """The buffer of a tensor, under a name of its own."""
        label = fresh(tensor.name, self.taken_buffers)
        self.buffers[tensor] = buffer = Buffer(label, tensor.shape, tensor.dtype)
        return buffer

    def buffer(self, tensor: Tensor) -> Buffer:
        """The buffer of a tensor; a new intermediate if it has none yet."""
        if tensor not in self.buffers:
            self.local.append(self.declare(tensor))
        return self.buffers[tensor]

    def operation(self, op: Operation, times: Times = ()) -> Iterator[Stmt]:
        """`times`: of each scan around it its step, the loop's variable and how many there are, the
        outer ones first."""
        if isinstance(op, Compute):
            yield self.compute(op, times)
        elif isinstance(op, Scan):
            yield from self.scan(op, times)
        elif isinstance(op, Extern):
            yield self.extern(op)
        else:
            raise TypeError(f"{op!r} makes no statement")

    def compute(self, op: Compute, times: Times) -> Stmt:
        """A nest of loops with one block."""
        first = op.values[0]
        reduction = first if isinstance(first, Reduce) else None
        reduced = reduction.axes if reduction is not None else ()
        loops: list[tuple[Var, Expr]] = []
        axes: list[Axis] = []
        values: dict[Any, Expr] = {}
        for step, loop, length in times:
            clock = Var(fresh("v" + loop.name, self.taken))
            axes.append(Axis(clock, "ordered", length, loop))
            values[step] = clock
        for kind, axis, extent in (
            *(("spatial", a, e) for a, e in zip(op.axes, op.extents, strict=True)),
            *(("reduce", a, a.extent) for a in reduced),
        ):
            loop = Var(fresh(axis.name, self.taken))
            inner = Var(fresh("v" + loop.name, self.taken))
            loops.append((loop, self.size(extent)))
            axes.append(Axis(inner, kind, extent, loop))
            offset = self.size(axis.lo) if isinstance(axis, ReduceAxis) else ZERO
            values[axis] = inner + offset
        targets = [self.buffer(t) for t in op.outputs]
        indices = tuple(values[a] for a in op.axes)
        init, body = self.block_body(op, reduction, targets, indices, values)
        block = Block(
            fresh(op.name, self.taken_blocks),
            tuple(axes),
            _regions(body, set(targets) if reduction is not None else set()),
            tuple(Region(b, indices, (ONE,) * len(indices)) for b in targets),
            init,
            body,
            None,
            op.attrs,
        )
        nest: Stmt = block
        for loop, extent in reversed(loops):
            nest = For(loop, ZERO, extent, "serial", nest)
        return nest

    def block_body(
        self,
        op: Compute,
        reduction: Reduce | None,
        targets: list[Buffer],
        indices: tuple[Expr, ...],
        values: dict[Any, Expr],
    ) -> tuple[Stmt | None, Stmt]:
        if reduction is None:
            return None, seq(
                *(
                    Store(b, indices, self.loads(v, values))
                    for b, v in zip(targets, op.values, strict=True)
                )
            )
        neutral = identity_of(reduction)
        init = seq(*(Store(b, indices, v) for b, v in zip(targets, neutral, strict=True)))
        old: tuple[Expr, ...] = tuple(Load(b, indices) for b in targets)
        given = tuple(self.loads(v, values) for v in reduction.values)
        named: list[tuple[Var, Expr]] = []
        new = reduction.reducer.combine(old, given)
        if not _are_operations(new, old, given):  # what is combined with what stays visible
            named = [
                (Var(fresh(f"{word}_{b.name}", self.taken), b.dtype), value)
                for word, all_values in (("old", old), ("new", given))
                for b, value in zip(targets, all_values, strict=True)
            ]
            variables = tuple(v for v, _ in named)
            new = reduction.reducer.combine(variables[: len(old)], variables[len(old) :])
        body = seq(*(Store(b, indices, v) for b, v in zip(targets, new, strict=True)))
        for variable, value in reversed(named):
            body = Let(variable, value, body)
        return init, body

    def loads(self, value: Expr, values: dict[Any, Expr]) -> Expr:
        """`value` with axes replaced and tensor reads made loads."""

        shared: dict[int, Expr] = {}  # what the value names in several positions stays one

        @recursive
        def go(again: Any, n: Any) -> Any:
            if n.__class__ is Const:
                return n
            if isinstance(n, Var):
                if n not in values:
                    self.free.add(n)
                return values.get(n, n)
            found = shared.get(id(n))
            if found is None:
                if n.__class__ is Read:
                    found = Load(self.buffer(n.tensor), tuple([again(i) for i in n.indices]))
                else:
                    found = refold(n, n.map_children(again))
                shared[id(n)] = found
            return found

        return go(value)

    def scan(self, op: Scan, around: Times = ()) -> Iterator[Stmt]:
        """Copy init to the state; at each step compute, store into the stacked results, copy to the
        state. What is not stacked is the state at the end.
        """
        for state, start in zip(op.previous, op.init, strict=True):
            yield self.copy(f"{state.name}_init", self.buffer(start), self.buffer(state), around)
        step = Var(fresh(op.step.name, self.taken))
        times = (*around, (op.step, step, self.size(op.length)))
        stmts = [stmt for inner in op.steps() for stmt in self.operation(inner, times)]
        results, rows = op.outputs[: len(op.previous)], op.outputs[len(op.previous) :]
        stacked = [(out.name, new, out) for new, out in zip(op.rows, rows, strict=True)]
        if op.stacks:
            triples = zip(op.previous, op.updated, results, strict=True)
            stacked = [(state.name, new, out) for state, new, out in triples] + stacked
        for name, new, out in stacked:
            stmts.append(self.copy(f"{name}_out", self.buffer(new), self.buffer(out), times))
        for state, new in zip(op.previous, op.updated, strict=True):
            stmts.append(
                self.copy(f"{state.name}_next", self.buffer(new), self.buffer(state), times)
            )
        yield For(step, ZERO, op.length, "serial", seq(*stmts))
        if not op.stacks:
            for state, out in zip(op.previous, results, strict=True):
                yield self.copy(f"{state.name}_last", self.buffer(state), self.buffer(out), around)

    def copy(self, name: str, source: Buffer, target: Buffer, times: Times = ()) -> Stmt:
        """A block that copies `source` to `target` (to target[t] if it has one dimension more, t
        being the step of the innermost scan)."""
        loops: list[tuple[Var, Expr]] = []
        axes: list[Axis] = []
        prefix: tuple[Expr, ...] = ()
        for _, loop, length in times:
            clock = Var(fresh("v" + loop.name, self.taken))
            axes.append(Axis(clock, "ordered", length, loop))
            prefix = (clock,) if target.rank > source.rank else ()
        for d, extent in enumerate(source.shape):
            loop = Var(fresh(f"{name}_{d}", self.taken))
            inner = Var(fresh("v" + loop.name, self.taken))
            loops.append((loop, extent))
            axes.append(Axis(inner, "spatial", extent, loop))
        indices = tuple(a.var for a in axes if a.kind == "spatial")
        ones = (ONE,) * len(indices)
        written = (*prefix, *indices)
        nest: Stmt = Block(
            fresh(name, self.taken_blocks),
            tuple(axes),
            (Region(source, indices, ones),),
            (Region(target, written, (ONE,) * len(written)),),
            None,
            Store(target, written, Load(source, indices)),
        )
        for loop, extent in reversed(loops):
            nest = For(loop, ZERO, extent, "serial", nest)
        return nest

    def extern(self, op: Extern) -> Stmt:
        ins = [self.buffer(t) for t in op.inputs]
        outs = [self.buffer(t) for t in op.outputs]
        body = op.body(ins, outs)
        self.free |= free_vars(body)
        return Block(
            fresh(op.name, self.taken_blocks),
            (),
            tuple(_whole(b) for b in ins),
            tuple(_whole(b) for b in outs),
            None,
            body,
        )


def _are_operations(new: tuple[Expr, ...], old: tuple[Expr, ...], given: tuple[Expr, ...]) -> bool:
    """Is each new accumulator `old op given`, for one operation?"""
    return all(
        isinstance(n, Binary) and {n.a, n.b} == {o, g}
        for n, o, g in zip(new, old, given, strict=True)
    )


def _whole(buffer: Buffer) -> Region:
    return Region(buffer, (ZERO,) * buffer.rank, buffer.shape)


def _regions(body: Stmt, skip: set[Buffer]) -> tuple[Region, ...]:
    """What a block reads: one element for each plain access, the whole buffer where an index is
    itself loaded.
    """
    found: dict[Region, None] = {}
    for n in distinct([body]):
        if isinstance(n, Load) and n.buffer not in skip:
            gathers = any(reads(i) for i in n.indices)
            one = (ONE,) * n.buffer.rank
            found[_whole(n.buffer) if gathers else Region(n.buffer, n.indices, one)] = None
    whole = {
        r.buffer
        for r in found
        if r.starts == (ZERO,) * r.buffer.rank and r.extents == r.buffer.shape
    }
    kept = [r for r in found if r.buffer not in whole or r.extents == r.buffer.shape]
    of: dict[Buffer, list[Region]] = {}
    for r in kept:
        of.setdefault(r.buffer, []).append(r)
    return tuple(r for same in of.values() for r in _in_one(same))


def _in_one(regions: list[Region]) -> list[Region]:
    """Elements that lie side by side along one dimension as one region; others as they are."""
    first = regions[0]
    if len(regions) < 3 or any(r.extents != first.extents for r in regions):
        return regions
    known = Facts({})
    along, by_gap = -1, {}
    for r in regions:
        for d, (start, base) in enumerate(zip(r.starts, first.starts, strict=True)):
            gap = known.sum(known.affine(start), known.affine(base), -1)
            if gap.terms or (gap.const and along not in (-1, d)):
                return regions
            if gap.const:
                along = d
                by_gap[gap.const] = r
    by_gap[0] = first
    if max(by_gap) - min(by_gap) + 1 != len(regions) or len(by_gap) != len(regions):
        return regions
    least = by_gap[min(by_gap)]
    count = const(len(regions))
    extents = [count if d == along else e for d, e in enumerate(first.extents)]
    return [Region(least.buffer, least.starts, tuple(extents))]
