"""lower_blocks: blocks become plain statements.

In: stage "blocks". Out: stage "loops". An axis is replaced by its value, `where` becomes an If, and
the init of a reduction becomes a nest of its own in front of the outermost loop that reduces; where
that cannot be (a fused loop drives a spatial and a reduce axis at once) it stays inside, under the
condition that the reduction begins.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tilewright.ir.expr import Binary, BinaryOp, Expr, Var, binary, const, eq
from tilewright.ir.stmt import Block, For, Func, If, Seq, Stmt, seq
from tilewright.ir.walk import free_vars, substitute


def lower_blocks(func: Func) -> Func:
    """Replace every block by what it does.

    rewrite:
        for k in serial(0, 8):                     →   C[i] = 0.0
            with block("C"):                           for k in serial(0, 8):
                vi, vk = spatial(4, i), reduce(8, k)       C[i] = C[i] + A[i, k]
                with init(): C[vi] = 0.0
                C[vi] = C[vi] + A[vi, vk]
    """
    return func.replace(body=_Lowering().run(func.body))


class _Lowering:
    """One walk; `hoisted` holds, for each loop around, the init nests to put in front of it."""

    def __init__(self) -> None:
        self.around: list[Stmt] = []
        self.hoisted: dict[str, list[Stmt]] = {}

    def run(self, stmt: Stmt) -> Stmt:
        if isinstance(stmt, For):
            return self.loop(stmt)
        if isinstance(stmt, Block):
            return self.block(stmt)
        if isinstance(stmt, Seq):
            return seq(*(self.run(c) for c in stmt.stmts))
        if not any(isinstance(c, Stmt) for c in stmt.children()):
            return stmt
        self.around.append(stmt)
        made = stmt.map_children(lambda c: self.run(c) if isinstance(c, Stmt) else c)
        self.around.pop()
        return made

    def loop(self, loop: For) -> Stmt:
        self.around.append(loop)
        body = self.run(loop.body)
        self.around.pop()
        made = loop if body is loop.body else loop.replace(body=body)
        before = self.hoisted.pop(loop.name, None)
        return made if before is None else seq(*before, made)

    def block(self, block: Block) -> Stmt:
        values = {axis.var: axis.value for axis in block.axes}
        body = self.run(substitute(block.body, values))
        if block.init is not None:
            init = self.run(substitute(block.init, values))
            if not self.hoist(block, init):
                starts = [eq(a.value, const(0)) for a in block.axes if a.kind == "reduce"]
                body = seq(If(all_of(starts), init) if starts else init, body)
        return body if block.where is None else If(block.where, body)

    def hoist(self, block: Block, init: Stmt) -> bool:
        """Put `init` in front of the outermost loop that reduces; False where it must stay
        inside.
        """
        spatial = _vars(a.value for a in block.axes if a.kind != "reduce")
        reducing = _vars(a.value for a in block.axes if a.kind == "reduce")
        loops = [(n, f) for n, f in enumerate(self.around) if isinstance(f, For)]
        first = next((n for n, f in loops if f.var in reducing), None)
        if first is None or spatial & reducing:
            return False
        inside = [f for n, f in loops if n >= first]
        if len(inside) != len(self.around) - first:  # a condition or an allocation lies between
            return False
        bounds = _vars(e for f in inside for e in (f.start, f.stop))
        if bounds & {f.var for f in inside}:
            return False
        where = _at_start(block.where, [f for f in inside if f.var in reducing])
        if where is not None:
            init = If(where, init)
        used = free_vars(init)
        for f in reversed(inside):
            if f.var not in reducing and f.var in used:
                init = f.replace(body=init)
        self.hoisted.setdefault(inside[0].name, []).append(init)
        return True


def _at_start(where: Expr | None, reducing: list[For]) -> Expr | None:
    """The guard of the first instance of a reduction; parts that speak of the reduction alone hold
    there.
    """
    if where is None:
        return None
    starts: dict[Var, Expr] = {f.var: f.start for f in reducing}
    kept = [c for c in parts_of(where) if not (free_vars(c) and free_vars(c) <= set(starts))]
    return substitute(all_of(kept), starts) if kept else None


def parts_of(condition: Expr | None) -> list[Expr]:
    """The conditions that `condition` joins by `and`."""
    if condition is None:
        return []
    if isinstance(condition, Binary) and condition.op is BinaryOp.logical_and:
        return parts_of(condition.a) + parts_of(condition.b)
    return [condition]


def all_of(conditions: Sequence[Expr]) -> Expr:
    """The conditions joined by `and`; there is at least one."""
    whole = conditions[0]
    for part in conditions[1:]:
        whole = binary(BinaryOp.logical_and, whole, part)
    return whole


def _vars(exprs: Iterable[Expr]) -> set[Var]:
    found: set[Var] = set()
    for e in exprs:
        found |= free_vars(e)
    return found
