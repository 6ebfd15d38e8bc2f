"""legalize_vectors: every vectorised loop becomes one that a machine can run.

In: stage "flat". Out: stage "vector": a vectorised loop has a constant extent that is a power of
two and at most a few registers wide, holds no other vectorised loop, no loop whose bounds differ
between lanes, and no store in which lanes collide other than as a reduction. Loops that cannot be
so become serial; tails become masked or smaller vectors.
"""

from __future__ import annotations

from typing import Any

from tilewright.arith.prove import can_prove
from tilewright.arith.simplify import Facts, let_range, loop_range
from tilewright.ir.dtype import i64
from tilewright.ir.expr import (
    Binary,
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
    const,
)
from tilewright.ir.stmt import Alloc, Eval, For, Func, If, Let, Seq, Stmt, Store, annotated, seq
from tilewright.ir.walk import (
    accesses,
    contains,
    distinct,
    fresh,
    names,
    reads,
    statements,
    substitute,
    visit,
)
from tilewright.lower.lanes import FIRST_LANE_RUNS, is_lane_reduction
from tilewright.support.recursion import recursive
from tilewright.target.target import Target

WIDEST = 4  # registers that one vector operation may take
WIDE = 2  # registers that a vector of a long loop takes
VALUES = ("reinterpret", "choose", "rounded")  # calls that lanes make side by side
MOST_UNROLLED = 4096  # stores that one unrolled loop may become


def legalize_vectors(func: Func, machine: Target) -> Func:
    """Cut vectorised loops to the machine's width.

    rewrite:  (16 lanes)
        for i in vectorize(0, 100):           for i_o in serial(0, 3):
            B[i] = A[i] * 2.0           →         for i_i in vectorize(0, 32):
                                                      B[i_o * 32 + i_i] = A[i_o * 32 + i_i] * 2.0
                                              for i_1 in vectorize(0, 4):
                                                  B[96 + i_1] = A[96 + i_1] * 2.0
    """
    known = Facts({p: (0, None) for p in func.params if isinstance(p, Var)})
    body = _Legalize(machine, func).go(func.body, known)
    return func if body is func.body else func.replace(body=body)


class _Legalize:
    def __init__(self, machine: Target, func: Func) -> None:
        self.machine, self.func = machine, func
        self.taken: set[str] = set()

    def go(self, s: Any, known: Facts) -> Any:
        if isinstance(s, For):
            if s.kind == "vectorize":
                return self.vectorized(s, known)
            body = self.go(s.body, known.bind(s.var, *loop_range(s)))
            made = s if body is s.body else s.replace(body=body)
            if made.kind == "unroll" and not _can_unroll(made):
                return made.replace(kind="serial")
            return made.replace(kind="serial") if made.kind == "pipeline" else made
        if isinstance(s, Let):
            body = self.go(s.body, known.bind(s.var, *let_range(s, known)))
            return s if body is s.body else s.replace(body=body)
        if isinstance(s, If):
            then = self.go(s.then, known.during(s.cond, s.then))
            other = s.other
            if other is not None:
                other = self.go(other, known.during(Unary(UnaryOp.logical_not, s.cond), other))
            return s if then is s.then and other is s.other else If(s.cond, then, other)
        if isinstance(s, Seq):  # where a loop becomes several, they join those around them
            made = [self.go(c, known) for c in s.stmts]
            return s if all(a is b for a, b in zip(made, s.stmts, strict=True)) else seq(*made)
        if isinstance(s, Stmt):
            return s.map_children(lambda c: self.go(c, known) if isinstance(c, Stmt) else c)
        return s

    def vectorized(self, s: For, known: Facts) -> Stmt:
        extent = as_int(s.extent)
        if extent is None or not _can_run_in_lanes(s):
            kind = "serial" if extent is None or extent > 16 else "unroll"
            return self.go(s.replace(kind=kind), known)
        if extent <= 1:
            return self.go(s.replace(kind="serial"), known)
        register = self.machine.lanes(_widest(s))
        if extent & (extent - 1) == 0 and extent <= register * WIDEST:
            return _marked(s, known)
        return self.split(s, extent, max(2, register))

    def split(self, s: For, extent: int, register: int) -> Stmt:
        """The loop as a loop of wide vectors, single registers, and a tail."""
        parts: list[Stmt] = []
        done = 0
        wide = register * WIDE
        if extent >= wide * 2:
            count = extent // wide
            outer, inner = self.name(s, "o"), self.name(s, "i")
            body = self.vector(s, inner, wide, outer * wide)
            parts.append(For(outer, const(0), const(count), "serial", body))
            done = count * wide
        while extent - done >= register:
            lanes = wide if extent - done >= wide else register
            parts.append(self.vector(s, self.name(s, "i"), lanes, const(done)))
            done += lanes
        while done < extent:
            left = extent - done
            lanes = 1 << (left.bit_length() - 1)
            if left != lanes and self.masks(s):
                lanes *= 2
                parts.append(self.vector(s, self.name(s, "i"), lanes, const(done), left))
                done = extent
            else:
                parts.append(self.vector(s, self.name(s, "i"), lanes, const(done)))
                done += lanes
        return seq(*parts)

    def vector(self, s: For, var: Var, lanes: int, offset: Expr, live: int | None = None) -> Stmt:
        """`lanes` iterations from `offset` on, of which `live` do something."""
        index = s.start + (offset + var)
        body = substitute(s.body, {s.var: index})
        if live is not None:
            body = If(var < const(live), body)
        if lanes == 1:
            return substitute(body, {var: const(0)})
        return For(var, const(0), const(lanes), "vectorize", body, "", s.annotations)

    def name(self, s: For, suffix: str) -> Var:
        self.taken = self.taken or names(self.func.body)
        return Var(fresh(f"{s.name}_{suffix}", self.taken), i64)

    def masks(self, s: For) -> bool:
        """Whether the machine has masked loads and stores for what the loop touches."""
        if self.machine.has("avx512vl", "avx512bw"):
            return True
        touched = {n.buffer.dtype.bits for n in accesses(s.body)}
        return self.machine.has("avx") and touched <= {32, 64}


