"""tile: split nested loops and bring their outer parts together, then their inner parts."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir.stmt import Func
from tilewright.schedule.locate import chain, need, primitive
from tilewright.schedule.primitives.reorder import reorder
from tilewright.schedule.primitives.split import split


@primitive("tile loops {loops} by {sizes}")
def tile(func: Func, loops: Sequence[str], sizes: Sequence[int]) -> tuple[Func, tuple[str, ...]]:
    """Split each loop by its size, outer parts outside; gives the names, all outer parts first.

    rewrite: tile(["i", "j"], [2, 4])
        for i in serial(0, 4):
            for j in serial(0, 8):
                with block("B"):
                    vi = spatial(4, i)
                    vj = spatial(8, j)
                    reads(A[vi, vj])
                    writes(B[vi, vj])
                    B[vi, vj] = A[vi, vj]
    →
        for i_o in serial(0, 2):
            for j_o in serial(0, 2):
                for i_i in serial(0, 2):
                    for j_i in serial(0, 4):
                        with block("B"):
                            vi = spatial(4, i_o * 2 + i_i)
                            vj = spatial(8, j_o * 4 + j_i)
                            reads(A[vi, vj])
                            writes(B[vi, vj])
                            B[vi, vj] = A[vi, vj]
    needs:
        P1  there is a size for each loop, and at least one loop
        P2  the loops form a chain: each is the only statement of the one outside it
        and what split and reorder need
    """
    why = f"there are {len(loops)} loops and {len(sizes)} sizes"
    first = loops[0] if loops else None
    need("P1", len(loops) == len(sizes) > 0, func, first, why, "give one size for each loop")
    chain(func, loops, "P2")
    parts: list[tuple[str, ...]] = []
    for loop, size in zip(loops, sizes, strict=True):
        func, names = split(func, loop, size)
        parts.append(names)
    order = tuple(o for o, _ in parts) + tuple(i for _, i in parts)
    return reorder(func, *order), order
