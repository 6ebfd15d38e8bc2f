"""inject_vthreads: virtual threads become one stream of instructions, taken in turn.

In: stage "loops" with vthread loops, whose iterations are independent. Out: no vthread loops; each
statement inside stands once for each thread, one after the other, and memory of a thread has a
dimension more. The one idea: if neighbours in the stream belong to different threads, one's copies
can run while another computes, although there is only one stream.
"""

from __future__ import annotations

from typing import Any

from tilewright.ir.expr import Buffer, Call, Expr, Load, as_int, const
from tilewright.ir.stmt import Alloc, Eval, For, Func, If, Seq, Stmt, Store, seq
from tilewright.ir.walk import free_vars, substitute, visit
from tilewright.support.errors import CompileError


def inject_vthreads(func: Func) -> Func:
    """Unroll the virtual threads, interleaved.

    rewrite:
        for t in vthread(0, 2):             →   T = alloc(f32[2, 8], "local")
            T = alloc(f32[8], "local")          for k in serial(0, 8):
            for k in serial(0, 8):                  T[0, k] = A[0, k]
                T[k] = A[t, k]                      T[1, k] = A[1, k]
                B[t, k] = T[k] * 2.0                B[0, k] = T[0, k] * 2.0
                                                    B[1, k] = T[1, k] * 2.0
    Loops and conditions that hang on the thread are unrolled, thread by thread. Barriers are for
    all threads and stay single.
    """

    def go(n: Any) -> Any:
        if not isinstance(n, Stmt):
            return n
        n = n.map_children(go)  # inner virtual threads first
        if isinstance(n, For) and n.kind == "vthread":
            return _interleaved(n)
        return n

    body = go(func.body)
    return func if body is func.body else func.replace(body=body)


def _interleaved(loop: For) -> Stmt:
    count = as_int(loop.extent)
    if count is None:
        raise CompileError(
            f"cannot unroll virtual threads '{loop.name}'",
            "their number is not a constant",
            remedy="split the loop by a constant and make the inner one the threads",
        )
    return _Interleave(loop, count).run(loop.body)


class _Interleave:
    """The threads of one loop; `own` are the buffers that each thread has for itself."""

    def __init__(self, loop: For, count: int) -> None:
        self.var, self.start, self.count = loop.var, loop.start, count
        self.own: dict[Buffer, Buffer] = {}

    def run(self, stmt: Stmt) -> Stmt:
        if isinstance(stmt, Seq):
            return seq(*[self.run(s) for s in stmt.stmts])
        if isinstance(stmt, Alloc):
            wide = stmt.buffer.replace(
                shape=(const(self.count), *stmt.buffer.shape), strides=self.strides(stmt.buffer)
            )
            self.own[stmt.buffer] = wide
            return Alloc(wide, self.run(stmt.body))
        if isinstance(stmt, For) and not self.depends(stmt.start) and not self.depends(stmt.stop):
            return stmt.replace(body=self.run(stmt.body))
        if isinstance(stmt, If) and not self.depends(stmt.cond):
            other = None if stmt.other is None else self.run(stmt.other)
            return If(stmt.cond, self.run(stmt.then), other)
        if isinstance(stmt, Eval) and isinstance(stmt.value, Call):
            if stmt.value.name.startswith("barrier"):
                return stmt
        return seq(*[self.thread(stmt, n) for n in range(self.count)])

    def depends(self, e: Expr) -> bool:
        """Whether an expression differs from thread to thread."""
        loaded = any(isinstance(n, Load) and n.buffer in self.own for n in visit(e))
        return loaded or self.var in free_vars(e)

    def strides(self, buffer: Buffer) -> tuple[Expr, ...] | None:
        """Strides of a thread's buffer with the threads outside; the gaps between rows stay."""
        if buffer.strides is None:
            return None
        return (buffer.strides[0] * buffer.shape[0], *buffer.strides)

    def thread(self, stmt: Stmt, n: int) -> Stmt:
        """What thread `n` does of a statement."""

        def go(m: Any) -> Any:
            m = m.map_children(go)
            if isinstance(m, Load | Store) and m.buffer in self.own:
                return m.replace(buffer=self.own[m.buffer], indices=(const(n), *m.indices))
            return m

        return substitute(go(stmt), {self.var: self.start + n})
