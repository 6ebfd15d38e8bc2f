"""A failing graph made small: outputs, worlds and steps are dropped while it fails the same way.

A step can be cut out anywhere, because the content of what it made is known: that becomes an input.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.differential.growth import Grown, Step, Value

Fails = Callable[[Grown], bool]


def shrink(graph: Grown, fails: Fails) -> Grown:
    """The smallest graph found that still fails."""
    for k in range(len(graph.outputs)):
        one = without_dead(graph, graph.outputs[k : k + 1])
        if len(graph.outputs) > 1 and fails(one):
            graph = one
            break
    if graph.worlds > 1:
        for world in range(graph.worlds):
            alone = in_world(graph, world)
            if fails(alone):
                graph = alone
                break
    smaller = True
    while smaller:
        smaller = False
        count = len(graph.steps) // 2
        while count:
            start = 0
            while start < len(graph.steps) and len(graph.steps) > 1:
                trial = cut(graph, graph.steps[start : start + count])
                if trial.steps and len(trial.steps) < len(graph.steps) and fails(trial):
                    graph, smaller = trial, True
                else:
                    start += count
            count //= 2
    return graph


def cut(graph: Grown, steps: list[Step]) -> Grown:
    """Without these steps: what they made and others read is given. Outputs that nothing makes any
    longer are not returned; what the steps alone read and others made is."""
    gone = set(map(id, steps))
    kept = [s for s in graph.steps if id(s) not in gone]
    made = {v for s in kept for v in s.outputs}
    read = {v for s in steps for v in s.inputs if v is not None}
    outputs = [v for v in graph.outputs if v in made]
    if not outputs:
        outputs = [v for v in read if v in made]
    return without_dead(graph, outputs, kept)


def without_dead(graph: Grown, outputs: list[Value], steps: list[Step] | None = None) -> Grown:
    """What these outputs need."""
    needed, kept = set(outputs), []
    for step in reversed(graph.steps if steps is None else steps):
        if needed.intersection(step.outputs):
            needed.update(v for v in step.inputs if v is not None)
            kept.append(step)
    return Grown(kept[::-1], outputs, graph.version, graph.symbols, graph.title)


def in_world(graph: Grown, world: int) -> Grown:
    """With the sizes of one world alone, all of them constant."""
    twins: dict[Value, Value] = {}

    def twin(v: Value) -> Value:
        return twins.setdefault(v, Value(v.name, [v.worlds[world]], v.fixed))

    steps = [
        Step(
            s.node,
            [v and twin(v) for v in s.inputs],
            [twin(v) for v in s.outputs],
            s.exact,
            s.rough,
        )
        for s in graph.steps
    ]
    return Grown(steps, [twin(v) for v in graph.outputs], graph.version, (), graph.title)
