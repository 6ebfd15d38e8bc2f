"""Strategy of local response normalisation: a tile of pixels, its squares and then its results.

In: a schedule whose anchor holds the squares of all channels of a pixel, as `lrn_packed` makes it.
The one idea: a tile's squares stay in L1, and memory is read and written in runs of the tile's
pixels.
"""

from __future__ import annotations

from tilewright.ir.walk import blocks
from tilewright.schedule.schedule import Schedule
from tilewright.strategy.absorb import role
from tilewright.strategy.loops import (
    by_axis,
    compute_inside,
    extent,
    find,
    innermost,
    parallel,
    reorder,
    split,
    vectorize,
)
from tilewright.strategy.work import stored_type
from tilewright.target.target import Target


def local_response_norm(schedule: Schedule, target: Target, threads: int) -> None:
    """lrn_packed: (N, C/b, H, W, b)."""
    squares = next(b.name for b in blocks(schedule.func.body) if role(b) == "lrn")
    of = stored_type(find(schedule, squares))
    n, c, y, x, i = by_axis(schedule, schedule.blocks()[-1])
    pixel = of.nbytes((extent(schedule, c) + 2) * extent(schedule, i))
    most = max(1, target.cache(1).size // 4 // pixel)
    lanes = min(target.lanes(of.bits), extent(schedule, i))
    width = extent(schedule, x)
    values = sorted({max(1, min((most << 2) >> n, width)) for n in range(6)})
    x, in_x = split(schedule, x, schedule.decide(f"{squares}.block_m", min(most, width), values))
    several, lane = split(schedule, i, lanes)
    reorder(schedule, n, y, x, c, in_x, several, lane)
    vectorize(schedule, lane)
    own = compute_inside(schedule, squares, innermost([n, y, x]))
    _, _, own_x, own_c, own_i = own
    several, lane = split(schedule, own_i, lanes)
    reorder(schedule, own_c, own_x, several, lane)
    vectorize(schedule, lane)
    if threads > 1:
        parallel(schedule, [n, y], threads, f"{squares}.parallel")
