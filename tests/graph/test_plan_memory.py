"""plan_memory: nothing that lives at once overlaps, for all sizes; little is wasted; views
share."""

import itertools

import numpy as np
import pytest

from tests.graph.rewriting import graph
from tilewright.arith.estimate import SEQUENCE
from tilewright.graph import Builder, sizes
from tilewright.graph.group import FusedGraph
from tilewright.graph.passes.fuse import fuse
from tilewright.graph.passes.plan_memory import (
    ALIGN,
    LiveRange,
    MemoryPlan,
    _assign_offsets,
    _symbolic_offsets,
    plan_memory,
)
from tilewright.graph.passes.separate_outputs import separate_outputs
from tilewright.ir.expr import Var, minimum
from tilewright.ir.walk import visit


def planned(g, **options) -> tuple[FusedGraph, MemoryPlan]:
    fused = fuse(separate_outputs(g))
    return fused, plan_memory(fused, **options)


def bases_of(fused):
    bases = {}
    for group in fused.groups:
        if group.is_view:
            source = group.nodes[0].inputs[0]
            bases[group.outputs[0]] = bases.get(source, source)
    return bases


def check(fused: FusedGraph, plan: MemoryPlan, values=None, workspace=None) -> None:
    """No two arena values that live at once overlap, and all lie inside the arena."""
    values = plan.known(values or {})
    bases = bases_of(fused)
    spans = {}
    for n, group in enumerate(fused.groups):
        for v in (*group.inputs, *group.outputs):
            root = bases.get(v, v)
            if plan.locations[root].space == "arena":
                first, _ = spans.get(root, (n, n))
                spans[root] = (first, n)
        if workspace and group.name in workspace:
            spans[group.name] = (n, n)
    total = sizes.at(plan.arena_bytes, values)

    def extent(item):
        if isinstance(item, str):
            start, count = sizes.at(plan.workspaces[item].at, values), workspace[item]
        else:
            start, count = sizes.at(plan.locations[item].at, values), sizes.at(item.nbytes, values)
        assert start % ALIGN == 0 and start >= 0 and start + count <= total
        return start, start + count

    writes_over = {}
    for group in fused.groups:
        for out in group.outputs:
            for v in group.inputs:
                root = bases.get(v, v)
                if (
                    plan.locations.get(root) == plan.locations.get(out)
                    and plan.locations[out].space == "arena"
                ):
                    writes_over[out] = root
    for (a, (a0, a1)), (b, (b0, b1)) in itertools.combinations(spans.items(), 2):
        if a1 < b0 or b1 < a0 or writes_over.get(b) is a or writes_over.get(a) is b:
            continue
        (p, q), (r, s) = extent(a), extent(b)
        assert q <= r or s <= p, f"{a} and {b} overlap"


def chain(count, shape):
    build = Builder()
    x = build.input("x", "f32", shape)
    w = build.input("w", "f32", (shape[-1], shape[-1]))
    for _ in range(count):
        x = build.emit("tanh", build.emit("matmul", x, w))
    return build.finish([x])


def test_a_chain_needs_two_buffers():
    fused, plan = planned(chain(6, (64, 64)))
    check(fused, plan)
    assert sizes.at(plan.arena_bytes, {}) == 2 * 64 * 64 * 4 == plan.live_bytes


def test_outputs_inputs_and_constants_are_not_in_the_arena():
    g = graph(
        """
        def g(x: f32[4, 4]):
            c = constant(f32[4, 4], "c")
            a: f32[4, 4] = matmul(x, c)
            y: f32[4, 4] = matmul(a, c)
            return {"y": y, "a": a}
        """,
        c=np.ones((4, 4), np.float32),
    )
    fused, plan = planned(g)
    assert sizes.at(plan.arena_bytes, {}) == 0
    spaces = {v.name: plan.locations[v].space for v in fused.graph.values}
    assert spaces == {"x": "input", "c": "constant", "a": "output", "y": "output"}
    assert [sizes.at(plan.locations[v].at, {}) for v in fused.graph.outputs] == [0, 1]


