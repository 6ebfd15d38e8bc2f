"""rfactor: let each iteration of a reduction's loop make a part of its own; combine the parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilewright.ir.expr import Buffer, Expr, Load, Var
from tilewright.ir.stmt import Alloc, Axis, Block, For, Func, If, Stmt, seq
from tilewright.ir.walk import free_vars, fresh, substitute
from tilewright.schedule.access import point
from tilewright.schedule.depend import uses
from tilewright.schedule.domain import ZERO, conditions, conjunction
from tilewright.schedule.locate import (
    block_names,
    block_path,
    buffers,
    copy_afresh,
    need,
    primitive,
    rebuild,
    refuse,
    replace,
    the_block,
    variable_names,
)
from tilewright.schedule.reduction import Reduction, reduction_of


@primitive("factor the reduction of block '{block}' over loop '{loop}'")
def rfactor(func: Func, block: str, loop: str, dim: int = -1) -> tuple[Func, str]:
    """Let each iteration of a reduction's loop make a part of its own; a second nest combines them.

    A spatial axis is then bound to the loop, which can run in parallel or as vector lanes. The
    parts lie along dimension `dim` of a new buffer. Gives the name of the block that makes them.

    rewrite: rfactor("C", "k_i")
        for i in serial(0, 4):
            for k_o in serial(0, 2):
                for k_i in serial(0, 8):
                    with block("C"):
                        vi = spatial(4, i)
                        vk = reduce(16, k_o * 8 + k_i)
                        reads(A[vi, vk])
                        writes(C[vi])
                        with init():
                            C[vi] = 0.0
                        C[vi] = C[vi] + A[vi, vk]
    →
        C_rf = alloc(f32[4, 8], "global")
        for i in serial(0, 4):
            for k_o in serial(0, 2):
                for k_i in serial(0, 8):
                    with block("C_rf"):
                        vi = spatial(4, i)
                        vk_i = spatial(8, k_i)
                        vk_o = reduce(2, k_o)
                        reads(A[vi, vk_o * 8 + vk_i])
                        writes(C_rf[vi, vk_i])
                        with init():
                            C_rf[vi, vk_i] = 0.0
                        C_rf[vi, vk_i] = C_rf[vi, vk_i] + A[vi, vk_o * 8 + vk_i]
        for i_1 in serial(0, 4):
            for k_i_1 in serial(0, 8):
                with block("C"):
                    vi_1 = spatial(4, i_1)
                    vk_i_1 = reduce(8, k_i_1)
                    reads(C_rf[vi_1, vk_i_1])
                    writes(C[vi_1])
                    with init():
                        C[vi_1] = 0.0
                    C[vi_1] = C[vi_1] + C_rf[vi_1, vk_i_1]
    needs:
        P1  the block is a reduction with an init whose combination is known: one commutative
            operation, or accumulators and values named by lets
        P2  the reduction is bound to the loop, and no spatial axis to a loop of the reduction
        P3  the block stands alone in the loops of its reduction
        P4  the bounds of those loops read no loop
        P5  no guard mixes the reduction with other loops
        P6  `dim` is a dimension of the new buffer
        P7  the block lies in no other block
    """
    path = block_path(func, block)
    old = the_block(path)
    found = reduction_of(old)
    reduced = uses(old, ("reduce",)) - set(func.params)
    if found is None or not reduced:
        why = f"it is not known what block '{block}' combines"
        raise refuse("P1", func, old, why, "name a sum, product, minimum, … with its init")
    why = f"block '{block}' lies in another block"
    outer = not any(isinstance(s, Block) for s in path[:-1])
    need("P7", outer, func, old, why, "factor before blockize")
    top = len(path) - 1
    while top > 0 and isinstance(path[top - 1], For):
        top -= 1
    nest = [s for s in path[top:] if isinstance(s, For)]
    chosen = _check(func, path[top:], nest, old, loop)
    position = dim + len(found.indices) + 1 if dim < 0 else dim
    fits = 0 <= position <= len(found.indices)
    why = f"the new buffer has dimensions 0 … {len(found.indices)}, not {dim}"
    need("P6", fits, func, old, why, "-1 is the last dimension")
    maker = _Rfactor(func, old, found, nest, chosen, position)
    parts = maker.parts()
    both = seq(rebuild(path[top:], parts), maker.combined(replace(func, path, parts)))
    done = replace(func, path[: top + 1], both)
    for buffer in reversed(maker.buffers.values()):
        done = done.replace(body=Alloc(buffer, done.body))
    return done, maker.name


def _check(func: Func, inside: Sequence[Stmt], nest: Sequence[For], old: Block, loop: str) -> For:
    """P2 to P5; gives the loop."""
    sizes = set(func.params)  # that fused loops divide by
    reduced, spatial = uses(old, ("reduce",)) - sizes, uses(old, ("spatial", "ordered"))
    mine = [f for f in nest if f.var in reduced]
    why = f"not all loops of block '{old.name}'s reduction hold it alone"
    need("P3", {f.var for f in mine} == reduced, func, old, why, "move the other statements away")
    chosen = next((f for f in mine if f.name == loop), None)
    if chosen is None:
        why = f"the reduction is not bound to loop '{loop}'"
        names = ", ".join(f.name for f in mine)
        raise refuse("P2", func, old, why, f"it is bound to {names}")
    names_of = {f.var for f in inside if isinstance(f, For)}
    for f in mine:
        why = f"a spatial axis is bound to loop '{f.name}' too"
        need("P2", f.var not in spatial, func, f, why, "factor before fusing")
        hang = (free_vars(f.start) | free_vars(f.stop)) & names_of
        why = f"the bounds of loop '{f.name}' read {', '.join(repr(v.name) for v in hang)}"
        need("P4", not hang, func, f, why, "factor a loop with fixed bounds")
    for c in conditions(old.where):
        used = free_vars(c)
        mixed = used & reduced and used - reduced - set(func.params)
        why = "its guard speaks of the reduction and of other loops at once"
        need("P5", not mixed, func, old, why, "factor before fusing or splitting unevenly")
    return chosen


class _Rfactor:
    """The two blocks while they are made."""

    def __init__(
        self,
        func: Func,
        old: Block,
        found: Reduction,
        nest: Sequence[For],
        chosen: For,
        dim: int,
    ) -> None:
        self.func, self.old, self.found, self.chosen, self.dim = func, old, found, chosen, dim
        self.nest = nest
        self.reduced = uses(old, ("reduce",)) - set(func.params)
        self.name = fresh(f"{old.name}_rf", set(block_names(func)))
        taken = set(buffers(func))
        self.buffers = {
            b: b.replace(
                name=fresh(f"{b.name}_rf", taken),
                shape=self.at(b.shape, chosen.extent),
                strides=None,
            )
            for b in found.targets
        }

    def at(self, indices: tuple[Expr, ...], index: Expr) -> tuple[Expr, ...]:
        """`indices` with the new dimension's put in."""
        return (*indices[: self.dim], index, *indices[self.dim :])

    def parts(self) -> Block:
        """The block that makes the parts, in the old loops."""
        taken = variable_names(self.func)
        axes: list[Axis] = [a for a in self.old.axes if a.kind != "reduce"]
        bound: dict[Var, Expr] = {}
        loops = [self.chosen, *(f for f in self.nest if f is not self.chosen)]
        for f in loops:
            if f.var in self.reduced:
                var = Var(fresh(f"v{f.name}", taken), f.var.dtype)
                kind = "spatial" if f is self.chosen else "reduce"
                axes.append(Axis(var, kind, f.extent, f.var - f.start))
                bound[f.var] = f.start + var
        own = bound[self.chosen.var] - self.chosen.start
        values = {a.var: substitute(a.value, bound) for a in self.old.axes if a.kind == "reduce"}
        indices = self.at(self.found.indices, own)
        new = [substitute(v, values) for v in self.found.values]
        body = self.found.updated(new, self.buffers, indices)
        outer, inner = self.guards()
        if inner is not None:
            body = If(substitute(inner, bound), body)
        return Block(
            self.name,
            tuple(axes),
            tuple(substitute(r, values) for r in self.old.reads),
            tuple(point(b, indices) for b in self.buffers.values()),
            self.found.started(self.buffers, indices),
            body,
            outer,
            self.old.annotations,
        )

    def guards(self) -> tuple[Expr | None, Expr | None]:
        """The guard of the instances, and that of what they combine.

        A guard may keep an iteration from combining anything, but not from starting its part.
        """
        outer: list[Expr] = []
        inner: list[Expr] = []
        for c in conditions(self.old.where):
            (inner if free_vars(c) & self.reduced else outer).append(c)
        return conjunction(outer), conjunction(inner)

    def combined(self, parted: Func) -> Stmt:
        """The nest that combines the parts, under the old block's name, to stand in `parted`."""
        var = Var(f"v{self.chosen.name}", self.chosen.var.dtype)
        indices = self.at(self.found.indices, var)
        parts = [Load(self.buffers[b], indices) for b in self.found.targets]
        old = self.old
        same: Mapping[Buffer, Buffer] = {b: b for b in self.found.targets}
        axis = Axis(var, "reduce", self.chosen.extent, self.chosen.var)
        made: Stmt = Block(
            old.name,
            (*(a for a in old.axes if a.kind != "reduce"), axis),
            tuple(point(p.buffer, p.indices) for p in parts),
            old.writes,
            old.init,
            self.found.updated(parts, same, self.found.indices),
            conjunction([c for c in conditions(old.where) if not free_vars(c) & self.reduced]),
        )
        loops = [f for f in self.nest if f.var not in self.reduced]
        made = For(self.chosen.var, ZERO, self.chosen.extent, "serial", made)
        for f in reversed(loops):
            made = For(f.var, f.start, f.stop, f.kind, made, f.thread)
        return copy_afresh(parted, made)
