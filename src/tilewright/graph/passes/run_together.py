"""run_together: recurrences that do not wait for each other run at once, one on each thread.

In: a fused graph and a number of threads. Out: the same groups in an order in which such groups
stand side by side, and which stand so. The steps of a recurrence follow one another, so one thread
runs them; the two directions of a layer leave no thread idle. What was between two of them and
follows from the first, or from a data-dependent size of what does, moves behind both, the rest
before them.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.graph.builder import symbols_of
from tilewright.graph.graph import Value, binds
from tilewright.graph.group import FusedGraph, FusedGroup
from tilewright.graph.operator import RECURRENT, having
from tilewright.ir.expr import Var

SERIAL = having(RECURRENT) | {"loop"}


def run_together(fused: FusedGraph, threads: int) -> FusedGraph:
    """Put groups side by side that `threads` threads are to run at once."""
    if threads < 2 or sum(_is_serial(g) for g in fused.groups) < 2:
        return fused
    rest, done, together = list(fused.groups), list[FusedGroup](), list[range]()
    while rest:
        team, before, after = _team(rest, threads)
        done += before
        if len(team) > 1:
            together.append(range(len(done), len(done) + len(team)))
        done += team
        rest = after
    return FusedGraph(fused.graph, done, together, fused.bodies)


def _is_serial(group: FusedGroup) -> bool:
    return group.anchor.op in SERIAL


def _needs(group: FusedGroup) -> set[Value | Var]:
    """The values and the sizes that must be known before a group runs."""
    sizes = (s for node in group.nodes for s in symbols_of(node))
    return {*group.inputs, *(v for v, _ in group.demand), *sizes}


def _team(
    groups: Sequence[FusedGroup], threads: int
) -> tuple[list[FusedGroup], list[FusedGroup], list[FusedGroup]]:
    """The first groups that may run at once (or one alone), what is to run before and after."""
    first = next((n for n, g in enumerate(groups) if _is_serial(g)), len(groups) - 1)
    team, before, waiting = [groups[first]], list(groups[:first]), list[FusedGroup]()
    made: set[Value | Var] = set(groups[first].outputs)  # by the team, and of that
    for n, group in enumerate(groups[first + 1 :], first + 1):
        if not made.isdisjoint(_needs(group)):
            waiting.append(group)
            made.update(Var(s) for m in group.nodes for s in binds(m))
        elif _is_serial(group) and group.demand == team[0].demand:
            team.append(group)
            if len(team) == threads:
                return team, before, [*waiting, *groups[n + 1 :]]
        else:
            before.append(group)
            continue
        made.update(group.outputs)
    if len(team) == 1:
        return team, list(groups[:first]), list(groups[first + 1 :])
    placed = {id(g) for g in (*team, *before)}
    return team, before, [g for g in groups if id(g) not in placed]
