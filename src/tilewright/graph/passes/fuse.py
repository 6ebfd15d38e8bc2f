"""fuse: decide which nodes one kernel computes.

In: a graph. Out: a FusedGraph. A group has one output, and what it computes on the way is read by
nobody else (so groups cannot wait for each other in a circle). Groups grow from an anchor along
immediate post-dominators: if everything that leaves a node comes together in one node, all
between may join at once.

    complex    convolution, matmul: then element-wise work on its output, while the shape stays
    attention  two products and the softmax between them, then as complex
    reduction  softmax, norms, pools: what feeds it (injective) and element-wise work on its output
    injective  element-wise work, slices, transposes, gathers: any of these together
    opaque     alone
Views (reshape) are no code and stay alone. What is needed under one condition joins nothing that is
needed under another (`demand`), and conditions are results. Of two values that one condition
chooses between, and nobody else reads, one is made, where the choice's result lies. What may join
does so by decision `<value>.fused`, of what is then not stored; three operators are an attention by
`<value>.attention`.
"""

from __future__ import annotations

from collections.abc import Iterable

from tilewright.arith.estimate import estimate_by_symbols
from tilewright.graph import sizes
from tilewright.graph.graph import Graph, Node, Value
from tilewright.graph.group import FusedGraph, FusedGroup, make_group
from tilewright.graph.inlining import Inlined, inlined, load_of
from tilewright.graph.layout_policy import Decisions
from tilewright.graph.operator import (
    BROADCAST,
    CHEAP,
    COMPLEX,
    INJECTIVE,
    OPAQUE,
    OPERATORS,
    POOL,
    REDUCTION,
    having,
)
from tilewright.graph.passes.attention import attention
from tilewright.graph.passes.demand import are_apart, demand
from tilewright.ir.expr import as_int

ROW = 16  # elements that are worth reading as they lie
MOST_INLINED = 128  # operations in one expression after everything was inlined
MOST_WRITTEN = 2000  # nodes of that expression, where some operators read an input many times
DECIDED = "so it was decided"  # why something is cut
LOOPS = frozenset({"loop", "while_loop"})
READ_OFTEN = having(POOL) | {"lrn", "lrn_packed"}  # each element of their input
RECOMPUTED = having(CHEAP)


def fuse(graph: Graph, *, is_body: bool = False, decisions: Decisions | None = None) -> FusedGraph:
    """Group the nodes of `graph` (see the module's opening). is_body: of a loop that the host
    program runs."""
    return _Fusion(graph, is_body, decisions or Decisions()).run()


