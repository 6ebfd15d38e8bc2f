"""plan_memory: where every value lives while the model runs.

In: a fused graph. Out: a `MemoryPlan`: each value's location (an input, an output, a constant or
an offset in the one arena) and the arena's size. Values share arena bytes if their lives do not
overlap; views share their base's location, values of which a run makes one that of the choice
between them; an element-wise group writes over an input that dies in it.

Values whose size is only known during the run (see `measure`) live outside the arena, in buffers
that grow when they have to; here each gets the number of one that is free.

Symbolic sizes: values first get offsets for a typical size of each symbol. For every two values
that live at once this says which lies below; an offset is then the largest end of the values below
it, an expression, so the plan holds for all sizes. An offset that is the largest of several ends
gets a name (`MemoryPlan.offsets`), by which those above it are told: no expression holds another's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from itertools import accumulate

from tilewright.arith.estimate import SEQUENCE
from tilewright.graph import sizes
from tilewright.graph.graph import Value
from tilewright.graph.group import FusedGraph, FusedGroup
from tilewright.graph.operator import BROADCAST, OPERATORS
from tilewright.graph.ops.while_loop import states_of
from tilewright.ir.expr import Expr, Var, as_int, maximum
from tilewright.support.node import Node as Tree
from tilewright.support.node import node

ALIGN = 64  # bytes
TRIES, WORK = 64, 1_000_000  # at most: orders after the first, and ranges compared in them
GOOD = 1.02  # a total this near to the largest live set is not improved further


@node
class Location(Tree):
    """Where a value lives. space: "input", "output", "constant" or "buffer", with its index;
    "arena", with a byte offset; "state", with the number of a state that rounds change."""

    space: str
    at: Expr


class MemoryPlan:
    """Locations of values (and of groups' workspace, by group name), and the arena's bytes.

    live_bytes: the largest sum of bytes that live at once, for the typical sizes; no plan can take
    less. states: how many there are of loops that the host program runs; bodies: the plans of their
    rounds, by the names of the loops' groups. buffers: how many values of data-dependent size take,
    beside those of the outputs. offsets: what names in locations and in the arena's size stand
    for, each in terms of sizes and earlier ones.
    """

    __slots__ = (
        "arena_bytes",
        "bodies",
        "buffers",
        "live_bytes",
        "locations",
        "offsets",
        "states",
        "typical_bytes",
        "workspaces",
    )

    def __init__(
        self,
        locations: Mapping[Value, Location],
        workspaces: Mapping[str, Location],
        arena_bytes: Expr,
        typical_bytes: int,
        live_bytes: int,
        buffers: int = 0,
        offsets: Mapping[Var, Expr] | None = None,
        states: int = 0,
        bodies: Mapping[str, MemoryPlan] | None = None,
    ) -> None:
        self.locations, self.workspaces = dict(locations), dict(workspaces)
        self.arena_bytes = arena_bytes
        self.typical_bytes, self.live_bytes = typical_bytes, live_bytes
        self.buffers, self.offsets = buffers, dict(offsets or {})
        self.states, self.bodies = states, dict(bodies or {})

    def known(self, values: Mapping[Var, int]) -> dict[Var, int]:
        """The values of the symbols, and with them those of the named offsets."""
        known = dict(values)
        for name, end in self.offsets.items():
            known[name] = sizes.at(end, known)
        return known

    def text(self) -> str:
        """A table: value, type, location."""
        lines = [f"arena: {sizes.text(self.arena_bytes)} bytes"]
        lines += [f"  {name.name} = {sizes.text(end)}" for name, end in self.offsets.items()]
        for value, location in self.locations.items():
            if location.space != "constant":
                lines.append(f"  {value!r} at {location.space} {sizes.text(location.at)}")
        return "\n".join(lines)

    __str__ = text


class LiveRange:
    """Bytes of the arena that live from group `first` to group `last` (both included)."""

    __slots__ = ("at", "first", "last", "nbytes", "offset", "typical", "values")

    def __init__(self, nbytes: Expr, typical: int, first: int, last: int) -> None:
        self.nbytes, self.typical, self.first, self.last = nbytes, typical, first, last
        self.values: list[Value] = []
        self.at = 0  # for the typical sizes
        self.offset: Expr = sizes.size(0)


def plan_memory(
    fused: FusedGraph,
    *,
    workspace: Mapping[str, Expr | int] | None = None,
    typical: Mapping[Var, int] | None = None,
    label: str = "",
) -> MemoryPlan:
    """Plan the arena. `workspace` gives bytes that a group needs while it runs, by the group's
    name; `label` is in the names of the offsets."""
    graph = fused.graph
    scale = dict.fromkeys(graph.symbols, SEQUENCE) | dict(typical or {})
    locations = {v: Location("input", sizes.size(n)) for n, v in enumerate(graph.inputs)}
    locations.update(
        (v, Location("constant", sizes.size(n))) for n, v in enumerate(graph.constants)
    )
    bases = _bases(fused)
    for n, value in enumerate(graph.outputs):
        base = bases.get(value, value)
        assert base not in locations, f"output {value!r} shares memory; run separate_outputs first"
        locations[base] = Location("output", sizes.size(n))
    loops = [g for g in fused.groups if g.is_loop]
    states = [v for g in loops for v in states_of(g.anchor)[1:]]
    locations.update((v, Location("state", sizes.size(n))) for n, v in enumerate(states))
    ranges, of_value, of_group = _live_ranges(fused, bases, locations, workspace or {}, scale)
    live = _largest_live_set(ranges, len(fused.groups))
    total = _assign_offsets(ranges, len(fused.groups))
    arena, offsets = _symbolic_offsets(ranges, total, label)
    for value, live_range in of_value.items():
        locations[value] = Location("arena", live_range.offset)
    buffers = _buffers(fused, bases, locations)
    for value, at in buffers.items():
        locations[value] = Location("buffer", sizes.size(at))
    for value, base in bases.items():
        locations[value] = locations[base]
    workspaces = {name: Location("arena", p.offset) for name, p in of_group.items()}
    count = max(buffers.values(), default=len(graph.outputs) - 1) + 1 - len(graph.outputs)
    bodies = {
        name: plan_memory(
            body, workspace=workspace, typical=_spoken_of(body, workspace or {}), label=f"{name}."
        )
        for name, body in fused.bodies.items()
    }
    found = locations, workspaces, arena, total, live, count, offsets
    return MemoryPlan(*found, len(states), bodies)


def _spoken_of(body: FusedGraph, workspace: Mapping[str, Expr | int]) -> dict[Var, int]:
    """The symbols of a loop's body, which may be those around it, with typical values."""
    spoken: list[Expr | int] = [s for v in body.graph.values for s in v.shape]
    spoken += [workspace.get(g.name, 0) for g in body.groups]
    return dict.fromkeys(sizes.symbols(spoken), SEQUENCE)


def _bases(fused: FusedGraph) -> dict[Value, Value]:
    """For each view, the value whose memory it shows; for what a group joins, its result."""
    bases: dict[Value, Value] = {}
    for group in fused.groups:
        if group.joins:
            for side in group.anchor.inputs[1:]:
                made = bases.get(side, side)
                bases[made] = group.outputs[0]
                bases.update({v: group.outputs[0] for v, base in bases.items() if base is made})
        elif group.is_view:
            source = group.nodes[0].inputs[0]
            bases[group.outputs[0]] = bases.get(source, source)
    return bases


def _live_ranges(
    fused: FusedGraph,
    bases: Mapping[Value, Value],
    locations: Mapping[Value, Location],
    workspace: Mapping[str, Expr | int],
    scale: Mapping[Var, int],
) -> tuple[list[LiveRange], dict[Value, LiveRange], dict[str, LiveRange]]:
    """The live ranges of the arena; values that share memory share one."""
    last = _lives(fused, bases)
    unknown = set(fused.graph.data_dependent)
    ranges: list[LiveRange] = []
    of_value: dict[Value, LiveRange] = {}
    of_group: dict[str, LiveRange] = {}
    for n, (group, team) in enumerate(zip(fused.groups, fused.at_once(), strict=True)):
        extra = sizes.size(workspace.get(group.name, 0))
        may_lack = bool(group.demand) or group.nodes[0].op == "loop"
        if as_int(extra) != 0 and unknown.isdisjoint(sizes.symbols([extra])):
            live_range = _live_range(extra, team[0], team[-1], scale, may_lack)
            of_group[group.name] = live_range
            ranges.append(live_range)
        if group.is_view:
            continue
        for value in group.outputs:
            base = bases.get(value, value)
            if base in locations or is_data_dependent(value, unknown) or base in of_value:
                continue
            over = _dies_in(group, value, n, last, of_value, bases) if base is value else None
            if over is not None:
                live_range = over
                live_range.last = last[value]
            else:
                live_range = _live_range(value.nbytes, team[0], last[base], scale, may_lack)
                ranges.append(live_range)
            live_range.values.append(base)
            of_value[base] = live_range
    return ranges, of_value, of_group


def _lives(fused: FusedGraph, bases: Mapping[Value, Value]) -> dict[Value, int]:
    """The last group in which each value is read or made; that of a view counts for its base, that
    of a loop's last state also for the first one, which it is after no rounds."""
    last: dict[Value, int] = {}
    for group, team in zip(fused.groups, fused.at_once(), strict=True):
        for value in (*group.inputs, *group.outputs, *(v for v, _ in group.demand)):
            last[bases.get(value, value)] = team[-1]
    for group in reversed([g for g in fused.groups if g.is_loop]):
        states = states_of(group.anchor)[1:]
        for first, state in zip(group.anchor.inputs[2:], states, strict=False):
            base = bases.get(first, first)
            last[base] = max(last[base], last[state])
    return last


def is_data_dependent(value: Value, unknown: set[Var]) -> bool:
    """Is the value's size only known during the run?"""
    return bool(unknown) and not unknown.isdisjoint(sizes.symbols(value.shape))


def _buffers(
    fused: FusedGraph, bases: Mapping[Value, Value], locations: Mapping[Value, Location]
) -> dict[Value, int]:
    """For each value of data-dependent size, a buffer that is free while it lives. The first
    ones belong to the outputs, by index."""
    unknown = set(fused.graph.data_dependent)
    if not unknown:
        return {}
    last = _lives(fused, bases)
    free_from: list[int] = []  # for each buffer, the group from which on it is free
    first = len(fused.graph.outputs)
    found: dict[Value, int] = {}
    for group, team in zip(fused.groups, fused.at_once(), strict=True):
        for value in () if group.is_view else group.outputs:
            if value in locations or not is_data_dependent(value, unknown):
                continue
            slot = next((k for k, at in enumerate(free_from) if at <= team[0]), len(free_from))
            free_from[slot : slot + 1] = [last[value] + 1]
            found[value] = first + slot
    return found


def _live_range(
    nbytes: Expr, first: int, last: int, scale: Mapping[Var, int], may_lack: bool
) -> LiveRange:
    """may_lack: a branch or the rounds of a loop make it: where there are none its size may be
    negative."""
    rounded = sizes.size((nbytes + (ALIGN - 1)) // ALIGN * ALIGN)
    if may_lack and not sizes.is_never_more(sizes.size(0), rounded):
        rounded = sizes.size(maximum(rounded, sizes.size(0)))
    typical = sizes.at(rounded, scale)
    if as_int(rounded) is None:  # what is empty at the typical sizes need not be at others:
        typical = max(typical, ALIGN)  # one of two that live at once must lie below the other
    return LiveRange(rounded, typical, first, last)


def _dies_in(
    group: FusedGroup,
    output: Value,
    now: int,
    last: Mapping[Value, int],
    of_value: Mapping[Value, LiveRange],
    bases: Mapping[Value, Value],
) -> LiveRange | None:
    """The live range of an input that `output` may be written over: same shape and element size,
    read element by element, never read again."""
    if len(group.outputs) > 1 or any(OPERATORS[n.op].fusion is not BROADCAST for n in group.nodes):
        return None
    for value in group.inputs:
        live_range = of_value.get(bases.get(value, value))
        if (
            live_range is not None
            and last[bases.get(value, value)] == now
            and value.shape == output.shape
            and value.dtype.bits == output.dtype.bits
        ):
            return live_range
    return None


def _largest_live_set(ranges: Sequence[LiveRange], steps: int) -> int:
    return max(_live_bytes(ranges, steps))


def _live_bytes(ranges: Sequence[LiveRange], steps: int) -> list[int]:
    """The bytes that live at each step."""
    change = [0] * (steps + 1)
    for live_range in ranges:
        change[live_range.first] += live_range.typical
        change[live_range.last + 1] -= live_range.typical
    return list(accumulate(change))


def _assign_offsets(ranges: Sequence[LiveRange], steps: int) -> int:
    """Offsets for the typical sizes. Returns the total.

    Greedy first fit in a few orders; while the best total is above the largest live set, the
    live range that ends highest and those that hold it up get their offsets earlier.
    """
    conflicts = _conflicts(ranges, steps)
    live = _live_bytes(ranges, steps)
    bound = max(live)
    crowded = live.index(bound)
    orders = (
        lambda p: (-p.typical, p.first),
        lambda p: (-p.typical * (p.last - p.first + 1), p.first),
        lambda p: (p.first, -p.typical),
        lambda p: (-(p.last - p.first), -p.typical),
        # from the step with the least choice on, forwards and backwards
        lambda p: (max(0, p.first - crowded, crowded - p.last), -p.typical),
        # what has most beside it has the least choice
        lambda p: (-sum(q.typical for q in conflicts[id(p)]), p.first),
    )
    best: tuple[int, list[LiveRange], list[int]] | None = None
    for key in orders:
        order = sorted(ranges, key=key)
        total = _first_fit(order, conflicts)
        if best is None or total < best[0]:
            best = total, order, [p.at for p in ranges]
        if total <= bound * GOOD:
            break
    if best is None:
        return 0
    tries = min(TRIES, WORK // max(1, sum(map(len, conflicts.values())) + len(ranges)))
    order = best[1]
    total = _first_fit(order, conflicts)
    for _ in range(tries):
        if best[0] <= bound * GOOD:
            break
        order = _raise_priority(order, conflicts, total)
        total = _first_fit(order, conflicts)
        if total < best[0]:
            best = total, order, [p.at for p in ranges]
    for p, at in zip(ranges, best[2], strict=True):
        p.at = at
    return best[0]


def _conflicts(ranges: Sequence[LiveRange], steps: int) -> dict[int, list[LiveRange]]:
    """For each live range (by id), those that live at once with it."""
    starts: list[list[LiveRange]] = [[] for _ in range(steps + 1)]
    for p in ranges:
        starts[p.first].append(p)
    conflicts: dict[int, list[LiveRange]] = {id(p): [] for p in ranges}
    live: list[LiveRange] = []
    for step in range(steps):
        live = [p for p in live if p.last >= step]
        for p in starts[step]:
            for other in live:
                conflicts[id(p)].append(other)
                conflicts[id(other)].append(p)
            live.append(p)
    return conflicts


def _first_fit(order: Sequence[LiveRange], conflicts: Mapping[int, Sequence[LiveRange]]) -> int:
    """Put each live range at the lowest offset that is free during its life."""
    for p in order:
        p.at = -1
    total = 0
    for p in order:
        at = 0
        for q in sorted([q for q in conflicts[id(p)] if q.at >= 0], key=_offset):
            if q.at >= at + p.typical:
                break
            at = max(at, q.at + q.typical)
        p.at = at
        total = max(total, at + p.typical)
    return total


def _offset(p: LiveRange) -> int:
    return p.at


def _raise_priority(
    order: Sequence[LiveRange], conflicts: Mapping[int, Sequence[LiveRange]], total: int
) -> list[LiveRange]:
    """The order with the highest live range, and below it the chain that holds it up, before all
    others."""
    top = next((p for p in order if p.at + p.typical == total), None)
    if top is None:
        return list(order)
    chain = [top]
    while chain[-1].at > 0:
        below = next(
            (q for q in conflicts[id(chain[-1])] if q.at + q.typical == chain[-1].at), None
        )
        if below is None:
            break
        chain.append(below)
    first = {id(p) for p in chain}
    return [*chain, *(p for p in order if id(p) not in first)]


def _symbolic_offsets(
    ranges: Sequence[LiveRange], total: int, label: str
) -> tuple[Expr, dict[Var, Expr]]:
    """Offsets for all sizes; returns the arena's size, and what names in them stand for."""
    if all(as_int(p.nbytes) is not None for p in ranges):
        for p in ranges:
            p.offset = sizes.size(p.at)
        return sizes.size(total), {}
    named: dict[Var, Expr] = {}
    names: dict[Expr, Var] = {}

    def largest(ends: Sequence[Expr]) -> Expr:
        kept = _never_less(ends)
        if len(kept) < 2:
            return kept[0] if kept else sizes.size(0)
        end = reduce(maximum, kept)
        # no symbol's name has a dot
        name = names.setdefault(end, Var(f"offset.{label}{len(names)}"))
        named.setdefault(name, end)
        return name

    done: list[LiveRange] = []
    for p in sorted(ranges, key=lambda p: (p.at, p.first)):
        below = [
            q for q in done if q.first <= p.last and p.first <= q.last and q.at + q.typical <= p.at
        ]
        p.offset = largest([sizes.size(q.offset + q.nbytes) for q in _tops(below)])
        done.append(p)
    return largest([sizes.size(p.offset + p.nbytes) for p in ranges]), named


def _tops(below: Sequence[LiveRange]) -> list[LiveRange]:
    """Those that no other of them rests on: their ends bound the others'."""
    return [
        q
        for q in below
        if not any(
            r is not q and q.at + q.typical <= r.at and q.first <= r.last and r.first <= q.last
            for r in below
        )
    ]


def _never_less(values: Sequence[Expr]) -> list[Expr]:
    """Those of the expressions that no other is never less than."""
    kept: list[Expr] = []
    for value in dict.fromkeys(values):
        if not any(sizes.is_never_more(value, other) for other in kept):
            kept = [v for v in kept if not sizes.is_never_more(v, value)] + [value]
    return kept
