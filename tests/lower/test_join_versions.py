"""join_versions: of two schedules of one function sizes choose one."""

from __future__ import annotations

from tests.lower.programs import same_meaning
from tilewright.ir.dtype import i64
from tilewright.ir.expr import Binary, BinaryOp, Var, const
from tilewright.ir.parse import parse_func
from tilewright.ir.stmt import Alloc, For, If
from tilewright.ir.verify import verify
from tilewright.ir.walk import visit
from tilewright.lower.join_versions import join_versions

ROWS = """
def rows(A: f32[m, n], B: f32[m, n], m: i64, n: i64):
    with alloc(f32[m, n], "global") as T:
        for p in parallel(0, m):
            for i in serial(0, n):
                T[p, i] = A[p, i] * 2.0
            for i in serial(0, n):
                B[p, i] = T[p, i] + 1.0
"""
SHORT = Binary(BinaryOp.lt, Var("n", i64), const(4))


def test_each_side_has_memory_of_its_own() -> None:
    """One branch, in the loop that threads share."""
    func = parse_func(ROWS)
    made = join_versions(SHORT, parse_func(ROWS.replace(" p ", " q ").replace("[p,", "[q,")), func)
    assert made is not None
    verify(made, "loops")
    for n in (0, 1, 3, 4, 9):
        same_meaning(func, made, m=3, n=n)
    (branch,) = [n for n in visit(made.body) if isinstance(n, If)]
    assert branch.cond == SHORT and branch.other is not None
    assert len({n.buffer.name for n in visit(made.body) if isinstance(n, Alloc)}) == 2
    assert next(n.var.name for n in visit(made.body) if isinstance(n, For)) == "p"
    assert not [n for n in visit(branch) if isinstance(n, For) and n.kind == "parallel"]


def test_other_parallel_loops_are_another_kernel() -> None:
    """What threads share must be the same on both sides."""
    func = parse_func(ROWS)
    assert join_versions(SHORT, parse_func(ROWS.replace("parallel", "serial")), func) is None