class _Fusion:
    """The state of one fusion: to which anchor each node belongs, and why."""

    def __init__(self, graph: Graph, is_body: bool, decisions: Decisions) -> None:
        self.graph, self.is_body, self.decisions = graph, is_body, decisions
        self.fused: dict[Node, bool] = {}  # decided for what a node makes
        self.users = graph.users()
        self.made_by = graph.producers()
        self.order = {n: i for i, n in enumerate(graph.nodes)}
        self.demand = demand(graph)
        self.kept = set(graph.outputs)
        self.kept.update(v for asked in self.demand.values() for v, _ in asked)
        self.post_dominator_of = self.post_dominators()
        self.group: dict[Node, Node] = {}  # node → anchor
        self.members: dict[Node, list[Node]] = {}
        self.why: dict[Node, dict[str, str]] = {}

    def run(self) -> FusedGraph:
        for node in self.graph.nodes:
            if self.sides(node):
                self.start(node)
        for node in self.graph.nodes:
            if node in self.group:
                continue
            before = attention(node, self.made_by, self.users, self.kept)
            if (
                before
                and self.group.keys().isdisjoint((node, *before))
                and self.is_needed_with(node, before)
                and self.decisions.decide(f"{node.name}.attention", True, (True, False))
            ):
                self.start(node)
                before.sort(key=self.order.__getitem__)
                self.join(node, before, "its rows are made in tiles, with those of the result")
                self.absorb_users(node)
        for kind in (COMPLEX, REDUCTION, BROADCAST):
            for node in self.graph.nodes:
                fusion = OPERATORS[node.op].fusion
                if node in self.group or not (
                    fusion is kind or (kind is BROADCAST and fusion is not kind)
                ):
                    continue
                self.start(node)
                if fusion is OPAQUE or OPERATORS[node.op].view:
                    continue
                if fusion is REDUCTION:
                    self.absorb_inputs(node)
                if node.op == "matmul":
                    self.absorb_batches(node)
                self.absorb_users(node)
                if kind is BROADCAST:
                    self.absorb_inputs(node)  # the other ways to where its own one leads
        return self.finish()

    def post_dominators(self) -> dict[Node | None, Node | None]:
        """The immediate post-dominator of each node (None: its results leave the graph)."""
        depth: dict[Node | None, int] = {None: 0}
        nearest: dict[Node | None, Node | None] = {}  # None, the end, has none: it is never asked
        for node in reversed(self.graph.nodes):
            common: Node | None = None
            found = False
            for value in node.outputs:
                if value in self.kept:
                    common, found = None, True
                    break
                for user in self.users[value]:
                    a: Node | None = user
                    if not found:
                        common, found = a, True
                        continue
                    while common is not a:
                        if depth[common] >= depth[a]:
                            common = nearest[common]
                        else:
                            a = nearest[a]
            nearest[node] = common
            depth[node] = depth[common] + 1
        return nearest

    def sides(self, node: Node) -> list[Node]:
        """The two nodes that make what one boolean chooses between, where nobody else reads it and
        the run never makes both: they may write it where the choice's result lies."""
        if node.op != "where" or as_int(node.inputs[0].elements) != 1:
            return []
        out, makers = node.output, list[Node]()
        is_open = not set(self.graph.data_dependent).isdisjoint(sizes.symbols(out.shape))
        if is_open or (self.is_body and out in self.graph.outputs):
            return []
        for value in node.inputs[1:]:
            if value.shape != out.shape:
                return []
            alone = self.users[value] == [node]
            maker = self.made_by.get(value)
            while alone and maker is not None and OPERATORS[maker.op].view:
                alone = value not in self.kept
                user, value = maker, maker.inputs[0]
                alone = alone and self.users[value] == [user]
                maker = self.made_by.get(value)
            if not alone or value in self.kept or maker is None or maker.op in LOOPS:
                return []
            makers.append(maker)
        return makers if are_apart(*(self.demand[maker] for maker in makers)) else []

    def is_fused(self, node: Node) -> bool:
        """Is what a node makes, and may be made where it is read, made there?"""
        if node not in self.fused:
            name = f"{node.name}.fused"
            self.fused[node] = self.decisions.decide(name, True, (True, False))
        return self.fused[node]

    def start(self, node: Node) -> None:
        self.group[node] = node
        self.members[node] = [node]
        self.why[node] = {}

    def join(self, anchor: Node, nodes: Iterable[Node], why: str) -> None:
        for node in nodes:
            self.group[node] = anchor
            self.members[anchor].append(node)
            self.why[anchor][node.name] = why

    def absorb_users(self, anchor: Node) -> None:
        """Take in what follows, one post-dominator after the other, while it may join."""
        if len(anchor.outputs) > 1:
            return
        last = anchor
        while True:
            goal = self.post_dominator_of[last]
            if goal is None:
                return
            goal = self.beyond_view(anchor, goal)
            between = self.between(last, goal)
            if between is None:
                return
            reason = self.refusal(anchor, between)
            if not reason and not self.is_fused(last):
                reason = DECIDED
            if reason:
                self.why[anchor][f"{goal.name} ({goal.op}) is cut"] = reason
                return
            self.join(anchor, between, self.reason(anchor))
            last = goal

    def beyond_view(self, anchor: Node, goal: Node) -> Node:
        """Where a view is followed by a move, an injective group steps over it: one kernel for
        both. What reads nothing, as a range, steps over any: it is less work than to read it."""
        after = self.post_dominator_of[goal] if OPERATORS[goal.op].view else None
        if after is None or OPERATORS[anchor.op].fusion not in (BROADCAST, INJECTIVE):
            return goal
        kinds = (INJECTIVE,) if anchor.inputs else (INJECTIVE, BROADCAST)
        joins = OPERATORS[after.op].fusion in kinds and not OPERATORS[after.op].view
        return after if joins else goal

    def between(self, first: Node, goal: Node) -> list[Node] | None:
        """The nodes after `first` up to and with `goal`, in order; None if one is taken or they
        are too many.

        All ways from `first` lead to `goal`, so walking forward finds nothing else.
        """
        seen: set[Node] = set()
        stack = [u for v in first.outputs for u in self.users[v]]
        while stack:
            node = stack.pop()
            if node in seen:
                continue
            if node in self.group or len(seen) > MOST_INLINED:
                return None
            seen.add(node)
            if node is not goal:
                stack.extend(u for v in node.outputs for u in self.users[v])
        return sorted(seen, key=self.order.__getitem__)

    def is_needed_with(self, anchor: Node, nodes: Iterable[Node]) -> bool:
        """Are all needed under the same conditions?"""
        return all(self.demand[node] == self.demand[anchor] for node in nodes)

    def refusal(self, anchor: Node, nodes: list[Node]) -> str:
        """Why `nodes` may not follow in the anchor's group; empty if they may."""
        kind = OPERATORS[anchor.op].fusion
        out = anchor.output
        if not self.is_needed_with(anchor, nodes):
            return f"{anchor.name} is not always needed"
        for node in nodes:
            entry = OPERATORS[node.op]
            if entry.view and (kind in (COMPLEX, REDUCTION) or node is nodes[-1]):
                return f"{node.name} is a view and needs no code"
            if kind in (COMPLEX, REDUCTION) and entry.fusion is not BROADCAST:
                return f"{node.op} is not element-wise"
            if kind in (COMPLEX, REDUCTION) and node.output.shape != out.shape:
                return f"{node.name} has another shape than {anchor.name}"
            if entry.fusion not in (BROADCAST, INJECTIVE):
                return f"{node.op} is {entry.fusion.value}"
            if len(node.outputs) > 1:
                return f"{node.op} has several outputs"
        if kind not in (COMPLEX, REDUCTION):
            return self.recomputation(anchor, nodes)
        return self.too_large([*self.members[anchor], *nodes])

    def recomputation(self, anchor: Node, nodes: list[Node]) -> str:
        """Why fusing would compute the same again and again; empty if it would not."""
        inside = {*self.members[anchor], *nodes}
        for node in nodes:
            if node.op == "concat":
                return "concat copies its inputs from where they are"
            if self.parts_rows(node, inside):
                return f"{node.name} would take rows apart that are read whole"
            if self.repeats_loads(node, inside):
                return f"{node.name} would load for each lane what makes {node.inputs[0].name}"
            for value in node.inputs:
                maker = self.made_by.get(value)
                if (
                    maker in inside
                    and maker.op not in RECOMPUTED
                    and self.grows(value, node.output)
                ):  # type: ignore[union-attr]
                    return f"{maker.name} would be computed for each of {node.name}'s elements"  # type: ignore[union-attr]
        return self.too_large([*self.members[anchor], *nodes])

    def parts_rows(self, node: Node, inside: set[Node]) -> bool:
        """Are rows gathered several times (the pixels around a point) that it moves before, or
        after? They fill vectors as they lie; moved in one kernel with what reads them, each element
        would be fetched from somewhere else."""
        if node.op == "transpose":
            tables = {n.inputs[0] for n in inside if n.op == "gather_nd"}
        elif node.op == "gather_nd":
            maker = self.made_by.get(node.inputs[0])
            moved = maker is not None and maker in inside and maker.op == "transpose"
            tables = {node.inputs[0]} if moved else set[Value]()
        else:
            return False
        return any(
            [u.op for u in self.users[table]].count("gather_nd") > 1
            and (as_int(table.shape[-1]) or 0) >= ROW
            for table in tables
        )

    def repeats_loads(self, node: Node, inside: set[Node]) -> bool:
        """Is it one of several gathers from rows that are made of several others? (The columns of
        an image that is resized, after its rows.) Each would load all that a row is made of, and
        one number of a row that is stored. Rows that are hardly read, since the image shrinks, are
        not stored; where the columns are vectors (packed channels), only an image that grows is."""
        if node.op not in ("gather", "sample"):
            return False
        rows, axis = node.inputs[0], node["axis"]
        same = [u for u in self.users[rows] if u.op == node.op and u["axis"] == axis]
        if self.made_by.get(rows) not in inside or len(same) < 2:
            return False
        by_lanes = axis % rows.rank == rows.rank - 1
        made, kept = estimate_by_symbols(node.output.elements), estimate_by_symbols(rows.elements)
        spare = made * 2 - kept if by_lanes else made - kept * 2
        return spare >= 0 and self.rows_loaded(rows, inside) > 1

    def rows_loaded(self, row: Value, inside: set[Node]) -> int:
        """How many rows from outside of a group make one inside."""
        found, seen, stack = 0, set[Node](), [self.made_by[row]]
        while stack:
            node = stack.pop()
            if node in seen:
                continue
            seen.add(node)
            for value in node.inputs:
                maker = self.made_by.get(value)
                if maker is not None and maker in inside:
                    stack.append(maker)
                else:
                    found += value.rank == row.rank and value.shape[-1] == row.shape[-1]
        return found

    def grows(self, value: Value, result: Value) -> bool:
        """Does the result have more elements (each input element is read more than once)?"""
        if value.shape == result.shape:
            return False
        more = as_int(sizes.size(result.elements - value.elements))
        return more is None or more > 0

    def too_large(self, nodes: list[Node]) -> str:
        """Why the group's expression would grow too large; empty if it would not."""
        operations: dict[Value, int] = {}
        sizes_of: dict[Value, Inlined] = {}
        for node in sorted(nodes, key=self.order.__getitem__):
            inside = [v for v in node.inputs if v in operations]
            total = 1 + sum(operations[v] for v in inside)
            if total > MOST_INLINED:
                return f"its expression would grow to {total} operations"
            stored = OPERATORS[node.op].fusion in (COMPLEX, REDUCTION)
            size = load_of(node.outputs[0].rank)
            if inside or not stored:
                size = inlined(node, [sizes_of.get(v) or load_of(v.rank) for v in node.inputs])
                if size.nodes > MOST_WRITTEN:
                    return f"its expression would grow to {size.nodes} nodes"
            for v in node.outputs:
                operations[v] = total
                sizes_of[v] = load_of(v.rank) if stored else size
        return ""

    def reason(self, anchor: Node) -> str:
        if OPERATORS[anchor.op].fusion in (COMPLEX, REDUCTION):
            return f"element-wise on the output of {anchor.op}"
        return "each element follows from a few of its inputs'"

    def absorb_inputs(self, anchor: Node) -> None:
        """Take in the injective nodes that only this group reads, from its nodes upwards."""
        is_reduction = OPERATORS[anchor.op].fusion is REDUCTION
        stack = [v for member in self.members[anchor] for v in member.inputs]
        while stack:
            value = stack.pop()
            node = self.made_by.get(value)
            if node is None or node in self.group or value in self.kept:
                continue
            entry = OPERATORS[node.op]
            reason = ""
            if anchor.op in READ_OFTEN and not _is_open_pad(node):
                reason = f"{anchor.op} reads each element many times"
            elif entry.view:
                reason = "a view needs no code"
            elif not self.is_needed_with(anchor, [node]):
                reason = "it is not always needed"
            elif entry.fusion not in (BROADCAST, INJECTIVE) or node.op == "concat":
                reason = f"{node.op} is {entry.fusion.value}"
            elif len(node.outputs) > 1:
                reason = f"{node.op} has several outputs"
            elif any(self.group.get(u) is not anchor for u in self.users[value]):
                reason = "others read it too"
            elif any(
                u is not anchor and not _is_cheap(node) and self.grows(value, u.output)
                for u in self.users[value]
            ):
                reason = "it would be computed several times"
            elif is_reduction and len(self.members[anchor]) >= MOST_INLINED // 8:
                reason = "the group is large enough"
            elif not is_reduction and not node.output.dtype.is_float:
                # chains of choices between sizes would be one expression, too deep to simplify
                reason = "indices are computed by themselves"
            else:
                reason = self.too_large([*self.members[anchor], node])
            if not reason and not self.is_fused(node):
                reason = DECIDED
            if reason:
                self.why[anchor][f"{node.name} ({node.op}) is cut"] = reason
                continue
            self.join(anchor, [node], f"computed where {anchor.op} reads it")
            stack.extend(node.inputs)

    def absorb_batches(self, product: Node) -> None:
        """Take in what repeats the matrices of an operand: which of them is meant follows from the
        batch, once for all that is read of it."""
        for value in product.inputs:
            node = self.made_by.get(value)
            if (
                node is not None
                and _repeats_matrices(node)
                and node not in self.group
                and value not in self.kept
                and all(u is product for u in self.users[value])
                and self.is_needed_with(product, [node])
                and self.is_fused(node)
            ):
                self.join(product, [node], "which matrix it reads follows from the batch")

    def finish(self) -> FusedGraph:
        groups: list[FusedGroup] = []
        taken: dict[str, int] = {}
        there = set(self.graph.inputs)
        made_in: dict[Node, FusedGroup] = {}
        ready = sorted(
            (max(self.order[n] for n in nodes), anchor) for anchor, nodes in self._by_anchor()
        )
        for _, anchor_order in ready:
            anchor = self.graph.nodes[anchor_order]
            nodes = sorted(self.members[anchor], key=self.order.__getitem__)
            inside = set(nodes)
            outputs = [
                v
                for n in nodes
                for v in n.outputs
                if v in self.kept or any(u not in inside for u in self.users[v])
            ]
            outputs = outputs or list(nodes[-1].outputs)
            if len(anchor.outputs) > 1:
                outputs = list(anchor.outputs)
            label = "_".join(n.op for n in nodes[:4]) + ("_etc" if len(nodes) > 4 else "")
            count = taken.get(label, 0)
            taken[label] = count + 1
            name = f"{label}_{count}" if count else label
            asked = [x for x in self.demand[anchor] if x[0] in there]
            why = self.why[anchor]
            group = make_group(self.graph, name, nodes, outputs, anchor, why, asked)
            sides = [made_in[n] for n in self.sides(anchor)]
            group.joins = bool(sides) and are_apart(*(s.demand for s in sides))
            made_in.update(dict.fromkeys(nodes, group))
            groups.append(group)
            there.update(outputs)
        return FusedGraph(self.graph, groups)

    def _by_anchor(self) -> Iterable[tuple[int, list[Node]]]:
        return ((self.order[anchor], nodes) for anchor, nodes in self.members.items())


def _repeats_matrices(node: Node) -> bool:
    """Are the matrices over the last two axes of what it makes those of its input?"""
    if node.op != "stretch":
        return False
    shape = node.inputs[0].shape
    return len(shape) > 2 and shape[-2:] == node.output.shape[-2:]


def _is_cheap(node: Node) -> bool:
    """Does it cost no more to compute than to load? A pad of what lies in memory is a load of it
    under a mask."""
    return node.op in RECOMPUTED or _is_open_pad(node)


def _is_open_pad(node: Node) -> bool:
    """Does it pad by as much as only the run knows, as windows do that keep an open size?"""
    if node.op != "pad" or node["mode"] != "constant":
        return False
    return any(as_int(p) is None for p in (*node["before"], *node["after"]))
