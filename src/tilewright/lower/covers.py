"""Covers: which narrower tiles take the rounds that the last tile of a row leaves over.

In: how many rounds a tile has, and how many sums each of them. Out: tiles for each rest, with the
rounds that they take twice. The one idea: a sum waits for the one before it, so that a tile of few
takes as long as one of as many as do not wait for each other.
"""

from __future__ import annotations

from itertools import combinations

from tilewright.target.costs import Costs

LATENCY = 4  # cycles that a sum waits for the one before it
BUSY = 2 * LATENCY  # sums that keep two units busy, none waiting for the one before it
ROOMY = 3  # as many as are busy, of a whole tile: registers hold those of jammed panels, too
MOST_AGAIN = 3  # rounds that a tile takes a second time: each has addresses of its own


def busy_sums(costs: Costs) -> int:
    """How many sums keep a machine busy."""
    return max(1, round(LATENCY * costs.multiply_adds))


def covers(
    wide: int, sums: int, alone: bool = False, regrouped: int = 0, keep: int = BUSY
) -> dict[int, tuple[tuple[int, ...], int]]:
    """For each number of rounds that a tile of `wide` may leave over: the narrower tiles that take
    least time, of decreasing width, each of them at most once, and how many rounds more they have.
    A tile of fewer sums than wait for each other takes as long as one of so many, and is no use
    `alone`, without panels that are jammed. Tiles of `regrouped` rounds have sums enough, too;
    with those of fewer they serve for what is wider. Where panels are jammed and there is room
    for that, no tile waits, and one round takes as long as two, of which it reads the vectors; nor
    does one of three rounds `alone` where that is sums enough. `keep`: the sums that keep a machine
    busy."""
    busy = -(-keep // sums)
    least = next(n for n in (4, 2, 1) if n == 1 or (n <= busy and n < wide))
    widths = {1, *(1 << k for k in range(wide.bit_length()) if least <= 1 << k <= wide)}
    if wide == 4:  # which no rest fills
        widths = {*widths - {4}, 3}
    if regrouped:
        widths = {w for w in widths if w < regrouped or w * sums == keep} | {regrouped}
    if alone and max(widths) == least == 4:
        widths = {4, wide - 1}
    elif least == 4:
        widths.add(max(widths) * 3 // 4 if max(widths) > least else 2)
    if wide * sums >= ROOMY * keep and (not alone or 3 * sums >= keep):
        widths = {3, *(1 << k for k in range(wide.bit_length()) if 1 << k < wide)}
        busy = busy if alone else 2
    tiles: dict[int, tuple[int, ...]] = {}  # of so many rounds together
    for n in range(len(widths), 0, -1):
        for chosen in combinations(sorted(widths, reverse=True), n):
            known = tiles.get(sum(chosen), chosen)
            tiles[sum(chosen)] = min(chosen, known, key=lambda c: sum(max(w, busy) for w in c))
    found: dict[int, tuple[tuple[int, ...], int]] = {}
    for r in range(1, wide):
        fit = [n for n in tiles if 0 <= n - r < min(tiles[n][-1], MOST_AGAIN + 1)]
        best = min(fit, key=lambda n: (sum(max(w, busy) for w in tiles[n]), len(tiles[n]), n))
        found[r] = tiles[best], best - r
    return found


def covers_of_vectors(wide: int) -> dict[int, tuple[tuple[int, ...], int]]:
    """The same of rounds that are vectors of sums, of which all may be left over, if the last is
    cut: one tile, which takes one of them again at most. Each that may be the last has a mask."""
    widths = [*range(1, min(wide, BUSY - 2) + 1), *range(BUSY, wide + 1, 2)]
    widths = widths if wide in widths else [*widths, wide]
    least = {r: next(w for w in widths if w >= r) for r in range(1, wide + 1)}
    return {r: ((w,), w - r) for r, w in least.items()}


def panels_beside(rounds: int, sums: int, wide: int, keep: int = BUSY) -> int:
    """Of how many panels such a tile's sums keep a machine busy, if there is room for them."""
    several = keep // (rounds * sums)
    return several if wide * sums < ROOMY * keep else -(-keep // (rounds * sums))


def overlaps(wide: int, sums: int, alone: bool = False, keep: int = BUSY) -> tuple[int, int, int]:
    """Of rows with several tiles: how many rounds a whole last tile may take a second time and take
    less time than narrower ones for what is left over; and up to how many that are left over take
    less time, with those of a whole tile, in two narrower ones of how many rounds."""
    busy, found = -(-keep // sums), covers(wide, sums, alone, keep=keep)

    def time(*tiles: int) -> int:
        return sum(max(w, busy) for w in tiles)

    again = 0
    while again < wide - 1 and len(tiles := found[wide - again - 1][0]) > 1:
        if time(*tiles) < time(wide):
            break
        again += 1

    def most(half: int) -> int:
        few = 0
        while wide + few < 2 * half and time(half, half) < time(wide, *found[few + 1][0]):
            few += 1
        return few

    half = max({w for tiles, _ in found.values() for w in tiles}, key=lambda w: (most(w), -w))
    return again, most(half), half