def _marked(s: For, known: Facts) -> For:
    """The loop, annotated if its first lane satisfies every condition in it."""
    conditions = [n for n in statements(s.body) if isinstance(n, If)]
    first: dict[Var, Expr] = {s.var: s.start}
    for n in conditions:
        if n.other is not None or not can_prove(substitute(n.cond, first), known):
            return s
    if not conditions:
        return s
    return s.replace(annotations=annotated(s.annotations, FIRST_LANE_RUNS, True))


def _can_unroll(s: For) -> bool:
    extent = as_int(s.extent)
    return extent is not None and extent * _stores(s.body) <= MOST_UNROLLED


def _stores(s: Stmt) -> int:
    if isinstance(s, For):
        times = as_int(s.extent) if s.kind == "unroll" else 1
        return _stores(s.body) * max(1, times or 1)
    if isinstance(s, Store):
        return 1
    return sum(_stores(c) for c in s.children() if isinstance(c, Stmt))


def _widest(s: For) -> int:
    """Bits of the widest element that the loop computes with; indices do not count."""
    widest = 8

    @recursive
    def look(again: Any, e: Any) -> None:
        nonlocal widest
        if e.__class__ is not Const and e.__class__ is not Var:
            bits = 32 if e.dtype.is_float and e.dtype.bits < 32 else e.dtype.bits
            widest = max(widest, bits)
        if isinstance(e, Load):
            return
        if isinstance(e, Select):
            again(e.then)
            again(e.other)
        elif isinstance(e, Cast) and e.a.dtype is i64 and not reads(e.a):
            return
        elif not (isinstance(e, Binary) and e.dtype.is_bool):
            for c in e.children():
                again(c)

    for n in statements(s.body):
        if isinstance(n, Store):
            widest = max(widest, n.buffer.dtype.bits)
            look(n.value)
    return widest


def _can_run_in_lanes(loop: For) -> bool:
    """Whether lanes may run the loop's iterations side by side."""
    varying = {loop.var}
    inner: set[Any] = set()

    def varies(e: Expr) -> bool:
        return any(
            n in varying if isinstance(n, Var) else isinstance(n, Load) and n.buffer in inner
            for n in visit(e)
        )

    @recursive
    def check(again: Any, s: Stmt) -> bool:
        if isinstance(s, For):
            if s.kind in ("vectorize", "parallel", "thread") or varies(s.start) or varies(s.stop):
                return False
            return again(s.body)
        if isinstance(s, Let):
            if varies(s.value):
                varying.add(s.var)
            return again(s.body)
        if isinstance(s, Alloc):
            inner.add(s.buffer)
            return as_int(s.buffer.shape[0]) is not None and again(s.body)
        if isinstance(s, Store):
            free = s.buffer in inner or varies(s.indices[0]) or not varies(s.value)
            if not free and not is_lane_reduction(s):
                return False
            return not contains(s.value, Call) or not any(
                isinstance(n, Call) and n.name not in VALUES for n in distinct([s.value])
            )
        if isinstance(s, Eval):
            return False
        if isinstance(s, If):
            return again(s.then) and (s.other is None or again(s.other))
        assert isinstance(s, Seq)
        return all(again(c) for c in s.stmts)

    return check(loop.body)
