"""insert_barriers: threads of a block wait for each other where they share memory.

In: stage "flat", with thread loops. Out: stage "flat". A barrier stands between accesses of which
one writes a shared buffer; in a loop, also between the end of an iteration and the begin of the
next. It never stands under a condition that threads may see differently.
"""

from __future__ import annotations

from tilewright.ir.dtype import i64
from tilewright.ir.expr import Call, Load, Var, as_int
from tilewright.ir.stmt import Alloc, Eval, For, Func, If, Let, Seq, Stmt, Store, seq
from tilewright.ir.text import mark
from tilewright.ir.walk import free_vars, visit
from tilewright.support.errors import CompileError
from tilewright.support.record import record

BARRIER = Eval(Call("barrier.shared", (), i64))


def insert_barriers(func: Func) -> Func:
    """Put barriers between what threads write and read of shared memory.

    rewrite:
        for t in thread("threadIdx.x", 0, 64):      for t in thread("threadIdx.x", 0, 64):
            S = alloc(f32[64], "shared")                S = alloc(f32[64], "shared")
            S[t] = A[t]                          →      S[t] = A[t]
            B[t] = S[63 - t]                            barrier("shared")
                                                        B[t] = S[63 - t]
    """
    if not any(isinstance(n, Alloc) and n.buffer.scope == "shared" for n in visit(func.body)):
        return func
    return func.replace(body=_Barriers(func).run(func.body).stmt)


@record
class _Touched:
    """What a stretch of the program reads and writes of shared memory: (buffer, store) for a write.

    Iterations of one store write elements of their own, or the same thread writes one again.
    """

    reads: frozenset[str] = frozenset()
    writes: frozenset[tuple[str, int]] = frozenset()

    def __or__(self, other: _Touched) -> _Touched:
        return _Touched(self.reads | other.reads, self.writes | other.writes)

    def conflicts(self, later: _Touched) -> bool:
        mine, other = {b for b, _ in self.writes}, {b for b, _ in later.writes}
        if mine & later.reads or self.reads & other:
            return True
        return any(a == b and s != t for a, s in self.writes for b, t in later.writes)


@record
class _Done:
    """A statement with its barriers, and what it touches before the first and after the last."""

    stmt: Stmt
    before: _Touched
    after: _Touched
    waits: bool = False  # every way through it has a barrier


class _Barriers:
    def __init__(self, func: Func) -> None:
        self.func = func
        self.threads: set[Var] = set()  # variables that differ between the threads of a block

    def run(self, s: Stmt) -> _Done:
        if isinstance(s, Seq):
            return self.sequence(s)
        if isinstance(s, For):
            return self.loop(s)
        if isinstance(s, If):
            return self.condition(s)
        if isinstance(s, Alloc | Let):
            if isinstance(s, Let) and free_vars(s.value) & self.threads:
                self.threads.add(s.var)
            done = self.run(s.body)
            return _Done(s.replace(body=done.stmt), done.before, done.after, done.waits)
        touched = _touched(s)
        return _Done(s, touched, touched)

    def sequence(self, s: Seq) -> _Done:
        stmts: list[Stmt] = []
        before, after, waits = _Touched(), _Touched(), False
        for each in s.stmts:
            done = self.run(each)
            if after.conflicts(done.before):
                stmts.append(BARRIER)
                waits, after = True, _Touched()
            if not waits:
                before |= done.before
            after = done.after if done.waits else after | done.after
            waits |= done.waits
            stmts.append(done.stmt)
        return _Done(seq(*stmts), before, after, waits)

    def loop(self, s: For) -> _Done:
        if s.thread.startswith("threadIdx"):
            self.threads.add(s.var)
        done = self.run(s.body)
        # where only the run knows how many rounds there are, there may be none
        runs = s.kind == "thread" or (as_int(s.extent) or 0) > 0
        if s.kind == "thread" or not done.after.conflicts(done.before):
            made = s.replace(body=done.stmt)
            return _Done(made, done.before, done.after, done.waits and runs)
        if (free_vars(s.start) | free_vars(s.stop)) & self.threads:
            self.refuse(s)
        return _Done(s.replace(body=seq(BARRIER, done.stmt)), _Touched(), done.after, runs)

    def condition(self, s: If) -> _Done:
        then = self.run(s.then)
        other = None if s.other is None else self.run(s.other)
        made = If(s.cond, then.stmt, None if other is None else other.stmt)
        if free_vars(s.cond) & self.threads and any(n == BARRIER for n in visit(made)):
            self.refuse(s)
        asked = _touched(Eval(s.cond))
        before, after = then.before | asked, then.after
        waits = then.waits and other is not None and other.waits
        if other is not None:
            before, after = before | other.before, after | other.after
        if not waits:  # a way without a barrier ends as it begins: with what the condition reads
            after |= asked
        return _Done(made, before, after, waits)

    def refuse(self, s: Stmt) -> None:
        raise CompileError(
            f"cannot lower '{self.func.name}'",
            "threads must wait for each other under a condition that they may see differently",
            lambda: mark(self.func, s),
            "let all threads of a block take part: split by a factor that divides",
        )


def _touched(s: Stmt) -> _Touched:
    reads = {n.buffer.name for n in visit(s) if isinstance(n, Load) and n.buffer.scope == "shared"}
    stores = [n for n in visit(s) if isinstance(n, Store) and n.buffer.scope == "shared"]
    writes = {(n.buffer.name, id(n)) for n in stores}
    return _Touched(frozenset(reads), frozenset(writes))
