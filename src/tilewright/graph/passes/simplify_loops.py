"""simplify_loops: a loop's rounds compute only what is new in them.

In: `loop` nodes. Out: a state that no round changes is read from outside; what follows from outside
alone is computed before the loop; so are all the products of a tensor's rows, taken by number round
after round, with one matrix, which a product of one row would read anew in every round; states and
rows that nobody reads are gone.
"""

from __future__ import annotations

from collections.abc import Iterable

from tilewright.graph.builder import Edit, without_dead
from tilewright.graph.graph import Graph, Node, Value
from tilewright.graph.operator import CHEAP, having
from tilewright.graph.ops.loop import body_of, unseen
from tilewright.graph.passes.eliminate import eliminate_common

ARITHMETIC = having(CHEAP)  # of indices


def simplify_loops(graph: Graph) -> Graph:
    """Simplify every loop of the graph."""
    if not any(node.op == "loop" for node in graph.nodes):
        return graph
    edit = Edit(graph)
    for node in graph.nodes:
        now = edit.current(node)
        if node.op != "loop" or not _Loop(edit, now).simplify():
            edit.append(now)
    return edit.finish_edit() if edit.replaced else graph


class _Loop:
    """One loop. `outside`: what stands outside for values of the body that are the same in every
    round."""

    def __init__(self, edit: Edit, node: Node) -> None:
        self.edit, self.node = edit, node
        self.body = body = eliminate_common(body_of(node["body"]))
        self.made_by = body.producers()
        count = node["states"]
        self.first = dict(zip(body.inputs[2:], node.inputs[2:], strict=True))
        self.after = dict(zip(body.inputs[2 : 2 + count], body.outputs[1:], strict=False))
        self.rows = body.outputs[1 + count :]
        still = [s for s, new in self.after.items() if self.copied(new) is s]
        self.outside = {v: self.first[v] for v in (*body.inputs[2 + count :], *still)}
        self.inner = Edit(body)

    def copied(self, value: Value) -> Value:
        """What a value of the body is a copy of."""
        while (node := self.made_by.get(value)) is not None and node.op == "copy":
            value = node.inputs[0]
        return value

    def simplify(self) -> bool:
        """Emit a simpler loop in its stead, if there is one."""
        for node in self.body.nodes:
            now = self.inner.current(node)
            if now.inputs and now.op != "loop" and all(v in self.outside for v in now.inputs):
                self.hoist(now)
            elif not self.hoist_rows(now):
                self.inner.append(now)
        moving = [s for s in self.after if s not in self.outside]
        count, results = len(self.after), self.node.outputs
        read = dict(zip((*self.after, *self.rows), results[1:], strict=True))
        rows = [
            (v, r) for v, r in zip(self.rows, results[1 + count :], strict=True) if self.is_read(r)
        ]
        kept = [s for s in moving if self.is_read(read[s])]
        while True:
            asked = [self.body.outputs[0], *(self.after[s] for s in kept), *(v for v, _ in rows)]
            body = self.with_outputs(asked)
            needed = {v for node in body.nodes for v in node.inputs} | {*body.outputs}
            more = [s for s in moving if s in needed or s in kept]
            if more == kept:
                break
            kept = more
        captured = [v for v in self.outside if v in needed]
        inputs = (*self.body.inputs[:2], *kept, *captured)
        text = str(
            body.replace(
                inputs=inputs,
                input_names=tuple(v.name for v in inputs),
                output_names=tuple(f"out{k}" for k in range(len(body.outputs))),
            )
        )
        if text == self.node["body"]:
            return False
        used = [results[0], *(read[s] for s in kept), *(r for _, r in rows)]
        made = self.edit.emit(
            "loop",
            *self.node.inputs[:2],
            *(self.first[s] for s in kept),
            *(self.outside[v] for v in captured),
            name=[v.name for v in used],
            body=text,
            states=len(kept),
            length=self.node["length"],
            extents=unseen(body),
        )
        self.edit.substitute(used, made)
        for state in self.after:
            if state in self.outside:
                self.edit.substitute([read[state]], self.first[state])
        return True

    def is_read(self, result: Value) -> bool:
        return self.edit.uses.get(result, 0) > 0

    def with_outputs(self, outputs: Iterable[Value]) -> Graph:
        """The body so far, for these outputs alone."""
        now = [self.inner.replaced.get(v, v) for v in outputs]
        return without_dead(self.body.replace(nodes=self.inner.nodes, outputs=tuple(now)))

    def hoist(self, node: Node) -> None:
        """Apply the node before the loop."""
        given = [self.outside[v] for v in node.inputs]
        names = [v.name for v in node.outputs]
        made = self.edit.emit(node.op, *given, name=names, **dict(node.attrs))
        made = (made,) if isinstance(made, Value) else made
        self.outside.update(zip(node.outputs, made, strict=True))

    def hoist_rows(self, node: Node) -> bool:
        """Multiply all rows before the loop, if this multiplies one of them in each round."""
        if node.op != "matmul" or node["transpose_a"] or node.inputs[1] not in self.outside:
            return False
        row = self.inner.made_by.get(self.copied(node.inputs[0]))
        if row is None or row.op != "gather" or row["axis"] != 0:
            return False
        of, at = row.inputs
        if of not in self.outside or of.rank != 3 or at.rank or node.inputs[1].rank != 2:
            return False
        if self.outside[of] in self.edit.constants or not self.counts(at):
            return False  # a table, of which the rounds may ask for few rows
        given = self.outside[of], self.outside[node.inputs[1]]
        whole = self.edit.emit("matmul", *given, name=node.name, **dict(node.attrs))
        own = self.inner.value(node.name, whole.dtype, whole.shape)
        self.outside[own] = whole
        self.inner.substitute(node.outputs, self.inner.emit("gather", own, at, axis=0))
        return True

    def counts(self, index: Value) -> bool:
        """Does it follow from the number of the round, and from states that move by a step?"""
        seen, left = {*self.outside, self.body.inputs[0]}, [index]
        while left:
            value = left.pop()
            if value in seen:
                continue
            seen.add(value)
            if value in self.after:
                moved = self.made_by.get(self.copied(self.after[value]))
                if moved is None or moved.op not in ("add", "sub"):
                    return False
                a, b = moved.inputs
                if (a is not value or b not in self.outside) and (
                    b is not value or a not in self.outside or moved.op == "sub"
                ):
                    return False
            else:
                node = self.made_by.get(value)
                if node is None or node.op not in ARITHMETIC:
                    return False
                left += node.inputs
        return True
