"""Local buffers that are values, not memory.

In: an allocation, and the statements that use it. Out: its *cells*, each the one vector or number
that unrolled loops write at a known index, as values that loops and branches hand on (phi
instructions). LLVM would find as much, but it would have to read a load and a store for each use.
Lanes that lie apart are chosen from several cells.
"""

from __future__ import annotations

from tilewright.codegen.llvm_expressions import linear_parts
from tilewright.codegen.llvm_memory import MOST_COVER, Cells
from tilewright.codegen.llvm_types import SMALL_FLOATS, Value
from tilewright.ir.expr import Buffer, Expr, Var, as_int
from tilewright.ir.stmt import Alloc, Eval, For, If, Let, Stmt, Store
from tilewright.ir.walk import loads

MOST_CELLS = 128  # of a buffer; of more the machine keeps some in memory anyway


def cells_of(stmt: Alloc) -> Cells | None:
    """The cells of a buffer, which hold nothing yet; None if some access is not to one of them."""
    buffer = stmt.buffer
    count = as_int(buffer.shape[0]) or 0
    dtype = buffer.dtype
    if dtype.name in SMALL_FLOATS or dtype.is_bool or dtype.is_packed:
        return None  # memory holds them in another form
    found = _Accesses(buffer)
    if not found.all_known(stmt.body, None) or not found.lanes:
        return None
    (lanes,) = found.lanes if len(found.lanes) == 1 else (0,)
    step = max(1, lanes)
    uneven = len(found.lanes) > 1 or any(n % step for n in found.steps)
    if uneven or (found.across and count > MOST_COVER * lanes) or count > MOST_CELLS * step:
        return None
    empty = Value("poison", dtype, lanes)
    return dict.fromkeys(range(0, count, step), empty)  # the last one may reach beyond


class _Accesses:
    """What is known of a buffer's accesses: how many lanes they have (0: one number), and by how
    much their indices differ. Vectors whose lanes lie apart may be read `across` cells."""

    def __init__(self, buffer: Buffer) -> None:
        self.buffer = buffer
        self.lanes: set[int] = set()
        self.steps: set[int] = set()
        self.across = False
        self.unrolled: dict[Var, int] = {}  # where they start

    def all_known(self, s: Stmt, lane: For | None) -> bool:
        """Whether all indices below a statement are known once loops are unrolled."""
        if isinstance(s, For):
            if as_int(s.start) is not None and as_int(s.extent) is not None:
                if s.kind == "vectorize" and lane is None and as_int(s.extent) != 1:
                    lane = s
                elif s.kind in ("unroll", "vectorize"):
                    self.unrolled[s.var] = as_int(s.start) or 0
            return self.all_known(s.body, lane)
        if isinstance(s, Store):
            own = s.buffer.name != self.buffer.name or self.is_known(s.indices[0], lane)
            return own and self.reads_known(s.value, lane)
        if isinstance(s, Eval) and self.uses(s.value):  # a call may want its address
            return False
        if isinstance(s, Let | If):
            if not self.reads_known(s.cond if isinstance(s, If) else s.value, lane):
                return False
        return all(self.all_known(c, lane) for c in s.children() if isinstance(c, Stmt))

    def reads_known(self, e: Expr, lane: For | None) -> bool:
        return all(
            self.is_known(n.indices[0], lane, reads=True)
            for n in loads(e)
            if n.buffer.name == self.buffer.name
        )

    def uses(self, e: Expr) -> bool:
        return any(n.buffer.name == self.buffer.name for n in loads(e))

    def is_known(self, index: Expr, lane: For | None, *, reads: bool = False) -> bool:
        parts: list[tuple[Expr, int]] = []
        first, along, steps = linear_parts(index, 1, parts), 0, set[int]()
        for e, c in parts:
            if lane is not None and e == lane.var:
                along += c
                first += c * (as_int(lane.start) or 0)
            elif isinstance(e, Var) and e in self.unrolled:
                first += c * self.unrolled[e]
                steps.add(c)
            else:
                return False
        lanes = as_int(lane.extent) or 0 if lane is not None and along else 0
        self.lanes.add(lanes)
        if reads and along > 1:
            self.across = True
            return True
        self.steps |= {first, *steps}
        return along in (0, 1)
