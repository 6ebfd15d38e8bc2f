"""separate_outputs: give every output memory that a kernel writes for it alone.

An output that is an input, a constant, a view of one, or that shares memory with another output is
copied; so is the last state of a loop that the host program runs, which lies where the states do.
"""

from __future__ import annotations

from tilewright.graph.builder import Edit
from tilewright.graph.graph import Graph, Value
from tilewright.graph.operator import OPERATORS
from tilewright.graph.ops.while_loop import states_of


def separate_outputs(graph: Graph) -> Graph:
    """Insert copies before outputs that would share memory."""
    made_by = graph.producers()

    def base(value: Value) -> Value:
        node = made_by.get(value)
        while node is not None and OPERATORS[node.op].view:
            value = node.inputs[0]
            node = made_by.get(value)
        return value

    taken: set[Value] = set()
    edit: Edit | None = None
    outputs = list(graph.outputs)
    for n, value in enumerate(outputs):
        root = base(value)
        maker = made_by.get(root)
        if maker is not None and root not in states_of(maker) and root not in taken:
            taken.add(root)
            continue
        if edit is None:
            edit = Edit(graph)
            for node in graph.nodes:
                edit.append(node)
        outputs[n] = edit.emit("copy", value, name=value.name)
    if edit is None:
        return graph
    edit.graph = graph.replace(outputs=outputs)
    return edit.finish_edit()