def test_views_share_their_base_and_keep_it_alive():
    g = graph(
        """
        def g(x: f32[64, 64], w: f32[64, 64]):
            a: f32[64, 64] = matmul(x, w)
            v: f32[4096] = reshape(a, shape=(4096,))
            b: f32[64, 64] = matmul(x, a)
            c: f32[64, 64] = matmul(b, w)
            s: f32[4096] = softmax(v)
            t: f32[64, 64] = reshape(s, shape=(64, 64))
            y: f32[64, 64] = matmul(c, t)
            return {"y": y}
        """
    )
    fused, plan = planned(g)
    check(fused, plan)
    by_name = {v.name: plan.locations[v] for v in fused.graph.values}
    assert by_name["a"] == by_name["v"] and by_name["s"] == by_name["t"] != by_name["a"]


def test_a_view_as_output_is_written_in_place():
    g = graph(
        """
        def g(x: f32[4, 4], w: f32[4, 4]):
            a: f32[4, 4] = matmul(x, w)
            y: f32[16] = reshape(a, shape=(16,))
            return {"y": y}
        """
    )
    fused, plan = planned(g)
    assert all(plan.locations[v].space == "output" for v in fused.graph.values[2:])


def test_element_wise_groups_write_over_what_dies():
    g = graph(
        """
        def g(x: f32[64, 64], w: f32[64, 64]):
            a: f32[64, 64] = matmul(x, w)
            p: f32[64, 64] = matmul(a, a)
            b: f32[64, 64] = tanh(a)
            y: f32[64, 64] = matmul(b, p)
            return {"y": y}
        """
    )
    fused, plan = planned(g)
    check(fused, plan)
    by_name = {v.name: plan.locations[v] for v in fused.graph.values}
    assert by_name["b"] == by_name["a"]
    assert sizes.at(plan.arena_bytes, {}) == 2 * 64 * 64 * 4


@pytest.mark.parametrize(("of", "to"), [*itertools.permutations(("f16", "f32", "f64"), 2)])
def test_elements_of_another_size_are_not_written_over(of, to):
    build = Builder()
    x, w, wide = (build.input(n, d, (64, 64)) for n, d in (("x", of), ("w", of), ("wide", to)))
    dying = build.emit("matmul", x, w)
    other = build.emit("matmul", dying, dying)
    made = build.emit("cast", dying, to=to)
    fused, plan = planned(build.finish([build.emit("matmul", made, wide), other]))
    assert fused.groups[-2].outputs == (made,) and fused.groups[-2].inputs == (dying,)
    assert plan.locations[made] != plan.locations[dying]
    check(fused, plan)


def test_a_broadcast_operand_is_not_written_over():
    g = graph(
        """
        def g(x: f32[64, 1], w: f32[1, 1], z: f32[64, 64]):
            a: f32[64, 1] = matmul(x, w)
            b: f32[64, 64] = mul(a, z)
            y: f32[64, 64] = matmul(b, z)
            return {"y": y}
        """
    )
    fused, plan = planned(g)
    check(fused, plan)


def test_workspace_lives_while_its_group_runs():
    g = chain(3, (64, 64))
    names = [group.name for group in fuse(g).groups]
    workspace = {names[1]: 5000}
    fused, plan = planned(g, workspace=workspace)
    check(fused, plan, workspace=workspace)
    assert plan.live_bytes == 2 * 64 * 64 * 4 + 5056


def test_a_value_beside_the_most_gets_its_offset_before_larger_ones():
    """Of a large image, a smaller one and a product's workspace, the smaller one lives beside all:
    above the large one it left too little room for what the product gives."""
    one, nbytes = sizes.size(1), (153600, 62208, 37632, 117504)
    image, middle, result, workspace = (
        LiveRange(one, size, *life)
        for size, life in zip(nbytes, [(0, 1), (1, 2), (2, 3), (2, 2)], strict=True)
    )
    total = _assign_offsets([image, middle, result, workspace], 4)
    assert total == middle.typical + result.typical + workspace.typical


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("symbolic", [False, True])
def test_random_graphs(seed, symbolic):
    """Laws for several values of the symbols; for the typical ones at most 10 % over the largest
    live set."""
    random = np.random.default_rng(seed)
    build = Builder()
    n = Var("n") if symbolic else sizes.size(128)
    values = [build.input("x", "f32", (n, 16))]
    for _ in range(40):
        kind = random.integers(0, 4)
        v = values[int(random.integers(max(0, len(values) - 5), len(values)))]
        if kind == 0:
            w = build.constant(
                np.ones(
                    (v.static_shape or (0, int(v.shape[1].value)))[1:]
                    + (int(random.integers(1, 5)) * 16,),
                    np.float32,
                )
            )
            values.append(build.emit("matmul", v, w))
        elif kind == 1:
            values.append(build.emit("tanh", v))
        elif kind == 2:
            values.append(build.emit("reshape", build.emit("softmax", v), shape=v.shape))
        else:
            same = [u for u in values if u.shape == v.shape]
            values.append(build.emit("add", v, same[int(random.integers(len(same)))]))
    fused, plan = planned(build.finish([values[-1], values[-2]]))
    for count in (1, 7, 128, 1000):
        check(fused, plan, {Var("n"): count})
    assert plan.typical_bytes <= 1.10 * plan.live_bytes
    assert sizes.at(plan.arena_bytes, {Var("n"): SEQUENCE}) == plan.typical_bytes


@pytest.mark.parametrize("seed", range(60))
def test_ranges_that_meet_are_apart_at_all_sizes(seed):
    """Of sizes that grow with different symbols: which of two is the larger is known to the run."""
    random, symbols, steps = np.random.default_rng(seed), (Var("n"), Var("m")), 8
    ranges = []
    for _ in range(12):
        by, much = symbols[random.integers(2)], int(random.integers(1, 5))
        first = int(random.integers(steps))
        nbytes = sizes.size(by * much * ALIGN + int(random.integers(3)) * ALIGN)
        typical = sizes.at(nbytes, dict.fromkeys(symbols, SEQUENCE))
        ranges.append(LiveRange(nbytes, typical, first, int(random.integers(first, steps))))
    arena, offsets = _symbolic_offsets(ranges, _assign_offsets(ranges, steps), "")
    for n, m in itertools.product((0, 1, 100, 5000), repeat=2):
        known: dict[Var, int] = dict(zip(symbols, (n, m), strict=True))
        for name, end in offsets.items():
            known[name] = sizes.at(end, known)
        taken = [(at := sizes.at(r.offset, known), at + sizes.at(r.nbytes, known)) for r in ranges]
        assert all(end <= sizes.at(arena, known) for _, end in taken)
        for (a, (p, q)), (b, (r, s)) in itertools.combinations(zip(ranges, taken, strict=True), 2):
            assert a.last < b.first or b.last < a.first or q <= r or s <= p


def test_what_is_empty_at_the_typical_size():
    """A slice that has rows only where n is small lives beside a value of n rows."""
    build, n = Builder(), Var("n")
    x = build.input("x", "f32", (n, 16))
    few = sizes.size(minimum(n, 16 - minimum(n, sizes.size(16))))
    weight = build.constant(np.ones((16, 16), np.float32))
    both = [build.emit("softmax", x), build.emit("slice", x, starts=(0, 0), shape=(few, 16))]
    fused, plan = planned(build.finish([build.emit("matmul", v, weight) for v in both]))
    for count in (1, 3, 15, 128, 1000):
        check(fused, plan, {n: count})


def test_offsets_of_open_sizes_grow_with_the_live_ranges_and_not_faster():
    """Levels of a pyramid, all of them alive until the end: the larger of many ends is told by
    names, not repeated in each offset that rests on it."""
    for levels in (4, 8):
        build = Builder()
        h, w = Var("h"), Var("w")
        x = build.input("x", "f32", (1, 8, h, w))
        kernel = build.constant(np.ones((8, 8, 3, 3), np.float32))
        held = []
        for _ in range(levels):
            x = build.emit("conv", x, kernel, strides=(2, 2), pads=((1, 1), (1, 1)))
            held += [x, build.emit("conv", x, kernel, pads=((1, 1), (1, 1)))]
        total = None
        for v in held:
            v = build.emit("reduce_sum", build.emit("softmax", v), axes=(2, 3))
            total = v if total is None else build.emit("add", total, v)
        assert total is not None
        fused, plan = planned(build.finish([total]))
        told = [plan.arena_bytes, *plan.offsets.values()]
        told += [p.at for p in plan.locations.values() if p.space == "arena"]
        assert sum(sum(1 for _ in visit(e)) for e in told) < 40 * len(told)
        for a, b in itertools.product((1, 31, 400), (1, 64)):
            check(fused, plan, {h: a, w: b})


def test_the_table_names_every_value():
    fused, plan = planned(chain(2, (8, 8)))
    assert all(v.name in plan.text() for g in fused.groups for v in (*g.inputs, *g.outputs))
